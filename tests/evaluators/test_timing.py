from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from mptune.backends.base import DeviceInfo
from mptune.backends.host import HostBackend, HostBuffer, HostDevice
from mptune.measure.rounds import visit_of
from mptune.measure.timing import TimingPlan, is_worth_flushing, repeat_launches
from mptune.observers.launches import time_metrics
from mptune.results.speedup import is_tight
from mptune.source.loading import load_kernel


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


def test_patience_ends_before_the_least_number_of_times_but_leaves_a_spread_to_report() -> None:
    drift = itertools.count(3000.0, 1000.0)
    times = repeat_launches(lambda: next(drift), TimingPlan(min_repeats=5, patience_s=2.0))
    # The warm-up took 3 s.
    assert times == (4000.0, 5000.0)
    assert time_metrics(times)["time_spread_ms"] == 500.0
    # A second each: the patience is used up after two, not after five.
    assert len(repeat_launches(lambda: 1000.0, TimingPlan(min_repeats=5, patience_s=2.0))) == 2
    assert len(repeat_launches(lambda: 300.0, TimingPlan(min_repeats=5, patience_s=2.0))) == 5
    assert len(repeat_launches(lambda: 1e6, TimingPlan(min_repeats=1, max_repeats=1))) == 1


def test_a_clearly_beaten_configuration_is_given_up_after_three_launches() -> None:
    plan = TimingPlan(min_repeats=10, cap_s=1e9)
    assert repeat_launches(lambda: 20.0, plan, best_ms=10.0) == (20.0,) * 3
    assert len(repeat_launches(lambda: 20.0, plan, best_ms=14.0)) == 10
    assert len(repeat_launches(lambda: 20.0, plan)) == 10


def test_what_is_behind_the_best_is_known_less_closely() -> None:
    def noisy(median: float, seed: int) -> Callable[[], float]:
        rng = np.random.default_rng(seed)
        return lambda: median * rng.normal(1.0, 0.04)

    plan = TimingPlan(max_repeats=1000, cap_s=1e9)
    near = [repeat_launches(noisy(10.0, seed), plan, best_ms=9.5) for seed in range(20)]
    behind = [repeat_launches(noisy(13.0, seed), plan, best_ms=9.5) for seed in range(20)]
    assert near == [repeat_launches(noisy(10.0, seed), plan) for seed in range(20)]
    assert all(is_tight(times, relative=0.02) for times in near)
    assert all(is_tight(times, relative=0.05, confidence=0.75) for times in behind)
    assert 3 * sum(map(len, behind)) < sum(map(len, near))


CACHE = 50 << 20


@pytest.mark.parametrize(
    ("footprint_bytes", "cache_bytes", "intensity", "expected"),
    [
        (CACHE, CACHE, 0.125, True),
        (CACHE, CACHE, None, True),
        (CACHE, CACHE, 200.0, False),  # waits for arithmetic
        (CACHE, 0, 0.125, False),  # nothing known
        (CACHE // 1000, CACHE, 0.125, False),  # a launch takes longer to start
        (CACHE // 2, CACHE, 0.125, True),  # all of it would be found again
        (10 * CACHE, CACHE, 0.125, True),  # a tenth would
        (100 * CACHE, CACHE, 0.125, False),  # hardly anything would
    ],
)
def test_caches_are_flushed_where_it_shows(
    footprint_bytes: int, cache_bytes: int, intensity: float | None, expected: bool
) -> None:
    assert is_worth_flushing(footprint_bytes, cache_bytes, intensity) is expected


def test_a_long_launch_of_the_check_is_the_first_that_is_timed():
    more = iter([1100.0])
    plan = TimingPlan(min_repeats=3, patience_s=2.0)
    assert repeat_launches(lambda: next(more), plan, checked=(1200.0, 1.2)) == (1200.0, 1100.0)
    # It is beaten by itself; a short one is launched again to be timed.
    assert repeat_launches(lambda: next(more), plan, best_ms=100.0, checked=(1200.0, 1.2)) == (1200.0,)
    assert 9.0 not in repeat_launches(lambda: 1.0, plan, checked=(9.0, 0.009))


AXPY = load_kernel("axpy")
FIRST, SECOND, THIRD = (AXPY.configuration({"vector_width": width}) for width in (1, 2, 4))


@pytest.mark.parametrize(
    ("time_ms", "launches", "warmups"),
    [
        (0.001, 25, 1),
        (6.0, 5, 1),
        (10.0, 3, 1),
        (100.0, 1, 1),
        (1e4, 1, 0),
    ],
)
def test_turns_of_long_launches_have_few(time_ms: float, launches: int, warmups: int) -> None:
    visit = visit_of(time_ms)
    assert (visit.warmups, visit.min_repeats, visit.max_repeats) == (warmups, launches, launches)


FLUSHING_CACHE = 1 << 16


class CachedDevice(HostDevice):
    """The host with a small cache, which tells of what is launched."""

    def __init__(self, cache_bytes: int) -> None:
        super().__init__(workers=1)
        self.cache_bytes = cache_bytes
        self.events: list[str] = []

    def describe(self) -> DeviceInfo:
        info = super().describe()
        return dataclasses.replace(info, limits={**info.limits, "cache_bytes": self.cache_bytes})

    def load(self, binary: Any) -> Any:
        function = super().load(binary)
        launch = function.launch

        def told(shape: Any, arguments: Any) -> float:
            self.events.append("launch")
            return launch(shape, arguments)

        function.launch = told  # type: ignore[method-assign]
        return function


class Cached(HostBackend):
    """The host with a small cache, posing as a GPU; tells of what is copied and launched."""

    shares_memory = False

    def __init__(self, cache_bytes: int = FLUSHING_CACHE) -> None:
        super().__init__()
        self.device = CachedDevice(cache_bytes)
        self.events = self.device.events


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Cached:
    backend = Cached()
    copy = HostBuffer.copy_from

    def copied(self: HostBuffer, other: HostBuffer) -> None:
        if self.nbytes == FLUSHING_CACHE:
            backend.events.append("restore")
        elif backend.events[-1:] != ["flush"]:
            backend.events.append("flush")
        copy(self, other)

    monkeypatch.setattr(HostBuffer, "copy_from", copied)
    return backend
