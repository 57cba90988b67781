"""The sections of an ELF file, the container of cubins and of AMD's code objects (System V ABI, chapters 4 and 5)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mptune.errors import MptuneError

__all__ = ["SHT_NOBITS", "STT_OBJECT", "STT_TLS", "Section", "Symbol", "notes", "sections", "symbols"]

_BITS_64, _LITTLE_ENDIAN = 2, 1
_SHN_UNDEF: Final = 0
#: Kinds of symbols: a variable, and one that every thread has for itself.
STT_OBJECT, STT_TLS = 1, 6
_SHT_SYMTAB, _SHT_NOTE = 2, 7
#: The kind of a section that has no content in the file.
SHT_NOBITS: Final = 8
_HEADER: Final = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_NOTE: Final = struct.Struct("<III")


@dataclass(frozen=True, slots=True)
class Section:
    """One section."""

    name: str  #: its name
    kind: int  #: its type
    size: int  #: bytes it takes when loaded
    data: bytes  #: its content, empty for one without (``SHT_NOBITS``)
    link: int  #: number of the section it refers to


@dataclass(frozen=True, slots=True)
class Symbol:
    """One entry of the symbol table."""

    name: str  #: its name, possibly empty
    is_defined: bool  #: whether it is defined in this file
    kind: int  #: its type
    size: int  #: bytes of a variable or a function
    value: int = 0  #: where it is; of one that every thread has for itself, among what the thread has
    section: int = 0  #: number of the section it is in


def sections(image: bytes) -> list[Section]:
    """Return the sections in order.

    Raises:
        MptuneError: the image is no complete little-endian 64-bit ELF file.
    """
    if image[:4] != b"\x7fELF" or len(image) < _HEADER.size or tuple(image[4:6]) != (_BITS_64, _LITTLE_ENDIAN):
        raise MptuneError("the compiled binary is no 64-bit ELF file")
    fields = _HEADER.unpack_from(image)
    start, entry_size, count, names_at = fields[5], fields[10], fields[11], fields[12]
    try:
        headers = [_SECTION.unpack_from(image, start + i * entry_size) for i in range(count)]
        contents = [b"" if kind == SHT_NOBITS else _cut(image, at, size) for _, kind, _, _, at, size, *_ in headers]
        names = contents[names_at] if contents else b""
        return [
            Section(_text(names, header[0]), header[1], header[5], content, header[6])
            for header, content in zip(headers, contents, strict=True)
        ]
    except (struct.error, IndexError) as error:
        raise MptuneError(f"the compiled binary is a damaged ELF file: {error}") from error


def symbols(found: list[Section]) -> list[Symbol]:
    """Return the symbols by number.

    Raises:
        MptuneError: the symbol table is damaged.
    """
    try:
        table = next((section for section in found if section.kind == _SHT_SYMTAB), None)
        if table is None:
            return []
        names = found[table.link].data
        return [
            Symbol(_text(names, name), section != _SHN_UNDEF, info % 16, size, value, section)
            for name, info, _, section, value, size in _SYMBOL.iter_unpack(table.data)
        ]
    except (struct.error, IndexError) as error:
        raise MptuneError(f"the compiled binary has a damaged symbol table: {error}") from error


def notes(found: list[Section]) -> Iterator[tuple[str, int, bytes]]:
    """Yield owner, type and content of every note.

    Raises:
        MptuneError: a note is cut off.
    """
    for section in found:
        if section.kind != _SHT_NOTE:
            continue
        data, at = section.data, 0
        while at + _NOTE.size <= len(data):
            name_size, size, kind = _NOTE.unpack_from(data, at)
            at += _NOTE.size
            content_at = at + _padded(name_size)
            if content_at + size > len(data):
                raise MptuneError("the compiled binary has a note that is cut off")
            owner = data[at : at + name_size].rstrip(b"\0").decode(errors="replace")
            yield owner, kind, data[content_at : content_at + size]
            at = content_at + _padded(size)


def _padded(size: int) -> int:
    return (size + 3) // 4 * 4


def _cut(image: bytes, at: int, size: int) -> bytes:
    if at + size > len(image):
        raise IndexError(f"a section ends at byte {at + size} of {len(image)}")
    return image[at : at + size]


def _text(names: bytes, at: int) -> str:
    return names[at : names.index(b"\0", at)].decode(errors="replace") if at < len(names) else ""
