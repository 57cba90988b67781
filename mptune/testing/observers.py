"""Conformance tests of observers, also for observers of third parties.

    from mptune.testing.observers import ObserverConformance

    class TestMine(ObserverConformance):
        def make(self):
            return MyObserver(...)

pytest collects the class; this module does not import pytest.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from typing import Final

from mptune.observers.base import LaunchContext, Observer
from mptune.observers.launches import ResourcesObserver
from mptune.space.configuration import Configuration

#: Suffixes of metrics' names, and names without a unit.
UNITS: Final = ("_ms", "_bytes", "_j", "_w", "_mhz", "_c", "_gb_s", "_gflop_s")
WITHOUT_UNIT: Final = ("registers", "occupancy")


def context(times_ms: tuple[float, ...] = (1.0,), footprint_bytes: int = 64) -> LaunchContext:
    """Return the timed launches of a configuration with arguments of a size."""
    resources = dict.fromkeys(ResourcesObserver.metrics, float(footprint_bytes))
    return LaunchContext(Configuration({"n": 1}), footprint_bytes, times_ms, resources)


def observe(observer: Observer, around: LaunchContext) -> dict[str, float]:
    """Return the metrics of an observer around some launches."""
    observer.start()
    return dict(observer.stop(dataclasses.replace(around, steady_launches=3)))


class ObserverConformance:
    """Subclass it, name it ``Test...`` and override :meth:`make`."""

    @abstractmethod
    def make(self) -> Observer:
        """Return a new observer."""

    def test_it_reports_finite_numbers_with_units_in_their_names(self) -> None:
        results = observe(self.make(), context())
        assert {type(value) for value in results.values()} == {float}
        assert all(math.isfinite(value) for value in results.values())
        assert all(name.endswith(UNITS) or name in WITHOUT_UNIT for name in results)

    def test_it_gives_every_metric_it_does_not_call_missing(self) -> None:
        observer = self.make()
        promised = {metric for metric in observer.metrics if metric not in observer.missing}
        assert promised <= observe(observer, context()).keys()
        assert set(observer.missing) <= set(observer.metrics)

    def test_it_forgets_the_previous_configuration(self) -> None:
        observer = self.make()
        observe(observer, context((1.0, 5.0), 96))
        assert observe(observer, context()) == observe(self.make(), context())
