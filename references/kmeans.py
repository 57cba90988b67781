"""Reference of the distances to the nearest cluster centre."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mptune.kernel import Sizes

__all__ = ["reference"]

# Points at a time: their distances to all centres stay in the cache.
CHUNK = 1 << 12


def reference(inputs: Mapping[str, NDArray[np.float64]], size: Sizes) -> dict[str, NDArray[np.float64]]:
    """Return ``distance`` (n,): squared Euclidean distances of ``points`` (features, n) to the nearest of ``centres``.

    From differences, not from products of the vectors, which would cancel.
    """
    from scipy.spatial.distance import cdist  # takes longer to load than the kernel

    points, centres = inputs["points"], inputs["centres"]
    distance = np.empty(size.n)
    for start in range(0, size.n, CHUNK):
        part = slice(start, start + CHUNK)
        distance[part] = cdist(points[:, part].T, centres, "sqeuclidean").min(axis=1)
    return {"distance": distance}
