"""Observes what a kernel takes of a multiprocessor: registers, local and shared memory, occupancy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from mptune.errors import ObserverUnavailableError
from mptune.kernel import Application
from mptune.observers.base import LaunchContext, Observer, Target

__all__ = ["ResourcesObserver"]


class ResourcesObserver(Observer):
    """Reports what the driver says of the loaded kernel.

    - ``registers`` of a thread;
    - ``local_bytes`` of a thread: spilled registers, arrays and stack in memory;
    - ``static_shared_bytes`` and ``dynamic_shared_bytes`` of a block, and both together, ``shared_bytes``;
    - ``occupancy``, the share of a multiprocessor's threads that its blocks can fill.
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

    @classmethod
    def open(cls, target: Target) -> Self:
        """Return an observer of kernels on the target's device.

        Raises:
            ObserverUnavailableError: it is no GPU, or an application, which is more than one kernel.
        """
        if isinstance(target.kernel, Application):
            raise ObserverUnavailableError("an application is of several kernels, each with resources of its own")
        if not target.tells_resources:
            raise ObserverUnavailableError(
                f"backend {target.backend!r} has no registers and shared memory to share out among threads"
            )
        return cls()

    def stop(self, context: LaunchContext) -> Mapping[str, float]:
        """Return the resources."""
        return context.resources
