"""What a file format is, and reading and writing the text of a space file, gzipped or not."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mptune.errors import SpaceFileError, did_you_mean
from mptune.paths import write_whole
from mptune.run import Run

__all__ = [
    "SQLITE_MAGIC", "DamagedJsonError", "Format", "load_json", "read_head", "read_text", "space_name",
    "too_much_json", "write_bytes", "write_text",
]  # fmt: skip

#: The first bytes of every SQLite file, and so of every run file.
SQLITE_MAGIC: Final = b"SQLite format 3\0"

_GZIP_MAGIC: Final = b"\x1f\x8b"
_LISTED: Final = 12
#: Bytes of a text file that are read at most, and what gzip may make of a byte: text of this kind shrinks to a
#: twentieth. A small file may shrink more.
_LARGEST_BYTES: Final = 512 << 20
_LARGEST_RATIO: Final = 50
_SMALL_BYTES: Final = 16 << 20


class DamagedJsonError(SpaceFileError):
    """Text that is not JSON, or not all of it."""


def space_name(path: Path) -> str:
    """Return the file's name without ``.gz``, ``.json`` and ``.db``: what a report calls the space."""
    name = path.name
    for suffix in (".gz", ".json", ".db"):
        name = name.removesuffix(suffix)
    return name or path.name


def read_head(path: Path, size: int = 16) -> bytes:
    """Return the first bytes of a file.

    Raises:
        SpaceFileError: it is missing (the nearest name in its folder is suggested), a folder or not readable.
    """
    try:
        with path.open("rb") as file:
            return file.read(size)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def read_text(path: Path) -> str:
    """Return the text of a file, decompressed where its content is gzip whatever its name is.

    A character cut in two at the very end is dropped, as a writer that was killed leaves it.

    Raises:
        SpaceFileError: the file is missing, empty, not readable, too large, damaged gzip or not UTF-8 text.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_BYTES + 1) if path.stat().st_size <= _LARGEST_BYTES else None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if data is None or len(data) > _LARGEST_BYTES:
        raise SpaceFileError(f"{path}: more than {_LARGEST_BYTES >> 20} MiB; no recording is as large as that")
    if data.startswith(_GZIP_MAGIC):
        data = _unzipped(path, data)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            raise SpaceFileError(f"{path}: not a text file (byte {error.start} is not UTF-8)") from error
        text = data[: error.start].decode("utf-8-sig")
    if not text.strip():
        raise SpaceFileError(f"{path}: the file is empty")
    return text


def _unzipped(path: Path, data: bytes) -> bytes:
    allowed = min(_LARGEST_BYTES, max(_SMALL_BYTES, _LARGEST_RATIO * len(data)))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            found = file.read(allowed + 1)
    except EOFError as error:
        raise SpaceFileError(f"{path}: the gzip data ends too early; the file was not copied to its end") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise SpaceFileError(f"{path}: the gzip data is damaged ({error})") from error
    if len(found) > allowed:
        raise SpaceFileError(f"{path}: its {len(data):,} bytes of gzip unpack to more than {allowed >> 20} MiB")
    return found


def load_json(path: Path, text: str) -> Any:
    """Parse JSON text.

    Raises:
        DamagedJsonError: the text is not JSON; says where.
        SpaceFileError: it is nested too deeply or holds a number too long to convert.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise DamagedJsonError(f"{path}: not valid JSON at {where}: {error.msg}") from error
    except (RecursionError, ValueError) as error:
        raise too_much_json(path, error) from error


def too_much_json(path: Path | str, error: RecursionError | ValueError) -> SpaceFileError:
    """Return what to say of JSON that is right, but more than Python reads: depth, or digits of an integer."""
    if isinstance(error, RecursionError):
        return SpaceFileError(f"{path}: the JSON is nested too deeply")
    return SpaceFileError(f"{path}: it holds an integer of thousands of digits, which no number here has")


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, gzipped when the name ends in ``.gz``; equal text gives equal bytes.

    Raises:
        SpaceFileError: the file cannot be written.
    """
    data = text.encode()
    write_bytes(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes as they are, all or none of them.

    Raises:
        SpaceFileError: the file cannot be written, or is a run file, whose trials would be lost.
    """
    try:
        if path.is_file() and read_head(path).startswith(SQLITE_MAGIC):
            raise SpaceFileError(f"{path} is a run file: give what is written another name")
        write_whole(path, data)
    except OSError as error:
        raise SpaceFileError(f"cannot write {path}: {error.strerror or error}") from error


def _unreadable(path: Path, error: OSError | ValueError) -> SpaceFileError:
    if isinstance(error, FileNotFoundError):
        return SpaceFileError(f"no file {path}{did_you_mean(path.name, _siblings(path.parent), path.parent)}")
    if isinstance(error, IsADirectoryError):
        names = _siblings(path)
        listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
        return SpaceFileError(f"{path} is a folder, not a space file; it holds: {listed or 'nothing'}")
    reason = error.strerror if isinstance(error, OSError) else None
    return SpaceFileError(f"cannot read {path}: {reason or error}")


def _siblings(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


@dataclass(frozen=True, slots=True)
class Format:
    """A file format; declared by a module of this folder, it is known. A file is data: reading executes nothing.

    Attributes:
        name: what ``export --format`` calls it, and the suffix of a file name that chooses it.
        title: what messages call a file of it.
        recognises: whether a document is of this format, by its content: the object that JSON text holds; of any text
            that does not begin with "{", the text itself.
        read: returns such a document as a run. The path names it in messages. Raises SpaceFileError if it is damaged
            or records nothing.
        read_damaged: returns what can be read of a text that is no JSON to its end, None if it is of another format.
        write: returns a run in this format. Raises SpaceFileError if it has no trial.
    """

    name: str
    title: str
    recognises: Callable[[Any], bool] = lambda _: False
    read: Callable[[Path, Any], Run] | None = None
    read_damaged: Callable[[Path, str], Run | None] = lambda *_: None
    write: Callable[[Run], str | bytes] | None = None
