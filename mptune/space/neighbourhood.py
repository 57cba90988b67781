"""Which configurations are neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from mptune.space.factors import Factor
from mptune.space.parameters import Parameter, PermutationParameter

__all__ = ["KINDS", "Kind", "neighbours_in", "other_values", "steps"]

Kind = Literal["hamming", "adjacent"]
KINDS: Final[tuple[Kind, ...]] = ("hamming", "adjacent")


def other_values(parameter: Parameter, code: int) -> NDArray[np.int64]:
    """Return the codes of all values of a parameter but one."""
    return np.delete(np.arange(len(parameter.values), dtype=np.int64), code)


def steps(parameter: Parameter, code: int) -> NDArray[np.int64]:
    """Return the codes one step away from a value.

    That is the value before and the value after in the parameter's order; any other value where there is no order;
    for a permutation the exchanges of two elements that stand next to each other.
    """
    if isinstance(parameter, PermutationParameter):
        order = parameter.values[code]
        assert isinstance(order, tuple)
        swapped = [(*order[:k], order[k + 1], order[k], *order[k + 2 :]) for k in range(len(order) - 1)]
        return np.array(sorted(parameter.values.index(other) for other in swapped), dtype=np.int64)
    if not parameter.is_ordered:
        return other_values(parameter, code)
    return np.array([c for c in (code - 1, code + 1) if 0 <= c < len(parameter.values)], dtype=np.int64)


def neighbours_in(
    factor: Factor, leaf: int, parameters: Sequence[Parameter], moves: Callable[[Parameter, int], NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Return the valid combinations of a factor that one move of one parameter leads to from ``leaf``."""
    codes = factor.decode_one(leaf)
    alternatives = [moves(parameters[at], code) for at, code in zip(factor.positions, codes, strict=True)]
    changed = np.repeat(np.arange(len(codes)), [len(options) for options in alternatives])
    candidates = np.tile(np.array(codes, dtype=np.int64), (len(changed), 1))
    if not len(changed):
        return np.empty(0, dtype=np.int64)
    candidates[np.arange(len(changed)), changed] = np.concatenate(alternatives)
    found = factor.encode(candidates)
    return found[found >= 0]
