"""Guard zones: memory on both sides of a buffer that no kernel has any business in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mptune.backends.base import Backend, Buffer

__all__ = ["GUARD_BYTES", "GuardedBuffer", "Overrun"]

#: Of each zone: a few rows of most matrices, and a multiple of every alignment a backend promises.
GUARD_BYTES: Final = 1 << 14
#: Bytes that make a NaN of every precision, so that what is read from a zone shows in the result as well ...
_FLOAT_BYTE: Final = 0xFF
#: ... and an integer no kernel writes by accident, as -1 would be.
_INTEGER_BYTE: Final = 0xA5


@dataclass(frozen=True, slots=True)
class Overrun:
    """What a kernel wrote outside a buffer.

    Attributes:
        damaged: how many bytes of the guard zones changed.
        offset: of the one nearest to the data, in bytes from the start of the buffer; negative before it.
        itemsize: bytes in an element of the buffer.
    """

    damaged: int
    offset: int
    itemsize: int

    def __str__(self) -> str:
        element = self.offset // self.itemsize
        where = "before its first element" if self.offset < 0 else "past its last element"
        return f"{self.damaged} bytes {where}, the nearest at byte {self.offset} (element {element})"


class GuardedBuffer:
    """Device memory between two guard zones.

    Args:
        backend: allocates the memory.
        nbytes: what a kernel may use.
        dtype: of the elements.

    Attributes:
        data: what a kernel is given.
        nbytes: all of the memory, the zones included.

    Raises:
        OutOfMemoryError: there is not enough.
    """

    def __init__(self, backend: Backend, nbytes: int, dtype: np.dtype[Any]) -> None:
        self._whole: Final = backend.device.allocate(GUARD_BYTES + nbytes + GUARD_BYTES)
        self._itemsize: Final = dtype.itemsize
        self._byte: Final = _INTEGER_BYTE if dtype.kind in "iu" else _FLOAT_BYTE
        self.data: Final[Buffer] = self._whole.part(GUARD_BYTES, nbytes)
        self.nbytes: Final = self._whole.nbytes
        self._before: Final = self._whole.part(0, GUARD_BYTES)
        self._after: Final = self._whole.part(GUARD_BYTES + nbytes, GUARD_BYTES)
        for zone in (self._before, self._after):
            zone.fill(self._byte)

    def overrun(self) -> Overrun | None:
        """Return what was written into the zones since they were made, None for nothing."""
        before, after = self._changed(self._before), self._changed(self._after)
        if after.size:
            return Overrun(before.size + after.size, self.data.nbytes + int(after[0]), self._itemsize)
        if before.size:
            return Overrun(before.size, int(before[-1]) - GUARD_BYTES, self._itemsize)
        return None

    def free(self) -> None:
        """Give the memory back."""
        self._whole.free()

    def _changed(self, zone: Buffer) -> np.ndarray[Any, Any]:
        found = np.empty(GUARD_BYTES, np.uint8)
        zone.read(found)
        return np.flatnonzero(found != self._byte)
