"""Which parameter values failed configurations share."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mptune.space.configuration import Configuration, Value

#: Minimum numbers of failures, and of other trials, to blame a value (1) and a pair of values (2).
_BLAMED: Final = {1: 3, 2: 4}


def shared_values(configurations: Iterable[Configuration], names: Iterable[str]) -> dict[str, Value]:
    """Return the values that all configurations share."""
    first, *others = configurations
    return {name: first[name] for name in names if all(other[name] == first[name] for other in others)}


def culprit(failed: Sequence[Configuration], others: Sequence[Configuration]) -> dict[str, Value]:
    """Return the value, or else the pair of values, that all failed configurations have and none of the others.

    Empty if there is none, or if chance may explain it (:data:`_BLAMED`).
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
    """Return values by name as messages show them."""
    return " and ".join(f"{name}={value}" for name, value in values.items())
