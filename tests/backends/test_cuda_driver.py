"""What the CUDA backend asks of CuPy, and the HIP backend of HIP Python, in which order."""

from __future__ import annotations

import numpy as np
import pytest
from simulated import install, named

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.cuda import CudaBackend
from mptune.errors import OutOfMemoryError
from mptune.kernel import LaunchShape
from mptune.testing.backends import source_of
from tests.support.simulator.cupy import SimulatedCupy
from tests.support.simulator.device import Limits, SimulatedDevice

BODY = 'extern "C" __global__ void nothing(double* x) { }'


@pytest.fixture
def cupy():
    return SimulatedCupy()


@pytest.fixture
def device(monkeypatch, cupy):
    return install(monkeypatch, "cuda", cupy)


@pytest.fixture
def backend(device):
    return CudaBackend()


def function_of(backend):
    source = source_of("nothing", BODY)
    return backend.device.load(backend.compiler.compile(source, "nothing", CompileOptions()))


def test_it_describes_the_device(backend):
    info = backend.describe()
    assert (info.name, info.architecture, info.memory_bytes) == (
        "CUDA device (simulated: times are made up)",
        "sm_90",
        1 << 30,
    )
    assert info.versions["driver"] == "13.0"
    assert info.versions["cupy"] == "14.2.0"
    assert info.pci_bus_id == "0000:1b:00.0"
    expected = {"max_shared_bytes": 232448, "warp_size": 32, "cache_bytes": 1 << 20, "max_constant_bytes": 65536}
    assert expected.items() <= info.limits.items()
    limits = {"max_threads_per_block": 1024, "max_shared_bytes": 232448, "max_grid_y": 65535, "max_block_z": 64}
    assert backend.device.facts().items() >= limits.items()


@pytest.mark.parametrize(("name", "shared_bytes"), [("cuda", 100_000), ("hip", 60_000)])
def test_a_launch_is_one_kernel_between_two_events_on_the_stream(monkeypatch, name, shared_bytes):
    device, backend = install(monkeypatch, name), get_backend(name)
    function = function_of(backend)
    buffer = backend.device.allocate(16)
    device.calls.clear()
    assert function.launch(LaunchShape((5, 2, 1), (32, 4, 1), shared_bytes), [buffer]) > 0
    # The device is at work when the event is queued, so that no time of the host's lies between it and the kernel.
    names = [call[0] for call in device.calls]
    # CUDA has to be asked for more than 48 KiB of dynamic shared memory.
    asked = ["allow_shared"] if name == "cuda" else []
    assert names == [*asked, "fill", "record", "launch", "record", "wait", "elapsed"]
    assert named(device, "launch")[0][2] == ("nothing", (5, 2, 1), (32, 4, 1), shared_bytes)


@pytest.mark.parametrize("name", ["cuda", "hip"])
def test_copies_go_through_the_stream_and_only_those_with_the_host_are_waited_for(monkeypatch, name):
    device, backend = install(monkeypatch, name), get_backend(name)
    data = np.arange(8.0)
    first, second = backend.device.allocate(64), backend.device.allocate(64)
    device.calls.clear()
    first.write(data)
    second.copy_from(first)
    second.part(0, 8).fill(0)
    read = np.empty(8)
    second.read(read)
    assert read.tolist() == [0.0, *data[1:]]
    names = [call[0] for call in device.calls]
    assert names == ["copy_in", "synchronize", "copy", "fill", "copy_out", "synchronize"]
    assert len({call[1] for call in device.calls}) == 1


def test_memory_cupy_keeps_for_itself_is_taken_back_before_there_is_none(monkeypatch):
    device = SimulatedDevice(Limits(memory_bytes=16 << 20))
    cupy = SimulatedCupy(device)
    install(monkeypatch, "cuda", cupy)
    backend = CudaBackend()
    backend.describe()
    assert cupy.modules["cupy"].zeros(4 << 20, np.uint8).sum() == 0
    assert backend.device.allocate(8_000_000).nbytes == 8_000_000
    with pytest.raises(
        OutOfMemoryError, match=r"500000 bytes were requested and 388608 bytes are free: .*out of memory"
    ):
        backend.device.allocate(500_000)


def test_the_architecture_is_the_device_s_where_none_is_given(backend, monkeypatch, tmp_path):
    monkeypatch.setenv("MPTUNE_CACHE_DIR", str(tmp_path))
    assert backend.compiler.identity(backend.compiler.resolved(CompileOptions()))[0] == "--gpu-architecture=sm_90"
