"""Every registered strategy passes the conformance tests, and with several objectives those that can have them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mptune.results.objective import Objective
from mptune.space.search_space import SearchSpace
from mptune.strategies import STRATEGIES
from mptune.strategies.base import Strategy
from mptune.testing.strategies import StrategyConformance

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
