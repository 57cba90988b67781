"""Sums of products whose rounding is known: the type of the sum decides about the error, that of the factors never.

Each sum adds 1, TERMS times 2**-12 and TERMS times 2**-30, in this order, and the factors are powers of 2, which every
type here holds exactly. fp64 adds all of them exactly. fp32 keeps the first small terms and loses the last ones, which
are below half a unit in its last place; bf16 loses all of them.
"""

from __future__ import annotations

import numpy as np

from mptune.kernel import In, Kernel, Out, Scalar
from mptune.space.parameters import OrdinalParameter, PrecisionParameter

TERMS = 64
EXACT = 1.0 + TERMS * (2.0**-12 + 2.0**-30)
#: The relative error of each result by the type of the sum.
ERRORS = {"fp64": 0.0, "fp32": TERMS * 2.0**-30 / EXACT, "bf16": TERMS * (2.0**-12 + 2.0**-30) / EXACT}

kernel = Kernel(
    name="sums",
    parameters=[
        OrdinalParameter("block", [64, 128]),
        PrecisionParameter("x_type", ["fp64", "fp32", "bf16"]),
        PrecisionParameter("sum_type", ["fp64", "fp32", "bf16"]),
    ],
    arguments=[
        Out("y", "n", precision="fp64"),
        In("x", ("terms", "n"), precision="x_type"),
        Scalar("n", dtype="int32"),
        Scalar("terms", dtype="int32"),
    ],
    sizes={"default": {"n": 1024, "terms": 1 + 2 * TERMS}},
    inputs=lambda rng, size: {
        "x": np.repeat([1.0] + TERMS * [2.0**-12] + TERMS * [2.0**-30], size.n).reshape(size.terms, size.n)
    },
    reference=lambda inputs, size: inputs["x"].sum(axis=0),
    grid=["ceildiv(n, block)"],
    block=["block"],
    metric="MRE",
    # A neighbour of the winner that no device has room for.
    constraints=["block <= 64 or x_type == 'fp32'"],
    template="""
extern "C" __global__ void sums(double* y, const {{ x_type }}* x, int n, int terms) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    {{ sum_type }} total = {{ sum_type }}(0.0f);
    for (int k = 0; k < terms; ++k) total = {{ sum_type }}(total + {{ sum_type }}(x[k * n + i]));
    y[i] = (double)total;
}
""",
)
