"""Search algorithms behind ask and tell, by name.

A strategy is one module in this folder: its file name, underscores as hyphens, is its name. Third
parties add theirs by an entry point of the group ``mptune.strategies`` that gives a
:class:`~mptune.strategies.base.Strategy` subclass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mptune.objective import Objective
from mptune.plugins import Registry
from mptune.space.search_space import SearchSpace
from mptune.strategies.base import Strategy

__all__ = ["STRATEGIES", "make"]

#: Every strategy class by name: the bundled ones and those of installed third parties.
STRATEGIES: Final[Mapping[str, type[Strategy]]] = Registry("strategy", __name__, Strategy)


def make(
    name: str,
    space: SearchSpace,
    objective: Objective,
    *,
    signature: Sequence[str] = (),
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> Strategy:
    """Return a new strategy.

    Args:
        name: key of :data:`STRATEGIES`.
        space: the valid configurations.
        objective: scores trials and knows the threshold.
        signature: names of the parameters that can change the numbers.
        seed: seeds everything random.
        options: hyperparameters by name; values may be text.

    Raises:
        UnknownNameError: no strategy, or no option of it, has that name.
        MptuneError: an option's value is of the wrong type or out of range.
    """
    chosen = STRATEGIES[name]
    parsed = chosen.options_class.from_mapping(name, dict(options or {}))
    return chosen(space, objective, signature=signature, seed=seed, options=parsed)
