"""What an observer is: something that measures around the launches of one configuration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Self

from mptune.accuracy.evaluate import Output
from mptune.kernel import Sizes, Tunable
from mptune.space.configuration import Configuration

__all__ = ["LaunchContext", "Observer", "Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """What is going to be observed."""

    kernel: Tunable
    sizes: Sizes  #: its problem sizes
    backend: str  #: name of the backend
    architecture: str = ""  #: of the device
    pci_bus_id: str = ""  #: of the device; empty for the processor, and where its driver does not tell
    sensors: str = ""  #: what tells energy and clocks of the device, as the backend describes it
    tells_resources: bool = False  #: whether the driver reports registers and occupancy


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """What an observer may look at."""

    configuration: Configuration
    footprint_bytes: int  #: bytes its arguments take on the device
    #: returns the outputs of the first launch, in their stored types: copied to the host, or left on the device beside
    #: their references
    read_outputs: Callable[[], Mapping[str, Output]]
    times_ms: tuple[float, ...] = ()  #: the timed launches so far
    #: registers, shared memory and occupancy, by metric; empty where the driver does not report them
    resources: Mapping[str, float] = field(default_factory=dict)
    #: launches that have followed on one another since :meth:`Observer.before`, untimed, for an observer of
    #: ``steady_s`` above 0
    steady_launches: int = 0
    #: restorations of buffers that have followed on one another since then, without launches
    steady_restorations: int = 0


class Observer(ABC):
    """Measures something around the launches of one configuration; units are in the metric names."""

    name: ClassVar[str]
    #: The metrics it gives, but for those in :attr:`missing`.
    metrics: ClassVar[tuple[str, ...]] = ()
    #: Whether it is switched on only where it is asked for or needed.
    is_optional: ClassVar[bool] = True
    #: Seconds for which launches have to follow on one another between before and after; 0: the timed ones will do.
    steady_s: float = 0.0
    #: Seconds for which they have to have done so already.
    lead_s: float = 0.0
    #: Metrics it cannot give here, and why.
    missing: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def open(cls, target: Target) -> Self:  # noqa: ARG003 - for those that need it
        """Return an observer of this target.

        Raises:
            ObserverUnavailableError: it cannot measure anything here; says what to install or to permit.
        """
        return cls()

    def before(self, context: LaunchContext) -> None:  # noqa: B027 - optional
        """Look at the state before the first launch."""

    def after(self, context: LaunchContext) -> None:  # noqa: B027 - optional
        """Look at the state after the last launch."""

    def discount(self, context: LaunchContext) -> None:  # noqa: B027 - optional
        """Take off what restoring buffers took.

        Called after another :meth:`before` and restorations without launches, as long as there were launches, for an
        observer of ``steady_s`` above 0 where a kernel works in place, so that each launch came after a restoration.
        """

    @abstractmethod
    def results(self) -> Mapping[str, float]:
        """Return the metrics of the launches since :meth:`before`."""
