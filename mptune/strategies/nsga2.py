"""NSGA-II: the Pareto front of several metrics, on a constrained discrete space.

Deb, Pratap, Agarwal and Meyarivan, "A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE Transactions on
Evolutionary Computation 6 (2002). Genes are value codes: a mutated one takes any other value of its parameter, and a
child that is not valid becomes the valid configuration nearest to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import UnknownNameError
from mptune.objective import Objective
from mptune.results import Status, Trial
from mptune.strategies.base import Options, require
from mptune.strategies.genetic import CROSSOVERS
from mptune.strategies.moves.dominance import crowding_distances, non_dominated_ranks
from mptune.strategies.moves.population import PopulationOptions, PopulationStrategy

__all__ = ["Nsga2Options", "Nsga2Strategy"]

#: Configurations compared with each other at a time, which takes the square of it in memory.
_POOL: Final = 1000


@dataclass(frozen=True, slots=True)
class Nsga2Options(PopulationOptions):
    """Hyperparameters.

    Attributes:
        population: individuals that survive a generation, and children in it.
        objectives: names of the metrics to minimise, separated by commas; the metric of the search's own objective
            has the direction it has there. Empty: that one and ``error``.
        crossover: single_point, two_point, uniform or disruptive_uniform.
        crossover_probability: of two parents to exchange genes at all.
        mutations: genes of a child that mutate, in the mean.
    """

    population: int = 20
    objectives: str = ""
    crossover: str = "uniform"
    crossover_probability: float = 0.9
    mutations: float = 1.0

    def __post_init__(self) -> None:
        name = "nsga2"
        require(name, self, "population", 2 <= self.population <= _POOL, f"2 to {_POOL}")
        listed = not self.objectives.strip() or all(part.strip() for part in self.objectives.split(","))
        require(name, self, "objectives", listed, "names of metrics separated by commas")
        if self.crossover not in CROSSOVERS:
            raise UnknownNameError(f"crossover of strategy {name}:", self.crossover, CROSSOVERS)
        require(name, self, "crossover_probability", 0.0 <= self.crossover_probability <= 1.0, "0 to 1")
        require(name, self, "mutations", 0.0 <= self.mutations < math.inf, "a number that is not negative")

    def metrics(self, objective: Objective) -> tuple[str, ...]:
        """Return the names of the metrics to optimise, each once."""
        named = [part.strip() for part in self.objectives.split(",")] if self.objectives.strip() else []
        return tuple(dict.fromkeys(named or (objective.metric, "error")))


class Nsga2Strategy(PopulationStrategy):
    """Evolves a population towards the Pareto front of several metrics and along it.

    Parents win a tournament of two by front, then by crowding distance; parents and children compete for the places in
    the next generation by the same order. Under a threshold a feasible configuration beats an infeasible one, and
    of two infeasible ones that with the smaller excess wins. A metric that a trial lacks is as bad as can be.
    Errors are compared by their logarithm. A trial that comes late competes in the generation it arrives in.
    """

    name: ClassVar[str] = "nsga2"
    options_class: ClassVar[type[Options]] = Nsga2Options
    options: Nsga2Options

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._metrics = self.options.metrics(self.objective)
        self._recorded: set[str] = set()
        self._costs: dict[int, tuple[float, ...]] = {}
        self._violations: dict[int, float] = {}
        self._arrived: list[int] = []
        self._parents: list[int] = []

    # -- costs ----------------------------------------------------------------------------------

    def _learn(self, indices: list[int], trials: Sequence[Trial]) -> None:
        super()._learn(indices, trials)
        for index, trial in zip(indices, trials, strict=True):
            self._costs[index] = tuple(self._cost(trial, name) for name in self._metrics)
            self._violations[index] = max(self.objective.log10_excess(trial), 0.0)
            self._arrived.append(index)
            if trial.status is Status.OK:
                self._recorded.update(trial.measurement.metrics)

    def _cost(self, trial: Trial, name: str) -> float:
        """Return what is minimised, infinite where it is not known."""
        is_own = name == self.objective.metric
        value = self.objective.value(trial) if is_own else trial.metric(name)
        if not trial.is_valid or math.isnan(value):
            return math.inf
        if name == "error" or name.startswith("error."):
            value = math.log10(value) if value > 0 else -math.inf
        return value if self.objective.minimise or not is_own else -value

    def _require_recorded(self) -> None:
        """Refuse a metric that was asked for by name and that no trial has.

        Raises:
            UnknownNameError: lists the metrics trials have.
        """
        if self._recorded and self.options.objectives.strip():
            for name in self._metrics:
                if name not in self._recorded and name != self.objective.metric:
                    raise UnknownNameError("metric in option objectives of strategy nsga2:", name, self._recorded)

    # -- evolution ------------------------------------------------------------------------------

    def _admit(self, index: int) -> None:
        self._population[-1] = index

    def _evolved(self) -> list[int]:
        """Return the children of the fittest of all that competed."""
        self._require_recorded()
        rivals = dict.fromkeys([*self._arrived, *(index for index in self._population if index in self._costs)])
        self._arrived = []
        newcomers = list(rivals)
        for start in range(0, len(newcomers), _POOL):
            self._select(newcomers[start : start + _POOL])
        if len(self._parents) < 2:
            return [int(index) for index in self.space.sample(self.options.population, self.rng)]
        return self._children()

    def _select(self, newcomers: Sequence[int]) -> None:
        """Keep the fittest of parents and newcomers as parents, the fittest first."""
        rivals = np.array(list(dict.fromkeys([*self._parents, *newcomers])), dtype=np.int64)
        costs = np.array([self._costs[index] for index in rivals.tolist()])
        violations = np.array([self._violations[index] for index in rivals.tolist()])
        ranks = non_dominated_ranks(costs, violations)
        crowding = np.empty(len(rivals))
        for rank in range(ranks.max() + 1):
            crowding[ranks == rank] = crowding_distances(costs[ranks == rank])
        order = np.lexsort((-crowding, ranks))[: self.options.population]
        self._parents = rivals[order].tolist()

    def _children(self) -> list[int]:
        codes = self.space.codes(self._parents)
        cross = CROSSOVERS[self.options.crossover]
        children: list[NDArray[np.int32]] = []
        while len(children) < self.options.population:
            first, second = codes[self._winner()], codes[self._winner()]
            crosses = self.rng.random() < self.options.crossover_probability
            children += cross(first, second, self.rng) if crosses else (first, second)
        mutated = self._mutated(np.stack(children[: self.options.population]))
        return [int(index) for index in self.space.nearest_valid(mutated, self.rng)]

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
