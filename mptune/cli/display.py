"""What a person sees: tables, messages, and what a run found."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from mptune.errors import RunFileError
from mptune.markup import plain
from mptune.results.speedup import TIE

if TYPE_CHECKING:
    from mptune.results.trial import Trial
    from mptune.results.unseen import Verified
    from mptune.run import Run
    from mptune.store import RunInfo

#: The styles this package uses; no other sequence is passed on.
_STYLES: Final = frozenset(f"\x1b[{code}m" for code in (0, 1, 2, 31, 32, 33, 36))
_STYLE: Final = re.compile(f"({'|'.join(map(re.escape, sorted(_STYLES)))})")
#: Kinds of failure that are listed one by one.
_KINDS: Final = 8
#: Buffers of a type that are named.
_BUFFERS: Final = 3
#: What phases are called where the name alone says too little.
_PHASES: Final = {"lost": "trials cut off"}
#: From this share on, most of a run's time is in no kernel.
_MOSTLY: Final = 0.5


def echo(text: str = "", *, err: bool = False) -> None:
    """Print on standard output or standard error; colours are left out where they are not wanted or not understood.

    Characters that steer a terminal are shown by their number: they may be from a file.
    """
    shown = "".join(part if part in _STYLES else plain(part) for part in _STYLE.split(text))
    click.echo(shown, err=err, color=False if "NO_COLOR" in os.environ else None)


def print_error(message: str) -> None:
    """Print on standard error what went wrong."""
    echo(click.style("error: ", fg="red", bold=True) + plain(message), err=True)


def print_note(message: str) -> None:
    """Print a remark on standard error."""
    echo(click.style(plain(message), fg="yellow"), err=True)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document on standard output; numbers that are not finite are refused."""
    echo(json.dumps(document, indent=2, allow_nan=False))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()) -> str:
    """Return a table as text.

    Columns named in ``right`` are aligned to the right. If the last one is not, it wraps at the width of the terminal.
    """
    import textwrap

    columns, right = [plain(column) for column in columns], [plain(column) for column in right]
    cells = [[plain(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    if columns[-1] not in right:
        room = width() - sum(widths[:-1]) - 2 * (len(columns) - 1)
        widths[-1] = min(widths[-1], max(room, len(columns[-1]), 16))

    def line(*row: str) -> str:
        aligned = (
            cell.rjust(wide) if column in right else cell.ljust(wide)
            for cell, column, wide in zip(row, columns, widths, strict=True)
        )
        return "  ".join(aligned).rstrip()

    lines = [click.style(line(*columns), bold=True)]
    for *others, last in cells:
        first, *rest = textwrap.wrap(last, widths[-1]) or [""]
        lines += [line(*others, first), *(line(*("" for _ in others), part) for part in rest)]
    return "\n".join(lines)


def sources_table(runs: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """Return what runs made of their sources, each a list of the same sources: the weights are those at the end.

    Below the table it is said what of them cannot be used.
    """
    rows = []
    for uses in zip(*runs, strict=True):
        weights = sorted(use["weight"] for use in uses)
        ends = dict.fromkeys(f"{weight:.2f}" for weight in (weights[0], weights[-1]))
        rows.append((uses[0]["source"], uses[0]["trials"], " to ".join(ends), ", ".join(uses[0]["parameters"])))
    found = table(("source", "trials used", "weight", "parameters in common"), rows, right=("trials used", "weight"))
    return "\n".join([found, *(f"{use['source']}: {use['remark']}" for use in runs[0] if use["remark"])])


def wrapped(text: str, indent: str = "") -> str:
    """Return a paragraph, wrapped at the width of the terminal; lines after the first are indented."""
    import textwrap

    return textwrap.fill(text, width(), subsequent_indent=indent)


def width() -> int:
    """Return how many characters a line of standard output may have; a pipe or a file has no width to fit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 240


@contextlib.contextmanager
def counter(what: str) -> Iterator[Callable[[], None]]:
    """Show on a terminal what is going on; what is yielded counts one more thing done."""
    done = itertools.count()

    def show(text: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{text}", err=True, nl=False)

    def count() -> None:
        show(f"{what}: {next(done)}")

    count()
    try:
        yield count
    finally:
        show("\x1b[K")


def number(value: float | None, digits: int = 4) -> str:
    """Return a number for a table, a dash if there is none."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def pairs(values: Mapping[str, Any]) -> str:
    """Return ``name value, name value`` for a line of text."""
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "none"


# -- a run ---------------------------------------------------------------------------------------


def print_run(run: Run, *, warnings: bool = True) -> None:
    """Print what a run found: the winner beside the baseline, how every trial ended, and its warnings.

    Raises:
        RunFileError: the run file it comes from does not say what the run is.
    """
    info, objective = run.info, run.info.objective
    shown = ("backend", "device", "sizes", "metric", "configurations", "strategy", "seed")
    if missing := [name for name in shown if getattr(info, name) in (None, "", {})]:
        raise RunFileError(f"the run file lacks {', '.join(missing)}: it is incomplete")
    echo(f"{click.style(plain(run.kernel), bold=True)} on {info.backend} ({info.device}), sizes {pairs(info.sizes)}")
    of_baseline = f" ({run.baseline_evaluations} of the baseline's types)" if run.baseline_evaluations else ""
    echo(
        f"threshold {info.limits_text() or 'none'}, {run.evaluations} of {info.configurations:,} "
        f"configurations{of_baseline}, strategy {info.strategy}, seed {info.seed}, "
        f"{run.state.wall_s:.1f} s"
    )
    if run.state.ended:
        echo(wrapped(f"{run.evaluations} of {info.budget} evaluations: {run.state.ended}"))
    if objective.also:
        ties = " (of ties, the simplest)" if objective.is_time else ""
        echo(f"objectives {', '.join(objective.metrics)}, all minimised; best has the lowest {objective.metric}{ties}")
    elif objective.metric != "time_ms" or not objective.minimise:
        echo(f"objective {objective.metric}, {'minimised' if objective.minimise else 'maximised'}")
    if objective.constraints:
        echo(f"constraints: {' and '.join(objective.constraints)}")
    if info.balance is not None:
        from mptune.kernel import Rates

        speeds = f" at {Rates.of(info.speeds)}" if info.speeds else ""
        echo(wrapped(f"balanced to a factor of {info.balance:.10g}{speeds}"))
    echo()
    second = {"best": run.best} if run.best is not None else {"closest": run.closest}
    trials = {name: trial for name, trial in {"baseline": run.baseline, **second}.items() if trial is not None}
    if trials:
        echo(_comparison(run, trials) + "\n")
        if run.baseline is None and run.why_no_baseline:
            echo(wrapped(f"no speedup is known: {run.why_no_baseline}") + "\n")
        if text := _of_rounds(run, trials):
            echo(wrapped(text) + "\n")
        if run.info.is_of_application and (times := _times(trials)):
            echo(times + "\n")
            if text := _mostly_between(trials):
                echo(wrapped(text) + "\n")
        for name, trial in trials.items():
            if text := run.verified_text(trial) or run.unverified_text(trial):
                echo(f"{name}: {text}")
    if text := _lost_to_fragility(run):
        echo(wrapped(text))
    if run.front:
        found = f"{len(run.front)} of {run.feasible} feasible configurations"
        echo(f"front: {found}; no other is better in every objective")
        echo(pareto_table(run, objective.metrics, run.front) + "\n")
    if run.state.sources:
        echo(sources_table([[asdict(use) for use in run.state.sources]]) + "\n")
    if run.state.wall_s > 0:
        echo(f"time: {_spent(run)}")
    echo(f"statuses: {pairs(run.statuses)}")
    if text := _uncompiled(run):
        echo(wrapped(text))
    groups = run.failure_groups
    for group in groups[:_KINDS]:
        echo(f"  {group.count} × {group.status}: {group.message}")
    if others := groups[_KINDS:]:
        echo(f"  {sum(group.count for group in others)} × {len(others)} other kinds of failure")
    for warning in run.warnings if warnings else ():
        echo(click.style(f"  warning: {plain(warning)}", fg="yellow"))


def print_sizes(together: Sequence[Mapping[str, int]], runs: Sequence[Run | None]) -> None:
    """Print what was found at each of several sizes, a row for each; nothing of those that have no run."""
    first = next((run for run in runs if run is not None), None)
    if first is None:
        return
    info, metric = first.info, first.info.objective.metric
    echo(f"{click.style(plain(first.kernel), bold=True)} on {info.backend} ({info.device})")
    echo(f"threshold {info.limits_text() or 'none'}, {sum(run.evaluations for run in runs if run)} evaluations\n")
    rows = [_at_size(run, metric) if run is not None else ("-",) * 6 for run in runs]
    columns = (*together[0], f"baseline {metric}", f"best {metric}", "speedup", "error", "evaluations")
    cells = [(*sizes.values(), *row) for sizes, row in zip(together, rows, strict=True)]
    echo(table((*columns, "configuration"), cells, right=columns) + "\n")


def _at_size(run: Run, metric: str) -> tuple[object, ...]:
    baseline, best = run.baseline, run.best
    return (
        number(run.metric_of(baseline, metric) if baseline is not None else None),
        number(run.metric_of(best, metric) if best is not None else None),
        run.speedup_text(best, short=True) if best is not None else "-",
        number(best.error if best is not None else None, 3),
        run.evaluations,
        best.configuration if best is not None else "-",
    )


def _uncompiled(run: Run) -> str:
    """Say that most configurations do not compile, with the first error; nothing where most do."""
    from mptune.results.trial import Status
    from mptune.run import in_short

    failed = [trial for trial in run.trials if trial.status is Status.COMPILE_ERROR]
    if 2 * len(failed) <= len(run.trials):
        return ""
    first = in_short(failed[0].message)
    kernel = re.search(r"(\w+)\.cu\.j2:\d+", first)
    place = run.info.place_in_program(kernel[1]) if kernel is not None else ""
    return (
        f"{len(failed)} of {len(run.trials)} configurations do not compile, so that most types and sizes were never "
        f"tried; the first: {first}" + f" (made of {place})" * bool(place)
    )


def _comparison(run: Run, trials: Mapping[str, Trial]) -> str:
    read = dict.fromkeys((*run.objective.metrics, *sorted(run.objective.names | run.objective.constraint_names)))
    others = [metric for metric in read if metric not in ("time_ms", "error", "memory_bytes")]
    rows: list[tuple[object, ...]] = [
        *((metric, *(number(run.metric_of(t, metric)) for t in trials.values())) for metric in others),
        ("time (ms)", *(number(t.time_ms) for t in trials.values())),
        ("speedup", *(run.speedup_text(t) for t in trials.values())),
        ("error", *(number(t.error, 3) for t in trials.values())),
        *((name, *(number(t.metric(metric), 3) for t in trials.values())) for metric, name in _errors(run)),
        ("memory (MB)", *(number(t.metric("memory_bytes") / 1e6) for t in trials.values())),
    ]
    if run.info.is_of_application:
        rows += _parts(run, trials)
    else:
        rows += ((name, *(t.configuration[name] for t in trials.values())) for name in run.parameter_names)
    return table(("", *trials), rows, right=tuple(trials))


def _of_rounds(run: Run, trials: Mapping[str, Trial]) -> str:
    """Say where a speedup is from that is not the ratio of the times; empty if all are that ratio."""
    for trial in trials.values():
        if run.baseline is not None and run.speedup_interval(trial) is not None:
            of_times, speedup = run.baseline.time_ms / trial.time_ms, run.speedup(trial)
            if not 1 / (1 + TIE) <= of_times / speedup <= 1 + TIE:
                return (
                    f"the speedup is the median of rounds in which both took turns, not the ratio of the times "
                    f"({of_times:.3g})"
                )
    return ""


def _errors(run: Run) -> list[tuple[str, str]]:
    """Return the errors to show beside ``error``, with their names: those with limits, and all of an application."""
    if not run.info.is_of_application:
        return [(name, name) for name in _further_limits(run)]
    by_measure = {run.info.measured_by(name): name for name in run.metric_names if name.startswith("error.")}
    return [(name, measure) for measure, name in by_measure.items()] if len(by_measure) > 1 else []


def _parts(run: Run, trials: Mapping[str, Trial]) -> Iterator[tuple[object, ...]]:
    """Yield the rows of an application: the types of its buffers, the steps' choices, what each kernel has alone."""
    from mptune.precision import PRECISIONS

    info, blank = run.info, [""] * len(trials)
    fixed = [what for what in dict.fromkeys(info.buffers.values()) if what in PRECISIONS]
    groups: dict[str, list[str]] = {"types of buffers": [], "choices": []}
    for name in (*run.parameter_names, *fixed):
        kernel = name.rpartition(".")[0]
        is_type = bool(info.buffers_of(name)) or not info.buffers
        groups.setdefault(f"kernel {kernel}" if kernel else "types of buffers" if is_type else "choices", []).append(
            name
        )
    types = {p.name for p in info.parameters if p.kind in ("precision", "policy")}
    for group, names in groups.items():
        if names:
            yield (group, *blank)
        for name in sorted(names, key=lambda name: name not in types):
            yield (f"  {called(info, name)}", *(t.configuration.get(name, name) for t in trials.values()))


def called(info: RunInfo, parameter: str) -> str:
    """Return what a table of an application calls a parameter: within its kernel, or with the buffers of that type."""
    kernel, _, name = parameter.rpartition(".")
    buffers = info.buffers_of(parameter)
    return name if kernel or not buffers else f"{name} ({in_short(buffers)})"


def in_short(buffers: Sequence[str]) -> str:
    """Return the names of some buffers; of many, the first few."""
    more = len(buffers) - _BUFFERS
    return f"{', '.join(buffers[:_BUFFERS])} and {more} more" if more > 1 else ", ".join(buffers)


def _times(trials: Mapping[str, Trial]) -> str:
    """Return where the time of a run of each trial went, by kernel; empty if none of them says."""
    from mptune.results.kernel_times import host_ms, kernel_times

    known = {name: times for name, trial in trials.items() if (times := kernel_times(trial))}
    columns: list[str] = []
    rows: dict[str, list[object]] = {kernel: [] for times in known.values() for kernel in times}
    rows |= {"host, between launches": [], "all": []}
    for name, times in known.items():
        columns += [f"{name} (ms)", "share", "launches"]
        host = host_ms(trials[name])
        total = host + math.fsum(each.time_ms for each in times.values())
        for row, cells in rows.items():
            one = times.get(row)
            time_ms = {"host, between launches": host, "all": total}.get(row, one.time_ms if one else math.nan)
            launches = one.launches if one else sum(each.launches for each in times.values()) if row == "all" else "-"
            cells += [number(time_ms), f"{time_ms / total:.0%}" if total > 0 else "-", launches]
    if not known:
        return ""
    return table(("time of a run", *columns), [(row, *cells) for row, cells in rows.items()], right=columns)


def _mostly_between(trials: Mapping[str, Trial]) -> str:
    """Say that most of the time of what is beside the baseline is in no kernel; empty if it is not, or not known."""
    from mptune.results.kernel_times import host_ms, kernel_times

    name, trial = list(trials.items())[:2][-1]
    share = host_ms(trial) / trial.time_ms if kernel_times(trial) and trial.time_ms > 0 else 0.0
    if share <= _MOSTLY:
        return ""
    return (
        f"{share:.0%} of the time of {name} is between launches, which types cannot change: a larger size would show "
        "more of what they do"
    )


def _lost_to_fragility(run: Run) -> str:
    """Say which trial would be the best if it had kept its error limits on unseen inputs; empty if none would."""
    from mptune.results.trial import Status

    sign = 1 if run.objective.minimise else -1
    fragile = {i: t for i, t in enumerate(run.trials, 1) if t.status is Status.FRAGILE}
    known = {i: sign * run.objective.value(t) for i, t in fragile.items()}
    i = min((i for i, value in known.items() if math.isfinite(value)), key=known.__getitem__, default=0)
    if not i or (run.best is not None and known[i] >= sign * run.objective.value(run.best)):
        return ""
    return (
        f"better but fragile: trial {i}, {number(fragile[i].time_ms)} ms; {fragile[i].message} "
        f"(mptune verify --configuration {i} says on which)"
    )


def _further_limits(run: Run) -> list[str]:
    """Return the names of the errors with a threshold that are not ``error`` by another name."""
    return [n for n in run.objective.limits if n != "error" and run.info.measured_by(n) != run.info.metric]


def errors_text(run: Run, trial: Trial) -> str:
    """Say the error of a trial, or all those that have thresholds of their own."""
    if not _further_limits(run):
        return f"error {number(trial.error, 3)}"
    return ", ".join(f"{run.info.measured_by(n)} {number(trial.metric(n), 3)}" for n in run.objective.limits)


def _spent(run: Run) -> str:
    """Return how the time was spent; what took less than a hundredth of it, but the verification, counts as "other"."""
    wall_s = run.state.wall_s
    spent = {name: s for name, s in run.durations_s.items() if name != "other"}
    shown = {name: s for name, s in spent.items() if s >= 0.01 * wall_s or name == "verification"}
    shown["other"] = max(0.0, wall_s - sum(shown.values()))
    return ", ".join(
        f"{_PHASES.get(name, name)} {seconds:.1f} s ({seconds / wall_s:.0%})" for name, seconds in shown.items()
    )


def pareto_table(run: Run, metrics: Sequence[str], trials: Sequence[Trial]) -> str:
    """Return a front, one trial a row; each parameter has a column of its own if the terminal is wide enough.

    So has the number of draws that errors are the worst of, where these are not equal.
    """
    from mptune.results.unseen import draws_of, unequal_draws

    limits = _further_limits(run) if "error" in metrics else ()
    numbers = tuple(dict.fromkeys((*metrics, *limits, "speedup")))

    def cell(trial: Trial, metric: str) -> str:
        return run.speedup_text(trial, short=True) if metric == "speedup" else number(run.metric_of(trial, metric))

    limited = run.info.objective.threshold is not None or bool(run.objective.constraints)
    judged = ("feasible",) if limited and trials is not run.front else ()
    tried = {t.configuration: found for t in trials if (found := run.verified(t)) is not None}
    unseen = ("unseen",) if tried else ()
    drawn = ("draws",) if unequal_draws(numbers, trials) else ()
    rows = [
        (
            *(cell(trial, metric) for metric in numbers),
            *("yes" if run.objective.is_feasible(trial) else "no" for _ in judged),
            *(_held(tried.get(trial.configuration)) for _ in unseen),
        )
        for trial in trials
    ]
    names = run.parameter_names
    cells = [
        (*row, *(draws_of(t) for _ in drawn), *(t.configuration[name] for name in names))
        for row, t in zip(rows, trials, strict=True)
    ]
    wide = table((*numbers, *judged, *unseen, *drawn, *names), cells, right=(*numbers, *drawn))
    if all(len(click.unstyle(line)) <= width() for line in wide.splitlines()):
        return wide
    texts = [(*row, t.configuration) for row, t in zip(rows, trials, strict=True)]
    return table((*numbers, *judged, *unseen, "configuration"), texts, right=numbers)


def unverified_rows(run: Run, trials: Sequence[Trial]) -> str:
    """Say how many trials of a front were not verified on unseen inputs; empty where all were."""
    without = sum(run.verified(trial) is None for trial in trials)
    if not without:
        return ""
    how = "" if run.state.unverified.startswith("none could be made") else ": mptune verify --configuration does that"
    if without == len(trials):
        return f"none of these was verified on unseen inputs{how}"
    return f"{without} of {len(trials)} were not verified on unseen inputs (- under unseen){how}"


def absent_best(run: Run, metrics: Sequence[str], trials: Sequence[Trial]) -> str:
    """Say why a front of the objective against error is without the best; empty where it has it, or there is none."""
    best, objective = run.best, run.objective.metric
    if best is None or not {objective, "error"} <= set(metrics) or best in trials:
        return ""
    return (
        f"the best ({objective} {number(run.metric_of(best, objective))}, error {number(best.error)}) is not among "
        "them: of those that are as good, as far as the finals can tell, it is the simplest"
    )


def _held(verified: Verified | None) -> str:
    """Say on how many unseen inputs a trial held what is promised of it."""
    return "-" if verified is None else f"{verified.inputs - verified.violations} of {verified.inputs}"
