"""Observes what the compiled kernel takes of a multiprocessor: registers, local and shared memory, occupancy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Self

from mptune.errors import ObserverUnavailableError
from mptune.kernel import Application
from mptune.observers.base import LaunchContext, Observer, Target
from mptune.resources import Multiprocessor, multiprocessor, occupancy

__all__ = ["ResourcesObserver"]


class ResourcesObserver(Observer):
    """Tells what the binary says of itself, without running it.

    - ``registers`` of a thread;
    - ``local_bytes`` of a thread: spilled registers, arrays and stack in memory;
    - ``static_shared_bytes`` and ``dynamic_shared_bytes`` of a block, and both together, ``shared_bytes``;
    - ``occupancy``, the share of a multiprocessor's warps that its blocks can fill (:mod:`mptune.resources.occupancy`).

    There is no occupancy where the device's multiprocessor is not known.
    """

    name: ClassVar[str] = "resources"
    metrics: ClassVar[tuple[str, ...]] = (
        "registers",
        "local_bytes",
        "shared_bytes",
        "static_shared_bytes",
        "dynamic_shared_bytes",
        "occupancy",
    )

    def __init__(self, unit: Multiprocessor | None, architecture: str = "") -> None:
        if unit is None:
            reason = f"the multiprocessor of architecture {architecture!r} is not known to mptune"
            self.missing = MappingProxyType({"occupancy": reason})
        self._unit = unit
        self._results: dict[str, float] = {}

    @classmethod
    def open(cls, target: Target) -> Self:
        """Return an observer of binaries for the target's device.

        Raises:
            ObserverUnavailableError: it is no GPU, or an application, which is more than one binary.
        """
        if isinstance(target.kernel, Application):
            raise ObserverUnavailableError("an application is of several kernels, each with resources of its own")
        if not target.tells_resources:
            raise ObserverUnavailableError(
                f"backend {target.backend!r} has no registers and shared memory to share out among threads"
            )
        return cls(multiprocessor(target.architecture), target.architecture)

    def before(self, context: LaunchContext) -> None:
        """Take what is known before the launch."""
        self._results = {}
        if context.resources is None or context.shape is None:
            return
        taken, shape = context.resources, context.shape
        self._results = {
            "registers": taken.registers,
            "local_bytes": taken.local_bytes,
            "shared_bytes": taken.shared_bytes + shape.shared_bytes,
            "static_shared_bytes": taken.shared_bytes,
            "dynamic_shared_bytes": shape.shared_bytes,
        }
        if self._unit is not None:
            self._results["occupancy"] = occupancy(self._unit, taken, math.prod(shape.block), shape.shared_bytes)

    def results(self) -> Mapping[str, float]:
        """Return the resources; nothing before the launches."""
        return {name: float(value) for name, value in self._results.items()}
