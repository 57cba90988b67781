"""Small kernels whose data the tests look at; nothing of them is ever compiled."""

from __future__ import annotations

import numpy as np

from mptune.kernel import In, InOut, Kernel, Out, Scalar
from mptune.space.parameters import OrdinalParameter, PrecisionParameter

ALL = ("fp64", "fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2")
ARGUMENTS = (
    In("x", ("n", "m"), precision="x_type"),
    In("index", "n", dtype="int32"),
    InOut("state", "n", precision="fp32"),
    Out("y", ("n", "m"), precision="y_type"),
    Out("count", "n", dtype="int16"),
    Scalar("a", precision="x_type"),
    Scalar("n", dtype="int32"),
)


def inputs(rng, size):
    return {
        "x": rng.standard_normal((size.n, size.m)),
        "index": np.arange(size.n),
        "state": rng.random(size.n),
        "a": 2.5,
    }


def reference(inputs, size):
    return {
        "y": inputs["a"] * inputs["x"],
        "state": 2 * inputs["state"],
        "count": np.minimum(inputs["index"], 300),
    }


def kernel(**changes):
    fields = {
        "name": "example",
        "parameters": [
            PrecisionParameter("x_type", ALL),
            PrecisionParameter("y_type", ("fp64", "fp16")),
            OrdinalParameter("block", (32, 64)),
        ],
        "arguments": ARGUMENTS,
        "sizes": {"default": {"n": 37, "m": 5}},
        "inputs": inputs,
        "reference": reference,
        "grid": ("n",),
        "block": ("block",),
        "template": "void example() {}\n",
    }
    return Kernel(**(fields | changes))


def simple(values, precisions=ALL, **changes):
    """A kernel of one input ``x`` with these values and one output ``y`` like it."""
    values = np.asarray(values)
    return kernel(
        **{
            "parameters": [PrecisionParameter("x_type", precisions)],
            "arguments": [In("x", "n", precision="x_type"), Out("y", "n", precision="x_type")],
            "sizes": {"default": {"n": values.size}},
            "inputs": lambda rng, size: {"x": values},
            "reference": lambda inputs, size: np.zeros(size.n),
            "block": ("32",),
        }
        | changes
    )
