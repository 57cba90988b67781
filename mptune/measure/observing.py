"""The optional observers of a run: opened once, then used for every configuration whose outputs were right."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from mptune.errors import ObserverUnavailableError
from mptune.measure.device_data import BoundArguments
from mptune.measure.programs import Program
from mptune.observers import OBSERVERS
from mptune.observers.base import LaunchContext, Observer, Target

__all__ = ["Observation", "always_on", "observers_for"]

#: Launches are queued for at least so many seconds at a time before they are waited for.
_BATCH_S: Final = 0.1


def always_on() -> tuple[str, ...]:
    """Return the names of the observers that need not be asked for."""
    return tuple(name for name in OBSERVERS if not OBSERVERS[name].is_optional)


def observers_for(metrics: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the observers that are not always on and give some of these metrics."""
    wanted = set(metrics)
    return tuple(name for name, kind in OBSERVERS.items() if kind.is_optional and not wanted.isdisjoint(kind.metrics))


class Observation:
    """The optional observers of one bench.

    Attributes:
        names: of those that can measure here.
        unavailable: why an observer, or a metric of one, is not available here, by name.

    Raises:
        UnknownNameError: no observer has that name.
    """

    def __init__(self, names: Sequence[str], target: Target, clock: Callable[[], float] = time.perf_counter) -> None:
        unavailable: dict[str, str] = {}
        self._observers: list[Observer] = []
        self._clock = clock
        for name in dict.fromkeys(names):
            kind = OBSERVERS[name]
            if not kind.is_optional:
                continue
            try:
                observer = kind.open(target)
            except ObserverUnavailableError as error:
                unavailable |= dict.fromkeys((name, *kind.metrics), str(error))
                continue
            self._observers.append(observer)
            unavailable |= observer.missing
        self.unavailable: Mapping[str, str] = MappingProxyType(unavailable)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the observers that can measure here."""
        return tuple(observer.name for observer in self._observers)

    def measure(self, context: LaunchContext, program: Program, bound: BoundArguments) -> dict[str, float]:
        """Return the metrics of a configuration that has been timed.

        Raises:
            ObserverUnavailableError: an observer did not give a metric it was to give.
            LaunchError: the device aborted a launch.
        """
        context = dataclasses.replace(context, resources=program.resources())
        steady = [observer for observer in self._observers if observer.steady_s > 0]
        for observer in self._observers:
            if observer not in steady:
                observer.before(context)
                observer.after(context)
        if steady:
            BackToBackLaunches(steady, context, program, bound, self._clock).run()
        metrics: dict[str, float] = {}
        for observer in self._observers:
            found = observer.results()
            for name in observer.metrics:
                if name not in found and name not in observer.missing:
                    raise ObserverUnavailableError(f"observer {observer.name!r} could not measure {name} here")
            metrics.update(found)
        return metrics


class BackToBackLaunches:
    """Launches one after another, without a pause, for as long as some observers need."""

    def __init__(
        self,
        observers: Sequence[Observer],
        context: LaunchContext,
        program: Program,
        bound: BoundArguments,
        clock: Callable[[], float],
    ) -> None:
        self._observers = observers
        self._context = context
        self._program = program
        self._bound = bound
        self._clock = clock
        #: Grows until it lasts long enough; launch times do not tell what it takes to launch.
        self._batch = 1

    def run(self) -> None:
        """Let the observers look on, and at restorations alone where launches need some."""
        steady_s = max(observer.steady_s for observer in self._observers)
        self._repeat(max(observer.lead_s for observer in self._observers), self._launch)
        for observer in self._observers:
            observer.before(self._context)
        launched = dataclasses.replace(self._context, steady_launches=self._repeat(steady_s, self._launch))
        for observer in self._observers:
            observer.after(launched)
        if not self._bound.pristine:
            return
        for observer in self._observers:
            observer.before(launched)
        restored = dataclasses.replace(launched, steady_restorations=self._repeat(steady_s, self._restore))
        for observer in self._observers:
            observer.discount(restored)

    def _repeat(self, seconds: float, begin_batch: Callable[[], None]) -> int:
        """Run batches for at least so long, and one; return of how many launches or restorations."""
        done, now_s = 0, self._clock()
        until_s = now_s + seconds
        while True:
            batch_began_s = now_s
            begin_batch()
            self._program.wait()
            done += self._batch
            now_s = self._clock()
            if now_s - batch_began_s < _BATCH_S:
                self._batch *= 2
            if now_s >= until_s:
                return done

    def _launch(self) -> None:
        if not self._bound.pristine:
            self._program.enqueue(self._bound, self._batch)
            return
        for _ in range(self._batch):
            self._bound.restore()
            self._program.enqueue(self._bound)

    def _restore(self) -> None:
        for _ in range(self._batch):
            self._bound.restore()
