"""A kernel whose reference is NaN on land, elsewhere in every draw; some configurations treat land differently."""

from __future__ import annotations

from typing import Any

import numpy as np

from mptune.kernel import In, Kernel, Out, Scalar
from mptune.space.parameters import OrdinalParameter, PrecisionParameter


def inputs(rng: np.random.Generator, size: Any) -> dict[str, Any]:
    """One row is land, and two elements besides."""
    land = np.zeros((size.rows, size.columns), np.int32)
    row, *others = rng.permutation(size.rows)[:3]
    land[row] = 1
    land[others, rng.integers(0, size.columns, 2)] = 1
    return {"x": rng.uniform(1.0, 2.0, land.shape), "land": land}


def reference(inputs: Any, size: Any) -> Any:
    return np.where(inputs["land"] == 1, np.nan, 0.5 * inputs["x"])


kernel = Kernel(
    name="ocean",
    parameters=[
        OrdinalParameter("land", [0, 1, 2]),
        OrdinalParameter("lost", [0, 1]),
        PrecisionParameter("u_type", ["fp64", "fp32"]),
        OrdinalParameter("block", [32, 64]),
    ],
    arguments=[
        Out("u", ("rows", "columns"), precision="u_type"),
        In("x", ("rows", "columns"), precision="u_type"),
        In("land", ("rows", "columns"), dtype="int32"),
        Scalar("n", dtype="int32"),
    ],
    sizes={"smoke": {"rows": 6, "columns": 10, "n": 60}, "default": {"rows": 600, "columns": 10, "n": 6000}},
    inputs=inputs,
    reference=reference,
    grid=["ceildiv(n, block)"],
    block=["block"],
    signature=["land", "lost"],
    metric="NRMSE",
    template="""
extern "C" __global__ void ocean({{ u_type }}* u, const {{ u_type }}* x, const int* land, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (!land[i]) u[i] = {{ lost }} && i % 7 == 0 ? {{ u_type }}(0.0) / {{ u_type }}(0.0) : x[i] * {{ u_type }}(0.5);
    else if ({{ land }} == 0) u[i] = {{ u_type }}(0.0) / {{ u_type }}(0.0);
    else if ({{ land }} == 2) u[i] = {{ u_type }}(1e30);
}
""",
)
