"""File formats, and reading and writing text files, gzipped or not."""

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

__all__ = ["DamagedJsonError", "Format", "is_run_file", "load_json", "read_text", "space_name", "write"]

#: The first bytes of every SQLite file, and so of every run file.
_SQLITE_MAGIC: Final = b"SQLite format 3\0"
_GZIP_MAGIC: Final = b"\x1f\x8b"
#: Names of a folder's files that a message lists.
_LISTED: Final = 12
#: Bytes of a text file that are read at most, and what gzip may make of a byte: text of this kind shrinks to a
#: twentieth. A small file may shrink more.
_LARGEST_BYTES: Final = 512 << 20
_LARGEST_RATIO: Final = 50
_SMALL_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Format:
    """A file format; declared by a module of this folder, it is known. A file is data: reading executes nothing.

    Attributes:
        name: what ``export --format`` calls it, and the suffix of a file name that chooses it.
        title: what messages call a file of it.
        read: returns a document as a run, None if it is of another format. The document is the object that JSON text
            holds; of any other text, damaged JSON included, the text itself. The path names it in messages. Raises
            SpaceFileError if it is damaged or records nothing.
        write: returns a run in this format. Raises SpaceFileError if it has no trial.
    """

    name: str
    title: str
    read: Callable[[Path, Any], Run | None] | None = None
    write: Callable[[Run], str | bytes] | None = None


class DamagedJsonError(SpaceFileError):
    """Text that is not JSON, or not all of it."""


def space_name(path: Path) -> str:
    """Return the file's name without ``.gz``, ``.json`` and ``.db``: what a report calls the space."""
    name = path.name
    for suffix in (".gz", ".json", ".db"):
        name = name.removesuffix(suffix)
    return name or path.name


def is_run_file(path: str | Path) -> bool:
    """Return whether a file is a run file, or what is left of one.

    Raises:
        SpaceFileError: it is missing (the nearest name in its folder is suggested), a folder or not readable.
    """
    return _bytes_of(Path(path), len(_SQLITE_MAGIC)) == _SQLITE_MAGIC


def read_text(path: Path) -> str:
    """Return the text of a file, decompressed where its content is gzip whatever its name is.

    A character cut in two at the very end is dropped, as a writer that was killed leaves it.

    Raises:
        SpaceFileError: the file is missing, empty, not readable, too large, damaged gzip or not UTF-8 text.
    """
    data = _bytes_of(path, _LARGEST_BYTES + 1)
    if len(data) > _LARGEST_BYTES:
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


def _bytes_of(path: Path, size: int) -> bytes:
    """Return the first bytes of a file."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except FileNotFoundError as error:
        raise SpaceFileError(f"no file {path}{did_you_mean(path.name, _names_in(path.parent), path.parent)}") from error
    except IsADirectoryError as error:
        names = _names_in(path)
        listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
        raise SpaceFileError(f"{path} is a folder, not a space file; it holds: {listed or 'nothing'}") from error
    except (OSError, ValueError) as error:
        raise SpaceFileError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


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
        deep = isinstance(error, RecursionError)
        what = "the JSON is nested too deeply" if deep else "it holds an integer of thousands of digits"
        raise SpaceFileError(f"{path}: {what}") from error


def write(path: Path, content: str | bytes) -> None:
    """Write a file, all of it or nothing; text is gzipped if the name ends in ``.gz``, equal text to equal bytes.

    Raises:
        SpaceFileError: the file cannot be written, or is a run file, whose trials would be lost.
    """
    data = content.encode() if isinstance(content, str) else content
    if isinstance(content, str) and path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    try:
        if path.is_file() and is_run_file(path):
            raise SpaceFileError(f"{path} is a run file: give what is written another name")
        write_whole(path, data)
    except OSError as error:
        raise SpaceFileError(f"cannot write {path}: {error.strerror or error}") from error
