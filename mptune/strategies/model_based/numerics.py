"""Factors and maxima by SciPy, in one thread."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, lapack
from threadpoolctl import ThreadpoolController

__all__ = ["cholesky", "maximise", "single_threaded"]

Array = NDArray[np.float64]

#: Stands for an infinite loss, which the line search cannot interpolate.
_WORST: Final = 1e10
#: When a maximisation has converged: largest component of the gradient, and relative change of the value.
_GRADIENT_TOLERANCE: Final = 1e-3
_VALUE_TOLERANCE: Final = 1e-7
#: Overlapping limits of two threads would not restore the number of threads of before.
_LOCK: Final = threading.RLock()


@contextlib.contextmanager
def single_threaded() -> Iterator[None]:
    """Run linear algebra in one thread.

    Matrices of a few hundred rows gain nothing from several threads, which wait for each other on a busy machine. The
    rounding, and with it the sequence of a seed, would depend on their number.
    """
    with _LOCK, _libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    """Return the loaded libraries, which takes too long to look up again for every proposal."""
    return ThreadpoolController()


def cholesky(matrix: Array) -> tuple[Array, Array]:
    """Return the lower Cholesky factor of a symmetric matrix, and its inverse, both ``(n, n)``.

    Raises:
        LinAlgError: the matrix is not positive definite.
    """
    lower, failed = lapack.dpotrf(matrix, lower=1, clean=1)
    if failed:
        raise LinAlgError("the matrix is not positive definite")
    return lower, lapack.dtrtri(lower, lower=1)[0]


def maximise(
    function: Callable[[Array], tuple[float, Array]],
    starts: Iterable[Array],
    *,
    low: Array,
    high: Array,
    unit: Array,
    max_iterations: int,
) -> Array:
    """Return the largest local maximum within bounds that L-BFGS-B finds from the starting points, shape ``(n,)``.

    The function gives value, ``-inf`` where it is not defined, and gradient. The unit is the scale of each variable.
    """
    # Takes half a second to import, which making a strategy need not spend.
    from scipy.optimize import Bounds, minimize

    def loss(z: Array) -> tuple[float, Array]:
        value, gradient = function(z * unit)
        return (-value, -unit * gradient) if math.isfinite(value) else (_WORST, np.zeros_like(z))

    found = [
        minimize(
            loss,
            np.clip(start, low, high) / unit,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(low / unit, high / unit),
            options={"maxiter": max_iterations, "gtol": _GRADIENT_TOLERANCE, "ftol": _VALUE_TOLERANCE},
        )
        for start in starts
    ]
    return np.asarray(min(found, key=lambda result: float(result.fun)).x * unit)
