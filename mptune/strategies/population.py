"""Population-based strategies: generations, crossovers, and positions in the unit cube."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.base import Array, Codes, Indices, Options, ScoredStrategy, option

#: Generations without a new configuration after which a random configuration joins.
_STALLED_GENERATIONS: Final = 3
#: Largest change of a value code in repair.
_REACH: Final = 32
_SAME_DISTANCE: Final = 1e-9


def _half_of_differing(a: Codes, b: Codes, rng: np.random.Generator) -> NDArray[np.bool_]:
    differing = np.flatnonzero(a != b)
    return np.isin(np.arange(len(a)), rng.permutation(differing)[: (len(differing) + 1) // 2])


#: Choice of the parameters that two parents exchange, ``(d,)``, by name of the crossover.
CROSSOVERS: Final[dict[str, Callable[[Codes, Codes, np.random.Generator], NDArray[np.bool_]]]] = {
    "single_point": lambda a, _, rng: np.arange(len(a)) >= rng.integers(1, max(len(a), 2)),
    "two_point": lambda a, _, rng: np.isin(np.arange(len(a)), np.arange(*np.sort(rng.integers(0, len(a) + 1, size=2)))),
    "uniform": lambda a, _, rng: rng.random(len(a)) < 0.5,
    "disruptive_uniform": _half_of_differing,
}


def children_of(crossover: str, a: Codes, b: Codes, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Return the two children of two parents."""
    swap = CROSSOVERS[crossover](a, b, rng)
    return np.where(swap, b, a), np.where(swap, a, b)


@dataclass(frozen=True, slots=True)
class PopulationOptions(Options):
    """Hyperparameters of all population-based strategies."""

    population: int = option(20, "individuals in a generation.", least=1)


class PopulationStrategy(ScoredStrategy):
    """Evolves a population in generations.

    At most half of the first generation are the best trials told before (a resumed run, the baseline); the rest is
    random. Members evaluated before keep their score. If several generations have no new member, a random configuration
    joins. A late trial counts as a failure until the next generation.
    """

    options: PopulationOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._population: list[int] = []
        self._waiting: list[int] = []

    @abstractmethod
    def _evolved(self) -> list[int]:
        """Return the next generation from the population and the scores."""

    def _initialise(self) -> None:
        """Initialise the state of the members of the first generation."""

    def _admit(self, index: int) -> None:
        """Replace a member by a random configuration."""
        self._population[-1] = index

    def _next(self) -> int:
        stalled = 0
        while self._seen.issuperset(self._waiting):
            if self._population:
                self._population = self._evolved()
                stalled += 1
            else:
                known = sorted(self._scores, key=self._rank_key)[: self.options.population // 2]
                wanted = min(self.options.population, self.space.size) - len(known)
                self._population = known + self.space.sample(wanted, self.rng, exclude=set(known)).tolist()
                self._initialise()
            self._waiting = self._population.copy()
            if stalled >= _STALLED_GENERATIONS and self._seen.issuperset(self._waiting):
                self._waiting = self.space.sample(1, self.rng, exclude=self._seen).tolist()
                self._admit(self._waiting[0])
        return next(index for index in self._waiting if index not in self._seen)


class SwarmStrategy(PopulationStrategy):
    """Evolves a population of positions in the unit cube, with an axis for each parameter and evenly spaced values.

    An individual is evaluated at the valid configuration nearest to its position. Parameters changed by this repair are
    changed in the position, too.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._largest = np.array([len(p.values) - 1 for p in self.space.parameters], dtype=np.int32)
        self._scale = np.maximum(self._largest, 1).astype(np.float64)
        self._ordered = np.array([p.is_ordered for p in self.space.parameters])
        reaches = [min(int(largest), _REACH) for largest in self._largest]
        changes = [(column, step) for column, reach in enumerate(reaches) for step in range(-reach, reach + 1) if step]
        #: Parameters, and the changes of their value codes that repair tries.
        self._changes = np.array(changes, dtype=np.int32).reshape(-1, 2).T
        self._positions: Array = np.empty((0, 0))
        #: The best configuration of each individual, then its later configurations with pending trials.
        self._visited: list[list[int]] = []

    @abstractmethod
    def _moved(self, bests: list[int]) -> Array:
        """Return the positions of the next generation, given the best configuration of each individual."""

    def _initialise(self) -> None:
        self._visited = [[index] for index in self._population]
        self._positions = self._points(self._population)

    def _admit(self, index: int) -> None:
        self._replace(max(range(len(self._visited)), key=lambda k: self._rank_key(self._visited[k][0])), index)

    def _replace(self, position: int, index: int) -> None:
        self._population[position] = index
        self._visited[position] = [index]
        self._positions[position] = self._points([index])[0]

    def _evolved(self) -> list[int]:
        for k, visited in enumerate(self._visited):
            # The latest of ties wins, so individuals drift.
            best = max(reversed(visited), key=self._score)
            best = best if best in self._scores else visited[0]
            self._visited[k] = [best, *(index for index in visited if index not in self._scores and index != best)]
        moved = self._moved([visited[0] for visited in self._visited])
        members: list[int] = self._nearest(moved).tolist()
        targets = self._points(members)
        rounds_elsewhere = np.abs(moved - targets) * self._scale > 0.5 + _SAME_DISTANCE
        self._positions = np.where(rounds_elsewhere, targets, moved)
        for visited, index in zip(self._visited, members, strict=True):
            visited.append(index)
        return members

    def _points(self, indices: Sequence[int]) -> Array:
        return self.space.codes(np.asarray(indices, dtype=np.int64)) / self._scale

    def _nearest(self, points: Array) -> Indices:
        """Return the index of a valid configuration at or near each position; halves are rounded at random."""
        steps = points * self._scale
        nudged = steps + np.where(self.rng.random(steps.shape) < 0.5, _SAME_DISTANCE, -_SAME_DISTANCE)
        codes = np.clip(np.rint(nudged), 0, self._largest).astype(np.int32)
        found = self.space.indices_of(codes)
        invalid = np.flatnonzero(found < 0)
        further = self.space.codes(self.space.nearest_valid(codes[invalid], self.rng))
        columns, by = self._changes
        # Repair: the nearest of the further one and those with a single changed parameter. All values of an unordered
        # parameter are equally far. Ties are broken at random.
        for row, other in zip(invalid, further, strict=True):
            variants = np.vstack([np.tile(codes[row], (len(columns), 1)), other])
            variants[np.arange(len(columns)), columns] += by
            repaired = self.space.indices_of(variants)
            offsets = np.where(self._ordered, variants / self._scale - points[row], variants != codes[row])
            distances = np.where(repaired >= 0, np.square(offsets).sum(axis=1), math.inf)
            found[row] = repaired[self.rng.choice(np.flatnonzero(distances <= distances.min() + _SAME_DISTANCE))]
        return found
