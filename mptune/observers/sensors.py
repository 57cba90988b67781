"""What tells a device's energy, clocks and temperature: a vendor's library, or for a processor the Linux kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from mptune.errors import ObserverUnavailableError

__all__ = ["AmdSmi", "EnergySource", "Nvml", "Processor", "Reader", "Sensors", "clock_readers", "energy_source"]

#: Returns what a sensor says now.
Reader = Callable[[], float]

#: A counter is exact at once; the launches only have to be under way.
_COUNTER_LEAD_S: Final = 0.1
#: The gauge of Ampere and later shows the mean of the last second (NVML API, nvmlDeviceGetPowerUsage).
_GAUGE_LEAD_S: Final = 1.1
_RAPL_LEAD_S: Final = 0.05
#: AMD's gauges in the order of preference; MI300 has only the current power, MI200 only the average.
_AMD_POWERS: Final = ("current_socket_power", "average_socket_power", "socket_power")
#: Energy counters whose names begin so are added up; cores and graphics are parts of their package, and "psys" is the
#: whole machine once more.
_COUNTED: Final = ("package", "dram")
#: What :meth:`Sensors.clocks` reads.
_CLOCKS: Final = ("clock_mhz", "memory_clock_mhz", "temperature_c")
#: Drivers of processors' thermometers: Intel's, AMD's, and AMD's by its other driver.
_THERMOMETERS: Final = ("coretemp", "k10temp", "zenpower")


@dataclass(frozen=True, slots=True)
class EnergySource:
    """A counter of energy or a gauge of power."""

    name: str  #: what it is, for people
    read: Reader  #: returns joules since some moment, or watts
    is_counter: bool  #: whether it counts joules
    #: how long launches have to go on before a reading is about nothing else: a gauge may show the mean over the time
    #: before
    lead_s: float


class Sensors(ABC):
    """The sensors of one device."""

    @abstractmethod
    def energy(self) -> EnergySource:
        """Return the best source of energy readings.

        Raises:
            ObserverUnavailableError: the device has none, or it may not be read.
        """

    @abstractmethod
    def clocks(self) -> Mapping[str, Reader]:
        """Return what reads clocks in MHz and the temperature in degrees Celsius, by metric.

        Raises:
            ObserverUnavailableError: nothing can be read.
        """


class _Library(Sensors):
    """A vendor's library, opened for the device of a PCI bus id.

    Raises:
        ObserverUnavailableError: the library or its Python binding is missing, or it does not know the device.
    """

    name: str
    counter_name: str
    #: What the library's calls raise.
    _failure: type[Exception]
    #: What gives joules, watts, and each metric of :meth:`clocks`.
    _queries: Mapping[str, Callable[[], Any]]

    def energy(self) -> EnergySource:
        """Return the counter of energy, which newer devices have, else the gauge of power."""
        counter, gauge = self._reader("joules"), self._reader("watts")
        try:
            counter()
        except ObserverUnavailableError:
            gauge()
            return EnergySource(f"{self.name} power", gauge, is_counter=False, lead_s=_GAUGE_LEAD_S)
        return EnergySource(f"{self.name} {self.counter_name}", counter, is_counter=True, lead_s=_COUNTER_LEAD_S)

    def clocks(self) -> Mapping[str, Reader]:
        """Return what reads the clocks of multiprocessors and memory, and the temperature."""
        return _readable({metric: self._reader(metric) for metric in _CLOCKS})

    def _reader(self, what: str) -> Reader:
        query, name = self._queries[what], self.name

        def read() -> float:
            try:
                return float(query())
            except self._failure as error:
                raise ObserverUnavailableError(f"the device does not report this through {name}: {error}") from error
            except (KeyError, TypeError, ValueError, StopIteration):  # "N/A" stands for what a device does not have
                raise ObserverUnavailableError(f"the device does not report this through {name}") from None

        return read


class Nvml(_Library):
    """NVIDIA's, through the NVIDIA Management Library.

    Args:
        pci_bus_id: of the device, "domain:bus:device.function" in hexadecimal.

    Raises:
        ObserverUnavailableError: the library or its Python binding is missing, or it does not know the device.
    """

    name = "NVML"
    counter_name = "energy counter"

    def __init__(self, pci_bus_id: str) -> None:
        try:
            import pynvml as nvml
        except ImportError:
            raise ObserverUnavailableError(
                'the Python binding of NVML is not installed: pip install "mptune[cuda]"'
            ) from None
        try:
            nvml.nvmlInit()
            device = nvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
        except nvml.NVMLError as error:
            raise ObserverUnavailableError(
                f"NVML (libnvidia-ml.so.1, a part of the NVIDIA driver) cannot be used: {error}"
            ) from error
        self._failure = nvml.NVMLError
        self._queries = {
            "joules": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(device) * 1e-3,
            "watts": lambda: nvml.nvmlDeviceGetPowerUsage(device) * 1e-3,
            "clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM),
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU),
        }


class AmdSmi(_Library):
    """AMD's, through the AMD System Management Interface.

    Args:
        pci_bus_id: of the device, "domain:bus:device.function" in hexadecimal.

    Raises:
        ObserverUnavailableError: the library or its Python binding is missing, or it does not know the device.
    """

    name = "AMD SMI"
    counter_name = "energy accumulator"

    def __init__(self, pci_bus_id: str) -> None:
        try:
            import amdsmi as smi
        except Exception as error:  # without libamd_smi.so it fails with an exception that depends on the version
            raise ObserverUnavailableError(
                'AMD SMI is not installed: pip install "mptune[hip]", and install ROCm, which has libamd_smi.so '
                f"({error})"
            ) from error
        try:
            smi.amdsmi_init()
            device = smi.amdsmi_get_processor_handle_from_bdf(pci_bus_id)
        except smi.AmdSmiException as error:
            raise ObserverUnavailableError(f"AMD SMI cannot be used: {error}") from error

        def joules() -> float:
            found = smi.amdsmi_get_energy_count(device)
            # Before ROCm 6.0 the accumulator was called power; the resolution is in microjoules.
            counted = found.get("energy_accumulator", found.get("power"))
            return float(counted) * float(found["counter_resolution"]) * 1e-6

        def watts() -> float:
            found = smi.amdsmi_get_power_info(device)
            return next(float(found[name]) for name in _AMD_POWERS if isinstance(found.get(name), int | float))

        def clock(kind: Any) -> Any:
            found = smi.amdsmi_get_clock_info(device, kind)
            return found.get("clk", found.get("cur_clk"))

        def temperature() -> Any:
            hotspot, current = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
            return smi.amdsmi_get_temp_metric(device, hotspot, current)

        self._failure = smi.AmdSmiException
        self._queries = {
            "joules": joules,
            "watts": watts,
            "clock_mhz": lambda: clock(smi.AmdSmiClkType.GFX),
            "memory_clock_mhz": lambda: clock(smi.AmdSmiClkType.MEM),
            "temperature_c": temperature,
        }


class Processor(Sensors):
    """The processor's, as Linux shows them under ``/sys``.

    Energy is that of Running Average Power Limit (RAPL): of whole packages, and of the memory where that has a counter.
    It includes whatever else the machine does, and what it draws at rest.

    Args:
        root: where Linux shows devices.
    """

    def __init__(self, root: Path = Path("/sys")) -> None:
        self._root = root

    def energy(self) -> EnergySource:
        """Return the energy of all packages and their memory together.

        Raises:
            ObserverUnavailableError: the machine shows none, or it may not be read or cannot be.
        """
        powercap = self._root / "class/powercap"
        folders = [folder for folder in sorted(powercap.glob("*-rapl:*")) if _name(folder).startswith(_COUNTED)]
        if not folders:
            raise ObserverUnavailableError(
                f"this machine shows no energy counter of its processor ({powercap}/intel-rapl:0): the Linux module "
                "intel_rapl_msr provides it, and virtual machines and containers often have none"
            )
        try:
            domains = [_Domain(folder) for folder in folders]
        except PermissionError as error:
            raise ObserverUnavailableError(
                f"the processor's energy counter may not be read: sudo chmod a+r {powercap}/*/energy_uj ({error})"
            ) from error
        except (OSError, ValueError) as error:
            raise ObserverUnavailableError(f"the processor's energy counter cannot be read: {error}") from error

        def read() -> float:
            try:
                return sum(domain.joules() for domain in domains)
            except (OSError, ValueError) as error:
                raise ObserverUnavailableError(f"the processor's energy counter cannot be read: {error}") from error

        return EnergySource("RAPL", read, is_counter=True, lead_s=_RAPL_LEAD_S)

    def clocks(self) -> Mapping[str, Reader]:
        """Return what reads the fastest core's clock and the temperature."""

        def clock() -> float:
            files = sorted((self._root / "devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))
            return max(_numbers(files, "clock")) * 1e-3

        def temperature() -> float:
            folders = sorted((self._root / "class/hwmon").glob("hwmon*"))
            files = [folder / "temp1_input" for folder in folders if _name(folder) in _THERMOMETERS]
            return max(_numbers(files, "temperature")) * 1e-3

        return _readable({"clock_mhz": clock, "temperature_c": temperature})


class _Domain:
    """One energy counter; it restarts at 0 beyond its range, so it has to be read before it has restarted twice."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "energy_uj"
        self._range_uj = int((folder / "max_energy_range_uj").read_text())
        self._last_uj = int(self._file.read_text())
        self._total_uj = 0

    def joules(self) -> float:
        """Return the energy since the first reading."""
        now_uj = int(self._file.read_text())
        grown_uj = now_uj - self._last_uj
        self._total_uj += grown_uj if grown_uj >= 0 else grown_uj + self._range_uj
        self._last_uj = now_uj
        return self._total_uj * 1e-6


def _name(folder: Path) -> str:
    try:
        return (folder / "name").read_text().strip()
    except OSError:
        return ""


def _numbers(files: Sequence[Path], what: str) -> list[float]:
    try:
        found = [float(file.read_text()) for file in files]
    except (OSError, ValueError) as error:
        raise ObserverUnavailableError(f"the processor's {what} cannot be read: {error}") from error
    if not found:
        raise ObserverUnavailableError(
            f"this machine does not show its processor's {what}; virtual machines and containers often do not"
        )
    return found


def _readable(readers: Mapping[str, Reader]) -> Mapping[str, Reader]:
    """Return those that can be read.

    Raises:
        ObserverUnavailableError: none can; says why of the first.
    """
    found, reasons = {}, []
    for metric, read in readers.items():
        try:
            read()
            found[metric] = read
        except ObserverUnavailableError as error:
            reasons.append(error)
    if not found:
        raise reasons[0]
    return found


#: Vendors' libraries by the name that a backend gives; each finds the device by its PCI bus id.
_LIBRARIES: Final[Mapping[str, type[Nvml | AmdSmi]]] = MappingProxyType({"nvml": Nvml, "amd-smi": AmdSmi})


def energy_source(sensors: str, pci_bus_id: str = "") -> EnergySource:
    """Return what tells the energy of a device, the processor if no bus id is given.

    Raises:
        ObserverUnavailableError: there is none; says what to install or to permit.
    """
    return _of(sensors, pci_bus_id, "energy").energy()


def clock_readers(sensors: str, pci_bus_id: str = "") -> Mapping[str, Reader]:
    """Return what reads clocks and temperature now, by metric; those the device does not report are missing.

    Raises:
        ObserverUnavailableError: it reports none; says what to install or to permit.
    """
    return _of(sensors, pci_bus_id, "clocks").clocks()


def _of(sensors: str, pci_bus_id: str, what: str) -> Sensors:
    if sensors == "processor":
        return Processor()
    if sensors not in _LIBRARIES:
        known = ", ".join(["processors", *(f"GPUs through {library.name}" for library in _LIBRARIES.values())])
        raise ObserverUnavailableError(f"nothing tells the {what} of this device, only of {known}")
    library = _LIBRARIES[sensors]
    if not pci_bus_id:
        raise ObserverUnavailableError(
            f"the device's driver does not tell its PCI bus id, by which {library.name} would find it"
        )
    return library(pci_bus_id)
