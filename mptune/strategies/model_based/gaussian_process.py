"""Gaussian-process regression: a length scale per feature, fitted under priors.

Formulas: Rasmussen and Williams, Gaussian Processes for Machine Learning, algorithm 2.1 (regression), eq. 4.17
(Matérn) and eq. 5.9 (gradient of the marginal likelihood). Hyperparameters are the maximum of the posterior, as in
Hellsten 2023, Sec. 4.2: a length scale that the data do not determine stays where the prior has it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from mptune.strategies.model_based.numerics import cholesky, maximise

__all__ = [
    "Hyperparameters", "Kernel", "LogNormalPrior", "MeanFunction", "Posterior", "Prior", "fit", "log_posterior",
    "matern32", "matern52", "squared_exponential",
]  # fmt: skip

Array = NDArray[np.float64]
#: Returns correlations from squared scaled distances, in their shape.
Kernel = Callable[[NDArray[Any]], NDArray[Any]]

#: Added to the variance of every observation while fitting, relative to the signal's, so that factors exist.
_JITTER: Final = 1e-8
#: Candidates whose covariances are computed at once; a block stays in the cache.
_BLOCK: Final = 2048
#: Correlations that are computed at once where only their sums are kept.
_IN_CACHE: Final = 65_536
#: Hyperparameters stay within so many prior deviations of the prior's centre.
_MOST_DEVIATIONS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Parameters of the covariance.

    Attributes:
        lengths: length scales, shape ``(n_lengths,)``.
        signal: standard deviation of the function.
        noise: standard deviation of an observation's noise.
    """

    lengths: Array
    signal: float
    noise: float

    def to_vector(self) -> Array:
        """Return the natural logarithms: length scales, signal, noise; shape ``(n_lengths + 2,)``."""
        return np.asarray(np.log(np.concatenate([self.lengths, [self.signal, self.noise]])))

    @classmethod
    def from_vector(cls, vector: Array) -> Hyperparameters:
        """Return what :meth:`to_vector` wrote."""
        values = np.exp(vector)
        return cls(values[:-2], float(values[-2]), float(values[-1]))


class Prior(ABC):
    """A prior of the logarithms of hyperparameters, ordered as in :meth:`Hyperparameters.to_vector`.

    Attributes:
        low: lower bounds, shape ``(n_lengths + 2,)``.
        high: upper bounds.
        unit: scale of each variable.
        owners: the position of each feature's length scale, shape ``(n_features,)``.
    """

    low: Array
    high: Array
    unit: Array
    owners: NDArray[np.int64]

    @abstractmethod
    def log_density(self, vector: Array) -> tuple[float, Array]:
        """Return the log density up to a constant, and its gradient."""


class LogNormalPrior(Prior):
    """Independent normal priors of the logarithms: means and standard deviations, each ``(n_features + 2,)``."""

    def __init__(self, means: Array, deviations: Array) -> None:
        self.means, self.unit = means, deviations
        self.low, self.high = means - _MOST_DEVIATIONS * deviations, means + _MOST_DEVIATIONS * deviations
        self.owners = np.arange(len(means) - 2)

    @classmethod
    def of(
        cls, n_features: int, *, length_spread: float = 0.6, noise: float = 0.03, noise_spread: float = 1.0
    ) -> LogNormalPrior:
        """Return the prior for features in [0, 1] and a standardised function.

        The length scales' centre grows with the square root of the number of features, as distances do. So points a
        typical distance apart keep the same correlation in any number of dimensions.
        """
        length = 0.5 * math.log(max(n_features, 1)) - 0.3
        means = [length] * n_features + [0.0, math.log(noise)]
        return cls(np.array(means), np.array([length_spread] * n_features + [0.7, noise_spread]))

    @property
    def centre(self) -> Hyperparameters:
        """The most probable hyperparameters before any data."""
        return Hyperparameters.from_vector(self.means)

    def log_density(self, vector: Array) -> tuple[float, Array]:
        """Return the log density up to a constant, and its gradient."""
        z = (vector - self.means) / self.unit
        return -0.5 * float(z @ z), -z / self.unit


def matern32(squared: NDArray[Any]) -> NDArray[Any]:
    """Return the Matérn 3/2 correlation."""
    r = np.sqrt(3.0 * squared)
    return np.asarray((1.0 + r) * np.exp(-r))


def matern52(squared: NDArray[Any]) -> NDArray[Any]:
    """Return the Matérn 5/2 correlation."""
    r = np.sqrt(5.0 * squared)
    return np.asarray((1.0 + r + r * r / 3.0) * np.exp(-r))


def squared_exponential(squared: NDArray[Any]) -> NDArray[Any]:
    """Return the squared exponential correlation."""
    return np.asarray(np.exp(-0.5 * squared))


def _squared_distances(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return squared Euclidean distances, shape ``(len(a), len(b))``."""
    squared = a @ (-2.0 * b.T)
    squared += np.einsum("ij,ij->i", a, a)[:, None]
    squared += np.einsum("ij,ij->i", b, b)[None, :]
    return np.asarray(np.maximum(squared, 0.0, out=squared))


def log_posterior(vector: Array, x: Array, y: Array, prior: Prior) -> tuple[float, Array]:
    """Return the log marginal likelihood of a Matérn 5/2 process plus log prior (up to a constant) and its gradient.

    Args:
        vector: logarithms of the hyperparameters, shape ``(n_lengths + 2,)``.
        x: features, shape ``(n, n_features)``.
        y: observations with mean near zero, shape ``(n,)``.
        prior: of the hyperparameters.

    Returns:
        The value, ``-inf`` where the covariance is not positive definite, and the gradient, the shape of ``vector``.
    """
    n, signal2, noise2 = len(x), math.exp(2.0 * vector[-2]), math.exp(2.0 * vector[-1])
    scaled = x * np.exp(-vector[prior.owners])
    squared = _squared_distances(scaled, scaled)
    np.fill_diagonal(squared, 0.0)
    r = np.sqrt(5.0 * squared)
    decay = signal2 * np.exp(-r)
    slope = (1.0 + r) * decay
    signal = slope + decay * (r * r / 3.0)
    covariance = signal.copy()
    covariance.flat[:: n + 1] += noise2 + _JITTER * signal2
    try:
        lower, inverse_lower = cholesky(covariance)
    except LinAlgError:
        return -math.inf, np.zeros_like(vector)
    whitened = inverse_lower @ y
    alpha = whitened @ inverse_lower
    density, gradient = prior.log_density(vector)
    value = density - 0.5 * float(whitened @ whitened) - float(np.log(np.diag(lower)).sum())

    sensitivity = np.outer(alpha, alpha) - inverse_lower.T @ inverse_lower
    weights = sensitivity * slope * (5.0 / 3.0)
    of_features = (scaled * scaled * weights.sum(axis=1)[:, None] - scaled * (weights @ scaled)).sum(axis=0)
    gradient[:-2] += np.bincount(prior.owners, of_features, minlength=len(vector) - 2)
    gradient[-2] += (sensitivity * signal).sum() + _JITTER * signal2 * np.trace(sensitivity)
    gradient[-1] += noise2 * np.trace(sensitivity)
    return value, gradient


def fit(x: Array, y: Array, prior: Prior, starts: Iterable[Hyperparameters], max_iterations: int) -> Hyperparameters:
    """Return the hyperparameters of the largest posterior found from the starting points, at least one.

    Features and observations as for :func:`log_posterior`, with a deviation near one.
    """
    vector = maximise(
        lambda vector: log_posterior(vector, x, y, prior),
        [start.to_vector() for start in starts],
        low=prior.low,
        high=prior.high,
        unit=prior.unit,
        max_iterations=max_iterations,
    )
    return Hyperparameters.from_vector(vector)


@dataclass(frozen=True, slots=True, eq=False)
class MeanFunction:
    """The mean of a posterior that learns nothing more, in single precision.

    Attributes:
        known: scaled features of the observations, ``(n, n_features)``.
        weights: of the correlation with each of them, ``(n,)``.
        inverse_lengths: what features are scaled by, ``(n_features,)``.
    """

    known: NDArray[np.float32]
    weights: NDArray[np.float32]
    inverse_lengths: Array

    def at(self, x: Array) -> Array:
        """Return the mean at points, ``(m,)`` from features ``(m, n_features)``."""
        mean, rows = np.empty(len(x)), max(_IN_CACHE // len(self.known), 1)
        for start in range(0, len(x), rows):
            block = (x[start : start + rows] * self.inverse_lengths).astype(np.float32)
            mean[start : start + rows] = self.weights @ matern52(_squared_distances(self.known, block))
        return mean


class Posterior:
    """The posterior at fixed candidates, one observation at a time.

    With the factor L of the observations' covariance, row i of ``V = L^-1 K(observations, candidates)`` depends on
    the first i observations alone. So an observation adds one row to L^-1 and V and takes time proportional to
    observations times candidates; taking the last ones back is free. Imagined observations, of configurations whose
    trials are awaited, come after the real ones.

    Args:
        hyperparameters: one length scale for each feature.
        candidates: features, shape ``(n_candidates, n_features)``.
        kernel: correlations by squared scaled distances.
        dtype: of V. Double precision resolves less noise, in twice the time.

    Attributes:
        mean: posterior mean at the candidates, shape ``(n_candidates,)``.
    """

    def __init__(
        self,
        hyperparameters: Hyperparameters,
        candidates: Array,
        kernel: Kernel = matern52,
        dtype: type[np.floating[Any]] = np.float32,
    ) -> None:
        # The smallest pivots and variances that are told apart from rounding, relative to the signal's variance.
        self._jitter, least_variance = (_JITTER, 1e-7) if dtype is np.float32 else (1e-10, 1e-12)
        self._signal2 = hyperparameters.signal**2
        self._least_variance = least_variance * self._signal2
        self._diagonal = self._signal2 + max(hyperparameters.noise**2, self._jitter * self._signal2)
        self._inverse_lengths = 1.0 / hyperparameters.lengths
        self._kernel = kernel
        self._scaled: NDArray[Any] = (candidates * self._inverse_lengths).astype(dtype)
        self.mean = np.zeros(len(candidates))
        self._variance = np.full(len(candidates), self._signal2)
        self._x = np.empty((0, candidates.shape[1]))
        self._inverse = np.empty((0, 0))
        self._whitened = np.empty(0)
        self._rows: NDArray[Any] = np.empty((0, len(candidates)), dtype=dtype)
        self._n = 0
        self._n_imagined = 0

    def __len__(self) -> int:
        """Number of observations, imagined ones left out."""
        return self._n - self._n_imagined

    @property
    def deviation(self) -> Array:
        """Posterior standard deviation of the function (without noise), shape ``(n_candidates,)``."""
        return self._deviation(self._variance)

    def condition(self, x: Array, y: Array) -> None:
        """Replace all observations: features ``(n, n_features)`` and values ``(n,)``."""
        n = len(x)
        self._n = self._n_imagined = 0
        self._reserve(n + n // 2 + 16)
        scaled = x * self._inverse_lengths
        covariance = self._covariances(scaled, scaled)
        covariance.flat[:: n + 1] = self._diagonal
        _, inverse = cholesky(covariance)
        self._x[:n], self._inverse[:n, :n], self._n = scaled, inverse, n
        factor, at = inverse.astype(self._rows.dtype), scaled.astype(self._rows.dtype)
        for start in range(0, len(self.mean), _BLOCK):
            block = slice(start, start + _BLOCK)
            self._rows[:n, block] = rows = factor @ self._covariances(at, self._scaled[block])
            self._variance[block] = self._signal2 - np.einsum("ij,ij->j", rows, rows)
        self.revalue(y)

    def revalue(self, y: Array) -> None:
        """Give all observations other values, shape ``(n,)``; imagined ones are forgotten."""
        self.forget_imagined()
        n = self._n
        self._whitened[:n] = self._inverse[:n, :n] @ y
        self.mean = (self._whitened[:n].astype(self._rows.dtype) @ self._rows[:n]).astype(np.float64)

    def append(self, x: Array, y: float) -> None:
        """Add one observation: features ``(n_features,)`` and its value; imagined ones are forgotten."""
        self.forget_imagined()
        self._append(x, y)

    def imagine(self, x: Array) -> float:
        """Count a point as if it had been observed to have the mean's value (Ginsbourger 2010); return that value."""
        value = float(self.predict(x[None, :])[0][0])
        self._append(x, value)
        self._n_imagined += 1
        return value

    def forget_imagined(self) -> None:
        """Take back what was imagined."""
        for i in range(self._n - 1, len(self) - 1, -1):
            self.mean -= self._whitened[i] * self._rows[i]
            self._variance += self._rows[i].astype(np.float64) ** 2
        self._n, self._n_imagined = len(self), 0

    def _append(self, x: Array, y: float) -> None:
        n = self._n
        self._reserve(n + 1)
        scaled = x * self._inverse_lengths
        known = self._inverse[:n, :n] @ self._covariances(scaled[None, :], self._x[:n])[0]
        pivot = math.sqrt(max(self._diagonal - float(known @ known), self._jitter * self._signal2))
        self._x[n] = scaled
        self._inverse[n, :n] = known @ self._inverse[:n, :n] / -pivot
        self._inverse[n, n] = 1.0 / pivot
        self._whitened[n] = value = (y - float(known @ self._whitened[:n])) / pivot
        dtype = self._rows.dtype.type
        row = self._covariances(scaled[None, :].astype(dtype), self._scaled)[0]
        row -= known.astype(dtype) @ self._rows[:n]
        row /= dtype(pivot)
        self._rows[n] = row
        self.mean += value * row
        self._variance -= np.square(row, dtype=np.float64)
        self._n = n + 1

    def _reserve(self, n: int) -> None:
        """Make room for ``n`` observations."""
        held, used = len(self._x), self._n
        if n <= held:
            return
        size = max(n, held + held // 2, 16)

        def larger(array: NDArray[Any], *shape: int) -> NDArray[Any]:
            grown = np.zeros((size, *shape), array.dtype)
            grown[:used, : array.shape[-1]] = array[:used]
            return grown

        self._x, self._rows = larger(self._x, self._x.shape[1]), larger(self._rows, self._rows.shape[1])
        self._inverse = larger(self._inverse[:used, :used], size)
        self._whitened = larger(self._whitened[:, None], 1)[:, 0]

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation at other points, features ``(m, n_features)``."""
        n = self._n
        rows = self._inverse[:n, :n] @ self._covariances(self._x[:n], x * self._inverse_lengths)
        return self._whitened[:n] @ rows, self._deviation(self._signal2 - np.einsum("ij,ij->j", rows, rows))

    def mean_function(self) -> MeanFunction:
        """Return the mean by itself, as the observations are at the moment."""
        known, weights = self._x[: self._n].astype(np.float32), self._solved() * self._signal2
        return MeanFunction(known, weights.astype(np.float32), self._inverse_lengths)

    def left_out(self) -> Array:
        """Return the difference of each observation from its prediction by the others, shape ``(n,)``.

        Rasmussen and Williams, eq. 5.12.
        """
        inverse = self._inverse[: self._n, : self._n]
        return np.asarray(self._solved() / np.square(inverse).sum(axis=0))

    def whiten(self, values: Array) -> Array:
        """Return values at the observations, ``(n,)``, divided by the Cholesky factor of the covariance there."""
        return np.asarray(self._inverse[: self._n, : self._n] @ values)

    def _solved(self) -> Array:
        """Return the observed values divided by the covariance, shape ``(n,)``."""
        return np.asarray(self._whitened[: self._n] @ self._inverse[: self._n, : self._n])

    def _deviation(self, variance: Array) -> Array:
        return np.asarray(np.sqrt(np.maximum(variance, self._least_variance)))

    def _covariances(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        """Return the signal's covariances of scaled features, in their type, shape ``(len(a), len(b))``."""
        covariance = self._kernel(_squared_distances(a, b))
        covariance *= self._signal2
        return covariance
