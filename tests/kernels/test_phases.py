"""Kernels with barriers in phases: the same as with barriers, and vectors on the host."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from test_vectorised import WITH_FP16, gcc
from vendor_compilers import needs, nvrtc

from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host import HostBackend
from mptune.cpp.prelude import prelude
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.testing.backends import launch_on_arrays

TEMPLATE = Path(__file__).parents[1] / "adopt" / "templates" / "energy.py"

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
    kernel = load_kernel(str(TEMPLATE))
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
