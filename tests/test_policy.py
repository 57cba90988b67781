"""What is measured of a configuration: facts in, a plan or a decision out."""

from __future__ import annotations

import dataclasses
import math
import pickle
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mptune.objective import Objective
from mptune.policy import Action, Facts, MeasurementPolicy, Plan, errors_of, worst_errors
from mptune.results import Measurement, Status, Trial
from mptune.space.configuration import Configuration

TIMED = MeasurementPolicy(Objective(threshold=1e-3, penalty="decay"))
HARD = MeasurementPolicy(Objective(threshold=1e-3, penalty="hard"))
BY_OUTPUT = MeasurementPolicy(Objective(threshold={"y": 1e-3, "z": 1e-9}, penalty="linear"))
MEMORY = MeasurementPolicy(Objective("memory_bytes"))
EVERY = MeasurementPolicy(may_reuse_errors=False)
FREE = MeasurementPolicy(Objective())
FRONT = MeasurementPolicy(Objective(threshold=1e-3, also=("error",)))
SAME = "the error of its accuracy signature is known"
FIRST = "the first of its accuracy signature"


def trial(time_ms: float, error: float, *, reused: bool = False, status: Status = Status.OK, **more: float) -> Trial:
    metrics = {"time_ms": time_ms, "error": error, "error.y": error, "log10_error": -3.0, "memory_bytes": 8.0, **more}
    measured = {name: value for name, value in metrics.items() if not math.isnan(value)}
    return Trial(Configuration({"block": time_ms}), status, measurement=Measurement(measured, reused_error=reused))


@pytest.mark.parametrize(
    ("objective", "reuses"),
    [
        (Objective(), True),
        (Objective(also=("error",)), True),
        (Objective("error", also=("time_ms",)), True),
        (Objective("time_ms", minimise=False), False),
        (Objective(also=("error", "memory_bytes")), False),
        (Objective("time_ms * memory_bytes"), False),
        (Objective("memory_bytes"), False),
        (Objective("error"), False),
        (Objective(also=("error",), constraints=("memory_bytes <= 1",)), False),
    ],
)
def test_errors_are_reused_only_if_whatever_can_win_is_sure_to_have_its_own(objective: Objective, reuses: bool) -> None:
    assert MeasurementPolicy(objective).reuses_errors is reuses
    assert not MeasurementPolicy(objective, may_reuse_errors=False).reuses_errors


@pytest.mark.parametrize(
    ("objective", "limits"),
    [
        (Objective(), {}),
        (Objective(penalty="hard"), {}),
        (Objective(threshold=1e-3, penalty="decay"), {}),
        (Objective(threshold=1e-3, penalty="hard"), {"error": 1e-3}),
        (Objective(threshold=1e-3, penalty="linear"), {"error": 1e-3}),
        (Objective(threshold={"y": 1e-3, "z": 1.0}, penalty="hard"), {"error.y": 1e-3, "error.z": 1.0}),
    ],
)
def test_inaccurate_trials_are_timed_only_where_their_speed_scores(
    objective: Objective, limits: dict[str, float]
) -> None:
    assert dict(MeasurementPolicy(objective).error_limits) == limits


GOOD, BAD = trial(5.0, 1e-5), trial(5.0, 1e-2)
#: Another configuration of the signature of the bad one, and as inaccurate.
ALSO_BAD = trial(6.0, 1e-2)
CHECKED = [trial(math.nan, 1e-6), trial(9.0, 1e-9), trial(7.0, 1e-5), trial(3.0, 1e-1)]


def known(
    siblings: Sequence[Trial] = (), checked: Sequence[Trial] = (), *, free: Sequence[str] = ("block",), **more: bool
) -> Facts:
    return Facts(siblings, checked, 2.5, free, **more)


@pytest.mark.parametrize(
    ("policy", "facts", "action", "check_below_ms", "reason"),
    [
        (TIMED, known(), Action.CHECK, 0.0, FIRST),
        (TIMED, known(checked=CHECKED), Action.CHECK, 0.0, FIRST),
        # One that meets the threshold speaks for its signature: what could win by it is checked.
        (TIMED, known([GOOD]), Action.REUSE, math.inf, SAME),
        # The fastest among those that are as accurate; one as accurate to the last bit counts, one not timed does not.
        (TIMED, known([GOOD], CHECKED), Action.REUSE, 7.0, SAME),
        # One that does not meet it speaks for itself, and so do two that have a value in common.
        (TIMED, known([BAD], CHECKED), Action.CHECK, 0.0, ".* only known where block=5.0"),
        (HARD, known([BAD], CHECKED), Action.CHECK, 0.0, ".* only known where block=5.0"),
        (TIMED, known([BAD, BAD], CHECKED), Action.CHECK, 0.0, ".* only known where block=5.0"),
        (TIMED, known([BAD, ALSO_BAD], CHECKED), Action.REUSE, 7.0, SAME),
        (HARD, known([BAD, ALSO_BAD], CHECKED), Action.REJECT, 0.0, "not timed: its error is above the threshold"),
        # Where a signature is all there is to a configuration nothing else can be at fault.
        (HARD, known([BAD], CHECKED, free=()), Action.REJECT, 0.0, "not timed: its error is above the threshold"),
        # As long as nothing is feasible, nothing is condemned.
        (HARD, known([BAD, ALSO_BAD], [BAD, ALSO_BAD]), Action.CHECK, 0.0, "no configuration is known to meet .*"),
        (TIMED, known([BAD, ALSO_BAD], [BAD, ALSO_BAD]), Action.CHECK, 0.0, "no configuration is known to meet .*"),
        # Where narrower types are good enough the widest are, too: it is the configurations that are wrong.
        (HARD, known([BAD, ALSO_BAD], CHECKED, is_widest=True), Action.CHECK, 0.0, "others meet the threshold: .*"),
        (TIMED, known([GOOD], CHECKED, is_widest=True), Action.REUSE, 7.0, SAME),
        # On both sides of the threshold: rounding decides, so each is checked.
        (HARD, known([GOOD, BAD], CHECKED), Action.CHECK, 0.0, ".* both sides of the threshold"),
        (HARD, known([BAD, ALSO_BAD, GOOD], CHECKED), Action.CHECK, 0.0, ".* both sides of the threshold"),
        # Without a threshold, or where a smaller error wins, no error is good enough to be taken from one.
        (FREE, known([GOOD], CHECKED), Action.CHECK, 0.0, ".* only known where block=5.0"),
        (FREE, known([GOOD, trial(6.0, 1e-5)], CHECKED), Action.REUSE, 7.0, SAME),
        (FRONT, known([GOOD], CHECKED), Action.CHECK, 0.0, ".* only known where block=5.0"),
        (FRONT, known([GOOD, trial(6.0, 1e-5)], CHECKED), Action.REUSE, 7.0, SAME),
        # Once two configurations of any signature have disagreed, nothing is reused.
        (TIMED, known([GOOD], CHECKED, holds=False), Action.CHECK, 0.0, ".*: two .* disagree"),
        (HARD, known([BAD, ALSO_BAD], CHECKED, holds=False), Action.CHECK, 0.0, ".*: two .* disagree"),
        (HARD, known([trial(1.0, 1e-3)]), Action.REUSE, math.inf, SAME),
        (BY_OUTPUT, known([trial(1.0, 1e-5, **{"error.z": 1e-9})]), Action.REUSE, math.inf, SAME),
        (BY_OUTPUT, known([trial(1.0, 1e-5, **{"error.z": 1e-8})]), Action.CHECK, 0.0, "no configuration is known .*"),
        (MEMORY, known([GOOD], CHECKED), Action.CHECK, 0.0, "errors are not reused"),
        (EVERY, known([GOOD], CHECKED), Action.CHECK, 0.0, "errors are not reused"),
        (dataclasses.replace(HARD, may_reuse_errors=False), known([BAD]), Action.CHECK, 0.0, "errors are not reused"),
    ],
)
def test_plan_of_a_configuration(
    policy: MeasurementPolicy, facts: Facts, action: Action, check_below_ms: float, reason: str
) -> None:
    plan = policy.plan(facts)
    assert plan.action is action
    assert plan.check_below_ms == check_below_ms
    assert re.fullmatch(reason, plan.reason)
    assert plan.error_limits == policy.error_limits
    assert plan.best_ms == (math.inf if action is Action.REJECT else 2.5)
    assert plan.errors == ({} if action is Action.CHECK else errors_of(facts.siblings[0]))
    assert plan.observe
    assert pickle.loads(pickle.dumps(plan)) == plan


@pytest.mark.parametrize(
    ("errors", "is_timed"),
    [({"error": 1e-4}, True), ({"error": 1e-3}, True), ({"error": 1.1e-3}, False), ({"error": math.inf}, False)],
)
def test_a_checked_configuration_is_timed_if_it_is_accurate_enough(errors: dict[str, float], is_timed: bool) -> None:
    decision = HARD.plan(Facts()).times_after_check(errors)
    assert bool(decision) is is_timed
    assert is_timed or decision.reason == "not timed: its error is above the threshold"
    assert TIMED.plan(Facts()).times_after_check(errors)
    assert Plan().times_after_check(errors)


def test_every_output_has_to_be_accurate_enough() -> None:
    plan = BY_OUTPUT.plan(Facts())
    assert plan.times_after_check({"error": 1.0, "error.y": 1e-3, "error.z": 1e-9})
    assert not plan.times_after_check({"error": 1e-5, "error.y": 1e-3, "error.z": 1e-8})


@pytest.mark.parametrize(("time_ms", "is_checked"), [(6.9, True), (7.0, False), (8.0, False)])
def test_what_would_join_the_front_is_checked_after_all(time_ms: float, is_checked: bool) -> None:
    decision = TIMED.plan(Facts([GOOD], CHECKED)).checks_after_timing(time_ms)
    assert bool(decision) is is_checked
    assert decision.reason
    assert not TIMED.plan(Facts()).checks_after_timing(time_ms)


def test_nothing_is_timed_coarsely_unless_less_time_alone_wins() -> None:
    assert TIMED.time_to_beat(GOOD, in_baseline=False) == 5.0
    assert TIMED.time_to_beat(GOOD, in_baseline=True) == math.inf
    assert TIMED.time_to_beat(None, in_baseline=False) == math.inf
    for other in (Objective("memory_bytes"), Objective(also=("error",)), Objective("time_ms", minimise=False)):
        assert MeasurementPolicy(other).time_to_beat(GOOD, in_baseline=False) == math.inf


@pytest.mark.parametrize(("reused", "action"), [(False, Action.REUSE), (True, Action.CHECK)])
def test_measured_again_in_full_and_with_an_error_of_its_own(reused: bool, action: Action) -> None:
    plan = HARD.plan_again(trial(5.0, 1e-2, reused=reused))
    errors = {} if reused else {"error": 1e-2, "error.y": 1e-2, "log10_error": -3.0}
    assert plan == Plan(action, plan.reason, errors, is_own=not reused, thresholds={"error": 1e-3})


TIMEOUT = Trial(Configuration({"block": 1}), Status.TIMEOUT, measurement=Measurement({"limit_s": 30.0}))
UNTIMED = trial(math.nan, 1e-2, status=Status.INACCURATE)
LOOSE = MeasurementPolicy(Objective(threshold=1.0, penalty="hard"))


@pytest.mark.parametrize(
    ("policy", "stored", "is_current", "is_kept"),
    [
        (TIMED, GOOD, True, True),
        (TIMED, GOOD, False, False),
        (TIMED, Trial(GOOD.configuration, Status.CRASH), True, True),
        (TIMED, TIMEOUT, True, False),
        (dataclasses.replace(TIMED, run_limit_s=30.0), TIMEOUT, True, True),
        (dataclasses.replace(TIMED, run_limit_s=31.0), TIMEOUT, True, False),
        (HARD, UNTIMED, True, True),
        (HARD, trial(math.nan, 1e-3), True, False),
        (dataclasses.replace(TIMED, run_limit_s=0.5), Trial(GOOD.configuration, Status.TIMEOUT), True, False),
        (TIMED, UNTIMED, True, False),
        (LOOSE, UNTIMED, True, False),
    ],
)
def test_a_stored_trial_stands(policy: MeasurementPolicy, stored: Trial, is_current: bool, is_kept: bool) -> None:
    decision = policy.keeps(stored, is_current=is_current)
    assert bool(decision) is is_kept
    assert decision.reason


@pytest.mark.parametrize(
    ("policy", "stored", "is_backed"),
    [
        (TIMED, trial(7.0, 1e-5, reused=True), True),
        (TIMED, trial(6.9, 1e-5, reused=True), False),
        (TIMED, trial(7.0, 9e-6, reused=True), False),
        (HARD, trial(math.nan, 1.0, reused=True), True),
        (MEMORY, trial(math.nan, 1.0, reused=True), True),
        (MEMORY, trial(9.0, 1.0, reused=True), False),
    ],
)
def test_a_stored_trial_with_a_reused_error_stands_if_it_cannot_win(
    policy: MeasurementPolicy, stored: Trial, is_backed: bool
) -> None:
    decision = policy.is_backed(stored, CHECKED)
    assert bool(decision) is is_backed
    assert decision.reason


def test_nothing_is_reported_on_an_error_measured_elsewhere() -> None:
    for is_reused in (True, False):
        decision = TIMED.checks_before_report(trial(1.0, 1e-9, reused=is_reused, error_spread=0.0))
        assert bool(decision) is is_reused
        assert decision.reason


@pytest.mark.parametrize(("time_ms", "checks"), [(1.0, True), (math.nan, False)])
def test_nothing_is_reported_that_was_timed_and_not_compared_again(time_ms: float, checks: bool) -> None:
    decision = TIMED.checks_before_report(trial(time_ms, 1e-9))
    assert bool(decision) is checks
    assert decision.reason


@pytest.mark.parametrize(
    ("plan", "compares"),
    [
        (Plan(), True),
        (Plan(Action.REUSE, check_below_ms=5.0), True),
        (Plan(Action.REUSE, check_below_ms=1.0), False),
        (Plan(Action.REUSE, is_own=True), True),
    ],
)
def test_outputs_are_compared_after_timing_where_the_trial_can_be_reported(plan: Plan, compares: bool) -> None:
    decision = plan.compares_after_timing(2.0)
    assert bool(decision) is compares
    assert decision.reason


ROUNDOFF = 2.0**-24


@pytest.mark.parametrize(
    ("first", "last", "more", "is_stable"),
    [
        (1e-3, 1e-3, {}, True),
        (1e-3, 9e-3, {}, True),
        (9e-3, 1e-3, {}, True),
        (1e-3, 2e-2, {}, False),
        (2e-2, 1e-3, {}, False),
        (1e-3, math.nan, {}, False),
        (1e-3, math.inf, {}, False),
        (0.0, 1e-7, {}, True),
        (0.0, 1e-4, {}, False),
        (0.0, 1e-4, {"scale": 100.0}, True),
        (0.0, 1e-4, {"roundoff": 2.0**-11}, True),
        (0.0, 1e-2, {"roundoff": 2.0**-3}, False),
        (0.0, 1e-2, {"thresholds": {"error": 1e-2, "error.y": 1e-2}}, True),
        (0.0, 1.1e-2, {"thresholds": {"error": 1e-2, "error.y": 1e-2}}, False),
        # One output is within its threshold, the worst is not.
        (0.0, 1e-2, {"thresholds": {"error.y": 1e-2}}, False),
        # What is known from before is of several inputs: a smaller error tells nothing.
        (2e-2, 1e-3, {"is_own": True}, True),
        (1e-3, 2e-2, {"is_own": True}, False),
    ],
)
def test_launches_may_differ_by_rounding(first: float, last: float, more: dict[str, Any], is_stable: bool) -> None:
    roundoff, scale = more.pop("roundoff", ROUNDOFF), more.pop("scale", 0.0)
    plan = Plan(Action.REUSE, **more)
    errors = [{"error": e, "error.y": e, "log10_error": -3.0, "error_spread": 9.0} for e in (first, last)]
    decision = plan.is_stable(*errors, roundoff, scale)
    assert bool(decision) is is_stable
    assert decision.reason


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


@pytest.mark.parametrize("changed", [{"action": Action.REUSE}, {"observe": False}])
def test_plans_do_not_change(changed: dict[str, Any]) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(Plan(), *next(iter(changed.items())))


@pytest.mark.parametrize(
    ("plan", "costs", "is_run"),
    [
        (Plan(), (0.0, 0.0, 100.0), False),  # one draw is all there is
        (Plan(draws=3), (0.2, 0.0, 0.0), True),  # there is always time for a little
        (Plan(draws=3), (0.6, 0.0, 0.0), False),
        (Plan(draws=3), (2.0, 1.2, 100.0), True),  # it leads: 3 seconds of 100, and a little
        (Plan(draws=3), (2.0, 1.4, 100.0), False),
        (Plan(draws=3, best_ms=0.5), (1.0, 0.7, 100.0), True),  # it does not: 1.5 seconds of 100
        (Plan(draws=3, best_ms=0.5), (1.0, 0.9, 100.0), False),
        (Plan(draws=3, thresholds={"error": 1e-3}), (0.0, 0.0, 0.0), True),
        (Plan(draws=3, thresholds={"error": 9e-4}), (0.0, 0.0, 0.0), False),
        (Plan(draws=3, thresholds={"error.y": 9e-4}), (0.0, 0.0, 0.0), False),
    ],
)
def test_further_draws_are_for_what_can_win_and_take_a_small_share_of_the_time(
    plan: Plan, costs: tuple[float, float, float], is_run: bool
) -> None:
    decision = plan.runs_further_draws({"error": 1e-3, "error.y": 1e-3, "time_ms": 1.0}, *costs)
    assert bool(decision) is is_run
    assert decision.reason


def test_every_configuration_that_is_checked_may_run_on_further_draws() -> None:
    policy = MeasurementPolicy(Objective(threshold=1e-3), draws=3)
    assert policy.plan(Facts()).draws == 3
    known_error = policy.plan(Facts([trial(1.0, 1e-4)], [trial(1.0, 1e-4)]))
    assert (known_error.action, known_error.draws) == (Action.REUSE, 3)


def test_the_error_of_a_signature_is_the_worst_its_configurations_had() -> None:
    # One of them ran on more draws of the inputs.
    siblings = [trial(1.0, 1e-4), trial(1.0, 3e-4), trial(1.0, 2e-4)]
    assert MeasurementPolicy(Objective(threshold=1e-3)).plan(Facts(siblings, siblings)).errors["error"] == 3e-4


def test_what_is_measured_again_stays_verified() -> None:
    verified = trial(1.0, 1e-4, unseen_inputs=20.0, unseen_violations=0.0, unseen_error=1e-4)
    assert MeasurementPolicy().plan_again(verified).errors.items() >= {
        ("unseen_inputs", 20.0), ("unseen_violations", 0.0), ("unseen_error", 1e-4)
    }  # fmt: skip


def at(block: int, time_ms: float, error: float, *, reused: bool = False, memory_bytes: float = 8.0) -> Trial:
    made = trial(time_ms, error, reused=reused, memory_bytes=memory_bytes)
    return dataclasses.replace(TIMED.objective.judge(made), configuration=Configuration({"block": block}))


@pytest.mark.parametrize(
    ("trials", "holds", "undecided"),
    [
        ([at(1, 5.0, 1e-5)], True, []),
        # The fastest within the threshold, and the only one on a front.
        ([at(1, 5.0, 1e-5), at(2, 4.0, 1e-5, reused=True)], True, [2]),
        ([at(1, 5.0, 1e-5), at(2, 6.0, 1e-5, reused=True)], True, []),
        ([at(1, 5.0, 1e-5), at(2, 6.0, 1e-9, reused=True)], True, [2]),
        # As small and as accurate as a checked one; smaller.
        ([at(1, 5.0, 1e-2), at(2, 6.0, 1e-2, reused=True)], True, []),
        ([at(1, 5.0, 1e-2), at(2, 6.0, 1e-2, reused=True, memory_bytes=4.0)], True, [2]),
        # Where nothing is feasible, the closest.
        ([at(1, 5.0, 1e-1), at(2, 6.0, 1e-2, reused=True)], True, [2]),
        # Where errors do not depend on the signature alone, what is fast may be accurate too.
        ([at(1, 5.0, 1e-5, memory_bytes=4.0), at(2, 1.0, 1.0), at(3, 2.0, 1.0, reused=True)], True, []),
        ([at(1, 5.0, 1e-5, memory_bytes=4.0), at(2, 1.0, 1.0), at(3, 2.0, 1.0, reused=True)], False, [3]),
        ([at(1, 5.0, 1e-5, memory_bytes=4.0), at(2, 1.0, 1.0), at(3, 6.0, 1.0, reused=True)], False, []),
        ([at(1, 5.0, 1e-5), trial(math.nan, 1.0, reused=True, status=Status.CRASH)], False, []),
        ([], False, []),
    ],
)
def test_what_would_be_reported_by_an_error_measured_elsewhere_is_checked(
    trials: list[Trial], holds: bool, undecided: list[int]
) -> None:
    found = TIMED.would_be_reported(trials, holds=holds)
    assert [t.configuration["block"] for t in found] == undecided


def test_every_front_of_several_objectives_is_checked() -> None:
    policy = MeasurementPolicy(Objective(also=("memory_bytes",)))
    trials = [at(1, 5.0, 1e-5), at(2, 6.0, 1e-5, reused=True, memory_bytes=4.0)]
    assert policy.would_be_reported(trials) == trials[1:]
    assert policy.would_be_reported(trials[:1]) == []


MANY = [1.0, 1.1, 1.3, 2.0, 9.0, 30.0]


@pytest.mark.parametrize(
    ("time_ms", "siblings_ms", "least_ms", "reason"),
    [
        (1.0, MANY, 0.0, ""),
        # Up to twice the speed of the device: measuring it is not that exact.
        (1.0, [], 2.0, ""),
        (1.0, [], 2.1, "1 ms is less than a launch can take: .* take 2.1 ms"),
        # Most of its siblings are slower by far, and nothing lies between.
        (0.04, MANY, 0.0, "0.04 ms is 25 times less than 6 other configurations of its types take at least"),
        (0.06, MANY, 0.0, ""),
        (0.04, [0.03, *MANY], 0.0, "0.04 ms is 25 times less than 6 .*"),
        (0.04, [0.5, *MANY], 0.0, ""),
        # Few siblings say little: each of them may be a bad choice; where most are as fast, those are.
        (0.04, MANY[:3], 0.0, ""),
        (0.04, [0.04] * 4 + MANY[:4], 0.0, ""),
        (1.0, [0.01] * 5, 0.0, ""),
        (0.0, MANY, 1.0, "0 ms is less than a launch can take.*"),
    ],
)
def test_speeds_that_cannot_be(time_ms: float, siblings_ms: list[float], least_ms: float, reason: str) -> None:
    decision = TIMED.doubts_speed(time_ms, siblings_ms, least_ms)
    assert bool(decision) is bool(reason)
    assert re.fullmatch(reason or "as fast as can be expected", decision.reason)


@given(st.lists(st.floats(0.01, 1e3), max_size=12), st.floats(0.01, 1e3))
def test_a_slow_configuration_is_never_faster_than_can_be(siblings_ms: list[float], time_ms: float) -> None:
    if any(other <= time_ms for other in siblings_ms):
        slowest = max(siblings_ms)
        assert not TIMED.doubts_speed(slowest, siblings_ms, 0.0)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), st.sampled_from([1e-9, 1e-5, 1.1e-3, 2.0])), max_size=6),
    st.booleans(),
    st.booleans(),
    st.sampled_from([TIMED, HARD, FRONT]),
)
def test_nothing_is_condemned_without_evidence(
    siblings: list[tuple[int, int, float]], has_feasible: bool, holds: bool, policy: MeasurementPolicy
) -> None:
    """Whatever was seen of a signature, its error is reused only if no value of a parameter can be the cause."""
    trials = [
        dataclasses.replace(trial(5.0, error), configuration=Configuration({"block": block, "unroll": unroll}))
        for block, unroll, error in siblings
    ]
    checked = [*trials, *([GOOD] if has_feasible else [])]
    plan = policy.plan(Facts(trials, checked, 2.5, ("block", "unroll"), holds))
    if plan.action is Action.CHECK:
        return
    assert holds
    assert trials
    assert plan.errors["error"] == max(t.error for t in trials)
    if plan.errors["error"] > 1e-3:
        assert has_feasible
        assert all(t.error > 1e-3 for t in trials)
        for position in (0, 1):
            assert len({values[position] for values in siblings}) > 1


def test_as_accurate_is_by_every_error_that_has_a_threshold() -> None:
    """What is fast and right by one metric but not by another must not keep its rival from being checked."""
    policy = MeasurementPolicy(Objective(threshold={"NRMSE": 1e-3, "MaxAE": 1e-3}))

    def measured(time_ms: float, nrmse: float, max_ae: float, *, reused: bool = False) -> Trial:
        return trial(time_ms, nrmse, reused=reused, **{"error.NRMSE": nrmse, "error.MaxAE": max_ae})

    rival = measured(1.0, 1e-9, 1.0)
    siblings = (measured(8.0, 1e-5, 1e-6), measured(9.0, 1e-6, 1e-5))
    plan = policy.plan(known(siblings, [rival, *siblings]))
    assert plan.action is Action.REUSE
    assert plan.errors["error.MaxAE"] == 1e-5
    assert plan.check_below_ms == 8.0
    stored = measured(2.0, 1e-5, 1e-6, reused=True)
    assert not policy.is_backed(stored, [rival])
    assert policy.is_backed(stored, [rival, measured(2.0, 1e-6, 1e-6)])
