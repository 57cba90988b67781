"""The same type for everything: what any mixture of types is to be seen against."""

from __future__ import annotations

from mptune.kernel import Kernel
from mptune.precision import PRECISIONS, Precision, precision
from mptune.space.configuration import Value
from mptune.space.parameters import PrecisionParameter

__all__ = ["uniform_types"]


def uniform_types(kernel: Kernel) -> list[dict[str, Value]]:
    """Return, for each precision below the widest, the values that give it to every precision parameter.

    A parameter without that precision has the narrowest of its wider ones, or its widest. Widest first.
    """
    parameters = [p for p in kernel.parameters if isinstance(p, PrecisionParameter)]
    values = {p.name: [precision(str(v)) for v in p.values] for p in parameters}
    found: list[dict[str, Value]] = []
    for level in PRECISIONS.values():
        types: dict[str, Value] = {}
        for name, offered in values.items():
            wide_enough = [p for p in offered if p.significand_bits >= level.significand_bits]
            nearest = min(wide_enough, key=_bits) if wide_enough else max(offered, key=_bits)
            types[name] = nearest.name
        if level.name in types.values() and types not in found:
            found.append(types)
    return found


def _bits(entry: Precision) -> int:
    return entry.significand_bits
