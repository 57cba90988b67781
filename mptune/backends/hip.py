"""The HIP backend: hiprtc compiles, HIP Python loads and launches."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mptune.backends.base import DeviceInfo
from mptune.backends.gpu import LEAD_BYTES, Driver, GpuBackend, axis_limits
from mptune.backends.runtime_compiler import RuntimeCompiler, system_libraries
from mptune.errors import BackendUnavailableError, LaunchError, OutOfMemoryError
from mptune.resources import Resources, read_code_object

if TYPE_CHECKING:
    import numpy as np

    from mptune.kernel import LaunchShape

__all__ = ["HipBackend"]

_INSTALL_ROCM: Final = 'install ROCm (on Debian: "apt install libamdhip64-dev")'
_INSTALL_PYTHON: Final = 'pip install "mptune[hip]"'
_MOST_THREADS: Final = 2**32
#: Architectures with matrix units for fp64 and bf16, and with those for 16 bits alone.
_MFMA: Final = re.compile(r"gfx9(?:0a|4[012]|50)")
_WMMA: Final = re.compile(r"gfx110[0-3]")


def _library_paths(name: str) -> list[str]:
    """Return where a ROCm library may be, first where HIP Python loads it from: two do not mix."""
    folders = [Path(root) / "lib" for root in (os.environ.get("ROCM_PATH"), "/opt/rocm") if root]
    files = [str(path) for folder in folders for path in sorted(folder.glob(f"lib{name}.so*"))]
    return [*_packaged_paths(name), *files, *system_libraries(name)]


def _packaged_paths(name: str) -> list[str]:
    """Return where HIP Python loads a ROCm library from, or where else ROCm's own wheels have it."""
    with contextlib.suppress(ImportError):  # not HIP Python 10
        from rocm.bindings.util.paths import get_library_path

        return [os.fsdecode(get_library_path(name))]
    if importlib.util.find_spec("hip") is not None:  # up to 7 it leaves the search to the loader
        return [f"lib{name}.so"]
    with contextlib.suppress(ImportError):
        from rocm_sdk import find_libraries

        return [str(path) for path in find_libraries(name)]
    return []


@functools.cache
def _hiprtc() -> RuntimeCompiler:
    # Before ROCm 5.3, and in Debian, its functions are part of the HIP library itself.
    paths = [*_library_paths("hiprtc"), *_library_paths("amdhip64")]
    return RuntimeCompiler("hiprtc", "hiprtc", "Code", paths, _INSTALL_ROCM)


def _hip_library() -> ctypes.CDLL:
    problem = f"the HIP library is not installed: {_INSTALL_ROCM}"
    for path in _library_paths("amdhip64"):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            if Path(path).is_absolute():  # a name alone may be one that the loader does not find
                problem = str(error)
    raise BackendUnavailableError(f"no HIP device: {problem}")


class HipBackend(GpuBackend):
    """An AMD GPU."""

    name: ClassVar[str] = "hip"
    architecture_flag: ClassVar[str] = "--offload-arch="
    common_architecture: ClassVar[str] = "gfx90a"
    flags: ClassVar[tuple[str, ...]] = ("-std=c++17", "-O3")
    # HIP counts the threads of an axis in 32 bits.
    launch_limits: ClassVar[tuple[str, ...]] = tuple(f"grid_{axis} * block_{axis} < {_MOST_THREADS}" for axis in "xyz")
    visibility: ClassVar[tuple[str, ...]] = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")

    @classmethod
    def matrix_limits(cls, architecture: str) -> tuple[str, ...]:
        """Return what MFMA and WMMA do not take: neither has TF32, WMMA takes 16 bits, and sums of fp16 are in fp32.

        bf16x3 is multiplied by units of bfloat16, which both have.
        """
        if _MFMA.fullmatch(architecture):
            return "matrix_units != 'tf32'", "matrix_units != 'mma' or matrix_sum != 'fp16'"
        if _WMMA.fullmatch(architecture):
            return (
                "matrix_units != 'tf32'",
                "matrix_units != 'mma' or matrix_sum == 'bf16x3'"
                " or matrix_factor in ('fp16', 'bf16') and matrix_sum == 'fp32'",
            )
        return super().matrix_limits(architecture)

    @staticmethod
    def runtime_compiler() -> RuntimeCompiler:
        return _hiprtc()

    @staticmethod
    def require_device() -> None:
        HipBackend.device_count()
        if importlib.util.find_spec("hip") is None:
            raise BackendUnavailableError(f"HIP Python is not installed: {_INSTALL_PYTHON}")

    @staticmethod
    def device_count() -> int:
        library, count = _hip_library(), ctypes.c_int()
        if library.hipGetDeviceCount(ctypes.byref(count)) != 0 or count.value == 0:
            raise BackendUnavailableError("no HIP device: the HIP library finds none")
        return count.value

    @staticmethod
    def read_resources(image: Any, function: str) -> Resources:
        return read_code_object(image, function)

    @staticmethod
    def open_driver() -> Driver:
        HipBackend.require_device()
        return _HipPythonDriver()


class _HipPythonDriver:
    """The first visible device and a stream of its own, through HIP Python."""

    def __init__(self) -> None:
        with _fitting():
            from hip import hip

            self._hip = hip
            self._call(hip.hipSetDevice(0), BackendUnavailableError)
            self._stream = self._call(hip.hipStreamCreateWithFlags(hip.hipStreamNonBlocking), BackendUnavailableError)
            self._start = self._call(hip.hipEventCreate(), BackendUnavailableError)
            self._end = self._call(hip.hipEventCreate(), BackendUnavailableError)
            self.lead = self._call(hip.hipMalloc(LEAD_BYTES), BackendUnavailableError)
        self._memory: dict[int, Any] = {}

    def describe(self) -> DeviceInfo:
        with _fitting():
            properties = self._properties()
            version = self._call(self._hip.hipRuntimeGetVersion(), BackendUnavailableError)
        return DeviceInfo(
            backend=HipBackend.name,
            name=_text(properties.name),
            # "gfx90a:sramecc+:xnack-": the features are the compiler's to find out
            architecture=_text(properties.gcnArchName).split(":")[0],
            memory_bytes=int(properties.totalGlobalMem),
            limits={
                "max_threads_per_block": int(properties.maxThreadsPerBlock),
                # All of it can be had as dynamic shared memory without asking.
                "max_shared_bytes": int(properties.sharedMemPerBlock),
                **axis_limits(properties.maxThreadsDim, properties.maxGridSize),
                "max_constant_bytes": int(properties.totalConstMem),
                "registers_per_block": int(properties.regsPerBlock),
                "warp_size": int(properties.warpSize),
                "multiprocessors": int(properties.multiProcessorCount),
                "cache_bytes": int(properties.l2CacheSize),
            },
            versions={"hip": str(version)},
            pci_bus_id=f"{properties.pciDomainID:04x}:{properties.pciBusID:02x}:{properties.pciDeviceID:02x}.0",
            sensors="amd-smi",
        )

    def _properties(self) -> Any:
        hip = self._hip
        try:
            return self._call(hip.hipGetDeviceProperties(0), BackendUnavailableError)
        except TypeError:  # up to HIP Python 7 they are filled into what is given
            properties = hip.hipDeviceProp_t()
            self._call(hip.hipGetDeviceProperties(properties, 0), BackendUnavailableError)
            return properties

    def allocate(self, nbytes: int) -> int:
        result = self._hip.hipMalloc(max(nbytes, 1))
        # After a fault there is no memory either, but that is not why.
        is_full = result[0] == self._hip.hipError_t.hipErrorOutOfMemory
        memory = self._call(result, OutOfMemoryError if is_full else LaunchError, f"{nbytes} bytes were asked for: ")
        address = int(memory)
        self._memory[address] = memory
        return address

    def free(self, address: int) -> None:
        self._call(self._hip.hipFree(self._memory.pop(address)))

    def copy_in(self, target: int, source: int, nbytes: int) -> None:
        self._copy(target, source, nbytes, self._hip.hipMemcpyKind.hipMemcpyHostToDevice)
        self.synchronize()

    def copy_out(self, target: int, source: int, nbytes: int) -> None:
        self._copy(target, source, nbytes, self._hip.hipMemcpyKind.hipMemcpyDeviceToHost)
        self.synchronize()

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._copy(target, source, nbytes, self._hip.hipMemcpyKind.hipMemcpyDeviceToDevice)

    def fill(self, target: int, byte: int, nbytes: int) -> None:
        self._call(self._hip.hipMemsetAsync(target, byte, nbytes, self._stream))

    def load(self, image: bytes) -> Any:
        return self._call(self._hip.hipModuleLoadData(image))

    def unload(self, module: Any) -> None:
        self._call(self._hip.hipModuleUnload(module))

    def function(self, module: Any, name: str) -> Any:
        return self._call(self._hip.hipModuleGetFunction(module, name.encode()))

    def symbol(self, module: Any, name: str) -> int:
        return int(self._call(self._hip.hipModuleGetGlobal(module, name.encode())))

    def max_threads(self, function: Any) -> int:
        attribute = self._hip.hipFunction_attribute.HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        return int(self._call(self._hip.hipFuncGetAttribute(attribute, function)))

    def launch(self, function: Any, shape: LaunchShape, arguments: int) -> float:
        hip, stream = self._hip, self._stream
        self._call(hip.hipMemsetAsync(self.lead, 0, LEAD_BYTES, stream))
        self._call(hip.hipEventRecord(self._start, stream))
        self.enqueue(function, shape, arguments)
        self._call(hip.hipEventRecord(self._end, stream))
        self._call(hip.hipEventSynchronize(self._end))
        return float(self._call(hip.hipEventElapsedTime(self._start, self._end)))

    def enqueue(self, function: Any, shape: LaunchShape, arguments: int) -> None:
        if any(blocks * threads >= _MOST_THREADS for blocks, threads in zip(shape.grid, shape.block, strict=True)):
            raise LaunchError(
                f"HIP takes less than 2**32 threads along an axis, not a grid {shape.grid} of blocks {shape.block}"
            )
        extents = (*shape.grid, *shape.block, shape.shared_bytes)
        self._call(self._hip.hipModuleLaunchKernel(function, *extents, self._stream, arguments, None))

    def synchronize(self) -> None:
        self._call(self._hip.hipStreamSynchronize(self._stream))

    def array_namespace(self) -> Any:
        # CuPy for ROCm could be one, but HIP Python and CuPy would each bring their own view of the device.
        return None

    def array(self, address: int, nbytes: int, dtype: np.dtype[Any]) -> Any:
        raise BackendUnavailableError(f"HIP has no arrays ({nbytes} bytes of {dtype} at {address:#x})")

    def _copy(self, target: int, source: int, nbytes: int, kind: Any) -> None:
        self._call(self._hip.hipMemcpyAsync(target, source, nbytes, kind, self._stream))

    def _call(self, result: tuple[Any, ...], kind: type[Exception] = LaunchError, what: str = "") -> Any:
        """Return the value of a HIP call, which comes after its status."""
        status, *values = result
        if status != self._hip.hipError_t.hipSuccess:
            raise kind(f"{what}{status.name}")
        return values[0] if values else None


def _text(name: str | bytes) -> str:
    """Return a name of the device; up to HIP Python 7 it is bytes."""
    return name if isinstance(name, str) else name.decode()


@contextlib.contextmanager
def _fitting() -> Iterator[None]:
    """Explain what HIP Python raises where the HIP library lacks a function it was made for."""
    try:
        yield
    except RuntimeError as error:
        raise BackendUnavailableError(
            f"HIP Python does not fit the installed HIP library ({error}): install the version of hip-python that is "
            "that of ROCm"
        ) from error
