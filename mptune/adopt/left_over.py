"""What a kernel with narrower types still computes in double precision, and converts, by reading its loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mptune.adopt.capture import plain_name
from mptune.adopt.number_types import SCALARS, bare_name, math_function
from mptune.adopt.parsing import CASTS, Function, Node
from mptune.adopt.patching import Patch
from mptune.adopt.reading import Program, read

#: Kernels with less of the device time are not told of.
_HOT: Final = 0.1
_LOOPS: Final = ("FOR_STMT", "WHILE_STMT", "DO_STMT")
_OPERATORS: Final = ("+", "-", "*", "/", "+=", "-=", "*=", "/=", "<", ">", "<=", ">=")
_MOST_LINES: Final = 6


def wide_operations(program: Program, patched: Patch, times: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say which operations in double precision and which conversions are left in the loops of hot kernels.

    Args:
        program: the program as it was.
        patched: with other types.
        times: the device time of its kernels: ``kernel`` and ``seconds``.
    """
    whole = sum(each["seconds"] for each in times)
    hot = {plain_name(each["kernel"]).split("::")[-1] for each in times if each["seconds"] >= _HOT * whole}
    texts = {file.path: file.text for file in patched.changed}
    if not hot or not texts:
        return []
    again = read(program.sources, program.defines, program.includes, (), (), texts)
    functions = {f.label: f for unit in again.units for f in unit.functions if f.is_device}
    told: dict[str, None] = {}
    for kernel in (kernel for kernel in again.kernels if kernel.name in hot):
        labels = [kernel.label, *(need.label for need in kernel.needs if need.kind == "function")]
        for function in (functions[label] for label in labels if label in functions):
            told.update(dict.fromkeys(_told(function, kernel.name)))
    return list(told)


def _told(function: Function, kernel: str) -> Iterator[str]:
    """Yield a sentence for each loop, and for what is in none."""
    found: dict[int, tuple[set[int], set[int]]] = {}
    waiting = [(function.block, 0)]
    while waiting:
        node, loop = waiting.pop()
        line = node.extent.line if node.extent is not None else 0
        loop = line if node.kind in _LOOPS else loop
        operations, conversions = found.setdefault(loop, (set(), set()))
        if _is_double(node) and (node.operator in _OPERATORS or _is_math(node)):
            operations.add(line)
        elif _is_conversion(node):
            conversions.add(line)
        waiting += [(child, loop) for child in node.children]
    has_loops = any(loop for loop in found)
    for loop, (operations, conversions) in sorted(found.items()):
        parts = [
            f"{what} in {_lines(lines)}"
            for what, lines in (("operations in double", operations), ("conversions of numbers", conversions))
            if lines
        ]
        if parts and (loop or not has_loops):
            inside = (
                f"the loop at {function.extent.file.name}:{loop}"
                if loop
                else f"{function.name} ({function.extent.file.name})"
            )
            yield f"left in {inside} of kernel {kernel}: {' and '.join(parts)}"


def _is_double(node: Node) -> bool:
    return any(bare_name(each.canonical) == "double" for each in (node, *node.children[:1]))


def _is_math(node: Node) -> bool:
    return node.kind == "CALL_EXPR" and math_function(node.spelling) is not None


def _is_conversion(node: Node) -> bool:
    """Whether a number of one floating-point type, and no literal, is made one of another."""
    if node.kind not in ("UNEXPOSED_EXPR", *CASTS) or not node.children or node.children[-1].kind == "FLOATING_LITERAL":
        return False
    types = [bare_name(each.canonical) for each in (node, node.children[-1])]
    return "double" in types and types[0] != types[1] and all(name in SCALARS for name in types)


def _lines(lines: set[int]) -> str:
    numbers = [str(line) for line in sorted(lines)]
    more = f" and {len(numbers) - _MOST_LINES} more" if len(numbers) > _MOST_LINES else ""
    return f"line{'s' * (len(numbers) > 1)} {', '.join(numbers[:_MOST_LINES])}{more}"
