"""How well a median is known, whatever the distribution.

The interval is the distribution-free one between two order statistics: the number of values below the true median is
binomial with probability 1/2 whatever they are distributed like, so launch times need not be normal.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache

from mptune.errors import MptuneError

__all__ = ["is_tight", "median_interval"]


def median_interval(times: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return an interval that holds the true median of independent times with at least this confidence.

    It is the narrowest one between the k-th smallest and the k-th largest time. With too few times for any (fewer
    than 6 at 0.95) it is ``(-inf, inf)``, and with a NaN among them ``(nan, nan)``.

    Raises:
        MptuneError: the confidence is not in (0, 1).
    """
    if not 0 < confidence < 1:
        raise MptuneError(f"a confidence must lie between 0 and 1, got {confidence}")
    if any(math.isnan(time) for time in times):
        return math.nan, math.nan
    rank = _rank(len(times), confidence)
    if rank == 0:
        return -math.inf, math.inf
    ordered = sorted(times)
    return ordered[rank - 1], ordered[-rank]


def is_tight(times: Sequence[float], relative: float = 0.01, confidence: float = 0.95) -> bool:
    """Whether the ends of :func:`median_interval` are within the share ``relative`` of the median."""
    low, high = median_interval(times, confidence)
    if not (math.isfinite(low) and math.isfinite(high)):
        return False
    median = statistics.median(times)
    return max(high - median, median - low) <= relative * abs(median)


@lru_cache(maxsize=4096)
def _rank(n: int, confidence: float) -> int:
    """Return the largest k with P(k-th smallest <= median <= k-th largest of n) >= confidence, 0 for none.

    The probability of missing on one side is P(Binomial(n, 1/2) < k).
    """
    allowed = (1 - confidence) / 2
    # Further than 40 standard deviations below the mean there is no probability to speak of.
    start = max(0, int(n / 2 - 20 * math.sqrt(n)))
    missed = 0.0
    for below in range(start, n // 2 + 1):
        log_probability = math.lgamma(n + 1) - math.lgamma(below + 1) - math.lgamma(n - below + 1) - n * math.log(2)
        missed += math.exp(log_probability)
        # The tolerance is for rounding where the two are equal.
        if missed > allowed * (1 + 1e-9):
            return below
    return n // 2
