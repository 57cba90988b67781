"""Folders mptune uses: what ships with it, and what it keeps between runs; and files that are written whole."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

_FOR_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def bundled_folder(name: str) -> Path:
    """Return the folder ``applications``, ``kernels``, ``templates`` or ``references`` that ships with mptune.

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


def own_folder(path: Path) -> Path:
    """Make a folder if need be, and return its real path if nobody else can change what lies in it.

    What is loaded as code, or believed, is kept only in such folders. All of the way to it counts: who can rename a
    folder above can put another in its place. In one with the sticky bit, such as ``/tmp``, only owners can. A folder
    above may be written by its group, which on many systems is the user alone.
    """
    missing = [folder for folder in (path.absolute(), *path.absolute().parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    real = path.resolve(strict=True)
    status = real.stat()
    if status.st_uid == os.geteuid() and status.st_mode & _FOR_OTHERS:
        real.chmod(stat.S_IMODE(status.st_mode) & ~_FOR_OTHERS)  # as a generous umask left it
    for folder in (real, *real.parents):
        status = folder.stat()
        owners = {os.geteuid()} if folder == real else {os.geteuid(), 0}
        is_open = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        # Whoever owns the root folder of a container is not told by its number.
        if is_open or (status.st_uid not in owners and folder != folder.parent):
            raise PermissionError(f"{folder} can be changed by others")
    return real


def is_own(path: Path) -> bool:
    """Whether a file in a folder of the user's own is a regular one that nobody else can write."""
    try:
        open_own(path).close()
    except OSError:
        return False
    return True


def open_own(path: Path) -> BinaryIO:
    """Open a file to read, a regular one and no link, that nobody else can write; what is checked is what is read."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & _FOR_OTHERS:
        file.close()
        raise PermissionError(f"{path} can be changed by others")
    return file


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there complete or not at all; one that was there before is replaced at the end.

    What is no regular file (a pipe, a terminal) is written to as it is.
    """
    path = path.resolve()
    is_there = path.exists()
    if is_there and not path.is_file():
        path.write_bytes(data)
        return
    if is_there:
        # A file that must not be written is not replaced either.
        os.close(os.open(path, os.O_WRONLY))
    new = path.with_name(f".{path.name[:100]}.{os.getpid()}.new")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(data)
            if is_there:
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
        new.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
