"""Reference of the distances to the nearest cluster centre."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mptune.data.blocks import in_blocks
from mptune.kernel import Sizes

__all__ = ["reference"]

# Points at a time: their distances to all centres stay in the cache.
CHUNK = 1 << 12


def reference(inputs: Mapping[str, NDArray[np.float64]], size: Sizes) -> dict[str, NDArray[np.float64]]:
    """Return ``distance`` (n,): squared Euclidean distances of ``points`` (features, n) to the nearest of ``centres``.

    From differences, not from products of the vectors, which would cancel. Which is the nearest is found in fp64; the
    distance to it is summed up in more digits, and rounded once.
    """
    from scipy.spatial.distance import cdist  # takes longer to load than the kernel

    points, centres = inputs["points"], inputs["centres"]
    distance = np.empty(size.n)

    def measure(part: slice) -> None:
        nearest = cdist(points[:, part].T, centres, "sqeuclidean").argmin(axis=1)
        total = np.zeros(len(nearest), np.longdouble)
        for along, centre in zip(points[:, part], centres.T, strict=True):
            difference = along.astype(np.longdouble)
            difference -= centre[nearest]
            difference *= difference
            total += difference
        distance[part] = total

    in_blocks(measure, size.n, CHUNK)
    return {"distance": distance}
