"""The HIP backend down to the calls it makes of HIP Python: against a stand-in, and against the real one."""

# ruff: noqa: N815 - the library's names

from __future__ import annotations

import ctypes
import enum
import inspect
import os
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest

from mptune.backends import hip as hip_backend
from mptune.backends.base import Binary
from mptune.backends.hip import HipBackend
from mptune.errors import BackendUnavailableError, LaunchError, OutOfMemoryError
from mptune.kernel import LaunchShape
from mptune.kernel.limits import device_constraints
from mptune.registry import load_kernel

SHAPE = LaunchShape((5, 2, 1), (32, 4, 1), 60_000)
GXX = shutil.which("g++")

#: What opening a device calls, in C; a name is the first thing among the properties.
MADE_UP = r"""
#include <cstring>
static int handle;
extern "C" {
int hipGetDeviceCount(int* count) { *count = 1; return 0; }
int hipSetDevice(int) { return 0; }
int hipStreamCreateWithFlags(void** stream, unsigned) { *stream = &handle; return 0; }
int hipEventCreate(void** event) { *event = &handle; return 0; }
int hipMalloc(void** memory, unsigned long) { *memory = &handle; return 0; }
int hipRuntimeGetVersion(int* version) { *version = 70000000; return 0; }
int hipGetDevicePropertiesR0600(char* properties, int) {
  std::memset(properties, 0, 1472);
  std::strcpy(properties, "Made Up");
  return 0;
}
}
"""
STREAM = "a stream"


class Status(enum.IntEnum):
    hipSuccess = 0
    hipErrorOutOfMemory = 2
    hipErrorIllegalAddress = 700


class Kind(enum.IntEnum):
    hipMemcpyHostToDevice = 1
    hipMemcpyDeviceToHost = 2
    hipMemcpyDeviceToDevice = 3


class Pointer:
    """An address as HIP Python gives it."""

    def __init__(self, block):
        self.block = block

    def __int__(self):
        return ctypes.addressof(self.block)


class Properties:
    name, gcnArchName = "AMD Instinct MI250X", "gfx90a:sramecc+:xnack-"
    totalGlobalMem, maxThreadsPerBlock, sharedMemPerBlock = 64 << 30, 1024, 65536
    maxThreadsDim, maxGridSize = [1024, 1024, 1024], [2**31 - 1, 65536, 65536]
    totalConstMem, regsPerBlock, warpSize, multiProcessorCount, l2CacheSize = 2**31 - 1, 65536, 64, 110, 8 << 20
    pciDomainID, pciBusID, pciDeviceID = 0, 0xC1, 0


class OldProperties(Properties):
    """As HIP Python has them up to version 7."""

    name, gcnArchName = b"AMD Instinct MI250X", b"gfx90a:sramecc+:xnack-"


#: What the functions of HIP Python 10 take; the real ones are asked where they are installed.
SIGNATURES = {
    "hipSetDevice": ("deviceId",),
    "hipStreamCreateWithFlags": ("flags",),
    "hipStreamSynchronize": ("stream",),
    "hipEventCreate": (),
    "hipEventRecord": ("event", "stream"),
    "hipEventSynchronize": ("event",),
    "hipEventElapsedTime": ("start", "stop"),
    "hipGetDeviceProperties": ("deviceId",),
    "hipRuntimeGetVersion": (),
    "hipMalloc": ("size",),
    "hipFree": ("ptr",),
    "hipMemcpyAsync": ("dst", "src", "sizeBytes", "kind", "stream"),
    "hipMemsetAsync": ("dst", "value", "sizeBytes", "stream"),
    "hipModuleLoadData": ("image",),
    "hipModuleUnload": ("module",),
    "hipModuleGetFunction": ("module", "kname"),
    "hipModuleGetGlobal": ("hmod", "name"),
    "hipFuncGetAttribute": ("attrib", "hfunc"),
    "hipModuleLaunchKernel": (
        *("f", "gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ"),
        *("sharedMemBytes", "stream", "kernelParams", "extra"),
    ),
}


class FakeHip(types.ModuleType):
    """HIP Python on host memory; every call is written down and gives a status and values.

    It takes what the functions of a version take, no more and no less.
    """

    hipError_t, hipMemcpyKind, hipStreamNonBlocking = Status, Kind, 1
    hipFunction_attribute = types.SimpleNamespace(HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK="max threads")
    hipDeviceProp_t = OldProperties

    def __init__(self, version=10):
        super().__init__("hip.hip")
        self.calls, self.failing, self.memory = [], {}, {}
        self.signatures = dict(SIGNATURES)
        self.results = {
            "hipGetDeviceProperties": lambda device: Properties,
            "hipStreamCreateWithFlags": lambda flags: STREAM,
            "hipEventCreate": lambda: "an event",
            "hipRuntimeGetVersion": lambda: 60032830,
            "hipMalloc": self.malloc,
            "hipMemcpyAsync": lambda to, of, n, kind, stream: ctypes.memmove(to, of, n),
            "hipMemsetAsync": lambda to, byte, n, stream: ctypes.memset(int(to), byte, n),
            "hipModuleLoadData": lambda image: "a module",
            "hipModuleGetFunction": lambda module, name: "a function",
            "hipFuncGetAttribute": lambda attribute, function: 512,
            "hipEventElapsedTime": lambda start, end: 1.5,
        }
        if version < 10:
            self.signatures["hipGetDeviceProperties"] = ("prop", "deviceId")
            self.results["hipGetDeviceProperties"] = lambda properties, device: None

    def __getattr__(self, name):
        if name not in self.signatures:
            raise AttributeError(name)

        def call(*arguments):
            if len(arguments) != len(self.signatures[name]):
                raise TypeError(f"{name}() takes {self.signatures[name]}, given {arguments}")
            self.calls.append((name, *arguments))
            if name in self.failing:
                return (self.failing[name], *([None] if name in self.results else []))
            found = self.results[name](*arguments) if name in self.results else None
            return (Status.hipSuccess,) if found is None else (Status.hipSuccess, found)

        return call

    def malloc(self, nbytes):
        pointer = Pointer(ctypes.create_string_buffer(nbytes))
        self.memory[int(pointer)] = pointer
        return pointer


@pytest.fixture(params=[7, 10])
def fake(monkeypatch, request):
    fake = FakeHip(request.param)
    package = types.ModuleType("hip")
    package.hip = fake
    monkeypatch.setitem(sys.modules, "hip", package)
    monkeypatch.setitem(sys.modules, "hip.hip", fake)
    monkeypatch.setattr(HipBackend, "require_device", staticmethod(lambda: None))
    monkeypatch.setattr(hip_backend, "_hiprtc", lambda: types.SimpleNamespace(name="hiprtc", version="6.0"))
    return fake


@pytest.fixture
def backend(fake):
    return HipBackend()


def test_it_describes_the_device(backend):
    info = backend.describe()
    assert (info.name, info.architecture, info.memory_bytes) == ("AMD Instinct MI250X", "gfx90a", 64 << 30)
    assert info.limits["warp_size"] == 64
    assert info.limits["cache_bytes"] == 8 << 20
    assert info.versions == {"hip": "60032830", "hiprtc": "6.0"}
    assert {"shared_bytes <= 65536", "block_z <= 1024", "grid_y <= 65536"} <= set(backend.device.constraints())


def test_a_launch_is_one_kernel_between_two_events_on_the_stream(backend, fake):
    function = backend.device.load(Binary("axpy", b"code object"))
    buffer = backend.device.allocate(16)
    fake.calls.clear()
    assert function.launch(SHAPE, [buffer, np.float32(2)]) == 1.5
    names = [call[0] for call in fake.calls]
    # The device is at work when the event is queued, so that no time of the host's lies between it and the kernel.
    launch = ["hipMemsetAsync", "hipEventRecord", "hipModuleLaunchKernel", "hipEventRecord"]
    assert names == [*launch, "hipEventSynchronize", "hipEventElapsedTime"]
    assert all(call[2] == STREAM for call in fake.calls if call[0] == "hipEventRecord")
    (launched,) = [call for call in fake.calls if call[0] == "hipModuleLaunchKernel"]
    assert launched[1:9] == ("a function", 5, 2, 1, 32, 4, 1, 60_000)
    assert launched[9] == STREAM
    assert isinstance(launched[10], int)
    assert launched[11] is None


def test_a_block_beyond_the_registers_is_not_launched(backend, fake):
    function = backend.device.load(Binary("axpy", b"code object"))
    with pytest.raises(LaunchError, match="at most 512 threads fit a block"):
        function.launch(LaunchShape((1, 1, 1), (1024, 1, 1)), [])


def test_a_grid_of_too_many_threads_along_an_axis_is_no_launch(backend, fake):
    """HIP has no more than 32 bits for them, and older ones do not say so."""
    limits = backend.device.constraints()
    assert "grid_x * block_x < 4294967296" in limits
    kernel = load_kernel("axpy")
    assert "(ceildiv(n, block_size * vector_width)) * (block_size) < 4294967296" in device_constraints(kernel, limits)
    function = backend.device.load(Binary("axpy", b"code object"))
    function.launch(LaunchShape((2**24 - 1, 1, 1), (256, 1, 1)), [])
    fake.calls.clear()
    with pytest.raises(LaunchError, match=r"less than 2\*\*32 threads along an axis, not a grid \(16777216, 1, 1\)"):
        function.launch(LaunchShape((2**24, 1, 1), (256, 1, 1)), [])
    assert not [call for call in fake.calls if call[0] == "hipModuleLaunchKernel"]


def test_copies_go_through_the_stream_and_only_those_with_the_host_are_waited_for(backend, fake):
    data = np.arange(8.0)
    first, second = backend.device.allocate(64), backend.device.allocate(64)
    fake.calls.clear()
    first.write(data)
    second.copy_from(first)
    second.part(0, 8).fill(0)
    read = np.empty(8)
    second.read(read)
    assert read.tolist() == [0.0, *data[1:]]
    names = [call[0] for call in fake.calls]
    copy, wait = "hipMemcpyAsync", "hipStreamSynchronize"
    assert names == [copy, wait, copy, "hipMemsetAsync", copy, wait]
    assert [call[4] for call in fake.calls if call[0] == copy] == [
        Kind.hipMemcpyHostToDevice,
        Kind.hipMemcpyDeviceToDevice,
        Kind.hipMemcpyDeviceToHost,
    ]
    assert all(call[-1] == STREAM for call in fake.calls)
    address = first.address
    first.free()
    assert fake.calls[-1] == ("hipFree", fake.memory[address])


def test_constant_memory_is_copied_to_where_the_module_has_it(backend, fake):
    function = backend.device.load(Binary("smooth", b"code object"))
    symbol = Pointer(ctypes.create_string_buffer(32))
    fake.results["hipModuleGetGlobal"] = lambda module, name: symbol
    fake.calls.clear()
    weights = np.arange(4.0)
    function.set_constant("weights", weights)
    assert fake.calls[0] == ("hipModuleGetGlobal", "a module", b"weights")
    assert bytes(symbol.block) == weights.tobytes()


def test_failures_carry_the_name_of_their_status(backend, fake):
    function = backend.device.load(Binary("axpy", b"code object"))
    fake.failing["hipMalloc"] = Status.hipErrorOutOfMemory
    with pytest.raises(OutOfMemoryError, match="64 bytes were asked for: hipErrorOutOfMemory"):
        backend.device.allocate(64)
    fake.failing["hipEventSynchronize"] = fake.failing["hipStreamSynchronize"] = Status.hipErrorIllegalAddress
    with pytest.raises(LaunchError, match="hipErrorIllegalAddress"):
        function.launch(SHAPE, [])
    assert not backend.device.is_usable()


def test_outputs_are_compared_on_the_host(backend):
    assert backend.device.array_namespace() is None
    with pytest.raises(BackendUnavailableError, match="HIP has no arrays"):
        backend.device.array(backend.device.allocate(8), np.dtype(np.uint64))


def test_a_hip_library_of_another_version_is_explained(backend, fake, monkeypatch):
    def missing(properties, device):
        raise RuntimeError("failed to dlsym 'hipGetDevicePropertiesR0600'")

    monkeypatch.setattr(fake, "hipGetDeviceProperties", missing, raising=False)
    with pytest.raises(BackendUnavailableError, match=r"does not fit the installed HIP library .*R0600.*: install"):
        backend.describe()


class TestRealHipPython:
    """Without a device every call gets as far as the library, which says so: its arguments are of the right types."""

    @pytest.fixture
    def driver(self):
        try:
            from hip import hip
        except (ImportError, RuntimeError) as error:
            pytest.skip(f'HIP Python is not installed: pip install "mptune[hip]" ({error})')
        try:
            status, count = hip.hipGetDeviceCount()
        except RuntimeError as error:
            pytest.skip(f"there is no HIP library: {error}")
        if status == hip.hipError_t.hipSuccess and count:
            pytest.skip("there is a device, on which made-up addresses would do harm")
        driver = object.__new__(hip_backend._HipPythonDriver)
        driver._hip, driver._stream, driver._start, driver._end, driver._memory = hip, None, None, None, {4096: None}
        driver.lead = 4096
        return driver

    @pytest.mark.parametrize(
        ("call", "arguments"),
        [
            ("allocate", (64,)),
            ("free", (4096,)),
            ("copy_in", (4096, 8192, 64)),
            ("copy_out", (4096, 8192, 64)),
            ("copy", (4096, 8192, 64)),
            ("fill", (4096, 0xA5, 64)),
            ("load", (b"\x7fELF",)),
            ("unload", (None,)),
            ("function", (None, "axpy")),
            ("max_threads", (None,)),
            ("symbol", (None, "weights")),
            ("launch", (None, SHAPE, 4096)),
            ("enqueue", (None, SHAPE, 4096)),
            ("synchronize", ()),
        ],
    )
    def test_calls_reach_the_library(self, driver, call, arguments):
        with pytest.raises((LaunchError, OutOfMemoryError), match="hipError"):
            getattr(driver, call)(*arguments)

    def test_the_device_is_asked_for_as_this_version_has_it(self, driver):
        with pytest.raises(BackendUnavailableError, match=r"hipError|does not fit the installed HIP library"):
            driver.describe()

    def test_the_stand_in_takes_what_it_takes(self, driver):
        real = {name: tuple(inspect.signature(getattr(driver._hip, name)).parameters) for name in SIGNATURES}
        assert real in (FakeHip(7).signatures, FakeHip(10).signatures)

    def test_opening_a_device_that_is_not_there(self, driver):
        with pytest.raises(BackendUnavailableError, match=r"hipError|no HIP device"):
            HipBackend().describe()

    def test_the_device_of_a_library_that_is_made_up(self, driver, tmp_path):
        """Names are texts, and the library is the one that HIP Python loads."""
        if "hipGetDevicePropertiesR0600" not in (driver._hip.hipGetDeviceProperties.__doc__ or "") or not GXX:
            pytest.skip("needs HIP Python 10 and g++")
        (tmp_path / "lib").mkdir()
        (tmp_path / "hip.cpp").write_text(MADE_UP)
        command = [GXX, "-shared", "-fPIC", "-o", tmp_path / "lib" / "libamdhip64.so", tmp_path / "hip.cpp"]
        subprocess.run(command, check=True)
        script = "from mptune.backends.hip import HipBackend; print(repr(HipBackend().device.describe().name))"
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "ROCM_PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "'Made Up'\n", done.stderr
