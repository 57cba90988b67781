from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import mpmath
import numpy as np
import pytest
from mixed_precision import SIGNATURE, Kernel
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from mptune.objective import Objective
from mptune.results import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import (
    BooleanParameter,
    CategoricalParameter,
    OrdinalParameter,
    PermutationParameter,
    PolicyParameter,
    PrecisionParameter,
)
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.base import Strategy
from mptune.strategies.bayesian_multi import METHODS, BayesianMultiOptions, BayesianMultiStrategy
from mptune.strategies.model_based.coordinates import Normalisation
from mptune.strategies.model_based.fixed_posterior import FixedPosterior, matern32
from mptune.strategies.model_based.portfolio import (
    AdvancedMulti,
    Multi,
    confidence_bound,
    contextual_variance,
    expected_improvement,
    probability_of_improvement,
)
from mptune.testing.strategies import StrategyConformance

# -- every method conforms ---------------------------------------------------------------------


class _Conformance(StrategyConformance):
    strategy = BayesianMultiStrategy
    given: ClassVar[dict[str, Any]] = {}

    def make(
        self, space: SearchSpace, objective: Objective | None = None, *, signature: Sequence[str] = (), seed: int = 0
    ) -> Strategy:
        name = BayesianMultiStrategy.name
        return make(name, space, objective or Objective(), signature=signature, seed=seed, options=self.given)


class TestAdvancedMulti(_Conformance):
    given: ClassVar[dict[str, Any]] = {"initial": 4}


class TestMulti(_Conformance):
    given: ClassVar[dict[str, Any]] = {"method": "multi", "initial": 4, "threshold": 2}


class TestSingleFunctionOnSamples(_Conformance):
    """Every space is large here, and observations are too many for the model."""

    given: ClassVar[dict[str, Any]] = {
        "method": "ei",
        "initial": 4,
        "max_candidates": 1,
        "sample": 10,
        "max_observations": 20,
    }


# -- the normalised space ----------------------------------------------------------------------


def _distances(space: SearchSpace) -> np.ndarray:
    x = Normalisation(space.parameters).coordinates(space.codes(np.arange(space.size)))
    return np.asarray(np.sqrt(np.square(x[:, None] - x[None, :]).sum(axis=2)))


def test_values_are_spaced_linearly_whatever_they_are() -> None:
    for parameter in (
        OrdinalParameter("p", [1, 2, 4, 1024]),
        OrdinalParameter("p", [10, 20, 30, 40]),
        OrdinalParameter("p", ["tiny", "small", "large", "huge"]),
    ):
        x = Normalisation([parameter]).coordinates(np.arange(4)[:, None])
        np.testing.assert_allclose(x, [[0.0], [1 / 3], [2 / 3], [1.0]])


def test_constant_parameters_are_pruned() -> None:
    space = SearchSpace([OrdinalParameter("one", [7]), BooleanParameter("b"), PrecisionParameter("t", ["fp32"])])
    coordinates = Normalisation(space.parameters).coordinates(space.codes([0, 1]))
    np.testing.assert_array_equal(coordinates, [[0.0], [1.0]])
    only = Normalisation([OrdinalParameter("one", [7])])
    assert only.coordinates(np.zeros((1, 1), dtype=np.int32)).shape == (1, 0)


def test_categories_are_equally_far_apart() -> None:
    distances = _distances(SearchSpace([CategoricalParameter("c", ["a", "b", "c"])]))
    np.testing.assert_allclose(distances, 1.0 - np.eye(3))


@pytest.mark.parametrize("order", [["fp64", "fp32", "fp16", "bf16"], ["bf16", "fp64", "fp16", "fp32"]])
def test_precisions_are_placed_by_what_they_are_not_by_their_order(order: list[str]) -> None:
    distances = _distances(SearchSpace([PrecisionParameter("t", order)]))
    at = {name: order.index(name) for name in order}
    assert distances[at["fp16"], at["bf16"]] < distances[at["fp32"], at["fp16"]] < distances[at["fp64"], at["fp16"]]
    assert distances.max() == pytest.approx(1.0)


def test_no_two_configurations_coincide() -> None:
    space = SearchSpace(
        [
            PermutationParameter("p", 3),
            PolicyParameter("policy"),
            PrecisionParameter("t", ["fp8_e4m3", "fp8_e5m2", "fp16", "bf16"]),
        ]
    )
    distances = _distances(space)
    assert distances[~np.eye(space.size, dtype=bool)].min() > 0.01


# -- the posterior -----------------------------------------------------------------------------


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


# -- the model of a space ----------------------------------------------------------------------


def _model(space: SearchSpace, **options: Any) -> BayesianMultiStrategy:
    strategy = make("bayesian-multi", space, Objective(), options={"max_candidates": 10_000, "sample": 50} | options)
    assert isinstance(strategy, BayesianMultiStrategy)
    return strategy


def _tell(strategy: BayesianMultiStrategy, indices: Sequence[int]) -> None:
    times = [1.0 / (2.0 + math.sin(0.7 * index)) for index in indices]
    configurations = strategy.space.configurations(indices)
    strategy.tell([_trial(c, time) for c, time in zip(configurations, times, strict=True)])


def _trial(configuration: Configuration, time_ms: float) -> Trial:
    return Trial(configuration, Status.OK, measurement=Measurement({"time_ms": time_ms}))


def test_model_is_extended_to_what_it_would_be_if_made_anew() -> None:
    space = SearchSpace([OrdinalParameter("a", range(20)), OrdinalParameter("b", range(30))])
    grown, anew = _model(space), _model(space)
    indices = np.random.default_rng(3).permutation(600)[:40].tolist()
    awaited = [index for index in (599, 7) if index not in indices]
    assert awaited
    for model, told in ((grown, indices[:25]), (anew, indices)):
        _tell(model, told)
        model._pending.update(dict.fromkeys(awaited))
    grown._updated()
    for index in awaited:
        grown._strike(index)
    _tell(grown, indices[25:])
    for _ in range(2):
        (ours, pool), (theirs, other) = grown._updated(), anew._updated()
        np.testing.assert_array_equal(pool.free, other.free)
        assert pool.free.sum() == 600 - len(indices) - len(awaited)
        np.testing.assert_allclose(ours.mean[pool.free], theirs.mean[pool.free], atol=1e-8)
        np.testing.assert_allclose(ours.variance[pool.free], theirs.variance[pool.free], rtol=1e-8)
        assert ours.standardised(0.5) == pytest.approx(theirs.standardised(0.5))
        # Then without what was awaited.
        for model in (grown, anew):
            model._pending.clear()


def test_model_of_a_large_space_looks_around_the_best() -> None:
    space = SearchSpace([OrdinalParameter(f"p{i}", range(10)) for i in range(8)])
    model = _model(space, max_candidates=1000)
    _tell(model, [12_345_678, 5, 99_999_999])
    best = max(model.observations, key=lambda index: model.observations[index])
    _, pool = model._updated()
    assert set(space.neighbours(best).tolist()) <= set(pool.indices.tolist())
    assert 50 <= len(pool.indices) <= 50 + 3 * 72
    assert model._updated()[1] is pool
    model.tell([_trial(space.configuration(55_555_555), 0.1)])
    assert set(space.neighbours(55_555_555).tolist()) <= set(model._updated()[1].indices.tolist())


def test_model_holds_no_more_observations_than_it_may() -> None:
    model = _model(SearchSpace([OrdinalParameter("a", range(500))]), max_observations=20)
    sizes = []
    for index in range(0, 500, 4):
        _tell(model, [index])
        sizes.append(len(model._updated()[0]))
    assert max(sizes) == 20
    assert min(sizes[20:]) == 15


# -- acquisition functions and exploration -----------------------------------------------------


@pytest.mark.parametrize("exploration", [0.0, 0.3])
def test_acquisition_functions_against_high_precision(exploration: float) -> None:
    rng = np.random.default_rng(5)
    mean, deviation, best = rng.normal(size=40), rng.random(40) + 0.01, -0.7
    mean[:3] = (8.0, 60.0, -9.0)
    improvement, probability, bound = (
        function(mean, deviation, best, exploration)
        for function in (expected_improvement, probability_of_improvement, confidence_bound)
    )
    with mpmath.workdps(60):
        for i in range(len(mean)):
            m, s = mpmath.mpf(mean[i]), mpmath.mpf(deviation[i])
            gap = mpmath.mpf(best) - mpmath.mpf(exploration) - m
            density = mpmath.exp(-((gap / s) ** 2) / 2) / mpmath.sqrt(2 * mpmath.pi)
            below = mpmath.erfc(-gap / s / mpmath.sqrt(2)) / 2
            assert improvement[i] == pytest.approx(float(mpmath.log(gap * below + s * density)), rel=1e-7, abs=1e-12)
            assert probability[i] == pytest.approx(float(mpmath.log(below)), rel=1e-10, abs=1e-15)
            assert bound[i] == pytest.approx(float(-(m - exploration * s)), rel=1e-12)


def test_contextual_variance_on_hand_numbers() -> None:
    # Mean variance 0.3, after the initial sample 0.5; times of 10 in the initial sample's mean, 4 at best.
    assert contextual_variance(0.3, 0.5, 10.0 / 4.0) == pytest.approx(0.24)
    assert contextual_variance(0.5, 0.5, 1.0) == 1.0


class _Line:
    """1,000 configurations on a line, their times, and the failing ones."""

    def __init__(self, time_ms: Callable[[int], float], fails: Callable[[int], bool] = lambda _: False) -> None:
        self.space = SearchSpace([OrdinalParameter("p", range(1000))])
        self._time_ms, self._fails = time_ms, fails

    def evaluate(self, configuration: Configuration) -> Trial:
        p = int(configuration["p"])  # type: ignore[call-overload]
        if self._fails(p):
            return Trial(configuration, Status.LAUNCH_ERROR, "too many registers")
        return Trial(configuration, Status.OK, measurement=Measurement({"time_ms": self._time_ms(p)}))

    def strategy(self, seed: int = 0, **options: Any) -> BayesianMultiStrategy:
        strategy = make("bayesian-multi", self.space, Objective(), seed=seed, options=options)
        assert isinstance(strategy, BayesianMultiStrategy)
        return strategy

    def run(self, strategy: Strategy, n: int, batch: int = 1) -> list[int]:
        asked: list[Configuration] = []
        while len(asked) < n:
            found = strategy.ask(min(batch, n - len(asked)))
            strategy.tell([self.evaluate(c) for c in found])
            asked.extend(found)
        return [int(c["p"]) for c in asked]  # type: ignore[call-overload]


def _bumpy(p: int) -> float:
    return 2.0 + math.sin(p / 60.0) + 0.3 * math.cos(p / 11.0)


def test_exploration_follows_the_contextual_variance() -> None:
    line = _Line(_bumpy)
    strategy = line.strategy(initial=5)
    initial = [1.0 / _bumpy(p) for p in line.run(strategy, 5)]
    strategy.ask(1)
    assert strategy.exploration == pytest.approx(np.mean(initial) / max(initial))
    line.run(strategy, 40)
    assert 0.0 < strategy.exploration < 0.02


def test_exploration_may_be_constant() -> None:
    line = _Line(_bumpy)
    strategy = line.strategy(initial=5, contextual="no", exploration="0.25")
    line.run(strategy, 30)
    assert strategy.exploration == 0.25


def test_the_unit_of_time_does_not_matter() -> None:
    runs = []
    for unit in (1.0, 2.0**-10, 2.0**10):
        line = _Line(lambda p, unit=unit: unit * _bumpy(p))  # type: ignore[misc]
        runs.append(line.run(line.strategy(seed=1), 50))
    assert runs[0] == runs[1] == runs[2]


# -- portfolios --------------------------------------------------------------------------------

NAMES = ("ei", "poi", "lcb")
DISTINCT = {"ei": 1, "poi": 2, "lcb": 3}


def test_observations_are_discounted() -> None:
    portfolio = Multi(("ei", "poi"), threshold=5, discount=0.5)
    for ei, poi in ((4.0, 1.0), (2.0, 1.0), (1.0, 8.0)):
        portfolio.close({"ei": 1, "poi": 2}, {"ei": ei, "poi": poi})
    assert portfolio.scores() == {"ei": 4.0 / 4 + 2.0 / 2 + 1.0, "poi": 1.0 / 4 + 1.0 / 2 + 8.0}


def test_multi_keeps_the_best_of_those_that_duplicate_too_often() -> None:
    portfolio = Multi(NAMES, threshold=2, discount=0.65)
    observed = {"ei": 1.0, "poi": 3.0, "lcb": 9.0}
    conflict = {"ei": 1, "poi": 1, "lcb": 2}
    for _ in range(2):
        portfolio.close(conflict, observed)
        portfolio.close(DISTINCT, observed)
    assert portfolio.active == NAMES
    portfolio.close(conflict, observed)
    assert portfolio.active == ("poi", "lcb")


def test_multi_gives_the_one_it_keeps_a_clean_slate_and_ends_with_one() -> None:
    portfolio = Multi(NAMES, threshold=1, discount=0.65)
    equal = dict.fromkeys(NAMES, 1.0)
    for _ in range(2):
        portfolio.close({"ei": 1, "poi": 1, "lcb": 2}, equal)
    assert portfolio.active == ("ei", "lcb")
    portfolio.close({"ei": 1, "lcb": 1}, {"ei": 1.0, "lcb": 5.0})
    assert portfolio.active == ("ei", "lcb")
    portfolio.close({"ei": 1, "lcb": 1}, {"ei": 1.0, "lcb": 5.0})
    assert portfolio.active == ("lcb",)
    portfolio.close({"lcb": 1}, {"lcb": 0.0})
    assert portfolio.active == ("lcb",)


def test_multi_drops_none_that_has_no_conflict() -> None:
    portfolio = Multi(NAMES, threshold=1, discount=0.65)
    for _ in range(20):
        portfolio.close(DISTINCT, {"ei": 0.0, "poi": 5.0, "lcb": 9.0})
    assert portfolio.active == NAMES


def test_advanced_multi_drops_what_is_worse_and_resets_the_counts() -> None:
    portfolio = AdvancedMulti(NAMES, threshold=3, discount=0.75, required=0.1)
    observed = {"ei": 1.04, "poi": 1.04, "lcb": 0.8}
    for _ in range(2):
        portfolio.close(DISTINCT, observed)
    assert portfolio.active == NAMES
    portfolio.close(DISTINCT, observed)
    assert portfolio.active == ("ei", "poi")
    for _ in range(30):
        portfolio.close(DISTINCT, {"ei": 1.0, "poi": 1.1})
    assert portfolio.active == ("ei", "poi")


def test_advanced_multi_promotes_what_is_better() -> None:
    portfolio = AdvancedMulti(NAMES, threshold=3, discount=0.75, required=0.1)
    # The mean is 1.04: the others are 8% worse, one is 15% better.
    observed = {"ei": 0.96, "poi": 1.2, "lcb": 0.96}
    for _ in range(2):
        portfolio.close(DISTINCT, observed)
    assert portfolio.active == NAMES
    portfolio.close(DISTINCT, observed)
    assert portfolio.active == ("poi",)


def test_advanced_multi_requires_the_improvement() -> None:
    portfolio = AdvancedMulti(NAMES, threshold=1, discount=0.75, required=0.25)
    for _ in range(50):
        portfolio.close(DISTINCT, {"ei": 0.8, "poi": 1.2, "lcb": 1.0})
    assert portfolio.active == NAMES


def test_the_worst_goes_before_the_best_is_promoted_and_the_score_breaks_ties() -> None:
    portfolio = AdvancedMulti(NAMES, threshold=1, discount=0.75, required=0.1)
    portfolio.close(DISTINCT, {"ei": 0.6, "poi": 0.5, "lcb": 3.0})
    assert portfolio.active == ("ei", "lcb")
    portfolio.close(DISTINCT, {"ei": 0.6, "lcb": 3.0})
    assert portfolio.active == ("lcb",)


@pytest.mark.parametrize("method", ["multi", "advanced-multi"])
@pytest.mark.parametrize("batch", [1, 4])
def test_the_strategy_narrows_its_portfolio(method: str, batch: int) -> None:
    line = _Line(_bumpy)
    strategy = line.strategy(method=method, threshold=2, initial=8)
    assert strategy.active == NAMES
    line.run(strategy, 120, batch)
    assert len(strategy.active) < 3


def test_only_advanced_multi_lets_no_two_functions_suggest_the_same() -> None:
    line = _Line(lambda p: 1.0 + p)
    left = {0, 500, 900}
    told = [line.evaluate(c) for c in line.space.configurations([p for p in range(1000) if p not in left])]
    for method, suggested in (("multi", [0]), ("advanced-multi", [0, 500, 900])):
        strategy = line.strategy(method=method, max_observations=1000)
        strategy.tell(told)
        [first] = strategy.ask(1)
        # Among 997 observations the two others differ by rounding alone, so their order is of no account.
        assert first["p"] == 0
        assert sorted([0, *strategy.suggestions]) == suggested


def test_an_order_of_functions_can_be_given() -> None:
    line = _Line(_bumpy)
    assert line.strategy(functions="lcb, ei").active == ("lcb", "ei")
    assert line.strategy(method="poi").active == ("poi",)


# -- trials ------------------------------------------------------------------------------------


def test_failed_trials_leave_the_model_and_are_replaced_in_the_initial_sample() -> None:
    line = _Line(_bumpy, fails=lambda p: p % 3 != 0)
    strategy = line.strategy(initial=20)
    valid = 0
    while valid < 20:
        [p] = line.run(strategy, 1)
        assert not strategy.suggestions
        assert math.isnan(strategy.exploration)
        valid += p % 3 == 0
    assert strategy.ask(1)
    assert not math.isnan(strategy.exploration)
    assert len(strategy.observations) == 20
    assert all(index % 3 == 0 for index in strategy.observations)


def test_told_trials_are_observations() -> None:
    line = _Line(_bumpy)
    told = [line.evaluate(c) for c in line.space.configurations(range(0, 1000, 20))]
    strategy = line.strategy()
    strategy.tell(told)
    asked = line.run(strategy, 6)
    assert len(strategy.observations) == 56
    assert min(_bumpy(p) for p in asked) <= min(t.time_ms for t in told)
    assert not math.isnan(strategy.exploration)


def test_the_initial_sample_is_drawn_beside_a_baseline_that_is_one_sided() -> None:
    kernel = Kernel(None, fail=False)
    strategy = make("bayesian-multi", kernel.space, kernel.objective, seed=0, options={"initial": 12})
    assert isinstance(strategy, BayesianMultiStrategy)
    doubles = kernel.space.restrict({name: ["fp64"] for name in ("x_type", "y_type", "w_type", "sum_type")})
    strategy.tell([kernel.evaluate(c) for c in doubles.configurations(range(15))])
    for _ in range(12):
        strategy.tell([kernel.evaluate(c) for c in strategy.ask(1)])
        assert math.isnan(strategy.exploration)
    strategy.ask(1)
    assert not math.isnan(strategy.exploration)


def test_a_batch_spreads_out() -> None:
    line = _Line(lambda p: 2.0 + math.cos((p - 313) / 150.0))
    strategy = line.strategy(method="poi", contextual=False, initial=8)
    line.run(strategy, 8)
    batch = [int(c["p"]) for c in strategy.ask(5)]  # type: ignore[call-overload]
    assert len(set(batch)) == 5
    assert max(batch) - min(batch) > 5


@pytest.mark.parametrize("penalty", ["hard", "linear", "decay"])
def test_every_penalty_can_be_searched(penalty: str) -> None:
    kernel = Kernel(3e-6)
    objective = Objective(threshold=3e-6, penalty=penalty)
    strategy = make("bayesian-multi", kernel.space, objective, signature=SIGNATURE, seed=0)
    trials: list[Trial] = []
    for _ in range(60):
        found = [kernel.evaluate(c) for c in strategy.ask(1)]
        strategy.tell(found)
        trials.extend(found)
    assert kernel.regret(trials) < 1.0


def test_observations_beyond_the_limit_are_thinned() -> None:
    line = _Line(_bumpy)
    limited, whole = line.strategy(max_observations=30), line.strategy()
    best = [min(_bumpy(p) for p in line.run(strategy, 120)) for strategy in (limited, whole)]
    assert len(limited.observations) == 120
    assert best[0] == pytest.approx(best[1], rel=1e-3)


# -- search ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_beats_random_in_the_mean(method: str) -> None:
    kernel = Kernel(None)
    ours = [kernel.regret(kernel.search("bayesian-multi", 60, seed, method=method)) for seed in range(6)]
    random = [kernel.regret(kernel.search("random", 60, seed)) for seed in range(6)]
    assert np.mean(ours) < 0.6 * np.mean(random)


def test_beats_random_in_a_huge_space() -> None:
    space = SearchSpace([OrdinalParameter(f"p{i}", range(1, 11)) for i in range(8)])
    assert space.size == 10**8

    def evaluate(configuration: Configuration) -> Trial:
        off = sum(abs(float(v) - 3.0 - i % 5) for i, v in enumerate(configuration.values()))  # type: ignore[arg-type]
        return Trial(configuration, Status.OK, measurement=Measurement({"time_ms": 1.0 + off}))

    best = {}
    for name, options in (("bayesian-multi", {"sample": 500, "initial": 10}), ("random", {})):
        strategy = make(name, space, Objective(), seed=2, options=options)
        found: list[Trial] = []
        for _ in range(60):
            trials = [evaluate(c) for c in strategy.ask(1)]
            strategy.tell(trials)
            found.extend(trials)
        best[name] = min(t.time_ms for t in found)
    assert best["bayesian-multi"] < 0.5 * best["random"]


# -- options -----------------------------------------------------------------------------------


def test_defaults_are_the_published_ones() -> None:
    options = BayesianMultiOptions()
    assert (options.method, options.portfolio, options.sampling) == ("advanced-multi", NAMES, "maximin")
    assert (options.length_scale, options.contextual, options.initial) == (1.5, True, 20)
    assert (options.threshold, options.required) == (5, 0.1)
    assert (options.discount_multi, options.discount_advanced) == (0.65, 0.75)
