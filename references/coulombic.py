"""Reference of the Coulomb potential on a grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.exact import product
from mptune.kernel import Sizes

__all__ = ["reference"]

# Numbers that fit in the second-level cache of any processor.
_CACHED = 32 * 1024


def reference(inputs: Mapping[str, Any], size: Sizes) -> dict[str, NDArray[np.float64]]:
    """Return ``potential`` (height, width) in the points ``(x, y, 0) * spacing``: the sum of charge over distance.

    Some charges and one row of points at a time; the sums over the charges are matrix products, with more digits than
    their terms: these err each by another rounding, of which little is left in a sum.
    """
    charge = inputs["charge"]
    # Where a point lies is the same for all charges, so that no sum would average its rounding out.
    column, row = (np.arange(n) * np.longdouble(inputs["spacing"]) for n in (size.width, size.height))
    potential = np.zeros((size.height, size.width), np.longdouble)
    step = max(1, _CACHED // size.width)
    for some in (slice(start, start + step) for start in range(0, size.charges, step)):
        x, y, z = inputs["position"][some].T
        along = ((column - x[:, None]) ** 2).astype(np.float64)
        distance = np.empty_like(along)
        for j in range(size.height):
            beside = ((row[j] - y) ** 2 + z**2).astype(np.float64)
            np.add(along, beside[:, None], out=distance)
            np.sqrt(distance, out=distance)
            np.reciprocal(distance, out=distance)
            high, low = product(charge[None, some], distance)
            potential[j] += high[0]
            potential[j] += low[0]
    return {"potential": potential.astype(np.float64)}
