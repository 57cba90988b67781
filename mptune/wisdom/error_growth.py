"""Limits on the errors of an accuracy signature at sizes that were not measured.

The model is a power law in each size, ``log(error) = a + sum_i b_i log(n_i)`` with slopes ``b_i >= 0``: 0 is an error
that does not grow, 1/2 one of roundings that cancel, 1 one of roundings that add up. Each measured size speaks for
sizes around it, and the lowest of their limits counts. None is farther off the nearest than :data:`REACH` times:

- At its own sizes the worst of many draws is the limit. Of few draws it is a Student interval of the logarithms.
- At larger sizes the limit grows by the fitted slopes, at the upper end of their confidence. Sizes that were varied
  together count as one, and the one that has grown most decides. Beyond the largest measured size, and for a size that
  was never varied, the slope is at least 2: narrow sums that stop growing lose more than in proportion.
- Below the smallest measured size the limit grows by the square root of the factor: means of fewer elements differ
  more from input to input.
- Where the measured sizes scatter about the power law, all limits leave room for that.
- Inputs may be exact in a narrow type at one size and at none beside it. At other sizes the limit is larger by how much
  more the inputs are rounded there. A size with an error of 0, or of fp64's size in narrower types, speaks for itself
  alone.
- No limit is below an error that was measured at sizes that are all smaller or equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.precision import EVERY_PRECISION

#: By what factor each size may differ from those of the nearest measurement; beyond it nothing is said.
REACH: Final = 4.0
#: Sizes whose logarithms correlate by more than this were varied together.
_TOGETHER: Final = 0.999
_TINY: Final = 1e-9
#: As a logarithm, with room for the last digits.
LOG_REACH: Final = math.log(REACH) + _TINY
#: The largest logarithm of a number that matters.
_LARGEST: Final = 700.0


@dataclass(frozen=True, slots=True)
class SizedError:
    """What was measured of a signature at one size.

    Attributes:
        sizes: the problem sizes by name.
        worst: the largest error of the draws, 0 if all were exact; infinite where a result was not finite.
        draws: how many there were.
        mean: the mean error, if it is known.
        rounded: by size, how much its inputs are rounded beside those at sizes next to it, 0 to 1; of others it is 1
            (:func:`~mptune.data.rounded_inputs`).
        as_zero: errors up to this say no more than one of 0 (:func:`as_zero_in`).
    """

    sizes: Mapping[str, int]
    worst: float
    draws: int = 1
    mean: float | None = None
    rounded: Mapping[str, float] = field(default_factory=dict)
    as_zero: float = 0.0

    @property
    def level(self) -> float:
        """The middle of the errors: their mean, or the worst where that is all that is known."""
        return self.mean if self.mean is not None and 0 < self.mean <= self.worst else self.worst


@dataclass(frozen=True, slots=True)
class ErrorGrowth:
    """Limits on the errors of a signature, by size. All errors are logarithms.

    Attributes:
        names: of the sizes.
        sizes: the measured ones, shape ``(n_points, n_sizes)``.
        worst: the largest error measured there, ``-inf`` for 0, shape ``(n_points,)``.
        own: the limit at these very sizes, shape ``(n_points,)``.
        other: the limit it grows from at other sizes, infinite where nothing can be said, shape ``(n_points,)``.
        slopes: at most, by size, shape ``(n_sizes,)``; 0 for a size that was never varied.
        groups: by size, the number of the group that was varied together, shape ``(n_sizes,)``.
        is_confined: whether nothing is said outside of the measured sizes.
    """

    names: tuple[str, ...]
    sizes: NDArray[np.int64]
    worst: NDArray[np.float64]
    own: NDArray[np.float64]
    other: NDArray[np.float64]
    slopes: NDArray[np.float64]
    groups: NDArray[np.int64]
    is_confined: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether something is exact at all measured sizes, which speak for themselves alone."""
        return bool(np.isposinf(self.other).all() and np.isfinite(np.exp(self.worst)).all())

    def limit(self, sizes: Mapping[str, int]) -> float:
        """Return what the error at some sizes is at most; infinite where nothing can be said."""
        return float(self.limits(np.array([[sizes[name] for name in self.names]]))[0])

    def limits(self, sizes: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what the errors are at most, shape ``(n,)``, at sizes of shape ``(n, n_sizes)``."""
        given = np.asarray(sizes)[:, None, :]
        here, there = np.log(given.astype(np.float64)), np.log(self.sizes)
        speaking = self.sizes[np.isfinite(self.other)] if np.isfinite(self.other).any() else self.sizes
        inside = np.clip(here, *np.log([speaking.min(axis=0), speaking.max(axis=0)]))
        growth = self._grown(np.maximum(inside - there, 0.0), self.slopes)
        growth += self._grown(np.maximum(here - inside, 0.0), np.maximum(self.slopes, 2.0))
        growth += np.maximum(inside - here, 0.0).sum(axis=2) / 2
        is_same = (given == self.sizes).all(axis=2)
        limits = np.where(is_same, self.own, self.other + growth)
        is_near = (np.abs(here - there).max(axis=2) <= LOG_REACH) & np.isfinite(self.other) | is_same
        floor = np.where((self.sizes <= given).all(axis=2), self.worst, -math.inf)
        found = np.where(is_near.any(axis=1), np.maximum(limits.min(axis=1), floor.max(axis=1)), math.inf)
        if self.is_confined:
            outside = (given < self.sizes.min(axis=0)) | (given > self.sizes.max(axis=0))
            found[outside.any(axis=(1, 2))] = math.inf
        # With room for the last digits of a logarithm.
        return np.where(found < _LARGEST, np.exp(np.minimum(found, _LARGEST)) * (1 + 1e-12), math.inf)

    def _grown(self, steps: NDArray[np.float64], slopes: NDArray[np.float64]) -> NDArray[np.float64]:
        grown = steps * slopes
        return sum((grown[..., self.groups == group].max(axis=-1) for group in set(self.groups)), np.zeros(()))


def fitted(points: Sequence[SizedError], confidence: float = 0.95, *, may_overflow: bool = False) -> ErrorGrowth:
    """Return the limits that errors measured at one or more sizes give.

    Args:
        points: one or more, all with the same names of sizes.
        confidence: with which a new input keeps a limit.
        may_overflow: whether something is in a type of small range (:func:`may_overflow_in`). The errors of smaller
            values do not tell when it does, so nothing is said outside of the measured sizes.
    """
    from scipy.special import stdtrit  # takes longer to load than everything else here

    if not points or not 0 < confidence < 1 or not all(point.worst >= 0 for point in points):
        raise ValueError("expected errors of 0 or more, and a confidence between 0 and 1")
    names = tuple(sorted(points[0].sizes))
    sizes = np.array([[point.sizes[name] for name in names] for point in points], np.int64)
    draws = np.array([max(1, point.draws) for point in points])
    is_exact = np.array([point.worst <= point.as_zero for point in points])
    spread, freedom = _spread_of([point for point in points if point.worst > point.as_zero])
    quantile = max(0.0, float(stdtrit(freedom, confidence)))
    is_sure = draws * (1 - confidence) >= confidence - _TINY
    with np.errstate(divide="ignore", invalid="ignore"):
        worst, levels = np.log([point.worst for point in points]), np.log([point.level for point in points])
        # How much larger errors may be at sizes whose inputs are rounded as usual.
        kinder = -np.log([min([1.0, *point.rounded.values()]) for point in points])
        interval = np.maximum(worst, levels + quantile * spread * np.sqrt(1 + 1 / draws))
        own = np.where(is_sure | is_exact, worst, interval)
        levels, other = levels + kinder, np.where(is_exact, math.inf, own + kinder)
    known = np.isfinite(other)
    x, y = np.log(sizes)[known], levels[known]
    noise = spread * math.sqrt(float(np.mean(1 / draws)))
    slopes, groups, line, scatter = _power_law(x, y, noise, quantile)
    other[known] = np.maximum(other[known], line + quantile * scatter)
    return ErrorGrowth(names, sizes, worst, own, other, slopes, groups, may_overflow)


def _power_law(
    x: NDArray[np.float64], y: NDArray[np.float64], noise: float, quantile: float
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], float]:
    """Return slopes and groups as of :class:`ErrorGrowth`, the fitted line at each point, and the scatter about it."""
    from scipy.optimize import nnls  # as above

    slopes, groups = np.zeros(x.shape[1]), np.arange(x.shape[1])
    if not len(x) or np.ptp(x, axis=0).max() < _TINY:
        return slopes, groups, y, 0.0
    centred, heights = x - x.mean(axis=0), y - y.mean()
    spans = np.linalg.norm(centred, axis=0)
    groups = ((centred.T @ centred > _TOGETHER * np.outer(spans, spans)) | np.eye(len(spans), dtype=bool)).argmax(
        axis=1
    )
    varied = np.unique(groups[spans > _TINY])
    columns = centred[:, varied]
    best, rest = nnls(columns, heights)
    rank = int(np.linalg.matrix_rank(columns, tol=1e-6))
    freedom = len(x) - 1 - rank
    scatter = rest / math.sqrt(freedom) if freedom > 0 else 0.0
    errors = max(noise, scatter) * np.sqrt(np.diag(np.linalg.pinv(columns.T @ columns)))
    # What fits must not be less certain than what is assumed where nothing was measured.
    upper = np.minimum(best + quantile * errors, np.maximum(best, 1.0))
    if rank < len(varied):
        upper[:] = max(1.0, best.sum())
    for size in np.flatnonzero(spans > _TINY):
        slopes[size] = upper[varied == groups[size]][0] * spans[groups[size]] / spans[size]
    return slopes, groups, y.mean() + columns @ best, scatter


def _spread_of(points: Sequence[SizedError]) -> tuple[float, float]:
    """Return the spread of the logarithms of errors from draw to draw, and how many degrees of freedom it has."""
    # Before anything is known the spread is 0.3, with the weight of two draws.
    total, weight = 2 * 0.3**2, 2.0
    for point in points:
        if point.draws > 1 and point.mean is not None and 0 < point.mean <= point.worst < math.inf:
            # The largest of so many numbers of a normal distribution is so many standard deviations above their mean.
            above = NormalDist().inv_cdf((point.draws - 0.375) / (point.draws + 0.25))
            freedom = (point.draws - 1) / 2
            total += freedom * (math.log(point.worst / point.mean) / above) ** 2
            weight += freedom
    return math.sqrt(total / weight), weight


def rounded_at(shares: Mapping[str, Mapping[str, Mapping[str, float]]], types: Mapping[str, Any]) -> dict[str, float]:
    """Return how much the inputs are rounded in some types, by size: what :class:`SizedError` has, the least of them.

    Args:
        shares: by precision parameter, type and size.
        types: by parameter.
    """
    known = {name: EVERY_PRECISION.get(str(kind)) for name, kind in types.items()}
    bits = {name: entry.significand_bits for name, entry in known.items() if entry is not None}
    # What is rounded to 8 bits more than the coarsest of the types are adds nothing to an error that would show.
    most = min(bits.values(), default=0) + 8
    found: dict[str, float] = {}
    for parameter, of_types in shares.items():
        if bits.get(parameter, most + 1) <= most:
            for size, share in of_types.get(str(types[parameter]), {}).items():
                found[size] = min(share, found.get(size, 1.0))
    return found


def as_zero_in(types: Iterable[object]) -> float:
    """Return up to which errors a signature's say no more than one of 0: as small as those of fp64 in narrower types.

    Args:
        types: the values of the signature, those that are no types among them.
    """
    fp64 = EVERY_PRECISION["fp64"]
    bits = (EVERY_PRECISION[kind].significand_bits for kind in map(str, types) if kind in EVERY_PRECISION)
    return 4 * fp64.unit_roundoff if min(bits, default=math.inf) < fp64.significand_bits else 0.0


def may_overflow_in(types: Iterable[object]) -> bool:
    """Whether one of a signature's values is a type whose range is smaller than that of fp32 (fp16, fp8)."""
    found = (EVERY_PRECISION[kind].largest for kind in map(str, types) if kind in EVERY_PRECISION)
    return min(found, default=math.inf) < EVERY_PRECISION["bf16"].largest
