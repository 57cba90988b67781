"""Inverse kinematics: joint angles of an arm for each of n targets (Heldens 2026, Table II and Sec. IV; 7 parameters).

The arm moves in a plane and has four joints, and four links of 0.25 m, the last of which is the gripper. A target is a
position and the direction to reach it from. That leaves one of four joints to choose: the second and the third bend by
the same angle. The first three links then are three sides of a trapezoid, and everything has a closed form: a sine and
a cosine, a square root, an arc cosine and an arc tangent. Three loads and four stores for these keep a GPU's memory
busy where the functions are fast ones.

Lists of values are a reconstruction: Table II has only how many combinations there are of optimisation values (20),
of precisions (240), and valid ones on its A100 (4,641). Here: 20, 198 and 3,960.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mptune.kernel import In, Kernel, Out, Sizes
from mptune.space.parameters import OrdinalParameter, PolicyParameter, PrecisionParameter

TYPES = ("fp64", "fp32", "fp16", "bf16")
LINK = 0.25


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """What lies in a bin in front of the robot: x, y (metres) and the direction to grasp it from (radians).

    The gripper points away from the robot, up to 60 degrees to either side; the other three links have to reach from
    0.15 m to 0.68 m, so that they are neither folded nor stretched out.
    """
    reach, bearing = rng.uniform(0.15, 0.68, size.n), rng.uniform(-2.5, 2.5, size.n)
    direction = bearing + rng.uniform(-np.pi / 3, np.pi / 3, size.n)
    target = np.empty((3, size.n))
    target[0] = reach * np.cos(bearing) + LINK * np.cos(direction)
    target[1] = reach * np.sin(bearing) + LINK * np.sin(direction)
    target[2] = direction
    return {"target": target}


kernel = Kernel(
    name="inverse_kinematics",
    description="joint angles that bring a four-jointed arm to its targets",
    parameters=[
        OrdinalParameter("block_size", [32, 64, 96, 128, 160, 192, 224, 256, 512, 1024]),
        OrdinalParameter("tile_size", [1, 2]),
        PrecisionParameter("target_type", TYPES),
        PrecisionParameter("position_type", TYPES),
        PrecisionParameter("angle_type", TYPES),
        PrecisionParameter("joint_type", TYPES),
        PolicyParameter("policy"),
    ],
    constraints=[
        # A buffer of a wider type than what is computed from or for it only moves more bytes.
        "sizeof(target_type) <= sizeof(position_type)",
        "sizeof(joint_type) <= sizeof(angle_type)",
        # The functions are those of angles; elsewhere the policies do what the accurate one does.
        "policy != 'fast' or angle_type == 'fp32'",
        "policy != 'approx' or sizeof(angle_type) == 2",
    ],
    arguments=[
        Out("joint", (4, "n"), precision="joint_type"),
        In("target", (3, "n"), precision="target_type"),
    ],
    sizes={
        "smoke": {"n": 10_007},
        "default": {"n": 2_000_000},
        # The paper does not say how many; this many fill its GPUs as Newton-Raphson does.
        "paper": {"n": 100_000_000},
    },
    runtime_sizes=["n"],
    inputs=inputs,
    grid=["ceildiv(ceildiv(n, tile_size), block_size)"],
    block=["block_size"],
    metric="NMAE",
    # A sine, a cosine, an arc cosine and an arc tangent (8 each) with the three differences of angles; the position of
    # the wrist, its distance with a square root (4), and the projection of a link.
    flops={"angle_type": "35 * n", "position_type": "14 * n"},
)
