"""The process that is a simulated device: its memory and its modules are here, and what runs runs here.

The process that uses the device is told addresses that mean nothing to it. It has the pages of allocations elsewhere.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

__all__ = ["ARENA", "GUARD_BYTES", "serve"]

#: Where allocations begin: no system puts anything there by itself.
ARENA: Final = 1 << 45
#: Addresses without memory between two of them.
GUARD_BYTES: Final = 1 << 32
_MAP_FIXED_NOREPLACE: Final = 0x100000
_MOST_PARAMETERS: Final = 256
_RTLD_DL_SYMENT: Final = 1
_STT_OBJECT: Final = 1
#: As long as the longest scalar, and aligned for it.
_SLOT: Final = 16


class _Origin(ctypes.Structure):
    _fields_ = (
        ("path", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class _Symbol(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_uint32),
        ("info", ctypes.c_ubyte),
        ("other", ctypes.c_ubyte),
        ("section", ctypes.c_uint16),
        ("value", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    )


class _Device:
    def __init__(self) -> None:
        # Not every library names the one it takes exp from.
        ctypes.CDLL("libm.so.6", mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        self._c = ctypes.CDLL(None)
        self._c.mmap.restype = ctypes.c_void_p
        self._c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *3 * [ctypes.c_int], ctypes.c_longlong]
        self._c.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._modules: list[ctypes.CDLL] = []

    def map(self, path: str, address: int, nbytes: int) -> bool:
        """Make a file memory at an address; say whether that went well."""
        file = os.open(path, os.O_RDWR)
        try:
            access = mmap.PROT_READ | mmap.PROT_WRITE
            return bool(
                self._c.mmap(address, nbytes, access, mmap.MAP_SHARED | _MAP_FIXED_NOREPLACE, file, 0) == address
            )
        finally:
            os.close(file)

    def unmap(self, address: int, nbytes: int) -> None:
        self._c.munmap(address, nbytes)

    def load(self, image: bytes) -> int | None:
        """Open a library; return its number, None if it is none."""
        # It stays open: the loader would take another one that gets its inode for the same.
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(image)
            file.flush()
            try:
                self._modules.append(ctypes.CDLL(file.name, mode=os.RTLD_NOW | os.RTLD_LOCAL))
            except OSError:
                return None
        return len(self._modules) - 1

    def describe(self, module: int, function: str) -> tuple[list[int], int] | None:
        """Return the bytes of each parameter, negative for a pointer, and the threads of a block at most.

        None if there is no such function.
        """
        try:
            describe = self._modules[module][f"simulated_describe_{function}"]
        except AttributeError:
            return None
        codes = (ctypes.c_int * _MOST_PARAMETERS)()
        threads = ctypes.c_uint.in_dll(self._modules[module], f"simulated_bounds_{function}")
        return list(codes[: describe(codes)]), int(threads.value)

    def symbol(self, module: int, name: str) -> tuple[int, int] | None:
        """Return address and size of a variable; None if there is none."""
        try:
            address = ctypes.addressof(ctypes.c_char.in_dll(self._modules[module], name))
        except ValueError:
            return None
        origin, symbol = _Origin(), ctypes.POINTER(_Symbol)()
        self._c.dladdr1(ctypes.c_void_p(address), ctypes.byref(origin), ctypes.byref(symbol), _RTLD_DL_SYMENT)
        is_variable = symbol.contents.info % 16 == _STT_OBJECT
        return (address, int(symbol.contents.size)) if is_variable else None

    def read(self, address: int, nbytes: int) -> bytes:
        return ctypes.string_at(address, nbytes)

    def write(self, address: int, data: bytes) -> None:
        ctypes.memmove(address, data, len(data))

    def launch(
        self,
        module: int,
        function: str,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        values: Sequence[bytes],
    ) -> int:
        """Run a grid; return a negative number if that could not be."""
        slots = (ctypes.c_char * (_SLOT * len(values))).from_buffer(
            bytearray(b"".join(value.ljust(_SLOT, b"\0") for value in values))
        )
        first = ctypes.addressof(slots)
        pointers = (ctypes.c_void_p * len(values))(*range(first, first + len(slots), _SLOT))
        library = self._modules[module]
        library.simulated_poison()
        launch = library[f"simulated_launch_{function}"]
        launch.restype = ctypes.c_longlong
        extents = ctypes.c_uint * 3
        return int(launch(pointers, extents(*grid), extents(*block), ctypes.c_uint(shared_bytes)))


def serve(channel: Connection) -> None:
    """Do what is asked for, one after the other."""
    device = _Device()
    while True:
        name, *arguments = channel.recv()
        answer: Any = getattr(device, name)(*arguments)
        channel.send(answer)
