"""Reference of the matrix product."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.exact import product
from mptune.data.blocks import in_blocks
from mptune.kernel import Sizes

__all__ = ["reference"]

# Numbers at a time: in the long double they fit the cache of a core.
_BLEND = 1 << 16


def reference(inputs: Mapping[str, Any], size: Sizes) -> dict[str, NDArray[np.float64]]:
    """Return ``C`` (M, N): ``alpha * A @ B + beta * C``, rounded once: sums in fp64 have errors of compensated ones.

    A is stored as (K, M) where ``size.transposed_a`` says so, and B as (N, K) where ``size.transposed_b`` does.
    """
    a = inputs["A"].T if size.transposed_a else inputs["A"]
    b = inputs["B"].T if size.transposed_b else inputs["B"]
    found, beyond = product(a, b)
    alpha, beta = (np.longdouble(inputs[name]) for name in ("alpha", "beta"))

    def blend(rows: slice) -> None:
        wide = found[rows].astype(np.longdouble)
        wide += beyond[rows]
        wide *= alpha
        wide += beta * inputs["C"][rows]
        found[rows] = wide

    in_blocks(blend, size.M, max(1, _BLEND // size.N))
    return {"C": found}
