"""What CUDA and HIP devices have in common; a :class:`Driver` supplies the few calls that differ."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import os
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mptune.backends.base import (
    Argument,
    Availability,
    Backend,
    Binary,
    Buffer,
    CompileOptions,
    DeviceInfo,
    Function,
    check_part,
)
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.driver import Driver
from mptune.backends.runtime_compiler import RuntimeCompiler
from mptune.errors import BackendUnavailableError, LaunchError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mptune.kernel import LaunchShape

__all__ = ["GpuBackend", "GpuBuffer", "GpuFunction"]

_DEFAULT_LIMITS: Final = {"max_threads_per_block": 1024}
#: What of a launch is limited, by which limit.
_LIMITED: Final = {
    "threads_per_block": "max_threads_per_block",
    "shared_bytes": "max_shared_bytes",
    **{f"{what}_{axis}": f"max_{what}_{axis}" for what in ("block", "grid") for axis in "xyz"},
}


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
            raise LaunchError(f"a device buffer of {self.nbytes} bytes cannot be copied from {describe(other)}")
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
        if data.nbytes != self.nbytes or not data.flags.c_contiguous:
            layout = "" if data.flags.c_contiguous else ", not contiguous"
            raise LaunchError(f"a buffer of {self.nbytes} bytes was given an array of {data.nbytes} bytes{layout}")
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


class GpuBackend(Backend):
    """A GPU whose kernels a runtime compiler makes and a :class:`Driver` runs.

    Args:
        cache: where compiled binaries are kept; by default the user's cache folder.
        driver: the device; by default opened when first needed.
    """

    #: How the compiler is told the architecture, with a trailing "=".
    architecture_flag: ClassVar[str]
    flags: ClassVar[tuple[str, ...]]
    #: Variables that say which devices a process sees, the one that counts first.
    visibility: ClassVar[tuple[str, ...]]

    def __init__(self, cache: BinaryCache | None = None, driver: Driver | None = None) -> None:
        self._cache = cache if cache is not None else BinaryCache()
        self._driver = driver
        self._info: DeviceInfo | None = None

    @staticmethod
    @abstractmethod
    def compiler() -> RuntimeCompiler:
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

    @classmethod
    def availability(cls) -> Availability:
        """Say whether the runtime compiler is installed and whether there is a device."""
        missing = []
        for check in (cls.compiler, cls.require_device):
            try:
                check()
            except BackendUnavailableError as error:
                missing.append((check, str(error)))
        without = [check for check, _ in missing]
        return Availability(
            can_compile=cls.compiler not in without,
            can_run=not without,
            reason="; ".join(reason for _, reason in missing),
        )

    def environments(self) -> Sequence[Mapping[str, str]]:
        """Return, for each visible device, the variables with which a process sees that device alone."""
        count = self.device_count()
        listed = next((value for name in self.visibility if (value := os.environ.get(name))), "")
        names = [name.strip() for name in listed.split(",")] if listed else [str(i) for i in range(count)]
        return [{self.visibility[0]: name} for name in names[:count]]

    def device(self) -> DeviceInfo:
        """Describe the device launches go to."""
        if self._info is None:
            self._info = self._open().describe()
        return self._info

    def compile(self, source: str, function: str, options: CompileOptions) -> Binary:
        """Compile a rendered source, or take it from the cache."""
        compiler = self.compiler()
        flags = (f"{self.architecture_flag}{self._architecture(options)}", *self.flags, *options.flags)
        key = self._cache.key([compiler.name, compiler.version, *flags, source])
        cached = self._cache.get(key)
        if cached is not None:
            return Binary(function, cached, cached=True)
        start = time.perf_counter()
        image, log = compiler.compile(source, function, flags, options.timeout_s)
        compile_s = time.perf_counter() - start
        self._cache.put(key, image)
        return Binary(function, image, log=log, compile_s=compile_s)

    def give_up_compilations(self) -> None:
        """End the compiler's processes."""
        self.compiler().close()

    def resolved(self, options: CompileOptions) -> CompileOptions:
        """Return the options with the device's architecture where they name none."""
        return dataclasses.replace(options, architecture=self._architecture(options))

    def load(self, binary: Binary) -> GpuFunction:
        """Load a compiled function onto the device."""
        return GpuFunction(self._open(), binary)

    def allocate(self, nbytes: int) -> GpuBuffer:
        """Allocate device memory."""
        return GpuBuffer(self._open(), nbytes)

    def array_namespace(self) -> Any:
        """Return the NumPy-like module that computes on arrays in the device's memory, None where there is none."""
        return self._open().array_namespace()

    def array(self, buffer: Buffer, dtype: np.dtype[Any]) -> Any:
        """Return a buffer as a one-dimensional array of :meth:`array_namespace`."""
        if not isinstance(buffer, GpuBuffer):
            raise LaunchError(f"an array needs a device buffer, not {describe(buffer)}")
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
            limits = self.device().limits
        except BackendUnavailableError:
            limits = _DEFAULT_LIMITS
        return tuple(f"{name} <= {limits[limit]}" for name, limit in _LIMITED.items() if limit in limits)

    def _architecture(self, options: CompileOptions) -> str:
        if options.architecture:
            return options.architecture
        try:
            return self.device().architecture
        except BackendUnavailableError as error:
            raise BackendUnavailableError(f"{error}; to compile without a device, give an architecture") from error

    def _open(self) -> Driver:
        if self._driver is None:
            self._driver = self.open_driver()
        return self._driver


def describe(argument: object) -> str:
    """Return what was given where something else was wanted."""
    if isinstance(argument, Buffer):
        return f"a {type(argument).__name__} of {argument.nbytes} bytes"
    return f"{type(argument).__name__} {argument!r}"


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
                f"parameter {i} of {function} needs a device buffer or a NumPy scalar, given {describe(argument)}"
            )
    return (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values)), values
