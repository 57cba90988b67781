"""Basin hopping on a constrained discrete space.

Wales and Doye, "Global optimization by basin-hopping and the lowest energy structures of Lennard-Jones clusters
containing up to 110 atoms", J. Phys. Chem. A 101 (1997). The random displacement redraws some parameters; the local
minimisation is a climb among valid neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mptune.strategies.base import Options, option
from mptune.strategies.local_search import LocalSearchOptions, LocalSearchStrategy
from mptune.strategies.simulated_annealing import acceptance_probability


@dataclass(frozen=True, slots=True)
class BasinHoppingOptions(LocalSearchOptions):
    """Hyperparameters of climbs and of hops between local optima."""

    perturbation: int = option(3, "most parameters that a hop redraws.", least=1)
    temperature: float = option(0.05, "relative loss accepted with probability 1/e from optimum to optimum.", above=0)


class BasinHoppingStrategy(LocalSearchStrategy):
    """Perturbs a local optimum, climbs from there, and moves to the new optimum by the Metropolis criterion."""

    name: ClassVar[str] = "basin-hopping"
    options_class: ClassVar[type[Options]] = BasinHoppingOptions
    options: BasinHoppingOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._basin: int | None = None
        self._free = np.flatnonzero([len(parameter.values) > 1 for parameter in self.space.parameters])

    def _new_start(self) -> int | None:
        if self._basin is None:
            return None
        codes = self.space.codes([self._basin])
        for position in self.rng.permutation(self._free)[: self.options.perturbation]:
            values = len(self.space.parameters[position].values)
            codes[0, position] = (codes[0, position] + 1 + self.rng.integers(values - 1)) % values
        return int(self.space.nearest_valid(codes, self.rng)[0])

    def _reached(self, optimum: int) -> None:
        current = -math.inf if self._basin is None else self._score(self._basin)
        if self.rng.random() < acceptance_probability(current, self._score(optimum), self.options.temperature):
            self._basin = optimum
