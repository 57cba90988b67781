"""The processor's energy: Running Average Power Limit (RAPL), as Linux shows it under ``/sys/class/powercap``.

It counts what whole packages take, and the memory beside them where it has a counter: everything the machine does
meanwhile, at rest too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mptune.errors import ObserverUnavailableError
from mptune.observers.sensors.source import EnergySource

__all__ = ["POWERCAP", "energy_source"]

POWERCAP: Final = Path("/sys/class/powercap")
_LEAD_S: Final = 0.05
#: A domain counts where its name begins with one of these; cores and graphics are parts of their package, and "psys"
#: is the whole machine once more.
_COUNTED: Final = ("package", "dram")


class _Domain:
    """One counter; it starts over at 0 beyond its range, and each reading has to come before it did so twice."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "energy_uj"
        self._range_uj = int((folder / "max_energy_range_uj").read_text())
        self._last_uj = self._now_uj()
        self._total_uj = 0

    def joules(self) -> float:
        """Return the energy since the first reading."""
        now_uj = self._now_uj()
        grown_uj = now_uj - self._last_uj
        self._total_uj += grown_uj if grown_uj >= 0 else grown_uj + self._range_uj
        self._last_uj = now_uj
        return self._total_uj * 1e-6

    def _now_uj(self) -> int:
        return int(self._file.read_text())


def energy_source(root: Path = POWERCAP) -> EnergySource:
    """Return the energy of all packages and their memory together.

    Args:
        root: where the kernel shows the domains.

    Raises:
        ObserverUnavailableError: there are none, or they may not be read.
    """
    folders = [folder for folder in sorted(root.glob("*-rapl:*")) if _name(folder).startswith(_COUNTED)]
    if not folders:
        raise ObserverUnavailableError(
            f"this machine shows no energy counter of its processor ({root}/intel-rapl:0): the Linux module "
            "intel_rapl_msr provides it, and virtual machines and containers often have none"
        )
    try:
        domains = [_Domain(folder) for folder in folders]
    except PermissionError as error:
        raise ObserverUnavailableError(
            f"the processor's energy counter may not be read: sudo chmod a+r {root}/*/energy_uj ({error})"
        ) from error
    except (OSError, ValueError) as error:
        raise ObserverUnavailableError(f"the processor's energy counter cannot be read: {error}") from error

    def read() -> float:
        try:
            return sum(domain.joules() for domain in domains)
        except (OSError, ValueError) as error:
            raise ObserverUnavailableError(f"the processor's energy counter cannot be read: {error}") from error

    return EnergySource("RAPL", read, is_counter=True, lead_s=_LEAD_S)


def _name(folder: Path) -> str:
    try:
        return (folder / "name").read_text().strip()
    except OSError:
        return ""
