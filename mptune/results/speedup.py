"""How many times faster one configuration is than another, from rounds in which all finalists took their turn.

What else a machine does only ever adds time, to some launches and not to others. So the time of a turn is that of its
shortest launch: it is the one least disturbed. A machine that changes over minutes (its clock, another load) does so
for all turns of a round alike, so times are only compared within a round: each gives a ratio, and the median of these
is the speedup. Rounds go back and forth, which turns a drift within one into a difference whose sign alternates. The
interval is the distribution-free one of a median (:func:`median_interval`), which holds for
ratios of any distribution, however heavy its tails.

Whoever is chosen as the fastest of several was also lucky: rounds that choose say too much about the one they chose. So
ratios to the baseline are taken from rounds that follow the choice (:attr:`Finals.chosen_after`).
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

#: Of fewer rounds there is no interval at 95% confidence.
LEAST_ROUNDS: Final = 6
#: Configurations whose times differ by less than this share are as good as each other.
TIE: Final = 0.03
#: Slower than this in each of the first rounds, however few they are: it will not be the fastest.
_FAR_BEHIND: Final = 1.1
#: A machine is noisy where so many other tasks wanted each of its cores, or where the same code took so much longer in
#: one round than in another (between the tenth and the ninetieth percentile).
_MANY_TASKS: Final = 0.25
_MUCH_DRIFT: Final = 0.1
#: Rounds do not agree on a ratio whose interval's ends are this far apart, or which is so far from that of the shortest
#: launches of all rounds.
_FAR_APART: Final = 1.5
#: Less than this rounds to no percent.
_NO_DRIFT: Final = 0.005


def median_interval(times: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return an interval that holds the true median of independent times with at least this confidence.

    It is the narrowest one between the k-th smallest and the k-th largest time. With too few times for any (fewer
    than 6 at 0.95) it is ``(-inf, inf)``, and with a NaN among them ``(nan, nan)``.
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
    # Further than 40 standard deviations below the mean there is no probability to speak of.
    start = max(0, int(n / 2 - 20 * math.sqrt(n)))
    missed = 0.0
    for below in range(start, n // 2 + 1):
        log_probability = math.lgamma(n + 1) - math.lgamma(below + 1) - math.lgamma(n - below + 1) - n * math.log(2)
        missed += math.exp(log_probability)
        # The tolerance is for rounding where the two are equal.
        if missed > allowed * (1 + 1e-9):
            return below
    return n // 2


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times longer one configuration takes than another: the median of ``rounds``, and its 95% interval.

    Of fewer rounds than :data:`LEAST_ROUNDS` the interval is from 0 to infinity.
    """

    low: float
    value: float
    high: float
    rounds: int
    smallest: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Self:
        """Return the median of some ratios, one for each round, at least one."""
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
        """Whether it surely takes longer, by an amount that matters."""
        return self.low > 1.0 + TIE / 3 if self.rounds >= LEAST_ROUNDS else self.smallest > _FAR_BEHIND

    @property
    def is_equal(self) -> bool:
        """Whether it surely takes no longer, but for less than matters."""
        return self.high < 1.0 + TIE

    @property
    def is_open(self) -> bool:
        """Whether more rounds are needed to say which of both is faster, or that they are as good as each other."""
        return not (self.is_slower or self.is_equal)


@dataclass(frozen=True, slots=True)
class Finals:
    """The shortest launch of each finalist in each round.

    Attributes:
        configurations: the finalists.
        times_ms: shape ``(n_rounds, n_configurations)``; None where one was left out of a round.
        chosen_after: so many rounds chose who is reported; the others only measure those.
        tasks_per_core: how many other tasks wanted each core of the machine, on average; None if not known.
        calibration_ms: how long the same work of no kernel took in each round, shape ``(n_rounds,)``; empty if that is
            not known, as on a device.
    """

    configurations: tuple[Configuration, ...] = ()
    times_ms: tuple[tuple[float | None, ...], ...] = ()
    chosen_after: int = 0
    tasks_per_core: float | None = None
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
        """Return the record of some rounds, each with the shortest launch of those that took part."""
        names = tuple(dict.fromkeys(configuration for times in rounds for configuration in times))
        rows = tuple(tuple(times.get(name) for name in names) for times in rounds)
        return cls(names, rows, chosen_after, tasks_per_core, tuple(calibration_ms))

    @property
    def rounds(self) -> list[Mapping[Configuration, float]]:
        """The rounds, each with the shortest launch of those that took part."""
        return [
            {name: time for name, time in zip(self.configurations, row, strict=True) if time is not None}
            for row in self.times_ms
        ]

    # -- ratios --------------------------------------------------------------------------------

    def is_chosen(self, configuration: Configuration) -> bool:
        """Whether it took part in the rounds that followed the choice."""
        return self.fresh_rounds(configuration) > 0

    def fresh_rounds(self, *configurations: Configuration) -> int:
        """Return in how many of the rounds that followed the choice some configurations took part together."""
        return len(self._met(configurations, self.chosen_after))

    def ratio(self, slower: Configuration, faster: Configuration) -> Ratio | None:
        """Return how many times longer one configuration takes than another, None if they never met.

        If both took part in the rounds after the choice, those count alone.
        """
        met = self._met_in_rounds_that_count(slower, faster)
        return Ratio.of((met[:, 0] / met[:, 1]).tolist()) if len(met) else None

    def settles(self, slower: Configuration, faster: Configuration) -> bool:
        """Whether the rounds agree on which of two configurations is faster: their interval excludes 1.

        The interval holds for rounds that are alike. If other work disturbs one configuration in most rounds, the ends
        of the interval are far apart, or it is far from the ratio of the shortest launches, which are disturbed least.
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
        """The times, NaN where a configuration was left out of a round."""
        return np.array(self.times_ms, dtype=np.float64).reshape(len(self.times_ms), len(self.configurations))

    def tied_with(self, best: Configuration) -> dict[Configuration, Ratio]:
        """Return the finalists that are not surely slower than another one, and how many times longer they take."""
        ratios = {c: self.ratio(c, best) for c in self.configurations if c != best}
        tied = {c: ratio for c, ratio in ratios.items() if ratio is not None and not ratio.is_slower}
        return {c: ratio for c, ratio in tied.items() if ratio.is_equal or not self._is_slower_beside_others(c, best)}

    def _is_slower_beside_others(self, slower: Configuration, faster: Configuration) -> bool:
        """Whether one surely takes longer than another by how both compare with a third.

        Of the two there may be a few disturbed rounds, where each has met the baseline in many.
        """
        for other in self.configurations:
            ratios = [self.ratio(c, other) for c in (slower, faster)] if other not in (slower, faster) else [None]
            known = [ratio for ratio in ratios if ratio is not None and ratio.rounds >= LEAST_ROUNDS]
            if len(known) == 2 and known[0].low > known[1].high * (1.0 + TIE / 3):
                return True
        return False

    def typical_ms(self, anchor: Configuration | None = None) -> dict[Configuration, float]:
        """Return a time for each finalist, whose ratios to the anchor's are those of :meth:`ratio`."""
        anchor = anchor or self.configurations[0]
        anchor_ms = float(np.nanmedian(self._times[:, self.configurations.index(anchor)]))
        ratios = {c: self.ratio(c, anchor) for c in self.configurations}
        return {c: anchor_ms * ratio.value for c, ratio in ratios.items() if ratio is not None}

    # -- the machine ---------------------------------------------------------------------------

    @property
    def drift(self) -> float:
        """By what share the machine took longer for the same work in some rounds than in others.

        A kernel may take longer now and then by itself, such as one whose threads wait for each other: that is no noise
        of the machine. So the work is none of the kernel's, where it is known; else all finalists together are it. From
        the tenth percentile of the rounds to the ninetieth; NaN for fewer than :data:`LEAST_ROUNDS`.
        """
        if len(self.times_ms) < LEAST_ROUNDS:
            return math.nan
        # How long each round took, as a factor of what is usual of those that took part.
        rounds = self.calibration_ms or np.nanmedian(self._times / np.nanmedian(self._times, axis=0), axis=1)
        least, most = np.quantile(rounds, [0.1, 0.9])
        return float(most / least - 1)

    @property
    def noise(self) -> str:
        """What disturbed the finals, in words; empty if nothing did."""
        if not ((self.tasks_per_core or 0.0) >= _MANY_TASKS or self.drift >= _MUCH_DRIFT):
            return ""
        tasks = "" if self.tasks_per_core is None else f"{self.tasks_per_core:.1f} other tasks wanted each core, "
        if self.drift < _NO_DRIFT:
            return f"{tasks}though the same code took as long in all rounds"
        if math.isnan(self.drift):
            return f"{tasks}round times varied by an unknown amount"
        return f"{tasks}the same code took up to {self.drift:.0%} longer in some rounds than in others"
