"""A grid over the problem sizes: one decision a cell, used alike by Python and by the emitted header."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.wisdom.error_growth import REACH

#: Maximum cells of a kernel's grid. The emitted header lists every cell.
CELLS: Final = 3000
#: Maximum cells of an application's grid, which is not emitted.
CELLS_OF_APPLICATION: Final = 10**9
#: Maximum cells along one size.
_STEPS: Final = 3000
#: Cells of a size that was never varied, beside sizes that were: below and above the reach, below, at and above it.
_CELLS_OF_FIXED: Final = 5


class Cells:
    """Cells in geometric steps from the smallest tuned size to the largest, up to the reach of the errors beyond them.

    Args:
        tuned: the tuned sizes, in one order of names.
        largest: the largest value that each size can have.
        most: the largest number of cells.

    Attributes:
        starts: by size, the first value of each cell; the last cell ends at the largest value.
    """

    def __init__(self, tuned: Sequence[Sequence[int]], largest: Sequence[int], most: int = CELLS) -> None:
        self._low, self._high = np.min(tuned, axis=0), np.max(tuned, axis=0)
        self._largest = largest
        is_varied = self._low < self._high
        fewest = np.where(is_varied | (not is_varied.any()), _STEPS, _CELLS_OF_FIXED)
        steps = next(n for n in range(_STEPS, 0, -1) if math.prod(map(int, np.minimum(n, fewest))) <= most)
        self.starts: tuple[NDArray[Any], ...] = tuple(map(self._starts, range(len(largest)), np.minimum(steps, fewest)))

    def _starts(self, axis: int, count: int) -> NDArray[Any]:
        low, high = int(self._low[axis]), int(self._high[axis])
        # With few cells only the range itself, or the whole axis, in which only the baseline is surely accurate.
        ends = [low, high + 1] if count > 2 else []
        inner = np.ceil(np.geomspace(low / REACH, high * REACH + 1, count - 3)) if count > 4 else np.zeros(0)
        return np.unique(np.clip([1, *ends, *inner], 1, self._largest[axis]).astype(np.int64))

    def at(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the cell of some sizes: its number along each axis."""
        return tuple(
            int(np.searchsorted(starts, size, side="right")) - 1
            for starts, size in zip(self.starts, sizes, strict=True)
        )

    def ends(self, cell: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the smallest and the largest sizes in a cell."""
        pairs = list(zip(self.starts, cell, self._largest, strict=True))
        highs = (int(starts[at + 1]) - 1 if at + 1 < len(starts) else most for starts, at, most in pairs)
        return tuple(int(starts[at]) for starts, at, _ in pairs), tuple(highs)

    def middle(self, cell: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes in the middle of a cell, or close to the tuned ones in a cell beyond their reach."""
        found = []
        for low, high, least, most in zip(*self.ends(cell), self._low, self._high, strict=True):
            near = np.clip(math.sqrt(low * high), least / (REACH + 1), most * (REACH + 1))
            found.append(min(max(round(near), low), high))
        return tuple(found)
