"""Sums of products with more digits than fp64 has, and the references that are made of them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mptune.accuracy.exact import product
from mptune.kernel import Sizes
from mptune.source.loading import load_kernel
from tests.tiers import few

LD = np.longdouble
U = 2.0**-53
#: Sizes that no block divides.
SIZES: dict[str, dict[str, int]] = {
    "gemm": {"M": 301, "N": 67, "K": 640},
    "kmeans": {"n": 5003},
    "convolution2d": {"width": 203, "height": 101},
    "coulombic": {"width": 37, "height": 23, "charges": 2003},
}


def fractions(matrix: NDArray[np.float64]) -> list[list[Fraction]]:
    return [[Fraction(float(x)) for x in row] for row in matrix]


# -- products --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [1, 2, 3, 64, 65, 1000])
def test_a_product_has_twenty_bits_more(terms: int) -> None:
    rng = np.random.default_rng(terms)
    first = rng.standard_normal((3, terms)) * 10.0 ** rng.integers(-3, 4, (3, 1))
    second = rng.standard_normal((terms, 2)) * 10.0 ** rng.integers(-3, 4, (1, 2))
    high, low = product(first, second)
    a, b = fractions(first), fractions(second.T)
    for i in range(3):
        for j in range(2):
            exact = sum((x * y for x, y in zip(a[i], b[j], strict=True)), Fraction(0))
            size = sum((abs(x * y) for x, y in zip(a[i], b[j], strict=True)), Fraction(0))
            assert abs(Fraction(float(high[i, j])) + Fraction(float(low[i, j])) - exact) <= Fraction(U) * size / 2**15
            assert abs(float(low[i, j])) <= 1e-4 * float(size)


# -- references ------------------------------------------------------------------------------------------


def in_long_double(name: str, given: dict[str, Any], size: Sizes) -> NDArray[Any]:
    """Return the output of a kernel, every operation of it in the long double."""
    wide = {key: np.asarray(value).astype(LD) for key, value in given.items()}
    if name == "gemm":
        return np.asarray(wide["alpha"] * (wide["A"] @ wide["B"]) + wide["beta"] * wide["C"])
    if name == "kmeans":
        apart = wide["points"].T[:, None, :] - wide["centres"]
        return np.asarray((apart * apart).sum(axis=-1).min(axis=1))
    if name == "convolution2d":
        total = np.zeros((size.height, size.width), LD)
        for (j, i), weight in np.ndenumerate(wide["filter"]):
            total += weight * wide["input"][j : j + size.height, i : i + size.width]
        return total
    x, y, z = wide["position"].T
    column, row = (np.arange(n) * wide["spacing"] for n in (size.width, size.height))
    squares = (column - x[:, None, None]) ** 2 + (row[:, None] - y[:, None, None]) ** 2 + (z**2)[:, None, None]
    return np.asarray((wide["charge"][:, None, None] / np.sqrt(squares)).sum(axis=0))


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="the long double is fp64 here")
@pytest.mark.parametrize("name", few(sorted(SIZES, key="convolution2d".__eq__), 3))
def test_references_are_rounded_once(name: str) -> None:
    """Were they summed up in fp64, they would err by more than sums that are compensated."""
    kernel = load_kernel(name)
    size = kernel.resolve_sizes("default", SIZES[name])
    given = kernel.inputs(np.random.default_rng(11), size)
    (output,) = kernel.outputs
    found = kernel.reference(given, size)[output.name]
    exact = in_long_double(name, given, size)
    assert found.dtype == np.float64
    # Terms of coulombic are square roots and quotients of fp64, whose errors a sum nearly averages out.
    assert (np.abs(found - exact) <= (1.15 if name == "coulombic" else 1.01) * U * np.abs(exact)).all()
    assert np.mean(found == exact.astype(np.float64)) > 0.95
