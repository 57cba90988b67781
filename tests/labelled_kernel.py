"""A user's own kernel with two outputs of different kinds: the nearest of two levels, and the distance to it."""

from __future__ import annotations

import numpy as np

from mptune.kernel import In, Kernel, Out, Scalar
from mptune.space.parameters import OrdinalParameter, PrecisionParameter


def reference(inputs, size):
    x = inputs["x"]
    return {"label": (x > 0.5).astype(np.int32), "distance": np.minimum(x, 1 - x)}


kernel = Kernel(
    name="nearest",
    parameters=[OrdinalParameter("block", [32, 64]), PrecisionParameter("x_type", ["fp64", "bf16"])],
    arguments=[
        Out("label", "n", dtype="int32"),
        Out("distance", "n", precision="x_type"),
        In("x", "n", precision="x_type"),
        Scalar("n", dtype="int32"),
    ],
    sizes={"default": {"n": 4001}},
    inputs=lambda rng, size: {"x": rng.uniform(0.1, 0.9, size.n)},
    reference=reference,
    grid=["ceildiv(n, block)"],
    block=["block"],
    metric={"label": "MAE", "distance": "NRMSE"},
    template="""
extern "C" __global__ void nearest(int* label, {{ x_type }}* distance, const {{ x_type }}* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const {{ x_type }} other = {{ x_type }}(1) - x[i];
    label[i] = other < x[i];
    distance[i] = other < x[i] ? other : x[i];
}
""",
)
