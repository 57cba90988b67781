"""Rounds: configurations take turns, the error is measured once, what fails is left out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mptune.measure.bench import Request
from mptune.measure.policy import Plan
from mptune.measure.rounds import VISIT, remeasure, together, visit_of
from mptune.measure.timing import TimingPlan
from mptune.results.trial import Measurement, Status, Trial
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration

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
