"""A search space of given configurations: what is valid is a list and not a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.errors import EmptySpaceError, UnknownNameError
from mptune.space.configuration import Value
from mptune.space.parameters import Parameter
from mptune.space.search_space import SearchSpace

__all__ = ["from_rows"]


class _RowSpace(SearchSpace):
    def __init__(self, parameters: Sequence[Parameter], rows: NDArray[np.int32]) -> None:
        self._given_rows = rows
        super().__init__(parameters)

    def _build(self) -> NDArray[np.int32]:
        return np.unique(self._given_rows, axis=0)

    def restrict(self, values: Mapping[str, Sequence[Value]]) -> SearchSpace:
        for name in values:
            if name not in self.names:
                raise UnknownNameError("parameter", name, self.names)
        parameters = [p.restricted(values[p.name]) if p.name in values else p for p in self.parameters]
        columns = []
        for j, (old, new) in enumerate(zip(self.parameters, parameters, strict=True)):
            kept = {value: code for code, value in enumerate(new.values)}
            columns.append(np.array([kept.get(value, -1) for value in old.values])[self._codes[:, j]])
        codes = np.stack(columns, axis=1)
        codes = codes[(codes >= 0).all(axis=1)]
        if not len(codes):
            wanted = ", ".join(f"{name} in {list(v)}" for name, v in values.items())
            raise EmptySpaceError(f"none of the {self.size} configurations has {wanted}")
        return from_rows(parameters, codes)


def from_rows(parameters: Sequence[Parameter], codes: NDArray[Any]) -> SearchSpace:
    """Return the search space of exactly these configurations.

    Args:
        parameters: the parameters.
        codes: value codes, shape ``(n, n_parameters)``; equal rows count once, and their order has no effect.
    """
    return _RowSpace(parameters, np.asarray(codes, dtype=np.int32))
