"""NVIDIA's sensors, through the NVIDIA Management Library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mptune.errors import ObserverUnavailableError
from mptune.observers.sensors.source import EnergySource, Reader, readable

__all__ = ["clock_readers", "energy_source"]

_INSTALL: Final = 'pip install "mptune[cuda]"'
#: A counter is exact at once; launches only have to be under way.
_COUNTER_LEAD_S: Final = 0.1
#: The gauge of Ampere and later shows the mean of the last second (NVML API, nvmlDeviceGetPowerUsage).
_GAUGE_LEAD_S: Final = 1.1


def energy_source(pci_bus_id: str) -> EnergySource:
    """Return the counter of total energy, which Volta and later have, or else the gauge of power.

    Raises:
        ObserverUnavailableError: NVML or its Python binding is missing, or the device has neither.
    """
    library, device = _open(pci_bus_id)
    counter = _reader(library, lambda: library.nvmlDeviceGetTotalEnergyConsumption(device), 1e-3)
    try:
        counter()
    except ObserverUnavailableError:
        gauge = _reader(library, lambda: library.nvmlDeviceGetPowerUsage(device), 1e-3)
        gauge()
        return EnergySource("NVML power", gauge, is_counter=False, lead_s=_GAUGE_LEAD_S)
    return EnergySource("NVML energy counter", counter, is_counter=True, lead_s=_COUNTER_LEAD_S)


def clock_readers(pci_bus_id: str) -> Mapping[str, Reader]:
    """Return what reads the clocks of multiprocessors and memory in MHz and the temperature in degrees Celsius.

    Raises:
        ObserverUnavailableError: NVML or its Python binding is missing, or the device tells none of them.
    """
    library, device = _open(pci_bus_id)
    readers = {
        "clock_mhz": _reader(library, lambda: library.nvmlDeviceGetClockInfo(device, library.NVML_CLOCK_SM)),
        "memory_clock_mhz": _reader(library, lambda: library.nvmlDeviceGetClockInfo(device, library.NVML_CLOCK_MEM)),
        "temperature_c": _reader(
            library, lambda: library.nvmlDeviceGetTemperature(device, library.NVML_TEMPERATURE_GPU)
        ),
    }
    return readable(readers)


def _open(pci_bus_id: str) -> tuple[Any, Any]:
    """Return the library and the device."""
    try:
        import pynvml
    except ImportError:
        raise ObserverUnavailableError(f"the Python binding of NVML is not installed: {_INSTALL}") from None
    try:
        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
    except pynvml.NVMLError as error:
        raise ObserverUnavailableError(
            f"NVML (libnvidia-ml.so.1, a part of the NVIDIA driver) cannot be used: {error}"
        ) from error


def _reader(library: Any, query: Callable[[], Any], scale: float = 1.0) -> Reader:
    def read() -> float:
        try:
            return float(query()) * scale
        except library.NVMLError as error:
            raise ObserverUnavailableError(f"the device does not tell it through NVML: {error}") from error

    return read
