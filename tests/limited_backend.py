"""A backend as limited as one for OpenCL is: the host's, behind an interface that has less.

- Memory has no addresses: a part is a sub-buffer, given to a kernel only at offsets the device allows.
- Modules have no symbols: constants are passed as further buffers.
- The compiler reads another dialect: ``KERNEL`` instead of ``__global__``, and no memory declared outside functions.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from numpy.typing import NDArray

from mptune.backends.base import (
    Argument,
    Availability,
    Backend,
    Binary,
    Buffer,
    CompileOptions,
    Compiler,
    Device,
    DeviceInfo,
    Function,
)
from mptune.backends.host import HostBackend
from mptune.cpp.prelude import prelude
from mptune.errors import LaunchError
from mptune.kernel import LaunchShape

__all__ = ["LimitedBackend"]

#: ``__constant__ double factor[2][3];``, but not one with a value, which is part of the code.
_CONSTANT = re.compile(r"__constant__\s+([\w ]+?)\s+(\w+)((?:\[[^\]]*\])+)\s*;")
_DECLARED = re.compile(r"static_assert\(mptune_declared::(holds|fits)<.*?\);", re.DOTALL)
_NAMES = "// constants:"


class LimitedCompiler(Compiler):
    """Translates a source and has the host's compiler read it."""

    def __init__(self) -> None:
        self._host = HostBackend().compiler

    def translated(self, source: str) -> str:
        body = source.removeprefix(prelude())
        constants = _CONSTANT.findall(body)
        # What is said of an array that is a parameter now does not hold.
        body = _DECLARED.sub("", _CONSTANT.sub("", body))
        parameters = ""
        for type_name, name, extents in constants:
            rest = extents.partition("]")[2]
            parameters += f", const {type_name} " + (f"(*{name}){rest}" if rest else f"*{name}")
        body = re.sub(r"(__global__[^(]*\([^)]*)\)", rf"\1{parameters})", body, count=1)
        body = body.replace("__global__", "KERNEL")
        return (
            f"{prelude()}\n#define KERNEL __global__\n{body}\n{_NAMES} {' '.join(name for _, name, _ in constants)}\n"
        )

    def compile(self, source: str, function: str, options: CompileOptions) -> Binary:
        text = self.translated(source)
        assert "__global__" not in text.removeprefix(f"{prelude()}\n#define KERNEL __global__\n")
        names = tuple(text.rpartition(_NAMES)[2].split())
        binary = self._host.compile(text, function, options)
        return dataclasses.replace(binary, image=(binary.image, names))

    def identity(self, options: CompileOptions) -> tuple[str, ...]:
        return self._host.identity(options)

    def versions(self) -> Mapping[str, str]:
        return self._host.versions()


class LimitedBuffer(Buffer):
    """A handle: the memory behind it, and where in it the buffer is."""

    def __init__(self, memory: Any, offset: int, nbytes: int) -> None:
        self.nbytes = nbytes
        self._memory = memory
        self._offset = offset

    def write(self, data: NDArray[Any]) -> None:
        self._memory.part(self._offset, self.nbytes).write(data)

    def read(self, data: NDArray[Any]) -> None:
        self._memory.part(self._offset, self.nbytes).read(data)

    def copy_from(self, other: Buffer) -> None:
        assert isinstance(other, LimitedBuffer)
        self._memory.part(self._offset, self.nbytes).copy_from(other._memory.part(other._offset, other.nbytes))

    def fill(self, byte: int) -> None:
        self._memory.part(self._offset, self.nbytes).fill(byte)

    def part(self, offset: int, nbytes: int) -> LimitedBuffer:
        if not (0 <= offset <= offset + nbytes <= self.nbytes):
            raise LaunchError(f"bytes {offset} to {offset + nbytes} are not all inside a buffer of {self.nbytes} bytes")
        # There is no sub-buffer of a sub-buffer: it is one of the whole.
        return LimitedBuffer(self._memory, self._offset + offset, nbytes)

    def free(self) -> None:
        self._memory.free()

    def for_kernel(self) -> Buffer:
        """Return what a kernel is given."""
        if self._offset % LimitedDevice.part_alignment_bytes:
            raise LaunchError(f"a sub-buffer at byte {self._offset} is not aligned")
        part: Buffer = self._memory.part(self._offset, self.nbytes)
        return part


class LimitedFunction(Function):
    """A function that passes its constants as buffers."""

    def __init__(self, function: Function, names: Sequence[str], device: Device) -> None:
        self._function = function
        self._device = device
        self._constants: dict[str, Buffer | None] = dict.fromkeys(names)

    def set_constant(self, name: str, data: NDArray[Any]) -> None:
        if name not in self._constants:
            raise LaunchError(f"there is no __constant__ array {name!r}")
        buffer = self._constants[name] or self._device.allocate(data.nbytes)
        buffer.write(data)
        self._constants[name] = buffer

    def read_constant(self, name: str, data: NDArray[Any]) -> None:
        buffer = self._constants.get(name)
        if buffer is None:
            raise LaunchError(f"there is no __constant__ array {name!r}")
        buffer.read(data)

    def launch(self, shape: LaunchShape, arguments: Sequence[Argument]) -> float:
        passed = [a.for_kernel() if isinstance(a, LimitedBuffer) else a for a in arguments]
        constants = [buffer for buffer in self._constants.values() if buffer is not None]
        return self._function.launch(shape, [*passed, *constants])

    def unload(self) -> None:
        self._function.unload()


class LimitedDevice(Device):
    """The host, whose memory is behind handles."""

    part_alignment_bytes: ClassVar[int] = 256

    def __init__(self) -> None:
        self._host = HostBackend(workers=2).device

    def describe(self) -> DeviceInfo:
        return dataclasses.replace(self._host.describe(), backend=LimitedBackend.name)

    def load(self, binary: Binary) -> LimitedFunction:
        if isinstance(binary.image, bytes):
            raise LaunchError(f"this is no binary of {LimitedBackend.name}")
        image, names = binary.image
        return LimitedFunction(self._host.load(dataclasses.replace(binary, image=image)), names, self._host)

    def allocate(self, nbytes: int) -> LimitedBuffer:
        return LimitedBuffer(self._host.allocate(nbytes), 0, nbytes)

    def facts(self) -> Mapping[str, Any]:
        return self._host.facts()


class LimitedBackend(Backend):
    """The host with the limits of OpenCL."""

    name: ClassVar[str] = "limited"

    def __init__(self) -> None:
        self.compiler = LimitedCompiler()
        self.device = LimitedDevice()

    @classmethod
    def availability(cls) -> Availability:
        return HostBackend.availability()
