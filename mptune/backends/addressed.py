"""Buffers and arguments of devices whose memory has addresses, and guarded memory of this process."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import mmap
import resource
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeAlias

from mptune.backends.base import Argument, Buffer, check_array, check_part, in_words
from mptune.errors import LaunchError, OutOfMemoryError

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: The memory of a copy's source and target.
Copy: TypeAlias = Literal["HostToDevice", "DeviceToHost", "DeviceToDevice"]


class Memory(Protocol):
    """Memory by address, of the host or of a device; failures are :class:`~mptune.errors.LaunchError`."""

    def reserve(self, nbytes: int) -> int:
        """Return the address of new memory; raises :class:`~mptune.errors.OutOfMemoryError`."""

    def release(self, address: int) -> None: ...

    def copy(self, target: int, source: int, nbytes: int, kind: Copy = "DeviceToDevice") -> None: ...

    def fill(self, target: int, byte: int, nbytes: int) -> None: ...


class AddressBuffer(Buffer):
    """A buffer with an address."""

    def __init__(self, memory: Memory, nbytes: int) -> None:
        self.nbytes = nbytes
        self._memory = memory
        self._whole: AddressBuffer | None = None
        self._offset = 0
        self._address: int | None = memory.reserve(nbytes)

    @property
    def address(self) -> int:
        """The start of the memory; raises a :class:`LaunchError` once the buffer was freed."""
        if self._whole is not None:
            return self._whole.address + self._offset
        if self._address is None:
            raise LaunchError(f"a buffer of {self.nbytes} bytes was used after it was freed")
        return self._address

    def write(self, data: NDArray[Any]) -> None:
        check_array(self, data)
        self._memory.copy(self.address, data.ctypes.data, self.nbytes, "HostToDevice")

    def read(self, data: NDArray[Any]) -> None:
        check_array(self, data)
        self._memory.copy(data.ctypes.data, self.address, self.nbytes, "DeviceToHost")

    def copy_from(self, other: Buffer) -> None:
        if not isinstance(other, AddressBuffer) or other.nbytes != self.nbytes:
            raise LaunchError(f"a buffer of {self.nbytes} bytes cannot be copied from {in_words(other)}")
        self._memory.copy(self.address, other.address, self.nbytes)

    def fill(self, byte: int) -> None:
        self._memory.fill(self.address, byte, self.nbytes)

    def part(self, offset: int, nbytes: int) -> Self:
        check_part(self, offset, nbytes)
        part = copy.copy(self)
        part.nbytes, part._whole, part._offset = nbytes, self, offset
        return part

    def free(self) -> None:
        if self._whole is None and self._address is not None:
            self._memory.release(self._address)
            self._address = None


# -- arguments -------------------------------------------------------------------------------------

#: Room for the value of an argument, in bytes: that of the largest scalar, and aligned for any.
SLOT: Final = 16


def pack_arguments(
    function: str, arguments: Sequence[Argument], kind: type[AddressBuffer]
) -> tuple[ctypes.Array[ctypes.c_void_p], ctypes.Array[ctypes.c_char]]:
    """Return pointers to the arguments' values, and the values, which have to live as long as they are used."""
    import numpy as np

    packed = bytearray()
    for i, argument in enumerate(arguments):
        if isinstance(argument, kind):
            value = argument.address.to_bytes(8, sys.byteorder)
        elif isinstance(argument, np.generic) and argument.nbytes <= SLOT:
            value = argument.tobytes()
        else:
            raise no_argument(function, i, argument, kind)
        packed += value.ljust(SLOT, b"\0")
    values = (ctypes.c_char * len(packed)).from_buffer(packed)
    first = ctypes.addressof(values)
    return (ctypes.c_void_p * len(arguments))(*range(first, first + len(packed), SLOT)), values


def no_argument(function: str, i: int, given: Any, kind: type[Buffer]) -> LaunchError:
    """Return the error for an argument that is neither a buffer of a kind nor a scalar."""
    return LaunchError(
        f"parameter {i} of {function} needs a {kind.__name__} or a NumPy scalar, given {in_words(given)}"
    )


# -- guarded memory --------------------------------------------------------------------------------

#: Bytes of unused addresses on each side of a buffer: the reach of a 32-bit index of doubles; less where the process
#: may have few addresses (ulimit -v) or has no more.
_MARGINS: Final = (1 << 34, 1 << 20)


class GuardedMemory:
    """Zeroed memory of one buffer in this process, between addresses where a kernel faults."""

    def reserve(self, nbytes: int) -> int:
        import numpy as np

        used = -(-max(nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        is_limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
        for margin in _MARGINS[is_limited:]:
            with contextlib.suppress(OSError, OverflowError):
                self._memory = mmap.mmap(-1, margin + used + margin, flags, prot=0)
                start = int(np.frombuffer(self._memory, np.uint8).ctypes.data) + margin
                if _mprotect()(start, used, mmap.PROT_READ | mmap.PROT_WRITE) == 0:
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


@functools.cache
def _mprotect() -> Any:
    mprotect = ctypes.CDLL(None).mprotect
    mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return mprotect
