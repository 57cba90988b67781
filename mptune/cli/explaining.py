"""The command that says why a winner has its types."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mptune.cli import options
from mptune.cli.display import counter, echo, print_json, print_note, table, wrapped
from mptune.cli.options import option
from mptune.markup import number

if TYPE_CHECKING:
    from mptune.tuning.sensitivity import Change, Explanation

__all__ = ["explain"]


@click.command()
@options.file_argument("run_file", "RUN.db|SPACE")
@options.kernel_of_run
@option("--time-limit time_limit_s", "SECONDS", "Begin to measure nothing further after this many seconds.")
@options.as_json
def explain(run_file: Path, kernel: str | None, time_limit_s: float | None, json: bool) -> None:
    """Explain the winner: what limits its accuracy, what each type costs, and why others lost.

    Each type is narrowed and restored alone, and whatever else can change the numbers is changed alone. What the run
    did not measure is measured now, beside the winner, and kept in the run file; without a kernel to run, the stored
    trials alone are explained.
    """
    from mptune.probing import explain as explain_run

    with counter("configurations measured") as count:
        found = explain_run(run_file, kernel, time_limit_s=time_limit_s, on_probe=count, on_warning=print_note)
    if json:
        print_json(found.to_json())
    else:
        _print(found)


def _print(found: Explanation) -> None:
    trial = found.trial
    if trial is not None:
        speedup = "" if math.isnan(found.speedup) else f", speedup {number(found.speedup, 3)}"
        what = "winner" if found.subject == "best" else "closest"
        error = f"error {number(trial.error, 3)}{f' ({found.metric})' if found.metric else ''}"
        if found.limited is not None:
            error = f"closest to its limit: {found.limited}"
        echo(f"{click.style(found.kernel, bold=True)}, {what}: {number(trial.time_ms)} ms{speedup}, {error}")
        echo(wrapped(str(trial.configuration)) + "\n")
    for sentence in found.sentences:
        echo(wrapped(sentence))
    if found.changes:
        echo("\n" + _table(found))
    remarks = [(change, "; ".join(found.remarks(change))) for change in found.changes]
    if any(remark for _, remark in remarks):
        echo("\n" + click.style("why, and what else is known", bold=True))
    for change, remark in remarks:
        if remark:
            echo(wrapped(f"{change.parameter} {change.after}: {remark}", indent="  "))


def _table(found: Explanation) -> str:
    from mptune.tuning.sensitivity import digits_text

    has_other = found.measure != "speed"
    others = (found.measure,) if has_other else ()
    columns = ("parameter", "from", "to", "digits", "speed", *others, "error", "feasible")
    rows: list[tuple[object, ...]] = []
    part = ""
    for change in found.changes:
        outcome = change.outcome
        if change.part != part:
            part = change.part
            rows.append((part or "choices", *("" for _ in columns[1:])))
        rows.append(
            (
                _named(change),
                change.before,
                change.after,
                digits_text(change.digits),
                _speed(change),
                *([_multiple(found.growth(outcome))] if has_other else ()),
                "-" if outcome is None else outcome.error_text,
                {None: "-", True: "yes", False: "no"}[change.is_feasible],
            )
        )
    return table(columns, rows, right=("digits", "speed", *others, "error"))


def _named(change: Change) -> str:
    """Return what the table calls a parameter: within its part of an application, without that part's name."""
    if not change.part:
        return change.parameter
    from mptune.results.description import few_names

    buffers = f" ({few_names(change.buffers)})" if change.buffers else ""
    return f"  {change.parameter.rpartition('.')[2]}{buffers}"


def _multiple(ratio: float) -> str:
    return "-" if math.isnan(ratio) else f"{ratio:.3g}x"


def _speed(change: Change) -> str:
    from mptune.tuning.sensitivity import percent

    interval = None if change.outcome is None else change.outcome.interval
    between = "" if interval is None else f" ({percent(interval[0])} to {percent(interval[1])})"
    return percent(change.speed) + between
