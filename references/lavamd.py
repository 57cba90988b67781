"""Reference of the forces between particles in neighbouring boxes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.kernel import Sizes

__all__ = ["reference"]

# Pairs of particles at a time.
_PAIRS = 1 << 20


def reference(inputs: Mapping[str, Any], size: Sizes) -> dict[str, NDArray[np.float64]]:
    """Return ``force`` (boxes^3, 4, particles): potential and force on every particle, in rows potential, x, y, z.

    The potential is the sum of q exp(-s r^2) over the particles of the box itself and of those around it. Its gradient
    follows from sums of the same terms: the force is 2 s (r_i sum_j w_ij - sum_j w_ij r_j), lengths counted from the
    corner of the box, where no digits are lost.
    """
    from scipy.spatial.distance import cdist  # takes longer to load than the kernel

    steepness = inputs["steepness"]
    grid = (size.boxes,) * 3
    position = inputs["position"].reshape(*grid, 3, size.particles)
    charge = inputs["charge"].reshape(*grid, size.particles)
    force = np.empty((*grid, 4, size.particles))
    for home in np.ndindex(grid):
        around = [range(max(i - 1, 0), min(i + 2, size.boxes)) for i in home]
        boxes = list(itertools.product(*around))
        # The grid's axes are z, y, x.
        offset = [np.subtract(box, home)[::-1] for box in boxes]
        near = np.concatenate([position[box].T + shift for box, shift in zip(boxes, offset, strict=True)])
        near_charge = np.concatenate([charge[box] for box in boxes])
        own = position[home].T
        step = max(1, _PAIRS // len(near))
        for some in (slice(start, start + step) for start in range(0, size.particles, step)):
            weight = np.exp(-steepness * cdist(own[some], near, "sqeuclidean")) * near_charge
            potential = weight.sum(axis=1)
            force[home][0, some] = potential
            force[home][1:, some] = 2 * steepness * (own[some].T * potential - (weight @ near).T)
    return {"force": force.reshape(-1, 4, size.particles)}
