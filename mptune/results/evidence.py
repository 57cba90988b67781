"""Which parameter values failed configurations share, and which errors rounding does not explain."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mptune.results.metric_expressions import is_error
from mptune.results.trial import Trial
from mptune.space.configuration import Configuration, Value

__all__ = ["culprit", "disagree", "shared_values", "values_text"]

#: Errors that differ by a smaller factor, or of which the larger is below so many units of roundoff, differ by
#: rounding: the order of a sum, say.
_FACTOR: Final = 10.0
_ROUNDINGS: Final = 16.0
#: The error on the first draw of the inputs, of a trial that ran on several.
_FIRST_DRAW: Final = "error_first_draw"
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


def disagree(first: Trial, second: Trial, roundoff: float) -> bool:
    """Whether the errors of two configurations of one accuracy signature differ by more than rounding explains.

    Where one of them ran on several draws of the inputs, those on the first one count, which both have run on.

    Args:
        first: a trial with errors.
        second: another one.
        roundoff: unit roundoff of the coarsest type of the two.
    """
    drawn = [trial for trial in (first, second) if _FIRST_DRAW in trial.measurement.metrics]
    if drawn:
        one, other = (trial.metric(_FIRST_DRAW) if trial in drawn else trial.error for trial in (first, second))
        return _apart(one, other, roundoff)
    names = filter(is_error, first.measurement.metrics)
    return any(_apart(first.metric(name), second.metric(name), roundoff) for name in names)


def _apart(one: float, other: float, roundoff: float) -> bool:
    low, high = min(one, other), max(one, other)
    return high > _FACTOR * low and high > _ROUNDINGS * roundoff
