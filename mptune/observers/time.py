"""Metrics of launch times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

__all__ = ["TIME_METRICS", "time_metrics"]

TIME_METRICS: Final = ("time_ms", "time_min_ms", "time_spread_ms")


def time_metrics(times_ms: Sequence[float]) -> dict[str, float]:
    """Return median, minimum and interquartile range by the names of the metrics; nothing without times."""
    if not times_ms:
        return {}
    lower, _, upper = statistics.quantiles(times_ms, n=4, method="inclusive") if len(times_ms) > 1 else [*times_ms] * 3
    return dict(zip(TIME_METRICS, (statistics.median(times_ms), min(times_ms), upper - lower), strict=True))
