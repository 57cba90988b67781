"""Draws: which sample of a kernel's inputs, and the random numbers it is made from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

__all__ = ["FIRST", "Draw", "Stream"]


class Stream(IntEnum):
    """The purpose of draws; the random numbers of one stream are independent of another's."""

    SEARCH = 0
    UNSEEN = 1  #: No search uses them: reported trials are verified on them.


@dataclass(frozen=True, slots=True)
class Draw:
    """One sample of a kernel's inputs."""

    stream: Stream = Stream.SEARCH
    number: int = 0  #: within the stream, from 0

    def __str__(self) -> str:
        return f"{_NAMES[self.stream]} {self.number + 1}"

    @property
    def spawn_key(self) -> tuple[int, ...]:
        """Of the :class:`numpy.random.SeedSequence` it comes from; the first draw of a search has the seed itself."""
        return (int(self.stream), self.number) if self.stream or self.number else ()

    def generator(self, seed: int) -> np.random.Generator:
        """Return the random numbers the draw is made from in a run with this seed."""
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=self.spawn_key))


FIRST: Final = Draw()
_NAMES: Final = {Stream.SEARCH: "input", Stream.UNSEEN: "unseen input"}
