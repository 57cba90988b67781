"""Exhaustive search: every valid configuration, in the order of the search space."""

from __future__ import annotations

from typing import Any, ClassVar

from mptune.strategies.base import Strategy

__all__ = ["ExhaustiveStrategy"]


class ExhaustiveStrategy(Strategy):
    """Visits the space in index order; the seed has no effect."""

    name: ClassVar[str] = "exhaustive"
    optimises_several: ClassVar[bool] = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._position = 0

    def _propose(self, n: int) -> list[int]:
        found: list[int] = []
        while len(found) < n and self._position < self.space.size:
            if self._position not in self._seen:
                found.append(self._position)
            self._position += 1
        return found
