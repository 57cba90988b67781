from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pytest
from mixed_precision import SIGNATURE, Kernel
from scipy.stats import gamma, multivariate_normal
from searches import drive
from sklearn.ensemble import RandomForestRegressor

from mptune.errors import MptuneError
from mptune.results.objective import PENALTIES, Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter, PermutationParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.bayesian_baco import (
    BayesianBacoOptions,
    BayesianBacoStrategy,
    Forest,
    GammaPrior,
    Targets,
    fitted,
)
from mptune.strategies.model_based.gaussian_process import log_posterior, matern52
from mptune.testing.strategies import StrategyConformance
from tests.tiers import few

#: Cheaper than the defaults, where the defaults are not what is tested.
QUICK = {"trees": 10, "fit_samples": 3, "fit_starts": 1, "iterations": 15, "refit": 1.25}
SMALL = Kernel(None, types=("fp32", "fp16"))


class TestConformance(StrategyConformance):
    """The defaults are tested beside those of the other strategies; here are samples and local search.

    The probability to run that a candidate needs is often one that no candidate has.
    """

    strategy = BayesianBacoStrategy
    options: ClassVar = QUICK | {
        "points": 20,
        "starts": 2,
        "elite": 1,
        "neighbours": 5,
        "iterations": 5,
        "permutation": "kendall",
        "neighbourhood": "adjacent",
        "log": False,
        "fit_samples": 1,
        "trees": 2,
        "least_feasible": 1.0,
    }


def _strategy(kernel: Kernel, seed: int = 0, **options: object) -> BayesianBacoStrategy:
    made = make(
        "bayesian-baco", kernel.space, kernel.objective, signature=SIGNATURE, seed=seed, options=QUICK | options
    )
    assert isinstance(made, BayesianBacoStrategy)
    return made


# -- how well it finds -----------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("threshold", [None, 3e-6])
def test_beats_random_in_the_mean(threshold: float | None) -> None:
    kernel = Kernel(threshold)
    ours = [kernel.regret(kernel.search("bayesian-baco", 50, seed, **QUICK)) for seed in range(3)]
    random = [kernel.regret(kernel.search("random", 150, seed)) for seed in range(3)]
    assert np.mean(ours) < 0.5 * np.mean(random)


@pytest.mark.parametrize(
    "options",
    few(
        [
            {"log": False},
            {"points": 200},
            {"points": 200, "neighbourhood": "adjacent"},
            {"points": 200, "local_search": False, "sampling": "biased"},
            {"surrogate": "random-forest"},
            {"surrogate": "random-forest", "points": 200},
            {"log_parameters": False, "length_shape": 1, "length_rate": 1e-9},
        ],
        3,
    ),
)
def test_finds_something_good_in_samples_and_without_its_parts(options: dict[str, object]) -> None:
    assert SMALL.regret(SMALL.search("bayesian-baco", 30, 0, **(QUICK | options))) < 0.1
    assert SMALL.regret(SMALL.search("random", 30, 0)) > 0.2


@pytest.mark.parametrize("permutation", few(["spearman", "kendall", "hamming", "naive"]))
def test_finds_the_best_order_of_loops(permutation: str) -> None:
    space = SearchSpace([PermutationParameter("loops", 5), OrdinalParameter("tile", [1, 2, 4, 8])])
    target = (2, 0, 4, 1, 3)

    def evaluate(c: Configuration) -> Trial:
        moved = sum(abs(c["loops"].index(e) - target.index(e)) for e in range(5))  # type: ignore[union-attr]
        time_ms = 1.0 + moved + abs(math.log2(float(c["tile"])) - 2.0)  # type: ignore[arg-type]
        return Trial(c, Status.OK, measurement=Measurement({"time_ms": time_ms}))

    strategy = make("bayesian-baco", space, Objective(), seed=0, options=QUICK | {"permutation": permutation})
    assert min(trial.time_ms for trial in drive(strategy, evaluate, 50)) <= 3.0


# -- what it learns from ---------------------------------------------------------------------------


def test_a_resumed_run_needs_no_initial_sample() -> None:
    told = SMALL.search("random", 30, 0)
    assert SMALL.regret(told) > 0.2
    resumed = _strategy(SMALL, initial=30)
    resumed.tell(told)
    assert SMALL.regret(drive(resumed, SMALL.evaluate, 12)) < 0.1


# -- its options -----------------------------------------------------------------------------------


def test_a_naive_distance_of_many_orders_is_refused() -> None:
    space = SearchSpace([PermutationParameter("loops", 7)])
    with pytest.raises(MptuneError, match="loops: naive distances are for up to 720 orders, it has 5,040"):
        make("bayesian-baco", space, Objective(), options={"permutation": "naive"})


# -- its models ------------------------------------------------------------------------------------


def _points(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 3))


def test_mean_and_deviation_are_those_of_the_trees() -> None:
    x, other = _points(40), _points(30, seed=1)
    y = x[:, 0] + x[:, 1] ** 2
    forest = Forest(10, np.random.default_rng(7), x, y, bootstrap=True)
    seed = int(np.random.default_rng(7).integers(2**31))
    reference = RandomForestRegressor(10, max_features=0.75, random_state=seed).fit(x, y)
    trees = np.array([tree.predict(other.astype(np.float32)) for tree in reference.estimators_])
    mean, deviation = forest.predict(other)
    np.testing.assert_allclose(mean, trees.mean(axis=0))
    np.testing.assert_allclose(deviation, trees.std(axis=0), atol=1e-7)


def _random_trials() -> list[Trial]:
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
    scores = objective.scores(_random_trials())
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


#: Three coordinates; the first two share a length scale.
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
