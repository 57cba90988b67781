"""What a Bayesian strategy believes of the candidates, kept up to date: what each promises, and its chances."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.models.acquisition import log_expected_improvement, log_improvement_bound
from mptune.strategies.models.candidates import Candidates
from mptune.strategies.models.chances import Chances, Outcome, chosen
from mptune.strategies.models.value_model import ValueModel

__all__ = ["TIME_WEIGHT", "Surrogate", "TimeSurrogate"]

Array = NDArray[np.float64]
Learnt = TypeVar("Learnt", bound=Outcome)

#: While nothing feasible is known: worth of one deviation of predicted time against log probability.
TIME_WEIGHT: Final = 0.25


class Surrogate(ABC, Generic[Learnt]):
    """Models over a set of candidates; a subclass models what is optimised.

    Args:
        chances: probability to be feasible.
        max_observations: most a model holds.
        rng: chooses which observations a full model leaves out.
    """

    def __init__(self, chances: Chances, max_observations: int, rng: np.random.Generator) -> None:
        self._chances = chances
        self._max_observations = max_observations
        self._rng = rng
        self._learnt: set[int] = set()
        #: Indices of the configurations that count as evaluated though they are not.
        self.imagined: set[int] = set()

    def rebuild(self, candidates: Candidates, outcomes: Mapping[int, Learnt]) -> None:
        """Fit everything anew, over these candidates."""
        known = [o for o in outcomes.values() if o.is_known]
        self._fit(candidates, chosen(known, self._max_observations, self._rng))
        self._chances.rebuild(candidates, outcomes)
        self._learnt, self.imagined = set(outcomes), set()
        self._compare(outcomes)

    def extend(self, outcomes: Mapping[int, Learnt]) -> None:
        """Learn the outcomes that are new since the last call, hyperparameters as they are."""
        new = {index: outcome for index, outcome in outcomes.items() if index not in self._learnt}
        if not new:
            return
        self._forget_imagined()
        self.imagined = set()
        for outcome in new.values():
            if outcome.is_known:
                self._append(outcome)
        self._chances.extend(list(new.values()), outcomes)
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
        return self._choose(self._chances.log_probability(allowed))

    def scores_at(self, features: Array, codes: NDArray[np.int32]) -> Array:
        """Return the log value of other configurations; features ``(n, k)``, value codes ``(n, d)``."""
        return self._chances.weigh(self._promise_at(features, codes), features, codes)

    # -- for subclasses ------------------------------------------------------------------------

    @abstractmethod
    def _fit(self, candidates: Candidates, known: Sequence[Learnt]) -> None:
        """Fit the models anew; nothing is imagined any more."""

    @abstractmethod
    def _append(self, outcome: Learnt) -> None:
        """Take in one more outcome, hyperparameters as they are."""

    @abstractmethod
    def _imagine(self, features: Array, codes: NDArray[np.int32]) -> None:
        """Take in the expected outcome of a configuration."""

    @abstractmethod
    def _forget_imagined(self) -> None:
        """Take back what was imagined."""

    @abstractmethod
    def _compare(self, outcomes: Mapping[int, Learnt]) -> None:
        """Find out what there is to be improved on."""

    @abstractmethod
    def _choose(self, limit: Array) -> tuple[int, float]:
        """Return position and log value of the best candidate, ``limit`` being the log of their chances."""

    @abstractmethod
    def _promise_at(self, features: Array, codes: NDArray[np.int32]) -> Array:
        """Return the log of what other configurations promise if they are feasible, shape ``(n,)``."""


class TimeSurrogate(Surrogate[Outcome]):
    """A model of one value, in which the best feasible outcome is to be improved on.

    Args:
        model: of the value.
        chances: probability to be feasible.
        max_observations: most a model holds.
        rng: chooses which observations a full model leaves out.
    """

    def __init__(self, model: ValueModel, chances: Chances, max_observations: int, rng: np.random.Generator) -> None:
        super().__init__(chances, max_observations, rng)
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
