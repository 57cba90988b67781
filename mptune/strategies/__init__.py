"""Search algorithms behind ask and tell, by name.

A strategy is one module in this folder, named after its file with hyphens for underscores. Third parties add an entry
point of the group ``mptune.strategies`` for a :class:`~mptune.strategies.base.Strategy` subclass.
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
    """Return the option that has an unknown name as a value: methods in papers and tuners are often such values."""
    for name in STRATEGIES:
        with contextlib.suppress(MptuneError):  # a third party's strategy that cannot be loaded
            for f in fields(STRATEGIES[name].options_class):
                if value in f.metadata["choices"]:
                    return f"{value} is a value of option {f.name} of strategy {name}"
    return ""


#: Every strategy class by name, bundled and from third parties.
STRATEGIES: Final[Registry[Strategy]] = Registry("strategy", __name__, Strategy, _option_with)


def chosen_name(name: str, objective: Objective) -> str:
    """Return the strategy for an objective: the given one; for several objectives "bayesian" is "bayesian-pareto"."""
    chosen = "bayesian-pareto" if objective.also and name == "bayesian" else name
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
    """Return a new strategy, chosen by :func:`chosen_name`.

    Options are given by name, also as text. The search starts from the sources and spends ``budget`` evaluations. The
    other arguments are described in :class:`~mptune.strategies.base.Strategy`.
    """
    name = chosen_name(name, objective)
    chosen = STRATEGIES[name]
    parsed = chosen.options_class.from_mapping(name, dict(options or {}))
    strategy = chosen(space, objective, signature=signature, seed=seed, options=parsed, known=known)
    strategy.budget = budget
    strategy.start_from(sources)
    return strategy
