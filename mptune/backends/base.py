"""The base classes of a backend: its compiler, its device, and the buffers and functions of the device.

The interface suits devices without addresses, whose :class:`Buffer` is a handle with sub-buffers as parts, and devices
without symbols in modules, which pass constants as buffers. A compiler of another dialect translates the source.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias

from mptune.backends.binary_cache import BinaryCache
from mptune.errors import BackendUnavailableError, MptuneError
from mptune.source.flags import on_host, recorded_flags

if TYPE_CHECKING:  # `mptune backends` does not import them
    import numpy as np
    from numpy.typing import NDArray

    from mptune.kernel import Kernel, LaunchShape


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a backend can compile and run here; if not, the reason and what to install."""

    can_compile: bool
    can_run: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One device."""

    backend: str
    name: str  #: marketing name
    architecture: str  #: the compiler's target ("sm_90", "gfx90a", "znver4")
    memory_bytes: int  #: memory that a kernel can use
    #: limits by name: ``max_threads_per_block``, ``max_shared_bytes``, ``warp_size``, ``cache_bytes`` (last level),
    #: ``own_cache_bytes`` (second level of all cores), ...
    limits: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)  #: versions of libraries and compilers by name
    #: "domain:bus:device.function" in hexadecimal; empty for a processor, or if the driver does not report it
    pci_bus_id: str = ""
    sensors: str = ""  #: the source of energy and clocks: "nvml", "amd-smi", "processor"; empty for none


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of a compilation."""

    architecture: str = ""  #: empty for the device's own
    flags: tuple[str, ...] = ()  #: in addition to the flags of every kernel
    timeout_s: float = 60.0
    compilers: tuple[str, ...] = ()  #: compilers that sources may name (:mod:`mptune.source.flags`)


class Recorded(Protocol):
    """A run's description, or a kernel's wisdom: its backend and the user's flags."""

    @property
    def backend(self) -> str: ...

    @property
    def flags(self) -> tuple[str, ...]: ...


def options_of(known: Recorded, backend: str) -> CompileOptions:
    """Return a run's compile options; for another backend only its macros and header folders.

    Raises:
        MptuneError: a flag is not allowed in a file.
    """
    flags = recorded_flags(known.flags)
    return CompileOptions(flags=flags if backend == known.backend else on_host(flags))


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled source."""

    function: str  #: name of the ``__global__`` function inside
    image: Any  #: the code, opaque to other modules
    log: str = ""  #: the compiler's output
    cached: bool = False  #: whether it is from the binary cache
    compile_s: float = 0.0  #: wall time of the compiler; 0 for a cached binary


class Buffer(ABC):
    """Device memory of one argument, owned by the backend that allocated it."""

    nbytes: int

    @abstractmethod
    def write(self, data: NDArray[Any]) -> None:
        """Copy a contiguous host array of ``nbytes`` bytes to the device."""

    @abstractmethod
    def read(self, data: NDArray[Any]) -> None:
        """Copy the device memory into a contiguous host array of ``nbytes`` bytes."""

    def seen(self) -> NDArray[Any] | None:
        """Return a read-only view of the bytes if the host can access them, else None."""
        return None

    @abstractmethod
    def copy_from(self, other: Buffer) -> None:
        """Copy another buffer of the same backend and size, on the device."""

    @abstractmethod
    def fill(self, byte: int) -> None:
        """Set every byte to the same value, on the device."""

    @abstractmethod
    def part(self, offset: int, nbytes: int) -> Buffer:
        """Return a part of the buffer, which shares its memory and lifetime.

        A launch accepts a part only if its offset is a multiple of :attr:`Device.part_alignment_bytes`.

        Raises:
            LaunchError: the part is not inside the buffer.
        """

    @abstractmethod
    def free(self) -> None:
        """Release the memory; further use is an error."""


#: An argument of a launch: a device buffer, or a NumPy scalar of the C++ type's size.
Argument: TypeAlias = "Buffer | np.generic"


class Function(ABC):
    """A loaded kernel function."""

    @abstractmethod
    def set_constant(self, name: str, data: NDArray[Any]) -> None:
        """Copy a contiguous array into the ``__constant__`` array of a name; raise LaunchError if there is none."""

    @abstractmethod
    def read_constant(self, name: str, data: NDArray[Any]) -> None:
        """Copy the ``__constant__`` array of a name into a contiguous array; raise LaunchError if there is none."""

    def resources(self, shape: LaunchShape) -> Mapping[str, float]:  # noqa: ARG002 - used by overrides
        """Return registers, local and shared memory and occupancy of launches; empty if the driver reports none."""
        return {}

    @abstractmethod
    def launch(self, shape: LaunchShape, arguments: Sequence[Argument]) -> float:
        """Run the grid to its end and return the device time in milliseconds.

        Raises:
            LaunchError: the device refused or aborted the launch.
        """

    def enqueue(self, shape: LaunchShape, arguments: Sequence[Argument], count: int = 1) -> None:
        """Enqueue the grid ``count`` times, without waiting if the device allows it.

        :meth:`launch` must have run the shape before.
        """
        for _ in range(count):
            self.launch(shape, arguments)

    def wait(self) -> None:  # noqa: B027 - optional
        """Wait until every enqueued launch has run; raise a :class:`LaunchError` if the device aborted one."""

    @abstractmethod
    def unload(self) -> None:
        """Release the code; further use is an error."""


class Compiler(ABC):
    """Compiles rendered sources, from any thread. The constructor is cheap and does not look for the compiler."""

    @abstractmethod
    def compile(self, source: str, function: str, options: CompileOptions) -> Binary:
        """Compile a rendered source; needs no device if ``options.architecture`` is given.

        Raises:
            CompileError: the compiler rejected the source, crashed or ran out of time.
            BackendUnavailableError: there is no compiler.
        """

    @abstractmethod
    def identity(self, options: CompileOptions) -> tuple[str, ...]:
        """Return all dependencies of its binaries besides the source and :meth:`versions`."""

    @abstractmethod
    def versions(self) -> Mapping[str, str]:
        """Return the version of the compiler by its name; empty if it is not installed."""

    def translated(self, source: str) -> str:
        """Return a rendered source in the compiler's dialect."""
        return source

    def resolved(self, options: CompileOptions) -> CompileOptions:
        """Return options for the same binary that do not depend on the device.

        Raises:
            BackendUnavailableError: the options depend on the device, and there is none.
        """
        return options

    def listing(self, source: str, function: str, options: CompileOptions) -> str | None:  # noqa: ARG002
        """Return the assembly of a rendered source; None if the compiler has no listing."""
        return None

    def vector_share(self, binary: Binary) -> float:  # noqa: ARG002
        """Return the fraction of vector instructions in a binary's floating-point arithmetic; NaN if unknown."""
        return math.nan

    def stay(self, compilers: int, options: CompileOptions) -> None:  # noqa: B027 - optional
        """Keep processes for so many compilations at a time until :meth:`close`; before the first of many sources."""

    def paused(self) -> AbstractContextManager[None]:
        """Pause the compilations of all threads for a block, if they would disturb a timing."""
        return nullcontext()

    def close(self) -> None:  # noqa: B027 - optional
        """Cancel the compilations of other threads, which raise a :class:`CompileError`, and end all processes."""


class Device(ABC):
    """Memory and launches of a device. The constructor is cheap; the device is opened when first needed."""

    #: Alignment of a buffer's part in a launch; other uses take any offset.
    part_alignment_bytes: ClassVar[int] = 1

    @abstractmethod
    def describe(self) -> DeviceInfo:
        """Describe the device.

        Raises:
            BackendUnavailableError: there is no device.
        """

    @abstractmethod
    def load(self, binary: Binary) -> Function:
        """Load a compiled function; raise a :class:`LaunchError` if that fails."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Buffer:
        """Allocate device memory, aligned for the widest vector load; raise an :class:`OutOfMemoryError`."""

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Return the names of constraints' ``device.NAME``: :meth:`Backend.facts` and the limits of the device.

        Launches respect ``max_threads_per_block``, ``max_shared_bytes``, and along each axis ``max_block_x``,
        ``max_grid_x`` and ``max_threads_x`` (of the whole grid).
        """

    def identity(self) -> tuple[str, ...]:
        """Return further properties that timings depend on, besides :meth:`describe`."""
        return ()

    def wake(self) -> None:  # noqa: B027 - optional
        """Keep an idle device busy until its clocks are up, before a timing."""

    def is_usable(self) -> bool:
        """Whether further launches can succeed; a fault can leave a device unusable until the process ends."""
        return True

    def environments(self) -> Sequence[Mapping[str, str]]:
        """Return environment variables for each device of the machine that make it the only one of a process."""
        return ({},)

    def array_namespace(self) -> Any:
        """Return the NumPy-like module of arrays in the device's memory; None if there is none."""
        return None

    def array(self, buffer: Buffer, dtype: np.dtype[Any]) -> Any:  # noqa: ARG002 - used by overrides
        """Return a buffer as a vector of :meth:`array_namespace` in a NumPy type; it shares the buffer's lifetime."""
        raise BackendUnavailableError("this backend has no arrays on the device")


class Backend(ABC):
    """A device family."""

    name: ClassVar[str]
    #: Whether the driver reports the registers, shared memory and occupancy of functions (:meth:`Function.resources`).
    tells_resources: ClassVar[bool] = False
    #: An architecture that every compiler of the family supports, for use without a device; empty if none is needed.
    common_architecture: ClassVar[str] = ""
    #: Whether the times of launches exclude the processor time of other tasks.
    has_own_time: ClassVar[bool] = False

    compiler: Compiler
    device: Device  #: the first device visible to this process

    @property
    def shares_memory(self) -> bool:
        """Whether kernels run in this machine's own memory, on the cores that compile.

        Then they can damage their process, and concurrent measurements or computations disturb the timings.
        """
        return False

    @classmethod
    @abstractmethod
    def availability(cls) -> Availability:
        """Return whether this backend can compile and run on this machine, or the reason why not."""

    @staticmethod
    def available_if(check: Callable[[], object]) -> Availability:
        """Return that a backend is available unless a check raises an :class:`~mptune.errors.MptuneError`."""
        try:
            check()
        except MptuneError as error:
            return Availability(can_compile=False, can_run=False, reason=str(error))
        return Availability(can_compile=True, can_run=True)

    @classmethod
    def facts(cls, architecture: str) -> Mapping[str, Any]:  # noqa: ARG003 - used by overrides
        """Return the facts of every device of an architecture for constraints: ``is_gpu`` and ``matrix_units``."""
        return {"is_gpu": True, "matrix_units": ""}

    def prepared(self, kernel: Kernel, compilers: Sequence[str], flag_sets: Sequence[str]) -> Kernel:
        """Return a kernel with the given compilers and sets of flags as parameters.

        Raises:
            BackendUnavailableError: this backend has no choice of compilers, or a compiler is not installed.
            MptuneError: a flag is not allowed, or the kernel has a parameter of the same name.
        """
        if compilers:
            raise BackendUnavailableError(f"backend {self.name} has one compiler: --compiler is for backend host")
        if flag_sets:
            raise BackendUnavailableError(f"backend {self.name}: --compiler-flag-set is for backend host")
        return kernel

    def compile_line(self, options: CompileOptions, mark: str = "") -> None:
        """Compile a kernel of one line with a mark in it; raise CompileError if compiler or flags do not work here."""
        from mptune.cpp.prelude import prelude  # slow

        kernel = f'extern "C" __global__ void one_line(int* x) {{ *x = 1; }}  // {mark}'
        source = f"{prelude()}\n{kernel}\n#if defined(MPTUNE_HOST)\nMPTUNE_HOST_ENTRY(one_line)\n#endif\n"
        with contextlib.closing(self.compiler) as compiler:
            compiler.compile(source, "one_line", options)

    def describe(self) -> DeviceInfo:
        """Describe the device, with the versions of its compiler; raise a :class:`BackendUnavailableError`."""
        found = self.device.describe()
        return dataclasses.replace(found, versions={**found.versions, **self.compiler.versions()})

    def identity(self, options: CompileOptions) -> str:
        """Return all dependencies of timings besides the source: device, compiler, versions and flags."""
        info = self.describe()
        versions = ";".join(f"{k}={v}" for k, v in sorted(info.versions.items()))
        known = (info.backend, info.name, info.architecture, versions)
        return "|".join((*known, *self.device.identity(), *self.compiler.identity(options)))


# -- helpers of backends ---------------------------------------------------------------------------

_INTERESTING: Final = re.compile(
    r"\b(error|fatal|undefined reference|cannot find|static assertion failed|ptxas)\b", re.IGNORECASE
)


def excerpt(log: str) -> str:
    """Return up to 25 lines of a compiler's log, from the first error or else from the start."""
    lines = [line for line in log.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if _INTERESTING.search(line)), 0)
    shown = lines[first : first + 25]
    left = len(lines) - first - len(shown)
    return "\n".join([*shown, f"... {left} more lines"] if left else shown)


def compile_cached(
    cache: BinaryCache, key: Sequence[str], function: str, compile_one: Callable[[], tuple[bytes, str]]
) -> Binary:
    """Return the binary of a key from the cache, or compile and cache it; ``compile_one`` returns code and log."""
    name = cache.key(key)
    if (cached := cache.get(name)) is not None:
        return Binary(function, cached, cached=True)
    start = time.perf_counter()
    image, log = compile_one()
    compile_s = time.perf_counter() - start
    cache.put(name, image)
    return Binary(function, image, log, compile_s=compile_s)


def in_words(argument: object) -> str:
    """Describe an argument for a message."""
    if isinstance(argument, Buffer):
        return f"a {type(argument).__name__} of {argument.nbytes} bytes"
    dtype = getattr(argument, "dtype", None)
    if dtype is not None and getattr(argument, "shape", None) == ():
        return f"a {dtype} scalar of {dtype.itemsize} bytes"
    return f"{type(argument).__name__} {argument!r}"
