"""Timing launches: repeated until their median is known well enough or known to be too long, caches emptied or not."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from mptune.backends.base import Backend, Buffer
from mptune.data import DataManager
from mptune.errors import MptuneError, OutOfMemoryError, UnknownNameError
from mptune.kernel import Sizes, Tunable
from mptune.results.speedup import is_tight, median_interval
from mptune.space.configuration import Configuration

__all__ = [
    "FLUSHING",
    "SEARCHING",
    "CacheFlush",
    "TimingPlan",
    "is_bound_by_arithmetic",
    "is_worth_flushing",
    "repeat_launches",
    "wants_flush",
]

#: A configuration is clearly beaten by one that takes less than its time divided by this.
_BEATEN_FACTOR: Final = 1.5

#: A time this much longer than the best will not win: it serves the strategy, which a coarser one serves as well. What
#: is nearer to the best time, be it in one launch, is measured as closely as the best itself, so that neither noise nor
#: a cold start decides who wins. Again the launches must not all fall into one moment.
_BEHIND_FACTOR: Final = 1.1
_BEHIND_WIDTH: Final = 0.05
_BEHIND_SPAN_S: Final = 0.005

#: When caches are emptied between launches.
FLUSHING: Final = ("auto", "on", "off")

#: Launches before which no configuration is given up, and the confidence of the median's interval whose lower end is
#: looked at. Three launches all of which are longer than something: their median is too with probability 7/8, before
#: the margin of the factor above is counted. They must not all fall into one moment in which the machine does
#: something else, which a time slice of the system's makes last some ten milliseconds.
_BEATEN_LAUNCHES: Final = 3
_BEATEN_CONFIDENCE: Final = 0.75
_BEATEN_SPAN_S: Final = 0.05
#: Launches there are even of the slowest configuration: a single one would have no spread to show.
_SLOW_LAUNCHES: Final = 2

#: Operations per byte of memory traffic from which on no device waits for its memory, whatever the precision.
_COMPUTE_BOUND_INTENSITY: Final = 64.0
#: Data of less than this share of the cache take less time to move than a launch takes to start.
_SMALL_SHARE: Final = 1 / 64
#: Where the cache is a smaller share of the data than this, what it still holds of the last launch does not show.
_STREAMING_SHARE: Final = 1 / 50


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """How often to launch, and from what state of the caches.

    Attributes:
        warmups: untimed launches before the first timed one.
        min_repeats: timed launches there are at least, unless they take longer than ``patience_s``.
        max_repeats: timed launches there are at most.
        relative_width: the confidence interval of the median is tight below this share of the median, where the median
            may be the best.
        cap_s: from ``min_repeats`` on, no further launch once the timed ones took this long together, restoring
            buffers included.
        patience_s: no further launch once the timed ones took this long together, be they fewer than
            ``min_repeats``; but always two.
        flush_cache: whether the caches are emptied before each timed launch: "on", "off", or "auto": on GPUs, for
            sizes at which launches wait for memory and could find some of their data in the cache
            (:func:`is_worth_flushing`).
        confidence: of the interval that is tight below ``relative_width``.

    Raises:
        MptuneError: the numbers contradict each other.
        UnknownNameError: no such way to flush.
    """

    warmups: int = 1
    min_repeats: int = 5
    max_repeats: int = 200
    relative_width: float = 0.02
    cap_s: float = 0.5
    patience_s: float = 2.0
    flush_cache: str = "auto"
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not (self.warmups >= 0 and 1 <= self.min_repeats <= self.max_repeats):
            raise MptuneError(f"timing plan: expected 0 <= warmups and 1 <= min_repeats <= max_repeats, got {self}")
        if self.flush_cache not in FLUSHING:
            raise UnknownNameError("way to flush the cache:", self.flush_cache, FLUSHING)


#: Of a search: few launches, as the finals tell the fastest apart.
SEARCHING: Final = TimingPlan(min_repeats=3, max_repeats=7, confidence=0.75)


def repeat_launches(
    launch: Callable[[], float],
    plan: TimingPlan,
    clock: Callable[[], float] = time.perf_counter,
    best_ms: float = math.inf,
) -> tuple[float, ...]:
    """Return the times in milliseconds of the timed launches.

    Stops as soon as the median's confidence interval is tight, the time cap is reached or the
    launches are used up, but not before ``min_repeats``; before that only where the median is clearly too long to be
    of interest, or launches take longer than the plan has patience for. The times are as good as any, only fewer:
    their spread says how well they are known.

    Args:
        launch: runs the kernel once and returns its time in milliseconds.
        plan: warm-ups, repeats and limits.
        clock: wall time in seconds.
        best_ms: the best time so far; how much longer another one is need not be known as closely.
    """
    for _ in range(plan.warmups):
        launch()
    times: list[float] = []
    start = clock()
    while len(times) < plan.max_repeats:
        times.append(launch())
        took_s = max(sum(times) / 1e3, clock() - start)
        if took_s >= _BEATEN_SPAN_S and _is_beaten(times, _BEATEN_FACTOR * best_ms):
            break
        if len(times) >= min(_SLOW_LAUNCHES, plan.min_repeats) and took_s >= plan.patience_s:
            break
        if len(times) < plan.min_repeats:
            continue
        if took_s >= plan.cap_s or is_tight(times, plan.relative_width, plan.confidence):
            break
        if took_s >= _BEHIND_SPAN_S and _is_behind(times, _BEHIND_FACTOR * best_ms):
            break
    return tuple(times)


def _is_beaten(times: list[float], limit_ms: float) -> bool:
    """Whether the median is above a limit with confidence."""
    return len(times) >= _BEATEN_LAUNCHES and median_interval(times, _BEATEN_CONFIDENCE)[0] > limit_ms


def _is_behind(times: list[float], limit_ms: float) -> bool:
    """Whether every time is above a limit, and the median known well enough for one that is."""
    return min(times) > limit_ms and is_tight(times, relative=_BEHIND_WIDTH, confidence=_BEATEN_CONFIDENCE)


def is_worth_flushing(footprint_bytes: int, cache_bytes: int, intensity: float | None) -> bool:
    """Whether launches over and over on the same data would find some of it in the cache, and be faster for it.

    Not when they are bound by arithmetic, when there is next to no data, or so much that the cache does not matter.

    Args:
        footprint_bytes: of the kernel's arguments.
        cache_bytes: of the last-level cache, 0 if unknown.
        intensity: operations per byte of memory traffic; None where the kernel does not declare its operations.
    """
    if not cache_bytes or is_bound_by_arithmetic(intensity):
        return False
    return _SMALL_SHARE * cache_bytes <= footprint_bytes <= cache_bytes / _STREAMING_SHARE


def is_bound_by_arithmetic(intensity: float | None) -> bool:
    """Whether no device waits for memory at so many operations per byte of traffic; None if they are not known."""
    return intensity is not None and intensity >= _COMPUTE_BOUND_INTENSITY


#: Caches that do not replace strictly the oldest line need more than their own size to forget everything.
_SIZES: Final = 2
#: The share of the cache that may be left with what was written and is not in memory yet: a timed launch would wait
#: for that to be written back.
_DIRTY: Final = 1 / 16


class CacheFlush:
    """Scratch memory larger than the cache; moving all of it leaves nothing else there.

    A device reads it, piece after piece, into the memory of one: so next to nothing in the cache has to be written
    back. On the host every core moves its share, which empties the caches of its own, too.

    Args:
        backend: allocates it.
        cache_bytes: of the last-level cache.

    Raises:
        OutOfMemoryError: there is no room.
    """

    def __init__(self, backend: Backend, cache_bytes: int) -> None:
        try:
            self._scratch: Buffer = backend.device.allocate(_SIZES * cache_bytes)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"no room to flush the cache of {cache_bytes} bytes with ({error}); it can be left as it is "
                "(flush_cache='off')"
            ) from error
        self._halves: list[tuple[int, Buffer, Buffer]] = []
        self._pieces: list[Buffer] = []
        if backend.shares_memory:
            cores = sorted(os.sched_getaffinity(0))
            half = self._scratch.nbytes // (2 * len(cores))
            parts = [self._scratch.part(i * half, half) for i in range(2 * len(cores))]
            self._halves = list(zip(cores, parts[::2], parts[1::2], strict=True))
        else:
            count = round(_SIZES / _DIRTY)
            nbytes = self._scratch.nbytes // count
            self._pieces = [self._scratch.part(i * nbytes, nbytes) for i in range(count)]

    def __call__(self) -> None:
        """Empty the cache; takes time, so not while something is timed."""
        if self._halves:
            with ThreadPoolExecutor(len(self._halves)) as threads:
                list(threads.map(_move, self._halves))
            return
        target, *pieces = self._pieces
        for piece in pieces:
            target.copy_from(piece)

    def free(self) -> None:
        """Give the memory back."""
        self._scratch.free()


def _move(share: tuple[int, Buffer, Buffer]) -> None:
    """Copy one half over the other and back, on one core: what is only written need not come into a cache."""
    core, first, second = share
    os.sched_setaffinity(0, {core})  # of this thread alone
    first.copy_from(second)
    second.copy_from(first)


def wants_flush(plan: TimingPlan, backend: Backend, kernel: Tunable, sizes: Sizes, data: DataManager) -> bool:
    """Whether the caches are emptied before timed launches: one answer for all configurations, or they do not compare.

    It is that of the widest types, in which the data are largest.

    Raises:
        MptuneError: they are to be, but nothing is known of them.
    """
    cache_bytes = backend.describe().limits.get("cache_bytes", 0)
    if plan.flush_cache == "on" and not cache_bytes:
        raise MptuneError(
            f"flush_cache='on': how large the last-level cache of {backend.describe().name} is, is not known; "
            "leave it at 'auto' or 'off'"
        )
    if plan.flush_cache != "auto" or backend.shares_memory:
        return plan.flush_cache == "on"
    widest = Configuration(
        {**kernel.configuration({}), **{name: values[0] for name, values in kernel.baseline_values().items()}}
    )
    work = kernel.work(widest, sizes)
    if not work.traffic_bytes:
        return False
    return is_worth_flushing(data.footprint_bytes(widest), cache_bytes, work.intensity)
