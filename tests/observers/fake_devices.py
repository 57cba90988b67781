"""Stand-ins for the libraries that read a device's sensors, and for a clock, at the last line before the driver."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace


class Ticking:
    """A clock that moves by the same step whenever it is read."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.now_s = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def nvml(**changes):
    """Return a stand-in for ``pynvml``: an energy counter at 5000 mJ, 250 W, 1500 and 2600 MHz, 61 degrees."""
    module = ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    class Calls(list):
        def answering(self, name, value):
            def call(*arguments):
                self.append((name, *arguments))
                if isinstance(value, str):
                    raise NVMLError(value)
                return value(*arguments) if callable(value) else value

            return call

    module.NVMLError = NVMLError
    module.NVML_CLOCK_SM, module.NVML_CLOCK_MEM, module.NVML_TEMPERATURE_GPU = 1, 2, 0
    answers = {
        "nvmlInit": None,
        "nvmlDeviceGetHandleByPciBusId": "handle {}".format,
        "nvmlDeviceGetTotalEnergyConsumption": 5000,
        "nvmlDeviceGetPowerUsage": 250_000,
        "nvmlDeviceGetClockInfo": lambda _, kind: {1: 1500, 2: 2600}[kind],
        "nvmlDeviceGetTemperature": 61,
    }
    module.calls = Calls()
    for name, value in (answers | changes).items():
        setattr(module, name, module.calls.answering(name, value))
    return module


def amd_smi(**changes):
    """Return a stand-in for ``amdsmi``: 2e6 counts of 15.3 µJ, 300 W, 1700 and 1600 MHz, 55 degrees."""
    module = ModuleType("amdsmi")

    class AmdSmiException(Exception):
        pass

    def answering(value):
        def call(*arguments):
            if isinstance(value, str):
                raise AmdSmiException(value)
            return value(*arguments) if callable(value) else value

        return call

    module.AmdSmiException = AmdSmiException
    module.AmdSmiClkType = SimpleNamespace(GFX="gfx", MEM="mem")
    module.AmdSmiTemperatureType = SimpleNamespace(HOTSPOT="hotspot")
    module.AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current")
    answers = {
        "amdsmi_init": None,
        "amdsmi_get_processor_handle_from_bdf": "handle {}".format,
        "amdsmi_get_energy_count": {"energy_accumulator": 2_000_000, "counter_resolution": 15.3, "timestamp": 1},
        "amdsmi_get_power_info": {
            "socket_power": 310,
            "current_socket_power": "N/A",
            "average_socket_power": 300,
        },
        "amdsmi_get_clock_info": lambda _, kind: {"clk": {"gfx": 1700, "mem": 1600}[kind]},
        "amdsmi_get_temp_metric": 55,
    }
    for name, value in (answers | changes).items():
        setattr(module, name, answering(value))
    return module


def powercap(root, domains):
    """Make ``class/powercap`` below a folder, of folder names and (name, energy, range) in microjoules; return it."""
    root = root / "class/powercap"
    for folder, (name, energy_uj, range_uj) in domains.items():
        (root / folder).mkdir(parents=True)
        (root / folder / "name").write_text(f"{name}\n")
        (root / folder / "energy_uj").write_text(f"{energy_uj}\n")
        (root / folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return root
