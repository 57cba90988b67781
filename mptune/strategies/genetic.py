"""Genetic algorithm (Heldens 2026, Sec. III-E, hyperparameters of Table III)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mptune.strategies.base import Codes, Options, option
from mptune.strategies.population import CROSSOVERS, PopulationOptions, PopulationStrategy, children_of


@dataclass(frozen=True, slots=True)
class GeneticOptions(PopulationOptions):
    """Hyperparameters with the defaults of Heldens 2026, Table III."""

    population: int = option(26, "individuals in a generation.", least=2)
    crossover: str = option(
        "single_point", "single_point, two_point, uniform or disruptive_uniform.", choices=CROSSOVERS
    )
    mutation: float = option(55.0, "an individual mutates with probability 1/mutation.", least=1)
    pressure: float = option(
        2.5, "selection pressure: ranks x have density pressure (1 - x)^(pressure - 1); 1: uniform.", least=1
    )


class GeneticStrategy(PopulationStrategy):
    """Evolves a population replaced by its children in every generation.

    Parents are drawn by rank, so the magnitude of scores has no influence. An invalid child is replaced by the nearest
    valid configuration.
    """

    name: ClassVar[str] = "genetic"
    options_class: ClassVar[type[Options]] = GeneticOptions
    options: GeneticOptions

    def _evolved(self) -> list[int]:
        ranked = sorted(self._population, key=self._rank_key)
        parents = self.space.codes(np.array(ranked, dtype=np.int64))
        codes: list[Codes] = []
        while len(codes) < self.options.population:
            drawn = (self.rng.beta(1.0, self.options.pressure, size=2) * len(ranked)).astype(int)
            first, second = np.minimum(drawn, len(ranked) - 1).tolist()
            if first == second and len(ranked) > 1:
                second = (first + 1 + int(self.rng.integers(len(ranked) - 1))) % len(ranked)
            codes += children_of(self.options.crossover, parents[first], parents[second], self.rng)
        children = self.space.nearest_valid(np.stack(codes[: self.options.population]), self.rng)
        return [self._mutated(index) for index in children.tolist()]

    def _mutated(self, index: int) -> int:
        """Return a random valid Hamming neighbour with the probability of a mutation, else the individual."""
        if self.rng.random() * self.options.mutation >= 1.0:
            return index
        neighbours = self.space.neighbours(index, "hamming")
        return int(self.rng.choice(neighbours)) if len(neighbours) else index
