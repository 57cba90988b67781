"""Energy and power from readings: against power curves whose integral is known."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mptune.errors import ObserverUnavailableError
from mptune.observers.base import LaunchContext
from mptune.observers.launches import time_metrics
from mptune.observers.sensors import EnergyObserver, EnergySource, Sample, mean_rate, mean_value
from mptune.results.speedup import is_tight, median_interval
from mptune.space.configuration import Configuration


def context(launches=0, restorations=0):
    steady = {"steady_launches": launches, "steady_restorations": restorations}
    return LaunchContext(Configuration({"n": 1}), 64, (2.0,), **steady)


# -- what readings say -------------------------------------------------------------------------


@given(
    st.floats(1.0, 1000.0),
    st.floats(0.02, 0.1),
    st.floats(0.0, 0.1),
    st.floats(0.0, 1e6),
)
def test_a_counter_that_moves_in_steps_tells_the_power_to_a_per_cent(power_w, period_s, phase_s, start_j):
    """As NVIDIA's does; only the last step seen is known, and only to within a reading."""
    readings = []
    for i in range(1001):
        time_s = i * 0.001
        steps = math.floor((time_s + phase_s) / period_s)
        readings.append(Sample(time_s, start_j + power_w * steps * period_s))
    assert mean_rate(readings) == pytest.approx(power_w, rel=0.012)


@pytest.mark.parametrize("values", [[3.0, 4.0, 4.0]])
def test_a_counter_that_does_not_move_says_so(values):
    samples = [Sample(float(i), value) for i, value in enumerate(values)]
    with pytest.raises(ObserverUnavailableError, match="did not move twice in"):
        mean_rate(samples)


@given(st.lists(st.tuples(st.floats(1e-3, 1.0), st.floats(0.0, 500.0)), min_size=2, max_size=30))
def test_a_gauge_is_integrated_by_trapezia(steps):
    time_s, samples, area = 0.0, [], 0.0
    for interval_s, watts in steps:
        if samples:
            area += interval_s * (samples[-1].value + watts) / 2
        time_s += interval_s
        samples.append(Sample(time_s, watts))
    span_s = samples[-1].time_s - samples[0].time_s
    assert mean_value(samples) == pytest.approx(area / span_s, rel=1e-9, abs=1e-9)


# -- sampling ----------------------------------------------------------------------------------


# -- the observer ------------------------------------------------------------------------------


class Device:
    """A device whose energy is known at every moment of a clock that only it moves."""

    def __init__(self):
        self.now_s = 0.0
        self.energy_j = 0.0
        self.power_w = 50.0

    def clock(self):
        return self.now_s

    def run(self, seconds, power_w):
        self.now_s += seconds
        self.energy_j += seconds * power_w
        self.power_w = power_w

    def counter(self):
        return EnergySource(lambda: self.energy_j, is_counter=True, lead_s=0.1)

    def gauge(self):
        return EnergySource(lambda: self.power_w, is_counter=False, lead_s=1.0)


class Stepwise(EnergyObserver):
    """Reads the sensor when told to instead of in the background, so that time is the device's alone."""

    def read(self):
        self._sampler.take()


def stepwise(device, source):
    return Stepwise(source, interval_s=3600.0, clock=device.clock)


@pytest.mark.parametrize("kind", ["counter", "gauge"])
def test_what_restoring_takes_is_taken_off(kind):
    device = Device()
    observer = stepwise(device, getattr(device, kind)())
    # A launch of 2 ms at 300 W after a copy of 1 ms at 150 W is 3 ms at 250 W.
    device.run(0.3, 250.0)
    observer.start()
    for _ in range(4):
        device.run(0.3, 250.0)
        observer.read()
    observer.stop(context(launches=400))
    device.run(0.1, 150.0)
    observer.start()
    for _ in range(4):
        device.run(0.25, 150.0)
        observer.read()
    assert observer.stop(context(launches=400, restorations=1000)) == pytest.approx({"energy_j": 0.6, "power_w": 300.0})


# -- the median of launch times and its distribution-free confidence interval ------------------------


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
