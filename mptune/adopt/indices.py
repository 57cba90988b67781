"""Unsigned indices of arrays, which templates compute in 64 bits on the host.

An unsigned sum may wrap, so that ``field[y * width + x]`` may jump to the start in the middle of a row, as far as a
compiler knows: it makes no vectors of the loop over ``x``. In 64 bits it is a row of memory.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Final

from mptune.adopt.parsing import TRANSPARENT, Extent, Function, Node

#: Terms that are replaced: names, fields, and the small numbers that indices have.
_TERM: Final = re.compile(
    r"(?!(?:hip)?(?:thread|block|grid|Thread|Block|Grid)(?:Idx|Dim)\b)[A-Za-z_][\w.>-]*|\d{1,5}[uU]?"
)
_TYPE: Final = re.compile(r"(?:const\s+)?(unsigned(?:\s+int)?|uint(?:32_t)?)\s+(?:const\s+)?\w+\s*[=({]")


def unsigned_indices(function: Function, text: Callable[[Extent], str]) -> tuple[set[Extent], set[Extent]]:
    """Return the types of unsigned variables that are used in indices alone, and other unsigned terms of indices.

    Args:
        function: the function.
        text: returns the text of an extent.
    """
    nodes = list(function.block.walk())
    parents = {id(child): node for node in nodes for child in node.children}
    uses: dict[int, list[Node]] = {}
    for node in nodes:
        if node.kind == "DECL_REF_EXPR" and node.referenced is not None:
            uses.setdefault(node.referenced.hash, []).append(node)

    def terms(node: Node) -> list[Node]:
        """Return the terms of a sum or product; none if there are others than those that are replaced."""
        while node.kind in TRANSPARENT and len(node.children) == 1:
            node = node.children[0]
        if node.kind == "BINARY_OPERATOR" and node.operator in ("+", "-", "*") and _is_unsigned(node):
            one, other = map(terms, node.children)
            return one + other if one and other else []
        return [node] if node.extent is not None and _TERM.fullmatch(text(node.extent)) else []

    def is_index(node: Node) -> bool:
        """Return whether a value is used in an index alone."""
        parent = parents[id(node)]
        if parent.kind == "ARRAY_SUBSCRIPT_EXPR":
            return node is parent.children[1]
        if parent.kind == "VAR_DECL":
            return parent.cursor.hash in variables
        is_sum = parent.kind == "BINARY_OPERATOR" and parent.operator in ("+", "-", "*")
        return (is_sum or parent.kind in TRANSPARENT) and is_index(parent)

    variables: dict[int, tuple[Node, Extent]] = {}
    for node in nodes:
        is_alone = node.kind == "VAR_DECL" and len(parents[id(node)].children) == 1 and node.extent is not None
        written = _TYPE.match(text(node.extent)) if is_alone and node.extent is not None else None
        if node.extent is not None and written and _is_unsigned(node) and len(terms(node.children[-1])) > 1:
            start, end = (node.extent.start + place for place in written.span(1))
            variables[node.cursor.hash] = node, dataclasses.replace(node.extent, start=start, end=end)
    known = -1
    while known != (known := len(variables)):
        variables = {key: each for key, each in variables.items() if key in uses and all(map(is_index, uses[key]))}
    indices = [node.children[1] for node in nodes if node.kind == "ARRAY_SUBSCRIPT_EXPR"]
    found = [terms(index) for index in (*indices, *(node.children[-1] for node, _ in variables.values()))]
    others = {
        node.extent
        for each in found
        for node in each
        if len(each) > 1 and _is_unsigned(node) and node.extent is not None
        if node.referenced is None or node.referenced.hash not in variables
    }
    return {extent for _, extent in variables.values()}, others


def _is_unsigned(node: Node) -> bool:
    return node.canonical.spelling in ("unsigned int", "const unsigned int")
