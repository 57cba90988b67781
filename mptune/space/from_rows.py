"""A search space of given configurations: what is valid is a list and not a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.errors import EmptySpaceError
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
        unrestricted = SearchSpace(self.parameters[:1], ())
        del unrestricted
        parameters = [p.restricted(values[p.name]) if p.name in values else p for p in self.parameters]
        columns = []
        keep = np.ones(len(self._codes), dtype=bool)
        for j, (old, new) in enumerate(zip(self.parameters, parameters, strict=True)):
            table = np.array([new.values.index(v) if v in new.values else -1 for v in old.values])
            columns.append(table[self._codes[:, j]])
            keep &= columns[-1] >= 0
        if not keep.any():
            raise EmptySpaceError("none of the configurations has these values")
        return from_rows(parameters, np.stack(columns, axis=1)[keep])


def from_rows(parameters: Sequence[Parameter], codes: NDArray[Any]) -> SearchSpace:
    """Return the search space of the configurations with these value codes, (n, d)."""
    return _RowSpace(parameters, np.asarray(codes, dtype=np.int32))
