"""A kernel that does whatever goes wrong on request, in every way a worker has to survive."""

from __future__ import annotations

import numpy as np

from mptune.kernel import In, Kernel, Out, Scalar
from mptune.space.parameters import CategoricalParameter, OrdinalParameter, PrecisionParameter

FAULTS = ["none", "segfault", "shared", "abort", "endless", "compile", "unwritten", "nan", "infinite", "wrong"]

TEMPLATE = """
extern "C" __global__ void twice({{ y_type }}* y, const double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
{% if fault == "segfault" %}
    *(volatile int*)16 = i;
{% elif fault == "shared" %}
    SHARED_DYNAMIC(double, s);
    s[i] = x[i];
{% elif fault == "abort" %}
    __builtin_trap();
{% elif fault == "endless" %}
    for (volatile int k = 0; k >= 0; k = k % 7) { }
{% elif fault == "compile" %}
    this is no C++;
{% endif %}
{% if fault == "unwritten" %}
    if (i == n - 1) return;
{% endif %}
    double value = 2.0 * x[i];
{% if fault == "nan" %}
    if (i == 3) value = (x[i] - x[i]) / (x[i] - x[i]);
{% elif fault == "infinite" %}
    if (i == 3) value = 1.0 / (x[i] - x[i]);
{% elif fault == "wrong" %}
    if (i % 2) value = 0.0;
{% endif %}
    y[i] = ({{ y_type }})value;
}
"""

kernel = Kernel(
    name="twice",
    parameters=[
        CategoricalParameter("fault", FAULTS),
        OrdinalParameter("block", [32, 64]),
        PrecisionParameter("y_type", ["fp64", "fp32"]),
    ],
    arguments=[Out("y", "n", precision="y_type"), In("x", "n", precision="fp64"), Scalar("n", dtype="int32")],
    sizes={"default": {"n": 1001}},
    inputs=lambda rng, size: {"x": rng.uniform(1.0, 2.0, size.n)},
    reference=lambda inputs, size: 2.0 * np.asarray(inputs["x"]),
    grid=["ceildiv(n, block)"],
    block=["block"],
    shared_bytes="block * 8",
    template=TEMPLATE,
    metric="MRE",
)
