"""Reference of the Coulomb potential on a grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.kernel import Sizes

__all__ = ["reference"]

# Numbers that fit in the second-level cache of any processor.
_CACHED = 32 * 1024


def reference(inputs: Mapping[str, Any], size: Sizes) -> dict[str, NDArray[np.float64]]:
    """Return ``potential`` (height, width) in the points ``(x, y, 0) * spacing``: the sum of charge over distance.

    Some charges and one row of points at a time; the sums over the charges are matrix products.
    """
    charge = inputs["charge"]
    column, row = (np.arange(n) * inputs["spacing"] for n in (size.width, size.height))
    potential = np.zeros((size.height, size.width))
    step = max(1, _CACHED // size.width)
    for some in (slice(start, start + step) for start in range(0, size.charges, step)):
        x, y, z = inputs["position"][some].T
        along = (column - x[:, None]) ** 2
        distance = np.empty_like(along)
        for j in range(size.height):
            np.add(along, ((row[j] - y) ** 2 + z**2)[:, None], out=distance)
            np.sqrt(distance, out=distance)
            np.reciprocal(distance, out=distance)
            potential[j] += charge[some] @ distance
    return {"potential": potential}
