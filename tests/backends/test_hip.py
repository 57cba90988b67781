"""The HIP backend up to the driver call; hiprtc really compiles where it is installed."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mptune.backends import hip
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.hip import HipBackend
from mptune.cpp.prelude import prelude
from mptune.errors import BackendUnavailableError, CompileError
from mptune.kernel import LaunchShape

AXPY = """
#line 1 "axpy.cu"
extern "C" __global__ void axpy(const half a, const bfloat16* __restrict__ x, float* __restrict__ y, int n) {
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) store(y + i, fma(a, load<4>(x + i), load<4>(y + i)));
}
"""


def _hiprtc_missing() -> str:
    try:
        HipBackend.runtime_compiler()
    except BackendUnavailableError as error:
        return str(error)
    return ""


MISSING = _hiprtc_missing()
needs_hiprtc = [pytest.mark.hiprtc, pytest.mark.skipif(bool(MISSING), reason=MISSING or "hiprtc is there")]


@pytest.fixture
def backend(tmp_path):
    return HipBackend(cache=BinaryCache(tmp_path))


class TestCompiling:
    """hiprtc makes a code object and explains what it rejects."""

    pytestmark = needs_hiprtc

    def test_makes_a_binary_without_a_device(self, backend):
        binary = backend.compiler.compile(prelude() + AXPY, "axpy", CompileOptions("gfx90a"))
        assert b"gfx90a" in binary.image
        assert b"axpy" in binary.image
        assert not binary.cached
        assert backend.compiler.compile(prelude() + AXPY, "axpy", CompileOptions("gfx90a")).cached

    def test_rejected_source_names_the_template_line(self, backend):
        source = prelude() + AXPY.replace("int i =", "int j =")
        with pytest.raises(CompileError, match=r"hiprtc rejected axpy .*\n.*axpy\.cu:3:\d+: error: .*'i'"):
            backend.compiler.compile(source, "axpy", CompileOptions("gfx90a"))

    def test_needs_an_architecture_where_there_is_no_device(self, backend, monkeypatch):
        monkeypatch.setattr(HipBackend, "require_device", staticmethod(_no_device))
        with pytest.raises(BackendUnavailableError, match=r"no HIP device here; .* give an architecture"):
            backend.compiler.compile(prelude() + AXPY, "axpy", CompileOptions())


def _no_device():
    raise BackendUnavailableError("no HIP device here")


def test_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setattr(hip, "_library_paths", lambda name: [])
    hip._hiprtc.cache_clear()
    try:
        found = HipBackend.availability()
    finally:
        hip._hiprtc.cache_clear()
    assert (found.can_compile, found.can_run) == (False, False)
    assert "hiprtc is not installed: install ROCm" in found.reason


class TestLibraries:
    """Parts of two installations of ROCm do not fit: where HIP Python loads a library from comes first."""

    def test_one_that_cannot_be_loaded_leaves_the_device_to_the_next(self, monkeypatch):
        class Library:
            @staticmethod
            def hipGetDeviceCount(count):  # noqa: N802 - the library's name
                count._obj.value = 2
                return 0

        def load(path):
            if path != "/there/libamdhip64.so":
                raise OSError(f"{path}: cannot open shared object file")
            return Library

        monkeypatch.setattr(hip.ctypes, "CDLL", load)
        monkeypatch.setattr(hip, "_library_paths", lambda name: ["libamdhip64.so", "/there/libamdhip64.so"])
        assert HipBackend.device_count() == 2
        monkeypatch.setattr(hip, "_library_paths", lambda name: ["libamdhip64.so"])
        with pytest.raises(BackendUnavailableError, match="no HIP device: the HIP library is not installed: install"):
            HipBackend.device_count()
        monkeypatch.setattr(hip, "_library_paths", lambda name: ["libamdhip64.so", "/damaged/libamdhip64.so"])
        with pytest.raises(BackendUnavailableError, match=r"no HIP device: /damaged/libamdhip64\.so: cannot open"):
            HipBackend.device_count()


def test_missing_hip_python_says_what_to_install(monkeypatch):
    class Library:
        @staticmethod
        def hipGetDeviceCount(count):  # noqa: N802 - the library's name
            count._obj.value = 1
            return 0

    monkeypatch.setattr(hip, "_library_paths", lambda name: ["libamdhip64.so"])
    monkeypatch.setattr(hip.ctypes, "CDLL", lambda name: Library)
    monkeypatch.setattr(hip.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendUnavailableError, match=r'HIP Python is not installed: pip install "mptune\[hip\]"'):
        HipBackend.require_device()


@pytest.mark.gpu
@pytest.mark.skipif(not HipBackend.availability().can_run, reason=HipBackend.availability().reason or "can run")
def test_runs_a_mixed_precision_kernel(backend):
    rng = np.random.default_rng(3)
    x = rng.standard_normal(4096).astype(ml_dtypes.bfloat16)
    y = rng.standard_normal(4096).astype(np.float32)
    function = backend.device.load(backend.compiler.compile(prelude() + AXPY, "axpy", CompileOptions()))
    buffers = [backend.device.allocate(v.nbytes) for v in (x, y)]
    for buffer, values in zip(buffers, (x, y), strict=True):
        buffer.write(values)
    assert function.launch(LaunchShape((8, 1, 1), (128, 1, 1)), [np.float16(1.5), *buffers, np.int32(4096)]) > 0
    result = np.empty_like(y)
    buffers[1].read(result)
    assert np.array_equal(result, (1.5 * x.astype(np.float64) + y).astype(np.float32))
