"""What a compiled function takes of a multiprocessor, read from a cubin or from an AMD code object.

In a cubin the compiler notes register counts and stack frames of all functions in section ``.nv.info``, a sequence of
attributes: a byte each for format and number, then two bytes of value or of length. Statically allocated shared memory
is the size of section ``.nv.shared.<function>``. This was compared with ``cuobjdump --dump-resource-usage`` and with
``ptxas --verbose`` from sm_75 to sm_120.

In a code object the ELF note ``NT_AMDGPU_METADATA`` is a MessagePack map with one entry for each kernel (LLVM, User
Guide for AMDGPU Backend, "Code Object V3 Metadata" and later).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from mptune.errors import MptuneError
from mptune.resources.elf import Section, notes, sections, symbols

__all__ = ["RESERVED_SHARED_BYTES", "Resources", "read_code_object", "read_cubin", "unpack"]

#: Shared memory the system keeps of each block from compute capability 8.0 on.
RESERVED_SHARED_BYTES: Final = 1024

#: From compute capability 9.0 on the compiler counts it as the function's own, and says so by this section.
_RESERVED_SECTION: Final = ".nv.shared.reserved.0"
_WITH_LENGTH: Final = 4
_FRAME_SIZE, _REGISTER_COUNT = 0x11, 0x2F

_NT_AMDGPU_METADATA: Final = 32
#: Types of MessagePack that are a number: their first byte and their format.
_NUMBERS: Final = {
    0xCA: ">f", 0xCB: ">d",
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
#: The other types by their first byte, where a length of this format follows.
_SIZED: Final = {
    0xC4: ("text", ">B"), 0xC5: ("text", ">H"), 0xC6: ("text", ">I"),
    0xD9: ("text", ">B"), 0xDA: ("text", ">H"), 0xDB: ("text", ">I"),
    0xDC: ("list", ">H"), 0xDD: ("list", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I"),
}  # fmt: skip
_MOST_NESTED: Final = 32


@dataclass(frozen=True, slots=True)
class Resources:
    """What a compiled function takes."""

    registers: int  #: 32-bit registers of a thread; on AMD vector registers, those for matrices included
    local_bytes: int  #: memory of a thread for what its registers cannot hold: spilled ones, arrays, the stack
    shared_bytes: int  #: statically allocated shared memory of a block
    scalar_registers: int = 0  #: scalar registers of a wavefront (AMD only)
    spilled_registers: int | None = None  #: registers moved to memory; None if the binary does not say (NVIDIA)
    warp_threads: int = 32  #: threads that go together, 32 or 64


# -- cubins ---------------------------------------------------------------------------------------------


def read_cubin(image: bytes, function: str) -> Resources:
    """Return what a ``__global__`` function of a cubin takes.

    Raises:
        MptuneError: the image is no cubin, or it does not hold the function.
    """
    found = sections(image)
    by_name = {section.name: section for section in found}
    names = [symbol.name for symbol in symbols(found)]
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


# -- code objects ---------------------------------------------------------------------------------------


def read_code_object(image: bytes, function: str) -> Resources:
    """Return what a ``__global__`` function of a code object, or of a bundle of one, takes.

    Raises:
        MptuneError: the image is no code object, or it does not hold the function.
    """
    found = sections(image[max(0, image.find(b"\x7fELF")) :])
    content = next((c for owner, kind, c in notes(found) if (owner, kind) == ("AMDGPU", _NT_AMDGPU_METADATA)), None)
    if content is None:
        raise MptuneError("the code object has no metadata")
    try:
        kernels = {kernel[".name"]: kernel for kernel in unpack(content)["amdhsa.kernels"]}
        if function not in kernels:
            raise MptuneError(f"the code object has no kernel {function!r}")
        kernel = kernels[function]
        return Resources(
            registers=int(kernel[".vgpr_count"]),
            local_bytes=int(kernel[".private_segment_fixed_size"]),
            shared_bytes=int(kernel[".group_segment_fixed_size"]),
            scalar_registers=int(kernel[".sgpr_count"]),
            spilled_registers=int(kernel.get(".vgpr_spill_count", 0)) + int(kernel.get(".sgpr_spill_count", 0)),
            warp_threads=int(kernel[".wavefront_size"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MptuneError(f"the code object's metadata cannot be read: {error!r}") from error


def unpack(data: bytes) -> Any:
    """Return the value of a MessagePack text.

    Raises:
        ValueError: it is cut off, nested too deeply, or has a type that metadata has no use for.
    """
    try:
        return _Reader(data).value()
    except (struct.error, IndexError) as error:
        raise ValueError(f"cut off ({error})") from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self, depth: int = 0) -> Any:
        if depth > _MOST_NESTED:
            raise ValueError("nested too deeply")
        kind = self._data[self._at]
        self._at += 1
        if kind < 0x80 or kind >= 0xE0:
            return kind if kind < 0x80 else kind - 0x100
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind < 0xC0:
            what = "map" if kind < 0x90 else "list" if kind < 0xA0 else "text"
            length = kind & (0x1F if what == "text" else 0x0F)
        elif kind in _SIZED:
            what, form = _SIZED[kind]
            length = self._number(form)
        else:
            raise ValueError(f"unknown type 0x{kind:02x}")
        if what == "map":
            return {self._key(depth): self.value(depth + 1) for _ in range(length)}
        if what == "list":
            return [self.value(depth + 1) for _ in range(length)]
        return self._text(length)

    def _number(self, form: str) -> Any:
        (number,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return number

    def _text(self, length: int) -> str:
        end = self._at + length
        if end > len(self._data):
            raise IndexError("text")
        text = self._data[self._at : end].decode(errors="replace")
        self._at = end
        return text

    def _key(self, depth: int) -> str | int:
        key = self.value(depth + 1)
        if not isinstance(key, str | int):
            raise ValueError(f"a key is {key!r}")
        return key
