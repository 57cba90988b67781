from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma, multivariate_normal, norm
from sklearn.ensemble import RandomForestRegressor

from mptune.results.objective import PENALTIES, Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import CategoricalParameter, OrdinalParameter, PermutationParameter
from mptune.strategies.bayesian_baco import (
    BacoForest,
    BacoProcess,
    BayesianBacoOptions,
    GammaPrior,
    Observation,
    Targets,
    fitted,
)
from mptune.strategies.model_based.acquisition import log_expected_improvement
from mptune.strategies.model_based.coordinates import Distances
from mptune.strategies.model_based.gaussian_process import Hyperparameters, log_posterior, matern52

PARAMETERS = [
    OrdinalParameter("block", [16, 32, 64, 128]),
    CategoricalParameter("layout", ["a", "b", "c"]),
    PermutationParameter("loops", 3),
]

DISTANCES = Distances(PARAMETERS, "spearman")


def _codes(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    every = np.stack(np.unravel_index(rng.permutation(72)[:n], (4, 3, 6)), axis=1)
    return np.asarray(every)


def _scores(codes: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(5).normal(size=len(codes))
    return np.asarray(1.0 / (1.0 + (codes[:, 0] - 2.0) ** 2 + 0.3 * codes[:, 1] + 0.1 * codes[:, 2] + 0.05 * noise))


def _observations(codes: np.ndarray) -> dict[int, Observation]:
    rows = DISTANCES.coordinates(codes)
    return {i: Observation(row, float(s)) for i, (row, s) in enumerate(zip(rows, _scores(codes), strict=True))}


def _model(exploration: float = 0.0) -> BacoProcess:
    options = BayesianBacoOptions(exploration=exploration, fit_samples=6)
    return BacoProcess(options, DISTANCES, minimise=True, rng=np.random.default_rng(0))


def _dense(
    model: BacoProcess, codes: np.ndarray, y: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean and deviation of the function, and of an observation, by a direct solve."""
    found = model.hyperparameters
    assert found is not None

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        scaled = [DISTANCES.coordinates(codes) / found.lengths[DISTANCES.owners] for codes in (a, b)]
        return found.signal**2 * matern52(((scaled[0][:, None, :] - scaled[1][None, :, :]) ** 2).sum(axis=2))

    solved = np.linalg.solve(kernel(codes, codes) + found.noise**2 * np.eye(len(codes)), kernel(codes, at))
    variance = found.signal**2 - (kernel(codes, at) * solved).sum(axis=0)
    return solved.T @ y, np.sqrt(variance), np.sqrt(variance + found.noise**2)


def _standardised(codes: np.ndarray) -> np.ndarray:
    values = -np.log(_scores(codes))
    return np.asarray((values - values.mean()) / values.std())


def _improvement(mean: float, deviation: float, best: float) -> float:
    density = norm(mean, deviation)
    return float(quad(lambda v: (best - v) * density.pdf(v), mean - 12 * deviation, best, epsabs=1e-14)[0])


def test_improvement_is_that_of_the_function_without_noise() -> None:
    codes, at = _codes(25), _codes(72, seed=1)[:12]
    model = _model()
    model.rebuild(_observations(codes), DISTANCES.coordinates(at))
    y = _standardised(codes)
    mean, of_function, of_observation = _dense(model, codes, y, at)
    found = np.exp(model.log_improvement_at(DISTANCES.coordinates(at)))
    expected = [_improvement(m, s, float(y.min())) for m, s in zip(mean, of_function, strict=True)]
    noisy = [_improvement(m, s, float(y.min())) for m, s in zip(mean, of_observation, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-7)
    assert (np.abs(np.array(noisy) - expected) > 1e-4).any()


def test_candidates_are_valued_as_anything_else() -> None:
    codes, at = _codes(30), _codes(72, seed=1)
    model = _model()
    model.rebuild(_observations(codes), DISTANCES.coordinates(at))
    promising = model.log_improvement() > -12
    assert promising.sum() > 3
    np.testing.assert_allclose(
        model.log_improvement()[promising],
        model.log_improvement_at(DISTANCES.coordinates(at))[promising],
        rtol=1e-2,
        atol=0.02,
    )


def test_extending_is_conditioning_on_all() -> None:
    codes, at = _codes(30), _codes(72, seed=1)[:20]
    observations = _observations(codes)
    model = _model()
    model.rebuild({i: observations[i] for i in range(20)}, DISTANCES.coordinates(at))
    model.extend(observations)
    values = -np.log(_scores(codes))
    y = (values - values[:20].mean()) / values[:20].std()
    mean, deviation, _ = _dense(model, codes, y, at)
    expected = [_improvement(m, s, float(y.min())) for m, s in zip(mean, deviation, strict=True)]
    found = np.exp(model.log_improvement_at(DISTANCES.coordinates(at)))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-7)


def test_what_is_imagined_is_an_observation_at_the_mean_until_it_is_forgotten() -> None:
    every = _codes(72)
    best = np.argsort(-_scores(every))
    codes, at = every[best[20:]], every[best[:20]]
    model = _model()
    model.rebuild(_observations(codes), DISTANCES.coordinates(at))
    values = -np.log(_scores(codes))
    y = (values - values.mean()) / values.std()
    before = model.log_improvement()
    mean, _, _ = _dense(model, codes, y, at)
    chosen = int(mean.argmin())
    assert mean[chosen] < y.min()
    model.imagine(99, DISTANCES.coordinates(at)[chosen])
    model.imagine(99, DISTANCES.coordinates(at)[chosen])
    believed = np.append(y, mean[chosen])
    mean, deviation, _ = _dense(model, np.concatenate([codes, at[[chosen]]]), believed, at)
    expected = [_improvement(m, s, float(believed.min())) for m, s in zip(mean, deviation, strict=True)]
    found = model.log_improvement_at(DISTANCES.coordinates(at))
    np.testing.assert_allclose(np.exp(found), expected, rtol=1e-3, atol=1e-6)
    assert found[chosen] < before[chosen]
    model.forget([5])
    np.testing.assert_array_equal(model.log_improvement_at(DISTANCES.coordinates(at)), found)
    model.forget([99])
    np.testing.assert_allclose(model.log_improvement(), before, rtol=1e-4, atol=1e-4)


def test_an_outcome_replaces_what_was_imagined() -> None:
    codes, at = _codes(30), DISTANCES.coordinates(_codes(72, seed=1)[:20])
    observations = _observations(codes)
    first = {i: observations[i] for i in range(29)}
    guessed, told = _model(), _model()
    for model in (guessed, told):
        model.rebuild(first, at)
    guessed.imagine(29, observations[29].coordinates)
    for model in (guessed, told):
        model.extend(observations)
    np.testing.assert_allclose(guessed.log_improvement_at(at), told.log_improvement_at(at), rtol=1e-9)
    np.testing.assert_allclose(guessed.log_improvement(), told.log_improvement(), rtol=1e-3, atol=1e-3)


def test_exploration_asks_for_a_larger_improvement() -> None:
    codes, at = _codes(25), DISTANCES.coordinates(_codes(72, seed=1)[:20])
    greedy, bold = _model(), _model(exploration=0.5)
    for model in (greedy, bold):
        model.rebuild(_observations(codes), at)
    assert (greedy.log_improvement_at(at) > bold.log_improvement_at(at)).all()


def test_one_observation_is_enough_to_begin_with() -> None:
    model = _model()
    model.rebuild(_observations(_codes(1)), DISTANCES.coordinates(_codes(10, seed=1)))
    assert model.hyperparameters is None
    assert np.isfinite(model.log_improvement()).all()


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


def test_the_improvement_under_a_forest_is_that_of_its_trees() -> None:
    rows, at = DISTANCES.coordinates(_codes(40)), DISTANCES.coordinates(_codes(72)[40:]).astype(np.float32)
    scores = _scores(_codes(40))
    options = BayesianBacoOptions(trees=10, exploration=0.1)
    model = BacoForest(options, minimise=True, rng=np.random.default_rng(7))
    model.rebuild({i: Observation(row, float(s)) for i, (row, s) in enumerate(zip(rows, scores, strict=True))}, at)
    y = _standardised(_codes(40))
    seed = int(np.random.default_rng(7).integers(2**31))
    reference = RandomForestRegressor(10, max_features=0.75, random_state=seed).fit(rows, y)
    trees = np.array([tree.predict(at) for tree in reference.estimators_])
    expected = log_expected_improvement(trees.mean(axis=0), np.maximum(trees.std(axis=0), 0.01), y.min() - 0.1)
    np.testing.assert_allclose(model.log_improvement_at(at), expected, rtol=1e-6)
    np.testing.assert_allclose(model.log_improvement(), expected, rtol=1e-6)
