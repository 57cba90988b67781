"""Shared parts of strategies that evolve a population: generations, crossovers, and points in the unit cube."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.base import Array, Codes, Indices, Options, ScoredStrategy, option

#: Generations without a new configuration after which a random one joins.
_STALLED_GENERATIONS: Final = 3
#: How far up and down repair looks for a value: a parameter of a million values is no more work than one of 65.
_REACH: Final = 32
_SAME_DISTANCE: Final = 1e-9


def _exchanged(a: Codes, b: Codes, swap: NDArray[np.bool_]) -> tuple[Codes, Codes]:
    return np.where(swap, b, a), np.where(swap, a, b)


def _single_point(a: Codes, b: Codes, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Exchange everything after one cut."""
    return _exchanged(a, b, np.arange(len(a)) >= rng.integers(1, max(len(a), 2)))


def _two_point(a: Codes, b: Codes, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Exchange what lies between two cuts."""
    low, high = np.sort(rng.integers(0, len(a) + 1, size=2))
    return _exchanged(a, b, (np.arange(len(a)) >= low) & (np.arange(len(a)) < high))


def _uniform(a: Codes, b: Codes, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Exchange each parameter with probability one half."""
    return _exchanged(a, b, rng.random(len(a)) < 0.5)


def _disruptive_uniform(a: Codes, b: Codes, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Exchange exactly half of the parameters that differ, so that no child equals a parent."""
    differing = np.flatnonzero(a != b)
    half = rng.permutation(differing)[: (len(differing) + 1) // 2]
    return _exchanged(a, b, np.isin(np.arange(len(a)), half))


#: How two parents give two children, by name.
CROSSOVERS: Final[dict[str, Callable[[Codes, Codes, np.random.Generator], tuple[Codes, Codes]]]] = {
    "single_point": _single_point,
    "two_point": _two_point,
    "uniform": _uniform,
    "disruptive_uniform": _disruptive_uniform,
}


@dataclass(frozen=True, slots=True)
class PopulationOptions(Options):
    """Hyperparameters that all of these strategies have."""

    population: int = option(20, "individuals in a generation.", least=1)


class PopulationStrategy(ScoredStrategy):
    """Evolves a population, one generation after the other.

    The first generation is what is known already (a resumed run, the baseline's trials), the best of it and at most
    half, filled up with random configurations. A member that was evaluated before has the score it has and costs
    nothing; when several generations bring nothing new, a random configuration joins. A trial that comes late takes
    effect from the next generation on; until then its configuration counts as a failure does.
    """

    options: PopulationOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._population: list[int] = []
        self._waiting: list[int] = []

    @abstractmethod
    def _evolved(self) -> list[int]:
        """Return the next generation, made from the population and the scores."""

    def _started(self) -> None:
        """Prepare what belongs to the members of the first generation."""

    def _admit(self, index: int) -> None:
        """Let a random configuration take a member's place."""
        self._population[-1] = index

    def _next(self) -> int:
        stalled = 0
        while self._seen.issuperset(self._waiting):
            if self._population:
                self._population = self._evolved()
                stalled += 1
            else:
                self._population = self._first_generation()
                self._started()
            self._waiting = self._population.copy()
            if stalled >= _STALLED_GENERATIONS and self._seen.issuperset(self._waiting):
                self._waiting = self.space.sample(1, self.rng, exclude=self._seen).tolist()
                self._admit(self._waiting[0])
        return next(index for index in self._waiting if index not in self._seen)

    def _first_generation(self) -> list[int]:
        known = sorted(self._scores, key=self._rank_key)[: self.options.population // 2]
        wanted = min(self.options.population, self.space.size) - len(known)
        drawn: list[int] = self.space.sample(wanted, self.rng, exclude=set(known)).tolist()
        return known + drawn


class SwarmStrategy(PopulationStrategy):
    """Evolves a population as points of the unit cube, one axis for each parameter, its values evenly from 0 to 1.

    An individual is evaluated at the valid configuration nearest to its point. The point stays where it is, except in
    the parameters that validity changed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._largest = np.array([len(p.values) - 1 for p in self.space.parameters], dtype=np.int32)
        self._scale = np.maximum(self._largest, 1).astype(np.float64)
        self._ordered = np.array([p.is_ordered for p in self.space.parameters])
        reaches = [min(int(largest), _REACH) for largest in self._largest]
        changes = [(column, step) for column, reach in enumerate(reaches) for step in range(-reach, reach + 1) if step]
        #: Parameters, and by how many values repair changes them.
        self._changes = np.array(changes, dtype=np.int32).reshape(-1, 2).T
        self._positions: Array = np.empty((0, 0))
        #: Of each individual, the best configuration it has been at, and later ones whose trials are pending.
        self._visited: list[list[int]] = []

    @abstractmethod
    def _moved(self, bests: list[int]) -> Array:
        """Return the points of the next generation, given the best configuration each individual has been at."""

    def _started(self) -> None:
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
            # Of equals the latest wins, so that individuals drift.
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
        """Return the index of a valid configuration at or near each point; halves are rounded up or down at random."""
        steps = points * self._scale
        nudged = steps + np.where(self.rng.random(steps.shape) < 0.5, _SAME_DISTANCE, -_SAME_DISTANCE)
        codes = np.clip(np.rint(nudged), 0, self._largest).astype(np.int32)
        found = self.space.indices_of(codes)
        invalid = np.flatnonzero(found < 0)
        further = self.space.codes(self.space.nearest_valid(codes[invalid], self.rng))
        for row, other in zip(invalid, further, strict=True):
            found[row] = self._repaired(points[row], codes[row], other)
        return found

    def _repaired(self, point: Array, codes: Codes, other: Codes) -> int:
        """Return the nearest valid configuration: one that differs from the codes in one parameter, or the other one.

        Any value of a parameter without an order is as far as any other, and ties are drawn.
        """
        columns, by = self._changes
        variants = np.vstack([np.tile(codes, (len(columns), 1)), other])
        variants[np.arange(len(columns)), columns] += by
        found = self.space.indices_of(variants)
        offsets = np.where(self._ordered, variants / self._scale - point, variants != codes)
        distances = np.where(found >= 0, np.square(offsets).sum(axis=1), math.inf)
        tied = np.flatnonzero(distances <= distances.min() + _SAME_DISTANCE)
        return int(found[self.rng.choice(tied)])
