from __future__ import annotations

import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mptune.strategies.simulated_annealing import acceptance_probability, relative_loss

POSITIVE = st.floats(1e-300, 1e300)
ANY = st.floats(-1e300, 1e300)
TEMPERATURE = st.floats(1e-4, 10.0)


@given(POSITIVE, POSITIVE, TEMPERATURE)
def test_probability_between_performances(current: float, score: float, temperature: float) -> None:
    loss = max(1 - mpmath.mpf(score) / mpmath.mpf(current), 0)
    expected = mpmath.exp(-loss / mpmath.mpf(temperature))
    assert acceptance_probability(current, score, temperature) == pytest.approx(float(expected), rel=1e-9, abs=1e-300)


@given(ANY, ANY, st.integers(-60, 60))
def test_the_scale_of_scores_has_no_influence(current: float, score: float, exponent: int) -> None:
    # Away from the subnormal numbers a power of two changes nothing at all.
    if all(value == 0 or 1e-250 < abs(value) < 1e250 for value in (current, score)):
        factor = 2.0**exponent
        assert relative_loss(current * factor, score * factor) == relative_loss(current, score)


@given(ANY, ANY)
def test_the_loss_is_between_0_and_1_and_0_for_an_improvement(current: float, score: float) -> None:
    loss = relative_loss(current, score)
    assert 0.0 <= loss <= 1.0
    assert (loss == 0.0) == (score >= current)


def test_penalties_lose_by_their_magnitude_and_all_of_a_performance() -> None:
    assert relative_loss(-2.0, -2.5) == pytest.approx(0.2)
    assert relative_loss(0.0, -1e-9) == relative_loss(1e-9, 0.0) == relative_loss(3.0, -7.0) == 1.0


def test_failures_are_left_at_once_and_never_entered() -> None:
    assert acceptance_probability(-math.inf, -math.inf, 0.01) == 1.0
    assert acceptance_probability(-math.inf, 0.0, 0.01) == 1.0
    assert acceptance_probability(0.0, -math.inf, 10.0) == 0.0
    assert acceptance_probability(5.0, -math.inf, 10.0) == 0.0
