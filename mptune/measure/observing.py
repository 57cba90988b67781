"""The observers of a run: opened once, then used for every configuration whose outputs were right."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from mptune.errors import ObserverUnavailableError
from mptune.measure.buffers import Buffers
from mptune.measure.program import Program
from mptune.observers import OBSERVERS
from mptune.observers.base import LaunchContext, Observer, Target

__all__ = ["Observation", "observers_for"]

#: Launches are queued for at least so many seconds at a time before they are waited for.
_BATCH_S: Final = 0.1


def observers_for(metrics: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the observers that give some of these metrics."""
    wanted = set(metrics)
    return tuple(name for name, kind in OBSERVERS.items() if not wanted.isdisjoint(kind.metrics))


class Observation:
    """The observers of one bench: ``names`` of those that can measure here.

    ``unavailable`` says, by name, why an observer or a metric of one is not available here.
    """

    def __init__(self, names: Iterable[str], target: Target, clock: Callable[[], float] = time.perf_counter) -> None:
        self.unavailable: dict[str, str] = {}
        self._observers: list[Observer] = []
        self._clock = clock
        for name in dict.fromkeys(names):
            kind = OBSERVERS[name]
            try:
                observer = kind.open(target)
            except ObserverUnavailableError as error:
                self.unavailable |= dict.fromkeys((name, *kind.metrics), str(error))
                continue
            self._observers.append(observer)
            self.unavailable |= observer.missing
        self.names = tuple(observer.name for observer in self._observers)

    def measure(self, context: LaunchContext, program: Program, buffers: Buffers) -> dict[str, float]:
        """Return the metrics of a configuration that has been timed."""
        context = dataclasses.replace(context, resources=program.resources())
        found: dict[Observer, Mapping[str, float]] = {}
        steady = [observer for observer in self._observers if observer.steady_s > 0]
        for observer in self._observers:
            if observer not in steady:
                observer.start()
                found[observer] = observer.stop(context)
        if steady:
            found |= self._steadily(steady, context, program, buffers)
        metrics: dict[str, float] = {}
        for observer in self._observers:
            for name in observer.metrics:
                if name not in found[observer] and name not in observer.missing:
                    raise ObserverUnavailableError(f"observer {observer.name!r} could not measure {name} here")
            metrics |= found[observer]
        return metrics

    def _steadily(
        self, observers: Sequence[Observer], context: LaunchContext, program: Program, buffers: Buffers
    ) -> dict[Observer, Mapping[str, float]]:
        """Launch without a pause for as long as these observers need, and restore alone where launches need that."""
        batch = 1  # grows until it lasts long enough; launch times do not tell what it takes to launch

        def repeat(seconds: float, *, launches: bool = True) -> int:
            """Run batches for at least so long, and one; return of how many launches or restorations."""
            nonlocal batch
            done, now_s = 0, self._clock()
            until_s = now_s + seconds
            while True:
                batch_began_s = now_s
                if not buffers.pristine:
                    program.enqueue(buffers, batch)
                for _ in range(batch if buffers.pristine else 0):
                    buffers.restore()
                    if launches:
                        program.enqueue(buffers)
                program.wait()
                done += batch
                now_s = self._clock()
                if now_s - batch_began_s < _BATCH_S:
                    batch *= 2
                if now_s >= until_s:
                    return done

        steady_s = max(observer.steady_s for observer in observers)
        repeat(max(observer.lead_s for observer in observers))
        for observer in observers:
            observer.start()
        context = dataclasses.replace(context, steady_launches=repeat(steady_s))
        found = {observer: observer.stop(context) for observer in observers}
        discounting = [observer for observer in observers if observer.discounts]
        if buffers.pristine and discounting:
            for observer in discounting:
                observer.start()
            context = dataclasses.replace(context, steady_restorations=repeat(steady_s, launches=False))
            found |= {observer: observer.stop(context) for observer in discounting}
        return found
