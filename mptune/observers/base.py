"""The base class of observers, which measure around the launches of one configuration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
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
    pci_bus_id: str = ""  #: empty for the processor, or if the device's driver does not report it
    sensors: str = ""  #: the source of energy and clocks (:attr:`~mptune.backends.base.DeviceInfo.sensors`)
    tells_resources: bool = False  #: whether the driver reports registers and occupancy


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """The launches of one configuration."""

    configuration: Configuration
    footprint_bytes: int  #: device memory of its arguments
    times_ms: tuple[float, ...] = ()  #: the timed launches
    #: registers, shared memory and occupancy by metric; empty if the driver does not report them
    resources: Mapping[str, float] = field(default_factory=dict)
    steady_launches: int = 0  #: untimed back-to-back launches since :meth:`Observer.start`, for a ``steady_s`` above 0
    steady_restorations: int = 0  #: restorations of buffers since :meth:`Observer.start`, without launches


class Observer(ABC):
    """Measures metrics of one timed configuration; the units are in the metric names."""

    name: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]] = ()  #: the metrics it returns, except for :attr:`missing`
    steady_s: float = 0.0  #: seconds of back-to-back launches between start and stop; 0 if the timed launches suffice
    lead_s: float = 0.0  #: seconds of back-to-back launches before start
    #: Whether it subtracts the restoration of buffers between launches: for a kernel that works in place, a second
    #: start and stop enclose restorations only.
    discounts: ClassVar[bool] = False
    missing: Mapping[str, str] = MappingProxyType({})  #: metrics that are unavailable here, with the reason

    @classmethod
    def open(cls, target: Target) -> Self:  # noqa: ARG003 - used by overrides
        """Return an observer of this target.

        Raises:
            ObserverUnavailableError: it cannot measure here; the message says what to install or to permit.
        """
        return cls()

    def start(self) -> None:  # noqa: B027 - optional
        """Start reading."""

    @abstractmethod
    def stop(self, context: LaunchContext) -> Mapping[str, float]:
        """Return the metrics of the launches since :meth:`start`.

        After restorations alone, return the metrics of the launches before, with the restorations subtracted.
        """

    def observe(self, launch: Callable[[], float], context: LaunchContext) -> Mapping[str, float]:  # noqa: ARG002
        """Return the metrics of a configuration that has been timed; an override may ``launch`` it again.

        With a ``steady_s``, start and stop are called instead. A launch returns its milliseconds.
        """
        self.start()
        return self.stop(context)
