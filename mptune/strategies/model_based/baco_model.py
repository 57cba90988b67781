"""The surrogate of BaCO: a Gaussian process over per-parameter distances (Hellsten 2023, Sec. 3.2 and 3.3).

The covariance is Matérn 5/2 over the root of the squared distances of the parameters, each by its length scale squared
(Eq. 1 and 2; the last term of Eq. 1 lacks its denominator 3 in print). Length scales are at the maximum of their
posterior under gamma priors: in discrete spaces the likelihood alone tends to length scales near zero, at which
configurations that differ have nothing in common.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.model_based.acquisition import log_expected_improvement
from mptune.strategies.model_based.candidates import best_and_others
from mptune.strategies.model_based.coordinates import Distances
from mptune.strategies.model_based.gaussian_process import Hyperparameters, Posterior, maximise
from mptune.strategies.model_based.numerics import NotPositiveDefinite, cholesky, lower_gram

__all__ = ["BacoModel", "GammaPrior", "Observation", "Search", "Targets", "fit", "log_posterior", "pairs"]

Array = NDArray[np.float64]

#: Deviation of the noise while there are fewer than two observations.
_UNFITTED_NOISE: Final = 0.1
#: Least deviation of values that is told apart from rounding, relative to their magnitude.
_LEAST_DEVIATION: Final = 1e-9
#: Largest value of a score that is not transformed; keeps the variance of values finite.
_LARGEST: Final = 1e100
#: Most a penalty takes off: beyond that it would hide all that is told by what is feasible.
_MOST_PENALTY: Final = 1e3
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
    """Density of a length scale l: l^(shape - 1) exp(-rate l), up to a factor; its mode is at (shape - 1) / rate."""

    shape: float
    rate: float

    def log_density(self, logs: Array) -> tuple[float, Array]:
        """Return the log density of length scales up to a constant, and its gradient in their logarithms."""
        lengths = np.exp(logs)
        value = float(((self.shape - 1.0) * logs - self.rate * lengths).sum())
        return value, (self.shape - 1.0) - self.rate * lengths


@dataclass(frozen=True, slots=True)
class Search:
    """How the maximum is looked for: of so many random samples the best are starts, of so many iterations each."""

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
    """Return the hyperparameters of the largest posterior found by a multi-start search, a length scale by parameter.

    Distances and observations as for :func:`log_posterior`, with a deviation near one; those of the last fit are
    another starting point.
    """
    d = len(squared)
    low, high = _box(d, _LENGTHS, _SIGNAL, _NOISE)
    centre, unit = 0.5 * (low + high), 0.5 * (high - low) / _BOUND

    def function(vector: Array) -> tuple[float, Array]:
        return log_posterior(vector, squared, y, prior)

    random_low, random_high = _box(d, _RANDOM_LENGTHS, _RANDOM_SIGNAL, _RANDOM_NOISE)
    drawn = rng.uniform(random_low, random_high, size=(search.samples, d + 2))
    drawn = drawn[np.argsort([-function(vector)[0] for vector in drawn], kind="stable")]
    starts = [*drawn[: search.starts], *([] if previous is None else [previous.to_vector()])]
    found = maximise(function, starts, centre=centre, unit=unit, bound=_BOUND, max_iterations=search.iterations)
    return Hyperparameters.from_vector(found)


def _box(d: int, lengths: tuple[float, float], signal: tuple[float, float], noise: tuple[float, float]) -> Array:
    """Return the logarithms of lower and upper bounds, shape ``(2, d + 2)``."""
    return np.asarray(np.log([*[lengths] * d, signal, noise]), dtype=np.float64).T


@dataclass(frozen=True, slots=True)
class Observation:
    """A trial that ran: coordinates ``(n_coordinates,)`` of its configuration, and its finite score."""

    coordinates: Array
    score: float


@dataclass(frozen=True, slots=True)
class Targets:
    """Turns scores into standardised values, lower is better.

    The value of a positive score s is -ln s; without the log transform it is 1 / s where the objective is
    minimised, which is proportional to it, and -s where it is maximised. Scores that are not positive
    are penalties; they take off from the worst positive one, which keeps the order.

    Attributes:
        log: whether the objective is transformed.
        minimise: whether less of the objective is better.
        worst: value of the worst positive score.
        mean: of the values the scale was made of.
        deviation: of the same.
    """

    log: bool
    minimise: bool
    worst: float
    mean: float
    deviation: float

    @classmethod
    def of(cls, scores: Array, *, log: bool, minimise: bool) -> Targets:
        """Return the scale on which the values of these scores, at least one, have mean 0 and deviation 1."""
        raw = cls(log, minimise, 0.0, 0.0, 1.0)
        positive = scores[scores > 0]
        worst = float(raw.apply(positive).max()) if len(positive) else 0.0
        values = cls(log, minimise, worst, 0.0, 1.0).apply(scores)
        mean, deviation = float(values.mean()), float(values.std())
        least = _LEAST_DEVIATION * max(1.0, abs(mean))
        return cls(log, minimise, worst, mean, deviation if deviation > least else 1.0)

    def apply(self, scores: Array) -> Array:
        """Return the standardised values of scores, shape ``(n,)``."""
        positive = np.where(scores > 0, scores, 1.0)
        if self.log:
            values = -np.log(positive)
        else:
            values = 1.0 / np.maximum(positive, 1.0 / _LARGEST) if self.minimise else -positive
        penalised = self.worst - np.clip(scores, -_MOST_PENALTY, 0.0)
        return np.asarray((np.where(scores > 0, values, penalised) - self.mean) / self.deviation)


class BacoModel:
    """What is believed of the objective at candidates and elsewhere.

    An improvement counts from ``exploration`` deviations on. Of more than ``max_observations`` the model holds the best
    and a random part.
    """

    def __init__(
        self,
        distances: Distances,
        prior: GammaPrior,
        search: Search,
        *,
        log: bool,
        minimise: bool,
        exploration: float,
        max_observations: int,
        rng: np.random.Generator,
    ) -> None:
        self._distances = distances
        self._prior = prior
        self._search = search
        self._log = log
        self._minimise = minimise
        self._exploration = exploration
        self._max_observations = max_observations
        self._rng = rng
        self._targets = Targets(log, minimise, 0.0, 0.0, 1.0)
        #: Length scales by parameter, signal and noise; None before the first fit.
        self.hyperparameters: Hyperparameters | None = None
        self._posterior = Posterior(self._over_coordinates(), np.empty((0, len(distances.owners))))
        self._learnt: set[int] = set()
        self._imagined: dict[int, float] = {}
        self._best = math.inf

    def rebuild(self, observations: Mapping[int, Observation], candidates: Array) -> None:
        """Fit the hyperparameters anew, over these candidates; coordinates ``(n_candidates, n_coordinates)``."""
        held = self._held(list(observations.values()))
        x = np.array([o.coordinates for o in held])
        scores = np.array([o.score for o in held])
        self._targets = Targets.of(scores, log=self._log, minimise=self._minimise)
        y = self._targets.apply(scores)
        if len(held) > 1:
            squared = self._distances.squared(x, *pairs(len(x)))
            self.hyperparameters = fit(squared, y, self._prior, self._search, self.hyperparameters, self._rng)
        self._posterior = Posterior(self._over_coordinates(), candidates)
        self._posterior.condition(x, y)
        self._learnt, self._imagined = set(observations), {}
        self._best = float(y.min())

    def extend(self, observations: Mapping[int, Observation]) -> None:
        """Learn the observations that are new since the last call, hyperparameters as they are."""
        new = [index for index in observations if index not in self._learnt]
        if not new:
            return
        self._imagined = {}
        for index in new:
            observation = observations[index]
            value = float(self._targets.apply(np.array([observation.score]))[0])
            self._posterior.append(observation.coordinates, value)
            self._best = min(self._best, value)
        self._learnt.update(new)

    def imagine(self, index: int, coordinates: Array) -> None:
        """Count a configuration that is being evaluated as if it had the mean's value (Ginsbourger 2010)."""
        if index not in self._imagined:
            self._imagined[index] = self._posterior.imagine(coordinates)

    def forget(self, indices: Sequence[int]) -> None:
        """Take back what was imagined if any of these, no longer evaluated, is part of it."""
        if not self._imagined.keys().isdisjoint(indices):
            self._posterior.forget_imagined()
            self._imagined = {}

    def log_improvement(self) -> Array:
        """Return the log of the expected noise-free improvement of each candidate, shape ``(n_candidates,)``."""
        return self._improvement(self._posterior.mean, self._posterior.deviation)

    def log_improvement_at(self, coordinates: Array) -> Array:
        """Return the same of other configurations, coordinates ``(n, n_coordinates)``."""
        return self._improvement(*self._posterior.predict(coordinates))

    def _improvement(self, mean: Array, deviation: Array) -> Array:
        # The deviation is that of the function without noise: an observed point has next to nothing to offer.
        best = min([self._best, *self._imagined.values()])
        return log_expected_improvement(mean, deviation, best - self._exploration)

    def _over_coordinates(self) -> Hyperparameters:
        """Return the hyperparameters with the length scale of each coordinate's parameter."""
        owners, found = self._distances.owners, self.hyperparameters
        if found is None:
            return Hyperparameters(np.ones(len(owners)), signal=1.0, noise=_UNFITTED_NOISE)
        return Hyperparameters(found.lengths[owners], found.signal, found.noise)

    def _held(self, observations: list[Observation]) -> list[Observation]:
        if len(observations) <= self._max_observations:
            return observations
        ranked = sorted(range(len(observations)), key=lambda i: (-observations[i].score, i))
        return [observations[i] for i in best_and_others(ranked, self._max_observations, self._rng)]
