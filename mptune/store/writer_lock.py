"""The lock that lets one process write a run file: it dies with its process, and readers never meet it."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

__all__ = ["acquire", "release"]

# Advisory locks need no data behind them: a byte well clear of those SQLite locks itself (at 1 GiB).
_LOCK_BYTE: Final = 0x7FFF_FF00

_held: Final[set[int]] = set()


def acquire(path: Path, flags: int = 0) -> int:
    """Lock the file against other writers and return the descriptor that holds the lock.

    The lock belongs to the open file (an "open file description lock"): the kernel drops it when the
    process ends in any way, and other descriptors of the file can be closed without losing it.

    Args:
        path: the file.
        flags: more flags to open it with, such as ``os.O_CREAT``.

    Raises:
        BlockingIOError: another writer has it.
        OSError: the file cannot be opened for writing, or its file system has no locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o666)
    request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, _LOCK_BYTE, 1, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
    except OSError:
        os.close(descriptor)
        raise
    _held.add(descriptor)
    return descriptor


def release(descriptor: int) -> None:
    """Give the lock back; close every other descriptor of the file first, SQLite's own locks would be lost."""
    _held.discard(descriptor)
    os.close(descriptor)


def _release_in_child() -> None:
    # A forked worker that outlives a killed parent must not keep the run file locked.
    for descriptor in tuple(_held):
        release(descriptor)


os.register_at_fork(after_in_child=_release_in_child)
