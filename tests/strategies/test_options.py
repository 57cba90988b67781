"""Options of all strategies: what is refused, and how it is said."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest

from mptune.errors import MptuneError, UnknownNameError
from mptune.results.objective import Objective
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import STRATEGIES, make
from mptune.strategies.base import Strategy
from mptune.strategies.bayesian import BayesianOptions

SPACE = SearchSpace([OrdinalParameter("a", [1, 2, 3])])

#: Values that no range of one option says are wrong, and what the message expects.
REFUSED = [
    ("bayesian", "sample", "many", "int"),
    ("bayesian-baco", "log", "perhaps", "bool"),
    ("bayesian-baco", "fit_starts", 11, "1 to fit_samples"),
    ("bayesian-multi", "functions", "ei,ei", "each function once"),
    ("bayesian-multi", "discount_multi", 1.5, "more than 0, at most 1"),
    ("differential-evolution", "crossover", "x", "float"),
    ("differential-evolution", "weight", 2.5, "0 to 2"),
    ("genetic", "population", 1, "at least 2"),
    ("simulated-annealing", "end_temperature", 0.0, "more than 0"),
    ("simulated-annealing", "end_temperature", 0.2, "a number up to start_temperature 0.1"),
]

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

#: Names nearly right, and the one that was meant.
MISSPELT = [
    ("local-search", "neighbourhood", "adjacant", "adjacent"),
    ("bayesian-baco", "permutation", "spearmen", "spearman"),
    ("bayesian-multi", "functions", "ei,poii", "poi"),
    ("genetic", "crossover", "twopoint", "two_point"),
]


def _make(name: str, options: dict[str, object]) -> Strategy:
    return make(name, SPACE, Objective(), options=options)


@pytest.mark.parametrize(("strategy", "name", "value", "expected"), REFUSED)
def test_values_that_make_no_sense_are_named(strategy: str, name: str, value: object, expected: str) -> None:
    with pytest.raises(MptuneError, match=f"option {name} of strategy {strategy}: expected {expected}, got"):
        _make(strategy, {name: value})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_values_out_of_range_are_named(strategy: str) -> None:
    options = STRATEGIES[strategy].options_class
    for each in fields(options):
        bounds = each.metadata["bounds"]
        outside = [bounds.least - 1, bounds.most + 1, *([0] if bounds.least > 0 else [])]
        for value in filter(math.isfinite, () if isinstance(each.default, str | bool) else outside):
            with pytest.raises(
                MptuneError, match=f"option {each.name} of strategy {options.strategy}: expected .*, got"
            ):
                _make(strategy, {each.name: type(each.default)(value)})


def test_no_number_may_be_infinite_or_nan() -> None:
    for strategy in STRATEGIES:
        shared = STRATEGIES[strategy].options_class.strategy
        for name, (default, _) in STRATEGIES[strategy].options_class.documented().items():
            if isinstance(default, float):
                for value in ("nan", "inf"):
                    with pytest.raises(MptuneError, match=f"option {name} of strategy {shared}: expected"):
                        _make(strategy, {name: value})


@pytest.mark.parametrize(("strategy", "name", "value", "meant"), MISSPELT)
def test_an_unknown_choice_suggests_the_nearest(strategy: str, name: str, value: str, meant: str) -> None:
    with pytest.raises(UnknownNameError, match=f"{name} of strategy {strategy}: .*did you mean '{meant}'"):
        _make(strategy, {name: value})


def test_an_unknown_option_lists_the_valid_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"option of strategy bayesian: 'smaple'; did you mean 'sample'.*warp"):
        _make("bayesian", {"smaple": 3})


@pytest.mark.parametrize("strategy", PUBLISHED)
def test_defaults_are_the_published_ones(strategy: str) -> None:
    defaults = {name: default for name, (default, _) in STRATEGIES[strategy].options_class.documented().items()}
    assert PUBLISHED[strategy].items() <= defaults.items()


def test_options_come_as_text() -> None:
    assert _make("bayesian", {"sample": "70", "warp": "0.5"}).options == BayesianOptions(sample=70, warp=0.5)
