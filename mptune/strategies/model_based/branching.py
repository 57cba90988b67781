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
    """

    columns: tuple[int, ...]
    table: NDArray[np.float64]


def ascending(radices: Sequence[int], terms: Sequence[Term]) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Yield combinations of choices with the sum of all terms, the least first; impossible ones are left out.

    A best-first search: choices are made in their order, and what is open is bounded by the least that each term can
    still become (Land and Doig 1960). So the first is exact, and so is every further one.

    Args:
        radices: how many codes each choice has.
        terms: what is summed.

    Raises:
        ValueError: a table does not fit its columns, or columns are not ascending.
    """
    for term in terms:
        if list(term.columns) != sorted(set(term.columns)):
            raise ValueError(f"columns {term.columns} of a term are not ascending")
        if term.table.shape != tuple(radices[column] for column in term.columns):
            raise ValueError(f"the table of columns {term.columns} has shape {term.table.shape}")
    bounds = [_bounds(term, len(radices)) for term in terms]
    # Ties go by codes, so that the order is always the same.
    waiting: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    while waiting:
        total, codes = heapq.heappop(waiting)
        depth = len(codes)
        if depth == len(radices):
            yield total, codes
            continue
        sums = np.zeros(radices[depth])
        for term, tables in zip(terms, bounds, strict=True):
            known = tuple(codes[column] for column in term.columns if column < depth)
            # With one axis more where the term depends on this choice.
            sums += tables[depth + 1][known]
        for code, bound in enumerate(sums.tolist()):
            if bound < math.inf:
                heapq.heappush(waiting, (bound, (*codes, code)))


def _bounds(term: Term, depth: int) -> list[NDArray[np.float64]]:
    """Return the least a term can still become, by the codes of its columns among the first 0, 1, ..., ``depth``."""
    tables = [term.table]
    for column in reversed(range(depth)):
        tables.append(tables[-1].min(axis=-1) if column in term.columns else tables[-1])
    return tables[::-1]
