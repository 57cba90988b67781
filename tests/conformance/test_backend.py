"""What every backend promises, checked on each that can run here.

A backend under test needs no other preparation than its registration; the kernels are plain CUDA on the
prelude. Devices are only touched by the ``gpu`` tests.
"""

from __future__ import annotations

import numpy as np
import pytest
from on_arrays import launch_on_arrays

from mptune.backends import BACKENDS, get_backend
from mptune.backends.base import Backend, Binary, CompileOptions
from mptune.errors import CompileError, LaunchError, MptuneError, OutOfMemoryError, UnknownNameError
from mptune.expressions import Expression
from mptune.kernel import LaunchShape
from mptune.precision import ARITHMETIC, PRECISIONS
from mptune.prelude import prelude

GPU = ("cuda", "hip")


@pytest.fixture(scope="module", params=[pytest.param(n, marks=[pytest.mark.gpu] if n in GPU else []) for n in BACKENDS])
def backend(request, tmp_path_factory):
    found = BACKENDS[request.param].availability()
    if not found.can_run:
        pytest.skip(found.reason)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPTUNE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield get_backend(request.param)


def source(name: str, body: str) -> str:
    entry = f"#if defined(MPTUNE_HOST)\nMPTUNE_HOST_ENTRY({name})\n#endif\n"
    return f'{prelude()}\n#line 1 "{name}.cu"\n{body}\n{entry}'


def run(
    backend: Backend, name: str, body: str, grid: tuple[int, ...], block: tuple[int, ...], *arguments, shared_bytes=0
) -> float:
    """Compile, load and launch on arrays, which come back changed, and scalars; return the time in ms."""
    function = backend.device.load(backend.compiler.compile(source(name, body), name, CompileOptions()))
    elapsed_ms = launch_on_arrays(backend, function, grid, block, *arguments, shared_bytes=shared_bytes)
    function.unload()
    return elapsed_ms


AXPY = """
extern "C" __global__ void axpy(const float* __restrict__ x, float* __restrict__ y, const float a, const int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = a * x[i] + y[i];
}
"""


class TestNames:
    def test_a_backend_is_registered_under_its_name(self):
        for name, cls in BACKENDS.items():
            assert issubclass(cls, Backend)
            assert cls.name == name

    def test_asking_what_is_available_never_raises_and_explains_itself(self):
        for cls in BACKENDS.values():
            found = cls.availability()
            assert found.can_compile or not found.can_run
            assert found.can_run or found.reason

    def test_an_unknown_name_gets_the_nearest_one(self):
        with pytest.raises(UnknownNameError, match="did you mean 'host'"):
            get_backend("hots")


class TestDevice:
    def test_describes_itself(self, backend):
        info = backend.describe()
        assert info.backend == backend.name
        assert info.name
        assert info.architecture
        assert info.memory_bytes > 0
        assert info.limits["max_threads_per_block"] >= 1024
        assert info.limits["max_shared_bytes"] >= 32 * 1024
        assert info.versions

    def test_constraints_are_expressions_over_the_launch(self, backend):
        axes = [f"{what}_{axis}" for what in ("block", "grid") for axis in "xyz"]
        small = {"threads_per_block": 32, "shared_bytes": 0, **dict.fromkeys(axes, 1)}
        large = {"threads_per_block": 10**6, "shared_bytes": 10**9, **dict.fromkeys(axes, 2**40)}
        constraints = [Expression(text) for text in backend.device.constraints()]
        assert all(constraint.names <= small.keys() for constraint in constraints)
        assert all(constraint.evaluate(small) for constraint in constraints)
        assert not all(constraint.evaluate(large) for constraint in constraints)

    def test_identity_depends_on_the_flags_and_nothing_of_the_moment(self, backend):
        options = CompileOptions()
        assert backend.identity(options) == get_backend(backend.name).identity(CompileOptions())
        assert backend.identity(options) != backend.identity(CompileOptions(flags=("-DSOMETHING",)))


class TestCompiling:
    def test_a_binary_can_be_loaded_again_and_again(self, backend):
        first = backend.compiler.compile(source("axpy", AXPY), "axpy", CompileOptions())
        second = backend.compiler.compile(source("axpy", AXPY), "axpy", CompileOptions())
        assert first.function == second.function == "axpy"
        assert first.compile_s >= 0
        assert second.cached
        assert second.compile_s == 0
        for _ in range(2):
            backend.device.load(first).unload()
            backend.device.load(second).unload()

    def test_flags_reach_the_compiler(self, backend):
        body = "#if !defined(WANTED)\n#error WANTED is missing\n#endif\n" + AXPY
        with pytest.raises(CompileError, match="WANTED is missing"):
            backend.compiler.compile(source("axpy", body), "axpy", CompileOptions())
        backend.compiler.compile(source("axpy", body), "axpy", CompileOptions(flags=("-DWANTED",)))

    def test_an_error_shows_line_and_cause(self, backend):
        body = AXPY.replace("a * x[i]", "factor * x[i]")
        with pytest.raises(CompileError, match=r"axpy\.cu\D*5\b") as caught:
            backend.compiler.compile(source("axpy", body), "axpy", CompileOptions())
        assert "factor" in str(caught.value)

    def test_a_damaged_binary_is_refused(self, backend):
        with pytest.raises(LaunchError):
            backend.device.load(Binary("axpy", b"\x7fELF damaged"))


class TestBuffers:
    @pytest.mark.parametrize("nbytes", [1, 3, 4096, 1_000_003])
    def test_round_trip(self, backend, nbytes):
        data = np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)
        first, second = backend.device.allocate(nbytes), backend.device.allocate(nbytes)
        assert first.nbytes == nbytes
        first.write(data)
        second.copy_from(first)
        first.write(np.zeros_like(data))
        back = np.zeros_like(data)
        second.read(back)
        np.testing.assert_array_equal(back, data)
        first.free()
        second.free()

    @pytest.mark.parametrize("name", PRECISIONS)
    def test_every_storage_type(self, backend, name):
        data = np.linspace(-2, 2, 24).reshape(4, 6).astype(PRECISIONS[name].dtype)
        buffer = backend.device.allocate(data.nbytes)
        buffer.write(data)
        back = np.zeros_like(data)
        buffer.read(back)
        assert back.tobytes() == data.tobytes()
        buffer.free()

    def test_sizes_have_to_match(self, backend):
        buffer, other = backend.device.allocate(16), backend.device.allocate(8)
        for wrong in (
            lambda: buffer.write(np.zeros(3)),
            lambda: buffer.read(np.zeros(1)),
            lambda: buffer.copy_from(other),
        ):
            with pytest.raises(MptuneError):
                wrong()
        buffer.free()
        other.free()

    def test_parts_and_fills(self, backend):
        whole = backend.device.allocate(1000)
        whole.fill(0xA5)
        part = whole.part(256, 24)
        part.write(np.arange(24, dtype=np.uint8))
        whole.part(500, 8).copy_from(part.part(16, 8))
        whole.part(999, 1).fill(1)
        back = np.empty(1000, np.uint8)
        whole.read(back)
        expected = np.full(1000, 0xA5, np.uint8)
        expected[256:280] = np.arange(24)
        expected[500:508] = np.arange(16, 24)
        expected[999] = 1
        np.testing.assert_array_equal(back, expected)
        with pytest.raises(LaunchError, match="not all inside a buffer of 1000 bytes"):
            whole.part(990, 11)
        whole.free()
        with pytest.raises(LaunchError):
            part.fill(0)

    def test_arrays_on_the_device_are_its_memory(self, backend):
        xp = backend.device.array_namespace()
        if xp is None:
            with pytest.raises(MptuneError):
                backend.device.array(backend.device.allocate(8), np.dtype(np.uint64))
            return
        data = np.random.default_rng(0).random(1000)
        buffer = backend.device.allocate(data.nbytes + 16)
        buffer.part(16, data.nbytes).write(data)
        array = backend.device.array(buffer.part(16, data.nbytes), np.dtype(np.uint64)).view(np.float64)
        assert float(xp.abs(array - 1).sum()) == pytest.approx(np.abs(data - 1).sum(), rel=1e-13)

    def test_a_freed_buffer_is_refused(self, backend):
        buffer = backend.device.allocate(8)
        buffer.free()
        buffer.free()
        with pytest.raises(LaunchError):
            buffer.write(np.zeros(1))

    def test_more_memory_than_any_device_has(self, backend):
        with pytest.raises(OutOfMemoryError):
            backend.device.allocate(2**55)


class TestLaunching:
    @pytest.mark.parametrize("n", [1, 127, 128, 129, 10_007])
    def test_awkward_sizes(self, backend, n):
        x, y = np.random.default_rng(n).random((2, n), np.float32)
        expected = np.float32(0.25) * x + y
        elapsed_ms = run(backend, "axpy", AXPY, (-(-n // 128),), (128,), x, y, np.float32(0.25), np.int32(n))
        np.testing.assert_array_equal(y, expected)
        assert elapsed_ms > 0

    @pytest.mark.parametrize("precision", ARITHMETIC, ids=str)
    def test_scalars_and_buffers_of_every_arithmetic_type(self, backend, precision):
        body = f"""
        extern "C" __global__ void scale({precision.cpp}* x, {precision.cpp} factor, unsigned long long add, char c) {{
            x[threadIdx.x] = factor * x[threadIdx.x] + static_cast<{precision.cpp}>(static_cast<int>(add) + c);
        }}
        """
        scalar = precision.dtype.type
        x = np.arange(16).astype(precision.dtype)
        run(backend, "scale", body, (1,), (16,), x, scalar(0.5), np.uint64(3), np.int8(-1))
        np.testing.assert_array_equal(x.astype(np.float64), 0.5 * np.arange(16) + 2)

    def test_three_axes(self, backend):
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
        run(backend, "where", body, (3, 4, 2), (5, 2, 3), seen)
        np.testing.assert_array_equal(seen.ravel(), 1 + np.arange(seen.size))

    def test_shared_memory_and_barriers(self, backend):
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
        run(backend, "turn", body, (7,), (256,), x, y, shared_bytes=8 * 256)
        np.testing.assert_array_equal(y, x[:, ::-1] + x[:, -1:])

    def test_a_tree_of_additions_in_the_largest_block(self, backend):
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
        run(backend, "total", body, (9,), (1024,), x, sums)
        np.testing.assert_array_equal(sums, x.sum(axis=1))

    @pytest.mark.parametrize(("cpp", "dtype"), [("int", np.int32), ("float", np.float32), ("double", np.float64)])
    def test_histogram(self, backend, cpp, dtype):
        body = f"""
        extern "C" __global__ void histogram(const int* x, {cpp}* bins, int n) {{
            const int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) atomicAdd(bins + x[i], {cpp}(1));
        }}
        """
        x = np.random.default_rng(2).integers(0, 10, 5003).astype(np.int32)
        bins = np.zeros(10, dtype)
        run(backend, "histogram", body, (-(-5003 // 64),), (64,), x, bins, np.int32(x.size))
        np.testing.assert_array_equal(bins, np.bincount(x, minlength=10))

    def test_constant_memory(self, backend):
        body = """
        __constant__ double factor[2][3];
        __constant__ unsigned char first = 7;
        extern "C" __global__ void scale(double* y) {
            y[threadIdx.x] = factor[threadIdx.x / 3][threadIdx.x % 3] + first;
        }
        """
        functions = [
            backend.device.load(backend.compiler.compile(source("scale", body + f"// {i}"), "scale", CompileOptions()))
            for i in range(2)
        ]
        values = np.random.default_rng(4).random((2, 2, 3))
        for function, mine in zip(functions, values, strict=True):
            function.set_constant("factor", mine)
        for function, mine in zip(functions, values, strict=True):
            buffer = backend.device.allocate(48)
            function.launch(LaunchShape((1, 1, 1), (6, 1, 1)), [buffer])
            back = np.empty((2, 3))
            buffer.read(back)
            np.testing.assert_array_equal(back, mine + 7)
            buffer.free()
        with pytest.raises(LaunchError):
            functions[0].set_constant("fcator", values)
        for function in functions:
            function.unload()

    def test_all_the_dynamic_shared_memory_there_is(self, backend):
        body = """
        extern "C" __global__ void last(int* y, int n) {
            SHARED_DYNAMIC(int, scratch);
            if (threadIdx.x == 0) scratch[n - 1] = 41;
            __syncthreads();
            y[threadIdx.x] = scratch[n - 1] + threadIdx.x;
        }
        """
        most = backend.describe().limits["max_shared_bytes"]
        y = np.zeros(32, np.int32)
        run(backend, "last", body, (1,), (32,), y, np.int32(most // 4), shared_bytes=most)
        np.testing.assert_array_equal(y, 41 + np.arange(32))

    def test_functions_of_one_name_live_side_by_side(self, backend):
        body = 'extern "C" __global__ void same(int* x) {{ __shared__ int s; s = {value}; x[0] = s; }}'
        functions = [
            backend.device.load(
                backend.compiler.compile(source("same", body.format(value=v)), "same", CompileOptions())
            )
            for v in range(3)
        ]
        buffer = backend.device.allocate(4)
        shape = LaunchShape((1, 1, 1), (1, 1, 1), 0)
        for value in (2, 0, 1):
            functions[value].launch(shape, [buffer])
            out = np.full(1, -1, np.int32)
            buffer.read(out)
            assert out[0] == value
        for function in functions:
            function.unload()
        with pytest.raises(LaunchError):
            functions[0].launch(shape, [buffer])
        buffer.free()

    def test_a_block_past_the_limit_is_refused_and_does_no_harm(self, backend):
        function = backend.device.load(backend.compiler.compile(source("axpy", AXPY), "axpy", CompileOptions()))
        x = np.ones(4, np.float32)
        buffer = backend.device.allocate(x.nbytes)
        buffer.write(x)
        arguments = [buffer, buffer, np.float32(1), np.int32(4)]
        with pytest.raises(LaunchError):
            function.launch(LaunchShape((1, 1, 1), (4096, 1, 1), 0), arguments)
        function.launch(LaunchShape((1, 1, 1), (4, 1, 1), 0), arguments)
        buffer.read(x)
        assert (x == 2).all()

    def test_a_plain_number_is_no_argument(self, backend):
        function = backend.device.load(backend.compiler.compile(source("axpy", AXPY), "axpy", CompileOptions()))
        buffer = backend.device.allocate(4)
        with pytest.raises(LaunchError, match="parameter 2 of axpy"):
            function.launch(LaunchShape((1, 1, 1), (1, 1, 1), 0), [buffer, buffer, 1.0, np.int32(1)])
