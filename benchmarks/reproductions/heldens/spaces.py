"""What the kernels and their spaces are like: Tables II and IV, Figs. 2 and 11 (Heldens 2026, Sec. III to V)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from benchmarks.kernels import LEVELS, THRESHOLDS
from benchmarks.reproductions.item import Cell as Shown
from benchmarks.reproductions.item import Given, Outcome, Skipped, Table, require
from benchmarks.search.precision_cells import Cell, cells_of
from benchmarks.search.section import Settings
from mptune.backends import get_backend
from mptune.data import DataManager
from mptune.kernel import Kernel
from mptune.kernel.limits import space_on
from mptune.results.objective import Objective
from mptune.results.pareto import front
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.space.parameters import Parameter, PolicyParameter, PrecisionParameter

__all__ = ["KERNELS", "cells", "h_f2", "h_f11", "h_t2", "h_t4", "sampled"]

#: The paper's kernels by their names here, in the order of its tables.
KERNELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bessel": "Bessel",
        "convolution2d": "Convolution2D",
        "kmeans": "K-Means",
        "lavamd": "LavaMD",
        "inverse_kinematics": "InvK",
        "newton_raphson": "Newton-Raphson",
        "coulombic": "Coulombic",
        "mriq": "MRI-Q",
        "black_scholes": "Black-Scholes",
    }
)
#: Threads of a block and bytes of shared memory that every GPU of the paper allows without further ado.
#: Its kernels do not use matrix units.
_GPU_LIMITS: Final = {"max_threads_per_block": 1024, "max_shared_bytes": 48 * 1024, "matrix_units": ""}


# -- Table II: kernels -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counts:
    """Parameters and configurations of a kernel, those of optimisation and of precision (Table II)."""

    metric: str
    parameters: tuple[int, int]
    optimisation: int
    precision: int
    total: int


_TABLE_II: Final[Mapping[str, Counts]] = MappingProxyType(
    {
        "bessel": Counts("MRE", (2, 5), 16, 189, 3024),
        "convolution2d": Counts("NRMSE", (7, 4), 864, 112, 72112),
        "kmeans": Counts("MRE", (3, 3), 52, 64, 3328),
        "lavamd": Counts("NMAE", (3, 5), 48, 336, 14896),
        "inverse_kinematics": Counts("NMAE", (2, 5), 20, 240, 4641),
        "newton_raphson": Counts("NRMSE", (2, 6), 12, 468, 5572),
        "coulombic": Counts("MRE", (4, 4), 144, 144, 20736),
        "mriq": Counts("NRMSE", (3, 5), 48, 640, 29916),
        "black_scholes": Counts("NRMSE", (2, 5), 12, 576, 6383),
    }
)


#: A total that differs by less is near.
_NEAR: Final = 0.05


def counts_of(kernel: Kernel) -> Counts:
    """Return the counts of a kernel at the paper's sizes, within what GPUs allow."""
    space = space_on(kernel, kernel.resolve_sizes("paper"), _GPU_LIMITS)
    codes = space.codes(np.arange(space.size))
    is_precision = np.array([_is_precision(parameter) for parameter in space.parameters])
    varies = np.any(codes != codes[0], axis=0)
    optimisation, precisions = (len(np.unique(codes[:, kind], axis=0)) for kind in (~is_precision, is_precision))
    parameters = int((~is_precision & varies).sum()), int((is_precision & varies).sum())
    return Counts(str(kernel.metric), parameters, optimisation, precisions, space.size)


def _is_precision(parameter: Parameter) -> bool:
    return isinstance(parameter, PrecisionParameter | PolicyParameter)


def h_t2(given: Given) -> Outcome:
    """Return parameters and configurations of the nine kernels."""
    del given
    rows: list[tuple[Shown, ...]] = []
    counted = {name: counts_of(load_kernel(name)) for name in KERNELS}
    for name, own in counted.items():
        paper = _TABLE_II[name]
        pairs = (
            (paper.metric, own.metric),
            ("{} + {}".format(*paper.parameters), "{} + {}".format(*own.parameters)),
            (paper.optimisation, own.optimisation),
            (paper.precision, own.precision),
            (paper.total, own.total),
        )
        entries = (entry for pair in pairs for entry in pair)
        rows.append((KERNELS[name], *entries, f"{own.total / paper.total - 1:+.1%}"))
    same = sum(own.parameters == _TABLE_II[name].parameters for name, own in counted.items())
    away = [abs(own.total / _TABLE_II[name].total - 1) for name, own in counted.items()]
    far = ", ".join(f"{row[0]} {row[-1]}" for row, share in zip(rows, away, strict=True) if share > _NEAR)
    compared = ("error metric", "parameters", "optimisation", "precision", "configurations")
    columns = ("kernel", *(f"{what}{where}" for what in compared for where in (": paper", ", here")), "difference")
    return Outcome(
        f"{same} of {len(KERNELS)} kernels have as many parameters of each kind as in the paper; the number of valid "
        f"configurations differs by {max(away):.1%} at most, {np.median(away):.1%} in the median.",
        (Table("Parameters (optimisation + precision) and their valid combinations", columns, tuple(rows)),),
        (
            "The paper gives counts and no values: the values of every parameter here, and the constraints, are "
            "reconstructions, with the paper's factors where that is possible. Totals that differ by more than "
            f"{_NEAR:.0%}: {far or 'none'}.",
            "The paper's are valid on an NVIDIA A100; these are within 1,024 threads and 48 KiB of shared memory, at "
            "the sizes of the paper.",
            "Optimisation and precision count the different combinations that occur in valid configurations. What "
            "multiplies by matrix units, which the paper's kernels do not, is not counted.",
        ),
    )


# -- Table IV: thresholds --------------------------------------------------------------------------

#: Share of the search space that meets the threshold, by level.
_TABLE_IV: Final[Mapping[str, tuple[float, float, float]]] = MappingProxyType(
    {
        "bessel": (7, 25, 100),
        "convolution2d": (2, 16, 73),
        "kmeans": (6, 19, 75),
        "lavamd": (4, 12, 62),
        "inverse_kinematics": (2, 10, 46),
        "newton_raphson": (4, 23, 72),
        "coulombic": (6, 22, 50),
        "mriq": (3, 6, 39),
        "black_scholes": (1, 14, 73),
    }
)


def cells(given: Given, only: Sequence[str] = ()) -> list[Cell]:
    """Return the recorded kernels under each of their thresholds, the paper's kernels first.

    Raises:
        Skipped: there are none.
    """
    require(given.data, "folder of recorded spaces", "--data")
    found = cells_of(Settings(given.spaces, given.data))
    order = [*KERNELS, *THRESHOLDS]
    chosen = sorted(
        (cell for cell in found if not only or cell.kernel in only), key=lambda cell: order.index(cell.kernel)
    )
    if not chosen:
        raise Skipped(f"no recorded space in {given.data} (--data names another folder)")
    return chosen


def sampled(some: Sequence[Cell], *, chosen: bool = False) -> str:
    """Say of which recordings the figures are, and of what there is none unless the kernels were chosen."""
    of = {cell.kernel: cell.recorded for cell in some}
    machines: dict[str, list[str]] = {}
    for name, recorded in of.items():
        machines.setdefault(recorded.info.device, []).append(f"{name} {recorded.space.size:,} of {_whole(name):,}")
    parts = "; ".join(f"on {machine} {', '.join(kernels)}" for machine, kernels in machines.items())
    absent = [] if chosen else [title for name, title in KERNELS.items() if name not in of]
    missing = f" Not among them: {', '.join(absent)}." if absent else ""
    return (
        "The recorded spaces are of the host backend, not of an A100 or MI250X, at the default sizes; configurations "
        f"recorded {parts}.{missing} "
        "Shares of a space and speeds are of these alone; benchmarks/data/README.md says which values were left out."
    )


def _whole(name: str) -> int:
    """Return how many configurations a kernel has on a processor, which has no matrix units."""
    kernel = load_kernel(name)
    return space_on(kernel, kernel.resolve_sizes(), get_backend("host").device.facts()).size


def h_t4(given: Given) -> Outcome:
    """Return the thresholds and the share of each space that meets them."""
    some = cells(given)
    rows: list[tuple[Shown, ...]] = []
    away: dict[str, float] = {}
    for cell in some:
        share = 100 * cell.feasible / cell.recorded.space.size
        paper = _TABLE_IV[cell.kernel][LEVELS.index(cell.level)] if cell.kernel in _TABLE_IV else None
        if paper is not None:
            away[f"{KERNELS[cell.kernel]}, {cell.level}"] = abs(share - paper)
        rows.append(
            (
                KERNELS.get(cell.kernel, cell.kernel),
                cell.level,
                f"{math.log10(cell.threshold):g}",
                None if paper is None else f"{paper:g}%",
                f"{share:.1f}%",
                cell.feasible,
                cell.recorded.space.size,
            )
        )
    columns = ("kernel", "level", "log10 of the threshold", "share feasible: paper", "here", "feasible", "recorded")
    if away:
        farthest = max(away, key=away.__getitem__)
        found = f"{np.median(list(away.values())):.1f} percentage points from the paper's in the median and "
        found += f"{away[farthest]:.1f} at most ({farthest})"
    else:
        found = "not in the paper"
    return Outcome(
        f"The thresholds are the paper's; the shares that meet them are {found}.",
        (Table("Accuracy levels", columns, tuple(rows)),),
        (
            sampled(some),
            "Which share of a space is feasible depends on how many values optimisation parameters have in each type, "
            "and on the inputs, which the paper does not give; of a restricted recording also on the types left out.",
        ),
    )


# -- Fig. 2: speed against error -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stated:
    """A point of a figure that the text gives: speedup over fp64 at a log10 error."""

    where: str
    speedup: float
    log10_error: float
    chosen: str = "the fastest"


#: Sec. V-B, V-E and V-H; on the MI250X "a similar error level" as on the A100.
_STATED: Final[Mapping[str, tuple[Stated, ...]]] = MappingProxyType(
    {
        "kmeans": (
            Stated("A100", 2.9, -4.87, "of the least memory"),
            Stated("A100", 3.7, -3.49, "of the least energy"),
        ),
        "lavamd": (Stated("A100", 1.15, -7.0), Stated("A100", 3.5, -6.51)),
        "inverse_kinematics": (Stated("A100", 4.4, -3.4), Stated("MI250X", 12.3, -3.4)),
        "mriq": (Stated("A100", 12.3, -1.9), Stated("MI250X", 9.7, -5.9)),
        "black_scholes": (Stated("A100", 4.96, -3.68, "of the least energy"),),
    }
)


@dataclass(frozen=True, slots=True)
class Points:
    """Speedup over the best in fp64, log10 of the error, and trial, of all that ran; arrays of shape ``(n,)``."""

    trials: tuple[Trial, ...]
    speedups: np.ndarray[Any, np.dtype[np.float64]]
    errors: np.ndarray[Any, np.dtype[np.float64]]

    @classmethod
    def of(cls, recorded: Run) -> Points:
        """Return those of a recording; an error of 0 counts as the least above it."""
        objective = recorded.derive(objective=Objective()).objective
        trials = tuple(trial for trial in recorded.trials if trial.is_valid and math.isfinite(trial.error))
        errors = np.array([trial.error for trial in trials])
        least = errors[errors > 0].min(initial=1.0)
        return cls(
            trials,
            np.array([objective.performance(trial) for trial in trials]),
            np.log10(np.maximum(errors, least)),
        )

    @property
    def front(self) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Indices of the Pareto front, the most accurate first."""
        indices = front(np.column_stack([self.errors, self.speedups]), (True, False))
        return indices[np.argsort(self.errors[indices], kind="stable")]

    def fastest_within(self, log10_error: float) -> float:
        """Return the largest speedup at an error of at most this; NaN where there is none."""
        within = self.speedups[self.errors <= log10_error]
        return float(within.max()) if len(within) else math.nan


def is_mixed(trial: Trial, types: Sequence[str]) -> bool:
    """Whether a configuration has different types."""
    return len({trial.configuration[name] for name in types}) > 1


def h_f2(given: Given) -> Outcome:
    """Return speed against error of every recorded kernel."""
    some = cells(given)
    recordings = {cell.kernel: cell.recorded for cell in some}
    rows: list[tuple[Shown, ...]] = []
    stated: list[tuple[Shown, ...]] = []
    for name, recorded in recordings.items():
        points = Points.of(recorded)
        types = [p.name for p in recorded.space.parameters if isinstance(p, PrecisionParameter)]
        best = points.front
        are_mixed = sum(is_mixed(points.trials[i], types) for i in best)
        top = int(np.argmax(points.speedups))
        levels = [points.fastest_within(math.log10(tau)) for tau in THRESHOLDS[name]]
        rows.append(
            (
                KERNELS.get(name, name),
                len(points.trials),
                float(points.speedups[top]),
                float(points.errors[top]),
                *levels,
                len(best),
                are_mixed,
            )
        )
        stated += [
            (
                *(KERNELS[name], each.where, each.chosen, each.log10_error, each.speedup),
                points.fastest_within(each.log10_error + 0.005),
            )
            for each in _STATED.get(name, ())
        ]
    for name, points_given in _STATED.items():
        if name not in recordings:
            stated += [(KERNELS[name], p.where, p.chosen, p.log10_error, p.speedup, None) for p in points_given]
    columns = ("kernel", "configurations that ran", "largest speedup", "at log10 error")
    tables = (
        Table(
            "Speedup over the best in fp64, here",
            (*columns, *(f"{level} accuracy" for level in LEVELS), "on the front", "of these mixed"),
            tuple(rows),
        ),
        Table(
            "Where the paper's text gives a point",
            ("kernel", "GPU", "the paper's", "log10 error", "speedup: paper", "the fastest here within that error"),
            tuple(stated),
        ),
    )
    of_paper = [row for row in rows if row[0] in KERNELS.values()] or rows
    most = max(float(str(row[2])) for row in of_paper)
    gaining = sum(float(str(row[2])) > 1 for row in of_paper)
    mixed, on_front = (sum(int(str(row[at])) for row in of_paper) for at in (-1, -2))
    return Outcome(
        "The paper: every kernel gains speed by giving up accuracy, on both GPUs, up to 12.3 times, and some points of "
        f"the Pareto fronts mix types. Here {gaining} of {len(of_paper)} recorded kernels gain, up to "
        f"{most:.1f} times; {mixed} of {on_front} points of their fronts mix types.",
        tables,
        (
            sampled(some) + " Kernels that the paper has not count in the table alone.",
            "A processor without arithmetic in 16 bits, as AMD's here, converts fp16 and bf16 in software, so that its "
            "fastest types are often fp32 with 16 bits in memory; Intel's here computes in fp16, as a GPU does.",
            "The text gives 12.3 for MRI-Q on the A100 (Sec. V-B), its conclusion at most 5.1 on NVIDIA's and 12.3 on "
            "AMD's hardware.",
        ),
    )


# -- Fig. 11: memory -------------------------------------------------------------------------------

_MEMORY: Final = "memory_bytes"
#: Sec. V-H: memory of K-Means under a threshold, and how many times less than in fp64.
_MEMORY_STATED: Final = ("kmeans", -5.0, 0.87, 3.6, 2.9)
_GB: Final = 1e9


@dataclass(frozen=True, slots=True)
class Smallest:
    """The least footprint under a threshold; the speedup is that of the fastest configuration that has it."""

    reduction: float
    speedup: float
    memory_bytes: float


def smallest_within(recorded: Run, threshold: float) -> Smallest | None:
    """Return the least footprint at an error of at most ``threshold``; None where nothing meets it."""
    fast = recorded.derive(objective=Objective(threshold=threshold)).objective
    base = recorded.derive(objective=Objective(_MEMORY, threshold=threshold)).objective.baseline
    feasible = [trial for trial in recorded.trials if fast.is_feasible(trial)]
    if not feasible or base is None:
        return None
    least = min(trial.metric(_MEMORY) for trial in feasible)
    speedup = max(fast.performance(trial) for trial in feasible if trial.metric(_MEMORY) == least)
    return Smallest(base / least, speedup, least)


def h_f11(given: Given) -> Outcome:
    """Return the footprint against the error."""
    some = [cell for cell in cells(given) if _MEMORY in cell.recorded.metric_names]
    if not some:
        raise Skipped(f"no recorded space in {given.data} has {_MEMORY} (--data names another folder)")
    rows: list[tuple[Shown, ...]] = []
    name, at, gigabytes, reduction, speedup = _MEMORY_STATED
    for cell in some:
        least = smallest_within(cell.recorded, cell.threshold)
        is_stated = cell.kernel == name and math.isclose(math.log10(cell.threshold), at)
        rows.append(
            (
                KERNELS.get(cell.kernel, cell.kernel),
                f"{math.log10(cell.threshold):g}",
                f"{reduction}×" if is_stated else None,
                None if least is None else f"{least.reduction:.2f}×",
                f"{speedup}×" if is_stated else None,
                None if least is None else f"{least.speedup:.2f}×",
                None if least is None else f"{least.memory_bytes / 1e3:,.0f} kB",
            )
        )
    columns = (
        "kernel",
        "log10 of the threshold",
        "less memory: paper",
        "here",
        "speedup of it: paper",
        "here",
        "memory",
    )
    most = max(float(str(row[3])[:-1]) for row in rows if row[3] is not None)
    widest = fp64_bytes(load_kernel(name)) / _GB
    return Outcome(
        f"Footprints fall with the accuracy that is asked for, by a factor of {most:.2f} at most (the paper: 4, from "
        "fp64 to fp16).",
        (Table("The least footprint under each threshold", columns, tuple(rows)),),
        (
            f"The paper's {gigabytes} GB of K-Means at {reduction} times less do not fit: with its N = 5,000,000 and "
            f"D = 15 all buffers here take {widest:.2f} GB in fp64, {widest / reduction:.2f} GB at {reduction} times "
            "less. The text gives its log10 error as -5 (a threshold) and -4.87.",
            "Of K-Means at -5 the fastest configuration that has the least footprint is shown; the paper does not say "
            "which of several it took.",
            sampled(some),
        ),
    )


def fp64_bytes(kernel: Kernel) -> int:
    """Return the footprint of a kernel in fp64 at the paper's sizes."""
    sizes = kernel.resolve_sizes("paper")
    widest = kernel.search_space(sizes).restrict(kernel.baseline_values()).configuration(0)
    return DataManager(kernel, sizes).footprint_bytes(widest)
