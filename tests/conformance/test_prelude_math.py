"""The prelude's mathematical functions on the host, held to the error bounds it states."""

from __future__ import annotations

import ctypes
import math

import mpmath
import numpy as np
import pytest
import scipy.special
from prelude_library import COMPILERS, every_value, library, pointer, precision_of

SOURCE = "prelude_math.cpp"


def _gamma(function):
    """Return a function of Python's with what C has where it raises an error."""

    def of(x):
        try:
            return function(x)
        except ValueError:  # a pole
            if function is math.lgamma:
                return math.inf
            return math.copysign(math.inf, x) if x == 0 else math.nan
        except OverflowError:
            return math.inf

    return of


def _of_half_turns(x):
    """Return an angle's half turns without even multiples; NumPy's remainder is exact."""
    return np.where(np.isfinite(x), np.fmod(x, 2), np.nan)


def _sinpi(x):
    r = _of_half_turns(x)
    r = np.where(np.abs(r) > 1, r - np.copysign(2, r), r)
    return np.where(r == np.rint(r), 0.0, np.sin(np.pi * np.where(np.abs(r) > 0.5, np.copysign(1, r) - r, r)))


REFERENCE = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "log", "log2", "log10", "sin", "cos", "tan")},
    **{name: getattr(np, name) for name in ("sinh", "cosh", "tanh", "sqrt", "cbrt")},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "exp10": lambda x: np.power(10.0, x),
    "expm1": np.expm1,
    "log1p": np.log1p,
    "sinpi": _sinpi,
    "cospi": lambda x: _sinpi(0.5 - np.abs(_of_half_turns(x))),
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "normcdf": scipy.special.ndtr,
    "tgamma": np.vectorize(_gamma(math.gamma), otypes=[float]),
    "lgamma": np.vectorize(_gamma(math.lgamma), otypes=[float]),
}
EXACT_REFERENCE = {
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x, 2),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "rcbrt": lambda x: mpmath.sign(x) / mpmath.cbrt(abs(x)),
    "exp10": lambda x: mpmath.power(10, x),
    "normcdf": mpmath.ncdf,
    "tgamma": mpmath.gamma,
    "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))),
}
CIRCULAR = ("sin", "cos", "tan")

#: Units in the last place of fp32 for the fast policy; a rounding, half a unit, where it is the accurate one.
FAST = {
    **dict.fromkeys(("exp", "exp2"), 1.0),
    **dict.fromkeys(("log", "log2", "log10", "atan", "tanh"), 2.0),
    **dict.fromkeys(("sin", "cos"), 2.5),
    **dict.fromkeys(("asin", "acos", "erf", "sinpi", "cospi"), 3.0),
    **dict.fromkeys(("tan", "sinh", "cosh"), 4.0),
    "erfc": 5.0,
    "rsqrt": 1.5,
}
#: Units in the last place of fp16 for the approx policy.
APPROX = {
    **dict.fromkeys(("exp", "exp2", "log", "log2"), 0.7),
    **dict.fromkeys(("sin", "cos", "tan"), 0.85),
    **dict.fromkeys(("sinpi", "cospi"), 0.75),
    "tanh": 0.75,
}
#: The same where the processor computes in fp16 itself.
APPROX_IN_HALF = {"exp": 0.95, "exp2": 0.9, "rsqrt": 0.95}
#: There the error of these is absolute.
CIRCULAR_IN_HALF = 0.8 * 2.0**-10
ONCE = 0.51

pytestmark = [
    pytest.mark.full,  # compiling every function in every type takes seven seconds
    pytest.mark.skipif(not COMPILERS, reason="no C++ compiler: install g++ or clang++"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


@pytest.fixture(scope="module", params=COMPILERS or ("none",))
def cpp(request):
    return library(request.param, SOURCE)


def apply(cpp, name, policy, cpp_type, *arguments):
    out = np.empty_like(arguments[0])
    function = getattr(cpp, f"{name}_{policy}_{cpp_type}")
    function(*map(pointer, arguments), pointer(out), ctypes.c_long(out.size))
    return out


def units(got, wanted, precision):
    """How far numbers are from the true values, in units in the last place of the true values."""
    smallest = np.frexp(precision.smallest_normal)[1]
    exponents = np.maximum(np.frexp(wanted)[1], smallest) - precision.significand_bits
    return np.abs(got.astype(np.float64) - wanted) / np.ldexp(1.0, exponents)


def check(got, wanted, precision, bound, inputs, ignore=None):
    """Numbers within a bound of the true values; NaN, infinities and overflow where the true values have them."""
    ignore = np.zeros(got.size, bool) if ignore is None else ignore
    found = got.astype(np.float64)
    limit = precision.largest * (1 + bound * precision.unit_roundoff)
    over = np.abs(wanted) > limit
    number = np.isfinite(wanted) & ~over & ~ignore
    with np.errstate(all="ignore"):
        error = np.where(number, units(found, wanted, precision), 0.0)
    overflowing = number & np.isinf(found) & (np.abs(wanted) > precision.largest)
    good = (error <= bound) | overflowing | ignore
    good &= np.isnan(found) == np.isnan(wanted)
    good &= np.where(over, np.isinf(found) & (np.sign(found) == np.sign(wanted)), True)
    wrong = np.flatnonzero(~good)
    assert wrong.size == 0, [(inputs[i], found[i], wanted[i], error[i]) for i in wrong[:5]]


def float_arguments(name, n=60_000):
    rng = np.random.default_rng(21)
    parts = [
        rng.standard_normal(n) * np.exp2(rng.uniform(-30, 8, n)),
        rng.uniform(-1.2, 1.2, n),
        rng.uniform(-110, 110, n),
        1 + rng.standard_normal(n // 4) * 2.0**-10,
        np.exp2(rng.uniform(-149, 127, n // 4)),
        [
            0.0,
            -0.0,
            np.inf,
            -np.inf,
            np.nan,
            1.0,
            -1.0,
            0.5,
            -0.5,
            3.4e38,
            1e-45,
            0.75,
            0.65,
            3.95,
            88.72,
            89.0,
            -103.9,
        ],
    ]
    if name in CIRCULAR:
        parts.append(rng.integers(1, 300_000, n) * (np.pi / 2))
    return np.concatenate(parts).astype(np.float32)


@pytest.mark.full
@pytest.mark.parametrize("name", REFERENCE)
@pytest.mark.parametrize("policy", ["accurate", "fast"])
def test_float(cpp, name, policy):
    x = float_arguments(name)
    bound = ONCE if policy == "accurate" else FAST.get(name, ONCE)
    outside = (
        (np.abs(x) > 2.0**20) & np.isfinite(x) if policy == "fast" and name in CIRCULAR else np.zeros(x.size, bool)
    )
    got = apply(cpp, name, policy, "float", x)
    check(got, REFERENCE[name](x.astype(np.float64)), precision_of("float"), bound, x, outside)
    if name in ("sin", "cos"):
        assert (np.abs(got[outside]) <= 1).all()


@pytest.mark.parametrize("cpp_type", ["half", "bfloat16"])
@pytest.mark.parametrize("name", REFERENCE)
def test_every_half_and_bfloat16_accurately(cpp, name, cpp_type):
    x = every_value(precision_of(cpp_type))
    got = apply(cpp, name, "accurate", cpp_type, x)
    check(got, REFERENCE[name](x.astype(np.float64)), precision_of(cpp_type), ONCE, x)


@pytest.mark.parametrize("cpp_type", ["half", "bfloat16"])
@pytest.mark.parametrize("name", REFERENCE)
def test_every_half_and_bfloat16_roughly(cpp, name, cpp_type):
    x = every_value(precision_of(cpp_type))
    wide = x.astype(np.float64)
    wanted = REFERENCE[name](wide)
    got = apply(cpp, name, "approx", cpp_type, x)
    ignore = np.zeros(x.size, bool)
    if name in CIRCULAR:
        ignore = (np.abs(wide) > 2.0**10) & np.isfinite(wide)
        if name != "tan":
            assert (np.abs(got[ignore].astype(np.float32)) <= 1).all()
    if cpp_type == "bfloat16" and name in ("exp", "exp2"):
        ignore = np.abs(wanted) < 2.0**-125
        assert (got[ignore].astype(np.float32) <= 2.0**-125).all()
    bound = APPROX.get(name, ONCE) if cpp_type == "half" else 0.55
    if cpp_type == "half" and ctypes.c_int.in_dll(cpp, "computes_in_half").value:
        bound = APPROX_IN_HALF.get(name, bound)
        if name in ("sin", "cos", "sinpi", "cospi"):
            inside = np.isfinite(wide) & ~ignore
            assert np.abs(got[inside].astype(np.float64) - wanted[inside]).max() <= CIRCULAR_IN_HALF
            ignore = np.isfinite(wide)
    check(got, wanted, precision_of(cpp_type), bound, x, ignore)


@pytest.mark.parametrize("name", REFERENCE)
def test_double_against_forty_digits(cpp, name):
    rng = np.random.default_rng(22)
    x = np.concatenate([rng.standard_normal(200) * np.exp2(rng.uniform(-20, 7, 200)), rng.uniform(-1, 1, 100)])
    with np.errstate(all="ignore"):
        valid = np.isfinite(REFERENCE[name](x))
    x = x[valid]
    exact = EXACT_REFERENCE.get(name) or getattr(mpmath, name)
    with mpmath.workdps(40):
        values = [exact(mpmath.mpf(float(v))) for v in x]
        wanted = np.array([float(v) for v in values])
        # what rounding the true value to a double loses, which is up to half a unit
        rest = np.array([float(v - mpmath.mpf(float(w))) for v, w in zip(values, wanted, strict=True)])
    # the other tests lean on the double-precision reference to a few dozen bits
    for got, bound in ((apply(cpp, name, "accurate", "double", x), 4.0), (REFERENCE[name](x), 2.0**12)):
        unit = np.ldexp(1.0, np.maximum(np.frexp(wanted)[1], -1021) - 53)
        error = np.abs((got - wanted) - rest) / unit
        assert error.max() <= bound, (x[error.argmax()], error.max())


@pytest.mark.parametrize(("cpp_type", "bound"), [("double", 4.0), ("float", 1.05), ("half", ONCE), ("bfloat16", ONCE)])
def test_sine_and_cosine_of_a_few_turns(cpp, cpp_type, bound):
    precision = precision_of(cpp_type)
    rng = np.random.default_rng(24)
    near_zeros = rng.integers(-16, 17, 500) * (np.pi / 2) * (1 + rng.uniform(-4, 4, 500) * precision.unit_roundoff)
    x = np.concatenate([rng.uniform(-26, 26, 1500), near_zeros, [0.0, -0.0, np.pi]]).astype(precision.dtype)
    found = np.empty((2, x.size), precision.dtype)
    getattr(cpp, f"bounded_{cpp_type}")(pointer(x), pointer(found[0]), pointer(found[1]), ctypes.c_long(x.size))
    with mpmath.workdps(40):
        for value, *both in zip(x.astype(np.float64), *found.astype(np.float64), strict=True):
            for got, wanted in zip(both, (mpmath.sin(mpmath.mpf(value)), mpmath.cos(mpmath.mpf(value))), strict=True):
                # Nearer to zero than that they are off by as much as there.
                exponent = max(mpmath.frexp(wanted)[1], -16)
                assert abs(mpmath.mpf(got) - wanted) <= bound * mpmath.ldexp(
                    1, exponent - precision.significand_bits
                ), value


def pairs(cpp_type, n=40_000):
    rng = np.random.default_rng(23)
    dtype = precision_of(cpp_type).dtype
    x = (rng.standard_normal(n) * np.exp2(rng.uniform(-6, 4, n))).astype(dtype)
    return x, (rng.standard_normal(n) * np.exp2(rng.uniform(-6, 3, n))).astype(dtype)


TWO = {"pow": np.power, "atan2": np.arctan2, "hypot": np.hypot, "rhypot": lambda x, y: 1 / np.hypot(x, y)}


@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("cpp_type", ["float", "half", "bfloat16"])
def test_two_arguments_accurately(cpp, name, cpp_type):
    x, y = pairs(cpp_type)
    wanted = TWO[name](x.astype(np.float64), y.astype(np.float64))
    check(apply(cpp, name, "accurate", cpp_type, x, y), wanted, precision_of(cpp_type), ONCE, np.stack([x, y], 1))


@pytest.mark.parametrize(("name", "bound"), [("atan2", 4.0), ("hypot", 1.5), ("rhypot", 2.5)])
def test_two_arguments_fast(cpp, name, bound):
    x, y = pairs("float")
    wanted = TWO[name](x.astype(np.float64), y.astype(np.float64))
    check(apply(cpp, name, "fast", "float", x, y), wanted, precision_of("float"), bound, np.stack([x, y], 1))


@pytest.mark.parametrize("policy", ["accurate", "fast"])
def test_atan2_of_zeros_and_infinities(cpp, policy):
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], np.float32)
    y, x = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(special, special))
    got = apply(cpp, "atan2", policy, "float", y, x)
    wanted = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    check(got, wanted, precision_of("float"), 4.0, np.stack([y, x], 1))
    assert np.array_equal(np.signbit(got), np.signbit(wanted) & ~np.isnan(wanted) | (np.isnan(got) & np.signbit(got)))


EXACT_TWO = {
    "fmod": np.fmod,
    "remainder": np.vectorize(math.remainder, otypes=[float]),
    "fdim": lambda x, y: np.where(x > y, x - y, 0.0),
    "copysign": np.copysign,
}


@pytest.mark.parametrize("cpp_type", ["double", "float", "half"])
@pytest.mark.parametrize("name", EXACT_TWO)
def test_two_arguments_exactly(cpp, name, cpp_type):
    x, y = pairs(cpp_type)
    x, y = x[y != 0], y[y != 0]
    wanted = EXACT_TWO[name](x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)
    assert np.array_equal(apply(cpp, name, "accurate", cpp_type, x, y), wanted)


@pytest.mark.parametrize("cpp_type", ["double", "float", "half"])
@pytest.mark.parametrize("name", ["fabs", "floor", "ceil", "round", "rint", "nearbyint", "trunc"])
def test_roundings_are_exact(cpp, name, cpp_type):
    x = every_value(precision_of("half")).astype(precision_of(cpp_type).dtype)
    away = np.trunc(x.astype(np.float64) + np.copysign(0.5, x))
    wanted = away if name == "round" else getattr(np, {"nearbyint": "rint"}.get(name, name))(x.astype(np.float64))
    assert np.array_equal(apply(cpp, name, "accurate", cpp_type, x).astype(np.float64), wanted, equal_nan=True)


@pytest.mark.parametrize("cpp_type", ["double", "float", "half", "bfloat16"])
def test_extrema_and_classification(cpp, cpp_type):
    dtype = precision_of(cpp_type).dtype
    special = np.array([0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 6e-8], dtype)
    x, y = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(special, special))
    out = np.empty((11, x.size), dtype)
    getattr(cpp, f"extrema_{cpp_type}")(pointer(x), pointer(y), pointer(out), ctypes.c_long(x.size))
    x, y, out = (values.astype(np.float64) for values in (x, y, out))
    assert np.array_equal(out[0], np.where(y < x, y, x), equal_nan=True)
    assert np.array_equal(out[1], np.where(y > x, y, x), equal_nan=True)
    assert np.array_equal(out[2], np.abs(x), equal_nan=True)
    assert np.array_equal(out[3], np.isnan(x) + 2 * np.isinf(x) + 4 * np.isfinite(x))
    for least, most in zip(out[4:7], out[7:10], strict=True):
        assert np.array_equal(least, np.fmin(x, y), equal_nan=True)
        assert np.array_equal(most, np.fmax(x, y), equal_nan=True)
    assert np.array_equal(out[10], np.fmin(np.fmax(x, 0), 2))


def test_sinpi_of_whole_numbers_is_a_zero_with_their_sign(cpp):
    x = np.array([0.0, -0.0, 1, -1, 2, -2, 3, 4503599627370497, -4503599627370497, 1e300])
    for cpp_type in ("double", "float"):
        values = x[np.abs(x) < 1e9].astype(precision_of(cpp_type).dtype) if cpp_type == "float" else x
        got = apply(cpp, "sinpi", "accurate", cpp_type, values)
        assert not got.any()
        assert np.array_equal(np.signbit(got), np.signbit(values))
        turns = np.abs(apply(cpp, "cospi", "accurate", cpp_type, values))
        assert (turns == 1).all()


def test_fast_pow_of_awkward_arguments(cpp):
    special = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, np.inf, np.nan, 1e6], np.float32)
    x, y = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(special, special))
    known = ~(np.isinf(y) | (np.isnan(x) & (y == 0)))  # limits of an infinite exponent are not promised
    x, y = x[known], y[known]
    wanted = np.power(x.astype(np.float64), y.astype(np.float64))
    check(apply(cpp, "pow", "fast", "float", x, y), wanted, precision_of("float"), 400, np.stack([x, y], 1))
