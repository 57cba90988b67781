"""Where a configuration lies in the space of a model: numbers for each parameter that varies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import MptuneError, UnknownNameError
from mptune.space.encoding import Encoding
from mptune.space.parameters import CategoricalParameter, Parameter, PermutationParameter, PrecisionParameter
from mptune.space.search_space import SearchSpace

__all__ = ["PERMUTATION_DISTANCES", "Distances", "Features", "Normalisation", "alignment"]

Array = NDArray[np.float64]

#: Semimetrics between permutations, by name.
PERMUTATION_DISTANCES: Final[tuple[str, ...]] = ("spearman", "kendall", "hamming", "naive")
#: Orders that are told apart without regard to their elements; each takes a coordinate.
_MOST_NAIVE: Final = math.factorial(6)
#: Configurations looked at to find out which features vary.
_PROBES: Final = 512


class Features:
    """Numbers in [0, 1] for the parameters that vary, for the default strategy.

    Beside the features of the search space each size gets its alignment: a block of 128 is like one of 144 in most
    respects, but it fills warps, divides the problem and avoids bank conflicts like one of 64 does. Models of
    earlier runs need the alignment to explain the times of some kernels.

    Attributes:
        owners: which parameter of the space each feature is of, shape ``(count,)``.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._encoding = Encoding.of(space.parameters)
        probes = space.features(space.sample(min(space.size, _PROBES), np.random.default_rng(0)))
        self._varying = np.asarray(np.ptp(probes, axis=0) > 0.0)
        tables = [(column, alignment(parameter)) for column, parameter in enumerate(space.parameters)]
        self._aligned = [(column, table) for column, table in tables if table is not None]
        widths = [table.shape[1] for table in self._encoding.tables]
        given = np.repeat(np.arange(len(widths)), widths)[self._varying]
        self.owners = np.array([*given.tolist(), *(column for column, _ in self._aligned)], dtype=np.int64)
        self.count = len(self.owners)

    def of(self, indices: Any) -> Array:
        """Return the features of configurations, shape ``(n, count)``."""
        return self.at(self._space.codes(indices))

    def at(self, codes: NDArray[np.int32]) -> Array:
        """Return the features of value codes ``(n, d)``, which need not be a valid configuration's; ``(n, count)``."""
        given = self._encoding.encode(codes)[:, self._varying]
        return np.column_stack([given, *(table[codes[:, column]] for column, table in self._aligned)])


def alignment(parameter: Parameter) -> Array | None:
    """Return, by value code, how often 2 divides the value, scaled to [0, 1].

    None for a parameter whose values are not at least four positive integers, and where the value tells as
    much: all equally often divisible, or powers of two.
    """
    values = [v for v in parameter.values if isinstance(v, int) and not isinstance(v, bool) and v > 0]
    if not parameter.is_numeric or len(values) < max(4, len(parameter.values)):
        return None
    exponents = np.array([(v & -v).bit_length() - 1 for v in values], dtype=np.float64)
    spread = np.ptp(exponents)
    if spread == 0 or all(v & (v - 1) == 0 for v in values):
        return None
    return np.asarray((exponents - exponents.min()) / spread)


class _Tables:
    """Coordinates of each value of each parameter that has more than one: arrays of shape ``(n_values, n_columns)``."""

    def __init__(self, tables: Sequence[tuple[int, Array]]) -> None:
        self._tables = tables

    def coordinates(self, codes: NDArray[Any]) -> Array:
        """Return the coordinates of value codes, shape ``(n, n_coordinates)`` from ``(n, n_parameters)``."""
        columns = [table[codes[:, column]] for column, table in self._tables]
        return np.concatenate([*columns, np.empty((len(codes), 0))], axis=1)


class Normalisation(_Tables):
    """Coordinates in [0, 1] for each parameter that has more than one value (Willemsen 2021, Sec. III-D).

    Numbers, truth values and other ordered values are spaced linearly whatever they are (1, 2, 4, 8 as 0, 1/3,
    2/3, 1), so that distances are not distorted. The paper leaves what has no order to the user; here two
    categories are always 1 apart, precisions are placed by unit roundoff and bytes, and permutations by the
    positions of their elements. A constant parameter adds nothing to any distance and is left out.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        encoded = enumerate(zip(parameters, Encoding.of(parameters).tables, strict=True))
        super().__init__([(column, _spaced(p, table)) for column, (p, table) in encoded if len(p.values) > 1])


def _spaced(parameter: Parameter, table: Array) -> Array:
    if isinstance(parameter, CategoricalParameter):
        return table / math.sqrt(2.0)
    if isinstance(parameter, PrecisionParameter | PermutationParameter):
        return table / math.sqrt(table.shape[1])
    return np.linspace(0.0, 1.0, len(parameter.values))[:, None]


class Distances(_Tables):
    """How far apart two values of a parameter are (Hellsten 2023, Sec. 4.1), for each that has more than one.

    The values are given coordinates of which the squared Euclidean distance is d^2 of the paper's Eq. 2, so
    that a covariance over them is positive definite and all distances come from one matrix product. A table of
    all pairs of values would do for a block size; eight loops have 40,320 orders.

    - Numbers: the absolute difference, of the logarithms where the scale is exponential.
    - Other ordered values, truth values, policies: the difference of the ranks.
    - Categories: 0 or 1 (Hamming).
    - Precisions: Euclidean over the logarithms of bytes and unit roundoff, which are exponential both.
    - Permutations: a semimetric between the positions of the elements. It is d^2, not d: the semimetrics are squared
      Euclidean distances themselves, and a kernel over their squares need not be positive definite. The naive distance
      is that of categories.

    Without ``log``, numbers are compared by their values whatever their scale.

    Each is scaled so that the largest distance is 1, for one prior of the length scale to fit all parameters.

    Attributes:
        count: number of parameters with more than one value.
        owners: which of them each coordinate belongs to, shape ``(n_coordinates,)``.

    Raises:
        UnknownNameError: no such semimetric.
        MptuneError: a permutation has more than 720 orders, and its distance is to be naive.
    """

    def __init__(self, parameters: Sequence[Parameter], permutation: str = "spearman", *, log: bool = True) -> None:
        if permutation not in PERMUTATION_DISTANCES:
            raise UnknownNameError("distance of permutations:", permutation, PERMUTATION_DISTANCES)
        super().__init__([(c, _scaled(p, permutation, log)) for c, p in enumerate(parameters) if len(p.values) > 1])
        self.count = len(self._tables)
        widths = [table.shape[1] for _, table in self._tables]
        self.owners = np.repeat(np.arange(self.count, dtype=np.int64), widths)


def _scaled(parameter: Parameter, permutation: str, log: bool) -> Array:
    """Return coordinates of a parameter's values, the largest distance being 1."""
    if isinstance(parameter, PermutationParameter) and permutation == "naive":
        if len(parameter.values) > _MOST_NAIVE:
            raise MptuneError(
                f"parameter {parameter.name}: naive distances are for up to {_MOST_NAIVE} orders, it has "
                f"{len(parameter.values):,}"
            )
        return np.asarray(np.eye(len(parameter.values)) / math.sqrt(2.0))
    if isinstance(parameter, PermutationParameter):
        return _of_permutations(np.argsort(np.array(parameter.values), axis=1), permutation)
    if parameter.is_numeric and not log:
        values = np.array(parameter.values, dtype=np.float64)
        return np.asarray(((values - values.min()) / np.ptp(values))[:, None])
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
