"""Parameters made from the values that a file lists for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mptune.precision import EVERY_PRECISION, POLICIES, precision
from mptune.space.configuration import Value
from mptune.space.parameters import (
    BooleanParameter,
    CategoricalParameter,
    OrdinalParameter,
    Parameter,
    PermutationParameter,
    PolicyParameter,
    PrecisionParameter,
    is_identifier,
)

__all__ = ["parameter_of"]

_SPELLINGS: Final = frozenset(s.lower() for p in EVERY_PRECISION.values() for s in (p.name, *p.aliases))
_MAX_PERMUTED: Final = 8


def parameter_of(name: str, values: Iterable[Value], kind: str = "") -> Parameter:
    """Return the parameter with these values, of the kind that the values show.

    Numbers become an ordinal parameter in ascending order. Text becomes a precision parameter when every
    value is a spelling of another precision, a policy parameter when every value is a policy, and a
    categorical one otherwise. In an application, ``KERNEL.PARAMETER`` is a name, too.

    Args:
        name: the parameter's name.
        values: its values; repeated ones count once.
        kind: its kind where that is known: categories that are numbers have no order.

    Raises:
        UnknownNameError: the kind is "precision" and a value is no precision.
    """
    kernel, _, own = name.rpartition(".")
    if is_identifier(kernel):
        return parameter_of(own, values, kind).renamed(name)
    unique = tuple(dict.fromkeys(values))
    if kind == PrecisionParameter.kind:
        for value in unique:
            precision(str(value))
    if kind == CategoricalParameter.kind:
        return CategoricalParameter(name, unique)
    if all(isinstance(v, bool) for v in unique):
        return BooleanParameter(name) if len(unique) == 2 else CategoricalParameter(name, unique)
    if all(isinstance(v, int | float) for v in unique):
        return OrdinalParameter(name, tuple(sorted(unique)))
    if _are_permutations(unique):
        return PermutationParameter(name, len(unique[0]))  # type: ignore[arg-type]
    texts = [v for v in unique if isinstance(v, str)]
    if len(texts) == len(unique):
        if all(text.strip().lower() in _SPELLINGS for text in texts):
            canonical = {precision(text).name for text in texts}
            if len(canonical) == len(texts):
                return PrecisionParameter.searched(name, texts)
        if len(texts) > 1 and all(text in POLICIES for text in texts):
            return PolicyParameter(name, tuple(p for p in POLICIES if p in texts))
    return CategoricalParameter(name, unique)


def _are_permutations(values: Sequence[Value]) -> bool:
    first = values[0]
    if not isinstance(first, tuple) or not 1 <= len(first) <= _MAX_PERMUTED:
        return False
    entries = list(range(len(first)))
    return all(isinstance(v, tuple) and sorted(v) == entries for v in values)
