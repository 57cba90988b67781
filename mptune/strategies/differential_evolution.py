"""Differential evolution (Storn & Price 1997, DE/rand/1/bin and DE/best/1/bin) on a constrained grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.base import Array, Options, option
from mptune.strategies.population import PopulationOptions, SwarmStrategy


@dataclass(frozen=True, slots=True)
class DifferentialEvolutionOptions(PopulationOptions):
    """Hyperparameters; weight and crossover are the first suggestion of Storn & Price 1997 for quick convergence."""

    population: int = option(20, "individuals (NP), at least four.", least=4)
    base: str = option("best", "base vector: a random member or the best.", choices=("random", "best"))
    weight: float = option(0.5, "factor of the difference (F).", least=0, most=2)
    crossover: float = option(0.9, "probability that a parameter comes from the mutant (CR).", least=0, most=1)


def mutants(base: Array, first: Array, second: Array, weight: float) -> Array:
    """Return base + F (first - second), clipped to the unit cube; all have shape ``(n, d)``."""
    return np.clip(base + weight * (first - second), 0.0, 1.0)


def crossed(targets: Array, mutated: Array, draws: Array, always: NDArray[np.int64], crossover: float) -> Array:
    """Return the binomial crossover of targets and mutants; all have shape ``(n, d)``.

    Mutants give the coordinates whose draw, uniform in [0, 1), is below CR, and the coordinate ``always``, ``(n,)``.
    """
    chosen = draws < crossover
    chosen[np.arange(len(chosen)), always] = True
    return np.where(chosen, mutated, targets)


class DifferentialEvolutionStrategy(SwarmStrategy):
    """Replaces members by crosses with a mutant, the best member plus the difference of two others, unless worse.

    A cross is evaluated at the nearest valid configuration.
    """

    name: ClassVar[str] = "differential-evolution"
    options_class: ClassVar[type[Options]] = DifferentialEvolutionOptions
    options: DifferentialEvolutionOptions

    def _moved(self, bests: list[int]) -> Array:
        targets = self._points(bests)
        # Three other members for each, distinct in populations of four or more.
        order = np.argsort(self.rng.random((len(bests), len(bests))) + np.eye(len(bests)), axis=1)
        base, first, second = order[:, np.arange(3) % len(bests)].T.copy()
        if self.options.base == "best":
            base[:] = min(range(len(bests)), key=lambda k: self._rank_key(bests[k]))
        mutated = mutants(targets[base], targets[first], targets[second], self.options.weight)
        always = self.rng.integers(targets.shape[1], size=len(targets))
        return crossed(targets, mutated, self.rng.random(targets.shape), always, self.options.crossover)
