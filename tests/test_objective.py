"""The objective: scores, penalties and measured constraints against the published formulas, and who may be best."""

from __future__ import annotations

import itertools
import math
import pickle
import re
import sys
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from mpmath import mp, mpf

from mptune.errors import ExpressionError, MptuneError
from mptune.measure.policy import Plan, worst_errors
from mptune.measure.worker import Limits
from mptune.results import pareto
from mptune.results.metric_expressions import MeasuredConstraint
from mptune.results.objective import PENALTIES, Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.tuning.session import still_stands

times = st.floats(min_value=1e-9, max_value=1e9)
errors = st.one_of(st.floats(min_value=1e-300, max_value=1e300), st.sampled_from([0.0, math.inf]))
thresholds = st.floats(min_value=1e-30, max_value=1e30)


def trial(time_ms=1.0, error=None, status=Status.OK, number=0, **metrics):
    numbers = {"time_ms": time_ms, "error": error, **metrics}
    return Trial(
        Configuration({"number": number}),
        status,
        measurement=Measurement({name: value for name, value in numbers.items() if value is not None}),
    )


def outputs(time_ms=1.0, **by_output):
    return trial(time_ms, max(by_output.values()), **{f"error.{name}": value for name, value in by_output.items()})


# -- the published formulas --------------------------------------------------------------------


@given(times, errors.filter(lambda e: 0 < e < math.inf), thresholds, times, st.floats(0, 5), st.floats(0, 5))
def test_scores_follow_the_paper(time_ms, error, tau, baseline, alpha, beta):
    with mp.workdps(40):
        speedup = mpf(baseline) / mpf(time_ms)
        distance = mp.log10(mpf(tau)) - mp.log10(mpf(error))
        expected = {"hard": mpf(0), "linear": alpha * distance, "decay": speedup * mp.exp(beta * distance)}
    for penalty in PENALTIES:
        objective = Objective(threshold=tau, penalty=penalty, alpha=alpha, beta=beta, baseline=baseline)
        wanted = speedup if error <= tau else expected[penalty]
        assert objective.score(trial(time_ms, error)) == pytest.approx(float(wanted), rel=1e-10, abs=1e-12)


def test_the_paper_s_own_number_for_lavamd():
    # Heldens 2026, Sec. V-D: 3.5 * exp(2.3 * (-7 + 6.51)) is about 1.13.
    objective = Objective(threshold=1e-7, beta=2.3, baseline=3.5)
    assert objective.score(trial(1.0, 10**-6.51)) == pytest.approx(1.134, abs=1e-3)


def test_an_error_equal_to_the_threshold_is_feasible():
    for tau in (1e-4, 0.1, 3e-7, 5e-324):
        objective = Objective(threshold=tau)
        assert objective.is_feasible(trial(error=tau))
        assert objective.log10_excess(trial(error=tau)) <= 0
        assert objective.judge(trial(error=tau, status=Status.INACCURATE)).status is Status.OK
        assert all(Objective(threshold=tau, penalty=p).score(trial(2.0, tau)) == 0.5 for p in PENALTIES)
        assert not objective.is_feasible(trial(error=math.nextafter(tau, 1)))
        assert objective.log10_excess(trial(error=math.nextafter(tau, 1))) > 0


# -- ranking -----------------------------------------------------------------------------------


@given(st.lists(st.tuples(times, errors), min_size=1, max_size=8), thresholds, st.sampled_from(("hard", "linear")))
def test_under_hard_and_linear_no_infeasible_trial_reaches_a_feasible_one(numbers, tau, penalty):
    objective = Objective(threshold=tau, penalty=penalty)
    trials = [trial(time_ms, error) for time_ms, error in numbers]
    feasible = [objective.score(t) for t in trials if objective.is_feasible(t)]
    infeasible = [objective.score(t) for t in trials if not objective.is_feasible(t)]
    assert max(infeasible, default=-math.inf) < min(feasible, default=math.inf)
    assert all(map(math.isfinite, feasible + infeasible))
    assert all(score > 0 for score in feasible)
    assert all(score <= 0 for score in infeasible)


@given(
    st.lists(
        st.tuples(
            st.one_of(times, st.sampled_from([math.nan, math.inf, None])),
            st.one_of(errors, st.sampled_from([math.nan, None])),
            st.sampled_from([Status.OK, Status.INACCURATE, Status.NON_FINITE, Status.CRASH]),
        ),
        max_size=8,
    ),
    st.one_of(st.none(), thresholds),
    st.booleans(),
)
def test_best_is_the_extreme_of_what_is_valid_feasible_and_known(numbers, tau, minimise):
    trials = [
        trial(time_ms, error, status, number)
        for number, (time_ms, error, status) in enumerate(numbers)
        if time_ms is not None or status is not Status.OK
    ]
    objective = Objective(minimise=minimise, threshold=tau)
    allowed = [
        t.time_ms
        for t in trials
        if t.status in (Status.OK, Status.INACCURATE)
        and math.isfinite(t.time_ms)
        and (tau is None or (not math.isnan(t.error) and t.error <= tau))
    ]
    best = objective.best(trials)
    if not allowed:
        assert best is None
    else:
        assert best is not None
        assert best.time_ms == (min if minimise else max)(allowed)
        assert objective.is_feasible(best)


def test_ties_go_to_the_more_accurate_then_to_the_earlier():
    objective = Objective(threshold=1e-4)
    trials = [trial(1.0, 1e-5, number=0), trial(1.0, 1e-6, number=1), trial(1.0, 1e-6, number=2)]
    assert objective.best(trials) is trials[1]
    assert objective.best(trials[::-1]) is trials[2]
    unknown = [trial(1.0, None, number=0), trial(1.0, 1e-6, number=1)]
    assert Objective().best(unknown) is unknown[1]


def test_closest_has_the_least_excess_then_the_best_value_then_the_first_place():
    objective = Objective(threshold=1e-8)
    trials = [
        trial(9.0, 1e-3, number=0),
        trial(5.0, 1e-5, status=Status.INACCURATE, number=1),
        trial(4.0, 1e-5, status=Status.INACCURATE, number=2),
        trial(4.0, 1e-5, number=3),
        trial(1.0, math.nan, number=4),
        trial(1.0, 1e-9, status=Status.NON_FINITE, number=5),
        trial(None, 1e-5, status=Status.INACCURATE, number=6),
    ]
    assert objective.best(trials) is None
    assert objective.closest(trials) is trials[2]
    assert objective.closest(trials[4:6]) is None
    assert objective.closest(trials[6:]) is trials[6]
    assert objective.closest([]) is None


# -- what may be missing or extreme ------------------------------------------------------------


@pytest.mark.parametrize("status", [s for s in Status if not s.is_valid])
def test_a_trial_that_is_not_valid_has_no_value_and_the_lowest_score(status):
    for objective in (Objective(), Objective(threshold=1.0, penalty="hard")):
        failed = trial(1.0, 0.0, status)
        assert math.isnan(objective.value(failed))
        assert math.isnan(objective.performance(failed))
        assert objective.score(failed) == -math.inf
        assert not objective.is_feasible(failed)
        assert objective.log10_excess(failed) == objective.error_excess(failed) == math.inf
        assert objective.constraint_excess(failed) == math.inf
        assert objective.closest([failed]) is None


def test_an_inaccurate_trial_needs_no_time_unless_the_penalty_does():
    untimed = trial(None, 1e-2, Status.INACCURATE)
    assert Objective(threshold=1e-4, penalty="hard").score(untimed) == 0
    assert Objective(threshold=1e-4, penalty="linear").score(untimed) == pytest.approx(-2)
    assert Objective(threshold=1e-4, penalty="decay").score(untimed) == -math.inf
    # Under a looser threshold it is feasible, but of unknown value.
    assert Objective(threshold=1.0).is_feasible(untimed)
    assert Objective(threshold=1.0).best([untimed]) is None


@pytest.mark.parametrize("penalty", PENALTIES)
def test_scores_of_valid_trials_stay_finite_at_the_extremes(penalty):
    objective = Objective(threshold=5e-324, penalty=penalty, alpha=1e308, beta=1e300, baseline=sys.float_info.max)
    for time_ms in (0.0, 5e-324, sys.float_info.max):
        for error in (0.0, 5e-324, 1.0, sys.float_info.max, math.inf):
            assert math.isfinite(objective.score(trial(time_ms, error)))


# -- thresholds by output ----------------------------------------------------------------------


def test_thresholds_by_output_must_all_be_met():
    objective = Objective(threshold={"y": 1e-3, "z": 1e-6})
    assert objective.is_feasible(outputs(y=1e-3, z=1e-6))
    assert not objective.is_feasible(outputs(y=1e-3, z=1e-5))
    assert not objective.is_feasible(outputs(y=1e-2, z=1e-9))
    assert not objective.is_feasible(outputs(y=1e-9, z=math.nan))
    assert not objective.is_feasible(outputs(z=math.nan, y=1e-9))
    assert objective.log10_excess(outputs(y=1e-1, z=1e-5)) == pytest.approx(2)
    with pytest.raises(MptuneError, match=r"'z'.*\by\b"):
        objective.is_feasible(outputs(y=1e-3))


# -- metrics and expressions -------------------------------------------------------------------


def test_expressions_over_metrics_including_one_output_s_error():
    objective = Objective("time_ms * energy_j + 1e3 * error.y")
    assert objective.names == {"time_ms", "energy_j", "error.y"}
    assert objective.value(trial(2.0, energy_j=3.0, **{"error.y": 0.5})) == 506.0


# -- construction ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": -1.0}, "threshold must be positive"),
        ({"threshold": math.nan}, "threshold must be positive"),
        ({"threshold": {"y": 0.0}}, "of 'y' must be positive"),
        ({"penalty": "dekay"}, "did you mean 'decay'"),
        ({"alpha": -1.0}, "alpha"),
        ({"baseline": -1.0}, "baseline"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(MptuneError, match=message):
        Objective(**settings)


def test_several_objectives_have_a_value_and_a_level_each() -> None:
    objective = Objective("time_ms", also=("error", "time_ms * memory_bytes"))
    given = Trial(
        Configuration({"a": 1}),
        Status.OK,
        measurement=Measurement({"time_ms": 10.0, "error": 0.0, "memory_bytes": 2.0}),
    )
    assert objective.metrics == ("time_ms", "error", "time_ms * memory_bytes")
    assert objective.names == {"time_ms", "error", "memory_bytes"}
    assert objective.values(given) == (10.0, 0.0, 20.0)
    assert objective.levels(given) == pytest.approx((1.0, -20.0, math.log10(20.0)))
    assert objective.value(given) == 10.0
    failed = Trial(Configuration({"a": 1}), Status.CRASH)
    assert all(math.isnan(level) for level in objective.levels(failed))
    assert pickle.loads(pickle.dumps(objective)) == objective
    assert Objective("time_ms", minimise=False).levels(given) == (-1.0,)


# -- expressions over metrics, and how far a measured constraint is exceeded, against exact ----------

numbers = st.floats(-1e12, 1e12)
positive = st.floats(1e-12, 1e12)
HOLDS = {"<=": Fraction.__le__, "<": Fraction.__lt__, ">=": Fraction.__ge__, ">": Fraction.__gt__}


class TestConstraint:
    @given(numbers, numbers, st.sampled_from(sorted(HOLDS)))
    def test_the_excess_is_at_most_zero_exactly_where_it_holds(self, a, b, op):
        excess = MeasuredConstraint(f"a_j {op} b_w").excess({"a_j": a, "b_w": b})
        assert (excess <= 0) == HOLDS[op](Fraction(a), Fraction(b))
        assert not math.isnan(excess)

    @given(positive, st.integers(0, 3), st.sampled_from(["<=", "<"]))
    def test_neighbouring_numbers_are_told_apart(self, limit, steps, op):
        value = limit
        for _ in range(steps):
            value = math.nextafter(value, math.inf)
        excess = MeasuredConstraint(f"a_j {op} b_w").excess({"a_j": value, "b_w": limit})
        assert (excess > 0) == (value > limit or (op == "<" and value == limit))

    @given(positive, positive)
    def test_decades_between_positive_sides(self, a, b):
        with mp.workdps(40):
            expected = float(mp.log10(mpf(a)) - mp.log10(mpf(b)))
        assume(abs(expected) > 1e-9)
        assert MeasuredConstraint("x <= y").excess({"x": a, "y": b}) == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert MeasuredConstraint("y >= x").excess({"x": a, "y": b}) == pytest.approx(expected, rel=1e-9, abs=1e-12)

    @given(numbers, numbers, numbers)
    def test_and_is_the_worst_and_or_the_best(self, a, b, c):
        metrics = {"a": a, "b": b, "c": c}
        first, second = (MeasuredConstraint(text).excess(metrics) for text in ("a <= b", "b > c"))
        assert MeasuredConstraint("a <= b and b > c").excess(metrics) == max(first, second)
        assert MeasuredConstraint("a <= b > c").excess(metrics) == max(first, second)
        assert MeasuredConstraint("a <= b or b > c").excess(metrics) == min(first, second)
        both = MeasuredConstraint("(a <= b or b > c) and a < c").excess(metrics)
        assert both == max(min(first, second), MeasuredConstraint("a < c").excess(metrics))

    @pytest.mark.parametrize(
        "metrics", [{"a": math.nan, "b": 1.0}, {"a": 1.0, "b": math.nan}, {"a": math.inf, "b": 1.0}]
    )
    def test_what_is_undefined_is_beyond_any_limit(self, metrics):
        for text in ("a <= b", "a >= b", "a < b and a > b"):
            assert MeasuredConstraint(text).excess(metrics) == math.inf

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "measured constraint is empty"),
            ("energy_j", "expected comparisons by <=, <, >= or >, joined by 'and' or 'or', such as 'energy_j <= 1.5'"),
            ("a == b", "expected comparisons"),
            ("a < b and c", "expected comparisons"),
            ("2 <= 3", "names no metric"),
            ("__import__('os').system('x') < 1", "measured constraint"),
            (" + ".join(["a.b"] * 15_000) + " < 1", "nested too deeply"),
        ],
    )
    def test_what_is_none(self, text, message):
        with pytest.raises(ExpressionError, match=re.escape(message)):
            MeasuredConstraint(text)


# -- the objective -----------------------------------------------------------------------------


def metric_expressions_trial(time_ms=1.0, error=1e-6, energy_j=1.0, status=Status.OK, number=0):
    metrics = {"time_ms": time_ms, "error": error, "energy_j": energy_j}
    return Trial(
        Configuration({"number": number}),
        status,
        measurement=Measurement({name: value for name, value in metrics.items() if value is not None}),
    )


BOUNDED = Objective(threshold=1e-3, constraints=("energy_j <= 2", "time_ms < 10"))


class TestObjective:
    @given(positive, st.floats(1e-9, 1.0), positive)
    def test_feasible_is_accurate_and_within_every_limit(self, time_ms, error, energy_j):
        candidate = metric_expressions_trial(time_ms, error, energy_j)
        assert BOUNDED.is_feasible(candidate) == (error <= 1e-3 and energy_j <= 2 and time_ms < 10)
        worst = max(math.log10(error / 1e-3), math.log10(energy_j / 2), math.log10(time_ms / 10))
        assert BOUNDED.log10_excess(candidate) == pytest.approx(worst, rel=1e-9, abs=1e-9)
        assert BOUNDED.error_excess(candidate) == pytest.approx(math.log10(error / 1e-3), rel=1e-9, abs=1e-9)

    @given(positive, st.floats(1e-9, 1.0), positive, st.floats(0, 5), st.sampled_from(PENALTIES))
    def test_penalties_take_the_largest_excess(self, time_ms, error, energy_j, rate, penalty):
        objective = Objective(
            threshold=1e-3, constraints=("energy_j <= 2",), penalty=penalty, alpha=rate, beta=rate, baseline=4.0
        )
        excess = max(math.log10(error / 1e-3), math.log10(energy_j / 2))
        speedup = 4.0 / time_ms
        expected = {"hard": 0.0, "linear": -rate * excess, "decay": speedup * math.exp(-rate * excess)}[penalty]
        assume(abs(excess) > 1e-9)
        assert objective.score(metric_expressions_trial(time_ms, error, energy_j)) == pytest.approx(
            speedup if excess <= 0 else expected, rel=1e-6, abs=1e-9
        )

    def test_judging(self):
        judged = {
            "ok": BOUNDED.judge(metric_expressions_trial()),
            "inaccurate": BOUNDED.judge(metric_expressions_trial(error=1.0, energy_j=99.0)),
            "violation": BOUNDED.judge(metric_expressions_trial(time_ms=11.0, energy_j=3.14159)),
        }
        assert {name: str(t.status) for name, t in judged.items()} == {name: name for name in judged}
        assert judged["violation"].message == (
            "energy_j <= 2 and time_ms < 10 does not hold: energy_j is 3.142, time_ms is 11"
        )
        assert BOUNDED.judge(judged["violation"]) == judged["violation"]
        loose = Objective(threshold=1e-3)
        assert loose.judge(judged["violation"]).status is Status.OK
        assert loose.judge(judged["violation"]).message == ""
        crashed = metric_expressions_trial(status=Status.CRASH)
        assert BOUNDED.judge(crashed) is crashed


# -- what is measured of a configuration: facts in, a plan or a decision out -------------------------

TIMED = Objective(threshold=1e-3, penalty="decay")
HARD = Objective(threshold=1e-3, penalty="hard")


def policy_trial(time_ms: float, error: float, *, status: Status = Status.OK, **more: float) -> Trial:
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


GOOD = policy_trial(5.0, 1e-5)


TIMEOUT = Trial(Configuration({"block": 1}), Status.TIMEOUT, measurement=Measurement({"limit_s": 30.0}))
UNTIMED = policy_trial(math.nan, 1e-2, status=Status.INACCURATE)


@pytest.mark.parametrize(
    ("objective", "run_s", "stored", "is_kept"),
    [
        (TIMED, 30.0, GOOD, True),
        (TIMED, 30.0, Trial(GOOD.configuration, Status.CRASH), True),
        (TIMED, 30.0, TIMEOUT, True),
        (TIMED, 31.0, TIMEOUT, False),
        (HARD, 30.0, UNTIMED, True),
        (HARD, 30.0, policy_trial(math.nan, 1e-3), False),
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
        (1e-3, 2e-2, {}, False),
        (1e-3, math.nan, {}, False),
        (0.0, 1e-7, {}, True),
        (0.0, 1e-4, {}, False),
        (0.0, 1e-2, {"roundoff": 2.0**-3}, False),
        (0.0, 1e-2, {"thresholds": {"error": 1e-2, "error.y": 1e-2}}, True),
        (0.0, 1.1e-2, {"thresholds": {"error": 1e-2, "error.y": 1e-2}}, False),
        # One output is within its threshold, the worst is not.
        (0.0, 1e-2, {"thresholds": {"error.y": 1e-2}}, False),
        # Two launches above the limit are both wrong in narrow types; in the widest, they race.
        (0.48, 0.5, {"thresholds": {"error": 1e-2, "error.y": 1e-2}}, True),
        (0.48, 0.5, {"thresholds": {"error": 1e-2, "error.y": 1e-2}, "is_widest": True}, False),
        (0.495, 0.5, {"thresholds": {"error": 1e-2, "error.y": 1e-2}, "is_widest": True}, True),
        # What is known from before is of several inputs: a smaller error tells nothing.
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


# -- the Pareto front against its definition, by brute force -----------------------------------------


def brute_force(values, minimise):
    costs = [[v if least else -v for v, least in zip(row, minimise, strict=True)] for row in values.tolist()]
    real = [i for i, row in enumerate(costs) if row == row and not any(v != v for v in row)]

    def dominates(a, b):
        return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))

    return [i for i in real if not any(dominates(costs[j], costs[i]) for j in real)]


@st.composite
def tables(draw):
    columns = draw(st.integers(1, 4))
    # A small grid makes ties and duplicates common; the specials are NaN and both infinities.
    element = st.one_of(
        st.integers(-2, 2).map(float), st.floats(allow_nan=False), st.sampled_from([np.nan, np.inf, -np.inf, -0.0])
    )
    values = draw(hnp.arrays(np.float64, st.tuples(st.integers(0, 25), st.just(columns)), elements=element))
    return values, draw(st.lists(st.booleans(), min_size=columns, max_size=columns))


@given(tables())
def test_the_front_is_what_nothing_dominates(table):
    values, minimise = table
    assert pareto.front(values, minimise).tolist() == brute_force(values, minimise)


@st.composite
def fronts(draw):
    columns = draw(st.integers(1, 4))
    element = st.one_of(st.integers(0, 4).map(float), st.floats(-1.0, 5.0))
    points = draw(hnp.arrays(np.float64, st.tuples(st.integers(0, 8), st.just(columns)), elements=element))
    return points, [3.5] * columns


@settings(deadline=None)
@given(fronts())
def test_the_hypervolume_is_that_of_inclusion_and_exclusion(problem):
    points, reference = problem
    distinct = np.unique(points, axis=0)
    expected = 0.0
    for size in range(1, len(distinct) + 1):
        for chosen in itertools.combinations(distinct, size):
            expected -= (-1) ** size * np.maximum(np.array(reference) - np.max(chosen, axis=0), 0.0).prod()
    assert pareto.hypervolume(points, reference) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(deadline=None)
@given(fronts(), st.data())
def test_boxes_are_disjoint_and_all_that_is_not_dominated(problem, data):
    points, reference = problem
    best = points[pareto.front(points, [True] * len(reference))]
    boxes = pareto.Boxes.around(best, reference)
    assert len(boxes.lower) <= {1: 1, 2: len(best) + 1, 3: 2 * len(best) + 1}.get(len(reference), 10**6)
    element = st.floats(-2.0, 4.0)
    row = np.array(data.draw(st.lists(element, min_size=len(reference), max_size=len(reference))))
    inside = ((boxes.lower <= row) & (row < boxes.upper)).all(axis=1).sum()
    free = bool((row < reference).all()) and not (best <= row).all(axis=1).any()
    assert inside == free
    before, after = (pareto.hypervolume(p, reference) for p in (best, np.vstack([best, row])))
    assert boxes.gains(row[None, :])[0] == pytest.approx(after - before, abs=1e-9)


def test_fronts_are_compared_between_ideal_and_nadir_point():
    levels = np.array([[0.0, 4.0], [1.0, 2.0], [3.0, 0.0], [9.0, 9.0], [np.nan, -5.0]])
    scale = pareto.FrontScale.of(levels)
    assert scale.ideal == (0.0, 0.0)
    assert scale.nadir == (3.0, 4.0)
    assert scale.share(levels) == pytest.approx(1.0)
    # Only the middle point dominates the part of the square (side 1.1) beyond (1/3, 1/2).
    assert scale.share(levels[1:2]) * scale.best == pytest.approx((1.1 - 1 / 3) * 0.6)
    assert scale.share(levels[3:]) == 0.0
