"""The processor's clock and temperature, as Linux shows them under ``/sys``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mptune.errors import ObserverUnavailableError
from mptune.observers.sensors.source import Reader, readable

__all__ = ["clock_readers"]

#: Drivers of the temperature sensors of processors: Intel's, AMD's, and AMD's by its other driver.
_THERMOMETERS: Final = ("coretemp", "k10temp", "zenpower")


def clock_readers(root: Path = Path("/sys")) -> Mapping[str, Reader]:
    """Return what reads the fastest core's clock in MHz and the temperature in degrees Celsius.

    Args:
        root: where Linux shows devices.

    Raises:
        ObserverUnavailableError: the machine tells neither.
    """

    def clock() -> float:
        files = sorted((root / "devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))
        return max(_numbers(files, "clock")) * 1e-3

    def temperature() -> float:
        folders = [folder for folder in sorted((root / "class/hwmon").glob("hwmon*")) if _is_thermometer(folder)]
        return max(_numbers([folder / "temp1_input" for folder in folders], "temperature")) * 1e-3

    return readable({"clock_mhz": clock, "temperature_c": temperature})


def _numbers(files: list[Path], what: str) -> list[float]:
    try:
        found = [float(file.read_text()) for file in files]
    except (OSError, ValueError) as error:
        raise ObserverUnavailableError(f"the processor's {what} cannot be read: {error}") from error
    if not found:
        raise ObserverUnavailableError(
            f"this machine does not show its processor's {what}; virtual machines and containers often do not"
        )
    return found


def _is_thermometer(folder: Path) -> bool:
    try:
        return (folder / "name").read_text().strip() in _THERMOMETERS
    except OSError:
        return False
