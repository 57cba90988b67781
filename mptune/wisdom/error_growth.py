"""How the error of one accuracy signature grows with the sizes, and what it is at most at sizes that were not measured.

The model is a power law in each size, ``log(error) = a + sum_i b_i log(n_i / n0_i)`` with ``b_i >= 0``: 0 is an error
that does not grow, 1/2 one of roundings that cancel, 1 one of roundings that add up; a logarithm lies between. From the
errors that were measured at some sizes it says a limit that a new input at a new size keeps with a given confidence:

- At a measured size the largest of m errors is such a limit by itself where m is large enough: of m + 1 inputs the last
  one is as likely as any other to be the worst. Where there were fewer, it is a Student interval of the logarithms.
- Downwards errors are taken to stay what they are, but to differ more from draw to draw, by the square root of the
  factors: the fewer elements an error is the mean of, the less they make up for each other. Below the smallest measured
  size they may themselves be larger by that root.
- Between measured sizes they grow by the fitted slopes, at the upper end of their confidence. Where sizes were varied
  together, the slopes are any that agree with what was seen, the worst for the way that is gone.
- Beyond the largest measured size the slope is 2 at least, whatever was fitted, and so it is of a size that was never
  varied: roundings that cancelled may begin to add up, and narrow sums that stop growing lose more than in proportion.
  So a single measured size speaks for larger ones as well, where the limit leaves room.
- Where the sizes that were measured scatter about all such slopes by more than their draws do, others will, too: the
  inputs of one size may be exact, such as the spacing of a grid of 32 points, and those of the next one not. Then what
  is said of smaller sizes begins at the fitted line, if what was measured is below that, and leaves room for scatter.
- Inputs may be exact in a narrow type at one size and at no size beside it. What rounding them adds to an error is in
  proportion to how much they are rounded, so that at other sizes it is larger by that factor at most, which is without
  bound where all of them are exact: such a size speaks for itself alone.
- So does a size with an error of 0, whatever its inputs are: what the kernel computes of them
  may be exact there, such as 1 / n. How far that goes it does not say. An error that is no more than fp64's own, in
  types with fewer digits, is as good as 0.
- It is never below an error that was measured at sizes that are all smaller or equal.
- Nothing is said of sizes that are far from all that were measured: beyond them, or in a gap between two.

Everything here is pure and on plain numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.precision import EVERY_PRECISION

__all__ = ["LOG_REACH", "REACH", "ErrorGrowth", "SizedError", "as_zero_in", "fitted", "may_overflow_in", "rounded_at"]

#: By what factor each size may differ from those of the nearest measurement; beyond it nothing is said.
REACH: Final = 4.0
#: The spread of errors from draw to draw (of their natural logarithm) before anything is known, and the weight of that.
_SPREAD: Final = 0.3
_WEIGHT: Final = 2.0
#: The steepest slope there is between measured sizes, unless a steeper one was seen; and the least beyond them.
_STEEPEST: Final = 1.0
_BEYOND: Final = 2.0
#: How steeply errors may rise downwards below the smallest measured size.
_BELOW: Final = 0.5
#: As steep as no error is: of what may not be a finite number any more.
_AT_ONCE: Final = 1e300
#: So many sizes that vary can be told apart; of more each may have the steepest slope.
_MOST_VARIED: Final = 6
_TINY: Final = 1e-9
#: What is rounded to so many bits more than the coarsest of the types are adds nothing to an error that would show.
_BITS: Final = 8
#: Errors up to this are those of fp64, in which references and errors are computed.
_OF_FP64: Final = 4 * EVERY_PRECISION["fp64"].unit_roundoff


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
    """Limits on the errors of a signature, by size.

    Attributes:
        names: of the sizes.
        sizes: the measured ones, shape ``(n_points, n_sizes)``.
        log_sizes: their logarithms, of the same shape.
        log_worst: of the largest errors measured there, ``-inf`` for 0, shape ``(n_points,)``.
        log_limits: of what a new input there keeps, shape ``(n_points,)``.
        log_rooms: how far that is above the middle of the errors, shape ``(n_points,)``.
        log_shifts: how much more it is at smaller sizes, shape ``(n_points,)``.
        log_kinder: how much more it may be at other values of a size, whose inputs are rounded more, shape ``(n_points,
            n_sizes)``.
        slopes: upwards by size, the largest that agree with what was measured, shape ``(n_ways, n_sizes)``.
        beyond: those beyond the largest measured size, of the same shape or with other ways.
        tops: by size, the largest of the measured ones that speak for others.
        bottoms: likewise the smallest.
        lift: by how much, as a logarithm, errors were seen above what these slopes say.
        below: by how much limits grow below the smallest measured size.
    """

    names: tuple[str, ...]
    sizes: NDArray[np.int64]
    log_sizes: NDArray[np.float64]
    log_worst: NDArray[np.float64]
    log_limits: NDArray[np.float64]
    log_rooms: NDArray[np.float64]
    log_shifts: NDArray[np.float64]
    log_kinder: NDArray[np.float64]
    slopes: NDArray[np.float64]
    beyond: NDArray[np.float64]
    tops: NDArray[np.float64]
    bottoms: NDArray[np.float64]
    lift: float = 0.0
    below: float = _BELOW
    _plain: tuple[Any, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        columns = (
            self.sizes,
            self.log_sizes,
            self.log_worst,
            self.log_limits,
            self.log_rooms,
            self.log_shifts,
            self.log_kinder,
        )
        points = zip(*(column.tolist() for column in columns), strict=True)
        ends = self.tops.tolist(), self.bottoms.tolist()
        object.__setattr__(self, "_plain", (tuple(points), self.slopes.tolist(), self.beyond.tolist(), *ends))

    @property
    def is_exact(self) -> bool:
        """Whether something is exact at all measured sizes, which speak for themselves alone."""
        return bool(np.isinf(self.log_kinder).any(axis=1).all())

    def limit(self, sizes: Mapping[str, int]) -> float:
        """Return what the error at some sizes is at most; infinite where nothing can be said.

        That is :meth:`limits` of one, without NumPy, which takes longer to be asked than to answer.
        """
        points, slopes, beyond, tops, bottoms = self._plain
        given = [sizes[name] for name in self.names]
        at = [math.log(size) for size in given]
        over = [max(0.0, here - top) for here, top in zip(at, tops, strict=True)]
        inside = [here - out for here, out in zip(at, over, strict=True)]
        growth_beyond = max(sum(map(mul, way, over)) for way in beyond)
        below = self.below * sum(max(0.0, bottom - here) for here, bottom in zip(at, bottoms, strict=True))
        found, floor, is_near = math.inf, -math.inf, False
        for measured, point, worst, limit, room, shift, kinder in points:
            away = max(abs(here - there) for here, there in zip(at, point, strict=True))
            up = [max(0.0, here - there) for here, there in zip(inside, point, strict=True)]
            down = sum(max(0.0, there - here) for here, there in zip(at, point, strict=True))
            if any(up) or any(over):
                limit += max(sum(map(mul, way, up)) for way in slopes) + growth_beyond + self.lift
            if any(here < there for here, there in zip(given, measured, strict=True)):
                limit += room * math.expm1(down / 2) + shift
            moved = [k for k, here, there in zip(kinder, given, measured, strict=True) if here != there]
            if (more := max(moved, default=0.0)) > 0:
                limit = limit + more if limit > -math.inf else math.inf
            is_near = is_near or (limit < math.inf and away <= LOG_REACH)
            found = min(found, limit + below)
            if worst > floor and all(there <= here for here, there in zip(given, measured, strict=True)):
                floor = worst
        most = max(found, floor)
        return math.exp(most) * _ROOM if is_near and most < _LARGEST else math.inf

    def limits(self, sizes: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what the errors are at most, shape ``(n,)``, at sizes of shape ``(n, n_sizes)``."""
        given = np.asarray(sizes)[:, None, :]
        at = np.log(np.asarray(sizes, np.float64))
        over: NDArray[np.float64] = np.maximum(at - self.tops, 0.0)
        up = np.maximum((at - over)[:, None, :] - self.log_sizes, 0.0)
        grows = (up > 0).any(axis=2) | (over > 0).any(axis=1, keepdims=True)
        growth = (up @ self.slopes.T).max(axis=2) + (over @ self.beyond.T).max(axis=1)[:, None] + self.lift
        down = np.maximum(self.log_sizes - at[:, None, :], 0.0).sum(axis=2)
        below = self.below * np.maximum(self.bottoms - at, 0.0).sum(axis=1)
        shifts = np.where((given < self.sizes).any(axis=2), self.log_shifts, 0.0)
        wider = self.log_rooms * np.expm1(down / 2) + below[:, None] + shifts
        more = np.where(given != self.sizes, self.log_kinder, 0.0).max(axis=2)
        own = np.where(np.isneginf(self.log_limits) & (more > 0), math.inf, self.log_limits)
        limits = own + np.where(grows, growth, 0.0) + wider + more
        smaller = (self.sizes <= given).all(axis=2)
        floor = np.where(smaller, self.log_worst, -math.inf).max(axis=1)
        is_close = np.abs(at[:, None, :] - self.log_sizes).max(axis=2) <= LOG_REACH
        is_near = (is_close & (limits < math.inf)).any(axis=1)
        found = np.where(is_near, np.maximum(limits.min(axis=1), floor), math.inf)
        return np.where(found < _LARGEST, np.exp(np.minimum(found, _LARGEST)) * _ROOM, math.inf)


#: As a logarithm, with room for the last digits.
LOG_REACH: Final = math.log(REACH) + _TINY
#: A logarithm and back may lose the last digits of what was measured.
_ROOM: Final = 1 + 1e-12
#: Of the logarithm of a number that matters.
_LARGEST: Final = 700.0


def fitted(points: Sequence[SizedError], confidence: float = 0.95, *, may_overflow: bool = False) -> ErrorGrowth:
    """Return the limits that errors measured at one or more sizes give.

    Args:
        points: one or more, all with the same names of sizes.
        confidence: with which a new input keeps a limit.
        may_overflow: whether something is in a type of small range (:func:`may_overflow_in`). The errors of smaller
            values do not tell when it does, so nothing is said outside of the measured sizes.

    Raises:
        ValueError: there is no point, an error is negative or no number, or the confidence is not between 0 and 1.
    """
    if not points or not 0 < confidence < 1 or not all(point.worst >= 0 for point in points):
        raise ValueError("expected errors of 0 or more, and a confidence between 0 and 1")
    names = tuple(sorted(points[0].sizes))
    sizes = np.array([[point.sizes[name] for name in names] for point in points], np.int64)
    log_sizes = np.log(sizes)
    with np.errstate(divide="ignore"):
        log_worst = np.log(np.array([point.worst for point in points]))
        levels = np.log(np.array([point.level for point in points]))
    draws = np.array([max(1, point.draws) for point in points])
    rounded = np.array([[point.rounded.get(name, 1.0) for name in names] for point in points])
    with np.errstate(divide="ignore"):
        kinder = -np.log(rounded)
    is_exact = np.array([point.worst <= point.as_zero for point in points])
    kinder[is_exact] = math.inf
    # As they would be with inputs that are rounded as at other sizes.
    elsewhere = np.where(np.ptp(sizes, axis=0) > 0, kinder, 0.0).max(axis=1)
    known = np.isfinite(log_worst) & np.isfinite(elsewhere)
    x, y = log_sizes[known], levels[known] + elsewhere[known]
    slopes, rest, freedom = _least_squares(x, y)
    scatter = rest / freedom if freedom > 0 else 0.0
    off, apart = _scatter(x, y, freedom)
    spread, weight = _spread_of([point for point in points if point.worst > point.as_zero])
    own, spread = spread, math.sqrt(max(spread**2, scatter))
    quantile = _student(weight, confidence)
    # Of so many draws the worst is a limit as it is.
    is_sure = draws * (1 - confidence) >= confidence - _TINY
    has_error = np.isfinite(log_worst)
    new = levels + quantile * spread * np.sqrt(1 + 1 / draws)
    log_limits = np.where(is_sure | ~has_error, log_worst, np.maximum(log_worst, new))
    # Beside errors of the same size there is nothing exact about it.
    is_same = (sizes[:, None, :] == sizes).all(axis=2)
    log_limits[is_exact & (is_same & ~is_exact).any(axis=1)] = math.inf
    # Where the middle is not known, the spread says how far above it the worst may be.
    is_known = np.array([point.mean is not None and 0 < point.mean <= point.worst < math.inf for point in points])
    with np.errstate(invalid="ignore"):
        rooms = np.where(is_known, log_limits - levels, np.where(has_error, quantile * spread, 0.0))
    shifts = np.zeros(len(points))
    if (unexplained := apart**2 - own**2 * float(np.mean(1 / draws[known]))) > 0 if known.any() else False:
        shifts[known] = np.maximum(0.0, -off) + quantile * math.sqrt(unexplained * (1 + 1 / known.sum()))
    noise = max(float(np.mean(spread**2 / draws[known])), scatter) if known.any() else 0.0
    ways = _steepest(x, slopes, quantile * math.sqrt(noise))
    beyond = _steepest(x, slopes, quantile * math.sqrt(noise), beyond=True)
    lift = _lift(log_sizes[known], log_worst[known], log_limits[known] + elsewhere[known], ways)
    telling = log_sizes[np.isfinite(elsewhere)] if np.isfinite(elsewhere).any() else log_sizes
    tops, bottoms = telling.max(axis=0), telling.min(axis=0)
    below = _BELOW
    if may_overflow:
        # With room for the last digits of a logarithm.
        tops, bottoms = log_sizes.max(axis=0) + _TINY, log_sizes.min(axis=0) - _TINY
        beyond, below = np.full((1, len(names)), _AT_ONCE), _AT_ONCE
    return ErrorGrowth(
        names, sizes, log_sizes, log_worst, log_limits, rooms, shifts, kinder, ways, beyond, tops, bottoms, lift, below
    )


def rounded_at(shares: Mapping[str, Mapping[str, Mapping[str, float]]], types: Mapping[str, Any]) -> dict[str, float]:
    """Return how much the inputs are rounded in some types, by size: what :class:`SizedError` has, the least of them.

    Args:
        shares: by precision parameter, type and size.
        types: by parameter.
    """
    known = {name: EVERY_PRECISION.get(str(kind)) for name, kind in types.items()}
    bits = {name: entry.significand_bits for name, entry in known.items() if entry is not None}
    most = min(bits.values(), default=0) + _BITS
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
    bits = (EVERY_PRECISION[kind].significand_bits for kind in map(str, types) if kind in EVERY_PRECISION)
    return _OF_FP64 if min(bits, default=math.inf) < EVERY_PRECISION["fp64"].significand_bits else 0.0


def may_overflow_in(types: Iterable[object]) -> bool:
    """Whether one of a signature's values is a type whose range is smaller than that of fp32 (fp16, fp8)."""
    found = (EVERY_PRECISION[kind].largest for kind in map(str, types) if kind in EVERY_PRECISION)
    return min(found, default=math.inf) < EVERY_PRECISION["bf16"].largest


def _spread_of(points: Sequence[SizedError]) -> tuple[float, float]:
    """Return the spread of the logarithms of errors from draw to draw, and how many degrees of freedom it has."""
    total, weight = _WEIGHT * _SPREAD**2, _WEIGHT
    for point in points:
        if point.draws > 1 and point.mean is not None and 0 < point.mean <= point.worst < math.inf:
            # The largest of so many numbers of a normal distribution is so many standard deviations above their mean.
            above = NormalDist().inv_cdf((point.draws - 0.375) / (point.draws + 0.25))
            freedom = (point.draws - 1) / 2
            total += freedom * (math.log(point.worst / point.mean) / above) ** 2
            weight += freedom
    return math.sqrt(total / weight), weight


def _student(freedom: float, confidence: float) -> float:
    from scipy.special import stdtrit  # takes longer to load than everything else here

    return max(0.0, float(stdtrit(freedom, confidence)))


def _least_squares(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], float, int]:
    """Return slopes of 0 or more that fit best, the squares that remain, and their degrees of freedom."""
    n_sizes = x.shape[1]
    best, rest = np.zeros(n_sizes), math.inf
    if not len(x):
        return best, 0.0, 0
    centred, heights = x - x.mean(axis=0), y - y.mean()
    varied = np.flatnonzero((np.abs(centred) > _TINY).any(axis=0))[: _MOST_VARIED + 1]
    if len(varied) > _MOST_VARIED:
        return best, 0.0, 0
    for count in range(len(varied) + 1):
        for chosen in itertools.combinations(varied, count):
            slopes = np.zeros(n_sizes)
            slopes[list(chosen)] = np.linalg.lstsq(centred[:, chosen], heights, rcond=1e-9)[0]
            squares = float(np.sum((heights - centred @ slopes) ** 2))
            if (slopes >= 0).all() and squares < rest - _TINY:
                best, rest = slopes, squares
    rank = int(np.linalg.matrix_rank(centred, tol=1e-6))
    return best, rest, len(x) - 1 - rank


def _scatter(x: NDArray[np.float64], y: NDArray[np.float64], freedom: int) -> tuple[NDArray[np.float64], float]:
    """Return how far levels are off slopes from 0 to the steepest, ``(n_points,)``, and their standard deviation."""
    from scipy.optimize import lsq_linear  # as above

    if len(x) < 2:
        return np.zeros(len(x)), 0.0
    centred, heights = x - x.mean(axis=0), y - y.mean()
    found = lsq_linear(centred, heights, (0.0, _STEEPEST))
    off = np.asarray(heights - centred @ found.x)
    return off, math.sqrt(float(off @ off) / max(1, freedom))


def _steepest(
    x: NDArray[np.float64], slopes: NDArray[np.float64], noise: float, *, beyond: bool = False
) -> NDArray[np.float64]:
    """Return the slopes that errors may have upwards, shape ``(n_ways, n_sizes)``; whatever they have is among these.

    Args:
        x: the measured sizes.
        slopes: those that fit best.
        noise: how far a level may be off, at the confidence wanted.
        beyond: whether it is about larger sizes than these, where the slope is 2 at least along every way.
    """
    n_sizes = x.shape[1]
    steepest = _BEYOND if beyond else _STEEPEST
    centred = x - x.mean(axis=0) if len(x) else x
    varied = np.flatnonzero((np.abs(centred) > _TINY).any(axis=0)) if len(x) else np.zeros(0, np.int64)
    if not 0 < len(varied) <= _MOST_VARIED:
        return np.full((1, n_sizes), steepest)
    own = centred[:, varied]
    spans = np.linalg.pinv(own.T @ own, rcond=1e-9)
    upper = slopes[varied] + noise * np.sqrt(np.diag(spans))
    # What fits must not be less certain than what is assumed where nothing was measured.
    upper = np.minimum(upper, np.maximum(slopes[varied], _STEEPEST))
    _, values, rows = np.linalg.svd(own, full_matrices=False)
    seen = rows[values > 1e-6]
    sums = seen @ upper
    if beyond and len(seen) == len(varied):
        sums = seen @ np.maximum(upper, steepest)
    elif beyond and len(seen) == 1 and ((seen >= 0).all() or (seen <= 0).all()):
        # All sizes were varied together: one step along their way has that slope in all.
        sums = np.sign(seen.sum(axis=1)) * np.maximum(np.abs(sums), steepest * np.abs(seen).max())
    elif beyond:
        return np.full((1, n_sizes), max(steepest, float(upper.max())))
    found = []
    for corner in _corners(seen, sums, max(steepest, float(upper.sum()))):
        way = np.full(n_sizes, steepest)
        way[varied] = corner
        found.append(way)
    return np.array(_maximal(found))


def _corners(seen: NDArray[np.float64], sums: NDArray[np.float64], most: float) -> list[NDArray[np.float64]]:
    """Return the corners of all slopes from 0 to ``most`` that have the sums which were seen along some directions."""
    rank, n_sizes = seen.shape
    found = []
    for chosen in itertools.combinations(range(n_sizes), rank):
        others = [i for i in range(n_sizes) if i not in chosen]
        matrix = seen[:, chosen]
        if abs(np.linalg.det(matrix)) < _TINY:
            continue
        for ends in itertools.product((0.0, most), repeat=len(others)):
            slopes = np.empty(n_sizes)
            slopes[others] = ends
            slopes[list(chosen)] = np.linalg.solve(matrix, sums - seen[:, others] @ np.array(ends))
            if (slopes > -_TINY).all() and (slopes < most + _TINY).all():
                found.append(np.clip(slopes, 0.0, most))
    return found


def _maximal(ways: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """Return those of some slopes that are nowhere below another."""
    different = {tuple(np.round(way, 12)): way for way in ways}
    return [
        way
        for key, way in different.items()
        if not any(other != key and (another >= way - _TINY).all() for other, another in different.items())
    ]


def _lift(
    x: NDArray[np.float64], worst: NDArray[np.float64], limits: NDArray[np.float64], ways: NDArray[np.float64]
) -> float:
    """Return by how much measured errors lie above what the limits at smaller sizes and the slopes say."""
    if not len(x):
        return 0.0
    steps = x[:, None, :] - x
    growth = (np.maximum(steps, 0.0) @ ways.T).max(axis=2)
    is_up = (steps >= 0).all(axis=2) & (steps > 0).any(axis=2)
    short = np.where(is_up, worst[:, None] - (limits + growth), 0.0)
    most = float(short.max())
    return most if most > _TINY else 0.0
