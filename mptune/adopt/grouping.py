"""Puts type classes into few groups with one precision parameter each: classes with similar sensitivity together.

The sensitivity of a class is the error of an instrumented run (:class:`~mptune.measure.instrument.Instrument`) with
that class alone in a narrower type.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mptune.adopt.apart import Apart
from mptune.errors import ConstraintError
from mptune.measure.instrument import Instrument
from mptune.precision import precision
from mptune.space.parameters import PrecisionParameter

#: Smaller and larger errors count as these.
_FLOOR: Final = 1e-17
_CEILING: Final = 1e3
#: Costs of merging two groups, in decades of error, besides the difference of their sensitivities. The type of a buffer
#: decides how many bytes move, so buffers are merged last.
_TWO_BUFFERS: Final = 2.0
_OTHER_ROLE: Final = 0.5
_BUFFER_AND_VALUE: Final = 4.0


def sensitivities(
    instrument: Instrument | Apart,
    parameters: Mapping[str, Sequence[str]],
    *,
    types: Sequence[str] = ("fp32", "fp16"),
    limit_s: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, dict[str, float]]:
    """Return the error of the outputs with each class alone in each of some types, all others in their widest.

    Each type is run for all classes before the next type. The first type is run without a limit of time.

    Args:
        instrument: runs the program.
        parameters: the precision parameters of each class: one in each kernel of an application.
        types: the types to run, for the classes whose parameters offer them.
        limit_s: seconds that the runs may take.
        clock: gives the time in seconds.

    Returns:
        Errors by class and type; infinite where a result is not finite.
    """
    offered = {p.name: p.values for p in instrument.tunable.parameters if isinstance(p, PrecisionParameter)}
    found: dict[str, dict[str, float]] = {name: {} for name in parameters}
    start = clock()
    for number, chosen in enumerate(types):
        errors: dict[str, float] = {}
        for name, names in parameters.items():
            if number and clock() - start > limit_s:
                return found
            if not all(chosen in offered[each] and chosen != _widest(offered[each]) for each in names):
                continue
            try:
                errors[name] = instrument.errors(dict.fromkeys(names, chosen))["error"]
            except ConstraintError:
                continue  # the program cannot have it alone
        for name, error in errors.items():
            found[name][chosen] = error
    return found


def group(errors: Mapping[str, Mapping[str, float]], roles: Mapping[str, str], limit: int = 8) -> dict[str, str]:
    """Return a group for each class: classes alike in role and in sensitivity.

    The two groups with the lowest cost are merged until the limit holds. The cost is the largest difference of their
    errors in one type, in decades, plus a penalty for different roles.

    Args:
        errors: of each class, by type (:func:`sensitivities`).
        roles: of each class: "buffer", "local", ...; the roles of classes in memory contain "buffer".
        limit: the largest number of groups.

    Returns:
        By class, the name of its group: of one or two classes their names, of more their role and the most sensitive
        class.

    Raises:
        ValueError: the limit is below 1.
    """
    if limit < 1:
        raise ValueError(f"limit={limit}: expected at least one group")
    groups: list[tuple[str, ...]] = [(name,) for name in errors]
    while len(groups) > limit:
        one, other = min(itertools.combinations(groups, 2), key=lambda pair: _loss(pair[0], pair[1], errors, roles))
        groups = [(*one, *other) if members is one else members for members in groups if members is not other]
    named = _names(groups, errors, roles)
    return {name: named[members] for members in groups for name in members}


def _loss(
    one: Sequence[str], other: Sequence[str], errors: Mapping[str, Mapping[str, float]], roles: Mapping[str, str]
) -> tuple[float, int]:
    """Return the cost of merging two groups, in decades of error, and the number of classes, which breaks ties."""
    apart = 0.0
    for name, another in itertools.product(one, other):
        both = errors[name].keys() & errors[another].keys()
        known = [abs(_decades(errors[name][t]) - _decades(errors[another][t])) for t in both]
        apart = max(apart, *known, 0.0)
    in_memory = [any("buffer" in roles[name] for name in members) for members in (one, other)]
    if in_memory[0] != in_memory[1]:
        apart += _BUFFER_AND_VALUE
    elif all(in_memory):
        apart += _TWO_BUFFERS
    elif {roles[name] for name in one} != {roles[name] for name in other}:
        apart += _OTHER_ROLE
    return apart, len(one) + len(other)


def _names(
    groups: Sequence[tuple[str, ...]], errors: Mapping[str, Mapping[str, float]], roles: Mapping[str, str]
) -> dict[tuple[str, ...], str]:
    """Return a name for each group, valid in C++ and Python."""
    found: dict[tuple[str, ...], str] = {}
    for members in groups:
        if len(members) <= 2:
            # Casts are numbered.
            first, *others = members
            is_numbered = bool(others) and re.fullmatch(rf"{re.escape(first)}_\d+", others[0]) is not None
            found[members] = f"{first}s" if is_numbered else "_".join(members)
            continue
        common = {roles[name] for name in members}
        kind = re.sub(r"\W+", "_", common.pop() + "s") if len(common) == 1 else "values"
        leader = max(members, key=lambda name: max(map(_decades, errors[name].values()), default=-math.inf))
        alone = sum(len(others) > 2 and {roles[n] for n in others} == {roles[n] for n in members} for others in groups)
        found[members] = kind if alone == 1 and kind != "values" else f"{kind}_like_{leader}"
    taken: set[str] = set()
    for members, name in found.items():
        unique, number = name, 2
        while unique in taken:
            unique, number = f"{name}_{number}", number + 1
        taken.add(unique)
        found[members] = unique
    return found


def _decades(error: float) -> float:
    return math.log10(min(max(error, _FLOOR), _CEILING)) if not math.isnan(error) else math.log10(_CEILING)


def _widest(values: Sequence[object]) -> str:
    return max((precision(str(value)) for value in values), key=lambda p: p.significand_bits).name
