"""Energy, clocks and temperature of a device: its sensors, and observers that read them during repeated launches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from mptune.errors import ObserverUnavailableError
from mptune.observers.base import LaunchContext, Observer, Target

#: Returns the present reading of a sensor.
Reader = Callable[[], float]

# -- sensors ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EnergySource:
    """A counter of energy or a gauge of power."""

    read: Reader  #: returns joules of a counter, or watts
    is_counter: bool
    lead_s: float  #: seconds of launches before the first reading, as a gauge may be averaged over the past


def energy_source(sensors: str, pci_bus_id: str = "") -> EnergySource:
    """Return a device's counter of energy, or else its gauge of power.

    ``sensors`` is "nvml", "amd-smi" or "processor", and ``pci_bus_id`` a GPU's "domain:bus:device.function" in
    hexadecimal. An ObserverUnavailableError says what to install or to permit.
    """
    if sensors == "processor":
        return processor_energy()
    read = _gpu_readers(sensors, pci_bus_id, "energy")
    try:
        read["joules"]()
    except ObserverUnavailableError:
        read["watts"]()
        # From Ampere on, the gauge is the mean of the last second (NVML API, nvmlDeviceGetPowerUsage).
        return EnergySource(read["watts"], is_counter=False, lead_s=1.1)
    return EnergySource(read["joules"], is_counter=True, lead_s=0.1)


def clock_readers(sensors: str, pci_bus_id: str = "") -> Mapping[str, Reader]:
    """Return the available readers of clocks in MHz and of the temperature in °C, by metric."""
    if sensors == "processor":
        return processor_clocks()
    read = _gpu_readers(sensors, pci_bus_id, "clocks")
    return _readable({metric: read[metric] for metric in ClocksObserver.metrics})


def _readable(readers: Mapping[str, Reader]) -> Mapping[str, Reader]:
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


def _gpu_readers(sensors: str, pci_bus_id: str, what: str) -> Mapping[str, Reader]:
    name = {"nvml": "NVML", "amd-smi": "AMD SMI"}.get(sensors, "")
    if not name:
        known = "processors, and GPUs through NVML or AMD SMI"
        raise ObserverUnavailableError(f"the {what} of this device cannot be read; supported are {known}")
    if not pci_bus_id:
        raise ObserverUnavailableError(f"the driver does not report the device's PCI bus id, which {name} needs")
    failure, queries = (_nvml if sensors == "nvml" else _amd_smi)(pci_bus_id)

    def reader(query: Callable[[], Any]) -> Reader:
        def read() -> float:
            try:
                return float(query())
            # "N/A" marks an unsupported reading.
            except (failure, KeyError, TypeError, ValueError, StopIteration) as error:
                raise ObserverUnavailableError(f"the device does not report this through {name}: {error}") from error

        return read

    return {metric: reader(query) for metric, query in queries.items()}


#: The exception of a library's calls, and the calls by metric.
_Queries = tuple[type[Exception], Mapping[str, Callable[[], Any]]]


def _nvml(pci_bus_id: str) -> _Queries:
    try:
        import pynvml as nvml
    except ImportError:
        missing = 'the Python binding of NVML is not installed: pip install "mptune[cuda]"'
        raise ObserverUnavailableError(missing) from None
    try:
        nvml.nvmlInit()
        device = nvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
    except nvml.NVMLError as error:
        library = "NVML (libnvidia-ml.so.1, a part of the NVIDIA driver)"
        raise ObserverUnavailableError(f"{library} cannot be used: {error}") from error
    return nvml.NVMLError, {
        "joules": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(device) * 1e-3,
        "watts": lambda: nvml.nvmlDeviceGetPowerUsage(device) * 1e-3,
        "clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM),
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU),
    }


def _amd_smi(pci_bus_id: str) -> _Queries:
    try:
        import amdsmi as smi
    except Exception as error:  # without libamd_smi.so the type depends on the version
        raise ObserverUnavailableError(
            f'AMD SMI is not installed: pip install "mptune[hip]", and install ROCm, which has libamd_smi.so ({error})'
        ) from error
    try:
        smi.amdsmi_init()
        device = smi.amdsmi_get_processor_handle_from_bdf(pci_bus_id)
    except smi.AmdSmiException as error:
        raise ObserverUnavailableError(f"AMD SMI cannot be used: {error}") from error

    def joules() -> float:
        found = smi.amdsmi_get_energy_count(device)
        # Before ROCm 6.0 the accumulator was named power; the resolution is in microjoules.
        return float(found.get("energy_accumulator", found.get("power"))) * float(found["counter_resolution"]) * 1e-6

    def watts() -> float:
        found = smi.amdsmi_get_power_info(device)
        # MI300 reports only the current power, MI200 only the average.
        names = ("current_socket_power", "average_socket_power", "socket_power")
        return next(float(found[name]) for name in names if isinstance(found.get(name), int | float))

    def clock(kind: Any) -> Any:
        found = smi.amdsmi_get_clock_info(device, kind)
        return found.get("clk", found.get("cur_clk"))

    return smi.AmdSmiException, {
        "joules": joules,
        "watts": watts,
        "clock_mhz": lambda: clock(smi.AmdSmiClkType.GFX),
        "memory_clock_mhz": lambda: clock(smi.AmdSmiClkType.MEM),
        "temperature_c": lambda: smi.amdsmi_get_temp_metric(
            device, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
        ),
    }


def processor_energy(root: Path = Path("/sys")) -> EnergySource:
    """Return the energy of the processor's packages and memory by Running Average Power Limit (RAPL).

    It includes the machine's other tasks and its idle power.
    """
    powercap = root / "class/powercap"
    # Cores and graphics are parts of their package, and "psys" is the whole machine.
    folders = [folder for folder in sorted(powercap.glob("*-rapl:*")) if _name(folder).startswith(("package", "dram"))]
    if not folders:
        raise ObserverUnavailableError(
            f"no energy counter of the processor ({powercap}/intel-rapl:0): load the Linux module intel_rapl_msr; "
            "virtual machines and containers often have none"
        )

    last_uj: dict[Path, int] = {}
    total_uj = 0

    def read() -> float:
        nonlocal total_uj
        try:
            for folder in folders:
                now_uj = int((folder / "energy_uj").read_text())
                if now_uj < last_uj.get(folder, 0):  # the counter wrapped around since the last reading
                    last_uj[folder] -= int((folder / "max_energy_range_uj").read_text())
                total_uj += now_uj - last_uj.get(folder, now_uj)
                last_uj[folder] = now_uj
            return total_uj * 1e-6
        except PermissionError as error:
            raise ObserverUnavailableError(
                f"the processor's energy counter may not be read: sudo chmod a+r {powercap}/*/energy_uj ({error})"
            ) from error
        except (OSError, ValueError) as error:
            raise ObserverUnavailableError(f"the processor's energy counter cannot be read: {error}") from error

    read()
    return EnergySource(read, is_counter=True, lead_s=0.05)


def processor_clocks(root: Path = Path("/sys")) -> Mapping[str, Reader]:
    """Return readers of the fastest core's clock and of the processor's temperature."""

    def clock() -> float:
        return _highest((root / "devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq"), "clock")

    def temperature() -> float:
        drivers = ("coretemp", "k10temp", "zenpower")  # Intel, AMD, AMD
        folders = [folder for folder in (root / "class/hwmon").glob("hwmon*") if _name(folder) in drivers]
        return _highest((folder / "temp1_input" for folder in folders), "temperature")

    return _readable({"clock_mhz": clock, "temperature_c": temperature})


def _name(folder: Path) -> str:
    try:
        return (folder / "name").read_text().strip()
    except OSError:
        return ""


def _highest(files: Iterable[Path], what: str) -> float:
    """Return the largest number in some files, divided by a thousand."""
    try:
        return max(float(file.read_text()) * 1e-3 for file in files)
    except (OSError, ValueError) as error:  # ValueError: there is no file
        raise ObserverUnavailableError(
            f"the processor's {what} cannot be read, as in many virtual machines and containers ({error})"
        ) from error


# -- readings --------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """One reading and its time in seconds."""

    time_s: float
    value: float


class Sampler:
    """Reads a sensor every ``interval_s`` in its own thread; ``samples`` are the readings in order."""

    def __init__(self, read: Reader, interval_s: float, clock: Reader = time.perf_counter) -> None:
        self._read, self._interval_s, self._clock = read, interval_s, clock
        self._end = threading.Event()
        self._failure: Exception | None = None
        self.samples: list[Sample] = []
        self.take()
        self._thread = threading.Thread(target=self._work, name="sampler", daemon=True)
        self._thread.start()

    def stop(self) -> Sequence[Sample]:
        """Take a last reading and return all readings; raise ObserverUnavailableError if a reading failed."""
        self._end.set()
        self._thread.join()
        if self._failure is not None:
            raise ObserverUnavailableError(f"a sensor failed while it was read: {self._failure}") from self._failure
        self.take()
        return self.samples

    def _work(self) -> None:
        while not self._end.wait(self._interval_s):
            try:
                self.take()
            except Exception as failure:  # any library's; raised by stop
                self._failure = failure
                return

    def take(self) -> None:
        value = self._read()
        self.samples.append(Sample(self._clock(), value))


def mean_rate(samples: Sequence[Sample]) -> float:
    """Return a counter's growth per second between its first and its last step."""
    steps = [after for before, after in pairwise(samples) if after.value != before.value]
    if len(steps) < 2:
        span_s = samples[-1].time_s - samples[0].time_s
        raise ObserverUnavailableError(f"the energy counter did not move twice in {span_s:.2g} s")
    first, last = steps[0], steps[-1]
    return (last.value - first.value) / (last.time_s - first.time_s)


def mean_value(samples: Sequence[Sample]) -> float:
    """Return the mean of a gauge over time by the trapezoidal rule, from at least one reading."""
    times_s, values = np.array(samples).T
    span_s = times_s[-1] - times_s[0]
    return float(np.trapezoid(values, times_s) / span_s if span_s > 0 else values.mean())


# -- observers -------------------------------------------------------------------------------------


class EnergyObserver(Observer):
    """Measures the energy of a launch and the device's power meanwhile.

    The energy is the mean power during back-to-back launches times their duration. It includes the idle power of the
    whole device and, on a processor, the cost of launching. Energy and time of restoring buffers between launches are
    subtracted. Caches stay warm between launches.
    """

    name: ClassVar[str] = "energy"
    metrics: ClassVar[tuple[str, ...]] = ("energy_j", "power_w")
    # At least ten steps of a counter, so that the error of the first and the last is a few per cent.
    steady_s = 1.0
    discounts = True

    def __init__(self, source: EnergySource, interval_s: float = 0.005, clock: Reader = time.perf_counter) -> None:
        self.lead_s = source.lead_s
        self._source, self._interval_s, self._clock = source, interval_s, clock
        self._launches, self._energy_j, self._elapsed_s = 0, 0.0, 0.0

    @classmethod
    def open(cls, target: Target) -> Self:
        return cls(energy_source(target.sensors, target.pci_bus_id))

    def start(self) -> None:
        self._sampler = Sampler(self._source.read, self._interval_s, self._clock)

    def stop(self, context: LaunchContext) -> Mapping[str, float]:
        """Return energy and power; nothing if the restorations exceed them."""
        samples = self._sampler.stop()
        elapsed_s = samples[-1].time_s - samples[0].time_s
        power_w = mean_rate(samples) if self._source.is_counter else mean_value(samples)
        if context.steady_restorations:
            # One restoration a launch.
            elapsed_s *= self._launches / context.steady_restorations
            self._energy_j -= elapsed_s * power_w
            self._elapsed_s -= elapsed_s
        else:
            self._energy_j, self._elapsed_s, self._launches = elapsed_s * power_w, elapsed_s, context.steady_launches
        if not self._launches or self._energy_j <= 0 or self._elapsed_s <= 0:
            return {}
        return {"energy_j": self._energy_j / self._launches, "power_w": self._energy_j / self._elapsed_s}


class ClocksObserver(Observer):
    """Measures clocks and temperature of the device during back-to-back launches.

    ``clock_mhz`` and ``memory_clock_mhz`` are means over time; ``temperature_c`` is the maximum.
    """

    name: ClassVar[str] = "clocks"
    metrics: ClassVar[tuple[str, ...]] = ("clock_mhz", "memory_clock_mhz", "temperature_c")
    steady_s = 0.2
    lead_s = 0.2  # until the clocks have left their idle state

    def __init__(self, readers: Mapping[str, Reader], interval_s: float = 0.02) -> None:
        missing = [metric for metric in self.metrics if metric not in readers]
        self.missing = MappingProxyType(dict.fromkeys(missing, "the device does not report it"))
        self._readers, self._interval_s = readers, interval_s

    @classmethod
    def open(cls, target: Target) -> Self:
        return cls(clock_readers(target.sensors, target.pci_bus_id))

    def start(self) -> None:
        self._samplers = {metric: Sampler(read, self._interval_s) for metric, read in self._readers.items()}

    def stop(self, context: LaunchContext) -> Mapping[str, float]:  # noqa: ARG002
        readings = {metric: sampler.stop() for metric, sampler in self._samplers.items()}
        return {
            metric: max(s.value for s in samples) if metric == "temperature_c" else mean_value(samples)
            for metric, samples in readings.items()
        }
