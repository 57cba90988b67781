"""The same type for everything: what a speedup is measured from, and what any mixture is to be seen against."""

from __future__ import annotations

from collections.abc import Iterable

from mptune.precision import PRECISIONS, Precision, precision
from mptune.space.configuration import Value
from mptune.space.parameters import Parameter, PolicyParameter, PrecisionParameter

__all__ = ["baseline_values", "uniform_types"]


def baseline_values(parameters: Iterable[Parameter]) -> dict[str, tuple[Value, ...]]:
    """Return the values precision and policy parameters have in a baseline: fp64 (or the widest), accurate."""
    fixed: dict[str, tuple[Value, ...]] = {}
    for parameter in parameters:
        if isinstance(parameter, PrecisionParameter):
            fixed[parameter.name] = (max((precision(str(v)) for v in parameter.values), key=_bits).name,)
        elif isinstance(parameter, PolicyParameter):
            fixed[parameter.name] = ("accurate",) if "accurate" in parameter.values else parameter.values[:1]
    return fixed


def uniform_types(parameters: Iterable[Parameter]) -> dict[str, dict[str, Value]]:
    """Return, by the name of each precision, the values that give it to every precision parameter.

    A parameter without that precision has the narrowest of its wider ones, or its widest. Widest first; a precision
    that no parameter has is left out.
    """
    values = {p.name: [precision(str(v)) for v in p.values] for p in parameters if isinstance(p, PrecisionParameter)}
    found: dict[str, dict[str, Value]] = {}
    for level in PRECISIONS.values():
        types: dict[str, Value] = {}
        for name, offered in values.items():
            wide_enough = [p for p in offered if p.significand_bits >= level.significand_bits]
            nearest = min(wide_enough, key=_bits) if wide_enough else max(offered, key=_bits)
            types[name] = nearest.name
        if level.name in types.values() and types not in found.values():
            found[level.name] = types
    return found


def _bits(entry: Precision) -> int:
    return entry.significand_bits
