"""Reference of inverse kinematics."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mptune.data.blocks import in_blocks
from mptune.kernel import Sizes

__all__ = ["reference"]

LINK = 0.25
# Few enough for all intermediate arrays to stay in a processor's cache.
CHUNK = 1 << 14


def reference(inputs: Mapping[str, NDArray[np.float64]], size: Sizes) -> dict[str, NDArray[np.float64]]:
    """Return ``joint`` (4, n): the angle of each joint, in radians, for each target (x, y, direction).

    In complex numbers: the three links before the wrist, seen along the line to the wrist, are the conjugate of a unit
    number, 1, and that unit number itself, whose argument is the bend.
    """
    joint = np.empty((4, size.n))

    def bend_arm(part: slice) -> None:
        x, y, direction = inputs["target"][:, part]
        wrist = (x + 1j * y) / LINK - np.exp(1j * direction)
        projection = (np.abs(wrist) - 1) / 2
        bend = np.angle(projection + 1j * np.sqrt((1 - projection) * (1 + projection)))
        bearing = np.angle(wrist)
        joint[:, part] = bearing - bend, bend, bend, direction - bearing - bend

    in_blocks(bend_arm, size.n, CHUNK)
    return {"joint": joint}
