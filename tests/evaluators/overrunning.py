"""A kernel that writes and reads where it should not, by as much as it is told to."""

from __future__ import annotations

import numpy as np

from mptune.kernel import In, InOut, Kernel, Out, Scalar
from mptune.space.parameters import CategoricalParameter, OrdinalParameter, PrecisionParameter

TEMPLATE = """
extern "C" __global__ void spill({{ t }}* y, {{ t }}* z, const {{ t }}* x, int* labels, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = x[i];
    z[i] = z[i] + x[i];
    labels[i] = i;
{% if fault == "past" %}
    if (i < {{ by }}) y[n + i] = x[i];
{% elif fault == "before" %}
    if (i == 0) y[-{{ by }}] = x[i];
{% elif fault == "input" %}
    if (i == 0) const_cast<{{ t }}*>(x)[n + {{ by }} - 1] = {{ t }}(0);
{% elif fault == "integer" %}
    if (i == 0) labels[n] = -1;
{% elif fault == "inout" %}
    if (i == 0) z[n + {{ by }} - 1] = x[0];
{% elif fault == "read" %}
    if (i == n - 1) y[i] = x[n];
{% endif %}
}
"""

kernel = Kernel(
    name="spill",
    parameters=[
        CategoricalParameter("fault", ["none", "past", "before", "input", "integer", "inout", "read"]),
        OrdinalParameter("by", [1, 24, 1500]),
        PrecisionParameter("t", ["fp64", "fp32", "fp16"]),
    ],
    arguments=[
        Out("y", "n", precision="t"),
        InOut("z", "n", precision="t"),
        In("x", "n", precision="t"),
        Out("labels", "n", dtype="int32"),
        Scalar("n", dtype="int32"),
    ],
    sizes={"default": {"n": 1001}},
    inputs=lambda rng, size: {"x": rng.uniform(1.0, 2.0, size.n), "z": rng.uniform(1.0, 2.0, size.n)},
    reference=lambda inputs, size: {
        "y": inputs["x"],
        "z": inputs["z"] + inputs["x"],
        "labels": np.arange(size.n, dtype=np.int32),
    },
    grid=["ceildiv(n, 64)"],
    block=["64"],
    template=TEMPLATE,
    metric="MaxAE",
)
