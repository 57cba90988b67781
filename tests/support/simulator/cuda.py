"""CuPy's binding of CUDA's driver and runtime, as far as mptune uses it, on a simulated device.

Methods have the signatures of CuPy's functions, and take what these take.
"""

# ruff: noqa: N802, N815 - the library's names

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from tests.support.simulator.device import MADE_UP, Event, Failure, Misuse, SimulatedDevice

__all__ = [
    "MAX_DYNAMIC_SHARED_SIZE_BYTES",
    "CUDADriverError",
    "CUDARuntimeError",
    "Driver",
    "Runtime",
    "function_attribute",
    "raises",
]

# As Cython declares them.
intptr_t: TypeAlias = int
size_t: TypeAlias = int
unsigned_int: TypeAlias = int

_BITS: Final = {"intptr_t": 64, "size_t": 64, "unsigned_int": 32, "int": 32}
_DECLARED: Final = (*_BITS, "bytes", "str")
#: A failure in the words of the runtime, of the driver, and of both.
_WORDS: Final = {
    "out of memory": ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    "illegal address": (
        *("cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        "an illegal memory access was encountered",
    ),
    "launch failure": ("cudaErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"),
    "invalid value": ("cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    "invalid image": ("cudaErrorInvalidKernelImage", "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"),
    "not found": ("cudaErrorSymbolNotFound", "CUDA_ERROR_NOT_FOUND", "named symbol not found"),
}
MAX_DYNAMIC_SHARED_SIZE_BYTES: Final = 8


class CUDARuntimeError(RuntimeError):
    """What a call of the runtime raises."""

    def __init__(self, failure: Failure) -> None:
        name, _, text = _WORDS[str(failure)]
        super().__init__(_told(f"{name}: {text}", failure))


class CUDADriverError(RuntimeError):
    """What a call of the driver raises."""

    def __init__(self, failure: Failure) -> None:
        _, name, text = _WORDS[str(failure)]
        super().__init__(_told(f"{name}: {text}", failure))


def _told(text: str, failure: Failure) -> str:
    return f"{text} ({failure.detail})" if failure.detail else text


def raises(error: type[Exception]) -> Callable[[Any], Any]:
    """Have a method take what a function of Cython with its annotations takes, and raise an error for a failure."""

    def decorate(method: Any) -> Any:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def call(self: Any, *arguments: Any) -> Any:
            bound = signature.bind(self, *arguments).arguments
            for name, value in bound.items():
                declared = signature.parameters[name].annotation
                if declared in _DECLARED:
                    _check(f"{method.__name__}: {name}", value, declared)
            try:
                return method(self, *arguments)
            except Failure as failure:
                raise error(failure) from None

        return call

    return decorate


def _check(what: str, value: Any, declared: str) -> None:
    if declared in ("bytes", "str"):  # and nothing that is like it
        if type(value).__name__ != declared:
            raise TypeError(f"{what} is {value!r}; expected {declared}")
        return
    bits, number = _BITS[declared], operator.index(value)
    is_signed = declared in ("int", "intptr_t")
    if not -(2 ** (bits - 1)) * is_signed <= number < 2 ** (bits - is_signed):
        raise OverflowError(f"{what} is {number}, which is no {declared}")


def function_attribute(device: SimulatedDevice, attribute: int, function: int) -> int:
    """Return an attribute of a function by its number, which CUDA and HIP share."""
    attributes = {0: device.max_threads, 1: device.static_bytes, 3: lambda _: 0, 4: device.registers}
    if attribute not in attributes:
        raise Misuse(f"attribute {attribute} of a function is not simulated")
    return attributes[attribute](function)


_driver = raises(CUDADriverError)
_runtime = raises(CUDARuntimeError)


class Driver:
    """``cupy_backends.cuda.api.driver``."""

    CUDADriverError = CUDADriverError
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device

    @_driver
    def moduleLoadData(self, image: bytes) -> intptr_t:
        return self._device.load(image)

    @_driver
    def moduleUnload(self, module: intptr_t) -> None:
        self._device.unload(module)

    @_driver
    def moduleGetFunction(self, module: intptr_t, funcname: str) -> intptr_t:
        return self._device.function(module, funcname)

    @_driver
    def moduleGetGlobal(self, module: intptr_t, varname: str) -> intptr_t:
        return self._device.symbol(module, varname)

    @_driver
    def funcGetAttribute(self, attribute: int, f: intptr_t) -> int:
        return function_attribute(self._device, attribute, f)

    @_driver
    def occupancyMaxActiveBlocksPerMultiprocessor(self, func: intptr_t, blockSize: int, dynamicSMemSize: size_t) -> int:
        return self._device.blocks(func, blockSize, dynamicSMemSize)

    @_driver
    def funcSetAttribute(self, f: intptr_t, attribute: int, value: int) -> None:
        assert attribute == MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._device.allow_shared(f, value)

    @_driver
    def launchKernel(
        self,
        f: intptr_t,
        grid_dim_x: unsigned_int,
        grid_dim_y: unsigned_int,
        grid_dim_z: unsigned_int,
        block_dim_x: unsigned_int,
        block_dim_y: unsigned_int,
        block_dim_z: unsigned_int,
        shared_mem_bytes: unsigned_int,
        stream: intptr_t,
        kernel_params: intptr_t,
        extra: intptr_t,
    ) -> None:
        assert extra == 0
        grid, block = (grid_dim_x, grid_dim_y, grid_dim_z), (block_dim_x, block_dim_y, block_dim_z)
        self._device.launch(f, grid, block, shared_mem_bytes, stream, kernel_params)


class Runtime:
    """``cupy_backends.cuda.api.runtime``."""

    CUDARuntimeError = CUDARuntimeError
    memcpyHostToDevice, memcpyDeviceToHost, memcpyDeviceToDevice = 1, 2, 3

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device

    @_runtime
    def malloc(self, size: size_t) -> intptr_t:
        return self._device.allocate(size)

    @_runtime
    def free(self, ptr: intptr_t) -> None:
        if ptr:
            self._device.free(ptr)

    @_runtime
    def memcpyAsync(self, dst: intptr_t, src: intptr_t, size: size_t, kind: int, stream: intptr_t) -> None:
        copies = {1: self._device.copy_in, 2: self._device.copy_out, 3: self._device.copy}
        copies[kind](dst, src, size, stream)

    @_runtime
    def memsetAsync(self, ptr: intptr_t, value: int, size: size_t, stream: intptr_t) -> None:
        self._device.fill(ptr, value, size, stream)

    @_runtime
    def memGetInfo(self) -> tuple[int, int]:
        return self._device.free_bytes(), self._device.limits.memory_bytes

    @_runtime
    def streamSynchronize(self, stream: intptr_t) -> None:
        self._device.synchronize(stream)

    @_runtime
    def deviceSynchronize(self) -> None:
        self._device.drain()

    @_runtime
    def eventCreate(self) -> intptr_t:
        return self._device.new(Event())

    @_runtime
    def eventRecord(self, event: intptr_t, stream: intptr_t) -> None:
        self._device.record(event, stream)

    @_runtime
    def eventSynchronize(self, event: intptr_t) -> None:
        self._device.wait(event)

    @_runtime
    def eventElapsedTime(self, start: intptr_t, end: intptr_t) -> float:
        return self._device.elapsed_ms(start, end)

    @_runtime
    def driverGetVersion(self) -> int:
        return 13000

    @_runtime
    def getDeviceProperties(self, device: int) -> Mapping[str, Any]:
        assert device == 0
        limits = self._device.limits
        return {
            "name": f"CUDA device ({MADE_UP})".encode(),
            "major": 9,
            "minor": 0,
            "totalGlobalMem": limits.memory_bytes,
            "maxThreadsPerBlock": limits.threads,
            "maxThreadsPerMultiProcessor": limits.threads_at_once,
            "maxThreadsDim": limits.block,
            "maxGridSize": limits.grid,
            "sharedMemPerBlock": limits.shared_bytes,
            "sharedMemPerBlockOptin": limits.most_shared_bytes,
            "totalConstMem": 65536,
            "regsPerBlock": limits.registers,
            "warpSize": 32,
            "multiProcessorCount": 2,
            "l2CacheSize": 1 << 20,
            "pciDomainID": 0,
            "pciBusID": 0x1B,
            "pciDeviceID": 0,
        }
