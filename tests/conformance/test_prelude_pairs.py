"""What vectors compute and convert: by the PTX that NVRTC makes of them, which no device needs to run, and on devices.

Each architecture has other instructions: bf16 is fused only before sm_90, fp8 in software before sm_89, and before
sm_80 bf16 is computed in float. What they compute is the same.
"""

from __future__ import annotations

import functools
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from prelude_library import assert_same, awkward_values, every_value, precision_of, rounded, rounded_fraction
from ptx import Threads, fused
from vendor_compilers import needs, nvrtc

from mptune.backends import BACKENDS, get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.cpp.prelude import prelude
from mptune.testing.backends import launch_on_arrays
from tests.tiers import few

SOURCE = (Path(__file__).parent / "prelude_pairs.cu").read_text(encoding="utf-8")
DEVICES = ("cuda", "hip")
BLOCK = 64
ARCHITECTURES = ("sm_75", "sm_80", "sm_90")
OPERATIONS = 11
#: Quotients so close to the middle between two halves that a reciprocal off by its last bit rounds them wrongly.
CLOSE_QUOTIENTS = ((1503, 1583), (1556, 1675), (1678, 1711), (1618, 1739), (1412, 1751), (1779, 1835))
TYPES = ("double", "float", "half", "bfloat16", "fp8_e4m3", "fp8_e5m2")


def cuda(first, *values):
    # sm_75 has neither bf16 nor fp8, as sm_80 has no fp8.
    return pytest.param(
        first, *values, marks=[*needs("cuda"), pytest.mark.nightly if first == "sm_75" else pytest.mark.full]
    )


def on(backend, *values):
    found = BACKENDS[backend].availability()
    skip = pytest.mark.skipif(not found.can_run, reason=found.reason or "there")
    return pytest.param(backend, *values, marks=[skip] if backend == "host" else [skip, pytest.mark.gpu])


def everywhere(*cases, host=()):
    """Each case in the PTX of each architecture, and on each device; on the host only those named."""
    interpreted = [cuda(architecture, *case) for architecture in ARCHITECTURES for case in cases]
    return [
        *interpreted,
        *(on(device, *case) for device in DEVICES for case in cases),
        *few([on("host", *c) for c in host], 0),
    ]


@functools.cache
def ptx(architecture):
    return nvrtc(prelude() + SOURCE, "", architecture)[0]


def run(where, name, threads, *arguments, reciprocal_ulps=0):
    """Run a kernel, on a backend's device or what NVRTC makes of it for an architecture."""
    if where in ARCHITECTURES:
        Threads(ptx(where), name, reciprocal_ulps).run(threads, *arguments)
        return
    backend = get_backend(where)
    entry = f"\n#if defined(MPTUNE_HOST)\nMPTUNE_HOST_ENTRY({name})\n#endif\n"
    function = backend.device.load(backend.compiler.compile(prelude() + SOURCE + entry, name, CompileOptions()))
    launch_on_arrays(backend, function, (threads // BLOCK,), (BLOCK,), *arguments)
    function.unload()


def body(architecture, name):
    return re.findall(rf"\.entry {name}\((.*?)\n\}}", ptx(architecture), re.DOTALL)[0]


def operands(cpp, rng, n):
    """Random pairs of all bit patterns, and every pair of some awkward ones."""
    every = every_value(precision_of(cpp))
    awkward = np.array([0.0, -0.0, 1, -1, 3, 5.5, np.inf, -np.inf, np.nan, *np.ldexp([1, -3], -24)], dtype=every.dtype)
    awkward = np.concatenate([awkward, every[1:3], every[0x7BFE:0x7C02], every[0x7F7E:0x7F82]])
    grid = np.stack(np.meshgrid(awkward, awkward, awkward), axis=-1).reshape(-1, 3)
    close = np.array([(a, b, 1) for a, b in CLOSE_QUOTIENTS]).astype(every.dtype)
    return np.concatenate([close, grid, rng.choice(every, (n, 3))])


def products_fit_float(values):
    """Where a fused operation that is computed in float gets a product that float can hold."""
    with np.errstate(all="ignore"):
        a, b, _ = values.astype(np.float64).T
        product = np.abs(a * b)
    return ~((product < 2.0**-100) & (product > 0)) & ~((product >= 2.0**128) & np.isfinite(product))


def expected(a, b, c, precision):
    """The results of prelude_pairs.cu's arithmetic, rounded once."""
    exact = [a + b, a - b, a * b, a / b, fused(a, b, c), None, None, a + 3, 2 - b, np.fmin(a, b), np.fmax(a, b)]
    results = [rounded(value, precision) if value is not None else None for value in exact]
    results[5], results[6] = np.where(b < a, b, a), np.where(b > a, b, a)
    return np.stack(results)


@pytest.mark.parametrize("cpp", ["half", "bfloat16"])
def test_what_is_expected_of_fma_is_the_exact_value_rounded_once(cpp):
    precision = precision_of(cpp)
    with np.errstate(all="ignore"):
        values = operands(cpp, np.random.default_rng(2), 2000)[-2000:].astype(np.float64)
        values = values[np.isfinite(values).all(axis=1)]
        found = rounded(fused(*values.T.copy()), precision)
    for result, (a, b, c) in zip(found, values, strict=True):
        assert result == rounded_fraction(Fraction(a) * Fraction(b) + Fraction(c), precision)


@pytest.mark.parametrize(
    ("where", "cpp", "width", "ulps"),
    everywhere(
        *(("half", 3, 1), ("half", 8, 0), ("half", 8, -1), ("bfloat16", 3, 0), ("bfloat16", 8, 0)),
        host=[("half", 8, 0)],
    ),
)
def test_arithmetic_rounds_every_element_once(where, cpp, width, ulps):
    precision = precision_of(cpp)
    values = operands(cpp, np.random.default_rng([width, ulps + 1]), 9_000)
    if cpp == "bfloat16" and where not in ("sm_80", "sm_90"):
        values = values[products_fit_float(values)]
    threads = len(values) // width // BLOCK * BLOCK
    columns = values[: threads * width].T.copy()
    found = np.empty((OPERATIONS, threads * width), dtype=precision.dtype)
    run(where, f"arithmetic_{cpp}_{width}", threads, columns, found, np.int32(threads), reciprocal_ulps=ulps)
    with np.errstate(all="ignore"):
        a, b, c = columns.astype(np.float64)
        wanted = expected(a, b, c, precision)
        found[9:] += 0  # of zeros of either sign fmin and fmax give any
        wanted[9:] += 0
        for k in range(OPERATIONS):
            assert_same(found[k], wanted[k], np.column_stack([np.full(a.size, k), a, b, c]))


@pytest.mark.parametrize(
    ("where", "cpp"), everywhere(("half",), ("bfloat16",), ("float",), host=[("half",), ("bfloat16",), ("float",)])
)
def test_neighbours_need_no_alignment(where, cpp):
    precision = precision_of(cpp)
    x = np.random.default_rng(3).standard_normal((BLOCK, 6)).astype(precision.dtype)
    found = np.zeros_like(x)
    run(where, f"neighbours_{cpp}", BLOCK, x, found)
    with np.errstate(all="ignore"):
        wanted = rounded(np.abs(x.astype(np.float64)) - 1, precision)
    assert_same(found[:, 1:5], wanted[:, 1:5], x)
    assert_same(found[:, 0], x[:, 1].astype(np.float64), x)
    assert not found[:, 5].any()


@pytest.mark.parametrize(("where", "cpp"), everywhere(("half",), ("bfloat16",)))
def test_comparisons_are_those_of_numbers(where, cpp):
    pairs = operands(cpp, np.random.default_rng(0), 20_000)[:, :2]
    pairs = pairs[: len(pairs) // BLOCK * BLOCK].copy()
    found = np.empty(len(pairs), dtype=np.uint8)
    run(where, f"comparisons_{cpp}", len(pairs), pairs, found)
    with np.errstate(all="ignore"):
        a, b = pairs.T.astype(np.float64)
    wanted = (a == b) | (a != b) << 1 | (a < b) << 2 | (a <= b) << 3 | (a > b) << 4 | (a >= b) << 5
    assert np.array_equal(found, wanted)


def values_of(cpp, rng):
    """Every value of a narrow type, in an order that puts unlike ones together; awkward ones of a wide type."""
    precision = precision_of(cpp)
    if precision.size_bytes <= 2:
        values = rng.permutation(every_value(precision))
    else:
        with np.errstate(all="ignore"):
            values = awkward_values(rng, 500)
            values = rng.permutation(np.concatenate([values, -values[-12:]]).astype(precision.dtype))
    return np.concatenate([values, values[: -len(values) % (3 * BLOCK)]])


@pytest.mark.parametrize(
    ("where", "source", "target"),
    everywhere(*((source, target) for source in TYPES for target in TYPES[1:] if source != target)),
)
def test_conversions_round_once(where, source, target):
    values = values_of(source, np.random.default_rng(0))
    found = np.empty(values.size, dtype=precision_of(target).dtype)
    run(where, f"{source}_to_{target}", values.size // 3, values, found)
    with np.errstate(all="ignore"):
        assert_same(found, rounded(values.astype(np.float64), precision_of(target)), values)


@pytest.mark.parametrize("target", [cuda("fp8_e4m3"), cuda("fp8_e5m2")])
@pytest.mark.parametrize("source", TYPES[:4])
def test_fp8_in_hardware_has_the_bits_of_fp8_in_software(source, target):
    """NaN with its sign included."""
    values = values_of(source, np.random.default_rng(1))
    bits = {}
    for architecture in ("sm_80", "sm_90"):
        bits[architecture] = np.empty(values.size, dtype=np.uint8)
        run(architecture, f"{source}_to_{target}", values.size // 3, values, bits[architecture])
    assert np.array_equal(bits["sm_80"], bits["sm_90"])


@pytest.mark.parametrize(
    ("architecture", "name", "wanted"),
    [
        cuda("sm_75", "arithmetic_half_8", {"fma.rn.f16x2": 4, "set.lt.u32.f16x2": 4}),
        cuda("sm_80", "arithmetic_bfloat16_8", {"fma.rn.bf16x2": 24, "min.bf16x2": 4, "max.bf16x2": 4}),
        cuda("sm_90", "arithmetic_half_8", {"add.f16x2": 8, "sub.f16x2": 8, "mul.f16x2": 4, "fma.rn.f16x2": 4}),
        cuda("sm_90", "arithmetic_bfloat16_8", {"add.bf16x2": 8, "mul.bf16x2": 4, "set.gt.u32.bf16x2": 4}),
        cuda("sm_90", "neighbours_half", {"sub.f16x2": 2, "cvt.rn.f16x2.f32": 2}),
        cuda("sm_90", "aligned_half", {"ld.global.u32": 2, "st.global.u32": 2, "sub.f16x2": 2}),
        cuda("sm_90", "neighbours_bfloat16", {"sub.bf16x2": 2, "cvt.rn.bf16x2.f32": 2}),
        cuda("sm_80", "float_to_half", {"cvt.rn.f16x2.f32": 1, "cvt.rn.f16.f32": 1}),
        cuda("sm_80", "half_to_bfloat16", {"cvt.rn.bf16x2.f32": 1, "cvt.rn.bf16.f32": 1}),
        cuda("sm_89", "float_to_fp8_e4m3", {"cvt.rn.satfinite.e4m3x2.f32": 2}),
        cuda("sm_89", "fp8_e4m3_to_half", {"cvt.rn.f16x2.e4m3x2": 2}),
    ],
)
def test_there_is_an_instruction_for_two(architecture, name, wanted):
    text = body(architecture, name)
    assert {instruction: len(re.findall(rf"\b{re.escape(instruction)} ", text)) for instruction in wanted} == wanted
    if name.startswith("arithmetic"):
        assert not re.search(r"\b(add|sub|mul|fma\.rn)\.b?f16 ", text)


#: The first half of what these two-word instructions are on CDNA, and the scalar ones they stand for.
CDNA = {"v_pk_fma_f16": 0xD38E, "v_pk_add_f16": 0xD38F, "v_pk_mul_f16": 0xD390}


def code_words(image):
    """Return the upper halves of all words of a code object."""
    return np.frombuffer(image[: len(image) // 4 * 4], dtype="<u4") >> 16


@pytest.mark.parametrize("architecture", [pytest.param("gfx90a", marks=[*needs("hip"), pytest.mark.full])])
def test_there_is_an_instruction_for_two_on_cdna(architecture, tmp_path):
    kernel = """
extern "C" __global__ void packed(const half* x, half* y) {
    const vec<half, 8> a = load<8>(x + 8 * threadIdx.x), b = load<8>(x + 8 * (threadIdx.x + 256));
    store(y + 8 * threadIdx.x, fma(a, b, a));
    store(y + 8 * (threadIdx.x + 256), a + b);
    store(y + 8 * (threadIdx.x + 512), a * b);
}"""
    backend = BACKENDS["hip"](cache=BinaryCache(tmp_path))
    words = code_words(backend.compiler.compile(prelude() + kernel, "packed", CompileOptions(architecture)).image)
    assert {name: int((words == word).sum()) for name, word in CDNA.items()} == dict.fromkeys(CDNA, 4)
