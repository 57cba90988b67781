"""Time that a thread takes of its own: what other tasks take by having its processor meanwhile is none of it."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Final

__all__ = ["OwnTime"]

#: A thread that was without its processor for less than this, in nanoseconds, is not asked why: that takes time, too.
_SHORT_NS: Final = 20_000


def _given_up() -> int:
    """Return how often this thread has given its processor up of its own accord: to sleep, or to wait for something."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class OwnTime:
    """A stopwatch of the thread that reads it.

    Where the thread waited or slept that counts, as it does anywhere else. Where another task took its processor away,
    the time it had a processor counts.

    Args:
        clock: the time in nanoseconds.
        worked: how long this thread has been on a processor, in nanoseconds.
        given_up: how often it has given its processor up of its own accord.
    """

    def __init__(
        self,
        clock: Callable[[], int] = time.perf_counter_ns,
        worked: Callable[[], int] = time.thread_time_ns,
        given_up: Callable[[], int] = _given_up,
    ) -> None:
        self._clock, self._worked, self._given_up = clock, worked, given_up
        self.start()

    def start(self) -> None:
        """Begin the first lap."""
        self._times_given_up = self._given_up()
        self._last, self._last_worked = self._clock(), self._worked()

    def lap_ms(self) -> float:
        """Return the milliseconds since the last lap, and begin another one."""
        now, worked = self._clock(), self._worked()
        elapsed, of_it_worked = now - self._last, worked - self._last_worked
        self._last, self._last_worked = now, worked
        if elapsed - of_it_worked >= _SHORT_NS:
            before, self._times_given_up = self._times_given_up, self._given_up()
            if before == self._times_given_up:
                elapsed = of_it_worked
        return max(0, elapsed) * 1e-6
