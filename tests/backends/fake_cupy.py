"""CuPy as the CUDA backend uses it: host memory in place of a device's, every call written down."""

from __future__ import annotations

import ctypes
import sys
import types

import numpy as np


class CUDARuntimeError(RuntimeError):
    pass


class CUDADriverError(RuntimeError):
    pass


class FakeCupy:
    """The modules, and what was asked of them.

    Attributes:
        calls: names and arguments, in order.
        failing: names of the calls that fail.
        free_bytes: what ``malloc`` still gives.
        pool_bytes: what CuPy's own pool would give back.
        kernel: what a launch does, given the address of the pointers to its arguments.
    """

    STREAM = 77

    def __init__(self):
        self.calls = []
        self.failing = set()
        self.free_bytes = 1 << 24
        self.pool_bytes = 0
        self.memory = {}
        self.kernel = lambda arguments: None
        self.elapsed_ms = 1.5
        runtime = types.SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
            malloc=self.malloc,
            getDeviceProperties=lambda device: self.properties(),
            driverGetVersion=lambda: 13010,
            memGetInfo=lambda: (self.free_bytes, 1 << 30),
            memcpyAsync=self.recorded(
                "memcpyAsync", lambda to, of, n, kind, stream: ctypes.memmove(to, of, n), CUDARuntimeError
            ),
            memsetAsync=self.recorded(
                "memsetAsync", lambda to, byte, n, stream: ctypes.memset(to, byte, n), CUDARuntimeError
            ),
            streamSynchronize=self.recorded("streamSynchronize", None, CUDARuntimeError),
            free=self.recorded("free", lambda address: self.memory.pop(address, None), CUDARuntimeError),
        )
        driver = types.SimpleNamespace(
            CUDADriverError=CUDADriverError,
            CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK=0,
            moduleLoadData=self.recorded("moduleLoadData", lambda image: 5, CUDADriverError),
            moduleUnload=self.recorded("moduleUnload", None, CUDADriverError),
            moduleGetFunction=self.recorded("moduleGetFunction", lambda module, name: 6, CUDADriverError),
            moduleGetGlobal=self.recorded("moduleGetGlobal", lambda module, name: self.symbols[name], CUDADriverError),
            funcGetAttribute=self.recorded("funcGetAttribute", lambda attribute, function: 640, CUDADriverError),
            funcSetAttribute=self.recorded("funcSetAttribute", None, CUDADriverError),
            launchKernel=self.recorded("launchKernel", lambda *given: self.kernel(given[9]), CUDADriverError),
        )
        self.symbols = {}
        fake = self

        class Stream:
            ptr = FakeCupy.STREAM

            def __init__(self, non_blocking):
                assert non_blocking

            def use(self):
                fake.calls.append(("use", self.ptr))

        class Event:
            def record(self, stream):
                fake.calls.append(("record", stream.ptr))

            def synchronize(self):
                fake.calls.append(("synchronize",))
                if "synchronize" in fake.failing:
                    raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

        class UnownedMemory:
            def __init__(self, address, nbytes, owner):
                self.address, self.nbytes, self.owner = address, nbytes, owner

        class Cupy(types.ModuleType):
            """Computes on arrays as NumPy does."""

            def __getattr__(self, name):
                return getattr(np, name)

        cupy = Cupy("cupy")
        cupy.__version__ = "14.2.0"
        cupy.ndarray = lambda shape, dtype, memory: np.frombuffer(
            (ctypes.c_char * memory.nbytes).from_address(memory.address), dtype
        ).reshape(shape)
        cupy.get_default_memory_pool = lambda: types.SimpleNamespace(free_all_blocks=self.free_all_blocks)
        cupy.cuda = types.SimpleNamespace(
            Device=lambda number: types.SimpleNamespace(use=lambda: self.calls.append(("device", number))),
            Stream=Stream,
            Event=Event,
            UnownedMemory=UnownedMemory,
            MemoryPointer=lambda memory, offset: memory,
            get_elapsed_time=lambda start, end: self.elapsed_ms,
        )
        api = types.ModuleType("cupy_backends.cuda.api")
        api.driver, api.runtime = driver, runtime
        self.modules = {
            "cupy": cupy,
            "cupy_backends": types.ModuleType("cupy_backends"),
            "cupy_backends.cuda": types.ModuleType("cupy_backends.cuda"),
            "cupy_backends.cuda.api": api,
        }

    def install(self, monkeypatch):
        for name, module in self.modules.items():
            monkeypatch.setitem(sys.modules, name, module)

    def recorded(self, name, result, error):
        def call(*arguments):
            self.calls.append((name, *arguments))
            if name in self.failing:
                raise error(f"{name} failed")
            return result(*arguments) if result else None

        return call

    def named(self, name):
        """The arguments of the calls of that name."""
        return [arguments for called, *arguments in self.calls if called == name]

    def malloc(self, nbytes):
        self.calls.append(("malloc", nbytes))
        if nbytes > self.free_bytes:
            raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
        block = ctypes.create_string_buffer(nbytes)
        self.memory[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def free_all_blocks(self):
        self.free_bytes += self.pool_bytes
        self.pool_bytes = 0

    @staticmethod
    def properties():
        return {
            "name": b"NVIDIA H100 80GB HBM3",
            "major": 9,
            "minor": 0,
            "totalGlobalMem": 85 << 30,
            "maxThreadsPerBlock": 1024,
            "maxThreadsDim": (1024, 1024, 64),
            "maxGridSize": (2**31 - 1, 65535, 65535),
            "sharedMemPerBlock": 49152,
            "sharedMemPerBlockOptin": 232448,
            "totalConstMem": 65536,
            "regsPerBlock": 65536,
            "warpSize": 32,
            "multiProcessorCount": 132,
            "l2CacheSize": 50 << 20,
            "pciDomainID": 0,
            "pciBusID": 0x1B,
            "pciDeviceID": 0,
        }
