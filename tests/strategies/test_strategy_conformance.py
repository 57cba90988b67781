"""Every registered strategy passes the conformance tests, and with several objectives those that can have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mptune.objective import Objective
from mptune.space.search_space import SearchSpace
from mptune.strategies import STRATEGIES
from mptune.strategies.base import Strategy
from mptune.testing.strategies import StrategyConformance


class _WithSeveralObjectives(StrategyConformance):
    def make(
        self,
        space: SearchSpace,
        objective: Objective | None = None,
        *,
        signature: Sequence[str] = (),
        seed: int = 0,
    ) -> Strategy:
        several = replace(objective or Objective(), also=("error",))
        return super().make(space, several, signature=signature, seed=seed)


for _name, _class in STRATEGIES.items():
    for _base, _prefix in ((StrategyConformance, "Test"), (_WithSeveralObjectives, "TestSeveral")):
        if _base is StrategyConformance or _class.optimises_several:
            _test = f"{_prefix}{_name.title().replace('-', '')}"
            globals()[_test] = type(_test, (_base,), {"strategy": _class, "__module__": __name__})
