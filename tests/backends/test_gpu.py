"""What CUDA and HIP share: the calls they make of a simulated device, what they refuse, and what they choose."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from simulated import SIMULATED, install, named

from mptune.backends import BACKENDS, get_backend, gpu
from mptune.backends.base import Availability, CompileOptions
from mptune.backends.cuda import CudaBackend
from mptune.errors import BackendUnavailableError, LaunchError, OutOfMemoryError, UnknownNameError
from mptune.kernel import LaunchShape
from mptune.kernel.limits import device_constraints
from mptune.source.loading import load_kernel
from mptune.testing.backends import source_of
from tests.support.simulator import compiler_version
from tests.support.simulator.cupy import SimulatedCupy
from tests.support.simulator.device import Limits, SimulatedDevice
from tests.support.simulator.hip import SimulatedHip

BODY = """
extern "C" __global__ void keep(const half a, const bfloat16 b, double* x, const int n) {
    if (threadIdx.x == 0) { x[0] = static_cast<double>(a); x[1] = static_cast<double>(b); x[2] = n; }
}
"""
SHAPE = LaunchShape((1, 1, 1), (32, 1, 1))


class SimulatedHip7(SimulatedHip):
    """As it is up to version 7: properties are filled into what is given, and names are bytes."""

    class hipDeviceProp_t:  # noqa: N801 - the library's name
        pass

    def hipGetDeviceProperties(self, prop, deviceId):  # noqa: N802
        status, found = super().hipGetDeviceProperties(deviceId)
        vars(prop).update({name: getattr(found, name) for name in dir(found) if name[0] != "_"})
        prop.name, prop.gcnArchName = found.name.encode(), found.gcnArchName.encode()
        return (status,)


@pytest.fixture(params=["cuda", "hip"])
def name(request):
    return request.param


@pytest.fixture
def device(monkeypatch, name):
    return install(monkeypatch, name)


@pytest.fixture
def backend(device, name):
    return get_backend(name)


def function_of(backend, body=BODY):
    return backend.device.load(backend.compiler.compile(source_of("keep", body), "keep", CompileOptions()))


@pytest.mark.parametrize(
    ("name", "simulated", "expected"),
    [
        ("cuda", SimulatedCupy, ("sm_90", {"max_shared_bytes": 232448, "max_grid_y": 65535, "max_block_z": 64}, 32)),
        ("hip", SimulatedHip7, ("gfx90a", {"max_shared_bytes": 65536, "max_grid_y": 65536, "max_block_z": 1024}, 64)),
        ("hip", SimulatedHip, ("gfx90a", {"max_shared_bytes": 65536, "max_grid_y": 65536, "max_block_z": 1024}, 64)),
    ],
)
def test_it_describes_the_device(monkeypatch, name, simulated, expected):
    install(monkeypatch, name, simulated())
    backend = get_backend(name)
    info, (architecture, limits, warp_size) = backend.describe(), expected
    assert info.name == f"{name.upper()} device (simulated: times are made up)"
    assert (info.architecture, info.memory_bytes) == (architecture, 1 << 30)
    assert info.limits.items() >= {"warp_size": warp_size, "cache_bytes": 1 << 20}.items()
    assert backend.device.facts().items() >= {**limits, "max_threads_per_block": 1024, "is_gpu": True}.items()
    versions = {"driver": "13.0", "cupy": "14.2.0"} if name == "cuda" else {"hip": "70051831"}
    assert info.versions.items() >= {**versions, ("nvrtc" if name == "cuda" else "hiprtc"): compiler_version()}.items()
    # The architecture is the device's where none is given.
    assert architecture in str(backend.compiler.identity(backend.compiler.resolved(CompileOptions())))


def test_a_launch_passes_scalars_of_every_type_between_two_events(device, backend, name):
    function, buffer = function_of(backend), backend.device.allocate(24)
    shape = LaunchShape((5, 2, 1), (32, 4, 1), 100_000 if name == "cuda" else 60_000)
    arguments = [np.float16(1.5), ml_dtypes.bfloat16(-3), buffer, np.int32(-7)]
    device.calls.clear()
    assert function.launch(shape, arguments) > 0
    # The device is at work when the event is queued, so that no time of the host's lies between it and the kernel.
    # CUDA has to be asked for more than 48 KiB of dynamic shared memory.
    asked = ["allow_shared"] if name == "cuda" else []
    assert [call[0] for call in device.calls] == [*asked, "fill", "record", "launch", "record", "wait", "elapsed"]
    assert named(device, "launch")[0][2] == ("keep", shape.grid, shape.block, shape.shared_bytes)
    found = np.zeros(3)
    buffer.read(found)
    assert found.tolist() == [1.5, -3, -7]
    function.enqueue(shape, arguments, 3)
    assert named(device, "launch")[1:] == 3 * named(device, "launch")[:1]
    function.wait()
    function.unload()
    with pytest.raises(LaunchError, match="after it was unloaded"):
        function.enqueue(shape, arguments)


def test_copies_go_through_the_stream_and_only_those_with_the_host_are_waited_for(device, backend):
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


def test_what_no_driver_can_do_is_refused_in_words(device, backend, name):
    function, buffer = function_of(backend), backend.device.allocate(24)
    arguments = [np.float16(1), ml_dtypes.bfloat16(1), buffer, np.int32(1)]
    with pytest.raises(LaunchError, match=r"the grid \(4294967296, 1, 1\) of keep exceeds the limit of all devices"):
        function.launch(LaunchShape((2**32, 1, 1), (1, 1, 1)), arguments)
    with pytest.raises(OutOfMemoryError, match="18446744073709551616 bytes were requested, which exceeds 63 bits"):
        backend.device.allocate(2**64)
    device.max_threads = lambda function: 256
    message = r"keep allows at most 256 threads in a block, by its registers or .*; the block \(128, 4, 1\) has 512"
    with pytest.raises(LaunchError, match=message):
        function_of(backend).launch(LaunchShape((1, 1, 1), (128, 4, 1)), arguments)
    if name == "hip":  # no more than 32 bits for the threads of an axis, and older ones do not say so
        threads = "((ceildiv(n, block_size * vector_width)) * (block_size)) <= 4294967295"
        assert threads in device_constraints(load_kernel("axpy"), backend.device.facts())
        with pytest.raises(
            LaunchError, match=r"less than 2\*\*32 threads along an axis, not a grid \(16777216, 1, 1\)"
        ):
            function.launch(LaunchShape((2**24, 1, 1), (256, 1, 1)), arguments)
    assert not named(device, "launch")


def test_a_fault_leaves_the_device_unusable(backend):
    function = function_of(backend, BODY.replace("x[0]", "x[1 << 28]"))
    assert backend.device.is_usable()
    with pytest.raises(LaunchError, match=r"(?i)illegal_?address"):
        function.launch(SHAPE, [np.float16(1), ml_dtypes.bfloat16(1), backend.device.allocate(24), np.int32(1)])
    assert not backend.device.is_usable()


def test_memory_cupy_keeps_for_itself_is_taken_back_before_there_is_none(monkeypatch):
    cupy = SimulatedCupy(SimulatedDevice(Limits(memory_bytes=16 << 20)))
    install(monkeypatch, "cuda", cupy)
    backend = CudaBackend()
    backend.describe()
    assert cupy.modules["cupy"].zeros(4 << 20, np.uint8).sum() == 0
    assert backend.device.allocate(8_000_000).nbytes == 8_000_000
    message = r"500000 bytes were requested and 388608 bytes are free: .*out of memory"
    with pytest.raises(OutOfMemoryError, match=message):
        backend.device.allocate(500_000)


def test_a_hip_library_of_another_version_is_explained(monkeypatch):
    simulated = SIMULATED["hip"]()

    def missing(*_):
        raise RuntimeError("failed to dlsym 'hipGetDevicePropertiesR0600'")

    simulated.hipGetDeviceProperties = missing
    install(monkeypatch, "hip", simulated)
    with pytest.raises(BackendUnavailableError, match=r"does not match the installed HIP library .*R0600.*: install"):
        get_backend("hip").describe()


def test_a_device_that_was_idle_works_for_20_ms_before_something_is_timed(device, backend, monkeypatch):
    function, buffer = function_of(backend), backend.device.allocate(24)
    arguments = [np.float16(1), ml_dtypes.bfloat16(1), buffer, np.int32(1)]
    now, filled = [100.0], []

    def fill(target, byte, nbytes):
        filled.append(target)
        now[0] += 1e-3

    monkeypatch.setattr(gpu, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(backend.device, "fill", fill)

    def wakes(idle_s, launches=0, launch_s=0.0):
        now[0] += idle_s
        monkeypatch.setattr(backend.device, "launch", lambda *_: now.__setitem__(0, now[0] + launch_s) or 1.0)
        for _ in range(launches):
            function.launch(SHAPE, arguments)
        filled.clear()
        backend.device.wake()
        return len(filled)

    assert wakes(0) >= 20
    assert wakes(0.04) == wakes(0.04, launches=1) == 0
    assert wakes(0.06) >= 20
    # What is launched on an idle device warms it up, too.
    assert 14 <= wakes(0.06, launches=3, launch_s=2e-3) < 50
    assert wakes(0.06, launches=11, launch_s=2e-3) == 0


# -- choosing --------------------------------------------------------------------------------------


def test_auto_takes_the_first_that_can_run_or_tells_why_none_can(monkeypatch):
    def available(**can_run):
        for name, can in can_run.items():
            found = Availability(can, can, "" if can else f"no {name} compiler")
            monkeypatch.setattr(BACKENDS[name], "availability", classmethod(lambda cls, found=found: found))
        return get_backend("auto").name

    assert available(cuda=False, hip=True, host=True) == "hip"
    with pytest.raises(BackendUnavailableError, match=r"cuda: no cuda compiler; hip: .*; host: no host compiler"):
        available(cuda=False, hip=False, host=False)
    with pytest.raises(UnknownNameError, match="unknown backend 'cudo'; did you mean 'cuda'"):
        get_backend("cudo")


@pytest.mark.parametrize(
    ("backend", "given", "expected"),
    [
        ("cuda", {}, [{"CUDA_VISIBLE_DEVICES": str(i)} for i in range(3)]),
        ("cuda", {"CUDA_VISIBLE_DEVICES": "5, GPU-ab,2"}, [{"CUDA_VISIBLE_DEVICES": i} for i in ("5", "GPU-ab", "2")]),
        # The driver stops at the first it does not know.
        ("cuda", {"CUDA_VISIBLE_DEVICES": "5,2,0,99"}, [{"CUDA_VISIBLE_DEVICES": i} for i in ("5", "2", "0")]),
        ("hip", {"CUDA_VISIBLE_DEVICES": "2,1,0"}, [{"HIP_VISIBLE_DEVICES": i} for i in ("2", "1", "0")]),
    ],
)
def test_each_device_has_an_environment_of_its_own(monkeypatch, backend, given, expected):
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(BACKENDS[backend], "device_count", staticmethod(lambda: 3))
    assert get_backend(backend).device.environments() == expected
