"""Observes the launch times."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import ClassVar

from mptune.observers.base import LaunchContext, Observer

__all__ = ["TimeObserver", "time_metrics"]


def time_metrics(times_ms: Sequence[float]) -> dict[str, float]:
    """Return median, minimum and interquartile range by the names of the metrics; nothing without times."""
    if not times_ms:
        return {}
    lower, _, upper = statistics.quantiles(times_ms, n=4, method="inclusive") if len(times_ms) > 1 else [*times_ms] * 3
    return {"time_ms": statistics.median(times_ms), "time_min_ms": min(times_ms), "time_spread_ms": upper - lower}


class TimeObserver(Observer):
    """Measures ``time_ms`` (the median), ``time_min_ms`` and ``time_spread_ms`` (interquartile range)."""

    name: ClassVar[str] = "time"
    metrics: ClassVar[tuple[str, ...]] = ("time_ms", "time_min_ms", "time_spread_ms")
    is_optional: ClassVar[bool] = False

    def __init__(self) -> None:
        self._times_ms: tuple[float, ...] = ()

    def before(self, context: LaunchContext) -> None:  # noqa: ARG002
        """Forget the previous configuration."""
        self._times_ms = ()

    def after(self, context: LaunchContext) -> None:
        """Take the launch times."""
        self._times_ms = context.times_ms

    def results(self) -> Mapping[str, float]:
        """Return the times; nothing where no launch was timed."""
        return time_metrics(self._times_ms)
