"""Search algorithms behind ask and tell, by name.

A strategy is one module in this folder: its file name, underscores as hyphens, is its name. Third
parties add theirs by an entry point of the group ``mptune.strategies`` that gives a
:class:`~mptune.strategies.base.Strategy` subclass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final

from mptune.errors import MptuneError
from mptune.plugins import Registry
from mptune.results.objective import Objective
from mptune.space.search_space import SearchSpace
from mptune.strategies.base import Known, Source, Strategy

__all__ = ["STRATEGIES", "chosen_name", "make"]


def _option_with(value: str) -> str:
    """Say of which option a name that is no strategy is a value: papers and other tuners call methods strategies."""
    for name in STRATEGIES:
        with contextlib.suppress(MptuneError):  # somebody else's that cannot be loaded is not what is wrong here
            for f in fields(STRATEGIES[name].options_class):
                if value in f.metadata["choices"]:
                    return f"{value} is a value of option {f.name} of strategy {name}"
    return ""


#: Every strategy class by name: the bundled ones and those of installed third parties.
STRATEGIES: Final[Registry[Strategy]] = Registry("strategy", __name__, Strategy, _option_with)
#: Which strategy stands in for one that knows a single objective, so that the default is good for several too.
_FOR_SEVERAL: Final[Mapping[str, str]] = MappingProxyType({"bayesian": "bayesian-pareto"})


def chosen_name(name: str, objective: Objective) -> str:
    """Return the name of the strategy that searches: the one given, or for several objectives its stand-in."""
    chosen = _FOR_SEVERAL.get(name, name) if objective.also else name
    if objective.also and not STRATEGIES[chosen].optimises_several:
        able = ", ".join(other for other in STRATEGIES if STRATEGIES[other].optimises_several)
        given = ", ".join(objective.metrics)
        raise MptuneError(f"strategy {name} supports one objective, got {given}; multi-objective strategies: {able}")
    return chosen


def make(
    name: str,
    space: SearchSpace,
    objective: Objective,
    *,
    signature: Sequence[str] = (),
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    known: Mapping[str, Known] = MappingProxyType({}),
    sources: Sequence[Source] = (),
    budget: int | None = None,
) -> Strategy:
    """Return a new strategy; with several objectives "bayesian" is "bayesian-pareto".

    The other arguments are those of :class:`~mptune.strategies.base.Strategy`, but options come by name, as text too,
    the sources are what it starts from, and the budget is the number of evaluations there will be.
    """
    name = chosen_name(name, objective)
    chosen = STRATEGIES[name]
    parsed = chosen.options_class.from_mapping(name, dict(options or {}))
    strategy = chosen(space, objective, signature=signature, seed=seed, options=parsed, known=known)
    strategy.budget = budget
    strategy.start_from(sources)
    return strategy
