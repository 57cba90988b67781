"""What mptune uses of HIP Python 10, on a simulated device.

The methods of :class:`SimulatedHip` are its functions: they take the same, and return a status and a value.
"""

# ruff: noqa: N801, N802, N815 - the library's names

from __future__ import annotations

import enum
import functools
import importlib.machinery
import types
from collections.abc import Callable
from typing import Any, Final

from tests.support.simulator.compiler import SHARED_BYTES
from tests.support.simulator.cuda import function_attribute
from tests.support.simulator.device import MADE_UP, Event, Failure, Limits, Misuse, SimulatedDevice, Stream

__all__ = ["SimulatedHip", "hipError_t", "hipMemcpyKind"]

LIMITS: Final = Limits(
    block=(1024, 1024, 1024),
    grid=(2**31 - 1, 65536, 65536),
    shared_bytes=SHARED_BYTES["hip"],
    most_shared_bytes=SHARED_BYTES["hip"],
    shared_at_once=SHARED_BYTES["hip"],
)


class hipError_t(enum.IntEnum):
    """What calls return first."""

    hipSuccess = 0
    hipErrorInvalidValue = 1
    hipErrorOutOfMemory = 2
    hipErrorInvalidImage = 200
    hipErrorNotFound = 500
    hipErrorIllegalAddress = 700
    hipErrorLaunchFailure = 719


class hipMemcpyKind(enum.IntEnum):
    """From where to where."""

    hipMemcpyHostToDevice = 1
    hipMemcpyDeviceToHost = 2
    hipMemcpyDeviceToDevice = 3


class hipFunction_attribute(enum.IntEnum):
    """What can be asked of a function."""

    HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0
    HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1
    HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3
    HIP_FUNC_ATTRIBUTE_NUM_REGS = 4


class hipDeviceProp_t:
    """What is known of a device."""

    name, gcnArchName = f"HIP device ({MADE_UP})", "gfx90a:sramecc+:xnack-"
    totalGlobalMem, maxThreadsPerBlock, sharedMemPerBlock = LIMITS.memory_bytes, LIMITS.threads, LIMITS.shared_bytes
    maxThreadsPerMultiProcessor = LIMITS.threads_at_once
    maxThreadsDim, maxGridSize = list(LIMITS.block), list(LIMITS.grid)
    totalConstMem, regsPerBlock, warpSize, multiProcessorCount, l2CacheSize = (
        2**31 - 1,
        LIMITS.registers,
        64,
        2,
        1 << 20,
    )
    pciDomainID, pciBusID, pciDeviceID = 0, 0xC1, 0


class _Pointer:
    """An address or a handle as HIP Python gives it."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __int__(self) -> int:
        return self._value


_STATUS: Final = {
    "invalid value": hipError_t.hipErrorInvalidValue,
    "out of memory": hipError_t.hipErrorOutOfMemory,
    "invalid image": hipError_t.hipErrorInvalidImage,
    "not found": hipError_t.hipErrorNotFound,
    "illegal address": hipError_t.hipErrorIllegalAddress,
    "launch failure": hipError_t.hipErrorLaunchFailure,
}


class _Told(int):
    """A status whose name says more than that of a real one."""

    def __new__(cls, status: hipError_t, detail: str) -> _Told:
        made = super().__new__(cls, status)
        made.name = f"{status.name} ({detail})"
        return made

    name: str


def _hip(method: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    @functools.wraps(method)
    def call(self: SimulatedHip, *arguments: Any) -> tuple[Any, ...]:
        try:
            found = method(self, *arguments)
        except Failure as failure:
            status = _STATUS[str(failure)]
            return (_Told(status, failure.detail) if failure.detail else status, None)
        return (hipError_t.hipSuccess,) if found is None else (hipError_t.hipSuccess, found)

    return call


class SimulatedHip:
    """HIP Python, with a device of its own.

    Attributes:
        device: the device, which knows what was asked of it.
    """

    hipError_t, hipMemcpyKind, hipFunction_attribute = hipError_t, hipMemcpyKind, hipFunction_attribute
    hipDeviceProp_t = hipDeviceProp_t
    hipStreamNonBlocking = 1

    def __init__(self, device: SimulatedDevice | None = None) -> None:
        self.device = device or SimulatedDevice(LIMITS)

    @property
    def modules(self) -> dict[str, Any]:
        """The modules, by the names they are imported by."""
        package = types.ModuleType("hip")
        package.__spec__ = importlib.machinery.ModuleSpec("hip", None)
        vars(package)["hip"] = self
        return {"hip": package, "hip.hip": self}

    @_hip
    def hipSetDevice(self, deviceId: int) -> None:
        assert deviceId == 0

    @_hip
    def hipGetDeviceProperties(self, deviceId: int) -> Any:
        assert deviceId == 0
        return hipDeviceProp_t()

    @_hip
    def hipRuntimeGetVersion(self) -> int:
        return 70051831

    @_hip
    def hipStreamCreateWithFlags(self, flags: int) -> _Pointer:
        assert flags == self.hipStreamNonBlocking
        return _Pointer(self.device.new(Stream()))

    @_hip
    def hipStreamSynchronize(self, stream: _Pointer) -> None:
        self.device.synchronize(int(stream))

    @_hip
    def hipEventCreate(self) -> _Pointer:
        return _Pointer(self.device.new(Event()))

    @_hip
    def hipEventRecord(self, event: _Pointer, stream: _Pointer) -> None:
        self.device.record(int(event), int(stream))

    @_hip
    def hipEventSynchronize(self, event: _Pointer) -> None:
        self.device.wait(int(event))

    @_hip
    def hipEventElapsedTime(self, start: _Pointer, stop: _Pointer) -> float:
        return self.device.elapsed_ms(int(start), int(stop))

    @_hip
    def hipMalloc(self, size: int) -> _Pointer:
        return _Pointer(self.device.allocate(size))

    @_hip
    def hipFree(self, ptr: Any) -> None:
        self.device.free(int(ptr))

    @_hip
    def hipMemcpyAsync(self, dst: Any, src: Any, sizeBytes: int, kind: int, stream: _Pointer) -> None:
        copies = {1: self.device.copy_in, 2: self.device.copy_out, 3: self.device.copy}
        copies[kind](int(dst), int(src), sizeBytes, int(stream))

    @_hip
    def hipMemsetAsync(self, dst: Any, value: int, sizeBytes: int, stream: _Pointer) -> None:
        self.device.fill(int(dst), value, sizeBytes, int(stream))

    @_hip
    def hipModuleLoadData(self, image: bytes) -> _Pointer:
        return _Pointer(self.device.load(image))

    @_hip
    def hipModuleUnload(self, module: _Pointer) -> None:
        self.device.unload(int(module))

    @_hip
    def hipModuleGetFunction(self, module: _Pointer, kname: bytes) -> _Pointer:
        return _Pointer(self.device.function(int(module), kname.decode()))

    @_hip
    def hipModuleGetGlobal(self, hmod: _Pointer, name: bytes) -> _Pointer:
        return _Pointer(self.device.symbol(int(hmod), name.decode()))

    @_hip
    def hipFuncGetAttribute(self, attrib: int, hfunc: _Pointer) -> int:
        return function_attribute(self.device, attrib, int(hfunc))

    @_hip
    def hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        self, f: _Pointer, blockSize: int, dynSharedMemPerBlk: int
    ) -> int:
        return self.device.blocks(int(f), blockSize, dynSharedMemPerBlk)

    @_hip
    def hipModuleLaunchKernel(
        self,
        f: _Pointer,
        gridDimX: int,
        gridDimY: int,
        gridDimZ: int,
        blockDimX: int,
        blockDimY: int,
        blockDimZ: int,
        sharedMemBytes: int,
        stream: _Pointer,
        kernelParams: int,
        extra: int,
    ) -> None:
        assert extra == 0
        grid, block = (gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ)
        if any(blocks * threads >= 2**32 for blocks, threads in zip(grid, block, strict=True)):
            raise Misuse(f"a grid {grid} of blocks {block}: HIP counts the threads of an axis in 32 bits")
        self.device.launch(int(f), grid, block, sharedMemBytes, int(stream), kernelParams)
