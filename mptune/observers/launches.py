"""Observers that compute metrics from the timed launches."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final, Self

from mptune.errors import ObserverUnavailableError
from mptune.kernel import Application, Sizes, Tunable
from mptune.observers.base import LaunchContext, Observer, Target

TIME_METRICS: Final = ("time_ms", "time_min_ms", "time_spread_ms")


def time_metrics(times_ms: Sequence[float]) -> dict[str, float]:
    """Return median, minimum and interquartile range by metric; empty without times."""
    if not times_ms:
        return {}
    lower, _, upper = statistics.quantiles(times_ms, n=4, method="inclusive") if len(times_ms) > 1 else [*times_ms] * 3
    # A coarse clock may give 0, which has no ratio.
    median = max(statistics.median(times_ms), 1e-6)
    return dict(zip(TIME_METRICS, (median, min(times_ms), upper - lower), strict=True))


class ThroughputObserver(Observer):
    """Rates: the declared work (:class:`~mptune.kernel.Work`), in 1e9 bytes or operations, over the median time."""

    name: ClassVar[str] = "throughput"
    metrics: ClassVar[tuple[str, ...]] = ("bandwidth_gb_s", "flop_rate_gflop_s")

    def __init__(self, kernel: Tunable, sizes: Sizes) -> None:
        if getattr(kernel, "flops", None) is None:
            reason = f"{kernel.called} does not declare its operations (flops=...)"
            self.missing = MappingProxyType({"flop_rate_gflop_s": reason})
        self._kernel = kernel
        self._sizes = sizes

    @classmethod
    def open(cls, target: Target) -> Self:
        return cls(target.kernel, target.sizes)

    def stop(self, context: LaunchContext) -> Mapping[str, float]:
        time_s = statistics.median(context.times_ms or [0.0]) * 1e-3
        if time_s <= 0:
            return {}
        work = self._kernel.work(context.configuration, self._sizes)
        rates = {"bandwidth_gb_s": work.traffic_bytes / time_s * 1e-9}
        if work.flops is not None:
            rates["flop_rate_gflop_s"] = work.flops / time_s * 1e-9
        return rates


class ResourcesObserver(Observer):
    """A kernel's use of a multiprocessor.

    - ``registers`` of a thread;
    - ``local_bytes`` of a thread: spilled registers, arrays and stack in memory;
    - ``static_shared_bytes`` and ``dynamic_shared_bytes`` of a block, and their sum, ``shared_bytes``;
    - ``occupancy``: the share of a multiprocessor's threads that resident blocks fill.
    """

    name: ClassVar[str] = "resources"
    metrics: ClassVar[tuple[str, ...]] = (
        *("registers", "local_bytes", "shared_bytes", "static_shared_bytes", "dynamic_shared_bytes", "occupancy"),
    )

    @classmethod
    def open(cls, target: Target) -> Self:
        if isinstance(target.kernel, Application):
            raise ObserverUnavailableError("an application has several kernels, each with its own resources")
        if not target.tells_resources:
            raise ObserverUnavailableError(f"backend {target.backend!r} does not report registers and shared memory")
        return cls()

    def stop(self, context: LaunchContext) -> Mapping[str, float]:
        return context.resources
