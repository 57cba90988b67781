"""The HIP backend: hiprtc compiles, HIP Python loads and launches."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
from ctypes.util import find_library
from pathlib import Path
from typing import Any, ClassVar, Final

from mptune.backends.base import DeviceInfo
from mptune.backends.gpu import Driver, GpuBackend
from mptune.backends.runtime_compiler import RuntimeCompiler
from mptune.errors import BackendUnavailableError, LaunchError, OutOfMemoryError
from mptune.kernel import LaunchShape

__all__ = ["HipBackend"]

_INSTALL_ROCM: Final = 'install ROCm (on Debian: "apt install libamdhip64-dev")'
_INSTALL_PYTHON: Final = 'pip install "mptune[hip]"'


def _library_paths(name: str) -> list[str]:
    """Return where a ROCm library may be."""
    folders = [Path(root) / "lib" for root in (os.environ.get("ROCM_PATH"), "/opt/rocm") if root]
    files = [str(path) for folder in folders for path in sorted(folder.glob(f"lib{name}.so*"))]
    return [*files, *filter(None, [find_library(name)])]


@functools.cache
def _hiprtc() -> RuntimeCompiler:
    # Before ROCm 5.3, and in Debian, its functions are part of the HIP library itself.
    paths = [*_library_paths("hiprtc"), *_library_paths("amdhip64")]
    return RuntimeCompiler("hiprtc", "hiprtc", "Code", paths, _INSTALL_ROCM)


class HipBackend(GpuBackend):
    """An AMD GPU."""

    name: ClassVar[str] = "hip"
    architecture_flag: ClassVar[str] = "--offload-arch="
    flags: ClassVar[tuple[str, ...]] = ("-std=c++17", "-O3")

    @staticmethod
    def compiler() -> RuntimeCompiler:
        """Return hiprtc."""
        return _hiprtc()

    @staticmethod
    def require_device() -> None:
        """Check that the HIP library finds a device and HIP Python is installed."""
        paths = _library_paths("amdhip64")
        if not paths:
            raise BackendUnavailableError(f"no HIP device: the HIP library is not installed: {_INSTALL_ROCM}")
        count = ctypes.c_int()
        try:
            library = ctypes.CDLL(paths[0])
        except OSError as error:
            raise BackendUnavailableError(f"no HIP device: {error}") from error
        if library.hipGetDeviceCount(ctypes.byref(count)) != 0 or count.value == 0:
            raise BackendUnavailableError("no HIP device: the HIP library finds none")
        if importlib.util.find_spec("hip") is None:
            raise BackendUnavailableError(f"HIP Python is not installed: {_INSTALL_PYTHON}")

    @staticmethod
    def open_driver() -> Driver:
        """Open the first visible device."""
        HipBackend.require_device()
        return _HipPythonDriver()


class _HipPythonDriver:
    """The first visible device and its default stream, through HIP Python."""

    def __init__(self) -> None:
        from hip import hip

        self._hip = hip
        self._call(hip.hipSetDevice(0), BackendUnavailableError)
        self._start = self._call(hip.hipEventCreate(), BackendUnavailableError)
        self._end = self._call(hip.hipEventCreate(), BackendUnavailableError)
        self._memory: dict[int, Any] = {}

    def describe(self) -> DeviceInfo:
        hip = self._hip
        properties = hip.hipDeviceProp_t()
        self._call(hip.hipGetDeviceProperties(properties, 0), BackendUnavailableError)
        version = self._call(hip.hipRuntimeGetVersion(), BackendUnavailableError)
        versions = {"hip": str(version), "hiprtc": _hiprtc().version}
        return DeviceInfo(
            backend=HipBackend.name,
            name=properties.name.decode(),
            # "gfx90a:sramecc+:xnack-": the features are the compiler's to find out
            architecture=properties.gcnArchName.decode().split(":")[0],
            memory_bytes=int(properties.totalGlobalMem),
            limits={
                "max_threads_per_block": int(properties.maxThreadsPerBlock),
                "max_shared_bytes": int(properties.sharedMemPerBlock),
                "multiprocessors": int(properties.multiProcessorCount),
            },
            versions=versions,
        )

    def allocate(self, nbytes: int) -> int:
        memory = self._call(self._hip.hipMalloc(max(nbytes, 1)), OutOfMemoryError, f"{nbytes} bytes were asked for: ")
        address = int(memory)
        self._memory[address] = memory
        return address

    def free(self, address: int) -> None:
        self._call(self._hip.hipFree(self._memory.pop(address)))

    def copy_in(self, target: int, source: int, nbytes: int) -> None:
        self._copy(target, source, nbytes, self._hip.hipMemcpyKind.hipMemcpyHostToDevice)

    def copy_out(self, target: int, source: int, nbytes: int) -> None:
        self._copy(target, source, nbytes, self._hip.hipMemcpyKind.hipMemcpyDeviceToHost)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._copy(target, source, nbytes, self._hip.hipMemcpyKind.hipMemcpyDeviceToDevice)

    def load(self, image: bytes) -> Any:
        return self._call(self._hip.hipModuleLoadData(image))

    def unload(self, module: Any) -> None:
        self._call(self._hip.hipModuleUnload(module))

    def function(self, module: Any, name: str) -> Any:
        return self._call(self._hip.hipModuleGetFunction(module, name.encode()))

    def launch(self, function: Any, shape: LaunchShape, arguments: int) -> float:
        hip = self._hip
        self._call(hip.hipEventRecord(self._start, None))
        self._call(
            hip.hipModuleLaunchKernel(function, *shape.grid, *shape.block, shape.shared_bytes, None, arguments, None)
        )
        self._call(hip.hipEventRecord(self._end, None))
        self._call(hip.hipEventSynchronize(self._end))
        return float(self._call(hip.hipEventElapsedTime(self._start, self._end)))

    def synchronize(self) -> None:
        self._call(self._hip.hipDeviceSynchronize())

    def _copy(self, target: int, source: int, nbytes: int, kind: Any) -> None:
        self._call(self._hip.hipMemcpy(target, source, nbytes, kind))

    def _call(self, result: tuple[Any, ...], kind: type[Exception] = LaunchError, what: str = "") -> Any:
        """Return the value of a HIP call, which comes after its status."""
        status, *values = result
        if status != self._hip.hipError_t.hipSuccess:
            raise kind(f"{what}{status.name}")
        return values[0] if values else None
