"""What checked trials say about the assumption that the error depends on the accuracy signature alone.

A configuration that is wrong may be a mistake of that configuration: of what it has in common with the others that are
wrong (a block size, say). And where two configurations of one signature have errors that rounding does not explain, a
parameter outside the signature changes the numbers.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mptune.metric_expressions import is_error
from mptune.results import Trial
from mptune.space.configuration import Configuration, Value

__all__ = ["Siblings", "culprit", "dependence", "disagree", "shared_values", "values_text"]

#: Valid trials by accuracy signature.
Siblings = Mapping[tuple[Value, ...], Sequence[Trial]]

#: Errors that differ by a smaller factor, or of which the larger is below so many units of roundoff, differ by
#: rounding: the order of a sum, say.
_FACTOR: Final = 10.0
_ROUNDINGS: Final = 16.0
#: A parameter explains a disagreement if no more than this share is left among trials that agree in it.
_UNEXPLAINED: Final = 0.1
#: The error on the first draw of the inputs, of a trial that ran on several.
_FIRST_DRAW: Final = "error_first_draw"
#: How many failures, and others, it takes to blame a value, and a pair of values.
_BLAMED: Final = {1: 3, 2: 4}
#: Stands for an infinite error.
_LARGEST: Final = 1e300


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


def dependence(siblings: Siblings, names: Sequence[str], roundoff: float) -> str:
    """Say which parameter outside the signature errors depend on, and how.

    Args:
        siblings: checked trials, some of which disagree.
        names: the parameters outside the signature.
        roundoff: errors below so many of these (see :func:`disagree`) count as equal.
    """
    floor = _ROUNDINGS * roundoff

    def left(name: str) -> float:
        """Return by how many decades errors still disagree where the parameter has one value."""
        groups: defaultdict[tuple[tuple[Value, ...], Value], list[Trial]] = defaultdict(list)
        for signature, trials in siblings.items():
            for trial in trials:
                groups[signature, trial.configuration[name]].append(trial)
        return math.fsum(_decades(group, floor) for group in groups.values())

    total = math.fsum(_decades(trials, floor) for trials in siblings.values())
    unexplained = {name: left(name) for name in names}
    least = min(unexplained.values(), default=math.inf)
    found = [name for name, decades in unexplained.items() if decades == least]
    if least > _UNEXPLAINED * total:
        worst = max((trial for trials in siblings.values() for trial in trials), key=lambda trial: trial.error)
        return f"no parameter alone explains it; the largest error is that of {worst.configuration}"
    if len(found) > 1:
        return f"which parameter it depends on is not known yet: {', '.join(found[:-1])} or {found[-1]}"
    widest = max(siblings.values(), key=lambda trials: _decades(trials, floor))
    worst_of: dict[Value, float] = {}
    for trial in widest:
        value = trial.configuration[found[0]]
        worst_of[value] = max(worst_of.get(value, 0.0), trial.error)
    by_error: defaultdict[str, list[str]] = defaultdict(list)
    for value, error in worst_of.items():
        by_error[f"{error:.1e}"].append(str(value))
    cases = "; ".join(f"{error} where it is {' or '.join(values)}" for error, values in by_error.items())
    return f"it depends on {found[0]} ({cases})"


def _decades(trials: Sequence[Trial], floor: float) -> float:
    """Return by how many decades errors disagree, those below a floor taken to be there; 0 if they agree."""
    logs = [math.log10(min(max(trial.error, floor), _LARGEST)) for trial in trials]
    return max(0.0, max(logs) - min(logs) - math.log10(_FACTOR))
