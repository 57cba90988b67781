"""Whether two tools differ by more than their runs do among themselves."""

from __future__ import annotations

import math
import warnings
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_ind

__all__ = ["NOISE", "welch_chance"]

Floats = NDArray[np.float64]

#: Differences with a larger probability under equal means are noise.
NOISE: Final = 0.05


def welch_chance(own: Floats, other: Floats) -> float:
    """Return the probability of such a difference under equal means (Welch's t-test), NaN with nothing to test."""
    both = np.concatenate([own, other])
    # A run without a valid configuration at the first checkpoint has no finite distance.
    if min(len(own), len(other)) < 2 or not np.isfinite(both).all() or np.ptp(both) == 0.0:
        return math.nan
    with warnings.catch_warnings():
        # Runs that all end alike have no variance, which SciPy warns of and computes with.
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(ttest_ind(own, other, equal_var=False).pvalue)
