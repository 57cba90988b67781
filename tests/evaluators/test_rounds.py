"""Rounds: configurations take turns, the error is measured once, what fails is left out."""

from __future__ import annotations

from typing import Any

import pytest

from mptune.evaluators.bench import Request
from mptune.evaluators.rounds import Remeasured, measure_in_turn
from mptune.registry import load_kernel
from mptune.results import Measurement, Status, Trial
from mptune.space.configuration import Configuration

AXPY = load_kernel("axpy")
FIRST, SECOND, THIRD = (AXPY.configuration({"vector_width": width}) for width in (1, 2, 4))


class FakeBench:
    """Gives made-up times; fails the requests it is told to."""

    def __init__(self, fails: dict[Configuration, int] | None = None) -> None:
        self.kernel, self.sizes = AXPY, AXPY.resolve_sizes("smoke")
        self.requests: list[Request] = []
        self.fails = fails or {}

    def evaluate(self, request: Request) -> Trial:
        self.requests.append(request)
        visits = sum(r.configuration == request.configuration for r in self.requests)
        if self.fails.get(request.configuration) == visits:
            return Trial(request.configuration, Status.CRASH, "it broke")
        metrics = {"time_ms": 10.0 * visits, "error": 1e-3} | dict(request.known_errors or {})
        return Trial(request.configuration, Status.OK, "", Measurement(metrics))


def run(bench: Any, configurations: list[Configuration], rounds: int, **options: Any) -> dict[Any, Remeasured]:
    return measure_in_turn(bench, configurations, rounds, **options)


def test_they_take_turns_back_and_forth_each_once_a_round() -> None:
    bench = FakeBench()
    found = run(bench, [FIRST, SECOND, FIRST, THIRD], 3)
    order = [request.configuration for request in bench.requests]
    assert order == [FIRST, SECOND, THIRD, THIRD, SECOND, FIRST, FIRST, SECOND, THIRD]
    assert list(found) == [FIRST, SECOND, THIRD]
    assert found[FIRST].times_ms == [10.0, 20.0, 30.0]
    assert found[FIRST].time_ms == 20.0
    assert found[FIRST].spread_ms == 10.0


def test_the_error_is_measured_in_the_first_round_alone_and_passes_nothing_else_on() -> None:
    bench = FakeBench()
    found = run(bench, [FIRST], 2)
    assert [request.known_errors for request in bench.requests] == [None, {"error": 1e-3}]
    assert found[FIRST].trial.error == 1e-3


@pytest.mark.parametrize("visit", [1, 2])
def test_what_fails_is_left_out_and_told_of(visit: int) -> None:
    bench, failures = FakeBench({SECOND: visit}), []
    found = run(bench, [FIRST, SECOND], 3, on_failure=failures.append)
    assert list(found) == [FIRST]
    assert [trial.configuration for trial in failures] == [SECOND]
    assert sum(request.configuration == SECOND for request in bench.requests) == visit


def test_one_round_has_no_spread() -> None:
    assert run(FakeBench(), [FIRST], 1)[FIRST].spread_ms == 0.0
    assert run(FakeBench(), [FIRST], 0) == {}
