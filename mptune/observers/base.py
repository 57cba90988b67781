"""What an observer is: something that measures around the launches of one configuration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from mptune.accuracy.evaluate import Output
from mptune.space.configuration import Configuration

__all__ = ["LaunchContext", "Observer"]


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """What an observer may look at.

    Attributes:
        configuration: the configuration being measured.
        footprint_bytes: bytes its arguments take on the device.
        read_outputs: returns the outputs of the first launch, in their stored types: copied to the host, or left on the
            device beside their references.
        times_ms: the timed launches so far.
    """

    configuration: Configuration
    footprint_bytes: int
    read_outputs: Callable[[], Mapping[str, Output]]
    times_ms: tuple[float, ...] = ()


class Observer(ABC):
    """Measures something around the launches of one configuration; units are in the metric names."""

    name: ClassVar[str]
    #: The metrics it always gives.
    metrics: ClassVar[tuple[str, ...]] = ()

    def before(self, context: LaunchContext) -> None:  # noqa: B027 - optional
        """Look at the state before the first launch."""

    def after(self, context: LaunchContext) -> None:  # noqa: B027 - optional
        """Look at the state after the last launch."""

    @abstractmethod
    def results(self) -> Mapping[str, float]:
        """Return the metrics of the launches since :meth:`before`."""
