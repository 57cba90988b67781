"""Folders mptune uses: what ships with it, and what it keeps between runs."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["bundled_folder", "cache_folder"]


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
