"""The Pareto front of any two or more metrics: the trials no other trial is better than in every way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.errors import MptuneError

__all__ = ["front"]


def front(values: NDArray[Any], minimise: Sequence[bool]) -> NDArray[np.intp]:
    """Return the indices, ascending, of the rows no other row dominates.

    A row dominates another when it is nowhere worse and somewhere better. Equal rows do not dominate each
    other, so every copy of a point on the front is returned. A row with a NaN is never on the front and
    dominates nothing; infinities compare like numbers. Two objectives take O(n log n) time, more take
    O(n log n + n * size of the front).

    Args:
        values: metrics, shape ``(n_trials, n_objectives)``.
        minimise: for each objective, whether less is better, length ``n_objectives``.

    Raises:
        MptuneError: the shapes do not fit.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != len(minimise) or not minimise:
        raise MptuneError(
            f"a Pareto front needs values of shape (n_trials, n_objectives) and one direction per objective; "
            f"got shape {values.shape} and {len(minimise)} directions"
        )
    numbered = np.flatnonzero(~np.isnan(values).any(axis=1))
    costs = values[numbered] * np.where(minimise, 1.0, -1.0)
    # By the first objective, then the second, ...: no row is dominated by one after it.
    order = np.lexsort(costs.T[::-1])
    ordered = costs[order]
    is_first = np.ones(len(ordered), dtype=np.bool_)
    is_first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    distinct = ordered[is_first]
    keep = _staircase(distinct) if distinct.shape[1] <= 2 else _cull(distinct)
    return np.sort(numbered[order[keep[np.cumsum(is_first) - 1]]])


def _staircase(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark the front of distinct rows in lexicographic order with one or two columns."""
    last = costs[:, -1]
    improves = np.ones(len(costs), dtype=np.bool_)
    improves[1:] = last[1:] < np.minimum.accumulate(last)[:-1]
    if costs.shape[1] == 1:
        improves[1:] = False
    return improves


def _cull(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark the front of distinct rows in lexicographic order: the first row left is on it, and removes others."""
    keep = np.zeros(len(costs), dtype=np.bool_)
    left = np.arange(len(costs))
    # No row is better than an earlier one in the first column, so that need not be looked at.
    columns = [np.ascontiguousarray(column) for column in costs.T[1:]]
    while left.size:
        keep[left[0]] = True
        better = np.zeros(left.size - 1, dtype=np.bool_)
        for column in columns:
            better |= column[1:] < column[0]
        left, columns = left[1:], [column[1:] for column in columns]
        if not better.all():
            left, columns = left[better], [column[better] for column in columns]
    return keep
