"""Newton-Raphson: a root of each of n quartics (Heldens 2026, Table II and Sec. IV; 8 parameters).

Ten steps from a guess near the root: five in one type, five in another. Newton's method forgets the errors of earlier
steps, so the first five may be rough; and of the correction, residual over slope, it needs no more than the leading
digits, so the correction, and with it the costly division, has a type of its own. Only the last residuals must be as
accurate as the root is to be. Six loads and a store for some two hundred operations put the kernel between the bounds
of memory and arithmetic.

Lists of values are a reconstruction: Table II has only how many combinations there are of optimisation values (12),
of precisions (468), and valid ones on its A100 (5,572). Here: 16, 349 and 5,584.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mptune.kernel import In, Kernel, Out, Sizes
from mptune.space.parameters import OrdinalParameter, PrecisionParameter

TYPES = ("fp64", "fp32", "fp16", "bf16")
PRECISIONS = "[coefficient_type, guess_type, first_type, last_type, correction_type, root_type]"

# The Beattie-Bridgeman equation of carbon dioxide, in litres, moles, atmospheres and kelvin.
GAS_CONSTANT = 0.082057
A0, A, B0, B, C = 5.0065, 0.07132, 0.10476, 0.07235, 66.0e4


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """The molar volumes V of carbon dioxide in the cells of a simulated gas turbine, by pressure P and temperature T.

    P V^4 - R T V^3 - beta V^2 - gamma V - delta = 0, whose largest root is between 0.2 and 10 litres per mole. The
    guess is that of an ideal gas, R T / P: too large by up to 40%.
    """
    pressure, temperature = rng.uniform(5, 80, size.n), rng.uniform(350, 600, size.n)
    thermal = GAS_CONSTANT * temperature
    attraction = C * GAS_CONSTANT / temperature**2
    coefficients = np.empty((5, size.n))
    coefficients[4] = pressure
    coefficients[3] = -thermal
    coefficients[2] = A0 + attraction - thermal * B0
    coefficients[1] = thermal * B0 * B - A0 * A + attraction * B0
    coefficients[0] = -attraction * B0 * B
    return {"coefficients": coefficients, "guess": thermal / pressure}


kernel = Kernel(
    name="newton_raphson",
    description="a root of each of many quartics, five steps in one type and five in another",
    parameters=[
        OrdinalParameter("block_size", [64, 128, 256, 512]),
        OrdinalParameter("tile_size", [1, 2, 4, 8]),
        PrecisionParameter("coefficient_type", TYPES),
        PrecisionParameter("guess_type", TYPES),
        PrecisionParameter("first_type", TYPES),
        PrecisionParameter("last_type", TYPES),
        PrecisionParameter("correction_type", TYPES),
        PrecisionParameter("root_type", TYPES),
    ],
    constraints=[
        # The last steps decide the error; whatever is wider than they are costs time for nothing.
        "sizeof(guess_type) <= sizeof(first_type) <= sizeof(last_type)",
        "sizeof(coefficient_type) <= sizeof(last_type)",
        "sizeof(correction_type) <= sizeof(last_type)",
        "sizeof(root_type) <= sizeof(last_type)",
        # Neither of the two contains the other: what mixes them has to be computed in fp32.
        f"'fp16' not in {PRECISIONS} or 'bf16' not in {PRECISIONS}",
    ],
    arguments=[
        Out("root", "n", precision="root_type"),
        In("coefficients", (5, "n"), precision="coefficient_type"),
        In("guess", "n", precision="guess_type"),
    ],
    sizes={
        "smoke": {"n": 10_007},
        "default": {"n": 1_000_000},
        "paper": {"n": 100_000_000},
    },
    runtime_sizes=["n"],
    inputs=inputs,
    grid=["ceildiv(ceildiv(n, tile_size), block_size)"],
    block=["block_size"],
    metric="NRMSE",
    # Ten steps: seven products and sums for the polynomial and its derivative, a division (4), a difference.
    flops={"first_type": "75 * n", "last_type": "75 * n", "correction_type": "40 * n"},
)
