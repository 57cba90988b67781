"""The search for the worst input: over seeds, which have no neighbours, and over ranges, which an optimiser varies."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.buffers import Draw, Stream

__all__ = ["hunt"]

#: Inputs whose seeds and ranges are drawn at random before the ranges of the worst of them are varied, and seeds that
#: are tried with the worst ranges before the next time.
_EXPLORED: Final = 32
#: Members of the population by range, and generations each time.
_MEMBERS: Final = 8
_GENERATIONS: Final = 12
#: What runs together takes about so long, so that the time is kept.
_PIECE_S: Final = 1.0


class _TimeIsUpError(Exception):
    pass


class _Chase:
    """What has been tried, and whether there is time for more."""

    def __init__(
        self, scores: Callable[[Sequence[Draw]], Sequence[float]], seconds: float, clock: Callable[[], float]
    ) -> None:
        self._scores = scores
        self._clock = clock
        self._until = clock() + seconds
        self._draw_s = math.inf
        self.worst: tuple[float, Draw] | None = None

    def scores(self, draws: Sequence[Draw]) -> list[float]:
        """Return the score of each draw, a few at a time; the first of all are tried however little time there is."""
        found: list[float] = []
        while len(found) < len(draws):
            start = self._clock()
            if start >= self._until and self.worst is not None:
                raise _TimeIsUpError
            number = max(1, int(_PIECE_S / self._draw_s)) if self._draw_s > 0 else len(draws)
            piece = draws[len(found) : len(found) + number]
            values = list(self._scores(piece))
            self._draw_s = (self._clock() - start) / len(piece)
            for value, draw in zip(values, piece, strict=True):
                if not math.isnan(value) and (self.worst is None or value > self.worst[0]):
                    self.worst = value, draw
            found += values
            if self.worst is None and self._clock() >= self._until:
                raise _TimeIsUpError
        return found


def hunt(
    scores: Callable[[Sequence[Draw]], Sequence[float]],
    ranges: int,
    seconds: float,
    seed: int,
    clock: Callable[[], float],
    *,
    known: Sequence[Draw] = (),
    first: int = 0,
) -> tuple[Draw, float]:
    """Return the draw of the largest score found in a time, and that score (NaN if there is none).

    What was the worst before is tried first, then seeds one after the other. Where the inputs have ranges, differential
    evolution (Storn and Price 1997) varies them for the seed that was the worst so far, whose other random numbers stay
    the same; then new seeds are tried with the worst ranges, and so on.

    Args:
        scores: gives the score of each draw, NaN for one that has none.
        ranges: how many ranges the inputs take.
        seconds: how long to look; the first few draws are tried in any case.
        seed: of the hunt's own random numbers.
        clock: in seconds.
        known: draws that were the worst before, the values of their ranges given.
        first: number of the first seed that is tried; earlier hunts have tried those before it.
    """
    key = (int(Stream.HUNTED), *((0, first) if first else ()))
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
    numbers = count(first)
    chase = _Chase(scores, seconds, clock)

    def drawn(shares: NDArray[np.float64]) -> list[Draw]:
        return [Draw(Stream.HUNTED, next(numbers), ranges=tuple(row.tolist())) for row in shares]

    try:
        chase.scores(known)
        while True:
            chase.scores(drawn(rng.random((_EXPLORED, ranges))))
            while ranges and chase.worst is not None:
                _vary(chase, chase.worst[1], rng)
                worst = np.array(chase.worst[1].ranges)
                near = np.clip(worst + rng.normal(0.0, 0.02, (_EXPLORED // 2, ranges)), 0.0, 1.0)
                anywhere = rng.random((_EXPLORED // 4, ranges))
                chase.scores(drawn(np.vstack([np.tile(worst, (_EXPLORED // 4, 1)), near, anywhere])))
    except _TimeIsUpError:
        pass
    return (chase.worst[1], chase.worst[0]) if chase.worst is not None else (Draw(Stream.HUNTED), math.nan)


def _vary(chase: _Chase, worst: Draw, rng: np.random.Generator) -> None:
    """Vary the ranges of one seed."""
    from scipy.optimize import Bounds, differential_evolution  # takes longer to load than everything else here

    def badness(population: NDArray[np.float64]) -> Any:
        """Return minus the score of each column, shape ``(n_ranges, n)``; no score is the best there is."""
        draws = [dataclasses.replace(worst, ranges=tuple(column.tolist())) for column in population.T]
        return np.array([-score if not math.isnan(score) else 1e6 for score in chase.scores(draws)])

    differential_evolution(
        badness,
        Bounds(np.zeros(len(worst.ranges)), np.ones(len(worst.ranges))),
        popsize=_MEMBERS,
        maxiter=_GENERATIONS,
        x0=np.array(worst.ranges),
        rng=rng,
        polish=False,
        vectorized=True,
        updating="deferred",
    )
