"""The calls of a GPU driver that differ between vendors, as the rest of a GPU backend makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mptune.backends.base import DeviceInfo

if TYPE_CHECKING:
    import numpy as np

    from mptune.kernel import LaunchShape

__all__ = ["Driver", "axis_limits"]


class Driver(Protocol):
    """The calls of a GPU driver, on one device and one stream.

    Memory is an address, modules and functions are opaque handles. Failures are
    :class:`~mptune.errors.LaunchError`, memory running out is :class:`~mptune.errors.OutOfMemoryError`.
    """

    def describe(self) -> DeviceInfo:
        """Describe the device; ``limits`` hold ``max_threads_per_block`` and ``max_shared_bytes``."""

    def allocate(self, nbytes: int) -> int:
        """Return the address of new device memory."""

    def free(self, address: int) -> None:
        """Give device memory back."""

    def copy_in(self, target: int, source: int, nbytes: int) -> None:
        """Copy host memory to the device."""

    def copy_out(self, target: int, source: int, nbytes: int) -> None:
        """Copy device memory to the host."""

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device."""

    def fill(self, target: int, byte: int, nbytes: int) -> None:
        """Set device memory to one byte."""

    def load(self, image: bytes) -> Any:
        """Load a compiled image and return the module."""

    def unload(self, module: Any) -> None:
        """Release a module."""

    def function(self, module: Any, name: str) -> Any:
        """Return the function of that name."""

    def symbol(self, module: Any, name: str) -> int:
        """Return the address of a module's variable."""

    def max_threads(self, function: Any) -> int:
        """Return the threads of the largest block of a function; its registers may allow fewer than the device."""

    def launch(self, function: Any, shape: LaunchShape, arguments: int) -> float:
        """Run a function to its end; ``arguments`` is the address of an array of pointers to their values.

        Returns:
            Device time in milliseconds.
        """

    def enqueue(self, function: Any, shape: LaunchShape, arguments: int) -> None:
        """Run a function of a shape :meth:`launch` has run, without waiting; copies the arguments' values at once."""

    def synchronize(self) -> None:
        """Wait for the device; raises what an earlier fault left behind."""

    def array_namespace(self) -> Any:
        """Return the NumPy-like module that computes on the device, None where there is none."""

    def array(self, address: int, nbytes: int, dtype: np.dtype[Any]) -> Any:
        """Return device memory as a one-dimensional array of that module."""


def axis_limits(block: Sequence[int], grid: Sequence[int]) -> dict[str, int]:
    """Return the limits of a launch by axis: threads of a block and blocks of a grid along x, y and z."""
    axes = {"block": block, "grid": grid}
    return {
        f"max_{what}_{axis}": int(limit)
        for what, limits in axes.items()
        for axis, limit in zip("xyz", limits, strict=True)
    }
