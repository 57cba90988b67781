"""Containers of the C++ library that hold an array: ``std::vector``, ``std::array`` and ``std::unique_ptr``."""

from __future__ import annotations

from typing import Any, Final

from mptune.adopt.parsing import Node, bare

#: How a container is asked for the address of its first element.
ADDRESSES: Final = {"vector": "data", "array": "data", "unique_ptr": "get"}
#: Members of containers that give an element, or the address of the first one.
_MEMBERS: Final = ("at", "front", "back", "data", "get")


def library_class(canonical: Any) -> str:
    """Return the name of the class of the C++ library that a type is; "" for any other type."""
    if canonical.kind.name != "RECORD":
        return ""
    declaration = canonical.get_declaration()
    parent = declaration.semantic_parent
    while parent is not None and parent.kind.name == "NAMESPACE":
        if parent.spelling == "std":
            return str(declaration.spelling)
        parent = parent.semantic_parent
    return ""


def held_by(canonical: Any) -> Any:
    """Return the type of a container's elements; None for a type that is no container."""
    if library_class(canonical) not in ADDRESSES:
        return None
    element = canonical.get_template_argument_type(0).get_canonical()
    return element.element_type.get_canonical() if element.kind.name == "INCOMPLETEARRAY" else element


def container_of(node: Node) -> Node | None:
    """Return the container whose element or address a call gives, or what one is made of; None for anything else."""
    if node.kind != "CALL_EXPR" or node.referenced is None:
        return None
    arguments, member = node.arguments, node.children[0] if node.children else None
    if node.spelling == "operator[]" or (node.referenced.kind.name == "CONSTRUCTOR" and len(arguments) == 1):
        found = arguments[0] if arguments else None
    else:
        is_member = member is not None and node.spelling in _MEMBERS and bool(member.children)
        found = member.children[0] if is_member and member is not None else None
    takes_pointer = library_class(node.canonical) == "unique_ptr" and node.referenced.kind.name == "CONSTRUCTOR"
    is_held = found is not None and (takes_pointer or held_by(bare(found).canonical) is not None)
    return bare(found) if found is not None and is_held else None
