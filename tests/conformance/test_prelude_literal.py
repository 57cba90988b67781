"""0.5_num takes the type of what it meets, rounds once, and leaves nothing but a constant in the machine code."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest
from prelude_library import COMPILERS, assembly, every_value, library, pointer, precision_of, rounded
from vendor_compilers import needs

from mptune.backends import BACKENDS
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.cpp.prelude import prelude
from mptune.errors import CompileError

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


def spelled():
    """Numbers as programs spell them, with their doubles; every rounding of theirs is told by Python's own reading."""
    rng = np.random.default_rng(6)
    texts = ["0.1", "0.0", ".5", "5.", "1'000.000'1", "1e22", "1e23", "3.14159265358979323846264338327950288419717"]
    # Next to the middle between two doubles, which a long double may hit; as small and as large as there are.
    texts += ["9007199254740993.0", "9007199254740993.00000000000000000000000000001", "9007199254740992.999999999999"]
    texts += [
        "4.9e-324",
        "2.4703282292062327208e-324",
        "2.48e-324",
        "2.2250738585072011e-308",
        "1.7976931348623157e308",
    ]
    texts += ["0x1.8p3", "0X1P-1074", "0x1.00000000000008p0", "0x1.000000000000080000001p0", "0xA.Bp-4"]
    for digits, exponent in zip(rng.integers(1, 24, 100).tolist(), rng.integers(-30, 30, 100).tolist(), strict=True):
        text = "".join(map(str, rng.integers(10, size=digits).tolist()))
        texts.append(f"{text[:1]}.{text[1:]}e{exponent}")
    texts += [repr(x) for x in np.ldexp(rng.uniform(1, 2, 50), rng.integers(-300, 300, 50)).tolist()]
    plain = {text: text.replace("'", "") for text in texts}
    return {text: float.fromhex(p) if p[:2] in ("0x", "0X") else float(p) for text, p in plain.items()}


def checks_of(numbers):
    return "\n".join(
        f'static_assert(static_cast<double>({text}_num) == {value.hex()}, "{text}");' for text, value in numbers.items()
    )


@pytest.mark.full
@pytest.mark.parametrize("compiler", COMPILERS)
def test_it_is_the_nearest_double(compiler):
    assert assembly(compiler, checks_of(spelled()))


@pytest.mark.parametrize(
    ("backend", "architecture"),
    [
        pytest.param("cuda", "sm_90", marks=[*needs("cuda"), pytest.mark.full]),
        pytest.param("hip", "gfx90a", marks=[*needs("hip"), pytest.mark.full]),
    ],
)
def test_it_is_the_nearest_double_on_gpus(backend, architecture, tmp_path):
    kernel = 'extern "C" __global__ void tenth(double* x) { *x = 0.1_num; }'
    handle = BACKENDS[backend](cache=BinaryCache(tmp_path))
    # Some have more digits than a double, which NVRTC remarks on.
    assert handle.compiler.compile(
        prelude() + checks_of(spelled()) + kernel, "tenth", CompileOptions(architecture)
    ).image
    wrong = prelude() + checks_of({"0.1": float(np.nextafter(0.1, 1))}) + kernel
    with pytest.raises(CompileError):
        handle.compiler.compile(wrong, "tenth", CompileOptions(architecture))
