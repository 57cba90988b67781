"""What CUDA and HIP devices have in common; a :class:`Driver` calls the vendor's library."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mptune.backends.addressed import AddressBuffer, pack_arguments
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
    compile_cached,
    in_words,
)
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.runtime_compiler import RuntimeCompiler
from mptune.cpp.headers import with_headers
from mptune.errors import BackendUnavailableError, LaunchError, OutOfMemoryError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mptune.kernel import LaunchShape

#: Memory that a driver sets before it times a launch. It keeps an idle device at work for the few microseconds that
#: pass in Python between the event and the kernel, which would count as the kernel's.
LEAD_BYTES: Final = 8 << 20

#: A device that has done nothing for so long lowers its clocks; how long it works before they are up again; and how
#: often its lead memory is set meanwhile before anyone looks at the time.
_IDLE_S: Final = 0.05
_WAKING_S: Final = 0.02
_FILLS: Final = 16

#: Limits of a device by their names in ``cudaDeviceProp``.
_PROPERTIES: Final = {
    "max_threads_per_block": "maxThreadsPerBlock",
    "max_threads_per_multiprocessor": "maxThreadsPerMultiProcessor",
    "max_constant_bytes": "totalConstMem",
    "registers_per_block": "regsPerBlock",
    "warp_size": "warpSize",
    "multiprocessors": "multiProcessorCount",
    "cache_bytes": "l2CacheSize",
}
_DEFAULT_LIMITS: Final = {"max_threads_per_block": 1024}
#: Drivers take extents in 32 bits and sizes in 64.
_MAX_EXTENT: Final = 2**32 - 1
_MAX_BYTES: Final = 2**63 - 1


class Driver(ABC):
    """A GPU vendor's library, on the first visible device and one stream; modules and functions are opaque handles.

    The libraries are alike: :meth:`call` takes CUDA's names of functions, without the prefix.

    Args:
        stream: handle of a new stream that does not wait for the default one.

    Attributes:
        lead: address of :data:`LEAD_BYTES` of memory that nobody reads.
    """

    backend: ClassVar[str]
    sensors: ClassVar[str]
    #: The device property that limits the shared memory of a block.
    most_shared: ClassVar[str]

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self._start, self._end = (self.call("eventCreate", kind=BackendUnavailableError) for _ in range(2))
        self.lead = self.call("malloc", LEAD_BYTES, kind=BackendUnavailableError)

    @abstractmethod
    def call(self, name: str, *arguments: Any, kind: type[Exception] = LaunchError) -> Any:
        """Return the value of a call of the library; raises an error of the given kind where the call fails."""

    @abstractmethod
    def properties(self) -> Mapping[str, Any]:
        """Return the device's properties by their names in ``cudaDeviceProp``."""

    @abstractmethod
    def architecture(self, properties: Mapping[str, Any]) -> str:
        """Return the architecture to compile for."""

    @abstractmethod
    def versions(self) -> Mapping[str, str]:
        """Return the versions of driver and library."""

    @abstractmethod
    def attribute(self, function: Any, name: str) -> int:
        """Return an attribute of a function by its name in CUDA, without the prefix."""

    @abstractmethod
    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory; raises :class:`~mptune.errors.OutOfMemoryError`."""

    @abstractmethod
    def copy_kind(self, source: str, target: str) -> Any:
        """Return the kind of a copy from "Host" or "Device" to one of them."""

    def describe(self) -> DeviceInfo:
        """Describe the device."""
        of = self.properties()
        name = of["name"]
        return DeviceInfo(
            backend=self.backend,
            name=name.decode() if isinstance(name, bytes) else name,
            architecture=self.architecture(of),
            memory_bytes=int(of["totalGlobalMem"]),
            limits={
                **{limit: int(of[name]) for limit, name in _PROPERTIES.items()},
                "max_shared_bytes": int(of[self.most_shared]),
                **axis_limits(of["maxThreadsDim"], of["maxGridSize"]),
            },
            versions=self.versions(),
            pci_bus_id=f"{of['pciDomainID']:04x}:{of['pciBusID']:02x}:{of['pciDeviceID']:02x}.0",
            sensors=self.sensors,
        )

    def free(self, address: int) -> None:
        self.call("free", address)

    def copy_in(self, target: int, source: int, nbytes: int) -> None:
        self.call("memcpyAsync", target, source, nbytes, self.copy_kind("Host", "Device"), self.stream)
        self.synchronize()

    def copy_out(self, target: int, source: int, nbytes: int) -> None:
        self.call("memcpyAsync", target, source, nbytes, self.copy_kind("Device", "Host"), self.stream)
        self.synchronize()

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self.call("memcpyAsync", target, source, nbytes, self.copy_kind("Device", "Device"), self.stream)

    def fill(self, target: int, byte: int, nbytes: int) -> None:
        self.call("memsetAsync", target, byte, nbytes, self.stream)

    def load(self, image: bytes) -> Any:
        """Load a compiled image and return the module."""
        return self.call("moduleLoadData", image)

    def unload(self, module: Any) -> None:
        """Release a module."""
        self.call("moduleUnload", module)

    def function(self, module: Any, name: str) -> Any:
        """Return the function of that name."""
        return self.call("moduleGetFunction", module, name)

    def symbol(self, module: Any, name: str) -> int:
        """Return the address of a module's variable."""
        return int(self.call("moduleGetGlobal", module, name))

    def blocks(self, function: Any, threads: int, shared_bytes: int) -> int:
        """Return how many blocks of a function a multiprocessor runs at a time."""
        self.allow_shared(function, shared_bytes)
        return int(self.call("occupancyMaxActiveBlocksPerMultiprocessor", function, threads, shared_bytes))

    def allow_shared(self, function: Any, nbytes: int) -> None:  # noqa: B027 - optional
        """Let a function have this much dynamic shared memory, where the library has to be asked."""

    def launch(self, function: Any, shape: LaunchShape, arguments: int) -> float:
        """Run a function to its end; ``arguments`` is the address of an array of pointers to their values.

        Returns:
            Device time in milliseconds.
        """
        self.allow_shared(function, shape.shared_bytes)
        self.fill(self.lead, 0, LEAD_BYTES)
        self.call("eventRecord", self._start, self.stream)
        self.enqueue(function, shape, arguments)
        self.call("eventRecord", self._end, self.stream)
        self.call("eventSynchronize", self._end)
        return float(self.call("eventElapsedTime", self._start, self._end))

    def enqueue(self, function: Any, shape: LaunchShape, arguments: int) -> None:
        """Run a function of a shape :meth:`launch` has run, without waiting; copies the arguments' values at once."""
        self.call("launchKernel", function, *shape.grid, *shape.block, shape.shared_bytes, self.stream, arguments, 0)

    def synchronize(self) -> None:
        """Wait for the device; raises what an earlier fault left behind."""
        self.call("streamSynchronize", self.stream)

    def array_namespace(self) -> Any:
        """Return the NumPy-like module that computes on the device, None where there is none."""
        return None

    def array(self, address: int, nbytes: int, dtype: np.dtype[Any]) -> Any:
        """Return device memory as a one-dimensional array of that module."""
        raise BackendUnavailableError(f"{self.backend} has no arrays ({nbytes} bytes of {dtype} at {address:#x})")


class GpuBuffer(AddressBuffer):
    """Memory of a GPU."""


class GpuFunction(Function):
    """A loaded kernel."""

    def __init__(self, device: GpuDevice, driver: Driver, binary: Binary) -> None:
        self.name = binary.function
        self._device = device
        self._driver = driver
        self._module = driver.load(binary.image)
        self._function = driver.function(self._module, binary.function)
        self._max_threads = driver.attribute(self._function, "MAX_THREADS_PER_BLOCK")

    def resources(self, shape: LaunchShape) -> Mapping[str, float]:
        limits, threads = self._device.describe().limits, math.prod(shape.block)
        static = self._driver.attribute(self._function, "SHARED_SIZE_BYTES")
        warps = -(-threads // limits["warp_size"]) * self._driver.blocks(self._function, threads, shape.shared_bytes)
        found = {
            "registers": self._driver.attribute(self._function, "NUM_REGS"),
            "local_bytes": self._driver.attribute(self._function, "LOCAL_SIZE_BYTES"),
            "shared_bytes": static + shape.shared_bytes,
            "static_shared_bytes": static,
            "dynamic_shared_bytes": shape.shared_bytes,
            "occupancy": warps * limits["warp_size"] / limits["max_threads_per_multiprocessor"],
        }
        return {name: float(value) for name, value in found.items()}

    def set_constant(self, name: str, data: NDArray[Any]) -> None:
        if self._module is None:
            raise LaunchError(f"{self.name} was given {name!r} after it was unloaded")
        self._driver.copy_in(self._driver.symbol(self._module, name), int(data.ctypes.data), data.nbytes)

    def read_constant(self, name: str, data: NDArray[Any]) -> None:
        if self._module is None:
            raise LaunchError(f"{name!r} of {self.name} was read after it was unloaded")
        self._driver.copy_out(int(data.ctypes.data), self._driver.symbol(self._module, name), data.nbytes)

    def launch(self, shape: LaunchShape, arguments: Sequence[Argument]) -> float:
        self._check(shape)
        pointers, values = pack_arguments(self.name, arguments, GpuBuffer)
        self._device.works()
        elapsed_ms = self._driver.launch(self._function, shape, ctypes.addressof(pointers))
        self._device.works()
        del values
        return elapsed_ms

    def enqueue(self, shape: LaunchShape, arguments: Sequence[Argument], count: int = 1) -> None:
        self._check(shape)
        pointers, values = pack_arguments(self.name, arguments, GpuBuffer)
        for _ in range(count):
            self._driver.enqueue(self._function, shape, ctypes.addressof(pointers))
        del values

    def wait(self) -> None:
        self._driver.synchronize()

    def _check(self, shape: LaunchShape) -> None:
        if self._module is None:
            raise LaunchError(f"{self.name} was launched after it was unloaded")
        if max(shape.grid) > _MAX_EXTENT:
            raise LaunchError(f"the grid {shape.grid} of {self.name} is larger than any device takes: {_MAX_EXTENT}")
        threads = math.prod(shape.block)
        if threads > self._max_threads:
            raise LaunchError(
                f"{self.name} takes at most {self._max_threads} threads in a block, by its registers or its "
                f"__launch_bounds__; the block {shape.block} has {threads}"
            )

    def unload(self) -> None:
        if self._module is not None:
            self._driver.unload(self._module)
            self._module = None


class GpuCompiler(Compiler):
    """A runtime compiler, with the flags of one vendor."""

    def __init__(self, backend: GpuBackend, cache: BinaryCache) -> None:
        self._backend = backend
        self._cache = cache

    def compile(self, source: str, function: str, options: CompileOptions) -> Binary:
        library = self._backend.runtime_compiler()
        flags = self.identity(self.resolved(options))

        def compile_one() -> tuple[bytes, str]:
            return library.compile(source, function, flags, options.timeout_s)

        key = [library.name, library.version, *flags, with_headers(source, flags)]
        return compile_cached(self._cache, key, function, compile_one)

    def identity(self, options: CompileOptions) -> tuple[str, ...]:
        architecture = [f"{self._backend.architecture_flag}{options.architecture}"] if options.architecture else []
        return (*architecture, *self._backend.flags, *options.flags)

    def versions(self) -> Mapping[str, str]:
        try:
            library = self._backend.runtime_compiler()
        except BackendUnavailableError:
            return {}
        return {library.name.lower(): library.version}

    def resolved(self, options: CompileOptions) -> CompileOptions:
        if options.architecture:
            return options
        try:
            return dataclasses.replace(options, architecture=self._backend.device.describe().architecture)
        except BackendUnavailableError as error:
            raise BackendUnavailableError(f"{error}; to compile without a device, give an architecture") from error

    def listing(self, source: str, function: str, options: CompileOptions) -> str | None:
        library = self._backend.assembler()
        if library is None:
            return None
        flags = tuple(self._backend.assembler_flag(flag) for flag in self.identity(self.resolved(options)))

        def compile_one() -> tuple[bytes, str]:
            return library.compile(source, function, flags, options.timeout_s)

        key = [library.name, library.version, "listing", *flags, with_headers(source, flags)]
        image: bytes = compile_cached(self._cache, key, function, compile_one).image
        return image.rstrip(b"\0").decode(errors="replace")

    def expect(self, options: CompileOptions, compilers: int) -> None:  # noqa: ARG002 - each source brings its own
        self._backend.runtime_compiler().expect(compilers)

    def close(self) -> None:
        self._backend.runtime_compiler().close()


class GpuDevice(Device):
    """A GPU that a :class:`Driver` runs."""

    def __init__(self, backend: type[GpuBackend], driver: Driver | None = None) -> None:
        self._backend = backend
        self._driver = driver
        self._info: DeviceInfo | None = None
        #: When it worked last, and since when it has done so without a pause; by ``time.monotonic``.
        self._worked_at = self._awake_since = -math.inf

    def describe(self) -> DeviceInfo:
        if self._info is None:
            self._info = self._open().describe()
        return self._info

    def environments(self) -> Sequence[Mapping[str, str]]:
        count, visibility = self._backend.device_count(), self._backend.visibility
        listed = next((value for name in visibility if (value := os.environ.get(name))), "")
        names = [name.strip() for name in listed.split(",")] if listed else [str(i) for i in range(count)]
        return [{visibility[0]: name} for name in names[:count]]

    def load(self, binary: Binary) -> GpuFunction:
        return GpuFunction(self, self._open(), binary)

    def wake(self) -> None:
        driver = self._open()
        self.works()
        while time.monotonic() - self._awake_since < _WAKING_S:
            for _ in range(_FILLS):
                driver.fill(driver.lead, 0, LEAD_BYTES)
            driver.synchronize()
            self.works()

    def allocate(self, nbytes: int) -> GpuBuffer:
        if nbytes > _MAX_BYTES:
            raise OutOfMemoryError(f"{nbytes} bytes were asked for: more than can be counted on a device")
        return GpuBuffer(self._open(), nbytes)

    def array_namespace(self) -> Any:
        return self._open().array_namespace()

    def array(self, buffer: Buffer, dtype: np.dtype[Any]) -> Any:
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

    def facts(self) -> Mapping[str, Any]:
        limits: Mapping[str, int]
        try:
            limits, architecture = self.describe().limits, self.describe().architecture
        except BackendUnavailableError:
            limits, architecture = _DEFAULT_LIMITS, self._backend.common_architecture
        return {**limits, **self._backend.launch_limits, **self._backend.facts(architecture)}

    def works(self) -> None:
        """Note that the device has work now."""
        now = time.monotonic()
        if now - self._worked_at > _IDLE_S:
            self._awake_since = now
        self._worked_at = now

    def _open(self) -> Driver:
        if self._driver is None:
            self._driver = self._backend.open_driver()
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
    #: What else every launch must satisfy, over block and grid.
    launch_limits: ClassVar[Mapping[str, int]] = {}
    #: Variables that say which devices a process sees, the one that counts first.
    visibility: ClassVar[tuple[str, ...]]

    def __init__(self, cache: BinaryCache | None = None, driver: Driver | None = None) -> None:
        self.device = GpuDevice(type(self), driver)
        self.compiler = GpuCompiler(self, cache if cache is not None else BinaryCache())

    @staticmethod
    @abstractmethod
    def runtime_compiler() -> RuntimeCompiler:
        """Return the runtime compiler.

        Raises:
            BackendUnavailableError: it is not installed.
        """

    @staticmethod
    def assembler() -> RuntimeCompiler | None:
        """Return the compiler that stops at assembly; None if there is none.

        Raises:
            BackendUnavailableError: it is not installed.
        """
        return None

    @staticmethod
    def assembler_flag(flag: str) -> str:
        """Return the flag for :meth:`assembler` that stands for one of the compiler's."""
        return flag

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
        for check in (cls.runtime_compiler, cls.require_device):
            try:
                check()
            except BackendUnavailableError as error:
                missing.append((check, str(error)))
        without = [check for check, _ in missing]
        can_compile = cls.runtime_compiler not in without
        reasons = [cls.runtime_compiler().trouble] if can_compile else []
        return Availability(
            can_compile=can_compile,
            can_run=not without,
            reason="; ".join(filter(None, (*reasons, *(reason for _, reason in missing)))),
        )


def axis_limits(block: Sequence[int], grid: Sequence[int]) -> dict[str, int]:
    """Return the limits of a launch by axis: threads of a block and blocks of a grid along x, y and z."""
    axes = {"block": block, "grid": grid}
    return {
        f"max_{what}_{axis}": int(limit)
        for what, limits in axes.items()
        for axis, limit in zip("xyz", limits, strict=True)
    }
