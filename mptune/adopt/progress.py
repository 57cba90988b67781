"""What a program copies to the host to see how far a loop has come, which is no answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: The numbers that a program copied back of some memory, the last copy first; None of what there was no room to record.
Turns = Sequence[NDArray[Any] | None]

#: What a loop of the host goes on by is copied back at least so often, becomes so small a part of what it was, and as
#: small as it ever was but for such a factor.
_LEAST_TURNS: Final = 4
_SMALL: Final = 1e-3
_AS_EVER: Final = 2.0


def came_to_nothing(answer: Mapping[str, Turns]) -> tuple[str, ...]:
    """Return the outputs that say how far a loop has come: copied again and again, at last nearly zero.

    What is left of a residual is errors, so that nobody can want it with few digits wrong. Without any other output of
    floating-point numbers, it is an answer nevertheless.
    """
    found: list[str] = []
    for name, turns in answer.items():
        known = [each.astype(np.float64) for each in turns if each is not None]
        if not known or turns[0] is None or turns[0].dtype.kind in "iu":
            continue
        with np.errstate(over="ignore"):
            sizes = [float(np.linalg.norm(each)) for each in known]
        is_nothing = sizes[0] <= min(_SMALL * max(sizes), _AS_EVER * min(sizes))
        if np.isfinite(sizes).all() and len(set(sizes)) >= _LEAST_TURNS and is_nothing:
            found.append(name)
    others = (turns for name, turns in answer.items() if name not in found)
    has_other = any(each[0] is not None and each[0].dtype.kind not in "iu" for each in others)
    return tuple(found) if has_other else ()
