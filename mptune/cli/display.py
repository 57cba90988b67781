"""What a person sees: tables, messages, and what a run found."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from mptune.errors import RunFileError

if TYPE_CHECKING:
    from mptune.results import Trial
    from mptune.run import Run

__all__ = [
    "counter",
    "number",
    "pairs",
    "pareto_table",
    "print_error",
    "print_json",
    "print_note",
    "print_run",
    "table",
]

_SHOWN: Final = ("backend", "device", "sizes", "metric", "configurations", "strategy", "seed")
#: Kinds of failure that are listed one by one.
_KINDS: Final = 8
#: A pipe or a file has no width a table would have to fit.
_PIPE_WIDTH: Final = 240
_GAP: Final = "  "


def echo(text: str = "", *, err: bool = False) -> None:
    """Print on standard output or standard error; colours are left out where they are not wanted or not understood."""
    click.echo(text, err=err, color=False if "NO_COLOR" in os.environ else None)


def print_error(message: str) -> None:
    """Print on standard error what went wrong."""
    echo(click.style("error: ", fg="red", bold=True) + message, err=True)


def print_note(message: str) -> None:
    """Print a remark on standard error."""
    echo(click.style(message, fg="yellow"), err=True)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document on standard output; numbers that are not finite are refused."""
    echo(json.dumps(document, indent=2, allow_nan=False))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()) -> str:
    """Return a table as text.

    Args:
        columns: the headings.
        rows: the cells.
        right: the headings of columns to align to the right. Of the others, the last column wraps at the width of
            the terminal.
    """
    import textwrap

    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    if columns[-1] not in right:
        room = width() - sum(widths[:-1]) - len(_GAP) * (len(columns) - 1)
        widths[-1] = min(widths[-1], max(room, len(columns[-1]), 20))
    lines = [click.style(_line(columns, columns, widths, right), bold=True)]
    for row in cells:
        first, *others = textwrap.wrap(row[-1], widths[-1]) or [""]
        lines.append(_line([*row[:-1], first], columns, widths, right))
        lines += [_line([*[""] * (len(row) - 1), other], columns, widths, right) for other in others]
    return "\n".join(lines)


def _line(cells: Sequence[str], columns: Sequence[str], widths: Sequence[int], right: Sequence[str]) -> str:
    aligned = (
        cell.rjust(width) if column in right else cell.ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    )
    return _GAP.join(aligned).rstrip()


def width() -> int:
    """Return how many characters a line of standard output may have."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_WIDTH


@contextlib.contextmanager
def counter(what: str) -> Iterator[Callable[[], None]]:
    """Show on a terminal what is going on; what is yielded counts one more thing done."""
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        report()

    def report() -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{what}: {done}", err=True, nl=False)

    report()
    try:
        yield count
    finally:
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", err=True, nl=False)


def number(value: float | None, digits: int = 4) -> str:
    """Return a number for a table, a dash if there is none."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def pairs(values: Mapping[str, Any]) -> str:
    """Return ``name value, name value`` for a line of text."""
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "none"


# -- a run ---------------------------------------------------------------------------------------


def print_run(run: Run, *, warnings: bool = True) -> None:
    """Print what a run found: the winner beside the baseline, and how every trial ended.

    Args:
        run: the run.
        warnings: whether to print the data manager's warnings, too.

    Raises:
        RunFileError: the run file it comes from does not say what the run is.
    """
    info, objective = run.info, run.info.objective
    missing = [name for name in _SHOWN if getattr(info, name) in (None, "", {})]
    if missing:
        raise RunFileError(f"the run file lacks {', '.join(missing)}: it is incomplete")
    name, sizes = click.style(run.kernel, bold=True), pairs(info.sizes)
    echo(f"{name} on {info.backend} ({info.device}), sizes {sizes}")
    echo(
        f"threshold {_threshold(run)}, {run.evaluations} of {info.configurations:,} configurations, "
        f"strategy {info.strategy}, seed {info.seed}, {run.state.wall_s:.1f} s"
    )
    if objective.also:
        echo(f"objectives {', '.join(objective.metrics)}, all minimised; best has the lowest {objective.metric}")
    elif objective.metric != "time_ms" or not objective.minimise:
        echo(f"objective {objective.metric}, {'minimised' if objective.minimise else 'maximised'}")
    if objective.constraints:
        echo(f"constraints: {' and '.join(objective.constraints)}")
    echo()
    second = {"best": run.best} if run.best is not None else {"closest": run.closest}
    shown = {name: trial for name, trial in {"baseline": run.baseline, **second}.items() if trial is not None}
    if shown:
        echo(_comparison(run, shown))
        echo()
    if run.front:
        echo(
            f"front: {len(run.front)} of {run.feasible} feasible configurations; no other is better in every objective"
        )
        echo(pareto_table(run, objective.metrics, run.front))
        echo()
    if run.state.wall_s > 0:
        echo(f"time: {_spent(run)}")
    echo(f"statuses: {pairs(run.statuses)}")
    _print_failures(run)
    for warning in run.warnings if warnings else ():
        echo(click.style(f"  warning: {warning}", fg="yellow"))


def _threshold(run: Run) -> str:
    threshold = run.info.objective.threshold
    if threshold is None:
        return "none"
    limit = pairs(threshold) if isinstance(threshold, Mapping) else f"{threshold:g}"
    return f"{run.info.metric} <= {limit}"


def _comparison(run: Run, shown: Mapping[str, Trial]) -> str:
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


def _print_failures(run: Run) -> None:
    groups = run.failure_groups
    for group in groups[:_KINDS]:
        echo(f"  {group.count} × {group.status}: {group.message}")
    if len(groups) > _KINDS:
        others = sum(group.count for group in groups[_KINDS:])
        echo(f"  {others} × {len(groups) - _KINDS} other kinds of failure")


def _spent(run: Run) -> str:
    """Return how the time was spent; what took less than a hundredth of it counts as "other"."""
    wall_s = run.state.wall_s
    spent = run.durations_s
    shown = {name: seconds for name, seconds in spent.items() if name != "other" and seconds >= 0.01 * wall_s}
    shown["other"] = max(0.0, wall_s - sum(shown.values()))
    return ", ".join(f"{name} {seconds:.1f} s ({seconds / wall_s:.0%})" for name, seconds in shown.items())


def pareto_table(run: Run, metrics: Sequence[str], trials: Sequence[Trial]) -> str:
    """Return a front, one trial a row; each parameter has a column of its own if the terminal is wide enough."""
    numbers = tuple(dict.fromkeys((*metrics, "speedup")))
    limited = run.info.objective.threshold is not None or bool(run.objective.constraints)
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
    if all(len(click.unstyle(line)) <= width() for line in wide.splitlines()):
        return wide
    texts = [(*row, t.configuration) for row, t in zip(rows, trials, strict=True)]
    return table((*numbers, *judged, "configuration"), texts, right=numbers)
