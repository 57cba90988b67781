"""The prelude's types on the host: conversions, arithmetic, mixed operands and vectors."""

from __future__ import annotations

import ctypes
import itertools
from fractions import Fraction

import numpy as np
import pytest
from prelude_library import (
    COMPILERS,
    assert_same,
    awkward_values,
    every_value,
    library,
    pointer,
    precision_of,
    rounded,
    rounded_fraction,
)

from mptune.precision import PRECISIONS, precision

SOURCE = "prelude_types.cpp"
NAMES = tuple(p.cpp for p in PRECISIONS.values())
NARROW = ("half", "bfloat16", "fp8_e4m3", "fp8_e5m2")
ARITHMETIC = ("double", "float", "half", "bfloat16")

pytestmark = [
    pytest.mark.skipif(not COMPILERS, reason="no C++ compiler: install g++ or clang++"),
    pytest.mark.filterwarnings("ignore:overflow encountered"),
    pytest.mark.filterwarnings("ignore:invalid value encountered"),
]


@pytest.fixture(scope="module", params=COMPILERS or ("none",))
def cpp(request):
    return library(request.param, SOURCE)


def convert(cpp, values, source, target):
    out = np.empty(values.size, dtype=precision_of(target).dtype)
    getattr(cpp, f"convert_{source}_{target}")(pointer(values), pointer(out), ctypes.c_long(values.size))
    return out


@pytest.mark.parametrize(("source", "target"), tuple(itertools.product(NARROW, NAMES)))
def test_every_bit_pattern_of_a_narrow_type_converts(cpp, source, target):
    values = every_value(precision_of(source))
    wanted = rounded(values.astype(np.float64), precision_of(target))
    assert_same(convert(cpp, values, source, target), wanted, values)


@pytest.mark.parametrize("target", NARROW)
@pytest.mark.parametrize("source", ["double", "float"])
def test_rounding_happens_once_and_to_nearest_even(cpp, source, target):
    values = awkward_values(np.random.default_rng(7), 100_000).astype(precision_of(source).dtype)
    wanted = rounded(values.astype(np.float64), precision_of(target))
    assert_same(convert(cpp, values, source, target), wanted, values)


def test_e4m3_overflows_to_nan_and_e5m2_to_infinity(cpp):
    values = np.array(
        [448, 464, np.nextafter(np.float32(464), np.float32(500)), 1e6, -np.inf, 57344, 61440], np.float32
    )
    e4m3 = convert(cpp, values, "float", "fp8_e4m3").astype(np.float32)
    e5m2 = convert(cpp, values, "float", "fp8_e5m2").astype(np.float32)
    assert e4m3[:2].tolist() == [448, 448]
    assert np.isnan(e4m3[2:]).all()
    assert e5m2[3:].tolist() == [np.inf, -np.inf, 57344, np.inf]


@pytest.mark.parametrize("target", NARROW)
@pytest.mark.parametrize("source", ["int32", "int64", "uint64"])
def test_integers_round_once(cpp, source, target):
    rng = np.random.default_rng(9)
    dtype = np.dtype(source)
    bits = rng.integers(0, 8 * dtype.itemsize, 3_000)
    values = (rng.integers(0, 2**63, 3_000, dtype=np.uint64) >> (63 - bits).astype(np.uint64)).astype(dtype)
    powers = 2 ** np.arange(8 * dtype.itemsize - 1, dtype=np.uint64)
    near = np.concatenate([powers + (powers >> np.uint64(k)) + np.uint64(d) for k in (4, 5, 9, 12) for d in (0, 1)])
    values = np.concatenate([values, near.astype(dtype), np.arange(-300, 300).astype(dtype)])
    out = np.empty(values.size, precision_of(target).dtype)
    getattr(cpp, f"convert_{source}_{target}")(pointer(values), pointer(out), ctypes.c_long(values.size))
    wanted = [_rounded_integer(int(v), target) for v in values]
    assert_same(out, np.array(wanted), values)


def _rounded_integer(value, target):
    result = rounded_fraction(Fraction(value), precision_of(target))
    return result if precision_of(target).has_infinity or np.isfinite(result) else np.copysign(np.nan, result)


@pytest.mark.parametrize("name", ["half", "bfloat16"])
def test_arithmetic_rounds_each_operation(cpp, name):
    rng = np.random.default_rng(10)
    values = every_value(precision_of(name))
    a, b = (rng.permutation(np.tile(values, 4)) for _ in range(2))
    out = np.empty((5, a.size), a.dtype)
    getattr(cpp, f"arithmetic_{name}")(pointer(a), pointer(b), pointer(out), ctypes.c_long(a.size))
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        for row, wanted in zip(out, (x + y, x - y, x * y, x / y, -x), strict=True):
            assert_same(row, rounded(wanted, precision_of(name)), np.stack([x, y], axis=1))


@pytest.mark.parametrize("name", ["half", "bfloat16"])
def test_fma_rounds_once(cpp, name):
    rng = np.random.default_rng(11)
    kind = precision_of(name)
    n = 20_000
    a = (rng.standard_normal(n) * 2.0 ** rng.integers(-8, 6, n)).astype(kind.dtype)
    b = (rng.standard_normal(n) * 2.0 ** rng.integers(-8, 6, n)).astype(kind.dtype)
    c = (rng.standard_normal(n) * 2.0 ** rng.integers(-20, 12, n)).astype(kind.dtype)
    # half of the sums fall next to the middle between two values, where rounding twice goes wrong
    product = a[: n // 2].astype(np.float64) * b[: n // 2].astype(np.float64)
    c[: n // 2] = (product * 2.0 ** rng.integers(kind.significand_bits, kind.significand_bits + 15, n // 2)).astype(
        kind.dtype
    )
    out = c.copy()
    getattr(cpp, f"fma_{name}")(pointer(a), pointer(b), pointer(out), ctypes.c_long(n))
    x, y, z = (v.astype(np.float64) for v in (a, b, c))
    finite = np.isfinite(z)
    wanted = [
        rounded_fraction(Fraction(p) * Fraction(q) + Fraction(r), kind)
        for p, q, r in zip(x[finite], y[finite], z[finite], strict=True)
    ]
    assert_same(out[finite] + kind.dtype.type(0), np.array(wanted) + 0.0, np.stack([x, y, z], axis=1)[finite])


@pytest.mark.parametrize("name", ["half", "bfloat16"])
def test_comparisons(cpp, name):
    dtype = precision_of(name).dtype
    special = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 6e-8], dtype)
    a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(special, special))
    out = np.empty(a.size, np.uint8)
    getattr(cpp, f"compare_{name}")(pointer(a), pointer(b), pointer(out), ctypes.c_long(a.size))
    x, y = a.astype(np.float64), b.astype(np.float64)
    wanted = sum(test.astype(np.uint8) << i for i, test in enumerate((x < y, x <= y, x == y, x != y, x > y, x >= y)))
    assert np.array_equal(out, wanted)


def _axpy_data(a, x, y, n=103):
    rng = np.random.default_rng(12)
    alpha = np.array([1.7], precision_of(a).dtype)
    source = rng.standard_normal(n).astype(precision_of(x).dtype)
    return alpha, source, rng.standard_normal(n).astype(precision_of(y).dtype)


def test_axpy_without_spelled_conversions_follows_the_promotion_rules(cpp):
    wide = {"double": 3, "float": 2, "half": 1, "bfloat16": 0}
    for (a, at), (x, xt), (y, yt) in itertools.product(*[enumerate(ARITHMETIC)] * 3):
        alpha, source, target = _axpy_data(at, xt, yt)

        def promoted(left, right):
            if {left, right} == {"half", "bfloat16"}:
                return "float"
            return max(left, right, key=wide.__getitem__)

        kinds = precision_of(promoted(at, xt)), precision_of(promoted(promoted(at, xt), yt))
        product = alpha.astype(np.float64) * source.astype(np.float64)
        total = rounded(product, kinds[0]) + target.astype(np.float64)
        fused = product + target.astype(np.float64)
        cpp.axpy_plain(a, x, y, pointer(alpha), pointer(source), pointer(target), ctypes.c_long(target.size))
        got = target.astype(np.float64)
        options = [rounded(rounded(v, kinds[1]), precision_of(yt)) for v in (total, fused)]
        tolerance = 2.0**-50 if kinds[1].name == "fp64" and yt == "double" else 0.0
        near = [np.abs(got - o) <= tolerance * np.abs(o) for o in options]
        assert (near[0] | near[1]).all(), (at, xt, yt)


@pytest.mark.parametrize("width", range(1, 9))
@pytest.mark.parametrize(
    ("pair", "source", "target"),
    [(0, "fp16", "fp32"), (1, "bf16", "fp16"), (2, "fp8_e4m3", "bf16"), (3, "fp64", "fp64")],
)
def test_vectors_load_compute_and_store(cpp, pair, source, target, width):
    rng = np.random.default_rng(13)
    n = 8 * width
    x = rng.integers(-8, 8, n + width - 1).astype(precision(source).dtype)
    y = rng.integers(-8, 8, n + width - 1).astype(precision(target).dtype)
    wanted = y.astype(np.float64)
    wanted[:n] = (3 * wanted[:n] + x[:n].astype(np.float64)) ** 2
    cpp.vectors(pair, width, pointer(x), pointer(y), ctypes.c_long(n))
    assert_same(y, rounded(wanted, precision(target)), x)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("double_float", "double", "float"),
        ("float_float", "float", "float"),
        ("half_double", "half", "double"),
        ("bfloat16_half", "bfloat16", "half"),
    ],
)
def test_they_are_rows_of_an_array_and_convert(compiler, name, source, target):
    places = np.random.default_rng(1).integers(-8, 8, (50, 3)).astype(precision_of(source).dtype)
    turned = np.full((50, 3), 7, precision_of(target).dtype)
    by = np.array([0, 0, 0, 3], precision_of(source).dtype)
    getattr(library(compiler, "prelude_vectors.cu"), name)(*map(pointer, (places, turned, by)), ctypes.c_int(50))
    moved = places.astype(np.float64) - [0.5, 1, 0.25]
    odd = np.arange(50)[:, None] % 2
    back = np.stack([-moved[:, 1], 2 * moved[:, 0], np.zeros(50)], axis=1)
    assert np.array_equal(turned.astype(np.float64), np.where(odd, back, moved) + np.array([0, 0, 3]))


@pytest.mark.parametrize("name", ["half", "bfloat16"])
def test_fma_of_special_values(cpp, name):
    dtype = precision_of(name).dtype
    a = np.array([np.inf, np.inf, 0, np.nan, -np.inf, 1], dtype)
    b = np.array([1, 0, 5, 1, 1, 1], dtype)
    c = np.array([1, 1, -np.inf, 1, np.inf, np.nan], dtype)
    cpp_fma = getattr(cpp, f"fma_{name}")
    cpp_fma(pointer(a), pointer(b), pointer(c), ctypes.c_long(a.size))
    assert_same(c, np.array([np.inf, np.nan, -np.inf, np.nan, np.nan, np.nan]), a)
