from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from mixed_precision import Kernel
from searches import drive

from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.base import Strategy
from mptune.strategies.bayesian_multi import METHODS, AdvancedMulti, BayesianMultiStrategy, Multi
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


# -- search ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [1, pytest.param(6, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("method", few(METHODS))
def test_beats_random_in_the_mean(method: str, seeds: int) -> None:
    kernel = Kernel(None)
    ours = [kernel.regret(kernel.search("bayesian-multi", 60, seed, method=method)) for seed in range(seeds)]
    random = [kernel.regret(kernel.search("random", 60, seed)) for seed in range(6)]
    assert np.mean(ours) < 0.6 * np.mean(random)


# -- which functions a portfolio keeps ------------------------------------------------------------

DISTINCT = {"ei": 1, "poi": 2, "lcb": 3}


def test_observations_are_discounted() -> None:
    portfolio = Multi(("ei", "poi"), threshold=5, discount=0.5)
    for ei, poi in ((4.0, 1.0), (2.0, 1.0), (1.0, 8.0)):
        portfolio.close({"ei": 1, "poi": 2}, {"ei": ei, "poi": poi})
    assert portfolio.scores == {"ei": 4.0 / 4 + 2.0 / 2 + 1.0, "poi": 1.0 / 4 + 1.0 / 2 + 8.0}


def test_multi_counts_duplicates_within_its_window_alone() -> None:
    observed = {"ei": 1.0, "poi": 3.0, "lcb": 9.0}
    for window, left in ((None, ("poi", "lcb")), (3, NAMES), (5, ("poi", "lcb"))):
        portfolio = Multi(NAMES, threshold=2, discount=0.65, window=window)
        for n in range(5):
            portfolio.close({"ei": 1, "poi": 1, "lcb": 2} if n % 2 == 0 else DISTINCT, observed)
        assert portfolio.active == left


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
