"""A filter with an exponential and a cosine, whose index is unsigned and whose width is a macro."""

from __future__ import annotations

import numpy as np

from mptune import In, Kernel, OrdinalParameter, Out, PolicyParameter, PrecisionParameter, Scalar

TYPES = ["fp64", "fp32", "fp16", "bf16"]


def filtered(inputs, size):
    """Return the samples, filtered."""
    x = np.asarray(inputs["x"], np.float64)
    t = np.where(np.arange(size.n) < size.n // 2, x, 0.5 * x)
    return np.exp(-(t**2) / (2 * 0.35**2)) * np.cos(inputs["frequency"] * t)


kernel = Kernel(
    name="wavelet",
    parameters=[
        OrdinalParameter("block_size", [32, 64, 128, 256, 512, 1024]),
        OrdinalParameter("per_thread", [1, 2, 4, 16, 64, 256]),
        PrecisionParameter("x_type", TYPES),
        PrecisionParameter("t_type", TYPES),
        PrecisionParameter("y_type", TYPES),
        PrecisionParameter("frequency_type", TYPES),
        PolicyParameter("policy"),
    ],
    arguments=[
        In("x", "n", precision="x_type"),
        Out("y", "n", precision="y_type"),
        Scalar("n", dtype="uint32"),
        Scalar("frequency", precision="frequency_type"),
    ],
    sizes={
        "smoke": {"n": 1003, "threads": 1024},
        "default": {"n": 1_000_003, "threads": 1_000_192},
    },
    inputs=lambda rng, size: {"x": rng.uniform(-1, 1, size.n), "frequency": 3.0},
    reference=filtered,
    grid=["ceildiv(threads, block_size * per_thread)"],
    block=["block_size"],
    metric="NRMSE",
)
