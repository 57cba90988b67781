"""The CUDA backend: NVRTC compiles, CuPy's binding of the driver loads and launches."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mptune.backends.addressed import Copy
from mptune.backends.base import Buffer, in_words
from mptune.backends.gpu import GpuBackend, GpuBuffer, GpuDevice, RuntimeCompiler, library_files
from mptune.errors import BackendUnavailableError, LaunchError, OutOfMemoryError

if TYPE_CHECKING:
    import numpy as np

_INSTALL: Final = 'pip install "mptune[cuda]"'


def find_nvcc() -> str:
    """Return the path of the CUDA toolkit's compiler; raise :class:`BackendUnavailableError`."""
    found = shutil.which("nvcc") or next((str(p) for t in _toolkits() if (p := t / "bin" / "nvcc").is_file()), None)
    if found is None:
        raise BackendUnavailableError("nvcc is not installed: it comes with the CUDA toolkit")
    return found


def _toolkits() -> list[Path]:
    places = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    return [Path(place) for place in places if place]


def _nvrtc_paths() -> list[str]:
    """Return files of NVRTC: from PyPI's wheel, the toolkit and the system."""
    folders: list[Path] = []
    wheels = importlib.util.find_spec("nvidia")
    for place in (wheels.submodule_search_locations or []) if wheels else []:
        folders += sorted(Path(place).glob("c*/lib"), reverse=True)
    folders += [toolkit / "lib64" for toolkit in _toolkits()]
    return library_files(folders, "nvrtc")


@functools.cache
def _nvrtc(code: str = "CUBIN") -> RuntimeCompiler:
    return RuntimeCompiler("NVRTC", "nvrtc", code, _nvrtc_paths(), _INSTALL, "libnvrtc-builtins.so.{version}")


class CudaDevice(GpuDevice):
    """A CUDA device, through CuPy."""

    sensors: ClassVar[str] = "nvml"
    #: Above 48 KiB a kernel must opt in to shared memory.
    most_shared: ClassVar[str] = "sharedMemPerBlockOptin"

    def connect(self) -> Any:
        import cupy
        from cupy_backends.cuda.api import driver, runtime

        self._cupy = cupy
        self._driver = driver
        self._runtime = runtime
        with self._errors(BackendUnavailableError):
            cupy.cuda.Device(0).use()
            runtime.free(0)  # creates the context, which loading a module needs
            self._cupy_stream = cupy.cuda.Stream(non_blocking=True)
            self._cupy_stream.use()  # so that CuPy computes on arrays after the launches that write them
        return self._cupy_stream.ptr

    def call(self, name: str, *arguments: Any, kind: type[Exception] = LaunchError) -> Any:
        function = getattr(self._runtime, name, None) or getattr(self._driver, name)
        with self._errors(kind):
            return function(*arguments)

    def properties(self) -> Mapping[str, Any]:
        found = self.call("getDeviceProperties", 0, kind=BackendUnavailableError)
        version = self.call("driverGetVersion", kind=BackendUnavailableError)
        versions = {"driver": f"{version // 1000}.{version % 1000 // 10}", "cupy": self._cupy.__version__}
        return {**found, "architecture": f"sm_{found['major']}{found['minor']}", "versions": versions}

    def attribute(self, function: Any, name: str) -> int:
        return int(self.call("funcGetAttribute", getattr(self._driver, f"CU_FUNC_ATTRIBUTE_{name}"), function))

    def copy_kind(self, kind: Copy) -> Any:
        return getattr(self._runtime, f"memcpy{kind}")

    def reserve(self, nbytes: int) -> int:
        with contextlib.suppress(LaunchError):
            return int(self.call("malloc", max(nbytes, 1)))
        # CuPy caches the memory of freed arrays.
        self._cupy.get_default_memory_pool().free_all_blocks()
        try:
            return int(self.call("malloc", max(nbytes, 1)))
        except LaunchError as error:
            free, _ = self.call("memGetInfo")  # raises LaunchError after a fault
            raise OutOfMemoryError(f"{nbytes} bytes were requested and {free} bytes are free: {error}") from error

    def allow_shared(self, function: Any, nbytes: int) -> None:
        self.call("funcSetAttribute", function, 8, nbytes)  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

    def array_namespace(self) -> Any:
        self.open()
        return self._cupy

    def array(self, buffer: Buffer, dtype: np.dtype[Any]) -> Any:
        if not isinstance(buffer, GpuBuffer):
            raise LaunchError(f"an array needs a device buffer, not {in_words(buffer)}")
        memory = self._cupy.cuda.UnownedMemory(buffer.address, buffer.nbytes, self)
        pointer = self._cupy.cuda.MemoryPointer(memory, 0)
        return self._cupy.ndarray((buffer.nbytes // dtype.itemsize,), dtype, pointer)

    @contextlib.contextmanager
    def _errors(self, kind: type[Exception]) -> Iterator[None]:
        try:
            yield
        except (self._runtime.CUDARuntimeError, self._driver.CUDADriverError) as error:
            raise kind(str(error)) from error


class CudaBackend(GpuBackend):
    """An NVIDIA GPU."""

    name: ClassVar[str] = "cuda"
    architecture_flag: ClassVar[str] = "--gpu-architecture="
    common_architecture: ClassVar[str] = "sm_80"

    flags: ClassVar[tuple[str, ...]] = ("--std=c++17",)
    package: ClassVar[tuple[str, str, str]] = ("cupy", "CuPy", _INSTALL)
    device_class: ClassVar[type[GpuDevice]] = CudaDevice
    visibility: ClassVar[tuple[str, ...]] = ("CUDA_VISIBLE_DEVICES",)

    @classmethod
    def facts(cls, architecture: str) -> Mapping[str, Any]:
        generation = re.fullmatch(r"sm_(\d+)[af]?", architecture)
        # From sm_80 on, matrix units support bf16, TF32 and fp64 and asynchronous copies of operands.
        has_units = generation is not None and int(generation[1]) >= 80
        return {"is_gpu": True, "matrix_units": "mma.sync" if has_units else ""}

    @staticmethod
    def runtime_compiler() -> RuntimeCompiler:
        return _nvrtc()

    @staticmethod
    def listing_compiler() -> RuntimeCompiler:
        return _nvrtc("PTX")

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
