"""black_scholes: prices of European call and put options (Heldens 2026, Table II and Sec. IV; 7 parameters).

A logarithm, an exponential, a square root, two error functions and three divisions an option: they bound the kernel in
fp64. In narrow types the memory does, with three numbers read and two written.

The intermediate values come in two kinds. ``d_type`` holds how far an option is in the money, d1 and d2, a logarithm
over a standard deviation; ``price_type`` the probabilities that follow from them, and the prices. A price is a
difference of larger terms, so rounding those costs the most.

Lists of values are a reconstruction: Table II has only how many combinations there are of optimisation values (12),
of precisions (576), and valid ones on its A100 (6,383). Here: 20, 308 and 6,160.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mptune.data.blocks import uniform
from mptune.kernel import In, Kernel, Out, Scalar, Sizes
from mptune.space.parameters import OrdinalParameter, PolicyParameter, PrecisionParameter

TYPES = ("fp64", "fp32", "fp16", "bf16")


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """Quotes of an exchange, in dollars and years: strikes around the prices of the stocks, two weeks to three years.

    The interest is 3% and the volatility 30% a year.
    """
    stock = uniform(rng, 20.0, 200.0, size.n)
    strike = uniform(rng, 0.6, 1.5, size.n)
    strike *= stock
    return {
        "stock": stock,
        "strike": strike,
        "years": uniform(rng, 0.04, 3.0, size.n),
        "rate": 0.03,
        "volatility": 0.3,
    }


kernel = Kernel(
    name="black_scholes",
    description="call and put prices of European options",
    parameters=[
        OrdinalParameter("block_size", [64, 128, 256, 512, 1024]),
        OrdinalParameter("vector_width", [1, 2, 4, 8]),
        PrecisionParameter("input_type", TYPES),
        PrecisionParameter("d_type", TYPES),
        PrecisionParameter("price_type", TYPES),
        PrecisionParameter("output_type", TYPES),
        PolicyParameter("policy"),
    ],
    constraints=[
        # What goes in wider than anything it is computed in, or comes out so, only moves more bytes.
        "sizeof(input_type) <= max(sizeof(d_type), sizeof(price_type))",
        "sizeof(output_type) <= sizeof(price_type)",
        # Where no type heeds them these policies are the accurate one by another name.
        "policy != 'fast' or d_type == 'fp32' or price_type == 'fp32'",
        "policy != 'approx' or min(sizeof(d_type), sizeof(price_type)) == 2",
    ],
    arguments=[
        Out("call", "n", precision="output_type"),
        Out("put", "n", precision="output_type"),
        In("stock", "n", precision="input_type"),
        In("strike", "n", precision="input_type"),
        In("years", "n", precision="input_type"),
        Scalar("rate", precision="d_type"),
        Scalar("volatility", precision="d_type"),
        Scalar("n", dtype="int32"),
    ],
    sizes={
        "smoke": {"n": 10_007},
        "default": {"n": 4_000_000},
        "paper": {"n": 200_000_000},
    },
    inputs=inputs,
    grid=["ceildiv(n, block_size * vector_width)"],
    block=["block_size"],
    metric="NRMSE",
    # d1 and d2: two divisions and a square root (4 each), a logarithm (8) and four others. Prices: an exponential and
    # two error functions (8 each) and thirteen others.
    flops={"d_type": "24 * n", "price_type": "37 * n"},
)
