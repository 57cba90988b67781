"""Reference of the matrix product."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.kernel import Sizes

__all__ = ["reference"]


def reference(inputs: Mapping[str, Any], size: Sizes) -> dict[str, NDArray[np.float64]]:  # noqa: ARG001
    """Return ``C`` (M, N): ``alpha * A @ B + beta * C``, by the BLAS of NumPy."""
    product: NDArray[np.float64] = inputs["A"] @ inputs["B"]
    product *= inputs["alpha"]
    product += inputs["beta"] * inputs["C"]
    return {"C": product}
