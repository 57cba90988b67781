"""The CUDA backend up to the driver call; NVRTC really compiles where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from mptune.backends import cuda
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.cuda import CudaBackend
from mptune.cpp.prelude import prelude
from mptune.errors import BackendUnavailableError, CompileError
from mptune.kernel import LaunchShape

ARCHITECTURES = ("sm_80", "sm_90")

AXPY = """
#line 1 "axpy.cu"
extern "C" __global__ void axpy(const half a, const bfloat16* __restrict__ x, float* __restrict__ y, int n) {
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) store(y + i, fma(a, load<4>(x + i), load<4>(y + i)));
}
"""


def _nvrtc_missing() -> str:
    try:
        CudaBackend.runtime_compiler()
    except BackendUnavailableError as error:
        return str(error)
    return ""


MISSING = _nvrtc_missing()
needs_nvrtc = [pytest.mark.nvrtc, pytest.mark.skipif(bool(MISSING), reason=MISSING or "NVRTC is there")]


@pytest.fixture
def backend(tmp_path):
    return CudaBackend(cache=BinaryCache(tmp_path))


class TestCompiling:
    """NVRTC makes a cubin and explains what it rejects."""

    pytestmark = needs_nvrtc

    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    def test_makes_a_binary_for_an_architecture_without_a_device(self, backend, architecture):
        binary = backend.compiler.compile(prelude() + AXPY, "axpy", CompileOptions(architecture))
        assert binary.image.startswith(b"\x7fELF")
        assert b"axpy" in binary.image
        assert not binary.cached
        assert binary.compile_s > 0

    def test_second_time_comes_from_the_cache(self, backend, tmp_path):
        first = backend.compiler.compile(prelude() + AXPY, "axpy", CompileOptions("sm_90"))
        again = CudaBackend(cache=BinaryCache(tmp_path)).compiler.compile(
            prelude() + AXPY, "axpy", CompileOptions("sm_90")
        )
        assert again.cached
        assert again.image == first.image
        assert not backend.compiler.compile(prelude() + AXPY, "axpy", CompileOptions("sm_80")).cached
        flags = CompileOptions("sm_90", flags=("--fmad=false",))
        assert not backend.compiler.compile(prelude() + AXPY, "axpy", flags).cached

    def test_rejected_source_names_the_template_line(self, backend):
        source = prelude() + AXPY.replace("int i =", "int j =")
        with pytest.raises(CompileError, match=r"NVRTC rejected axpy .*\n.*axpy\.cu\(3\): error: .*\"i\" is undefined"):
            backend.compiler.compile(source, "axpy", CompileOptions("sm_90"))

    def test_too_much_shared_memory_is_a_compile_error(self, backend):
        body = "__shared__ float s[1 << 20]; s[threadIdx.x] = *x; __syncthreads(); *x = s[threadIdx.x + 1];"
        source = f'{prelude()}extern "C" __global__ void f(float* x) {{ {body} }}'
        with pytest.raises(CompileError, match="too much shared data"):
            backend.compiler.compile(source, "f", CompileOptions("sm_80"))

    def test_compilation_that_takes_too_long(self, backend):
        with pytest.raises(CompileError, match=r"did not finish axpy within 0\.0001 s"):
            backend.compiler.compile(prelude() + AXPY, "axpy", CompileOptions("sm_90", timeout_s=1e-4))

    def test_needs_an_architecture_where_there_is_no_device(self, backend, monkeypatch):
        monkeypatch.setattr(CudaBackend, "require_device", staticmethod(_no_device))
        with pytest.raises(BackendUnavailableError, match=r"no CUDA device here; .* give an architecture"):
            backend.compiler.compile(prelude() + AXPY, "axpy", CompileOptions())


def _no_device():
    raise BackendUnavailableError("no CUDA device here")


def test_missing_compiler_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cuda, "_nvrtc_paths", lambda: ["/nowhere/libnvrtc.so"])
    cuda._nvrtc.cache_clear()
    try:
        found = CudaBackend.availability()
    finally:
        cuda._nvrtc.cache_clear()
    assert not found.can_compile
    assert not found.can_run
    assert 'NVRTC is not installed: pip install "mptune[cuda]"' in found.reason


def test_missing_cupy_says_what_to_install(monkeypatch):
    class Driver:
        @staticmethod
        def cuInit(flags):  # noqa: N802 - the driver's name
            return 0

        @staticmethod
        def cuDeviceGetCount(count):  # noqa: N802
            count._obj.value = 1
            return 0

    monkeypatch.setattr(cuda.ctypes, "CDLL", lambda name: Driver)
    monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendUnavailableError, match=r'CuPy is not installed: pip install "mptune\[cuda\]"'):
        CudaBackend.require_device()


@pytest.mark.gpu
@pytest.mark.skipif(not CudaBackend.availability().can_run, reason=CudaBackend.availability().reason or "can run")
class TestDevice:
    """What only a device can show."""

    def test_runs_a_mixed_precision_kernel(self, backend):
        import ml_dtypes

        rng = np.random.default_rng(3)
        x = rng.standard_normal(4096).astype(ml_dtypes.bfloat16)
        y = rng.standard_normal(4096).astype(np.float32)
        binary = backend.compiler.compile(prelude() + AXPY, "axpy", CompileOptions())
        function = backend.device.load(binary)
        buffers = [backend.device.allocate(v.nbytes) for v in (x, y)]
        for buffer, values in zip(buffers, (x, y), strict=True):
            buffer.write(values)
        elapsed = function.launch(LaunchShape((8, 1, 1), (128, 1, 1)), [np.float16(1.5), *buffers, np.int32(4096)])
        result = np.empty_like(y)
        buffers[1].read(result)
        assert elapsed > 0
        assert np.array_equal(result, (np.float64(1.5) * x.astype(np.float64) + y).astype(np.float32))
        function.unload()
        for buffer in buffers:
            buffer.free()
