"""Where energy, clocks and temperatures are read: one module a vendor, and what samples them while a kernel runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from mptune.errors import ObserverUnavailableError
from mptune.observers.sensors import amd_smi, nvml, rapl, sysfs
from mptune.observers.sensors.source import EnergySource, Reader

__all__ = ["EnergySource", "Reader", "clock_readers", "energy_source"]

Found = TypeVar("Found")

#: By what a backend declares; takes the device's PCI bus id.
_ENERGY: Final[Mapping[str, Callable[[str], EnergySource]]] = MappingProxyType(
    {"nvml": nvml.energy_source, "amd-smi": amd_smi.energy_source, "processor": lambda _: rapl.energy_source()}
)
_CLOCKS: Final[Mapping[str, Callable[[str], Mapping[str, Reader]]]] = MappingProxyType(
    {"nvml": nvml.clock_readers, "amd-smi": amd_smi.clock_readers, "processor": lambda _: sysfs.clock_readers()}
)


def energy_source(sensors: str, pci_bus_id: str = "") -> EnergySource:
    """Return what tells the energy of a device.

    Args:
        sensors: which, as :attr:`mptune.observers.base.Target.sensors`.
        pci_bus_id: which device; empty for the processor.

    Raises:
        ObserverUnavailableError: there is none; says what to install or to permit.
    """
    return _of(sensors, _ENERGY, "energy")(pci_bus_id)


def clock_readers(sensors: str, pci_bus_id: str = "") -> Mapping[str, Reader]:
    """Return what reads clocks and temperature now, by metric; those the device does not tell are missing.

    Raises:
        ObserverUnavailableError: it tells none; says what to install or to permit.
    """
    return _of(sensors, _CLOCKS, "clocks")(pci_bus_id)


def _of(sensors: str, table: Mapping[str, Callable[[str], Found]], what: str) -> Callable[[str], Found]:
    if sensors not in table:
        raise ObserverUnavailableError(f"nothing tells the {what} of this backend's devices")
    return table[sensors]
