"""Resources of a function in a cubin.

The compiler notes register counts and stack frames of all functions in section ``.nv.info``, a sequence of attributes:
a byte each for format and number, then two bytes of value or of length. Statically allocated shared memory is the size
of section ``.nv.shared.<function>``. What these hold was compared with ``cuobjdump --dump-resource-usage`` and with
``ptxas --verbose`` from sm_75 to sm_120.
"""

from __future__ import annotations

import struct
from typing import Final

from mptune.errors import MptuneError
from mptune.resources.elf import Section, sections, symbol_names
from mptune.resources.resources import Resources

__all__ = ["RESERVED_SHARED_BYTES", "read_cubin"]

#: Shared memory the system keeps of each block from compute capability 8.0 on.
RESERVED_SHARED_BYTES: Final = 1024

#: From compute capability 9.0 on the compiler counts it as the function's own, and says so by this section.
_RESERVED_SECTION: Final = ".nv.shared.reserved.0"
_WITH_LENGTH: Final = 4
_FRAME_SIZE, _REGISTER_COUNT = 0x11, 0x2F


def read_cubin(image: bytes, function: str) -> Resources:
    """Return what a function takes.

    Args:
        image: the cubin.
        function: name of the ``__global__`` function.

    Raises:
        MptuneError: the image is no cubin, or it does not hold the function.
    """
    found = sections(image)
    by_name = {section.name: section for section in found}
    names = symbol_names(found)
    noted = _attributes(by_name.get(".nv.info"))
    of_function = {
        number: value for number, symbol, value in noted if symbol < len(names) and names[symbol] == function
    }
    if _REGISTER_COUNT not in of_function:
        raise MptuneError(f"the cubin does not say how many registers {function!r} takes")
    shared = by_name.get(f".nv.shared.{function}")
    reserved = RESERVED_SHARED_BYTES if _RESERVED_SECTION in by_name else 0
    return Resources(
        registers=of_function[_REGISTER_COUNT],
        local_bytes=of_function.get(_FRAME_SIZE, 0),
        shared_bytes=max(0, shared.size - reserved) if shared is not None else 0,
    )


def _attributes(section: Section | None) -> list[tuple[int, int, int]]:
    """Return number, symbol and value of the attributes that have the last two."""
    if section is None:
        return []
    found, data, at = [], section.data, 0
    while at + 4 <= len(data):
        form, number, length = struct.unpack_from("<BBH", data, at)
        at += 4
        if form != _WITH_LENGTH:
            continue
        if length == 8 and at + 8 <= len(data):
            found.append((number, *struct.unpack_from("<II", data, at)))
        at += length
    return found
