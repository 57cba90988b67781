"""The command that makes wisdom of runs, and what ``show`` prints of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mptune.cli import options
from mptune.cli.display import echo, number, pairs, print_json, print_note, table
from mptune.cli.options import option
from mptune.markup import plain

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
        echo(f"{output}: {_of(known)}: {len(known.tuned)} {_runs(known)} at {_count(known)}")
        if note := _without_winner(known):
            print_note(note)


def _of(known: KernelWisdom) -> str:
    return f"kernel {known.kernel} on {known.where}"


def _runs(known: KernelWisdom) -> str:
    return "run" if len(known.tuned) == 1 else "runs"


def _count(known: KernelWisdom) -> str:
    sizes = {tuple(sorted(record.place.items())) for record in known.tuned}
    return "one size" if len(sizes) == 1 else f"{len(sizes)} sizes"


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
        echo(f"{len(known.tuned)} {_runs(known)} at {_count(known)}, errors by {known.metric}\n")
        rows = [row for record in known.tuned for row in _rows(record)]
        columns = ("sizes", "error limit", "", "time (ms)", "speedup", "error", "unseen", "kept", "configuration")
        echo(table(columns, rows, right=("time (ms)", "speedup", "error", "unseen", "kept")))
        if note := _without_winner(known):
            echo(f"\n{note}")
        if errors := _errors_by_size(known):
            echo("\n" + errors)


def _rows(record: AtSize) -> list[tuple[object, ...]]:
    named = [("best", record.best), ("baseline", record.baseline)]
    rows: list[tuple[object, ...]] = []
    for role, timed in named:
        if timed is None or (role == "baseline" and timed is record.best):
            continue
        what = "best, baseline" if timed.is_best and timed.is_baseline else role
        size = pairs(record.place) if not rows else ""
        limit = _limits(record.threshold) if not rows else ""
        kept = len(record.configurations) if not rows else ""
        numbers = (number(timed.time_ms), _speedup(timed), number(timed.errors.worst.get("error"), 3), timed.unseen)
        rows.append((size, limit, what, *numbers, kept, timed.configuration))
    return rows


def _speedup(timed: Timed) -> str:
    if timed.interval is None or timed.is_baseline:
        return number(timed.speedup, 3)
    return f"{number(timed.speedup, 3)} ({timed.interval[0]:.3g} to {timed.interval[1]:.3g})"


def _limits(threshold: Mapping[str, float]) -> str:
    return ", ".join(
        f"{name.removeprefix('error').removeprefix('.')} {limit:g}".strip() for name, limit in threshold.items()
    )


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
