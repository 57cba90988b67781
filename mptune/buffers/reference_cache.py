"""References on disk, so that an expensive one is computed once; any trouble means computing it again."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["ReferenceCache"]

_LARGEST_ENTRY_BYTES: Final = 1 << 30
_FOLDER_BYTES: Final = 4 << 30
_ABANDONED_S: Final = 3600.0
# Keeps the names of outputs apart from those of np.savez's own arguments.
_PREFIX: Final = "output."


class ReferenceCache:
    """A folder of ``.npz`` files, bounded in size, the least recently used leaving first.

    Args:
        folder: where they are; made when the first is kept. None: nothing is kept.
        largest_entry_bytes: references larger than this are not kept.
        folder_bytes: what the folder may hold in all.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        largest_entry_bytes: int = _LARGEST_ENTRY_BYTES,
        folder_bytes: int = _FOLDER_BYTES,
    ) -> None:
        self._folder = folder
        self._largest_entry_bytes = largest_entry_bytes
        self._folder_bytes = folder_bytes

    def load(self, key: str) -> dict[str, NDArray[Any]] | None:
        """Return the references of that key; None where there are none or the file is damaged."""
        if self._folder is None:
            return None
        path = self._folder / f"{key}.npz"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                    arrays = {name.removeprefix(_PREFIX): archive[name] for name in archive.files}
        except Exception:  # a damaged zip or header fails in many ways, and all mean the same
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return arrays

    def keep(self, key: str, references: Mapping[str, NDArray[Any]]) -> None:
        """Keep references if the folder can be written and they are not too large; never fails."""
        if self._folder is None or sum(array.nbytes for array in references.values()) > self._largest_entry_bytes:
            return
        with contextlib.suppress(OSError, ValueError):
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self._folder, suffix=".part")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    named: dict[str, Any] = {f"{_PREFIX}{name}": array for name, array in references.items()}
                    np.savez(file, allow_pickle=False, **named)
                Path(name).replace(self._folder / f"{key}.npz")
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
            self._prune(self._folder)

    def _prune(self, folder: Path) -> None:
        entries = [(path.stat(), path) for path in folder.iterdir() if path.suffix in (".npz", ".part")]
        held = sum(status.st_size for status, _ in entries)
        for status, path in sorted(entries, key=lambda entry: entry[0].st_mtime)[:-1]:
            abandoned = path.suffix == ".part" and status.st_mtime < time.time() - _ABANDONED_S
            if abandoned or (held > self._folder_bytes and path.suffix == ".npz"):
                path.unlink(missing_ok=True)
                held -= status.st_size
