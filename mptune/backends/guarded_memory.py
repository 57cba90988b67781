"""Memory of this process in which a kernel that leaves its buffer faults: between addresses nobody may use."""

from __future__ import annotations

import ctypes
import functools
import mmap
import resource
import weakref
from typing import Final

from mptune.errors import OutOfMemoryError

#: Unused addresses on each side of a buffer: what an index of 32 bits reaches in doubles; less where a process is to
#: have few addresses (ulimit -v) or has no more.
_MARGIN_BYTES: Final = 1 << 34
_LEAST_MARGIN_BYTES: Final = 1 << 20
_RESERVE: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
_MAP_FAILED: Final = ctypes.c_void_p(-1).value
#: Buffers of so many bytes may lie in huge pages.
_HUGE_FROM: Final = 1 << 22


@functools.cache
def _c_library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    offset = ctypes.c_longlong
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, offset]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library


class GuardedMemory:
    """The memory of one buffer: zeroed, in pages of its own, and given back with the buffer at the latest.

    On both sides lie addresses nobody may use, as far as an index of 32 bits reaches: what a kernel does there ends it.
    """

    def allocate(self, nbytes: int) -> int:
        """Return the address of so many bytes.

        Raises:
            OutOfMemoryError: there is no room.
        """
        used = -(-max(nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        is_limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
        for margin in (_LEAST_MARGIN_BYTES,) if is_limited else (_MARGIN_BYTES, _LEAST_MARGIN_BYTES):
            start = _c_library().mmap(None, margin + used + margin, 0, _RESERVE, -1, 0)
            if start != _MAP_FAILED:
                break
        else:
            raise _no_memory(nbytes)
        self._finalizer = weakref.finalize(self, _c_library().munmap, start, margin + used + margin)
        self._finalizer.atexit = False
        if _c_library().mprotect(start + margin, used, mmap.PROT_READ | mmap.PROT_WRITE):
            self._finalizer()
            raise _no_memory(nbytes)
        if used >= _HUGE_FROM:
            # As NumPy does for its arrays.
            _c_library().madvise(start + margin, used, mmap.MADV_HUGEPAGE)
        return int(start + margin)

    def free(self, address: int) -> None:  # noqa: ARG002
        """Give the memory back."""
        self._finalizer()

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy bytes from one address to another."""
        ctypes.memmove(target, source, nbytes)

    copy_in = copy_out = copy

    def fill(self, target: int, byte: int, nbytes: int) -> None:
        """Set bytes from an address on."""
        ctypes.memset(target, byte, nbytes)


def _no_memory(nbytes: int) -> OutOfMemoryError:
    return OutOfMemoryError(
        f"{nbytes} bytes could not be allocated on the host; smaller sizes or narrower types need fewer"
    )
