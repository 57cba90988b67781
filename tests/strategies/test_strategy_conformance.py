"""Every registered strategy passes the conformance tests."""

from __future__ import annotations

from mptune.strategies import STRATEGIES
from mptune.strategies.conformance import StrategyConformance

for _name, _class in STRATEGIES.items():
    _test = f"Test{_name.title().replace('-', '')}"
    globals()[_test] = type(_test, (StrategyConformance,), {"strategy": _class, "__module__": __name__})
