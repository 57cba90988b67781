"""Why a change of types does not pay: what bytes, operations and machine code of the two configurations explain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["Reason", "machine_reasons", "quotient"]

#: More by less than this factor, or than so many instructions, is no reason.
_MORE: Final = 1.1
_FEW: Final = 4
#: From this share of the measured bandwidth, or peak, on, a launch waits for it.
_BOUND_SHARE: Final = 0.6
#: Metrics of which more is worse, with the kind of reason and its words.
_MORE_IS_WORSE: Final = (
    ("fp64_calls", "calls", "{after:g} calls of mathematical functions in fp64 instead of {before:g}"),
    ("single_calls", "calls", "{after:g} calls of mathematical functions for one number each instead of {before:g}"),
    ("stack_stores", "spills", "{after:g} registers saved on the stack instead of {before:g}"),
    ("local_bytes", "spills", "{after:g} bytes of local memory a thread instead of {before:g}"),
    ("registers", "registers", "{after:g} registers a thread instead of {before:g}"),
)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a change does not pay: in words with the numbers, and the winner's and its own where there is one number.

    The kind is "accuracy", "failed", "conversions", "vectorisation", "calls", "spills", "registers", "memory",
    "arithmetic", "same code" or "unexplained".
    """

    kind: str
    text: str
    winner: float | None = None
    changed: float | None = None


def machine_reasons(before: Mapping[str, float], after: Mapping[str, float], *, is_slower: bool) -> list[Reason]:
    """Say what machine code, bytes and operations explain of a change that is not faster."""
    if after.get("same_code"):
        return [Reason("same code", "the compiler makes the same machine code of both")]
    found = []
    vectors = [quotient(m.get("vector_operations", math.nan), _operations(m)) for m in (before, after)]
    if vectors[1] <= vectors[0] - 0.1:
        found.append(Reason("vectorisation", f"{_vectors(after)} instead of {_vectors(before)}", *vectors))
    # For each operation: how far loops are unrolled differs from type to type.
    conversions = [quotient(m.get("conversions", math.nan), _operations(m)) for m in (before, after)]
    if conversions[1] > conversions[0] * _MORE:
        each = (f"{m['conversions']:g} beside {_operations(m):g} operations" for m in (after, before))
        found.append(Reason("conversions", f"conversions between types: {' instead of '.join(each)}", *conversions))
    for name, kind, words in _MORE_IS_WORSE:
        ours, theirs = before.get(name, math.nan), after.get(name, math.nan)
        # A single call takes as long as many instructions.
        if theirs > ours * _MORE and (theirs - ours >= _FEW or kind == "calls"):
            found.append(Reason(kind, words.format(before=ours, after=theirs), ours, theirs))
    found += _bound_reasons(before, after, is_slower=is_slower)
    if not found and "vector_operations" in after:
        counts = f"{_vectors(after)}, {after['conversions']:g} conversions"
        found.append(Reason("unexplained", f"bytes and machine code do not explain it ({counts})"))
    return found


def _bound_reasons(before: Mapping[str, float], after: Mapping[str, float], *, is_slower: bool) -> list[Reason]:
    """Say that one moves more bytes or takes longer to compute, or that the memory limits both alike."""
    moved = [m.get("traffic_bytes", m.get("memory_bytes", math.nan)) for m in (before, after)]
    computed_ms = [m.get("compute_bound_ms", math.nan) for m in (before, after)]
    time_ms = before.get("time_ms", math.nan)
    bound = [quotient(m.get("memory_bound_ms", math.nan), m.get("time_ms", math.nan)) for m in (before, after)]
    memory, compute = bound[0], quotient(computed_ms[0], time_ms)
    at = f"the winner runs at {memory:.0%} of the measured bandwidth"
    # More bytes are no reason where they take a small part of the time: they stay in a cache, or arithmetic takes it.
    if is_slower and moved[1] > 1.01 * moved[0] and any(share >= _BOUND_SHARE / 2 for share in bound):
        words = f"moves {_in_bytes(moved[1])} instead of {_in_bytes(moved[0])}"
        return [Reason("memory", f"{words}; {at}" if memory >= _BOUND_SHARE else words, *moved)]
    if all(share >= _BOUND_SHARE for share in bound) and abs(moved[1] - moved[0]) <= 0.01 * moved[0]:
        return [Reason("memory", f"memory-bound anyway: both move {_in_bytes(moved[0])}, and {at}", *moved)]
    if is_slower and computed_ms[1] > 1.01 * computed_ms[0] and compute >= _BOUND_SHARE / 2:
        words = f"its operations take {computed_ms[1]:.3g} ms at the measured peak instead of {computed_ms[0]:.3g} ms"
        return [Reason("arithmetic", words, *computed_ms)]
    return []


def _in_bytes(count: float) -> str:
    unit, name = next((entry for entry in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if count >= entry[0]), (1.0, "bytes"))
    return f"{count / unit:.4g} {name}"


def _operations(metrics: Mapping[str, float]) -> float:
    return metrics.get("vector_operations", math.nan) + metrics.get("scalar_operations", math.nan)


def _vectors(metrics: Mapping[str, float]) -> str:
    return f"{metrics['vector_operations']:g} of {_operations(metrics):g} operations on vectors"


def quotient(above: float, below: float) -> float:
    """Return a quotient, NaN unless what is below is positive."""
    return above / below if below > 0 else math.nan
