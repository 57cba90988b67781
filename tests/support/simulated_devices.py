"""Devices that replay recorded trials, on a clock of their own."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping

from mptune.errors import MptuneError, SpaceFileError
from mptune.measure.base import Evaluator
from mptune.results.trial import Trial
from mptune.space.configuration import Configuration

__all__ = ["SimulatedDevices"]


class SimulatedDevices(Evaluator):
    """So many devices that take as long for a trial as it is recorded to have taken.

    The clock stands still but for :meth:`finished`, which moves it on to the next trial that ends, and :meth:`advance`,
    for what takes time elsewhere while the devices go on.

    Args:
        trials: the recorded trial of each configuration.
        duration_s: how long a device takes for a trial.
        workers: how many devices.
        ahead: configurations to ask for beside those that can be under way, for the device that is free next.
        may_overlap: whether the strategy computes elsewhere.

    Raises:
        MptuneError: there is not one device.
    """

    def __init__(
        self,
        trials: Mapping[Configuration, Trial],
        duration_s: Callable[[Trial], float],
        workers: int,
        *,
        ahead: int = 1,
        may_overlap: bool = True,
    ) -> None:
        if workers < 1:
            raise MptuneError(f"workers {workers}: expected at least 1")
        self._trials = trials
        self._duration_s = duration_s
        self._under_way: list[tuple[float, int, Trial]] = []
        self._submitted = 0
        self._workers = workers
        self._ahead = ahead
        self.may_overlap = may_overlap
        #: Time since the beginning, and how much of it devices were busy together, in seconds.
        self.now_s = 0.0
        self.busy_s = 0.0
        #: When the latest trial began, and how long devices were going to be busy together from then on.
        self._latest_s = 0.0
        self._latest_busy_s = 0.0

    @property
    def capacity(self) -> int:
        return self._workers

    @property
    def lead(self) -> int:
        return self._workers + self._ahead

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    @property
    def tail_s(self) -> float:
        """How long devices had nothing to do, added up, since the latest trial began."""
        return self._workers * (self.now_s - self._latest_s) - self._latest_busy_s

    def advance(self, seconds: float) -> None:
        """Let time go by."""
        self.now_s += seconds

    def submit(self, configuration: Configuration) -> None:
        """Begin a trial on a device that is free.

        Raises:
            SpaceFileError: the configuration is not recorded.
        """
        assert len(self._under_way) < self._workers
        trial = self._trials.get(configuration)
        if trial is None:
            raise SpaceFileError(f"the recording does not hold the configuration {configuration}")
        duration_s = self._duration_s(trial)
        self.busy_s += duration_s
        # Of those that end at the same time, the one that began first comes first.
        heapq.heappush(self._under_way, (self.now_s + duration_s, self._submitted, trial))
        self._submitted += 1
        self._latest_s = self.now_s
        self._latest_busy_s = sum(max(0.0, end_s - self.now_s) for end_s, _, _ in self._under_way)

    def finished(self) -> list[Trial]:
        """Return all trials that have ended; where none has, those that end next, at that time."""
        self.now_s = max(self.now_s, self._under_way[0][0])
        ended = []
        while self._under_way and self._under_way[0][0] <= self.now_s:
            ended.append(heapq.heappop(self._under_way)[2])
        return ended
