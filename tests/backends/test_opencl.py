"""The OpenCL backend: what it makes of a source, how it chooses a device, and tuning on one where there is any."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import own_kernel
import pytest
from command_line import caller

from mptune.backends import opencl
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.opencl import TOOLS, Offline, OpenclBackend, find_offline
from mptune.backends.opencl_dialect import as_opencl
from mptune.cpp.prelude import prelude
from mptune.errors import BackendUnavailableError, CompileError, LaunchError, OutOfMemoryError
from mptune.kernel import LaunchShape
from mptune.precision import PRECISIONS
from mptune.results.trial import Status
from mptune.tuning import tune
from tests.conformance.prelude_library import rounded_fraction
from tests.tiers import few

FOUND = OpenclBackend.availability()
needs_device = pytest.mark.skipif(not FOUND.can_run, reason=FOUND.reason or "can run")


# -- the dialect ---------------------------------------------------------------------------------


def body_of(text: str) -> str:
    """Return what a source becomes, without the definitions of OpenCL's own words."""
    return re.sub(r"\A(#define \w+ mptune_\w+\n)+", "", as_opencl(text))


def test_pointers_of_a_kernel_are_to_global_memory() -> None:
    source = (
        'extern "C" __global__ void __launch_bounds__(64) f(\n'
        "    float* __restrict__ y, const vec<half, 2>* x,  // a, b*\n"
        "    const double (*m)[3], [[maybe_unused]] int n) { helper(y); }\n"
        "__device__ void helper(float* y);\n"
    )
    wanted = source.replace("    float*", "    __global float*")
    assert body_of(source) == wanted.replace("const vec<", "__global const vec<").replace(
        "const double", "__global const double"
    )


def test_dynamic_shared_memory_becomes_the_last_parameter() -> None:
    source = 'extern "C" __global__ void f(int n) { SHARED_DYNAMIC(float, part); }'
    assert "f(int n, __local uchar16* mptune_dynamic_shared)" in body_of(source)
    assert "f(__local uchar16* mptune_dynamic_shared)" in body_of(source.replace("int n", "")).replace("( ", "(")
    assert "mptune_dynamic_shared" not in body_of(source.replace("SHARED_DYNAMIC(float, part)", "// SHARED_DYNAMIC"))


def test_lines_keep_their_numbers_and_the_prelude_comes_along() -> None:
    source = f'{prelude()}\n#line 1 "f.cu"\n\nextern "C" __global__ void f(float* y) {{}}\n'
    translated = as_opencl(source)
    assert translated.endswith('\n#line 1 "f.cu"\n\nextern "C" __global__ void f(__global float* y) {}\n')
    assert not re.search(r"\blong long\b", translated)
    assert "#define local mptune_local" in translated


# -- the device ----------------------------------------------------------------------------------


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that puts devices of these names and types in place of those that are here."""
    caches = (opencl._pyopencl, opencl._find_device)

    def put(*devices: tuple[str, int], il: str = "", asked: str | None = None) -> None:
        platform = SimpleNamespace(name="Some Platform", vendor="Somebody")
        platform.get_devices = lambda: [
            SimpleNamespace(name=name, type=kind, extensions="", platform=platform, il_version=il)
            for name, kind in devices
        ]
        types = SimpleNamespace(GPU=4, CPU=2)
        cl = SimpleNamespace(get_platforms=lambda: [platform], Error=RuntimeError, device_type=types)
        caches[1].cache_clear()
        monkeypatch.setattr(opencl, "_pyopencl", lambda: cl)
        if asked:
            monkeypatch.setenv("MPTUNE_OPENCL_DEVICE", asked)

    for cache in caches:
        cache.cache_clear()
    yield put
    for cache in caches:
        cache.cache_clear()


ARCS = (("Arc", 4), ("Fast CPU", 2), ("Arc", 4), ("Arc Pro", 4))


@pytest.mark.parametrize(
    ("devices", "asked", "found"),
    [
        ((("Fast CPU", 2), ("GPU", 4)), None, "GPU"),
        ((("Fast CPU", 2), ("GPU", 4)), "fast cpu", "Fast CPU"),
        (ARCS, "Some Platform Arc#1", "Arc"),
    ],
)
def test_a_gpu_comes_before_a_processor_or_the_device_that_is_asked_for(
    drivers: Any, devices: Any, asked: str | None, found: str
) -> None:
    drivers(*devices, asked=asked)
    assert opencl._find_device().name == found
    if devices == ARCS:
        listed = [environment["MPTUNE_OPENCL_DEVICE"] for environment in OpenclBackend().device.environments()]
        assert listed == ["Some Platform Arc#0", "Some Platform Arc#1"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("vega", r"'vega' .*; there are Some Platform Arc, Some Platform Fast CPU"),
        ("arc pro#1", r"arc pro#1: expected a number below 1"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_those_that_are(drivers: Any, asked: str, message: str) -> None:
    drivers(*ARCS, asked=asked)
    with pytest.raises(BackendUnavailableError, match=message):
        opencl._find_device()


def test_a_driver_without_the_language_needs_spirv_and_clang(drivers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drivers(("Old GPU", 4))
    reason = OpenclBackend.availability().reason
    assert "driver of Old GPU does not compile C++ for OpenCL 2021" in reason
    assert reason.endswith("does not accept SPIR-V, so clang cannot compile for it")
    drivers(("Old GPU", 4), il="SPIR-V_1.0 SPIR-V_1.2")
    monkeypatch.setattr(opencl, "find_offline", lambda: None)
    assert OpenclBackend.availability().reason.endswith("llvm-spirv-14)")
    monkeypatch.setattr(opencl, "find_offline", lambda: Offline("clang", "llvm-spirv", "clang version 14.0"))
    assert OpenclBackend.availability().can_compile
    for name, told in (
        ("driver", "set MPTUNE_OPENCL_COMPILER=clang to use clang"),
        ("gcc", "expected driver or clang"),
    ):
        monkeypatch.setenv("MPTUNE_OPENCL_COMPILER", name)
        assert OpenclBackend.availability().reason.endswith(told)
    drivers()
    assert 'pip install "mptune[opencl]" brings' in OpenclBackend.availability().reason


# -- where there is one --------------------------------------------------------------------------

AXPY = """
#line 1 "axpy.cu"
extern "C" __global__ void axpy(const half a, const bfloat16* __restrict__ x, float* __restrict__ y, int n) {
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) store(y + i, fma(a, load<4>(x + i), load<4>(y + i)));
}
"""


@pytest.fixture
def backend(tmp_path: Path) -> OpenclBackend:
    return OpenclBackend(cache=BinaryCache(tmp_path))


@needs_device
def test_no_other_architecture_is_compiled_for(backend: OpenclBackend) -> None:
    with pytest.raises(BackendUnavailableError, match=r"not for 'sm_90': leave out --arch"):
        backend.compiler.compile(prelude() + AXPY, "axpy", CompileOptions("sm_90"))


@needs_device
def test_a_part_that_is_not_aligned_is_refused(backend: OpenclBackend) -> None:
    whole = backend.device.allocate(4096)
    with pytest.raises(LaunchError, match="at byte 4 is not aligned"):
        whole.part(4, 64).for_kernel()
    whole.free()


@needs_device
def test_a_buffer_larger_than_the_device_allows(backend: OpenclBackend) -> None:
    most = backend.describe().limits["max_buffer_bytes"]
    with pytest.raises(OutOfMemoryError, match=f"at most {most} on this device"):
        backend.device.allocate(most + 1)


@needs_device
def test_the_wrong_number_of_arguments(backend: OpenclBackend) -> None:
    function = backend.device.load(backend.compiler.compile(prelude() + AXPY, "axpy", CompileOptions()))
    with pytest.raises(LaunchError, match="axpy has 4 parameters, given 1"):
        function.launch(LaunchShape((1, 1, 1), (4, 1, 1)), [np.float16(1)])
    buffer = backend.device.allocate(64)
    with pytest.raises(LaunchError, match="parameter 3 of axpy"):
        function.launch(LaunchShape((1, 1, 1), (4, 1, 1)), [np.float16(1), buffer, buffer, np.int64(1)])


@needs_device
@pytest.mark.full
def test_a_kernel_is_tuned_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("tune", "axpy", "--backend", "opencl", "--size", "smoke", "--max-error", 1e-3, "--budget", 4, "--seed", 0)
    done = caller(monkeypatch, capfd)(*words, "--inputs", 1, "--verify", 0, "--json", "--output", tmp_path / "axpy.db")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["backend"] == "opencl"
    assert found["best"]["error"] < 1e-3
    assert found["best"]["time_ms"] > 0


@needs_device
@pytest.mark.full
def test_a_fault_in_a_kernel_becomes_a_trial() -> None:
    template = str(own_kernel.kernel.template)
    wild = "if ({{ block }} == 64) reinterpret_cast<int*>(16ul)[threadIdx.x] = 1;\n        int i ="
    kernel = own_kernel.kernel.changed(
        template=template.replace("int i =", wild), constraints=["unroll == 1", "x_type == 'fp64'", "y_type == 'fp64'"]
    )
    run = tune(
        kernel, backend="opencl", size="smoke", strategy="exhaustive", inputs=1, verify=0, on_warning=lambda _: None
    )
    statuses = {trial.configuration["block"]: trial.status for trial in run.trials}
    assert statuses[64] is Status.CRASH
    assert {statuses[block] for block in (32, 128, 256)} == {Status.OK}


@pytest.fixture(params=few(["driver", "clang"]))
def compiled_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have templates compiled by one of the two."""
    if request.param == "clang" and find_offline() is None:
        pytest.skip(f"not installed: {TOOLS}")
    monkeypatch.setenv("MPTUNE_OPENCL_COMPILER", request.param)
    return str(request.param)


@needs_device
def test_who_compiles_says_what_it_rejects(backend: OpenclBackend, compiled_by: str) -> None:
    if compiled_by == "clang":
        (version,) = backend.compiler.versions().values()
        assert "clang version" in version
    else:
        assert not backend.compiler.versions()
    body = '\n#line 1 "wrong.cu"\nextern "C" __global__ void wrong(float* y) { y[0] = nothing; }\n'
    with pytest.raises(CompileError, match=r"rejected wrong[\s\S]*wrong\.cu:1:62: error: [^\n]*nothing"):
        backend.compiler.compile(prelude() + body, "wrong", CompileOptions())


def ran(backend: OpenclBackend, text: str, inputs: list[np.ndarray[Any, Any]], out: np.ndarray[Any, Any]) -> None:
    """Run a kernel ``f`` of one block, of a thread for each element, on inputs and one output."""
    device = backend.device
    binary = backend.compiler.compile(f"{prelude()}\n{text}", "f", CompileOptions())
    buffers = [device.allocate(array.nbytes) for array in (*inputs, out)]
    for buffer, array in zip(buffers, inputs, strict=False):
        buffer.write(array)
    device.load(binary).launch(LaunchShape((1, 1, 1), (len(out), 1, 1)), buffers)
    buffers[-1].read(out)


@needs_device
@pytest.mark.usefixtures("compiled_by")
def test_sums_and_fused_products_in_bf16_are_rounded_once(backend: OpenclBackend) -> None:
    text = """extern "C" __global__ void f(const bfloat16* a, const bfloat16* b, const bfloat16* c, bfloat16* out) {
        const int i = threadIdx.x, n = blockDim.x / 2;
        out[i] = i < n ? fma(a[i], b[i], c[i]) : a[i - n] + c[i - n];
    }"""
    rng, bf16 = np.random.default_rng(7), PRECISIONS["bf16"]
    # A product that is a tie, and a summand far below it that decides; subnormal and infinite sums.
    special = [(1.0078125, 1.0078125, 2.0**-60), (1.0078125, 1.5, -(2.0**-100)), (2.0**-70, 2.0**-62, 2.0**-133)]
    special += [(2.0**64, 2.0**63, 2.0**127), (np.inf, 0.0, 1.0), (np.nan, 1.0, 1.0), (1.0, 1.0, -np.inf)]
    bits = rng.integers(0, 2**16, (128, 3), np.uint16).view(bf16.dtype)
    usual = rng.normal(0, 1, (128 - len(special), 3))
    values = np.concatenate([bits, np.array(special).astype(bf16.dtype), usual.astype(bf16.dtype)]).T.copy()
    out = np.empty(512, bf16.dtype)
    ran(backend, text, [*values], out)
    with np.errstate(all="ignore"):
        a, b, c = values.astype(np.float64)
        for found, factor in ((out[:256], b), (out[256:], np.ones(256))):
            expected = a * factor + c
            is_finite = np.isfinite(a) & np.isfinite(factor) & np.isfinite(c)
            terms = zip(a[is_finite], factor[is_finite], c[is_finite], strict=True)
            expected[is_finite] = [rounded_fraction(Fraction(x) * Fraction(y) + Fraction(z), bf16) for x, y, z in terms]
            np.testing.assert_array_equal(found.astype(np.float64), expected)


@needs_device
@pytest.mark.parametrize("flags", few(["", "-cl-fast-relaxed-math", "-cl-mad-enable -cl-unsafe-math-optimizations"], 2))
@pytest.mark.parametrize("kind", ["fp32x2", "fp32_neumaier", "fp64_neumaier"])
def test_compound_sums_keep_what_rounding_loses_under_any_flags(backend: OpenclBackend, kind: str, flags: str) -> None:
    plain = "double" if kind == "fp64_neumaier" else "float"
    text = f"""extern "C" __global__ void f(const {plain}* x, double* out) {{
        local<mp::{kind}> sum = 0;
        {plain} usual = 0;
        for (int i = 0; i < 100000; ++i) {{
            sum += x[i];
            usual += x[i];
        }}
        out[0] = static_cast<double>(sum);
        out[1] = static_cast<double>(usual);
    }}"""
    x = np.random.default_rng(3).uniform(1, 2, 100_000).astype({"double": "f8", "float": "f4"}[plain])
    device, out = backend.device, np.empty(2)
    binary = backend.compiler.compile(f"{prelude()}\n{text}", "f", CompileOptions(flags=tuple(flags.split())))
    buffers = [device.allocate(array.nbytes) for array in (x, out)]
    buffers[0].write(x)
    device.load(binary).launch(LaunchShape((1, 1, 1), (1, 1, 1)), buffers)
    buffers[1].read(out)
    exact, unit = math.fsum(x.astype(float)), 2.0 ** (-53 if plain == "double" else -24)
    assert abs(out[0] - exact) <= (2 * unit if kind != "fp32x2" else 2.0**-40) * exact
    assert abs(out[1] - exact) > 4 * unit * exact


# -- functions that OpenCL has, too --------------------------------------------------------------


@needs_device
@pytest.mark.usefixtures("compiled_by")
@pytest.mark.parametrize("kind", few(["float", "double"]))
def test_the_lesser_and_the_larger_of_nan_and_of_zeros_are_those_of_other_backends(
    backend: OpenclBackend, kind: str
) -> None:
    """``min(a, b)`` is ``b < a ? b : a``, as the prelude says: OpenCL's own takes another one."""
    dtype = {"float": np.float32, "double": np.float64}[kind]
    a = np.array([0, np.nan, 1, np.nan, -0.0, 0.0, 2, -np.inf], dtype)
    b = np.array([np.nan, 0, np.nan, np.nan, 0.0, -0.0, 1, 3], dtype)
    for name, expected in (("min", np.where(b < a, b, a)), ("max", np.where(a < b, b, a))):
        out = np.full_like(a, 7)
        text = (
            f'extern "C" __global__ void f(const {kind}* a, const {kind}* b, {kind}* out) {{\n'
            f"    out[threadIdx.x] = {name}(a[threadIdx.x], b[threadIdx.x]);\n}}\n"
        )
        ran(backend, text, [a, b], out)
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(np.signbit(out), np.signbit(expected))


@needs_device
@pytest.mark.parametrize("kind", few(["float", "half"]))
@pytest.mark.parametrize("name", few(["step", "clamp", "mad"]))
def test_a_function_of_ones_own_is_that_whatever_opencl_calls_so(backend: OpenclBackend, name: str, kind: str) -> None:
    dtype = {"float": np.float32, "double": np.float64, "half": np.float16}[kind]
    text = (
        f"template <class T> __device__ T {name}(T x, T y, T z) {{ return x + T(2) * y + T(4) * z; }}\n"
        f"template <class T> __device__ T {name}(T x, T y) {{ return {name}(x, y, T(1)); }}\n"
        f'extern "C" __global__ void f(const {kind}* x, {kind}* out) {{\n'
        f"    const {kind} a = x[threadIdx.x], b = a + {kind}(1);\n"
        f"    out[threadIdx.x] = {kind}({name}<local<{kind}>>(a, b) + {name}<local<{kind}>>(a, b, a));\n}}\n"
    )
    x = np.arange(8, dtype=dtype)
    out = np.full_like(x, -1)
    ran(backend, text, [x], out)
    np.testing.assert_array_equal(out, (3 * x + 2 + 4) + (3 * x + 2 + 4 * x))
