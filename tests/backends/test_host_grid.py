"""What CUDA means on the host: indices, shared memory, barriers, atomics, and what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from host_kernels import CACHE, build, run

from mptune.backends.base import CompileOptions
from mptune.backends.host import HostBackend
from mptune.cpp.prelude import prelude
from mptune.errors import CompileError, LaunchError
from tests.tiers import few

SWITCHES = few([pytest.param((), id="assembly"), pytest.param(("-DMPTUNE_UCONTEXT",), id="ucontext")])

COUNT = """
extern "C" __global__ void count(int* seen, int* sums, int nx, int ny, int nz) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    const int z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= nx || y >= ny || z >= nz) return;
    seen[(z * ny + y) * nx + x] += 1;
    sums[(z * ny + y) * nx + x] = gridDim.x + 10 * gridDim.y + 100 * gridDim.z;
    %s
}
"""

SHAPES = [
    ((7,), (33,), (201, 1, 1)),
    ((3,), (1024,), (2049, 1, 1)),
    ((5, 3), (8, 4), (37, 11, 1)),
    ((2, 3, 4), (5, 3, 2), (9, 8, 7)),
    ((1, 1, 17), (1, 1, 64), (1, 1, 1025)),
]


@pytest.fixture(scope="module")
def count():
    return build("count", COUNT % "")


@pytest.fixture(scope="module")
def count_with_fibers():
    return build("count", COUNT % "__syncthreads();")


@pytest.mark.parametrize(("grid", "block", "extent"), SHAPES)
@pytest.mark.parametrize("runner", ["count", "count_with_fibers"])
def test_every_index_is_visited_exactly_once(request, runner, grid, block, extent):
    seen = np.zeros(extent[::-1], np.int32)
    sums = np.zeros_like(seen)
    run(request.getfixturevalue(runner), grid, block, seen, sums, *(np.int32(n) for n in extent))
    assert (seen == 1).all()
    full = (*grid, 1, 1)
    assert (sums == full[0] + 10 * full[1] + 100 * full[2]).all()


def test_a_block_fixed_in_the_source_must_be_the_launched_one():
    function = build("count", COUNT % "", block=(16, 2, 1))
    seen = np.zeros((6, 32), np.int32)
    run(function, (2, 3), (16, 2), seen, seen.copy(), np.int32(32), np.int32(6), np.int32(1))
    assert (seen == 1).all()
    with pytest.raises(LaunchError, match="blocks of another shape"):
        run(function, (2, 3), (2, 16), seen, seen.copy(), np.int32(32), np.int32(6), np.int32(1))


REVERSE = """
extern "C" __global__ void reverse(const float* x, float* y) {
    __shared__ float tile[1024];
    const int first = blockIdx.x * blockDim.x;
    tile[threadIdx.x] = x[first + threadIdx.x];
    __syncthreads();
    y[first + threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
"""


@pytest.mark.parametrize("flags", SWITCHES)
@pytest.mark.parametrize("threads", [1, 31, 1024])
def test_shared_memory_reversal(flags, threads):
    x = np.random.default_rng(threads).random((5, threads), np.float32)
    y = np.zeros_like(x)
    run(build("reverse", REVERSE, flags=flags), (5,), (threads,), x, y)
    np.testing.assert_array_equal(y, x[:, ::-1])


@pytest.mark.parametrize("flags", SWITCHES)
def test_reduction_with_barriers_in_a_loop_and_dynamic_shared_memory(flags):
    body = """
    extern "C" __global__ void total(const double* x, double* sums, int n) {
        SHARED_DYNAMIC(double, partial);
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        partial[threadIdx.x] = i < n ? x[i] : 0.0;
        for (int step = blockDim.x / 2; step > 0; step /= 2) {
            __syncthreads();
            if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
        }
        if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
    }
    """
    function = build("total", body, flags=flags)
    n = 40_001
    x = np.random.default_rng(1).integers(-1000, 1000, n).astype(np.float64)
    for threads in (1, 64, 512, 1024):
        blocks = -(-n // threads)
        sums = np.zeros(blocks)
        run(function, (blocks,), (threads,), x, sums, np.int32(n), shared_bytes=8 * threads)
        padded = np.pad(x, (0, blocks * threads - n)).reshape(blocks, threads)
        np.testing.assert_array_equal(sums, padded.sum(axis=1))


@pytest.mark.parametrize("flags", SWITCHES)
def test_threads_that_returned_do_not_hold_up_a_barrier(flags):
    body = """
    extern "C" __global__ void leave(int* rounds, int* order) {
        __shared__ int arrived;
        if (threadIdx.x == 0) arrived = 0;
        __syncthreads();
        for (int round = 0; round < blockDim.x; ++round) {
            if (threadIdx.x == (round * 7) % blockDim.x) return;
            atomicAdd(&arrived, 1);
            __syncthreads();
            order[blockIdx.x * blockDim.x + round] = arrived;
            __syncthreads();
            rounds[blockIdx.x * blockDim.x + threadIdx.x] += 1;
        }
    }
    """
    function = build("leave", body, flags=flags)
    for threads in (1, 2, 45, 256):  # none a multiple of 7: a different thread leaves in every round
        rounds = np.zeros((4, threads), np.int32)
        order = np.zeros_like(rounds)
        run(function, (4,), (threads,), rounds, order)
        left_in = np.empty(threads, np.int32)
        left_in[np.arange(threads) * 7 % threads] = np.arange(threads)
        np.testing.assert_array_equal(rounds, np.tile(left_in, (4, 1)))
        arrivals = np.cumsum(np.arange(threads - 1, -1, -1))
        arrivals[-1] = 0  # in the last round nobody was left to note it
        np.testing.assert_array_equal(order, np.tile(arrivals, (4, 1)))


def test_a_stack_overflow_ends_the_process_instead_of_corrupting_a_neighbour(tmp_path):
    script = f"""
import sys
sys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]!r}
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
import numpy as np
from host_kernels import CACHE, build, run
body = '''
extern "C" __global__ void deep(int* out) {{
    volatile char big[70000];
    for (int k = 69999; k >= 0; k -= 512) big[k] = k;
    __syncthreads();
    out[threadIdx.x] = big[threadIdx.x * 512];
}}'''
run(build("deep", body), (1,), (8,), np.zeros(8, np.int32))
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # it does not live to remove its cache
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert ended.returncode == -signal.SIGSEGV, ended.stderr


def test_every_atomic_function():
    body = """
    template <class T>
    __device__ void all(T* r, T v, int i) {
        atomicAdd(r + 0, v);
        atomicSub(r + 1, v);
        atomicMin(r + 2, v);
        atomicMax(r + 3, v);
        if (atomicCAS(r + 4, 0, v) == v) atomicAdd(r + 5, 1);
    }
    extern "C" __global__ void atomics(int* r, unsigned* u, long long* l, float* f, double* d, int* old) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        all<int>(r, i, i);
        all<unsigned>(u, i, i);
        all<long long>(l, i, i);
        all<float>(f, i, i);
        all<double>(d, i, i);
        atomicAnd(r + 6, ~(1 << i % 16));
        atomicOr(r + 7, 1 << i % 16);
        atomicXor(r + 8, i);
        atomicInc(u + 6, 9u);
        atomicDec(u + 7, 9u);
        old[i] = atomicAdd(r + 9, 1);
        atomicExch(r + 10, 77);
    }
    """
    n = 600
    starts = [0, 0, 10**6, -(10**6), 0, 0]
    r = np.array([*starts, 0xFFFF, 0, 0, 0, 0], np.int32)
    u = np.array([0, 0, 10**6, 0, 0, 0, 0, 0], np.uint32)
    numbers = [np.array(starts, dtype) for dtype in (np.int64, np.float32, np.float64)]
    old = np.zeros(n, np.int32)
    run(build("atomics", body), (20,), (30,), r, u, *numbers, old)
    total = n * (n - 1) // 2
    for values in (r, *numbers):
        assert values[:4].tolist() == [total, -total, 0, n - 1]
    assert u[:4].tolist() == [total, 2**32 - total, 0, n - 1]
    # The first thread to come with a value other than 0 leaves it; thread 0 leaves what is there.
    assert r[4] > 0
    assert r[6:9].tolist() == [0, 0xFFFF, int(np.bitwise_xor.reduce(np.arange(n)))]
    assert u[6:8].tolist() == [n % 10, -n % 10]
    assert sorted(old) == list(range(n))
    assert r[10] == 77


def test_constants_helpers_and_qualifiers_read_as_in_cuda():
    body = """
    __constant__ float weights[3] = {1.0f, 2.0f, 4.0f};
    __device__ __forceinline__ float twice(float x) { return 2.0f * x; }
    __device__ float thrice(float x) { return 3.0f * x; }
    extern "C" __global__ void __launch_bounds__(64, 2) mix(const float* __restrict__ x, float* y, dim3 g) {
        const int i = threadIdx.x;
        __threadfence();
        y[i] = twice(__ldg(x + i)) + thrice(weights[i % 3]) + g.y;
    }
    """
    x = np.random.default_rng(3).random(64, np.float32)
    y = np.zeros_like(x)
    shape = np.array([(1, 5, 9)], dtype="i4,i4,i4")[0]
    run(build("mix", body), (1,), (64,), x, y, shape)
    np.testing.assert_array_equal(y, 2 * x + 3 * np.array([1, 2, 4], np.float32)[np.arange(64) % 3] + 5)


@pytest.mark.parametrize("name", ["kernel", "launch", "threads"])
def test_a_kernel_may_have_any_name(name):
    out = np.zeros(40, np.int32)
    body = f'extern "C" __global__ void {name}(int* out) {{ out[blockIdx.x * blockDim.x + threadIdx.x] = 3; }}'
    run(build(name, body), (5,), (8,), out)
    assert (out == 3).all()


@pytest.mark.parametrize("call", few(["__syncwarp()", "__shfl_down_sync(~0u, x[0], 1)", "__any_sync(~0u, 1)"]))
def test_warp_functions_are_refused_by_name(call):
    body = f'extern "C" __global__ void warp(float* x) {{ {call}; }}'
    with pytest.raises(CompileError, match=rf"{call.split('(')[0]} needs warps, which the host backend does not have"):
        build("warp", body)


WHERE = """
extern "C" int where_am_i() __asm__("sched_getcpu");
extern "C" int who_am_i() __asm__("gettid");
extern "C" __global__ void where(int* processors, int* threads, int n) {
    const int i = blockIdx.x;
    if (i >= n) return;
    for (int k = 0; k < 20000; ++k) __asm__ volatile("" ::: "memory");
    processors[i] = where_am_i();
    threads[i] = who_am_i();
}
"""


def processors_by_thread(function) -> dict[int, set[int]]:
    """Return the processors each thread was seen on, over some launches."""
    seen: dict[int, set[int]] = {}
    n = 2000
    for _ in range(20):
        processors, threads = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
        run(function, (n,), (1,), processors, threads, np.int32(n))
        for thread, processor in zip(threads.tolist(), processors.tolist(), strict=True):
            seen.setdefault(thread, set()).add(processor)
    return seen


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
def test_with_a_worker_for_each_processor_each_keeps_to_its_own():
    allowed = os.sched_getaffinity(0)
    seen = processors_by_thread(build("where", WHERE, workers=len(allowed)))
    assert all(len(processors) == 1 for processors in seen.values())
    assert len(set().union(*seen.values())) == len(seen)
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.parametrize("workers", [1, 3 * len(os.sched_getaffinity(0))])
def test_workers_run_where_the_process_may(workers):
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        seen = processors_by_thread(build("where", WHERE, workers=workers))
        assert set().union(*seen.values()) == {max(allowed)}
        assert os.sched_getaffinity(0) == {max(allowed)}
    finally:
        os.sched_setaffinity(0, allowed)


PRODUCT = """
__device__ bool product_has_work(const float* a, const float* b, float* c, int n, VIRTUAL_INDICES) {
    return blockIdx.x * blockDim.x + threadIdx.x < n && blockIdx.y * blockDim.y + threadIdx.y < n;
}
template <class Tile>
__device__ void product_tile(const float* a, const float* b, float* c, int n, TILE_INDICES) {
    mp::per_tile<Tile, float> sum_of;
    EACH_THREAD { OF_THREAD(sum); sum = 0; }
    for (int k = 0; k < n; ++k) {
        EACH_THREAD { OF_THREAD(sum); sum += a[threadIdx.y * n + k] * b[k * n + threadIdx.x]; }
    }
    EACH_THREAD { OF_THREAD(sum); c[threadIdx.y * n + threadIdx.x] = sum; }
}
extern "C" __global__ void product(const float* a, const float* b, float* c, int n) {
    GRID_TILES(%d, %d, 160, 160, 1, product_has_work(a, b, c, n, TILE_THREAD), product_tile(a, b, c, n, THIS_TILE));
}
"""


def product(columns, rows):
    return f"{prelude()}\n{PRODUCT % (columns, rows)}\nMPTUNE_HOST_ENTRY(product)\n"


@pytest.mark.full
@pytest.mark.parametrize(("columns", "rows"), few([(4, 2), (1, 1)]))
def test_tiles_of_any_width_do_every_thread_once(columns, rows):
    backend = HostBackend(workers=3, cache=CACHE)
    function = backend.device.load(backend.compiler.compile(product(columns, rows), "product", CompileOptions()))
    a, b = np.random.default_rng(5).integers(-9, 9, (2, 150, 150)).astype(np.float32)
    for across, down in [(8, 4), (3, 1), (64, 2)]:
        c = np.full_like(a, np.nan)
        grid = (-(-160 // (across * columns)), -(-160 // (down * rows)))
        run(function, grid, (across, down), a, b, c, np.int32(150))
        assert np.array_equal(c, a @ b)


@pytest.mark.parametrize(("per_thread", "block", "neighbours"), few([(3, 16, 32), (2, 64, 32), (64, 4, 64)]))
def test_a_thread_does_enough_neighbours_for_vectors(per_thread, block, neighbours):
    body = f"""
    __device__ void who_thread(int* seen, int n, VIRTUAL_INDICES) {{
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) seen[i] += 1 + ::threadIdx.x;
    }}
    extern "C" __global__ void who(int* seen, int n) {{
        GRID_THREADS({per_thread}, 1000, 1, 1, who_thread(seen, n, VIRTUAL_THREAD));
    }}"""
    backend = HostBackend(workers=3, cache=CACHE)
    source = f"{prelude()}\n{body}\nMPTUNE_HOST_ENTRY(who)\n"
    seen = np.zeros(999, np.int32)
    of_block = per_thread * block
    function = backend.device.load(backend.compiler.compile(source, "who", CompileOptions()))
    run(function, (-(-1000 // of_block),), (block,), seen, np.int32(seen.size))
    assert np.array_equal(seen, 1 + np.arange(seen.size) % of_block // neighbours)
