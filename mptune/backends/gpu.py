"""What CUDA and HIP devices have in common; a :class:`Driver` supplies the few calls that differ."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

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
    check_data,
    check_part,
    compile_cached,
    in_words,
)
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.runtime_compiler import RuntimeCompiler
from mptune.errors import BackendUnavailableError, LaunchError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mptune.kernel import LaunchShape
    from mptune.resources import Resources

__all__ = ["Driver", "GpuBackend", "GpuBuffer", "GpuCompiler", "GpuDevice", "GpuFunction", "axis_limits"]

_DEFAULT_LIMITS: Final = {"max_threads_per_block": 1024}
#: What of a launch is limited, by which limit.
_LIMITED: Final = {
    "threads_per_block": "max_threads_per_block",
    "shared_bytes": "max_shared_bytes",
    **{f"{what}_{axis}": f"max_{what}_{axis}" for what in ("block", "grid") for axis in "xyz"},
}


class Driver(Protocol):
    """The calls of a GPU driver, on one device and one stream.

    Memory is an address, modules and functions are opaque handles. Failures are
    :class:`~mptune.errors.LaunchError`, memory running out is :class:`~mptune.errors.OutOfMemoryError`.
    """

    def describe(self) -> DeviceInfo:
        """Describe the device; ``limits`` hold ``max_threads_per_block`` and ``max_shared_bytes``."""

    def allocate(self, nbytes: int) -> int:
        """Return the address of new device memory."""

    def free(self, address: int) -> None:
        """Give device memory back."""

    def copy_in(self, target: int, source: int, nbytes: int) -> None:
        """Copy host memory to the device."""

    def copy_out(self, target: int, source: int, nbytes: int) -> None:
        """Copy device memory to the host."""

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device."""

    def fill(self, target: int, byte: int, nbytes: int) -> None:
        """Set device memory to one byte."""

    def load(self, image: bytes) -> Any:
        """Load a compiled image and return the module."""

    def unload(self, module: Any) -> None:
        """Release a module."""

    def function(self, module: Any, name: str) -> Any:
        """Return the function of that name."""

    def symbol(self, module: Any, name: str) -> int:
        """Return the address of a module's variable."""

    def max_threads(self, function: Any) -> int:
        """Return the threads of the largest block of a function; its registers may allow fewer than the device."""

    def launch(self, function: Any, shape: LaunchShape, arguments: int) -> float:
        """Run a function to its end; ``arguments`` is the address of an array of pointers to their values.

        Returns:
            Device time in milliseconds.
        """

    def enqueue(self, function: Any, shape: LaunchShape, arguments: int) -> None:
        """Run a function of a shape :meth:`launch` has run, without waiting; copies the arguments' values at once."""

    def synchronize(self) -> None:
        """Wait for the device; raises what an earlier fault left behind."""

    def array_namespace(self) -> Any:
        """Return the NumPy-like module that computes on the device, None where there is none."""

    def array(self, address: int, nbytes: int, dtype: np.dtype[Any]) -> Any:
        """Return device memory as a one-dimensional array of that module."""


class GpuBuffer(Buffer):
    """Device memory.

    Args:
        driver: allocates and copies.
        nbytes: size.
    """

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self.nbytes = nbytes
        self._driver = driver
        self._address: int | None = driver.allocate(nbytes)

    @property
    def address(self) -> int:
        """Where the memory starts on the device.

        Raises:
            LaunchError: the buffer was freed.
        """
        if self._address is None:
            raise LaunchError(f"a device buffer of {self.nbytes} bytes was used after it was freed")
        return self._address

    def write(self, data: NDArray[Any]) -> None:
        """Copy a contiguous host array of ``nbytes`` bytes to the device."""
        self._driver.copy_in(self.address, self._host_address(data), self.nbytes)

    def read(self, data: NDArray[Any]) -> None:
        """Copy the device memory into a contiguous host array of ``nbytes`` bytes."""
        self._driver.copy_out(self._host_address(data), self.address, self.nbytes)

    def copy_from(self, other: Buffer) -> None:
        """Copy another buffer of the same size, on the device."""
        if not isinstance(other, GpuBuffer) or other.nbytes != self.nbytes:
            raise LaunchError(f"a device buffer of {self.nbytes} bytes cannot be copied from {in_words(other)}")
        self._driver.copy(self.address, other.address, self.nbytes)

    def fill(self, byte: int) -> None:
        """Set every byte to the same value, on the device."""
        self._driver.fill(self.address, byte, self.nbytes)

    def part(self, offset: int, nbytes: int) -> GpuBuffer:
        """Return some of the bytes as a buffer of their own."""
        check_part(self, offset, nbytes)
        return _GpuPart(self._driver, self, offset, nbytes)

    def free(self) -> None:
        """Give the memory back."""
        if self._address is not None:
            self._driver.free(self._address)
            self._address = None

    def _host_address(self, data: NDArray[Any]) -> int:
        check_data(self, data)
        return int(data.ctypes.data)


class _GpuPart(GpuBuffer):
    """Memory inside another buffer, which owns it."""

    def __init__(self, driver: Driver, whole: GpuBuffer, offset: int, nbytes: int) -> None:
        self.nbytes = nbytes
        self._driver = driver
        self._whole = whole
        self._offset = offset

    @property
    def address(self) -> int:
        """Where the memory starts on the device."""
        return self._whole.address + self._offset

    def free(self) -> None:
        """Do nothing: the memory ends with the whole."""


class GpuFunction(Function):
    """A loaded kernel.

    Args:
        driver: loads and launches.
        binary: what the compiler made.
    """

    def __init__(self, driver: Driver, binary: Binary) -> None:
        self.name = binary.function
        self._driver = driver
        self._module = driver.load(binary.image)
        self._function = driver.function(self._module, binary.function)
        self._max_threads = driver.max_threads(self._function)

    def set_constant(self, name: str, data: NDArray[Any]) -> None:
        """Copy a contiguous array into the ``__constant__`` array of that name and size."""
        if self._module is None:
            raise LaunchError(f"{self.name} was given {name!r} after it was unloaded")
        self._driver.copy_in(self._driver.symbol(self._module, name), int(data.ctypes.data), data.nbytes)

    def launch(self, shape: LaunchShape, arguments: Sequence[Argument]) -> float:
        """Run the grid to its end and return the device time in milliseconds."""
        self._check(shape)
        pointers, values = _pack(self.name, arguments)
        elapsed_ms = self._driver.launch(self._function, shape, ctypes.addressof(pointers))
        del values
        return elapsed_ms

    def enqueue(self, shape: LaunchShape, arguments: Sequence[Argument], count: int = 1) -> None:
        """Run the grid so many times after whatever the device does now, without waiting."""
        self._check(shape)
        pointers, values = _pack(self.name, arguments)
        for _ in range(count):
            self._driver.enqueue(self._function, shape, ctypes.addressof(pointers))
        del values

    def wait(self) -> None:
        """Wait until everything enqueued has run."""
        self._driver.synchronize()

    def _check(self, shape: LaunchShape) -> None:
        if self._module is None:
            raise LaunchError(f"{self.name} was launched after it was unloaded")
        threads = math.prod(shape.block)
        if threads > self._max_threads:
            raise LaunchError(
                f"{self.name} needs so many registers that at most {self._max_threads} threads fit a block; "
                f"the block {shape.block} has {threads}"
            )

    def unload(self) -> None:
        """Release the code."""
        if self._module is not None:
            self._driver.unload(self._module)
            self._module = None


class GpuCompiler(Compiler):
    """A runtime compiler, with the flags of one vendor.

    Args:
        open_library: returns it; raises BackendUnavailableError if it is not installed.
        flags: for every source.
        architecture_flag: how it is told the architecture, with a trailing "=".
        device: whose architecture sources are compiled for if the options name none.
        read_resources: reads from a binary what a function takes of a multiprocessor.
        cache: where binaries are kept.
    """

    def __init__(
        self,
        open_library: Callable[[], RuntimeCompiler],
        flags: Sequence[str],
        architecture_flag: str,
        device: Device,
        read_resources: Callable[[Any, str], Resources],
        cache: BinaryCache,
    ) -> None:
        self._open_library = open_library
        self._flags = tuple(flags)
        self._architecture_flag = architecture_flag
        self._device = device
        self._read_resources = read_resources
        self._cache = cache

    def compile(self, source: str, function: str, options: CompileOptions) -> Binary:
        """Compile a rendered source, or take it from the cache."""
        library = self._open_library()
        flags = self.identity(self.resolved(options))

        def compile_one() -> tuple[bytes, str]:
            return library.compile(source, function, flags, options.timeout_s)

        return compile_cached(self._cache, [library.name, library.version, *flags, source], function, compile_one)

    def identity(self, options: CompileOptions) -> tuple[str, ...]:
        """Return all flags."""
        architecture = [f"{self._architecture_flag}{options.architecture}"] if options.architecture else []
        return (*architecture, *self._flags, *options.flags)

    def versions(self) -> Mapping[str, str]:
        """Return the version of the compiler by its name."""
        try:
            library = self._open_library()
        except BackendUnavailableError:
            return {}
        return {library.name.lower(): library.version}

    def resolved(self, options: CompileOptions) -> CompileOptions:
        """Return the options with the device's architecture if they name none."""
        if options.architecture:
            return options
        try:
            return dataclasses.replace(options, architecture=self._device.describe().architecture)
        except BackendUnavailableError as error:
            raise BackendUnavailableError(f"{error}; to compile without a device, give an architecture") from error

    def resources(self, binary: Binary) -> Resources:
        """Return what a compiled function takes of a multiprocessor."""
        return self._read_resources(binary.image, binary.function)

    def close(self) -> None:
        """End the compiler's processes."""
        self._open_library().close()


class GpuDevice(Device):
    """A GPU that a :class:`Driver` runs.

    Args:
        open_driver: opens the device; raises BackendUnavailableError if there is none.
        count: returns how many devices this process sees.
        visibility: variables that say which devices a process sees, the one that counts first.
        driver: the device, if it is open already.
    """

    def __init__(
        self,
        open_driver: Callable[[], Driver],
        count: Callable[[], int],
        visibility: Sequence[str],
        driver: Driver | None = None,
    ) -> None:
        self._open_driver = open_driver
        self._count = count
        self._visibility = tuple(visibility)
        self._driver = driver
        self._info: DeviceInfo | None = None

    def describe(self) -> DeviceInfo:
        """Describe the device launches go to."""
        if self._info is None:
            self._info = self._open().describe()
        return self._info

    def environments(self) -> Sequence[Mapping[str, str]]:
        """Return, for each visible device, the variables with which a process sees that device alone."""
        count = self._count()
        listed = next((value for name in self._visibility if (value := os.environ.get(name))), "")
        names = [name.strip() for name in listed.split(",")] if listed else [str(i) for i in range(count)]
        return [{self._visibility[0]: name} for name in names[:count]]

    def load(self, binary: Binary) -> GpuFunction:
        """Load a compiled function onto the device."""
        return GpuFunction(self._open(), binary)

    def allocate(self, nbytes: int) -> GpuBuffer:
        """Allocate device memory."""
        return GpuBuffer(self._open(), nbytes)

    def array_namespace(self) -> Any:
        """Return the NumPy-like module that computes on arrays in the device's memory; None if there is none."""
        return self._open().array_namespace()

    def array(self, buffer: Buffer, dtype: np.dtype[Any]) -> Any:
        """Return a buffer as a one-dimensional array of :meth:`array_namespace`."""
        if not isinstance(buffer, GpuBuffer):
            raise LaunchError(f"an array needs a device buffer, not {in_words(buffer)}")
        return self._open().array(buffer.address, buffer.nbytes, dtype)

    def is_usable(self) -> bool:
        """Whether no launch has faulted: a fault ends the context, and every later call fails like the first."""
        if self._driver is None:
            return True
        try:
            self._driver.synchronize()
        except LaunchError:
            return False
        return True

    def constraints(self) -> tuple[str, ...]:
        """Return the limits of a launch over ``threads_per_block`` and ``shared_bytes``.

        Also of its blocks and threads along each axis (``grid_x``, ``block_x``, ...). Without a device, only what
        holds on all of them.
        """
        limits: Mapping[str, int]
        try:
            limits = self.describe().limits
        except BackendUnavailableError:
            limits = _DEFAULT_LIMITS
        return tuple(f"{name} <= {limits[limit]}" for name, limit in _LIMITED.items() if limit in limits)

    def _open(self) -> Driver:
        if self._driver is None:
            self._driver = self._open_driver()
        return self._driver


class GpuBackend(Backend):
    """A GPU family: a runtime compiler and a driver, which the vendor's backend finds and opens.

    Args:
        cache: where compiled binaries are kept; by default the user's cache folder.
        driver: the device; by default opened when first needed.
    """

    tells_resources: ClassVar[bool] = True
    #: How the compiler is told the architecture, with a trailing "=".
    architecture_flag: ClassVar[str]
    flags: ClassVar[tuple[str, ...]]
    #: Variables that say which devices a process sees, the one that counts first.
    visibility: ClassVar[tuple[str, ...]]

    def __init__(self, cache: BinaryCache | None = None, driver: Driver | None = None) -> None:
        self.device = GpuDevice(lambda: self.open_driver(), self.device_count, self.visibility, driver)
        self.compiler = GpuCompiler(
            self.runtime_compiler,
            self.flags,
            self.architecture_flag,
            self.device,
            self.read_resources,
            cache if cache is not None else BinaryCache(),
        )

    @staticmethod
    @abstractmethod
    def runtime_compiler() -> RuntimeCompiler:
        """Return the runtime compiler.

        Raises:
            BackendUnavailableError: it is not installed.
        """

    @staticmethod
    @abstractmethod
    def require_device() -> None:
        """Check, without initialising the device, that there is one and what drives it is installed.

        Raises:
            BackendUnavailableError: there is none; says what to install.
        """

    @staticmethod
    @abstractmethod
    def device_count() -> int:
        """Return how many devices this process sees, without initialising any.

        Raises:
            BackendUnavailableError: there is none.
        """

    @staticmethod
    @abstractmethod
    def open_driver() -> Driver:
        """Open the device.

        Raises:
            BackendUnavailableError: there is none; says what to install.
        """

    @staticmethod
    @abstractmethod
    def read_resources(image: Any, function: str) -> Resources:
        """Read from a binary what a function takes of a multiprocessor."""

    @classmethod
    def availability(cls) -> Availability:
        """Say whether the runtime compiler is installed and whether there is a device."""
        missing = []
        for check in (cls.runtime_compiler, cls.require_device):
            try:
                check()
            except BackendUnavailableError as error:
                missing.append((check, str(error)))
        without = [check for check, _ in missing]
        return Availability(
            can_compile=cls.runtime_compiler not in without,
            can_run=not without,
            reason="; ".join(reason for _, reason in missing),
        )


def axis_limits(block: Sequence[int], grid: Sequence[int]) -> dict[str, int]:
    """Return the limits of a launch by axis: threads of a block and blocks of a grid along x, y and z."""
    axes = {"block": block, "grid": grid}
    return {
        f"max_{what}_{axis}": int(limit)
        for what, limits in axes.items()
        for axis, limit in zip("xyz", limits, strict=True)
    }


def _pack(function: str, arguments: Sequence[Argument]) -> tuple[ctypes.Array[ctypes.c_void_p], list[Any]]:
    """Return pointers to the arguments' values, and the values, which have to live as long as they are used."""
    import numpy as np

    values: list[NDArray[Any]] = []
    for i, argument in enumerate(arguments):
        if isinstance(argument, GpuBuffer):
            values.append(np.array(argument.address, dtype=np.uintp))
        elif isinstance(argument, np.generic):
            values.append(np.array(argument))
        else:
            raise LaunchError(
                f"parameter {i} of {function} needs a device buffer or a NumPy scalar, given {in_words(argument)}"
            )
    return (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values)), values
