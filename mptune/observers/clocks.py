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

    @classmethod
    def open(cls, target: Target) -> Self:
        """Return an observer of the target's device: through NVML, AMD SMI or the Linux kernel.

        Raises:
            ObserverUnavailableError: nothing tells clocks or temperature here.
        """
        return cls(clock_readers(target.sensors, target.pci_bus_id))

    def start(self) -> None:
        """Begin to read the sensors."""
        self._samplers = {metric: Sampler(read, self._interval_s) for metric, read in self._readers.items()}
        for sampler in self._samplers.values():
            sampler.start()

    def stop(self, context: LaunchContext) -> Mapping[str, float]:  # noqa: ARG002
        """Return means of the clocks and the highest temperature."""
        found = {}
        for metric, sampler in self._samplers.items():
            sampler.stop()
            samples = sampler.samples
            found[metric] = max(s.value for s in samples) if metric == "temperature_c" else mean_value(samples)
        return found
