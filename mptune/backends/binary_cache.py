"""Compiled binaries on disk, shared by every process that tunes on a machine."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mptune.paths import cache_folder, open_own, own_folder

__all__ = ["BinaryCache"]

_DIGEST_BYTES: Final = 32
#: Nothing can be written below a device.
_NOWHERE: Final = Path(os.devnull, "mptune")
_STALE_S: Final = 3600.0
_WORKSPACES: Final = "work"
_INSERTIONS_PER_PRUNING: Final = 64


class BinaryCache:
    """Binaries by what they were compiled from; least recently used ones go when the size limit is passed.

    An entry is one file, a SHA-256 of its key and the binary followed by the binary, that appears under its name
    complete or not at all; a damaged one counts as missing. Where the folder cannot be written, or others could change
    what lies in it (:func:`~mptune.paths.own_folder`), nothing is kept and nothing fails.

    Args:
        directory: the folder, made when first needed; by default ``binaries`` in mptune's cache,
            and without a home directory none.
        limit_bytes: total size to stay under.
    """

    def __init__(self, directory: Path | None = None, limit_bytes: int = 1 << 30) -> None:
        self.directory = directory or cache_folder("binaries") or _NOWHERE
        self.limit_bytes = limit_bytes
        self._insertions = 0
        self._checked: dict[str, Path | None] = {}

    @staticmethod
    def key(parts: Sequence[str]) -> str:
        """Return the key of a binary that depends on exactly these texts, in this order."""
        digest = hashlib.sha256()
        for part in parts:
            digest.update(hashlib.sha256(part.encode("utf-8", "backslashreplace")).digest())
        return digest.hexdigest()

    def get(self, key: str) -> bytes | None:
        """Return the binary of that key, None where there is none or it is damaged."""
        path = self._path(key)
        try:
            with open_own(path) as file:
                content = file.read()
        except OSError:
            return None
        binary = content[_DIGEST_BYTES:]
        if _digest(key, binary) != content[:_DIGEST_BYTES]:
            _remove(path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return binary

    def put(self, key: str, binary: bytes) -> None:
        """Keep a binary, replacing any other of that key."""
        with contextlib.suppress(OSError):
            path = own_folder(self.directory / key[:2]) / key[2:]
            handle, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
            temporary = Path(name)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_digest(key, binary) + binary)
                temporary.replace(path)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise
            if self._insertions % _INSERTIONS_PER_PRUNING == 0:
                self.prune()
            self._insertions += 1

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """Give an empty folder to compile in, removed afterwards.

        It lies beside the entries, so that what a killed process leaves is found and removed later; where that
        cannot be written or others could change it, among the system's temporary files.
        """
        try:
            folder = tempfile.mkdtemp(dir=own_folder(self.directory / _WORKSPACES))
        except OSError:
            folder = tempfile.mkdtemp(prefix="mptune-")
        # However long a compiler takes, and wherever somebody sets the clock: a lock goes only with who holds it.
        handle = os.open(folder, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):  # of a file system without locks
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            yield Path(folder)
        finally:
            os.close(handle)
            shutil.rmtree(folder, ignore_errors=True)

    def prune(self) -> None:
        """Remove least recently used entries down to nine tenths of the limit, and what killed writers left."""
        entries = []
        for path, status in self._files():
            if path.name.startswith(".") or path.parent.name == _WORKSPACES:
                if time.time() - status.st_mtime > _STALE_S and not _is_in_use(path):
                    _remove(path)
            else:
                entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        if total <= self.limit_bytes:
            return
        for _, size, path in sorted(entries):
            _remove(path)
            total -= size
            if total <= 0.9 * self.limit_bytes:
                return

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self.directory.glob("*/*"):
            with contextlib.suppress(OSError):  # another process may remove it meanwhile
                yield path, path.stat()

    def _path(self, key: str) -> Path:
        """Return where an entry lies; nowhere if others could change it."""
        name = key[:2]
        if self._checked.get(name) is None:
            try:
                self._checked[name] = own_folder(self.directory / name) if (self.directory / name).is_dir() else None
            except OSError:
                self._checked[name] = None
        return (self._checked[name] or _NOWHERE) / key[2:]


def _digest(key: str, binary: bytes) -> bytes:
    digest = hashlib.sha256(key.encode())
    digest.update(binary)
    return digest.digest()


def _is_in_use(path: Path) -> bool:
    """Whether a process holds a workspace."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
