"""Whether two tools differ by more than their runs do among themselves."""

from __future__ import annotations

import math
import warnings
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_ind, ttest_rel

from mptune.tuning.comparison import Comparison

__all__ = ["LEAST_DISTANCE", "NOISE", "log_distances", "paired_chance", "verdict", "welch_chance"]

Floats = NDArray[np.float64]

#: Differences with a larger probability under equal means are noise.
NOISE: Final = 0.05
#: Distances below this count as this where their logarithm is taken.
LEAST_DISTANCE: Final = 1e-4


def log_distances(comparison: Comparison, strategy: str) -> Floats:
    """Return the log of each run's mean distance, space by space, shape ``(n_spaces * n_runs,)``."""
    runs = [comparison.run_distances(space, strategy) for space in comparison.spaces]
    return np.asarray(np.log(np.maximum(np.concatenate(runs), LEAST_DISTANCE)))


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


def paired_chance(own: Floats, other: Floats) -> float:
    """Return the probability of such differences, pair by pair, under equal means; NaN with nothing to test."""
    differences = own - other
    if len(own) < 2 or not np.isfinite(differences).all() or np.ptp(differences) == 0.0:
        return math.nan
    return float(ttest_rel(own, other).pvalue)


def verdict(own: Floats, other: Floats) -> str:
    """Return whether the first is better (less), worse, or no different beyond noise."""
    chance = welch_chance(own, other)
    if math.isfinite(own.mean()) != math.isfinite(other.mean()):
        return "better" if math.isfinite(own.mean()) else "worse"
    if not chance < NOISE or own.mean() == other.mean():
        return "within noise"
    return "better" if own.mean() < other.mean() else "worse"
