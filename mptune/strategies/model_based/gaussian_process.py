"""Gaussian-process regression: Matérn 5/2 with a length scale per feature, fitted under priors.

Formulas: Rasmussen and Williams, Gaussian Processes for Machine Learning, algorithm 2.1 (regression), eq. 4.17
(Matérn) and eq. 5.9 (gradient of the marginal likelihood). Hyperparameters are the maximum of the posterior
under log-normal priors, as Hellsten 2023, Sec. 4.2 fits them under gamma priors: a length scale that the
data do not determine stays where the prior has it instead of running off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.model_based.numerics import NotPositiveDefinite, cholesky, lower_gram, minimise, product

__all__ = [
    "GrowingFactor", "Hyperparameters", "MeanFunction", "Posterior", "Prior", "fit", "log_posterior", "matern52",
    "maximise",
]  # fmt: skip

Array = NDArray[np.float64]

#: Added to the variance of every observation, relative to the signal's: keeps factorisations positive definite.
_JITTER: Final = 1e-8
#: Candidates whose covariances are computed at once; a block stays in the cache.
_BLOCK: Final = 2048
#: Correlations that are computed at once where only their sums are kept.
_IN_CACHE: Final = 65_536
#: Hyperparameters stay within so many prior deviations of the prior's centre.
_MOST_DEVIATIONS: Final = 5.0
#: Smallest posterior variance, relative to the signal's; single precision resolves no less.
_LEAST_VARIANCE: Final = 1e-7


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """What the covariance depends on.

    Attributes:
        lengths: length scale of each feature, shape ``(n_features,)``.
        signal: standard deviation of the function.
        noise: standard deviation of an observation's noise.
    """

    lengths: Array
    signal: float
    noise: float

    def to_vector(self) -> Array:
        """Return the natural logarithms: length scales, signal, noise; shape ``(n_features + 2,)``."""
        return np.asarray(np.log(np.concatenate([self.lengths, [self.signal, self.noise]])))

    @classmethod
    def from_vector(cls, vector: Array) -> Hyperparameters:
        """Return what :meth:`to_vector` wrote."""
        values = np.exp(vector)
        return cls(values[:-2], float(values[-2]), float(values[-1]))


@dataclass(frozen=True, slots=True)
class Prior:
    """Independent normal priors on the natural logarithms of the hyperparameters.

    Attributes:
        means: shape ``(n_features + 2,)``, ordered as :meth:`Hyperparameters.to_vector`.
        deviations: standard deviations, the same shape.
    """

    means: Array
    deviations: Array

    @classmethod
    def of(cls, n_features: int, *, length_spread: float, noise: float, noise_spread: float) -> Prior:
        """Return the prior for features in [0, 1] and a standardised function.

        The length scales' centre grows with the square root of the number of features, as distances do, so
        that points a typical distance apart keep the same correlation in any number of dimensions.
        """
        length = 0.5 * math.log(max(n_features, 1)) - 0.3
        means = [length] * n_features + [0.0, math.log(noise)]
        deviations = [length_spread] * n_features + [0.7, noise_spread]
        return cls(np.array(means), np.array(deviations))

    @property
    def centre(self) -> Hyperparameters:
        """The most probable hyperparameters before any data."""
        return Hyperparameters.from_vector(self.means)


def matern52(squared: NDArray[Any]) -> NDArray[Any]:
    """Return the Matérn 5/2 correlation of squared scaled distances, in the shape they have."""
    r = np.sqrt(5.0 * squared)
    return np.asarray((1.0 + r + r * r / 3.0) * np.exp(-r))


def _squared_distances(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return squared Euclidean distances, shape ``(len(a), len(b))``."""
    squared = product(a, -2.0 * b.T)
    squared += np.einsum("ij,ij->i", a, a)[:, None]
    squared += np.einsum("ij,ij->i", b, b)[None, :]
    return np.asarray(np.maximum(squared, 0.0, out=squared))


def log_posterior(vector: Array, x: Array, y: Array, prior: Prior) -> tuple[float, Array]:
    """Return the log marginal likelihood plus log prior (up to a constant) and its gradient.

    Args:
        vector: logarithms of the hyperparameters, shape ``(n_features + 2,)``.
        x: features, shape ``(n, n_features)``.
        y: observations with mean near zero, shape ``(n,)``.
        prior: of the hyperparameters.

    Returns:
        The value, ``-inf`` where the covariance is not positive definite, and the gradient, the shape of ``vector``.
    """
    n, k = x.shape
    signal2, noise2 = math.exp(2.0 * vector[k]), math.exp(2.0 * vector[k + 1])
    scaled = x * np.exp(-vector[:k])
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
    except NotPositiveDefinite:
        return -math.inf, np.zeros_like(vector)
    whitened = np.einsum("ij,j->i", inverse_lower, y)
    alpha = np.einsum("ij,i->j", inverse_lower, whitened)
    z = (vector - prior.means) / prior.deviations
    value = -0.5 * float((whitened * whitened).sum()) - float(np.log(np.diag(lower)).sum()) - 0.5 * float((z * z).sum())

    sensitivity = np.outer(alpha, alpha) - lower_gram(inverse_lower)
    weights = sensitivity * slope * (5.0 / 3.0)
    gradient = np.empty_like(vector)
    gradient[:k] = (scaled * scaled * weights.sum(axis=1)[:, None] - scaled * product(weights, scaled)).sum(axis=0)
    gradient[k] = (sensitivity * signal).sum() + _JITTER * signal2 * np.trace(sensitivity)
    gradient[k + 1] = noise2 * np.trace(sensitivity)
    return value, gradient - z / prior.deviations


def fit(x: Array, y: Array, prior: Prior, starts: Iterable[Hyperparameters], max_iterations: int) -> Hyperparameters:
    """Return the hyperparameters of the largest posterior found from the starting points, at least one.

    Features and observations as for :func:`log_posterior`, with a deviation near one.
    """
    vector = maximise(
        lambda vector: log_posterior(vector, x, y, prior),
        [start.to_vector() for start in starts],
        centre=prior.means,
        unit=prior.deviations,
        bound=_MOST_DEVIATIONS,
        max_iterations=max_iterations,
    )
    return Hyperparameters.from_vector(vector)


def maximise(
    function: Callable[[Array], tuple[float, Array]],
    starts: Iterable[Array],
    *,
    centre: Array,
    unit: Array,
    bound: float,
    max_iterations: int,
) -> Array:
    """Return the largest local maximum found from the starting points, at least one, shape ``(n,)``.

    The function gives value and gradient. The region is searched that reaches from the centre by ``bound`` units, one
    for each variable, to either side.
    """

    def loss(z: Array) -> tuple[float, Array]:
        value, gradient = function(centre + unit * z)
        return -value, -unit * gradient

    best, least = np.zeros_like(centre), math.inf
    for start in starts:
        found, value = minimise(loss, (start - centre) / unit, bound=bound, max_iterations=max_iterations)
        if value < least:
            best, least = found, value
    return centre + unit * best


class GrowingFactor:
    """The inverse Cholesky factor of the covariance of observations, and what it makes of a fixed set of candidates.

    Imagined observations, of configurations whose trials are awaited, come after the real ones.

    With the factor L of the observations' covariance, row i of ``V = L^-1 K(observations, candidates)`` depends on
    the first i observations alone. So an observation adds one row to L^-1 and V and takes time proportional to
    observations times candidates; taking the last ones back is free. ``whitened`` is the shape of an observation's
    values, and ``dtype`` the type of V.
    """

    def __init__(
        self, n_candidates: int, n_features: int, whitened: tuple[int, ...], dtype: type[np.floating[Any]]
    ) -> None:
        self._x = np.empty((0, n_features))
        self._inverse = np.empty((0, 0))
        self._whitened = np.empty((0, *whitened))
        self._rows: NDArray[Any] = np.empty((0, n_candidates), dtype=dtype)
        self._n = 0
        self._n_imagined = 0

    def __len__(self) -> int:
        """Number of observations, imagined ones left out."""
        return self._n - self._n_imagined

    def _grow(self, x: Array, correlations: Array, diagonal: float, least: float) -> tuple[Array, float]:
        """Add the row of a point to the inverse factor, not to V; return its own row in the factor, and its pivot.

        Scaled features ``(k,)``, correlations ``(n,)`` with the points held, variance of an observation, and the
        smallest square of a pivot.
        """
        n = self._n
        self._reserve(n + 1)
        known = np.einsum("ij,j->i", self._inverse[:n, :n], correlations)
        pivot = math.sqrt(max(diagonal - float((known * known).sum()), least))
        self._x[n] = x
        self._inverse[n, :n] = np.einsum("i,ij->j", known, self._inverse[:n, :n]) / -pivot
        self._inverse[n, n] = 1.0 / pivot
        return known, pivot

    def _blocks(self) -> Iterator[slice]:
        for start in range(0, self._rows.shape[1], _BLOCK):
            yield slice(start, start + _BLOCK)

    def _reserve(self, n: int) -> None:
        """Make room for ``n`` observations."""
        held, used = len(self._x), self._n
        if n <= held:
            return
        size = max(n, held + held // 2, 16)

        def larger(array: NDArray[Any]) -> NDArray[Any]:
            grown = np.empty((size, *array.shape[1:]), array.dtype)
            grown[:used] = array[:used]
            return grown

        self._x, self._whitened, self._rows = larger(self._x), larger(self._whitened), larger(self._rows)
        inverse = np.zeros((size, size))
        inverse[:used, :used] = self._inverse[:used, :used]
        self._inverse = inverse


@dataclass(frozen=True, slots=True, eq=False)
class MeanFunction:
    """The mean of a posterior, in single precision: all that is needed of one that learns nothing more.

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
            correlations = matern52(_squared_distances(self.known, block))
            mean[start : start + rows] = np.einsum("i,ij->j", self.weights, correlations)
        return mean


class Posterior(GrowingFactor):
    """The posterior over fixed candidates, features ``(n_candidates, n_features)``, one observation at a time."""

    def __init__(self, hyperparameters: Hyperparameters, candidates: Array) -> None:
        super().__init__(len(candidates), candidates.shape[1], (), np.float32)
        self._signal2 = hyperparameters.signal**2
        self._diagonal = self._signal2 * (1.0 + _JITTER) + hyperparameters.noise**2
        self._inverse_lengths = 1.0 / hyperparameters.lengths
        self._scaled = (candidates * self._inverse_lengths).astype(np.float32)
        # |a - b|^2 = |a|^2 + |b|^2 - 2 a b, of which the candidates' part is the same for every observation.
        self._norms = np.einsum("ij,ij->i", self._scaled, self._scaled)
        self._minus_twice = np.ascontiguousarray(-2.0 * self._scaled.T)
        #: Posterior mean at the candidates, shape ``(n_candidates,)``.
        self.mean = np.zeros(len(candidates))
        self._variance = np.full(len(candidates), self._signal2)

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
        self._x[:n], self._inverse[:n, :n] = scaled, inverse
        self._whitened[:n] = np.einsum("ij,j->i", inverse, y)
        factor, at, weights = inverse.astype(np.float32), scaled.astype(np.float32), self._whitened[:n]
        for block in self._blocks():
            rows = product(factor, self._covariances(at, self._scaled[block]), triangular=True)
            self._rows[:n, block] = rows
            self.mean[block] = np.einsum("i,ij->j", weights.astype(np.float32), rows)
            self._variance[block] = self._signal2 - np.einsum("ij,ij->j", rows, rows)
        self._n = n

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
        scaled = x * self._inverse_lengths
        correlations = self._covariances(scaled[None, :], self._x[:n])[0]
        new, pivot = self._grow(scaled, correlations, self._diagonal, _JITTER * self._signal2)
        value = (y - float((new * self._whitened[:n]).sum())) / pivot
        self._whitened[n] = value
        row = self._candidate_covariances(scaled)
        row -= product(new[None, :].astype(np.float32), self._rows[:n])[0]
        row /= np.float32(pivot)
        self._rows[n] = row
        self.mean += value * row
        self._variance -= np.square(row, dtype=np.float64)
        self._n = n + 1

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation at other points, features ``(m, n_features)``."""
        n = self._n
        rows = product(
            self._inverse[:n, :n], self._covariances(self._x[:n], x * self._inverse_lengths), triangular=True
        )
        mean = np.einsum("i,ij->j", self._whitened[:n], rows)
        return mean, self._deviation(self._signal2 - np.einsum("ij,ij->j", rows, rows))

    def mean_function(self) -> MeanFunction:
        """Return the mean by itself, as the observations are at the moment."""
        known, weights = self._x[: self._n].astype(np.float32), self._solved() * self._signal2
        return MeanFunction(known, weights.astype(np.float32), self._inverse_lengths)

    def left_out(self) -> Array:
        """Return how far each observation is from what the others let expect of it, shape ``(n,)``.

        Rasmussen and Williams, eq. 5.12.
        """
        inverse = self._inverse[: self._n, : self._n]
        return np.asarray(self._solved() / np.square(inverse).sum(axis=0))

    def whiten(self, values: Array) -> Array:
        """Return values at the observations, ``(n,)``, divided by the Cholesky factor of the covariance there."""
        return np.asarray(np.einsum("ij,j->i", self._inverse[: self._n, : self._n], values))

    def _solved(self) -> Array:
        """Return the observed values divided by the covariance, shape ``(n,)``."""
        return np.asarray(np.einsum("ij,i->j", self._inverse[: self._n, : self._n], self._whitened[: self._n]))

    def _deviation(self, variance: Array) -> Array:
        return np.asarray(np.sqrt(np.maximum(variance, _LEAST_VARIANCE * self._signal2)))

    def _covariances(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        """Return the signal's covariances of scaled features, in their type, shape ``(len(a), len(b))``."""
        covariance = matern52(_squared_distances(a, b))
        covariance *= self._signal2
        return covariance

    def _candidate_covariances(self, scaled: Array) -> NDArray[np.float32]:
        """Return the signal's covariances of one point with every candidate, shape ``(n_candidates,)``."""
        at = scaled.astype(np.float32)
        squared = product(at[None, :], self._minus_twice)[0]
        squared += self._norms
        squared += np.float32((at * at).sum())
        covariance = matern52(np.maximum(squared, 0.0, out=squared))
        covariance *= np.float32(self._signal2)
        return covariance
