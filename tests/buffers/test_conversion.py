"""Conversion to every precision against exact rational arithmetic, its account of losses, and poison."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mptune.accuracy.pairs import poisoned, still_poisoned
from mptune.data import conversion
from mptune.data.conversion import convert, round_to
from mptune.precision import PRECISIONS

NARROW = [entry for entry in PRECISIONS.values() if entry.name != "fp64"]
#: Elements of a block, in place of many more.
SHORT = 1000


def rounded(value, precision):
    """The nearest value of a precision, ties to even, from the definition alone."""
    if value == 0 or not math.isfinite(value):
        return value
    exact = abs(Fraction(value))
    smallest_exponent = math.frexp(precision.smallest_normal)[1] - 1
    exponent = max(math.frexp(value)[1] - 1, smallest_exponent)
    quantum = Fraction(2) ** (exponent - precision.significand_bits + 1)
    nearest = round(exact / quantum) * quantum
    if nearest > Fraction(precision.largest):
        return math.copysign(math.inf, value) if precision.has_infinity else math.nan
    return math.copysign(float(nearest), value)


def same(a, b):
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@pytest.mark.parametrize("precision", NARROW, ids=str)
@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_random_values_round_once(precision, values):
    found = round_to(np.array(values), precision).astype(np.float64)
    for value, result in zip(values, found, strict=True):
        assert same(float(result), rounded(value, precision)), value


@pytest.mark.parametrize("precision", [p for p in NARROW if p.size_bytes <= 2], ids=str)
def test_every_tie_and_its_neighbours(precision):
    bits = np.arange(2 ** (8 * precision.size_bytes - 1), dtype=f"u{precision.size_bytes}")
    with np.errstate(invalid="ignore"):
        grid = bits.view(precision.dtype).astype(np.float64)
    grid = np.unique(grid[np.isfinite(grid)])
    ties = (grid[:-1] + grid[1:]) / 2
    last_tie = grid[-1] + (grid[-1] - grid[-2]) / 2
    ties = np.append(ties, last_tie)
    even = np.append(np.where(np.arange(ties.size - 1) % 2 == 0, grid[:-1], grid[1:]), np.nan)
    above = np.append(grid[1:], np.inf if precision.has_infinity else np.nan)
    # The last tie goes to infinity, but in E4M3 to 448: its significand is even, and 480 would be NaN.
    even[-1] = np.inf if precision.has_infinity else grid[-1]
    for sign in (1.0, -1.0):
        for shift, expected in ((-1, grid), (0, even), (1, above)):
            nudged = ties * (1 + shift * 2.0**-50)
            found = round_to(sign * nudged, precision).astype(np.float64)
            np.testing.assert_array_equal(found, sign * expected)


def test_a_value_that_rounds_wrongly_by_way_of_fp32():
    # Just above the tie between 1 and 1 + 2^-7; rounding to fp32 first makes it the tie, and then 1.
    value = np.array([1 + 2.0**-8 + 2.0**-40])
    assert float(value.astype(ml_dtypes.bfloat16)[0]) == 1.0
    assert float(round_to(value, PRECISIONS["bf16"])[0]) == 1 + 2.0**-7


def test_special_values_survive():
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324])
    for precision in NARROW:
        found = round_to(values, precision).astype(np.float64)
        np.testing.assert_array_equal(np.signbit(found[:2]), [False, True])
        np.testing.assert_array_equal(found[2:4], [np.inf, -np.inf] if precision.has_infinity else [np.nan] * 2)
        assert np.isnan(found[4])
        np.testing.assert_array_equal(found[5:], [0.0, 0.0])


# -- losses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", NARROW, ids=str)
@pytest.mark.parametrize("size", [1, SHORT + 1, 20 * SHORT + 3])
def test_losses_are_counted_across_blocks(precision, size, monkeypatch):
    monkeypatch.setattr(conversion, "_CONVERTED", SHORT)
    rng = np.random.default_rng(size)
    values = rng.standard_normal(size) * 10.0 ** rng.integers(-320, 300, size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, loss = convert(values.reshape(1, size), precision)
    assert found.shape == (1, size)
    assert found.dtype == precision.dtype
    assert found.flags.c_contiguous
    held = found.reshape(-1).astype(np.float64)
    assert loss.size == size
    assert loss.infinite == sum(not math.isfinite(h) for h in held)
    assert loss.zero == sum(v != 0 and h == 0 for v, h in zip(values, held, strict=True))
    assert loss.subnormal == sum(
        0 < abs(h) < precision.smallest_normal and h != v for v, h in zip(values, held, strict=True)
    )
    assert loss.largest == np.max(np.abs(values))
    assert loss.smallest == np.min(np.abs(values[values != 0]))


def warnings_of(values, name):
    return convert(np.array(values), PRECISIONS[name])[1].warnings("x", PRECISIONS[name])


def test_warnings():
    assert warnings_of([1.0, -1e6, 65504.0, 65520.0], "fp16") == (
        "input 'x' overflows in fp16: 2 of 4 values became infinite (largest 1e+06, fp16 holds 65504)",
    )
    assert warnings_of([1.0, 500.0], "fp8_e4m3") == (
        "input 'x' overflows in fp8_e4m3: 1 of 2 values became NaN (largest 500, fp8_e4m3 holds 448)",
    )
    assert warnings_of([1.0, 1e-9, -2e-8, 1.0001e-5, 0.0], "fp16") == (
        "input 'x' underflows in fp16: 2 of 5 values became zero and 1 lost digits as subnormals "
        "(smallest 1e-09, fp16 keeps all its digits down to 6.1e-05)",
    )
    assert len(warnings_of([1e300, 1e-300], "fp32")) == 2
    assert warnings_of([0.0, -0.0], "fp8_e5m2") == ()
    assert warnings_of([2.0**-24, 2.0**-20, 1.0], "fp16") == (), "exact subnormals lose nothing"


# -- poison ------------------------------------------------------------------------------------

POISONED_TYPES = [entry.dtype for entry in PRECISIONS.values()] + [
    np.dtype(name) for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
]


@pytest.mark.parametrize("dtype", POISONED_TYPES, ids=str)
def test_poison_is_found_bit_by_bit(dtype):
    array = poisoned((3, 7), dtype)
    assert (array.shape, array.dtype) == ((3, 7), dtype)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    flat = array.reshape(-1)
    assert still_poisoned(flat).size == 21
    for index in range(0, 21, 2):
        raw = flat.view(np.uint8)
        raw[index * dtype.itemsize + index % dtype.itemsize] ^= 1 << (index % 8)
    np.testing.assert_array_equal(still_poisoned(flat), np.arange(1, 21, 2))


@pytest.mark.parametrize("precision", PRECISIONS.values(), ids=str)
def test_poison_is_a_nan_arithmetic_does_not_make(precision):
    assert math.isnan(float(poisoned((1,), precision.dtype)[0]))
    made = [np.full(1, np.nan), -np.full(1, np.nan)]
    with np.errstate(all="ignore"):
        infinite, zero = np.full(1, np.inf), np.zeros(1)
        made += [infinite - infinite, infinite * zero, zero / zero, np.sqrt(-np.ones(1))]
        if precision.name != "fp8_e4m3":
            # E4M3 has one NaN (with two signs), so there an output that is NaN counts as unwritten.
            for value in made:
                assert still_poisoned(value.astype(precision.dtype)).size == 0
    # What CUDA devices make: all significand bits set.
    bits = 8 * precision.size_bytes
    largest = np.array([2 ** (bits - 1) - 1, 2**bits - 1], dtype=f"u{precision.size_bytes}").view(precision.dtype)
    assert still_poisoned(largest).size == (1 if precision.name == "fp8_e4m3" else 0)


def test_poison_is_quiet():
    # A signalling NaN would be changed by the first copy through a register.
    for name, quiet in (("fp64", 1 << 51), ("fp32", 1 << 22), ("fp16", 1 << 9), ("bf16", 1 << 6)):
        dtype = PRECISIONS[name].dtype
        assert int(poisoned((1,), dtype).view(f"u{dtype.itemsize}")[0]) & quiet
