from __future__ import annotations

import mpmath
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Kernel, Matern

from mptune.strategies.model_based.fixed_posterior import FixedPosterior, matern32, matern52, squared_exponential


def _data(n: int, k: int = 3, offset: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    x = rng.random((n, k))
    return x, offset + np.sin(5.0 * x[:, 0]) + x[:, 1:].sum(axis=1)


def _standardised(y: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.asarray((values - y.mean()) / y.std())


def _grown(x: np.ndarray, y: np.ndarray, candidates: np.ndarray, noise: float = 1e-5) -> FixedPosterior:
    posterior = FixedPosterior(candidates, length_scale=1.5, noise=noise)
    for row, value in zip(x, y, strict=True):
        posterior.append(row, value)
    return posterior


def test_matern_against_high_precision() -> None:
    for r in (0.0, 1e-9, 0.3, 2.0, 40.0):
        expected = float((1 + mpmath.mpf(r)) * mpmath.exp(-mpmath.mpf(r)))
        assert float(matern32(np.array([r]))[0]) == pytest.approx(expected, rel=1e-14)
        x = mpmath.mpf(r)
        expected = float((1 + x + x * x / 3) * mpmath.exp(-x))
        assert float(matern52(np.array([r]))[0]) == pytest.approx(expected, rel=1e-14)
        assert float(squared_exponential(np.array([r]))[0]) == pytest.approx(float(mpmath.exp(-x * x / 2)), rel=1e-13)


def test_posterior_against_high_precision() -> None:
    x, y = _data(11)
    candidates = np.random.default_rng(1).random((7, 3))

    def correlation(a: np.ndarray, b: np.ndarray) -> mpmath.mpf:
        squares = [(mpmath.mpf(p) - mpmath.mpf(q)) ** 2 for p, q in zip(a, b, strict=True)]
        r = mpmath.sqrt(3 * sum(squares)) / mpmath.mpf(1.5)
        return (1 + r) * mpmath.exp(-r)

    with mpmath.workdps(40):
        k = mpmath.matrix([[correlation(a, b) for b in x] for a in x])
        for i in range(len(x)):
            k[i, i] += mpmath.mpf("0.05") ** 2
        inverse = k**-1
        target = mpmath.matrix(_standardised(y, y).tolist())
        means, variances = [], []
        for c in candidates:
            cross = mpmath.matrix([correlation(c, b) for b in x])
            means.append(float((cross.T * inverse * target)[0]))
            variances.append(float(1 - (cross.T * inverse * cross)[0]))
    posterior = _grown(x, y, candidates, noise=0.05)
    np.testing.assert_allclose(posterior.mean, means, atol=1e-12)
    np.testing.assert_allclose(posterior.variance, variances, rtol=1e-9)


@pytest.mark.parametrize(("n", "offset"), [(2, 0.0), (65, 0.0), (150, 1e6)])
def test_posterior_against_scikit_learn(n: int, offset: float) -> None:
    x, y = _data(n, offset=offset)
    candidates = np.random.default_rng(1).random((2500, 3))
    reference = GaussianProcessRegressor(Matern(1.5, nu=1.5), alpha=1e-10, optimizer=None, normalize_y=True)
    mean, deviation = reference.fit(x, y).predict(candidates, return_std=True)
    whole = FixedPosterior(candidates, length_scale=1.5, noise=1e-5)
    whole.condition(x, y)
    for posterior in (whole, _grown(x, y, candidates)):
        assert len(posterior) == n
        np.testing.assert_allclose(posterior.mean, _standardised(y, mean), atol=1e-6)
        np.testing.assert_allclose(np.sqrt(posterior.variance), deviation / y.std(), rtol=1e-6)
        assert posterior.standardised(float(y[0])) == pytest.approx(float(_standardised(y, y)[0]))


@pytest.mark.parametrize(("covariance", "kernel"), [("matern52", Matern(0.4, nu=2.5)), ("rbf", RBF(0.4))])
def test_other_covariances_against_scikit_learn(covariance: str, kernel: Kernel) -> None:
    x, y = _data(40)
    candidates = np.random.default_rng(1).random((500, 3))
    reference = GaussianProcessRegressor(kernel, alpha=1e-4, optimizer=None, normalize_y=True)
    mean, deviation = reference.fit(x, y).predict(candidates, return_std=True)
    whole = FixedPosterior(candidates, length_scale=0.4, noise=1e-2, covariance=covariance)
    whole.condition(x, y)
    grown = FixedPosterior(candidates, length_scale=0.4, noise=1e-2, covariance=covariance)
    for row, value in zip(x, y, strict=True):
        grown.append(row, value)
    for posterior in (whole, grown):
        np.testing.assert_allclose(posterior.mean, _standardised(y, mean), atol=1e-8)
        np.testing.assert_allclose(np.sqrt(posterior.variance), deviation / y.std(), rtol=1e-7)


def test_imagined_observations_change_the_variance_alone_and_can_be_forgotten() -> None:
    x, y = _data(30)
    candidates = np.random.default_rng(1).random((500, 3))
    posterior = _grown(x[:20], y[:20], candidates)
    mean, variance = posterior.mean, posterior.variance.copy()
    for row in x[20:]:
        posterior.imagine(row)
    assert len(posterior) == 20
    np.testing.assert_array_equal(posterior.mean, mean)
    np.testing.assert_allclose(posterior.variance, _grown(x, y, candidates).variance, rtol=1e-9)
    assert np.all(posterior.variance <= variance)
    assert posterior.variance.sum() < 0.9 * variance.sum()
    posterior.append(x[29], y[29])
    expected = _grown(np.vstack([x[:20], x[29:]]), np.append(y[:20], y[29]), candidates)
    np.testing.assert_allclose(posterior.mean, expected.mean, atol=1e-10)
    np.testing.assert_allclose(posterior.variance, expected.variance, rtol=1e-9)


def test_equal_observations_and_a_single_one_are_no_division_by_zero() -> None:
    x, _ = _data(5)
    for n in (1, 5):
        posterior = _grown(x[:n], np.full(n, 3.0), x)
        np.testing.assert_array_equal(posterior.mean, 0.0)
        assert posterior.standardised(3.0) == 0.0
