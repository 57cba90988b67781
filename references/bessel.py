"""Reference of the modified Bessel function."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mptune.data.blocks import in_blocks
from mptune.kernel import Sizes

__all__ = ["reference"]


def reference(
    inputs: Mapping[str, NDArray[np.float64]],
    size: Sizes,
) -> dict[str, NDArray[np.float64]]:
    """Return ``y`` (n,): ``I0(x)``, by Cephes' Chebyshev series."""
    from scipy.special import i0  # takes longer to load than the kernel

    x, y = inputs["x"], np.empty(size.n)
    in_blocks(lambda part: i0(x[part], out=y[part]), size.n)
    return {"y": y}
