"""A recorded space as a peer sees it: a table of configurations and what each costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.results.objective import Objective
from mptune.run import Run
from mptune.space.configuration import Value

__all__ = ["BudgetSpent", "Counter", "Problem", "Recorder"]


class BudgetSpent(Exception):
    """Raised out of a tool that asks for one evaluation more than it has."""


@dataclass(frozen=True)
class Problem:
    """What a tool has to minimise.

    Attributes:
        name: name of the space.
        names: names of the parameters.
        kinds: kinds of the parameters ("ordinal", "categorical", ...).
        values: values of each parameter, in ascending order where they have one.
        configurations: one row of values per recorded configuration; nothing else can be run.
        costs: what each configuration costs, shape ``(n,)``; NaN where it failed on the device or is too inaccurate.
    """

    name: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]
    configurations: tuple[tuple[Value, ...], ...]
    costs: NDArray[np.float64]

    @classmethod
    def from_recorded(cls, recorded: Run, objective: Objective) -> Problem:
        """Return the problem of a recorded space under an objective that is minimised."""
        parameters = recorded.space.parameters
        trials = recorded.indexed
        rows = [trial.configuration.subset(recorded.space.names) for trial in trials]
        costs = [objective.value(trial) if objective.is_feasible(trial) else np.nan for trial in trials]
        return cls(
            recorded.name,
            recorded.space.names,
            tuple(parameter.kind for parameter in parameters),
            tuple(parameter.values for parameter in parameters),
            tuple(rows),
            np.array(costs, dtype=np.float64),
        )

    @cached_property
    def row_of(self) -> dict[tuple[Value, ...], int]:
        """Row of each recorded configuration."""
        return {configuration: row for row, configuration in enumerate(self.configurations)}

    def is_valid(self, configuration: tuple[Any, ...]) -> bool:
        """Whether a configuration meets the known constraints, which is to be recorded."""
        return configuration in self.row_of


class Counter:
    """Counts the evaluations of a tool: each recorded configuration once, and only so many.

    Args:
        budget: unique recorded configurations the tool may run.
        patience: proposals in a row without a new configuration after which the tool is stopped.
    """

    def __init__(self, budget: int, patience: int) -> None:
        self.budget = budget
        self.proposals = 0
        self._patience = patience
        self._since_new = 0
        self._seen: set[int] = set()

    @property
    def done(self) -> bool:
        """Whether the budget is spent."""
        return len(self._seen) >= self.budget

    def count_proposal(self) -> None:
        """Count a proposal, whether it can be run or not.

        Raises:
            BudgetSpent: nothing new has come for too long.
        """
        self.proposals += 1
        self._since_new += 1
        if self._since_new > self._patience:
            raise BudgetSpent

    def is_new(self, row: int) -> bool:
        """Count the evaluation of a recorded configuration; return whether it is the first of it.

        Raises:
            BudgetSpent: it is, and the budget was spent before.
        """
        if row in self._seen:
            return False
        if self.done:
            raise BudgetSpent
        self._seen.add(row)
        self._since_new = 0
        return True


class Recorder(Counter):
    """Keeps the best so far of what a tool evaluates.

    Args:
        problem: what is minimised.
        budget: unique recorded configurations the tool may run.
        patience: proposals in a row without a new configuration after which the tool is stopped.
    """

    def __init__(self, problem: Problem, budget: int, patience: int = 20_000) -> None:
        super().__init__(min(budget, len(problem.configurations)), patience)
        self.problem = problem
        self.best: list[float | None] = []

    def propose(self, configuration: tuple[Any, ...]) -> float | None:
        """Evaluate a configuration the tool proposes; return its cost, None when it failed on the device.

        Raises:
            BudgetSpent: the budget was spent before, or nothing new has come for too long.
            KeyError: the configuration breaks a known constraint.
        """
        self.count_proposal()
        row = self.problem.row_of[configuration]
        cost = float(self.problem.costs[row])
        failed = cost != cost
        if self.is_new(row):
            last = self.best[-1] if self.best else None
            self.best.append(last if failed else cost if last is None else min(last, cost))
        return None if failed else cost
