"""Variables of emulated 16-bit types on the host give what the types themselves give, to the last bit."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from prelude_library import COMPILERS, assert_same, awkward_values, every_value, library, pointer, precision_of, rounded

SOURCE = "prelude_local.cpp"
TYPES = ("half", "bfloat16")
OPERATIONS = ("+", "-", "*", "/", "fma", "negation", "min", "exp", "fmin")

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


@pytest.mark.parametrize("name", TYPES)
def test_every_value_survives(cpp, name):
    values = every_value(precision_of(name))
    assert_same(convert(cpp, values, name, name), values.astype(np.float64), values)


@pytest.mark.parametrize("source", ["float", "double"])
@pytest.mark.parametrize("name", TYPES)
def test_rounds_once_to_nearest_even(cpp, name, source):
    values = awkward_values(np.random.default_rng(3), 2**16)
    values = values if source == "double" else values.astype(np.float32)
    wanted = rounded(values.astype(np.float64), precision_of(name))
    assert_same(convert(cpp, values, source, name), wanted, values)


@pytest.mark.parametrize("name", TYPES)
def test_operations_give_the_same_bits(cpp, name):
    dtype = precision_of(name).dtype
    rng = np.random.default_rng(7)
    n = 2**18
    # Any bits at all, and numbers near enough to each other for sums that round.
    a, b, c = (rng.integers(0, 2**16, n, dtype=np.uint16).view(dtype) for _ in range(3))
    near = rng.random(n) < 0.5
    for values in (a, b, c):
        values[near] = rng.normal(size=near.sum()).astype(dtype)
    results = []
    for kind in ("itself", "local"):
        out = np.empty((len(OPERATIONS), n), dtype=dtype)
        getattr(cpp, f"as_{kind}_{name}")(*map(pointer, (a, b, c, out)), ctypes.c_long(n))
        results.append(out)
    for operation, wanted, got in zip(OPERATIONS, *results, strict=True):
        numbers = ~np.isnan(wanted.astype(np.float32))
        assert numbers.sum() > n / 2, operation
        assert np.array_equal(np.isnan(got.astype(np.float32)), ~numbers), operation
        wrong = numbers & (got.view(np.uint16) != wanted.view(np.uint16))
        assert not wrong.any(), (operation, a[wrong][:4], b[wrong][:4], c[wrong][:4], got[wrong][:4], wanted[wrong][:4])
