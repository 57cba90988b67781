"""A recorded space as a tool that looks for a front sees it: a table of configurations and the levels of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.problem import Counter, Problem
from mptune.results.metric_expressions import chosen_objectives
from mptune.results.objective import Objective
from mptune.results.pareto import FrontScale, front
from mptune.run import Run

__all__ = ["FrontProblem", "FrontRecorder"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FrontProblem:
    """What a tool has to find the front of.

    Attributes:
        problem: configurations and parameters.
        levels: log10 of each objective, less is better, ``(n, n_objectives)``.
        scale: on which fronts are compared.
    """

    problem: Problem
    levels: Array
    scale: FrontScale

    @classmethod
    def of(cls, recorded: Run, objectives: tuple[str, ...]) -> FrontProblem:
        """Return the problem of a recorded space in which everything ran."""
        first, *also = chosen_objectives("time", objectives)
        objective = Objective(first, also=tuple(also))
        trials = recorded.indexed
        levels = np.array([objective.levels(trial) for trial in trials])
        return cls(Problem.from_recorded(recorded, objective), levels, FrontScale.of(levels))


class FrontRecorder(Counter):
    """Keeps the hypervolume of the front of what a tool evaluates, as a share of the recorded front's.

    Args:
        problem: what the tool has to find the front of.
        budget: unique recorded configurations the tool may run.
        patience: proposals in a row without a new configuration after which the tool is stopped.
    """

    def __init__(self, problem: FrontProblem, budget: int, patience: int = 20_000) -> None:
        super().__init__(min(budget, len(problem.levels)), patience)
        self.problem = problem
        self.shares: list[float] = []
        self._front: Array = np.empty((0, problem.levels.shape[1]))

    def propose(self, configuration: tuple[Any, ...]) -> Array | None:
        """Return the levels of a configuration, None if it is not recorded, which costs no evaluation.

        Raises:
            BudgetSpent: the budget was spent before, or nothing new has come for too long.
        """
        self.count_proposal()
        row = self.problem.problem.row_of.get(configuration)
        if row is None:
            return None
        if self.is_new(row):
            levels = np.vstack([self._front, self.problem.levels[row]])
            self._front = levels[front(levels, [True] * levels.shape[1])]
            self.shares.append(self.problem.scale.share(self._front))
        return np.asarray(self.problem.levels[row])
