"""Names, options and conformance of all strategies; random and exhaustive search."""

from __future__ import annotations

import importlib.metadata
import math
from dataclasses import fields, replace
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from mptune.errors import MptuneError, UnknownNameError
from mptune.results.objective import Objective
from mptune.results.trial import Status, Trial
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import STRATEGIES, make
from mptune.strategies.base import Strategy
from mptune.strategies.bayesian import BayesianOptions, BayesianStrategy
from mptune.strategies.random import RandomStrategy
from mptune.testing.strategies import StrategyConformance

SPACE = SearchSpace([OrdinalParameter("a", range(5)), OrdinalParameter("b", range(4))], ["a * b <= 8"])

# -- conformance -----------------------------------------------------------------------------------

#: Where the defaults take most of the time and change nothing here.
QUICK = {"bayesian-baco": {"trees": 4, "fit_samples": 3, "fit_starts": 1, "iterations": 15, "points": 2000}}
#: Those whose models take most of the time.
SLOW = ("bayesian-baco", "bayesian-pareto")


class _WithSeveralObjectives(StrategyConformance):
    def make(self, space: SearchSpace, objective: Objective | None = None, **given: Any) -> Strategy:
        return super().make(space, replace(objective or Objective(), also=("error",)), **given)


for _name, _class in STRATEGIES.items():
    _attributes: dict[str, Any] = {"strategy": _class, "options": QUICK.get(_name, {}), "__module__": __name__}
    if _name in SLOW:
        _attributes["pytestmark"] = pytest.mark.full
    for _base, _prefix in ((StrategyConformance, "Test"), (_WithSeveralObjectives, "TestSeveral")):
        if _base is StrategyConformance or _class.optimises_several:
            _test = f"{_prefix}{_name.title().replace('-', '')}"
            globals()[_test] = type(_test, (_base,), _attributes)


# -- names -----------------------------------------------------------------------------------------


class ThirdParty(RandomStrategy):
    name = "third-party"


def test_every_strategy_is_found_under_its_own_name() -> None:
    assert {"bayesian", "exhaustive", "genetic", "random"} <= set(STRATEGIES)
    assert all(STRATEGIES[name].name == name for name in STRATEGIES)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bayes", "unknown strategy 'bayes'; did you mean 'bayesian'"),
        ("multi-ultrafast", "multi-ultrafast is a value of option method of strategy bayes"),
        *((name, "unknown strategy") for name in ("base", "model_based.error_model", "bayesian_pareto", "../random")),
    ],
)
def test_an_unknown_strategy_suggests_the_nearest(name: str, message: str) -> None:
    assert name not in STRATEGIES
    with pytest.raises(UnknownNameError, match=message):
        make(name, SPACE, Objective())


def test_third_parties_add_theirs_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(value: str) -> None:
        points = EntryPoints([EntryPoint("third-party", value, "mptune.strategies")])
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda **which: points.select(**which))

    add(f"{__name__}:ThirdParty")
    assert STRATEGIES["third-party"] is ThirdParty
    assert STRATEGIES["bayesian"] is BayesianStrategy
    add("math:pi")
    with pytest.raises(MptuneError, match="no subclass of Strategy"):
        _ = STRATEGIES["third-party"]


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "name", "value", "message"),
    [
        ("bayesian", "sample", "many", "expected int, got"),
        ("bayesian-baco", "log", "perhaps", "expected bool, got"),
        ("bayesian-baco", "fit_starts", 11, "expected 1 to fit_samples, got"),
        ("bayesian-multi", "functions", "ei,ei", "expected each function once, got"),
        ("differential-evolution", "weight", 2.5, "expected 0 to 2, got"),
        ("simulated-annealing", "end_temperature", 0.2, "expected a number up to start_temperature 0.1, got"),
        ("local-search", "neighbourhood", "adjacant", ".*did you mean 'adjacent'"),
        ("bayesian-multi", "functions", "ei,poii", ".*did you mean 'poi'"),
    ],
)
def test_values_that_make_no_sense_are_named(strategy: str, name: str, value: object, message: str) -> None:
    with pytest.raises(MptuneError, match=f"{name} of strategy {strategy}: {message}"):
        make(strategy, SPACE, Objective(), options={name: value})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_values_out_of_range_are_named(strategy: str) -> None:
    options = STRATEGIES[strategy].options_class
    for each in fields(options):
        if isinstance(each.default, str | bool):
            continue
        bounds = each.metadata["bounds"]
        outside = [bounds.least - 1, bounds.most + 1, *([0] if bounds.least > 0 else [])]
        values = [type(each.default)(value) for value in outside if math.isfinite(value)]
        for value in [*values, *(("nan", "inf") if isinstance(each.default, float) else ())]:
            message = f"option {each.name} of strategy {options.strategy}: expected .*, got"
            with pytest.raises(MptuneError, match=message):
                make(strategy, SPACE, Objective(), options={each.name: value})


def test_options_come_as_text_and_an_unknown_one_lists_the_valid_ones() -> None:
    made = make("bayesian", SPACE, Objective(), options={"sample": "70", "warp": "0.5"})
    assert made.options == BayesianOptions(sample=70, warp=0.5)
    with pytest.raises(UnknownNameError, match=r"option of strategy bayesian: 'smaple'; did you mean 'sample'.*warp"):
        make("bayesian", SPACE, Objective(), options={"smaple": 3})


#: Defaults that are those of the papers.
PUBLISHED: dict[str, dict[str, object]] = {
    # Hellsten 2023
    "bayesian-baco": {"initial": 10, "starts": 10, "length_shape": 1.3, "length_rate": 0.1, "permutation": "spearman"},
    # Willemsen 2021, Table I
    "bayesian-multi": {"length_scale": 1.5, "threshold": 5, "discount_multi": 0.65, "discount_advanced": 0.75},
    # Heldens 2026, Table III
    "differential-evolution": {"population": 20, "base": "best", "weight": 0.5, "crossover": 0.9},
    "firefly": {"population": 20, "attraction": 1.0, "absorption": 1.0, "randomness": 0.2},
    "genetic": {"population": 26, "crossover": "single_point", "mutation": 55.0},
    "particle-swarm": {"population": 50, "inertia": 0.5, "cognitive": 3.5, "social": 1.0},
    "simulated-annealing": {"start_temperature": 0.1, "end_temperature": 0.001},
}


@pytest.mark.parametrize("strategy", PUBLISHED)
def test_defaults_are_the_published_ones(strategy: str) -> None:
    defaults = {name: default for name, (default, _) in STRATEGIES[strategy].options_class.documented().items()}
    assert PUBLISHED[strategy].items() <= defaults.items()


# -- random and exhaustive search ------------------------------------------------------------------


def _indices(strategy: Strategy, n: int) -> list[int]:
    return [int(SPACE.index(c) or 0) for c in strategy.ask(n)]


def test_random_is_uniform_at_every_position() -> None:
    runs = np.array([_indices(make("random", SPACE, Objective(), seed=s), SPACE.size) for s in range(600)])
    for position in (0, 1, 7, SPACE.size - 1):
        assert chisquare(np.bincount(runs[:, position], minlength=SPACE.size)).pvalue > 1e-3


def test_a_random_order_depends_neither_on_batches_nor_on_interruptions() -> None:
    whole = _indices(make("random", SPACE, Objective(), seed=5), SPACE.size)
    many = make("random", SPACE, Objective(), seed=5)
    assert [i for _ in range(4) for i in _indices(many, 3)] == whole[:12]
    resumed = make("random", SPACE, Objective(), seed=5)
    resumed.tell([Trial(c, Status.CRASH) for c in SPACE.configurations(whole[:6])])
    assert _indices(resumed, SPACE.size) == whole[6:]


def test_exhaustive_goes_in_order_and_skips_what_it_was_told() -> None:
    strategy = make("exhaustive", SPACE, Objective())
    strategy.tell([Trial(SPACE.configuration(2), Status.CRASH)])
    assert _indices(strategy, 4) == [0, 1, 3, 4]
