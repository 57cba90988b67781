"""The Pareto front of any two or more metrics: the trials no other trial is better than in every way.

The hypervolume says how much a set of points dominates (Zitzler and Thiele, "Multiobjective evolutionary algorithms: a
comparative case study and the strength Pareto approach", IEEE Trans. Evol. Comput. 3, 1999): the measure of

    {y : p <= y <= r for some point p}

for a reference point r that is worse than all that matters. What is left below r is cut into boxes, over which
expectations of what a new point adds are sums of products (Emmerich, Giannakoglou and Naujoks, "Single- and
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

    A row dominates another when it is nowhere worse and somewhere better. Equal rows do not dominate each
    other, so every copy of a point on the front is returned. A row with a NaN is never on the front and
    dominates nothing; infinities compare like numbers. Two objectives take O(n log n) time, more take
    O(n log n + n * size of the front).

    Args:
        values: metrics, shape ``(n_trials, n_objectives)``.
        minimise: for each objective, whether less is better, length ``n_objectives``.
    """
    values = np.asarray(values, dtype=np.float64)
    numbered = np.flatnonzero(~np.isnan(values).any(axis=1))
    costs = values[numbered] * np.where(minimise, 1.0, -1.0)
    # By the first objective, then the second, ...: no row is dominated by one after it.
    distinct, copies = np.unique(costs, axis=0, return_inverse=True)
    keep = np.zeros(len(distinct), dtype=np.bool_)
    keep[:1] = True
    if distinct.shape[1] <= 2:
        last = distinct[:, -1]
        keep[1:] = last[1:] < np.minimum.accumulate(last)[:-1]
        return numbered[keep[copies.ravel()]]
    left = np.arange(len(distinct))
    while left.size:  # the first row left is on the front, and removes others
        keep[left[0]] = True
        # No row is better than an earlier one in the first column, so that need not be looked at.
        left = left[(distinct[left, 1:] < distinct[left[0], 1:]).any(axis=1)]
    return numbered[keep[copies.ravel()]]


def hypervolume(points: NDArray[Any], reference: Sequence[float]) -> float:
    """Return the hypervolume of points, all objectives minimised; exact for any number of objectives.

    Points that are not better than the reference in every objective, and those with a NaN, add nothing. n points of
    two objectives take O(n^2) time at most, each further objective another factor of n.

    Args:
        points: shape ``(n, n_objectives)``.
        reference: finite, length ``n_objectives``.
    """
    points = np.asarray(points, dtype=np.float64)
    inside = points[(points < reference).all(axis=1)]
    if not len(inside):
        return 0.0
    # All that is between the ideal point and the reference, less what the points leave of it.
    ideal = inside.min(axis=0)
    left = Boxes.around(inside[front(inside, [True] * len(reference))], reference).gains(ideal[None])[0]
    return float(np.prod(np.asarray(reference) - ideal) - left)


@dataclass(frozen=True, slots=True)
class Boxes:
    """What is below a reference point and not dominated, as disjoint boxes.

    A box reaches from ``lower``, which may be ``-inf``, to ``upper``. A point y adds to the hypervolume the product
    over objectives of ``max(upper - max(y, lower), 0)``, summed over boxes.

    Attributes:
        lower: shape ``(n_boxes, n_objectives)``.
        upper: the same shape.
    """

    lower: Array
    upper: Array

    @classmethod
    def around(cls, points: NDArray[Any], reference: Sequence[float]) -> Boxes:
        """Return the boxes that n points leave: n + 1 of two objectives, at most 2 n + 1 of three.

        Args:
            points: all objectives minimised, shape ``(n, n_objectives)``; of those on the front, no NaN.
            reference: finite, length ``n_objectives``.
        """
        points = np.asarray(points, dtype=np.float64).reshape(-1, len(reference))
        found = np.array(_cut(points[(points < reference).all(axis=1)], reference)).reshape(-1, 2, len(reference))
        return cls(found[:, 0], found[:, 1])

    def gains(self, points: NDArray[Any]) -> Array:
        """Return what each point alone adds to the hypervolume, shape ``(n,)`` from ``(n, n_objectives)``."""
        reach = np.maximum(self.upper - np.maximum(np.asarray(points)[:, None, :], self.lower), 0.0)
        return np.asarray(reach.prod(axis=2).sum(axis=1))


_Box = tuple[tuple[float, ...], tuple[float, ...]]


def _cut(points: Array, reference: Sequence[float]) -> list[_Box]:
    """Sweep along the last objective; a box of the others grows until a point comes that takes a part of it."""
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
    """On what scale fronts of one search space are compared, and the best there can be.

    Each objective is a logarithm (:meth:`mptune.results.objective.Objective.levels`: log10 of time, log10 of error),
    moved and
    scaled so that the best front goes from 0, its ideal point, to 1, its nadir point (its least and its largest
    in each objective; a single point spans a decade). The reference point is 1.1 in each, so that the ends of the
    front count too (Ishibuchi, Imada, Setoguchi and Nojima, "How to specify a reference point in hypervolume
    calculation for fair performance comparison", Evol. Comput. 26, 2018).

    Attributes:
        ideal: least of the best front in each objective.
        nadir: largest of it.
        best: hypervolume of the best front on this scale.
    """

    ideal: tuple[float, ...]
    nadir: tuple[float, ...]
    best: float

    @classmethod
    def of(cls, levels: NDArray[Any]) -> FrontScale:
        """Return the scale of everything there is: shape ``(n, n_objectives)``, at least one row without a NaN."""
        best = levels[front(levels, [True] * levels.shape[1])]
        unmeasured = cls(tuple(best.min(axis=0).tolist()), tuple(best.max(axis=0).tolist()), 1.0)
        return cls(unmeasured.ideal, unmeasured.nadir, unmeasured.share(best))

    def share(self, levels: NDArray[Any]) -> float:
        """Return the hypervolume of points, shape ``(n, n_objectives)``, as a share of the best: from 0 to 1."""
        ideal = np.array(self.ideal)
        span = np.array(self.nadir) - ideal
        scaled = (np.asarray(levels, dtype=np.float64) - ideal) / np.where(span > 0, span, 1.0)
        return hypervolume(scaled, [1.1] * len(self.ideal)) / self.best
