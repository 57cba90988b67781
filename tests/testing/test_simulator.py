"""The simulated devices refuse what is wrong: calls of a driver that was broken on purpose, and kernels that are."""

from __future__ import annotations

import ctypes
import inspect

import numpy as np
import pytest
from simulated import install

from mptune.backends import get_backend
from mptune.backends.addressed import pack_arguments
from mptune.backends.base import Binary
from mptune.backends.gpu import GpuBuffer
from mptune.errors import CompileError, LaunchError
from mptune.kernel import LaunchShape
from mptune.testing.backends import source_of
from tests.support.simulator import Misuse
from tests.support.simulator.compiler import compile_source, static_shared_bytes
from tests.support.simulator.cuda import Driver, Runtime
from tests.support.simulator.cupy import SimulatedCupy
from tests.support.simulator.hip import SimulatedHip
from tests.tiers import few

SHAPE = LaunchShape((1, 1, 1), (64, 1, 1))
BODY = """
__constant__ double factors[2];
__device__ int calls = 0;
extern "C" __global__ void axpy(const float* x, float* y, const float a, const int n) {
    const int i = threadIdx.x;
    if (i == 0 && (calls += 1) == 3) y[0] = calls;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""


def shared_body(nbytes):
    """Return a kernel that declares so much shared memory."""
    declared = f"__shared__ double shared[{nbytes // 8}];\n    shared[threadIdx.x] = a;"
    return BODY.replace("const int i =", f"{declared}\n    const int i =")


def compiled(body, *options):
    return compile_source(source_of("axpy", body), options)


@pytest.fixture(scope="module")
def image():
    return compiled(BODY, "--gpu-architecture=sm_90", "--std=c++17")


@pytest.fixture(params=few(["cuda", "hip"]))
def backend(request, monkeypatch):
    install(monkeypatch, request.param)
    return get_backend(request.param)


@pytest.fixture
def driver(backend):
    backend.device.open()
    return backend.device


@pytest.fixture
def function(backend, image):
    return backend.device.load(Binary("axpy", image))


def buffer_of(backend, array):
    buffer = backend.device.allocate(array.nbytes)
    buffer.write(array)
    return buffer


@pytest.fixture
def arguments(backend):
    x, y = (buffer_of(backend, np.zeros(50, np.float32)) for _ in range(2))
    return [x, y, np.float32(1), np.int32(50)]


def test_a_kernel_runs_and_variables_of_a_module_outlive_launches(backend, function):
    x, y = np.random.default_rng(0).random((2, 50), np.float32)
    buffers = [buffer_of(backend, array) for array in (x, y)]
    found = np.empty_like(y)
    for factor in (0.25, 0, 0):
        assert function.launch(SHAPE, [*buffers, np.float32(factor), np.int32(50)]) > 0
        buffers[1].read(found)
        np.testing.assert_array_equal(found[1:], (np.float32(0.25) * x + y)[1:])
    assert found[0] == 3
    with pytest.raises(Misuse, match="a copy of 24 bytes ends 8 bytes past the 16 bytes at"):
        function.set_constant("factors", np.zeros(3))


class TestBrokenCalls:
    def test_a_copy_of_a_wrong_size_or_direction(self, backend, driver):
        data = np.zeros(1 << 12)
        buffer = buffer_of(backend, data)
        for kind in ("HostToDevice", "DeviceToHost", "DeviceToDevice"):
            addresses = [data.ctypes.data, buffer.address] if kind == "DeviceToHost" else [buffer.address] * 2
            with pytest.raises(Misuse, match="ends 8 bytes past the 32768 bytes"):
                driver.copy(*addresses, data.nbytes + 8, kind)
        with pytest.raises(Misuse, match="a fill of"):
            driver.fill(buffer.address, 0, data.nbytes + 8)
        with pytest.raises(Misuse, match="no memory of the device"):
            driver.copy(data.ctypes.data, buffer.address, 64, "HostToDevice")
        with pytest.raises(Misuse, match="copies to the host was given an address of the device"):
            driver.copy(buffer.address, buffer.address, 64, "DeviceToHost")

    def test_memory_that_was_freed(self, backend, driver, function, arguments):
        buffer = arguments[0]
        address = buffer.address
        buffer.free()
        with pytest.raises(Misuse, match="that memory was freed"):
            driver.fill(address, 0, 64)
        with pytest.raises(Misuse, match=r"free at 0x[0-9a-f]+: that memory was freed"):
            driver.release(address)
        buffer._start = address
        with pytest.raises(Misuse, match=r"argument 0 of axpy at .*: that memory was freed"):
            function.launch(SHAPE, arguments)

    def test_arguments_that_are_wrong_or_missing(self, driver, function, arguments):
        x, y, a, n = arguments
        with pytest.raises(Misuse, match="argument 1 of axpy at 0x3f800000, which is no memory"):
            function.launch(SHAPE, [x, a, y, n])
        with pytest.raises(Misuse, match="argument 2 of axpy has 4 bytes, and was given more"):
            function.launch(SHAPE, [x, y, np.float64(1), n])
        empty = (ctypes.c_void_p * 4)()
        with pytest.raises(Misuse, match="argument 0 of axpy is missing"):
            driver.enqueue(function._function, SHAPE, ctypes.addressof(empty))

    def test_handles_of_something_else_or_of_nothing_any_more(self, driver, function):
        with pytest.raises(Misuse, match=r"is no module but a function"):
            driver.call("moduleGetGlobal", function._function, "factors")
        driver.call("moduleUnload", function._module)
        with pytest.raises(Misuse, match="was used after it was given back"):
            driver.call("moduleUnload", function._module)
        pointers, values = pack_arguments("axpy", [], GpuBuffer)
        with pytest.raises(Misuse, match=r"function .* was used after it was given back"):
            driver.enqueue(function._function, SHAPE, ctypes.addressof(pointers))
        del values


class TestRefusals:
    """What a device refuses itself becomes the project's own error."""

    @pytest.mark.parametrize(
        "shape",
        [
            LaunchShape((1, 1, 1), (1, 1, 2048)),
            LaunchShape((1, 70_000, 1), (1, 1, 1)),
            LaunchShape((1, 1, 1), (1, 1, 1), 228 << 10),
        ],
    )
    def test_launches_above_the_limits(self, backend, driver, function, shape):
        pointers, values = pack_arguments("axpy", [], GpuBuffer)
        with pytest.raises(LaunchError, match=r"CUDA_ERROR_INVALID_VALUE|hipErrorInvalidValue"):
            driver.launch(function._function, shape, ctypes.addressof(pointers))
        del values
        assert backend.device.is_usable()

    def test_blocks_above_the_launch_bounds_of_a_kernel(self, backend, arguments):
        body = BODY.replace("void axpy", "void __launch_bounds__(2 * (16 + 16), 4) axpy")
        function = backend.device.load(Binary("axpy", compiled(body)))
        function.launch(SHAPE, arguments)
        with pytest.raises(LaunchError, match="axpy allows at most 64 threads in a block"):
            function.launch(LaunchShape((1, 1, 1), (65, 1, 1)), arguments)

    @pytest.mark.parametrize(
        ("option", "most"), [("--gpu-architecture=sm_90", 48 << 10), ("--offload-arch=gfx90a", 64 << 10)]
    )
    def test_kernels_that_declare_too_much_shared_memory(self, option, most):
        assert static_shared_bytes(compiled(shared_body(most), option), "axpy") == most
        with pytest.raises(CompileError, match=f"axpy uses too much shared data .{most + 8} bytes, {most} at most"):
            compiled(shared_body(most + 8), option)

    def test_what_a_kernel_declares_counts_with_what_a_launch_asks_for(self, backend, arguments):
        function = backend.device.load(Binary("axpy", compiled(shared_body(40 << 10))))
        most = backend.device.describe().limits["max_shared_bytes"] - (40 << 10)
        function.launch(LaunchShape((1, 1, 1), (64, 1, 1), most), arguments)
        with pytest.raises(LaunchError, match=r"CUDA_ERROR_INVALID_VALUE|hipErrorInvalidValue"):
            function.launch(LaunchShape((1, 1, 1), (64, 1, 1), most + 1), arguments)

    def test_what_a_module_does_not_have(self, backend, function, image):
        with pytest.raises(LaunchError, match=r"CUDA_ERROR_NOT_FOUND|hipErrorNotFound"):
            function.set_constant("axpy", np.zeros(1))
        with pytest.raises(LaunchError, match=r"CUDA_ERROR_NOT_FOUND|hipErrorNotFound"):
            backend.device.load(Binary("axpi", image))
        with pytest.raises(LaunchError, match=r"CUDA_ERROR_INVALID_IMAGE|hipErrorInvalidImage"):
            backend.device.load(Binary("axpy", image[:1000]))


@pytest.mark.parametrize(
    ("body", "n", "told"),
    [
        (BODY, 50, ""),
        # 50 elements are no multiple of what allocations are aligned to.
        (BODY, 51, r"wrote up to \d bytes past the end of argument 1, 200 bytes at 0x"),
        (BODY.replace("y[i] =", "y[i - 50] ="), 1, "wrote up to 200 bytes before argument 1, 200 bytes at 0x"),
        (BODY, 2**31 - 1, ""),
    ],
    ids=["within", "past", "before", "far"],
)
def test_a_kernel_that_leaves_its_memory_ends_all(backend, arguments, body, n, told):
    function = backend.device.load(Binary("axpy", compiled(body)))
    arguments = [*arguments[:3], np.int32(n)]
    if n == 50:
        function.launch(SHAPE, arguments)
        return
    with pytest.raises(LaunchError, match=rf"(?i)illegal_?address.*{told}"):
        function.launch(SHAPE, arguments)
    assert not backend.device.is_usable()
    attempts = (
        lambda: arguments[0].read(np.zeros(50, np.float32)),
        lambda: function.launch(SHAPE, arguments),
        lambda: backend.device.allocate(8),
        function.unload,
    )
    for later in attempts:
        with pytest.raises(LaunchError, match=rf"(?i)illegal_?address.*{told}"):
            later()


class TestSignatures:
    """The stand-ins take what the real packages take, where these are installed."""

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("stand_in", [Driver, Runtime], ids=["driver", "runtime"])
    def test_those_of_cupy(self, stand_in):
        pytest.importorskip("cupy", reason='CuPy is not installed: pip install "mptune[cuda]"')
        from cupy_backends.cuda.api import driver, runtime

        real = {Driver: driver, Runtime: runtime}[stand_in]
        calls = [name for name, member in vars(stand_in).items() if inspect.isfunction(member) and name[0] != "_"]
        assert len(calls) > 6
        for name in calls:
            parameters = list(inspect.signature(getattr(stand_in, name)).parameters.values())[1:]
            ours = ", ".join(f"{p.annotation.replace('_int', ' int')} {p.name}" for p in parameters)
            assert getattr(real, name).__doc__.splitlines()[0].partition(" -> ")[0] == f"{name}({ours})"
        for name, value in vars(stand_in).items():
            if isinstance(value, int) and name[0] != "_":
                assert getattr(real, name) == value

    def test_those_of_hip_python(self):
        try:
            from hip import hip
        except (ImportError, RuntimeError) as error:
            pytest.skip(f'HIP Python is not installed: pip install "mptune[hip]" ({error})')
        calls = [n for n in vars(SimulatedHip) if n.startswith("hip") and inspect.isfunction(vars(SimulatedHip)[n])]
        assert len(calls) > 15
        for name in calls:
            ours = [*inspect.signature(getattr(SimulatedHip, name)).parameters][1:]
            real = [*inspect.signature(getattr(hip, name)).parameters]
            assert ours == real or (name == "hipGetDeviceProperties" and real == ["prop", "deviceId"])

    @pytest.mark.parametrize(
        ("kind", "call", "arguments", "error"),
        [
            ("runtime", "malloc", (8.0,), TypeError),
            ("driver", "moduleGetFunction", (1, b"axpy"), TypeError),
            ("runtime", "malloc", (2**64,), OverflowError),
            ("runtime", "memsetAsync", (1, 2, 3), TypeError),
        ],
    )
    def test_wrong_types_are_refused_as_cython_does(self, kind, call, arguments, error):
        with pytest.raises(error):
            getattr(getattr(SimulatedCupy(), kind), call)(*arguments)
