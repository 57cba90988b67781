"""Multi-start local search over a function that is cheap to evaluate, an acquisition function."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["ascend"]

Indices = NDArray[np.int64]


def ascend(
    starts: Iterable[int],
    neighbours: Callable[[int], Indices],
    value: Callable[[Indices], NDArray[np.float64]],
) -> tuple[int, float]:
    """Return the best local maximum reached by steepest ascent from the starts, and its value.

    The multi-start local search of Hellsten 2023, Sec. 3.3: each start moves to its best neighbour until none is
    better. All of them move at once, so that few large batches are evaluated, and nothing is evaluated twice.

    Args:
        starts: indices, at least one.
        neighbours: the indices around one.
        value: of indices, shape ``(n,)``; ``-inf`` for what may not be chosen.
    """
    known: dict[int, float] = {}

    def evaluate(indices: Iterable[int]) -> None:
        new = [index for index in dict.fromkeys(indices) if index not in known]
        if new:
            known.update(zip(new, value(np.array(new, dtype=np.int64)).tolist(), strict=True))

    reached = list(dict.fromkeys(starts))
    evaluate(reached)
    moving = reached
    best = max(reached, key=known.__getitem__)
    while moving:
        around = {here: neighbours(here).tolist() for here in moving}
        evaluate(index for found in around.values() for index in found)
        moved: dict[int, None] = {}
        for here, found in around.items():
            there = max(found, key=known.__getitem__, default=here)
            if known[there] > known[here]:
                moved[there] = None
        best = max([best, *moved], key=known.__getitem__)
        moving = list(moved)
    return best, known[best]
