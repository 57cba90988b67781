"""The OpenCL backend: what it makes of a source, how it chooses a device, and tuning on one where there is any."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
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
from mptune.backends.opencl import OpenclBackend
from mptune.backends.opencl_dialect import as_opencl
from mptune.errors import BackendUnavailableError, LaunchError, OutOfMemoryError
from mptune.kernel import LaunchShape
from mptune.prelude import prelude
from mptune.results import Status
from mptune.tuner import tune

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
    assert "f(__local uchar16* mptune_dynamic_shared)" in body_of(source.replace("int n", ""))
    assert "mptune_dynamic_shared" not in body_of(source.replace("SHARED_DYNAMIC(float, part)", "// SHARED_DYNAMIC"))


def test_each_array_in_constant_memory_gets_a_kernel_that_copies_it() -> None:
    source = (
        "__constant__ double factor[2][3];\n// __constant__ int no[1];\n__constant__ unsigned char first = 7;\n"
        'extern "C" __global__ void f(float* y) {}\n'
    )
    assert re.findall(r"MPTUNE_CONSTANT\((\w+)\)", body_of(source)) == ["factor", "first"]


def test_integers_of_64_bits_have_64_bits() -> None:
    source = "unsigned long long a = 0xffull, b = 12ll; long  long c = 1'000LL; float d = 1.5f; int ull = 3;"
    assert body_of(source) == "unsigned long a = 0xfful, b = 12l; long c = 1'000l; float d = 1.5f; int ull = 3;"


def test_lines_keep_their_numbers_and_the_prelude_comes_along() -> None:
    source = f'{prelude()}\n#line 1 "f.cu"\n\nextern "C" __global__ void f(float* y) {{}}\n'
    translated = as_opencl(source)
    assert translated.endswith('\n#line 1 "f.cu"\n\nextern "C" __global__ void f(__global float* y) {}\n')
    assert not re.search(r"\blong long\b", translated)
    assert "#define local mptune_local" in translated


def test_functions_of_16_bits_come_along_where_they_are_used() -> None:
    source = f'{prelude()}\n#line 1 "f.cu"\nextern "C" __global__ void f(half* y) {{ y[0] = 1; }}\n'
    assert "__hfma" not in as_opencl(source)
    assert "__hfma" in as_opencl(source.replace("= 1;", "= mp::__hmul(y[0], y[0]);"))
    assert "mptune_short" in as_opencl(source.replace("= 1;", "= mp::half2{y[0], y[1]}.x;"))


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


def fake(*devices: tuple[str, int, str]) -> Any:
    """Return a PyOpenCL of one platform with devices of these names, types and extensions."""
    platform = SimpleNamespace(name="Some Platform", vendor="Somebody")
    platform.get_devices = lambda: [
        SimpleNamespace(name=name, type=kind, extensions=extensions, platform=platform)
        for name, kind, extensions in devices
    ]
    return SimpleNamespace(
        get_platforms=lambda: [platform], Error=RuntimeError, device_type=SimpleNamespace(GPU=4, CPU=2)
    )


@pytest.mark.usefixtures("found_anew")
class TestChoosing:
    """Which device it is."""

    def test_a_gpu_before_a_processor(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(opencl, "_pyopencl", lambda: fake(("CPU", 2, ""), ("GPU", 4, "")))
        assert opencl._find_device().name == "GPU"

    def test_the_one_that_is_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(opencl, "_pyopencl", lambda: fake(("Fast CPU", 2, ""), ("GPU", 4, "")))
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

    def test_a_driver_without_the_language_is_refused_by_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(opencl, "_pyopencl", lambda: fake(("Old GPU", 4, "cl_khr_fp64")))
        found = OpenclBackend.availability()
        assert not found.can_compile
        assert "driver of Old GPU does not compile C++ for OpenCL 2021" in found.reason

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
def test_a_kernel_is_tuned_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = (
        "tune",
        "axpy",
        "--backend",
        "opencl",
        "--size",
        "smoke",
        "--max-error",
        "1e-3",
        "--budget",
        6,
        "--seed",
        0,
    )
    done = caller(monkeypatch, capfd)(*words, "--inputs", 1, "--verify", 0, "--json", "--output", tmp_path / "axpy.db")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["backend"] == "opencl"
    assert found["best"]["error"] < 1e-3
    assert found["best"]["time_ms"] > 0


@needs_device
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
def test_narrow_variables_are_assigned_and_compared_like_any(backend: OpenclBackend) -> None:
    body = """
    extern "C" __global__ void narrow(bfloat16* x) {
        local<bfloat16> sum = x[0];
        sum += x[1];
        x[0] = mp::abs(sum);
        x[1] -= 1.5_num;
    }
    """
    function = backend.device.load(backend.compiler.compile(prelude() + body, "narrow", CompileOptions()))
    buffer, x = backend.device.allocate(4), np.array([1.0, -3.0], ml_dtypes.bfloat16)
    buffer.write(x)
    function.launch(LaunchShape((1, 1, 1), (1, 1, 1)), [buffer])
    buffer.read(x)
    assert x.astype(float).tolist() == [2.0, -4.5]
