"""Reference of a tensor times a matrix along its middle mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.kernel import Sizes

__all__ = ["reference"]


def reference(inputs: Mapping[str, Any], size: Sizes) -> dict[str, NDArray[np.float64]]:  # noqa: ARG001
    """Return ``output`` (rows, filters, columns): a matrix product for each row."""
    return {"output": np.matmul(inputs["response"], inputs["image"])}
