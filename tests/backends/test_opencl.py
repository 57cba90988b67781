"""The OpenCL backend: what it makes of a source, how it chooses a device, and tuning on one where there is any."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
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
from mptune.results.trial import Status
from mptune.tuning import tune
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


def test_integers_of_64_bits_have_64_bits() -> None:
    source = "unsigned long long a = 0xffull, b = 12ll; long  long c = 1'000LL; float d = 1.5f; int ull = 3;"
    assert body_of(source) == "unsigned long a = 0xfful, b = 12l; long c = 1'000l; float d = 1.5f; int ull = 3;"


def test_lines_keep_their_numbers_and_the_prelude_comes_along() -> None:
    source = f'{prelude()}\n#line 1 "f.cu"\n\nextern "C" __global__ void f(float* y) {{}}\n'
    translated = as_opencl(source)
    assert translated.endswith('\n#line 1 "f.cu"\n\nextern "C" __global__ void f(__global float* y) {}\n')
    assert not re.search(r"\blong long\b", translated)
    assert "#define local mptune_local" in translated


# -- the device ----------------------------------------------------------------------------------


@pytest.fixture
def found_anew() -> Iterator[None]:
    """Look for the device again, before and after."""
    caches = (opencl._pyopencl, opencl._find_device)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def fake(*devices: tuple[str, int, str], il: str = "") -> Any:
    """Return a PyOpenCL of one platform with devices of these names, types and extensions."""
    platform = SimpleNamespace(name="Some Platform", vendor="Somebody")
    platform.get_devices = lambda: [
        SimpleNamespace(name=name, type=kind, extensions=extensions, platform=platform, il_version=il)
        for name, kind, extensions in devices
    ]
    return SimpleNamespace(
        get_platforms=lambda: [platform], Error=RuntimeError, device_type=SimpleNamespace(GPU=4, CPU=2)
    )


@pytest.mark.usefixtures("found_anew")
class TestChoosing:
    """Which device it is."""

    def test_a_gpu_before_a_processor_or_the_one_that_is_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(opencl, "_pyopencl", lambda: fake(("Fast CPU", 2, ""), ("GPU", 4, "")))
        assert opencl._find_device().name == "GPU"
        opencl._find_device.cache_clear()
        monkeypatch.setenv("MPTUNE_OPENCL_DEVICE", "fast cpu")
        assert opencl._find_device().name == "Fast CPU"

    def test_one_that_is_not_there_is_refused_with_those_that_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(opencl, "_pyopencl", lambda: fake(("CPU", 2, ""), ("GPU", 4, "")))
        monkeypatch.setenv("MPTUNE_OPENCL_DEVICE", "arc")
        with pytest.raises(BackendUnavailableError, match=r"'arc' .*; there are Some Platform CPU, Some Platform GPU"):
            opencl._find_device()

    def test_no_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(opencl, "_pyopencl", fake)
        found = OpenclBackend.availability()
        assert not found.can_run
        assert 'pip install "mptune[opencl]" brings' in found.reason

    def test_a_driver_that_takes_neither_the_language_nor_spirv_is_refused_by_name(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(opencl, "_pyopencl", lambda: fake(("Old GPU", 4, "cl_khr_fp64")))
        found = OpenclBackend.availability()
        assert not found.can_compile
        assert "driver of Old GPU does not compile C++ for OpenCL 2021" in found.reason
        assert found.reason.endswith("does not accept SPIR-V, so clang cannot compile for it")

    def test_without_clang_a_driver_that_takes_spirv_is_refused_with_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(opencl, "_pyopencl", lambda: fake(("Old GPU", 4, ""), il="SPIR-V_1.0 SPIR-V_1.2"))
        monkeypatch.setattr(opencl, "find_offline", lambda: None)
        reason = OpenclBackend.availability().reason
        assert "driver of Old GPU does not compile" in reason
        assert reason.endswith("llvm-spirv of the same release (apt install clang-14 llvm-spirv-14)")
        monkeypatch.setattr(opencl, "find_offline", lambda: Offline("clang", "llvm-spirv", "clang version 14.0"))
        assert OpenclBackend.availability().can_compile
        assert OpenclBackend().compiler.versions() == {"clang": "clang version 14.0"}
        monkeypatch.setenv("MPTUNE_OPENCL_COMPILER", "driver")
        assert OpenclBackend.availability().reason.endswith("set MPTUNE_OPENCL_COMPILER=clang to use clang")
        monkeypatch.setenv("MPTUNE_OPENCL_COMPILER", "gcc")
        assert OpenclBackend.availability().reason == "MPTUNE_OPENCL_COMPILER=gcc: expected driver or clang"

    def test_several_devices_that_are_alike_are_told_apart_by_their_place(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cl = fake(("Arc", 4, ""), ("CPU", 2, ""), ("Arc", 4, ""), ("Arc Pro", 4, ""))
        monkeypatch.setattr(opencl, "_pyopencl", lambda: cl)
        listed = [environment["MPTUNE_OPENCL_DEVICE"] for environment in OpenclBackend().device.environments()]
        assert listed == ["Some Platform Arc#0", "Some Platform Arc#1"]
        found = []
        for name in listed:
            opencl._find_device.cache_clear()
            monkeypatch.setenv("MPTUNE_OPENCL_DEVICE", name)
            found.append(opencl._find_device())
        assert [device.name for device in found] == ["Arc", "Arc"]
        opencl._find_device.cache_clear()
        monkeypatch.setenv("MPTUNE_OPENCL_DEVICE", "arc pro#1")
        with pytest.raises(BackendUnavailableError, match=r"arc pro#1: expected a number below 1"):
            opencl._find_device()

    def test_without_pyopencl(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(opencl.importlib.util, "find_spec", lambda name: None)
        assert OpenclBackend.availability().reason == 'PyOpenCL is not installed: pip install "mptune[opencl]"'


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
def test_enqueued_launches_run_one_after_the_other(backend: OpenclBackend) -> None:
    body = 'extern "C" __global__ void more(int* x) { x[threadIdx.x] = 2 * x[threadIdx.x] + 1; }'
    function = backend.device.load(backend.compiler.compile(prelude() + body, "more", CompileOptions()))
    buffer, x = backend.device.allocate(32), np.zeros(8, np.int32)
    buffer.write(x)
    function.enqueue(LaunchShape((1, 1, 1), (8, 1, 1)), [buffer], 5)
    function.wait()
    buffer.read(x)
    assert (x == 31).all()


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
        template=template.replace("int i =", wild),
        constraints=["unroll == 1", "x_type == 'fp64'", "y_type == 'fp64'"],
    )
    run = tune(
        kernel, backend="opencl", size="smoke", strategy="exhaustive", inputs=1, verify=0, on_warning=lambda _: None
    )
    statuses = {trial.configuration["block"]: trial.status for trial in run.trials}
    assert statuses[64] is Status.CRASH
    assert {statuses[block] for block in (32, 128, 256)} == {Status.OK}


@needs_device
@pytest.mark.full
def test_compilers_rest_while_a_processor_is_timed(backend: OpenclBackend) -> None:
    if not backend.shares_memory:
        pytest.skip("the device is no processor")
    source = prelude() + AXPY
    with ThreadPoolExecutor(1) as pool:
        with backend.compiler.paused():
            compiling = pool.submit(backend.compiler.compile, source, "axpy", CompileOptions())
            time.sleep(1.0)
            assert not compiling.done()
        assert compiling.result().image


def exactly_rounded(value: Fraction) -> np.ndarray:
    """Return a rational number in bfloat16, to nearest even, by nothing but integers."""
    if value == 0:
        return np.zeros((), ml_dtypes.bfloat16)
    magnitude = abs(value)
    exponent = max(magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - 1, -126)
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - 7)
    rounded = round(magnitude / unit) * unit  # to even
    result = np.inf if rounded >= Fraction(2) ** 128 else float(rounded)
    return np.array(-result if value < 0 else result).astype(ml_dtypes.bfloat16)


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


@needs_device
@pytest.mark.usefixtures("compiled_by")
def test_memory_that_blocks_share_and_barriers(backend: OpenclBackend) -> None:
    body = """
    __constant__ float factor[2];
    extern "C" __global__ void turned(const double* x, double* y) {
        SHARED_DYNAMIC(double, part);
        part[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x] * factor[1];
        __syncthreads();
        y[blockIdx.x * blockDim.x + threadIdx.x] = part[blockDim.x - 1 - threadIdx.x];
    }
    """
    function = backend.device.load(backend.compiler.compile(prelude() + body, "turned", CompileOptions()))
    x = np.random.default_rng(3).normal(size=256)
    buffers = [backend.device.allocate(x.nbytes) for _ in range(2)]
    buffers[0].write(x)
    function.set_constant("factor", np.array([3, 0.5], np.float32))
    function.launch(LaunchShape((4, 1, 1), (64, 1, 1), 64 * 8), buffers)
    found = np.empty_like(x)
    buffers[1].read(found)
    assert (found == 0.5 * x.reshape(4, 64)[:, ::-1].ravel()).all()


@needs_device
@pytest.mark.usefixtures("compiled_by")
def test_sums_and_fused_products_in_bf16_are_rounded_once(backend: OpenclBackend) -> None:
    body = """
    extern "C" __global__ void once(const bfloat16* a, const bfloat16* b, const bfloat16* c, const float* wide,
                                    bfloat16* fused, bfloat16* sum, bfloat16* narrow) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        fused[i] = fma(a[i], b[i], c[i]);
        sum[i] = a[i] + c[i];
        narrow[i] = wide[i];
    }
    """
    rng, n = np.random.default_rng(7), 4096
    bits = rng.integers(0, 2**16, (3, n), np.uint16)
    usual = rng.normal(0, 1, (3, n)).astype(ml_dtypes.bfloat16).view(np.uint16)
    bits[:, ::2] = usual[:, ::2]
    # A product that is a tie, and a summand far below it that decides; subnormal and infinite sums; NaN.
    special = [(1.0078125, 1.0078125, 2.0**-60), (1.0078125, 1.5, -(2.0**-100)), (2.0**-70, 2.0**-62, 2.0**-133)]
    special += [(2.0**64, 2.0**63, 2.0**127), (np.inf, 0.0, 1.0), (np.nan, 1.0, 1.0), (1.0, 1.0, -np.inf)]
    a, b, c = bits.view(ml_dtypes.bfloat16)
    for i, (x, y, z) in enumerate(special):
        a[i], b[i], c[i] = x, y, z
    wide = rng.integers(0, 2**32, n, np.uint32)
    wide[:6] = 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F7FFFFF, 0x3F808000
    function = backend.device.load(backend.compiler.compile(prelude() + body, "once", CompileOptions()))
    given = [a, b, c, wide.view(np.float32), *np.full((3, n), 0xABCD, np.uint16).view(ml_dtypes.bfloat16)]
    buffers = [backend.device.allocate(array.nbytes) for array in given]
    for buffer, array in zip(buffers, given, strict=True):
        buffer.write(np.ascontiguousarray(array))
    function.launch(LaunchShape((n // 64, 1, 1), (64, 1, 1)), buffers)
    found = [np.empty(n, ml_dtypes.bfloat16) for _ in range(3)]
    for buffer, array in zip(buffers[4:], found, strict=True):
        buffer.read(array)
    fused, sums, narrow = found
    for i in range(n):
        x, y, z = (float(array[i]) for array in (a, b, c))
        for got, terms in ((fused[i], (x, y, z)), (sums[i], (x, 1.0, z))):
            p, q, r = terms
            with np.errstate(all="ignore"):
                is_special = not np.isfinite([p, q, r]).all()
                expected = (
                    np.array(p * q + r).astype(ml_dtypes.bfloat16)
                    if is_special
                    else exactly_rounded(Fraction(p) * Fraction(q) + Fraction(r))
                )
            if np.isnan(float(expected)):
                assert np.isnan(float(got)), terms
            elif is_special or float(expected) != 0 or Fraction(p) * Fraction(q) + Fraction(r) != 0:
                assert got.view(np.uint16) == expected.view(np.uint16), (terms, got, expected)
            else:
                assert float(got) == 0, terms
    # NaN keeps its sign and the leading bits of its payload, and is quiet.
    is_nan = np.isnan(wide.view(np.float32))
    payload = ((wide >> 16) | 0x40).astype(np.uint16)
    assert (narrow.view(np.uint16)[is_nan] == payload[is_nan]).all()
    assert is_nan.sum() >= 4
    for got, value in zip(narrow[~is_nan], wide.view(np.float32)[~is_nan], strict=True):
        expected = (
            np.array(value).astype(ml_dtypes.bfloat16) if np.isinf(value) else exactly_rounded(Fraction(float(value)))
        )
        assert float(got) == float(expected)


# -- functions that OpenCL has, too --------------------------------------------------------------


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
