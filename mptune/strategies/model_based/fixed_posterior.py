"""The model of Willemsen 2021: a Gaussian process whose length scale and signal are never fitted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.model_based.gaussian_process import GrowingFactor
from mptune.strategies.model_based.numerics import cholesky, product

__all__ = ["COVARIANCES", "FixedPosterior", "matern32", "matern52", "squared_exponential"]

Array = NDArray[np.float64]

#: Least variance of an observation's noise: what scikit-learn, on which the paper builds, adds by default.
_JITTER: Final = 1e-10
#: Smallest posterior variance; rounding leaves no less.
_LEAST_VARIANCE: Final = 1e-12


def matern32(distances: Array) -> Array:
    """Return the Matérn 3/2 correlation of distances times root 3 over length scale (Willemsen 2021, Sec. III-B)."""
    return np.asarray((1.0 + distances) * np.exp(-distances))


def matern52(distances: Array) -> Array:
    """Return the Matérn 5/2 correlation of distances times root 5 over length scale, in the shape they have."""
    return np.asarray((1.0 + distances + distances * distances / 3.0) * np.exp(-distances))


def squared_exponential(distances: Array) -> Array:
    """Return the squared exponential correlation, the radial basis function, of distances over length scale."""
    return np.asarray(np.exp(-0.5 * distances * distances))


#: Covariances by name: the correlation at scaled distances, and what distances over the length scale are scaled by.
COVARIANCES: Final[Mapping[str, tuple[Callable[[Array], Array], float]]] = MappingProxyType(
    {"matern32": (matern32, math.sqrt(3.0)), "matern52": (matern52, math.sqrt(5.0)), "rbf": (squared_exponential, 1.0)}
)


class FixedPosterior(GrowingFactor):
    """The posterior at a fixed set of candidates, of standardised observations, one observation at a time.

    As nothing is fitted, an observation only ever extends what is there.
    Standardisation moves with every value; two posterior means, of the values and of a constant 1, give the
    standardised one at once.

    Args:
        candidates: coordinates, shape ``(n_candidates, k)``.
        length_scale: of the covariance, in the coordinates' unit.
        noise: standard deviation of an observation, relative to the signal's.
        covariance: one of :data:`COVARIANCES`.
    """

    def __init__(self, candidates: Array, *, length_scale: float, noise: float, covariance: str = "matern32") -> None:
        super().__init__(len(candidates), candidates.shape[1], (2,), np.float64)
        self._correlation, factor = COVARIANCES[covariance]
        self._scale = factor / length_scale
        self._diagonal = 1.0 + max(noise * noise, _JITTER)
        self._columns = np.ascontiguousarray((candidates * self._scale).T)
        self._y: list[float] = []
        self._centre, self._spread = 0.0, 1.0
        self._of_values, self._of_ones = np.zeros((2, len(candidates)))
        self._variance = np.ones(len(candidates))

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
        self._n_imagined += 1

    def forget_imagined(self) -> None:
        """Take back what was imagined."""
        for i in range(self._n - 1, len(self) - 1, -1):
            self._variance += self._rows[i] ** 2
        self._n, self._n_imagined = len(self), 0

    def condition(self, x: Array, y: Array) -> None:
        """Take in observations at once, before any other: coordinates ``(n, k)`` and values ``(n,)``, n at least 1."""
        n = len(x)
        self._reserve(n + 16)
        self._x[:n] = scaled = x * self._scale
        squared = np.zeros((n, n))
        for column in scaled.T:
            squared += np.square(column[:, None] - column[None, :])
        covariance = self._correlation(np.sqrt(squared))
        covariance.flat[:: n + 1] = self._diagonal
        _, self._inverse[:n, :n] = cholesky(covariance)
        self._take(y.tolist())
        values = np.stack([y - y[0], np.ones(n)], axis=1)
        self._whitened[:n] = np.einsum("ij,jk->ik", self._inverse[:n, :n], values)
        for block in self._blocks():
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
        scaled = x * self._scale
        correlations = self._correlation(np.sqrt(np.square(self._x[:n] - scaled).sum(axis=1)))
        known, pivot = self._grow(scaled, correlations, self._diagonal, _JITTER)
        for block in self._blocks():
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
        return self._correlation(np.sqrt(squared))
