"""Kernels of several launches and with sizes that come from the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from mptune.kernel import In, InOut, Kernel, Out, Scalar, Scratch
from mptune.space.parameters import OrdinalParameter, PrecisionParameter

__all__ = ["STEPPER", "SUMS", "stepped"]

#: The steps of a time stepper: every launch adds its input's neighbour, and counts in memory of its own.
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
    launches="steps",
    swap=[("u", "v")],
    template="""
extern "C" __global__ void stepper(const {{ t }}* u, {{ t }}* v, {{ t }}* kept, int n) {
    const int i = blockIdx.x * {{ block }} + threadIdx.x;
    if (i >= n) return;
    kept[i] = u[(i + 1) % n];
    v[i] = {{ t }}(0.5) * (u[i] + kept[i]);
}
""",
)


def stepped(u: Any, steps: int) -> Any:
    for _ in range(steps):
        u = 0.5 * (u + np.roll(u, -1))
    return u


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
