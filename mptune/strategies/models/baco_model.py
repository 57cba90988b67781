"""The surrogate of BaCO: a Gaussian process over per-parameter distances (Hellsten 2023, Sec. 3.2 and 3.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.models.acquisition import log_expected_improvement
from mptune.strategies.models.distances import Distances
from mptune.strategies.models.gamma_fit import GammaPrior, Search, fit, pairs
from mptune.strategies.models.gaussian_process import Hyperparameters, Posterior

__all__ = ["BacoModel", "Observation", "Targets"]

Array = NDArray[np.float64]

#: Hyperparameters of fewer than two observations.
_LENGTH, _SIGNAL, _NOISE = 1.0, 1.0, 0.1
#: Least deviation of values that is told apart from rounding, relative to their magnitude.
_LEAST_DEVIATION: Final = 1e-9
#: Largest value of a score that is not transformed; keeps the variance of values finite.
_LARGEST: Final = 1e100
#: Most a penalty takes off: beyond that it would hide all that is told by what is feasible.
_MOST_PENALTY: Final = 1e3


@dataclass(frozen=True, slots=True)
class Observation:
    """A trial that ran.

    Attributes:
        coordinates: of its configuration, shape ``(n_coordinates,)``.
        score: finite, higher is better.
    """

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

    Args:
        distances: between configurations.
        prior: of the length scales.
        search: for their most probable values.
        log: whether the objective is log-transformed.
        minimise: whether less of it is better.
        exploration: an improvement counts from so many deviations on.
        max_observations: most the model holds; of more, the best and a random part.
        rng: source of randomness.
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
        self._hyperparameters: Hyperparameters | None = None
        self._posterior: Posterior | None = None
        self._learnt: set[int] = set()
        self._imagined: dict[int, float] = {}
        self._n_real = 0
        self._best = math.inf

    @property
    def hyperparameters(self) -> Hyperparameters | None:
        """Length scales by parameter, signal and noise; None before the first fit."""
        return self._hyperparameters

    def rebuild(self, observations: Mapping[int, Observation], candidates: Array) -> None:
        """Fit the hyperparameters anew, over these candidates; coordinates ``(n_candidates, n_coordinates)``."""
        held = self._held(list(observations.values()))
        x = np.array([o.coordinates for o in held])
        scores = np.array([o.score for o in held])
        self._targets = Targets.of(scores, log=self._log, minimise=self._minimise)
        y = self._targets.apply(scores)
        if len(held) > 1:
            squared = self._distances.squared(x, *pairs(len(x)))
            self._hyperparameters = fit(squared, y, self._prior, self._search, self._hyperparameters, self._rng)
        found = self._hyperparameters
        if found is None:
            found = Hyperparameters(np.full(self._distances.count, _LENGTH), _SIGNAL, _NOISE)
        lengths = found.lengths[self._distances.owners]
        self._posterior = Posterior(Hyperparameters(lengths, found.signal, found.noise), candidates)
        self._posterior.condition(x, y)
        self._learnt, self._n_real, self._imagined = set(observations), len(held), {}
        self._best = float(y.min())

    def extend(self, observations: Mapping[int, Observation]) -> None:
        """Learn the observations that are new since the last call, hyperparameters as they are."""
        new = [index for index in observations if index not in self._learnt]
        if not new:
            return
        assert self._posterior is not None
        self._posterior.truncate(self._n_real)
        self._imagined = {}
        for index in new:
            observation = observations[index]
            value = float(self._targets.apply(np.array([observation.score]))[0])
            self._posterior.append(observation.coordinates, value)
            self._best = min(self._best, value)
        self._n_real += len(new)
        self._learnt.update(new)

    def imagine(self, index: int, coordinates: Array) -> None:
        """Count a configuration that is being evaluated as if it had the mean's value (Ginsbourger 2010)."""
        if index not in self._imagined:
            assert self._posterior is not None
            mean, _ = self._posterior.predict(coordinates[None, :])
            self._posterior.append(coordinates, float(mean[0]))
            self._imagined[index] = float(mean[0])

    def forget(self, indices: Sequence[int]) -> None:
        """Take back what was imagined if any of these, no longer evaluated, is part of it."""
        if not self._imagined.keys().isdisjoint(indices):
            assert self._posterior is not None
            self._posterior.truncate(self._n_real)
            self._imagined = {}

    def log_improvement(self) -> Array:
        """Return the log of the expected noise-free improvement of each candidate, shape ``(n_candidates,)``."""
        assert self._posterior is not None
        return self._improvement(self._posterior.mean, self._posterior.deviation)

    def log_improvement_at(self, coordinates: Array) -> Array:
        """Return the same of other configurations, coordinates ``(n, n_coordinates)``."""
        assert self._posterior is not None
        return self._improvement(*self._posterior.predict(coordinates))

    def _improvement(self, mean: Array, deviation: Array) -> Array:
        # The deviation is that of the function without noise: an observed point has next to nothing to offer.
        best = min([self._best, *self._imagined.values()])
        return log_expected_improvement(mean, deviation, best - self._exploration)

    def _held(self, observations: list[Observation]) -> list[Observation]:
        most = self._max_observations
        if len(observations) <= most:
            return observations
        order = sorted(range(len(observations)), key=lambda i: (-observations[i].score, i))
        half = most // 2
        rest = self._rng.permutation(order[half:])[: most - half]
        return [observations[i] for i in sorted([*order[:half], *rest.tolist()])]
