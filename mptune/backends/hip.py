"""The HIP backend: hiprtc compiles, HIP Python loads and launches."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mptune.backends.addressed import Copy
from mptune.backends.gpu import GpuBackend, GpuDevice, RuntimeCompiler, library_files
from mptune.errors import BackendUnavailableError, LaunchError, OutOfMemoryError

if TYPE_CHECKING:
    from mptune.kernel import LaunchShape

_INSTALL_ROCM: Final = 'install ROCm (on Debian: "apt install libamdhip64-dev")'
#: Threads along an axis of the grid, exclusive.
_MOST_THREADS: Final = 2**32
#: Calls whose names differ from CUDA's in more than the prefix.
_NAMES: Final = {
    "launchKernel": "hipModuleLaunchKernel",
    "occupancyMaxActiveBlocksPerMultiprocessor": "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",
}


def _library_paths(name: str) -> list[str]:
    """Return files of a ROCm library: HIP Python's first, as two copies do not mix, or the files of ROCm's wheels."""
    packaged: list[str] = []
    try:
        from rocm.bindings.util.paths import get_library_path

        packaged = [os.fsdecode(get_library_path(name))]
    except ImportError:  # HIP Python up to 7 leaves the search to the loader
        if importlib.util.find_spec("hip") is not None:
            packaged = [f"lib{name}.so"]
        else:
            with contextlib.suppress(ImportError):
                from rocm_sdk import find_libraries

                packaged = [str(path) for path in find_libraries(name)]
    folders = [Path(root) / "lib" for root in (os.environ.get("ROCM_PATH"), "/opt/rocm") if root]
    return [*packaged, *library_files(folders, name)]


@functools.cache
def _hiprtc() -> RuntimeCompiler:
    # Before ROCm 5.3, and in Debian, hiprtc is part of the HIP library.
    paths = [*_library_paths("hiprtc"), *_library_paths("amdhip64")]
    return RuntimeCompiler("hiprtc", "hiprtc", "Code", paths, _INSTALL_ROCM)


def _hip_library() -> ctypes.CDLL:
    problem = f"the HIP library is not installed: {_INSTALL_ROCM}"
    for path in _library_paths("amdhip64"):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            if Path(path).is_absolute():  # the loader may not find a plain name
                problem = str(error)
    raise BackendUnavailableError(f"no HIP device: {problem}")


class HipDevice(GpuDevice):
    """A HIP device, through HIP Python."""

    sensors: ClassVar[str] = "amd-smi"
    #: All of it is available as dynamic shared memory without opt-in.
    most_shared: ClassVar[str] = "sharedMemPerBlock"

    def open(self) -> None:
        with _mismatch_explained():
            super().open()

    def connect(self) -> Any:
        from hip import hip

        self._hip = hip
        self.call("setDevice", 0, kind=BackendUnavailableError)
        return self.call("streamCreateWithFlags", hip.hipStreamNonBlocking, kind=BackendUnavailableError)

    def call(self, name: str, *arguments: Any, kind: type[Exception] = LaunchError) -> Any:
        function = getattr(self._hip, _NAMES.get(name, f"hip{name[0].upper()}{name[1:]}"))
        status, *values = function(*(given.encode() if isinstance(given, str) else given for given in arguments))
        if status != self._hip.hipError_t.hipSuccess:
            raise kind(status.name)
        return values[0] if values else None

    def properties(self) -> Mapping[str, Any]:
        with _mismatch_explained():
            try:
                found = self.call("getDeviceProperties", 0, kind=BackendUnavailableError)
            except TypeError:  # up to HIP Python 7 the call fills an argument
                found = self._hip.hipDeviceProp_t()
                self.call("getDeviceProperties", found, 0, kind=BackendUnavailableError)
        named = {name: getattr(found, name) for name in dir(found) if not name.startswith("_")}
        target = named["gcnArchName"]
        # Without the features of "gfx90a:sramecc+:xnack-", which the compiler detects.
        architecture = str(target.decode() if isinstance(target, bytes) else target).split(":")[0]
        versions = {"hip": str(self.call("runtimeGetVersion", kind=BackendUnavailableError))}
        return {**named, "architecture": architecture, "versions": versions}

    def attribute(self, function: Any, name: str) -> int:
        attribute = getattr(self._hip.hipFunction_attribute, f"HIP_FUNC_ATTRIBUTE_{name}")
        return int(self.call("funcGetAttribute", attribute, function))

    def copy_kind(self, kind: Copy) -> Any:
        return getattr(self._hip.hipMemcpyKind, f"hipMemcpy{kind}")

    def reserve(self, nbytes: int) -> int:
        try:
            return int(self.call("malloc", max(nbytes, 1)))
        except LaunchError as error:
            # After a fault every call fails, for another reason.
            is_full = str(error) == self._hip.hipError_t.hipErrorOutOfMemory.name
            kind = OutOfMemoryError if is_full else LaunchError
            raise kind(f"{nbytes} bytes were requested: {error}") from error

    def enqueue(self, function: Any, shape: LaunchShape, arguments: int) -> None:
        if any(blocks * threads >= _MOST_THREADS for blocks, threads in zip(shape.grid, shape.block, strict=True)):
            given = f"a grid {shape.grid} of blocks {shape.block}"
            raise LaunchError(f"HIP accepts less than 2**32 threads along an axis, not {given}")
        super().enqueue(function, shape, arguments)


@contextlib.contextmanager
def _mismatch_explained() -> Iterator[None]:
    """Explain the error of HIP Python for a function that the HIP library lacks."""
    try:
        yield
    except RuntimeError as error:
        problem = f"HIP Python does not match the installed HIP library ({error})"
        raise BackendUnavailableError(f"{problem}: install hip-python in the version of ROCm") from error


class HipBackend(GpuBackend):
    """An AMD GPU."""

    name: ClassVar[str] = "hip"
    architecture_flag: ClassVar[str] = "--offload-arch="
    common_architecture: ClassVar[str] = "gfx90a"
    flags: ClassVar[tuple[str, ...]] = ("-std=c++17", "-O3")
    package: ClassVar[tuple[str, str, str]] = ("hip", "HIP Python", 'pip install "mptune[hip]"')
    device_class: ClassVar[type[GpuDevice]] = HipDevice
    visibility: ClassVar[tuple[str, ...]] = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")

    @classmethod
    def facts(cls, architecture: str) -> Mapping[str, Any]:
        # MFMA supports fp64 and bf16 as well, WMMA 16-bit types only.
        known = {"MFMA": r"gfx9(?:0a|4[012]|50)", "WMMA": r"gfx110[0-3]"}
        found = (units for units, pattern in known.items() if re.fullmatch(pattern, architecture))
        # HIP counts the threads of an axis in 32 bits.
        limits = {f"max_threads_{axis}": _MOST_THREADS - 1 for axis in "xyz"}
        return {"is_gpu": True, "matrix_units": next(found, ""), **limits}

    @staticmethod
    def runtime_compiler() -> RuntimeCompiler:
        return _hiprtc()

    @staticmethod
    def device_count() -> int:
        library, count = _hip_library(), ctypes.c_int()
        if library.hipGetDeviceCount(ctypes.byref(count)) != 0 or count.value == 0:
            raise BackendUnavailableError("no HIP device: the HIP library finds none")
        return count.value
