"""Differential evolution (Storn & Price 1997, DE/rand/1/bin and DE/best/1/bin) on a constrained grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.base import Array, Options, option
from mptune.strategies.population import PopulationOptions, SwarmStrategy

#: What a difference is added to, by name: a random member or the best.
BASES: Final = ("random", "best")


@dataclass(frozen=True, slots=True)
class DifferentialEvolutionOptions(PopulationOptions):
    """Hyperparameters; weight and crossover are what Storn & Price 1997 suggest to try first for quick convergence."""

    strategy: ClassVar[str] = "differential-evolution"
    population: int = option(20, "individuals (NP), at least four.", least=4)
    base: str = option("best", "what a difference is added to: a random member or the best.", choices=BASES)
    weight: float = option(0.5, "factor of the difference (F).", least=0, most=2)
    crossover: float = option(0.9, "probability that a parameter comes from the mutant (CR).", least=0, most=1)


def mutants(base: Array, first: Array, second: Array, weight: float) -> Array:
    """Return base + F (first - second), kept in the unit cube; all of shape ``(n, d)``."""
    return np.clip(base + weight * (first - second), 0.0, 1.0)


def crossed(targets: Array, mutated: Array, draws: Array, always: NDArray[np.int64], crossover: float) -> Array:
    """Return targets with some of their mutants' coordinates (binomial crossover); all of shape ``(n, d)``.

    A coordinate is the mutant's where the draw, uniform in [0, 1), is below CR, and one, ``(n,)``, is always.
    """
    chosen = draws < crossover
    chosen[np.arange(len(chosen)), always] = True
    return np.where(chosen, mutated, targets)


class DifferentialEvolutionStrategy(SwarmStrategy):
    """Sets every member against a cross of itself with the best, to which the difference of two others was added.

    A cross is evaluated at the valid configuration nearest to it and takes its member's place unless it is worse.
    """

    name: ClassVar[str] = "differential-evolution"
    options_class: ClassVar[type[Options]] = DifferentialEvolutionOptions
    options: DifferentialEvolutionOptions

    def _moved(self, bests: list[int]) -> Array:
        targets = self._points(bests)
        base, first, second = self._donors(len(bests))
        if self.options.base == "best":
            base[:] = min(range(len(bests)), key=lambda k: self._rank_key(bests[k]))
        mutated = mutants(targets[base], targets[first], targets[second], self.options.weight)
        always = self.rng.integers(targets.shape[1], size=len(targets))
        return crossed(targets, mutated, self.rng.random(targets.shape), always, self.options.crossover)

    def _donors(self, size: int) -> NDArray[np.int64]:
        """Draw three members for each, different from it and from each other as far as there are so many, (3, n)."""
        order = np.argsort(self.rng.random((size, size)) + np.eye(size), axis=1)
        return order[:, np.arange(3) % size].T.copy()
