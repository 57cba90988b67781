"""What the Bayesian strategy believes: time, validity and feasibility of the candidates, kept up to date."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.models.acquisition import log_expected_improvement, log_improvement_bound
from mptune.strategies.models.candidates import Candidates
from mptune.strategies.models.gaussian_process import Hyperparameters, Posterior, Prior, fit
from mptune.strategies.models.signatures import Signatures
from mptune.strategies.models.validity import ValidityModel

__all__ = ["Outcome", "Scale", "Surrogate"]

Array = NDArray[np.float64]

#: While nothing feasible is known: worth of one deviation of predicted time against log probability.
_TIME_WEIGHT: Final = 0.25
#: Least spread of values, against their magnitude, that is told apart from rounding.
_LEAST_SPREAD: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a told trial means to the models.

    Attributes:
        features: of its configuration, shape ``(k,)``.
        value: log of the objective, lower is better; NaN where it is not known.
        failed: whether it did not run to its end with finite numbers, or broke a measured constraint.
        feasible: whether it ran and meets the threshold.
    """

    features: Array
    value: float
    failed: bool
    feasible: bool

    @property
    def is_known(self) -> bool:
        """Whether there is a value to learn from."""
        return not math.isnan(self.value)


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


class Surrogate:
    """Models over a set of candidates.

    Args:
        n_features: features of a configuration.
        prior: of the hyperparameters of the model of time.
        signatures: what is known of errors; None where they do not matter.
        iterations: of each fit of hyperparameters.
        warp: of :class:`Scale`.
        max_observations: most the model of time holds.
        rng: chooses which observations a full model leaves out.
    """

    def __init__(
        self,
        n_features: int,
        prior: Prior,
        signatures: Signatures | None,
        *,
        iterations: int,
        warp: float,
        max_observations: int,
        rng: np.random.Generator,
    ) -> None:
        self._prior = prior
        self._hyperparameters: Hyperparameters = prior.centre
        self._signatures = signatures
        self._iterations = iterations
        self._warp = warp
        self._max_observations = max_observations
        self._rng = rng
        self._validity = ValidityModel(n_features, iterations)
        self._scale = Scale.of(np.zeros(1), 0.0)
        self._best = math.nan
        self._candidates: Candidates | None = None
        self._posterior = Posterior(prior.centre, np.empty((0, n_features)))
        self._learnt: set[int] = set()
        self._n_real = 0
        self._fantasies: list[int] = []
        self._log_feasible: Array | float = 0.0
        self._version = -1

    def rebuild(self, candidates: Candidates, outcomes: Mapping[int, Outcome]) -> None:
        """Fit everything anew, over these candidates."""
        self._candidates = candidates
        self._version = -1
        known = self._chosen([o for o in outcomes.values() if o.is_known], self._max_observations)
        x = np.array([o.features for o in known])
        values = np.array([o.value for o in known])
        self._scale = Scale.of(values if len(values) else np.zeros(1), self._warp)
        if len(known) > 1:
            start = [self._hyperparameters]
            self._hyperparameters = fit(x, self._scale.apply(values), self._prior, start, self._iterations)
        self._posterior = Posterior(self._hyperparameters, candidates.features)
        if known:
            self._posterior.condition(x, self._scale.apply(values))
        self._n_real, self._fantasies = len(known), []
        self._fit_validity(outcomes)
        self._learnt = set(outcomes)
        self._find_best(outcomes)

    def extend(self, outcomes: Mapping[int, Outcome]) -> None:
        """Learn the outcomes that are new since the last call, hyperparameters as they are."""
        new = [i for i in outcomes if i not in self._learnt]
        if not new:
            return
        self._posterior.truncate(self._n_real)
        self._fantasies = []
        refit_validity = not self._validity.is_fitted and any(outcomes[i].failed for i in new)
        for index in new:
            outcome = outcomes[index]
            if outcome.is_known:
                self._posterior.append(outcome.features, float(self._scale.apply(outcome.value)))
                self._n_real += 1
            if self._validity.is_fitted:
                self._validity.append(outcome.features, outcome.failed)
        self._learnt.update(new)
        if refit_validity:
            self._fit_validity(outcomes)
        self._find_best(outcomes)

    def imagine(self, index: int, features: Array) -> None:
        """Count a configuration that is being evaluated as if it had the mean's value (Ginsbourger 2010)."""
        if index not in self._fantasies:
            mean, _ = self._posterior.predict(features[None, :])
            self._posterior.append(features, float(mean[0]))
            self._fantasies.append(index)

    # -- what it says --------------------------------------------------------------------------

    def choose(self, allowed: NDArray[np.bool_]) -> tuple[int, float]:
        """Return the position of the allowed candidate of the largest value, and its log value.

        The value is ``-inf`` where all of them are known to be infeasible.

        Args:
            allowed: which candidates may be chosen, at least one, shape ``(n_candidates,)``.
        """
        assert self._candidates is not None
        limit = np.where(allowed, self._validity.log_probability(), -math.inf)
        if self._signatures is not None:
            if self._version != self._signatures.version:
                self._log_feasible = self._signatures.log_probability(self._candidates.codes)
                self._version = self._signatures.version
            limit += self._log_feasible
        mean, deviation = self._posterior.mean, self._posterior.deviation
        if math.isnan(self._best):
            values = limit + self._promise(mean, deviation)
            return int(values.argmax()), float(values.max())
        # Few candidates can be the best one; only theirs is worth computing.
        bound = limit + log_improvement_bound(mean, deviation, self._best)
        first = int(bound.argmax())
        least = limit[first] + self._promise(mean[first, None], deviation[first, None])[0]
        contenders = np.flatnonzero(bound >= min(least, bound[first]))
        values = limit[contenders] + self._promise(mean[contenders], deviation[contenders])
        return int(contenders[values.argmax()]), float(values.max())

    def scores_at(self, features: Array, codes: NDArray[np.int32]) -> Array:
        """Return the log value of other configurations; features ``(n, k)``, value codes ``(n, d)``."""
        value = self._promise(*self._posterior.predict(features)) + self._validity.log_probability_at(features)
        if self._signatures is not None:
            value = value + self._signatures.log_probability(codes)
        return value

    def _promise(self, mean: Array, deviation: Array) -> Array:
        if math.isnan(self._best):
            return -_TIME_WEIGHT * (mean - deviation)
        return log_expected_improvement(mean, deviation, self._best)

    # -- internals -----------------------------------------------------------------------------

    def _find_best(self, outcomes: Mapping[int, Outcome]) -> None:
        values = [o.value for o in outcomes.values() if o.feasible and o.is_known]
        self._best = float(self._scale.apply(min(values))) if values else math.nan

    def _fit_validity(self, outcomes: Mapping[int, Outcome]) -> None:
        failures = [o for o in outcomes.values() if o.failed]
        half = self._max_observations // 2
        if len(failures) > half:
            failures = [failures[i] for i in np.sort(self._rng.permutation(len(failures))[:half])]
        ran = self._chosen([o for o in outcomes.values() if not o.failed], self._max_observations - len(failures))
        kept = [*failures, *ran]
        failed = np.array([o.failed for o in kept], dtype=np.bool_)
        assert self._candidates is not None
        self._validity.fit(np.array([o.features for o in kept]), failed, self._candidates.features)

    def _chosen(self, outcomes: list[Outcome], most: int) -> list[Outcome]:
        """Return the outcomes a model holds: all, or of too many the best half and a random part of the rest."""
        if len(outcomes) <= most:
            return outcomes
        order = sorted(range(len(outcomes)), key=lambda i: (not outcomes[i].is_known, outcomes[i].value, i))
        half = most // 2
        rest = self._rng.permutation(order[half:])[: most - half]
        return [outcomes[i] for i in sorted([*order[:half], *rest.tolist()])]
