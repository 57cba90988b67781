"""Reading a sensor again and again while a kernel runs, and what follows from the readings."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from mptune.errors import ObserverUnavailableError

__all__ = ["INTERVAL_S", "Sample", "Sampler", "mean_rate", "mean_value"]

#: Seconds between two readings, well below the 20 to 100 ms after which counters and gauges change.
INTERVAL_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading and when it was taken, in seconds."""

    time_s: float
    value: float


class Sampler:
    """Reads a sensor every ``interval_s`` in a thread of its own; ``samples`` are the readings, in order."""

    def __init__(
        self, read: Callable[[], float], interval_s: float = INTERVAL_S, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._read = read
        self._interval_s = interval_s
        self._clock = clock
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="sampler", daemon=True)
        self.samples: list[Sample] = []

    def start(self) -> None:
        """Take the first reading and go on in the background.

        Raises:
            ObserverUnavailableError: the sensor cannot be read.
        """
        self._take()
        self._thread.start()

    def stop(self) -> None:
        """Take a last reading and end.

        Raises:
            ObserverUnavailableError: the sensor could not be read all the time.
        """
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise ObserverUnavailableError(f"a sensor failed while it was read: {self._failure}") from self._failure
        self._take()

    def _work(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self._take()
            except Exception as failure:  # of whatever library is behind it; told when the sampling ends
                self._failure = failure
                return

    def _take(self) -> None:
        value = self._read()
        self.samples.append(Sample(self._clock(), value))


def mean_rate(samples: Sequence[Sample]) -> float:
    """Return by how much a counter grew a second, from readings in order.

    A counter moves in steps, so what counts is from the first step seen to the last, whatever comes before and after.

    Raises:
        ObserverUnavailableError: it did not move twice.
    """
    steps = [after for before, after in pairwise(samples) if after.value != before.value]
    if len(steps) < 2:
        span = samples[-1].time_s - samples[0].time_s if samples else 0.0
        raise ObserverUnavailableError(f"the energy counter did not move twice in {span:.2g} s")
    first, last = steps[0], steps[-1]
    return (last.value - first.value) / (last.time_s - first.time_s)


def mean_value(samples: Sequence[Sample]) -> float:
    """Return the mean of a gauge over time, from readings in order, at least one, by the trapezoidal rule."""
    span = samples[-1].time_s - samples[0].time_s
    if span <= 0:
        return math.fsum(sample.value for sample in samples) / len(samples)
    areas = ((b.time_s - a.time_s) * (a.value + b.value) / 2 for a, b in pairwise(samples))
    return math.fsum(areas) / span
