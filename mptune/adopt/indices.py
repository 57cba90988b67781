"""Indices that a kernel computes in unsigned numbers, which wrap: g++ makes no vectors of loops over them.

``field[y * width + x]`` with an unsigned ``width`` may jump back to the start in the middle of a row, as far as the
compiler knows. In 64 bits it is a row of memory.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from mptune.adopt.parsing import TRANSPARENT, Extent, Function, Node

_UNSIGNED: Final = ("unsigned int", "const unsigned int")
#: What gives the same index whether it is computed in 32 bits, which may wrap, or in more.
_SAME_BITS: Final = ("+", "-", "*")
#: Variables, fields and numbers that are written as such; of the last only small ones, as indices have them.
_WRITTEN: Final = re.compile(r"[A-Za-z_]\w*(?:(?:\.|->)[A-Za-z_]\w*)*|\d{1,5}[uU]?")
_DECLARED: Final = re.compile(r"(?:const\s+)?(unsigned(?:\s+int)?|uint(?:32_t)?)\s+(?:const\s+)?(\w+)\s*[=({]")
#: The place of a thread, which the prelude's loops are known not to wrap.
_PLACE: Final = re.compile(r"(?:hip)?(?:thread|block|grid|Thread|Block|Grid)(?:Idx|Dim)\b.*")


@dataclass(frozen=True, slots=True)
class UnsignedIndices:
    """What of a function is unsigned and nothing but an index, or a part of one.

    Attributes:
        types: those that variables are declared with which are used in nothing but indices.
        terms: variables and numbers in sums and products.
    """

    types: frozenset[Extent]
    terms: frozenset[Extent]


def unsigned_indices(function: Function, text: Callable[[Extent], str]) -> UnsignedIndices:
    """Find what of a function is unsigned and nothing but an index.

    Args:
        function: where it is looked for.
        text: returns what is written somewhere.
    """
    nodes = list(function.block.walk())
    above = {child.cursor.hash: node for node in nodes for child in node.children}
    variables = {
        node.cursor.hash: node
        for node in nodes
        if node.kind == "VAR_DECL" and node.canonical.spelling in _UNSIGNED and node.children
    }
    uses: dict[int, list[Node]] = {}
    for node in nodes:
        if node.kind == "DECL_REF_EXPR" and node.referenced is not None:
            uses.setdefault(node.referenced.hash, []).append(node)
    waiting = [node.children[1] for node in nodes if node.kind == "ARRAY_SUBSCRIPT_EXPR" and len(node.children) == 2]
    indices = {node.cursor.hash for node in waiting}
    types: dict[int, Extent] = {}
    terms: list[Node] = []

    def is_index(node: Node) -> bool:
        """Tell whether a value enters nothing but an index."""
        while node.cursor.hash not in indices:
            node = above[node.cursor.hash]
            if not (node.kind in TRANSPARENT or (node.kind == "BINARY_OPERATOR" and node.operator in _SAME_BITS)):
                return False
        return True

    def terms_of(node: Node) -> list[Node]:
        """Return what is to be changed in a sum or product; nothing unless all of it can be."""
        leaves = list(_leaves(node))
        written = [text(leaf.extent) if leaf.extent is not None else "" for leaf in leaves]
        if len(leaves) < 2 or not all(map(_WRITTEN.fullmatch, written)) or any(map(_PLACE.fullmatch, written)):
            return []
        return [leaf for leaf in leaves if leaf.canonical.spelling in _UNSIGNED]

    while waiting:
        index = waiting.pop()
        terms += terms_of(index)
        for leaf in _leaves(index):
            declared = leaf.referenced.hash if leaf.referenced is not None else None
            variable = variables.pop(declared, None) if declared is not None else None
            if variable is None or not terms_of(variable.children[-1]):
                continue
            written = _type_of(variable, above[variable.cursor.hash], text)
            if written is not None and all(map(is_index, uses[variable.cursor.hash])):
                types[variable.cursor.hash] = written
                indices.add(variable.children[-1].cursor.hash)
                waiting.append(variable.children[-1])
    kept = (node for node in terms if node.referenced is None or node.referenced.hash not in types)
    return UnsignedIndices(
        frozenset(types.values()), frozenset(node.extent for node in kept if node.extent is not None)
    )


def _type_of(variable: Node, statement: Node, text: Callable[[Extent], str]) -> Extent | None:
    """Return where the type of a variable is written; None if it is not its own."""
    extent = variable.extent
    if extent is None or len(statement.children) != 1:
        return None
    found = _DECLARED.match(text(extent))
    if found is None or found[2] != variable.spelling:
        return None
    return dataclasses.replace(extent, start=extent.start + found.start(1), end=extent.start + found.end(1))


def _leaves(node: Node) -> Iterator[Node]:
    """Give what an unsigned sum or product is made of, as far as that is written out; nothing of any other value."""
    inner = node
    while inner.kind in TRANSPARENT and len(inner.children) == 1:
        inner = inner.children[0]
    if inner.kind == "BINARY_OPERATOR" and inner.operator in _SAME_BITS and inner.canonical.spelling in _UNSIGNED:
        sides = [list(_leaves(child)) for child in inner.children]
        if all(sides):
            yield from sides[0] + sides[1]
    elif inner.kind in ("DECL_REF_EXPR", "MEMBER_REF_EXPR", "INTEGER_LITERAL"):
        yield inner
