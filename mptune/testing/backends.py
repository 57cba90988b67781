"""Conformance tests of backends, also for backends of third parties.

    from mptune.testing.backends import BackendConformance

    class TestMine(BackendConformance):
        backend_class = MyBackend

pytest collects the class; this module does not import pytest. The kernels are plain CUDA on the prelude, which backends
of other dialects translate as any rendered source. The backend's device must be available.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mptune.backends.base import Argument, Backend, Binary, Buffer, CompileOptions, Function
from mptune.cpp.prelude import prelude
from mptune.errors import CompileError, LaunchError, MptuneError, OutOfMemoryError
from mptune.kernel import LaunchShape
from mptune.precision import ARITHMETIC, PRECISIONS

_AXPY = """
extern "C" __global__ void axpy(const float* __restrict__ x, float* __restrict__ y, const float a, const int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = a * x[i] + y[i];
}
"""


@contextmanager
def _raises(kind: type[Exception], pattern: str = "") -> Iterator[None]:
    try:
        yield
    except kind as raised:
        message = str(raised)
    else:
        raise AssertionError(f"expected a {kind.__name__}")
    assert re.search(pattern, message), f"expected {pattern!r} in {message!r}"


def source_of(name: str, body: str) -> str:
    """Return the source of a kernel: the prelude, its text and the host's entry."""
    entry = f"#if defined(MPTUNE_HOST)\nMPTUNE_HOST_ENTRY({name})\n#endif\n"
    return f'{prelude()}\n#line 1 "{name}.cu"\n{body}\n{entry}'


def launch_on_arrays(
    backend: Backend,
    function: Function,
    grid: Sequence[int],
    block: Sequence[int],
    *arguments: NDArray[Any] | np.generic,
    shared_bytes: int = 0,
) -> float:
    """Launch on arrays, which are changed in place, and scalars; return the time in milliseconds."""
    passed: list[Argument] = []
    buffers: list[tuple[Buffer, NDArray[Any]]] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            buffer = _holding(backend, argument)
            buffers.append((buffer, argument))
            passed.append(buffer)
        else:
            passed.append(argument)
    grid_x, grid_y, grid_z = (*grid, 1, 1)[:3]
    block_x, block_y, block_z = (*block, 1, 1)[:3]
    elapsed_ms = function.launch(
        LaunchShape((grid_x, grid_y, grid_z), (block_x, block_y, block_z), shared_bytes), passed
    )
    for buffer, array in buffers:
        buffer.read(array)
        buffer.free()
    return elapsed_ms


def _holding(backend: Backend, data: NDArray[Any]) -> Buffer:
    buffer = backend.device.allocate(data.nbytes)
    buffer.write(data)
    return buffer


def _content(buffer: Buffer, like: NDArray[Any]) -> NDArray[Any]:
    back = np.zeros_like(like)
    buffer.read(back)
    return back


class BackendConformance:
    """Subclass it, name it ``Test...`` and set :attr:`backend_class`."""

    #: The class under test.
    backend_class: ClassVar[type[Backend]]

    @functools.cached_property
    def backend(self) -> Backend:
        """The backend of one test; override it for other settings."""
        return self.backend_class()

    def load(self, name: str, body: str, *flags: str) -> Function:
        """Compile and load a kernel."""
        return self.backend.device.load(self.compiled(name, body, *flags))

    def compiled(self, name: str, body: str, *flags: str) -> Binary:
        """Compile a kernel."""
        return self.backend.compiler.compile(source_of(name, body), name, CompileOptions(flags=flags))

    def run(
        self,
        name: str,
        body: str,
        grid: Sequence[int],
        block: Sequence[int],
        *arguments: NDArray[Any] | np.generic,
        shared_bytes: int = 0,
    ) -> float:
        """Compile, load and launch on arrays, which are changed in place, and scalars; return the time in ms."""
        function = self.load(name, body)
        elapsed_ms = launch_on_arrays(self.backend, function, grid, block, *arguments, shared_bytes=shared_bytes)
        function.unload()
        return elapsed_ms

    def test_asking_what_is_available_never_raises_and_explains_itself(self) -> None:
        found = self.backend_class.availability()
        assert found.can_compile or not found.can_run
        assert found.can_run or found.reason

    def test_describes_itself(self) -> None:
        info = self.backend.describe()
        assert info.backend == self.backend.name
        assert info.name
        assert info.architecture
        assert info.memory_bytes > 0
        assert info.limits["max_threads_per_block"] >= 1024
        assert info.limits["max_shared_bytes"] >= 32 * 1024
        assert info.versions
        facts = self.backend.device.facts()
        assert facts["max_threads_per_block"] >= 1024
        assert isinstance(facts["is_gpu"], bool)
        assert isinstance(facts["matrix_units"], str)

    def test_identity_depends_on_the_flags_and_nothing_of_the_moment(self) -> None:
        identity = self.backend.identity(CompileOptions())
        assert identity == self.backend_class().identity(CompileOptions())
        assert identity != self.backend.identity(CompileOptions(flags=("-DSOMETHING",)))

    def test_a_binary_can_be_loaded_again_and_again(self) -> None:
        first, second = (self.compiled("axpy", _AXPY) for _ in range(2))
        assert first.function == second.function == "axpy"
        assert first.compile_s >= 0
        assert second.cached
        assert second.compile_s == 0
        for _ in range(2):
            self.backend.device.load(first).unload()
            self.backend.device.load(second).unload()

    def test_flags_reach_the_compiler(self) -> None:
        body = "#if !defined(WANTED)\n#error WANTED is missing\n#endif\n" + _AXPY
        with _raises(CompileError, "WANTED is missing"):
            self.compiled("axpy", body)
        self.compiled("axpy", body, "-DWANTED")

    def test_an_error_shows_line_and_cause(self) -> None:
        body = _AXPY.replace("a * x[i]", "factor * x[i]")
        with _raises(CompileError, r"(?s)axpy\.cu\D*5\b.*factor"):
            self.compiled("axpy", body)

    def test_a_damaged_binary_is_refused(self) -> None:
        with _raises(LaunchError):
            self.backend.device.load(Binary("axpy", b"\x7fELF damaged"))

    def test_round_trip(self) -> None:
        for nbytes in [1, 3, 4096, 1_000_003]:
            data = np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)
            first, second = _holding(self.backend, data), self.backend.device.allocate(nbytes)
            assert first.nbytes == nbytes
            second.copy_from(first)
            first.write(np.zeros_like(data))
            np.testing.assert_array_equal(_content(second, data), data)
            first.free()
            second.free()

    def test_every_storage_type(self) -> None:
        for name in PRECISIONS:
            data = np.linspace(-2, 2, 24).reshape(4, 6).astype(PRECISIONS[name].dtype)
            buffer = _holding(self.backend, data)
            assert _content(buffer, data).tobytes() == data.tobytes()
            buffer.free()

    def test_sizes_have_to_match(self) -> None:
        buffer, other = self.backend.device.allocate(16), self.backend.device.allocate(8)
        attempts: tuple[Callable[[], None], ...] = (
            lambda: buffer.write(np.zeros(3)),
            lambda: buffer.read(np.zeros(1)),
            lambda: buffer.copy_from(other),
        )
        for wrong in attempts:
            with _raises(MptuneError):
                wrong()
        buffer.free()
        other.free()

    def test_parts_and_fills(self) -> None:
        whole = self.backend.device.allocate(1000)
        whole.fill(0xA5)
        part = whole.part(256, 24)
        part.write(np.arange(24, dtype=np.uint8))
        whole.part(500, 8).copy_from(part.part(16, 8))
        whole.part(999, 1).fill(1)
        expected = np.full(1000, 0xA5, np.uint8)
        expected[256:280] = np.arange(24)
        expected[500:508] = np.arange(16, 24)
        expected[999] = 1
        np.testing.assert_array_equal(_content(whole, expected), expected)
        with _raises(LaunchError, "not all inside a buffer of 1000 bytes"):
            whole.part(990, 11)
        whole.free()
        with _raises(LaunchError):
            part.fill(0)

    def test_arrays_on_the_device_are_its_memory(self) -> None:
        xp = self.backend.device.array_namespace()
        if xp is None:
            with _raises(MptuneError):
                self.backend.device.array(self.backend.device.allocate(8), np.dtype(np.uint64))
            return
        data = np.random.default_rng(0).random(1000)
        buffer = self.backend.device.allocate(data.nbytes + 16)
        buffer.part(16, data.nbytes).write(data)
        array = self.backend.device.array(buffer.part(16, data.nbytes), np.dtype(np.uint64)).view(np.float64)
        assert np.isclose(float(xp.abs(array - 1).sum()), np.abs(data - 1).sum(), rtol=1e-13)

    def test_what_is_seen_of_a_buffer_is_what_is_read(self) -> None:
        data = np.arange(24).astype(np.uint8)
        buffer = _holding(self.backend, data)
        seen = buffer.part(8, 16).seen()
        if seen is not None:
            np.testing.assert_array_equal(seen, data[8:])
            assert not seen.flags.writeable
        buffer.free()

    def test_a_freed_buffer_is_refused(self) -> None:
        buffer = self.backend.device.allocate(8)
        buffer.free()
        buffer.free()
        with _raises(LaunchError):
            buffer.write(np.zeros(1))

    def test_more_memory_than_any_device_has(self) -> None:
        with _raises(OutOfMemoryError):
            self.backend.device.allocate(2**55)

    def test_awkward_sizes(self) -> None:
        for n in [1, 127, 128, 129, 10_007]:
            x, y = np.random.default_rng(n).random((2, n), np.float32)
            expected = np.float32(0.25) * x + y
            elapsed_ms = self.run("axpy", _AXPY, (-(-n // 128),), (128,), x, y, np.float32(0.25), np.int32(n))
            np.testing.assert_array_equal(y, expected)
            assert elapsed_ms > 0

    def test_scalars_and_buffers_of_every_arithmetic_type(self) -> None:
        for precision in ARITHMETIC:
            body = f"""
            extern "C" __global__ void scale(
                {precision.cpp}* x, {precision.cpp} factor, unsigned long long add, char c) {{
                x[threadIdx.x] = factor * x[threadIdx.x] + static_cast<{precision.cpp}>(static_cast<int>(add) + c);
            }}
            """
            scalar = precision.dtype.type
            x = np.arange(16).astype(precision.dtype)
            self.run("scale", body, (1,), (16,), x, scalar(0.5), np.uint64(3), np.int8(-1))
            np.testing.assert_array_equal(x.astype(np.float64), 0.5 * np.arange(16) + 2)

    def test_three_axes(self) -> None:
        body = """
        extern "C" __global__ void where(int* seen) {
            const int x = blockIdx.x * blockDim.x + threadIdx.x;
            const int y = blockIdx.y * blockDim.y + threadIdx.y;
            const int z = blockIdx.z * blockDim.z + threadIdx.z;
            const int i = (z * gridDim.y * blockDim.y + y) * gridDim.x * blockDim.x + x;
            atomicAdd(seen + i, i + 1);
        }
        """
        seen = np.zeros((2 * 3, 4 * 2, 3 * 5), np.int32)
        self.run("where", body, (3, 4, 2), (5, 2, 3), seen)
        np.testing.assert_array_equal(seen.ravel(), 1 + np.arange(seen.size))

    def test_shared_memory_and_barriers(self) -> None:
        body = """
        extern "C" __global__ void turn(const double* x, double* y) {
            __shared__ double fixed[256];
            SHARED_DYNAMIC(double, dynamic);
            const int first = blockIdx.x * blockDim.x;
            fixed[threadIdx.x] = x[first + threadIdx.x];
            __syncthreads();
            dynamic[threadIdx.x] = fixed[blockDim.x - 1 - threadIdx.x];
            __syncthreads();
            y[first + threadIdx.x] = dynamic[threadIdx.x] + dynamic[0];
        }
        """
        x = np.random.default_rng(0).random((7, 256))
        y = np.zeros_like(x)
        self.run("turn", body, (7,), (256,), x, y, shared_bytes=8 * 256)
        np.testing.assert_array_equal(y, x[:, ::-1] + x[:, -1:])

    def test_a_tree_of_additions_in_the_largest_block(self) -> None:
        body = """
        extern "C" __global__ void total(const int* x, int* sums) {
            __shared__ int part[1024];
            part[threadIdx.x] = x[blockIdx.x * 1024 + threadIdx.x];
            for (int step = 512; step > 0; step /= 2) {
                __syncthreads();
                if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
            }
            if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
        }
        """
        x = np.random.default_rng(1).integers(-1000, 1000, (9, 1024)).astype(np.int32)
        sums = np.zeros(9, np.int32)
        self.run("total", body, (9,), (1024,), x, sums)
        np.testing.assert_array_equal(sums, x.sum(axis=1))

    def test_histogram(self) -> None:
        for cpp, dtype in (("int", np.int32), ("float", np.float32), ("double", np.float64)):
            body = f"""
            extern "C" __global__ void histogram(const int* x, {cpp}* bins, int n) {{
                const int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) atomicAdd(bins + x[i], {cpp}(1));
            }}
            """
            x = np.random.default_rng(2).integers(0, 10, 5003).astype(np.int32)
            bins = np.zeros(10, dtype)
            self.run("histogram", body, (-(-5003 // 64),), (64,), x, bins, np.int32(x.size))
            np.testing.assert_array_equal(bins, np.bincount(x, minlength=10))

    def test_constant_memory(self) -> None:
        body = """
        __constant__ double factor[2][3];
        __constant__ unsigned char first = 7;
        extern "C" __global__ void scale(double* y) {
            y[threadIdx.x] = factor[threadIdx.x / 3][threadIdx.x % 3] + first;
        }
        """
        functions = [self.load("scale", body + f"// {i}") for i in range(2)]
        values = np.random.default_rng(4).random((2, 2, 3))
        for function, mine in zip(functions, values, strict=True):
            function.set_constant("factor", mine)
        for function, mine in zip(functions, values, strict=True):
            buffer = self.backend.device.allocate(48)
            function.launch(LaunchShape((1, 1, 1), (6, 1, 1)), [buffer])
            np.testing.assert_array_equal(_content(buffer, mine), mine + 7)
            buffer.free()
            back = np.empty((2, 3))
            function.read_constant("factor", back)
            np.testing.assert_array_equal(back, mine)
        with _raises(LaunchError):
            functions[0].set_constant("fcator", values)
        with _raises(LaunchError):
            functions[0].read_constant("fcator", back)
        for function in functions:
            function.unload()

    def test_all_the_dynamic_shared_memory_there_is(self) -> None:
        body = """
        extern "C" __global__ void last(int* y, int n) {
            SHARED_DYNAMIC(int, scratch);
            if (threadIdx.x == 0) scratch[n - 1] = 41;
            __syncthreads();
            y[threadIdx.x] = scratch[n - 1] + threadIdx.x;
        }
        """
        most = self.backend.describe().limits["max_shared_bytes"]
        y = np.zeros(32, np.int32)
        self.run("last", body, (1,), (32,), y, np.int32(most // 4), shared_bytes=most)
        np.testing.assert_array_equal(y, 41 + np.arange(32))

    def test_functions_of_one_name_live_side_by_side(self) -> None:
        body = 'extern "C" __global__ void same(int* x) {{ __shared__ int s; s = {value}; x[0] = s; }}'
        functions = [self.load("same", body.format(value=v)) for v in range(3)]
        buffer = self.backend.device.allocate(4)
        shape = LaunchShape((1, 1, 1), (1, 1, 1), 0)
        for value in (2, 0, 1):
            functions[value].launch(shape, [buffer])
            assert _content(buffer, np.zeros(1, np.int32)) == [value]
        for function in functions:
            function.unload()
        with _raises(LaunchError):
            functions[0].launch(shape, [buffer])
        buffer.free()

    def test_a_block_past_the_limit_is_refused_and_does_no_harm(self) -> None:
        function = self.load("axpy", _AXPY)
        x = np.ones(4, np.float32)
        buffer = _holding(self.backend, x)
        arguments: list[Argument] = [buffer, buffer, np.float32(1), np.int32(4)]
        with _raises(LaunchError):
            function.launch(LaunchShape((1, 1, 1), (4096, 1, 1), 0), arguments)
        function.launch(LaunchShape((1, 1, 1), (4, 1, 1), 0), arguments)
        assert (_content(buffer, x) == 2).all()

    def test_a_plain_number_is_no_argument(self) -> None:
        function = self.load("axpy", _AXPY)
        buffer = self.backend.device.allocate(4)
        number: Any = 1.0
        with _raises(LaunchError, "parameter 2 of axpy"):
            function.launch(LaunchShape((1, 1, 1), (1, 1, 1), 0), [buffer, buffer, number, np.int32(1)])

    def test_parts_can_be_launched_on_where_the_device_says(self) -> None:
        at = 64 * self.backend.device.part_alignment_bytes
        whole = self.backend.device.allocate(2 * at + 400)
        whole.fill(0)
        whole.part(at, 400).write(np.ones(100, np.float32))
        function = self.load("axpy", _AXPY)
        part = whole.part(at, 400)
        function.launch(LaunchShape((1, 1, 1), (128, 1, 1)), [part, part, np.float32(2), np.int32(100)])
        back = _content(whole, np.empty(2 * at + 400, np.uint8))
        assert (back[at : at + 400].view(np.float32) == 3).all()
        assert not back[:at].any()
        assert not back[at + 400 :].any()
        whole.free()
