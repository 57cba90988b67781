"""The frame of every model-based strategy: candidates, a model fitted when due and extended in between, batches."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.results.trial import Trial
from mptune.strategies.base import Array, Indices, Strategy
from mptune.strategies.model_based.coordinates import Coordinates
from mptune.strategies.model_based.gaussian_process import single_threaded

#: Scores are limited to this, so that their squares are finite (a time of 0 scores the largest double).
_MOST_SCORE: Final = 1e100


@dataclass(slots=True)
class Candidates:
    """Configurations, ascending by index: value codes ``(n, d)`` and features ``(n, k)``."""

    indices: Indices
    codes: NDArray[np.int32]
    features: Array
    #: Whether these are all configurations that may still be proposed.
    complete: bool
    #: Which of them may be proposed, ``(n,)``; at first all.
    free: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.free = np.ones(len(self.indices), dtype=np.bool_)


def best_and_others(ranked: list[int], most: int, rng: np.random.Generator) -> list[int]:
    """Return the observations a model holds: all, or of too many the best half and a random part of the others.

    Of the positions ranked, best first, at most ``most`` are returned, ascending.
    """
    if len(ranked) <= most:
        return sorted(ranked)
    half = most // 2
    others = rng.permutation(ranked[half:])[: most - half]
    return sorted([*ranked[:half], *others.tolist()])


def ascend(
    starts: Mapping[int, float],
    neighbours: Callable[[int], Indices],
    value: Callable[[Indices], Array],
    max_steps: int | None = None,
) -> int:
    """Return the best configuration reached by steepest ascent from the starts.

    The multi-start local search of Hellsten 2023, Sec. 3.3: each start moves to its best neighbour until none is
    better. All of them move at once, in few large batches, and nothing is evaluated twice.

    Args:
        starts: indices, at least one, and their values.
        neighbours: the indices around one.
        value: of indices, shape ``(n,)``; ``-inf`` for those that may not be chosen.
        max_steps: moves of each start; None for as many as it takes to reach a local maximum.
    """
    known = dict(starts)
    moving = list(starts)
    best = max(moving, key=known.__getitem__)
    steps = 0
    while moving and steps != max_steps:
        around = {here: neighbours(here).tolist() for here in moving}
        new = list(dict.fromkeys(index for found in around.values() for index in found if index not in known))
        if new:
            known.update(zip(new, value(np.array(new, dtype=np.int64)).tolist(), strict=True))
        bests = {here: max(found, key=known.__getitem__, default=here) for here, found in around.items()}
        moving = list(dict.fromkeys(there for here, there in bests.items() if known[there] > known[here]))
        best = max([best, *moving], key=known.__getitem__)
        steps += 1
    return best


class CandidateStrategy(Strategy):
    """Keeps a model over a set of candidates: fitted when due, extended in between; it imagines pending trials.

    A subclass sets the coordinates and calls :meth:`_updated` in :meth:`_next`.
    """

    _coordinates: Coordinates

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: All configurations told, in order, and those proposed and not told yet.
        self._told: dict[int, None] = {}
        self._pending: dict[int, None] = {}
        self._pool: Candidates | None = None
        #: Features of the whole space, once needed.
        self._whole: Array | None = None
        #: Told since the model was last brought up to date, and pending configurations that it counts as observed.
        self._new: list[int] = []
        self._imagined: set[int] = set()

    @single_threaded()
    def _propose(self, n: int) -> list[int]:
        found = super()._propose(n)
        self._pending |= dict.fromkeys(found)
        self._strike(found)
        return found

    @single_threaded()
    def _learn(self, indices: list[int], trials: Sequence[Trial]) -> None:
        new = {index: trial for index, trial in zip(indices, trials, strict=True) if index not in self._told}
        self._told |= dict.fromkeys(new)
        self._new += new
        self._pending = {index: None for index in self._pending if index not in new}
        self._strike(list(new))
        if new:
            self._take_in(new)

    def _strike(self, indices: list[int]) -> None:
        """Take configurations off the candidates."""
        if self._pool is not None:
            self._pool.free[np.isin(self._pool.indices, indices)] = False

    @abstractmethod
    def _take_in(self, new: Mapping[int, Trial]) -> None:
        """Take in trials of configurations told for the first time."""

    @abstractmethod
    def _is_due(self, pool: Candidates) -> bool:
        """Whether candidates and model are to be made again."""

    @abstractmethod
    def _rebuild(self) -> Candidates:
        """Choose candidates, fit the model over them, and return them."""

    @abstractmethod
    def _extend(self, new: list[int]) -> None:
        """Learn the configurations told since and forget imagined ones."""

    @abstractmethod
    def _imagine(self, index: int) -> None:
        """Count a pending configuration as if the expected value had been observed (Ginsbourger 2010)."""

    def _updated(self) -> Candidates:
        """Return the candidates, with the model brought up to date."""
        pool = self._pool
        if pool is None or not pool.free.any() or self._is_due(pool):
            self._pool = pool = self._rebuild()
            self._imagined.clear()
        elif self._new:
            self._extend(self._new)
            self._imagined.clear()
        self._new = []
        for index in self._pending:
            if index not in self._imagined:
                self._imagine(index)
                self._imagined.add(index)
        return pool

    def _free_candidates(self) -> Candidates:
        if self._whole is None:
            self._whole = self._features(np.arange(self.space.size))
        indices = np.setdiff1d(np.arange(self.space.size), list(self._seen), assume_unique=True)
        return Candidates(indices, self.space.codes(indices), self._whole[indices], complete=True)

    def _candidates(self, indices: Indices) -> Candidates:
        """Return those of the configurations that may still be proposed."""
        indices = np.setdiff1d(indices, list(self._seen))
        codes = self.space.codes(indices)
        return Candidates(indices, codes, self._coordinates.at(codes), complete=False)

    def _features(self, indices: Any) -> Array:
        return self._coordinates.at(self.space.codes(indices))


class ScoreModelStrategy(CandidateStrategy):
    """Keeps a model of the score.

    Attributes:
        observations: finite scores the model learns from, by index.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.observations: dict[int, float] = {}

    def _take_in(self, new: Mapping[int, Trial]) -> None:
        scores = {index: self.objective.score(trial) for index, trial in new.items()}
        self.observations |= {
            index: min(max(score, -_MOST_SCORE), _MOST_SCORE) for index, score in scores.items() if score > -math.inf
        }

    def _ranked(self) -> list[int]:
        return sorted(self.observations, key=lambda index: -self.observations[index])

    def _kept(self, most: int) -> list[int]:
        """Return the configurations whose observations the model holds, in the order they were told."""
        kept = set(best_and_others(self._ranked(), most, self.rng))
        return [index for index in self.observations if index in kept]

    def _scores(self, indices: Iterable[int]) -> Array:
        return np.array([self.observations[index] for index in indices])
