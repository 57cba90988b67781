from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from mptune.errors import MptuneError, UnknownNameError
from mptune.results.objective import Objective
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import STRATEGIES, make
from mptune.strategies.bayesian import BayesianStrategy
from mptune.strategies.random import RandomStrategy

SPACE = SearchSpace([OrdinalParameter("a", [1, 2, 3])])


class ThirdParty(RandomStrategy):
    name = "third-party"


def test_every_strategy_is_found_under_its_own_name() -> None:
    assert {"bayesian", "exhaustive", "genetic", "random"} <= set(STRATEGIES)
    assert all(STRATEGIES[name].name == name for name in STRATEGIES)
    assert len(STRATEGIES) == len(list(STRATEGIES))


def test_an_unknown_strategy_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown strategy 'bayes'; did you mean 'bayesian'"):
        make("bayes", SPACE, Objective())


def test_a_method_of_a_strategy_is_told_from_a_strategy() -> None:
    with pytest.raises(UnknownNameError, match="multi-ultrafast is a value of option method of strategy bayes"):
        make("multi-ultrafast", SPACE, Objective())


def _add_entry_point(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    points = EntryPoints([EntryPoint("third-party", value, "mptune.strategies")])
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **which: points.select(**which))


def test_third_parties_add_theirs_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    _add_entry_point(monkeypatch, f"{__name__}:ThirdParty")
    assert STRATEGIES["third-party"] is ThirdParty
    assert STRATEGIES["bayesian"] is BayesianStrategy


def test_an_entry_point_that_is_no_strategy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _add_entry_point(monkeypatch, "math:pi")
    with pytest.raises(MptuneError, match="no subclass of Strategy"):
        _ = STRATEGIES["third-party"]


def test_one_strategy_is_loaded_without_the_others() -> None:
    script = (
        "import sys; from mptune.strategies import STRATEGIES; STRATEGIES['random']; "
        "print([name for name in sys.modules if name.endswith(('strategies.bayesian', 'strategies.genetic'))])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


@pytest.mark.parametrize("name", ["base", "model_based", "model_based.error_model", "bayesian_pareto", "", "../random"])
def test_modules_that_are_no_strategies_are_none(name: str) -> None:
    assert name not in STRATEGIES
    with pytest.raises(UnknownNameError, match="unknown strategy"):
        STRATEGIES[name]
