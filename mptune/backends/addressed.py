"""Buffers and arguments of devices whose memory has addresses."""

from __future__ import annotations

import copy
import ctypes
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from mptune.backends.base import Argument, Buffer, check_part, in_words
from mptune.errors import LaunchError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Memory(Protocol):
    """Memory by address, of the host or of a device. Failures are :class:`~mptune.errors.LaunchError`."""

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory; raises :class:`~mptune.errors.OutOfMemoryError`."""

    def free(self, address: int) -> None:
        """Give memory back."""

    def copy_in(self, target: int, source: int, nbytes: int) -> None:
        """Copy from an address of the host."""

    def copy_out(self, target: int, source: int, nbytes: int) -> None:
        """Copy to an address of the host."""

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within this memory."""

    def fill(self, target: int, byte: int, nbytes: int) -> None:
        """Set bytes to one value."""


class AddressBuffer(Buffer):
    """A buffer with an address."""

    def __init__(self, memory: Memory, nbytes: int) -> None:
        self.nbytes = nbytes
        self._memory = memory
        self._whole: AddressBuffer | None = None
        self._offset = 0
        self._address: int | None = memory.allocate(nbytes)

    @property
    def address(self) -> int:
        """Where the memory starts.

        Raises:
            LaunchError: the buffer was freed.
        """
        if self._whole is not None:
            return self._whole.address + self._offset
        if self._address is None:
            raise LaunchError(f"a buffer of {self.nbytes} bytes was used after it was freed")
        return self._address

    def write(self, data: NDArray[Any]) -> None:
        self._memory.copy_in(self.address, self._host_address(data), self.nbytes)

    def read(self, data: NDArray[Any]) -> None:
        self._memory.copy_out(self._host_address(data), self.address, self.nbytes)

    def copy_from(self, other: Buffer) -> None:
        if (
            not isinstance(other, AddressBuffer)
            or type(other._memory) is not type(self._memory)
            or other.nbytes != self.nbytes
        ):
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
            self._memory.free(self._address)
            self._address = None

    def _host_address(self, data: NDArray[Any]) -> int:
        if data.nbytes != self.nbytes or not data.flags.c_contiguous:
            layout = "" if data.flags.c_contiguous else ", not contiguous"
            raise LaunchError(f"a buffer of {self.nbytes} bytes was given an array of {data.nbytes} bytes{layout}")
        return int(data.ctypes.data)


#: Room for the value of an argument, in bytes: that of the largest scalar, and aligned for any.
SLOT: Final = 16


def pack_arguments(
    function: str, arguments: Sequence[Argument], kind: type[AddressBuffer]
) -> tuple[ctypes.Array[ctypes.c_void_p], ctypes.Array[ctypes.c_char]]:
    """Return pointers to the arguments' values, and the values, which have to live as long as they are used.

    Raises:
        LaunchError: one is neither a buffer of that kind nor a scalar.
    """
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


def no_argument(function: str, i: int, given: Any, kind: type[AddressBuffer]) -> LaunchError:
    """Return the error for what is neither a buffer of a kind nor a scalar."""
    return LaunchError(
        f"parameter {i} of {function} needs a {kind.__name__} or a NumPy scalar, given {in_words(given)}"
    )
