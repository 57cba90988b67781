"""The probability that a configuration runs and is accurate enough, learned from the trials so far."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import log_ndtr

from mptune.strategies.model_based.error_model import Signatures
from mptune.strategies.model_based.gaussian_process import Hyperparameters, LogNormalPrior, Posterior, fit
from mptune.strategies.model_based.strategy import Candidates, best_and_others

__all__ = ["Expected", "FeasibilityModel", "Outcome", "ValidityModel", "chosen", "failure_prior"]

Array = NDArray[np.float64]

_NOISE: Final = 0.1
_NOISE_SPREAD: Final = 0.5
_LENGTH_SPREAD: Final = 1.0
#: No configuration is ruled out entirely: a failure may be a fluke.
_LEAST_LOG_PROBABILITY: Final = -20.0
#: How many certain failures the trust in what is expected is worth before any was tried.
_TRUST_WEIGHT: Final = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a told trial means to the models.

    Attributes:
        features: of its configuration, shape ``(k,)``.
        codes: value codes of its configuration, shape ``(d,)``.
        levels: log of each objective, lower is better; NaN if it is not known; shape ``(n_objectives,)``.
        failed: whether it did not run to its end with finite numbers, or broke a measured constraint.
        feasible: whether it ran and meets the threshold.
        value: the first objective's level.
        is_known: whether there is a value to learn from.
    """

    features: Array
    codes: NDArray[np.int32]
    levels: Array
    failed: bool
    feasible: bool
    value: float = field(init=False)
    is_known: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.levels[0]))
        object.__setattr__(self, "is_known", not math.isnan(self.value))


def chosen(outcomes: Sequence[Outcome], most: int, rng: Generator) -> Sequence[Outcome]:
    """Return the outcomes a model holds: all, or of too many the best half and a random part of the rest."""
    if len(outcomes) <= most:
        return outcomes
    ranked = sorted(range(len(outcomes)), key=lambda i: (not outcomes[i].is_known, outcomes[i].value, i))
    return [outcomes[i] for i in best_and_others(ranked, most, rng)]


def failure_prior(n_features: int) -> LogNormalPrior:
    """Return the prior of a Gaussian process that regresses failures."""
    return LogNormalPrior.of(n_features, length_spread=_LENGTH_SPREAD, noise=_NOISE, noise_spread=_NOISE_SPREAD)


class Expected(ABC):
    """What is known of failures before any trial."""

    @abstractmethod
    def failure(self, features: Array) -> Array:
        """Return how likely configurations are to fail, ``(n,)`` from ``(n, n_features)``."""

    @abstractmethod
    def failure_of(self, candidates: Candidates) -> Array:
        """Return the same of candidates."""


class ValidityModel:
    """Probability that a configuration runs at all, over a set of candidates and anywhere else.

    A Gaussian process regresses the failures (0: ran, 1: failed) with length scales of its own, and the
    probability is that of a value below one half. The prior mean is 0, so what is far from every failure
    counts as valid: a space without failures is searched as if there were none. Where something is expected of
    failures, the prior mean is that, times the trust in it: the least-squares slope of what was observed on what was
    expected, as if one certain failure had been expected and observed before.
    """

    def __init__(self, n_features: int, iterations: int, expected: Expected | None = None) -> None:
        self._prior = failure_prior(n_features)
        self._hyperparameters: Hyperparameters = self._prior.centre
        self._iterations = iterations
        self._expected = expected
        self._trust = 1.0
        self._posterior: Posterior | None = None
        self._prior_mean: Array | float = 0.0

    def fit(self, x: Array, failed: NDArray[np.bool_], candidates: Array, expected: Array | None = None) -> None:
        """Learn from all outcomes, of which there may be none.

        Features ``(n, n_features)``, failures ``(n,)``, features of the candidates, and what is expected of these.
        """
        self._posterior = None
        if not failed.any() and (expected is None or not expected.any()):
            return
        y = failed.astype(np.float64)
        if len(x) and self._expected is not None:
            before = self._expected.failure(x)
            slope = (_TRUST_WEIGHT + (before * y).sum()) / (_TRUST_WEIGHT + (before * before).sum())
            self._trust = min(float(slope), 1.0)
            y -= self._trust * before
        if failed.any():
            self._hyperparameters = fit(x, y, self._prior, [self._hyperparameters], self._iterations)
        self._prior_mean = 0.0 if expected is None else self._trust * expected
        self._posterior = Posterior(self._hyperparameters, candidates)
        if len(x):
            self._posterior.condition(x, y)

    @property
    def is_fitted(self) -> bool:
        """Whether a failure is known, or expected."""
        return self._posterior is not None

    def append(self, x: Array, failed: bool) -> None:
        """Add one outcome; features ``(n_features,)``. Needs a fitted model."""
        assert self._posterior is not None
        self._posterior.append(x, float(failed) - self._mean_before(x[None, :])[0])

    def log_probability(self) -> Array | float:
        """Return the log of the probability to run: of each candidate, or 0 while nothing has failed."""
        if self._posterior is None:
            return 0.0
        return self._log_probability(self._posterior.mean + self._prior_mean, self._posterior.deviation)

    def log_probability_at(self, x: Array) -> Array | float:
        """Return the same for other features, shape ``(m, n_features)``."""
        if self._posterior is None:
            return 0.0
        mean, deviation = self._posterior.predict(x)
        return self._log_probability(mean + self._mean_before(x), deviation)

    def _mean_before(self, x: Array) -> Array:
        return np.zeros(len(x)) if self._expected is None else self._trust * self._expected.failure(x)

    def _log_probability(self, mean: Array, deviation: Array) -> Array:
        spread = np.sqrt(deviation**2 + self._hyperparameters.noise**2)
        return np.maximum(np.asarray(log_ndtr((0.5 - mean) / spread)), _LEAST_LOG_PROBABILITY)


class FeasibilityModel:
    """Probability to be feasible, over a set of candidates and anywhere else.

    Signatures, None where errors do not matter, say what is known of errors. A full model of validity leaves out
    observations at random.
    """

    def __init__(
        self,
        n_features: int,
        signatures: Signatures | None,
        *,
        iterations: int,
        max_observations: int,
        rng: Generator,
        expected: Expected | None = None,
    ) -> None:
        self._signatures = signatures
        self._max_observations = max_observations
        self._rng = rng
        self._expected = expected
        self._validity = ValidityModel(n_features, iterations, expected)
        self._candidates: Candidates | None = None
        self._log_feasible: Array | float = 0.0
        self._version = -1

    def rebuild(self, candidates: Candidates, outcomes: Mapping[int, Outcome]) -> None:
        """Learn everything anew, over these candidates."""
        self._candidates = candidates
        self._version = -1
        self._fit(outcomes)

    def extend(self, new: Sequence[Outcome], outcomes: Mapping[int, Outcome]) -> None:
        """Learn some new outcomes of all there are, hyperparameters as they are."""
        if self._validity.is_fitted:
            for outcome in new:
                self._validity.append(outcome.features, outcome.failed)
        elif any(outcome.failed for outcome in new):
            self._fit(outcomes)

    def log_probability(self, allowed: NDArray[np.bool_]) -> Array:
        """Return the log of the probability of each candidate, ``-inf`` for those not allowed; ``(n_candidates,)``."""
        assert self._candidates is not None
        limit = np.where(allowed, self._validity.log_probability(), -math.inf)
        if self._signatures is not None:
            if self._version != self._signatures.version:
                self._log_feasible = self._signatures.log_probability(self._candidates.codes)
                self._version = self._signatures.version
            limit += self._log_feasible
        return limit

    def weigh(self, promise: Array, features: Array, codes: NDArray[np.int32]) -> Array:
        """Add to what other configurations promise ``(n,)`` the log of their probability; value codes ``(n, d)``."""
        value = promise + self._validity.log_probability_at(features)
        if self._signatures is not None:
            value = value + self._signatures.log_probability(codes)
        return np.asarray(value)

    def _fit(self, outcomes: Mapping[int, Outcome]) -> None:
        failures = [o for o in outcomes.values() if o.failed]
        half = self._max_observations // 2
        if len(failures) > half:
            failures = [failures[i] for i in np.sort(self._rng.permutation(len(failures))[:half])]
        ran = [o for o in outcomes.values() if not o.failed]
        kept = [*failures, *chosen(ran, self._max_observations - len(failures), self._rng)]
        failed = np.array([o.failed for o in kept], dtype=np.bool_)
        assert self._candidates is not None
        expected = None if self._expected is None else self._expected.failure_of(self._candidates)
        features = np.array([o.features for o in kept])
        self._validity.fit(features, failed, self._candidates.features, expected)
