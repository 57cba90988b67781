"""The Q matrix of non-Cartesian MRI reconstruction (Heldens 2026, Table II and Sec. IV; 8 parameters).

Reconstructing an image x from samples taken off the grid solves (A* A) x = A* d again and again. A* A is a convolution
whose kernel Q is computed once per trajectory: Q(r) = sum over samples k of |phi(k)|^2 exp(2 pi i k.r). A sine and a
cosine for every pair of voxel and sample bound it.

Precisions: the turns k.r are computed in the wider type of positions and samples, where the digits are lost, since only
their fraction counts; the angle of that fraction, its sine and cosine have a type of their own; sums have Q's.

Lists of values are a reconstruction: Table II has only how many combinations there are of optimisation values (48),
of precisions (640), and valid ones on its A100 (29,916). Here: 48, 448 and 21,504.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mptune.kernel import In, Kernel, Out, Sizes
from mptune.space.parameters import OrdinalParameter, PolicyParameter, PrecisionParameter

TYPES = ("fp64", "fp32", "fp16", "bf16")
FIELD_OF_VIEW_CM = 24.0


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """A head in 24 cm of view, sampled along spokes through the centre of k-space (a "koosh ball").

    Positions are in cm, samples in cycles per cm, each followed by its |phi|^2: the spectrum of a cubic voxel. Spokes
    spread evenly over the directions; gradient delays shift each of them along itself.

    Voxels lie symmetrically, so the imaginary parts cancel over all of them, but the many samples near the centre of
    k-space keep the mean of the real parts, and so that of all numbers in ``q``, far from zero: NRMSE divides by it.
    """
    ticks = (np.arange(size.side) - (size.side - 1) / 2) * (FIELD_OF_VIEW_CM / size.side)
    z, y, x = np.meshgrid(ticks, ticks, ticks, indexing="ij")

    readout = max(1, round(size.samples**0.5))
    spoke, step = np.divmod(np.arange(size.samples), readout)
    spokes = spoke[-1] + 1
    delay = rng.uniform(0, 1, spokes)
    radius = ((step + delay[spoke]) / readout - 0.5) * (size.side / FIELD_OF_VIEW_CM)
    height = (np.arange(spokes) + rng.random()) / spokes
    turn = np.pi * (1 + 5**0.5) * np.arange(spokes)
    direction = np.array([np.cos(turn) * np.sqrt(1 - height**2), np.sin(turn) * np.sqrt(1 - height**2), height])
    k = direction[:, spoke] * radius
    weight = np.prod(np.sinc(k * (FIELD_OF_VIEW_CM / size.side)), axis=0) ** 2
    return {
        "position": np.array([x.ravel(), y.ravel(), z.ravel()]),
        "sample": np.column_stack([*k, weight]),
    }


kernel = Kernel(
    name="mriq",
    description="Q matrix of non-Cartesian MRI reconstruction, bound by sines and cosines",
    parameters=[
        OrdinalParameter("block_size", [32, 64, 128, 256]),
        OrdinalParameter("tile_size", [1, 2, 4, 8, 16]),
        OrdinalParameter("unroll", [1, 2, 4]),
        PrecisionParameter("position_type", TYPES),
        PrecisionParameter("sample_type", TYPES),
        PrecisionParameter("angle_type", TYPES),
        PrecisionParameter("q_type", TYPES),
        PolicyParameter("policy"),
    ],
    constraints=[
        # Each of its sines and cosines is some hundred instructions: more would not fit in the instruction cache.
        "tile_size * unroll <= 16",
        # In other types than these a policy is another one's double.
        "policy != 'fast' or angle_type == 'fp32'",
        "policy != 'approx' or angle_type in ('fp16', 'bf16')",
    ],
    arguments=[
        Out("q", ("side**3", 2), precision="q_type"),
        In("position", (3, "side**3"), precision="position_type"),
        In("sample", ("samples", 4), precision="sample_type"),
    ],
    sizes={
        "smoke": {"side": 13, "samples": 101},
        "default": {"side": 16, "samples": 2048},
        "paper": {"side": 64, "samples": 4096},
    },
    runtime_sizes=["side", "samples"],
    inputs=inputs,
    grid=["ceildiv(side**3, block_size * tile_size)"],
    block=["block_size"],
    metric="NRMSE",
    # For each pair of a voxel and a sample: five for the turns, three for the angle of their fraction, a sine and a
    # cosine (8 each), two products with the weight and two sums.
    flops={
        ("position_type", "sample_type"): "8 * side ** 3 * samples",
        "angle_type": "16 * side ** 3 * samples",
        ("sample_type", "angle_type"): "2 * side ** 3 * samples",
        "q_type": "2 * side ** 3 * samples",
    },
)
