"""Exhaustive search: every valid configuration, in the order of the search space."""

from __future__ import annotations

from typing import Any, ClassVar

from mptune.strategies.base import Strategy


class ExhaustiveStrategy(Strategy):
    """Visits the space in index order; the seed has no effect."""

    name: ClassVar[str] = "exhaustive"
    optimises_several: ClassVar[bool] = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._left = iter(range(self.space.size))

    def _next(self) -> int | None:
        return next((index for index in self._left if index not in self._seen), None)
