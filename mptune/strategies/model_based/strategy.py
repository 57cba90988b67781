"""The frame of every model-based strategy: candidates, a model fitted when due and extended in between, batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.results.trial import Trial
from mptune.space.configuration import Configuration, Value
from mptune.strategies.base import Strategy
from mptune.strategies.model_based.coordinates import Coordinates
from mptune.strategies.model_based.error_model import Signatures
from mptune.strategies.model_based.gaussian_process import single_threaded

__all__ = ["CandidateStrategy", "Candidates", "ModelBasedStrategy", "ascend", "best_and_others"]

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Configurations, ascending by index: value codes ``(n, d)`` and features ``(n, k)``."""

    indices: Indices
    codes: NDArray[np.int32]
    features: NDArray[np.float64]
    #: Whether these are all configurations that may still be proposed.
    complete: bool
    #: Which of them may be proposed, ``(n,)``; at first all.
    free: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "free", np.ones(len(self.indices), dtype=np.bool_))

    def strike(self, index: int) -> None:
        """Note that an index, candidate or not, may not be proposed any more."""
        at = int(np.searchsorted(self.indices, index))
        if at < len(self.indices) and self.indices[at] == index:
            self.free[at] = False

    def subset(self, mask: NDArray[np.bool_]) -> Candidates:
        """Return the candidates under the mask, all of them free."""
        return Candidates(self.indices[mask], self.codes[mask], self.features[mask], self.complete)


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
    value: Callable[[Indices], NDArray[np.float64]],
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

    def evaluate(indices: Iterable[int]) -> None:
        new = [index for index in dict.fromkeys(indices) if index not in known]
        if new:
            known.update(zip(new, value(np.array(new, dtype=np.int64)).tolist(), strict=True))

    moving = list(starts)
    best = max(moving, key=known.__getitem__)
    steps = 0
    while moving and steps != max_steps:
        around = {here: neighbours(here).tolist() for here in moving}
        evaluate(index for found in around.values() for index in found)
        bests = {here: max(found, key=known.__getitem__, default=here) for here, found in around.items()}
        moving = list(dict.fromkeys(there for here, there in bests.items() if known[there] > known[here]))
        best = max([best, *moving], key=known.__getitem__)
        steps += 1
    return best


class ModelBasedStrategy(Strategy):
    """Fills a batch one by one; configurations proposed and not told yet are pending, and not proposed again."""

    _signatures: Signatures | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pending: dict[int, None] = {}
        self._has_begun = False
        #: By column, the codes that proposals may have; empty if there is no restriction.
        self._focus: dict[int, list[int]] = {}

    def focus(self, values: Mapping[str, Collection[Value]]) -> None:
        """Propose only configurations with these values, to improve on the best of those; all others still teach.

        So one model of time serves the search for the best of some types, which are features like any other. Only
        before the first trial is told.

        Args:
            values: by name of a parameter, its allowed values.
        """
        for name, allowed in values.items():
            offered = self.space.parameter(name).values
            self._focus[self.space.names.index(name)] = [offered.index(v) for v in allowed if v in offered]

    def _in_focus(self, codes: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which configurations may be proposed, ``(n,)`` from value codes ``(n, d)``."""
        inside = np.ones(len(codes), dtype=np.bool_)
        for column, allowed in self._focus.items():
            inside &= np.isin(codes[:, column], allowed)
        return inside

    @single_threaded()
    def ask(self, n: int = 1) -> list[Configuration]:
        """Return up to ``n`` configurations never returned before; fewer only when the space is exhausted."""
        return super().ask(n)

    @single_threaded()
    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from trials, asked for or not; a foreign configuration is ignored."""
        super().tell(trials)

    def expect(self, trials: Sequence[Trial], doubt: float) -> None:
        """Teach the model of errors; no signature is known from these."""
        known = {index: trial for trial in trials if (index := self.space.index(trial.configuration)) is not None}
        if self._signatures is not None and known:
            self._signatures.suppose(self.space.codes(list(known)), list(known.values()), doubt)

    def _propose(self, n: int) -> list[int]:
        if not self._has_begun:
            self._has_begun = True
            self._begin()
        found: list[int] = []
        while len(found) < n and (index := self._next()) is not None:
            found.append(index)
            self._pending[index] = None
            self._strike(index)
        return found

    @abstractmethod
    def _begin(self) -> None:
        """Prepare the first proposal; trials told before are known."""

    @abstractmethod
    def _next(self) -> int | None:
        """Return the next configuration, None when no candidate is left."""

    def _strike(self, index: int) -> None:
        """Take a configuration off the candidates."""

    def _settle(self, index: int) -> None:
        """Note that a configuration has been told."""
        self._pending.pop(index, None)
        self._strike(index)

    @property
    def _taken(self) -> set[int]:
        """Indices that cannot be proposed any more."""
        return self._seen.union(self._pending)

    def _is_taken(self, index: int) -> bool:
        return index in self._seen or index in self._pending

    def _random(self) -> int | None:
        """Return a random configuration that is not taken."""
        drawn = self.space.sample(1, self.rng, exclude=self._taken)
        return int(drawn[0]) if len(drawn) else None


class CandidateStrategy(ModelBasedStrategy):
    """Keeps a model over a set of candidates: fitted when due, extended in between; it imagines pending trials.

    A subclass sets the coordinates and calls :meth:`_updated` in :meth:`_next`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._coordinates: Coordinates
        #: All configurations told, in order.
        self._told: dict[int, None] = {}
        self._pool: Candidates | None = None
        self._whole: Candidates | None = None
        #: Told since the model was last brought up to date, and pending configurations that it counts as observed.
        self._new: list[int] = []
        self._imagined: set[int] = set()

    def _learn(self, indices: list[int], trials: Sequence[Trial]) -> None:
        new = {index: trial for index, trial in zip(indices, trials, strict=True) if index not in self._told}
        self._told |= dict.fromkeys(new)
        self._new += new
        for index in new:
            self._settle(index)
        if new:
            self._take_in(new)

    def _strike(self, index: int) -> None:
        if self._pool is not None:
            self._pool.strike(index)

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

    def _candidates(self, indices: Indices, *, complete: bool = False) -> Candidates:
        codes = self.space.codes(indices)
        return Candidates(indices, codes, self._coordinates.at(codes), complete)

    def _everything(self) -> Candidates:
        """Return the whole space."""
        if self._whole is None:
            self._whole = self._candidates(np.arange(self.space.size, dtype=np.int64), complete=True)
        return self._whole

    def _free_of_all(self) -> NDArray[np.bool_]:
        """Return which configurations of the whole space are not taken."""
        free = np.ones(self.space.size, dtype=np.bool_)
        free[list(self._taken)] = False
        return free

    def _features(self, indices: Any) -> NDArray[np.float64]:
        return self._coordinates.at(self.space.codes(indices))
