"""A kernel with scratch memory, and what it computes."""

from __future__ import annotations

from typing import Any

from mptune.kernel import InOut, Kernel, Out, Scalar, Scratch
from mptune.space.parameters import OrdinalParameter, PrecisionParameter

__all__ = ["STEPPER", "stepped"]

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
