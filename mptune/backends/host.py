"""The host backend: kernels compiled to shared libraries whose grid runs over the processor's cores.

The prelude's ``host.hpp`` and its companions hold the other half: what a CUDA source means here, and the
function :meth:`HostFunction.launch` calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from mptune.backends.base import (
    Argument,
    Availability,
    Backend,
    Binary,
    Buffer,
    Device,
    DeviceInfo,
    Function,
    check_data,
    check_part,
    in_words,
)
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host_compiler import HostCompiler, find_compiler, host_architecture
from mptune.backends.processor import (
    last_level_cache_bytes,
    processor,
    usable_cores,
)
from mptune.build import with_build
from mptune.errors import BackendUnavailableError, LaunchError, OutOfMemoryError
from mptune.memory import available_memory_bytes, total_memory_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mptune.kernel import Kernel, LaunchShape, Sizes

__all__ = ["HostBackend", "HostBuffer", "HostDevice", "HostFunction"]

_ALIGNMENT: Final = 64
#: As on every CUDA device.
_MAX_THREADS_PER_BLOCK: Final = 1024
#: More than any GPU's block has (227 KiB on sm_90), and still inside a core's second-level cache.
_MAX_SHARED_BYTES: Final = 256 * 1024
#: Indices along an axis of the grid fit an int.
_MAX_AXIS: Final = 2**31 - 1
_MAX_PARAMETERS: Final = 256
_FAILURES: Final = {
    -1: "the worker threads could not be started",
    -2: "there is no memory for the threads' stacks or the shared memory",
    -3: "it was compiled for blocks of another shape",
}


class HostBuffer(Buffer):
    """Zeroed memory of the process, aligned to a cache line.

    Args:
        nbytes: size.
    """

    def __init__(self, nbytes: int) -> None:
        import numpy as np

        self.nbytes = nbytes
        self._whole: HostBuffer | None = None
        try:
            memory = np.zeros(nbytes + _ALIGNMENT, dtype=np.uint8)
        except MemoryError as error:
            raise OutOfMemoryError(
                f"{nbytes} bytes could not be allocated on the host; smaller sizes or narrower types need fewer"
            ) from error
        start = -memory.ctypes.data % _ALIGNMENT
        self._bytes: NDArray[np.uint8] | None = memory[start : start + nbytes]

    @property
    def address(self) -> int:
        """Where the memory starts.

        Raises:
            LaunchError: the buffer was freed.
        """
        return int(self._memory().ctypes.data)

    def write(self, data: NDArray[Any]) -> None:
        """Copy a contiguous array of ``nbytes`` bytes in."""
        self._memory()[:] = self._view(data)

    def read(self, data: NDArray[Any]) -> None:
        """Copy the memory into a contiguous array of ``nbytes`` bytes."""
        self._view(data)[:] = self._memory()

    def copy_from(self, other: Buffer) -> None:
        """Copy another host buffer of the same size."""
        if not isinstance(other, HostBuffer) or other.nbytes != self.nbytes:
            raise LaunchError(f"a host buffer of {self.nbytes} bytes cannot be copied from {in_words(other)}")
        self._memory()[:] = other._memory()

    def fill(self, byte: int) -> None:
        """Set every byte to the same value."""
        self._memory()[:] = byte

    def part(self, offset: int, nbytes: int) -> HostBuffer:
        """Return some of the bytes as a buffer of their own."""
        check_part(self, offset, nbytes)
        part = HostBuffer.__new__(HostBuffer)
        part.nbytes, part._whole, part._bytes = nbytes, self, self._memory()[offset : offset + nbytes]
        return part

    def free(self) -> None:
        """Give the memory back."""
        self._bytes = None

    def _memory(self) -> NDArray[np.uint8]:
        if self._whole is not None:
            self._whole._memory()
        if self._bytes is None:
            raise LaunchError(f"a host buffer of {self.nbytes} bytes was used after it was freed")
        return self._bytes

    def _view(self, data: NDArray[Any]) -> NDArray[np.uint8]:
        check_data(self, data)
        return cast("NDArray[np.uint8]", data.reshape(-1).view("uint8"))


class HostFunction(Function):
    """A loaded kernel library.

    Args:
        function: name of the kernel.
        image: the shared library.
        workers: threads a grid runs on.
    """

    def __init__(self, function: str, image: bytes, workers: int) -> None:
        self.function = function
        self._workers = workers
        self._lock = threading.Lock()
        library, handle = _open(function, image)
        try:
            self._codes = _parameter_codes(library)
            launch = library.mptune_launch
        except AttributeError as error:
            _close(library, handle)
            raise LaunchError(f"the library of {function} has no host entry: {error}") from error
        launch.restype = ctypes.c_longlong
        launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        self._library: ctypes.CDLL | None = library
        self._launch = launch
        self._finalizer = weakref.finalize(self, _close, library, handle)
        self._finalizer.atexit = False

    def set_constant(self, name: str, data: NDArray[Any]) -> None:
        """Copy a contiguous array into the ``__constant__`` array of that name and size."""
        with self._lock:
            if self._library is None:
                raise LaunchError(f"{self.function} was given {name!r} after it was unloaded")
            try:
                symbol = (ctypes.c_char * data.nbytes).in_dll(self._library, name)
            except ValueError as error:
                raise LaunchError(f"{self.function} has no __constant__ array {name!r}") from error
            ctypes.memmove(symbol, data.ctypes.data, data.nbytes)

    def launch(self, shape: LaunchShape, arguments: Sequence[Argument]) -> float:
        """Run the grid to its end on all workers; return milliseconds from the first block to the last."""
        self._check_shape(shape)
        values, keep = self._pack(arguments)
        grid = (ctypes.c_uint * 3)(*shape.grid)
        block = (ctypes.c_uint * 3)(*shape.block)
        workers = min(self._workers, math.prod(shape.grid))
        with self._lock:
            if self._library is None:
                raise LaunchError(f"{self.function} was launched after it was unloaded")
            elapsed_ns = int(self._launch(values, grid, block, shape.shared_bytes, workers))
        del keep
        if elapsed_ns < 0:
            raise LaunchError(f"{self.function} could not be launched: {_FAILURES.get(elapsed_ns, elapsed_ns)}")
        return elapsed_ns * 1e-6

    def unload(self) -> None:
        """Stop the workers and close the library."""
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

    def _pack(self, arguments: Sequence[Argument]) -> tuple[ctypes.Array[ctypes.c_void_p], list[Any]]:
        """Return the addresses of the arguments' values, and what has to live as long as they are used."""
        import numpy as np

        if len(arguments) != len(self._codes):
            raise LaunchError(f"{self.function} has {len(self._codes)} parameters and was given {len(arguments)}")
        keep: list[Any] = []
        addresses = []
        for i, (argument, code) in enumerate(zip(arguments, self._codes, strict=True)):
            if isinstance(argument, HostBuffer):
                pointer = ctypes.c_void_p(argument.address)
                keep.append(pointer)
                addresses.append(ctypes.addressof(pointer))
                size = -ctypes.sizeof(ctypes.c_void_p)
            else:
                value = np.array(argument)
                keep.append(value)
                addresses.append(value.ctypes.data)
                size = value.nbytes if isinstance(argument, np.generic) else 0
            if size != code:
                wanted = f"a scalar of {code} bytes" if code > 0 else "a host buffer"
                raise LaunchError(f"parameter {i} of {self.function} is {wanted}, given {in_words(argument)}")
        return (ctypes.c_void_p * len(addresses))(*addresses), keep


class HostDevice(Device):
    """This machine's processor.

    Args:
        workers: threads a grid runs on.
    """

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
            },
        )

    def load(self, binary: Binary) -> HostFunction:
        """Open the library of a compiled function."""
        return HostFunction(binary.function, binary.image, self.workers)

    def allocate(self, nbytes: int) -> HostBuffer:
        """Allocate zeroed memory."""
        available = available_memory_bytes()
        if nbytes > available:
            raise OutOfMemoryError(f"{nbytes} bytes were asked for and {available} bytes of host memory are available")
        return HostBuffer(nbytes)

    def constraints(self) -> tuple[str, ...]:
        """Return the limits of a launch over ``threads_per_block`` and ``shared_bytes``."""
        return f"threads_per_block <= {_MAX_THREADS_PER_BLOCK}", f"shared_bytes <= {_MAX_SHARED_BYTES}"

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
    shares_memory: ClassVar[bool] = True
    sensors: ClassVar[str] = "processor"

    def __init__(self, workers: int | None = None, cache: BinaryCache | None = None) -> None:
        self.compiler: HostCompiler = HostCompiler(cache=cache)
        self.device: Device = HostDevice(workers if workers is not None else usable_cores())

    def prepared(
        self, kernel: Kernel, sizes: Sizes, compilers: Sequence[str] = (), flag_sets: Sequence[str] = ()
    ) -> tuple[Kernel, str]:
        """Return a kernel with the compiler and its flags among its parameters, if they are given.

        Without a choice it is the default compiler, or what :mod:`mptune.backends.host_choice` finds better.
        """
        # Rendering takes longer to import than everything that tells what is here.
        from mptune.backends.host_choice import compiler_for_fp16

        remark = ""
        for name in compilers:
            find_compiler(name)
        if not compilers:
            better, remark = compiler_for_fp16(self.compiler, kernel, sizes)
            compilers = (better,) if better else ()
        return with_build(kernel, compilers, flag_sets), remark

    @classmethod
    def availability(cls) -> Availability:
        """Say whether there is a C++ compiler."""
        try:
            find_compiler()
        except BackendUnavailableError as error:
            return Availability(can_compile=False, can_run=False, reason=str(error))
        return Availability(can_compile=True, can_run=True)


def _parameter_codes(library: ctypes.CDLL) -> list[int]:
    """Bytes of every kernel parameter, negative for a pointer."""
    codes = (ctypes.c_int * _MAX_PARAMETERS)()
    return list(codes[: library.mptune_describe(codes)])


def _open(function: str, image: bytes) -> tuple[ctypes.CDLL, int]:
    """Open a library from memory, so that nothing of it is left on disk; return it and its file descriptor.

    The descriptor stays open with the library: the loader takes an equal path for the same library.
    """
    handle = os.memfd_create("mptune-kernel", os.MFD_CLOEXEC)
    try:
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.write(image)
        _load_math_library()
        return ctypes.CDLL(f"/proc/self/fd/{handle}", mode=os.RTLD_NOW | os.RTLD_LOCAL), handle
    except OSError as error:
        os.close(handle)
        raise LaunchError(f"the library of {function} cannot be opened: {error}") from error


@functools.cache
def _load_math_library() -> None:
    # Not every binary names the library it takes exp and the like from, nor does every Python come with it.
    with contextlib.suppress(OSError):  # musl has it in its C library
        ctypes.CDLL("libm.so.6", mode=os.RTLD_NOW | os.RTLD_GLOBAL)


def _close(library: ctypes.CDLL, handle: int) -> None:
    with contextlib.suppress(AttributeError):
        library.mptune_release()
    dlclose = ctypes.CDLL(None).dlclose
    dlclose.argtypes = [ctypes.c_void_p]
    dlclose(library._handle)
    os.close(handle)
