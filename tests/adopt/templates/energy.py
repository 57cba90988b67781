"""A reduction in shared memory: the block is the program's own."""

from __future__ import annotations

import numpy as np

from mptune import In, Kernel, OrdinalParameter, Out, PrecisionParameter, Scalar

TYPES = ["fp64", "fp32", "fp16", "bf16"]


def squares(inputs, size):
    """Return the sum of squares of each 256 elements."""
    x = np.zeros(256 * size.blocks)
    x[: size.n] = inputs["x"]
    return (x**2).reshape(-1, 256).sum(axis=1)


kernel = Kernel(
    name="energy",
    parameters=[
        OrdinalParameter("per_thread", [1]),
        PrecisionParameter("x_type", TYPES),
        PrecisionParameter("partial_type", TYPES),
        PrecisionParameter("sum_type", TYPES),
    ],
    arguments=[
        In("x", "n", precision="x_type"),
        Out("sums", "blocks", precision="sum_type"),
        Scalar("n", dtype="int32"),
    ],
    sizes={"smoke": {"n": 1003, "blocks": 4}, "default": {"n": 1_000_003, "blocks": 3907}},
    inputs=lambda rng, size: {"x": rng.uniform(-1, 1, size.n)},
    reference=squares,
    grid=["blocks"],
    block=[256],
    metric="NRMSE",
)
