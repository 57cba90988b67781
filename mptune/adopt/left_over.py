"""What a kernel with narrower types still computes in double precision, and converts, by reading its loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mptune.adopt.capture import plain_name
from mptune.adopt.number_types import SCALARS, bare_name, math_function
from mptune.adopt.parsing import CASTS, Function, Node, bare
from mptune.adopt.patching import Patch
from mptune.adopt.reading import Program, read

#: Share of the device time of the kernels that are reported.
_HOT: Final = 0.1
_LOOPS: Final = ("FOR_STMT", "WHILE_STMT", "DO_STMT")
_ARITHMETIC: Final = ("+", "-", "*", "/", "<", ">", "<=", ">=")
_MOST_LINES: Final = 6


def wide_operations(
    program: Program, patched: Patch, times: Sequence[Mapping[str, Any]], places: Mapping[Path, Path]
) -> list[str]:
    """Say which operations in double precision and which conversions are left in the loops of hot kernels.

    Args:
        program: the program as it was.
        patched: with other types.
        times: the device time of its kernels: ``kernel`` and ``seconds``.
        places: where its files are written.
    """
    whole = sum(each["seconds"] for each in times)
    hot = {plain_name(each["kernel"]).split("::")[-1] for each in times if each["seconds"] >= _HOT * whole}
    texts = {file.path: file.text for file in patched.changed}
    if not hot or not texts:
        return []
    again = read(program.sources, program.defines, program.includes, (), texts)
    functions = {f.label: f for unit in again.units for f in unit.functions if f.is_device}
    told: dict[str, None] = {}
    for kernel in (kernel for kernel in again.kernels if kernel.name in hot):
        labels = [kernel.label, *(need.label for need in kernel.needs if need.kind == "function")]
        for function in (functions[label] for label in labels if label in functions):
            name = places.get(function.extent.file, function.extent.file).name
            told.update(dict.fromkeys(f"{name}: {each}" for each in _told(function)))
    return list(told)


def _told(function: Function) -> Iterator[str]:
    """Yield what is left in each loop, or in a function without loops."""
    found: dict[int, tuple[set[int], set[int]]] = {}
    waiting = [(function.block, 0)]
    while waiting:
        node, loop = waiting.pop()
        line = node.extent.line if node.extent is not None else 0
        loop = line if node.kind in _LOOPS else loop
        sides = _sides(node)
        wide = [_is_wide(side) for side in sides]
        numbers = [bare_name(side.canonical) in SCALARS and bare(side).kind != "FLOATING_LITERAL" for side in sides]
        is_operation = node.operator.removesuffix("=") in _ARITHMETIC or node.operator in _ARITHMETIC
        if any(wide) and (is_operation or node.kind == "CALL_EXPR"):
            found.setdefault(loop, (set(), set()))[0].add(line)
        if len(sides) == 2 and wide[0] != wide[1] and all(numbers):
            found.setdefault(loop, (set(), set()))[1].add(line)
        waiting += [(child, loop) for child in node.children]
    has_loops = any(loop for loop in found)
    for loop, (operations, conversions) in sorted(found.items()):
        parts = [f"operations in double in {_lines(operations)}"] if operations else []
        parts += [f"conversions of numbers in {_lines(conversions)}"] if conversions else []
        if loop or not has_loops:
            where = f"the loop at line {loop} of {function.name}" if loop else function.name
            yield f"{where} still has {' and '.join(parts)}"


def _sides(node: Node) -> tuple[Node, ...]:
    """Return the numbers that meet in a node: operands, what is assigned and to what, arguments of mathematics."""
    if node.kind in ("BINARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR"):
        return node.children
    if node.kind in ("VAR_DECL", *CASTS) and node.children:
        return (node, node.children[-1])
    return node.arguments if node.kind == "CALL_EXPR" and math_function(node.spelling) is not None else ()


def _is_wide(node: Node) -> bool:
    """Whether a number is in double precision; a mathematical function computes in the type of its arguments."""
    inner = bare(node)
    if inner.kind == "CALL_EXPR" and math_function(inner.spelling) is not None:
        return any(map(_is_wide, inner.arguments))
    if inner.kind == "BINARY_OPERATOR" and inner.operator in _ARITHMETIC:
        return any(map(_is_wide, inner.children))
    return bool(bare_name(inner.canonical) == "double")


def _lines(lines: set[int]) -> str:
    numbers = [str(line) for line in sorted(lines)]
    more = f" and {len(numbers) - _MOST_LINES} more" if len(numbers) > _MOST_LINES else ""
    return f"line{'s' * (len(numbers) > 1)} {', '.join(numbers[:_MOST_LINES])}{more}"
