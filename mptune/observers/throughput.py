"""Observes how many bytes and operations a second a kernel gets done, of those it cannot do without."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Self

from mptune.kernel import Sizes, Tunable
from mptune.observers.base import LaunchContext, Observer, Target

__all__ = ["ThroughputObserver"]


class ThroughputObserver(Observer):
    """Measures ``bandwidth_gb_s`` and ``flop_rate_gflop_s``: the declared work over the median launch time.

    Counted are 10**9 bytes or operations. What a kernel declares is what a launch has to do however it does it
    (:class:`~mptune.kernel.Work`), so that of two configurations in the same types the faster one has the higher rates.
    """

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
        """Return an observer of the target's kernel."""
        return cls(target.kernel, target.sizes)

    def stop(self, context: LaunchContext) -> Mapping[str, float]:
        """Return the rates; nothing where no launch was timed."""
        time_s = statistics.median(context.times_ms) * 1e-3 if context.times_ms else 0.0
        if time_s <= 0:
            return {}
        work = self._kernel.work(context.configuration, self._sizes)
        rates = {"bandwidth_gb_s": work.traffic_bytes / time_s * 1e-9}
        if work.flops is not None:
            rates["flop_rate_gflop_s"] = work.flops / time_s * 1e-9
        return rates
