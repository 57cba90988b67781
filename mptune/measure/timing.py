"""Timing: launches are repeated until the interval of their median is narrow or clearly slower than the best."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
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

#: A configuration is clearly beaten if its median exceeds this multiple of the best with this confidence, after a
#: minimum of launches and of seconds: more than a time slice of the system, in which all would be slow.
_BEATEN_FACTOR: Final = 1.5
_BEATEN_CONFIDENCE: Final = 0.75
_BEATEN_LAUNCHES: Final = 3
_BEATEN_SPAN_S: Final = 0.05
#: A configuration whose launches all exceed this multiple of the best will not win, so a wider interval and a shorter
#: time suffice for the strategy.
_BEHIND_FACTOR: Final = 1.1
_BEHIND_WIDTH: Final = 0.05
_BEHIND_SPAN_S: Final = 0.005

#: Operations per byte of memory traffic from which on no device waits for its memory.
_COMPUTE_BOUND_INTENSITY: Final = 64.0
#: Minimum share of the cache: less data move faster than a launch starts.
_SMALL_SHARE: Final = 1 / 64
#: Minimum size of the cache as a share of the data, for its content to matter.
_STREAMING_SHARE: Final = 1 / 50
#: Memory to move as a multiple of the cache, whose replacement need not be strictly by age.
_SIZES: Final = 2
#: Pieces of the moved memory on a device. Only one is written, as a timed launch would wait for write-backs.
_PIECES: Final = 32


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """The numbers of launches, and the state of the caches."""

    warmups: int = 1
    min_repeats: int = 5  #: minimum timed launches within ``patience_s``
    max_repeats: int = 200
    relative_width: float = 0.02  #: target half-width of the median's interval, relative to the median
    cap_s: float = 0.5  #: maximum seconds of timed launches and restorations after ``min_repeats``
    patience_s: float = 2.0  #: maximum seconds of timed launches, but at least two launches
    #: Whether to empty caches before timed launches: "on", "off" or "auto" (on GPUs, see :func:`is_worth_flushing`)
    flush_cache: str = "auto"
    confidence: float = 0.95  #: of the median's interval

    def __post_init__(self) -> None:
        if self.flush_cache not in FLUSHING:
            raise UnknownNameError("way to flush the cache:", self.flush_cache, FLUSHING)


#: Timing in a search: few launches, as the finals rank the fastest.
SEARCHING: Final = TimingPlan(min_repeats=3, max_repeats=7, confidence=0.75)


def repeat_launches(
    launch: Callable[[], float],
    plan: TimingPlan,
    clock: Callable[[], float] = time.perf_counter,
    best_ms: float = math.inf,
    checked: tuple[float, float] = (math.inf, 0.0),
) -> tuple[float, ...]:
    """Return the times in milliseconds of the timed launches.

    Stops after ``min_repeats`` as soon as the median's interval is narrow or a limit of the plan is reached; earlier
    only if the median is clearly beaten by ``best_ms``, or after ``patience_s``. A long launch for the check, of which
    ``checked`` has the milliseconds and the seconds by the clock, counts as the first timed launch.
    """
    is_long = checked[1] >= plan.patience_s / 2
    times = [checked[0]] if is_long else []
    for _ in range(0 if is_long else plan.warmups):
        launch()
    start = clock() - (checked[1] if is_long else 0.0)
    while not times or (len(times) < plan.max_repeats and not _is_enough(times, plan, clock() - start, best_ms)):
        times.append(launch())
    return tuple(times)


def is_timed_by(checked: tuple[float, float], plan: TimingPlan, best_ms: float) -> bool:
    """Whether the launch for the check, as :func:`repeat_launches` takes it, is all that has to be timed."""
    is_beaten = checked[0] > _BEATEN_FACTOR * best_ms
    return checked[1] >= plan.patience_s / 2 and (is_beaten or plan.max_repeats == 1)


def _is_enough(times: Sequence[float], plan: TimingPlan, elapsed_s: float, best_ms: float) -> bool:
    """Whether more launches would tell the strategy nothing, or take too long."""
    took_s = max(sum(times) / 1e3, elapsed_s)
    if is_timed_by((min(times), took_s), plan, best_ms):
        return True
    low_ms = median_interval(times, _BEATEN_CONFIDENCE)[0] if len(times) >= _BEATEN_LAUNCHES else -math.inf
    if took_s >= _BEATEN_SPAN_S and low_ms > _BEATEN_FACTOR * best_ms:
        return True
    if took_s >= plan.patience_s and len(times) >= min(2, plan.min_repeats):  # one launch has no spread
        return True
    if len(times) < plan.min_repeats:
        return False
    if took_s >= plan.cap_s or is_tight(times, plan.relative_width, plan.confidence):
        return True
    is_behind = took_s >= _BEHIND_SPAN_S and min(times) > _BEHIND_FACTOR * best_ms
    return is_behind and is_tight(times, _BEHIND_WIDTH, _BEATEN_CONFIDENCE)


def is_worth_flushing(footprint_bytes: int, cache_bytes: int, intensity: float | None) -> bool:
    """Whether repeated launches would be faster because of data in the cache.

    Not if they are bound by arithmetic (``intensity``: operations per byte of traffic, None if not known), if there is
    very little data, or if there is far more data than cache (0 bytes if not known).
    """
    if not cache_bytes or is_bound_by_arithmetic(intensity):
        return False
    return _SMALL_SHARE * cache_bytes <= footprint_bytes <= cache_bytes / _STREAMING_SHARE


def is_bound_by_arithmetic(intensity: float | None) -> bool:
    """Whether launches of this intensity, in operations per byte of traffic, never wait for memory."""
    return intensity is not None and intensity >= _COMPUTE_BOUND_INTENSITY


class CacheFlush:
    """Scratch memory larger than the cache; moving it replaces the content of the cache.

    A device copies all pieces to the first, so that little has to be written back. On the host every core moves its
    share, which empties its own caches, too.
    """

    def __init__(self, backend: Backend, cache_bytes: int) -> None:
        try:
            self._scratch: Buffer = backend.device.allocate(_SIZES * cache_bytes)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"no memory to flush the cache of {cache_bytes} bytes ({error}); flush_cache='off' needs none"
            ) from error
        self._cores = sorted(os.sched_getaffinity(0)) if backend.shares_memory else []
        count = 2 * len(self._cores) or _PIECES
        nbytes = self._scratch.nbytes // count
        self._parts = [self._scratch.part(i * nbytes, nbytes) for i in range(count)]

    def __call__(self) -> None:
        """Empty the cache; not within a timed launch."""
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
    """Copy one half over the other and back on one core: only reading is certain to fill the cache."""
    os.sched_setaffinity(0, {core})  # of this thread alone
    first.copy_from(second)
    second.copy_from(first)


def wants_flush(plan: TimingPlan, backend: Backend, kernel: Tunable, sizes: Sizes, data: DataManager) -> bool:
    """Whether to empty caches before timed launches of all configurations, decided for the widest types."""
    cache_bytes = backend.describe().limits.get("cache_bytes", 0)
    if plan.flush_cache == "on" and not cache_bytes:
        raise MptuneError(
            f"flush_cache='on': the size of the last-level cache of {backend.describe().name} is unknown; "
            "leave it at 'auto' or 'off'"
        )
    if plan.flush_cache != "auto" or backend.shares_memory:
        return plan.flush_cache == "on"
    widest = Configuration(
        {**kernel.configuration({}), **{name: values[0] for name, values in kernel.baseline_values().items()}}
    )
    work = kernel.work(widest, sizes)
    return work.traffic_bytes > 0 and is_worth_flushing(data.footprint_bytes(widest), cache_bytes, work.intensity)
