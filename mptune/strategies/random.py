"""Random search: valid configurations, uniformly, without replacement."""

from __future__ import annotations

from typing import Any, ClassVar

from mptune.strategies.base import Strategy


class RandomStrategy(Strategy):
    """Visits the space in a random order that depends on the seed alone.

    The order is a Fisher-Yates shuffle of the indices of which only the displaced entries are held, so
    a draw takes constant time and memory grows with the draws, not with the space. A resumed run goes on
    with the order it had: what was told before is skipped.
    """

    name: ClassVar[str] = "random"
    optimises_several: ClassVar[bool] = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._displaced: dict[int, int] = {}
        self._position = 0

    def _next(self) -> int | None:
        while self._position < self.space.size:
            index = self._draw()
            if index not in self._seen:
                return index
        return None

    def _draw(self) -> int:
        """Return the next index of the shuffled order."""
        position = self._position
        other = int(self.rng.integers(position, self.space.size))
        drawn = self._displaced.pop(other, other)
        if other != position:
            self._displaced[other] = self._displaced.pop(position, position)
        self._position += 1
        return drawn
