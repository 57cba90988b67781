"""The frame of every model-based strategy: the configurations that the model values most among the candidates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.results.trial import Trial
from mptune.space.configuration import Configuration
from mptune.strategies.base import Strategy
from mptune.strategies.model_based.error_model import Signatures
from mptune.strategies.model_based.numerics import single_threaded

__all__ = ["Candidates", "ModelBasedStrategy", "ascend", "best_and_others"]

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Configurations, ascending by index.

    Attributes:
        indices: shape ``(n,)``.
        codes: their value codes, shape ``(n, d)``.
        features: their coordinates for a model, shape ``(n, k)``.
        complete: whether these are all configurations that may still be proposed.
        free: which of them may be proposed, shape ``(n,)``; at first all.
    """

    indices: Indices
    codes: NDArray[np.int32]
    features: NDArray[np.float64]
    complete: bool
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
    """Return which observations a model holds that has no room for all: the best half and a random part of the others.

    Of the positions ranked, best first, ``most`` are returned, ascending.
    """
    half = most // 2
    others = rng.permutation(ranked[half:])[: most - half]
    return sorted([*ranked[:half], *others.tolist()])


def ascend(
    starts: Mapping[int, float],
    neighbours: Callable[[int], Indices],
    value: Callable[[Indices], NDArray[np.float64]],
    max_steps: int | None = None,
) -> tuple[int, float]:
    """Return the best configuration reached by steepest ascent from the starts, and its value.

    The multi-start local search of Hellsten 2023, Sec. 3.3: each start moves to its best neighbour until none is
    better. All of them move at once, so that few large batches are evaluated, and nothing is evaluated twice.

    Args:
        starts: indices, at least one, and their values.
        neighbours: the indices around one.
        value: of indices, shape ``(n,)``; ``-inf`` for what may not be chosen.
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
        moved: dict[int, None] = {}
        for here, found in around.items():
            there = max(found, key=known.__getitem__, default=here)
            if known[there] > known[here]:
                moved[there] = None
        best = max([best, *moved], key=known.__getitem__)
        moving = list(moved)
        steps += 1
    return best, known[best]


class ModelBasedStrategy(Strategy):
    """Fills a batch one by one; what was proposed and not told yet is pending, and no candidate any more."""

    _signatures: Signatures | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pending: dict[int, None] = {}
        self._has_begun = False
        self._pool: Candidates | None = None
        #: Number of observations when the model was last fitted.
        self._fitted_to = 0

    # -- ask and tell --------------------------------------------------------------------------

    @single_threaded()
    def ask(self, n: int = 1) -> list[Configuration]:
        """Return up to ``n`` configurations never returned before; fewer only when the space is exhausted."""
        return super().ask(n)

    @single_threaded()
    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from trials, asked for or not; a foreign configuration is ignored."""
        super().tell(trials)

    def expect(self, trials: Sequence[Trial], doubt: float) -> None:
        """Teach the model of errors; nothing counts as known from these."""
        known = {index: trial for trial in trials if (index := self.space.index(trial.configuration)) is not None}
        if self._signatures is not None and known:
            self._signatures.suppose(self.space.codes(list(known)), list(known.values()), doubt)

    def _propose(self, n: int) -> list[int]:
        if not self._has_begun:
            self._has_begun = True
            self._begin()
        found: list[int] = []
        while len(found) < n:
            index = self._next()
            if index is None:
                break
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

    def _settle(self, index: int) -> None:
        """Take note that a configuration has been told."""
        self._pending.pop(index, None)
        self._strike(index)

    def _strike(self, index: int) -> None:
        """Take a configuration off the candidates."""
        if self._pool is not None:
            self._pool.strike(index)

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
