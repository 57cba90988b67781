"""How repeated runs differ, in a cell of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench import percent

__all__ = ["FEWEST", "MEANING", "percents", "spread"]

#: Of fewer runs there are no quartiles.
FEWEST: Final = 5
#: What the page says of cells that :func:`spread` made.
MEANING: Final = (
    '"a (b to c)" is a median and quartiles over runs; "a [b to c]", of fewer than five runs, a median and the least '
    "and the most."
)


def spread(values: Sequence[float] | NDArray[np.float64], shown: Callable[[float], str]) -> str:
    """Return "median (lower to upper quartile)", of fewer than :data:`FEWEST` values "median [least to most]".

    Where one of them is infinite all three are values that occur, as there is nothing between a number and infinity.

    Args:
        values: at least one.
        shown: how a number is written.
    """
    found = np.asarray(values, dtype=np.float64)
    few = len(found) < FEWEST
    at = np.array([0.0, 0.5, 1.0] if few else [0.25, 0.5, 0.75])
    quantiles = np.quantile(found, at, method="linear" if np.isfinite(found).all() else "inverted_cdf")
    lower, median, upper = (shown(float(value)) for value in quantiles)
    return f"{median} [{lower} to {upper}]" if few else f"{median} ({lower} to {upper})"


def percents(values: Sequence[float] | NDArray[np.float64]) -> str:
    """Return :func:`spread` in percent."""
    return spread(values, lambda value: percent(value, 1))
