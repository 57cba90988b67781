"""Coulomb potential of point charges on a grid (Heldens 2026, Table II and Sec. IV; 8 parameters).

The charges of a film add up their potentials in the points of a plane beside it, at a reciprocal square root for every
pair. Arithmetic bounds it: what a thread reads of a charge serves all of its points, and the points of a column share
the square of their distance along x.

Precisions: a distance is computed in the type of the positions, its product with the charge in the wider of their two
types, and the sum in the type of the potential. A narrow sum of many charges is where most of the error comes from.

Lists of values are a reconstruction: Table II has only how many combinations there are of optimisation values (144),
of precisions (144), and valid ones on its A100 (20,736). Here: 187, 112 and 20,944.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mptune.kernel import In, Kernel, Out, Scalar, Sizes
from mptune.precision import COMPOUND
from mptune.space.parameters import OrdinalParameter, PolicyParameter, PrecisionParameter

TYPES = ("fp64", "fp32", "fp16", "bf16")
EDGE_NM = 32.0


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """A charged polymer film on a surface: partial charges of one sign (in e) and where they are (in nm).

    The film is 32 nm wide and reaches from 0.3 nm, where the outermost atoms touch the plane of the grid, to 4 nm away
    from it. With charges of one sign the potential (in e/nm) has no zeros, which a relative error could not stand.
    """
    edges = np.array([EDGE_NM, EDGE_NM * size.height / size.width])
    return {
        "position": np.column_stack([rng.random((size.charges, 2)) * edges, rng.uniform(0.3, 4.0, size.charges)]),
        "charge": rng.uniform(0.1, 0.9, size.charges),
        "spacing": EDGE_NM / size.width,
    }


kernel = Kernel(
    name="coulombic",
    description="Coulomb potential of point charges on a grid, bound by arithmetic",
    parameters=[
        OrdinalParameter("block_size_x", [16, 32, 64, 128, 256]),
        OrdinalParameter("block_size_y", [1, 2, 4, 8]),
        OrdinalParameter("tile_size_x", [1, 2, 4, 8, 16]),
        OrdinalParameter("tile_size_y", [1, 2, 4, 8]),
        PrecisionParameter("position_type", TYPES),
        PrecisionParameter("charge_type", TYPES),
        PrecisionParameter("potential_type", TYPES, on_request=COMPOUND),
        PolicyParameter("policy"),
    ],
    constraints=[
        # A wavefront of AMD, two warps of Nvidia; beyond 256 threads too few registers are left for the sums of each.
        "64 <= block_size_x * block_size_y <= 256",
        "tile_size_x * tile_size_y <= 32",
        # The square root is taken in the positions' type. In others than these a policy is another one's double.
        "policy != 'fast' or position_type == 'fp32'",
        "policy != 'approx' or position_type in ('fp16', 'bf16')",
    ],
    arguments=[
        Out("potential", ("height", "width"), precision="potential_type"),
        In("position", ("charges", 3), precision="position_type"),
        In("charge", "charges", precision="charge_type"),
        Scalar("spacing", precision="position_type"),
    ],
    sizes={
        "smoke": {"width": 67, "height": 43, "charges": 101},
        "default": {"width": 256, "height": 160, "charges": 800},
        "paper": {"width": 2000, "height": 2000, "charges": 10_000},
    },
    runtime_sizes=["width", "height", "charges"],
    inputs=inputs,
    grid=["ceildiv(width, block_size_x * tile_size_x)", "ceildiv(height, block_size_y * tile_size_y)"],
    block=["block_size_x", "block_size_y"],
    metric="MRE",
    # For each pair of a charge and a point: a distance along x, its square and sum, a reciprocal square root (4), a
    # product and a sum. What the points of a row share is not counted.
    flops={
        "position_type": "7 * width * height * charges",
        ("position_type", "charge_type"): "width * height * charges",
        "potential_type": "width * height * charges",
    },
)
