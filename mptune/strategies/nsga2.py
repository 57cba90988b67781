"""NSGA-II: the Pareto front of several objectives, on a constrained discrete space.

Deb, Pratap, Agarwal and Meyarivan, "A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE Transactions on
Evolutionary Computation 6 (2002). Genes are value codes: a mutated one takes any other value of its parameter, and a
child that is not valid becomes the valid configuration nearest to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mptune.results.metric_expressions import is_error
from mptune.results.pareto import front
from mptune.results.trial import Trial
from mptune.strategies.base import Array, Options, option
from mptune.strategies.population import CROSSOVERS, PopulationOptions, PopulationStrategy


@dataclass(frozen=True, slots=True)
class Nsga2Options(PopulationOptions):
    """Hyperparameters."""

    strategy: ClassVar[str] = "nsga2"
    population: int = option(20, "individuals that survive a generation, and children in it.", least=2)
    crossover: str = option("uniform", "single_point, two_point, uniform or disruptive_uniform.", choices=CROSSOVERS)
    crossover_probability: float = option(0.9, "probability that two parents exchange genes at all.", least=0, most=1)
    mutations: float = option(1.0, "how many genes of a child mutate on average.", least=0)


def non_dominated_ranks(costs: Array, violations: Array) -> NDArray[np.int64]:
    """Return the front each row is on: 0 where nothing dominates it, 1 where only rows of front 0 do, and so on.

    A row dominates another when it violates the constraints less; or as much, and is nowhere worse and somewhere
    better. That is Deb's constrained domination, extended to rows that are equally infeasible.

    Args:
        costs: what is minimised, shape ``(n, n_objectives)``; infinities compare like numbers, NaN is not allowed.
        violations: 0 for a feasible row, more the worse it is, shape ``(n,)``.
    """
    ranks = np.zeros(len(costs), dtype=np.int64)
    rank = 0
    for violation in np.unique(violations):
        left = np.flatnonzero(violations == violation)
        while len(left):
            best = front(costs[left], [True] * costs.shape[1])
            ranks[left[best]] = rank
            left = np.delete(left, best)
            rank += 1
    return ranks


def crowding_distances(costs: Array) -> Array:
    """Return how far the neighbours of each row on its front are apart, summed over objectives; infinite at the ends.

    In each objective the gap between the rows before and after counts, relative to the span of the front. An objective
    in which all rows are equal says nothing; an infinite cost lies where the worst (or best) finite one does. Costs are
    of one front, shape ``(n, n_objectives)``, no NaN.
    """
    distances = np.zeros(len(costs))
    for column in costs.T:
        finite = column[np.isfinite(column)]
        if not len(finite) or column.min() == column.max():
            continue
        order = np.argsort(column, kind="stable")
        # Halved, so that the span of costs of both signs does not overflow.
        ordered = np.clip(column[order], finite.min(), finite.max()) / 2
        distances[order[[0, -1]]] = np.inf
        if ordered[-1] > ordered[0]:
            distances[order[1:-1]] += (ordered[2:] - ordered[:-2]) / (ordered[-1] - ordered[0])
    return distances


class Nsga2Strategy(PopulationStrategy):
    """Evolves a population towards the Pareto front of several objectives and along it; one objective joins ``error``.

    Parents win a tournament of two by front, then by crowding distance; parents and children compete for the places in
    the next generation by the same order. Under a threshold a feasible configuration beats an infeasible one, and
    of two infeasible ones the smaller excess wins. A metric that a trial lacks counts as infinite. Errors, and all of
    several objectives, are compared by their logarithm. A late trial competes in the generation in which it arrives.
    """

    name: ClassVar[str] = "nsga2"
    options_class: ClassVar[type[Options]] = Nsga2Options
    options: Nsga2Options
    optimises_several: ClassVar[bool] = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._costs: dict[int, tuple[float, ...]] = {}
        self._violations: dict[int, float] = {}
        self._arrived: list[int] = []
        self._parents: list[int] = []

    def _learn(self, indices: list[int], trials: Sequence[Trial]) -> None:
        super()._learn(indices, trials)
        for index, trial in zip(indices, trials, strict=True):
            self._costs[index] = self._costs_of(trial)
            self._violations[index] = max(self.objective.log10_excess(trial), 0.0)
            self._arrived.append(index)

    def _costs_of(self, trial: Trial) -> tuple[float, ...]:
        """Return what is minimised, infinite where it is not known."""
        objective = self.objective
        if objective.also:
            costs = objective.levels(trial)
        else:
            value = objective.value(trial)
            value = _log10(value) if is_error(objective.metric) else value
            own = value if objective.minimise else -value
            costs = (own,) if objective.metric == "error" else (own, _log10(trial.error))
        return tuple(math.inf if math.isnan(cost) or not trial.is_valid else cost for cost in costs)

    def _evolved(self) -> list[int]:
        """Return the children of the fittest of all that competed."""
        rivals = dict.fromkeys([*self._arrived, *(index for index in self._population if index in self._costs)])
        self._arrived = []
        if rivals:
            self._select(list(rivals))
        if len(self._parents) < 2:
            drawn: list[int] = self.space.sample(self.options.population, self.rng).tolist()
            return drawn
        return self._children()

    def _select(self, newcomers: Sequence[int]) -> None:
        """Keep the fittest of parents and newcomers as parents, the fittest first."""
        rivals = list(dict.fromkeys([*self._parents, *newcomers]))
        costs, violations = (np.array([of[index] for index in rivals]) for of in (self._costs, self._violations))
        ranks = non_dominated_ranks(costs, violations)
        crowding = np.empty(len(rivals))
        for rank in range(ranks.max() + 1):
            crowding[ranks == rank] = crowding_distances(costs[ranks == rank])
        order = np.lexsort((-crowding, ranks))[: self.options.population]
        self._parents = [rivals[at] for at in order]

    def _children(self) -> list[int]:
        codes = self.space.codes(self._parents)
        cross = CROSSOVERS[self.options.crossover]
        children: list[NDArray[np.int32]] = []
        while len(children) < self.options.population:
            first, second = codes[self._winner()], codes[self._winner()]
            crosses = self.rng.random() < self.options.crossover_probability
            children += cross(first, second, self.rng) if crosses else (first, second)
        mutated = self._mutated(np.stack(children[: self.options.population]))
        found: list[int] = self.space.nearest_valid(mutated, self.rng).tolist()
        return found

    def _winner(self) -> int:
        """Return the position of the fitter of two random parents."""
        return int(self.rng.integers(len(self._parents), size=2).min())

    def _mutated(self, children: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return children in which each gene has taken another value of its parameter with the same probability."""
        sizes = np.array([len(parameter.values) for parameter in self.space.parameters])
        free = sizes > 1
        mutates = free & (self.rng.random(children.shape) * max(int(free.sum()), 1) < self.options.mutations)
        other = (children + self.rng.integers(1, np.maximum(sizes, 2), size=children.shape)) % sizes
        return np.where(mutates, other, children).astype(np.int32)


def _log10(value: float) -> float:
    return math.log10(value) if value > 0 else -math.inf if value <= 0 else math.nan
