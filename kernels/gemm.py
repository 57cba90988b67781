"""Matrix product: C = alpha * A * B + beta * C for any M, N, K (Lin 2025; 11 parameters, 2 switches, 4 precisions).

Seven parameters more are for GPUs alone: how A is fetched (``VWK``) and how far the loop over a tile is unrolled, how
many blocks a multiprocessor is to have room for (``resident``), in which order blocks start (``raster``), whether
tiles and blocks are larger than elsewhere (``large``), how many blocks share a tile of C, each with a part of K
(``split_k``), and in how many parts ``fine_prefetch`` takes what a thread has of A (``parts_of_a``): in thirds, tiles
have 48, 96 or 192 rows. Their first values are what a configuration without them means.

With ``split_k`` above 1 a block leaves its sums in global memory, and the last one of a tile adds all of them by
ascending k: results are the same from launch to launch, and no block waits for another. As sums are rounded otherwise,
``split_k`` is part of the accuracy signature. That memory is the module's, so one launch has to end before the next one
of the same module begins.

Arithmetic bounds it, as long as data keep coming: each element of A and B is used N or M times, so tiles of them are
kept in shared memory and parts of those in registers. How large, how far ahead, and by which thread they are fetched is
what there is to tune. ``double_buffer`` and ``fine_prefetch`` switch the paper's two optimisations: measure one, the
other, or both.

A and B are converted to the type of the sums on their way into shared memory, once for each block that needs them.

Either may be stored transposed (the paper's four types of multiplication): ``transposed_a=1`` is A as K x M, and
``transposed_b=1`` is B as N x K. Which they are is given, as sizes are. Tiles are fetched along the rows of what is
stored: of a transposed A ``VWM`` neighbouring elements of one k, which lie in shared memory as they do in A; of a
transposed B ``VWK`` neighbouring k of a column, as of an A that is not, or ``VWN`` columns one by one.

``math`` says what multiplies: each thread for itself ("simt"), or matrix units, which take A and B as they are stored
("mma"), fp32 rounded to TF32 ("tf32"). TF32 has eleven bits, so ``math`` is part of the accuracy signature. fp32 with
sums in bf16x3 (``-p accumulator_type=bf16x3``) is multiplied as three bfloat16, six products for each of fp32. There
warps lie ``MDIMC / warps_along_n`` x ``warps_along_n`` in a tile, and ``stages`` tiles are in shared memory, of which
all but one are on their way. A device offers what it has units for: none on a processor or by OpenCL.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mptune.data.blocks import BLOCK, in_blocks
from mptune.kernel import In, InOut, Kernel, Scalar, Sizes
from mptune.precision import COMPOUND
from mptune.space.parameters import BooleanParameter, CategoricalParameter, OrdinalParameter, PrecisionParameter

TYPES = ("fp64", "fp32", "fp16", "bf16")

# Statically allocated shared memory of a block is limited to 48 KiB on every CUDA and HIP device.
SHARED_BYTES = "sizeof(accumulator_type) * KWG * (MWG + VWM + NWG + (VWN if transposed_b else 0)) * (1 + double_buffer)"
#: What matrix units take from shared memory: tiles as they are stored, so many of each.
MMA_SHARED_BYTES = "stages * sizeof(a_type) * KWG * (MWG + NWG)"
#: So many sums blocks leave for each other, in memory that the module has: 32 MiB of fp32. Where they would be more,
#: there are enough tiles for all multiprocessors.
SPLIT_SUMS = 1 << 23
#: What only threads that multiply for themselves have.
SIMT_ALONE = {"MDIMA": 4, "NDIMB": 4, "STRM": False, "STRN": False, "VWM": 1, "VWN": 1}
SIMT_ALONE |= {"double_buffer": False, "fine_prefetch": False, "VWK": 1, "unroll": 1, "parts_of_a": 2}


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """Temperature maps from weather stations, blended with a forecast.

    A interpolates from K stations to M places: a place's weights fall with the distance of a station and sum to 1. B
    holds what the stations measured on N days, C what was forecast for the places, in units of 300 K. Transposed they
    hold the same numbers.
    """
    station, place = rng.random((2, size.K)), rng.random((2, size.M))
    weight = np.empty((size.M, size.K))

    def weigh(rows: slice) -> None:
        near = np.exp(-50 * sum((place[axis, rows, None] - station[axis]) ** 2 for axis in range(2))) + 1e-3
        weight[rows] = near / near.sum(axis=1, keepdims=True)

    in_blocks(weigh, size.M, max(1, BLOCK // size.K))
    season = 0.95 + 0.03 * np.sin(2 * np.pi / 365 * np.arange(size.N))
    measured = season + rng.normal(0, 0.01, (size.K, size.N))
    return {
        "A": np.ascontiguousarray(weight.T) if size.transposed_a else weight,
        "B": np.ascontiguousarray(measured.T) if size.transposed_b else measured,
        "C": season + rng.normal(0, 0.01, (size.M, size.N)),
        "alpha": 0.7,
        "beta": 0.3,
    }


#: Parameters that change nothing on a processor, with their first values.
GPU_ALONE = {
    **dict.fromkeys(("VWK", "unroll", "resident", "raster", "split_k", "warps_along_n", "stages"), 1),
    "large": False,
    "parts_of_a": 2,
}

kernel = Kernel(
    name="gemm",
    description="C = alpha A B + beta C with pipelined tiles, bound by arithmetic",
    parameters=[
        CategoricalParameter("math", ["simt", "mma", "tf32"]),
        OrdinalParameter("MWG", [16, 32, 48, 64, 96, 128, 192, 256]),
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
        OrdinalParameter("warps_along_n", [1, 2, 4]),
        OrdinalParameter("stages", [1, 2, 3, 4]),
        OrdinalParameter("split_k", [1, 2, 4, 8]),
        OrdinalParameter("parts_of_a", [2, 3]),
        PrecisionParameter("a_type", TYPES),
        PrecisionParameter("b_type", TYPES),
        PrecisionParameter("accumulator_type", TYPES, on_request=COMPOUND),
        PrecisionParameter("c_type", TYPES),
    ],
    constraints=[
        # A processor's cores do best with few threads, a GPU with many.
        "16 <= MDIMC * NDIMC <= 512",
        "large == (MWG > 128 or NWG > 128 or MDIMC * NDIMC > 256)",
        # All threads fetch, whole vectors each: MDIMA of them along M, the others along K; NDIMB along N.
        *(
            f"math != 'simt' or {fetching}"
            for fetching in (
                "MDIMC * NDIMC % MDIMA == 0 and KWG * MDIMA % (MDIMC * NDIMC * VWK) == 0 and MWG % MDIMA == 0",
                "VWK > 1 or MDIMA <= 32 and MWG % (MDIMA * VWM) == 0",
                "MDIMC * NDIMC % NDIMB == 0 and KWG * NDIMB % (MDIMC * NDIMC) == 0 and NWG % (NDIMB * VWN) == 0",
            )
        ),
        # VWK is of what is stored with neighbouring k, VWM of what is not. The form comes first: where neither is
        # transposed, nothing is left of these, and the search space is the one it was, in the same order.
        "not transposed_b or math != 'simt' or VWK == 1 or KWG * NDIMB % (MDIMC * NDIMC * VWK) == 0",
        "not transposed_a or math != 'simt' or MWG % (MDIMA * VWM) == 0",
        "not transposed_a or transposed_b or VWK == 1",
        "(parts_of_a == 3) == (MWG % 3 == 0)",
        "parts_of_a == 2 or fine_prefetch",
        # So do they multiply; half a sub-block is whole vectors, too, and so is a third.
        "MWG % (MDIMC * VWM * (1 + fine_prefetch * (parts_of_a - 1))) == 0",
        "NWG % (NDIMC * VWN * (1 + fine_prefetch)) == 0",
        # Beyond that the loop over a tile has no iterations left; a block of 512 threads leaves room for two.
        "unroll == 1 or 2 * unroll <= KWG",
        "resident * MDIMC * NDIMC <= 1024",
        # A thread's sums stay in registers, of which a GPU has 1 KiB for it, AVX-512 twice that.
        "MWG * NWG <= 256 * MDIMC * NDIMC and sizeof(accumulator_type) * MWG * NWG <= 1024 * MDIMC * NDIMC",
        f"math != 'simt' or {SHARED_BYTES} <= 48 * 1024",
        # Parameters of either way to multiply have their first values in the other.
        *(f"math == 'simt' or {name} == {value}" for name, value in SIMT_ALONE.items()),
        *(f"math != 'simt' or {name} == 1" for name in ("warps_along_n", "stages")),
        # Lanes of a warp lie along x, warps along y, and those of AMD are two rows of these.
        "math == 'simt' or NDIMC == 32 and MDIMC % (2 * warps_along_n) == 0",
        # Whole instructions: a warp has sub-blocks of 16 x 16.
        "math == 'simt' or MWG * warps_along_n % (16 * MDIMC) == 0 and NWG % (16 * warps_along_n) == 0",
        "math == 'simt' or KWG % 16 == 0 or sizeof(a_type) > 2 and accumulator_type != 'bf16x3'",
        f"math == 'simt' or {MMA_SHARED_BYTES} <= 227 * 1024",
        "math == 'simt' or a_type == b_type and (accumulator_type in (a_type, 'fp32') and accumulator_type != 'bf16'"
        " or accumulator_type == 'bf16x3' and a_type == 'fp32' and math == 'mma')",
        "math != 'tf32' or b_type == 'fp32'",
        # A and B have one type there; of A the search space would take four times as long to build.
        # Types that the matrix units of each device accept.
        "device.is_gpu or math == 'simt'",
        "device.matrix_units != '' or math == 'simt'",
        "device.matrix_units == 'mma.sync' or math != 'tf32'",
        "device.matrix_units != 'mma.sync' or math != 'mma' or b_type != 'fp32' or accumulator_type == 'bf16x3'",
        "device.matrix_units != 'MFMA' or math != 'mma' or accumulator_type != 'fp16'",
        "device.matrix_units != 'WMMA' or math != 'mma' or accumulator_type == 'bf16x3'"
        " or b_type in ('fp16', 'bf16') and accumulator_type == 'fp32'",
        # On a processor these change nothing.
        *(f"device.is_gpu or {name} == {value}" for name, value in GPU_ALONE.items()),
        f"split_k == 1 or split_k * ceildiv(M, MWG) * MWG * ceildiv(N, NWG) * NWG <= {SPLIT_SUMS}",
        # What goes into a sum or comes out of it in a wider type than its own only moves more bytes.
        "sizeof(a_type) <= sizeof(accumulator_type)",
        "sizeof(b_type) <= sizeof(accumulator_type)",
        "sizeof(c_type) <= sizeof(accumulator_type)",
    ],
    arguments=[
        InOut("C", ("M", "N"), precision="c_type"),
        In("A", ("K if transposed_a else M", "M if transposed_a else K"), precision="a_type"),
        In("B", ("N if transposed_b else K", "K if transposed_b else N"), precision="b_type"),
        Scalar("alpha", precision="accumulator_type"),
        Scalar("beta", precision="accumulator_type"),
    ],
    sizes={
        "smoke": {"M": 131, "N": 101, "K": 67, "transposed_a": 0, "transposed_b": 0},
        "default": {"M": 640, "N": 640, "K": 640, "transposed_a": 0, "transposed_b": 0},
        "paper": {"M": 1024, "N": 1024, "K": 1024, "transposed_a": 0, "transposed_b": 0},
    },
    runtime_sizes=["M", "N", "K"],
    inputs=inputs,
    grid=["ceildiv(N, NWG)", "ceildiv(M, MWG)", "split_k"],
    block=["NDIMC", "MDIMC"],
    shared_bytes=f"0 if math == 'simt' else {MMA_SHARED_BYTES}",
    signature=["math", "split_k"],
    metric="NRMSE",
    flops={"accumulator_type": "2 * M * N * K"},
)
