"""kmeans: the distance of every point to the nearest cluster centre (Heldens 2026, Table II and Sec. IV; 6 parameters).

The step of k-means that takes the time. Arithmetic bounds it: a difference, a square and a sum for each feature of each
pair of a point and a centre. Points stay in registers while all centres pass by.

The output is the squared distance, not the number of the nearest centre. Where two centres are almost equally near,
the least rounding picks the other one and its number jumps, by an amount without meaning; the distance hardly
changes. The sum of these distances is also what k-means minimises, so its error is the damage done.

A seventh, ``math``, says what multiplies: each thread for itself ("simt"), or matrix units, which take points and
centres as they are stored ("mma"), fp32 rounded to TF32 ("tf32"). There |x|^2 - 2 x c + |c|^2 takes the place of
differences: of small distances far from the origin less is left, so sums are in fp32 or fp64, and ``math`` is part of
the accuracy signature. A device offers what it has units for: none on a processor or by OpenCL. The counts below are
without them.

Lists of values are a reconstruction: Table II has only how many combinations there are of optimisation values (52),
of precisions (64), and valid ones on its A100 (3,328). Here: 50, 64 and 3,200.

Sec. V-H has a footprint of 0.87 GB, 3.6 times less than in fp64. That cannot be: 5 * 10^6 points of 15 features
with their distances are 0.64 GB in fp64 already.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mptune.kernel import In, Kernel, Out, Sizes
from mptune.precision import COMPOUND
from mptune.space.parameters import BooleanParameter, CategoricalParameter, OrdinalParameter, PrecisionParameter

TYPES = ("fp64", "fp32", "fp16", "bf16")
CLUSTERS = {"features": 15, "clusters": 40}
#: What matrix units take from shared memory: of each thread a point, then what it found; and the centres.
UNITS_SHARED_BYTES = (
    "block_size * max(ceildiv(features * sizeof(point_type), 32) * 32, 10 * sizeof(distance_type))"
    " + ceildiv(clusters, 16) * 16 * (ceildiv(features * sizeof(point_type), 128) * 128 + sizeof(distance_type))"
)


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """Measurements in units of their standard deviations, in round clusters, some iterations into the search for them.

    Points lie feature by feature, so that neighbouring threads read neighbouring numbers.
    """
    true_centres = rng.normal(0.0, 0.9, (size.clusters, size.features))
    points = rng.normal(0.0, 0.4, (size.features, size.n))
    points += true_centres.T[:, rng.integers(size.clusters, size=size.n)]
    return {"points": points, "centres": true_centres + rng.normal(0.0, 0.1, true_centres.shape)}


kernel = Kernel(
    name="kmeans",
    description="squared distance of each point to the nearest of 40 cluster centres",
    parameters=[
        OrdinalParameter("block_size", [64, 128, 256, 512, 1024]),
        OrdinalParameter("points_per_thread", [1, 2, 4, 8, 16]),
        BooleanParameter("use_shared"),
        CategoricalParameter("math", ["simt", "mma", "tf32"]),
        PrecisionParameter("point_type", TYPES),
        PrecisionParameter("centre_type", TYPES),
        # Of the sums, and of the output.
        PrecisionParameter("distance_type", TYPES, on_request=COMPOUND),
    ],
    # Any types go together: centres are few, and points often come in the type another program left them in.
    constraints=[
        "not use_shared or clusters * ceildiv(features * sizeof(distance_type), 16) * 16 <= 48 * 1024",
        # Matrix units have factors of one type. Where these are short, sums are longer: most of a sum cancels.
        "math == 'simt' or centre_type == point_type and distance_type in ('fp64', 'fp32')",
        "math == 'simt' or (point_type == 'fp64') == (distance_type == 'fp64')",
        "math != 'tf32' or point_type == 'fp32'",
        # Types that the matrix units of each device accept.
        "device.is_gpu or math == 'simt'",
        "device.matrix_units != '' or math == 'simt'",
        "device.matrix_units == 'mma.sync' or math != 'tf32'",
        "device.matrix_units != 'mma.sync' or math != 'mma' or point_type != 'fp32'",
        "device.matrix_units != 'MFMA' or math != 'mma' or distance_type != 'fp16'",
        "device.matrix_units != 'WMMA' or math != 'mma' or point_type in ('fp16', 'bf16') and distance_type == 'fp32'",
        # There all centres are in shared memory anyway, and some points.
        "math == 'simt' or not use_shared",
        f"math == 'simt' or {UNITS_SHARED_BYTES} <= 48 * 1024",
    ],
    arguments=[
        Out("distance", "n", precision="distance_type"),
        In("points", ("features", "n"), precision="point_type"),
        In("centres", ("clusters", "features"), precision="centre_type"),
    ],
    sizes={
        "smoke": {"n": 10_007, **CLUSTERS},
        "default": {"n": 500_000, **CLUSTERS},
        "paper": {"n": 5_000_000, **CLUSTERS},
    },
    runtime_sizes=["n", "clusters"],
    inputs=inputs,
    signature=["math"],
    grid=["ceildiv(n, block_size * points_per_thread)"],
    block=["block_size"],
    metric="MRE",
    # A difference, a square and a sum for each feature, and a comparison of sums.
    flops={"distance_type": "n * clusters * (3 * features + 1)"},
)
