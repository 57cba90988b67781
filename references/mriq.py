"""Reference of the Q matrix of non-Cartesian MRI reconstruction."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mptune.kernel import Sizes

__all__ = ["reference"]

# Numbers that fit in the second-level cache of any processor.
_CACHED = 32 * 1024


def reference(inputs: Mapping[str, NDArray[np.float64]], size: Sizes) -> dict[str, NDArray[np.float64]]:
    """Return ``q`` (side^3, 2): real and imaginary part of the sum of weight times exp(2 pi i k.r) over the samples.

    Some voxels at a time: their angles with all samples are a matrix product, and so are the sums over the samples.
    """
    k, weight = inputs["sample"][:, :3], inputs["sample"][:, 3]
    q = np.empty((size.side**3, 2))
    step = max(1, _CACHED // size.samples)
    for some in (slice(start, start + step) for start in range(0, len(q), step)):
        angle = (2 * np.pi) * (inputs["position"][:, some].T @ k.T)
        q[some, 0] = np.cos(angle) @ weight
        q[some, 1] = np.sin(angle) @ weight
    return {"q": q}
