"""Reference of axpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.data.blocks import in_blocks
from mptune.kernel import Sizes

__all__ = ["reference"]


def reference(inputs: Mapping[str, Any], size: Sizes) -> dict[str, NDArray[np.float64]]:
    """Return ``y`` (n,): ``a * x + y``."""
    y = np.empty(size.n)

    def add(part: slice) -> None:
        y[part] = inputs["a"] * inputs["x"][part] + inputs["y"][part]

    in_blocks(add, size.n)
    return {"y": y}
