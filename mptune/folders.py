"""Folders mptune uses: what ships with it, and what it keeps between runs; and files that are written whole."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

__all__ = ["bundled_folder", "cache_folder", "write_whole"]


def bundled_folder(name: str) -> Path:
    """Return the folder ``kernels``, ``templates`` or ``references`` that ships with mptune.

    In an installed wheel it lies inside the package, in a source checkout beside it.
    """
    package = Path(__file__).resolve().parent
    inside = package / name
    return inside if inside.is_dir() else package.parent / name


def cache_folder(name: str) -> Path | None:
    """Return a folder of mptune's cache, which may not exist yet; None if the user has no home directory.

    The cache is ``$MPTUNE_CACHE_DIR``, else ``mptune`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.
    """
    if own := os.environ.get("MPTUNE_CACHE_DIR"):
        return Path(own) / name
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "mptune" / name
    try:
        return Path.home() / ".cache" / "mptune" / name
    except RuntimeError:
        return None


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there complete or not at all; one that was there before is replaced at the end.

    What is no regular file (a pipe, a terminal) is written to as it is.

    Raises:
        OSError: it cannot be written.
    """
    path = path.resolve()
    try:
        before = path.stat()
    except FileNotFoundError:
        before = None
    if before is not None and not stat.S_ISREG(before.st_mode):
        path.write_bytes(data)
        return
    if before is not None:
        # A file that must not be written is not replaced either.
        os.close(os.open(path, os.O_WRONLY))
    new = path.with_name(f".{path.name[:100]}.{os.getpid()}.new")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(data)
            if before is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
        new.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
