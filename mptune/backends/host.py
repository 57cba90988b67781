"""The host backend: kernels compiled to shared libraries whose grid runs over the processor's cores.

The prelude's ``host.hpp`` and its companions hold the other half: what a CUDA source means here, and the
function :meth:`HostFunction.launch` calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import math
import os
import struct
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mptune.backends.addressed import SLOT, AddressBuffer, no_argument
from mptune.backends.base import Argument, Availability, Backend, Binary, Device, DeviceInfo, Function, in_words
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.guarded_memory import GuardedMemory
from mptune.backends.host_compiler import HostCompiler, find_compiler, host_architecture
from mptune.backends.processor import last_level_cache_bytes, processor, second_level_cache_bytes, usable_cores
from mptune.cpp.build import with_build
from mptune.errors import LaunchError, MptuneError, OutOfMemoryError
from mptune.memory import available_memory_bytes, total_memory_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mptune.kernel import Kernel, LaunchShape

#: As on every CUDA device.
_MAX_THREADS_PER_BLOCK: Final = 1024
#: More than any GPU's block has (227 KiB on sm_90), and still inside a core's second-level cache.
_MAX_SHARED_BYTES: Final = 256 * 1024
#: Indices along an axis of the grid fit an int.
_MAX_AXIS: Final = 2**31 - 1
_MAX_PARAMETERS: Final = 256
#: Room for an fenv_t; x86-64 takes 4, others fewer.
_FENV_WORDS: Final = 16
#: Counts the libraries that were opened.
_OPENED: Final = itertools.count()
_POINTER_BYTES: Final = ctypes.sizeof(ctypes.c_void_p)
#: An argument's slot in a structure.
_POINTER: Final = f"Q{SLOT - 8}x"
_SCALAR: Final = f"{SLOT}s"
_FAILURES: Final = {
    -1: "the worker threads could not be started",
    -2: "there is no memory for the threads' stacks or the shared memory",
    -3: "it was compiled for blocks of another shape",
}


class HostBuffer(AddressBuffer):
    """Zeroed memory of this process, aligned to a cache line."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(GuardedMemory(), nbytes)

    def seen(self) -> NDArray[Any]:
        import numpy as np

        memory: Any = (ctypes.c_ubyte * self.nbytes).from_address(self.address)
        found: NDArray[Any] = np.frombuffer(memory, np.uint8)
        found.flags.writeable = False
        return found


class HostFunction(Function):
    """A loaded kernel library, whose grids run on so many threads (``workers``)."""

    def __init__(self, function: str, image: bytes, workers: int) -> None:
        self.function = function
        self._workers = workers
        self._lock = threading.Lock()
        library = _open(function, image)
        try:
            self._codes = _parameter_codes(library)
            launch = library.mptune_launch
            library.mptune_poison()
        except AttributeError as error:
            _close(library)
            raise LaunchError(f"the library of {function} has no host entry: {error}") from error
        launch.restype = ctypes.c_longlong
        launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        self._library: ctypes.CDLL | None = library
        self._launch = launch
        #: What every launch needs, made once: an application's time is that of launches, and of what they cost here.
        self._shaped: _Shaped | None = None
        self._packing = struct.Struct("=" + "".join(_POINTER if code < 0 else _SCALAR for code in self._codes))
        self._values = (ctypes.c_char * self._packing.size)()
        first = ctypes.addressof(self._values)
        slots = range(first, first + self._packing.size, SLOT)
        self._pointers = (ctypes.c_void_p * len(self._codes))(*slots)
        self._finalizer = weakref.finalize(self, _close, library)
        self._finalizer.atexit = False

    def set_constant(self, name: str, data: NDArray[Any]) -> None:
        with self._lock:
            ctypes.memmove(self._constant(name, data.nbytes), data.ctypes.data, data.nbytes)

    def read_constant(self, name: str, data: NDArray[Any]) -> None:
        with self._lock:
            ctypes.memmove(data.ctypes.data, self._constant(name, data.nbytes), data.nbytes)

    def _constant(self, name: str, nbytes: int) -> ctypes.Array[ctypes.c_char]:
        if self._library is None:
            raise LaunchError(f"{self.function} was asked for {name!r} after it was unloaded")
        try:
            return (ctypes.c_char * nbytes).in_dll(self._library, name)
        except ValueError as error:
            raise LaunchError(f"{self.function} has no __constant__ array {name!r}") from error

    def launch(self, shape: LaunchShape, arguments: Sequence[Argument]) -> float:
        shaped = self._shaped
        if shaped is None or (shaped.shape is not shape and shaped.shape != shape):
            self._check_shape(shape)
            shaped = self._shaped = _Shaped.of(shape, self._workers)
        values = self._checked(arguments)
        with self._lock:
            if self._library is None:
                raise LaunchError(f"{self.function} was launched after it was unloaded")
            self._packing.pack_into(self._values, 0, *values)
            elapsed_ns = int(
                self._launch(self._pointers, shaped.grid, shaped.block, shaped.shape.shared_bytes, shaped.workers)
            )
        if elapsed_ns < 0:
            raise LaunchError(f"{self.function} could not be launched: {_FAILURES.get(elapsed_ns, elapsed_ns)}")
        return elapsed_ns * 1e-6

    def unload(self) -> None:
        with self._lock:
            self._library = None
            self._finalizer()

    def _check_shape(self, shape: LaunchShape) -> None:
        threads = math.prod(shape.block)
        if min(*shape.block, *shape.grid) < 1:
            raise LaunchError(f"{self.function}: grid {shape.grid} and block {shape.block} need extents of at least 1")
        if threads > _MAX_THREADS_PER_BLOCK:
            raise LaunchError(
                f"{self.function}: block {shape.block} has {threads} threads, the limit is {_MAX_THREADS_PER_BLOCK}"
            )
        if any(blocks * extent > _MAX_AXIS for blocks, extent in zip(shape.grid, shape.block, strict=True)):
            raise LaunchError(
                f"{self.function}: grid {shape.grid} of blocks {shape.block} "
                f"has more than {_MAX_AXIS} threads on an axis"
            )
        if not 0 <= shape.shared_bytes <= _MAX_SHARED_BYTES:
            raise LaunchError(
                f"{self.function}: {shape.shared_bytes} bytes of shared memory, the limit is {_MAX_SHARED_BYTES}"
            )

    def _checked(self, arguments: Sequence[Argument]) -> list[int | bytes]:
        """Return the values of arguments: addresses, and the bytes of scalars."""
        import numpy as np

        if len(arguments) != len(self._codes):
            raise LaunchError(f"{self.function} has {len(self._codes)} parameters and was given {len(arguments)}")
        values: list[int | bytes] = []
        found: int | bytes
        for i, (argument, code) in enumerate(zip(arguments, self._codes, strict=True)):
            if isinstance(argument, HostBuffer):
                found, given = argument.address, -_POINTER_BYTES
            elif isinstance(argument, np.generic) and argument.nbytes <= SLOT:
                found, given = argument.tobytes(), argument.nbytes
            else:
                raise no_argument(self.function, i, argument, HostBuffer)
            if code != given:
                wanted = f"a scalar of {code} bytes" if code > 0 else "a host buffer"
                raise LaunchError(f"parameter {i} of {self.function} is {wanted}, given {in_words(argument)}")
            values.append(found)
        return values


@dataclass(frozen=True, slots=True)
class _Shaped:
    """A shape of a launch that was found valid, as the library takes it."""

    shape: LaunchShape
    grid: ctypes.Array[ctypes.c_uint]
    block: ctypes.Array[ctypes.c_uint]
    workers: int

    @classmethod
    def of(cls, shape: LaunchShape, workers: int) -> _Shaped:
        extents = ctypes.c_uint * 3
        return cls(shape, extents(*shape.grid), extents(*shape.block), min(workers, math.prod(shape.grid)))


class HostDevice(Device):
    """This machine's processor; grids run on so many of its threads (``workers``)."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def describe(self) -> DeviceInfo:
        """Describe the processor; its architecture is what ``$MPTUNE_HOST_ARCH`` limits it to."""
        cpu = processor()
        return DeviceInfo(
            backend=HostBackend.name,
            name=cpu.name,
            architecture=host_architecture() or cpu.architecture,
            memory_bytes=total_memory_bytes(),
            limits={
                "max_threads_per_block": _MAX_THREADS_PER_BLOCK,
                "max_shared_bytes": _MAX_SHARED_BYTES,
                "workers": self.workers,
                "cache_bytes": last_level_cache_bytes(),
                "own_cache_bytes": usable_cores() * second_level_cache_bytes(),
            },
            sensors="processor",
        )

    def load(self, binary: Binary) -> HostFunction:
        return HostFunction(binary.function, binary.image, self.workers)

    def allocate(self, nbytes: int) -> HostBuffer:
        available = available_memory_bytes()
        if nbytes > available:
            raise OutOfMemoryError(f"{nbytes} bytes were asked for and {available} bytes of host memory are available")
        return HostBuffer(nbytes)

    def facts(self) -> Mapping[str, Any]:
        return {**self.describe().limits, **HostBackend.facts("")}

    def identity(self) -> tuple[str, ...]:
        """Return the model of the processor and how many cores are used."""
        return processor().fingerprint, f"workers={self.workers}"


class HostBackend(Backend):
    """This machine's processor.

    Args:
        workers: threads a grid runs on; by default one per usable core.
        cache: where compiled binaries are kept; by default the user's cache folder.
    """

    name: ClassVar[str] = "host"
    has_own_time: ClassVar[bool] = True

    @property
    def shares_memory(self) -> bool:
        return True

    def __init__(self, workers: int | None = None, cache: BinaryCache | None = None) -> None:
        self.compiler: HostCompiler = HostCompiler(cache=cache)
        self.device: Device = HostDevice(workers if workers is not None else usable_cores())

    @classmethod
    def facts(cls, architecture: str) -> Mapping[str, Any]:  # noqa: ARG003 - of no architecture
        return {"is_gpu": False, "matrix_units": ""}

    def prepared(self, kernel: Kernel, compilers: Sequence[str], flag_sets: Sequence[str]) -> Kernel:
        for name in compilers:
            find_compiler(name)
        return with_build(kernel, compilers, flag_sets)

    @classmethod
    def availability(cls) -> Availability:
        """Say whether there is a C++ compiler, and it knows what it is asked for."""
        try:
            find_compiler().flags()
        except MptuneError as error:
            return Availability(can_compile=False, can_run=False, reason=str(error))
        return Availability(can_compile=True, can_run=True)


def _parameter_codes(library: ctypes.CDLL) -> list[int]:
    """Bytes of every kernel parameter, negative for a pointer."""
    codes = (ctypes.c_int * _MAX_PARAMETERS)()
    return list(codes[: library.mptune_describe(codes)])


def _open(function: str, image: bytes) -> ctypes.CDLL:
    """Open a library from memory, so that nothing of it is left on disk.

    The loader takes an equal path for the same library, and one of them stays that was closed: that whose code the
    threads of all run. So none is opened by the path of another.
    """
    new = format(next(_OPENED), "b").replace("1", "/.").replace("0", "/")
    try:
        with os.fdopen(os.memfd_create("mptune-kernel", os.MFD_CLOEXEC), "wb") as file:
            file.write(image)
            file.flush()
            with _float_environment_kept():
                return ctypes.CDLL(f"/proc/self/fd{new}/{file.fileno()}", mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise LaunchError(f"the library of {function} cannot be opened: {error}") from error


@functools.cache
def _math_library() -> ctypes.CDLL:
    """Load the math library for all: not every binary names the one it takes exp from, nor has every Python one."""
    try:
        return ctypes.CDLL("libm.so.6", mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    except OSError:  # musl has it in its C library
        return ctypes.CDLL(None)


@contextlib.contextmanager
def _float_environment_kept() -> Iterator[None]:
    """Keep how this thread rounds and treats denormals: loading code compiled with -ffast-math changes it."""
    environment = (ctypes.c_longlong * _FENV_WORDS)()
    library = _math_library()
    library.fegetenv(environment)
    try:
        yield
    finally:
        library.fesetenv(environment)


def _close(library: ctypes.CDLL) -> None:
    with contextlib.suppress(AttributeError):
        library.mptune_release()
    dlclose = ctypes.CDLL(None).dlclose
    dlclose.argtypes = [ctypes.c_void_p]
    dlclose(library._handle)
