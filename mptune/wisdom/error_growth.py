"""Upper limits on the errors of an accuracy signature at sizes that were not measured.

The model is a power law in each size, ``log(error) = a + sum_i b_i log(n_i)`` with slopes ``b_i >= 0``: 0 for errors
that do not grow, 1/2 for rounding errors that cancel, 1 for rounding errors that add up. Each measured size gives a
limit at the sizes around it, up to a factor of :data:`REACH` in each size. The lowest of these limits counts.

- At a measured size the limit is the worst of many draws. For few draws it is a Student interval of the logarithms.
- At larger sizes it grows by the upper confidence limits of the slopes. Sizes that were varied together grow as one, by
  the one that has grown most. Beyond the measured range, and for a size that was never varied, the slope is at least 2:
  a narrow sum that stagnates loses more than in proportion. In bf16 and fp8 it is at least 3 once the error exceeds two
  roundings.
- Below the measured range it grows by the square root of the factor: means of fewer elements vary more between draws.
- Elsewhere it leaves room for the scatter of the measured sizes about the power law, and of few sizes for the scatter
  that they cannot show: more of it where the rounding of inputs differs between sizes.
- Inputs may be exact in a narrow type at one size and rounded at the next. The limit at other sizes is raised by the
  rounding that the measured size lacks. A size whose error is 0, or as small as that of fp64 in narrower types, limits
  only itself.
- No limit is below an error that was measured at sizes that are all smaller or equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.precision import EVERY_PRECISION

#: Largest factor between a size and the nearest measured one; beyond it no limit is known.
REACH: Final = 4.0
LOG_REACH: Final = math.log(REACH) + 1e-9
#: Least scatter of log errors about the power law, times the number of measured sizes.
_LEAST_SCATTER: Final = 0.2


@dataclass(frozen=True, slots=True)
class SizedError:
    """Measured errors of a signature at one size."""

    sizes: Mapping[str, int]  #: problem sizes by name
    worst: float  #: largest error of the draws; infinite if a result was not finite
    draws: int = 1  #: number of draws
    mean: float | None = None  #: mean error, if known
    #: by size, the rounding of the inputs relative to neighbouring sizes, 0 to 1; 1 where missing
    #: (:func:`~mptune.data.rounded_inputs`)
    rounded: Mapping[str, float] = field(default_factory=dict)

    @property
    def level(self) -> float:
        """The mean error, or the worst if the mean is not known."""
        return self.mean if self.mean is not None and 0 < self.mean <= self.worst else self.worst


@dataclass(frozen=True, slots=True)
class ErrorGrowth:
    """Limits on the errors of a signature by size. All errors are logarithms."""

    names: tuple[str, ...]  #: names of the sizes
    sizes: NDArray[np.int64]  #: measured sizes, shape ``(n_points, n_sizes)``
    worst: NDArray[np.float64]  #: largest error measured there, ``-inf`` for 0, shape ``(n_points,)``
    own: NDArray[np.float64]  #: limit at the measured size itself, shape ``(n_points,)``
    #: limit from which other sizes start; infinite if the point limits only itself, shape ``(n_points,)``
    other: NDArray[np.float64]
    slopes: NDArray[np.float64]  #: upper limit of each slope, 0 for a size that was never varied, shape ``(n_sizes,)``
    groups: NDArray[np.int64]  #: number of the group of sizes that were varied together, shape ``(n_sizes,)``
    steepest: float  #: least slope beyond the measured range
    is_confined: bool  #: whether no limit is known outside of the measured range

    @property
    def is_exact(self) -> bool:
        """Whether the results were exact at all measured sizes."""
        return bool(np.isposinf(self.other).all() and np.isfinite(np.exp(self.worst)).all())

    def limit(self, sizes: Mapping[str, int]) -> float:
        """Return the largest error to expect at some sizes; infinite if no limit is known."""
        return float(self.limits(np.array([[sizes[name] for name in self.names]]))[0])

    def limits(self, sizes: NDArray[np.int64], *, is_measured: bool = True) -> NDArray[np.float64]:
        """Return the limits, shape ``(n,)``, at sizes of shape ``(n, n_sizes)``.

        Without ``is_measured`` a measured size has the limit of the sizes around it, as a corner of a range needs.
        """
        given = np.asarray(sizes)[:, None, :]
        here, there = np.log(given.astype(np.float64)), np.log(self.sizes)
        starts = np.isfinite(self.other)
        ranging = there[starts] if starts.any() else there
        inside = np.clip(here, ranging.min(axis=0), ranging.max(axis=0))
        within = np.maximum(inside - there, 0) * self.slopes
        beyond = np.maximum(here - inside, 0) * np.maximum(self.slopes, self.steepest)
        grown = self.other + np.maximum(inside - here, 0).sum(axis=2) / 2
        for members in (self.groups == group for group in set(self.groups)):
            grown = grown + within[..., members].max(axis=2) + beyond[..., members].max(axis=2)
        is_same = (given == self.sizes).all(axis=2) & is_measured
        is_near = (np.abs(here - there).max(axis=2) <= LOG_REACH) & starts | is_same
        floor = np.where((self.sizes <= given).all(axis=2), self.worst, -math.inf).max(axis=1)
        found = np.maximum(np.where(is_same, self.own, grown).min(axis=1), floor)
        found[~is_near.any(axis=1)] = math.inf
        if self.is_confined:
            outside = (given < self.sizes.min(axis=0)) | (given > self.sizes.max(axis=0))
            found[outside.any(axis=(1, 2))] = math.inf
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(found) * (1 + 1e-12))  # room for the last digits of the logarithm


def fitted(points: Sequence[SizedError], confidence: float = 0.95, types: Sequence[object] = ()) -> ErrorGrowth:
    """Return the limits that follow from errors measured at one or more sizes.

    Args:
        points: measured errors, all with the same names of sizes.
        confidence: probability that a new input keeps a limit.
        types: values of the accuracy signature. Errors at smaller values do not tell when a type of smaller range than
            fp32 overflows, so its limits are confined to the measured range.
    """
    from scipy.special import stdtrit  # loads more slowly than everything else here

    if not points or not 0 < confidence < 1 or not all(point.worst >= 0 for point in points):
        raise ValueError("expected errors of 0 or more, and a confidence between 0 and 1")
    fp64, bf16 = EVERY_PRECISION["fp64"], EVERY_PRECISION["bf16"]
    known = [EVERY_PRECISION[kind] for kind in map(str, types) if kind in EVERY_PRECISION]
    roundoff = max((kind.unit_roundoff for kind in known), default=0.0)
    as_zero = 4 * fp64.unit_roundoff if roundoff > fp64.unit_roundoff else 0.0
    names = tuple(sorted(points[0].sizes))
    sizes = np.array([[point.sizes[name] for name in names] for point in points], np.int64)
    draws = np.array([max(1, point.draws) for point in points])
    errors = np.array([point.worst for point in points])
    spread, freedom = _spread_of([point for point in points if point.worst > as_zero])
    quantile = max(0.0, float(stdtrit(freedom, confidence)))
    with np.errstate(divide="ignore", invalid="ignore"):
        worst, levels = np.log(errors), np.log([point.level for point in points])
        lacking = -np.log([min([1.0, *point.rounded.values()]) for point in points])
        interval = np.maximum(worst, levels + quantile * spread * np.sqrt(1 + 1 / draws))
        own = np.where((errors <= as_zero) | (draws * (1 - confidence) >= confidence - 1e-9), worst, interval)
        other = np.where(errors <= as_zero, math.inf, own + lacking)
    starts = np.isfinite(other)
    slopes, groups = np.zeros(len(names)), np.arange(len(names))
    x, y = np.log(sizes)[starts], (levels + lacking)[starts]
    if len(x) and np.ptp(x, axis=0).any():
        slopes, groups, line, scatter = _power_law(x, y, spread * math.sqrt(np.mean(1 / draws)), quantile)
        least = _LEAST_SCATTER * (3 if lacking.any() else 1) / len(points)
        other[starts] = np.maximum(other[starts], line + quantile * max(scatter, least))
    is_narrow_sum = roundoff >= bf16.unit_roundoff and bool(((errors > 2 * roundoff) & (errors < math.inf)).any())
    is_confined = any(kind.largest < bf16.largest for kind in known)
    return ErrorGrowth(names, sizes, worst, own, other, slopes, groups, 3.0 if is_narrow_sum else 2.0, is_confined)


def _power_law(
    x: NDArray[np.float64], y: NDArray[np.float64], noise: float, quantile: float
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], float]:
    """Return slopes and groups as of :class:`ErrorGrowth`, the line at each point, and the scatter about it."""
    from scipy.optimize import nnls  # as above

    centred = x - x.mean(axis=0)
    spans = np.linalg.norm(centred, axis=0)
    together = centred.T @ centred > 0.999 * np.outer(spans, spans)  # correlation
    groups = (together | np.eye(len(spans), dtype=bool)).argmax(axis=1)
    varied = np.unique(groups[spans > 0])
    columns = centred[:, varied]
    best, rest = nnls(columns, y - y.mean())
    rank = int(np.linalg.matrix_rank(columns, tol=1e-6))
    freedom = len(x) - 1 - rank
    scatter = rest / math.sqrt(freedom) if freedom > 0 else 0.0
    # An uncertain slope is at most that of rounding errors that add up.
    uncertain = quantile * max(noise, scatter) * np.sqrt(np.diag(np.linalg.pinv(columns.T @ columns)))
    upper = np.minimum(best + uncertain, np.maximum(best, 1.0))
    if rank < len(varied):
        upper[:] = max(1.0, best.sum())
    slopes = np.zeros(len(spans))
    for size in np.flatnonzero(spans > 0):
        slopes[size] = upper[varied == groups[size]][0] * spans[groups[size]] / spans[size]
    return slopes, groups, y.mean() + columns @ best, scatter


def _spread_of(points: Sequence[SizedError]) -> tuple[float, float]:
    """Return the spread of log errors between draws, and its degrees of freedom."""
    total, weight = 2 * 0.3**2, 2.0  # prior: a spread of 0.3 with the weight of two draws
    for point in points:
        if point.draws > 1 and point.mean is not None and 0 < point.mean <= point.worst < math.inf:
            # The expected maximum of that many normal numbers, in standard deviations above their mean.
            above = NormalDist().inv_cdf((point.draws - 0.375) / (point.draws + 0.25))
            total += (point.draws - 1) / 2 * (math.log(point.worst / point.mean) / above) ** 2
            weight += (point.draws - 1) / 2
    return math.sqrt(total / weight), weight


def rounded_at(shares: Mapping[str, Mapping[str, Mapping[str, float]]], types: Mapping[str, Any]) -> dict[str, float]:
    """Return the rounding of the inputs in some types by size, as in :class:`SizedError`.

    Args:
        shares: by precision parameter, type and size.
        types: by parameter.
    """
    known = {name: EVERY_PRECISION.get(str(kind)) for name, kind in types.items()}
    bits = {name: entry.significand_bits for name, entry in known.items() if entry is not None}
    # Rounding to 8 bits more than the coarsest type has adds nothing visible to the error.
    most = min(bits.values(), default=0) + 8
    found: dict[str, float] = {}
    for parameter, of_types in shares.items():
        if bits.get(parameter, most + 1) <= most:
            for size, share in of_types.get(str(types[parameter]), {}).items():
                found[size] = min(share, found.get(size, 1.0))
    return found
