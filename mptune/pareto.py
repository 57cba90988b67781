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
    # Sorted by the first objective, then the second, ...: no row is dominated by one after it.
    order = np.lexsort(costs.T[::-1])
    ordered = costs[order]
    keep = _staircase(ordered) if ordered.shape[1] <= 2 else _cull(ordered)
    return np.sort(numbered[order[keep]])


def _staircase(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark the front of rows in lexicographic order with one or two columns."""
    if len(costs) == 0:
        return np.zeros(0, dtype=np.bool_)
    first, last = costs[:, 0], costs[:, -1]
    if costs.shape[1] == 1:
        return np.asarray(first == first[0])
    starts = np.r_[True, first[1:] != first[:-1]]
    group = np.cumsum(starts) - 1
    lowest = last[starts]  # of each group of equal first objectives: its first row
    improves = np.r_[True, lowest[1:] < np.minimum.accumulate(lowest)[:-1]]
    return np.asarray(improves[group] & (last == lowest[group]))


def _cull(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark the front of rows in lexicographic order: the first row left is on it and removes what it dominates."""
    keep = np.zeros(len(costs), dtype=np.bool_)
    left = np.arange(len(costs))
    while left.size:
        rows = costs[left]
        equal = (rows == rows[0]).all(axis=1)
        keep[left[equal]] = True
        left = left[(rows < rows[0]).any(axis=1)]
    return keep
