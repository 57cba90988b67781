from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from mptune.backends.base import DeviceInfo
from mptune.backends.host import HostBackend, HostBuffer, HostDevice
from mptune.kernel import InOut, Kernel, Scalar
from mptune.measure.bench import Bench, Request
from mptune.measure.policy import Plan
from mptune.measure.rounds import VISIT, remeasure, together, visit_of
from mptune.measure.timing import TimingPlan, is_worth_flushing, repeat_launches
from mptune.observers.launches import time_metrics
from mptune.results.speedup import is_tight
from mptune.results.trial import Measurement, Status, Trial
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.space.configuration import Configuration
from mptune.space.parameters import PrecisionParameter


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


# -- rounds: configurations take turns, the error is measured once, what fails is left out -----------

AXPY = load_kernel("axpy")
FIRST, SECOND, THIRD = (AXPY.configuration({"vector_width": width}) for width in (1, 2, 4))


class FakeBench:
    """Gives every visit three made-up times and fails the visits it is told to, which the device may not survive."""

    def __init__(self, fails: dict[Configuration, int] | None = None, *, survives: bool = True) -> None:
        self.requests: list[Request] = []
        self.fails, self.survives = fails or {}, survives

    @contextmanager
    def keeping_loaded(self) -> Iterator[None]:
        assert not self.requests
        yield

    def evaluate(self, request: Request, plan: TimingPlan | None = None) -> Trial:
        assert plan is VISIT
        assert request.plan.best_ms == math.inf
        self.requests.append(request)
        visits = sum(r.configuration == request.configuration for r in self.requests)
        if self.fails.get(request.configuration) == visits:
            return Trial(request.configuration, Status.CRASH, "it broke")
        metrics = {"time_ms": 10.0 * visits, "error": 1e-3, "memory_bytes": 8.0} | dict(request.plan.known)
        times_ms = tuple(100.0 * visits + i for i in range(3))
        return Trial(request.configuration, Status.OK, "", Measurement(metrics, times_ms, {"timing": 1.0}))

    def is_usable(self, trial: Trial) -> bool:
        return trial.is_valid or self.survives


def requests(*configurations: Configuration) -> list[Request]:
    known = {"error": 1e-5, "log10_error": -5.0}
    return [Request(c, "source", Plan(known)) for c in configurations]


class TestRemeasuring:
    """What the finalists go through."""

    def test_all_launches_of_all_rounds_are_kept_and_their_median_is_the_time(self) -> None:
        bench: Any = FakeBench()
        turns = list(remeasure(bench, requests(FIRST, SECOND), 3))
        assert [turn.configuration for turn in turns] == [FIRST, SECOND, SECOND, FIRST, FIRST, SECOND]
        trials = [together([turn for turn in turns if turn.configuration == c]) for c in (FIRST, SECOND)]
        assert [r.configuration for r in bench.requests] == [FIRST, SECOND, SECOND, FIRST, FIRST, SECOND]
        assert [trial.configuration for trial in trials] == [FIRST, SECOND]
        for trial in trials:
            assert trial.measurement.times_ms == (100, 101, 102, 200, 201, 202, 300, 301, 302)
            assert trial.time_ms == 201.0
            assert trial.metric("time_min_ms") == 100.0
            assert trial.metric("time_spread_ms") == 198.0
            assert trial.metric("memory_bytes") == 8.0
            assert trial.measurement.durations_s == {"timing": 3.0}
            assert trial.error == 1e-5

    def test_a_failure_is_the_trial_and_the_others_go_on(self) -> None:
        bench: Any = FakeBench({SECOND: 2})
        turns = list(remeasure(bench, requests(FIRST, SECOND, THIRD), 3))
        trials = [together([turn for turn in turns if turn.configuration == c]) for c in (FIRST, SECOND, THIRD)]
        assert [trial.status for trial in trials] == [Status.OK, Status.CRASH, Status.OK]
        assert [len(trial.measurement.times_ms) for trial in trials if trial.is_valid] == [9, 9]


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


# -- caches are emptied between timed launches, not while one is timed, and where that matters -------

FLUSHING_CACHE = 1 << 16

KERNEL = Kernel(
    name="twice",
    parameters=[PrecisionParameter("t", ["fp64", "fp32", "fp16"])],
    arguments=[InOut("y", "n", precision="t"), Scalar("n", dtype="int32")],
    sizes={"default": {"n": FLUSHING_CACHE // 8}, "tiny": {"n": 16}, "huge": {"n": 100 * FLUSHING_CACHE}},
    inputs=lambda rng, size: {"y": rng.random(size.n)},
    reference=lambda inputs, size: 2.0 * inputs["y"],
    grid=["ceildiv(n, 64)"],
    block=["64"],
    flops="n",
    template="""
extern "C" __global__ void twice({{ t }}* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = y[i] + y[i];
}
""",
)


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


def events(backend: Cached, flush_cache: str, measured: Plan | None = None) -> list[str]:
    plan = TimingPlan(warmups=1, min_repeats=2, max_repeats=2, flush_cache=flush_cache)
    bench = Bench(KERNEL, KERNEL.resolve_sizes(), backend, plan=plan)
    configuration = KERNEL.configuration({})
    request = Request(configuration, render(KERNEL, configuration, bench.sizes), measured or Plan())
    backend.events.clear()
    assert bench.evaluate(request).status is Status.OK
    bench.close()
    return backend.events


def test_each_timed_launch_finds_restored_data_and_an_empty_cache(told: Cached) -> None:
    known = Plan({"error": 0.0, "log10_error": -300.0})
    assert events(told, "on", known) == ["restore", "flush", "launch"] * 3
