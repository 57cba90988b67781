"""Kernels with vectors compute two numbers of 16 bits at a time on a GPU: what the runtime compilers made of them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from vendor_compilers import needs, nvrtc

from mptune.backends import BACKENDS
from mptune.backends.base import CompileOptions
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.space.parameters import PrecisionParameter

#: Parameters that ask for vectors, the fused operations on two numbers that a thread then has at least, and those on
#: one that it may have: where an array ends within its vector, and what is the same for all of them.
GEMM = {"MWG": 64, "NWG": 64, "KWG": 16, "MDIMC": 8, "NDIMC": 8, "MDIMA": 16, "NDIMB": 16, "VWM": 4, "VWN": 4}
KERNELS: dict[str, tuple[dict[str, Any], int, int]] = {
    "axpy": ({"vector_width": 8}, 4, 8),
    "bessel": ({"vector_width": 8, "policy": "approx"}, 40, 0),
    "black_scholes": ({"vector_width": 8, "policy": "approx"}, 12, 1),
    "newton_raphson": ({"tile_size": 8}, 280, 0),
    "gemm": (GEMM, 64, 64),
    "convolution2d": ({"tile_size_x": 1, "tile_size_y": 2, "vector_width": 4, "use_shared": True}, 12, 0),
    "coulombic": ({"tile_size_x": 4, "tile_size_y": 2, "policy": "accurate"}, 4, 6),
    "kmeans": ({"points_per_thread": 4, "use_shared": True}, 30, 0),
    "lavamd": ({"tile_size": 4, "use_shared": True, "policy": "accurate"}, 8, 1),
    "mriq": ({"tile_size": 4, "unroll": 1, "policy": "accurate"}, 4, 0),
}


def source(name: str, precision: str, values: dict[str, Any]) -> str:
    kernel = load_kernel(name)
    types = {p.name: precision for p in kernel.parameters if isinstance(p, PrecisionParameter)}
    return render(kernel, kernel.configuration({**types, **values}), kernel.resolve_sizes("smoke", None))


@pytest.mark.parametrize(
    ("architecture", "precision"),
    [
        pytest.param("sm_80", "fp16", marks=[*needs("cuda"), pytest.mark.full]),
        *(pytest.param(each, "bf16", marks=[*needs("cuda"), pytest.mark.nightly]) for each in ("sm_80", "sm_90")),
    ],
)
@pytest.mark.parametrize("name", KERNELS)
def test_two_at_a_time_in_ptx(name: str, architecture: str, precision: str) -> None:
    values, pairs, singles = KERNELS[name]
    ptx, _ = nvrtc(source(name, precision, values), name, architecture)
    suffix = {"fp16": "f16", "bf16": "bf16"}[precision]
    assert len(re.findall(rf"fma\.rn\.{suffix}x2 ", ptx)) >= pairs
    # Before sm_90 a product in bf16 is a fused operation, too.
    single = len(re.findall(rf"fma\.rn\.{suffix} ", ptx))
    assert single <= (2 * singles if (architecture, precision) == ("sm_80", "bf16") else singles)


@pytest.mark.full
@pytest.mark.parametrize("name", [pytest.param(name, marks=needs("hip")) for name in KERNELS])
def test_two_at_a_time_on_cdna(name: str) -> None:
    values, pairs, singles = KERNELS[name]
    binary = BACKENDS["hip"]().compiler.compile(source(name, "fp16", values), name, CompileOptions("gfx90a"))
    # The first halves of v_pk_fma_f16 and of v_fma_f16, which are two words each.
    words = np.frombuffer(binary.image[: len(binary.image) // 4 * 4], dtype="<u4") >> 16
    assert int((words == 0xD38E).sum()) >= pairs
    assert int((words == 0xD206).sum()) <= singles
