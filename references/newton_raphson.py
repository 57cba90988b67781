"""Reference of Newton-Raphson."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mptune.data.blocks import in_blocks
from mptune.kernel import Sizes

__all__ = ["reference"]

# Few enough for all intermediate arrays to stay in a processor's cache.
CHUNK = 1 << 14
STEPS = 8


def reference(inputs: Mapping[str, NDArray[np.float64]], size: Sizes) -> dict[str, NDArray[np.float64]]:
    """Return ``root`` (n,): the root that each guess leads to, of ``coefficients[k] * x**k`` summed over k.

    By Laguerre's method, whose steps triple the number of right digits: eight are several more than it takes.
    """
    root = np.empty(size.n)

    def solve(part: slice) -> None:
        root[part] = _laguerre(inputs["coefficients"][:, part], inputs["guess"][part])

    in_blocks(solve, size.n, CHUNK)
    return {"root": root}


def _laguerre(c: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    degree = len(c) - 1
    powers = np.arange(degree + 1)[:, None]
    first = (powers * c)[1:]
    second = ((powers - 1) * powers * c)[2:]
    for _ in range(STEPS):
        value, slope, curvature = (_horner(p, x) for p in (c, first, second))
        spread = np.sqrt(np.abs((degree - 1) * ((degree - 1) * slope**2 - degree * value * curvature)))
        x = x - degree * value / (slope + np.copysign(spread, slope))
    return x


def _horner(c: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    value: NDArray[np.float64] = c[-1].copy()
    for coefficient in c[-2::-1]:
        value *= x
        value += coefficient
    return value
