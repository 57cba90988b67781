"""Expressions over metrics, and how far a measured constraint is exceeded, against exact arithmetic."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from mpmath import mp, mpf

from mptune.errors import ExpressionError
from mptune.results.metric_expressions import MeasuredConstraint, MetricExpression
from mptune.results.objective import PENALTIES, Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration

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


class TestExpression:
    def test_a_name_an_expression_and_what_they_read(self):
        assert MetricExpression(" time_ms ").value({"time_ms": 2.0}) == 2.0
        product = MetricExpression("energy_j * error.y")
        assert product.names == {"energy_j", "error.y"}
        assert product.value({"energy_j": 3.0, "error.y": 0.5, "more": 1.0}) == 1.5


# -- the objective -----------------------------------------------------------------------------


def trial(time_ms=1.0, error=1e-6, energy_j=1.0, status=Status.OK, number=0):
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
        candidate = trial(time_ms, error, energy_j)
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
        assert objective.score(trial(time_ms, error, energy_j)) == pytest.approx(
            speedup if excess <= 0 else expected, rel=1e-6, abs=1e-9
        )

    def test_judging(self):
        judged = {
            "ok": BOUNDED.judge(trial()),
            "inaccurate": BOUNDED.judge(trial(error=1.0, energy_j=99.0)),
            "violation": BOUNDED.judge(trial(time_ms=11.0, energy_j=3.14159)),
        }
        assert {name: str(t.status) for name, t in judged.items()} == {name: name for name in judged}
        assert judged["violation"].message == (
            "energy_j <= 2 and time_ms < 10 does not hold: energy_j is 3.142, time_ms is 11"
        )
        assert BOUNDED.judge(judged["violation"]) == judged["violation"]
        loose = Objective(threshold=1e-3)
        assert loose.judge(judged["violation"]).status is Status.OK
        assert loose.judge(judged["violation"]).message == ""
        crashed = trial(status=Status.CRASH)
        assert BOUNDED.judge(crashed) is crashed
