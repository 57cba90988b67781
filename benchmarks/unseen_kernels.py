"""Five kernels whose error depends on the data: cancellation, near-poles, a wide dynamic range.

Each has one number per element and a type for what is read, what is computed and what is written. Every draw of the
inputs has a difficulty of its own, so that the errors of draws are far apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from mptune.kernel import In, Kernel, Out, Sizes
from mptune.space.parameters import OrdinalParameter, PrecisionParameter

__all__ = ["KERNELS"]

_TYPES: Final = ("fp64", "fp32", "fp16")
_SIZES: Final = {"smoke": {"n": 4003}, "default": {"n": 2_000_003}}


def _kernel(
    name: str,
    description: str,
    body: str,
    inputs: Callable[..., Mapping[str, Any]],
    reference: Callable[[Mapping[str, Any], Sizes], Any],
    metric: str = "NRMSE",
) -> Kernel:
    """Return a kernel that computes ``out`` of ``x`` and ``y`` for each element; ``body`` is in the type ``T``."""
    return Kernel(
        name=name,
        description=description,
        parameters=[
            OrdinalParameter("block_size", [64, 128, 256]),
            OrdinalParameter("items", [1, 2, 4]),
            PrecisionParameter("in_type", _TYPES),
            PrecisionParameter("work_type", _TYPES),
            PrecisionParameter("out_type", _TYPES),
        ],
        arguments=[
            Out("out", "n", precision="out_type"),
            In("x", "n", precision="in_type"),
            In("y", "n", precision="in_type"),
        ],
        sizes=_SIZES,
        inputs=inputs,
        reference=reference,
        grid=["ceildiv(n, block_size * items)"],
        block=["block_size"],
        metric=metric,
        template="""
extern "C" __global__ void NAME({{ out_type }}* __restrict__ out, const {{ in_type }}* __restrict__ x,
                                const {{ in_type }}* __restrict__ y) {
    using T = {{ work_type }};
{% for item in range(items) %}
    {
        const int i = (blockIdx.x * {{ items }} + {{ item }}) * {{ block_size }} + threadIdx.x;
        if (i < {{ n }}) {
            const T a = x[i], b = y[i];
            BODY
        }
    }
{% endfor %}
}
""".replace("NAME", name).replace("BODY", body),
    )


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(low * (high / low) ** rng.random())


def _variance(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """Two readings of a gauge with an offset: their spread is what is wanted."""
    offset = _log_uniform(rng, 0.1, 100.0)
    return {"x": offset + rng.uniform(0.5, 1.5, size.n), "y": offset - rng.uniform(0.5, 1.5, size.n)}


def _pole(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """Frequencies of a driven oscillator, as near to the resonance as the draw says."""
    distance = _log_uniform(rng, 1e-3, 1.0)
    return {"x": 1.0 + distance * rng.uniform(1.0, 2.0, size.n), "y": rng.uniform(0.5, 1.5, size.n)}


def _spectrum(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """Amplitudes over as many decades as the draw says."""
    decades = rng.uniform(0.5, 4.0)
    return {"x": 10 ** rng.uniform(-decades, 0.0, size.n), "y": rng.uniform(0.5, 1.5, size.n)}


def _chord(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """Points of a curve and small steps from them."""
    step = _log_uniform(rng, 1e-2, 1.0)
    return {"x": rng.uniform(1.0, 2.0, size.n), "y": step * rng.uniform(0.5, 1.0, size.n)}


def _sigmoid(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """What neurons are given, in units of their width."""
    steepness = _log_uniform(rng, 0.1, 10.0)
    return {"x": steepness * rng.normal(0.0, 1.0, size.n), "y": rng.uniform(0.5, 1.5, size.n)}


KERNELS: Final[Mapping[str, Kernel]] = {
    kernel.name: kernel
    for kernel in (
        _kernel(
            "cancellation",
            "a^2 - b^2 of nearly equal numbers, as a difference of squares",
            "out[i] = a * a - b * b;",
            _variance,
            lambda inputs, _: (inputs["x"] - inputs["y"]) * (inputs["x"] + inputs["y"]),
        ),
        _kernel(
            "near_pole",
            "the response of an oscillator near its resonance",
            "out[i] = b / (a * a - T(1.0));",
            _pole,
            lambda inputs, _: inputs["y"] / ((inputs["x"] - 1.0) * (inputs["x"] + 1.0)),
        ),
        _kernel(
            "wide_range",
            "power over many decades, scaled back",
            "const T power = a * a; out[i] = b * (power / (power + a));",
            _spectrum,
            lambda inputs, _: inputs["y"] * inputs["x"] / (inputs["x"] + 1.0),
            "MRE",
        ),
        _kernel(
            "chord",
            "the slope of a curve by a forward difference",
            "const T next = a + b; out[i] = (next * next * next - a * a * a) / (next - a);",
            _chord,
            lambda inputs, _: 3 * inputs["x"] ** 2 + 3 * inputs["x"] * inputs["y"] + inputs["y"] ** 2,
        ),
        _kernel(
            "saturation",
            "how far neurons are from saturation: 1 - x / sqrt(1 + x^2), by the difference",
            "out[i] = b * (T(1.0) - a / T(sqrt(T(1.0) + a * a)));",
            _sigmoid,
            lambda inputs, _: inputs["y"] * _above(inputs["x"]),
            "NMAE",
        ),
    )
}


def _above(x: Any) -> Any:
    """Return 1 - x / sqrt(1 + x^2) without cancellation."""
    root = np.sqrt(1.0 + x * x)
    return np.where(x > 0, 1.0 / (root * (root + x)), (root - x) / root)
