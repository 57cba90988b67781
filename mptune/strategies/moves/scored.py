"""What strategies that move from score to score share: the scores, and whether a worse one is accepted."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from mptune.results import Trial
from mptune.strategies.base import Strategy

__all__ = ["ScoredStrategy", "acceptance_probability", "relative_loss"]


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


def relative_loss(current: float, score: float) -> float:
    """Return how much worse a score is than the current one, as a part of 1; 0 where it is not worse.

    Between two performances it is one less their ratio, so a temperature means the same for a kernel of
    microseconds as for one of seconds: 0.1 is a tenth of the speed. Everything is lost between a score above zero and
    one that is not, which the hard and linear penalties give; between two scores below zero it is one less the
    ratio of their magnitudes. Nothing is lost from ``-inf``, and infinitely much from anything better to it.
    """
    if score >= current:
        return 0.0
    if score == -math.inf:
        return math.inf
    return 1.0 - max(score, 0.0) / current if current > 0 else 1.0 - current / score


def acceptance_probability(current: float, score: float, temperature: float) -> float:
    """Return the probability to move from one score to another: exp(-loss / temperature), 1 where nothing is lost.

    Metropolis et al., "Equation of state calculations by fast computing machines" (1953), with the relative loss
    in place of the difference of energies. A failed trial has the score ``-inf``; the temperature, which is positive,
    is the relative loss accepted with probability 1/e.
    """
    return math.exp(-relative_loss(current, score) / temperature)
