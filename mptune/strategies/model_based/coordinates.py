"""Coordinates of configurations: a table of numbers for each parameter, by the code of its value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import MptuneError, UnknownNameError
from mptune.space.parameters import CategoricalParameter, Parameter, PermutationParameter, PrecisionParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies.base import Array

#: Semimetrics between permutations, by name.
PERMUTATION_DISTANCES: Final[tuple[str, ...]] = ("spearman", "kendall", "hamming", "naive")
#: Orders that are compared without regard to their elements; each takes a coordinate.
_MOST_NAIVE: Final = math.factorial(6)


class Coordinates:
    """The columns a model sees of value codes.

    Args:
        tables: position of a parameter in the space, and its coordinates by value code, ``(n_values, n_columns)``.

    Attributes:
        owners: position of the parameter each coordinate belongs to, shape ``(count,)``.
        count: number of coordinates.
    """

    def __init__(self, tables: Iterable[tuple[int, Array]]) -> None:
        self._tables = tuple(tables)
        widths = [table.shape[1] for _, table in self._tables]
        self.owners = np.repeat(np.array([column for column, _ in self._tables], dtype=np.int64), widths)
        self.count = len(self.owners)

    def at(self, codes: NDArray[Any]) -> Array:
        """Return the coordinates of value codes, ``(n, count)`` from ``(n, n_parameters)``, valid or not."""
        columns = [table[codes[:, column]] for column, table in self._tables]
        return np.concatenate([*columns, np.empty((len(codes), 0))], axis=1)


def features(space: SearchSpace) -> Coordinates:
    """Return numbers in [0, 1] for the parameters that vary, for the default strategy.

    Beside the features of the search space each size gets its alignment: a block of 128 is like one of 144 in most
    respects, but it fills warps, divides the problem and avoids bank conflicts as one of 64 does. Models of earlier
    runs need the alignment to explain the times of some kernels.
    """
    probes = space.codes(space.sample(min(space.size, 512), np.random.default_rng(0)))
    tables: list[tuple[int, Array]] = []
    for column, table in enumerate(parameter.encoded() for parameter in space.parameters):
        varying = np.ptp(table[probes[:, column]], axis=0) > 0
        tables.append((column, table[:, varying]))
    aligned = ((column, alignment(parameter)) for column, parameter in enumerate(space.parameters))
    return Coordinates([*tables, *((column, table[:, None]) for column, table in aligned if table is not None)])


def alignment(parameter: Parameter) -> Array | None:
    """Return, by value code, how often 2 divides the value, scaled to [0, 1].

    None for a parameter whose values are not at least four positive integers, and where the value says as
    much: all equally often divisible, or powers of two.
    """
    values: NDArray[Any] = np.array(parameter.values) if parameter.is_numeric else np.zeros(0)
    if len(values) < 4 or values.dtype.kind != "i" or values.min() <= 0:
        return None
    exponents = np.log2(values & -values)
    if np.ptp(exponents) == 0 or (values & (values - 1) == 0).all():
        return None
    return np.asarray((exponents - exponents.min()) / np.ptp(exponents))


def normalised(parameters: Sequence[Parameter]) -> Coordinates:
    """Return coordinates in [0, 1] for each parameter that has more than one value (Willemsen 2021, Sec. III-D).

    Numbers, truth values and other ordered values are spaced linearly whatever they are (1, 2, 4, 8 as 0, 1/3,
    2/3, 1), so that distances are not distorted. The paper leaves values without an order to the user. Here two
    categories are always 1 apart, precisions are placed by unit roundoff and bytes, and permutations by the
    positions of their elements. A constant parameter adds nothing to any distance and is left out.
    """

    def spaced(parameter: Parameter, table: Array) -> Array:
        if isinstance(parameter, CategoricalParameter):
            return table / math.sqrt(2.0)
        if isinstance(parameter, PrecisionParameter | PermutationParameter):
            return table / math.sqrt(table.shape[1])
        return np.linspace(0.0, 1.0, len(parameter.values))[:, None]

    return Coordinates((column, spaced(p, p.encoded())) for column, p in enumerate(parameters) if len(p.values) > 1)


def distances(parameters: Sequence[Parameter], permutation: str = "spearman", *, log: bool = True) -> Coordinates:
    """Return coordinates whose squared Euclidean distances are those of Hellsten 2023, Sec. 4.1.

    The squared distance is d^2 of the paper's Eq. 2, so that a covariance over it is positive definite and all
    distances come from one matrix product. Parameters with one value have no coordinates.

    - Numbers: the absolute difference, of the logarithms where the scale is exponential and ``log`` is true.
    - Other ordered values, truth values, policies: the difference of the ranks.
    - Categories: 0 or 1 (Hamming).
    - Precisions: Euclidean over the logarithms of bytes and unit roundoff, which are both exponential.
    - Permutations: a semimetric between the positions of the elements. It is d^2, not d: the semimetrics are squared
      Euclidean distances themselves, and a kernel over their squares need not be positive definite. The naive distance
      is that of categories.

    Each is scaled so that the largest distance is 1, for one prior of the length scale to fit all parameters.
    """
    if permutation not in PERMUTATION_DISTANCES:
        raise UnknownNameError("distance of permutations:", permutation, PERMUTATION_DISTANCES)
    return Coordinates((c, _scaled(p, permutation, log)) for c, p in enumerate(parameters) if len(p.values) > 1)


def _scaled(parameter: Parameter, permutation: str, log: bool) -> Array:
    """Return coordinates of a parameter's values; the largest distance is 1."""
    from scipy.spatial.distance import pdist  # takes a while, which other strategies need not spend

    n_values = len(parameter.values)
    if isinstance(parameter, PermutationParameter):
        positions = np.argsort(np.array(parameter.values), axis=1)  # of each element
        n = positions.shape[1]
        if permutation == "spearman":
            # The order reversed is the farthest: the sum of (n + 1 - 2 i)^2 is n (n^2 - 1) / 3.
            return np.asarray(positions / math.sqrt(n * (n * n - 1) / 3.0))
        if permutation == "kendall":
            first, second = np.triu_indices(n, 1)
            return np.asarray((positions[:, first] < positions[:, second]) / math.sqrt(n * (n - 1) / 2.0))
        if permutation == "hamming":
            occupied = positions[:, :, None] == np.arange(n)
            return np.asarray(occupied.reshape(n_values, n * n) / math.sqrt(2.0 * n))
        if n_values > _MOST_NAIVE:
            raise MptuneError(
                f"parameter {parameter.name}: naive distances are for up to {_MOST_NAIVE} orders, it has {n_values:,}"
            )
        table = np.eye(n_values)
    elif parameter.is_numeric and not log:
        table = np.array(parameter.values, dtype=np.float64)[:, None]
    else:
        table = parameter.encoded()
    largest = np.ptp(table) if table.shape[1] == 1 else pdist(table).max()
    return np.asarray((table - table.min(axis=0)) / largest)
