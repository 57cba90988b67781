"""What a person sees: tables, the live view of a run, messages."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mptune.errors import RunFileError
from mptune.results import Trial
from mptune.run import Run, in_short
from mptune.tuner import Progress

__all__ = ["LiveView", "complain", "pareto_table", "print_json", "print_run", "remark", "table"]

#: Results go to standard output, everything else to standard error.
#: A pipe or file has no width a table would have to fit.
output = Console(highlight=False, width=None if sys.stdout.isatty() else 240)
messages = Console(stderr=True, highlight=False)

_ENDLESS: Final = 10_000
_SHOWN: Final = (
    "backend", "device", "sizes", "threshold", "metric", "configurations", "strategy", "seed", "wall_s"
)  # fmt: skip
_REFRESH_S: Final = 0.1
#: A live view that took a second is shown for twenty.
_VIEW_SHARE: Final = 20.0
#: Kinds of failure that are told one by one.
_KINDS: Final = 8


def complain(message: str) -> None:
    """Say on standard error what went wrong."""
    messages.print(Text("error: ", style="bold red") + Text(message), soft_wrap=True)


def remark(message: str) -> None:
    """Say something on standard error."""
    messages.print(Text(message, style="yellow"), soft_wrap=True)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document on standard output; a number that is not finite has no place in it."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()) -> Table:
    """Return a table; the columns named in ``right`` are aligned to the right, and only the last one wraps."""
    made = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        made.add_column(column, justify=justify, overflow="fold", no_wrap=column != columns[-1])
    for row in rows:
        made.add_row(*(Text(str(cell)) for cell in row))
    return made


def number(value: float, digits: int = 4) -> str:
    """Return a number for a table, a dash where there is none."""
    return f"{value:.{digits}g}" if math.isfinite(value) else "-"


def print_run(run: Run, *, warnings: bool = True) -> None:
    """Print what a run found: the winner beside the baseline, and how every trial ended.

    Args:
        run: the run.
        warnings: whether the data manager's warnings have not been seen yet.

    Raises:
        RunFileError: the run file it comes from lacks settings.
    """
    settings = run.settings
    missing = [name for name in _SHOWN if name not in settings]
    if missing:
        raise RunFileError(f"the run file does not say its {', '.join(missing)}: it was not written to its end")
    output.print(
        f"[bold]{run.kernel}[/] on {settings['backend']} ({settings['device']}), sizes {_pairs(settings['sizes'])}"
    )
    output.print(
        f"threshold {_threshold(settings)}, {run.evaluations} of {settings['configurations']:,} configurations, "
        f"strategy {settings['strategy']}, seed {settings['seed']}, {settings['wall_s']:.1f} s"
    )
    objective = run.objective
    if not objective.also and (objective.metric != "time_ms" or not objective.minimise):
        output.print(f"objective {objective.metric}, {'minimised' if objective.minimise else 'maximised'}")
    if objective.constraints:
        output.print(Text(f"where {' and '.join(objective.constraints)}"), soft_wrap=True)
    if objective.also:
        output.print(f"objectives {', '.join(objective.metrics)}, all minimised; best is the least {objective.metric}")
    output.print()
    columns = {"baseline": run.baseline, "best": run.best}
    if run.best is None:
        columns = {"baseline": run.baseline, "closest": run.closest}
    shown = {name: trial for name, trial in columns.items() if trial is not None}
    if shown:
        output.print(_comparison(run, shown))
        output.print()
    if run.front:
        output.print(
            f"front: {len(run.front)} of {run.feasible} feasible configurations, beaten by no other in every objective"
        )
        output.print(pareto_table(run, objective.metrics, run.front))
        output.print()
    if settings["wall_s"] > 0:
        output.print(f"time: {_spent(run)}")
    output.print(f"statuses: {_pairs(run.statuses)}")
    _print_failures(run, warnings)


def _comparison(run: Run, shown: Mapping[str, Trial]) -> Table:
    rows: list[tuple[object, ...]] = [
        ("time (ms)", *(number(t.time_ms) for t in shown.values())),
        ("speedup", *(number(run.speedup(t), 3) for t in shown.values())),
        ("error", *(number(t.error, 3) for t in shown.values())),
        ("memory (MB)", *(number(t.metric("memory_bytes") / 1e6) for t in shown.values())),
    ]
    read = dict.fromkeys((*run.objective.metrics, *sorted(run.objective.names | run.objective.constraint_names)))
    others = [metric for metric in read if metric not in ("time_ms", "error", "memory_bytes")]
    rows[:0] = [(metric, *(number(run.metric_of(t, metric)) for t in shown.values())) for metric in others]
    rows += [(name, *(t.configuration[name] for t in shown.values())) for name in run.parameter_names]
    return table(("", *shown), rows, right=tuple(shown))


def _print_failures(run: Run, warnings: bool) -> None:
    groups = run.failure_groups
    for group in groups[:_KINDS]:
        output.print(Text(f"  {group.count} × {group.status}: {group.message}"), soft_wrap=True)
    if len(groups) > _KINDS:
        others = sum(group.count for group in groups[_KINDS:])
        output.print(f"  {others} × {len(groups) - _KINDS} other kinds of failure")
    for warning in run.warnings if warnings else ():
        output.print(Text(f"  warning: {warning}", style="yellow"), soft_wrap=True)


def _spent(run: Run) -> str:
    """Return how the time was spent; what took less than a hundredth of it is among the rest."""
    wall_s = float(run.settings["wall_s"])
    spent = run.durations_s
    shown = {name: seconds for name, seconds in spent.items() if name != "other" and seconds >= 0.01 * wall_s}
    shown["other"] = max(0.0, wall_s - sum(shown.values()))
    return ", ".join(f"{name} {seconds:.1f} s ({seconds / wall_s:.0%})" for name, seconds in shown.items())


def pareto_table(run: Run, metrics: Sequence[str], trials: Sequence[Trial]) -> Table:
    """Return a front, one trial a row.

    Each parameter has a column of its own where there is room.
    """
    numbers = tuple(dict.fromkeys((*metrics, "speedup")))
    limited = run.settings.get("threshold") is not None or bool(run.objective.constraints)
    judged = ("feasible",) if limited and trials is not run.front else ()
    rows = [
        (
            *(number(run.metric_of(trial, metric), 3 if metric == "speedup" else 4) for metric in numbers),
            *("yes" if run.objective.is_feasible(trial) else "no" for _ in judged),
        )
        for trial in trials
    ]
    names = run.parameter_names
    cells = [(*row, *(t.configuration[name] for name in names)) for row, t in zip(rows, trials, strict=True)]
    wide = table((*numbers, *judged, *names), cells, right=numbers)
    if output.measure(wide, options=output.options.update(max_width=_ENDLESS)).maximum <= output.width:
        return wide
    texts = [(*row, t.configuration) for row, t in zip(rows, trials, strict=True)]
    return table((*numbers, *judged, "configuration"), texts, right=numbers)


def _threshold(settings: Mapping[str, Any]) -> str:
    threshold = settings["threshold"]
    if threshold is None:
        return "none"
    limit = _pairs(threshold) if isinstance(threshold, Mapping) else f"{threshold:g}"
    return f"{settings['metric']} <= {limit}"


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "none"


def _bar(share: float, width: int = 60) -> Text:
    done = round(width * min(share, 1.0))
    return Text("━" * done, style="green") + Text("━" * (width - done), style="bright_black")


def _log_line(count: int, progress: Progress) -> str:
    trial = progress.trial
    numbers = f"{number(trial.time_ms)} ms, error {number(trial.error, 3)}" if trial.is_valid else ""
    took_s = sum(trial.measurement.durations_s.values())
    origin = "from the run file" if progress.replayed else f"{took_s:.2f} s"
    parts = (str(trial.status), numbers, origin, str(trial.configuration), in_short(trial.message))
    return f"{count}/{progress.budget} {progress.phase}: {'; '.join(part for part in parts if part)}"


class LiveView:
    """What a tuning run shows on standard error while it goes on: a live view where that is a terminal.

    Args:
        time_limit_s: no evaluation begins after that.
        log: whether each trial gets a line that stays.
    """

    def __init__(self, time_limit_s: float | None = None, *, log: bool = False) -> None:
        self._time_limit_s = math.inf if time_limit_s is None else time_limit_s
        self._log = log
        self._told = 0
        self._next_view_s = 0.0
        self._live = Live(console=messages, refresh_per_second=8, transient=True) if messages.is_terminal else None
        self._warned: set[str] = set()

    def __enter__(self) -> LiveView:
        if self._live is not None:
            self._live.start()
            self._live.update(Text("preparing inputs and reference"))
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, progress: Progress) -> None:
        """Show where the run stands, the latest trial, and each warning the first time it comes."""
        self._told += 1
        if self._log:
            messages.print(Text(_log_line(self._told, progress)), soft_wrap=True)
        for warning in progress.trial.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                remark(f"warning: {warning}")
        if self._live is None or (start := time.monotonic()) < self._next_view_s:
            return
        self._live.update(self._view(progress))
        # It looks at every trial there is: with many of them, it must not take the time of the run.
        took_s = time.monotonic() - start
        self._next_view_s = start + took_s + max(_REFRESH_S, _VIEW_SHARE * took_s)

    def _view(self, progress: Progress) -> RenderableType:
        run = progress.run()
        done, budget = run.evaluations, min(progress.budget, int(run.settings["configurations"]))
        left_s = progress.elapsed_s / done * (budget - done)
        left_s = max(0.0, min(left_s, self._time_limit_s - progress.elapsed_s))
        best = run.best
        found = "no configuration under the threshold yet"
        if best is not None:
            found = (
                f"best {number(best.time_ms)} ms, speedup {number(run.speedup(best), 3)}, error {number(best.error, 3)}"
            )
        if run.front:
            found += f", {len(run.front)} on the front"
        head = f"{progress.phase}: {done}/{budget} evaluations, {run.feasible} feasible, about {left_s:.0f} s left"
        ahead = (
            Text(f"compiling ahead: {configuration}", style="dim", no_wrap=True, overflow="ellipsis")
            for configuration in progress.ahead
        )
        return Group(Text(head), _bar(done / budget), Text(found), Text(_pairs(run.statuses), style="dim"), *ahead)
