"""A user's own kernel, as the tests tune it: a polynomial whose digits go with its types."""

from __future__ import annotations

import numpy as np

from mptune.kernel import In, Kernel, Out, Scalar
from mptune.space.parameters import OrdinalParameter, PrecisionParameter

kernel = Kernel(
    name="poly",
    parameters=[
        OrdinalParameter("block", [32, 64, 128, 256]),
        OrdinalParameter("unroll", [1, 2, 4]),
        PrecisionParameter("x_type", ["fp64", "fp32", "fp16"]),
        PrecisionParameter("y_type", ["fp64", "fp32", "fp16"]),
    ],
    arguments=[Out("y", "n", precision="y_type"), In("x", "n", precision="x_type"), Scalar("n", dtype="int32")],
    sizes={"default": {"n": 5003}, "smoke": {"n": 37}},
    inputs=lambda rng, size: {"x": rng.uniform(0.5, 1.0, size.n)},
    reference=lambda inputs, size: np.polyval([0.5, -1.0, 2.0, 1.0], inputs["x"]),
    grid=["ceildiv(n, block * unroll)"],
    block=["block"],
    metric="NRMSE",
    template="""
extern "C" __global__ void poly({{ y_type }}* y, const {{ x_type }}* x, int n) {
{% for u in range(unroll) %}
    {
        int i = (blockIdx.x * {{ unroll }} + {{ u }}) * blockDim.x + threadIdx.x;
        if (i < n) {
            {{ x_type }} t = x[i];
            {{ x_type }} p = 0.5;
            p = p * t - {{ x_type }}(1.0);
            p = p * t + {{ x_type }}(2.0);
            p = p * t + {{ x_type }}(1.0);
            y[i] = ({{ y_type }})p;
        }
    }
{% endfor %}
}
""",
)
