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
from mptune.strategies.model_based.feasibility import FeasibilityModel, Outcome, chosen
from mptune.strategies.model_based.gaussian_process import Hyperparameters, LogNormalPrior, Posterior, fit
from mptune.strategies.model_based.strategy import Candidates

__all__ = ["TIME_WEIGHT", "Axis", "ModelledAxis", "Scale", "Surrogate", "TimeSurrogate"]

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

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


class Axis(ABC):
    """What is believed of one objective, in units of its own in which less is better."""

    @abstractmethod
    def fit(self, candidates: Candidates, known: Sequence[Outcome]) -> None:
        """Learn everything anew."""

    @abstractmethod
    def at_candidates(self) -> tuple[Array, Array]:
        """Return mean and standard deviation at the candidates, each ``(n_candidates,)``."""

    @abstractmethod
    def at(self, features: Array, codes: Codes) -> tuple[Array, Array]:
        """Return mean and standard deviation at other configurations, features ``(n, k)``, value codes ``(n, d)``."""

    @abstractmethod
    def of(self, outcomes: Sequence[Outcome]) -> Array:
        """Return where outcomes are, NaN where that is not known, shape ``(n,)``."""

    def append(self, outcome: Outcome) -> None:  # noqa: B027 - optional
        """Learn one more outcome."""

    def imagine(self, features: Array) -> None:  # noqa: B027 - optional
        """Count a configuration as if it had been observed to be what is expected; features ``(k,)``."""

    def forget_imagined(self) -> None:  # noqa: B027 - optional
        """Take back what was imagined."""


class ModelledAxis(Axis):
    """An objective that depends on all parameters: a Gaussian process of its logarithm, in the units of a scale.

    Args:
        position: of the objective among all.
        prior: of the hyperparameters.
        iterations: of each fit of them.
        warp: of :class:`Scale`.
    """

    def __init__(self, position: int, prior: LogNormalPrior, *, iterations: int, warp: float) -> None:
        self._position = position
        self._prior = prior
        self._hyperparameters: Hyperparameters = prior.centre
        self._iterations = iterations
        self._warp = warp
        self.scale = Scale.of(np.zeros(1), 0.0)
        self._posterior = Posterior(prior.centre, np.empty((0, len(prior.means) - 2)))

    def fit(self, candidates: Candidates, known: Sequence[Outcome]) -> None:
        """Fit hyperparameters and posterior anew; nothing may be known."""
        seen = [o for o in known if not np.isnan(o.levels[self._position])]
        x, values = np.array([o.features for o in seen]), np.array([o.levels[self._position] for o in seen])
        self.scale = Scale.of(values if len(values) else np.zeros(1), self._warp)
        if len(values) > 1:
            start = [self._hyperparameters]
            self._hyperparameters = fit(x, self.scale.apply(values), self._prior, start, self._iterations)
        self._posterior = Posterior(self._hyperparameters, candidates.features)
        if len(values):
            self._posterior.condition(x, self.scale.apply(values))

    def append(self, outcome: Outcome) -> None:
        """Add an observation."""
        level = float(outcome.levels[self._position])
        if not math.isnan(level):
            self._posterior.append(outcome.features, float(self.scale.apply(level)))

    def imagine(self, features: Array) -> None:
        """Add the mean as an observation."""
        self._posterior.imagine(features)

    def forget_imagined(self) -> None:
        """Take back what was imagined."""
        self._posterior.forget_imagined()

    def at_candidates(self) -> tuple[Array, Array]:
        """Return the posterior at the candidates."""
        return self._posterior.mean, self._posterior.deviation

    def at(self, features: Array, codes: Codes) -> tuple[Array, Array]:  # noqa: ARG002 - features say it all
        """Return the posterior elsewhere."""
        return self._posterior.predict(features)

    def of(self, outcomes: Sequence[Outcome]) -> Array:
        """Return what was observed, on the scale of the model."""
        return self.scale.apply(np.array([o.levels[self._position] for o in outcomes]))


class Surrogate(ABC):
    """Models over a set of candidates, of each objective and of what is feasible; a subclass says what is promising.

    A full model leaves out observations at random.

    Attributes:
        imagined: indices of the configurations that count as evaluated though they are not.
    """

    def __init__(
        self, axes: Sequence[Axis], feasibility: FeasibilityModel, max_observations: int, rng: np.random.Generator
    ) -> None:
        self._axes = tuple(axes)
        self._feasibility = feasibility
        self._max_observations = max_observations
        self._rng = rng
        self._learnt: set[int] = set()
        self.imagined: set[int] = set()

    def rebuild(self, candidates: Candidates, outcomes: Mapping[int, Outcome]) -> None:
        """Fit everything anew, over these candidates."""
        known = chosen([o for o in outcomes.values() if o.is_known], self._max_observations, self._rng)
        for axis in self._axes:
            axis.fit(candidates, known)
        self._feasibility.rebuild(candidates, outcomes)
        self._learnt, self.imagined = set(outcomes), set()
        self._compare(outcomes)

    def extend(self, outcomes: Mapping[int, Outcome]) -> None:
        """Learn the outcomes that are new since the last call, hyperparameters as they are."""
        new = {index: outcome for index, outcome in outcomes.items() if index not in self._learnt}
        if not new:
            return
        self.imagined = set()
        for axis in self._axes:
            axis.forget_imagined()
            for outcome in new.values():
                if outcome.is_known:
                    axis.append(outcome)
        self._feasibility.extend(list(new.values()), outcomes)
        self._learnt.update(new)
        self._compare(outcomes)

    def imagine(self, index: int, features: Array, codes: Codes) -> None:  # noqa: ARG002 - for subclasses
        """Count a configuration that is being evaluated as if it gave what is expected (Ginsbourger 2010).

        It is not among :attr:`imagined` yet; features ``(k,)``, value codes ``(d,)``.
        """
        for axis in self._axes:
            axis.imagine(features)
        self.imagined.add(index)

    @abstractmethod
    def choose(self, allowed: NDArray[np.bool_]) -> tuple[int, float]:
        """Return the position of the allowed candidate of the largest value, and its log value.

        The value is ``-inf`` where all those allowed, at least one, are known to be infeasible; ``(n_candidates,)``.
        """

    def scores_at(self, features: Array, codes: Codes) -> Array:
        """Return the log value of other configurations; features ``(n, k)``, value codes ``(n, d)``."""
        return self._feasibility.weigh(self._promise_at(features, codes), features, codes)

    @abstractmethod
    def _compare(self, outcomes: Mapping[int, Outcome]) -> None:
        """Find out what there is to be improved on; nothing is imagined any more."""

    @abstractmethod
    def _promise_at(self, features: Array, codes: Codes) -> Array:
        """Return the log of what other configurations promise if they are feasible, shape ``(n,)``."""


class TimeSurrogate(Surrogate):
    """A model of one value, in which the best feasible outcome is to be improved on."""

    def __init__(
        self, axis: ModelledAxis, feasibility: FeasibilityModel, max_observations: int, rng: np.random.Generator
    ) -> None:
        super().__init__([axis], feasibility, max_observations, rng)
        self._axis = axis
        self._best = math.nan

    def _compare(self, outcomes: Mapping[int, Outcome]) -> None:
        known = [outcome for outcome in outcomes.values() if outcome.feasible and outcome.is_known]
        self._best = float(self._axis.of([min(known, key=lambda o: o.value)])[0]) if known else math.nan

    def choose(self, allowed: NDArray[np.bool_]) -> tuple[int, float]:
        """Return position and log value of the candidate of the largest expected improvement, if feasible."""
        limit = self._feasibility.log_probability(allowed)
        mean, deviation = self._axis.at_candidates()
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

    def _promise_at(self, features: Array, codes: Codes) -> Array:
        return self._promise(*self._axis.at(features, codes))

    def _promise(self, mean: Array, deviation: Array) -> Array:
        if math.isnan(self._best):
            return -TIME_WEIGHT * (mean - deviation)
        return log_expected_improvement(mean, deviation, self._best)
