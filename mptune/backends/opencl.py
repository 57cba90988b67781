"""The OpenCL backend: the driver compiles C++ for OpenCL 2021, or clang does; PyOpenCL loads and launches.

Any device of any installed driver will do, also of Intel's runtime for processors where only its wheels are installed.
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
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mptune.backends.addressed import GuardedMemory, no_argument
from mptune.backends.base import (
    Argument,
    Availability,
    Backend,
    Binary,
    Buffer,
    CompileOptions,
    Compiler,
    Device,
    DeviceInfo,
    Function,
    check_array,
    check_part,
    compile_cached,
    excerpt,
    in_words,
)
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.gpu import axis_limits
from mptune.backends.processes import CompilerProcesses, output_of
from mptune.backends.processor import cache_limits, processor
from mptune.cpp.headers import with_headers
from mptune.errors import BackendUnavailableError, CompileError, LaunchError, OutOfMemoryError
from mptune.paths import cache_folder, own_folder, write_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mptune.kernel import LaunchShape

#: Selects the device, by any part of its platform's and its own name, and after # by its place among several.
_CHOICE: Final = "MPTUNE_OPENCL_DEVICE"
_INSTALL: Final = 'pip install "mptune[opencl]"'
#: Where the system's drivers are named.
_SYSTEM_DRIVERS: Final = Path("/etc/OpenCL/vendors")
_EXTENSION: Final = "cl_ext_cxx_for_opencl"
_STANDARD: Final = "-cl-std=CLC++2021"
#: Selects the compiler of templates: "driver" or "clang"; by default clang where the driver has none.
_COMPILER: Final = "MPTUNE_OPENCL_COMPILER"
#: Flags that allow other results than the source's.
_RELAXING: Final = frozenset(
    f"-cl-{name}"
    for name in ("mad-enable", "no-signed-zeros", "finite-math-only", "unsafe-math-optimizations", "fast-relaxed-math")
)
#: Kernels are written for blocks as large as CUDA's; indices have 32 bits.
_MOST_THREADS: Final = 1024
_MOST_BLOCKS: Final = 2**31 - 1
#: Work that wakes a device, and its seconds on a GPU and on a processor.
_WAKING_SOURCE: Final = """
__kernel void mptune_wake(__global uint* found) {
    uint x = get_global_id(0);
    for (int i = 0; i < 2000; ++i) x = x * 1664525u + 1013904223u;
    found[get_global_id(0)] = x;
}
"""
_WAKING_GROUPS: Final = 1 << 10
_WAKING_S: Final = 0.02
_WAKING_THREADS_S: Final = 0.002


# -- finding a device ----------------------------------------------------------------------------


@functools.cache
def _pyopencl() -> Any:
    """Return PyOpenCL, ready to find the drivers that wheels bring; raises BackendUnavailableError."""
    if importlib.util.find_spec("pyopencl") is None:
        raise BackendUnavailableError(f"PyOpenCL is not installed: {_INSTALL}")
    _name_intel_runtime()
    try:
        import pyopencl
    except ImportError as error:
        raise BackendUnavailableError(f"PyOpenCL does not load: {error}") from error
    return pyopencl


def _name_intel_runtime() -> None:
    """Name the library of Intel's runtime for processors to the loaders of drivers, if its wheel is installed."""
    try:
        files = importlib.metadata.files("intel-opencl-rt") or []
    except importlib.metadata.PackageNotFoundError:
        return
    library = next((str(Path(str(file.locate())).resolve()) for file in files if file.name == "libintelocl.so"), None)
    if library is None:
        return
    os.environ.setdefault("OCL_ICD_FILENAMES", library)  # Khronos' loader has it besides the system's
    if "OCL_ICD_VENDORS" not in os.environ:  # ocl-icd, which PyOpenCL's wheels have, in place of the system's
        os.environ["OCL_ICD_VENDORS"] = _with_system_drivers(library)


def _with_system_drivers(library: str) -> str:
    """Return the library, or a folder that names it beside the drivers of the system, for ocl-icd."""
    texts = {path.name: path.read_bytes() for path in sorted(_SYSTEM_DRIVERS.glob("*.icd"))}
    kept = cache_folder("opencl") if texts else None
    if kept is None:
        return library
    with contextlib.suppress(OSError):
        folder = own_folder(kept)
        for name, text in {**texts, "mptune-intel.icd": library.encode()}.items():
            write_whole(folder / name, text)
        return str(folder)
    return library


def _name_of(device: Any) -> str:
    return f"{device.platform.name} {device.name}".strip()


def _devices() -> list[Any]:
    return [device for platform in _pyopencl().get_platforms() for device in platform.get_devices()]


@functools.cache
def _find_device() -> Any:
    """Return the device of :data:`_CHOICE`, else a GPU before a processor; raises BackendUnavailableError."""
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
        # In the order of the drivers among those of a kind.
        return min(chosen, key=lambda device: not device.type & cl.device_type.GPU)
    if not place.isdigit() or int(place) >= len(chosen):
        raise BackendUnavailableError(
            f"{_CHOICE}={wanted}#{place}: expected a number below {len(chosen)}, as many devices are called so"
        )
    return chosen[int(place)]


def _offline(device: Any) -> Offline | None:
    """Return the compiler of templates for a device; None where its driver is; raises BackendUnavailableError."""
    asked = os.environ.get(_COMPILER, "")
    if asked not in ("", "driver", "clang"):
        raise BackendUnavailableError(f"{_COMPILER}={asked}: expected driver or clang")
    # Intel's drivers compile it without the extension.
    compiles = _EXTENSION in device.extensions.split() or "Intel" in device.platform.vendor
    if compiles and asked != "clang":
        return None
    driver = f"the driver of {device.name.strip()}"
    lacks = "" if compiles else f"{driver} does not compile C++ for OpenCL 2021 ({_EXTENSION})"
    if asked == "driver":
        raise BackendUnavailableError(f"{lacks}; {_COMPILER}=clang has clang compile it")
    if not _spirv_versions(device):
        what = f"{lacks} and" if lacks else driver
        raise BackendUnavailableError(f"{what} takes no SPIR-V, so that clang cannot compile for it")
    if (offline := find_offline()) is None:
        raise BackendUnavailableError("; ".join(filter(None, (lacks, f"not installed: {TOOLS}"))))
    return offline


def _spirv_versions(device: Any) -> str:
    """Return the versions of SPIR-V that a device takes ("SPIR-V_1.0 SPIR-V_1.1"); empty for none."""
    try:
        words = str(device.il_version).split()
    except _pyopencl().Error:  # before OpenCL 2.1
        return ""
    return " ".join(word for word in words if word.startswith("SPIR-V_"))


# -- the compilers -------------------------------------------------------------------------------

TOOLS: Final = "clang 14 or newer and llvm-spirv of the same release (apt install clang-14 llvm-spirv-14)"
#: Optional features that the prelude asks for, by their name in a device, with the compiler's further names.
_OPTIONAL_FEATURES: Final[Mapping[str, tuple[str, ...]]] = {
    "cl_khr_fp16": (),
    "cl_khr_fp64": ("__opencl_c_fp64",),
    "cl_khr_int64_base_atomics": (),
    "cl_khr_int64_extended_atomics": (),
}
#: The newest version of SPIR-V that the oldest llvm-spirv writes.
_NEWEST_SPIRV: Final = (1, 4)


@dataclass(frozen=True, slots=True)
class Offline:
    """clang and llvm-spirv, for drivers that take SPIR-V alone."""

    clang: str  #: the path
    translator: str  #: the path of llvm-spirv
    version: str  #: the first line of clang's --version

    def compile(self, source: str, function: str, flags: Sequence[str], device: Any) -> tuple[bytes, str]:
        """Return a source as SPIR-V, and clang's output."""
        missing = [name for name in _OPTIONAL_FEATURES if name not in device.extensions.split()]
        lacking = [name for feature in missing for name in (feature, *_OPTIONAL_FEATURES[feature])]
        without = [word for name in lacking for word in ("-Xclang", f"-cl-ext=-{name}")]
        words = _spirv_versions(device).split()
        versions = [tuple(map(int, word.removeprefix("SPIR-V_").split("."))) for word in words]
        major, minor = max((version for version in versions if version <= _NEWEST_SPIRV), default=(1, 0))
        with tempfile.TemporaryDirectory(prefix="mptune-") as folder:
            code, spirv = f"{folder}/kernel.bc", f"{folder}/kernel.spv"
            command = [self.clang, *flags, "--target=spir64-unknown-unknown", "-Xclang", "-finclude-default-header"]
            # The driver optimises; this much takes the prelude's small functions apart.
            command += [*without, "-O1", "-emit-llvm", "-c", "-x", "cl", "-", "-o", code]
            log = _run(command, source, function)
            _run([self.translator, code, "-o", spirv, f"--spirv-max-version={major}.{minor}"], "", function)
            return Path(spirv).read_bytes(), log


@functools.cache
def find_offline() -> Offline | None:
    """Return clang and llvm-spirv of one release, the newest that is installed; None without them."""
    for suffix in ("", *(f"-{number}" for number in range(30, 13, -1))):
        clang, translator = shutil.which(f"clang{suffix}"), shutil.which(f"llvm-spirv{suffix}")
        if clang and translator:
            version = _line_with("version", clang)
            release = _release_of(version)
            if release >= 14 and release == _release_of(_line_with("LLVM version", translator)):
                return Offline(clang, translator, version)
    return None


def _line_with(word: str, program: str) -> str:
    """Return the first line of a program's --version that has a word in it."""
    return next((line for line in output_of([program, "--version"])[1].splitlines() if word in line), "")


def _release_of(line: str) -> int:
    """Return the number of a release in a line such as "Debian clang version 14.0.6"; 0 without."""
    found = re.search(r"version (\d+)\b", line)
    return int(found[1]) if found else 0


def _run(command: Sequence[str], text: str, function: str) -> str:
    name = Path(command[0]).name
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CompileError(f"{name} cannot be run: {error}") from None
    if done.returncode != 0:
        raise CompileError(f"{name} rejected {function}\n{excerpt(done.stderr)}".rstrip())
    return done.stderr


class _DriverCompiler:
    """The compiler of the driver, in this very process."""

    def __init__(self) -> None:
        # PyOpenCL's own cache would also keep sources that fail.
        os.environ["PYOPENCL_NO_CACHE"] = "1"
        self._cl = _pyopencl()
        self._device = _find_device()
        self._context = self._cl.Context([self._device])
        self._offline = _offline(self._device)
        # The first compilation loads the compiler.
        with contextlib.suppress(self._cl.Error):
            self._cl.Program(self._context, "__kernel void nothing() {}").build()

    def compile(self, source: str, function: str, flags: Sequence[str]) -> tuple[bytes, str]:
        """Return the driver's binary of a source and the compiler's output."""
        cl, printed = self._cl, ""
        code: str | bytes = source
        if self._offline is not None:
            code, printed = self._offline.compile(source, function, flags, self._device)
            flags = [flag for flag in flags if flag.startswith("-cl-") and flag != _STANDARD]
        program = cl.Program(self._context, code)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that there is a log
                program.build(options=list(flags))
        except cl.Error as error:
            raise CompileError(
                f"the OpenCL driver rejected {function} ({_code(cl, error)})\n{excerpt(self._log(program))}".rstrip()
            ) from None
        (binary,) = program.get_info(cl.program_info.BINARIES)
        return bytes(binary), f"{printed}{self._log(program)}"

    def _log(self, program: Any) -> str:
        return str(program.get_build_info(self._device, self._cl.program_build_info.LOG) or "")


def _driver_compiler() -> CompilerProcesses:
    # Its processes have the settings of their start.
    return _processes(os.environ.get(_COMPILER, ""))


@functools.cache
def _processes(compiler: str) -> CompilerProcesses:  # noqa: ARG001 - the key
    return CompilerProcesses("the OpenCL driver", _DriverCompiler)


class OpenclCompiler(Compiler):
    """The driver's compiler, for its own device alone."""

    def __init__(self, cache: BinaryCache) -> None:
        self._cache = cache

    def translated(self, source: str) -> str:
        # Takes longer to import than all the rest of `mptune backends`.
        from mptune.backends.opencl_dialect import as_opencl

        return as_opencl(source)

    def compile(self, source: str, function: str, options: CompileOptions) -> Binary:
        if options.architecture:
            raise BackendUnavailableError(
                f"backend opencl compiles for the device that is there, not for {options.architecture!r}: leave out "
                "--arch"
            )
        device = _find_device()
        _offline(device)
        flags, text, compiler = self.identity(options), self.translated(source), _driver_compiler()
        key = ["opencl", *_identity(device), *self.versions().values(), *flags, text, with_headers(source, flags)]
        return compile_cached(
            self._cache, key, function, lambda: compiler.compile(text, function, flags, options.timeout_s)
        )

    def identity(self, options: CompileOptions) -> tuple[str, ...]:
        flags = [_STANDARD]
        with contextlib.suppress(BackendUnavailableError):
            cl, device = _pyopencl(), _find_device()
            # Divides in fp32 as the other backends do, where the driver can.
            if device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
                flags.append("-cl-fp32-correctly-rounded-divide-sqrt")
            # Intel's driver for processors does not compile a long chain of inlined roundings.
            if _is_processor(device) and "Intel" in device.platform.vendor:
                flags.append("-DMPTUNE_CALLS_ROUNDINGS=1")
        if not _RELAXING.isdisjoint(options.flags):
            flags.append("-DMPTUNE_RELAXED=1")
        return (*flags, *options.flags)

    def versions(self) -> Mapping[str, str]:
        # The driver's own is the device's.
        with contextlib.suppress(BackendUnavailableError):
            offline = _offline(_find_device())
            return {} if offline is None else {"clang": offline.version}
        return {}

    def expect(self, options: CompileOptions, compilers: int) -> None:  # noqa: ARG002 - each source brings its own
        _driver_compiler().expect(compilers)

    def paused(self) -> AbstractContextManager[None]:
        return _driver_compiler().paused() if _is_processor(_find_device()) else contextlib.nullcontext()

    def close(self) -> None:
        _driver_compiler().close()


# -- the device ----------------------------------------------------------------------------------


def _identity(device: Any) -> tuple[str, ...]:
    found = (device.platform.name, device.name, device.version, device.driver_version)
    on_processor = (processor().fingerprint,) if _is_processor(device) else ()
    return (*(str(text).strip() for text in found), *on_processor)


def _is_processor(device: Any) -> bool:
    return bool(device.type & _pyopencl().device_type.CPU)


def _sensors(device: Any) -> str:
    """Return the source of a device's energy and clocks; empty without one."""
    if _is_processor(device):
        return "processor"
    vendor = f"{device.vendor} {device.name}".upper()
    known = {"nvml": ("NVIDIA",), "amd-smi": ("ADVANCED MICRO DEVICES", "AMD", "RADEON")}
    return next((sensors for sensors, marks in known.items() if any(mark in vendor for mark in marks)), "")


def _pci_bus_id(device: Any) -> str:
    """Return a GPU's "domain:bus:device.function" by the queries of NVIDIA's driver and of AMD's; else empty.

    PyOpenCL does not have the query of cl_khr_pci_bus_info.
    """
    if _is_processor(device):
        return ""
    cl, extensions = _pyopencl(), device.extensions.split()
    # Older drivers answer with an error.
    with contextlib.suppress(cl.Error):
        if "cl_nv_device_attribute_query" in extensions:
            domain = 0
            with contextlib.suppress(cl.Error, AttributeError):
                domain = int(device.pci_domain_id_nv)
            slot = int(device.pci_slot_id_nv)  # the function in its last three bits
            return f"{domain:04x}:{int(device.pci_bus_id_nv):02x}:{slot >> 3:02x}.{slot & 7:x}"
        if "cl_amd_device_attribute_query" in extensions:
            found = device.topology_amd
            # Its bytes are signed, and it has no domain.
            bus, place, function = (int(byte) & 0xFF for byte in (found.bus, found.device, found.function))
            return f"0000:{bus:02x}:{place:02x}.{function:x}"
    return ""


def _code(cl: Any, error: Any) -> str:
    return str(cl.status_code.to_string(error.code, "status %d"))


class _Opened:
    """A device with a context and a queue, in which commands run one after the other."""

    def __init__(self) -> None:
        self.cl = _pyopencl()
        self.device = _find_device()
        _offline(self.device)
        try:
            self.context = self.cl.Context([self.device])
            properties = self.cl.command_queue_properties.PROFILING_ENABLE
            self.queue = self.cl.CommandQueue(self.context, properties=properties)
        except self.cl.Error as error:
            raise BackendUnavailableError(f"{self.device.name.strip()} does not open: {error}") from error

    @contextlib.contextmanager
    def failing(self, what: str) -> Iterator[None]:
        """Raise OpenCL's errors as :class:`OutOfMemoryError` or :class:`LaunchError`."""
        cl = self.cl
        try:
            yield
        except cl.MemoryError as error:
            raise OutOfMemoryError(f"{what}: {_code(cl, error)}") from error
        except cl.Error as error:
            raise LaunchError(f"{what}: {_code(cl, error)}") from error


class OpenclBuffer(Buffer):
    """A memory object, or some bytes of one."""

    def __init__(self, opened: _Opened, nbytes: int) -> None:
        self.nbytes = nbytes
        self._opened = opened
        self._whole: OpenclBuffer | None = None
        self._offset = 0
        self._memory: Any = None
        #: The argument of kernels; of a part, made for its first launch.
        self._given: Any = None
        cl, flags = opened.cl, opened.cl.mem_flags.READ_WRITE
        # A processor uses the memory itself: a kernel that leaves it faults, as on the host.
        self._guarded = GuardedMemory() if _is_processor(opened.device) else None
        with opened.failing(f"{nbytes} bytes were asked for"):
            if self._guarded is None:
                self._memory = self._given = cl.Buffer(opened.context, flags, max(nbytes, 1))
            else:
                memory = (ctypes.c_ubyte * max(nbytes, 1)).from_address(self._guarded.allocate(nbytes))
                flags |= cl.mem_flags.USE_HOST_PTR
                self._memory = self._given = cl.Buffer(opened.context, flags, hostbuf=memory)

    def write(self, data: NDArray[Any]) -> None:
        check_array(self, data)
        self._copy(self._of_whole(), _as_bytes(data), dst_offset=self._offset)

    def read(self, data: NDArray[Any]) -> None:
        check_array(self, data)
        self._copy(_as_bytes(data), self._of_whole(), src_offset=self._offset)

    def copy_from(self, other: Buffer) -> None:
        if not isinstance(other, OpenclBuffer) or other.nbytes != self.nbytes:
            raise LaunchError(f"a buffer of {self.nbytes} bytes cannot be copied from {in_words(other)}")
        source, target = other._of_whole(), self._of_whole()
        self._copy(target, source, byte_count=self.nbytes, src_offset=other._offset, dst_offset=self._offset)

    def fill(self, byte: int) -> None:
        import numpy as np

        memory, opened = self._of_whole(), self._opened
        if self.nbytes:
            with opened.failing("a buffer cannot be filled"):
                opened.cl.enqueue_fill_buffer(opened.queue, memory, np.uint8(byte), self._offset, self.nbytes)

    def part(self, offset: int, nbytes: int) -> OpenclBuffer:
        check_part(self, offset, nbytes)
        part = object.__new__(type(self))
        # There is no sub-buffer of a sub-buffer: it is one of the whole.
        part.nbytes, part._opened = nbytes, self._opened
        part._whole, part._offset = self._whole or self, self._offset + offset
        part._memory = part._given = part._guarded = None
        return part

    def free(self) -> None:
        if self._memory is not None:
            self._memory.release()
            self._memory = self._given = self._guarded = None

    def for_kernel(self) -> Any:
        """Return the argument of a kernel; raises a :class:`LaunchError` for a part that is not aligned."""
        memory = self._of_whole()
        if self._given is None:
            alignment = self._opened.device.mem_base_addr_align // 8
            if self._offset % alignment:
                raise LaunchError(f"a part of a buffer at byte {self._offset} is not aligned to {alignment} bytes")
            with self._opened.failing("a part of a buffer cannot be launched on"):
                flags = self._opened.cl.mem_flags.READ_WRITE
                self._given = memory.get_sub_region(self._offset, max(self.nbytes, 1), flags)
        return self._given

    def _of_whole(self) -> Any:
        memory = (self._whole or self)._memory
        if memory is None:
            raise LaunchError(f"a buffer of {self.nbytes} bytes was used after it was freed")
        return memory

    def _copy(self, target: Any, source: Any, **where: int) -> None:
        if self.nbytes:
            with self._opened.failing("a buffer cannot be copied"):
                self._opened.cl.enqueue_copy(self._opened.queue, target, source, **where)


def _as_bytes(data: NDArray[Any]) -> NDArray[Any]:
    """Return a contiguous array as its bytes, as PyOpenCL does not know every type."""
    import numpy as np

    return data.reshape(-1).view(np.uint8)


class OpenclFunction(Function):
    """A loaded kernel."""

    def __init__(self, opened: _Opened, binary: Binary) -> None:
        self.name = binary.function
        self._opened = opened
        cl, device = opened.cl, opened.device
        with opened.failing(f"the binary of {self.name} cannot be loaded"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is a log
            self._program: Any = cl.Program(opened.context, [device], [binary.image]).build()
            self._kernel: Any = cl.Kernel(self._program, self.name)
            self._parameters = int(self._kernel.num_args)
            of_group = cl.kernel_work_group_info.WORK_GROUP_SIZE
            self._max_threads = min(_MOST_THREADS, self._kernel.get_work_group_info(of_group, device))

    def set_constant(self, name: str, data: NDArray[Any]) -> None:
        self._copy_constant(name, data, writes=True)

    def read_constant(self, name: str, data: NDArray[Any]) -> None:
        self._copy_constant(name, data, writes=False)

    def launch(self, shape: LaunchShape, arguments: Sequence[Argument]) -> float:
        self._prepare(shape, arguments)
        with self._opened.failing(self.name):
            event = self._enqueue(shape)
            event.wait()
            return float(event.profile.end - event.profile.start) * 1e-6

    def enqueue(self, shape: LaunchShape, arguments: Sequence[Argument], count: int = 1) -> None:
        self._prepare(shape, arguments)
        with self._opened.failing(self.name):
            for _ in range(count):
                self._enqueue(shape)

    def wait(self) -> None:
        with self._opened.failing(self.name):
            self._opened.queue.finish()

    def unload(self) -> None:
        self._program = self._kernel = None

    def _prepare(self, shape: LaunchShape, arguments: Sequence[Argument]) -> None:
        import numpy as np

        if self._program is None:
            raise LaunchError(f"{self.name} was launched after it was unloaded")
        threads = math.prod(shape.block)
        if threads > self._max_threads:
            raise LaunchError(f"{self.name} takes at most {self._max_threads} threads in a block, not {threads}")
        if max(shape.grid) > _MOST_BLOCKS:
            raise LaunchError(f"the grid {shape.grid} of {self.name} has more than {_MOST_BLOCKS} blocks along an axis")
        values: list[Any] = []
        for i, argument in enumerate(arguments):
            if isinstance(argument, OpenclBuffer):
                values.append(argument.for_kernel())
            elif isinstance(argument, np.generic):
                values.append(argument.tobytes())
            else:
                raise no_argument(self.name, i, argument, OpenclBuffer)
        if self._parameters == len(values) + 1:  # dynamic shared memory is the last one
            values.append(self._opened.cl.LocalMemory(max(shape.shared_bytes, 1)))
        if self._parameters != len(values):
            raise LaunchError(f"{self.name} has {self._parameters} parameters, given {len(arguments)}")
        for i, value in enumerate(values):
            with self._opened.failing(f"parameter {i} of {self.name}"):
                self._kernel.set_arg(i, value)

    def _enqueue(self, shape: LaunchShape) -> Any:
        threads = tuple(blocks * width for blocks, width in zip(shape.grid, shape.block, strict=True))
        return self._opened.cl.enqueue_nd_range_kernel(self._opened.queue, self._kernel, threads, shape.block)

    def _copy_constant(self, name: str, data: NDArray[Any], *, writes: bool) -> None:
        """Run the kernel that copies an array in constant memory (MPTUNE_CONSTANT)."""
        import numpy as np

        if self._program is None:
            raise LaunchError(f"{name!r} of {self.name} was used after it was unloaded")
        opened, cl = self._opened, self._opened.cl
        try:
            copy = cl.Kernel(self._program, f"mptune_copy_{name}")
        except cl.Error:
            raise LaunchError(f"{self.name} has no array {name!r} in constant memory") from None
        buffer = OpenclBuffer(opened, data.nbytes)
        if writes:
            buffer.write(data)
        with opened.failing(f"{name!r} of {self.name}"):
            copy.set_args(buffer.for_kernel(), np.uint64(data.nbytes), np.int32(writes))
            cl.enqueue_nd_range_kernel(opened.queue, copy, (1,), (1,)).wait()
        if not writes:
            buffer.read(data)
        buffer.free()


class OpenclDevice(Device):
    """A device of any OpenCL driver."""

    #: The most that any device asks for, which one says when it is opened.
    part_alignment_bytes: ClassVar[int] = 512

    def __init__(self) -> None:
        self._opened: _Opened | None = None
        #: The kernel that wakes the device, and its buffer.
        self._wakes: Any = None
        self._woken: OpenclBuffer | None = None
        self._info: DeviceInfo | None = None

    def describe(self) -> DeviceInfo:
        if self._info is not None:
            return self._info
        device = _find_device()
        _offline(device)
        if _is_processor(device):
            caches = {"workers": int(device.max_compute_units), **cache_limits()}
            architecture = processor().architecture
        else:
            units, cache_bytes = int(device.max_compute_units), int(device.global_mem_cache_size)
            caches = {"multiprocessors": units, "cache_bytes": cache_bytes}
            architecture = str(device.name).strip()
        self._info = DeviceInfo(
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
            sensors=_sensors(device),
        )
        return self._info

    def load(self, binary: Binary) -> OpenclFunction:
        return OpenclFunction(self._open(), binary)

    def allocate(self, nbytes: int) -> OpenclBuffer:
        most = self.describe().limits["max_buffer_bytes"]
        if nbytes > most:
            raise OutOfMemoryError(f"{nbytes} bytes were asked for, and a buffer has at most {most} on this device")
        return OpenclBuffer(self._open(), nbytes)

    def facts(self) -> Mapping[str, Any]:
        try:
            limits, is_gpu = self.describe().limits, not _is_processor(_find_device())
        except BackendUnavailableError:
            limits, is_gpu = {"max_threads_per_block": _MOST_THREADS}, True
        return {**limits, **OpenclBackend.facts(""), "is_gpu": is_gpu}

    def identity(self) -> tuple[str, ...]:
        return _identity(_find_device())

    def environments(self) -> Sequence[Mapping[str, str]]:
        """Return how a process selects each of the devices with the name of this process's device."""
        name = _name_of(_find_device())
        # A name may be part of another one, which then counts in :func:`_find_device`.
        matching = [found for found in map(_name_of, _devices()) if name.lower() in found.lower()]
        return [{_CHOICE: f"{name}#{i}"} for i, found in enumerate(matching) if found == name]

    def wake(self) -> None:
        """Have all threads work for a moment: an idle GPU's clock is low, and a processor's threads sleep."""
        import numpy as np

        opened, cl = self._open(), _pyopencl()
        with opened.failing("the device does not wake"):
            if self._wakes is None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that there is a log
                    program = cl.Program(opened.context, _WAKING_SOURCE).build(cache_dir=False)
                self._wakes = cl.Kernel(program, "mptune_wake")
                self._woken = OpenclBuffer(opened, np.dtype(np.uint32).itemsize * _WAKING_GROUPS)
                self._wakes.set_args(self._woken.for_kernel())
            until = time.monotonic() + (_WAKING_THREADS_S if _is_processor(opened.device) else _WAKING_S)
            while time.monotonic() < until:
                cl.enqueue_nd_range_kernel(opened.queue, self._wakes, (_WAKING_GROUPS,), (1,)).wait()

    def is_usable(self) -> bool:
        try:
            if self._opened is not None:
                self._opened.queue.finish()
        except _pyopencl().Error:
            return False
        return True

    def _open(self) -> _Opened:
        if self._opened is None:
            self._opened = _Opened()
        return self._opened


class OpenclBackend(Backend):
    """A device of an OpenCL driver, the processor's among them.

    Args:
        cache: where compiled binaries are kept; by default the user's cache folder.
    """

    name: ClassVar[str] = "opencl"

    def __init__(self, cache: BinaryCache | None = None) -> None:
        self.device = OpenclDevice()
        self.compiler = OpenclCompiler(cache if cache is not None else BinaryCache())

    @property
    def shares_memory(self) -> bool:
        """Whether the device is a processor; a GPU, be it in the same chip, is given copies."""
        with contextlib.suppress(BackendUnavailableError):
            return _is_processor(_find_device())
        return False

    @classmethod
    def availability(cls) -> Availability:
        try:
            _offline(_find_device())
        except BackendUnavailableError as error:
            return Availability(can_compile=False, can_run=False, reason=str(error))
        return Availability(can_compile=True, can_run=True)
