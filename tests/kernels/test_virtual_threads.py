"""Virtual threads run once whatever the block is, kernels in phases as with barriers, and both in full vectors."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from test_vectorised import AVX2, WITH_FP16, gcc
from vendor_compilers import needs, nvrtc

from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host import HostBackend
from mptune.cpp.prelude import prelude
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.testing.backends import launch_on_arrays
from tests.tiers import few

TEMPLATES = Path(__file__).parents[1] / "adopt" / "templates"

RECORD = """
__device__ void record_thread(int* times, int* seen, int width, int height, VIRTUAL_INDICES) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    times[y * width + x] += 1;
    if (x == 1 && y == 1) {
        const int found[] = {(int)threadIdx.x, (int)threadIdx.y, (int)blockIdx.x, (int)blockIdx.y,
                             (int)blockDim.x, (int)blockDim.y, (int)gridDim.x, (int)gridDim.y};
        for (int k = 0; k < 8; ++k) seen[k] = found[k];
    }
}
extern "C" __global__ void record(int* times, int* seen, int width, int height) {
    CALL
}
"""
GRID = "GRID_THREADS(PER, 30, 7, 1, record_thread(times, seen, width, height, VIRTUAL_THREAD));"
BLOCK = "BLOCK_THREADS(PER, record_thread(times, seen, width, height, VIRTUAL_THREAD));"

STENCIL = """
    mp::count row = blockIdx.y;
    if (i >= n) return;
    {type} left = i > 0 ? x[row * n + i - 1] : 0.0_num, right = i < n - 1 ? x[row * n + i + 1] : 0.0_num;
    y[row * n + i] = a * (left + right);
"""
WAVE = """
    if (i < n) y[i] = mp::exp<mp::fast>(-a * x[i] * x[i]) * mp::cos<mp::fast>(x[i]);
"""
BODY = """
__device__ void body_thread(const {type}* x, {type}* y, {size} n, {type} a, VIRTUAL_INDICES) {{
    {index} i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
extern "C" __global__ void body(const {type}* x, {type}* y, {size} n, {type} a) {{
    GRID_THREADS({per_thread}, 100000, 1, 1, body_thread(x, y, n, a, VIRTUAL_THREAD));
}}
MPTUNE_HOST_ENTRY(body, 256, 1, 1)
"""


@pytest.mark.full
@pytest.mark.parametrize(("per_thread", "block"), [(3, (1, 2)), (1, (4, 4)), (16, (32, 1))])
def test_each_runs_once_and_what_is_beyond_the_total_stays_idle(per_thread, block, tmp_path):
    # The array is larger than the 30 by 7 threads.
    times, seen = _recorded(GRID, per_thread, (-(-30 // (block[0] * per_thread)), -(-7 // block[1])), block, tmp_path)
    wanted = np.zeros((10, 40), np.int32)
    wanted[:7, :30] = 1
    assert np.array_equal(times, wanted)
    assert list(seen) == [1, 1, 0, 0, 30, 7, 1, 1]


@pytest.mark.full
@pytest.mark.parametrize("per_thread", few([2, 1, 8]))
def test_a_block_of_its_own_is_seen_whole(per_thread, tmp_path):
    times, seen = _recorded(BLOCK, per_thread, (3, 5), (16 // per_thread, 2), tmp_path)
    assert times.all()
    assert times.max() == 1
    assert list(seen) == [1, 1, 0, 0, 16, 2, 3, 5]


def _recorded(call, per_thread, grid, block, tmp_path):
    text = RECORD.replace("CALL", call.replace("PER", str(per_thread)))
    source = f"{prelude()}\n{text}\nMPTUNE_HOST_ENTRY(record, {block[0]}, {block[1]}, 1)\n"
    backend = HostBackend(cache=BinaryCache(tmp_path))
    function = backend.device.load(backend.compiler.compile(source, "record", CompileOptions()))
    times, seen = np.zeros((10, 40), np.int32), np.zeros(8, np.int32)
    launch_on_arrays(backend, function, grid, block, times, seen, np.int32(40), np.int32(10))
    return times, seen


@pytest.mark.parametrize(
    ("body", "cpp_type", "index", "size", "architecture", "per_thread"),
    [
        (STENCIL, "float", "mp::count", "unsigned", WITH_FP16, 64),
        pytest.param(WAVE, "float", "unsigned", "unsigned", AVX2, 1, marks=pytest.mark.full),
        pytest.param(STENCIL, "double", "long", "long", WITH_FP16, 1, marks=pytest.mark.full),
    ],
    ids=["stencil", "wave", "double"],
)
def test_g_plus_plus_makes_full_vectors_of_them(body, cpp_type, index, size, architecture, per_thread):
    source = BODY.format(body=body.format(type=cpp_type), type=cpp_type, index=index, size=size, per_thread=per_thread)
    command = [*gcc(architecture), "-S", "-x", "c++", "-", "-o", "-"]
    done = subprocess.run(command, input=f"{prelude()}\n{source}", capture_output=True, text=True, check=True)
    suffix, register = {"float": "ps", "double": "pd"}[cpp_type], {AVX2: "ymm"}.get(architecture, "zmm")
    found = re.findall(rf"v(?:add|sub|mul|fn?m\w+){suffix}\s.*%{register}", done.stdout)
    assert len(found) >= (10 if body is WAVE else 1)
    assert "gather" not in done.stdout
    assert "scatter" not in done.stdout


@pytest.mark.parametrize("architecture", [pytest.param("sm_80", marks=[*needs("cuda"), pytest.mark.full])])
def test_on_a_gpu_neighbouring_threads_have_neighbouring_ones(architecture):
    kernel = load_kernel(str(TEMPLATES / "wavelet.py"))
    types = dict.fromkeys(("x_type", "t_type", "y_type", "frequency_type"), "fp32")
    configuration = kernel.configuration({**types, "policy": "fast", "block_size": 128, "per_thread": 4})
    ptx, log = nvrtc(render(kernel, configuration, kernel.resolve_sizes("smoke")), "wavelet", architecture)
    assert log == ""
    assert ".f64" not in ptx
    # From one to the next it is the width of the block.
    width = re.search(r"mov\.u32\s+(%r\d+), %ntid\.x", ptx)[1]
    assert re.search(rf"add\.s32\s+%r\d+, %r\d+, {width};", ptx)


# -- kernels with barriers, in phases ------------------------------------------------------------------

# Each thread adds its row's values before it, and keeps what it began with.
SCAN = """
IN_PHASES();
extern "C" __global__ void scan(float* x, int rows) {
    __shared__ float row[4][8];
    mp::per_thread<float, 32> first, other;
    PHASE {
        if (threadIdx.y >= rows) continue;
        row[threadIdx.y][threadIdx.x] = first[thread] = x[blockIdx.x * 32 + thread];
    }
    for (int step = 1; step < blockDim.x; step *= 2) {
        PHASE { other[thread] = threadIdx.x >= step ? row[threadIdx.y][threadIdx.x - step] : 0.0f; }
        PHASE { row[threadIdx.y][threadIdx.x] += other[thread]; }
    }
    PHASE {
        if (threadIdx.y < rows) x[blockIdx.x * 32 + thread] = row[threadIdx.y][threadIdx.x] - first[thread];
    }
}
"""


@pytest.mark.full
def test_threads_see_what_others_wrote_before_and_keep_their_own(tmp_path):
    backend = HostBackend(workers=2, cache=BinaryCache(tmp_path))
    source = f"{prelude()}\n{SCAN}\nMPTUNE_HOST_ENTRY(scan, 8, 4, 1)\n"
    function = backend.device.load(backend.compiler.compile(source, "scan", CompileOptions()))
    x = np.random.default_rng(4).integers(-9, 9, (5, 4, 8)).astype(np.float32)
    wanted = np.cumsum(x, axis=2) - x
    wanted[:, 3] = x[:, 3]
    launch_on_arrays(backend, function, (5,), (8, 4), x, np.int32(3))
    assert np.array_equal(x, wanted)


def energy():
    kernel = load_kernel(str(TEMPLATES / "energy.py"))
    types = dict.fromkeys(("x_type", "partial_type", "sum_type"), "fp32")
    return render(kernel, kernel.configuration(types), kernel.resolve_sizes("smoke"))


def test_the_host_makes_full_vectors_of_a_phase_and_waits_for_nobody():
    command = [*gcc(WITH_FP16), "-DMPTUNE_RUNTIME_APART=1", "-S", "-x", "c++", "-", "-o", "-"]
    text = subprocess.run(command, input=energy(), capture_output=True, text=True, check=True).stdout
    assert re.search(r"vaddps\s.*%zmm", text)
    assert re.search(r"vmulps\s.*%zmm", text)
    assert not re.search(r"call\s.*wait_for_block", text)


@pytest.mark.parametrize("architecture", [pytest.param("sm_80", marks=[*needs("cuda"), pytest.mark.full])])
def test_on_a_gpu_a_barrier_ends_each_phase(architecture):
    ptx, log = nvrtc(prelude() + SCAN, "scan", architecture)
    assert log == ""
    # The first and the last phase, and two in each of three steps, unrolled or not.
    assert len(re.findall(r"bar\.sync|barrier\.sync", ptx)) in (4, 8)
    assert ".local" not in ptx
