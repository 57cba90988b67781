"""From type classes to few precision parameters: classes that can bear the same types get one parameter together.

How much a class can bear is what an instrumented run says (:class:`~mptune.measure.instrument.Instrument`): the
error of the outputs with that class alone in a narrower type, all others wide.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mptune.adopt.apart import InstrumentApart
from mptune.errors import ConstraintError
from mptune.measure.instrument import Instrument
from mptune.precision import precision
from mptune.space.parameters import PrecisionParameter

#: Errors that say no more than this one: nothing but fp64 is left.
_FLOOR: Final = 1e-17
_CEILING: Final = 1e3
#: What merging costs in decades of error besides the difference in what the two can bear. The type of a buffer decides
#: how many bytes move, so that buffers keep parameters of their own for longest; a value in a register is cheap to have
#: in the type of another one.
_TWO_BUFFERS: Final = 2.0
_OTHER_ROLE: Final = 0.5
_BUFFER_AND_VALUE: Final = 4.0


def sensitivities(
    instrument: Instrument | InstrumentApart,
    parameters: Mapping[str, Sequence[str]],
    *,
    types: Sequence[str] = ("fp32", "fp16"),
    limit_s: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, dict[str, float]]:
    """Return the error of the outputs with each class alone in each of some types, all others in their widest.

    The types come one after the other, each for all classes, so that what there is no time for is missing for all; but
    the first comes for every class.

    Args:
        instrument: runs the program.
        parameters: of each class, the precision parameters that stand for it (of an application a class may have one
            in each of several kernels).
        types: in which to run it, where its parameters have them.
        limit_s: how many seconds that may take.
        clock: of these seconds.

    Returns:
        By class and type; infinite where a result is not finite. A class that has none of the types has no entry in
        its mapping.
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
    """Return a group for each class, at most so many of them: classes alike in role and in what they can bear.

    Of all groups those two become one that lose least by it, over and over. What they lose is the difference of their
    errors, in decades, in the type where it is largest: one of them has to be as wide as the other needs it.

    Args:
        errors: of each class, by type (:func:`sensitivities`).
        roles: of each class: "buffer", "local", ...; classes in memory have "buffer" in theirs.
        limit: how many groups there may be.

    Returns:
        By class, the name of its group: its own where it is alone, both where there are two, otherwise their role and
        the class that is most sensitive.

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
    """Return what two groups lose by becoming one, in decades of error; of equal ones the smaller comes first."""
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
            # What nothing is called after, as casts, is numbered.
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
