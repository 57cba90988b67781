"""kmeans: the distance of every point to the nearest cluster centre (Heldens 2026, Table II and Sec. IV; 6 parameters).

The step of k-means that takes the time. Arithmetic bounds it: a difference, a square and a sum for each feature of each
pair of a point and a centre. Points stay in registers while all centres pass by.

The output is the squared distance, not the number of the nearest centre. Where two centres are almost equally near,
the least rounding picks the other one and its number jumps, by an amount without meaning; the distance hardly
changes. The sum of these distances is also what k-means minimises, so its error is the damage done.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mptune.kernel import In, Kernel, Out, Sizes
from mptune.space.parameters import BooleanParameter, OrdinalParameter, PrecisionParameter

TYPES = ("fp64", "fp32", "fp16", "bf16")
CLUSTERS = {"features": 15, "clusters": 40}


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
        PrecisionParameter("point_type", TYPES),
        PrecisionParameter("centre_type", TYPES),
        # Of the sums, and of the output.
        PrecisionParameter("distance_type", TYPES),
    ],
    # Any types go together: centres are few, and points often come in the type another program left them in.
    constraints=["not use_shared or clusters * ceildiv(features * sizeof(distance_type), 16) * 16 <= 48 * 1024"],
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
    grid=["ceildiv(n, block_size * points_per_thread)"],
    block=["block_size"],
    metric="MRE",
    # A difference, a square and a sum for each feature, and a comparison of sums.
    flops={"distance_type": "n * clusters * (3 * features + 1)"},
)
