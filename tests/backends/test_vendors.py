"""The CUDA and HIP backends up to the driver call; NVRTC and hiprtc really compile where they are installed."""

from __future__ import annotations

import re
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from vendor_compilers import needs

from mptune.backends import BACKENDS, cuda, hip
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.cuda import CudaBackend
from mptune.backends.hip import HipBackend
from mptune.cpp.prelude import prelude
from mptune.errors import BackendUnavailableError, CompileError
from mptune.kernel import LaunchShape
from mptune.source.loading import load_kernel
from mptune.source.render import render

AXPY = """
#line 1 "axpy.cu"
extern "C" __global__ void axpy(const half a, const bfloat16* __restrict__ x, float* __restrict__ y, int n) {
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) store(y + i, fma(a, load<4>(x + i), load<4>(y + i)));
}
"""
NAMES = [pytest.param("cuda", "sm_80", marks=needs("cuda")), pytest.param("hip", "gfx90a", marks=needs("hip"))]


@pytest.fixture
def compiler_of(tmp_path):
    return lambda name: BACKENDS[name](cache=BinaryCache(tmp_path)).compiler


@pytest.mark.parametrize(("name", "architecture"), [*NAMES, pytest.param("cuda", "sm_90", marks=needs("cuda"))])
def test_a_binary_for_an_architecture_without_a_device_is_kept_with_its_flags(compiler_of, name, architecture):
    source, options = prelude() + AXPY, CompileOptions(architecture)
    binary = compiler_of(name).compile(source, "axpy", options)
    assert (b"\x7fELF" if name == "cuda" else b"gfx90a") in binary.image
    assert b"axpy" in binary.image
    assert not binary.cached
    again = compiler_of(name).compile(source, "axpy", options)
    assert (again.cached, again.image) == (True, binary.image)
    assert not compiler_of(name).compile(source, "axpy", CompileOptions(architecture, ("-DMINE",))).cached


@pytest.mark.parametrize(("name", "architecture"), NAMES)
def test_rejected_sources(compiler_of, name, architecture):
    where = {"cuda": r"NVRTC rejected axpy .*\n.*axpy\.cu\(3\)", "hip": r"hiprtc rejected axpy .*\n.*axpy\.cu:3:\d+"}
    with pytest.raises(CompileError, match=where[name] + r": error: .*['\"]i['\"]"):
        compiler_of(name).compile(prelude() + AXPY.replace("int i =", "int j ="), "axpy", CompileOptions(architecture))
    if name == "cuda":
        body = "__shared__ float s[1 << 20]; s[threadIdx.x] = *x; __syncthreads(); *x = s[threadIdx.x + 1];"
        source = f'{prelude()}extern "C" __global__ void f(float* x) {{ {body} }}'
        with pytest.raises(CompileError, match="too much shared data"):
            compiler_of(name).compile(source, "f", CompileOptions(architecture))
        with pytest.raises(CompileError, match=r"did not finish axpy within 0\.0001 s"):
            compiler_of(name).compile(prelude() + AXPY, "axpy", CompileOptions(architecture, timeout_s=1e-4))


@pytest.mark.parametrize(("name", "architecture"), NAMES)
def test_an_architecture_is_needed_where_there_is_no_device(compiler_of, name, architecture, monkeypatch):
    def no_device():
        raise BackendUnavailableError("no device here")

    monkeypatch.setattr(BACKENDS[name], "require_device", staticmethod(no_device))
    with pytest.raises(BackendUnavailableError, match=r"no device here; .* give an architecture"):
        compiler_of(name).compile(prelude() + AXPY, "axpy", CompileOptions())


CONVERSIONS = {"host": r"\sv?cvt(ps2pd|pd2ps|ss2sd|sd2ss)|\sfcvt", "cuda": r"cvt\.(rn\.)?f(32|64)\.f(32|64)"}


@pytest.mark.parametrize(("name", "architecture"), [("host", ""), NAMES[0]])
def test_a_listing_has_conversions_where_types_differ(name, architecture):
    kernel = load_kernel("axpy")
    for x_type, converts in (("fp64", False), ("fp32", True)):
        configuration = kernel.configuration({"a_type": "fp64", "x_type": x_type, "y_type": "fp64"})
        source = render(kernel, configuration, kernel.resolve_sizes("smoke"))
        listing = BACKENDS[name]().compiler.listing(source, kernel.function, CompileOptions(architecture))
        assert bool(re.search(CONVERSIONS[name], listing)) == converts
    assert BACKENDS["hip"]().compiler.listing("", "f", CompileOptions("gfx90a")) is None


# -- what is missing -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "paths", "found", "message"),
    [
        (cuda, "_nvrtc_paths", ["/nowhere/libnvrtc.so"], 'NVRTC is not installed: pip install "mptune[cuda]"'),
        (hip, "_library_paths", [], "hiprtc is not installed: install ROCm"),
    ],
)
def test_a_missing_compiler_is_named_with_what_to_install(monkeypatch, module, paths, found, message):
    backend, cached = (CudaBackend, cuda._nvrtc) if module is cuda else (HipBackend, hip._hiprtc)
    monkeypatch.setattr(module, paths, lambda *_: found)
    cached.cache_clear()
    try:
        availability = backend.availability()
    finally:
        cached.cache_clear()
    assert (availability.can_compile, availability.can_run) == (False, False)
    assert message in availability.reason


def counting(devices):
    """Return libraries with so many devices."""

    def count(pointer):
        pointer._obj.value = devices
        return 0

    return SimpleNamespace(cuInit=lambda _: 0, cuDeviceGetCount=count, hipGetDeviceCount=count)


@pytest.mark.parametrize(
    ("module", "backend", "message"),
    [
        (cuda, CudaBackend, r'CuPy is not installed: pip install "mptune\[cuda\]"'),
        (hip, HipBackend, r'HIP Python is not installed: pip install "mptune\[hip\]"'),
    ],
)
def test_missing_python_bindings_are_named_with_what_to_install(monkeypatch, module, backend, message):
    monkeypatch.setattr(hip, "_library_paths", lambda name: ["libamdhip64.so"])
    monkeypatch.setattr(module.ctypes, "CDLL", lambda name: counting(1))
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendUnavailableError, match=message):
        backend.require_device()


def test_a_hip_library_that_cannot_be_loaded_leaves_the_device_to_the_next(monkeypatch):
    """Parts of two installations of ROCm do not fit: where HIP Python loads a library from comes first."""

    def load(path):
        if path != "/there/libamdhip64.so":
            raise OSError(f"{path}: cannot open shared object file")
        return counting(2)

    def with_libraries(*paths):
        monkeypatch.setattr(hip, "_library_paths", lambda name: paths)
        return HipBackend.device_count()

    monkeypatch.setattr(hip.ctypes, "CDLL", load)
    assert with_libraries("libamdhip64.so", "/there/libamdhip64.so") == 2
    with pytest.raises(BackendUnavailableError, match="no HIP device: the HIP library is not installed: install"):
        with_libraries("libamdhip64.so")
    with pytest.raises(BackendUnavailableError, match=r"no HIP device: /damaged/libamdhip64\.so: cannot open"):
        with_libraries("libamdhip64.so", "/damaged/libamdhip64.so")


# -- on a device -----------------------------------------------------------------------------------


def on_a_device(name):
    found = BACKENDS[name].availability()
    return pytest.param(name, marks=[pytest.mark.gpu, pytest.mark.skipif(not found.can_run, reason=found.reason)])


@pytest.mark.parametrize("name", [on_a_device("cuda"), on_a_device("hip")])
def test_a_mixed_precision_kernel_runs(name):
    rng, backend = np.random.default_rng(3), BACKENDS[name]()
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
