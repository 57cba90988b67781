"""The command that runs a winner on inputs nobody has seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mptune.cli import options
from mptune.cli.display import counter, echo, print_error, print_json, print_note, table, wrapped
from mptune.cli.options import option
from mptune.markup import number, pairs

if TYPE_CHECKING:
    from mptune.tuning.verify import Case, Verification

__all__ = ["verify"]


@click.command()
@options.file_argument("run_file", "RUN.db")
@options.kernel_of_run
@options.configuration
@option("--inputs", "M", "How many further inputs, for each of the sizes.", default=59)
@option(
    "--size sizes",
    "PRESET|NAME=VALUE,NAME=VALUE...",
    "Verify at these sizes instead of the run's own.",
    parse=options.parse_places,
)
@options.as_json
def verify(
    run_file: Path,
    kernel: str | None,
    configuration: str,
    inputs: int,
    sizes: Sequence[str | Mapping[str, int]],
    json: bool,
) -> int:
    """Run the winner on inputs that nobody searched with.

    What is found at the run's own sizes is kept in the run file. Exit code 1: an input breaks an error limit.
    """
    from mptune.emit import select
    from mptune.run import Run
    from mptune.tuning.verify import verify as verify_run

    run = Run.load(run_file)
    chosen = select(run, configuration=configuration, kernel=None) if configuration else None
    with counter("unseen inputs") as count:
        found = verify_run(
            run_file,
            kernel,
            configuration=None if chosen is None else chosen.configuration,
            inputs=inputs,
            sizes=sizes,
            on_input=count,
            on_warning=print_note,
        )
    if json:
        print_json(found.to_json())
    else:
        _print(found)
    if not found.holds:
        print_error(_broken(found))
    elif found.is_kept:
        print_note(f"kept in {run_file}")
    return 0 if found.holds else 1


def _print(found: Verification) -> None:
    run = found.run
    echo(f"{click.style(run.kernel, bold=True)} on {run.info.backend} ({run.info.device}), seed {run.info.seed}")
    echo(wrapped(str(found.trial.configuration)) + "\n")
    columns = ("sizes", "inputs", "above the limit", "largest error", "on input")
    echo(table(columns, [_row(case) for case in found.cases], right=columns[1:]) + "\n")
    for case in found.cases:
        where = "" if len(found.cases) == 1 else f"{pairs(case.sizes)}: "
        if text := found.words(case):
            echo(wrapped(where + text))
        if case.closest:
            echo(wrapped(f"{where}closest to its limit: {case.closest}"))
        for reason in case.unmade:
            print_note(f"{where}inputs that could not be made: {reason}")


def _row(case: Case) -> tuple[object, ...]:
    verified = case.verified
    if not verified.inputs:
        return (pairs(case.sizes), "0", "-", "-", "-")
    error = number(verified.worst_error, 3) if math.isfinite(verified.worst_error) else "failed"
    where = "-" if case.worst is None else case.worst.number + 1
    return (pairs(case.sizes), f"{verified.inputs:,}", verified.violations, error, where)


def _broken(found: Verification) -> str:
    broken = [case for case in found.cases if case.verified.violations]
    worst = max(broken, key=lambda case: case.verified.worst_error)
    failures = f" ({pairs(worst.failures)})" if worst.failures else ""
    return (
        f"the limit is broken on {worst.verified.violations:,} of {worst.verified.inputs:,} unseen inputs at "
        f"{pairs(worst.sizes)}{failures}"
    )
