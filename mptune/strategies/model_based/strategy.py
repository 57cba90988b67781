"""The frame of every model-based strategy: an initial sample, then what the model values most among the candidates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.base import Strategy
from mptune.strategies.model_based.candidates import Candidates

__all__ = ["ModelBasedStrategy"]

#: Draws as many indices as asked for.
Draw = Callable[[int, np.random.Generator], NDArray[np.int64]]


class ModelBasedStrategy(Strategy):
    """Fills a batch one by one; what was proposed and not told yet is pending, and no candidate any more."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pending: dict[int, None] = {}
        #: What is left of the initial sample, and how many observations complete it; None before the first ask.
        self._design: list[int] | None = None
        self._design_target = 0
        self._pool: Candidates | None = None
        #: Number of observations when the model was last fitted.
        self._fitted_to = 0

    # -- ask and tell --------------------------------------------------------------------------

    def _propose(self, n: int) -> list[int]:
        if self._design is None:
            self._design = self._begin()
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
    def _begin(self) -> list[int]:
        """Return the initial sample; trials told before are known."""

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

    # -- the initial sample --------------------------------------------------------------------

    def _draw_design(self, initial: int, told: NDArray[np.float64], draw: Draw) -> list[int]:
        """Return the initial sample of so many observations.

        Those told before, of coordinates ``(n, k)``, count towards it where they vary in every coordinate.
        """
        covered = len(told) > 1 and bool((np.ptp(told, axis=0) > 0).all())
        wanted = min(initial, self.space.size)
        self._design_target = wanted if covered else wanted + len(told)
        missing = max(self._design_target - len(told), 0)
        return draw(missing, self.rng).tolist() if missing else []

    def _next_of_design(self) -> int | None:
        """Return the next point of the initial sample, a random one in place of each that failed."""
        while self._design:
            index = self._placed(self._design.pop(0))
            if index is not None:
                return index
        drawn = self._random()
        return None if drawn is None else self._placed(drawn)

    def _placed(self, index: int) -> int | None:
        """Return what is proposed for a point of the initial sample."""
        return None if self._is_taken(index) else index

    def _random(self) -> int | None:
        """Return a random configuration that is not taken."""
        drawn = self.space.sample(1, self.rng, exclude=self._taken)
        return int(drawn[0]) if len(drawn) else None
