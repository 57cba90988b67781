from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from mixed_precision import SIGNATURE, Kernel
from searches import drive

from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.base import Strategy
from mptune.strategies.bayesian_multi import METHODS, BayesianMultiStrategy
from mptune.strategies.model_based.gaussian_process import Posterior
from mptune.testing.strategies import StrategyConformance
from tests.tiers import few

# -- every method conforms ---------------------------------------------------------------------


class TestAdvancedMulti(StrategyConformance):
    strategy = BayesianMultiStrategy
    options: ClassVar = {"initial": 4}


class TestMulti(TestAdvancedMulti):
    options: ClassVar = {"method": "multi", "initial": 4, "threshold": 2}


class TestSingleFunctionOnSamples(TestAdvancedMulti):
    """Every space is large here, and observations are too many for the model."""

    options: ClassVar = {"method": "ei", "initial": 4, "max_candidates": 1, "sample": 10, "max_observations": 20}


# -- acquisition functions and exploration -----------------------------------------------------


def _trial(configuration: Configuration, time_ms: float) -> Trial:
    return Trial(configuration, Status.OK, measurement=Measurement({"time_ms": time_ms}))


class _Line:
    """1,000 configurations on a line, their times, and the failing ones."""

    def __init__(self, time_ms: Callable[[int], float], fails: Callable[[int], bool] = lambda _: False) -> None:
        self.space = SearchSpace([OrdinalParameter("p", range(1000))])
        self.time_ms, self.fails = time_ms, fails

    def evaluate(self, configuration: Configuration) -> Trial:
        p = int(configuration["p"])  # type: ignore[call-overload]
        if self.fails(p):
            return Trial(configuration, Status.LAUNCH_ERROR, "too many registers")
        return _trial(configuration, self.time_ms(p))

    def strategy(self, seed: int = 0, **options: Any) -> BayesianMultiStrategy:
        strategy = make("bayesian-multi", self.space, Objective(), seed=seed, options=options)
        assert isinstance(strategy, BayesianMultiStrategy)
        return strategy

    def run(self, strategy: Strategy, n: int, batch: int = 1) -> list[int]:
        return [int(t.configuration["p"]) for t in drive(strategy, self.evaluate, n, batch)]  # type: ignore[call-overload]


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


def test_times_that_differ_by_rounding_alone_count_as_equal() -> None:
    lines = [_Line(lambda _: 0.3), _Line(lambda p: math.nextafter(0.3, p % 2))]
    equal, rounded = [line.run(line.strategy(initial=5), 20) for line in lines]
    assert rounded == equal


# -- portfolios --------------------------------------------------------------------------------

NAMES = ("ei", "poi", "lcb")


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


@pytest.mark.parametrize("method", ["multi-fast", "multi-ultrafast"])
@pytest.mark.parametrize("batch", [1, 4])
def test_the_fast_methods_keep_all_functions_and_suggest_nothing_twice(method: str, batch: int) -> None:
    line = _Line(_bumpy)
    strategy = line.strategy(method=method, initial=8)
    found = line.run(strategy, 100, batch)
    assert len(set(found)) == 100
    assert strategy.active == NAMES
    assert min(_bumpy(p) for p in found) == pytest.approx(min(_bumpy(p) for p in range(1000)), rel=1e-3)


def test_multi_ultrafast_predicts_every_sixth_round(monkeypatch: pytest.MonkeyPatch) -> None:
    predicted = []
    append = Posterior.append

    def counted(self: Posterior, x: Any, score: float) -> None:
        predicted.append(score)
        append(self, x, score)

    monkeypatch.setattr(Posterior, "append", counted)
    line = _Line(_bumpy)
    for method, options, every in (
        ("multi-fast", {}, 1),
        ("multi-ultrafast", {}, 6),
        ("multi-ultrafast", {"prediction_rounds": 3}, 3),
    ):
        strategy = line.strategy(method=method, initial=5, **options)
        line.run(strategy, 5)
        renewed = []
        for _ in range(14):
            predicted.clear()
            # A round: what the three functions suggest.
            line.run(strategy, 3)
            renewed.append(bool(predicted))
        # At first the model is made, not extended.
        assert renewed == [i > 0 and i % every == 0 for i in range(14)]


def test_a_model_that_was_extended_is_what_it_would_be_if_made_anew() -> None:
    line = _Line(_bumpy)
    told = [line.evaluate(c) for c in line.space.configurations(range(5, 1000, 25))]
    grown, anew = (line.strategy(method="multi-fast", contextual=False) for _ in range(2))
    grown.tell(told[:25])
    # A round: what the three functions suggest, of which the first two are imagined.
    waiting = [line.evaluate(c) for c in grown.ask(3)]
    grown.tell(told[25:])
    grown.tell(waiting)
    anew.tell([*told, *waiting])
    assert line.run(grown, 9, batch=3) == line.run(anew, 9, batch=3)


@pytest.mark.parametrize("covariance", ["matern52", "rbf"])
def test_other_covariances_find_the_best_too(covariance: str) -> None:
    line = _Line(_bumpy)
    strategy = line.strategy(covariance=covariance, length_scale=0.1, initial=8)
    found = line.run(strategy, 60)
    assert min(_bumpy(p) for p in found) == pytest.approx(min(_bumpy(p) for p in range(1000)), rel=1e-3)


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
@pytest.mark.parametrize(("name", "budget"), few([("bayesian-multi", 60), ("bayesian-baco", 30)]))
def test_every_penalty_can_be_searched(name: str, budget: int, penalty: str) -> None:
    kernel = Kernel(3e-6, types=("fp32", "fp16"))
    objective = Objective(threshold=3e-6, penalty=penalty)
    options = {"fit_samples": 3, "fit_starts": 1, "trees": 3, "refit": 1.25} if name == "bayesian-baco" else {}
    strategy = make(name, kernel.space, objective, signature=SIGNATURE, seed=0, options=options)
    assert kernel.regret(drive(strategy, kernel.evaluate, budget)) < 1.0


def test_observations_beyond_the_limit_are_thinned() -> None:
    line = _Line(_bumpy)
    limited, whole = line.strategy(max_observations=30), line.strategy()
    best = [min(_bumpy(p) for p in line.run(strategy, 120)) for strategy in (limited, whole)]
    assert len(limited.observations) == 120
    assert best[0] == pytest.approx(best[1], rel=1e-3)


# -- search ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [1, pytest.param(6, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("method", few(METHODS))
def test_beats_random_in_the_mean(method: str, seeds: int) -> None:
    kernel = Kernel(None)
    ours = [kernel.regret(kernel.search("bayesian-multi", 60, seed, method=method)) for seed in range(seeds)]
    random = [kernel.regret(kernel.search("random", 60, seed)) for seed in range(6)]
    assert np.mean(ours) < 0.6 * np.mean(random)


def test_beats_random_in_a_huge_space() -> None:
    space = SearchSpace([OrdinalParameter(f"p{i}", range(1, 11)) for i in range(8)])
    assert space.size == 10**8

    def evaluate(configuration: Configuration) -> Trial:
        off = sum(abs(float(v) - 3.0 - i % 5) for i, v in enumerate(configuration.values()))  # type: ignore[arg-type]
        return _trial(configuration, 1.0 + off)

    best = {}
    for name, options in (("bayesian-multi", {"sample": 500, "initial": 10}), ("random", {})):
        strategy = make(name, space, Objective(), seed=2, options=options)
        best[name] = min(t.time_ms for t in drive(strategy, evaluate, 60))
    assert best["bayesian-multi"] < 0.5 * best["random"]
