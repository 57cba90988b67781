"""What the models see of a configuration: the space's features, and how sizes align."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.space.parameters import Parameter
from mptune.space.search_space import SearchSpace

__all__ = ["Features", "alignment"]

Array = NDArray[np.float64]

_PROBES: Final = 512


class Features:
    """Numbers in [0, 1] for the parameters that vary.

    Beside the features of the search space each size gets its alignment: a block of 128 is like one of
    144 in most respects, but it fills warps, divides the problem and avoids bank conflicts like one of 64 does.

    Args:
        space: the search space.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        probes = space.features(space.sample(min(space.size, _PROBES), np.random.default_rng(0)))
        self._varying = np.asarray(np.ptp(probes, axis=0) > 0.0)
        self._aligned: list[tuple[int, Array]] = []
        for column, parameter in enumerate(space.parameters):
            table = alignment(parameter)
            if table is not None:
                self._aligned.append((column, table))
        self.count = int(self._varying.sum()) + len(self._aligned)

    def of(self, indices: Any) -> Array:
        """Return the features of configurations, shape ``(n, count)``."""
        given = self._space.features(indices)[:, self._varying]
        if not self._aligned:
            return given
        codes = self._space.codes(indices)
        return np.column_stack([given, *(table[codes[:, column]] for column, table in self._aligned)])


def alignment(parameter: Parameter) -> Array | None:
    """Return, by value code, how often 2 divides the value, scaled to [0, 1].

    None for a parameter whose values are not at least four positive integers, and where the value tells as
    much: all equally often divisible, or powers of two.
    """
    values = [v for v in parameter.values if isinstance(v, int) and not isinstance(v, bool) and v > 0]
    if not parameter.is_numeric or len(values) < max(4, len(parameter.values)):
        return None
    exponents = np.array([(v & -v).bit_length() - 1 for v in values], dtype=np.float64)
    spread = np.ptp(exponents)
    if spread == 0 or all(v & (v - 1) == 0 for v in values):
        return None
    return np.asarray((exponents - exponents.min()) / spread)
