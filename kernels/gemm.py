"""Matrix product: C = alpha * A * B + beta * C for any M, N, K (Lin 2025; 11 parameters, 2 switches, 4 precisions).

Five parameters more are for GPUs alone: how A is fetched (``VWK``) and how far the loop over a tile is unrolled, how
many blocks a multiprocessor is to have room for (``resident``), in which order blocks start (``raster``), and whether
tiles and blocks are larger than elsewhere (``large``). Their first values are what a configuration without them means.

Arithmetic bounds it, as long as data keep coming: each element of A and B is used N or M times, so tiles of them are
kept in shared memory and parts of those in registers. How large, how far ahead, and by which thread they are fetched is
what there is to tune. ``double_buffer`` and ``fine_prefetch`` switch the paper's two optimisations: measure one, the
other, or both.

A and B are converted to the type of the sums on their way into shared memory, once for each block that needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mptune.kernel import In, InOut, Kernel, Scalar, Sizes
from mptune.space.parameters import BooleanParameter, OrdinalParameter, PrecisionParameter

TYPES = ("fp64", "fp32", "fp16", "bf16")

# Statically allocated shared memory of a block is limited to 48 KiB on every CUDA and HIP device.
SHARED_BYTES = "sizeof(accumulator_type) * KWG * (MWG + VWM + NWG) * (1 + double_buffer)"


def balance(
    fma_per_s: Mapping[str, float],
    shared_bytes_per_s: float,
    global_bytes_per_s: float,
    slack: float = 2.0,
) -> tuple[str, str]:
    """Return Eq. 8 of Lin 2025 as constraints: fetching ahead takes as long as multiplying what was fetched.

    They narrow the search to tiles that neither starve a device nor waste its memory, given what was measured on it::

        gemm = load_kernel("gemm")
        measured = balance({"fp32": 9e12}, shared_bytes_per_s=1.8e13, global_bytes_per_s=1.4e12)
        tune(dataclasses.replace(gemm, constraints=[*gemm.constraints, *measured]), max_error=1e-5)

    Args:
        fma_per_s: multiplications and additions of the whole device by the type of the sums; types left out are
            excluded.
        shared_bytes_per_s: speed of the shared memories of the whole device together.
        global_bytes_per_s: speed of its memory.
        slack: by which factor the two times may differ.
    """
    rate = " + ".join(f"{rate!r} * (accumulator_type == '{name}')" for name, rate in fma_per_s.items())
    # Of a tile one k deep: it takes all threads of a block, and all blocks get the same share of the device.
    products = "MWG * NWG"
    shared = f"sizeof(accumulator_type) * (MWG * NDIMC + NWG * MDIMC) / {shared_bytes_per_s!r}"
    fetched = f"(sizeof(a_type) * MWG + sizeof(b_type) * NWG) / {global_bytes_per_s!r}"
    stored = f"sizeof(accumulator_type) * (MWG + NWG) / {shared_bytes_per_s!r}"
    local_level, global_level = (
        f"{products} / {slack!r} <= ({seconds}) * ({rate}) <= {products} * {slack!r}"
        for seconds in (shared, f"{fetched} + {stored}")
    )
    return local_level, global_level


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """Temperature maps from weather stations, blended with a forecast.

    A interpolates from K stations to M places: a place's weights fall with the distance of a station and sum to 1. B
    holds what the stations measured on N days, C what was forecast for the places, in units of 300 K.
    """
    station, place = rng.random((2, size.K)), rng.random((2, size.M))
    weight = np.exp(-50 * sum((place[axis, :, None] - station[axis]) ** 2 for axis in range(2))) + 1e-3
    weight /= weight.sum(axis=1, keepdims=True)
    season = 0.95 + 0.03 * np.sin(2 * np.pi / 365 * np.arange(size.N))
    return {
        "A": weight,
        "B": season + rng.normal(0, 0.01, (size.K, size.N)),
        "C": season + rng.normal(0, 0.01, (size.M, size.N)),
        "alpha": 0.7,
        "beta": 0.3,
    }


kernel = Kernel(
    name="gemm",
    description="C = alpha A B + beta C with pipelined tiles, bound by arithmetic",
    parameters=[
        OrdinalParameter("MWG", [16, 32, 64, 128, 256]),
        OrdinalParameter("NWG", [16, 32, 64, 128, 256]),
        OrdinalParameter("KWG", [8, 16, 32]),
        OrdinalParameter("MDIMC", [4, 8, 16, 32]),
        OrdinalParameter("NDIMC", [4, 8, 16, 32]),
        OrdinalParameter("MDIMA", [4, 8, 16, 32, 64, 128]),
        OrdinalParameter("NDIMB", [4, 8, 16, 32]),
        BooleanParameter("STRM"),
        BooleanParameter("STRN"),
        OrdinalParameter("VWM", [1, 2, 4, 8]),
        OrdinalParameter("VWN", [1, 2, 4, 8]),
        BooleanParameter("double_buffer"),
        BooleanParameter("fine_prefetch"),
        OrdinalParameter("VWK", [1, 2, 4]),
        OrdinalParameter("unroll", [1, 2, 4, 16]),
        OrdinalParameter("resident", [1, 2, 3, 4]),
        OrdinalParameter("raster", [1, 4, 16]),
        BooleanParameter("large"),
        PrecisionParameter("a_type", TYPES),
        PrecisionParameter("b_type", TYPES),
        PrecisionParameter("accumulator_type", TYPES),
        PrecisionParameter("c_type", TYPES),
    ],
    constraints=[
        # A processor's cores do best with few threads, a GPU with many.
        "16 <= MDIMC * NDIMC <= 512",
        "large == (MWG > 128 or NWG > 128 or MDIMC * NDIMC > 256)",
        # All threads fetch, whole vectors each: MDIMA of them along M, the others along K; NDIMB along N.
        "MDIMC * NDIMC % MDIMA == 0 and KWG * MDIMA % (MDIMC * NDIMC * VWK) == 0 and MWG % MDIMA == 0",
        "VWK > 1 or MDIMA <= 32 and MWG % (MDIMA * VWM) == 0",
        "MDIMC * NDIMC % NDIMB == 0 and KWG * NDIMB % (MDIMC * NDIMC) == 0 and NWG % (NDIMB * VWN) == 0",
        # So do they multiply; half a sub-block is whole vectors, too.
        "MWG % (MDIMC * VWM * (1 + fine_prefetch)) == 0",
        "NWG % (NDIMC * VWN * (1 + fine_prefetch)) == 0",
        # Beyond that the loop over a tile has no iterations left; a block of 512 threads leaves room for two.
        "unroll == 1 or 2 * unroll <= KWG",
        "resident * MDIMC * NDIMC <= 1024",
        # A thread's sums stay in registers, of which a GPU has 1 KiB for it, AVX-512 twice that.
        "MWG * NWG <= 256 * MDIMC * NDIMC and sizeof(accumulator_type) * MWG * NWG <= 1024 * MDIMC * NDIMC",
        f"{SHARED_BYTES} <= 48 * 1024",
        # What goes into a sum or comes out of it in a wider type than its own only moves more bytes.
        "sizeof(a_type) <= sizeof(accumulator_type)",
        "sizeof(b_type) <= sizeof(accumulator_type)",
        "sizeof(c_type) <= sizeof(accumulator_type)",
    ],
    arguments=[
        InOut("C", ("M", "N"), precision="c_type"),
        In("A", ("M", "K"), precision="a_type"),
        In("B", ("K", "N"), precision="b_type"),
        Scalar("alpha", precision="accumulator_type"),
        Scalar("beta", precision="accumulator_type"),
    ],
    sizes={
        "smoke": {"M": 131, "N": 101, "K": 67},
        "default": {"M": 640, "N": 640, "K": 640},
        "paper": {"M": 1024, "N": 1024, "K": 1024},
    },
    runtime_sizes=["M", "N", "K"],
    inputs=inputs,
    grid=["ceildiv(N, NWG)", "ceildiv(M, MWG)"],
    block=["NDIMC", "MDIMC"],
    gpu_only=["VWK", "unroll", "resident", "raster", "large"],
    metric="NRMSE",
    flops={"accumulator_type": "2 * M * N * K"},
)
