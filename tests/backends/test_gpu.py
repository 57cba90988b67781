"""What CUDA and HIP share, against a driver that only remembers."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from mptune.backends import BACKENDS, get_backend, gpu
from mptune.backends.base import Availability, Binary, DeviceInfo
from mptune.backends.cuda import CudaBackend, CudaDevice
from mptune.backends.gpu import axis_limits
from mptune.errors import BackendUnavailableError, LaunchError, OutOfMemoryError, UnknownNameError
from mptune.kernel import LaunchShape


class RecordingDevice(CudaDevice):
    """Host memory in place of a device's; launches only remember what they were given."""

    lead = 4096

    def __init__(self):
        super().__init__(CudaBackend)
        self._is_open = True
        self.memory = {}
        self.loaded = {}
        self.launches = []
        self.fault = ""

    def describe(self):
        limits = {"max_threads_per_block": 512, "max_shared_bytes": 49152, **axis_limits((512, 8, 64), (99, 65535, 7))}
        return DeviceInfo("cuda", "Test", "sm_90", 1 << 30, limits, {"driver": "1.0"})

    def reserve(self, nbytes):
        block = ctypes.create_string_buffer(nbytes)
        self.memory[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def release(self, address):
        del self.memory[address]

    def fill(self, target, byte, nbytes):
        ctypes.memset(target, byte, nbytes)

    def attribute(self, function, name):
        return 256

    def call(self, name, *arguments):
        if name == "moduleLoadData":
            (self.loaded[len(self.loaded)],) = arguments
            return len(self.loaded) - 1
        if name == "moduleUnload":
            return self.loaded.pop(arguments[0])
        assert name == "moduleGetFunction"
        return arguments

    def launch(self, function, shape, arguments):
        self.launches.append((function, shape, arguments and self.values(arguments)))
        return 1.25

    def enqueue(self, function, shape, arguments):
        self.launches.append((function, shape, arguments and self.values(arguments)))

    def synchronize(self):
        if self.fault:
            raise LaunchError(self.fault)

    def values(self, arguments):
        """The bytes the first four argument pointers point at."""
        pointers = (ctypes.c_void_p * 4).from_address(arguments)
        return [ctypes.string_at(pointer, size) for pointer, size in zip(pointers, (2, 2, 8, 4), strict=True)]


@pytest.fixture
def driver():
    return RecordingDevice()


@pytest.fixture
def backend(driver):
    backend = CudaBackend()
    backend.device = driver
    return backend


def test_launch_passes_scalars_of_every_type_and_addresses(backend, driver):
    function = backend.device.load(Binary("axpy", b"image"))
    buffer = backend.device.allocate(16)
    shape = LaunchShape((5, 2, 1), (32, 4, 1), 1024)
    half, brain = np.float16(1.5), ml_dtypes.bfloat16(-3)
    assert function.launch(shape, [half, brain, buffer, np.int32(-7)]) == 1.25
    (handle, launched, values) = driver.launches[0]
    assert (handle, launched) == ((0, "axpy"), shape)
    assert values[0] == half.tobytes()
    assert values[1] == np.array(brain).tobytes()
    assert int.from_bytes(values[2], "little") == buffer.address
    assert values[3] == np.int32(-7).tobytes()


def test_enqueued_launches_pass_the_same_and_are_waited_for(backend, driver):
    function = backend.device.load(Binary("axpy", b"image"))
    shape = LaunchShape((5, 2, 1), (32, 4, 1), 1024)
    arguments = [np.float16(1.5), np.float16(2.5), backend.device.allocate(16), np.int32(-7)]
    function.launch(shape, arguments)
    function.enqueue(shape, arguments, 3)
    assert driver.launches[1:] == 3 * driver.launches[:1]
    function.wait()
    driver.fault = "CUDA_ERROR_ILLEGAL_ADDRESS"
    with pytest.raises(LaunchError, match="ILLEGAL_ADDRESS"):
        function.wait()
    function.unload()
    with pytest.raises(LaunchError, match="after it was unloaded"):
        function.enqueue(shape, arguments)


def test_a_block_with_more_threads_than_the_registers_allow_is_refused_before_it_is_launched(backend, driver):
    function = backend.device.load(Binary("axpy", b"image"))
    message = r"axpy allows at most 256 threads in a block, by its registers or .*; the block \(128, 4, 1\) has 512"
    with pytest.raises(LaunchError, match=message):
        function.launch(LaunchShape((1, 1, 1), (128, 4, 1)), [])
    assert not driver.launches


def test_a_device_that_was_idle_works_for_20_ms_before_something_is_timed(backend, driver, monkeypatch):
    now, filled = [100.0], []

    def fill(target, byte, nbytes):
        filled.append(target)
        now[0] += 1e-3

    monkeypatch.setattr(gpu, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(driver, "fill", fill)
    function = backend.device.load(Binary("axpy", b"image"))
    shape = LaunchShape((1, 1, 1), (32, 1, 1))

    def wakes(idle_s, launches=0, launch_s=0.0):
        now[0] += idle_s
        monkeypatch.setattr(driver, "launch", lambda *_: now.__setitem__(0, now[0] + launch_s) or 1.0)
        for _ in range(launches):
            function.launch(shape, [])
        filled.clear()
        backend.device.wake()
        return len(filled)

    assert wakes(0) >= 20
    assert set(filled) == {driver.lead}
    assert wakes(0.04) == wakes(0.04, launches=1) == 0
    assert wakes(0.06) >= 20
    # What is launched on an idle device warms it up, too.
    assert 14 <= wakes(0.06, launches=3, launch_s=2e-3) < 50
    assert wakes(0.06, launches=11, launch_s=2e-3) == 0


def test_what_no_driver_can_count_is_refused_in_words(backend, driver):
    function = backend.device.load(Binary("axpy", b"image"))
    with pytest.raises(LaunchError, match=r"the grid \(4294967296, 1, 1\) of axpy exceeds the limit of all devices"):
        function.launch(LaunchShape((2**32, 1, 1), (1, 1, 1)), [])
    with pytest.raises(OutOfMemoryError, match="18446744073709551616 bytes were requested, which exceeds 63 bits"):
        backend.device.allocate(2**64)
    assert not driver.launches
    assert not driver.memory


def test_facts_are_the_devices_limits(backend):
    expected = {"max_threads_per_block": 512, "max_shared_bytes": 49152, "max_block_y": 8, "max_grid_x": 99}
    assert backend.device.facts().items() >= {**expected, "is_gpu": True, "matrix_units": "mma.sync"}.items()


class TestChoosing:
    """Which backend a name stands for."""

    def test_auto_takes_the_first_that_can_run(self, monkeypatch):
        for name, can_run in (("cuda", False), ("hip", True), ("host", True)):
            found = Availability(True, can_run, "" if can_run else "no device")
            monkeypatch.setattr(BACKENDS[name], "availability", classmethod(lambda cls, found=found: found))
        assert get_backend("auto").name == "hip"

    def test_auto_says_why_none_can_run(self, monkeypatch):
        for name in ("cuda", "hip", "host"):
            found = Availability(False, False, f"no {name} compiler")
            monkeypatch.setattr(BACKENDS[name], "availability", classmethod(lambda cls, found=found: found))
        with pytest.raises(BackendUnavailableError, match=r"cuda: no cuda compiler; hip: .*; host: no host compiler"):
            get_backend("auto")

    def test_unknown_name(self):
        with pytest.raises(UnknownNameError, match="unknown backend 'cudo'; did you mean 'cuda'"):
            get_backend("cudo")
        with pytest.raises(UnknownNameError):
            BACKENDS["vulkan"]


def test_a_fault_leaves_the_device_unusable(driver, backend):
    assert backend.device.is_usable()
    driver.fault = "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert not backend.device.is_usable()
    assert CudaBackend().device.is_usable()


@pytest.mark.parametrize(
    ("backend", "given", "expected"),
    [
        ("cuda", {}, [{"CUDA_VISIBLE_DEVICES": str(i)} for i in range(3)]),
        ("cuda", {"CUDA_VISIBLE_DEVICES": "5, GPU-ab,2"}, [{"CUDA_VISIBLE_DEVICES": i} for i in ("5", "GPU-ab", "2")]),
        # The driver stops at the first it does not know.
        ("cuda", {"CUDA_VISIBLE_DEVICES": "5,2,0,99"}, [{"CUDA_VISIBLE_DEVICES": i} for i in ("5", "2", "0")]),
        ("hip", {"HIP_VISIBLE_DEVICES": "3,1,0"}, [{"HIP_VISIBLE_DEVICES": i} for i in ("3", "1", "0")]),
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
