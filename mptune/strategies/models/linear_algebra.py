"""Dense linear algebra in tiles small enough that BLAS keeps each in one thread.

The matrices here have some hundred rows and every proposal needs many small operations. Spread over
threads they gain nothing, they wait for each other wherever the cores are busy (the inverse of a 60 x 60
matrix took 230 ms instead of 0.4 ms beside a compiler), and their rounding depends on the number of threads,
and with it the sequence of a seed. So everything is cut into tiles below the size at which OpenBLAS
starts a second thread, without a setting that would reach into the user's process.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

__all__ = ["NotPositiveDefinite", "cholesky", "inverse_factor", "lower_gram", "product"]

Array = NDArray[np.float64]

#: Rows and columns of a tile; 64^3 multiplications are the most OpenBLAS does in one thread, 96^2 for a single row.
_TILE: Final = 64
_MOST: Final = _TILE**3
_MOST_OF_A_ROW: Final = 96**2


class NotPositiveDefinite(ArithmeticError):
    """A matrix that has no Cholesky factor in double precision."""


def cholesky(matrix: Array) -> tuple[Array, Array]:
    """Return the lower Cholesky factor of a matrix, and its inverse, both ``(n, n)`` with zeros above the diagonal.

    Args:
        matrix: symmetric, of which the lower half is read, ``(n, n)``.

    Raises:
        NotPositiveDefinite: the factor does not exist.
    """
    n = len(matrix)
    lower, inverse = np.zeros((n, n)), np.zeros((n, n))
    tiles = _tiles(n)
    for j, column in enumerate(tiles):
        for i, row in enumerate(tiles[j:], start=j):
            rest = matrix[row, column].copy()
            for k in tiles[:j]:
                rest -= lower[row, k] @ lower[column, k].T
            if i > j:
                lower[row, column] = rest @ inverse[column, column].T
                continue
            factor, failed = lapack.dpotrf(rest, lower=1, clean=1)
            if failed:
                raise NotPositiveDefinite
            lower[row, column] = factor
            inverse[row, column] = lapack.dtrtri(factor, lower=1)[0]
    inverse_factor(lower, inverse)
    return lower, inverse


def inverse_factor(lower: Array, inverse: Array) -> None:
    """Fill the tiles below the diagonal of the inverse of a lower triangular matrix.

    Args:
        lower: the matrix, ``(n, n)``.
        inverse: with the inverses of its diagonal tiles; changed in place.
    """
    tiles = _tiles(len(lower))
    for j, column in enumerate(tiles):
        for i in range(j + 1, len(tiles)):
            row = tiles[i]
            total = lower[row, tiles[j]] @ inverse[tiles[j], column]
            for k in tiles[j + 1 : i]:
                total += lower[row, k] @ inverse[k, column]
            inverse[row, column] = -(inverse[row, row] @ total)


def lower_gram(factor: Array) -> Array:
    """Return ``factor.T @ factor`` of a lower triangular matrix, ``(n, n)``: the inverse from a factor's inverse."""
    result = np.empty_like(factor)
    tiles = _tiles(len(factor))
    for i, row in enumerate(tiles):
        for j, column in enumerate(tiles[: i + 1]):
            total = factor[row, row].T @ factor[row, column]
            for k in tiles[i + 1 :]:
                total += factor[k, row].T @ factor[k, column]
            result[row, column] = total
            if i > j:
                result[column, row] = total.T
    return result


def product(a: NDArray[Any], b: NDArray[Any], *, triangular: bool = False) -> NDArray[Any]:
    """Return ``a @ b``.

    Args:
        a: ``(m, k)``.
        b: ``(k, n)``, wide.
        triangular: ``a`` is lower triangular; what lies above its diagonal is not read.
    """
    m, k = a.shape
    n = b.shape[1]
    result = np.zeros((m, n), dtype=np.result_type(a, b))
    most = _MOST if m > 1 else _MOST_OF_A_ROW
    width = max(1, most // (min(max(m, 1), _TILE) * min(max(k, 1), _TILE)))
    whole = n - n % width
    for row in _tiles(m):
        for inner in _tiles(k):
            if triangular and inner.start > row.start:
                break
            tile = a[row, inner]
            if whole:
                result[row, :whole] += _side_by_side(np.matmul(tile, _stacked(b[inner, :whole], width)))
            if whole < n:
                result[row, whole:] += tile @ b[inner, whole:]
    return result


def _stacked(b: NDArray[Any], width: int) -> NDArray[Any]:
    """Return a view of wide ``b`` as a stack of narrow matrices, which matmul multiplies one by one."""
    return b.reshape(b.shape[0], -1, width).transpose(1, 0, 2)


def _side_by_side(stack: NDArray[Any]) -> NDArray[Any]:
    return stack.transpose(1, 0, 2).reshape(stack.shape[1], -1)


def _tiles(n: int) -> list[slice]:
    return [slice(start, min(start + _TILE, n)) for start in range(0, n, _TILE)]
