"""Multi-start local search (Heldens 2026, Sec. III-E): hill climbing from random configurations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from mptune.space.search_space import KINDS, Kind
from mptune.strategies.base import NEIGHBOURHOODS, Options, ScoredStrategy, option

#: Consecutive starts at evaluated configurations after which the next start is random.
_KNOWN_STARTS: Final = 20


@dataclass(frozen=True, slots=True)
class LocalSearchOptions(Options):
    """Hyperparameters of a climb with the defaults of Heldens 2026, Sec. III-E."""

    neighbourhood: Kind = option("hamming", NEIGHBOURHOODS, choices=KINDS)
    improvement: str = option(
        "first", "move to the first better neighbour (first) or the best one (best).", choices=("first", "best")
    )


class LocalSearchStrategy(ScoredStrategy):
    """Climbs from one start after another, first from the best known trial; subclasses may choose further starts.

    A climb proposes the neighbours of its configuration in random order. All moves decided by known scores precede the
    next proposal, so the order of trials does not matter. While a climb waits for trials, batches are filled with
    starts of later climbs.
    """

    name: ClassVar[str] = "local-search"
    options_class: ClassVar[type[Options]] = LocalSearchOptions
    options: LocalSearchOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._current: int | None = None
        self._around: list[int] = []
        self._asked: set[int] = set()
        self._starts: dict[int, None] = {}
        self._climbs = 0

    def _new_start(self) -> int | None:
        """Return the start of a later climb; None for a random configuration."""
        return None

    def _reached(self, optimum: int) -> None:
        """Note the local optimum at the end of a climb."""

    def _next(self) -> int | None:
        for _ in range(_KNOWN_STARTS):
            self._climb()
            for index in self._around:
                if index not in self._seen:
                    self._asked.add(index)
                    return index
            start = self._new_start()
            if start is None:
                break
            self._starts[start] = None
            if start not in self._seen:
                return start
        start = self._random()
        if start is not None:
            self._starts[start] = None
        return start

    def _climb(self) -> None:
        """Make all moves decided by known scores, over several climbs if possible."""
        while self._current is not None or self._begin():
            assert self._current is not None
            here = self._scores[self._current]
            better = [index for index in (*self._around, *self._asked) if self._score(index) > here]
            undecided = any(index not in self._scores for index in self._around)
            if better and (self.options.improvement == "first" or not undecided):
                self._move_to(max(better, key=self._score))
            elif undecided:
                return
            else:
                self._reached(self._current)
                self._current, self._around = None, []

    def _begin(self) -> bool:
        """Begin a climb at the best evaluated start; return whether there is one."""
        for index in [i for i in self._starts if self._scores.get(i) == -math.inf]:
            del self._starts[index]
        start = max((i for i in self._starts if i in self._scores), key=self._score, default=None)
        if self._climbs == 0:
            start = self._best_known()
        if start is None:
            return False
        self._starts.pop(start, None)
        self._asked.clear()
        self._climbs += 1
        self._move_to(start)
        return True

    def _move_to(self, index: int) -> None:
        self._current = index
        neighbours = self.space.neighbours(index, self.options.neighbourhood)
        self._around = self.rng.permutation(neighbours).astype(np.int64).tolist()
