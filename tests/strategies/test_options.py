"""Options of all strategies: what is refused, and how it is said."""

from __future__ import annotations

import pytest

from mptune.errors import MptuneError, UnknownNameError
from mptune.objective import Objective
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import STRATEGIES, make
from mptune.strategies.base import Strategy
from mptune.strategies.bayesian import BayesianOptions

SPACE = SearchSpace([OrdinalParameter("a", [1, 2, 3])])

#: Values just out of range, and what the message expects.
OUT_OF_RANGE = {
    "basin-hopping": {"perturbation": [(0, "at least 1"), ("x", "int")], "temperature": [(0.0, "a number above 0")]},
    "bayesian": {
        "initial": [(0, "at least 1"), ("many", "int")],
        "max_candidates": [(0, "at least 1")],
        "sample": [(9, "at least 10")],
        "refit": [(0.9, "at least 1")],
        "iterations": [(0, "at least 1")],
        "warp": [(-1.0, "at least 0")],
        "length_spread": [(0.0, "a number above 0")],
        "noise": [(0.0, "a number above 0")],
        "patience": [(0, "at least 1")],
        "max_observations": [(19, "at least 20")],
    },
    "bayesian-baco": {
        "initial": [(0, "at least 1")],
        "points": [(9, "at least 10")],
        "starts": [(0, "at least 1")],
        "elite": [(-1, "at least 0")],
        "neighbours": [(0, "at least 1")],
        "log": [("perhaps", "bool")],
        "length_shape": [(0, "a number above 0")],
        "length_rate": [(0, "a number above 0")],
        "fit_samples": [(0, "at least 1")],
        "fit_starts": [(0, "at least 1"), (11, "1 to fit_samples")],
        "iterations": [(0, "at least 1")],
        "refit": [(0.9, "at least 1")],
        "regrow": [(0.9, "at least 1")],
        "trees": [(0, "at least 1")],
        "least_feasible": [(1.1, "0 to 1"), (-0.1, "0 to 1")],
        "least_feasible_levels": [(0, "at least 1")],
        "exploration": [(-1, "at least 0")],
        "max_observations": [(19, "at least 20")],
    },
    "bayesian-multi": {
        "functions": [("ei,ei", "each function once")],
        "initial": [(0, "at least 1")],
        "length_scale": [(0.0, "a number above 0")],
        "noise": [(-1.0, "at least 0")],
        "exploration": [(-1.0, "at least 0")],
        "contextual": [("perhaps", "bool")],
        "threshold": [(0, "at least 1")],
        "discount_multi": [(1.5, "a number above 0, at most 1")],
        "discount_advanced": [(0.0, "a number above 0, at most 1")],
        "required": [(-0.1, "at least 0")],
        "max_candidates": [(0, "at least 1")],
        "sample": [(9, "at least 10")],
        "max_observations": [(19, "at least 20")],
    },
    "differential-evolution": {
        "population": [(3, "at least 4")],
        "weight": [(2.5, "0 to 2"), (-0.1, "0 to 2")],
        "crossover": [(1.1, "0 to 1"), ("x", "float")],
    },
    "firefly": {
        "population": [(0, "at least 1")],
        "attraction": [(-1, "0 to 100")],
        "absorption": [(-1, r"0 to 1e\+06")],
        "randomness": [(101, "0 to 100")],
    },
    "genetic": {"population": [(1, "at least 2")], "mutation": [(0.5, "at least 1")], "pressure": [(0, "at least 1")]},
    "nsga2": {
        "population": [(1, "2 to 1000"), (1001, "2 to 1000")],
        "crossover_probability": [(1.5, "0 to 1")],
        "mutations": [(-1, "at least 0")],
    },
    "particle-swarm": {
        "population": [(0, "at least 1")],
        "inertia": [(-0.1, "0 to 100")],
        "cognitive": [(-1, "0 to 100")],
        "social": [(101, "0 to 100")],
        "max_velocity": [(1.5, "0 to 1")],
    },
    "simulated-annealing": {
        "start_temperature": [(0.0, "a number above 0")],
        "end_temperature": [(0.0, "a number above 0"), (0.2, "a number up to start_temperature 0.1")],
        "evaluations": [(-1, "at least 0")],
    },
}

#: Defaults that are those of the papers.
PUBLISHED: dict[str, dict[str, object]] = {
    "bayesian-baco": {
        "initial": 10,
        "starts": 10,
        "elite": 3,
        "points": 30_000,
        "length_shape": 1.3,
        "length_rate": 0.1,
        "permutation": "spearman",
        "log": True,
        "neighbourhood": "hamming",
        "trees": 50,
        "least_feasible": 0.1,
        "least_feasible_levels": 11,
    },
    "bayesian-multi": {
        "method": "advanced-multi",
        "functions": "ei,poi,lcb",
        "sampling": "maximin",
        "length_scale": 1.5,
        "contextual": True,
        "initial": 20,
        "threshold": 5,
        "required": 0.1,
        "discount_multi": 0.65,
        "discount_advanced": 0.75,
    },
    "differential-evolution": {"population": 20, "base": "best", "weight": 0.5, "crossover": 0.9},
    "firefly": {"population": 20, "attraction": 1.0, "absorption": 1.0, "randomness": 0.2},
    "genetic": {"population": 26, "crossover": "single_point", "mutation": 55.0},
    "local-search": {"neighbourhood": "hamming", "improvement": "first"},
    "particle-swarm": {"population": 50, "inertia": 0.5, "cognitive": 3.5, "social": 1.0},
    "simulated-annealing": {"start_temperature": 0.1, "end_temperature": 0.001},
}

#: Names nearly right, and the one that was meant.
MISSPELT = {
    "basin-hopping": {"neighbourhood": ("haming", "hamming"), "improvement": ("bets", "best")},
    "bayesian-baco": {
        "permutation": ("spearmen", "spearman"),
        "neighbourhood": ("haming", "hamming"),
        "surrogate": ("random-forrest", "random-forest"),
        "sampling": ("biassed", "biased"),
    },
    "bayesian-multi": {
        "method": ("advanced", "advanced-multi"),
        "functions": ("ei,poii", "poi"),
        "sampling": ("maximum", "maximin"),
        "covariance": ("matern25", "matern52"),
    },
    "differential-evolution": {"base": ("bst", "best")},
    "genetic": {"crossover": ("twopoint", "two_point")},
    "local-search": {"neighbourhood": ("adjacant", "adjacent"), "improvement": ("firts", "first")},
    "nsga2": {"crossover": ("twopoint", "two_point")},
    "simulated-annealing": {"neighbourhood": ("haming", "hamming")},
}


def _make(name: str, options: dict[str, object]) -> Strategy:
    return make(name, SPACE, Objective(), options=options)


@pytest.mark.parametrize(
    ("strategy", "name", "value", "expected"),
    [
        (strategy, name, value, expected)
        for strategy, options in OUT_OF_RANGE.items()
        for name, bad in options.items()
        for value, expected in bad
    ],
)
def test_values_out_of_range_are_named(strategy: str, name: str, value: object, expected: str) -> None:
    with pytest.raises(MptuneError, match=f"option {name} of strategy {strategy}: expected {expected}, got"):
        _make(strategy, {name: value})


def test_no_number_may_be_infinite_or_nan() -> None:
    for strategy in STRATEGIES:
        shared = STRATEGIES[strategy].options_class.strategy
        for name, (default, _) in STRATEGIES[strategy].options_class.documented().items():
            if isinstance(default, float):
                for value in ("nan", "inf"):
                    with pytest.raises(MptuneError, match=f"option {name} of strategy {shared}: expected"):
                        _make(strategy, {name: value})


@pytest.mark.parametrize(
    ("strategy", "name", "value", "meant"),
    [(strategy, name, *spelt) for strategy, options in MISSPELT.items() for name, spelt in options.items()],
)
def test_an_unknown_choice_suggests_the_nearest(strategy: str, name: str, value: str, meant: str) -> None:
    with pytest.raises(UnknownNameError, match=f"{name} of strategy {strategy}: .*did you mean '{meant}'"):
        _make(strategy, {name: value})


def test_an_unknown_option_lists_the_valid_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"option of strategy bayesian: 'initail'; did you mean 'initial'.*warp"):
        _make("bayesian", {"initail": 3})


@pytest.mark.parametrize("strategy", PUBLISHED)
def test_defaults_are_the_published_ones(strategy: str) -> None:
    defaults = {name: default for name, (default, _) in STRATEGIES[strategy].options_class.documented().items()}
    assert PUBLISHED[strategy].items() <= defaults.items()


def test_options_come_as_text() -> None:
    assert _make("bayesian", {"initial": "7", "warp": "0.5"}).options == BayesianOptions(initial=7, warp=0.5)


def test_every_option_is_documented() -> None:
    for strategy in STRATEGIES.values():
        documented = strategy.options_class.documented()
        assert all(text.endswith(".") for _, text in documented.values())
        assert {name: default for name, (default, _) in documented.items()} == {
            name: getattr(strategy.options_class(), name) for name in documented
        }
