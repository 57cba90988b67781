from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import gamma, multivariate_normal

from mptune.results.objective import PENALTIES, Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.strategies.bayesian_baco import BayesianBacoOptions, GammaPrior, Targets, fitted
from mptune.strategies.model_based.gaussian_process import Hyperparameters, log_posterior, matern52


def _trials() -> list[Trial]:
    rng = np.random.default_rng(0)
    found = []
    for i in range(60):
        metrics = {"time_ms": float(np.exp(rng.normal())), "error": 10.0 ** rng.uniform(-9, -1)}
        found.append(Trial(Configuration({"i": i}), Status.OK, measurement=Measurement(metrics)))
    return found


@pytest.mark.parametrize(("log", "minimise"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("threshold", [1e-5, 1e-12])
def test_values_keep_the_order_of_scores(log: bool, minimise: bool, penalty: str, threshold: float) -> None:
    objective = Objective(minimise=minimise, penalty=penalty, threshold=threshold)
    scores = objective.scores(_trials())
    values = Targets.of(scores, log=log, minimise=minimise).apply(scores)
    assert np.isfinite(values).all()
    order = np.argsort(-scores, kind="stable")
    steps = np.diff(values[order])
    assert (steps >= 0).all()
    if penalty != "hard":
        assert (steps > 0).all()
    if np.ptp(scores) > 0:
        assert values.mean() == pytest.approx(0.0, abs=1e-9)
        assert values.std() == pytest.approx(1.0)


def test_the_value_is_the_logarithm_of_the_objective() -> None:
    times = np.array([1.0, 2.0, 8.0, 64.0])
    values = Targets.of(1.0 / times, log=True, minimise=True).apply(1.0 / times)
    np.testing.assert_allclose(np.diff(values) / np.diff(values)[0], [1.0, 2.0, 3.0])
    plain = Targets.of(1.0 / times, log=False, minimise=True).apply(1.0 / times)
    np.testing.assert_allclose(np.diff(plain) / np.diff(plain)[0], [1.0, 6.0, 56.0])
    rates = Targets.of(times, log=False, minimise=False).apply(times)
    np.testing.assert_allclose(np.diff(rates) / np.diff(rates)[0], [1.0, 6.0, 56.0])


@pytest.mark.parametrize("log", [True, False])
def test_extreme_scores_stay_finite(log: bool) -> None:
    scores = np.array([5e-324, 1.0, 1.7e308, 0.0, -1.7e308])
    values = Targets.of(scores, log=log, minimise=True).apply(scores)
    assert np.isfinite(values).all()
    assert (np.diff(values[np.argsort(-scores)]) >= 0).all()


#: Three coordinates, of which the first two share a length scale.
PRIOR = GammaPrior(1.3, 0.1, np.array([0, 0, 1]))

OPTIONS = BayesianBacoOptions(iterations=60)


def _data(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return points and values that do not depend on the last coordinate."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 6, size=(n, 3)) / 5.0
    y = np.sin(4.0 * x[:, 0]) + 0.5 * x[:, 1] + 0.05 * rng.normal(size=n)
    return x, (y - y.mean()) / y.std()


def _log_density(vector: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    lengths, signal, noise = np.exp(vector[:-2]), np.exp(vector[-2]), np.exp(vector[-1])
    squared = (((x[:, None, :] - x[None, :, :]) / lengths[PRIOR.owners]) ** 2).sum(axis=2)
    covariance = signal**2 * matern52(squared) + noise**2 * np.eye(len(x))
    prior = gamma(a=1.3, scale=10.0).logpdf(lengths).sum()
    return float(multivariate_normal(np.zeros(len(x)), covariance).logpdf(y) + prior)


@pytest.mark.parametrize("n", [2, 7, 65])
def test_log_posterior_against_scipy(n: int) -> None:
    x, y = _data(n)
    rng = np.random.default_rng(1)
    vectors = np.column_stack([rng.uniform(-1.5, 1.5, size=(5, 3)), rng.uniform(-3.0, -1.0, size=5)])
    ours = np.array([log_posterior(v, x, y, PRIOR)[0] for v in vectors])
    dense = np.array([_log_density(v, x, y) for v in vectors])
    # Alike up to a constant.
    np.testing.assert_allclose(ours - ours[0], dense - dense[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [2, 70])
def test_gradient_against_finite_differences(n: int) -> None:
    x, y = _data(n, seed=n)
    rng = np.random.default_rng(2)
    for _ in range(3):
        vector = np.concatenate([rng.uniform(-1.5, 1.5, size=3), [-2.0]])
        _, gradient = log_posterior(vector, x, y, PRIOR)
        for i in range(len(vector)):
            step = np.zeros(len(vector))
            step[i] = 1e-5
            above, below = (log_posterior(vector + s, x, y, PRIOR)[0] for s in (step, -step))
            assert gradient[i] == pytest.approx((above - below) / 2e-5, rel=2e-5, abs=2e-5)


@pytest.mark.parametrize("seed", range(3))
def test_fit_ends_at_a_maximum_no_random_setting_exceeds(seed: int) -> None:
    x, y = _data(40, seed=seed)
    found = fitted(x, y, PRIOR, OPTIONS, None, np.random.default_rng(seed)).to_vector()
    value, gradient = log_posterior(found, x, y, PRIOR)
    inside = (found > PRIOR.low + 1e-6) & (found < PRIOR.high - 1e-6)
    assert np.abs(gradient[inside]).max() < 0.1
    rng = np.random.default_rng(9)
    for _ in range(50):
        other = np.log(10.0 ** np.append(rng.uniform(-1.0, 1.0, size=3), rng.uniform(-2.0, -0.5)))
        assert log_posterior(other, x, y, PRIOR)[0] < value


def test_the_prior_decides_where_the_data_do_not() -> None:
    x, y = _data(30)
    x[:, 2] = 0.0
    prior = GammaPrior(3.0, 6.0, PRIOR.owners)
    found = fitted(x, y, prior, OPTIONS, None, np.random.default_rng(0))
    assert found.lengths[1] == pytest.approx(2.0 / 6.0, rel=1e-2)


def test_the_last_fit_is_a_starting_point() -> None:
    x, y = _data(40)
    thorough = BayesianBacoOptions(fit_samples=60, fit_starts=10, iterations=100)
    first = fitted(x, y, PRIOR, thorough, None, np.random.default_rng(0))
    quick = BayesianBacoOptions(fit_samples=1, fit_starts=1, iterations=1)
    again = fitted(x, y, PRIOR, quick, first, np.random.default_rng(1))
    value = log_posterior(again.to_vector(), x, y, PRIOR)[0]
    assert value >= log_posterior(first.to_vector(), x, y, PRIOR)[0] - 1e-9


def test_equal_observations_are_no_obstacle() -> None:
    y = np.array([1.0, -1.0, 0.5, -0.5, 0.0])
    found = fitted(np.zeros((5, 3)), y, PRIOR, OPTIONS, None, np.random.default_rng(0))
    assert isinstance(found, Hyperparameters)
    assert np.isfinite(found.to_vector()).all()
