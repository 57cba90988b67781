"""The simulated devices refuse what is wrong: calls of a driver that was broken on purpose, and kernels that are."""

from __future__ import annotations

import ctypes
import inspect
import re
import sys

import numpy as np
import pytest

from mptune.backends.addressed import pack_arguments
from mptune.backends.base import Binary
from mptune.backends.cuda import CudaBackend
from mptune.backends.gpu import GpuBuffer
from mptune.backends.hip import HipBackend
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


@pytest.fixture(scope="module")
def image():
    return compile_source(source_of("axpy", BODY), ("--gpu-architecture=sm_90", "--std=c++17"))


@pytest.fixture(params=few(["cuda", "hip"]))
def backend(request, monkeypatch):
    simulated, kind = {"cuda": (SimulatedCupy(), CudaBackend), "hip": (SimulatedHip(), HipBackend)}[request.param]
    for name, module in simulated.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(kind, "require_device", staticmethod(lambda: None))
    return kind()


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


def test_a_kernel_runs(backend, function):
    x, y = np.random.default_rng(0).random((2, 50), np.float32)
    buffers = [buffer_of(backend, array) for array in (x, y)]
    assert function.launch(SHAPE, [*buffers, np.float32(0.25), np.int32(50)]) > 0
    found = np.empty_like(y)
    buffers[1].read(found)
    np.testing.assert_array_equal(found, np.float32(0.25) * x + y)


def test_variables_of_a_module_outlive_launches_and_are_as_large_as_declared(backend, function, driver):
    buffers = [buffer_of(backend, np.zeros(50, np.float32)) for _ in range(2)]
    for _ in range(3):
        function.launch(SHAPE, [*buffers, np.float32(1), np.int32(50)])
    found = np.zeros(50, np.float32)
    buffers[1].read(found)
    assert found.tolist() == [3, *49 * [0]]
    with pytest.raises(Misuse, match="a copy of 24 bytes ends 8 bytes past the 16 bytes at"):
        function.set_constant("factors", np.zeros(3))


class TestBrokenCalls:
    @pytest.mark.parametrize(("more", "past"), [(8, 8)])
    def test_a_copy_of_a_wrong_size(self, backend, driver, more, past):
        data = np.zeros(1 << 12)
        buffer = buffer_of(backend, data)
        for kind in ("HostToDevice", "DeviceToHost", "DeviceToDevice"):
            addresses = [data.ctypes.data, buffer.address] if kind == "DeviceToHost" else [buffer.address] * 2
            with pytest.raises(Misuse, match=f"ends {past} bytes past the 32768 bytes"):
                driver.copy(*addresses, data.nbytes + more, kind)
        with pytest.raises(Misuse, match="a fill of"):
            driver.fill(buffer.address, 0, data.nbytes + more)

    def test_a_copy_in_the_wrong_direction(self, backend, driver):
        data = np.zeros(8)
        buffer = buffer_of(backend, data)
        with pytest.raises(Misuse, match="no memory of the device"):
            driver.copy(data.ctypes.data, buffer.address, 64, "HostToDevice")
        with pytest.raises(Misuse, match="copies to the host was given an address of the device"):
            driver.copy(buffer.address, buffer.address, 64, "DeviceToHost")

    def test_memory_that_was_freed(self, backend, driver, function):
        buffer = buffer_of(backend, np.zeros(8))
        address = buffer.address
        buffer.free()
        with pytest.raises(Misuse, match="that memory was freed"):
            driver.fill(address, 0, 64)
        with pytest.raises(Misuse, match=r"free at 0x[0-9a-f]+: that memory was freed"):
            driver.release(address)
        buffer._start = address
        with pytest.raises(Misuse, match=r"argument 0 of axpy at .*: that memory was freed"):
            function.launch(SHAPE, [buffer, buffer, np.float32(1), np.int32(8)])

    @pytest.mark.parametrize(
        ("order", "message"),
        [
            ((0, 2, 1, 3), "argument 1 of axpy at 0x3f800000, which is no memory"),
            ((0, 1, 4, 3), "argument 2 of axpy has 4 bytes, and was given more"),
        ],
    )
    def test_arguments_in_a_wrong_order_or_size(self, backend, function, order, message):
        x, y = (buffer_of(backend, np.zeros(50, np.float32)) for _ in range(2))
        given = [x, y, np.float32(1), np.int32(50), np.float64(1)]
        with pytest.raises(Misuse, match=message):
            function.launch(SHAPE, [given[i] for i in order])

    def test_handles_of_something_else_or_of_nothing_any_more(self, backend, driver, function, image):
        with pytest.raises(Misuse, match=r"is no module but a function"):
            driver.call("moduleGetGlobal", function._function, "factors")
        handle = function._function
        driver.call("moduleUnload", function._module)
        with pytest.raises(Misuse, match="was used after it was given back"):
            driver.call("moduleUnload", function._module)
        pointers, values = pack_arguments("axpy", [], GpuBuffer)
        with pytest.raises(Misuse, match=r"function .* was used after it was given back"):
            driver.enqueue(handle, SHAPE, ctypes.addressof(pointers))
        del values

    def test_arguments_that_are_not_there(self, driver, function):
        empty = (ctypes.c_void_p * 4)()
        with pytest.raises(Misuse, match="argument 0 of axpy is missing"):
            driver.enqueue(function._function, SHAPE, ctypes.addressof(empty))


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

    def test_blocks_above_the_launch_bounds_of_a_kernel(self, backend):
        body = BODY.replace("void axpy", "void __launch_bounds__(2 * (16 + 16), 4) axpy")
        function = backend.device.load(Binary("axpy", compile_source(source_of("axpy", body), ())))
        x, y = (buffer_of(backend, np.zeros(50, np.float32)) for _ in range(2))
        arguments = [x, y, np.float32(1), np.int32(50)]
        function.launch(SHAPE, arguments)
        above = LaunchShape((1, 1, 1), (65, 1, 1))
        with pytest.raises(LaunchError, match="axpy allows at most 64 threads in a block"):
            function.launch(above, arguments)
        pointers, values = pack_arguments("axpy", arguments, GpuBuffer)
        with pytest.raises(LaunchError, match=r"CUDA_ERROR_INVALID_VALUE|hipErrorInvalidValue"):
            function._device.launch(function._function, above, ctypes.addressof(pointers))
        del values

    @pytest.mark.parametrize(
        ("option", "most"), [("--gpu-architecture=sm_90", 48 << 10), ("--offload-arch=gfx90a", 64 << 10)]
    )
    def test_kernels_that_declare_too_much_shared_memory(self, option, most):
        def image(nbytes):
            return compile_source(source_of("axpy", shared_body(nbytes)), (option,))

        assert static_shared_bytes(image(most), "axpy") == most
        with pytest.raises(CompileError, match=f"axpy uses too much shared data .{most + 8} bytes, {most} at most"):
            image(most + 8)

    def test_what_a_kernel_declares_counts_with_what_a_launch_asks_for(self, backend):
        function = backend.device.load(Binary("axpy", compile_source(source_of("axpy", shared_body(40 << 10)), ())))
        x, y = (buffer_of(backend, np.zeros(50, np.float32)) for _ in range(2))
        most = backend.device.describe().limits["max_shared_bytes"] - (40 << 10)
        arguments = [x, y, np.float32(1), np.int32(50)]
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


@pytest.mark.parametrize("n", [50, 51, 2**31 - 1])
def test_a_kernel_that_leaves_its_memory_ends_all(backend, function, n):
    """By four bytes or by gigabytes: 50 elements are no multiple of what allocations are aligned to."""
    x, y = (buffer_of(backend, np.zeros(50, np.float32)) for _ in range(2))
    shape = LaunchShape((1, 1, 1), (64, 1, 1))
    arguments = [x, y, np.float32(1), np.int32(n)]
    if n == 50:
        function.launch(shape, arguments)
        return
    with pytest.raises(LaunchError, match=r"cudaErrorIllegalAddress|hipErrorIllegalAddress"):
        function.launch(shape, arguments)
    assert not backend.device.is_usable()
    attempts = (
        lambda: x.read(np.zeros(50, np.float32)),
        lambda: function.launch(SHAPE, arguments),
        lambda: backend.device.allocate(8),
        function.unload,
    )
    for later in attempts:
        with pytest.raises(LaunchError, match=r"(?i)illegal_?address"):
            later()


WRITES = """
extern "C" __global__ void wild(float* y, const int at, const int kind) {
    __shared__ float tile[64];
    alignas(16) __shared__ double sums[8]; __shared__ bool is_last[3];
    SHARED_DYNAMIC(float, dynamic);
    tile[threadIdx.x] = threadIdx.x;
    sums[threadIdx.x % 8] = at;
    is_last[threadIdx.x % 3] = kind > 8;
    __syncthreads();
    if (threadIdx.x == 0) {
        if (kind == 0) y[at] = 1;
        if (kind == 1) tile[at] = 1;
        if (kind == 2) sums[at] = 1;
        if (kind == 3) dynamic[at] = 1;
        if (kind == 4) y[0] = y[at];
        if (kind == 5) y[0] = tile[at];
        if (kind == 7) y[at] += 1;
        if (kind == 8) reinterpret_cast<double*>(y)[at] += 1;
        if (kind == 6) is_last[at] = true;
    }
    __syncthreads();
    if (kind > 8) y[threadIdx.x % 8] = tile[threadIdx.x] + sums[threadIdx.x % 8] + is_last[threadIdx.x % 3];
}
"""


class TestWritesBeside:
    """What a kernel writes beside its memory is told, with whose memory it was and how far from it."""

    @pytest.fixture(scope="class")
    @staticmethod
    def wild():
        return compile_source(source_of("wild", WRITES), ())

    @pytest.fixture
    def launch(self, backend, wild):
        function = backend.device.load(Binary("wild", wild))
        y = buffer_of(backend, np.zeros(50, np.float32))

        def launched(kind, at, shared_bytes=256):
            function.launch(LaunchShape((2, 1, 1), (64, 1, 1), shared_bytes), [y, np.int32(at), np.int32(kind)])
            found = np.zeros(50, np.float32)
            y.read(found)
            return found

        return launched

    @pytest.mark.parametrize(
        ("kind", "at", "told"),
        [
            (0, -1, "4 bytes before argument 0, 200 bytes at 0x"),
            (0, -900, "3600 bytes before argument 0, 200 bytes at 0x"),
            (0, 50, "4 bytes past the end of argument 0, 200 bytes at 0x"),
            (1, 64, "4 bytes past the end of the shared variable tile"),
            (1, 64 + 100, "404 bytes past the end of the shared variable tile"),
            (1, -1, "4 bytes before the shared variable tile"),
            (2, -100, "800 bytes before the shared variable sums"),
            (6, 3, "1 bytes past the end of the shared variable is_last"),
            (3, 64 + 900, "3604 bytes past the end of its 256 bytes of dynamic shared memory"),
        ],
    )
    def test_they_end_all(self, backend, launch, kind, at, told):
        with pytest.raises(LaunchError, match=rf"(?i)illegal_?address.*wild wrote up to {re.escape(told)}"):
            launch(kind, at)
        assert not backend.device.is_usable()
        with pytest.raises(LaunchError, match=rf"(?i)illegal_?address.*{re.escape(told)}"):
            backend.device.allocate(8)

    @pytest.mark.parametrize(("kind", "at"), [(7, -1), (7, 51), (8, -2), (8, 25)])
    def test_what_is_added_to_a_number_there_is_noticed_in_two_launches(self, launch, kind, at):
        def twice():
            launch(kind, at)
            launch(kind, at)

        with pytest.raises(LaunchError, match=r"(?i)illegal_?address.*argument 0, 200 bytes"):
            twice()

    def test_memory_of_others_is_told_apart(self, backend, launch):
        other = buffer_of(backend, np.zeros(50, np.float32))
        distance = other.address - buffer_of(backend, np.zeros(50, np.float32)).address
        with pytest.raises(
            LaunchError, match=r"wrote up to 4 bytes before memory that is no argument of it, 200 bytes"
        ):
            launch(0, distance // -4 - 1)

    def test_what_is_read_there_is_not_finite(self, launch):
        for kind, at in ((4, -1), (4, -900), (4, 50), (4, 63), (5, 64), (5, -1)):
            assert np.isnan(launch(kind, at)[0])

    def test_shared_memory_of_any_size_is_one_s_own(self, launch):
        for shared_bytes, last in ((256, 63), (0, 0), (8192, 2047), (1024, 255), (16 << 10, 4095)):
            if shared_bytes:
                launch(3, last, shared_bytes)
            assert launch(9, 2)[:8].tolist() == [56 + i + 3 for i in range(8)]

    def test_gaps_are_not_counted_as_shared_memory(self, wild):
        assert static_shared_bytes(wild, "wild") == 64 * 4 + 8 * 8 + 3


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
        calls = [
            name
            for name in vars(SimulatedHip)
            if name.startswith("hip") and inspect.isfunction(getattr(SimulatedHip, name))
        ]
        assert len(calls) > 15
        for name in calls:
            ours = [*inspect.signature(getattr(SimulatedHip, name)).parameters][1:]
            real = [*inspect.signature(getattr(hip, name)).parameters]
            assert ours == real or (name == "hipGetDeviceProperties" and real == ["prop", "deviceId"])

    def test_wrong_types_are_refused_as_cython_does(self):
        cupy = SimulatedCupy()
        with pytest.raises(TypeError):
            cupy.runtime.malloc(8.0)
        with pytest.raises(TypeError):
            cupy.driver.moduleGetFunction(1, b"axpy")
        with pytest.raises(OverflowError):
            cupy.runtime.malloc(2**64)
        with pytest.raises(TypeError):
            cupy.runtime.memsetAsync(1, 2, 3)
