"""What CUDA means on the host, beside what the conformance tests of backends look at; and what is refused."""

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
from mptune.errors import LaunchError
from tests.tiers import few

SWITCHES = few([pytest.param((), id="assembly"), pytest.param(("-DMPTUNE_UCONTEXT",), id="ucontext")])


def test_a_block_fixed_in_the_source_must_be_the_launched_one():
    body = """extern "C" __global__ void count(int* seen) {
        seen[(blockIdx.y * blockDim.y + threadIdx.y) * 32 + blockIdx.x * blockDim.x + threadIdx.x] += 1;
    }"""
    function = build("count", body, block=(16, 2, 1))
    seen = np.zeros((6, 32), np.int32)
    run(function, (2, 3), (16, 2), seen)
    assert (seen == 1).all()
    with pytest.raises(LaunchError, match="blocks of another shape"):
        run(function, (2, 3), (2, 16), seen)


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
