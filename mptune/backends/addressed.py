"""Buffers and arguments of launches, and guarded memory of this process."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import mmap
import resource
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeAlias

from mptune.backends.base import Argument, Buffer, in_words
from mptune.errors import LaunchError, OutOfMemoryError

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: The memories of a copy's source and target.
Copy: TypeAlias = Literal["HostToDevice", "DeviceToHost", "DeviceToDevice"]


class Memory(Protocol):
    """Memory of a device by place: an address, or in OpenCL a memory object and an offset.

    Memory of the host always has an address. Failures are :class:`~mptune.errors.LaunchError`.
    """

    def reserve(self, nbytes: int) -> Any:
        """Return the argument of :meth:`release`; raise :class:`~mptune.errors.OutOfMemoryError`."""

    def release(self, start: Any) -> None: ...

    def copy(self, target: Any, source: Any, nbytes: int, kind: Copy = "DeviceToDevice") -> None: ...

    def fill(self, target: Any, byte: int, nbytes: int) -> None: ...


class MemoryBuffer(Buffer):
    """Some bytes of reserved memory."""

    def __init__(self, memory: Memory, nbytes: int) -> None:
        self.nbytes = nbytes
        self.offset = 0
        self._memory = memory
        self._whole: Self | None = None  #: the buffer that contains this part
        self._start: Any = memory.reserve(nbytes)

    @property
    def start(self) -> Any:
        """The reserved memory; raises a :class:`LaunchError` after the buffer was freed."""
        start = (self._whole or self)._start
        if start is None:
            raise LaunchError(f"a buffer of {self.nbytes} bytes was used after it was freed")
        return start

    @property
    def place(self) -> Any:
        """The place of the first byte (:class:`Memory`)."""
        return self.start, self.offset

    def for_kernel(self) -> Any:
        """Return the argument of a launch."""
        return self.place

    def write(self, data: NDArray[Any]) -> None:
        self._check(data)
        self._memory.copy(self.place, data.ctypes.data, self.nbytes, "HostToDevice")

    def read(self, data: NDArray[Any]) -> None:
        self._check(data)
        self._memory.copy(data.ctypes.data, self.place, self.nbytes, "DeviceToHost")

    def copy_from(self, other: Buffer) -> None:
        if not isinstance(other, type(self)) or other.nbytes != self.nbytes:
            raise LaunchError(f"a buffer of {self.nbytes} bytes cannot be copied from {in_words(other)}")
        self._memory.copy(self.place, other.place, self.nbytes)

    def fill(self, byte: int) -> None:
        self._memory.fill(self.place, byte, self.nbytes)

    def part(self, offset: int, nbytes: int) -> Self:
        if not (0 <= offset <= offset + nbytes <= self.nbytes):
            raise LaunchError(f"bytes {offset} to {offset + nbytes} are not all inside a buffer of {self.nbytes} bytes")
        part = copy.copy(self)
        part.nbytes, part.offset, part._whole = nbytes, self.offset + offset, self._whole or self
        return part

    def free(self) -> None:
        if self._whole is None and self._start is not None:
            self._memory.release(self._start)
            self._start = None

    def _check(self, data: NDArray[Any]) -> None:
        if data.nbytes != self.nbytes or not data.flags.c_contiguous:
            layout = "" if data.flags.c_contiguous else ", not contiguous"
            raise LaunchError(f"a buffer of {self.nbytes} bytes was given an array of {data.nbytes} bytes{layout}")


class AddressBuffer(MemoryBuffer):
    """A buffer with an address."""

    @property
    def address(self) -> int:
        """The address of the first byte; raises a :class:`LaunchError` after the buffer was freed."""
        return int(self.start) + self.offset

    place = address


# -- arguments -------------------------------------------------------------------------------------

#: Bytes of an argument's slot, which hold and align the largest scalar.
SLOT: Final = 16


def values_of(function: str, arguments: Sequence[Argument], kind: type[MemoryBuffer]) -> list[Any]:
    """Return the values of a launch: buffers as :meth:`MemoryBuffer.for_kernel`, scalars as bytes."""
    import numpy as np

    values: list[Any] = []
    for i, argument in enumerate(arguments):
        if isinstance(argument, kind):
            values.append(argument.for_kernel())
        elif isinstance(argument, np.generic) and argument.nbytes <= SLOT:
            values.append(argument.tobytes())
        else:
            needed = f"a {kind.__name__} or a NumPy scalar"
            raise LaunchError(f"parameter {i} of {function} needs {needed}, given {in_words(argument)}")
    return values


def pack_arguments(
    function: str, arguments: Sequence[Argument], kind: type[AddressBuffer]
) -> tuple[ctypes.Array[ctypes.c_void_p], ctypes.Array[ctypes.c_char]]:
    """Return pointers to the arguments' values, and the values, which must outlive the launch."""
    packed = bytearray()
    for value in values_of(function, arguments, kind):
        packed += (value if isinstance(value, bytes) else value.to_bytes(8, sys.byteorder)).ljust(SLOT, b"\0")
    values = (ctypes.c_char * len(packed)).from_buffer(packed)
    first = ctypes.addressof(values)
    return (ctypes.c_void_p * len(arguments))(*range(first, first + len(packed), SLOT)), values


# -- guarded memory --------------------------------------------------------------------------------


class GuardedMemory:
    """Zeroed memory of one buffer in this process, between guard pages."""

    def reserve(self, nbytes: int) -> int:
        import numpy as np

        used = -(-max(nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        is_limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
        # Guard pages on each side: the reach of a 32-bit index of doubles, or less under a limit of the address space
        # (ulimit -v).
        for margin in (1 << 34, 1 << 20)[is_limited:]:
            with contextlib.suppress(OSError, OverflowError):
                self._memory = mmap.mmap(-1, margin + used + margin, flags, prot=0)
                start = int(np.frombuffer(self._memory, np.uint8).ctypes.data) + margin
                mprotect = ctypes.CDLL(None).mprotect
                mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
                if mprotect(start, used, mmap.PROT_READ | mmap.PROT_WRITE) == 0:
                    if used >= 1 << 22:  # huge pages, as NumPy does for its arrays
                        self._memory.madvise(mmap.MADV_HUGEPAGE, margin, used)
                    return start
                self._memory.close()
        raise OutOfMemoryError(f"{nbytes} bytes could not be allocated on the host: use smaller sizes or types")

    def release(self, address: int) -> None:  # noqa: ARG002
        self._memory.close()

    def copy(self, target: int, source: int, nbytes: int, kind: Copy = "DeviceToDevice") -> None:  # noqa: ARG002
        ctypes.memmove(target, source, nbytes)

    def fill(self, target: int, byte: int, nbytes: int) -> None:
        ctypes.memset(target, byte, nbytes)
