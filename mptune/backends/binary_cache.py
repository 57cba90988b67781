"""Compiled binaries on disk, shared by every process that tunes on a machine."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mptune.paths import cache_folder, open_own, own_folder, write_whole

_DIGEST_BYTES: Final = 32


class BinaryCache:
    """Binaries by what they were compiled from; least recently used ones go when the size limit is passed.

    An entry is one file, a SHA-256 of its key and the binary followed by the binary, that appears under its name
    complete or not at all; a damaged one counts as missing. Where the folder cannot be written, or other users could
    change its files (:func:`~mptune.paths.own_folder`), nothing is kept and nothing fails.

    Args:
        directory: the folder, made when first needed; by default ``binaries`` in mptune's cache,
            and without a home directory none.
        limit_bytes: total size to stay under.
    """

    def __init__(self, directory: Path | None = None, limit_bytes: int = 1 << 30) -> None:
        # Nothing can be written below a device.
        self.directory = directory or cache_folder("binaries") or Path(os.devnull, "mptune")
        self.limit_bytes = limit_bytes
        self._insertions = 0
        #: The folder of all keys that begin with two letters.
        self._folder = functools.cache(lambda letters: own_folder(self.directory / letters))

    @staticmethod
    def key(parts: Sequence[str]) -> str:
        """Return the key of a binary that depends on exactly these texts, in this order."""
        digest = hashlib.sha256()
        for part in parts:
            digest.update(hashlib.sha256(part.encode("utf-8", "backslashreplace")).digest())
        return digest.hexdigest()

    def get(self, key: str) -> bytes | None:
        """Return the binary of that key, None where there is none or it is damaged."""
        with contextlib.suppress(OSError):
            path = self._folder(key[:2]) / key[2:]
            with open_own(path) as file:
                content = file.read()
            binary = content[_DIGEST_BYTES:]
            if _digest(key, binary) == content[:_DIGEST_BYTES]:
                with contextlib.suppress(OSError):  # where nothing can be written, nothing is pruned
                    os.utime(path)
                return binary
            path.unlink()
        return None

    def put(self, key: str, binary: bytes) -> None:
        """Keep a binary, replacing any other of that key."""
        with contextlib.suppress(OSError):
            write_whole(self._folder(key[:2]) / key[2:], _digest(key, binary) + binary)
            if self._insertions % 64 == 0:
                self.prune()
            self._insertions += 1

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """Give an empty folder to compile in, removed afterwards; beside the entries, or a temporary one."""
        try:
            folder = tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self._folder("work"))
        except OSError:
            folder = tempfile.mkdtemp(prefix="mptune-")
        try:
            yield Path(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def prune(self) -> None:
        """Remove least recently used entries down to nine tenths of the limit, and old files of killed processes."""
        entries, day_s = [], 86400
        for path in self.directory.glob("*/*"):
            with contextlib.suppress(OSError):  # another process may remove it meanwhile
                status = path.stat()
                if not path.name.startswith(".") and path.parent.name != "work":
                    entries.append((status.st_mtime, status.st_size, path))
                # A clock set forward makes folders look old in which a process still works.
                elif time.time() - status.st_mtime > day_s and not Path("/proc", path.name.partition("-")[0]).exists():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        total = sum(size for _, size, _ in entries)
        wanted = total if total <= self.limit_bytes else 0.9 * self.limit_bytes
        for _, size, path in sorted(entries):
            if total <= wanted:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size


def _digest(key: str, binary: bytes) -> bytes:
    return hashlib.sha256(key.encode() + binary).digest()
