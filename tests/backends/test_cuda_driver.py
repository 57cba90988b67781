"""The CUDA backend down to the calls it makes of CuPy, in their order, with what each is given."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from fake_cupy import FakeCupy

from mptune.backends import cuda
from mptune.backends.base import Binary, CompileOptions
from mptune.backends.cuda import CudaBackend
from mptune.errors import LaunchError, OutOfMemoryError
from mptune.kernel import LaunchShape

SHAPE = LaunchShape((5, 2, 1), (32, 4, 1), 100_000)
STREAM = FakeCupy.STREAM


@pytest.fixture
def fake(monkeypatch):
    fake = FakeCupy()
    fake.install(monkeypatch)
    monkeypatch.setattr(CudaBackend, "require_device", staticmethod(lambda: None))
    return fake


@pytest.fixture
def backend(fake):
    return CudaBackend()


def test_constructing_one_touches_no_device(fake):
    CudaBackend()
    assert fake.calls == []


def test_the_device_is_opened_once_with_a_stream_that_arrays_use_too(backend, fake):
    backend.describe()
    backend.device.allocate(8)
    assert fake.calls[:3] == [("device", 0), ("free", 0), ("use", STREAM)]
    assert len(fake.named("use")) == 1


def test_it_describes_the_device(backend):
    info = backend.describe()
    assert (info.name, info.architecture, info.memory_bytes) == ("NVIDIA H100 80GB HBM3", "sm_90", 85 << 30)
    assert info.versions["driver"] == "13.1"
    assert info.versions["cupy"] == "14.2.0"
    assert info.limits["max_shared_bytes"] == 232448
    assert info.limits["warp_size"] == 32
    assert info.limits["cache_bytes"] == 50 << 20
    assert info.limits["registers_per_block"] == 65536
    assert info.limits["max_constant_bytes"] == 65536
    assert set(backend.device.constraints()) >= {
        "threads_per_block <= 1024",
        "shared_bytes <= 232448",
        "grid_y <= 65535",
    }
    assert "block_z <= 64" in backend.device.constraints()


def test_a_launch_is_one_kernel_between_two_events_on_the_stream(backend, fake):
    function = backend.device.load(Binary("axpy", b"cubin"))
    buffer = backend.device.allocate(16)
    fake.calls.clear()
    assert function.launch(SHAPE, [buffer, np.float32(2)]) == 1.5
    names = [call[0] for call in fake.calls]
    # The device is at work when the event is queued, so that no time of the host's lies between it and the kernel.
    assert names == ["funcSetAttribute", "memsetAsync", "record", "launchKernel", "record", "synchronize"]
    # More than 48 KiB of dynamic shared memory has to be asked for.
    assert fake.named("funcSetAttribute") == [[6, 8, 100_000]]
    assert fake.named("record") == [[STREAM], [STREAM]]
    (launched,) = fake.named("launchKernel")
    function_handle, *extents = launched[:8]
    stream, arguments, extra = launched[8:]
    assert (function_handle, extents) == (6, [5, 2, 1, 32, 4, 1, 100_000])
    assert (stream, extra) == (STREAM, 0)
    assert isinstance(arguments, int)


def test_the_kernel_is_given_pointers_to_its_arguments(backend, fake):
    seen = []

    def launch(*arguments):
        pointers = (ctypes.c_void_p * 2).from_address(arguments[9])
        seen.append((ctypes.c_void_p.from_address(pointers[0]).value, ctypes.c_float.from_address(pointers[1]).value))

    fake.modules["cupy_backends.cuda.api"].driver.launchKernel = launch
    buffer = backend.device.allocate(16)
    backend.device.load(Binary("axpy", b"cubin")).launch(SHAPE, [buffer, np.float32(2.5)])
    assert seen == [(buffer.address, 2.5)]


def test_modules_are_loaded_and_unloaded(backend, fake):
    function = backend.device.load(Binary("axpy", b"cubin"))
    assert fake.named("moduleLoadData") == [[b"cubin"]]
    assert fake.named("moduleGetFunction") == [[5, "axpy"]]
    assert fake.named("funcGetAttribute") == [[0, 6]]
    function.unload()
    assert fake.named("moduleUnload") == [[5]]


def test_a_block_beyond_the_registers_is_not_launched(backend, fake):
    function = backend.device.load(Binary("axpy", b"cubin"))
    with pytest.raises(LaunchError, match="at most 640 threads fit a block"):
        function.launch(LaunchShape((1, 1, 1), (1024, 1, 1)), [])
    assert not fake.named("launchKernel")


def test_copies_go_through_the_stream_and_only_those_with_the_host_are_waited_for(backend, fake):
    data = np.arange(8.0)
    first, second = backend.device.allocate(64), backend.device.allocate(64)
    fake.calls.clear()
    first.write(data)
    second.copy_from(first)
    read = np.empty(8)
    second.read(read)
    assert np.array_equal(read, data)
    copies = fake.named("memcpyAsync")
    assert [(kind, stream) for _, _, _, kind, stream in copies] == [(1, STREAM), (3, STREAM), (2, STREAM)]
    names = [call[0] for call in fake.calls]
    assert names == ["memcpyAsync", "streamSynchronize", "memcpyAsync", "memcpyAsync", "streamSynchronize"]


def test_memory_is_filled_on_the_stream_without_waiting(backend, fake):
    buffer = backend.device.allocate(64)
    fake.calls.clear()
    buffer.part(16, 8).fill(0xA5)
    assert fake.calls == [("memsetAsync", buffer.address + 16, 0xA5, 8, STREAM)]


def test_memory_cupy_keeps_for_itself_is_taken_back_before_there_is_none(backend, fake):
    backend.describe()
    fake.free_bytes, fake.pool_bytes = 100, 1000
    assert backend.device.allocate(500).nbytes == 500
    fake.free_bytes = 10
    with pytest.raises(OutOfMemoryError, match=r"500 bytes were asked for and 10 bytes are free: .*out of memory"):
        backend.device.allocate(500)


@pytest.mark.parametrize("call", ["moduleLoadData", "moduleGetFunction"])
def test_a_binary_that_cannot_be_loaded_is_a_launch_error(backend, fake, call):
    fake.failing.add(call)
    with pytest.raises(LaunchError, match=f"{call} failed"):
        backend.device.load(Binary("axpy", b"damaged"))


@pytest.mark.parametrize("call", ["funcSetAttribute", "launchKernel"])
def test_a_launch_the_driver_refuses_is_a_launch_error_and_the_device_lives(backend, fake, call):
    function = backend.device.load(Binary("axpy", b"cubin"))
    fake.failing.add(call)
    with pytest.raises(LaunchError, match=f"{call} failed"):
        function.launch(SHAPE, [])
    assert backend.device.is_usable()


def test_an_illegal_address_is_a_launch_error_after_which_nothing_works(backend, fake):
    function = backend.device.load(Binary("axpy", b"cubin"))
    fake.failing |= {"synchronize", "streamSynchronize"}
    with pytest.raises(LaunchError, match="illegal memory access"):
        function.launch(SHAPE, [])
    assert not backend.device.is_usable()


def test_constant_memory_is_copied_to_where_the_module_has_it(backend, fake):
    function = backend.device.load(Binary("smooth", b"cubin"))
    buffer = backend.device.allocate(32)
    fake.symbols["weights"] = buffer.address
    fake.calls.clear()
    weights = np.arange(4.0)
    function.set_constant("weights", weights)
    assert fake.named("moduleGetGlobal") == [[5, "weights"]]
    assert fake.named("memcpyAsync") == [[buffer.address, weights.ctypes.data, 32, 1, STREAM]]
    fake.failing.add("moduleGetGlobal")
    with pytest.raises(LaunchError, match="moduleGetGlobal failed"):
        function.set_constant("weights", weights)
    function.unload()
    with pytest.raises(LaunchError, match="smooth was given 'weights' after it was unloaded"):
        function.set_constant("weights", weights)


class TestArrays:
    def test_they_are_views_of_the_memory(self, backend):
        buffer = backend.device.allocate(64)
        buffer.part(16, 32).write(np.arange(4, dtype=np.uint64))
        array = backend.device.array(buffer.part(16, 32), np.dtype(np.uint64))
        assert array.tolist() == [0, 1, 2, 3]
        array[0] = 9
        read = np.empty(4, np.uint64)
        buffer.part(16, 32).read(read)
        assert read[0] == 9

    def test_they_are_cupy_s(self, backend, fake):
        assert backend.device.array_namespace() is fake.modules["cupy"]


def test_the_architecture_is_the_device_s_where_none_is_given(backend, monkeypatch, tmp_path):
    class Compiler:
        name, version = "NVRTC", "13.0"

        def compile(self, source, function, flags, timeout_s):
            assert flags[0] == "--gpu-architecture=sm_90"
            return b"cubin", ""

    monkeypatch.setattr(cuda, "_nvrtc", Compiler)
    monkeypatch.setenv("MPTUNE_CACHE_DIR", str(tmp_path))
    assert backend.compiler.compile("source", "axpy", CompileOptions()).image == b"cubin"
