"""The command that makes wisdom of runs, and what ``show`` prints of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mptune.cli import options
from mptune.cli.display import echo, print_json, print_note, table
from mptune.cli.options import option
from mptune.markup import number, pairs, plain

if TYPE_CHECKING:
    from mptune.wisdom import AtSize, KernelWisdom, Timed, Wisdom

__all__ = ["print_wisdom", "wisdom"]


@click.command()
@options.file_argument("files", "RUN.db|NAME.wisdom.json...")
@option("--output -o", "FILE", "The file to write.", required=True)
@options.as_json
def wisdom(files: Sequence[Path], output: Path, json: bool) -> None:
    """Gather which configuration is for which kernel, device, sizes and error limit.

    Of runs and of other wisdom. What it makes, TunedKernel and show read.
    """
    from mptune.wisdom import gather, read_sources

    found = gather(read_sources(files))
    found.save(output)
    if json:
        print_json(found.to_json())
        return
    for known in found.kernels:
        echo(f"{output}: kernel {known.kernel} on {known.where}: {_runs(known)}")
        if note := _without_winner(known):
            print_note(note)


def _runs(known: KernelWisdom) -> str:
    runs, sizes = len(known.tuned), len({tuple(sorted(record.place.items())) for record in known.tuned})
    return f"{runs} run{'s' * (runs != 1)} at {'one size' if sizes == 1 else f'{sizes} sizes'}"


def _without_winner(known: KernelWisdom) -> str:
    """Return a note on the sizes whose runs have no winner, empty if all have one."""
    sizes = dict.fromkeys(pairs(record.place) for record in known.tuned if record.best is None)
    if not sizes:
        return ""
    return f"no winner at {'; '.join(sizes)}: the baseline is used there, unless another is surely faster"


def print_wisdom(found: Wisdom) -> None:
    """Print what is known of each kernel on each device: winner and baseline at each size, and errors by size."""
    for index, known in enumerate(found.kernels):
        if index:
            echo()
        echo(f"{click.style(plain(known.kernel), bold=True)} on {known.backend} ({known.device}, {known.architecture})")
        echo(f"{_runs(known)}, errors by {known.metric}\n")
        rows = [row for record in known.tuned for row in _rows(record)]
        columns = ("sizes", "error limit", "", "time (ms)", "speedup", "error", "unseen", "kept", "configuration")
        echo(table(columns, rows, right=("time (ms)", "speedup", "error", "unseen", "kept")))
        if note := _without_winner(known):
            echo(f"\n{note}")
        if errors := _errors_by_size(known):
            echo("\n" + errors)


def _rows(record: AtSize) -> list[tuple[object, ...]]:
    """Return winner and baseline; what is said of both stands in the first row."""
    limits = ", ".join(
        f"{name.removeprefix('error').removeprefix('.')} {limit:g}".strip() for name, limit in record.threshold.items()
    )
    size, limit, kept = pairs(record.place), limits, str(len(record.configurations))
    rows: list[tuple[object, ...]] = []
    for role, timed in (("best", record.best), ("baseline", record.baseline)):
        if timed is None or (role == "baseline" and timed is record.best):
            continue
        what = "best, baseline" if timed.is_best and timed.is_baseline else role
        numbers = (number(timed.time_ms), _speedup(timed), number(timed.errors.worst.get("error"), 3), timed.unseen)
        rows.append((size, limit, what, *numbers, kept, timed.configuration))
        size = limit = kept = ""
    return rows


def _speedup(timed: Timed) -> str:
    if timed.interval is None or timed.is_baseline:
        return number(timed.speedup, 3)
    return f"{number(timed.speedup, 3)} ({timed.interval[0]:.3g} to {timed.interval[1]:.3g})"


def _errors_by_size(known: KernelWisdom) -> str:
    """Return the errors of the winners' and the baselines' types at each size, with how they grow."""
    from mptune.wisdom.error_growth import SizedError, as_zero_in, fitted

    wanted = {
        known.signature_of(timed.configuration): None
        for record in known.tuned
        for timed in (record.best, record.baseline)
        if timed is not None
    }
    sizes = {tuple(sorted(record.place.items())): None for record in known.tuned}
    has_one_form = len({tuple(sorted(record.form.items())) for record in known.tuned}) == 1
    rows: list[tuple[object, ...]] = []
    for signature in wanted:
        points: dict[tuple[tuple[str, int], ...], SizedError] = {}
        for record in known.tuned:
            errors = record.signatures.get(signature)
            if errors is not None and "error" in errors.worst:
                at = tuple(sorted(record.place.items()))
                worst, zero = errors.worst["error"], as_zero_in(signature)
                point = SizedError(record.sizes, worst, errors.draws, errors.mean, errors.rounded, zero)
                points[at] = max(points.get(at, point), point, key=lambda each: each.worst)
        if not points:
            continue
        cells = [number(points[at].worst, 3) if at in points else "-" for at in sizes]
        growth = fitted([*points.values()])
        is_told = len(points) > 1 and has_one_form and math.isfinite(growth.slopes.max())
        slope = f"{growth.slopes.max():.2f}" if is_told else "-"
        rows.append((*cells, slope, ", ".join(f"{n}={v}" for n, v in zip(known.signature, signature, strict=True))))
    columns = [f"error at {pairs(dict(at))}" for at in sizes]
    return table((*columns, "slope at most", "types"), rows, right=(*columns, "slope at most")) if rows else ""
