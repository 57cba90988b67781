"""Where requests are evaluated, several at a time: one device, those of a machine, or those of a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from mptune.backends import get_backend
from mptune.errors import BackendUnavailableError, MptuneError
from mptune.evaluators.bench import Ready, Request
from mptune.evaluators.protocol import Rounds
from mptune.results import Trial

__all__ = ["Devices", "check_alike", "runnable_backend"]


class Devices(ABC):
    """Evaluates requests on devices that are all alike; trials come back in the order in which they end."""

    @abstractmethod
    def start(self) -> Ready:
        """Start what is not running yet, and return what every device says of itself.

        Raises:
            MptuneError: kernel, data or backend is not usable, or the devices are not alike.
        """

    @property
    @abstractmethod
    def capacity(self) -> int:
        """How many requests may be under way now; it changes as devices leave and join, and is never below 1."""

    @property
    @abstractmethod
    def lead(self) -> int:
        """How many configurations are worth asking for before the first of them is told: under way or prepared."""

    @property
    @abstractmethod
    def may_overlap(self) -> bool:
        """Whether a strategy may compute while they measure, without disturbing them."""

    @abstractmethod
    def prepare(self, source: str) -> None:
        """Begin to compile a source that is going to be evaluated, where that is done ahead."""

    @abstractmethod
    def submit(self, request: Request) -> None:
        """Begin an evaluation; at most :attr:`capacity` are under way."""

    @abstractmethod
    def finished(self) -> list[Trial]:
        """Wait for one of the trials under way, and return it with all others that have ended.

        Raises:
            MptuneError: no device can go on.
        """

    @abstractmethod
    def remeasure(self, rounds: Rounds) -> tuple[Trial, ...]:
        """Measure configurations in turn, all on the same device; nothing where that ended its worker.

        Only while no trial is under way.
        """

    @abstractmethod
    def close(self) -> None:
        """End everything, what is under way included; may be called twice."""


def check_alike(ready: Mapping[str, Ready]) -> None:
    """Check that times and errors measured on several devices may be compared.

    Args:
        ready: what the device of each worker says of itself, by what to call the worker.

    Raises:
        MptuneError: device, compiler, versions, inputs, references or observers are not the same for all of them.
    """
    (first_name, first), *others = ready.items()
    for name, other in others:
        if other.identity != first.identity:
            what = "their times cannot be compared"
            pairs = zip(first.identity.split("|"), other.identity.split("|"), strict=False)
            differing = ", ".join(f"{mine!r} is not {theirs!r}" for mine, theirs in pairs if mine != theirs)
        elif other.data_key != first.data_key:
            what, differing = "their errors cannot be compared", "inputs or references differ"
        elif (other.constraints, other.observers) != (first.constraints, first.observers):
            what = "their trials cannot be compared"
            differing = f"limits or observers differ ({first.observers} is not {other.observers})"
        else:
            continue
        raise MptuneError(
            f"one search runs on devices that are alike, and {what}: {first_name} has {_named(first)}, "
            f"{name} has {_named(other)}: {differing}"
        )


def _named(ready: Ready) -> str:
    return f"{ready.device.name} ({ready.device.architecture})"


def runnable_backend(name: str) -> str:
    """Return the name of the backend, "auto" resolved.

    Raises:
        UnknownNameError: no backend has that name.
        BackendUnavailableError: it cannot run here.
    """
    backend = get_backend(name)
    found = backend.availability()
    if not found.can_run:
        raise BackendUnavailableError(f"backend {backend.name} cannot run here: {found.reason}")
    return backend.name
