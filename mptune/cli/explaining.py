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
    from mptune.tuning.explain import Explanation

__all__ = ["explain"]


@click.command()
@options.file_argument("run_file", "RUN.db|SPACE")
@options.kernel_of_run
@option("--time-limit time_limit_s", "SECONDS", "Begin to measure nothing further after this many seconds.")
@options.as_json
def explain(run_file: Path, kernel: str | None, time_limit_s: float | None, json: bool) -> None:
    """Explain the winner: which type limits its accuracy, and what each type costs.

    Each type is changed alone, one step wider and one step narrower. What the run did not measure is measured now, in
    turn with the winner, and becomes part of the run. Without a kernel to run, the stored trials are explained.
    """
    from mptune.tuning.explain import explain as explain_run

    with counter("configurations measured") as count:
        found = explain_run(run_file, kernel, time_limit_s=time_limit_s, on_trial=count, on_warning=print_note)
    if json:
        print_json(found.to_json())
    else:
        _print(found)


def _print(found: Explanation) -> None:
    trial = found.trial
    if trial is not None:
        speedup = "" if math.isnan(found.run.speedup(trial)) else f", speedup {number(found.run.speedup(trial), 3)}"
        what = "winner" if found.subject == "best" else "closest"
        metric = found.run.info.metric
        error = f"error {number(trial.error, 3)}{f' ({metric})' if metric else ''}"
        echo(f"{click.style(found.run.kernel, bold=True)}, {what}: {number(trial.time_ms)} ms{speedup}, {error}")
        echo(wrapped(str(trial.configuration)) + "\n")
    for sentence in found.sentences:
        echo(wrapped(sentence))
    if found.changes:
        echo("\n" + _table(found))


def _table(found: Explanation) -> str:
    from mptune.tuning.explain import digits_text, percent

    is_costed = any(c.outcome is not None and not math.isnan(c.outcome.cost) for c in found.changes)
    objective = (found.run.info.objective.metric,) if is_costed else ()
    numbers = ("digits", "speed", *objective, "error")
    rows: list[tuple[object, ...]] = []
    for change in found.changes:
        outcome = change.outcome
        speed, cost, error, feasible = "-", "-", f"breaks {change.broken}" if change.broken else "-", "-"
        if outcome is not None:
            interval = outcome.interval
            speed = percent(outcome.speed)
            speed += "" if interval is None else f" ({percent(interval[0])} to {percent(interval[1])})"
            cost, error = percent(outcome.cost), outcome.error_text
            feasible = "yes" if outcome.is_feasible else "no"
        parameter = f"{change.parameter} ({', '.join(change.buffers)})" if change.buffers else change.parameter
        costs = (cost,) if objective else ()
        rows.append(
            (parameter, change.before, change.after, digits_text(change.digits), speed, *costs, error, feasible)
        )
    # A constraint is text, which may be long and has to wrap.
    right = numbers[:-1] if any(change.broken for change in found.changes) else numbers
    return table(("parameter", "from", "to", *numbers, "feasible"), rows, right=right)
