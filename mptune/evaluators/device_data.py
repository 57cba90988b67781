"""A kernel's arguments on the device: typed buffers kept under a byte budget, poisoned and restored."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.backends.base import Argument as LaunchArgument
from mptune.backends.base import Backend, Buffer
from mptune.buffers import DataManager
from mptune.errors import OutOfMemoryError
from mptune.kernel import Argument, Role
from mptune.precision import Precision
from mptune.space.configuration import Configuration

__all__ = ["BoundArguments", "DeviceData", "OutputBuffer"]

_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class OutputBuffer:
    """An output on the device and the type it is stored in."""

    argument: Argument
    precision: Precision | None
    buffer: Buffer


@dataclass(frozen=True, slots=True)
class BoundArguments:
    """What one configuration's launches are given.

    Attributes:
        launch: device buffers and scalars in the order of the kernel's signature.
        outputs: the buffers the kernel writes.
        pristine: for each inout buffer, the copy it is restored from.
    """

    launch: Sequence[LaunchArgument]
    outputs: tuple[OutputBuffer, ...]
    pristine: tuple[tuple[Buffer, Buffer], ...]

    def restore(self) -> None:
        """Give every inout buffer its initial values back."""
        for working, original in self.pristine:
            working.copy_from(original)


class DeviceData:
    """Keeps typed copies of a kernel's buffers on a device, the least recently used ones leaving first.

    Args:
        backend: allocates the buffers.
        data: supplies the values in every type.
        budget_bytes: device memory to keep; what one configuration needs is always allowed.
    """

    def __init__(self, backend: Backend, data: DataManager, budget_bytes: int) -> None:
        self._backend = backend
        self._data = data
        self._budget_bytes = budget_bytes
        self._buffers: OrderedDict[_Key, Buffer] = OrderedDict()

    def bind(self, configuration: Configuration) -> BoundArguments:
        """Return the arguments of a configuration; read-only buffers are uploaded only the first time.

        Raises:
            OutOfMemoryError: the device cannot hold them.
        """
        used: set[_Key] = set()
        launch: list[LaunchArgument] = []
        outputs: list[OutputBuffer] = []
        pristine: list[tuple[Buffer, Buffer]] = []
        for argument in self._data.kernel.arguments:
            precision = self._data.kernel.precision_of(argument, configuration)
            if argument.role is Role.SCALAR:
                launch.append(self._data.scalar(argument, precision))
                continue
            buffer = self._buffer(argument, precision, "read" if argument.role is Role.IN else "write", used)
            launch.append(buffer)
            if argument.role is Role.INOUT:
                pristine.append((buffer, self._buffer(argument, precision, "read", used)))
            if argument.is_output:
                outputs.append(OutputBuffer(argument, precision, buffer))
        return BoundArguments(launch, tuple(outputs), tuple(pristine))

    def poison(self, bound: BoundArguments) -> None:
        """Fill pure outputs with the poison pattern, so that an element never written shows."""
        for output in bound.outputs:
            if output.argument.role is Role.OUT:
                output.buffer.write(self._data.poisoned(output.argument, output.precision))

    def read_outputs(self, bound: BoundArguments) -> dict[str, NDArray[Any]]:
        """Copy the outputs to the host, in the types they are stored in."""
        outputs: dict[str, NDArray[Any]] = {}
        for output in bound.outputs:
            array = np.empty(
                self._data.shape_of(output.argument), self._data.dtype_of(output.argument, output.precision)
            )
            output.buffer.read(array)
            outputs[output.argument.name] = array
        return outputs

    def unwritten(self, bound: BoundArguments, outputs: Mapping[str, NDArray[Any]]) -> dict[str, int]:
        """Return by output how many elements still hold the poison pattern, where there are any."""
        counts = {
            o.argument.name: self._data.unwritten(o.argument, outputs[o.argument.name])
            for o in bound.outputs
            if o.argument.role is Role.OUT
        }
        return {name: count for name, count in counts.items() if count}

    def free(self) -> None:
        """Give all device memory back."""
        while self._buffers:
            self._buffers.popitem()[1].free()

    def _buffer(self, argument: Argument, precision: Precision | None, purpose: str, used: set[_Key]) -> Buffer:
        key = (argument.name, precision.name if precision else "", purpose)
        used.add(key)
        if key in self._buffers:
            self._buffers.move_to_end(key)
            return self._buffers[key]
        shape, dtype = self._data.shape_of(argument), self._data.dtype_of(argument, precision)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self._make_room(nbytes, used, self._budget_bytes)
        try:
            buffer = self._backend.allocate(nbytes)
        except OutOfMemoryError:
            # What other configurations left here must not decide whether this one fits.
            self._make_room(nbytes, used, 0)
            buffer = self._backend.allocate(nbytes)
        if purpose == "read":
            buffer.write(self._data.typed(argument, precision))
        self._buffers[key] = buffer
        return buffer

    def _make_room(self, nbytes: int, used: set[_Key], budget_bytes: int) -> None:
        held = sum(buffer.nbytes for buffer in self._buffers.values())
        for key in [key for key in self._buffers if key not in used]:
            if held + nbytes <= budget_bytes:
                return
            buffer = self._buffers.pop(key)
            held -= buffer.nbytes
            buffer.free()
