"""Launching a loaded function on host arrays, for the tests of backends."""

from __future__ import annotations

import numpy as np

from mptune.backends.base import Argument, Backend, Function
from mptune.kernel import LaunchShape

__all__ = ["launch_on_arrays"]


def launch_on_arrays(
    backend: Backend,
    function: Function,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    *arguments: np.ndarray | np.generic,
    shared_bytes: int = 0,
) -> float:
    """Launch on arrays, which come back changed in place, and scalars; return the time in ms."""
    passed: list[Argument] = []
    buffers = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            buffer = backend.device.allocate(argument.nbytes)
            buffer.write(argument)
            buffers.append((buffer, argument))
            passed.append(buffer)
        else:
            passed.append(argument)
    shape = LaunchShape((*grid, 1, 1)[:3], (*block, 1, 1)[:3], shared_bytes)
    elapsed_ms = function.launch(shape, passed)
    for buffer, array in buffers:
        buffer.read(array)
        buffer.free()
    return elapsed_ms
