"""Matrix units as the host simulates them from the vendors' tables of which lane holds what."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from launching import Launcher, launcher
from numpy.typing import NDArray

from mptune.backends.base import CompileOptions
from mptune.backends.cuda import CudaBackend
from mptune.backends.hip import HipBackend
from mptune.kernel import Kernel
from mptune.precision import PRECISIONS

#: What the simulation of each vendor's units is told.
_FLAGS: Mapping[str, tuple[str, ...]] = {"mma.sync": (), "MFMA": ("-D__gfx90a__",), "WMMA": ("-D__gfx1100__",)}
#: The ways to multiply of each vendor's units, with their types of factors and sums.
WAYS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "mma.sync": (
        ("mma", "fp16", "fp32"),
        ("mma", "fp16", "fp16"),
        ("mma", "bf16", "fp32"),
        ("tf32", "fp32", "fp32"),
        ("mma", "fp64", "fp64"),
        ("mma", "fp32", "bf16x3"),
    ),
    "MFMA": (
        ("mma", "fp16", "fp32"),
        ("mma", "bf16", "fp32"),
        ("mma", "fp32", "fp32"),
        ("mma", "fp64", "fp64"),
        ("mma", "fp32", "bf16x3"),
    ),
    "WMMA": (("mma", "fp16", "fp32"), ("mma", "bf16", "fp32"), ("mma", "fp32", "bf16x3")),
}
LIMITS: Mapping[str, Mapping[str, object]] = {
    "mma.sync": CudaBackend.facts("sm_80"),
    "MFMA": HipBackend.facts("gfx90a"),
    "WMMA": HipBackend.facts("gfx1100"),
}


def simulated(kernel: Kernel, unit: str, sizes: Mapping[str, int], seed: int, *flags: str) -> Launcher:
    """Return a launcher for kernels that multiply by these units; they are compiled in a hurry."""
    options = CompileOptions(flags=("-O1", *_FLAGS[unit], *flags))
    return dataclasses.replace(launcher(kernel, sizes, seed=seed), options=options)


def to_tf32(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round to 11 binary digits, ties away from zero."""
    mantissa, exponent = np.frexp(values.astype(np.float32).astype(np.float64))
    return np.ldexp(np.trunc(mantissa * 2.0**11 + np.copysign(0.5, mantissa)), exponent - 11)


def stored(values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Return values as memory holds them in a precision."""
    return values.astype(PRECISIONS[name].dtype).astype(np.float64)
