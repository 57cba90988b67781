"""What a backend is: a device family that compiles, loads, allocates and launches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from mptune.errors import BackendUnavailableError, LaunchError

if TYPE_CHECKING:  # what can run here is told without them
    import numpy as np
    from numpy.typing import NDArray

    from mptune.kernel import LaunchShape
    from mptune.resources import Resources

__all__ = [
    "Argument",
    "Availability",
    "Backend",
    "Binary",
    "Buffer",
    "CompileOptions",
    "DeviceInfo",
    "Function",
    "check_part",
]


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a backend can compile and run here; where not, why and what to install."""

    can_compile: bool
    can_run: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One device.

    Attributes:
        backend: name of the backend.
        name: marketing name of the device.
        architecture: what the compiler targets ("sm_90", "gfx90a", "znver4").
        memory_bytes: memory a kernel can use.
        limits: known limits by name (``max_threads_per_block``, ``max_shared_bytes``, ``warp_size``,
            ``cache_bytes``: of the last level, ...).
        versions: library and compiler versions by name.
        pci_bus_id: where it sits, as "domain:bus:device.function" in hexadecimal; empty for the processor.
    """

    backend: str
    name: str
    architecture: str
    memory_bytes: int
    limits: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    pci_bus_id: str = ""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How to compile: target architecture (empty: the device's own), extra flags and a time limit."""

    architecture: str = ""
    flags: tuple[str, ...] = ()
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled source.

    Attributes:
        function: name of the ``__global__`` function inside.
        image: the code, as bytes or as the path of a file.
        log: what the compiler printed.
        cached: whether it came from the binary cache.
        compile_s: wall time the compiler took, 0 for a cached binary.
    """

    function: str
    image: Any
    log: str = ""
    cached: bool = False
    compile_s: float = 0.0


class Buffer(ABC):
    """Device memory of one argument, owned by the backend that allocated it."""

    nbytes: int

    @abstractmethod
    def write(self, data: NDArray[Any]) -> None:
        """Copy a contiguous host array of ``nbytes`` bytes to the device."""

    @abstractmethod
    def read(self, data: NDArray[Any]) -> None:
        """Copy the device memory into a contiguous host array of ``nbytes`` bytes."""

    @abstractmethod
    def copy_from(self, other: Buffer) -> None:
        """Copy another buffer of the same backend and size, on the device."""

    @abstractmethod
    def fill(self, byte: int) -> None:
        """Set every byte to the same value, on the device."""

    @abstractmethod
    def part(self, offset: int, nbytes: int) -> Buffer:
        """Return some of the bytes as a buffer of their own: the same memory, usable for as long as the whole is.

        Raises:
            LaunchError: they do not all lie inside.
        """

    @abstractmethod
    def free(self) -> None:
        """Give the memory back; further use is an error."""


def check_part(whole: Buffer, offset: int, nbytes: int) -> None:
    """Check that bytes lie inside a buffer.

    Raises:
        LaunchError: they do not.
    """
    if not (0 <= offset <= offset + nbytes <= whole.nbytes):
        raise LaunchError(f"bytes {offset} to {offset + nbytes} are not all inside a buffer of {whole.nbytes} bytes")


#: What a launch passes for one kernel argument: a device buffer or a NumPy scalar of the C++ type's size.
Argument: TypeAlias = "Buffer | np.generic"


class Function(ABC):
    """A loaded kernel function."""

    @abstractmethod
    def set_constant(self, name: str, data: NDArray[Any]) -> None:
        """Copy a contiguous array into the ``__constant__`` array of that name and size.

        Raises:
            LaunchError: there is none.
        """

    @abstractmethod
    def launch(self, shape: LaunchShape, arguments: Sequence[Argument]) -> float:
        """Run the grid to its end and return the device time in milliseconds.

        Raises:
            LaunchError: the device refused or aborted the launch.
        """

    def enqueue(self, shape: LaunchShape, arguments: Sequence[Argument], count: int = 1) -> None:
        """Run the grid so many times after whatever the device does now, without waiting where the device allows it.

        Only for a shape :meth:`launch` has run before.

        Raises:
            LaunchError: the device refused the launch.
        """
        for _ in range(count):
            self.launch(shape, arguments)

    def wait(self) -> None:  # noqa: B027 - nothing to wait for where launches do
        """Wait until everything enqueued has run.

        Raises:
            LaunchError: the device aborted it.
        """

    @abstractmethod
    def unload(self) -> None:
        """Release the code; further use is an error."""


class Backend(ABC):
    """A device family. Constructing one is cheap and loads no device library."""

    name: ClassVar[str]
    #: Whether kernels run in this process's own memory and can damage whatever else is in it.
    shares_memory: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def availability(cls) -> Availability:
        """Say whether this backend can compile and run on this machine, and if not why."""

    @abstractmethod
    def device(self) -> DeviceInfo:
        """Describe the device launches go to.

        Raises:
            BackendUnavailableError: there is none.
        """

    def environments(self) -> Sequence[Mapping[str, str]]:
        """Return, for each device there is, the variables with which a process sees that device alone.

        Raises:
            BackendUnavailableError: there is none.
        """
        return ({},)

    @abstractmethod
    def compile(self, source: str, function: str, options: CompileOptions) -> Binary:
        """Compile a rendered source; needs no device when ``options.architecture`` is given.

        Raises:
            CompileError: the compiler rejected the source, crashed or ran out of time.
            BackendUnavailableError: there is no compiler.
        """

    def expect_compilations(self, options: CompileOptions) -> None:  # noqa: B027 - optional
        """Get ready for many compilations with the same options, up to :meth:`give_up_compilations`."""

    def compilations_paused(self) -> AbstractContextManager[None]:
        """Hold up the compilations of other threads for the length of a block, if they would disturb a timing."""
        return nullcontext()

    def give_up_compilations(self) -> None:  # noqa: B027 - optional
        """End the compilations of other threads; they raise a :class:`CompileError`."""

    def resolved(self, options: CompileOptions) -> CompileOptions:
        """Return options with which :meth:`compile` makes the same binary without looking at the device.

        Raises:
            BackendUnavailableError: they depend on the device, and there is none.
        """
        return options

    @abstractmethod
    def load(self, binary: Binary) -> Function:
        """Make a compiled function launchable.

        Raises:
            LaunchError: the binary cannot be loaded.
        """

    def resources(self, binary: Binary) -> Resources | None:  # noqa: ARG002
        """Return what a compiled function takes of a multiprocessor, None where the device has no such thing.

        Raises:
            MptuneError: the binary does not tell.
        """
        return None

    @abstractmethod
    def allocate(self, nbytes: int) -> Buffer:
        """Allocate device memory, aligned for the widest vector load.

        Raises:
            OutOfMemoryError: there is not enough.
        """

    def array_namespace(self) -> Any:
        """Return the NumPy-like module that computes on arrays in the device's memory, None where there is none."""
        return None

    def array(self, buffer: Buffer, dtype: np.dtype[Any]) -> Any:  # noqa: ARG002 - for those that have them
        """Return a buffer as a one-dimensional array of :meth:`array_namespace`, valid for as long as the buffer is.

        Args:
            buffer: one of this backend's.
            dtype: a type NumPy itself has.

        Raises:
            BackendUnavailableError: there is no such module.
        """
        raise BackendUnavailableError(f"backend {self.name} has no arrays on the device")

    def is_usable(self) -> bool:
        """Whether further launches can succeed; a fault can leave a device unusable until the process ends."""
        return True

    @abstractmethod
    def constraints(self) -> tuple[str, ...]:
        """Return what every launch on this device must satisfy, as constraints over block and shared memory."""

    def identity(self, options: CompileOptions) -> str:
        """Return what timings depend on beside the source: device, compiler, versions and flags."""
        info = self.device()
        versions = ";".join(f"{k}={v}" for k, v in sorted(info.versions.items()))
        return "|".join((info.backend, info.name, info.architecture, versions, options.architecture, *options.flags))
