"""Sensors, up to the last line before the driver: what is read, in which unit, and what is said when it cannot be."""

from __future__ import annotations

import builtins
import inspect
import os
import re
import sys
from pathlib import Path

import fake_devices
import pytest

from mptune.errors import ObserverUnavailableError
from mptune.observers.sensors import AmdSmi, Nvml, Processor, clock_readers, energy_source

BUS = "0000:65:00.0"


def without(monkeypatch, name):
    """Make a module impossible to import."""
    monkeypatch.delitem(sys.modules, name, raising=False)
    plain = builtins.__import__

    def refusing(wanted, *arguments, **more):
        if wanted == name:
            raise ImportError(f"No module named {wanted!r}")
        return plain(wanted, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", refusing)


class TestNvml:
    """NVIDIA."""

    @pytest.fixture
    def library(self, monkeypatch):
        def install(**changes):
            module = fake_devices.nvml(**changes)
            monkeypatch.setitem(sys.modules, "pynvml", module)
            return module

        return install

    def test_the_counter_in_joules(self, library):
        module = library()
        source = energy_source("nvml", BUS)
        assert source.is_counter
        assert source.read() == pytest.approx(5.0)
        assert ("nvmlDeviceGetHandleByPciBusId", BUS) in module.calls
        assert ("nvmlDeviceGetTotalEnergyConsumption", f"handle {BUS}") in module.calls

    def test_power_in_watts_where_there_is_no_counter(self, library):
        library(nvmlDeviceGetTotalEnergyConsumption="Not Supported")
        source = energy_source("nvml", BUS)
        assert not source.is_counter
        assert source.read() == pytest.approx(250.0)
        assert source.lead_s >= 1.0

    def test_a_device_with_neither(self, library):
        library(nvmlDeviceGetTotalEnergyConsumption="Not Supported", nvmlDeviceGetPowerUsage="Not Supported")
        with pytest.raises(ObserverUnavailableError, match="does not report this through NVML: Not Supported"):
            energy_source("nvml", BUS)

    def test_clocks_and_temperature(self, library):
        library()
        readers = clock_readers("nvml", BUS)
        found = {metric: read() for metric, read in readers.items()}
        assert found == {"clock_mhz": 1500, "memory_clock_mhz": 2600, "temperature_c": 61}

    def test_only_what_the_device_tells(self, library):
        library(nvmlDeviceGetClockInfo="Not Supported")
        assert list(clock_readers("nvml", BUS)) == ["temperature_c"]
        library(nvmlDeviceGetClockInfo="Not Supported", nvmlDeviceGetTemperature="No Permission")
        with pytest.raises(ObserverUnavailableError, match="Not Supported"):
            clock_readers("nvml", BUS)

    @pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetHandleByPciBusId"])
    def test_no_driver_or_no_such_device(self, library, call):
        library(**{call: "Driver Not Loaded"})
        with pytest.raises(ObserverUnavailableError, match=r"a part of the NVIDIA driver\) cannot .*Driver Not Loaded"):
            energy_source("nvml", BUS)

    def test_no_binding(self, monkeypatch):
        without(monkeypatch, "pynvml")
        with pytest.raises(ObserverUnavailableError, match=r'not installed: pip install "mptune\[cuda\]"'):
            energy_source("nvml", BUS)

    def test_the_binding_has_the_calls(self):
        module = pytest.importorskip("pynvml", reason='pynvml is not installed: pip install "mptune[cuda]"')
        names = set(re.findall(r"\bnvml\.(\w+)", inspect.getsource(Nvml)))
        assert len(names) > 8
        assert [name for name in names if not hasattr(module, name)] == []


class TestAmdSmi:
    """AMD."""

    @pytest.fixture
    def library(self, monkeypatch):
        def install(**changes):
            module = fake_devices.amd_smi(**changes)
            monkeypatch.setitem(sys.modules, "amdsmi", module)
            return module

        return install

    def test_the_accumulator_in_joules(self, library):
        library()
        source = energy_source("amd-smi", BUS)
        assert source.is_counter
        assert source.read() == pytest.approx(2e6 * 15.3e-6)

    def test_the_accumulator_by_its_older_name(self, library):
        library(amdsmi_get_energy_count={"power": 1000, "counter_resolution": 20.0})
        assert energy_source("amd-smi", BUS).read() == pytest.approx(0.02)

    def test_power_where_there_is_no_accumulator(self, library):
        library(amdsmi_get_energy_count="NOT_SUPPORTED")
        source = energy_source("amd-smi", BUS)
        assert not source.is_counter
        assert source.read() == 300

    def test_a_device_with_neither(self, library):
        library(amdsmi_get_energy_count="NOT_SUPPORTED", amdsmi_get_power_info={"socket_power": "N/A"})
        with pytest.raises(ObserverUnavailableError, match="does not report this through AMD SMI"):
            energy_source("amd-smi", BUS)

    def test_clocks_and_temperature(self, library):
        library(amdsmi_get_temp_metric="NOT_SUPPORTED")
        found = {metric: read() for metric, read in clock_readers("amd-smi", BUS).items()}
        assert found == {"clock_mhz": 1700, "memory_clock_mhz": 1600}
        library(amdsmi_get_clock_info={"clk": "N/A"})
        assert {metric: read() for metric, read in clock_readers("amd-smi", BUS).items()} == {"temperature_c": 55}

    def test_no_permission(self, library):
        library(amdsmi_init="AMDSMI_STATUS_NO_PERM")
        with pytest.raises(ObserverUnavailableError, match="AMD SMI cannot be used: AMDSMI_STATUS_NO_PERM"):
            clock_readers("amd-smi", BUS)

    def test_no_binding(self, monkeypatch):
        without(monkeypatch, "amdsmi")
        with pytest.raises(ObserverUnavailableError, match=r'pip install "mptune\[hip\]", and install ROCm'):
            energy_source("amd-smi", BUS)

    def test_nothing_is_asked_of_it_that_the_stand_in_lacks(self):
        names = set(re.findall(r"\bsmi\.(\w+)", inspect.getsource(AmdSmi)))
        assert [name for name in names if not hasattr(fake_devices.amd_smi(), name)] == []


class TestEnergyOfTheProcessor:
    """RAPL."""

    def test_packages_and_their_memory_but_nothing_twice(self, tmp_path):
        root = fake_devices.powercap(
            tmp_path,
            {
                "intel-rapl:0": ("package-0", 1_000_000, 10**9),
                "intel-rapl:0:0": ("core", 400_000, 10**9),
                "intel-rapl:0:1": ("dram", 200_000, 10**9),
                "intel-rapl:1": ("package-1", 3_000_000, 10**9),
                "intel-rapl:2": ("psys", 9_000_000, 10**9),
                "intel-rapl-mmio:0": ("package-0", 5, 10**9),
            },
        )
        source = Processor(tmp_path).energy()
        assert source.is_counter
        assert source.read() == 0.0
        for folder, energy_uj in {
            "intel-rapl:0": 1_500_000,
            "intel-rapl:0:0": 700_000,
            "intel-rapl:2": 9_900_000,
        }.items():
            (root / folder / "energy_uj").write_text(str(energy_uj))
        assert source.read() == pytest.approx(0.5)
        (root / "intel-rapl:0:1" / "energy_uj").write_text("300000")
        (root / "intel-rapl:1" / "energy_uj").write_text("3250000")
        assert source.read() == pytest.approx(0.5 + 0.1 + 0.25)

    def test_a_counter_that_starts_over(self, tmp_path):
        root = fake_devices.powercap(tmp_path, {"intel-rapl:0": ("package-0", 999_000, 1_000_000)})
        read = Processor(tmp_path).energy().read
        total = 0
        for energy_uj, grown_uj in ((4_000, 5_000), (900_000, 896_000), (100_000, 200_000), (100_000, 0)):
            (root / "intel-rapl:0" / "energy_uj").write_text(f"{energy_uj}\n")
            total += grown_uj
            assert read() == pytest.approx(total * 1e-6)

    @pytest.mark.parametrize("domains", [{}, {"intel-rapl:0": ("psys", 1, 2)}, {"dtpm:0": ("package-0", 1, 2)}])
    def test_none(self, tmp_path, domains):
        fake_devices.powercap(tmp_path, domains)
        with pytest.raises(ObserverUnavailableError, match=r"shows no energy counter .* intel_rapl_msr"):
            Processor(tmp_path).energy()

    def test_not_permitted(self, tmp_path, monkeypatch):
        root = fake_devices.powercap(tmp_path, {"intel-rapl:0": ("package-0", 1, 2)})
        if os.geteuid():
            (root / "intel-rapl:0" / "energy_uj").chmod(0)
        else:  # may read whatever its mode is
            plain = Path.read_text

            def refuse(path):
                if path.name == "energy_uj":
                    raise PermissionError(13, "Permission denied")
                return plain(path)

            monkeypatch.setattr(Path, "read_text", refuse)
        with pytest.raises(ObserverUnavailableError, match=r"sudo chmod a\+r .*energy_uj.*Permission denied"):
            Processor(tmp_path).energy()

    def test_nonsense_at_first_or_later(self, tmp_path):
        root = fake_devices.powercap(tmp_path, {"intel-rapl:0": ("package-0", 1, 100)})
        source = Processor(tmp_path).energy()
        (root / "intel-rapl:0" / "energy_uj").write_text("")
        for attempt in (source.read, lambda: Processor(tmp_path).energy()):
            with pytest.raises(ObserverUnavailableError, match="energy counter cannot be read"):
                attempt()

    def test_it_is_what_the_host_has(self, monkeypatch, tmp_path):
        fake_devices.powercap(tmp_path, {"intel-rapl:0": ("package-0", 1, 100)})
        monkeypatch.setattr(Processor.__init__, "__defaults__", (tmp_path,))
        assert energy_source("processor").name == "RAPL"


class TestClocksOfTheProcessor:
    """Clock and temperature of the processor."""

    def test_the_fastest_core_and_the_processor_s_thermometer(self, tmp_path):
        for number, khz in ((0, 2_100_000), (1, 3_400_000), (10, 800_000)):
            folder = tmp_path / f"devices/system/cpu/cpu{number}/cpufreq"
            folder.mkdir(parents=True)
            (folder / "scaling_cur_freq").write_text(f"{khz}\n")
        for number, (name, millidegrees) in enumerate((("nvme", 90_000), ("k10temp", 54_500))):
            folder = tmp_path / f"class/hwmon/hwmon{number}"
            folder.mkdir(parents=True)
            (folder / "name").write_text(f"{name}\n")
            (folder / "temp1_input").write_text(f"{millidegrees}\n")
        found = {metric: read() for metric, read in Processor(tmp_path).clocks().items()}
        assert found == {"clock_mhz": pytest.approx(3400), "temperature_c": pytest.approx(54.5)}
        (tmp_path / "class/hwmon/hwmon1/temp1_input").write_text("unknown")
        assert list(Processor(tmp_path).clocks()) == ["clock_mhz"]

    def test_a_machine_that_shows_nothing(self, tmp_path):
        with pytest.raises(ObserverUnavailableError, match="does not show its processor's clock"):
            Processor(tmp_path).clocks()


def test_a_device_nothing_is_known_of():
    with pytest.raises(
        ObserverUnavailableError, match=r"nothing tells the energy of this device, only of processors, GPU"
    ):
        energy_source("")
    with pytest.raises(ObserverUnavailableError, match="nothing tells the clocks of this device"):
        clock_readers("")


@pytest.mark.parametrize(("sensors", "library"), [("nvml", "NVML"), ("amd-smi", "AMD SMI")])
def test_a_gpu_whose_driver_does_not_say_where_it_is(sensors, library):
    with pytest.raises(
        ObserverUnavailableError, match=f"does not tell its PCI bus id, by which {library} would find it"
    ):
        energy_source(sensors)
