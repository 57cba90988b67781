"""bessel: the modified Bessel function I0 of many arguments (Heldens 2026, Table II and Sec. IV; 7 parameters).

Two approximations share the axis: an ascending series up to x = 8, the asymptotic form e^x / sqrt(2 pi x) times a
polynomial in 1 / x beyond. In fp64 their polynomials bound the kernel, in narrow types the memory does. How many terms
a branch takes follows from its own type, so a narrow type also saves work.

I0 amplifies the relative error of its argument about x-fold: what the type of the input rounds away decides the error
of the result, more than the arithmetic does.

Lists of values are a reconstruction: Table II has only how many combinations there are of optimisation values (16),
of precisions (189), and valid ones on its A100 (3,024). Here: 16, 198 and 3,168.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mptune.data.blocks import uniform
from mptune.kernel import In, Kernel, Out, Scalar, Sizes
from mptune.space.parameters import OrdinalParameter, PolicyParameter, PrecisionParameter

TYPES = ("fp64", "fp32", "fp16", "bf16")


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """Distances from the axis of a charged pore full of electrolyte, in Debye lengths: up to 12 at the wall.

    The electric potential there is I0 of them, relative to that on the axis. I0(12) = 18,949 is within the reach of
    fp16; e^12 is not.
    """
    return {"x": uniform(rng, 0.0, 12.0, size.n)}


def by_type(parameter: str, fp64: int, fp32: int, fp16: int, bf16: int) -> str:
    """Return an expression for a number that depends on a type."""
    is_type = f"{parameter} == "
    return f"({fp64} if {is_type}'fp64' else {fp32} if {is_type}'fp32' else {fp16} if {is_type}'fp16' else {bf16})"


kernel = Kernel(
    name="bessel",
    description="modified Bessel function I0, series and asymptotic branches",
    parameters=[
        OrdinalParameter("block_size", [64, 128, 256, 512]),
        OrdinalParameter("vector_width", [1, 2, 4, 8]),
        PrecisionParameter("input_type", TYPES),
        PrecisionParameter("series_type", TYPES),
        PrecisionParameter("asymptotic_type", TYPES),
        PrecisionParameter("output_type", TYPES),
        PolicyParameter("policy"),
    ],
    constraints=[
        # Both branches would round a wider argument; and no wider result could hold what both of them give.
        "sizeof(input_type) <= max(sizeof(series_type), sizeof(asymptotic_type))",
        "sizeof(output_type) <= min(sizeof(series_type), sizeof(asymptotic_type))",
        # Only the asymptotic branch calls functions. Elsewhere these policies are the accurate one by another name.
        "policy != 'fast' or asymptotic_type == 'fp32'",
        "policy != 'approx' or sizeof(asymptotic_type) == 2",
    ],
    arguments=[
        Out("y", "n", precision="output_type"),
        In("x", "n", precision="input_type"),
        Scalar("n", dtype="int32"),
    ],
    sizes={
        "smoke": {"n": 10_007},
        "default": {"n": 8_000_000},
        "paper": {"n": 100_000_000},
    },
    inputs=inputs,
    grid=["ceildiv(n, block_size * vector_width)"],
    block=["block_size"],
    metric="MRE",
    # Both branches, for every argument. A polynomial takes a product and a sum for each power. The series is one in
    # (x / 8)^2; beside the other one there are a reciprocal square root (4), an exponential (8) and seven operations.
    flops={
        "series_type": f"n * (2 * {by_type('series_type', 20, 13, 9, 8)} + 2)",
        "asymptotic_type": f"n * (2 * {by_type('asymptotic_type', 22, 5, 2, 1)} + 4 + 8 + 7)",
    },
)
