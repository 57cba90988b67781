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

#: When caches are emptied between launches.
FLUSHING: Final = ("auto", "on", "off")

#: A configuration is clearly beaten by one that takes less than its time divided by this: its median is longer with
#: the confidence below, after so many launches over so many seconds. In a time slice of the system's all of them would
#: be slow.
_BEATEN_FACTOR: Final = 1.5
_BEATEN_CONFIDENCE: Final = 0.75
_BEATEN_LAUNCHES: Final = 3
_BEATEN_SPAN_S: Final = 0.05
#: A configuration all of whose launches take this much longer than the best will not win: it serves the strategy, which
#: a coarser time serves as well. One that is nearer, be it in one launch, is measured as closely as the best itself.
_BEHIND_FACTOR: Final = 1.1
_BEHIND_WIDTH: Final = 0.05
_BEHIND_SPAN_S: Final = 0.005

#: Operations per byte of memory traffic from which on no device waits for its memory, whatever the precision.
_COMPUTE_BOUND_INTENSITY: Final = 64.0
#: Data of less than this share of the cache take less time to move than a launch takes to start.
_SMALL_SHARE: Final = 1 / 64
#: Where the cache is a smaller share of the data than this, what it still holds of the last launch does not show.
_STREAMING_SHARE: Final = 1 / 50
#: Caches that do not replace strictly the oldest line need more than their own size to forget everything.
_SIZES: Final = 2
#: Pieces of the memory that is moved on a device. Only one is written: a timed launch would wait for what is left of it
#: in the cache to be written back.
_PIECES: Final = 32


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """How often to launch, and from what state of the caches."""

    warmups: int = 1
    min_repeats: int = 5  #: timed launches there are at least, unless they take longer than ``patience_s``
    max_repeats: int = 200
    relative_width: float = 0.02  #: launches end once the median's interval is within this share of it
    #: From ``min_repeats`` on, seconds of the timed launches together, restoring buffers included.
    cap_s: float = 0.5
    #: Seconds of the timed launches together, be they fewer than ``min_repeats``; but always two.
    patience_s: float = 2.0
    #: Whether the caches are emptied before each timed launch: "on", "off", or "auto": on GPUs, for sizes at which
    #: launches wait for memory and could find some of their data in the cache (:func:`is_worth_flushing`).
    flush_cache: str = "auto"
    confidence: float = 0.95  #: of the median's interval

    def __post_init__(self) -> None:
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
    of interest beside ``best_ms``, or launches take longer than the plan has patience for.
    """
    for _ in range(plan.warmups):
        launch()
    times: list[float] = []
    start = clock()
    while len(times) < plan.max_repeats:
        times.append(launch())
        took_s = max(sum(times) / 1e3, clock() - start)
        low_ms = median_interval(times, _BEATEN_CONFIDENCE)[0] if len(times) >= _BEATEN_LAUNCHES else -math.inf
        if took_s >= _BEATEN_SPAN_S and low_ms > _BEATEN_FACTOR * best_ms:
            break
        if took_s >= plan.patience_s and len(times) >= min(2, plan.min_repeats):  # a single one has no spread to show
            break
        if len(times) < plan.min_repeats:
            continue
        if took_s >= plan.cap_s or is_tight(times, plan.relative_width, plan.confidence):
            break
        is_behind = took_s >= _BEHIND_SPAN_S and min(times) > _BEHIND_FACTOR * best_ms
        if is_behind and is_tight(times, _BEHIND_WIDTH, _BEATEN_CONFIDENCE):
            break
    return tuple(times)


def is_worth_flushing(footprint_bytes: int, cache_bytes: int, intensity: float | None) -> bool:
    """Whether launches over and over on the same data would find some of it in the cache, and be faster for it.

    Not when they are bound by arithmetic (``intensity``, operations per byte of traffic, None if not known), when there
    is next to no data, or so much that the cache, of 0 bytes if not known, does not matter.
    """
    if not cache_bytes or is_bound_by_arithmetic(intensity):
        return False
    return _SMALL_SHARE * cache_bytes <= footprint_bytes <= cache_bytes / _STREAMING_SHARE


def is_bound_by_arithmetic(intensity: float | None) -> bool:
    """Whether no device waits for memory at so many operations per byte of traffic; None if they are not known."""
    return intensity is not None and intensity >= _COMPUTE_BOUND_INTENSITY


class CacheFlush:
    """Scratch memory larger than the cache; moving all of it leaves nothing else there.

    A device reads it, piece after piece, into the memory of one: so next to nothing in the cache has to be written
    back. On the host every core moves its share, which empties the caches of its own, too.
    """

    def __init__(self, backend: Backend, cache_bytes: int) -> None:
        try:
            self._scratch: Buffer = backend.device.allocate(_SIZES * cache_bytes)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"no room to flush the cache of {cache_bytes} bytes with ({error}); it can be left as it is "
                "(flush_cache='off')"
            ) from error
        self._cores = sorted(os.sched_getaffinity(0)) if backend.shares_memory else []
        count = 2 * len(self._cores) or _PIECES
        nbytes = self._scratch.nbytes // count
        self._parts = [self._scratch.part(i * nbytes, nbytes) for i in range(count)]

    def __call__(self) -> None:
        """Empty the cache; takes time, so not while something is timed."""
        if self._cores:
            with ThreadPoolExecutor(len(self._cores)) as threads:
                list(threads.map(_move, self._cores, self._parts[::2], self._parts[1::2]))
            return
        for piece in self._parts[1:]:
            self._parts[0].copy_from(piece)

    def free(self) -> None:
        """Give the memory back."""
        self._scratch.free()


def _move(core: int, first: Buffer, second: Buffer) -> None:
    """Copy one half over the other and back, on one core: what is only written need not come into a cache."""
    os.sched_setaffinity(0, {core})  # of this thread alone
    first.copy_from(second)
    second.copy_from(first)


def wants_flush(plan: TimingPlan, backend: Backend, kernel: Tunable, sizes: Sizes, data: DataManager) -> bool:
    """Whether caches are emptied before timed launches: one answer for all configurations, that of the widest types."""
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
    return work.traffic_bytes > 0 and is_worth_flushing(data.footprint_bytes(widest), cache_bytes, work.intensity)
