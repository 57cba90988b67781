"""CuPy, as far as mptune and the programs it emits use it, on a simulated device."""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import types
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tests.support.simulator.compiler import compile_source
from tests.support.simulator.cuda import MAX_DYNAMIC_SHARED_SIZE_BYTES, Driver, Runtime
from tests.support.simulator.device import Misuse, SimulatedDevice, Stream

__all__ = ["SimulatedCupy"]

#: Room for an argument's value.
_SLOT = 16


class SimulatedCupy:
    """CuPy, with a device of its own.

    Attributes:
        device: the device, which knows what was asked of it.
        driver: its driver.
        runtime: its runtime.
    """

    def __init__(self, device: SimulatedDevice | None = None) -> None:
        self.device = device or SimulatedDevice()
        self.driver, self.runtime = Driver(self.device), Runtime(self.device)
        self._stream: CupyStream | None = None
        #: Memory of arrays that are gone, which CuPy keeps.
        self._pool: list[int] = []

    @property
    def modules(self) -> dict[str, types.ModuleType]:
        """The modules, by the names they are imported by."""
        cuda = types.SimpleNamespace(
            Device=Device,
            Stream=functools.partial(CupyStream, self),
            UnownedMemory=UnownedMemory,
            MemoryPointer=MemoryPointer,
            runtime=self.runtime,
        )
        cupy = _Module(
            "cupy",
            __version__="14.2.0",
            cuda=cuda,
            ndarray=self._array_at,
            empty=self.empty,
            zeros=self._zeros,
            asarray=self._asarray,
            asnumpy=np.array,
            fromfile=self._fromfile,
            RawModule=functools.partial(_RawModule, self),
            get_default_memory_pool=lambda: types.SimpleNamespace(free_all_blocks=self._free_pool),
        )
        api = _Module("cupy_backends.cuda.api", driver=self.driver, runtime=self.runtime)
        found = (cupy, _Module("cupy_backends"), _Module("cupy_backends.cuda"), api)
        return {module.__name__: module for module in found}

    @property
    def stream(self) -> CupyStream:
        """What computes with arrays: the stream in use, or one of its own."""
        return self._stream or self.use(CupyStream(self))

    def use(self, stream: CupyStream) -> CupyStream:
        """Have a stream compute with arrays."""
        self._stream = stream
        return stream

    def empty(self, shape: Sequence[int], dtype: Any = float) -> Array:
        """Return a new array full of garbage."""
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        address = self.device.allocate(max(nbytes, 1))
        memory = self.device.view(address, nbytes, self.stream.stream)
        # With the last array that shows some of it.
        weakref.finalize(memory, self._pool.append, address).atexit = False
        return self._view(memory, shape, dtype)

    def _array_at(self, shape: Sequence[int], dtype: Any, memptr: MemoryPointer) -> Array:
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self._view(self.device.view(memptr.ptr, nbytes, self.stream.stream), shape, dtype)

    def _view(self, memory: ctypes.Array[ctypes.c_char], shape: Sequence[int], dtype: Any) -> Array:
        array: Array = np.frombuffer(memoryview(memory), dtype).reshape(shape).view(Array)
        array.cupy = self
        return array

    def _zeros(self, shape: Sequence[int], dtype: Any = float) -> Array:
        return self._asarray(np.zeros(shape, dtype))

    def _asarray(self, given: Any, dtype: Any = None, order: Any = None) -> Array:
        values = np.asarray(given, dtype, order)
        array = self.empty(values.shape, values.dtype)
        array[...] = values
        return array

    def _fromfile(self, file: Any, dtype: Any = float) -> Array:
        return self._asarray(np.fromfile(file, dtype))

    def _free_pool(self) -> None:
        while self._pool:
            self.runtime.free(self._pool.pop())


class Array(np.ndarray[Any, Any]):
    """An array, which may lie in the device's memory."""

    cupy: SimulatedCupy | None = None

    def __array_finalize__(self, whole: Any) -> None:
        self.cupy = getattr(whole, "cupy", None)

    @property
    def data(self) -> MemoryPointer:  # type: ignore[override]
        """Where it lies; an array of the host has no such attribute."""
        assert self.cupy is not None
        try:
            address = self.cupy.device.address_of(self.ctypes.data)
        except Misuse as error:
            raise AttributeError(str(error)) from error
        return MemoryPointer(UnownedMemory(address, self.nbytes, self), 0)

    def get(self) -> Any:
        """Return it as an array of the host."""
        return np.array(self)

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.data.ptr, False), "version": 3}


class _Module(types.ModuleType):
    """A module of some members, which computes as NumPy does."""

    def __init__(self, name: str, **members: Any) -> None:
        super().__init__(name)
        vars(self).update(members, __spec__=importlib.machinery.ModuleSpec(name, None))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(np, name)


# -- cupy.cuda -------------------------------------------------------------------------------------


class Device:
    """``cupy.cuda.Device``."""

    def __init__(self, device: int) -> None:
        assert device == 0

    def use(self) -> None:
        pass


class UnownedMemory:
    """``cupy.cuda.UnownedMemory``."""

    def __init__(self, ptr: int, size: int, owner: object) -> None:
        self.ptr, self.size, self.owner = ptr, size, owner


class MemoryPointer:
    """``cupy.cuda.MemoryPointer``."""

    def __init__(self, mem: UnownedMemory, offset: int) -> None:
        assert 0 <= offset <= mem.size
        self.ptr = mem.ptr + offset


class CupyStream:
    """``cupy.cuda.Stream``."""

    def __init__(self, cupy: SimulatedCupy, *, non_blocking: bool = True) -> None:
        assert non_blocking
        self._cupy = cupy
        self.stream = Stream()
        self.ptr = cupy.device.new(self.stream)

    def use(self) -> CupyStream:
        return self._cupy.use(self)

    def synchronize(self) -> None:
        self._cupy.runtime.streamSynchronize(self.ptr)


# -- programs that are emitted ---------------------------------------------------------------------


class _RawModule:
    """``cupy.RawModule``."""

    def __init__(
        self, cupy: SimulatedCupy, code: str, *, options: tuple[str, ...] = (), backend: str = "nvrtc"
    ) -> None:
        assert backend == "nvrtc"
        assert isinstance(options, tuple)
        self._cupy = cupy
        self._handle = cupy.driver.moduleLoadData(compile_source(code, options))

    def get_function(self, name: str) -> _RawKernel:
        return _RawKernel(self._cupy, self._cupy.driver.moduleGetFunction(self._handle, name))

    def get_global(self, name: str) -> Any:
        cupy, address = self._cupy, self._cupy.driver.moduleGetGlobal(self._handle, name)

        def copy_from_device(src: MemoryPointer, size: int) -> None:
            cupy.device.copy(address, src.ptr, size, cupy.stream.ptr)

        return types.SimpleNamespace(copy_from_device=copy_from_device)


class _RawKernel:
    """``cupy.RawKernel``."""

    _SCALARS: ClassVar[Mapping[type, Any]] = {bool: np.bool_, int: np.int64, float: np.float64}

    def __init__(self, cupy: SimulatedCupy, handle: int) -> None:
        self._cupy, self._handle = cupy, handle

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "max_dynamic_shared_size_bytes":
            self._cupy.driver.funcSetAttribute(self._handle, MAX_DYNAMIC_SHARED_SIZE_BYTES, value)

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], shared_mem: int = 0
    ) -> None:
        assert all(isinstance(given, tuple) for given in (grid, block, args))
        packed = bytearray().join(self._value(argument).ljust(_SLOT, b"\0") for argument in args)
        values = (ctypes.c_char * len(packed)).from_buffer(packed)
        first = ctypes.addressof(values)
        pointers = (ctypes.c_void_p * len(args))(*range(first, first + len(packed), _SLOT))
        extents = (*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3])
        stream, address = self._cupy.stream, ctypes.addressof(pointers)
        self._cupy.driver.launchKernel(self._handle, *extents, shared_mem, stream.ptr, address, 0)
        # Arrays show what is there.
        stream.synchronize()

    def _value(self, argument: Any) -> bytes:
        if isinstance(argument, Array):
            return argument.data.ptr.to_bytes(8, "little")
        found: np.generic = self._SCALARS.get(type(argument), lambda given: given)(argument)
        return found.tobytes()
