"""Where a configuration is in the discrete, normalised space of Willemsen 2021."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.space.encoding import Encoding
from mptune.space.parameters import CategoricalParameter, PermutationParameter, PrecisionParameter
from mptune.space.search_space import SearchSpace

__all__ = ["Normalisation"]

Array = NDArray[np.float64]


class Normalisation:
    """Coordinates in [0, 1] for each parameter that has more than one value (Willemsen 2021, Sec. III-D).

    Numbers, truth values and other ordered values are spaced linearly whatever they are (1, 2, 4, 8 as 0, 1/3,
    2/3, 1), so that distances are not distorted. The paper leaves what has no order to the user; here two
    categories are always 1 apart, precisions are placed by unit roundoff and bytes, and permutations by the
    positions of their elements. A constant parameter adds nothing to any distance and is pruned.

    Args:
        space: the search space.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        encoding = Encoding.of(space.parameters)
        self._tables: list[tuple[int, Array]] = []
        for column, (parameter, table) in enumerate(zip(space.parameters, encoding.tables, strict=True)):
            values = len(parameter.values)
            if values < 2:
                continue
            if isinstance(parameter, CategoricalParameter):
                table = table / math.sqrt(2.0)
            elif isinstance(parameter, PrecisionParameter | PermutationParameter):
                table = table / math.sqrt(table.shape[1])
            else:
                table = np.linspace(0.0, 1.0, values)[:, None]
            self._tables.append((column, table))
        self.count = sum(table.shape[1] for _, table in self._tables)

    def of(self, indices: Any) -> Array:
        """Return the coordinates of configurations, shape ``(n, count)``."""
        codes = self._space.codes(indices)
        columns = [table[codes[:, column]] for column, table in self._tables]
        return np.concatenate([*columns, np.empty((len(codes), 0))], axis=1)
