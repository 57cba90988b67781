"""Every registered strategy passes the conformance tests, and with several objectives those that can have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mptune.objective import Objective
from mptune.space.search_space import SearchSpace
from mptune.strategies import STRATEGIES, make
from mptune.strategies.base import Strategy
from mptune.testing.strategies import StrategyConformance


class _WithSeveralObjectives(StrategyConformance):
    def make(
        self, space: SearchSpace, objective: Objective | None = None, *, signature: Sequence[str] = (), seed: int = 0
    ) -> Strategy:
        several = replace(objective or Objective(), also=("error",))
        return super().make(space, several, signature=signature, seed=seed)


class _WithSmallForests(StrategyConformance):
    """The default's fifty trees take most of the time and change nothing here."""

    def make(
        self, space: SearchSpace, objective: Objective | None = None, *, signature: Sequence[str] = (), seed: int = 0
    ) -> Strategy:
        options = {"trees": 4, "fit_samples": 3, "fit_starts": 1, "iterations": 15}
        name = self.strategy.name
        return make(name, space, objective or Objective(), signature=signature, seed=seed, options=options)


for _name, _class in STRATEGIES.items():
    for _base, _prefix in ((StrategyConformance, "Test"), (_WithSeveralObjectives, "TestSeveral")):
        if _base is StrategyConformance or _class.optimises_several:
            _test = f"{_prefix}{_name.title().replace('-', '')}"
            _suite = _WithSmallForests if _name == "bayesian-baco" else _base
            globals()[_test] = type(_test, (_suite,), {"strategy": _class, "__module__": __name__})
