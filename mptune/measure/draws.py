"""Inputs and references of further draws, as the worker makes them.

Those of the search's draws are kept while they fit a share of the memory, since every signature meets them; those of
other draws come and go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from mptune.data import DataManager, Draw, Stream
from mptune.kernel import Sizes, Tunable
from mptune.memory import available_memory_bytes

__all__ = ["DrawnData"]

#: Of the available memory, for the data of draws that are kept.
_MEMORY_SHARE: Final = 0.25
#: References that take longer than this are looked for on disk, and kept there.
_SLOW_S: Final = 0.5


class DrawnData:
    """Inputs and references of draws.

    Args:
        kernel: the kernel.
        sizes: its problem sizes.
        seed: seeds the draws.
        clock: in seconds.
    """

    def __init__(
        self, kernel: Tunable, sizes: Sizes, seed: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._kernel = kernel
        self._sizes = sizes
        self._seed = seed
        self._clock = clock
        self._kept: dict[Draw, DataManager] = {}
        self._latest: tuple[Draw, DataManager] | None = None
        self._are_slow = True
        #: How long the data of a draw took last; 0 before the first.
        self.making_s = 0.0

    def holds(self, draw: Draw) -> bool:
        """Whether the data are here already."""
        return draw in self._kept or (self._latest is not None and self._latest[0] == draw)

    def of(self, draw: Draw) -> DataManager:
        """Return the data of a draw, inputs and references made.

        Raises:
            MptuneError: the kernel's functions fail, or give what it does not declare.
        """
        if draw in self._kept:
            return self._kept[draw]
        if self._latest is not None and self._latest[0] == draw:
            return self._latest[1]
        # Whatever is not kept makes room for this one first.
        self._latest = None
        start = self._clock()
        data = DataManager(self._kernel, self._sizes, seed=self._seed, budget_bytes=0, draw=draw, caches=self._are_slow)
        size_bytes = _nbytes(data.inputs)
        half = self._clock()
        size_bytes += _nbytes(data.references)
        end = self._clock()
        self._are_slow = end - half > _SLOW_S
        self.making_s = end - start
        if draw.stream is Stream.SEARCH and self._fits(size_bytes):
            self._kept[draw] = data
        else:
            self._latest = draw, data
        return data

    def _fits(self, size_bytes: int) -> bool:
        """Whether so much more may be kept; it has been allocated."""
        kept_bytes = size_bytes + sum(_nbytes(each.inputs) + _nbytes(each.references) for each in self._kept.values())
        return kept_bytes <= _MEMORY_SHARE * (available_memory_bytes() + kept_bytes)


def _nbytes(arrays: Mapping[str, Any]) -> int:
    return sum(np.asarray(array).nbytes for array in arrays.values())
