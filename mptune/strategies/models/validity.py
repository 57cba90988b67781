"""Learned probability that a configuration runs at all: constraints that only show as failures.

A Gaussian process regresses the failures (0: ran, 1: failed) with length scales of its own, and the
probability is that of a value below one half. The prior mean is 0, so what is far from every failure
counts as valid: a space without failures is searched as if there were none.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from mptune.strategies.models.gaussian_process import Hyperparameters, Posterior, Prior, fit

__all__ = ["ValidityModel"]

Array = NDArray[np.float64]

_NOISE: Final = 0.1
_NOISE_SPREAD: Final = 0.5
_LENGTH_SPREAD: Final = 1.0
#: No configuration is ruled out entirely: a failure may be a fluke.
_LEAST_LOG_PROBABILITY: Final = -20.0


class ValidityModel:
    """Probability of running, over a set of candidates and anywhere else.

    Args:
        n_features: features of a configuration.
        iterations: of the fit of the length scales.
    """

    def __init__(self, n_features: int, iterations: int) -> None:
        self._prior = Prior.of(n_features, length_spread=_LENGTH_SPREAD, noise=_NOISE, noise_spread=_NOISE_SPREAD)
        self._hyperparameters: Hyperparameters = self._prior.centre
        self._iterations = iterations
        self._posterior: Posterior | None = None

    def fit(self, x: Array, failed: NDArray[np.bool_], candidates: Array) -> None:
        """Learn from all outcomes.

        Args:
            x: features of what was evaluated, shape ``(n, n_features)``.
            failed: shape ``(n,)``.
            candidates: features of what :meth:`log_probability` is about, shape ``(m, n_features)``.
        """
        self._posterior = None
        if not failed.any():
            return
        y = failed.astype(np.float64)
        starts = [self._hyperparameters]
        self._hyperparameters = fit(x, y, self._prior, starts, self._iterations)
        self._posterior = Posterior(self._hyperparameters, candidates)
        self._posterior.condition(x, y)

    @property
    def is_fitted(self) -> bool:
        """Whether a failure is known."""
        return self._posterior is not None

    def append(self, x: Array, failed: bool) -> None:
        """Add one outcome; features ``(n_features,)``. Needs a fitted model."""
        assert self._posterior is not None
        self._posterior.append(x, float(failed))

    def log_probability(self) -> Array | float:
        """Return the log of the probability to run: of each candidate, or 0 while nothing has failed."""
        if self._posterior is None:
            return 0.0
        return self._log_probability(self._posterior.mean, self._posterior.deviation)

    def log_probability_at(self, x: Array) -> Array | float:
        """Return the same for other features, shape ``(m, n_features)``."""
        if self._posterior is None:
            return 0.0
        return self._log_probability(*self._posterior.predict(x))

    def _log_probability(self, mean: Array, deviation: Array) -> Array:
        spread = np.sqrt(deviation**2 + self._hyperparameters.noise**2)
        return np.maximum(np.asarray(log_ndtr((0.5 - mean) / spread)), _LEAST_LOG_PROBABILITY)
