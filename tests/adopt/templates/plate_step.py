"""Heat in a plate: a time step of a stencil with an edge."""

from __future__ import annotations

import numpy as np

from mptune import In, Kernel, OrdinalParameter, Out, PrecisionParameter, Scalar

TYPES = ["fp64", "fp32", "fp16", "bf16"]


def hot(rng, size):
    """Return a plate with a hot middle."""
    y, x = np.mgrid[: size.height, : size.width]
    bump = np.exp(-(((x - size.width / 2) / size.width) ** 2 + ((y - size.height / 2) / size.height) ** 2) * 8)
    return {"u": bump * rng.uniform(0.9, 1.1, bump.shape), "rate": 0.2}


def heat(inputs, size):
    """Return the plate after one step."""
    u = np.asarray(inputs["u"], np.float64)
    edged = np.pad(u, 1)
    return u + 0.2 * (edged[1:-1, :-2] + edged[1:-1, 2:] + edged[:-2, 1:-1] + edged[2:, 1:-1] - 4 * u)


kernel = Kernel(
    name="plate_step",
    parameters=[
        OrdinalParameter("block_size_x", [16, 32, 64, 128, 256]),
        OrdinalParameter("block_size_y", [1, 2, 4, 8, 16]),
        OrdinalParameter("per_thread", [1, 2, 4, 16, 64, 256]),
        PrecisionParameter("u_type", TYPES),
        PrecisionParameter("rate_type", TYPES),
    ],
    constraints=["32 <= block_size_x * block_size_y <= 256"],
    arguments=[
        Out("next", ("height", "width"), precision="u_type"),
        In("u", ("height", "width"), precision="u_type"),
        Scalar("width", dtype="int32"),
        Scalar("height", dtype="int32"),
        Scalar("rate", precision="rate_type"),
    ],
    # The program launched blocks of 16 by 16.
    sizes={
        "smoke": {"width": 83, "height": 37, "threads_x": 96, "threads_y": 48},
        "default": {"width": 1024, "height": 1024, "threads_x": 1024, "threads_y": 1024},
    },
    inputs=hot,
    reference=heat,
    grid=["ceildiv(threads_x, block_size_x * per_thread)", "ceildiv(threads_y, block_size_y)"],
    block=["block_size_x", "block_size_y"],
    metric="NRMSE",
)
