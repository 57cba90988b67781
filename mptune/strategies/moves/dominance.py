"""Who dominates whom: non-dominated sorting and crowding distances.

Deb, Pratap, Agarwal and Meyarivan, "A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE Transactions on
Evolutionary Computation 6 (2002), Sec. III and VI.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["crowding_distances", "non_dominated_ranks"]

Array = NDArray[np.float64]


def non_dominated_ranks(costs: Array, violations: Array) -> NDArray[np.int64]:
    """Return the front each row is on: 0 where nothing dominates it, 1 where only rows of front 0 do, and so on.

    A row dominates another when it violates the constraints less; or as much, and is nowhere worse and somewhere
    better. That is Deb's constrained domination, extended to rows that are equally infeasible. Time and memory grow
    with the square of the number of rows.

    Args:
        costs: what is minimised, shape ``(n, n_objectives)``; infinities compare like numbers, NaN is not allowed.
        violations: 0 for a feasible row, more the worse it is, shape ``(n,)``.
    """
    no_worse = np.ones((len(costs), len(costs)), dtype=np.bool_)
    better = np.zeros_like(no_worse)
    for column in costs.T:
        no_worse &= column[:, None] <= column[None, :]
        better |= column[:, None] < column[None, :]
    equally_feasible = violations[:, None] == violations[None, :]
    dominates = (violations[:, None] < violations[None, :]) | (equally_feasible & no_worse & better)
    ranks = np.zeros(len(costs), dtype=np.int64)
    dominating = dominates.sum(axis=0)
    front = np.flatnonzero(dominating == 0)
    rank = 0
    while len(front):
        ranks[front] = rank
        dominating -= dominates[front].sum(axis=0)
        dominating[front] = -1
        front = np.flatnonzero(dominating == 0)
        rank += 1
    return ranks


def crowding_distances(costs: Array) -> Array:
    """Return how far the neighbours of each row on its front are apart, summed over objectives; infinite at the ends.

    In each objective the gap between the rows before and after counts, relative to the span of the front. An objective
    in which all rows are equal says nothing; an infinite cost lies where the worst (or best) finite one does. Costs are
    of one front, shape ``(n, n_objectives)``, no NaN.
    """
    distances = np.zeros(len(costs))
    for column in costs.T:
        finite = column[np.isfinite(column)]
        if not len(finite) or column.min() == column.max():
            continue
        low, high = float(finite.min()), float(finite.max())
        order = np.argsort(column, kind="stable")
        ordered = np.clip(column[order], low, high)
        distances[order[[0, -1]]] = np.inf
        if high > low:
            # Halved first, so that the span of costs of both signs does not overflow.
            distances[order[1:-1]] += (ordered[2:] / 2 - ordered[:-2] / 2) / (high / 2 - low / 2)
    return distances
