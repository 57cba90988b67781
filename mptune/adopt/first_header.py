"""The header that libclang reads before every program: parsed once and kept, since that takes most of the time."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any, Final

from mptune.backends.binary_cache import BinaryCache

#: Variables that name further folders of headers.
_FOLDERS: Final = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
#: clang's CXTranslationUnit_Incomplete and CXTranslationUnit_ForSerialization.
_FOR_LATER: Final = 0x02 | 0x10


@functools.cache
def first_header(cindex: Any, header: Path, arguments: tuple[str, ...], options: int) -> tuple[str, ...]:
    """Return the arguments with which libclang reads a header before a program.

    The parsed header is kept in the user's cache folder. Without such a folder, it is parsed for every program.

    Args:
        cindex: libclang's binding.
        header: the header.
        arguments: of the header and of the program.
        options: of the parser.
    """
    version = cindex.conf.lib.clang_getClangVersion
    version.argtypes, version.restype = [], cindex._CXString
    cache = BinaryCache()
    given = [cindex.conf.lib.clang_getCString(version()), *arguments, *(os.environ.get(name, "") for name in _FOLDERS)]
    key = cache.key(["first header", str(header), str(options), *given])
    kept = cache.get(key)
    if kept is None or not _is_current(kept):
        cache.put(key, _parsed(cindex, header, arguments, options, cache))
        kept = cache.get(key)
    if kept is None or not _is_current(kept):
        return ("-include", str(header))
    # A file in memory, which this process keeps open: a process that is killed leaves nothing behind.
    handle = os.memfd_create("mptune-header")
    with open(handle, "wb", closefd=False) as file:
        file.write(kept.partition(b"\n")[2])
    return ("-include-pch", f"/proc/self/fd/{handle}")


def _parsed(cindex: Any, header: Path, arguments: tuple[str, ...], options: int, cache: BinaryCache) -> bytes:
    """Return a line with the files that a header consists of, followed by the parsed header; b"" if clang cannot."""
    try:
        unit = cindex.Index.create().parse(str(header), list(arguments), None, options | _FOR_LATER)
        with cache.workspace() as work:
            unit.save(str(work / "parsed"))
            content = (work / "parsed").read_bytes()
    except (cindex.TranslationUnitLoadError, cindex.TranslationUnitSaveError, OSError):
        return b""
    names = sorted({str(header), *(str(inclusion.include.name) for inclusion in unit.get_includes())})
    return json.dumps([_file(name) for name in names]).encode() + b"\n" + content


def _is_current(kept: bytes) -> bool:
    """Whether all files that a header consists of are as they were when it was parsed."""
    files = kept.partition(b"\n")[0]
    return bool(files) and all(_file(name) == [name, *was] for name, *was in json.loads(files))


def _file(name: str) -> list[Any]:
    try:
        status = Path(name).stat()
    except OSError:
        return [name]
    return [name, status.st_size, status.st_mtime_ns]
