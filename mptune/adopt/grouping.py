"""Precision parameters for type classes: one each, or shared ones where there would be too many.

Which classes share a parameter follows from the program's text alone, so that parameters have the same names and
meanings for every size of the problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mptune.adopt.classes import TypeClass

_SINGLE: Final = ("local", "argument", "result")
_VALUES: Final = (*_SINGLE, "constant", "shared", "accumulator")
#: Roles whose classes share a parameter, and its name, in the order in which they are shared. The types of buffers
#: decide how many bytes move, those of sums how accurate a program is, so these come last.
_SHARED: Final = (
    (_SINGLE, "work_type"),
    (("constant",), "table_type"),
    (("shared",), "shared_type"),
    (("accumulator",), "sum_type"),
    (_VALUES, "value_type"),
    (("buffer",), "buffer_type"),
    ((*_VALUES, "buffer"), "program_type"),
)


def parameters_of(classes: Sequence[TypeClass], limit: int) -> dict[str, str]:
    """Return the precision parameter of each class, by the class's name.

    Of classes alike, those that come last in the program share a parameter. Classes of different types in the program
    never do.

    Args:
        classes: in the order of the source.
        limit: the largest number of parameters; one for each type of the program, if that is more.
    """
    found = {each.name: f"{each.name}_type" for each in classes}
    scalars = dict.fromkeys(each.scalar for each in classes)
    for roles, shared in _SHARED:
        for scalar in scalars:
            alike = [each.name for each in classes if each.role in roles and each.scalar == scalar]
            last = list(dict.fromkeys(found[name] for name in alike))[-max(len(set(found.values())) - limit, 0) - 1 :]
            if len(last) > 1:
                name = shared if scalar == "double" else f"{scalar}_{shared}"
                found |= {each: name for each in alike if found[each] in last}
    return found
