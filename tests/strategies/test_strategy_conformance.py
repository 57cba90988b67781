"""Every registered strategy passes the conformance tests, and with several objectives those that can have them."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest

from mptune.objective import Objective
from mptune.space.search_space import SearchSpace
from mptune.strategies import STRATEGIES
from mptune.strategies.base import Strategy
from mptune.testing.strategies import StrategyConformance

#: Where the defaults take most of the time and change nothing here.
QUICK = {"bayesian-baco": {"trees": 4, "fit_samples": 3, "fit_starts": 1, "iterations": 15, "points": 2000}}


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Import what takes a second before the first test that needs it."""
    importlib.import_module("sklearn.ensemble")


class _WithSeveralObjectives(StrategyConformance):
    def make(self, space: SearchSpace, objective: Objective | None = None, **given: Any) -> Strategy:
        return super().make(space, replace(objective or Objective(), also=("error",)), **given)


for _name, _class in STRATEGIES.items():
    _attributes = {"strategy": _class, "options": QUICK.get(_name, {}), "__module__": __name__}
    for _base, _prefix in ((StrategyConformance, "Test"), (_WithSeveralObjectives, "TestSeveral")):
        if _base is StrategyConformance or _class.optimises_several:
            _test = f"{_prefix}{_name.title().replace('-', '')}"
            globals()[_test] = type(_test, (_base,), _attributes)
