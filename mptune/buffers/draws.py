"""Draws: which sample of a kernel's inputs, and the random numbers it is made from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from mptune.kernel import Tunable

__all__ = ["FIRST", "Draw", "Stream"]


class Stream(IntEnum):
    """What draws are for; no random number of one stream has to do with those of another."""

    SEARCH = 0
    #: Nobody searches with them: what is reported is verified on them.
    UNSEEN = 1
    #: Of a hunt for the worst.
    HUNTED = 2


@dataclass(frozen=True, slots=True)
class Draw:
    """One sample of a kernel's inputs.

    Attributes:
        stream: what it is for.
        number: which one of the stream, from 0.
        scale: factor of every floating-point array.
        ranges: for each range of the kernel, how far its value is on the way from the least to the largest, 0 to 1;
            empty where they are drawn at random as everything else.
    """

    stream: Stream = Stream.SEARCH
    number: int = 0
    scale: float = 1.0
    ranges: tuple[float, ...] = ()

    def __str__(self) -> str:
        scaled = f" scaled by {self.scale:g}" if self.scale != 1 else ""
        return f"{_NAMES[self.stream]} {self.number + 1}{scaled}"

    @property
    def spawn_key(self) -> tuple[int, ...]:
        """Of the :class:`numpy.random.SeedSequence` it comes from; the first draw of a search has the seed itself."""
        return (int(self.stream), self.number) if self.stream or self.number else ()

    def generator(self, seed: int) -> np.random.Generator:
        """Return the random numbers the draw is made from in a run with this seed."""
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=self.spawn_key))

    def range_values(self, kernel: Tunable, rng: np.random.Generator) -> dict[str, float]:
        """Return the values of the kernel's ranges by name.

        As many random numbers are taken where they are given as where they are drawn.
        """
        drawn = tuple(rng.random(len(kernel.ranges)).tolist()) if kernel.ranges else ()
        return {entry.name: entry.at(share) for entry, share in zip(kernel.ranges, self.ranges or drawn, strict=True)}

    def with_ranges(self, kernel: Tunable, seed: int) -> Draw:
        """Return the same draw with the values of its ranges given, as they are drawn in a run with this seed."""
        drawn = tuple(self.generator(seed).random(len(kernel.ranges)).tolist())
        return dataclasses.replace(self, ranges=self.ranges or drawn)


FIRST: Final = Draw()
_NAMES: Final = {Stream.SEARCH: "input", Stream.UNSEEN: "unseen input", Stream.HUNTED: "hunted input"}
