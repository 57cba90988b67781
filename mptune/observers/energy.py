"""Observes the energy of a launch and the power the device draws meanwhile.

A launch is shorter than any sensor can tell, so launches follow on one another for :data:`STEADY_S` while the sensor is
read in the background. Counters change every 20 to 100 ms on NVIDIA GPUs and every millisecond in processors; a second
has ten such steps or more, which keeps what the first and the last are uncertain by at a few per cent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, Self

from mptune.observers.base import LaunchContext, Observer, Target
from mptune.observers.sampling import INTERVAL_S, Sampler, mean_rate, mean_value
from mptune.observers.sensors import EnergySource, energy_source

__all__ = ["STEADY_S", "EnergyObserver"]

#: Seconds of launches that one measurement takes at least.
STEADY_S: Final = 1.0


class EnergyObserver(Observer):
    """Measures ``energy_j`` of one launch and ``power_w``, the mean over its time.

    The mean power while launches follow on one another, times how long they took, is their energy: that of the whole
    device, with what it draws at rest, and on a processor with what it takes to launch. Where buffers are restored
    between launches, what restorations alone take in energy and time is taken off. Caches are as the launch before
    left them.
    """

    name: ClassVar[str] = "energy"
    metrics: ClassVar[tuple[str, ...]] = ("energy_j", "power_w")
    steady_s = STEADY_S
    discounts = True

    def __init__(
        self, source: EnergySource, interval_s: float = INTERVAL_S, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.lead_s = source.lead_s
        self._source = source
        self._interval_s = interval_s
        self._clock = clock
        self._sampler: Sampler | None = None
        self._launches = 0
        self._energy_j = 0.0
        self._elapsed_s = 0.0

    @classmethod
    def open(cls, target: Target) -> Self:
        """Return an observer of the target's device: through NVML, AMD SMI or RAPL.

        Raises:
            ObserverUnavailableError: nothing tells the energy here.
        """
        return cls(energy_source(target.sensors, target.pci_bus_id))

    def start(self) -> None:
        """Begin to read the sensor."""
        self._sampler = Sampler(self._source.read, self._interval_s, self._clock)
        self._sampler.start()

    def stop(self, context: LaunchContext) -> Mapping[str, float]:
        """Return energy and power; nothing where restoring hid them."""
        energy_j, elapsed_s = self._taken()
        if context.steady_restorations:
            # Each launch came after a restoration.
            share = self._launches / context.steady_restorations
            self._energy_j -= energy_j * share
            self._elapsed_s -= elapsed_s * share
        else:
            self._energy_j, self._elapsed_s, self._launches = energy_j, elapsed_s, context.steady_launches
        if not self._launches or self._energy_j <= 0 or self._elapsed_s <= 0:
            return {}
        return {"energy_j": self._energy_j / self._launches, "power_w": self._energy_j / self._elapsed_s}

    def _taken(self) -> tuple[float, float]:
        """Return the energy and the time since the sensor is read, and read it no more."""
        assert self._sampler is not None
        self._sampler.stop()
        samples = self._sampler.samples
        elapsed_s = samples[-1].time_s - samples[0].time_s
        power_w = mean_rate(samples) if self._source.is_counter else mean_value(samples)
        return power_w * elapsed_s, elapsed_s
