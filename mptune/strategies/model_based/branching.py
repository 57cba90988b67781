"""The least sum of terms that each depend on a few of many choices, found without listing all combinations."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Term", "ascending"]


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One summand.

    Attributes:
        columns: which choices it depends on, ascending.
        table: its value by their codes, one axis for each column; infinite where that is not possible.
        factors: what that is multiplied with, by the code of each of all choices; none unless given.
    """

    columns: tuple[int, ...]
    table: NDArray[np.float64]
    factors: Sequence[NDArray[np.float64]] = ()

    def at(self, codes: Sequence[int]) -> float:
        """Return its value for codes of all choices."""
        factor = math.prod(float(factors[code]) for factors, code in zip(self.factors, codes, strict=False))
        return float(self.table[tuple(codes[column] for column in self.columns)]) * factor


def ascending(radices: Sequence[int], terms: Sequence[Term]) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Yield combinations of choices with the sum of all terms, the least first; impossible ones are left out.

    A best-first search: choices are made in their order, and what is open is bounded by the least that each term can
    still become (Land and Doig 1960). So the first is exact, and so is every further one.

    Args:
        radices: how many codes each choice has.
        terms: what is summed.

    Raises:
        ValueError: a table or factors do not fit the choices, or columns are not ascending.
    """
    for term in terms:
        if list(term.columns) != sorted(set(term.columns)):
            raise ValueError(f"columns {term.columns} of a term are not ascending")
        if term.table.shape != tuple(radices[column] for column in term.columns):
            raise ValueError(f"the table of columns {term.columns} has shape {term.table.shape}")
        if term.factors and [len(factors) for factors in term.factors] != list(radices):
            raise ValueError(f"there are factors for {[len(f) for f in term.factors]} codes, not {list(radices)}")
    bounds = [_bounds(term, len(radices)) for term in terms]
    # The least product of the factors of all choices from the n-th on.
    rest = [
        [math.prod(float(f.min()) for f in term.factors[depth:]) for depth in range(len(radices) + 1)] for term in terms
    ]
    # Ties go by codes, so that the order is always the same.
    waiting: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    while waiting:
        total, codes = heapq.heappop(waiting)
        depth = len(codes)
        if depth == len(radices):
            yield total, codes
            continue
        sums = np.zeros(radices[depth])
        for term, tables, open_factor in zip(terms, bounds, rest, strict=True):
            known = tuple(codes[column] for column in term.columns if column < depth)
            # With one axis more where the term depends on this choice.
            bound = tables[depth + 1][known]
            if term.factors:
                factor = math.prod(float(factors[code]) for factors, code in zip(term.factors, codes, strict=False))
                bound = bound * (factor * open_factor[depth + 1] * term.factors[depth])
            sums += bound
        for code, bound in enumerate(sums.tolist()):
            if bound < math.inf:
                heapq.heappush(waiting, (bound, (*codes, code)))


def _bounds(term: Term, depth: int) -> list[NDArray[np.float64]]:
    """Return the least a term can still become, by the codes of its columns among the first 0, 1, ..., ``depth``."""
    tables = [term.table]
    for column in reversed(range(depth)):
        tables.append(tables[-1].min(axis=-1) if column in term.columns else tables[-1])
    return tables[::-1]
