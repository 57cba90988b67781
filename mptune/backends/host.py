"""The host backend: kernels compiled to shared libraries whose grid runs over the processor's cores.

The prelude's ``host.hpp`` and its companions define CUDA's names on the host, and the function that
:meth:`HostFunction.launch` calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import os
import struct
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mptune.backends.addressed import SLOT, AddressBuffer, GuardedMemory, values_of
from mptune.backends.base import Argument, Availability, Backend, Binary, Device, DeviceInfo, Function, in_words
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host_compiler import HostCompiler, find_compiler, host_architecture
from mptune.backends.processor import cache_limits, processor, usable_cores
from mptune.errors import LaunchError, OutOfMemoryError
from mptune.memory import available_memory_bytes, total_memory_bytes
from mptune.source.flags import with_build

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mptune.kernel import Kernel, LaunchShape

#: Threads of a block, as on every CUDA device.
_MAX_THREADS_PER_BLOCK: Final = 1024
#: Shared memory of a block: more than on any GPU (227 KiB on sm_90), but inside a core's second-level cache.
_MAX_SHARED_BYTES: Final = 256 * 1024
#: Threads along an axis of the grid, as indices are ints.
_MAX_AXIS: Final = 2**31 - 1
#: Numbers the opened libraries.
_OPENED: Final = itertools.count()
_FAILURES: Final = {
    -1: "the worker threads could not be started",
    -2: "not enough memory for the threads' stacks or the shared memory",
    -3: "it was compiled for blocks of another shape",
}
_BEYOND_SHARED: Final = -4


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
    """A loaded kernel library, whose grids run on at most ``workers`` threads."""

    def __init__(self, function: str, image: bytes, workers: int) -> None:
        self.function = function
        self.workers = workers
        self._lock = threading.Lock()
        library = _open(function, image)
        try:
            #: Bytes of every kernel parameter, negative for a pointer.
            codes = (ctypes.c_int * 256)()
            self._codes = codes[: library.mptune_describe(codes)]
            self._launch = library.mptune_launch
            library.mptune_poison()
        except AttributeError as error:
            _close(library)
            raise LaunchError(f"the library of {function} has no host entry: {error}") from error
        self._launch.restype = ctypes.c_longlong
        self._launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        self._library: ctypes.CDLL | None = library
        # Slots of arguments, pointers to them, and the last shape in the library's form: created once, as an
        # application's time includes the cost of launches.
        slots = (f"Q{SLOT - 8}x" if code < 0 else f"{SLOT}s" for code in self._codes)
        self._packing = struct.Struct("=" + "".join(slots))
        self._values = (ctypes.c_char * self._packing.size)()
        first = ctypes.addressof(self._values)
        self._pointers = (ctypes.c_void_p * len(self._codes))(*range(first, first + self._packing.size, SLOT))
        self._shape: LaunchShape | None = None
        self._shaped: tuple[Any, ...] = ()
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
            raise LaunchError(f"{name!r} of {self.function} was used after it was unloaded")
        try:
            return (ctypes.c_char * nbytes).in_dll(self._library, name)
        except ValueError as error:
            raise LaunchError(f"{self.function} has no __constant__ array {name!r}") from error

    def launch(self, shape: LaunchShape, arguments: Sequence[Argument]) -> float:
        if self._shape is not shape and self._shape != shape:
            self._check_shape(shape)
            extents = ctypes.c_uint * 3
            workers = min(self.workers, math.prod(shape.grid))
            self._shaped = (extents(*shape.grid), extents(*shape.block), shape.shared_bytes, workers)
            self._shape = shape
        values = self._checked(arguments)
        with self._lock:
            if self._library is None:
                raise LaunchError(f"{self.function} was launched after it was unloaded")
            self._packing.pack_into(self._values, 0, *values)
            elapsed_ns = int(self._launch(self._pointers, *self._shaped))
        if elapsed_ns == _BEYOND_SHARED:
            raise LaunchError(f"{self.function} wrote past the end of its {shape.shared_bytes} bytes of shared memory")
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
            problem = f"grid {shape.grid} and block {shape.block} need extents of at least 1"
        elif threads > _MAX_THREADS_PER_BLOCK:
            problem = f"block {shape.block} has {threads} threads, the limit is {_MAX_THREADS_PER_BLOCK}"
        elif any(blocks * extent > _MAX_AXIS for blocks, extent in zip(shape.grid, shape.block, strict=True)):
            problem = f"grid {shape.grid} of blocks {shape.block} has more than {_MAX_AXIS} threads on an axis"
        elif not 0 <= shape.shared_bytes <= _MAX_SHARED_BYTES:
            problem = f"{shape.shared_bytes} bytes of shared memory, the limit is {_MAX_SHARED_BYTES}"
        else:
            return
        raise LaunchError(f"{self.function}: {problem}")

    def _checked(self, arguments: Sequence[Argument]) -> list[Any]:
        """Return the values of arguments, addresses and bytes of scalars; raise LaunchError if their sizes differ."""
        if len(arguments) != len(self._codes):
            raise LaunchError(f"{self.function} has {len(self._codes)} parameters and was given {len(arguments)}")
        values = values_of(self.function, arguments, HostBuffer)
        given = [len(value) if isinstance(value, bytes) else -ctypes.sizeof(ctypes.c_void_p) for value in values]
        if given != self._codes:
            i = next(i for i, code in enumerate(self._codes) if code != given[i])
            wanted = f"a scalar of {self._codes[i]} bytes" if self._codes[i] > 0 else "a host buffer"
            raise LaunchError(f"parameter {i} of {self.function} is {wanted}, given {in_words(arguments[i])}")
        return values


class HostDevice(Device):
    """This machine's processor; grids run on ``workers`` threads."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def describe(self) -> DeviceInfo:
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
                **cache_limits(),
            },
            sensors="processor",
        )

    def load(self, binary: Binary) -> HostFunction:
        return HostFunction(binary.function, binary.image, self.workers)

    def allocate(self, nbytes: int) -> HostBuffer:
        available = available_memory_bytes()
        if nbytes > available:
            raise OutOfMemoryError(f"{nbytes} bytes were requested and {available} bytes of host memory are available")
        return HostBuffer(nbytes)

    def facts(self) -> Mapping[str, Any]:
        return {**self.describe().limits, **HostBackend.facts("")}

    def identity(self) -> tuple[str, ...]:
        return processor().fingerprint, f"workers={self.workers}"


class HostBackend(Backend):
    """This machine's processor.

    Args:
        workers: threads of a grid; by default one per usable core.
        cache: the cache of binaries; by default in the user's cache folder.
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
    def facts(cls, architecture: str) -> Mapping[str, Any]:  # noqa: ARG003 - the same for all
        return {"is_gpu": False, "matrix_units": ""}

    def prepared(self, kernel: Kernel, compilers: Sequence[str], flag_sets: Sequence[str]) -> Kernel:
        for name in compilers:
            find_compiler(name)
        return with_build(kernel, compilers, flag_sets)

    @classmethod
    def availability(cls) -> Availability:
        return cls.available_if(lambda: find_compiler().flags())


def _open(function: str, image: bytes) -> ctypes.CDLL:
    """Open a library from memory by a new path, as the loader may still have the file of an equal path."""
    with contextlib.suppress(OSError):  # kernels may need it without naming it; with musl it is part of the C library
        ctypes.CDLL("libm.so.6", mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    new = format(next(_OPENED), "b").replace("1", "/.").replace("0", "/")
    try:
        with os.fdopen(os.memfd_create("mptune-kernel", os.MFD_CLOEXEC), "wb") as file:
            file.write(image)
            file.flush()
            return ctypes.CDLL(f"/proc/self/fd{new}/{file.fileno()}", mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise LaunchError(f"the library of {function} cannot be opened: {error}") from error


def _close(library: ctypes.CDLL) -> None:
    with contextlib.suppress(AttributeError):
        library.mptune_release()
    dlclose = ctypes.CDLL(None).dlclose
    dlclose.argtypes = [ctypes.c_void_p]
    dlclose(library._handle)
