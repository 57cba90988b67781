"""How far apart two values of a parameter are (Hellsten 2023, Sec. 4.1).

A parameter's values are given coordinates of which the squared Euclidean distance is d^2 of the paper's Eq. 2, so
that a covariance over them is positive definite and all distances come from one matrix product. A table of
all pairs of values would do for a block size; eight loops have 40,320 orders.

- Numbers: the absolute difference, of the logarithms where the scale is exponential.
- Other ordered values, truth values, policies: the difference of the ranks.
- Categories: 0 or 1 (Hamming).
- Precisions: Euclidean over the logarithms of bytes and unit roundoff, which are exponential both.
- Permutations: a semimetric between the positions of the elements. It is d^2, not d: the semimetrics are squared
  Euclidean distances themselves, and a kernel over their squares need not be positive definite.

Each is scaled so that the largest distance is 1, for one prior of the length scale to fit all parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import UnknownNameError
from mptune.space.encoding import Encoding
from mptune.space.parameters import CategoricalParameter, Parameter, PermutationParameter

__all__ = ["PERMUTATION_DISTANCES", "Distances"]

Array = NDArray[np.float64]

#: Semimetrics between permutations, by name.
PERMUTATION_DISTANCES: Final[tuple[str, ...]] = ("spearman", "kendall", "hamming")


class Distances:
    """Distances between configurations, apart for each parameter that has more than one value.

    Args:
        parameters: of the search space.
        permutation: the semimetric between permutations.

    Attributes:
        count: number of parameters with more than one value.
        columns: which of the parameters these are, shape ``(count,)``.
        owners: which of them each coordinate belongs to, shape ``(n_coordinates,)``.

    Raises:
        UnknownNameError: no such semimetric.
    """

    def __init__(self, parameters: Sequence[Parameter], permutation: str = "spearman") -> None:
        if permutation not in PERMUTATION_DISTANCES:
            raise UnknownNameError("distance of permutations:", permutation, PERMUTATION_DISTANCES)
        varying = [(column, p) for column, p in enumerate(parameters) if len(p.values) > 1]
        self._tables = [_coordinates(p, permutation) for _, p in varying]
        self.columns = np.array([column for column, _ in varying], dtype=np.int64)
        self.count = len(varying)
        widths = [table.shape[1] for table in self._tables]
        self.owners = np.repeat(np.arange(self.count, dtype=np.int64), widths)

    def coordinates(self, codes: NDArray[Any]) -> Array:
        """Return the coordinates of value codes, shape ``(n, n_coordinates)`` from ``(n, n_parameters)``."""
        coordinates = np.empty((len(codes), len(self.owners)))
        at = 0
        for column, table in zip(self.columns, self._tables, strict=True):
            coordinates[:, at : at + table.shape[1]] = table[codes[:, column]]
            at += table.shape[1]
        return coordinates

    def squared(self, coordinates: Array, first: NDArray[Any], second: NDArray[Any]) -> Array:
        """Return the squared distances of pairs of configurations, by parameter.

        Args:
            coordinates: of configurations, shape ``(n, n_coordinates)``.
            first: positions of one of each pair, shape ``(n_pairs,)``.
            second: positions of the other, the same shape.

        Returns:
            Shape ``(count, n_pairs)``.
        """
        result = np.zeros((self.count, len(first)))
        for owner, column in zip(self.owners, coordinates.T, strict=True):
            difference = column[first] - column[second]
            result[owner] += difference * difference
        return result


def _coordinates(parameter: Parameter, permutation: str) -> Array:
    """Return coordinates of a parameter's values, shape ``(n_values, n_columns)``; the largest distance is 1."""
    if isinstance(parameter, PermutationParameter):
        return _of_permutations(np.argsort(np.array(parameter.values), axis=1), permutation)
    table = Encoding.of((parameter,)).tables[0]
    if isinstance(parameter, CategoricalParameter):
        return np.asarray(table / math.sqrt(2.0))
    if table.shape[1] > 1:
        differences = table[:, None, :] - table[None, :, :]
        return np.asarray(table / math.sqrt((differences**2).sum(axis=2).max()))
    return table


def _of_permutations(positions: NDArray[Any], permutation: str) -> Array:
    """Return coordinates of permutations from the position of each element, shape ``(n_values, n)``."""
    n = positions.shape[1]
    if permutation == "spearman":
        # The order reversed is the farthest: the sum of (n + 1 - 2 i)^2 is n (n^2 - 1) / 3.
        return np.asarray(positions / math.sqrt(n * (n * n - 1) / 3.0))
    if permutation == "kendall":
        first, second = np.triu_indices(n, 1)
        return np.asarray((positions[:, first] < positions[:, second]) / math.sqrt(n * (n - 1) / 2.0))
    occupied = positions[:, :, None] == np.arange(n)
    return np.asarray(occupied.reshape(len(positions), n * n) / math.sqrt(2.0 * n))
