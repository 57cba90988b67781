"""A model of one value over all parameters: a Gaussian process on standardised values, kept up to date."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.models.gaussian_process import Hyperparameters, Posterior, Prior, fit

__all__ = ["Scale", "ValueModel"]

Array = NDArray[np.float64]

#: Least spread of values, against their magnitude, that is told apart from rounding.
_LEAST_SPREAD: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Scale:
    """Standardises values; those worse than the median are compressed, as the search is not about them.

    A time a hundred times the best says little more than one ten times the best, but would dominate the
    variance: ``z -> log(1 + warp z) / warp`` for z above the median, in units of median minus best.
    """

    median: float
    spread: float
    warp: float
    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Array, warp: float) -> Scale:
        """Return the scale on which these values, at least one, have mean 0 and deviation 1."""
        median = float(np.median(values))
        least = _LEAST_SPREAD * max(1.0, abs(median))
        spread = max(median - float(values.min()), 0.1 * float(values.std()), least)
        raw = cls(median, spread, warp, 0.0, 1.0)
        warped = raw.apply(values)
        deviation = float(warped.std())
        return cls(median, spread, warp, float(warped.mean()), deviation if deviation > _LEAST_SPREAD else 1.0)

    def apply(self, values: Array | float) -> Array:
        """Return the standardised values."""
        z = (np.asarray(values, dtype=np.float64) - self.median) / self.spread
        if self.warp > 0:
            z = np.where(z > 0, np.log1p(self.warp * np.maximum(z, 0.0)) / self.warp, z)
        return np.asarray((z - self.mean) / self.deviation)


class ValueModel:
    """What is believed of a value at a set of candidates and anywhere else, in the units of :attr:`scale`.

    Args:
        prior: of the hyperparameters.
        iterations: of each fit of them.
        warp: of :class:`Scale`.
    """

    def __init__(self, prior: Prior, *, iterations: int, warp: float) -> None:
        self._prior = prior
        self._hyperparameters: Hyperparameters = prior.centre
        self._iterations = iterations
        self._warp = warp
        self._posterior = Posterior(prior.centre, np.empty((0, len(prior.means) - 2)))
        self._n_real = 0
        self.scale = Scale.of(np.zeros(1), 0.0)

    def rebuild(self, candidates: Array, x: Array, values: Array) -> None:
        """Fit everything anew.

        Args:
            candidates: features of those that :attr:`mean` and :attr:`deviation` are of, ``(n_candidates, k)``.
            x: features of what was observed, ``(n, k)``; n may be 0.
            values: what was observed, ``(n,)``.
        """
        self.scale = Scale.of(values if len(values) else np.zeros(1), self._warp)
        if len(values) > 1:
            start = [self._hyperparameters]
            self._hyperparameters = fit(x, self.scale.apply(values), self._prior, start, self._iterations)
        self._posterior = Posterior(self._hyperparameters, candidates)
        if len(values):
            self._posterior.condition(x, self.scale.apply(values))
        self._n_real = len(values)

    def append(self, x: Array, value: float) -> None:
        """Add an observation, scale and hyperparameters as they are; nothing may be imagined."""
        self._posterior.append(x, float(self.scale.apply(value)))
        self._n_real += 1

    def imagine(self, x: Array) -> None:
        """Count a point as if it had been observed to have the mean's value (Ginsbourger 2010)."""
        mean, _ = self._posterior.predict(x[None, :])
        self._posterior.append(x, float(mean[0]))

    def forget_imagined(self) -> None:
        """Take back what was imagined."""
        self._posterior.truncate(self._n_real)

    @property
    def mean(self) -> Array:
        """Posterior mean at the candidates, shape ``(n_candidates,)``."""
        return self._posterior.mean

    @property
    def deviation(self) -> Array:
        """Posterior standard deviation at the candidates, shape ``(n_candidates,)``."""
        return self._posterior.deviation

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation at other points, features ``(m, k)``."""
        return self._posterior.predict(x)
