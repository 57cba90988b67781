"""Bayesian optimisation of several objectives: what adds most to the hypervolume of the front.

It is the default strategy with another question. What depends on all parameters (time, energy) has a Gaussian process
of its logarithm, an error is known once its accuracy signature has been measured and modelled before, and what needs no
run (the memory footprint) is known of every configuration. The value of a candidate is the hypervolume it is expected
to add to the front of the feasible trials (Emmerich 2006, Daulton 2020), times its probabilities to run and to meet the
threshold. What is under way counts as if it gave what is expected of it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from mptune.metric_expressions import is_error
from mptune.objective import Objective
from mptune.pareto import front
from mptune.results import Trial
from mptune.strategies.bayesian import BayesianStrategy
from mptune.strategies.model_based.error_model import Signatures
from mptune.strategies.model_based.feasibility import Outcome
from mptune.strategies.model_based.pareto_surrogate import ErrorAxis, KnownAxis, ParetoSurrogate
from mptune.strategies.model_based.surrogate import Axis
from mptune.strategies.moves.dominance import crowding_distances

__all__ = ["BayesianParetoStrategy"]

#: Trials of the front whose neighbours are looked at together.
_MOST_AROUND: Final = 32
#: Decades by which a trial has to be better than the front somewhere for the search to go on as it does.
_NOTHING: Final = 1e-3


class BayesianParetoStrategy(BayesianStrategy):
    """Proposes what is expected to add most to the front of several objectives."""

    name: ClassVar[str] = "bayesian-pareto"
    optimises_several: ClassVar[bool] = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._errors: list[Signatures] = []
        super().__init__(*args, **kwargs)
        self._front = np.empty((0, len(self.objective.metrics)))

    def _make_surrogate(self) -> ParetoSurrogate:
        axes = [self._axis(position, metric) for position, metric in enumerate(self.objective.metrics)]
        return ParetoSurrogate(axes, self._feasibility(), self.options.max_observations, self.rng)

    def _axis(self, position: int, metric: str) -> Axis:
        if metric in self.known:
            return KnownAxis(position, self.known[metric], self.space)
        if is_error(metric) and self.signature and self.objective.minimise:
            # Under a threshold of 1 the excess is the logarithm itself.
            _, _, output = metric.partition(".")
            threshold = Objective(threshold={output: 1.0} if output else 1.0)
            self._errors.append(Signatures(self.space, self.signature, threshold))
            return ErrorAxis(self._errors[-1])
        return self._modelled(position)

    # -- ask and tell --------------------------------------------------------------------------

    @property
    def _observed(self) -> tuple[Signatures, ...]:
        return (*super()._observed, *self._errors)

    def _levels(self, trial: Trial) -> NDArray[np.float64]:
        return np.array(self.objective.levels(trial))

    def _improves(self, outcome: Outcome) -> bool:
        levels = outcome.levels
        if not outcome.feasible or np.isnan(levels).any():
            return False
        # Rounding alone makes errors of one signature differ in their last digits.
        if (self._front <= levels + _NOTHING).all(axis=1).any():
            return False
        left = ~(levels <= self._front).all(axis=1)
        self._front = np.vstack([self._front[left], levels])
        return True

    # -- the model -----------------------------------------------------------------------------

    def _next_neighbour(self) -> int | None:
        """Return the neighbour of largest value of all the front that could add to it."""
        around = [self._free_neighbours(index) for index in self._elite(_MOST_AROUND)]
        indices = np.unique(np.concatenate(around)) if around else np.empty(0, dtype=np.int64)
        if not len(indices):
            return None
        scores = self._scores(indices)
        return int(indices[scores.argmax()]) if scores.max() > -np.inf else None

    def _elite(self, n: int) -> list[int]:
        """Return trials of the front, those with most space around them first; the best where none is feasible."""
        feasible = {
            index: outcome.levels
            for index, outcome in self._outcomes.items()
            if outcome.feasible and not np.isnan(outcome.levels).any()
        }
        if not feasible:
            return super()._elite(n)
        indices, levels = list(feasible), np.array(list(feasible.values()))
        best = front(levels, [True] * levels.shape[1])
        order = np.argsort(-crowding_distances(levels[best]), kind="stable")
        return [indices[position] for position in best[order][:n]]
