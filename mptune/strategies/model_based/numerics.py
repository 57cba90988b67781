"""Linear algebra and minimisation that stay in one thread.

The matrices here have some hundred rows and every proposal needs many small operations. Spread over
threads they gain nothing, they wait for each other wherever the cores are busy (the inverse of a 60 x 60
matrix took 230 ms instead of 0.4 ms beside a compiler), and their rounding depends on the number of threads,
and with it the sequence of a seed. So everything is cut into tiles below the size at which OpenBLAS
starts a second thread, without a setting that would reach into the user's process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

__all__ = ["NotPositiveDefinite", "cholesky", "lower_gram", "minimise", "product"]

Array = NDArray[np.float64]
Loss = Callable[[Array], tuple[float, Array]]

#: Rows and columns of a tile; 64^3 multiplications are the most OpenBLAS does in one thread, 96^2 for a single row.
_TILE: Final = 64
_MOST: Final = _TILE**3
_MOST_OF_A_ROW: Final = 96**2
#: Of the minimiser: share of the expected decrease that is enough, halvings of a step, and when it stops.
_SUFFICIENT: Final = 1e-4
_HALVINGS: Final = 12
_LONGEST_STEP: Final = 1.5
_GRADIENT_TOLERANCE: Final = 1e-3
_LOSS_TOLERANCE: Final = 1e-7


class NotPositiveDefinite(ArithmeticError):
    """A matrix that has no Cholesky factor in double precision."""


def cholesky(matrix: Array) -> tuple[Array, Array]:
    """Return the lower Cholesky factor of a matrix, and its inverse, both ``(n, n)`` with zeros above the diagonal.

    Of the matrix, which is symmetric, only the lower half is read.

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
    for j, column in enumerate(tiles):
        for i, row in enumerate(tiles[j + 1 :], start=j + 1):
            total = lower[row, column] @ inverse[column, column]
            for k in tiles[j + 1 : i]:
                total += lower[row, k] @ inverse[k, column]
            inverse[row, column] = -(inverse[row, row] @ total)
    return lower, inverse


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
    """Return ``a @ b`` for a wide ``b``; of a triangular ``a`` what lies above the diagonal is not read."""
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
                # As a stack of narrow matrices, which matmul multiplies one by one.
                stack = np.matmul(tile, b[inner, :whole].reshape(tile.shape[1], -1, width).transpose(1, 0, 2))
                result[row, :whole] += stack.transpose(1, 0, 2).reshape(len(tile), -1)
            if whole < n:
                result[row, whole:] += tile @ b[inner, whole:]
    return result


def _tiles(n: int) -> list[slice]:
    return [slice(start, min(start + _TILE, n)) for start in range(0, n, _TILE)]


def minimise(loss: Loss, start: Array, *, bound: float, max_iterations: int) -> tuple[Array, float]:
    """Return a local minimum within ``[-bound, bound]`` per variable, and its loss.

    BFGS with backtracking (Nocedal and Wright, Numerical Optimization, algorithms 6.1 and 3.1). No
    coordinate moves by more than 1.5 at once, so a poor curvature estimate cannot throw it far. scipy's
    L-BFGS-B is no alternative here: its tiny triangular solves are spread over threads and wait for them.
    The loss gives value, which may be infinite, and gradient.
    """
    x = np.clip(start, -bound, bound)
    value, gradient = loss(x)
    inverse = np.eye(len(x))
    fresh = True
    for _ in range(max_iterations):
        inside = ((x < bound) | (gradient > 0)) & ((x > -bound) | (gradient < 0))
        if not np.any(inside) or np.abs(gradient[inside]).max() < _GRADIENT_TOLERANCE:
            break
        direction = -(inverse * gradient).sum(axis=1)
        slope = float((direction * gradient).sum())
        if slope >= 0:
            inverse, fresh = np.eye(len(x)), True
            direction, slope = -gradient, -float((gradient * gradient).sum())
        step = min(1.0, _LONGEST_STEP / float(np.abs(direction).max()))
        if fresh:
            step = min(step, 1.0 / math.sqrt(-slope))
        for _ in range(_HALVINGS):
            moved = np.clip(x + step * direction, -bound, bound)
            new_value, new_gradient = loss(moved)
            if new_value <= value + _SUFFICIENT * step * slope:
                break
            step *= 0.5
        else:
            break
        taken, change = moved - x, new_gradient - gradient
        converged = value - new_value < _LOSS_TOLERANCE * (1.0 + abs(new_value))
        x, value, gradient = moved, new_value, new_gradient
        if converged:
            break
        inverse = _updated(inverse, taken, change, fresh)
        fresh = False
    return x, value


def _updated(inverse: Array, taken: Array, change: Array, fresh: bool) -> Array:
    """Return the inverse curvature that also explains the last step; as it was where that step does not bend up."""
    bend = float((taken * change).sum())
    if bend <= 1e-10 * float((change * change).sum()):
        return inverse
    if fresh:
        inverse = inverse * (bend / float((change * change).sum()))
    image = (inverse * change).sum(axis=1)
    weight = (bend + float((change * image).sum())) / bend**2
    mixed = np.outer(image, taken) / bend
    return np.asarray(inverse + weight * np.outer(taken, taken) - mixed - mixed.T)
