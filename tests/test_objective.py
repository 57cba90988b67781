"""The objective: scores and penalties against the published formulas, and who may be best."""

from __future__ import annotations

import math
import pickle
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from mptune.errors import MptuneError
from mptune.results.objective import PENALTIES, Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration

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


@given(times, times, errors, thresholds, st.sampled_from(PENALTIES), st.booleans())
def test_better_at_the_same_error_never_scores_worse(a, b, error, tau, penalty, minimise):
    objective = Objective(minimise=minimise, threshold=tau, penalty=penalty, baseline=1.0)
    better, worse = sorted((a, b), reverse=not minimise)
    assert objective.score(trial(better, error)) >= objective.score(trial(worse, error))


@given(times, errors, errors, thresholds, st.sampled_from(PENALTIES))
def test_more_accurate_at_the_same_speed_never_scores_worse(time_ms, a, b, tau, penalty):
    # A hard or linear penalty is below every feasible score; a decayed one is below that of the same speed.
    objective = Objective(threshold=tau, penalty=penalty)
    assert objective.score(trial(time_ms, min(a, b))) >= objective.score(trial(time_ms, max(a, b)))


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


@given(st.permutations(range(5)))
def test_a_nan_never_wins_whatever_the_order(order):
    trials = [
        trial(math.nan, 0.0, number=0),
        trial(1.0, math.nan, number=1),
        trial(0.5, 1e-3, status=Status.NON_FINITE, number=2),
        trial(3.0, 1e-9, number=3),
        trial(math.inf, 0.0, number=4),
    ]
    objective = Objective(threshold=1e-4)
    best = objective.best([trials[i] for i in order])
    assert best is trials[3]
    assert max(objective.scores(trials)) == objective.score(trials[3])


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
