from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from mptune.errors import MptuneError
from mptune.evaluators.timing import TimingPlan, repeat_launches


def test_steady_times_stop_as_soon_as_the_interval_is_tight() -> None:
    launches = itertools.count()

    def launch() -> float:
        next(launches)
        return 1.0

    times = repeat_launches(launch, TimingPlan(warmups=2, min_repeats=5, max_repeats=100, cap_s=1e9))
    # Six is the least number of times whose order statistics bound the median with 95% confidence.
    assert times == (1.0,) * 6
    assert next(launches) == 8


def test_noisy_times_go_on_until_the_cap() -> None:
    noise: Iterator[float] = iter(np.random.default_rng(0).uniform(1.0, 100.0, 1000))
    times = repeat_launches(lambda: next(noise), TimingPlan(min_repeats=5, max_repeats=500, cap_s=1.0))
    assert 1e3 <= sum(times) <= 1.1e3


def test_noisy_times_stop_at_the_last_repeat() -> None:
    noise: Iterator[float] = iter(np.random.default_rng(0).uniform(1.0, 100.0, 1000))
    assert len(repeat_launches(lambda: next(noise), TimingPlan(max_repeats=30, cap_s=1e9))) == 30


def test_slow_launches_are_repeated_the_least_number_of_times() -> None:
    assert len(repeat_launches(lambda: 1e6, TimingPlan(min_repeats=3, cap_s=0.1))) == 3


def test_warm_up_launches_are_not_timed() -> None:
    times = iter([1e9, *[1.0] * 50])
    assert max(repeat_launches(lambda: next(times), TimingPlan(warmups=1))) == 1.0


def test_impossible_plan_is_refused() -> None:
    with pytest.raises(MptuneError, match="timing plan"):
        TimingPlan(min_repeats=10, max_repeats=5)


def test_restoring_counts_towards_the_cap() -> None:
    noise: Iterator[float] = iter(np.random.default_rng(0).uniform(1.0, 100.0, 1000))
    wall_s = itertools.count(step=0.2)
    plan = TimingPlan(min_repeats=5, max_repeats=500, cap_s=2.1)
    times = repeat_launches(lambda: next(noise) * 1e-6, plan, clock=lambda: next(wall_s))
    # Launches of next to no time whose buffers take 0.2 s to restore.
    assert len(times) < 20
