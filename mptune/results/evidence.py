"""Which parameter values failed configurations share."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mptune.space.configuration import Configuration, Value

#: How many failures, and others, it takes to blame a value, and a pair of values.
_BLAMED: Final = {1: 3, 2: 4}


def shared_values(configurations: Iterable[Configuration], names: Iterable[str]) -> dict[str, Value]:
    """Return those of the parameters that have one value in all of the configurations, and that value."""
    first, *others = configurations
    return {name: first[name] for name in names if all(other[name] == first[name] for other in others)}


def culprit(failed: Sequence[Configuration], others: Sequence[Configuration]) -> dict[str, Value]:
    """Return the value that all failed configurations have and none of the others has, or else such a pair of values.

    Empty if there is none, or if that may be chance: it takes three failures to blame a value, four to blame a pair,
    and as many others.
    """
    names = failed[0].keys() if failed else ()
    shared = shared_values(failed, names) if failed else {}
    for size, least in _BLAMED.items():
        if min(len(failed), len(others)) < least:
            continue
        for chosen in itertools.combinations(shared, size):
            if not any(all(other.get(name) == shared[name] for name in chosen) for other in others):
                return {name: shared[name] for name in chosen}
    return {}


def values_text(values: Mapping[str, Value]) -> str:
    """Return values by name as messages name them."""
    return " and ".join(f"{name}={value}" for name, value in values.items())
