"""The search space: all valid configurations, counted and indexed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.errors import EmptySpaceError, MptuneError, UnknownNameError
from mptune.precision import precision
from mptune.space.configuration import Configuration, Value
from mptune.space.constraints import Constraint, compile_constraint
from mptune.space.parameters import (
    BooleanParameter,
    CategoricalParameter,
    Parameter,
    PermutationParameter,
    PrecisionParameter,
)

__all__ = ["SearchSpace"]


class SearchSpace:
    """The valid configurations of some parameters under constraints."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        constraints: Sequence[str | Callable[..., Any]] = (),
        constants: Mapping[str, Value] | None = None,
    ) -> None:
        self.parameters = tuple(parameters)
        self.names = tuple(p.name for p in self.parameters)
        self.constants = dict(constants or {})
        self._given = tuple(constraints)
        self.constraints: tuple[Constraint, ...] = tuple(
            compile_constraint(c, self.names, self.constants) for c in constraints
        )
        self.cartesian_size = math.prod(len(p.values) for p in self.parameters)
        self._codes = self._build()
        self.size = len(self._codes)
        self._rows = {tuple(row): i for i, row in enumerate(self._codes.tolist())}
        self._value_codes = [{v: i for i, v in enumerate(p.values)} for p in self.parameters]

    def _build(self) -> NDArray[np.int32]:
        rows: list[tuple[int, ...]] = [()]
        pending = list(self.constraints)
        assigned: list[Parameter] = []
        for p in self.parameters:
            rows = [(*row, c) for row in rows for c in range(len(p.values))]
            assigned.append(p)
            names = [q.name for q in assigned]
            for constraint in [c for c in pending if c.names <= set(names)]:
                pending.remove(constraint)
                at = [(n, names.index(n)) for n in constraint.names]
                memo: dict[tuple[int, ...], bool] = {}
                kept = []
                for row in rows:
                    key = tuple(row[i] for _, i in at)
                    if key not in memo:
                        memo[key] = constraint.holds({n: assigned[i].values[row[i]] for n, i in at})
                    if memo[key]:
                        kept.append(row)
                if not kept:
                    raise EmptySpaceError(
                        f"constraint {constraint.text!r} removes all of the {len(rows)} configurations left before it"
                    )
                rows = kept
        return np.array(rows, dtype=np.int32).reshape(len(rows), len(self.parameters))

    def __len__(self) -> int:
        return self.size

    def __contains__(self, configuration: object) -> bool:
        return isinstance(configuration, Mapping) and self.index(configuration) is not None

    def configuration(self, index: int) -> Configuration:
        """Return the configuration of an index."""
        row = self._codes[index]
        return Configuration({p.name: p.values[c] for p, c in zip(self.parameters, row, strict=True)})

    def configurations(self, indices: Sequence[int] | NDArray[np.int64]) -> list[Configuration]:
        """Return the configurations of indices."""
        return [self.configuration(int(i)) for i in indices]

    def index(self, configuration: Mapping[str, Any]) -> int | None:
        """Return the index of a configuration, None if it is not valid."""
        if set(configuration) != set(self.names):
            return None
        codes = [table.get(configuration[n]) for n, table in zip(self.names, self._value_codes, strict=True)]
        return self._rows.get(tuple(codes))  # type: ignore[arg-type]

    def codes(self, indices: Any) -> NDArray[np.int32]:
        """Return value codes, (n, d)."""
        return self._codes[np.asarray(indices, dtype=np.int64)]

    def indices_of(self, codes: NDArray[Any]) -> NDArray[np.int64]:
        """Return indices of value codes, -1 where invalid, (n,)."""
        return np.array([self._rows.get(tuple(row), -1) for row in np.asarray(codes).tolist()], dtype=np.int64)

    def sample(self, n: int, rng: np.random.Generator, exclude: Set[int] | None = None) -> NDArray[np.int64]:
        """Return up to n distinct indices, uniform."""
        left = np.setdiff1d(np.arange(self.size), np.fromiter(exclude or (), np.int64))
        return rng.choice(left, min(n, len(left)), replace=False).astype(np.int64)

    def latin_hypercube(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return n distinct indices that fill the space."""
        return self.sample(n, rng)

    def neighbours(self, index: int, kind: str = "hamming") -> NDArray[np.int64]:
        """Return sorted indices of the neighbours."""
        distance = np.abs(self._codes - self._codes[index])
        changed = (distance > 0).sum(axis=1) == 1
        if kind == "adjacent":
            changed &= distance.sum(axis=1) == 1
        return np.flatnonzero(changed).astype(np.int64)

    def _columns(self) -> list[tuple[str, NDArray[np.float64]]]:
        columns: list[tuple[str, NDArray[np.float64]]] = []
        for p in self.parameters:
            v: list[Any] = list(p.values)
            if isinstance(p, PrecisionParameter):
                columns.append((f"{p.name}.roundoff", np.log2([precision(x).unit_roundoff for x in v])))
                columns.append((f"{p.name}.bytes", np.log2([precision(x).size_bytes for x in v])))
            elif isinstance(p, CategoricalParameter):
                columns.extend((f"{p.name}={x}", np.array([float(x == y) for y in v])) for x in v)
            elif isinstance(p, PermutationParameter):
                columns.extend((f"{p.name}[{k}]", np.array([x.index(k) for x in v], float)) for k in range(len(v[0])))
            elif p.is_numeric or isinstance(p, BooleanParameter):
                numeric = np.array(v, dtype=np.float64)
                columns.append((p.name, np.log2(numeric) if p.log_scale else numeric))
            else:
                columns.append((p.name, np.arange(len(v), dtype=np.float64)))
        return columns

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the feature columns."""
        return tuple(name for name, _ in self._columns())

    def features(self, indices: Any) -> NDArray[np.float64]:
        """Return features in [0, 1], (n, k)."""
        codes = self.codes(indices)
        parts = []
        for name, table in self._columns():
            spread = np.ptp(table)
            scaled = (table - table.min()) / spread if spread else np.zeros_like(table)
            position = self.names.index(name.split(".")[0].split("=")[0].split("[")[0])
            parts.append(scaled[codes[:, position]])
        return np.stack(parts, axis=1)

    def embedding(self, indices: Any) -> NDArray[np.float64]:
        """Return the embedding of Heldens 2026, Sec. III-E, (n, d)."""
        epsilon = 1.0 / max(len(p.values) for p in self.parameters)
        return (self.codes(indices) + 0.5) * epsilon

    def restrict(self, values: Mapping[str, Sequence[Value]]) -> SearchSpace:
        """Return the space with some parameters restricted to some values."""
        for name in values:
            if name not in self.names:
                raise UnknownNameError("parameter", name, self.names)
        restricted = [p.restricted(values[p.name]) if p.name in values else p for p in self.parameters]
        return SearchSpace(restricted, self._given, self.constants)

    def iter_batches(self, size: int) -> Iterator[NDArray[np.int64]]:
        """Yield all indices in batches."""
        if size < 1:
            raise MptuneError(f"a batch needs at least one index, not {size}")
        for start in range(0, self.size, size):
            yield np.arange(start, min(start + size, self.size), dtype=np.int64)

    def describe(self) -> dict[str, Any]:
        """Return a plain description for storage."""
        return {
            "parameters": [{"name": p.name, "kind": p.kind, "values": list(p.values)} for p in self.parameters],
            "constraints": [c.text for c in self.constraints],
            "constants": dict(self.constants),
        }
