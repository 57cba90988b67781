"""AMD's sensors, through the AMD System Management Interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mptune.errors import ObserverUnavailableError
from mptune.observers.sensors.source import EnergySource, Reader, readable

__all__ = ["clock_readers", "energy_source"]

_INSTALL: Final = 'pip install "mptune[hip]", and install ROCm, which has libamd_smi.so'
_COUNTER_LEAD_S: Final = 0.1
#: The gauge may be a mean over some time.
_GAUGE_LEAD_S: Final = 1.1
#: Names of the gauges in the order of preference; MI300 has only the current power, MI200 only the average.
_POWERS: Final = ("current_socket_power", "average_socket_power", "socket_power")


def energy_source(pci_bus_id: str) -> EnergySource:
    """Return the energy accumulator, or else the gauge of the socket's power.

    Raises:
        ObserverUnavailableError: AMD SMI is missing, or the device has neither.
    """
    library, device = _open(pci_bus_id)

    def joules() -> float:
        found = library.amdsmi_get_energy_count(device)
        # Before ROCm 6.0 the accumulator was called power; the resolution is in microjoules.
        counted = found.get("energy_accumulator", found.get("power"))
        return float(counted) * float(found["counter_resolution"]) * 1e-6

    def watts() -> float:
        found = library.amdsmi_get_power_info(device)
        return next(float(found[name]) for name in _POWERS if isinstance(found.get(name), int | float))

    counter, gauge = _reader(library, joules), _reader(library, watts)
    try:
        counter()
    except ObserverUnavailableError:
        gauge()
        return EnergySource("AMD SMI power", gauge, is_counter=False, lead_s=_GAUGE_LEAD_S)
    return EnergySource("AMD SMI energy accumulator", counter, is_counter=True, lead_s=_COUNTER_LEAD_S)


def clock_readers(pci_bus_id: str) -> Mapping[str, Reader]:
    """Return what reads the clocks of compute units and memory in MHz and the hotspot's temperature in degrees Celsius.

    Raises:
        ObserverUnavailableError: AMD SMI is missing, or the device tells none of them.
    """
    library, device = _open(pci_bus_id)

    def clock(kind: str) -> Reader:
        def read() -> float:
            found = library.amdsmi_get_clock_info(device, getattr(library.AmdSmiClkType, kind))
            return float(found.get("clk", found.get("cur_clk")))

        return _reader(library, read)

    def temperature() -> float:
        hotspot, current = library.AmdSmiTemperatureType.HOTSPOT, library.AmdSmiTemperatureMetric.CURRENT
        return float(library.amdsmi_get_temp_metric(device, hotspot, current))

    readers = {
        "clock_mhz": clock("GFX"),
        "memory_clock_mhz": clock("MEM"),
        "temperature_c": _reader(library, temperature),
    }
    return readable(readers)


def _open(pci_bus_id: str) -> tuple[Any, Any]:
    """Return the library and the device."""
    try:
        import amdsmi
    except Exception as error:  # without libamd_smi.so importing fails, with an exception that depends on the version
        raise ObserverUnavailableError(f"AMD SMI is not installed: {_INSTALL} ({error})") from error
    try:
        amdsmi.amdsmi_init()
        return amdsmi, amdsmi.amdsmi_get_processor_handle_from_bdf(pci_bus_id)
    except amdsmi.AmdSmiException as error:
        raise ObserverUnavailableError(f"AMD SMI cannot be used: {error}") from error


def _reader(library: Any, query: Callable[[], float]) -> Reader:
    def read() -> float:
        try:
            return query()
        except library.AmdSmiException as error:
            raise ObserverUnavailableError(f"the device does not tell it through AMD SMI: {error}") from error
        except (KeyError, TypeError, ValueError, StopIteration):
            # "N/A" stands for what a device does not have.
            raise ObserverUnavailableError("the device does not tell it through AMD SMI") from None

    return read
