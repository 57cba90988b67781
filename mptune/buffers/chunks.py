"""Working through large arrays piece by piece, so that no full temporary is needed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["count_non_finite", "pieces", "update_digest"]

#: Elements in a piece; its temporaries stay within a core's cache.
PIECE: Final = 1 << 16


def pieces(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield one-dimensional views that together cover a C-contiguous array."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, PIECE):
        yield flat[start : start + PIECE]


def count_non_finite(array: NDArray[Any]) -> tuple[int, tuple[int, ...]]:
    """Return how many elements are NaN or infinite, and the index of the first (``()`` where there is none)."""
    count, first, offset = 0, -1, 0
    for piece in pieces(array):
        bad = np.flatnonzero(~np.isfinite(piece))
        if bad.size and not count:
            first = offset + int(bad[0])
        count += bad.size
        offset += piece.size
    return count, tuple(int(i) for i in np.unravel_index(first, array.shape)) if count else ()


def update_digest(digest: hashlib._Hash, name: str, array: NDArray[Any]) -> None:
    """Add a named C-contiguous array, its type and shape included, to a digest."""
    digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
    for piece in pieces(array):
        digest.update(piece.tobytes())
