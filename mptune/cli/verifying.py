"""The command that runs a winner on inputs nobody has seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mptune.cli import options
from mptune.cli.display import counter, echo, number, pairs, print_error, print_json, print_note, table, wrapped
from mptune.cli.options import option
from mptune.errors import MptuneError

if TYPE_CHECKING:
    from mptune.verifying import Case, Hunted, Verification

__all__ = ["verify"]

_MOST_DECADES: Final = 300


def _scales(text: str | None) -> tuple[float, ...]:
    """Read numbers separated by commas."""
    try:
        return tuple(float(part) for part in (text or "").split(",") if part.strip())
    except ValueError:
        raise MptuneError(f"--scale {text!r}: expected numbers separated by commas, such as 0.1,10") from None


@click.command()
@options.file_argument("run_file", "RUN.db")
@options.kernel_of_run
@option(
    "--configuration",
    "TRIAL",
    "The trial to verify: its number, the start of its key, or NAME=VALUE,...",
    default="",
    show_default="the best",
)
@option("--inputs", "M", "How many further inputs, for each size and scale.", default=59)
@option(
    "--size sizes",
    "PRESET|NAME=VALUE,NAME=VALUE...",
    "Verify at these sizes instead of the run's own.",
)
@option("--scale scales", "S,S", "Multiply all floating-point arrays by this.", parse=_scales, show_default="1")
@option("--hunt hunt_s", "SECONDS", "Look for the worst input for so long.", default=0.0)
@options.as_json
def verify(
    run_file: Path,
    kernel: str | None,
    configuration: str,
    inputs: int,
    sizes: Sequence[str],
    scales: Sequence[float],
    hunt_s: float,
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
            scales=scales,
            hunt_s=hunt_s,
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
    columns = ("sizes", "scale", "inputs", "above the limit", "largest error", "on input")
    echo(table(columns, [_row(case) for case in found.cases], right=columns[1:]) + "\n")
    for case in found.cases:
        where = "" if len(found.cases) == 1 else f"{_where(case)}: "
        if case.verified is not None:
            echo(wrapped(where + found.words(case)))
        if case.worst is not None and case.ranges:
            failed = ", ".join(f"{status} on {count:,}" for status, count in case.failures.items())
            what = f"{failed}, the first is" if failed else "the largest error is on"
            echo(wrapped(f"{where}{what} {case.worst}, with {_ranges(case.ranges)}"))
        if case.closest:
            echo(wrapped(f"{where}closest to its limit: {case.closest}"))
        for reason in case.unmade:
            print_note(f"{where}inputs that could not be made: {reason}")
    if found.hunted is not None:
        echo(wrapped(_hunt(found.hunted)))


def _row(case: Case) -> tuple[object, ...]:
    verified = case.verified
    counts = (
        ("0", "-", "-")
        if verified is None
        else (f"{verified.inputs:,}", verified.violations, _error(verified.worst_error))
    )
    return (pairs(case.sizes), f"{case.scale:g}", *counts, "-" if case.worst is None else case.worst.number + 1)


def _where(case: Case) -> str:
    return pairs(case.sizes) + (f", scale {case.scale:g}" if case.scale != 1 else "")


def _error(error: float) -> str:
    return number(error, 3) if math.isfinite(error) else "failed"


def _hunt(hunted: Hunted) -> str:
    tried = f"hunt: {hunted.inputs:,} inputs in {hunted.seconds:.1f} s; the worst gives "
    error = f"error {hunted.error:.3g}" if math.isfinite(hunted.error) else hunted.status.value
    times = (
        f", {10**hunted.excess:.3g} times the limit"
        if math.isfinite(hunted.excess) and hunted.excess < _MOST_DECADES
        else ""
    )
    ranges = f", {_ranges(hunted.ranges)}" if hunted.ranges else ""
    return f"{tried}{error}{times} ({hunted.draw}, made from spawn key {hunted.draw.spawn_key}{ranges})"


def _ranges(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.6g}" for name, value in values.items())


def _broken(found: Verification) -> str:
    broken = [case for case in found.cases if case.verified is not None and case.verified.violations]
    if broken:
        worst = max(broken, key=lambda case: case.verified.worst_error if case.verified is not None else 0.0)
        assert worst.verified is not None
        failures = f" ({pairs(worst.failures)})" if worst.failures else ""
        count, inputs = worst.verified.violations, worst.verified.inputs
        return f"the limit is broken on {count:,} of {inputs:,} unseen inputs at {_where(worst)}{failures}"
    return "the limit is broken on an input that was hunted for"
