"""Observes clocks and temperature of the device while launches follow on one another."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Self

from mptune.observers.base import LaunchContext, Observer, Target
from mptune.observers.sampling import Sampler, mean_value
from mptune.observers.sensors import Reader, clock_readers

__all__ = ["ClocksObserver"]


class ClocksObserver(Observer):
    """Measures ``clock_mhz`` and ``memory_clock_mhz``, means over time, and ``temperature_c``, the highest."""

    name: ClassVar[str] = "clocks"
    metrics: ClassVar[tuple[str, ...]] = ("clock_mhz", "memory_clock_mhz", "temperature_c")
    steady_s = 0.2
    lead_s = 0.2  # long enough for the clocks to leave their state at rest

    def __init__(self, readers: Mapping[str, Reader], interval_s: float = 0.02) -> None:
        self.missing = MappingProxyType(
            {metric: "the device does not tell it" for metric in self.metrics if metric not in readers}
        )
        self._readers = readers
        self._interval_s = interval_s
        self._samplers: dict[str, Sampler] = {}
        self._results: dict[str, float] = {}

    @classmethod
    def open(cls, target: Target) -> Self:
        """Return an observer of the target's device: through NVML, AMD SMI or the Linux kernel.

        Raises:
            ObserverUnavailableError: nothing tells clocks or temperature here.
        """
        return cls(clock_readers(target.sensors, target.pci_bus_id))

    def before(self, context: LaunchContext) -> None:
        """Begin to read the sensors; of restorations nothing is of interest."""
        self._samplers = {}
        if context.steady_launches:
            return
        self._results = {}
        self._samplers = {metric: Sampler(read, self._interval_s) for metric, read in self._readers.items()}
        for sampler in self._samplers.values():
            sampler.start()

    def after(self, context: LaunchContext) -> None:  # noqa: ARG002
        """Take means and maximum."""
        for metric, sampler in self._samplers.items():
            sampler.stop()
            samples = sampler.samples
            is_highest = metric == "temperature_c"
            self._results[metric] = max(s.value for s in samples) if is_highest else mean_value(samples)

    def results(self) -> Mapping[str, float]:
        """Return clocks and temperature; nothing before the launches."""
        return dict(self._results)
