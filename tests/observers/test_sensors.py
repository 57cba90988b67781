"""Sensors, up to the last line before the driver: what is read, in which unit, and what is said when it cannot be."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fake_devices
import pytest

from mptune.errors import ObserverUnavailableError
from mptune.observers.sensors import clock_readers, energy_source, processor_clocks, processor_energy

BUS = "0000:65:00.0"


LIBRARIES = {"nvml": ("pynvml", fake_devices.nvml), "amd-smi": ("amdsmi", fake_devices.amd_smi)}


@pytest.fixture
def library(monkeypatch):
    """Return a function that puts a stand-in, which refuses unknown names, in the place of a vendor's library."""

    def install(sensors, **changes):
        name, make = LIBRARIES[sensors]
        module = make(**changes)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return install


@pytest.mark.parametrize(
    ("sensors", "changes", "is_counter", "reads"),
    [
        ("nvml", {}, True, 5.0),
        ("nvml", {"nvmlDeviceGetTotalEnergyConsumption": "Not Supported"}, False, 250.0),
        ("amd-smi", {}, True, 2e6 * 15.3e-6),
        ("amd-smi", {"amdsmi_get_energy_count": {"power": 1000, "counter_resolution": 20.0}}, True, 0.02),
        ("amd-smi", {"amdsmi_get_energy_count": "NOT_SUPPORTED"}, False, 300.0),
    ],
)
def test_a_counter_in_joules_or_power_in_watts(library, sensors, changes, is_counter, reads):
    library(sensors, **changes)
    source = energy_source(sensors, BUS)
    assert source.is_counter is is_counter
    assert source.read() == pytest.approx(reads)


@pytest.mark.parametrize(
    ("sensors", "changes", "found"),
    [
        ("nvml", {}, {"clock_mhz": 1500, "memory_clock_mhz": 2600, "temperature_c": 61}),
        ("nvml", {"nvmlDeviceGetClockInfo": "Not Supported"}, {"temperature_c": 61}),
        ("amd-smi", {"amdsmi_get_temp_metric": "NOT_SUPPORTED"}, {"clock_mhz": 1700, "memory_clock_mhz": 1600}),
        ("amd-smi", {"amdsmi_get_clock_info": {"clk": "N/A"}}, {"temperature_c": 55}),
    ],
)
def test_clocks_and_temperature_as_far_as_the_device_tells(library, sensors, changes, found):
    library(sensors, **changes)
    assert {metric: read() for metric, read in clock_readers(sensors, BUS).items()} == found


@pytest.mark.parametrize(
    ("sensors", "changes", "message"),
    [
        (
            "nvml",
            {"nvmlDeviceGetTotalEnergyConsumption": "Not Supported", "nvmlDeviceGetPowerUsage": "Not Supported"},
            "does not report this through NVML: Not Supported",
        ),
        ("nvml", {"nvmlInit": "Driver Not Loaded"}, r"a part of the NVIDIA driver\) cannot .*Driver Not Loaded"),
        (
            "amd-smi",
            {"amdsmi_get_energy_count": "NOT_SUPPORTED", "amdsmi_get_power_info": {"socket_power": "N/A"}},
            "does not report this through AMD SMI",
        ),
        ("amd-smi", {"amdsmi_init": "AMDSMI_STATUS_NO_PERM"}, "AMD SMI cannot be used: AMDSMI_STATUS_NO_PERM"),
    ],
)
def test_what_cannot_be_read_says_why(library, sensors, changes, message):
    library(sensors, **changes)
    with pytest.raises(ObserverUnavailableError, match=message):
        energy_source(sensors, BUS)


def test_the_binding_has_the_calls_of_the_stand_in():
    module = pytest.importorskip("pynvml", reason='pynvml is not installed: pip install "mptune[cuda]"')
    names = [name for name in vars(fake_devices.nvml()) if name.upper().startswith("NVML")]
    assert len(names) > 8
    assert [name for name in names if not hasattr(module, name)] == []


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
        source = processor_energy(tmp_path)
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
        read = processor_energy(tmp_path).read
        total = 0
        for energy_uj, grown_uj in ((4_000, 5_000), (900_000, 896_000), (100_000, 200_000), (100_000, 0)):
            (root / "intel-rapl:0" / "energy_uj").write_text(f"{energy_uj}\n")
            total += grown_uj
            assert read() == pytest.approx(total * 1e-6)

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
            processor_energy(tmp_path)


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
        found = {metric: read() for metric, read in processor_clocks(tmp_path).items()}
        assert found == {"clock_mhz": pytest.approx(3400), "temperature_c": pytest.approx(54.5)}
        (tmp_path / "class/hwmon/hwmon1/temp1_input").write_text("unknown")
        assert list(processor_clocks(tmp_path)) == ["clock_mhz"]
