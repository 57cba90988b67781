"""What strategies that evolve a population share: generations, points in the unit cube, and repair."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.space.parameters import Parameter
from mptune.space.search_space import SearchSpace
from mptune.strategies.base import Options, ScoredStrategy, option

__all__ = [
    "CROSSOVERS", "Champion", "Grid", "PopulationOptions", "PopulationStrategy", "SwarmStrategy", "single_changes",
]  # fmt: skip

Codes = NDArray[np.int32]
Indices = NDArray[np.int64]
Points = NDArray[np.float64]

#: Generations without a new configuration after which a random one joins.
_STALLED_GENERATIONS: Final = 3
#: How far up and down repair looks for a value, so that a parameter of a million values is no more work than one of 65.
_REACH: Final = 32
#: Codes repair holds at a time.
_BLOCK: Final = 2**20
_SAME_DISTANCE: Final = 1e-9


def single_changes(codes: Codes, parameters: Sequence[Parameter]) -> Codes:
    """Return each row of value codes ``(n, d)`` with one of ``d`` parameters changed, shape ``(n, n_changes, d)``.

    They are in the order of parameters and values. A change that leads out of a parameter's values is not valid, and
    neither the original nor a value more than 32 steps away is among them.
    """
    reaches = [min(len(parameter.values) - 1, _REACH) for parameter in parameters]
    steps = [np.delete(np.arange(-reach, reach + 1), reach) for reach in reaches]
    changed = np.repeat(np.arange(len(parameters)), [len(step) for step in steps])
    variants = np.repeat(codes[:, None, :], len(changed), axis=1)
    variants[:, np.arange(len(changed)), changed] += np.concatenate(steps).astype(np.int32)
    return variants


def _single_point(a: Codes, b: Codes, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Exchange everything after one cut."""
    cut = int(rng.integers(1, max(len(a), 2)))
    return np.concatenate([a[:cut], b[cut:]]), np.concatenate([b[:cut], a[cut:]])


def _two_point(a: Codes, b: Codes, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Exchange what lies between two cuts."""
    low, high = np.sort(rng.integers(0, len(a) + 1, size=2))
    first, second = a.copy(), b.copy()
    first[low:high], second[low:high] = b[low:high], a[low:high]
    return first, second


def _uniform(a: Codes, b: Codes, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Exchange each parameter with probability one half."""
    swap = rng.random(len(a)) < 0.5
    return np.where(swap, b, a), np.where(swap, a, b)


def _disruptive_uniform(a: Codes, b: Codes, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Exchange exactly half of the parameters that differ, so that no child equals a parent."""
    differing = np.flatnonzero(a != b)
    swap = rng.permutation(differing)[: (len(differing) + 1) // 2]
    first, second = a.copy(), b.copy()
    first[swap], second[swap] = b[swap], a[swap]
    return first, second


#: How two parents give two children, by name.
CROSSOVERS: Final[dict[str, Callable[[Codes, Codes, np.random.Generator], tuple[Codes, Codes]]]] = {
    "single_point": _single_point,
    "two_point": _two_point,
    "uniform": _uniform,
    "disruptive_uniform": _disruptive_uniform,
}


class Grid:
    """The configurations of a space as points of the unit cube, one axis for each parameter.

    The values of a parameter, categories and truth values too, lie evenly from 0 to 1 in their order.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._largest = np.array([len(p.values) - 1 for p in space.parameters], dtype=np.int32)
        self._scale = np.maximum(self._largest, 1).astype(np.float64)
        self._ordered = np.array([p.is_ordered for p in space.parameters])

    def points(self, indices: Sequence[int] | Indices) -> Points:
        """Return where configurations lie, (n, d) from indices (n,)."""
        return self._of_codes(self._space.codes(np.asarray(indices, dtype=np.int64)))

    def nearest(self, points: Points, rng: np.random.Generator) -> Indices:
        """Return the index of a valid configuration at or near each point, (n,) from (n, d).

        Coordinates are rounded to values, halves up or down at random. Where the result is not valid, the nearest is
        taken of those one parameter away and of what :meth:`SearchSpace.nearest_valid` finds; any value of a parameter
        without an order is as far as any other, and ties are drawn.
        """
        codes = self._rounded(points, rng)
        found = self._space.indices_of(codes)
        invalid = np.flatnonzero(found < 0)
        per_row = 2 * _REACH * len(self._scale) ** 2
        for rows in np.array_split(invalid, 1 + len(invalid) * per_row // _BLOCK):
            if len(rows):
                found[rows] = self._repaired(points[rows], codes[rows], rng)
        return found

    def settled(self, points: Points, indices: Sequence[int] | Indices) -> Points:
        """Return points moved, in the coordinates that round to another value, to those of their configurations."""
        targets = self.points(indices)
        return np.where(np.abs(points - targets) * self._scale > 0.5 + _SAME_DISTANCE, targets, points)

    def _of_codes(self, codes: Codes) -> Points:
        return codes / self._scale

    def _rounded(self, points: Points, rng: np.random.Generator) -> Codes:
        steps = points * self._scale
        nudged = steps + np.where(rng.random(steps.shape) < 0.5, _SAME_DISTANCE, -_SAME_DISTANCE)
        return np.clip(np.rint(nudged), 0, self._largest).astype(np.int32)

    def _repaired(self, points: Points, codes: Codes, rng: np.random.Generator) -> Indices:
        further = self._space.codes(self._space.nearest_valid(codes, rng))
        variants = np.concatenate([single_changes(codes, self._space.parameters), further[:, None, :]], axis=1)
        found = self._space.indices_of(variants.reshape(-1, variants.shape[2])).reshape(variants.shape[:2])
        offsets = np.where(self._ordered, self._of_codes(variants) - points[:, None, :], variants != codes[:, None, :])
        distances = np.where(found >= 0, np.sum(offsets**2, axis=2), math.inf)
        tied = distances <= distances.min(axis=1, keepdims=True) + _SAME_DISTANCE
        chosen = np.argmax(tied * (1.0 + rng.random(tied.shape)), axis=1)
        nearest: Indices = found[np.arange(len(found)), chosen]
        return nearest


@dataclass(slots=True)
class Champion:
    """The best configuration one individual has been at, or where it started; those awaited stay in the running."""

    index: int
    awaited: list[int] = field(default_factory=list)

    def challenge(self, index: int) -> None:
        """Let another configuration compete, once its trial is known."""
        if index != self.index and index not in self.awaited:
            self.awaited.append(index)

    def settle(self, scores: Mapping[int, float]) -> int:
        """Compare everything whose score is known and return the winner; of equals the latest, so that it drifts."""
        running = [self.index, *self.awaited]
        known = [index for index in running if index in scores]
        if known:
            best = max(scores[index] for index in known)
            self.index = [index for index in known if scores[index] == best][-1]
        self.awaited = [index for index in running if index not in scores and index != self.index]
        return self.index


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
        self._waiting: deque[int] = deque()

    # -- for subclasses ------------------------------------------------------------------------

    @abstractmethod
    def _evolved(self) -> list[int]:
        """Return the next generation, made from the population and the scores."""

    def _started(self) -> None:
        """Prepare what belongs to the members of the first generation."""

    def _admit(self, index: int) -> None:
        """Let a random configuration take a member's place."""
        self._population[-1] = index

    def _score(self, index: int) -> float:
        """Return the score of a configuration, ``-inf`` where it failed or is not known."""
        return self._scores.get(index, -math.inf)

    def _rank_key(self, index: int) -> tuple[float, int]:
        return -self._score(index), index

    def _worst(self, indices: Sequence[int]) -> int:
        """Return the position of the worst score."""
        return max(range(len(indices)), key=lambda k: self._rank_key(indices[k]))

    # -- ask and tell --------------------------------------------------------------------------

    def _propose(self, n: int) -> list[int]:
        found: dict[int, None] = {}
        while len(found) < n and len(self._seen) + len(found) < self.space.size:
            if not self._waiting:
                self._next_generation(taken=self._seen.union(found))
            index = self._waiting.popleft()
            if index not in self._seen:
                found[index] = None
        return list(found)

    # -- generations ---------------------------------------------------------------------------

    def _next_generation(self, taken: set[int]) -> None:
        """Replace the population and queue its members that were never proposed; at least one is queued."""
        if not self._population:
            self._population = self._first_generation()
            self._started()
            self._waiting.extend(index for index in self._population if index not in taken)
        stalled = 0
        while not self._waiting:
            self._population = self._evolved()
            self._waiting.extend(index for index in dict.fromkeys(self._population) if index not in taken)
            stalled += 1
            if not self._waiting and stalled >= _STALLED_GENERATIONS:
                immigrant = int(self.space.sample(1, self.rng, exclude=taken)[0])
                self._admit(immigrant)
                self._waiting.append(immigrant)

    def _first_generation(self) -> list[int]:
        known = sorted(self._scores, key=self._rank_key)[: self.options.population // 2]
        wanted = min(self.options.population, self.space.size) - len(known)
        return known + [int(index) for index in self.space.sample(wanted, self.rng, exclude=set(known))]


class SwarmStrategy(PopulationStrategy):
    """Evolves a population as points of the unit cube.

    An individual is evaluated at the valid configuration nearest to its point. The point stays where it is, except in
    the parameters that validity changed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._grid = Grid(self.space)
        self._champions: list[Champion] = []
        self._positions: Points = np.empty((0, 0))

    @abstractmethod
    def _moved(self, standing: list[int]) -> Points:
        """Return the points of the next generation, given the best configuration each individual has been at."""

    def _started(self) -> None:
        self._champions = [Champion(index) for index in self._population]
        self._positions = self._grid.points(self._population)

    def _admit(self, index: int) -> None:
        self._replace(self._worst([champion.index for champion in self._champions]), index)

    def _replace(self, position: int, index: int) -> None:
        """Let a configuration take an individual's place."""
        self._population[position] = index
        self._champions[position] = Champion(index)
        self._positions[position] = self._grid.points([index])[0]

    def _evolved(self) -> list[int]:
        moved = self._moved([champion.settle(self._scores) for champion in self._champions])
        members: list[int] = self._grid.nearest(moved, self.rng).tolist()
        self._positions = self._grid.settled(moved, members)
        for champion, index in zip(self._champions, members, strict=True):
            champion.challenge(index)
        return members
