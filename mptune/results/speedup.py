"""The speedup of one configuration over another, from rounds in which all finalists take turns.

Other work of a machine adds time to some launches, so the time of a turn is its shortest launch. Slow changes (a clock,
another load) affect all turns of a round alike, so times are compared within a round: each round gives a ratio, and
their median is the speedup. Rounds go back and forth, so that the sign of a drift alternates. The interval of the
median is distribution-free (:func:`median_interval`).

The fastest of several finalists was also lucky in the rounds that chose it. Therefore ratios to the baseline come from
later rounds (:attr:`Finals.chosen_after`).
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from mptune.errors import MptuneError
from mptune.space.configuration import Configuration

#: Minimum rounds of an interval at 95% confidence.
LEAST_ROUNDS: Final = 6
#: Relative difference of times below which configurations are tied.
TIE: Final = 0.03
#: Ratio in each of fewer than :data:`LEAST_ROUNDS` rounds from which a configuration counts as slower.
_FAR_BEHIND: Final = 1.1
#: A machine is noisy from so many other tasks per core on, or from this relative difference between the tenth and the
#: ninetieth percentile of the same code's times on.
_MANY_TASKS: Final = 0.25
_MUCH_DRIFT: Final = 0.1
#: Maximum ratio between the ends of a settled interval, and between these and the ratio of the shortest launches.
_FAR_APART: Final = 1.5
#: Drift below this is shown as none: it rounds to 0%.
_NO_DRIFT: Final = 0.005


def median_interval(times: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return an interval that holds the true median of independent times with at least this confidence.

    It is the narrowest between the k-th smallest and the k-th largest time; ``(-inf, inf)`` for too few times (fewer
    than 6 at 0.95), and ``(nan, nan)`` with a NaN among them.
    """
    if not 0 < confidence < 1:
        raise MptuneError(f"a confidence must lie between 0 and 1, got {confidence}")
    if any(math.isnan(time) for time in times):
        return math.nan, math.nan
    rank = _rank(len(times), confidence)
    if rank == 0:
        return -math.inf, math.inf
    ordered = sorted(times)
    return ordered[rank - 1], ordered[-rank]


def is_tight(times: Sequence[float], relative: float = 0.01, confidence: float = 0.95) -> bool:
    """Whether the ends of :func:`median_interval` are within the share ``relative`` of the median."""
    low, high = median_interval(times, confidence)
    if not (math.isfinite(low) and math.isfinite(high)):
        return False
    median = statistics.median(times)
    return max(high - median, median - low) <= relative * abs(median)


@functools.lru_cache(maxsize=4096)
def _rank(n: int, confidence: float) -> int:
    """Return the largest k with P(k-th smallest <= median <= k-th largest of n) >= confidence, 0 for none.

    The probability of missing on one side is P(Binomial(n, 1/2) < k).
    """
    allowed = (1 - confidence) / 2
    # The probability further than 40 standard deviations below the mean is negligible.
    start = max(0, int(n / 2 - 20 * math.sqrt(n)))
    missed = 0.0
    for below in range(start, n // 2 + 1):
        log_probability = math.lgamma(n + 1) - math.lgamma(below + 1) - math.lgamma(n - below + 1) - n * math.log(2)
        missed += math.exp(log_probability)
        # The tolerance covers rounding where both are equal.
        if missed > allowed * (1 + 1e-9):
            return below
    return n // 2


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median ratio of two configurations' times, and its 95% interval.

    The interval of fewer rounds than :data:`LEAST_ROUNDS` is from 0 to infinity.
    """

    low: float
    value: float
    high: float
    rounds: int
    smallest: float  #: ratio of any round

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Self:
        """Return the median of at least one round's ratio."""
        logs = [math.log(ratio) for ratio in ratios]
        low, high = median_interval(logs)
        return cls(
            math.exp(low) if math.isfinite(low) else 0.0,
            math.exp(statistics.median(logs)),
            math.exp(high) if math.isfinite(high) else math.inf,
            len(ratios),
            min(ratios),
        )

    @property
    def is_slower(self) -> bool:
        """Whether it certainly takes longer, by more than a tie."""
        return self.low > 1.0 + TIE / 3 if self.rounds >= LEAST_ROUNDS else self.smallest > _FAR_BEHIND

    @property
    def is_equal(self) -> bool:
        """Whether it certainly takes no longer, or is tied."""
        return self.high < 1.0 + TIE

    @property
    def is_open(self) -> bool:
        """Whether more rounds are needed to name the faster configuration or a tie."""
        return not (self.is_slower or self.is_equal)


@dataclass(frozen=True, slots=True)
class Finals:
    """The shortest launch of each finalist in each round."""

    configurations: tuple[Configuration, ...] = ()  #: the finalists
    #: shape ``(n_rounds, n_configurations)``; None where a finalist was not in a round
    times_ms: tuple[tuple[float | None, ...], ...] = ()
    chosen_after: int = 0  #: number of rounds that chose the reported trials; later rounds measure only these
    tasks_per_core: float | None = None  #: mean number of other tasks per core of the machine; None if not known
    #: time of fixed work beside the kernels in each round, shape ``(n_rounds,)``; empty if not known, as on a device
    calibration_ms: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        rounds, times = len(self.times_ms), [ms for row in self.times_ms for ms in row if ms is not None]
        if (
            any(len(row) != len(self.configurations) for row in self.times_ms)
            or not all(any(ms is not None for ms in column) for column in zip(*self.times_ms, strict=True))
            or bool(rounds) != bool(self.configurations)
            or len(self.calibration_ms) not in (0, rounds)
            or min(self.chosen_after, self.tasks_per_core or 0) < 0
            or not all(ms > 0 for ms in (*times, *self.calibration_ms))
        ):
            raise MptuneError("rounds of finals need a positive time of each finalist in some round")

    @classmethod
    def of(
        cls,
        rounds: Sequence[Mapping[Configuration, float]],
        chosen_after: int,
        tasks_per_core: float | None = None,
        calibration_ms: Sequence[float] = (),
    ) -> Self:
        """Return the record of rounds, each with the shortest launch of its finalists."""
        names = tuple(dict.fromkeys(configuration for times in rounds for configuration in times))
        rows = tuple(tuple(times.get(name) for name in names) for times in rounds)
        return cls(names, rows, chosen_after, tasks_per_core, tuple(calibration_ms))

    @property
    def rounds(self) -> list[Mapping[Configuration, float]]:
        """The rounds, each with the shortest launch of its finalists."""
        return [
            {name: time for name, time in zip(self.configurations, row, strict=True) if time is not None}
            for row in self.times_ms
        ]

    # -- ratios --------------------------------------------------------------------------------

    def is_chosen(self, configuration: Configuration) -> bool:
        """Whether it was timed in a round after the choice."""
        return self.fresh_rounds(configuration) > 0

    def fresh_rounds(self, *configurations: Configuration) -> int:
        """Return the number of rounds after the choice that timed all of these configurations."""
        return len(self._met(configurations, self.chosen_after))

    def ratio(self, slower: Configuration, faster: Configuration) -> Ratio | None:
        """Return the ratio of two configurations' times, None if no round timed both.

        If rounds after the choice timed both, only these count.
        """
        met = self._met_in_rounds_that_count(slower, faster)
        return Ratio.of((met[:, 0] / met[:, 1]).tolist()) if len(met) else None

    def settles(self, slower: Configuration, faster: Configuration) -> bool:
        """Whether the rounds agree on the faster of two configurations: their interval excludes 1.

        If other work disturbs one configuration in most rounds, the interval is wide or far from the ratio of the
        shortest launches, and settles nothing.
        """
        ratio = self.ratio(slower, faster)
        if ratio is None or ratio.low <= 1.0 <= ratio.high:
            return False
        slow_ms, fast_ms = self._met_in_rounds_that_count(slower, faster).min(axis=0)
        is_near = ratio.low / _FAR_APART <= slow_ms / fast_ms <= ratio.high * _FAR_APART
        return bool(is_near) and ratio.high <= ratio.low * _FAR_APART

    def _met_in_rounds_that_count(self, *configurations: Configuration) -> NDArray[np.float64]:
        fresh = self._met(configurations, self.chosen_after)
        return fresh if len(fresh) else self._met(configurations, 0)

    def _met(self, configurations: tuple[Configuration, ...], first: int) -> NDArray[np.float64]:
        """Return the times of configurations in rounds with all of them, shape ``(n_rounds, n_configurations)``."""
        if not set(configurations) <= set(self.configurations):
            return np.empty((0, len(configurations)))
        times = self._times[first:, [self.configurations.index(configuration) for configuration in configurations]]
        return times[~np.isnan(times).any(axis=1)]

    @property
    def _times(self) -> NDArray[np.float64]:
        return np.array(self.times_ms, dtype=np.float64).reshape(len(self.times_ms), len(self.configurations))

    def tied_with(self, best: Configuration) -> dict[Configuration, Ratio]:
        """Return the finalists that are not certainly slower than another, with the ratios of their times."""
        ratios = {c: self.ratio(c, best) for c in self.configurations if c != best}
        tied = {c: ratio for c, ratio in ratios.items() if ratio is not None and not ratio.is_slower}
        return {c: ratio for c, ratio in tied.items() if ratio.is_equal or not self._is_slower_beside_others(c, best)}

    def _is_slower_beside_others(self, slower: Configuration, faster: Configuration) -> bool:
        """Whether a comparison of both with a third finalist shows that one is slower.

        The two may share few rounds, some disturbed, while each shares many with the baseline.
        """
        for other in self.configurations:
            ratios = [self.ratio(c, other) for c in (slower, faster)] if other not in (slower, faster) else [None]
            known = [ratio for ratio in ratios if ratio is not None and ratio.rounds >= LEAST_ROUNDS]
            if len(known) == 2 and known[0].low > known[1].high * (1.0 + TIE / 3):
                return True
        return False

    def typical_ms(self, anchor: Configuration | None = None) -> dict[Configuration, float]:
        """Return a time for each finalist; its ratio to the anchor's time is :meth:`ratio`."""
        anchor = anchor or self.configurations[0]
        anchor_ms = float(np.nanmedian(self._times[:, self.configurations.index(anchor)]))
        ratios = {c: self.ratio(c, anchor) for c in self.configurations}
        return {c: anchor_ms * ratio.value for c, ratio in ratios.items() if ratio is not None}

    # -- the machine ---------------------------------------------------------------------------

    @property
    def drift(self) -> float:
        """Relative difference between the tenth and the ninetieth percentile of the rounds' times for the same work.

        Threads of a kernel that wait for each other vary by themselves, which is no noise of the machine. Therefore the
        work is :attr:`calibration_ms`; all finalists together where it is unknown. NaN for fewer rounds than
        :data:`LEAST_ROUNDS`.
        """
        if len(self.times_ms) < LEAST_ROUNDS:
            return math.nan
        # The time of each round relative to the medians of its finalists.
        rounds = self.calibration_ms or np.nanmedian(self._times / np.nanmedian(self._times, axis=0), axis=1)
        least, most = np.quantile(rounds, [0.1, 0.9])
        return float(most / least - 1)

    @property
    def noise(self) -> str:
        """The noise of the machine during the finals, in words; empty if there was none."""
        if not ((self.tasks_per_core or 0.0) >= _MANY_TASKS or self.drift >= _MUCH_DRIFT):
            return ""
        tasks = "" if self.tasks_per_core is None else f"{self.tasks_per_core:.1f} other tasks wanted each core, "
        if self.drift < _NO_DRIFT:
            return f"{tasks}though the same code took as long in all rounds"
        if math.isnan(self.drift):
            return f"{tasks}round times varied by an unknown amount"
        return f"{tasks}the same code took up to {self.drift:.0%} longer in some rounds than in others"
