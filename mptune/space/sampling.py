"""Samples of indices: uniform without replacement, and stratified."""

from __future__ import annotations

from collections.abc import Callable, Set

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
_DESIGNS = 10


def uniform(n: int, size: int, rng: np.random.Generator, exclude: Set[int] | None = None) -> Indices:
    """Return ``n`` distinct indices below ``size``, every subset equally likely, (n,).

    Fewer come back when fewer are left beside those in ``exclude``.

    Raises:
        ValueError: n is negative.
    """
    if n < 0:
        raise ValueError(f"a sample needs n >= 0, got {n}")
    banned = np.fromiter(exclude, np.int64, len(exclude)) if exclude else np.empty(0, dtype=np.int64)
    banned = np.unique(banned[(banned >= 0) & (banned < size)])
    left = size - len(banned)
    ranks = rng.choice(left, min(n, left), replace=False).astype(np.int64) if left and n else banned[:0]
    # The r-th index that is not banned is r plus the number of banned ones before it.
    shifted = banned - np.arange(len(banned))
    return ranks + np.searchsorted(shifted, ranks, side="right")


def stratified(n: int, dimensions: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a Latin hypercube: one point in each of ``n`` equal slices of every dimension, (n, dimensions)."""
    slices = rng.permuted(np.tile(np.arange(n), (dimensions, 1)), axis=1).T
    return (slices + rng.random((n, dimensions))) / n


def best_spread(
    n: int, draw: Callable[[int], Indices], features: Callable[[Indices], NDArray[np.float64]], limit: int = 256
) -> Indices:
    """Return the best of several designs: the most distinct points, then the largest smallest distance.

    ``draw`` returns a design of n points, possibly with repetitions, and ``features`` the coordinates distances are
    measured in, (n, k) for indices (n,). Above ``limit`` points one design is taken as it is.
    """
    best = np.unique(draw(n))
    if n > limit or n < 2:
        return best
    score = _spread(features(best))
    for _ in range(_DESIGNS - 1):
        other = np.unique(draw(n))
        if len(other) < len(best):
            continue
        other_score = _spread(features(other))
        if len(other) > len(best) or other_score > score:
            best, score = other, other_score
    return best


def _spread(points: NDArray[np.float64]) -> float:
    """Return the smallest squared distance between two of some points."""
    if len(points) < 2:
        return 0.0
    squares = np.einsum("ij,ij->i", points, points)
    distances = squares[:, None] + squares[None, :] - 2.0 * (points @ points.T)
    return float(distances[np.triu_indices(len(points), 1)].min())
