"""Bundled folders, cache folders, their permissions, and atomic writing of files."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

_FOR_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def bundled_folder(name: str) -> Path:
    """Return the bundled folder ``applications``, ``kernels``, ``templates`` or ``references``.

    It is inside the package in an installed wheel, and beside the package in a source checkout.
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
    """Create a missing folder, and return its real path if no other user can change its contents.

    Code and trusted data are cached only in such folders. Folders above count as well, as others could replace the
    folder in them, unless they have the sticky bit, like ``/tmp``. Their group may have write permission, as on many
    systems it consists of the user only.
    """
    missing = [folder for folder in (path.absolute(), *path.absolute().parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    real = path.resolve(strict=True)
    status = real.stat()
    if status.st_uid == os.geteuid() and status.st_mode & _FOR_OTHERS:
        real.chmod(stat.S_IMODE(status.st_mode) & ~_FOR_OTHERS)  # a permissive umask
    for folder in (real, *real.parents):
        status = folder.stat()
        owners = {os.geteuid()} if folder == real else {os.geteuid(), 0}
        is_open = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        # The root folder of a container may have an unknown owner.
        if is_open or (status.st_uid not in owners and folder != folder.parent):
            raise PermissionError(f"{folder} can be changed by others")
    return real


def is_own(path: Path) -> bool:
    """Whether a file is a regular file of the user that nobody else can write."""
    try:
        open_own(path).close()
    except OSError:
        return False
    return True


def open_own(path: Path) -> BinaryIO:
    """Open a regular file (no link) that nobody else can write; the check is of the opened file."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & _FOR_OTHERS:
        file.close()
        raise PermissionError(f"{path} can be changed by others")
    return file


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; raises OSError for a pipe or a device, from which nothing may ever come."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return path.open("rb")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically: an existing file is replaced at the end; a pipe or terminal is written directly."""
    path = path.resolve()
    is_there = path.exists()
    if is_there and not path.is_file():
        path.write_bytes(data)
        return
    if is_there:
        # Fails for a write-protected file, which must not be replaced.
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
