"""What is measured of a configuration: facts in, a plan or a decision out."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from mptune.measure.policy import Plan, worst_errors
from mptune.measure.worker import Limits
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.tuning.session import still_stands

TIMED = Objective(threshold=1e-3, penalty="decay")
HARD = Objective(threshold=1e-3, penalty="hard")


def trial(time_ms: float, error: float, *, status: Status = Status.OK, **more: float) -> Trial:
    metrics = {"time_ms": time_ms, "error": error, "error.y": error, "log10_error": -3.0, "memory_bytes": 8.0, **more}
    measured = {name: value for name, value in metrics.items() if not math.isnan(value)}
    return Trial(Configuration({"block": time_ms}), status, measurement=Measurement(measured))


@pytest.mark.parametrize(
    ("objective", "limits"),
    [
        (Objective(threshold=1e-3, penalty="decay"), {}),
        (Objective(threshold=1e-3, penalty="hard"), {"error": 1e-3}),
        (Objective(threshold=1e-3, penalty="linear"), {"error": 1e-3}),
        (Objective(threshold={"y": 1e-3, "z": 1.0}, penalty="hard"), {"error.y": 1e-3, "error.z": 1.0}),
    ],
)
def test_inaccurate_trials_are_timed_only_where_their_speed_scores(
    objective: Objective, limits: dict[str, float]
) -> None:
    assert Plan.of(objective).error_limits == limits


GOOD = trial(5.0, 1e-5)


TIMEOUT = Trial(Configuration({"block": 1}), Status.TIMEOUT, measurement=Measurement({"limit_s": 30.0}))
UNTIMED = trial(math.nan, 1e-2, status=Status.INACCURATE)


@pytest.mark.parametrize(
    ("objective", "run_s", "stored", "is_kept"),
    [
        (TIMED, 30.0, GOOD, True),
        (TIMED, 30.0, Trial(GOOD.configuration, Status.CRASH), True),
        (TIMED, 30.0, TIMEOUT, True),
        (TIMED, 31.0, TIMEOUT, False),
        (HARD, 30.0, UNTIMED, True),
        (HARD, 30.0, trial(math.nan, 1e-3), False),
        (TIMED, 0.5, Trial(GOOD.configuration, Status.TIMEOUT), False),
        (TIMED, 30.0, UNTIMED, False),
    ],
)
def test_a_stored_trial_stands(objective: Objective, run_s: float, stored: Trial, is_kept: bool) -> None:
    evaluator: Any = SimpleNamespace(plan=Plan.of(objective), limits=Limits(run_s=run_s))
    assert still_stands(stored, evaluator, objective) is is_kept


ROUNDOFF = 2.0**-24


@pytest.mark.parametrize(
    ("first", "last", "more", "is_stable"),
    [
        (1e-3, 1e-3, {}, True),
        (1e-3, 9e-3, {}, True),
        (1e-3, 2e-2, {}, False),
        (1e-3, math.nan, {}, False),
        (0.0, 1e-7, {}, True),
        (0.0, 1e-4, {}, False),
        (0.0, 1e-4, {"roundoff": 2.0**-11}, True),
        (0.0, 1e-2, {"roundoff": 2.0**-3}, False),
        (0.0, 1e-2, {"thresholds": {"error": 1e-2, "error.y": 1e-2}}, True),
        (0.0, 1.1e-2, {"thresholds": {"error": 1e-2, "error.y": 1e-2}}, False),
        # One output is within its threshold, the worst is not.
        (0.0, 1e-2, {"thresholds": {"error.y": 1e-2}}, False),
        # Two launches above the limit are both wrong in narrow types; in the widest, they race.
        (0.48, 0.5, {"thresholds": {"error": 1e-2, "error.y": 1e-2}}, True),
        (0.48, 0.5, {"thresholds": {"error": 1e-2, "error.y": 1e-2}, "is_widest": True}, False),
        (0.495, 0.5, {"thresholds": {"error": 1e-2, "error.y": 1e-2}, "is_widest": True}, True),
        (1e-3, 9e-3, {"is_widest": True}, True),
        # What is known from before is of several inputs: a smaller error tells nothing.
        (2e-2, 1e-3, {"known": {"error": 1.0}}, True),
        (1e-3, 2e-2, {"known": {"error": 1.0}}, False),
    ],
)
def test_launches_may_differ_by_rounding(first: float, last: float, more: dict[str, Any], is_stable: bool) -> None:
    roundoff, scale, is_widest = more.pop("roundoff", ROUNDOFF), 0.0, more.pop("is_widest", False)
    plan = Plan(**more)
    errors = [{"error": e, "error.y": e, "log10_error": -3.0, "error_spread": 9.0} for e in (first, last)]
    assert (plan.difference(*errors, roundoff, scale, is_widest=is_widest) == "") is is_stable


def test_the_worst_errors_and_how_far_launches_differ() -> None:
    first = {"error": 0.5, "error.y": 0.25, "error.z": 0.5, "log10_error": -0.3, "error_mean": 0.1}
    last = {"error": 1.0, "error.y": 1.0, "error.z": 0.0, "log10_error": 0.0}
    both = worst_errors(first, last)
    assert both == {
        "error": 1.0, "error.y": 1.0, "error.z": 0.5, "log10_error": 0.0, "error_mean": 0.1, "error_spread": 0.5
    }  # fmt: skip
    assert worst_errors(last, first)["error_spread"] == 0.5
    assert worst_errors(last, first, is_own=True)["error_spread"] == 0.0
    assert worst_errors({**last, "error_spread": 0.75}, first, is_own=True)["error_spread"] == 0.75
    assert worst_errors({"error": 0.0}, {"error": 0.0})["log10_error"] == -math.inf
    assert math.isnan(worst_errors(first, {**last, "error": math.nan})["error"])


@pytest.mark.parametrize(
    ("plan", "costs", "is_run"),
    [
        (Plan(), (0.0, 100.0), False),  # one draw is all there is
        (Plan(draws=3), (0.2, 0.0), True),  # there is always time for a little
        (Plan(draws=3), (3.2, 100.0), True),  # it leads: 3 seconds of 100, and a little
        (Plan(draws=3), (3.4, 100.0), False),
        (Plan(draws=3, best_ms=0.5), (1.7, 100.0), True),  # it does not: 1.5 seconds of 100
        (Plan(draws=3, thresholds={"error": 1e-3}), (0.0, 0.0), True),
        (Plan(draws=3, thresholds={"error": 9e-4}), (0.0, 0.0), False),
    ],
)
def test_further_draws_are_for_what_can_win_and_take_a_small_share_of_the_time(
    plan: Plan, costs: tuple[float, float], is_run: bool
) -> None:
    decision = plan.runs_further_draws({"error": 1e-3, "error.y": 1e-3, "time_ms": 1.0}, *costs)
    assert decision is is_run
