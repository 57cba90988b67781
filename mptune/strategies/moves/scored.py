"""What strategies that move from score to score share: the scores."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from mptune.results import Trial
from mptune.strategies.base import Strategy

__all__ = ["ScoredStrategy"]


class ScoredStrategy(Strategy):
    """Remembers the score of every trial, so that a configuration met again costs nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._scores: dict[int, float] = {}

    def _learn(self, indices: list[int], trials: Sequence[Trial]) -> None:
        for index, trial in zip(indices, trials, strict=True):
            score = self.objective.score(trial)
            self._scores[index] = -math.inf if math.isnan(score) else score

    def _best_known(self) -> int | None:
        """Return the index of the best score, the smallest of equals; None while nothing has one."""
        best = min(self._scores, key=lambda index: (-self._scores[index], index), default=None)
        return None if best is None or self._scores[best] == -math.inf else best

    def _random(self, found: Collection[int]) -> int | None:
        """Return a random index neither seen nor among those found, None when there is none left."""
        drawn = self.space.sample(1, self.rng, exclude=self._seen.union(found))
        return int(drawn[0]) if len(drawn) else None
