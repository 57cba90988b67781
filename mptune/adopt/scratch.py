"""Memory of plain C++ that only its loops look at: what they leave in it is no answer of the program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from mptune.adopt.parsing import Extent, Node
from mptune.adopt.reading import Program

#: Types whose variables have memory of their own, which goes with them.
_OWNERS: Final = re.compile(r"(?:const )?std::(?:vector|array)<.*>|[\w ]+\[\d*\]")
_ALLOCATES: Final = ("malloc", "calloc", "aligned_alloc")


def scratch_parameters(program: Program) -> set[tuple[str, str]]:
    """Return the parameters of kernels, by label and name, that get variables which nothing but launches names."""
    bodies = {function.usr: function.block for unit in program.units for function in unit.functions}
    nodes = [node for body in bodies.values() for node in body.walk()]
    declared = {node.cursor.get_usr(): node for node in nodes if node.kind == "VAR_DECL"}
    named: dict[str, list[Extent]] = {}
    for node in nodes:
        if node.kind == "DECL_REF_EXPR" and node.referenced is not None and node.extent is not None:
            named.setdefault(node.referenced.get_usr(), []).append(node.extent)
    harmless = [site.extent for site in program.launches] + list(_ends(nodes))
    parameters = {kernel.label: kernel.parameters for kernel in program.kernels}
    found: set[tuple[str, str]] = set()
    others: set[tuple[str, str]] = set()
    for site in program.launches:
        for parameter, argument in zip(parameters.get(site.kernel, ()), site.arguments, strict=False):
            variables = [usr for usr, places in named.items() if any(place in argument for place in places)]
            is_scratch = (
                len(variables) == 1
                and variables[0] in declared
                and _owns(declared[variables[0]])
                and all(any(place in extent for extent in harmless) for place in named[variables[0]])
            )
            (found if is_scratch else others).add((site.kernel, parameter.name))
    return found - others


def _ends(nodes: list[Node]) -> Iterator[Extent]:
    """Give the places where memory is given back."""
    for node in nodes:
        is_end = node.kind == "CXX_DELETE_EXPR" or (node.kind == "CALL_EXPR" and node.spelling == "free")
        if is_end and node.extent is not None:
            yield node.extent


def _owns(variable: Node) -> bool:
    """Whether nothing else has the memory of a variable."""
    if _OWNERS.fullmatch(variable.canonical.spelling):
        return bool(variable.cursor.storage_class.name != "STATIC")
    return bool(variable.canonical.kind.name == "POINTER") and any(
        node.kind == "CXX_NEW_EXPR" or (node.kind == "CALL_EXPR" and node.spelling in _ALLOCATES)
        for node in variable.walk()
    )
