"""Random search: valid configurations, uniformly, without replacement."""

from __future__ import annotations

from typing import Any, ClassVar

from mptune.strategies.base import Strategy


class RandomStrategy(Strategy):
    """Visits the space in a random order that depends on the seed alone.

    The order is a lazy Fisher-Yates shuffle that stores only displaced indices: constant time a draw, memory linear in
    the draws. A resumed run continues its order and skips the trials told before.
    """

    name: ClassVar[str] = "random"
    optimises_several: ClassVar[bool] = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._displaced: dict[int, int] = {}
        self._position = 0

    def _next(self) -> int | None:
        while (position := self._position) < self.space.size:
            other = int(self.rng.integers(position, self.space.size))
            drawn = self._displaced.pop(other, other)
            if other != position:
                self._displaced[other] = self._displaced.pop(position, position)
            self._position += 1
            if drawn not in self._seen:
                return drawn
        return None
