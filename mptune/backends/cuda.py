"""The CUDA backend: NVRTC compiles, CuPy's binding of the driver loads and launches."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mptune.backends.base import DeviceInfo
from mptune.backends.gpu import LEAD_BYTES, Driver, GpuBackend, axis_limits
from mptune.backends.runtime_compiler import RuntimeCompiler, system_libraries
from mptune.errors import BackendUnavailableError, LaunchError, OutOfMemoryError
from mptune.resources import Resources, read_cubin

if TYPE_CHECKING:
    import numpy as np

    from mptune.kernel import LaunchShape

__all__ = ["CudaBackend", "find_nvcc"]

_INSTALL: Final = 'pip install "mptune[cuda]"'
_MAX_DYNAMIC_SHARED_SIZE_BYTES: Final = 8  # CU_FUNC_ATTRIBUTE_...
#: From this architecture on matrix units take bf16, TF32 and fp64, and what they take is copied without waiting for it.
_FIRST_WITH_UNITS: Final = 80


def find_nvcc() -> str:
    """Return the compiler of whole CUDA programs: the toolkit's.

    Raises:
        BackendUnavailableError: it is not installed.
    """
    found = shutil.which("nvcc") or next((str(p) for t in _toolkits() if (p := t / "bin" / "nvcc").is_file()), None)
    if found is None:
        raise BackendUnavailableError("nvcc is not installed: it comes with the CUDA toolkit")
    return found


def _toolkits() -> list[Path]:
    places = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    return [Path(place) for place in places if place]


def _nvrtc_paths() -> list[str]:
    """Return where NVRTC may be: the wheel from PyPI, the toolkit, the system's search path."""
    folders: list[Path] = []
    wheels = importlib.util.find_spec("nvidia")
    for place in (wheels.submodule_search_locations or []) if wheels else []:
        folders += sorted(Path(place).glob("c*/lib"), reverse=True)
    folders += [toolkit / "lib64" for toolkit in _toolkits()]
    files = [str(path) for folder in folders for path in sorted(folder.glob("libnvrtc.so*"), reverse=True)]
    return [*files, *system_libraries("nvrtc")]


@functools.cache
def _nvrtc(code: str = "CUBIN") -> RuntimeCompiler:
    return RuntimeCompiler("NVRTC", "nvrtc", code, _nvrtc_paths(), _INSTALL, "libnvrtc-builtins.so.{version}")


class CudaBackend(GpuBackend):
    """An NVIDIA GPU."""

    name: ClassVar[str] = "cuda"
    architecture_flag: ClassVar[str] = "--gpu-architecture="
    common_architecture: ClassVar[str] = "sm_80"
    flags: ClassVar[tuple[str, ...]] = ("--std=c++17",)
    visibility: ClassVar[tuple[str, ...]] = ("CUDA_VISIBLE_DEVICES",)

    @classmethod
    def matrix_limits(cls, architecture: str) -> tuple[str, ...]:
        """Return what the units of ``mma.sync`` do not take: there are none for fp32 as it is."""
        generation = re.fullmatch(r"sm_(\d+)[af]?", architecture)
        if generation is None or int(generation[1]) < _FIRST_WITH_UNITS:
            return super().matrix_limits(architecture)
        return ("matrix_units != 'mma' or matrix_factor != 'fp32' or matrix_sum == 'bf16x3'",)

    @staticmethod
    def runtime_compiler() -> RuntimeCompiler:
        return _nvrtc()

    @staticmethod
    def assembler() -> RuntimeCompiler:
        return _nvrtc("PTX")

    @staticmethod
    def assembler_flag(flag: str) -> str:
        # PTX is of a virtual architecture.
        return flag.replace("=sm_", "=compute_") if flag.startswith(CudaBackend.architecture_flag) else flag

    @staticmethod
    def require_device() -> None:
        CudaBackend.device_count()
        if importlib.util.find_spec("cupy") is None:
            raise BackendUnavailableError(f"CuPy is not installed: {_INSTALL}")

    @staticmethod
    def device_count() -> int:
        count = ctypes.c_int()
        try:
            driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise BackendUnavailableError("no CUDA device: the NVIDIA driver (libcuda.so.1) is not installed") from None
        if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
            raise BackendUnavailableError("no CUDA device: the NVIDIA driver finds none")
        return count.value

    @staticmethod
    def read_resources(image: Any, function: str) -> Resources:
        return read_cubin(image, function)

    @staticmethod
    def open_driver() -> Driver:
        CudaBackend.require_device()
        return _CupyDriver()


class _CupyDriver:
    """The first visible device and a stream of its own, through CuPy."""

    def __init__(self) -> None:
        import cupy
        from cupy_backends.cuda.api import driver, runtime

        self._cupy = cupy
        self._driver = driver
        self._runtime = runtime
        with self._errors(BackendUnavailableError):
            cupy.cuda.Device(0).use()
            runtime.free(0)  # creates the context, which loading a module needs
            self._stream = cupy.cuda.Stream(non_blocking=True)
            self._stream.use()  # so that CuPy computes on arrays after the launches that write them
            self._events = cupy.cuda.Event(), cupy.cuda.Event()
            self.lead = runtime.malloc(LEAD_BYTES)

    def describe(self) -> DeviceInfo:
        with self._errors(BackendUnavailableError):
            properties = self._runtime.getDeviceProperties(0)
            driver_version = self._runtime.driverGetVersion()
        versions = {"driver": f"{driver_version // 1000}.{driver_version % 1000 // 10}", "cupy": self._cupy.__version__}
        return DeviceInfo(
            backend=CudaBackend.name,
            name=properties["name"].decode(),
            architecture=f"sm_{properties['major']}{properties['minor']}",
            memory_bytes=int(properties["totalGlobalMem"]),
            limits={
                "max_threads_per_block": int(properties["maxThreadsPerBlock"]),
                # What a kernel may ask for beyond the 48 KiB every block has.
                "max_shared_bytes": int(properties["sharedMemPerBlockOptin"]),
                **axis_limits(properties["maxThreadsDim"], properties["maxGridSize"]),
                "max_constant_bytes": int(properties["totalConstMem"]),
                "registers_per_block": int(properties["regsPerBlock"]),
                "warp_size": int(properties["warpSize"]),
                "multiprocessors": int(properties["multiProcessorCount"]),
                "cache_bytes": int(properties["l2CacheSize"]),
            },
            versions=versions,
            pci_bus_id=f"{properties['pciDomainID']:04x}:{properties['pciBusID']:02x}:{properties['pciDeviceID']:02x}.0",
            sensors="nvml",
        )

    def allocate(self, nbytes: int) -> int:
        with contextlib.suppress(self._runtime.CUDARuntimeError):
            return int(self._runtime.malloc(max(nbytes, 1)))
        # CuPy keeps what its arrays took for the next ones.
        self._cupy.get_default_memory_pool().free_all_blocks()
        try:
            return int(self._runtime.malloc(max(nbytes, 1)))
        except self._runtime.CUDARuntimeError as error:
            free, _ = self._call(self._runtime.memGetInfo)  # fails, too, where it is not for want of memory
            raise OutOfMemoryError(f"{nbytes} bytes were asked for and {free} bytes are free: {error}") from error

    def free(self, address: int) -> None:
        self._call(self._runtime.free, address)

    def copy_in(self, target: int, source: int, nbytes: int) -> None:
        self._copy(target, source, nbytes, self._runtime.memcpyHostToDevice)
        self.synchronize()

    def copy_out(self, target: int, source: int, nbytes: int) -> None:
        self._copy(target, source, nbytes, self._runtime.memcpyDeviceToHost)
        self.synchronize()

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._copy(target, source, nbytes, self._runtime.memcpyDeviceToDevice)

    def fill(self, target: int, byte: int, nbytes: int) -> None:
        self._call(self._runtime.memsetAsync, target, byte, nbytes, self._stream.ptr)

    def load(self, image: bytes) -> Any:
        return self._call(self._driver.moduleLoadData, image)

    def unload(self, module: Any) -> None:
        self._call(self._driver.moduleUnload, module)

    def function(self, module: Any, name: str) -> Any:
        return self._call(self._driver.moduleGetFunction, module, name)

    def symbol(self, module: Any, name: str) -> int:
        return int(self._call(self._driver.moduleGetGlobal, module, name))

    def max_threads(self, function: Any) -> int:
        return int(
            self._call(self._driver.funcGetAttribute, self._driver.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function)
        )

    def launch(self, function: Any, shape: LaunchShape, arguments: int) -> float:
        start, end = self._events
        stream = self._stream
        with self._errors():
            self._driver.funcSetAttribute(function, _MAX_DYNAMIC_SHARED_SIZE_BYTES, shape.shared_bytes)
            self._runtime.memsetAsync(self.lead, 0, LEAD_BYTES, stream.ptr)
            start.record(stream)
            self.enqueue(function, shape, arguments)
            end.record(stream)
            end.synchronize()
            return float(self._cupy.cuda.get_elapsed_time(start, end))

    def enqueue(self, function: Any, shape: LaunchShape, arguments: int) -> None:
        stream = self._stream.ptr
        self._call(
            self._driver.launchKernel, function, *shape.grid, *shape.block, shape.shared_bytes, stream, arguments, 0
        )

    def synchronize(self) -> None:
        self._call(self._runtime.streamSynchronize, self._stream.ptr)

    def array_namespace(self) -> Any:
        return self._cupy

    def array(self, address: int, nbytes: int, dtype: np.dtype[Any]) -> Any:
        memory = self._cupy.cuda.UnownedMemory(address, nbytes, self)
        pointer = self._cupy.cuda.MemoryPointer(memory, 0)
        return self._cupy.ndarray((nbytes // dtype.itemsize,), dtype, pointer)

    def _copy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        self._call(self._runtime.memcpyAsync, target, source, nbytes, kind, self._stream.ptr)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with self._errors():
            return function(*arguments)

    @contextlib.contextmanager
    def _errors(self, kind: type[Exception] = LaunchError) -> Iterator[None]:
        try:
            yield
        except (self._runtime.CUDARuntimeError, self._driver.CUDADriverError) as error:
            raise kind(str(error)) from error
