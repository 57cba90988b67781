"""The models of the default strategy: of each objective, and of the configurations that run."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import log_ndtr

from mptune.strategies.model_based.gaussian_process import Hyperparameters, LogNormalPrior, Posterior, fit
from mptune.strategies.model_based.strategy import Candidates, best_and_others

if TYPE_CHECKING:
    from mptune.strategies.model_based.transfer import Sources
from mptune.strategies.base import Array, Codes

#: Smallest spread of values, against their magnitude, that is distinguished from rounding.
_LEAST_SPREAD: Final = 1e-9
#: Keywords of the prior of a Gaussian process that regresses failures.
FAILURE_PRIOR: Final = {"length_spread": 1.0, "noise": 0.1, "noise_spread": 0.5}
#: No configuration is excluded entirely: a failure may be a fluke.
_LEAST_LOG_PROBABILITY: Final = -20.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A trial as the models see it: features ``(k,)`` and value codes ``(d,)`` of its configuration, and its results.

    The levels are the logarithms of the objectives, lower is better, and of whatever else has a model; NaN if not
    known. A trial failed if it did not run to its end with finite numbers or violated a measured constraint.
    """

    features: Array
    codes: Codes
    levels: Array
    failed: bool
    feasible: bool

    @property
    def value(self) -> float:
        """The first objective's level."""
        return float(self.levels[0])

    @property
    def is_known(self) -> bool:
        """Whether the first objective's level is known."""
        return not math.isnan(self.value)


def best_outcomes(outcomes: Sequence[Outcome], most: int, rng: Generator) -> list[Outcome]:
    """Return the outcomes a model holds: all, or of too many the best half and a random part of the rest."""
    ranked = sorted(range(len(outcomes)), key=lambda i: (not outcomes[i].is_known, outcomes[i].value, i))
    return [outcomes[i] for i in best_and_others(ranked, most, rng)]


def _features(outcomes: Sequence[Outcome], candidates: Candidates) -> Array:
    return np.array([o.features for o in outcomes]).reshape(len(outcomes), candidates.features.shape[1])


@dataclass(frozen=True, slots=True)
class Scale:
    """Standardises values; values worse than the median are compressed, as the search is not about them.

    A time a hundred times the best says little more than one ten times the best, but would dominate the
    variance: ``z -> log(1 + warp z) / warp`` for z above the median, in units of median minus best.
    """

    median: float
    spread: float
    warp: float
    mean: float = 0.0
    deviation: float = 1.0

    @classmethod
    def of(cls, values: Array, warp: float) -> Scale:
        """Return the scale on which these values have mean 0 and deviation 1."""
        if not len(values):
            return cls(0.0, 1.0, 0.0)
        median = float(np.median(values))
        least = _LEAST_SPREAD * max(1.0, abs(median))
        spread = max(median - float(values.min()), 0.1 * float(values.std()), least)
        warped = cls(median, spread, warp).apply(values)
        deviation = float(warped.std())
        return cls(median, spread, warp, float(warped.mean()), deviation if deviation > _LEAST_SPREAD else 1.0)

    def apply(self, values: Array | float) -> Array:
        """Return the standardised values."""
        z = (np.asarray(values, dtype=np.float64) - self.median) / self.spread
        if self.warp > 0:
            z = np.where(z > 0, np.log1p(self.warp * np.maximum(z, 0.0)) / self.warp, z)
        return np.asarray((z - self.mean) / self.deviation)

    def undo(self, mean: Array, deviation: Array) -> tuple[Array, Array]:
        """Return mean and deviation of values from those of standardised ones, without compression."""
        return self.median + self.spread * (self.mean + self.deviation * mean), self.spread * self.deviation * deviation


class Axis(ABC):
    """A model of one objective, in units of its own in which less is better."""

    @abstractmethod
    def fit(self, candidates: Candidates, known: Sequence[Outcome]) -> None:
        """Learn everything again, over these candidates."""

    @abstractmethod
    def at_candidates(self) -> tuple[Array, Array]:
        """Return mean and standard deviation at the candidates, each ``(n_candidates,)``."""

    @abstractmethod
    def at(self, features: Array, codes: Codes) -> tuple[Array, Array]:
        """Return mean and standard deviation at other configurations, features ``(n, k)``, value codes ``(n, d)``."""

    @abstractmethod
    def of(self, outcomes: Sequence[Outcome]) -> Array:
        """Return the values of outcomes, NaN where they are not known, shape ``(n,)``."""

    def extend(self, outcomes: Sequence[Outcome]) -> None:  # noqa: B027 - optional
        """Learn more outcomes and forget imagined ones."""

    def imagine(self, features: Array) -> None:  # noqa: B027 - optional
        """Count a configuration, features ``(k,)``, as if its expected value had been observed."""


class ModelledAxis(Axis):
    """A number that depends on the parameters: a Gaussian process of its logarithm, in the units of a scale.

    Args:
        position: of the number among the levels of an outcome.
        columns: the features it depends on.
    """

    def __init__(
        self,
        position: int,
        columns: NDArray[np.intp],
        *,
        length_spread: float,
        iterations: int,
        warp: float = 0.0,
        sources: Sources | None = None,
    ) -> None:
        self._position, self._columns, self._iterations, self._warp = position, columns, iterations, warp
        self._prior = LogNormalPrior(len(columns), length_spread=length_spread)
        self._sources = sources if sources is not None and sources.models else None
        self._hyperparameters: Hyperparameters = self._prior.centre
        self.scale = Scale.of(np.empty(0), 0.0)
        self._expected: Array
        self._posterior: Posterior

    def __len__(self) -> int:
        """Number of observations."""
        return len(self._posterior)

    def fit(self, candidates: Candidates, known: Sequence[Outcome]) -> None:
        seen = [o for o in known if not math.isnan(o.levels[self._position])]
        x, values = _features(seen, candidates), np.array([o.levels[self._position] for o in seen])
        self.scale = Scale.of(values, self._warp) if self._sources is None else self._sources.scale(values)
        z, own = self.scale.apply(values), np.take(x, self._columns, axis=1)
        if self._sources is None:
            self._hyperparameters = fit(own, z, self._prior, [self._hyperparameters], self._iterations)
        else:
            self._hyperparameters = self._sources.fit(x, z)
        self._expected = self._prior_mean(candidates)
        at = np.take(candidates.features, self._columns, axis=1)
        self._posterior = Posterior(self._hyperparameters, at, own, z - self._prior_mean(x))

    def extend(self, outcomes: Sequence[Outcome]) -> None:
        self._posterior.forget_imagined()
        for outcome in outcomes:
            level = float(outcome.levels[self._position])
            if not math.isnan(level):
                before = self._prior_mean(outcome.features[None, :])[0]
                self._posterior.append(outcome.features[self._columns], float(self.scale.apply(level)) - before)

    def _prior_mean(self, at: Array | Candidates) -> Array:
        return np.zeros(1) if self._sources is None else self._sources.mean(at)

    def imagine(self, features: Array) -> None:
        self._posterior.imagine(features[self._columns])

    def at_candidates(self) -> tuple[Array, Array]:
        return self._posterior.mean + self._expected, self._posterior.deviation

    def at(self, features: Array, codes: Codes) -> tuple[Array, Array]:  # noqa: ARG002 - features say everything
        mean, deviation = self._posterior.predict(np.take(features, self._columns, axis=1))
        return mean + self._prior_mean(features), deviation

    def of(self, outcomes: Sequence[Outcome]) -> Array:
        return self.scale.apply(np.array([o.levels[self._position] for o in outcomes]))


class Validity:
    """Probability that a configuration runs, over a set of candidates and anywhere else.

    A Gaussian process regresses the failures (0: ran, 1: failed) with length scales of its own, and the
    probability is that of a value below one half. The prior mean is 0, so configurations far from every failure
    count as valid: a space without failures is searched as if there were none. Sources give another prior mean, the
    probability to fail that they expect times the trust in it: the least-squares slope of observed on expected
    failures, as if one certain failure had been expected and observed before.
    """

    def __init__(
        self, n_features: int, *, iterations: int, max_observations: int, rng: Generator, sources: Sources | None = None
    ) -> None:
        self._prior = LogNormalPrior(n_features, **FAILURE_PRIOR)
        self._hyperparameters: Hyperparameters = self._prior.centre
        self._iterations, self._max_observations, self._rng = iterations, max_observations, rng
        self._sources, self._trust = sources if sources is not None and sources.models else None, 1.0
        self._posterior: Posterior | None = None
        self._expected: Array | float = 0.0

    def fit(self, candidates: Candidates, outcomes: Collection[Outcome]) -> None:
        """Learn from all outcomes, over these candidates; a full model leaves out outcomes at random."""
        expected = np.zeros(1) if self._sources is None else self._sources.failures(candidates)
        has_failed = any(o.failed for o in outcomes)
        if not has_failed and not expected.any():
            self._posterior = None
            return
        kept = best_outcomes(list(outcomes), self._max_observations, self._rng)
        x, y = _features(kept, candidates), np.array([float(o.failed) for o in kept])
        if self._sources is not None and kept:
            before = self._sources.failures(x)
            self._trust = min(float((1.0 + before @ y) / (1.0 + before @ before)), 1.0)
            y -= self._trust * before
        if has_failed:
            self._hyperparameters = fit(x, y, self._prior, [self._hyperparameters], self._iterations)
        self._expected = self._trust * expected
        self._posterior = Posterior(self._hyperparameters, candidates.features, x, y)

    @property
    def is_fitted(self) -> bool:
        """Whether a failure is known or expected."""
        return self._posterior is not None

    def extend(self, outcomes: Sequence[Outcome]) -> None:
        """Add outcomes; the hyperparameters remain."""
        if self._posterior is not None:
            for outcome in outcomes:
                before = self._prior_mean(outcome.features[None, :])[0]
                self._posterior.append(outcome.features, float(outcome.failed) - before)

    def log_probability(self) -> Array | float:
        """Return the log of the probability to run: of each candidate, or 0 while nothing has failed."""
        if self._posterior is None:
            return 0.0
        return self._log_probability(self._posterior.mean + self._expected, self._posterior.deviation)

    def log_probability_at(self, features: Array) -> Array | float:
        """Return the same for other configurations, features ``(n, k)``."""
        if self._posterior is None:
            return 0.0
        mean, deviation = self._posterior.predict(features)
        return self._log_probability(mean + self._prior_mean(features), deviation)

    def _prior_mean(self, features: Array) -> Array:
        return np.zeros(1) if self._sources is None else self._trust * self._sources.failures(features)

    def _log_probability(self, mean: Array, deviation: Array) -> Array:
        spread = np.sqrt(deviation**2 + self._hyperparameters.noise**2)
        return np.maximum(np.asarray(log_ndtr((0.5 - mean) / spread)), _LEAST_LOG_PROBABILITY)
