"""An application with everything that is awkward to emit: its file is read for what its functions use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mptune import (
    Application,
    Buffer,
    Constant,
    In,
    InOut,
    Kernel,
    OrdinalParameter,
    Out,
    PrecisionParameter,
    Scalar,
    Scratch,
)
from mptune.errors import KernelError

if TYPE_CHECKING:
    from mptune.kernel import Sizes

#: How much of a value each of its neighbours gets.
WEIGHTS = np.array([0.5, 0.3, 0.2])
EVERY = ("fp64", "fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2")


def checked(size: Sizes) -> int:
    if size.n < size.taps:
        raise KernelError(f"n is below taps: {size}")
    return size.n


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    return {
        "x": rng.uniform(1, 2) + rng.uniform(0, 1, size.n),
        "gain": 1 / 3,
        "index": rng.permutation(size.n),
        "extra": np.ones(7 + checked(size) // 100),
    }


def steps(run: Any, size: Sizes) -> None:
    """Smooth back and forth: two types of buffers, two sizes."""
    for _ in range(run.rounds):
        smooth(run, run.x, run.y)
        smooth(run, run.y, run.x)
    run.swap(run.x, run.z)
    run.copy(run.z, run.result)
    run.fill(run.count, 2**40)
    run.counts(count=run.count, index=run.index)
    run.write("total", run.read(run.extra).sum() + run.shift)


def smooth(run: Any, source: Any, target: Any) -> None:
    run.smooth(x=source, y=target, weights=WEIGHTS, a=run.gain)


def relative(output: Any, reference: Any) -> float:
    return float(np.abs(output - reference).max() / np.abs(reference).max())


relative.version = "1"  # type: ignore[attr-defined]

SMOOTH = Kernel(
    name="smooth",
    parameters=[
        PrecisionParameter("x_type", ["fp64", "fp32", "bf16"]),
        PrecisionParameter("y_type", ["fp64", "fp32", "bf16"]),
        PrecisionParameter("w_type", ["fp64", "fp16"]),
        PrecisionParameter("a_type", ["fp64", "fp16"]),
        OrdinalParameter("block", [32, 64]),
    ],
    arguments=[
        In("x", "n", precision="x_type"),
        Constant("weights", "taps", precision="w_type"),
        Out("y", "n", precision="y_type"),
        Scalar("a", precision="a_type"),
        Scalar("n", dtype="int32"),
    ],
    grid=["ceildiv(n, block)"],
    block=["block"],
    constraints=["n >= taps"],
    template="""
#include <cstdint>
#define PART(i) part[i]
__constant__ {{ w_type }} weights[{{ taps }}];

// Not inline: two kernels of one program have it.
__device__ double weighted(double value, int tap) { return value * static_cast<double>(weights[tap]); }

extern "C" __global__ void smooth(const {{ x_type }}* x, {{ y_type }}* y, {{ a_type }} a, int n) {
    __shared__ double part[{{ block }}];
    const int i = blockIdx.x * {{ block }} + threadIdx.x;
    PART(threadIdx.x) = i < n ? static_cast<double>(x[i]) : 0.0;
    __syncthreads();
    if (i >= n) return;
    double sum = 0;
    #pragma unroll
    for (int t = 0; t < {{ taps }}; ++t) sum += weighted(part[(threadIdx.x + t) % {{ block }}], t);
    y[i] = static_cast<{{ y_type }}>(static_cast<double>(a) * sum + 0.5);
}
""",
)
COUNTS = Kernel(
    name="counts",
    parameters=[OrdinalParameter("block", [64])],
    arguments=[InOut("count", "n", dtype="int64"), In("index", "n", dtype="int32"), Scalar("n", dtype="int32")],
    grid=["ceildiv(n, block)"],
    block=["block"],
    template="""
IN_PHASES();
extern "C" __global__ void counts(long long* count, const int* index, int n) {
    __shared__ int found[{{ block }}];
    PHASE {
        const int i = blockIdx.x * {{ block }} + threadIdx.x;
        if (i < n) found[threadIdx.x] = index[i];
    }
    PHASE {
        const int i = blockIdx.x * {{ block }} + threadIdx.x;
        if (i < n) count[i] += found[threadIdx.x];
    }
}
""",
)

application = Application(
    name="awkward_steps",
    description="two kernels, a constant array, a scalar in half precision",
    kernels=[SMOOTH, COUNTS],
    shared=[OrdinalParameter("rounds", [2])],
    buffers=[
        InOut("x", "n", precision="x_type"),
        Scratch("y", "n", precision="y_type"),
        Scratch("z", "n", precision="x_type"),
        Buffer("result", "n", precision="fp64"),
        Buffer("count", "n", dtype="int64"),
        Buffer("index", "n", dtype="int32"),
        Buffer("extra", "7 + n // 100", precision="fp32"),
        Buffer("total", 1, precision="fp64"),
        Scalar("gain", precision="fp64"),
        Scalar("shift", dtype="int32"),
        *(Scratch(f"in_{name}", "n", precision=name) for name in EVERY),
    ],
    sizes={"default": {"n": 1003, "taps": 3, "shift": 5}},
    inputs=inputs,
    steps=steps,
    outputs=["result", "count", "total"],
    metric=relative,
)
