"""A kernel that is right when it is first looked at, and wrong, idle or destructive from some launch on."""

from __future__ import annotations

import numpy as np

from mptune.kernel import Constant, In, InOut, Kernel, Out, Scalar
from mptune.space.parameters import CategoricalParameter, OrdinalParameter, PrecisionParameter

#: What it does from launch ``begin`` (the first is 0) up to but not including launch ``end``.
MODES = ["right", "idle", "half", "wrong", "nan", "rounding", "input", "initial", "constant", "write", "read"]

TEMPLATE = """
__constant__ double weights[2];
__device__ int calls;
__device__ int next;

extern "C" __global__ void twice({{ t }}* y, {{ t }}* z, const double* x, const double* other, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
{% if queue %}
    for (;;) {
        int first = atomicAdd(&next, 1) * 16;
        if (first >= n) return;
        for (i = first; i < first + 16 && i < n; ++i) { y[i] = ({{ t }})(weights[1] * x[i]); z[i] = ({{ t }})x[i]; }
    }
{% endif %}
    int launch = atomicAdd(&calls, 1) / (gridDim.x * blockDim.x);
    if (i >= n) return;
    bool now = launch >= {{ begin }} && launch < {{ end }};
    double value = weights[1] * x[i];
{% if mode == "idle" %}
    if (now) return;
{% elif mode == "half" %}
    if (now && i >= n / 2) return;
{% elif mode == "wrong" %}
    if (now) value = 3.0 * x[i];
{% elif mode == "nan" %}
    if (now && i == 5) value = (value - value) / (value - value);
{% elif mode == "rounding" %}
    if (launch % 2) value *= 1.0 + {{ by }} * 1.2e-16;
{% elif mode == "input" %}
    if (now && i == 7) const_cast<double*>(x)[i] = {{ by }};
{% elif mode == "initial" %}
    if (now && i == 7) const_cast<double*>(other)[i] = {{ by }};
{% elif mode == "constant" %}
    if (now && i == 0) const_cast<double*>(weights)[0] = 5.0;
{% elif mode == "write" %}
    if (now && i == 0) ((char*)y)[{{ by }}L] = 1;
{% elif mode == "read" %}
    if (now && i == 0) value += ((volatile char*)y)[{{ by }}L] ? 1.0 : 0.0;
{% endif %}
    y[i] = ({{ t }})value;
    z[i] = ({{ t }})x[i];
}
"""

kernel = Kernel(
    name="twice",
    parameters=[
        CategoricalParameter("mode", MODES),
        OrdinalParameter("begin", [0, 1, 2, 3, 4, 5, 6, 9]),
        OrdinalParameter("end", [1, 2, 3, 4, 5, 6, 1000]),
        OrdinalParameter("by", [-(1 << 20), 1, 2, 1 << 15, 1 << 20, 1 << 26, 1 << 33]),
        OrdinalParameter("queue", [0, 1]),
        PrecisionParameter("t", ["fp64", "fp32"]),
    ],
    arguments=[
        Out("y", "n", precision="t"),
        InOut("z", "n", precision="t"),
        In("x", "n", precision="fp64"),
        In("other", "n", precision="fp64"),
        Constant("weights", 2, precision="fp64"),
        Scalar("n", dtype="int32"),
    ],
    sizes={"default": {"n": 1001}},
    inputs=lambda rng, size: {
        **{name: rng.uniform(1.0, 2.0, size.n) for name in ("x", "z", "other")},
        "weights": np.array([1.0, 2.0]),
    },
    reference=lambda inputs, size: {"y": 2.0 * inputs["x"], "z": inputs["x"]},
    grid=["ceildiv(n, 64)"],
    block=["64"],
    template=TEMPLATE,
    signature=["mode"],
    metric="MaxRE",
)
