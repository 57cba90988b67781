from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import gamma, multivariate_normal

from mptune.strategies.model_based.baco_model import GammaPrior, Search, fit, log_posterior, pairs
from mptune.strategies.model_based.gaussian_process import Hyperparameters, matern52

PRIOR = GammaPrior(1.3, 0.1)
SEARCH = Search(samples=10, starts=2, iterations=60)


def _data(n: int, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return points, their pairs' squared distances by dimension, and values that the last dimension is no part of."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 6, size=(n, d)) / 5.0
    y = np.sin(4.0 * x[:, 0]) + 0.5 * x[:, 1] + 0.05 * rng.normal(size=n)
    rows, columns = pairs(n)
    return x, ((x[rows] - x[columns]) ** 2).T, (y - y.mean()) / y.std()


def _dense(vector: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    lengths, signal, noise = np.exp(vector[:-2]), np.exp(vector[-2]), np.exp(vector[-1])
    squared = (((x[:, None, :] - x[None, :, :]) / lengths) ** 2).sum(axis=2)
    covariance = signal**2 * matern52(squared) + noise**2 * np.eye(len(x))
    prior = gamma(a=PRIOR.shape, scale=1.0 / PRIOR.rate).logpdf(lengths).sum()
    return float(multivariate_normal(np.zeros(len(x)), covariance).logpdf(y) + prior)


@pytest.mark.parametrize("n", [2, 7, 65])
def test_log_posterior_against_scipy(n: int) -> None:
    x, squared, y = _data(n)
    rng = np.random.default_rng(1)
    vectors = np.column_stack([rng.uniform(-1.5, 1.5, size=(5, 4)), rng.uniform(-3.0, -1.0, size=5)])
    ours = np.array([log_posterior(v, squared, y, PRIOR)[0] for v in vectors])
    dense = np.array([_dense(v, x, y) for v in vectors])
    # Alike up to a constant.
    np.testing.assert_allclose(ours - ours[0], dense - dense[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [2, 30, 70])
def test_gradient_against_finite_differences(n: int) -> None:
    _, squared, y = _data(n, seed=n)
    rng = np.random.default_rng(2)
    for _ in range(3):
        vector = np.concatenate([rng.uniform(-1.5, 1.5, size=4), [-2.0]])
        _, gradient = log_posterior(vector, squared, y, PRIOR)
        for i in range(len(vector)):
            step = np.zeros(len(vector))
            step[i] = 1e-5
            above, below = (log_posterior(vector + s, squared, y, PRIOR)[0] for s in (step, -step))
            assert gradient[i] == pytest.approx((above - below) / 2e-5, rel=2e-5, abs=2e-5)


def test_a_gamma_prior_has_its_mode_where_it_says() -> None:
    prior = GammaPrior(3.0, 6.0)
    lengths = np.linspace(0.05, 2.0, 400)
    # The density is that of the length scale itself, not of its logarithm.
    values = [prior.log_density(np.log([length]))[0] for length in lengths]
    assert lengths[int(np.argmax(values))] == pytest.approx(2.0 / 6.0, abs=0.01)
    expected = gamma(a=3.0, scale=1.0 / 6.0).logpdf(lengths)
    np.testing.assert_allclose(np.array(values) - values[0], expected - expected[0])


@pytest.mark.parametrize("seed", range(3))
def test_fit_ends_at_a_maximum_no_random_setting_exceeds(seed: int) -> None:
    _, squared, y = _data(40, seed=seed)
    found = fit(squared, y, PRIOR, SEARCH, None, np.random.default_rng(seed)).to_vector()
    value, gradient = log_posterior(found, squared, y, PRIOR)
    inside = found > np.log([0.01] * 3 + [0.1, 0.01]) + 1e-6
    assert np.abs(gradient[inside]).max() < 0.1
    rng = np.random.default_rng(9)
    for _ in range(50):
        other = np.log(10.0 ** np.append(rng.uniform(-1.0, 1.0, size=4), rng.uniform(-2.0, -0.5)))
        assert log_posterior(other, squared, y, PRIOR)[0] < value


def test_the_prior_decides_where_the_data_do_not() -> None:
    _, squared, y = _data(30)
    squared[2] = 0.0
    found = fit(squared, y, GammaPrior(3.0, 6.0), SEARCH, None, np.random.default_rng(0))
    assert found.lengths[2] == pytest.approx(2.0 / 6.0, rel=1e-2)


def test_the_prior_keeps_length_scales_from_zero() -> None:
    # Values that have nothing to do with the points: the likelihood prefers no correlation at all.
    _, squared, _ = _data(25, d=2)
    y = np.random.default_rng(3).normal(size=25)
    flat = fit(squared, y, GammaPrior(1.0, 1e-9), SEARCH, None, np.random.default_rng(0))
    kept = fit(squared, y, GammaPrior(6.0, 1.0), SEARCH, None, np.random.default_rng(0))
    assert kept.lengths.min() > max(flat.lengths.min(), 0.1)


def test_the_last_fit_is_a_starting_point() -> None:
    _, squared, y = _data(40)
    thorough = fit(squared, y, PRIOR, Search(60, 10, 100), None, np.random.default_rng(0))
    again = fit(squared, y, PRIOR, Search(1, 1, 1), thorough, np.random.default_rng(1))
    value = log_posterior(again.to_vector(), squared, y, PRIOR)[0]
    assert value >= log_posterior(thorough.to_vector(), squared, y, PRIOR)[0] - 1e-9


def test_equal_observations_are_no_obstacle() -> None:
    squared = np.zeros((2, 10))
    found = fit(squared, np.array([1.0, -1.0, 0.5, -0.5, 0.0]), PRIOR, SEARCH, None, np.random.default_rng(0))
    assert isinstance(found, Hyperparameters)
    assert np.isfinite(found.to_vector()).all()
