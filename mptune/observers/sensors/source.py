"""What a source of energy readings is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mptune.errors import ObserverUnavailableError

__all__ = ["EnergySource", "Reader", "readable"]

#: Returns what a sensor says now.
Reader = Callable[[], float]


@dataclass(frozen=True, slots=True)
class EnergySource:
    """A counter of energy or a gauge of power.

    Attributes:
        name: what it is, for people.
        read: returns joules since some moment, or watts.
        is_counter: whether it counts joules.
        lead_s: how long launches have to go on before a reading is about nothing else: a gauge may show the mean over
            the time before.
    """

    name: str
    read: Reader
    is_counter: bool
    lead_s: float


def readable(readers: Mapping[str, Reader]) -> Mapping[str, Reader]:
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
