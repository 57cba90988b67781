"""Forces between particles in a box and its 26 neighbours (Heldens 2026, Table II and Sec. IV; 8 parameters).

Space is divided into cubes with equally many particles, and what is further away than the next cube is not felt. A
block of threads has one cube: it reads its neighbours one after the other, best into shared memory, and every thread
adds up what their particles do to its own. An exponential for every pair bounds it.

Precisions: positions count from the corner of their own cube, so that digits are spent where they matter. Differences
are taken in the wider type of positions and distances; what is left has the type of distances, and so has the
exponential. Charges have a type, and the sums have that of the forces.

Lists of values are a reconstruction: Table II has only how many combinations there are of optimisation values (48),
of precisions (336), and valid ones on its A100 (14,896). Here: 48, 448 and 21,504.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mptune.kernel import In, Kernel, Out, Scalar, Sizes
from mptune.space.parameters import BooleanParameter, OrdinalParameter, PolicyParameter, PrecisionParameter

TYPES = ("fp64", "fp32", "fp16", "bf16")
# Of particles; boxes have fewer neighbours at the faces of the whole.
PAIRS = "(3 * boxes - 2) ** 3 * particles ** 2"


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """Polymer coils in solution, as soft particles with a Gaussian potential: q exp(-steepness r^2).

    Lengths are in units of a cube's edge, three times the range of the potential, which so has fallen to e^-9 there.
    Charges q, the repulsion of each coil, vary as coils of different length do. Every cube has its rows x, y and z.
    """
    cubes = size.boxes**3
    return {
        "position": rng.random((cubes, 3, size.particles)),
        "charge": rng.uniform(0.1, 1.0, (cubes, size.particles)),
        "steepness": 9.0,
    }


kernel = Kernel(
    name="lavamd",
    description="forces between particles in neighbouring boxes, with shared memory and barriers",
    parameters=[
        OrdinalParameter("block_size", [32, 64, 96, 128, 192, 256]),
        OrdinalParameter("tile_size", [1, 2, 4, 8, 16]),
        BooleanParameter("use_shared"),
        PrecisionParameter("position_type", TYPES),
        PrecisionParameter("charge_type", TYPES),
        PrecisionParameter("distance_type", TYPES),
        PrecisionParameter("force_type", TYPES),
        PolicyParameter("policy"),
    ],
    constraints=[
        # More threads than particles have nothing to do.
        "block_size * tile_size <= 1024",
        # Statically allocated shared memory of a block is limited to 48 KiB on every CUDA and HIP device.
        "not use_shared or particles * (3 * sizeof(position_type) + sizeof(charge_type)) <= 48 * 1024",
        # The exponential is one of distances. In other types than these a policy is another one's double.
        "policy != 'fast' or distance_type == 'fp32'",
        "policy != 'approx' or distance_type in ('fp16', 'bf16')",
    ],
    arguments=[
        Out("force", ("boxes**3", 4, "particles"), precision="force_type"),
        In("position", ("boxes**3", 3, "particles"), precision="position_type"),
        In("charge", ("boxes**3", "particles"), precision="charge_type"),
        Scalar("steepness", precision="distance_type"),
    ],
    sizes={
        "smoke": {"boxes": 3, "particles": 23},
        "default": {"boxes": 4, "particles": 96},
        "paper": {"boxes": 15, "particles": 256},
    },
    runtime_sizes=["boxes", "particles"],
    inputs=inputs,
    grid=["boxes", "boxes", "boxes"],
    block=["block_size"],
    metric="NMAE",
    # For each pair: three differences; their squares and sum, the exponent and its exponential (8); the products with
    # the charge and the differences; four sums.
    flops={
        ("position_type", "distance_type"): f"3 * {PAIRS}",
        "distance_type": f"14 * {PAIRS}",
        ("charge_type", "distance_type"): f"4 * {PAIRS}",
        "force_type": f"4 * {PAIRS}",
    },
)
