"""The compound types of the prelude against exact answers, under every compiler and flags that let it reorder."""

from __future__ import annotations

import ctypes
import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from prelude_library import COMPILERS, assembly, library, pointer

from tests.tiers import few

pytestmark = pytest.mark.full  # compiling every function takes two seconds for each compiler, type and set of flags

SOURCE = "prelude_compound.cpp"
#: With start files of its own a library made with -ffast-math would have the whole process flush subnormals.
FLAGS = [
    (),
    ("-ffp-contract=fast",),
    ("-ffast-math", "-nostartfiles"),
    ("-funsafe-math-optimizations", "-ffp-contract=fast", "-nostartfiles"),
]
U = Fraction(1, 2**24)
#: By type, what an operation errs by at most, relative to its result (of fma to |a b| + |c|).
BOUNDS = {
    "fp32x2": [3 * U**2, 3 * U**2, 4 * U**2, 15 * U**2, 10 * U**2],
    "bf16x3": [U, U, 2 * U + U / 64, U, 3 * U + U / 64],
    "fp32_neumaier": [U, U, U, U, 2 * U],
    "fp64_neumaier": [Fraction(1, 2**53)] * 4 + [Fraction(2, 2**53)],
}
EVERY = pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: " ".join(flags) or "none")
NAMES = pytest.mark.parametrize("name", BOUNDS)
COMPILED = pytest.mark.parametrize("compiler", COMPILERS)

Doubles = NDArray[np.float64]


def held(name: str, values: Doubles) -> Doubles:
    """Return what a variable of the type takes of doubles."""
    if name == "fp64_neumaier":
        return values
    high = values.astype(np.float32).astype(np.float64)
    return high + (values - high).astype(np.float32) if name == "fp32x2" else high


def run(compiler: str, flags: tuple[str, ...], function: str, *arrays: NDArray[Any], numbers: tuple[int, ...]) -> None:
    of = getattr(library(compiler, SOURCE, *flags), function)
    of(*map(pointer, arrays), *map(ctypes.c_int, numbers))


def arithmetic(compiler: str, flags: tuple[str, ...], name: str, *operands: Doubles) -> Doubles:
    out = np.full((len(operands[0]), 6), np.nan)
    run(compiler, flags, f"arithmetic_{name}", *operands, out, numbers=(len(out),))
    return out


@functools.cache
def operands() -> tuple[Doubles, Doubles, Doubles]:
    """Return random triples, of all sizes and signs, and many that nearly cancel."""
    rng = np.random.default_rng(19)
    n = 1501
    a, b, c = rng.standard_normal((3, n)) * 2.0 ** rng.integers(-12, 13, (3, n))
    near = rng.choice([-1.0, 1.0], n) * (1 + rng.standard_normal(n) * 2.0 ** -rng.integers(1, 54, n))
    b[1::3] = a[1::3] * near[1::3]
    c[2::3] = -a[2::3] * b[2::3] * np.abs(near[2::3])
    return a, b, c


@pytest.mark.full
@EVERY
@pytest.mark.parametrize("name", few(["bf16x3", "fp32_neumaier", "fp32x2", "fp64_neumaier"], 2))
@COMPILED
def test_operations_err_within_their_bounds(compiler: str, name: str, flags: tuple[str, ...]) -> None:
    given = operands()
    found = arithmetic(compiler, flags, name, *given)
    assert np.isfinite(found).all()
    exact = [[Fraction(float(x)) for x in held(name, values)] for values in given]
    # What comes out is one number of the type in memory.
    last = {"fp32x2": Fraction(1, 2**52)}.get(name, Fraction(0))
    for x, y, z, row in zip(*exact, found, strict=True):
        results = (x + y, x - y, x * y, x / y, x * y + z)
        scales = (*map(abs, results[:4]), abs(x * y) + abs(z))
        for result, scale, bound, number in zip(results, scales, BOUNDS[name], row, strict=False):
            assert abs(Fraction(float(number)) - result) <= (bound * (1 + U) + last) * scale
        signs = (x < y) + 2 * (x == y) + 4 * (x <= y) + 8 * (x > y) + 16 * (x != y) + 32 * (x >= y)
        assert row[5] == signs


@EVERY
@NAMES
@COMPILED
def test_infinities_and_nan_go_where_they_go_in_double(compiler: str, name: str, flags: tuple[str, ...]) -> None:
    special = np.array([np.inf, -np.inf, np.nan, 0.0, 1.5, -3e30, 1e-30])
    a, b, c = (grid.ravel().copy() for grid in np.meshgrid(special, special, special))
    found = arithmetic(compiler, flags, name, a, b, c)
    with np.errstate(all="ignore"):
        # Products and sums overflow where those of float do.
        x, y, z = (values.astype(np.float64 if name == "fp64_neumaier" else np.float32) for values in (a, b, c))
        expected = np.stack([x + y, x - y, x * y, x / y, x * y + z], axis=1).astype(np.float64)
    # Of 0 / 0 and inf - inf nothing else can be made, and quotients are not what flags without infinities keep.
    columns = [0, 1, 2, 4] if "-ffast-math" in flags else [0, 1, 2, 3, 4]
    beyond = ~np.isfinite(expected[:, columns])
    assert np.array_equal(found[:, columns][beyond], expected[:, columns][beyond], equal_nan=True)
    assert np.isfinite(found[:, columns][~beyond]).all()


@EVERY
@COMPILED
def test_products_of_the_largest_and_smallest_floats(compiler: str, flags: tuple[str, ...]) -> None:
    """No part of a float is an infinity or zero where the float itself is not: bfloat16 ends before it does."""
    largest, smallest = float(np.finfo(np.float32).max), 2.0**-149
    rng = np.random.default_rng(6)
    near = largest * (1 - 2.0 ** -rng.uniform(8, 24, 200))
    given = np.array([largest, *near, smallest, 2.0**-134, 2.0**-126, np.inf, np.nan, 0.0]).astype(np.float32)
    factors = np.array([0.0, 0.5, 0.999, 1.0, 1.001, -1.0, 3.3e-38, smallest, 2.0**-140, -np.inf, np.nan, largest])
    a, b = (grid.ravel().astype(np.float64) for grid in np.meshgrid(given, factors.astype(np.float32)))
    found = arithmetic(compiler, flags, "bf16x3", a, b, np.zeros_like(a))
    with np.errstate(all="ignore"):
        expected = (a.astype(np.float32) * b.astype(np.float32)).astype(np.float64)
    for column in (2, 4):
        product = found[:, column]
        finite = np.isfinite(expected)
        assert np.array_equal(product[~finite], expected[~finite], equal_nan=True)
        exact, size = a[finite] * b[finite], np.abs(a[finite]) + np.abs(b[finite])
        bound = float(BOUNDS["bf16x3"][2]) * np.abs(exact) + 2.0**-141 * size + 4 * smallest
        assert (np.abs(product[finite] - exact) <= bound).all()


@EVERY
@NAMES
@COMPILED
@pytest.mark.parametrize("n", [1, 2, 17, 1000])
def test_scalar_products_keep_what_rounding_loses(compiler: str, name: str, flags: tuple[str, ...], n: int) -> None:
    rng = np.random.default_rng(n)
    columns = 48
    a, b = (rng.standard_normal((n, columns)) * 2.0 ** rng.integers(-8, 9, (n, columns)) for _ in range(2))
    a, b = a.astype(np.float32), b.astype(np.float32)
    # The second half takes back the first, which leaves little of it.
    half = n // 2
    a[half : 2 * half] = -a[:half]
    b[half : 2 * half] = b[:half] * (1 + np.float32(2**-20) * rng.standard_normal((half, columns)).astype(np.float32))
    found = np.full(columns, np.nan)
    run(compiler, flags, f"dots_{name}", a, b, found, numbers=(columns, n))
    products = a.astype(np.float64) * b.astype(np.float64)  # exact
    u = 2.0**-24
    for k in range(columns):
        exact, size = math.fsum(products[:, k]), math.fsum(np.abs(products[:, k]))
        bound = {
            "fp32x2": 5 * n * u**2 * size + 2.0**-52 * abs(exact),
            "bf16x3": (n + 3) * u * size,
            "fp32_neumaier": u * abs(exact) + (u + n**2 * u**2) * size,
            "fp64_neumaier": 2.0**-53 * abs(exact) + n**2 * 2.0**-106 * size,
        }[name]
        assert abs(found[k] - exact) <= 1.0001 * bound


@EVERY
@COMPILED
@pytest.mark.parametrize("n", [4096, 300_007])
def test_long_sums_err_as_documented(compiler: str, flags: tuple[str, ...], n: int) -> None:
    """What ``fp32_neumaier`` lost is a sum in float itself: u + n^2 u^2, where ``fp32x2`` keeps every digit."""
    columns, u = 16, 2.0**-24
    values = np.tile(np.float32(0.1) + np.arange(columns, dtype=np.float32) / 64, (n, 1))
    exact = np.array([float(Fraction(float(value)) * n) for value in values[0]])
    bounds = {"fp32x2": 2.0**-46, "fp32_neumaier": u + (n * u) ** 2 + u, "fp64_neumaier": 2.0**-52}
    for name, bound in bounds.items():
        found = np.full(columns, np.nan)
        run(compiler, flags, f"sums_{name}", values, found, numbers=(columns, n))
        assert np.all(np.abs(found - exact) <= bound * np.abs(exact)), name


@EVERY
@COMPILED
def test_what_conversions_lose_is_kept_in_vectors(compiler: str, flags: tuple[str, ...]) -> None:
    """g++ 12 takes the rounding out of (double)(float)x where vectors hold as many of each: the rest would be zero."""
    rng = np.random.default_rng(8)
    n = 301
    points = rng.standard_normal((n, 2))
    found = np.full((2, 2), np.nan)
    run(compiler, flags, "distances_fp32x2", points, found, numbers=(n,))
    for j, i in np.ndindex(2, 2):
        exact = math.fsum(np.hypot(points[0, i] - points[:, 0], points[1, j] - points[:, 1]))
        assert abs(found[j, i] - exact) <= 5 * n * 2.0**-48 * exact


@NAMES
@COMPILED
def test_memory_keeps_the_nearest_number_of_its_type(compiler: str, name: str) -> None:
    rng = np.random.default_rng(3)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e-39, 2.0**-126, 1 / 3, 3.4e38]
    values = np.concatenate([special, rng.standard_normal(999) * 2.0 ** rng.integers(-40, 40, 999)])
    found = np.full_like(values, 7.0)
    run(compiler, (), f"keep_{name}", values, found, numbers=(len(values),))
    assert np.array_equal(found, held_or_special(name, values), equal_nan=True)


def held_or_special(name: str, values: Doubles) -> Doubles:
    with np.errstate(all="ignore"):
        kept = held(name, values)
    return np.where(np.isfinite(values), kept, values)


@pytest.mark.gxx
@pytest.mark.parametrize("name", ["fp32x2", "fp32_neumaier"])
def test_gcc_makes_vectors_of_them(name: str) -> None:
    """Where no flag lets the compiler reorder, nothing stands in the way of vectors."""
    text = (
        f'extern "C" void f(float* __restrict__ a, const float* __restrict__ b) {{\n'
        f"local<mp::{name}> sum[16] = {{}};\n"
        "for (int k = 0; k < 64; ++k) { VECTOR_LOOP\n"
        "for (int v = 0; v < 16; ++v) sum[v] = fma(a[16 * k + v], b[16 * k + v], sum[v]); }\n"
        "for (int v = 0; v < 16; ++v) a[v] = static_cast<float>(sum[v]); }"
    )
    made = assembly("g++", text, "-mavx2", "-mfma", "-ffp-contract=fast")
    assert made.count("subps") >= 4, "the errors of sums are not computed in vectors"
