"""The memory footprint of configurations, which needs no evaluation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mptune.buffers.manager import DataManager
from mptune.kernel import Kernel, Sizes
from mptune.space.search_space import SearchSpace
from mptune.strategies.base import Known

__all__ = ["footprints"]


def footprints(kernel: Kernel, sizes: Sizes, space: SearchSpace) -> Known:
    """Return a function of the indices of a space, ``(n,)``, that gives ``memory_bytes``, ``(n,)``.

    Only the types of the arguments count, so that it is computed once for each combination of them.
    """
    data = DataManager(kernel, sizes)
    precisions = {argument.precision for argument in kernel.arguments}
    columns = [column for column, name in enumerate(space.names) if name in precisions]

    def known(indices: NDArray[np.int64]) -> NDArray[np.float64]:
        types = space.codes(indices)[:, columns]
        _, first, inverse = np.unique(types, axis=0, return_index=True, return_inverse=True)
        found = space.configurations(np.asarray(indices)[first])
        return np.array([data.footprint_bytes(c) for c in found], dtype=np.float64)[inverse.reshape(-1)]

    return known
