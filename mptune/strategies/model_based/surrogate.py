"""What a Bayesian strategy believes of the candidates, kept up to date: what each promises, and whether it is feasible.

A value, such as time, is modelled by a Gaussian process on standardised observations.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.model_based.acquisition import log_expected_improvement, log_improvement_bound
from mptune.strategies.model_based.candidates import Candidates
from mptune.strategies.model_based.feasibility import FeasibilityModel, Outcome, chosen
from mptune.strategies.model_based.gaussian_process import Hyperparameters, Posterior, Prior, fit

__all__ = ["TIME_WEIGHT", "Scale", "Surrogate", "TimeSurrogate", "ValueModel"]

Array = NDArray[np.float64]

#: While nothing feasible is known: worth of one deviation of predicted time against log probability.
TIME_WEIGHT: Final = 0.25
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


class Surrogate(ABC):
    """Models over a set of candidates; a subclass models what is optimised.

    Args:
        feasibility: probability to be feasible.
        max_observations: most a model holds.
        rng: chooses which observations a full model leaves out.
    """

    def __init__(self, feasibility: FeasibilityModel, max_observations: int, rng: np.random.Generator) -> None:
        self._feasibility = feasibility
        self._max_observations = max_observations
        self._rng = rng
        self._learnt: set[int] = set()
        #: Indices of the configurations that count as evaluated though they are not.
        self.imagined: set[int] = set()

    def rebuild(self, candidates: Candidates, outcomes: Mapping[int, Outcome]) -> None:
        """Fit everything anew, over these candidates."""
        known = [o for o in outcomes.values() if o.is_known]
        self._fit(candidates, chosen(known, self._max_observations, self._rng))
        self._feasibility.rebuild(candidates, outcomes)
        self._learnt, self.imagined = set(outcomes), set()
        self._compare(outcomes)

    def extend(self, outcomes: Mapping[int, Outcome]) -> None:
        """Learn the outcomes that are new since the last call, hyperparameters as they are."""
        new = {index: outcome for index, outcome in outcomes.items() if index not in self._learnt}
        if not new:
            return
        self._forget_imagined()
        self.imagined = set()
        for outcome in new.values():
            if outcome.is_known:
                self._append(outcome)
        self._feasibility.extend(list(new.values()), outcomes)
        self._learnt.update(new)
        self._compare(outcomes)

    def imagine(self, index: int, features: Array, codes: NDArray[np.int32]) -> None:
        """Count a configuration that is being evaluated as if it gave what is expected (Ginsbourger 2010).

        Args:
            index: of the configuration, which is not among :attr:`imagined`.
            features: its features, shape ``(k,)``.
            codes: its value codes, shape ``(d,)``.
        """
        self._imagine(features, codes)
        self.imagined.add(index)

    # -- what it says --------------------------------------------------------------------------

    def choose(self, allowed: NDArray[np.bool_]) -> tuple[int, float]:
        """Return the position of the allowed candidate of the largest value, and its log value.

        The value is ``-inf`` where all of them are known to be infeasible.

        Args:
            allowed: which candidates may be chosen, at least one, shape ``(n_candidates,)``.
        """
        return self._choose(self._feasibility.log_probability(allowed))

    def scores_at(self, features: Array, codes: NDArray[np.int32]) -> Array:
        """Return the log value of other configurations; features ``(n, k)``, value codes ``(n, d)``."""
        return self._feasibility.weigh(self._promise_at(features, codes), features, codes)

    # -- for subclasses ------------------------------------------------------------------------

    @abstractmethod
    def _fit(self, candidates: Candidates, known: Sequence[Outcome]) -> None:
        """Fit the models anew; nothing is imagined any more."""

    @abstractmethod
    def _append(self, outcome: Outcome) -> None:
        """Take in one more outcome, hyperparameters as they are."""

    @abstractmethod
    def _imagine(self, features: Array, codes: NDArray[np.int32]) -> None:
        """Take in the expected outcome of a configuration."""

    @abstractmethod
    def _forget_imagined(self) -> None:
        """Take back what was imagined."""

    @abstractmethod
    def _compare(self, outcomes: Mapping[int, Outcome]) -> None:
        """Find out what there is to be improved on."""

    @abstractmethod
    def _choose(self, limit: Array) -> tuple[int, float]:
        """Return position and log value of the best candidate, given each one's log probability to be feasible."""

    @abstractmethod
    def _promise_at(self, features: Array, codes: NDArray[np.int32]) -> Array:
        """Return the log of what other configurations promise if they are feasible, shape ``(n,)``."""


class TimeSurrogate(Surrogate):
    """A model of one value, in which the best feasible outcome is to be improved on.

    Args:
        model: of the value.
        feasibility: probability to be feasible.
        max_observations: most a model holds.
        rng: chooses which observations a full model leaves out.
    """

    def __init__(
        self, model: ValueModel, feasibility: FeasibilityModel, max_observations: int, rng: np.random.Generator
    ) -> None:
        super().__init__(feasibility, max_observations, rng)
        self._model = model
        self._best = math.nan

    def _fit(self, candidates: Candidates, known: Sequence[Outcome]) -> None:
        x = np.array([o.features for o in known])
        self._model.rebuild(candidates.features, x, np.array([o.value for o in known]))

    def _append(self, outcome: Outcome) -> None:
        self._model.append(outcome.features, outcome.value)

    def _imagine(self, features: Array, codes: NDArray[np.int32]) -> None:  # noqa: ARG002 - of no use to this one
        self._model.imagine(features)

    def _forget_imagined(self) -> None:
        self._model.forget_imagined()

    def _compare(self, outcomes: Mapping[int, Outcome]) -> None:
        values = [o.value for o in outcomes.values() if o.feasible and o.is_known]
        self._best = float(self._model.scale.apply(min(values))) if values else math.nan

    def _choose(self, limit: Array) -> tuple[int, float]:
        mean, deviation = self._model.mean, self._model.deviation
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

    def _promise_at(self, features: Array, codes: NDArray[np.int32]) -> Array:  # noqa: ARG002
        return self._promise(*self._model.predict(features))

    def _promise(self, mean: Array, deviation: Array) -> Array:
        if math.isnan(self._best):
            return -TIME_WEIGHT * (mean - deviation)
        return log_expected_improvement(mean, deviation, self._best)
