"""NSGA-II: the Pareto front of several objectives, on a constrained discrete space.

Deb, Pratap, Agarwal and Meyarivan, "A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE Transactions on
Evolutionary Computation 6 (2002). Genes are value codes. A mutated gene takes any other value of its parameter; an
invalid child is replaced by the nearest valid configuration.
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
from mptune.strategies.population import CROSSOVERS, PopulationOptions, PopulationStrategy, children_of


@dataclass(frozen=True, slots=True)
class Nsga2Options(PopulationOptions):
    """Hyperparameters."""

    population: int = option(20, "survivors, and children, of a generation.", least=2)
    crossover: str = option("uniform", "single_point, two_point, uniform or disruptive_uniform.", choices=CROSSOVERS)
    crossover_probability: float = option(0.9, "probability that two parents exchange genes.", least=0, most=1)
    mutations: float = option(1.0, "mean number of mutated genes in a child.", least=0)


def non_dominated_ranks(costs: Array, violations: Array) -> NDArray[np.int64]:
    """Return the front of each row: 0 for non-dominated rows, 1 for rows dominated by front 0 only, and so on.

    Deb's constrained domination: a row dominates another one with a larger violation. With equal violations, it
    dominates if it is nowhere worse and somewhere better.

    Args:
        costs: minimised, shape ``(n, n_objectives)``; infinities compare like numbers, NaN is not allowed.
        violations: 0 for feasible rows, else positive, shape ``(n,)``.
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
    """Return the gap between the neighbours of each row of one front, summed over objectives; infinite at the ends.

    Gaps are relative to the span of the front in an objective. Constant objectives are ignored; infinite costs count as
    the worst (or best) finite cost. Costs have shape ``(n, n_objectives)`` and no NaN.
    """
    distances = np.zeros(len(costs))
    for column in costs.T:
        finite = column[np.isfinite(column)]
        if not len(finite) or column.min() == column.max():
            continue
        order = np.argsort(column, kind="stable")
        # Halved: the span between costs of opposite sign could overflow.
        ordered = np.clip(column[order], finite.min(), finite.max()) / 2
        distances[order[[0, -1]]] = np.inf
        if ordered[-1] > ordered[0]:
            distances[order[1:-1]] += (ordered[2:] - ordered[:-2]) / (ordered[-1] - ordered[0])
    return distances


class Nsga2Strategy(PopulationStrategy):
    """Evolves a population towards the Pareto front of several objectives; a single objective is joined by ``error``.

    Parents win a tournament of two by front, then by crowding distance. Parents and children compete for places in the
    next generation by the same order. The violation is the excess over the threshold. A missing metric counts as
    infinite. Errors, and all of several objectives, are compared by logarithm. A late trial competes in the generation
    in which it arrives.
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
        objective = self.objective
        for index, trial in zip(indices, trials, strict=True):
            if objective.also:
                costs = objective.levels(trial)
            else:
                value = objective.value(trial)
                value = _log10(value) if is_error(objective.metric) else value
                own = value if objective.minimise else -value
                costs = (own,) if objective.metric == "error" else (own, _log10(trial.error))
            is_valid = trial.is_valid
            self._costs[index] = tuple(cost if is_valid and not math.isnan(cost) else math.inf for cost in costs)
            self._violations[index] = max(objective.log10_excess(trial), 0.0)
            self._arrived.append(index)

    def _evolved(self) -> list[int]:
        rivals = dict.fromkeys([*self._arrived, *(index for index in self._population if index in self._costs)])
        self._arrived = []
        if rivals:
            # The fittest of parents and newcomers become parents, the fittest first.
            rivals = dict.fromkeys([*self._parents, *rivals])
            costs, violations = (np.array([of[index] for index in rivals]) for of in (self._costs, self._violations))
            ranks = non_dominated_ranks(costs, violations)
            crowding = np.empty(len(rivals))
            for rank in range(ranks.max() + 1):
                crowding[ranks == rank] = crowding_distances(costs[ranks == rank])
            order = np.lexsort((-crowding, ranks))[: self.options.population]
            self._parents = [list(rivals)[at] for at in order]
        if len(self._parents) < 2:
            drawn: list[int] = self.space.sample(self.options.population, self.rng).tolist()
            return drawn
        codes = self.space.codes(self._parents)
        children: list[NDArray[np.int32]] = []
        while len(children) < self.options.population:
            # Two tournaments of two; parents are sorted, the fittest first.
            a, b = (codes[int(self.rng.integers(len(codes), size=2).min())] for _ in range(2))
            crosses = self.rng.random() < self.options.crossover_probability
            children += children_of(self.options.crossover, a, b, self.rng) if crosses else (a, b)
        mutated = self._mutated(np.stack(children[: self.options.population]))
        found: list[int] = self.space.nearest_valid(mutated, self.rng).tolist()
        return found

    def _mutated(self, children: NDArray[np.int32]) -> NDArray[np.int32]:
        sizes = np.array([len(parameter.values) for parameter in self.space.parameters])
        free = sizes > 1
        mutates = free & (self.rng.random(children.shape) * max(int(free.sum()), 1) < self.options.mutations)
        other = (children + self.rng.integers(1, np.maximum(sizes, 2), size=children.shape)) % sizes
        return np.where(mutates, other, children).astype(np.int32)


def _log10(value: float) -> float:
    return math.log10(value) if value > 0 else -math.inf if value <= 0 else math.nan
