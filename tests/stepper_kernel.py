"""Kernels with scratch memory and with sizes that come from the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from mptune.kernel import In, InOut, Kernel, Out, Scalar, Scratch
from mptune.space.parameters import OrdinalParameter, PrecisionParameter

__all__ = ["STEPPER", "SUMS", "stepped"]

#: Steps of a fixed-point iteration, with memory of its own; what is left in the input is of no interest.
STEPPER = Kernel(
    name="stepper",
    parameters=[OrdinalParameter("block", [32]), PrecisionParameter("t", ["fp64", "fp32"])],
    arguments=[
        InOut("u", "n", precision="t", compared=False),
        Out("v", "n", precision="t"),
        Scratch("kept", "n", precision="t"),
        Scalar("n", dtype="int32"),
    ],
    sizes={"default": {"n": 103, "steps": 4}},
    inputs=lambda rng, size: {"u": rng.uniform(0.5, 1, size.n)},
    reference=lambda given, size: {"v": stepped(given["u"], size.steps)},
    grid=["ceildiv(n, block)"],
    block=["block"],
    template="""
extern "C" __global__ void stepper({{ t }}* u, {{ t }}* v, {{ t }}* kept, int n) {
    const int i = blockIdx.x * {{ block }} + threadIdx.x;
    if (i >= n) return;
    {{ t }} value = u[i];
    kept[i] = value * value;
    for (int step = 0; step < {{ steps }}; ++step) value = {{ t }}(0.5) * (value + kept[i]);
    v[i] = value;
    u[i] = 0;
}
""",
)


def stepped(u: Any, steps: int) -> Any:
    value = u
    for _ in range(steps):
        value = 0.5 * (value + u * u)
    return value


#: Sums numbers by where they go; how many numbers is up to the data.
SUMS = Kernel(
    name="sums",
    parameters=[PrecisionParameter("t", ["fp64", "fp32"])],
    arguments=[
        In("x", "m", precision="t"),
        In("to", "m", dtype="int32"),
        Out("y", "n", precision="t"),
        Scalar("m", dtype="int32"),
    ],
    sizes={"default": {"n": 5}},
    data_sizes=["m"],
    inputs=lambda rng, size: {"x": np.ones(7), "to": np.zeros(7, np.int32)},
    reference=lambda given, size: {"y": np.bincount(given["to"], given["x"], size.n)},
    grid=["max(1, m // 1000)"],
    block=["n"],
    template="""
extern "C" __global__ void sums(const {{ t }}* x, const int* to, {{ t }}* y, int m) {
    if (blockIdx.x > 0) return;
    {{ t }} sum = 0;
    for (int j = 0; j < m; ++j) if (to[j] == (int)threadIdx.x) sum += x[j];
    y[threadIdx.x] = sum;
}
""",
)
