"""The surrogate model of Willemsen 2021: a Gaussian process with a Matérn 3/2 covariance that is never fitted.

Coordinates and observations are normalised, the length scale and the signal are fixed, so an observation only
ever extends what is there.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.models.linear_algebra import cholesky, product

__all__ = ["FixedPosterior", "matern32"]

Array = NDArray[np.float64]

#: Least variance of an observation's noise: what scikit-learn, on which the paper builds, adds by default.
_JITTER: Final = 1e-10
#: Smallest posterior variance; rounding leaves no less.
_LEAST_VARIANCE: Final = 1e-12
#: Candidates whose covariances are computed at once; a block stays in the cache.
_BLOCK: Final = 2048


def matern32(distances: Array) -> Array:
    """Return the Matérn 3/2 correlation of scaled distances (Willemsen 2021, Sec. III-B).

    Args:
        distances: times the square root of 3, over the length scale.
    """
    return np.asarray((1.0 + distances) * np.exp(-distances))


class FixedPosterior:
    """The posterior at a fixed set of candidates, of standardised observations, one observation at a time.

    With the Cholesky factor L of the observations' correlations, row i of ``L^-1 K(observations, candidates)``
    depends on where the first i observations are and not on their values. So an observation adds one row, in
    time proportional to observations times candidates. Standardisation moves with every value; two posterior
    means, of the values and of a constant 1, give the standardised one at once.

    Args:
        candidates: coordinates, shape ``(n_candidates, k)``.
        length_scale: of the covariance, in the coordinates' unit.
        noise: standard deviation of an observation, relative to the signal's.
    """

    def __init__(self, candidates: Array, *, length_scale: float, noise: float) -> None:
        self._scale = math.sqrt(3.0) / length_scale
        self._diagonal = 1.0 + max(noise * noise, _JITTER)
        self._columns = np.ascontiguousarray((candidates * self._scale).T)
        n = len(candidates)
        self._x = np.empty((0, candidates.shape[1]))
        self._inverse = np.empty((0, 0))
        self._rows = np.empty((0, n))
        self._whitened = np.empty((0, 2))
        self._n = 0
        self._y: list[float] = []
        self._centre, self._spread = 0.0, 1.0
        self._of_values = np.zeros(n)
        self._of_ones = np.zeros(n)
        self._variance = np.ones(n)

    def __len__(self) -> int:
        """Number of observations, imagined ones left out."""
        return len(self._y)

    @property
    def mean(self) -> Array:
        """Posterior mean of the standardised values, shape ``(n_candidates,)``."""
        origin = self._y[0] if self._y else 0.0
        return np.asarray((self._of_values - (self._centre - origin) * self._of_ones) / self._spread)

    @property
    def variance(self) -> Array:
        """Posterior variance of the standardised values, without noise, shape ``(n_candidates,)``."""
        return np.maximum(self._variance, _LEAST_VARIANCE)

    def standardised(self, value: float) -> float:
        """Return a value less the mean of the observations, over their standard deviation."""
        return (value - self._centre) / self._spread

    def append(self, x: Array, y: float) -> None:
        """Add an observation: coordinates ``(k,)`` and its value; imagined ones are forgotten."""
        self.forget_imagined()
        known, pivot = self._extend(x)
        self._take([*self._y, y])
        n = self._n - 1
        value = np.array([y - self._y[0], 1.0])
        self._whitened[n] = (value - np.einsum("i,ij->j", known, self._whitened[:n])) / pivot
        self._of_values += self._whitened[n, 0] * self._rows[n]
        self._of_ones += self._whitened[n, 1] * self._rows[n]

    def imagine(self, x: Array) -> None:
        """Add an observation to come, of the value that is expected: only the variance changes."""
        self._extend(x)

    def forget_imagined(self) -> None:
        """Take back what was imagined."""
        for i in range(self._n - 1, len(self._y) - 1, -1):
            self._variance += self._rows[i] ** 2
        self._n = len(self._y)

    def condition(self, x: Array, y: Array) -> None:
        """Take in observations at once, before any other: coordinates ``(n, k)`` and values ``(n,)``, n at least 1."""
        n = len(x)
        self._reserve(n + 16)
        self._x[:n] = scaled = x * self._scale
        squared = np.zeros((n, n))
        for column in scaled.T:
            squared += np.square(column[:, None] - column[None, :])
        covariance = matern32(np.sqrt(squared))
        covariance.flat[:: n + 1] = self._diagonal
        _, self._inverse[:n, :n] = cholesky(covariance)
        self._take(y.tolist())
        values = np.stack([y - y[0], np.ones(n)], axis=1)
        self._whitened[:n] = np.einsum("ij,jk->ik", self._inverse[:n, :n], values)
        for start in range(0, len(self._variance), _BLOCK):
            block = slice(start, start + _BLOCK)
            correlations = np.stack([self._correlations(row, block) for row in scaled])
            self._rows[:n, block] = rows = product(self._inverse[:n, :n], correlations, triangular=True)
            self._of_values[block] = np.einsum("i,ij->j", self._whitened[:n, 0], rows)
            self._of_ones[block] = np.einsum("i,ij->j", self._whitened[:n, 1], rows)
            self._variance[block] = 1.0 - np.einsum("ij,ij->j", rows, rows)
        self._n = n

    def _take(self, values: list[float]) -> None:
        self._y = values
        spread = float(np.std(values))
        self._centre, self._spread = float(np.mean(values)), spread if spread > 0.0 else 1.0

    def _extend(self, x: Array) -> tuple[Array, float]:
        """Add the row of a point; return the point's own row in the factor, and its pivot."""
        n = self._n
        self._reserve(n + 1)
        scaled = x * self._scale
        correlations = matern32(np.sqrt(np.square(self._x[:n] - scaled).sum(axis=1)))
        known = np.einsum("ij,j->i", self._inverse[:n, :n], correlations)
        pivot = math.sqrt(max(self._diagonal - float((known * known).sum()), _JITTER))
        self._x[n] = scaled
        self._inverse[n, :n] = np.einsum("i,ij->j", known, self._inverse[:n, :n]) / -pivot
        self._inverse[n, n] = 1.0 / pivot
        for start in range(0, len(self._variance), _BLOCK):
            block = slice(start, start + _BLOCK)
            row = self._correlations(scaled, block)
            row -= np.einsum("i,ij->j", known, self._rows[:n, block])
            row /= pivot
            self._rows[n, block] = row
            self._variance[block] -= row * row
        self._n = n + 1
        return known, pivot

    def _correlations(self, scaled: Array, block: slice) -> Array:
        """Return the correlations of a point with a block of candidates."""
        squared = np.zeros_like(self._rows[0, block])
        for column, at in zip(self._columns, scaled, strict=True):
            difference = column[block] - at
            squared += difference * difference
        return matern32(np.sqrt(squared))

    def _reserve(self, n: int) -> None:
        """Make room for ``n`` points."""
        held, used = len(self._x), self._n
        if n <= held:
            return
        size = max(n, held + held // 2, 32)
        x, inverse, whitened = np.empty((size, self._x.shape[1])), np.zeros((size, size)), np.empty((size, 2))
        rows = np.empty((size, self._rows.shape[1]))
        x[:used], inverse[:used, :used] = self._x[:used], self._inverse[:used, :used]
        whitened[:used], rows[:used] = self._whitened[:used], self._rows[:used]
        self._x, self._inverse, self._whitened, self._rows = x, inverse, whitened, rows
