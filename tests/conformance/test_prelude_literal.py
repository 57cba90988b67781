"""0.5_num takes the type of what it meets, rounds once, and leaves nothing but a constant in the machine code."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest
from prelude_library import COMPILERS, assembly, every_value, library, pointer, precision_of, rounded

SOURCE = "prelude_literal.cpp"
TYPES = ("double", "float", "half", "bfloat16")


@pytest.fixture(scope="module", params=COMPILERS or [pytest.param("none", marks=pytest.mark.skip("no C++ compiler"))])
def cpp(request):
    return library(request.param, SOURCE)


@pytest.mark.parametrize("name", TYPES)
def test_it_is_rounded_once_to_any_type_and_equals_what_it_was_assigned_to(cpp, name):
    precision = precision_of(name)
    values = [0.1, -1 / 3, 1e-9, 65519.99, 3.0, 1e300, -0.0]
    # Next to the middle between two numbers of the type, where a rounding to float on the way would go wrong.
    some = every_value(precision_of("half"))[np.array([0x3C00, 0x3C01, 0x0001, 0x4248])].astype(np.float64)
    half_way = some * (1 + 2.0**-11)
    values += [*half_way, *np.nextafter(half_way, np.inf), *np.nextafter(half_way, 0)]
    for value in values:
        found, same = np.empty(1, precision.dtype), np.zeros(3, bool)
        getattr(cpp, f"convert_{name}")(ctypes.c_double(value), pointer(found), pointer(same))
        assert found[0].astype(np.float64) == rounded(np.array([value]), precision)[0], value
        assert same.all(), value


@pytest.mark.parametrize("name", TYPES)
def test_a_body_with_literals_computes_in_its_own_type(cpp, name):
    precision = precision_of(name)
    n = 64
    x = np.random.default_rng(5).uniform(-2, 2, n + 2).astype(precision.dtype)
    y = np.empty(n, precision.dtype)
    getattr(cpp, f"body_{name}")(pointer(x), pointer(y), ctypes.c_int(n))
    wide = x.astype(np.float64)
    total = (2 * (0.25 * wide[:-2] + 0.5 * wide[1:-1] + 0.25 * wide[2:]) - 0.1) / 3
    value = np.minimum(np.where(np.arange(n) > 0, wide[:-2], 0.0), 0.75)
    value = np.maximum(value, 0) + total * 0.5 + 1 / n - value / 3
    wanted = -value * 0.1 + np.where(value < 0, 0.5, value)
    safe = np.abs(value) > 0.05  # elsewhere rounding decides which branch is taken
    assert np.abs(y.astype(np.float64) - wanted)[safe].max() <= 8 * precision.unit_roundoff
    assert safe.sum() > n // 2


@pytest.mark.full
@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_machine_code_is_that_of_a_constant_in_the_type(compiler):
    text = assembly(compiler, SOURCE)
    by_hand, by_literal = (
        re.sub(r"\s*#[^\n]*|\.L\w+|by_\w+", "", re.search(rf"^{name}:(.*?)\.size\s+{name}", text, re.S | re.M)[1])
        for name in ("by_hand", "by_literal")
    )
    assert by_hand == by_literal
