"""The common parts of the CUDA and HIP backends."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import importlib.util
import math
import os
import re
import shutil
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mptune.backends.addressed import AddressBuffer, Copy, pack_arguments
from mptune.backends.base import (
    Argument,
    Availability,
    Backend,
    Binary,
    CompileOptions,
    Compiler,
    Device,
    DeviceInfo,
    Function,
    compile_cached,
    excerpt,
)
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.processes import CompilerProcesses, output_of
from mptune.cpp.prelude import with_headers
from mptune.errors import BackendUnavailableError, CompileError, LaunchError, OutOfMemoryError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mptune.kernel import LaunchShape

#: Bytes that the device sets before a timed launch. This work covers the microseconds of Python between the event and
#: the kernel, which would count as the kernel's time.
LEAD_BYTES: Final = 8 << 20
#: Seconds of idling until a device lowers its clocks, and of work until they are up again.
_IDLE_S: Final = 0.05
WAKING_S: Final = 0.02
#: Limits of a device and their names in ``cudaDeviceProp``.
_PROPERTIES: Final = {
    "max_threads_per_block": "maxThreadsPerBlock",
    "max_threads_per_multiprocessor": "maxThreadsPerMultiProcessor",
    "max_constant_bytes": "totalConstMem",
    "registers_per_block": "regsPerBlock",
    "warp_size": "warpSize",
    "multiprocessors": "multiProcessorCount",
    "cache_bytes": "l2CacheSize",
}


class GpuBuffer(AddressBuffer):
    """Memory of a GPU."""


class GpuFunction(Function):
    """A loaded kernel."""

    def __init__(self, device: GpuDevice, binary: Binary) -> None:
        self.name = binary.function
        self._device = device
        self._module = device.call("moduleLoadData", binary.image)
        self._function = device.call("moduleGetFunction", self._module, binary.function)
        self._max_threads = device.attribute(self._function, "MAX_THREADS_PER_BLOCK")

    def resources(self, shape: LaunchShape) -> Mapping[str, float]:
        device, threads = self._device, math.prod(shape.block)
        limits = device.describe().limits
        static = device.attribute(self._function, "SHARED_SIZE_BYTES")
        device.allow_shared(self._function, shape.shared_bytes)
        launch = (self._function, threads, shape.shared_bytes)
        blocks = int(device.call("occupancyMaxActiveBlocksPerMultiprocessor", *launch))
        running = -(-threads // limits["warp_size"]) * limits["warp_size"] * blocks
        return {
            "registers": float(device.attribute(self._function, "NUM_REGS")),
            "local_bytes": float(device.attribute(self._function, "LOCAL_SIZE_BYTES")),
            "shared_bytes": float(static + shape.shared_bytes),
            "static_shared_bytes": float(static),
            "dynamic_shared_bytes": float(shape.shared_bytes),
            "occupancy": running / limits["max_threads_per_multiprocessor"],
        }

    def set_constant(self, name: str, data: NDArray[Any]) -> None:
        self._device.copy(self._symbol(name), int(data.ctypes.data), data.nbytes, "HostToDevice")

    def read_constant(self, name: str, data: NDArray[Any]) -> None:
        self._device.copy(int(data.ctypes.data), self._symbol(name), data.nbytes, "DeviceToHost")

    def launch(self, shape: LaunchShape, arguments: Sequence[Argument]) -> float:
        pointers, values = self._packed(shape, arguments)
        self._device.works()
        elapsed_ms = self._device.launch(self._function, shape, ctypes.addressof(pointers))
        self._device.works()
        del values
        return elapsed_ms

    def enqueue(self, shape: LaunchShape, arguments: Sequence[Argument], count: int = 1) -> None:
        pointers, values = self._packed(shape, arguments)
        for _ in range(count):
            self._device.enqueue(self._function, shape, ctypes.addressof(pointers))
        del values

    def wait(self) -> None:
        self._device.synchronize()

    def unload(self) -> None:
        if self._module is not None:
            self._device.call("moduleUnload", self._module)
            self._module = None

    def _symbol(self, name: str) -> int:
        if self._module is None:
            raise LaunchError(f"{name!r} of {self.name} was used after it was unloaded")
        return int(self._device.call("moduleGetGlobal", self._module, name))

    def _packed(self, shape: LaunchShape, arguments: Sequence[Argument]) -> tuple[Any, Any]:
        if self._module is None:
            raise LaunchError(f"{self.name} was launched after it was unloaded")
        if max(shape.grid) >= 2**32:
            raise LaunchError(f"the grid {shape.grid} of {self.name} exceeds the limit of all devices: {2**32 - 1}")
        threads = math.prod(shape.block)
        if threads > self._max_threads:
            most = f"at most {self._max_threads} threads in a block, by its registers or its __launch_bounds__"
            raise LaunchError(f"{self.name} allows {most}; the block {shape.block} has {threads}")
        return pack_arguments(self.name, arguments, GpuBuffer)


class GpuCompiler(Compiler):
    """A vendor's runtime compiler."""

    def __init__(self, backend: GpuBackend, cache: BinaryCache) -> None:
        self._backend = backend
        self._cache = cache

    def compile(self, source: str, function: str, options: CompileOptions) -> Binary:
        return self._compile_with(self._backend.runtime_compiler(), source, function, self.resolved(options))

    def listing(self, source: str, function: str, options: CompileOptions) -> str | None:
        if (library := self._backend.listing_compiler()) is None:
            return None
        # PTX has a virtual architecture.
        virtual = self.resolved(options).architecture.replace("sm_", "compute_")
        binary = self._compile_with(library, source, function, dataclasses.replace(options, architecture=virtual))
        return str(binary.image.rstrip(b"\0").decode(errors="replace"))

    def _compile_with(self, library: RuntimeCompiler, source: str, function: str, options: CompileOptions) -> Binary:
        flags, limit_s = self.identity(options), options.timeout_s
        key = [library.name, library.version, library.code, *flags, with_headers(source, flags)]
        return compile_cached(self._cache, key, function, lambda: library.compile(source, function, flags, limit_s))

    def identity(self, options: CompileOptions) -> tuple[str, ...]:
        architecture = [f"{self._backend.architecture_flag}{options.architecture}"] if options.architecture else []
        return (*architecture, *self._backend.flags, *options.flags)

    def versions(self) -> Mapping[str, str]:
        with contextlib.suppress(BackendUnavailableError):
            library = self._backend.runtime_compiler()
            return {library.name.lower(): library.version}
        return {}

    def resolved(self, options: CompileOptions) -> CompileOptions:
        if options.architecture:
            return options
        try:
            return dataclasses.replace(options, architecture=self._backend.device.describe().architecture)
        except BackendUnavailableError as error:
            raise BackendUnavailableError(f"{error}; to compile without a device, give an architecture") from error

    def close(self) -> None:
        self._backend.runtime_compiler().close()


class GpuDevice(Device):
    """The first visible GPU through its vendor's library, opened when first needed, with one non-blocking stream.

    :meth:`call` takes CUDA's names of functions, without the prefix. Modules and functions are opaque handles.
    """

    sensors: ClassVar[str]
    #: The device property that limits the shared memory of a block.
    most_shared: ClassVar[str]

    def __init__(self, backend: type[GpuBackend]) -> None:
        self._backend = backend
        self._is_open = False
        #: Times (``time.monotonic``) of the last work, and of the start of work without a pause.
        self._worked_at = self._awake_since = -math.inf

    @abstractmethod
    def connect(self) -> Any:
        """Load the library and return a new stream."""

    @abstractmethod
    def call(self, name: str, *arguments: Any, kind: type[Exception] = LaunchError) -> Any:
        """Return the result of a call of the library; raise an error of the given kind if it fails."""

    @abstractmethod
    def properties(self) -> Mapping[str, Any]:
        """Return ``cudaDeviceProp`` by name, with the compiler's ``architecture`` and the libraries' ``versions``."""

    @abstractmethod
    def attribute(self, function: Any, name: str) -> int:
        """Return a function's attribute by its name in CUDA, without the prefix."""

    @abstractmethod
    def reserve(self, nbytes: int) -> int: ...

    @abstractmethod
    def copy_kind(self, kind: Copy) -> Any: ...

    def open(self) -> None:
        if not self._is_open:
            self._backend.require_device()
            self.stream = self.connect()
            self._start, self._end = (self.call("eventCreate", kind=BackendUnavailableError) for _ in range(2))
            #: The address of ``LEAD_BYTES``.
            self.lead = self.call("malloc", LEAD_BYTES, kind=BackendUnavailableError)
            self._is_open = True

    def describe(self) -> DeviceInfo:
        return self._info

    @functools.cached_property
    def _info(self) -> DeviceInfo:
        self.open()
        of = self.properties()
        name = of["name"]
        return DeviceInfo(
            backend=self._backend.name,
            name=name.decode() if isinstance(name, bytes) else name,
            architecture=of["architecture"],
            memory_bytes=int(of["totalGlobalMem"]),
            limits={
                **{limit: int(of[name]) for limit, name in _PROPERTIES.items()},
                "max_shared_bytes": int(of[self.most_shared]),
                **axis_limits(of["maxThreadsDim"], of["maxGridSize"]),
            },
            versions=of["versions"],
            pci_bus_id=f"{of['pciDomainID']:04x}:{of['pciBusID']:02x}:{of['pciDeviceID']:02x}.0",
            sensors=self.sensors,
        )

    def facts(self) -> Mapping[str, Any]:
        limits: Mapping[str, int] = {"max_threads_per_block": 1024}
        architecture = self._backend.common_architecture
        with contextlib.suppress(BackendUnavailableError):
            limits, architecture = self.describe().limits, self.describe().architecture
        return {**limits, **self._backend.facts(architecture)}

    def environments(self) -> Sequence[Mapping[str, str]]:
        count, visibility = self._backend.device_count(), self._backend.visibility
        listed = next((value for name in visibility if (value := os.environ.get(name))), "")
        names = [name.strip() for name in listed.split(",")] if listed else [str(i) for i in range(count)]
        return [{visibility[0]: name} for name in names[:count]]

    def load(self, binary: Binary) -> GpuFunction:
        self.open()
        return GpuFunction(self, binary)

    def allocate(self, nbytes: int) -> GpuBuffer:
        if nbytes >= 2**63:
            raise OutOfMemoryError(f"{nbytes} bytes were requested, which exceeds 63 bits")
        self.open()
        return GpuBuffer(self, nbytes)

    def release(self, address: int) -> None:
        self.call("free", address)

    def copy(self, target: int, source: int, nbytes: int, kind: Copy = "DeviceToDevice") -> None:
        self.call("memcpyAsync", target, source, nbytes, self.copy_kind(kind), self.stream)
        if "Host" in kind:
            self.synchronize()

    def fill(self, target: int, byte: int, nbytes: int) -> None:
        self.call("memsetAsync", target, byte, nbytes, self.stream)

    def allow_shared(self, function: Any, nbytes: int) -> None:
        """Opt in to so much dynamic shared memory of a function, if the library requires it."""

    def launch(self, function: Any, shape: LaunchShape, arguments: int) -> float:
        """Run a function to its end and return the milliseconds; ``arguments`` is the address of pointers to values."""
        self.allow_shared(function, shape.shared_bytes)
        self.fill(self.lead, 0, LEAD_BYTES)
        self.call("eventRecord", self._start, self.stream)
        self.enqueue(function, shape, arguments)
        self.call("eventRecord", self._end, self.stream)
        self.call("eventSynchronize", self._end)
        return float(self.call("eventElapsedTime", self._start, self._end))

    def enqueue(self, function: Any, shape: LaunchShape, arguments: int) -> None:
        """Run a function without waiting, in a shape that :meth:`launch` has run."""
        self.call("launchKernel", function, *shape.grid, *shape.block, shape.shared_bytes, self.stream, arguments, 0)

    def synchronize(self) -> None:
        """Wait for the device; raise :class:`LaunchError` after a fault."""
        self.call("streamSynchronize", self.stream)

    def is_usable(self) -> bool:
        """Return whether no launch has faulted; after a fault every call fails."""
        try:
            if self._is_open:
                self.synchronize()
        except LaunchError:
            return False
        return True

    def wake(self) -> None:
        self.open()
        self.works()
        while time.monotonic() - self._awake_since < WAKING_S:
            for _ in range(16):
                self.fill(self.lead, 0, LEAD_BYTES)
            self.synchronize()
            self.works()

    def works(self) -> None:
        now = time.monotonic()
        if now - self._worked_at > _IDLE_S:
            self._awake_since = now
        self._worked_at = now


class GpuBackend(Backend):
    """A GPU family: a runtime compiler and a device; binaries are by default in the user's cache folder."""

    tells_resources: ClassVar[bool] = True

    device_class: ClassVar[type[GpuDevice]]
    #: The compiler's flag of the architecture, with a trailing "=".
    architecture_flag: ClassVar[str]
    flags: ClassVar[tuple[str, ...]]
    #: The Python package that drives devices: its module, its name, and how to install it.
    package: ClassVar[tuple[str, str, str]]
    #: Environment variables that select the devices of a process, in order of precedence.
    visibility: ClassVar[tuple[str, ...]]

    def __init__(self, cache: BinaryCache | None = None) -> None:
        self.device = self.device_class(type(self))
        self.compiler = GpuCompiler(self, cache if cache is not None else BinaryCache())

    # A missing package or device raises BackendUnavailableError, which says what to install.

    @staticmethod
    @abstractmethod
    def runtime_compiler() -> RuntimeCompiler: ...

    @staticmethod
    def listing_compiler() -> RuntimeCompiler | None:
        """Return the compiler to assembly; None without one."""
        return None

    @staticmethod
    @abstractmethod
    def device_count() -> int:
        """Return the number of devices visible to this process, without initialising any."""

    @classmethod
    def require_device(cls) -> None:
        """Check for a device and its Python package, without initialising the device."""
        cls.device_count()
        module, name, install = cls.package
        if importlib.util.find_spec(module) is None:
            raise BackendUnavailableError(f"{name} is not installed: {install}")

    @classmethod
    def availability(cls) -> Availability:
        missing = {}
        for check in (cls.runtime_compiler, cls.require_device):
            try:
                check()
            except BackendUnavailableError as error:
                missing[check.__name__] = str(error)
        can_compile = cls.runtime_compiler.__name__ not in missing
        reasons = (cls.runtime_compiler().trouble if can_compile else "", *missing.values())
        return Availability(can_compile, not missing, "; ".join(filter(None, reasons)))


def axis_limits(block: Sequence[int], grid: Sequence[int]) -> dict[str, int]:
    """Return the limits of a launch by axis: threads of a block and blocks of a grid along x, y and z."""
    limits = {"block": block, "grid": grid}
    return {f"max_{what}_{axis}": int(n) for what in limits for axis, n in zip("xyz", limits[what], strict=True)}


# -- runtime compilers -----------------------------------------------------------------------------


def library_files(folders: Sequence[Path], name: str) -> list[str]:
    """Return the files of a library ("nvrtc"), newest version first, from some folders and the loader's.

    ctypes' ``find_library`` would run gcc and the linker for a missing library, which is slow.
    """
    folders = [*folders, *(Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder)]
    files = [str(path) for folder in folders for path in sorted(folder.glob(f"lib{name}.so*"), reverse=True)]
    return [*files, *re.findall(rf"^\s*lib{re.escape(name)}\.so.* => (.*)$", _loader_cache(), re.MULTILINE)]


@functools.cache
def _loader_cache() -> str:
    return output_of([shutil.which("ldconfig") or "/sbin/ldconfig", "-p"])[1]


class RuntimeLibrary:
    """NVRTC, or a library with the same functions, in this process.

    Args:
        name: its name in messages.
        prefix: the prefix of its functions' names ("nvrtc").
        code: the kind of code to request ("CUBIN"; hiprtc has only "Code").
        paths: candidate files; the first one that loads is used.
        hint: the remedy if no file loads.
        builtins: file name of its required library of builtins, with "{version}" in it; empty if the library finds it
            without help. NVRTC 13.0's wheel does not.
    """

    def __init__(self, name: str, prefix: str, code: str, paths: Sequence[str], hint: str, builtins: str = "") -> None:
        self._name, self._prefix, self._code = name, prefix, code
        major, minor = ctypes.c_int(), ctypes.c_int()
        for path in paths:
            with contextlib.suppress(OSError, AttributeError):  # AttributeError: the file lacks a function
                self._library = ctypes.CDLL(path)
                self._check("Version", ctypes.byref(major), ctypes.byref(minor))
                break
        else:
            raise BackendUnavailableError(f"{name} is not installed: {hint}")
        self.version = f"{major.value}.{minor.value}"
        missing = builtins.format(version=self.version)
        # The library finds loaded builtins by name.
        for file in (str(Path(path).with_name(missing)), missing) if builtins else ():
            with contextlib.suppress(OSError):
                ctypes.CDLL(file)
                missing = ""
                break
        #: The missing builtins and the remedy; empty if nothing is missing.
        self.trouble = f"{name} does not find its {missing}: {hint}" if missing else ""

    def compile(self, source: str, function: str, flags: Sequence[str]) -> tuple[bytes, str]:
        program = ctypes.c_void_p()
        # The file name is the prelude's; a #line directive names the template.
        text = (source.encode(), b"prelude.hpp", ctypes.c_int(0), None, None)
        self._check("CreateProgram", ctypes.byref(program), *text)
        try:
            options = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
            status = self._call("CompileProgram", program, ctypes.c_int(len(flags)), options)
            log = self._fetch("ProgramLog", program).rstrip(b"\0\n").decode(errors="replace")
            if status != 0:
                how = f"{self._name} rejected {function} ({self._reason(status)})"
                raise CompileError(f"{how}\n{excerpt(log)}".rstrip())
            return self._fetch(self._code, program), log
        finally:
            self._call("DestroyProgram", ctypes.byref(program))

    def _fetch(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._check(f"Get{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(max(size.value, 1))
        self._check(f"Get{what}", program, text)
        return text.raw[: size.value]

    def _call(self, function: str, *arguments: object) -> int:
        return int(getattr(self._library, self._prefix + function)(*arguments))

    def _check(self, function: str, *arguments: object) -> None:
        status = self._call(function, *arguments)
        if status != 0:
            raise CompileError(f"{self._prefix}{function} failed: {self._reason(status)}")

    def _reason(self, status: int) -> str:
        text = getattr(self._library, f"{self._prefix}GetErrorString")
        text.restype = ctypes.c_char_p
        found = text(status)
        return found.decode() if found else f"status {status}"


class RuntimeCompiler(CompilerProcesses):
    """A :class:`RuntimeLibrary` in its own processes; raises a BackendUnavailableError if it is not installed."""

    def __init__(self, name: str, prefix: str, code: str, paths: Sequence[str], hint: str, builtins: str = "") -> None:
        open_library = functools.partial(RuntimeLibrary, name, prefix, code, paths, hint, builtins)
        library = open_library()
        super().__init__(name, open_library)
        self.code, self.version, self.trouble = code, library.version, library.trouble
