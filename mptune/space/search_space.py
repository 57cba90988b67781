"""The search space: all valid configurations, counted, indexed and sampled without being listed."""

from __future__ import annotations

import bisect
import contextlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mptune.errors import ConstraintError, EmptySpaceError, MptuneError, UnknownNameError
from mptune.space.configuration import Configuration, Value
from mptune.space.constraints import Constraint, compile_constraint
from mptune.space.expressions import column_of
from mptune.space.parameters import MAX_PARAMETERS, Parameter, names_of_precisions
from mptune.space.tree import Factor, build_factors, tree_of_rows

Indices = NDArray[np.int64]
#: Kinds of neighbours.
Kind = Literal["hamming", "adjacent"]
KINDS: Final[tuple[Kind, ...]] = ("hamming", "adjacent")
_LARGEST: Final = 2**63 - 1
#: Configurations in the sample that a cover is chosen from.
_POOL: Final = 4096
#: Configurations of the largest space that is listed to find representatives, and the sample of a larger one.
_LISTED: Final = 2**18
_MOST_COMBINATIONS: Final = 2**16


class SearchSpace:
    """The valid configurations of parameters under constraints.

    Parameters coupled by constraints form groups, each held as a tree of its valid combinations (the chain of trees of
    Rasch 2021 and Hellsten 2023). The space is the product of the groups and is never listed, so memory does not
    depend on its size. Valid configurations have indices from 0 to ``size - 1``; equal definitions give equal indices.

    Args:
        parameters: the parameters, each name once.
        constraints: expressions over parameters and constants, or callables that take parameters and constants by name.
        constants: further names that constraints may use, such as sizes and limits of a device.
        explains: whether the error of an empty space names the constraint that removed the last configurations; this
            counts the space several times.

    Attributes:
        names: names of the parameters, in order.
        constraints: the compiled constraints, in the given order.
        size: number of valid configurations.
        cartesian_size: number of configurations without constraints.

    Raises:
        MptuneError: no parameters, a duplicate name, or more valid configurations than an index can count.
        ConstraintError: a constraint does not parse, uses an unknown name, fails for a configuration, or couples
            too many combinations.
        EmptySpaceError: no configuration is valid.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        constraints: Sequence[str | Callable[..., Any] | Constraint] = (),
        constants: Mapping[str, Value] | None = None,
        *,
        explains: bool = True,
    ) -> None:
        self.constants = dict(constants or {})
        self._define(parameters)
        self._is_listed = False
        types = names_of_precisions(self.parameters)
        self.constraints = tuple(compile_constraint(each, self.names, self.constants, types) for each in constraints)
        try:
            self._index_by(build_factors(self.parameters, self.constraints))
        except EmptySpaceError as error:
            raise EmptySpaceError(self._blame(str(error)) if explains else str(error)) from None

    @classmethod
    def from_codes(cls, parameters: Sequence[Parameter], codes: NDArray[Any]) -> SearchSpace:
        """Return the space of listed configurations, in ascending order of their value codes, (n, n_parameters)."""
        space = cls.__new__(cls)
        space.constants, space.constraints, space._is_listed = {}, (), True
        space._define(parameters)
        radices = [len(p.values) for p in space.parameters]
        if not len(codes):
            raise EmptySpaceError("the list of configurations is empty")
        if codes.shape[1] != len(radices) or np.any(codes < 0) or np.any(codes >= np.array(radices)):
            raise MptuneError("a value code is out of its parameter's range")
        tree = tree_of_rows(np.unique(codes, axis=0), radices, tuple(p.is_ordered for p in space.parameters))
        space._index_by([tree])
        return space

    def _define(self, parameters: Sequence[Parameter]) -> None:
        self.parameters = tuple(parameters)
        if not 1 <= len(self.parameters) <= MAX_PARAMETERS:
            raise MptuneError(f"a search space has 1 to {MAX_PARAMETERS} parameters, not {len(self.parameters)}")
        self.names = tuple(p.name for p in self.parameters)
        for name, number in Counter((*self.names, *self.constants)).items():
            if number > 1:
                raise MptuneError(f"duplicate name {name!r} among parameters and constants")
        self.cartesian_size = math.prod(len(p.values) for p in self.parameters)
        self._codes_of = [{value: code for code, value in enumerate(p.values)} for p in self.parameters]

    def _index_by(self, factors: Sequence[Factor]) -> None:
        self.size = math.prod(factor.size for factor in factors)
        if self.size > _LARGEST:
            raise MptuneError(f"{self.size:.3g} configurations are valid; at most {_LARGEST:.3g} can be indexed")
        strides = [math.prod(factor.size for factor in factors[k + 1 :]) for k in range(len(factors))]
        self._factors: tuple[tuple[Factor, int], ...] = tuple(zip(factors, strides, strict=True))

    def _blame(self, fallback: str) -> str:
        """Return the message that names the first constraint, in order, after which no configuration is left."""

        def left(number: int) -> int:
            with contextlib.suppress(EmptySpaceError):
                return math.prod(factor.size for factor in build_factors(self.parameters, self.constraints[:number]))
            return 0

        try:
            low = bisect.bisect_left(range(len(self.constraints)), 0, key=lambda number: -left(number)) - 1
            before = left(low)
        except ConstraintError:
            return f"the search space is empty: {fallback}"
        last = self.constraints[low]
        shown = ", ".join(f"{name}={value}" for name, value in self.constants.items())
        return (
            f"the search space is empty: no configuration is left after constraint {last.text!r}; all {before:,} "
            f"before it violate it{f' (with {shown})' if shown else ''}"
        )

    def __repr__(self) -> str:
        return f"SearchSpace({self.size:,} of {self.cartesian_size:,} configurations of {', '.join(self.names)})"

    def __len__(self) -> int:
        return self.size

    def __contains__(self, configuration: object) -> bool:
        return isinstance(configuration, Mapping) and self.index(configuration) is not None

    def parameter(self, name: str) -> Parameter:
        """Return a parameter by name; raise UnknownNameError if there is none."""
        if name not in self.names:
            raise UnknownNameError("parameter", name, self.names)
        return self.parameters[self.names.index(name)]

    def configuration(self, index: int) -> Configuration:
        """Return the configuration of an index; raise IndexError for an index outside the space."""
        return self.configurations([index])[0]

    def configurations(self, indices: ArrayLike) -> list[Configuration]:
        """Return the configurations of indices, in order."""
        columns = [
            [parameter.values[code] for code in column.tolist()]
            for parameter, column in zip(self.parameters, self.codes(indices).T, strict=True)
        ]
        return [Configuration(dict(zip(self.names, row, strict=True))) for row in zip(*columns, strict=True)]

    def index(self, configuration: Mapping[str, Any]) -> int | None:
        """Return the index of a configuration, None if it is not valid or has other parameters."""
        if len(configuration) != len(self.names):
            return None
        try:
            codes = [codes[configuration[name]] for name, codes in zip(self.names, self._codes_of, strict=True)]
        except (KeyError, TypeError):
            return None
        index = 0
        for factor, stride in self._factors:
            leaf = factor.encode_one([codes[position] for position in factor.positions])
            if leaf < 0:
                return None
            index += leaf * stride
        return index

    def codes(self, indices: ArrayLike) -> NDArray[np.int32]:
        """Return the value codes of indices: the position of each value among the values of its parameter.

        The shape is (n, n_parameters) for indices (n,), and (n_parameters,) for a single index.

        Raises:
            IndexError: an index is negative or not below ``size``.
        """
        wanted = np.asarray(indices, dtype=np.int64)
        if wanted.size and not (wanted.min() >= 0 and wanted.max() < self.size):
            raise IndexError(f"an index is not in 0, ..., {self.size - 1}")
        codes = np.empty((len(self.parameters), *wanted.shape), dtype=np.int32)
        for factor, stride in self._factors:
            codes[list(factor.positions)] = factor.decode(wanted // stride % factor.size).T
        return codes.T

    def indices_of(self, codes: NDArray[Any]) -> Indices:
        """Return the indices of value codes, -1 for invalid configurations, (n,) from (n, n_parameters)."""
        return self._combine([factor.encode(codes[:, list(factor.positions)]) for factor, _ in self._factors])

    def nearest_valid(self, codes: NDArray[Any], rng: np.random.Generator) -> Indices:
        """Return the index of a valid configuration near each row of value codes, (n,) from (n, n_parameters).

        A valid row keeps all values. In other rows each value, one parameter after the other, moves to the nearest
        value allowed by the values before it; ties are broken at random.
        """
        return self._combine([factor.nearest(codes[:, list(factor.positions)], rng) for factor, _ in self._factors])

    def _combine(self, leaves: Sequence[Indices]) -> Indices:
        index = np.zeros(len(leaves[0]), dtype=np.int64)
        valid = np.ones(len(index), dtype=np.bool_)
        for (_, stride), leaf in zip(self._factors, leaves, strict=True):
            valid &= leaf >= 0
            index += leaf * stride
        return np.where(valid, index, -1)

    def sample(self, n: int, rng: np.random.Generator, exclude: Set[int] | None = None) -> Indices:
        """Return ``n`` distinct indices, every subset equally likely; all remaining indices if there are fewer."""
        banned = np.unique(np.fromiter(exclude or (), np.int64))
        banned = banned[(banned >= 0) & (banned < self.size)]
        left = self.size - len(banned)
        ranks = rng.choice(left, min(n, left), replace=False).astype(np.int64) if left and n else banned[:0]
        # Index r of the remaining ones is r plus the number of excluded indices before it.
        return ranks + np.searchsorted(banned - np.arange(len(banned)), ranks, side="right")

    def sample_by_branches(self, n: int, rng: np.random.Generator, exclude: Set[int] | None = None) -> Indices:
        """Return up to ``n`` distinct indices, each drawn as a random value for one parameter after the other.

        Unlike in :meth:`sample`, configurations in sparse parts of the space are more likely (Rasch 2021). The result
        has fewer than ``n`` indices if many draws coincide.
        """
        banned = exclude or frozenset()
        found: dict[int, None] = {}
        for _ in range(8):
            quantiles = rng.random((n, len(self.parameters)))
            drawn = self._combine([factor.walk(quantiles[:, list(factor.positions)]) for factor, _ in self._factors])
            found |= dict.fromkeys(index for index in drawn.tolist() if index not in banned)
            if len(found) >= n:
                break
        return np.array(list(found)[:n], dtype=np.int64)

    def latin_hypercube(self, n: int, rng: np.random.Generator) -> Indices:
        """Return ``n`` distinct indices that fill the space evenly, in random order; all if there are fewer.

        A Latin hypercube of quantiles goes through the conditional distribution of each value given the values before
        it, so all points are valid. The design with the widest spread of ten is kept. Points that coincide are
        replaced by uniform draws.
        """
        if n >= self.size:
            return self.sample(n, rng)
        designs = []
        for _ in range(10 if 2 <= n <= 256 else 1):
            slices = rng.permuted(np.tile(np.arange(n), (len(self.parameters), 1)), axis=1).T
            quantiles = (slices + rng.random(slices.shape)) / n
            leaves = [factor.descend(quantiles[:, list(factor.positions)]) for factor, _ in self._factors]
            designs.append(np.unique(self._combine(leaves)))
        most = max(map(len, designs))
        designs = [design for design in designs if len(design) == most]
        if len(designs) > 1 and most > 1:
            from scipy.spatial.distance import pdist  # slow to import

            designs.sort(key=lambda design: float(pdist(self.features(design)).min()))
        missing = self.sample(n - most, rng, set(designs[-1].tolist()))
        return rng.permutation(np.concatenate([designs[-1], missing]))

    def covering(self, rng: np.random.Generator) -> Indices:
        """Return few indices whose configurations together have every valid value of every parameter, (n,).

        A greedy cover (Chvatal 1979) of a uniform sample. Values missing in the sample are drawn from the space
        restricted to them.
        """
        pool = self.sample(_POOL, rng)
        pool = np.concatenate([pool, *(self._absent([k], pool, rng) for k in range(len(self.parameters)))])
        radices = [len(p.values) for p in self.parameters]
        # A slot for each value of each parameter; a row of slots for each configuration.
        slots = self.codes(pool) + np.cumsum([0, *radices[:-1]])
        missing = np.zeros(sum(radices), dtype=np.bool_)
        missing[slots] = True
        chosen = []
        while missing.any():
            best = int(np.argmax(missing[slots].sum(axis=1)))
            missing[slots[best]] = False
            chosen.append(pool[best])
        return np.array(chosen, dtype=np.int64)

    def representatives(self, names: Sequence[str], rng: np.random.Generator) -> Indices:
        """Return the index of one random configuration for each valid combination of some parameters' values, (n,).

        The combinations are in ascending order of their value codes.
        """
        positions = [self.parameters.index(self.parameter(name)) for name in names]
        if not positions:
            return self.sample(1, rng)
        pool = self.sample(min(self.size, _LISTED), rng)
        pool = np.concatenate([pool, self._absent(positions, pool, rng)])
        _, first = np.unique(self.codes(pool)[:, positions], axis=0, return_index=True)
        return pool[first]

    def _absent(self, positions: Sequence[int], pool: Indices, rng: np.random.Generator) -> Indices:
        """Return a random index for each valid combination of some parameters' values that is absent from a pool."""
        if len(pool) == self.size:
            return pool[:0]
        parameters = [self.parameters[position] for position in positions]
        radices = [len(p.values) for p in parameters]
        n = math.prod(radices)
        if n > _MOST_COMBINATIONS:
            names = ", ".join(p.name for p in parameters)
            raise MptuneError(f"{n:,} combinations of {names} are more than can be listed ({_MOST_COMBINATIONS:,})")
        possible = np.ones(n, dtype=np.bool_)
        possible[np.ravel_multi_index(tuple(self.codes(pool)[:, positions].T), radices)] = False
        codes = np.unravel_index(np.arange(n), radices)
        columns = {p.name: column_of(list(p.values))[column] for p, column in zip(parameters, codes, strict=True)}
        for constraint in self.constraints:
            if constraint.names <= columns.keys():
                # A constraint may fail for combinations that other constraints exclude. It is then skipped.
                with contextlib.suppress(ConstraintError):
                    possible &= constraint.mask(columns, n)
        found = []
        for row in np.stack(codes, axis=1)[possible].tolist():
            only = {p.name: (p.values[code],) for p, code in zip(parameters, row, strict=True)}
            with contextlib.suppress(EmptySpaceError):
                having = self.restrict(only, explains=False)
                found.append(self.index(having.configuration(int(having.sample(1, rng)[0]))))
        return np.array(found, dtype=np.int64)

    def neighbours(self, index: int, kind: Kind = "hamming") -> Indices:
        """Return the valid neighbours of a configuration, as ascending indices.

        Args:
            index: the configuration.
            kind: "hamming": one parameter has another value. "adjacent": one parameter moves one step: to the value
                before or after, to any other category, or to a permutation with two adjacent elements exchanged.

        Raises:
            UnknownNameError: unknown kind.
            IndexError: the index is negative or not below ``size``.
        """
        if kind not in KINDS:
            raise UnknownNameError("kind of neighbours", kind, KINDS)
        codes = self.codes(index)
        options = [
            np.arange(len(p.values)) if kind == "hamming" else p.steps(code)
            for p, code in zip(self.parameters, codes, strict=True)
        ]
        changed = np.repeat(np.arange(len(codes)), [len(values) for values in options])
        candidates = np.tile(codes, (len(changed), 1))
        candidates[np.arange(len(changed)), changed] = np.concatenate(options)
        found = self.indices_of(candidates)
        return np.sort(found[(found >= 0) & (found != index)])

    @cached_property
    def _tables(self) -> list[NDArray[np.float64]]:
        return [parameter.encoded() for parameter in self.parameters]

    def features(self, indices: ArrayLike) -> NDArray[np.float64]:
        """Return the features of configurations for models, in [0, 1], (n, n_features): :meth:`Parameter.encoded`."""
        return np.hstack([table[code] for table, code in zip(self._tables, self.codes(indices).T, strict=True)])

    def restrict(self, values: Mapping[str, Sequence[Value]], *, explains: bool = True) -> SearchSpace:
        """Return the space in which the named parameters have only the given values; its indices are its own.

        Raises:
            UnknownNameError: unknown parameter or value.
            EmptySpaceError: no configuration is left.
        """
        if not values:
            return self
        for name in values:
            self.parameter(name)
        parameters = [p.restricted(values[p.name]) if p.name in values else p for p in self.parameters]
        if not self._is_listed:
            return SearchSpace(parameters, self.constraints, self.constants, explains=explains)
        renumbered = [
            np.array([new.values.index(v) if v in new.values else -1 for v in old.values])
            for old, new in zip(self.parameters, parameters, strict=True)
        ]
        listed = self.codes(np.arange(self.size))
        codes = np.stack([table[column] for table, column in zip(renumbered, listed.T, strict=True)], axis=1)
        kept = codes[(codes >= 0).all(axis=1)]
        if not len(kept):
            wanted = ", ".join(f"{name} in {list(chosen)}" for name, chosen in values.items())
            raise EmptySpaceError(f"none of the {self.size:,} configurations has {wanted}")
        return SearchSpace.from_codes(parameters, kept)

    def describe(self) -> dict[str, Any]:
        """Return the definition as plain data: parameters (name, kind, values), constraint texts, constants."""
        return {
            "parameters": [{"name": p.name, "kind": p.kind, "values": list(p.values)} for p in self.parameters],
            "constraints": [constraint.text for constraint in self.constraints],
            "constants": dict(self.constants),
        }
