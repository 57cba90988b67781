"""The Pareto front of two or more metrics, and its hypervolume.

The hypervolume of a set of points (Zitzler and Thiele, "Multiobjective evolutionary algorithms: a
comparative case study and the strength Pareto approach", IEEE Trans. Evol. Comput. 3, 1999) is the measure of

    {y : p <= y <= r for some point p}

for a reference point r. The region below r that no point dominates is cut into boxes; the expected gain of a new point
is a sum of products over these boxes (Emmerich, Giannakoglou and Naujoks, "Single- and
multiobjective evolutionary optimization assisted by Gaussian random field metamodels", IEEE Trans. Evol. Comput. 10,
2006).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def front(values: NDArray[Any], minimise: Sequence[bool]) -> NDArray[np.intp]:
    """Return the indices, ascending, of the rows no other row dominates.

    Equal rows do not dominate each other, so every copy of a point on the front is returned. A row with a NaN is never
    on the front and dominates nothing. Two objectives take O(n log n) time, more O(n log n + n * size of the front).

    Args:
        values: metrics, shape ``(n_trials, n_objectives)``.
        minimise: for each objective, whether less is better, length ``n_objectives``.
    """
    values = np.asarray(values, dtype=np.float64)
    numbered = np.flatnonzero(~np.isnan(values).any(axis=1))
    costs = values[numbered] * np.where(minimise, 1.0, -1.0)
    # In lexicographic order no row is dominated by a later row.
    distinct, copies = np.unique(costs, axis=0, return_inverse=True)
    keep = np.zeros(len(distinct), dtype=np.bool_)
    keep[:1] = True
    if distinct.shape[1] <= 2:
        last = distinct[:, -1]
        keep[1:] = last[1:] < np.minimum.accumulate(last)[:-1]
        return numbered[keep[copies.ravel()]]
    left = np.arange(len(distinct))
    while left.size:  # the first row left is on the front, and removes the rows it dominates
        keep[left[0]] = True
        # No row is better than an earlier one in the first column, so it is not compared.
        left = left[(distinct[left, 1:] < distinct[left[0], 1:]).any(axis=1)]
    return numbered[keep[copies.ravel()]]


def hypervolume(points: NDArray[Any], reference: Sequence[float]) -> float:
    """Return the exact hypervolume of points, all objectives minimised.

    Points with a NaN, or not better than the reference in every objective, add nothing. n points of two objectives take
    at most O(n^2) time, each further objective another factor of n.

    Args:
        points: shape ``(n, n_objectives)``.
        reference: finite, length ``n_objectives``.
    """
    points = np.asarray(points, dtype=np.float64)
    inside = points[(points < reference).all(axis=1)]
    if not len(inside):
        return 0.0
    # The box between the ideal point and the reference, less the part that the points leave.
    ideal = inside.min(axis=0)
    left = Boxes.around(inside[front(inside, [True] * len(reference))], reference).gains(ideal[None])[0]
    return float(np.prod(np.asarray(reference) - ideal) - left)


@dataclass(frozen=True, slots=True)
class Boxes:
    """The region below a reference point that is not dominated, as disjoint boxes.

    A box reaches from ``lower``, which may be ``-inf``, to ``upper``; both have shape ``(n_boxes, n_objectives)``. A
    point y adds to the hypervolume the product over objectives of ``max(upper - max(y, lower), 0)``, summed over boxes.
    """

    lower: Array
    upper: Array

    @classmethod
    def around(cls, points: NDArray[Any], reference: Sequence[float]) -> Boxes:
        """Return the boxes that n points leave: n + 1 of two objectives, at most 2 n + 1 of three.

        Args:
            points: all objectives minimised, shape ``(n, n_objectives)``; all on the front, without a NaN.
            reference: finite, length ``n_objectives``.
        """
        points = np.asarray(points, dtype=np.float64).reshape(-1, len(reference))
        found = np.array(_cut(points[(points < reference).all(axis=1)], reference)).reshape(-1, 2, len(reference))
        return cls(found[:, 0], found[:, 1])

    def gains(self, points: NDArray[Any]) -> Array:
        """Return the hypervolume that each point alone adds, shape ``(n,)`` from ``(n, n_objectives)``."""
        reach = np.maximum(self.upper - np.maximum(np.asarray(points)[:, None, :], self.lower), 0.0)
        return np.asarray(reach.prod(axis=2).sum(axis=1))


_Box = tuple[tuple[float, ...], tuple[float, ...]]


def _cut(points: Array, reference: Sequence[float]) -> list[_Box]:
    """Sweep along the last objective; a box of the other objectives grows until a point cuts it."""
    high = float(reference[-1])
    if points.shape[1] == 1:
        return [((-math.inf,), (float(points.min(initial=high)),))]
    done: list[_Box] = []
    since = dict.fromkeys(_cut(points[:0, :-1], reference[:-1]), -math.inf)
    for level in np.unique(points[:, -1]).tolist():
        still = dict.fromkeys(_cut(points[points[:, -1] <= level, :-1], reference[:-1]))
        done += [((*box[0], since[box]), (*box[1], level)) for box in since if box not in still]
        since = {box: since.get(box, level) for box in still}
    return done + [((*box[0], start), (*box[1], high)) for box, start in since.items()]


@dataclass(frozen=True, slots=True)
class FrontScale:
    """The scale on which fronts of one search space are compared, and the hypervolume of the best front.

    Objectives are logarithms (:meth:`mptune.results.objective.Objective.levels`), scaled so that the best front reaches
    from 0, its ideal point, to 1, its nadir point; a single point spans a decade. The reference point is 1.1 in each
    objective, so that the ends of the front count too (Ishibuchi, Imada, Setoguchi and Nojima, "How to specify a
    reference point in hypervolume calculation for fair performance comparison", Evol. Comput. 26, 2018).
    """

    ideal: tuple[float, ...]  #: least value of the best front in each objective
    nadir: tuple[float, ...]  #: largest value of the best front in each objective
    best: float  #: hypervolume of the best front on this scale

    @classmethod
    def of(cls, levels: NDArray[Any]) -> FrontScale:
        """Return the scale of all levels of a space, ``(n, n_objectives)``; at least one row has no NaN."""
        best = levels[front(levels, [True] * levels.shape[1])]
        unmeasured = cls(tuple(best.min(axis=0).tolist()), tuple(best.max(axis=0).tolist()), 1.0)
        return cls(unmeasured.ideal, unmeasured.nadir, unmeasured.share(best))

    def share(self, levels: NDArray[Any]) -> float:
        """Return the hypervolume of points, shape ``(n, n_objectives)``, as a share of the best: from 0 to 1."""
        ideal = np.array(self.ideal)
        span = np.array(self.nadir) - ideal
        scaled = (np.asarray(levels, dtype=np.float64) - ideal) / np.where(span > 0, span, 1.0)
        return hypervolume(scaled, [1.1] * len(self.ideal)) / self.best
