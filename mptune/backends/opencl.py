"""The OpenCL backend: the driver or clang compiles C++ for OpenCL 2021, PyOpenCL loads and launches.

It uses any device of any installed driver, including Intel's runtime for processors from its wheels.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import importlib.util
import math
import os
import re
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from mptune.backends.addressed import Copy, GuardedMemory, MemoryBuffer, values_of
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
from mptune.backends.gpu import LEAD_BYTES, WAKING_S, axis_limits
from mptune.backends.processes import CompilerProcesses, output_of
from mptune.backends.processor import cache_limits, processor
from mptune.cpp.prelude import with_headers
from mptune.errors import BackendUnavailableError, CompileError, LaunchError, OutOfMemoryError
from mptune.paths import cache_folder, own_folder, write_whole
from mptune.source.flags import OPENCL_C_LINE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mptune.kernel import LaunchShape

#: Selects the device: a part of its platform's and its own name, and optionally # and a number among several matches.
_CHOICE: Final = "MPTUNE_OPENCL_DEVICE"
_INSTALL: Final = 'pip install "mptune[opencl]"'
_EXTENSION: Final = "cl_ext_cxx_for_opencl"
_STANDARD: Final = "-cl-std=CLC++2021"
#: Selects the compiler of templates: "driver" or "clang"; by default clang if the driver has none.
_COMPILER: Final = "MPTUNE_OPENCL_COMPILER"
#: A flag that changes results.
_RELAXING: Final = re.compile(
    "-cl-(mad-enable|no-signed-zeros|finite-math-only|unsafe-math-optimizations|fast-relaxed-math)"
)
_MOST_THREADS: Final = 1024  #: of a block, as in CUDA
_MOST_BLOCKS: Final = 2**31 - 1  #: along an axis of the grid, as indices have 32 bits


# -- finding a device ----------------------------------------------------------------------------


@functools.cache
def _pyopencl() -> Any:
    """Return PyOpenCL with the drivers of wheels registered; raise BackendUnavailableError."""
    if importlib.util.find_spec("pyopencl") is None:
        raise BackendUnavailableError(f"PyOpenCL is not installed: {_INSTALL}")
    _name_intel_runtime()
    try:
        import pyopencl
    except ImportError as error:
        raise BackendUnavailableError(f"PyOpenCL does not load: {error}") from error
    return pyopencl


def _name_intel_runtime() -> None:
    """Register the library of Intel's runtime for processors with the loaders of drivers, if its wheel is installed."""
    try:
        files = importlib.metadata.files("intel-opencl-rt") or []
    except importlib.metadata.PackageNotFoundError:
        return
    library = next((str(Path(str(file.locate())).resolve()) for file in files if file.name == "libintelocl.so"), None)
    if library is None:
        return
    os.environ.setdefault("OCL_ICD_FILENAMES", library)  # Khronos' loader adds it to the system's drivers
    if "OCL_ICD_VENDORS" in os.environ:
        return
    # ocl-icd, in PyOpenCL's wheels, would replace the system's drivers: name all of them in a folder.
    os.environ["OCL_ICD_VENDORS"] = library
    texts = {path.name: path.read_bytes() for path in sorted(Path("/etc/OpenCL/vendors").glob("*.icd"))}
    if texts and (kept := cache_folder("opencl")) is not None:
        with contextlib.suppress(OSError):
            folder = own_folder(kept)
            for name, text in {**texts, "mptune-intel.icd": library.encode()}.items():
                write_whole(folder / name, text)
            os.environ["OCL_ICD_VENDORS"] = str(folder)


def _name_of(device: Any) -> str:
    return f"{device.platform.name} {device.name}".strip()


def _devices() -> list[Any]:
    return [device for platform in _pyopencl().get_platforms() for device in platform.get_devices()]


@functools.cache
def _find_device() -> Any:
    """Return the device of :data:`_CHOICE`, or else a GPU before a processor; raise BackendUnavailableError."""
    cl, problem = _pyopencl(), "no driver finds one"
    try:
        devices = _devices()
    except cl.Error as error:
        devices, problem = [], str(error)
    if not devices:
        raise BackendUnavailableError(f"no OpenCL device: {problem}; {_INSTALL} brings Intel's for processors")
    wanted, _, place = os.environ.get(_CHOICE, "").partition("#")
    chosen = [device for device in devices if wanted.lower() in _name_of(device).lower()]
    if not chosen:
        names = ", ".join(map(_name_of, devices))
        raise BackendUnavailableError(f"no OpenCL device is called {wanted!r} ({_CHOICE}); there are {names}")
    if not place:
        # min keeps the order of the drivers.
        return min(chosen, key=lambda device: not device.type & cl.device_type.GPU)
    if not place.isdigit() or int(place) >= len(chosen):
        raise BackendUnavailableError(f"{_CHOICE}={wanted}#{place}: expected a number below {len(chosen)}")
    return chosen[int(place)]


def _offline(device: Any) -> Offline | None:
    """Return clang for a device whose driver does not compile templates, else None; raise BackendUnavailableError."""
    asked = os.environ.get(_COMPILER, "")
    if asked not in ("", "driver", "clang"):
        raise BackendUnavailableError(f"{_COMPILER}={asked}: expected driver or clang")
    # Intel's drivers compile C++ without the extension.
    compiles = _EXTENSION in device.extensions.split() or "Intel" in device.platform.vendor
    if compiles and asked != "clang":
        return None
    driver = f"the driver of {device.name.strip()}"
    lacks = "" if compiles else f"{driver} does not compile C++ for OpenCL 2021 ({_EXTENSION})"
    if asked == "driver":
        raise BackendUnavailableError(f"{lacks}; set {_COMPILER}=clang to use clang")
    if not _spirv_versions(device):
        subject = f"{lacks} and" if lacks else driver
        raise BackendUnavailableError(f"{subject} does not accept SPIR-V, so clang cannot compile for it")
    if (offline := find_offline()) is None:
        raise BackendUnavailableError("; ".join(filter(None, (lacks, f"not installed: {TOOLS}"))))
    return offline


def _spirv_versions(device: Any) -> list[tuple[int, int]]:
    with contextlib.suppress(_pyopencl().Error):  # before OpenCL 2.1
        return [(int(a), int(b)) for a, b in re.findall(r"SPIR-V_(\d+)\.(\d+)", str(device.il_version))]
    return []


# -- the compilers -------------------------------------------------------------------------------

TOOLS: Final = "clang 14 or newer and llvm-spirv of the same release (apt install clang-14 llvm-spirv-14)"
#: Optional features that the prelude tests; clang has a second name for fp64.
_OPTIONAL_FEATURES: Final = ("cl_khr_fp16", "cl_khr_fp64", "cl_khr_int64_base_atomics", "cl_khr_int64_extended_atomics")
#: The newest version of SPIR-V that the oldest llvm-spirv writes.
_NEWEST_SPIRV: Final = (1, 4)


@dataclass(frozen=True, slots=True)
class Offline:
    """clang and llvm-spirv, for drivers that accept only SPIR-V."""

    clang: str  #: the path
    translator: str  #: the path of llvm-spirv
    version: str  #: the first line of clang's --version

    def compile(self, source: str, function: str, flags: Sequence[str], device: Any) -> tuple[bytes, str]:
        missing = [name for name in _OPTIONAL_FEATURES if name not in device.extensions.split()]
        lacking = [*missing, *(["__opencl_c_fp64"] if "cl_khr_fp64" in missing else [])]
        without = [word for name in lacking for word in ("-Xclang", f"-cl-ext=-{name}")]
        major, minor = max((each for each in _spirv_versions(device) if each <= _NEWEST_SPIRV), default=(1, 0))
        with tempfile.TemporaryDirectory(prefix="mptune-") as folder:
            code, spirv = f"{folder}/kernel.bc", f"{folder}/kernel.spv"
            command = [self.clang, *flags, "--target=spir64-unknown-unknown", "-Xclang", "-finclude-default-header"]
            # The driver optimises; -O1 inlines the prelude's small functions.
            command += [*without, "-O1", "-emit-llvm", "-c", "-x", "cl", "-", "-o", code]
            log = _run(command, source, function)
            _run([self.translator, code, "-o", spirv, f"--spirv-max-version={major}.{minor}"], "", function)
            return Path(spirv).read_bytes(), log


@functools.cache
def find_offline() -> Offline | None:
    """Return clang and llvm-spirv of the newest release that has both; None without them."""
    for suffix in ("", *(f"-{number}" for number in range(30, 13, -1))):
        clang, translator = shutil.which(f"clang{suffix}"), shutil.which(f"llvm-spirv{suffix}")
        if clang and translator:
            version, of_translator = _line_with("version ", clang), _line_with("LLVM version ", translator)
            releases = [re.findall(r"version (\d+)\b", line) for line in (version, of_translator)]
            if releases[0] == releases[1] and releases[0] and int(releases[0][0]) >= 14:
                return Offline(clang, translator, version)
    return None


def _line_with(word: str, program: str) -> str:
    return next((line for line in output_of([program, "--version"])[1].splitlines() if word in line), "")


def _run(command: Sequence[str], text: str, function: str) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(f"{Path(command[0]).name} rejected {function}\n{excerpt(done.stderr)}".rstrip())
    return done.stderr


class _DriverCompiler:
    def __init__(self) -> None:
        # PyOpenCL's own cache would also keep failed sources.
        os.environ["PYOPENCL_NO_CACHE"] = "1"
        self._cl = _pyopencl()
        self._device = _find_device()
        self._context = self._cl.Context([self._device])
        self._offline = _offline(self._device)
        # The first compilation loads the compiler.
        with contextlib.suppress(self._cl.Error):
            self._cl.Program(self._context, "__kernel void nothing() {}").build()

    def compile(self, source: str, function: str, flags: Sequence[str]) -> tuple[bytes, str]:
        cl, printed = self._cl, ""
        code: str | bytes = source
        if self._offline is not None and not source.startswith(OPENCL_C_LINE):
            code, printed = self._offline.compile(source, function, flags, self._device)
            flags = [flag for flag in flags if flag.startswith("-cl-") and flag != _STANDARD]
        program = cl.Program(self._context, code)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PyOpenCL warns if there is a log
                program.build(options=list(flags))
        except cl.Error as error:
            how = f"the OpenCL driver rejected {function} ({_code(cl, error)})"
            raise CompileError(f"{how}\n{excerpt(self._log(program))}".rstrip()) from None
        (binary,) = program.get_info(cl.program_info.BINARIES)
        return bytes(binary), f"{printed}{self._log(program)}"

    def _log(self, program: Any) -> str:
        return str(program.get_build_info(self._device, self._cl.program_build_info.LOG) or "")


@functools.cache
def _driver_compiler(choice: str | None) -> CompilerProcesses:  # noqa: ARG001 - new processes for each choice
    return CompilerProcesses("the OpenCL driver", _DriverCompiler)


class OpenclCompiler(Compiler):
    """The driver's compiler, for its own device only."""

    def __init__(self, cache: BinaryCache) -> None:
        self._cache = cache

    @property
    def _processes(self) -> CompilerProcesses:
        return _driver_compiler(os.environ.get(_COMPILER))

    def translated(self, source: str) -> str:
        # Slow to import, and unused by `mptune backends`.
        from mptune.backends.opencl_dialect import as_opencl

        return source if source.startswith(OPENCL_C_LINE) else as_opencl(source)

    def compile(self, source: str, function: str, options: CompileOptions) -> Binary:
        if options.architecture:
            only = f"backend opencl compiles only for its device, not for {options.architecture!r}"
            raise BackendUnavailableError(f"{only}: leave out --arch")
        device = _find_device()
        _offline(device)
        flags, text, compiler = self.identity(options), self.translated(source), self._processes
        if text is source:  # OpenCL C, of the version that the user's flags name
            flags = tuple(flag for flag in flags if flag != _STANDARD)
        key = ["opencl", *_identity(device), *self.versions().values(), *flags, text, with_headers(source, flags)]
        return compile_cached(
            self._cache, key, function, lambda: compiler.compile(text, function, flags, options.timeout_s)
        )

    def identity(self, options: CompileOptions) -> tuple[str, ...]:
        flags = [_STANDARD]
        with contextlib.suppress(BackendUnavailableError):
            cl, device = _pyopencl(), _find_device()
            # Correctly rounded fp32 division, as on the other backends, if the driver has it.
            if device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
                flags.append("-cl-fp32-correctly-rounded-divide-sqrt")
            # Intel's driver for processors fails for long chains of inlined roundings.
            if _is_processor(device) and "Intel" in device.platform.vendor:
                flags.append("-DMPTUNE_CALLS_ROUNDINGS=1")
        if any(map(_RELAXING.fullmatch, options.flags)):
            flags.append("-DMPTUNE_RELAXED=1")
        return (*flags, *options.flags)

    def versions(self) -> Mapping[str, str]:
        # The driver's version is one of the device's.
        with contextlib.suppress(BackendUnavailableError):
            offline = _offline(_find_device())
            return {} if offline is None else {"clang": offline.version}
        return {}

    def stay(self, compilers: int, options: CompileOptions) -> None:  # noqa: ARG002
        self._processes.start(compilers)

    def paused(self) -> AbstractContextManager[None]:
        return self._processes.paused() if _is_processor(_find_device()) else contextlib.nullcontext()

    def close(self) -> None:
        self._processes.close()


# -- the device ----------------------------------------------------------------------------------


def _identity(device: Any) -> tuple[str, ...]:
    found = (device.platform.name, device.name, device.version, device.driver_version)
    on_processor = (processor().fingerprint,) if _is_processor(device) else ()
    return (*(str(text).strip() for text in found), *on_processor)


def _is_processor(device: Any) -> bool:
    return bool(device.type & _pyopencl().device_type.CPU)


def _pci_bus_id(device: Any) -> str:
    """Return a GPU's "domain:bus:device.function" by queries of NVIDIA's and AMD's drivers; empty for other drivers.

    PyOpenCL lacks the query of cl_khr_pci_bus_info.
    """
    cl, extensions = _pyopencl(), device.extensions.split()
    # Older drivers return an error.
    with contextlib.suppress(cl.Error):
        if "cl_nv_device_attribute_query" in extensions:
            domain = int(getattr(device, "pci_domain_id_nv", 0))
            slot = int(device.pci_slot_id_nv)  # its last three bits are the function
            return f"{domain:04x}:{int(device.pci_bus_id_nv):02x}:{slot >> 3:02x}.{slot & 7:x}"
        if "cl_amd_device_attribute_query" in extensions:
            found = device.topology_amd
            # The bytes are signed, and there is no domain.
            bus, place, function = (int(byte) & 0xFF for byte in (found.bus, found.device, found.function))
            return f"0000:{bus:02x}:{place:02x}.{function:x}"
    return ""


def _code(cl: Any, error: Any) -> str:
    return str(cl.status_code.to_string(error.code, "status %d"))


class OpenclBuffer(MemoryBuffer):
    """A memory object, or a part of one."""

    def __init__(self, device: OpenclDevice, nbytes: int) -> None:
        super().__init__(device, nbytes)
        self._device = device

    def for_kernel(self) -> Any:
        """Return the argument of a kernel; raise a :class:`LaunchError` for a part that is not aligned."""
        if self._whole is None:
            return self.start
        alignment = self._device.handle.mem_base_addr_align // 8
        if self.offset % alignment:
            raise LaunchError(f"a part of a buffer at byte {self.offset} is not aligned to {alignment} bytes")
        with self._device.failing("a part of a buffer cannot be an argument"):
            flags = self._device.cl.mem_flags.READ_WRITE
            return self.start.get_sub_region(self.offset, max(self.nbytes, 1), flags)

    def seen(self) -> NDArray[Any] | None:
        """Map the bytes of a processor's buffer, which copies nothing; freeing the view unmaps them."""
        if not _is_processor(self._device.handle) or not self.nbytes:
            return None
        import numpy as np

        cl, queue = self._device.cl, self._device.queue
        with self._device.failing("a buffer cannot be mapped"):
            found, _ = cl.enqueue_map_buffer(
                queue, self.start, cl.map_flags.READ, self.offset, (self.nbytes,), np.uint8, is_blocking=True
            )
        found.flags.writeable = False
        seen: NDArray[Any] = found
        return seen


class OpenclFunction(Function):
    """A loaded kernel."""

    def __init__(self, device: OpenclDevice, binary: Binary) -> None:
        self.name = binary.function
        self._device = device
        cl, handle = device.cl, device.handle
        with device.failing(f"the binary of {self.name} cannot be loaded"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyOpenCL warns if there is a log
            self._program: Any = cl.Program(device.context, [handle], [binary.image]).build()
            self._kernel: Any = cl.Kernel(self._program, self.name)
            self._parameters = int(self._kernel.num_args)
            self._values: list[Any] = []
            of_group = cl.kernel_work_group_info.WORK_GROUP_SIZE
            self._max_threads = min(_MOST_THREADS, self._kernel.get_work_group_info(of_group, handle))

    def set_constant(self, name: str, data: NDArray[Any]) -> None:
        buffer = OpenclBuffer(self._device, data.nbytes)
        buffer.write(data)
        self._copy_constant(name, buffer, writes=True)

    def read_constant(self, name: str, data: NDArray[Any]) -> None:
        buffer = OpenclBuffer(self._device, data.nbytes)
        self._copy_constant(name, buffer, writes=False)
        buffer.read(data)

    def launch(self, shape: LaunchShape, arguments: Sequence[Argument]) -> float:
        self._prepare(shape, arguments)
        with self._device.failing(self.name):
            event = self._enqueue(shape)
            event.wait()
            return float(event.profile.end - event.profile.start) * 1e-6

    def enqueue(self, shape: LaunchShape, arguments: Sequence[Argument], count: int = 1) -> None:
        self._prepare(shape, arguments)
        with self._device.failing(self.name):
            for _ in range(count):
                self._enqueue(shape)

    def wait(self) -> None:
        with self._device.failing(self.name):
            self._device.queue.finish()

    def unload(self) -> None:
        self._program = self._kernel = None
        self._values = []

    def _prepare(self, shape: LaunchShape, arguments: Sequence[Argument]) -> None:
        if self._program is None:
            raise LaunchError(f"{self.name} was launched after it was unloaded")
        threads = math.prod(shape.block)
        if threads > self._max_threads:
            raise LaunchError(f"{self.name} allows at most {self._max_threads} threads in a block, not {threads}")
        if max(shape.grid) > _MOST_BLOCKS:
            raise LaunchError(f"the grid {shape.grid} of {self.name} has more than {_MOST_BLOCKS} blocks along an axis")
        values = values_of(self.name, arguments, OpenclBuffer)
        if self._parameters == len(values) + 1:  # the last parameter is the dynamic shared memory
            values.append(self._device.cl.LocalMemory(max(shape.shared_bytes, 1)))
        if self._parameters != len(values):
            raise LaunchError(f"{self.name} has {self._parameters} parameters, given {len(arguments)}")
        self._values = values  # parts are memory objects that must outlive the launch
        for i, value in enumerate(values):
            with self._device.failing(f"parameter {i} of {self.name}"):
                self._kernel.set_arg(i, value)

    def _enqueue(self, shape: LaunchShape) -> Any:
        threads = tuple(blocks * width for blocks, width in zip(shape.grid, shape.block, strict=True))
        return self._device.cl.enqueue_nd_range_kernel(self._device.queue, self._kernel, threads, shape.block)

    def _copy_constant(self, name: str, buffer: OpenclBuffer, *, writes: bool) -> None:
        """Run the kernel that copies an array in constant memory (MPTUNE_CONSTANT)."""
        import numpy as np

        if self._program is None:
            raise LaunchError(f"{name!r} of {self.name} was used after it was unloaded")
        cl = self._device.cl
        try:
            copy = cl.Kernel(self._program, f"mptune_copy_{name}")
        except cl.Error:
            raise LaunchError(f"{self.name} has no array {name!r} in constant memory") from None
        with self._device.failing(f"{name!r} of {self.name}"):
            copy.set_args(buffer.for_kernel(), np.uint64(buffer.nbytes), np.int32(writes))
            cl.enqueue_nd_range_kernel(self._device.queue, copy, (1,), (1,)).wait()


class OpenclDevice(Device):
    """A device of any OpenCL driver."""

    #: The largest alignment of all devices, as a device's own is known only once it is opened.
    part_alignment_bytes: ClassVar[int] = 512

    def __init__(self) -> None:
        self._is_open = False

    def open(self) -> Self:
        """Open a context and an in-order queue unless they are open; return the device."""
        if not self._is_open:
            self.cl, self.handle = _pyopencl(), _find_device()
            _offline(self.handle)
            try:
                self.context = self.cl.Context([self.handle])
                properties = self.cl.command_queue_properties.PROFILING_ENABLE
                self.queue = self.cl.CommandQueue(self.context, properties=properties)
            except self.cl.Error as error:
                raise BackendUnavailableError(f"{self.handle.name.strip()} does not open: {error}") from error
            self._is_open = True
        return self

    @contextlib.contextmanager
    def failing(self, what: str) -> Iterator[None]:
        """Raise OpenCL's errors as :class:`OutOfMemoryError` or :class:`LaunchError`."""
        try:
            yield
        except self.cl.Error as error:
            kind = OutOfMemoryError if isinstance(error, self.cl.MemoryError) else LaunchError
            raise kind(f"{what}: {_code(self.cl, error)}") from error

    def reserve(self, nbytes: int) -> Any:
        flags = self.cl.mem_flags.READ_WRITE
        memory: Any = None
        if _is_processor(self.handle):
            # Guarded as on the host: an access outside the buffer faults.
            guarded = GuardedMemory()
            memory = (ctypes.c_ubyte * max(nbytes, 1)).from_address(guarded.reserve(nbytes))
            memory.guarded = guarded  # must outlive the memory object
            flags |= self.cl.mem_flags.USE_HOST_PTR
        with self.failing(f"{nbytes} bytes were requested"):
            return self.cl.Buffer(self.context, flags, size=0 if memory else max(nbytes, 1), hostbuf=memory)

    def release(self, start: Any) -> None:
        start.release()

    def copy(self, target: Any, source: Any, nbytes: int, kind: Copy = "DeviceToDevice") -> None:
        if not nbytes:
            return
        where = {"byte_count": nbytes} if kind == "DeviceToDevice" else {}
        if kind == "HostToDevice":
            source = (ctypes.c_ubyte * nbytes).from_address(source)
        else:
            source, where["src_offset"] = source
        if kind == "DeviceToHost":
            target = (ctypes.c_ubyte * nbytes).from_address(target)
        else:
            target, where["dst_offset"] = target
        with self.failing("a buffer cannot be copied"):
            self.cl.enqueue_copy(self.queue, target, source, **where)

    def fill(self, target: Any, byte: int, nbytes: int) -> None:
        memory, offset = target
        if nbytes:
            with self.failing("a buffer cannot be filled"):
                self.cl.enqueue_fill_buffer(self.queue, memory, bytes([byte]), offset, nbytes)

    def describe(self) -> DeviceInfo:
        return self._info

    @functools.cached_property
    def _info(self) -> DeviceInfo:
        device = _find_device()
        _offline(device)
        if _is_processor(device):
            caches = {"workers": int(device.max_compute_units), **cache_limits()}
            architecture, sensors = processor().architecture, "processor"
        else:
            units, cache_bytes = int(device.max_compute_units), int(device.global_mem_cache_size)
            caches = {"multiprocessors": units, "cache_bytes": cache_bytes}
            architecture, maker = str(device.name).strip(), f"{device.vendor} {device.name}".upper()
            known = {"nvml": "NVIDIA", "amd-smi": "ADVANCED MICRO DEVICES|AMD|RADEON"}
            sensors = next((name for name, mark in known.items() if re.search(mark, maker)), "")
        return DeviceInfo(
            backend=OpenclBackend.name,
            name=f"{str(device.name).strip()} ({str(device.platform.name).strip()})",
            architecture=architecture,
            memory_bytes=int(device.global_mem_size),
            limits={
                "max_threads_per_block": min(_MOST_THREADS, int(device.max_work_group_size)),
                "max_shared_bytes": int(device.local_mem_size),
                "max_buffer_bytes": int(device.max_mem_alloc_size),
                **axis_limits(device.max_work_item_sizes[:3], [_MOST_BLOCKS] * 3),
                **caches,
            },
            versions={
                "opencl": str(device.version).strip(),
                "driver": str(device.driver_version).strip(),
                "pyopencl": str(_pyopencl().VERSION_TEXT),
            },
            pci_bus_id=_pci_bus_id(device),
            sensors=sensors,
        )

    def load(self, binary: Binary) -> OpenclFunction:
        return OpenclFunction(self.open(), binary)

    def allocate(self, nbytes: int) -> OpenclBuffer:
        most = self.describe().limits["max_buffer_bytes"]
        if nbytes > most:
            raise OutOfMemoryError(f"{nbytes} bytes were requested, and a buffer has at most {most} on this device")
        return OpenclBuffer(self.open(), nbytes)

    def facts(self) -> Mapping[str, Any]:
        limits: Mapping[str, int] = {"max_threads_per_block": _MOST_THREADS}
        is_gpu = True
        with contextlib.suppress(BackendUnavailableError):
            limits, is_gpu = self.describe().limits, not _is_processor(_find_device())
        return {**limits, **OpenclBackend.facts(""), "is_gpu": is_gpu}

    def identity(self) -> tuple[str, ...]:
        return _identity(_find_device())

    def environments(self) -> Sequence[Mapping[str, str]]:
        name = _name_of(_find_device())
        # Number all devices whose names contain this name, as :func:`_find_device` does.
        matching = [found for found in map(_name_of, _devices()) if name.lower() in found.lower()]
        return [{_CHOICE: f"{name}#{i}"} for i, found in enumerate(matching) if found == name]

    def wake(self) -> None:
        if not _is_processor(_find_device()):
            work = self.allocate(LEAD_BYTES)
            until = time.monotonic() + WAKING_S
            while time.monotonic() < until:
                work.fill(0)
                self.queue.finish()
            work.free()

    def is_usable(self) -> bool:
        try:
            if self._is_open:
                self.queue.finish()
        except self.cl.Error:
            return False
        return True


class OpenclBackend(Backend):
    """A device of an OpenCL driver, possibly the processor; ``cache`` is by default in the user's cache folder."""

    name: ClassVar[str] = "opencl"

    def __init__(self, cache: BinaryCache | None = None) -> None:
        self.device = OpenclDevice()
        self.compiler = OpenclCompiler(cache if cache is not None else BinaryCache())

    @property
    def shares_memory(self) -> bool:
        """Whether the device is a processor; an integrated GPU gets copies."""
        with contextlib.suppress(BackendUnavailableError):
            return _is_processor(_find_device())
        return False

    @classmethod
    def availability(cls) -> Availability:
        return cls.available_if(lambda: _offline(_find_device()))
