"""axpy: y = a * x + y, the example of Heldens 2026 (Listings 1 and 2).

Two loads and a store for one multiplication: the kernel runs at the speed of memory. Its time follows the bytes of
x and y, whose precisions decide the error too; the precision of a costs nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mptune.kernel import In, InOut, Kernel, Scalar, Sizes
from mptune.space.parameters import OrdinalParameter, PrecisionParameter

TYPES = ("fp64", "fp32", "fp16", "bf16")


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """One step of an explicit integrator: temperatures y, in units of 300 K, move by a time step a at their rates x."""
    return {
        "y": rng.normal(1.0, 0.05, size.n),
        "x": rng.normal(0.0, 1.0, size.n),
        "a": 0.01,
    }


kernel = Kernel(
    name="axpy",
    description="y = a * x + y on long vectors, bound by memory",
    parameters=[
        OrdinalParameter("block_size", [32, 64, 128, 256, 512, 1024]),
        OrdinalParameter("vector_width", [1, 2, 4, 8]),
        PrecisionParameter("a_type", TYPES),
        PrecisionParameter("x_type", TYPES),
        PrecisionParameter("y_type", TYPES),
    ],
    arguments=[
        InOut("y", "n", precision="y_type"),
        In("x", "n", precision="x_type"),
        Scalar("a", precision="a_type"),
        Scalar("n", dtype="int32"),
    ],
    sizes={
        "smoke": {"n": 10_007},
        "default": {"n": 8_000_000},
        "paper": {"n": 120_000_000},
    },
    inputs=inputs,
    grid=["ceildiv(n, block_size * vector_width)"],
    block=["block_size"],
    metric="NRMSE",
    flops={("a_type", "x_type", "y_type"): "2 * n"},
)
