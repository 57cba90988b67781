"""Length scales at the maximum of their posterior under gamma priors (Hellsten 2023, Sec. 3.2).

The covariance is Matérn 5/2 over the root of the squared distances of the parameters, each by its length scale squared
(Eq. 1 and 2; the last term of Eq. 1 lacks its denominator 3 in print). In discrete spaces the likelihood alone
tends to length scales near zero, at which configurations that differ have nothing in common.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.models.gaussian_process import Hyperparameters
from mptune.strategies.models.linear_algebra import NotPositiveDefinite, cholesky, lower_gram
from mptune.strategies.models.minimisation import minimise

__all__ = ["GammaPrior", "Search", "fit", "log_posterior", "pairs"]

Array = NDArray[np.float64]

#: Added to the variance of every observation, relative to the signal's.
_JITTER: Final = 1e-8
#: Bounds of length scales, and of the deviations of signal and noise of a standardised function.
_LENGTHS: Final = (0.01, 100.0)
_SIGNAL: Final = (0.1, 10.0)
_NOISE: Final = (0.01, 1.0)
#: Where random settings of the length scales and of the deviations are drawn from, evenly in the logarithm.
_RANDOM_LENGTHS: Final = (0.1, 10.0)
_RANDOM_SIGNAL: Final = (0.3, 3.0)
_RANDOM_NOISE: Final = (0.01, 0.1)
#: Half the width of the range the minimiser sees of every variable.
_BOUND: Final = 4.0


@dataclass(frozen=True, slots=True)
class GammaPrior:
    """Density of a length scale l: l^(shape - 1) exp(-rate l), up to a factor.

    Attributes:
        shape: above 0; the mode is at (shape - 1) / rate.
        rate: above 0.
    """

    shape: float
    rate: float

    def log_density(self, logs: Array) -> tuple[float, Array]:
        """Return the log density of length scales up to a constant, and its gradient in their logarithms."""
        lengths = np.exp(logs)
        value = float(((self.shape - 1.0) * logs - self.rate * lengths).sum())
        return value, (self.shape - 1.0) - self.rate * lengths


@dataclass(frozen=True, slots=True)
class Search:
    """How the maximum is looked for: random settings, the best of which are climbed from.

    Attributes:
        samples: random settings.
        starts: how many of them, those of the largest posterior, are starting points.
        iterations: of the minimiser from each.
    """

    samples: int
    starts: int
    iterations: int


def pairs(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the pairs of ``n`` observations below the diagonal: rows and columns, each ``(n (n - 1) / 2,)``."""
    return np.tril_indices(n, -1)


def log_posterior(vector: Array, squared: Array, y: Array, prior: GammaPrior) -> tuple[float, Array]:
    """Return the log marginal likelihood plus log prior (up to a constant) and its gradient.

    Args:
        vector: natural logarithms of length scales, signal and noise, shape ``(d + 2,)``.
        squared: squared distances of the :func:`pairs` of observations by parameter, shape ``(d, n_pairs)``.
        y: observations with mean near zero, shape ``(n,)``.
        prior: of the length scales.

    Returns:
        The value, ``-inf`` where the covariance is not positive definite, and the gradient, the shape of ``vector``.
    """
    n, d = len(y), len(squared)
    rows, columns = pairs(n)
    signal2, noise2 = math.exp(2.0 * vector[d]), math.exp(2.0 * vector[d + 1])
    inverse_squares = np.exp(-2.0 * vector[:d])
    r = np.sqrt(5.0 * np.einsum("i,ij->j", inverse_squares, squared))
    decay = signal2 * np.exp(-r)
    slope = (1.0 + r) * decay
    signal = slope + decay * (r * r / 3.0)
    covariance = np.zeros((n, n))
    covariance[rows, columns] = signal
    covariance.flat[:: n + 1] = signal2 * (1.0 + _JITTER) + noise2
    try:
        lower, inverse = cholesky(covariance)
    except NotPositiveDefinite:
        return -math.inf, np.zeros_like(vector)
    whitened = np.einsum("ij,j->i", inverse, y)
    alpha = np.einsum("ij,i->j", inverse, whitened)
    density, density_gradient = prior.log_density(vector[:d])
    value = density - 0.5 * float((whitened * whitened).sum()) - float(np.log(np.diag(lower)).sum())

    precision = lower_gram(inverse)
    sensitivity = alpha[rows] * alpha[columns] - precision[rows, columns]
    trace = float((alpha * alpha).sum() - np.trace(precision))
    gradient = np.empty_like(vector)
    weights = sensitivity * slope * (5.0 / 3.0)
    gradient[:d] = inverse_squares * np.einsum("j,ij->i", weights, squared) + density_gradient
    gradient[d] = 2.0 * float((sensitivity * signal).sum()) + trace * signal2 * (1.0 + _JITTER)
    gradient[d + 1] = trace * noise2
    return value, gradient


def fit(
    squared: Array,
    y: Array,
    prior: GammaPrior,
    search: Search,
    previous: Hyperparameters | None,
    rng: np.random.Generator,
) -> Hyperparameters:
    """Return the hyperparameters of the largest posterior found by a multi-start search.

    Args:
        squared: squared distances of the pairs of observations by parameter, shape ``(d, n_pairs)``.
        y: observations with mean near zero and deviation near one, shape ``(n,)``.
        prior: of the length scales.
        search: how thorough to be.
        previous: hyperparameters of the last fit, another starting point.
        rng: draws the random settings.

    Returns:
        Hyperparameters with a length scale for each parameter.
    """
    d = len(squared)
    low, high = _box(d, _LENGTHS, _SIGNAL, _NOISE)
    centre, unit = 0.5 * (low + high), 0.5 * (high - low) / _BOUND

    def loss(z: Array) -> tuple[float, Array]:
        value, gradient = log_posterior(centre + unit * z, squared, y, prior)
        return -value, -unit * gradient

    random_low, random_high = _box(d, _RANDOM_LENGTHS, _RANDOM_SIGNAL, _RANDOM_NOISE)
    drawn = rng.uniform(random_low, random_high, size=(search.samples, d + 2))
    drawn = drawn[np.argsort([loss((vector - centre) / unit)[0] for vector in drawn], kind="stable")]
    starts = [*drawn[: search.starts], *([] if previous is None else [previous.to_vector()])]
    best, least = np.zeros(d + 2), math.inf
    for start in starts:
        found, value = minimise(loss, (start - centre) / unit, bound=_BOUND, max_iterations=search.iterations)
        if value < least:
            best, least = found, value
    return Hyperparameters.from_vector(centre + unit * best)


def _box(d: int, lengths: tuple[float, float], signal: tuple[float, float], noise: tuple[float, float]) -> Array:
    """Return the logarithms of lower and upper bounds, shape ``(2, d + 2)``."""
    return np.asarray(np.log([*[lengths] * d, signal, noise]), dtype=np.float64).T
