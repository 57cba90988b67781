"""The base classes of a backend: its compiler, its device, and the buffers and functions of the device.

The interface asks for no more than every device family has. Memory need not have addresses: a :class:`Buffer` may be a
handle whose parts are sub-buffers. A device without symbols in its modules passes constants as further buffers. A
compiler that reads another dialect translates the rendered source.
"""

from __future__ import annotations

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
from mptune.errors import BackendUnavailableError, LaunchError, MptuneError
from mptune.source.flags import on_host, recorded_flags

if TYPE_CHECKING:  # `mptune backends` does not import them
    import numpy as np
    from numpy.typing import NDArray

    from mptune.kernel import Kernel, LaunchShape


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a backend can compile and run here; where not, why and what to install."""

    can_compile: bool
    can_run: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One device."""

    backend: str
    name: str  #: marketing name
    architecture: str  #: the compiler's target ("sm_90", "gfx90a", "znver4")
    memory_bytes: int  #: memory a kernel can use
    #: known limits by name (``max_threads_per_block``, ``max_shared_bytes``, ``warp_size``, ``cache_bytes``: of the
    #: last level, ``own_cache_bytes``: of the cores' own, all together, ...)
    limits: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)  #: of libraries and compilers by name
    #: "domain:bus:device.function" in hexadecimal; empty for a processor, and where the driver does not tell
    pci_bus_id: str = ""
    sensors: str = ""  #: the source of energy and clocks: "nvml", "amd-smi", "processor", or none


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How to compile."""

    architecture: str = ""  #: empty: the device's own
    flags: tuple[str, ...] = ()  #: besides those of every kernel
    timeout_s: float = 60.0
    compilers: tuple[str, ...] = ()  #: those that sources may name (:mod:`mptune.source.flags`)


class Recorded(Protocol):
    """A run's description, or a kernel's wisdom: its backend and the user's flags."""

    @property
    def backend(self) -> str: ...

    @property
    def flags(self) -> tuple[str, ...]: ...


def options_of(known: Recorded, backend: str) -> CompileOptions:
    """Return the options to compile again with; for another backend the macros and header folders alone.

    Raises:
        MptuneError: a file may not ask for one of the flags.
    """
    flags = recorded_flags(known.flags)
    return CompileOptions(flags=flags if backend == known.backend else on_host(flags))


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled source."""

    function: str  #: name of the ``__global__`` function inside
    image: Any  #: the code
    log: str = ""  #: the compiler's output
    cached: bool = False  #: whether it came from the binary cache
    compile_s: float = 0.0  #: wall time of the compiler, 0 for a cached binary


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
        """Return the bytes themselves, read-only, where the host can look at them; None where they have to be read."""
        return None

    @abstractmethod
    def copy_from(self, other: Buffer) -> None:
        """Copy another buffer of the same backend and size, on the device."""

    @abstractmethod
    def fill(self, byte: int) -> None:
        """Set every byte to the same value, on the device."""

    @abstractmethod
    def part(self, offset: int, nbytes: int) -> Buffer:
        """Return some of the bytes as a buffer of their own: the same memory, usable for as long as the whole is.

        A launch may take it only at an offset in the whole that is a multiple of :attr:`Device.part_alignment_bytes`.

        Raises:
            LaunchError: they do not all lie inside.
        """

    @abstractmethod
    def free(self) -> None:
        """Give the memory back; further use is an error."""


#: What a launch passes for one kernel argument: a device buffer or a NumPy scalar of the C++ type's size.
Argument: TypeAlias = "Buffer | np.generic"


class Function(ABC):
    """A loaded kernel function."""

    @abstractmethod
    def set_constant(self, name: str, data: NDArray[Any]) -> None:
        """Copy a contiguous array into the ``__constant__`` array of that name and size; a LaunchError if none is."""

    @abstractmethod
    def read_constant(self, name: str, data: NDArray[Any]) -> None:
        """Copy the ``__constant__`` array of that name and size into a contiguous array; a LaunchError if none is."""

    def resources(self, shape: LaunchShape) -> Mapping[str, float]:  # noqa: ARG002 - for those that have them
        """Return the registers, local and shared memory and occupancy of launches, where the driver reports them."""
        return {}

    @abstractmethod
    def launch(self, shape: LaunchShape, arguments: Sequence[Argument]) -> float:
        """Run the grid to its end and return the device time in milliseconds.

        Raises:
            LaunchError: the device refused or aborted the launch.
        """

    def enqueue(self, shape: LaunchShape, arguments: Sequence[Argument], count: int = 1) -> None:
        """Run the grid ``count`` times after the device's present work, without waiting where the device allows it.

        Only for a shape :meth:`launch` has run before.
        """
        for _ in range(count):
            self.launch(shape, arguments)

    def wait(self) -> None:  # noqa: B027 - nothing to wait for where launches do
        """Wait until everything enqueued has run; raises a :class:`LaunchError` if the device aborted it."""

    @abstractmethod
    def unload(self) -> None:
        """Release the code; further use is an error."""


class Compiler(ABC):
    """Turns rendered sources into binaries; usable from any thread. Making one is cheap and looks for nothing."""

    @abstractmethod
    def compile(self, source: str, function: str, options: CompileOptions) -> Binary:
        """Compile a rendered source; needs no device if ``options.architecture`` is given.

        Raises:
            CompileError: the compiler rejected the source, crashed or ran out of time.
            BackendUnavailableError: there is no compiler.
        """

    @abstractmethod
    def identity(self, options: CompileOptions) -> tuple[str, ...]:
        """Return what its binaries depend on besides the source and :meth:`versions`."""

    @abstractmethod
    def versions(self) -> Mapping[str, str]:
        """Return the version of the compiler by its name; nothing if it is not installed."""

    def translated(self, source: str) -> str:
        """Return a rendered source in the dialect this compiler reads: what :meth:`compile` does to it first."""
        return source

    def resolved(self, options: CompileOptions) -> CompileOptions:
        """Return options with which :meth:`compile` makes the same binary without looking at the device.

        Raises:
            BackendUnavailableError: they depend on the device, and there is none.
        """
        return options

    def listing(self, source: str, function: str, options: CompileOptions) -> str | None:  # noqa: ARG002
        """Return the assembly of a rendered source; None if this compiler gives none."""
        return None

    def vector_share(self, binary: Binary) -> float:  # noqa: ARG002
        """Return the share of a binary's floating-point arithmetic that is on vectors; NaN if that is not known."""
        return math.nan

    def stay(self, compilers: int) -> None:  # noqa: B027 - optional
        """Keep processes for so many compilations at a time until :meth:`close`; before the first of many sources."""

    def paused(self) -> AbstractContextManager[None]:
        """Hold up the compilations of all threads for the length of a block, if they would disturb a timing."""
        return nullcontext()

    def close(self) -> None:  # noqa: B027 - optional
        """Give up the compilations of other threads, which raise a :class:`CompileError`, and end all processes."""


class Device(ABC):
    """Where kernels run: memory and launches. Making one is cheap; the device is opened when it is first needed."""

    #: A part of a buffer can be given to a kernel if its offset is a multiple of this; other uses take any offset.
    part_alignment_bytes: ClassVar[int] = 1

    @abstractmethod
    def describe(self) -> DeviceInfo:
        """Describe the device launches go to.

        Raises:
            BackendUnavailableError: there is none.
        """

    @abstractmethod
    def load(self, binary: Binary) -> Function:
        """Make a compiled function launchable; raises a :class:`LaunchError` for a binary that cannot be loaded."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Buffer:
        """Allocate device memory, aligned for the widest vector load; raises an :class:`OutOfMemoryError`."""

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Return what constraints may name as ``device.NAME``: :meth:`Backend.facts` and the limits of the device.

        Launches are kept to ``max_threads_per_block``, ``max_shared_bytes``, ``max_block_x``, ``max_grid_x`` and
        ``max_threads_x`` (along an axis of the grid), and so on.
        """

    def identity(self) -> tuple[str, ...]:
        """Return what timings depend on besides what :meth:`describe` tells."""
        return ()

    def wake(self) -> None:  # noqa: B027 - optional
        """Have an idle device work until its clocks are up; before something is timed."""

    def is_usable(self) -> bool:
        """Whether further launches can succeed; a fault can leave a device unusable until the process ends."""
        return True

    def environments(self) -> Sequence[Mapping[str, str]]:
        """Return, for each device there is, the environment variables with which a process sees that device alone."""
        return ({},)

    def array_namespace(self) -> Any:
        """Return the NumPy-like module that computes on arrays in the device's memory; None if there is none."""
        return None

    def array(self, buffer: Buffer, dtype: np.dtype[Any]) -> Any:  # noqa: ARG002 - for those that have them
        """Return a buffer as a one-dimensional array of :meth:`array_namespace`, valid for as long as the buffer is.

        The type is one of NumPy's own.
        """
        raise BackendUnavailableError("this backend has no arrays on the device")


class Backend(ABC):
    """A device family."""

    name: ClassVar[str]
    #: Whether the driver reports the registers, shared memory and occupancy of functions (:meth:`Function.resources`).
    tells_resources: ClassVar[bool] = False
    #: An architecture that every compiler of the family knows, for where there is no device; empty if it needs none.
    common_architecture: ClassVar[str] = ""

    compiler: Compiler
    device: Device  #: the first one this process sees
    #: Whether the times of launches are without what other tasks took of the processor.
    has_own_time: ClassVar[bool] = False

    @property
    def shares_memory(self) -> bool:
        """Whether kernels run in this machine's own memory, on the cores that compile.

        They can damage whatever else is in their process, and measuring several at a time, or while something computes,
        disturbs the timings.
        """
        return False

    @classmethod
    @abstractmethod
    def availability(cls) -> Availability:
        """Say whether this backend can compile and run on this machine, and if not why."""

    @staticmethod
    def available_if(check: Callable[[], object]) -> Availability:
        """Say that this backend can compile and run unless a check raises an :class:`~mptune.errors.MptuneError`."""
        try:
            check()
        except MptuneError as error:
            return Availability(can_compile=False, can_run=False, reason=str(error))
        return Availability(can_compile=True, can_run=True)

    @classmethod
    def facts(cls, architecture: str) -> Mapping[str, Any]:  # noqa: ARG003 - for those that have matrix units
        """Return what constraints may say of any device of an architecture: ``is_gpu`` and ``matrix_units``."""
        return {"is_gpu": True, "matrix_units": ""}

    def prepared(self, kernel: Kernel, compilers: Sequence[str], flag_sets: Sequence[str]) -> Kernel:
        """Return a kernel with the compilers and the sets of flags, where any are given, as parameters.

        Raises:
            BackendUnavailableError: this backend has no choice of compilers, or one is not installed.
            MptuneError: a flag is not one of optimisation, or the kernel has a parameter of the same name.
        """
        if compilers:
            raise BackendUnavailableError(f"backend {self.name} has one compiler: --compiler is for backend host")
        if flag_sets:
            raise BackendUnavailableError(f"backend {self.name}: --compiler-flag-set is for backend host")
        return kernel

    def describe(self) -> DeviceInfo:
        """Describe the device, with the versions of its compiler; raises a :class:`BackendUnavailableError`."""
        found = self.device.describe()
        return dataclasses.replace(found, versions={**found.versions, **self.compiler.versions()})

    def identity(self, options: CompileOptions) -> str:
        """Return what timings depend on besides the source: device, compiler, versions and flags."""
        info = self.describe()
        versions = ";".join(f"{k}={v}" for k, v in sorted(info.versions.items()))
        known = (info.backend, info.name, info.architecture, versions)
        return "|".join((*known, *self.device.identity(), *self.compiler.identity(options)))


# -- what backends have in common ------------------------------------------------------------------

_INTERESTING: Final = re.compile(r"\b(error|fatal|undefined reference|static assertion failed|ptxas)\b", re.IGNORECASE)


def excerpt(log: str) -> str:
    """Return a compiler's first error with what follows it, or the start of a log without any."""
    lines = [line for line in log.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if _INTERESTING.search(line)), 0)
    shown = lines[first : first + 25]
    left = len(lines) - first - len(shown)
    return "\n".join([*shown, f"... {left} more lines"] if left else shown)


def compile_cached(
    cache: BinaryCache, key: Sequence[str], function: str, compile_one: Callable[[], tuple[bytes, str]]
) -> Binary:
    """Return the binary of a key from the cache, or compile it (to the code and the compiler's output) and keep it."""
    kept_as = cache.key(key)
    if (cached := cache.get(kept_as)) is not None:
        return Binary(function, cached, cached=True)
    start = time.perf_counter()
    image, log = compile_one()
    compile_s = time.perf_counter() - start
    cache.put(kept_as, image)
    return Binary(function, image, log, compile_s=compile_s)


def check_part(whole: Buffer, offset: int, nbytes: int) -> None:
    """Raise a :class:`LaunchError` for bytes that do not all lie inside a buffer."""
    if not (0 <= offset <= offset + nbytes <= whole.nbytes):
        raise LaunchError(f"bytes {offset} to {offset + nbytes} are not all inside a buffer of {whole.nbytes} bytes")


def in_words(argument: object) -> str:
    """Describe an argument for a message."""
    if isinstance(argument, Buffer):
        return f"a {type(argument).__name__} of {argument.nbytes} bytes"
    dtype = getattr(argument, "dtype", None)
    if dtype is not None and getattr(argument, "shape", None) == ():
        return f"a {dtype} scalar of {dtype.itemsize} bytes"
    return f"{type(argument).__name__} {argument!r}"
