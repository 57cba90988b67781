"""The base class of observers, which measure something around the launches of one configuration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Self

from mptune.kernel import Sizes, Tunable
from mptune.space.configuration import Configuration


@dataclass(frozen=True, slots=True)
class Target:
    """A kernel and the device that launches it."""

    kernel: Tunable
    sizes: Sizes
    backend: str
    architecture: str = ""
    pci_bus_id: str = ""  #: empty for the processor, and where the device's driver does not tell
    sensors: str = ""  #: the source of energy and clocks, as the backend describes it
    tells_resources: bool = False  #: whether the driver reports registers and occupancy


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """The launches of one configuration."""

    configuration: Configuration
    footprint_bytes: int  #: bytes its arguments take on the device
    times_ms: tuple[float, ...] = ()  #: the timed launches
    #: registers, shared memory and occupancy, by metric; empty where the driver does not report them
    resources: Mapping[str, float] = field(default_factory=dict)
    #: back-to-back launches since :meth:`Observer.start`, untimed, for an observer of ``steady_s`` above 0
    steady_launches: int = 0
    #: restorations of buffers since :meth:`Observer.start`, without launches
    steady_restorations: int = 0


class Observer(ABC):
    """Measures something of one configuration that has been timed; units are in the metric names."""

    name: ClassVar[str]
    #: The metrics it gives, but for those in :attr:`missing`.
    metrics: ClassVar[tuple[str, ...]] = ()
    #: Seconds of back-to-back launches between start and stop; 0: the timed launches will do.
    steady_s: float = 0.0
    #: Seconds of back-to-back launches before start.
    lead_s: float = 0.0
    #: Whether it takes off what restoring buffers between launches took: where a kernel works in place, a second
    #: start and stop follow, around restorations alone.
    discounts: ClassVar[bool] = False
    #: Metrics it cannot give here, and why.
    missing: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def open(cls, target: Target) -> Self:  # noqa: ARG003 - for those that need it
        """Return an observer of this target.

        Raises:
            ObserverUnavailableError: it cannot measure anything here; says what to install or to permit.
        """
        return cls()

    def start(self) -> None:  # noqa: B027 - optional
        """Begin to read."""

    @abstractmethod
    def stop(self, context: LaunchContext) -> Mapping[str, float]:
        """Return the metrics of the launches since :meth:`start`.

        After restorations alone, return the metrics of the launches before without what restoring took.
        """
