from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as reference
from threadpoolctl import threadpool_info, threadpool_limits

from mptune.strategies.model_based.gaussian_process import (
    KERNELS,
    Hyperparameters,
    LogNormalPrior,
    Posterior,
    fit,
    log_posterior,
    matern52,
    single_threaded,
)

PRIOR = LogNormalPrior(3, length_spread=0.8, noise=0.05)
HYPERPARAMETERS = Hyperparameters(np.array([0.4, 0.9, 2.5]), signal=1.3, noise=0.07)


def _data(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.random((n, 3))
    return x, np.sin(5.0 * x[:, 0]) + 0.5 * x[:, 1] + 0.05 * rng.normal(size=n)


def _kernel(a: np.ndarray, b: np.ndarray) -> mpmath.mpf:
    r = mpmath.sqrt(
        5
        * sum(
            ((mpmath.mpf(p) - mpmath.mpf(q)) / mpmath.mpf(s)) ** 2
            for p, q, s in zip(a, b, HYPERPARAMETERS.lengths, strict=True)
        )
    )
    return mpmath.mpf(HYPERPARAMETERS.signal) ** 2 * (1 + r + r * r / 3) * mpmath.exp(-r)


def test_posterior_against_high_precision() -> None:
    x, y = _data(14)
    candidates = np.random.default_rng(1).random((9, 3))
    with mpmath.workdps(50):
        k = mpmath.matrix([[_kernel(a, b) for b in x] for a in x])
        for i in range(len(x)):
            k[i, i] += mpmath.mpf(HYPERPARAMETERS.noise) ** 2
        inverse = k**-1
        means, deviations = [], []
        for c in candidates:
            cross = mpmath.matrix([_kernel(c, b) for b in x])
            means.append(float((cross.T * inverse * mpmath.matrix(y.tolist()))[0]))
            deviations.append(float(mpmath.sqrt(_kernel(c, c) - (cross.T * inverse * cross)[0])))
    posterior = Posterior(HYPERPARAMETERS, candidates, x, y)
    np.testing.assert_allclose(posterior.predict_mean(candidates), means, atol=2e-5)
    np.testing.assert_allclose(posterior.mean, means, atol=2e-5)
    np.testing.assert_allclose(posterior.deviation, deviations, atol=2e-4)
    mean, deviation = posterior.predict(candidates)
    np.testing.assert_allclose(mean, means, atol=1e-6)
    np.testing.assert_allclose(deviation, deviations, atol=1e-6)


def test_what_is_imagined_is_expected_and_can_be_forgotten() -> None:
    x, y = _data(40)
    candidates = np.random.default_rng(1).random((50, 3))
    posterior = Posterior(HYPERPARAMETERS, candidates, x[:30], y[:30])
    mean, deviation = posterior.mean.copy(), posterior.deviation
    for row in x[30:]:
        assert posterior.imagine(row) == pytest.approx(posterior.predict(row[None, :])[0][0], abs=0.02)
    np.testing.assert_allclose(posterior.mean, mean, atol=1e-4)
    assert posterior.deviation.sum() < 0.99 * deviation.sum()
    assert len(posterior) == 30
    posterior.forget_imagined()
    np.testing.assert_allclose(posterior.mean, mean, atol=1e-6)
    np.testing.assert_allclose(posterior.deviation, deviation, atol=1e-5)
    posterior.imagine(x[31])
    posterior.append(x[30], y[30])
    whole = Posterior(HYPERPARAMETERS, candidates, x[:31], y[:31])
    np.testing.assert_allclose(posterior.mean, whole.mean, atol=1e-4)
    assert len(posterior) == 31


def test_log_posterior_is_likelihood_times_prior() -> None:
    x, y = _data(25)
    rng = np.random.default_rng(3)

    def independent(vector: np.ndarray) -> float:
        h = Hyperparameters.from_vector(vector)
        scaled = x / h.lengths
        squared = ((scaled[:, None, :] - scaled[None, :, :]) ** 2).sum(axis=2)
        covariance = h.signal**2 * matern52(squared) + (h.noise**2 + 1e-8 * h.signal**2) * np.eye(len(x))
        prior = norm.logpdf(vector, PRIOR.means, PRIOR.unit).sum()
        return float(multivariate_normal.logpdf(y, np.zeros(len(x)), covariance) + prior)

    a, b = PRIOR.means + 0.5 * rng.normal(size=(2, 5))
    found = log_posterior(a, x, y, PRIOR)[0] - log_posterior(b, x, y, PRIOR)[0]
    assert found == pytest.approx(independent(a) - independent(b), rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_gradient_against_differences(seed: int) -> None:
    x, y = _data(30, seed)
    vector = PRIOR.means + 0.5 * np.random.default_rng(seed).normal(size=5)
    _, gradient = log_posterior(vector, x, y, PRIOR)
    for i in range(5):
        step = np.zeros(5)
        step[i] = 1e-5
        up, down = (log_posterior(vector + s * step, x, y, PRIOR)[0] for s in (1, -1))
        assert gradient[i] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-4)


def test_fit_learns_which_features_matter_and_the_noise() -> None:
    x, y = _data(120)
    y = (y - y.mean()) / y.std()
    found = fit(x, y, PRIOR, [PRIOR.centre], 100)
    assert found.lengths[0] < found.lengths[1] < found.lengths[2]
    assert found.noise == pytest.approx(0.05 / np.std(_data(120)[1]), rel=0.4)


def test_fit_survives_repeated_points_and_constant_values() -> None:
    x = np.repeat(_data(5)[0], 8, axis=0)
    found = fit(x, np.zeros(40), PRIOR, [PRIOR.centre], 50)
    posterior = Posterior(found, x, x, np.zeros(40))
    assert np.isfinite(posterior.mean).all()
    assert (posterior.deviation > 0).all()


@pytest.mark.parametrize(
    ("kernel", "theirs"),
    [
        ("matern32", reference.Matern(1.5, nu=1.5)),
        ("matern52", reference.Matern(0.4, nu=2.5)),
        ("rbf", reference.RBF(0.4)),
    ],
)
@pytest.mark.parametrize("n", [2, 150])
def test_double_precision_and_other_covariances_against_scikit_learn(
    kernel: str, theirs: reference.Kernel, n: int
) -> None:
    x, y = _data(n)
    candidates = np.random.default_rng(1).random((2500, 3))
    noise = 1e-5 if kernel == "matern32" else 1e-2
    expected = GaussianProcessRegressor(theirs, alpha=noise**2, optimizer=None).fit(x, y)
    mean, deviation = expected.predict(candidates, return_std=True)
    hyperparameters = Hyperparameters(np.full(3, theirs.length_scale), 1.0, noise)
    whole, grown = (Posterior(hyperparameters, candidates, x[:k], y[:k], KERNELS[kernel], np.float64) for k in (n, 0))
    for row in x:
        grown.append(row, 7.0)
    grown.revalue(y)
    for posterior in (whole, grown):
        np.testing.assert_allclose(posterior.mean, mean, atol=1e-5)
        np.testing.assert_allclose(posterior.deviation, deviation, rtol=1e-4)


# -- linear algebra and maxima ---------------------------------------------------------------------


def _threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_linear_algebra_has_one_thread_until_the_limit_ends() -> None:
    with threadpool_limits(2, user_api="blas"):
        before = _threads()
        with single_threaded(), single_threaded():
            assert set(_threads()) == {1}
        assert _threads() == before
