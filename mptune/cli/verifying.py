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
    from mptune.verifying import Case, Verification

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
    from mptune.verifying import verify as verify_run

    with counter("unseen inputs") as count:

        def tell(more: int) -> None:
            for _ in range(more):
                count()

        found = verify_run(
            run_file,
            kernel,
            configuration=configuration,
            inputs=inputs,
            sizes=sizes,
            on_input=tell,
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
        if case.verified is not None:
            echo(wrapped(where + found.words(case)))
        if case.closest:
            echo(wrapped(f"{where}closest to its limit: {case.closest}"))
        for reason in case.unmade:
            print_note(f"{where}inputs that could not be made: {reason}")


def _row(case: Case) -> tuple[object, ...]:
    verified = case.verified
    counts = (
        ("0", "-", "-")
        if verified is None
        else (f"{verified.inputs:,}", verified.violations, _error(verified.worst_error))
    )
    return (pairs(case.sizes), *counts, "-" if case.worst is None else case.worst.number + 1)


def _error(error: float) -> str:
    return number(error, 3) if math.isfinite(error) else "failed"


def _broken(found: Verification) -> str:
    cases = [(case, case.verified) for case in found.cases if case.verified is not None]
    broken = [pair for pair in cases if pair[1].violations]
    worst, verified = max(broken, key=lambda pair: pair[1].worst_error)
    failures = f" ({pairs(worst.failures)})" if worst.failures else ""
    return (
        f"the limit is broken on {verified.violations:,} of {verified.inputs:,} unseen inputs at "
        f"{pairs(worst.sizes)}{failures}"
    )
