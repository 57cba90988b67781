"""The median of launch times and its distribution-free confidence interval."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mptune.observers.launches import time_metrics
from mptune.results.speedup import is_tight, median_interval


def exact_rank(n, confidence):
    """The largest k with P(Binomial(n, 1/2) < k) <= (1 - confidence) / 2, in exact arithmetic."""
    allowed = (1 - Fraction(confidence)) / 2
    missed = Fraction(0)
    for k in range(n + 1):
        missed += Fraction(math.comb(n, k), 2**n)
        if missed > allowed:
            return k
    raise AssertionError


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_the_interval_is_the_exact_binomial_one(confidence):
    assert median_interval(range(7), 1e-12) == (2, 4)
    for n in [*range(1, 60), 101, 250, 999]:
        k = exact_rank(n, confidence)
        expected = (k - 1, n - k) if k else (-math.inf, math.inf)
        assert median_interval(range(n), confidence) == expected


@given(st.lists(st.floats(1e-6, 1e6), max_size=60), st.floats(0.01, 0.999))
def test_the_interval_holds_the_median_and_ignores_order(times, confidence):
    low, high = median_interval(times, confidence)
    assert low <= (statistics.median(times) if times else 0) <= high
    assert (low, high) == median_interval(times[::-1], confidence)
    wider = median_interval(times, (1 + confidence) / 2)
    assert wider[0] <= low
    assert wider[1] >= high


def test_tightness_is_relative_and_on_both_sides():
    times = [10.0] * 20
    assert is_tight(times, relative=0.0)
    times[:6] = [9.9] * 6
    assert median_interval(times) == (9.9, 10.0)
    assert is_tight(times, relative=0.011)
    assert not is_tight(times, relative=0.009)
    times[-6:] = [10.5] * 6
    assert median_interval(times) == (9.9, 10.5)
    assert not is_tight(times, relative=0.04)
    assert is_tight(times, relative=0.051)


def test_nan_is_never_tight():
    times = [1.0] * 20 + [math.nan]
    assert all(math.isnan(end) for end in median_interval(times))
    assert not is_tight(times, relative=1e9)
    assert not is_tight([math.inf] * 20)


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40))
def test_times_are_reported_by_median_minimum_and_interquartile_range(times):
    lower, median, upper = np.percentile(times, [25, 50, 75])
    assert time_metrics(times) == pytest.approx(
        {"time_ms": median, "time_min_ms": min(times), "time_spread_ms": upper - lower}, rel=1e-9, abs=1e-9
    )
