from __future__ import annotations

import mpmath
import numpy as np
import pytest

from mptune.strategies.model_based.acquisition import log_expected_improvement, log_improvement_bound


@pytest.mark.parametrize("u", [8.0, 1.0, 0.0, -0.9999, -1.0001, -3.0, -20.0, -59.99, -60.01, -150.0])
def test_log_expected_improvement_against_high_precision(u: float) -> None:
    deviation, best = 0.37, 1.25
    mean = np.array([best - u * deviation])
    exact_u = (mpmath.mpf(best) - mpmath.mpf(float(mean[0]))) / mpmath.mpf(deviation)
    with mpmath.workdps(60):
        density = mpmath.exp(-(exact_u**2) / 2) / mpmath.sqrt(2 * mpmath.pi)
        mass = mpmath.erfc(-exact_u / mpmath.sqrt(2)) / 2
        expected = float(mpmath.log(mpmath.mpf(deviation) * (density + exact_u * mass)))
    found = log_expected_improvement(mean, np.array([deviation]), best)
    assert found[0] == pytest.approx(expected, rel=1e-11, abs=1e-12)


def test_it_is_the_mean_of_the_improvement() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.normal(0.3, 0.8, 400_000)
    estimate = np.maximum(0.1 - drawn, 0.0).mean()
    found = np.exp(log_expected_improvement(np.array([0.3]), np.array([0.8]), 0.1))[0]
    assert found == pytest.approx(estimate, rel=0.01)


def test_the_order_survives_far_from_the_best() -> None:
    means = np.linspace(5.0, 5e4, 1000)
    values = log_expected_improvement(means, np.full(1000, 0.01), 0.0)
    assert np.isfinite(values).all()
    assert (np.diff(values) < 0).all()


def test_the_bound_is_above_and_close_where_it_matters() -> None:
    u = np.concatenate([np.linspace(-100.0, 20.0, 4001), [-1e4, 0.0, 1e4]])
    deviation = np.random.default_rng(0).uniform(1e-6, 1e3, len(u))
    best = -0.75
    exact = log_expected_improvement(best - u * deviation, deviation, best)
    bound = log_improvement_bound(best - u * deviation, deviation, best)
    assert (bound >= exact - 1e-9 * np.abs(exact) - 1e-12).all()
    assert (bound <= exact + 0.5).all()
