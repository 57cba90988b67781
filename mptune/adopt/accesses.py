"""What a function does with the memory that its parameters point at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mptune.adopt.parsing import Function, Node, library_of

#: A parameter (its position) with the fields that lead to a pointer.
Path = tuple[int | str, ...]
#: The object of a member function, as if it were a parameter.
_THIS: Final[Path] = ("this",)
#: What functions that are not the program's do with what their arguments point at, by position; others only read.
_KNOWN: Final = {
    **{name: {1: "w", 2: "w"} for name in ("sincos", "sincosf", "__sincosf", "sincospi", "sincospif")},
    **{name: {1: "w"} for name in ("modf", "modff", "frexp", "frexpf")},
    **{name: {0: "w", 1: "r"} for name in ("memcpy", "memmove")},
    "memset": {0: "w"},
    "swap": {0: "rw", 1: "rw"},
}
#: Expressions that are a part of what they contain, or the same.
_PARTS: Final = ("PAREN_EXPR", "UNEXPOSED_EXPR", "MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR")
_ASSIGNMENTS: Final = {"operator=": "w", **{f"operator{sign}=": "rw" for sign in "+-*/%"}}


class Accesses:
    """Finds for each function of a program which memory it reads and writes.

    Args:
        functions: of the program, by clang's name.
    """

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions
        self._found: dict[str, dict[Path, set[str]]] = {}

    def of(self, function: Function) -> Mapping[Path, set[str]]:
        """Return by parameter, and by field of one that is a struct, whether what it points at is read or written.

        The values hold "r", "w" or both, and "?" for a field that is used; what is not used is left out. What is done
        through a struct that was made of pointers counts for all of them, and has that struct's fields in its path.
        """
        if function.usr not in self._found:
            self._found[function.usr] = {}  # a recursion finds nothing more
            self._found[function.usr] = _Body(function, self).found
        return self._found[function.usr]

    def called(self, cursor: Any) -> Mapping[Path, set[str]]:
        """Return the same for a function that is called."""
        function = self._functions.get(cursor.get_usr()) if cursor is not None else None
        if function is not None:
            return self.of(function)
        name = cursor.spelling if cursor is not None else ""
        if name.startswith(("atomic", "unsafeAtomic")):
            return {(0,): {"r", "w"}}
        if library_of(cursor):
            return _of_library(cursor)
        return {(index,): set(modes) for index, modes in _KNOWN.get(name, {}).items()}


def _of_library(cursor: Any) -> dict[Path, set[str]]:
    """Return what a function of a library for kernels does: it loads, stores, or changes what it may change."""
    found: dict[Path, set[str]] = {}
    for index, parameter in enumerate(cursor.get_arguments()):
        kind = parameter.type.get_canonical()
        if kind.kind.name in ("POINTER", "LVALUEREFERENCE"):
            is_constant = kind.get_pointee().is_const_qualified() or (cursor.spelling == "Load" and index == 0)
            found[index,] = {"r"} if is_constant else {"w"} if cursor.spelling == "Store" else {"r", "w"}
    return found


class _Body:
    """One pass over the body of a function."""

    def __init__(self, function: Function, accesses: Accesses) -> None:
        self.found: dict[Path, set[str]] = {}
        self._accesses = accesses
        self._returns_place = function.node.cursor.result_type.get_canonical().kind.name == "LVALUEREFERENCE"
        self._roots: dict[str, set[Path]] = {}
        for index, parameter in enumerate(function.parameters):
            self._roots[parameter.cursor.get_usr()] = {(index,)}
        before = -1
        while before != (before := sum(map(len, self._roots.values()))):  # until no pointer gains a place
            self._visit(function.block, "r")

    def _mark(self, roots: set[Path], modes: str) -> None:
        if modes:
            for root in roots:
                self.found.setdefault(root, set()).update(modes)

    def _places(self, node: Node) -> set[Path]:
        """Return what a pointer may point into, or which struct an expression is."""
        kind, children = node.kind, node.children
        if kind == "DECL_REF_EXPR":
            return self._roots.get(node.referenced.get_usr(), set()) if node.referenced is not None else set()
        if kind == "CXX_THIS_EXPR":
            return {_THIS}
        if kind == "MEMBER_REF_EXPR":
            # (What a pointer of a list points at is as the list is: no place has a field twice, or there is no end.)
            inside, name = self._places(children[0]) if children else {_THIS}, node.spelling
            return {place if name in place[1:] else (*place, name) for place in inside}
        if kind == "BINARY_OPERATOR" and node.operator != ",":
            return {place for child in children if _is_pointer(child) for place in self._places(child)}
        if kind == "CONDITIONAL_OPERATOR":
            return self._places(children[1]) | self._places(children[2])
        if kind in ("CALL_EXPR", "INIT_LIST_EXPR"):
            parts = node.arguments if kind == "CALL_EXPR" else children
            return {place for child in parts if _leads_somewhere(child) for place in self._places(child)}
        if kind == "ARRAY_SUBSCRIPT_EXPR":
            return self._places(children[0])
        return self._places(children[-1]) if children else set()

    def _visit(self, node: Node, modes: str) -> None:
        kind, children = node.kind, node.children
        if (kind == "BINARY_OPERATOR" and node.operator == "=") or kind == "COMPOUND_ASSIGNMENT_OPERATOR":
            if _leads_somewhere(children[0]):
                self._alias(children[0], children[1])
            self._visit(children[0], "w" if kind == "BINARY_OPERATOR" else "rw")
            self._visit(children[1], "r")
        elif kind == "UNARY_OPERATOR" and node.operator in ("++", "--"):
            self._visit(children[0], "rw")
        elif kind == "UNARY_OPERATOR" and node.operator == "&":
            self._visit(children[0], "")
        elif kind == "UNARY_OPERATOR" and node.operator == "*":
            self._mark(self._places(children[0]), modes)
            self._visit(children[0], "r")
        elif kind == "ARRAY_SUBSCRIPT_EXPR":
            self._mark(self._places(children[0]), modes)
            self._visit(children[0], "r" if children[0].kind != "ARRAY_SUBSCRIPT_EXPR" else modes)
            self._visit(children[1], "r")
        elif kind == "MEMBER_REF_EXPR" and children:
            self._mark(self._places(node), "?")
            if children[0].canonical.kind.name == "POINTER":
                self._mark(self._places(children[0]), modes)
                self._visit(children[0], "r")
            else:
                self._visit(children[0], modes)
        elif kind == "DECL_REF_EXPR":
            if node.referenced is not None and node.referenced.type.kind.name == "LVALUEREFERENCE":
                self._mark(self._places(node), modes)
        elif kind == "CALL_EXPR":
            self._call(node, modes)
        elif kind == "RETURN_STMT" and self._returns_place:
            self._visit(children[0], "&")
        elif kind == "CONDITIONAL_OPERATOR":
            self._visit(children[0], "r")
            for child in children[1:]:
                self._visit(child, modes)
        elif kind == "VAR_DECL":
            if children and _leads_somewhere(node):
                self._roots.setdefault(node.cursor.get_usr(), set()).update(self._places(children[-1]))
            for child in children:
                self._visit(child, "" if node.canonical.kind.name == "LVALUEREFERENCE" else "r")
        elif kind in ("PAREN_EXPR", "UNEXPOSED_EXPR"):
            for child in children:
                self._visit(child, modes)
        else:
            for child in children:
                self._visit(child, "r")

    def _alias(self, left: Node, right: Node) -> None:
        while left.kind in _PARTS and left.children:
            left = left.children[0 if left.kind == "ARRAY_SUBSCRIPT_EXPR" else -1]
        if left.kind == "DECL_REF_EXPR" and left.referenced is not None:
            self._roots.setdefault(left.referenced.get_usr(), set()).update(self._places(right))

    def _call(self, node: Node, modes: str) -> None:
        arguments = node.arguments
        if node.spelling in _ASSIGNMENTS and len(arguments) == 2:
            self._alias(arguments[0], arguments[1])
            self._visit(arguments[0], _ASSIGNMENTS[node.spelling])
            self._visit(arguments[1], "r")
            return
        called = self._accesses.called(node.referenced)
        given: dict[int | str, Node | None] = dict(enumerate(arguments))
        method = node.referenced if node.referenced is not None and node.referenced.kind.name == "CXX_METHOD" else None
        if method is not None and not method.is_static_method():
            given = {_THIS[0]: object_of(node), **(dict(enumerate(arguments[1:])) if is_operator(node) else given)}
        for (parameter, *fields), found in called.items():
            argument = given.get(parameter)
            places = self._places(argument) if argument is not None else {_THIS}
            if parameter in given:
                # What is returned as a place is used as the call is.
                done = (found - {"&"}) | (set(modes) if "&" in found else set())
                self._mark({(*place, *fields) for place in places}, "".join(done))
        own = bool(called)
        for child in arguments:
            # What it points at is read by a function that is not known, unless that is the program's.
            if not own and _is_pointer(child) and node.referenced is not None and child.extent is not None:
                self._mark(self._places(child), "r")
            self._visit(child, "" if _is_lvalue(child) else "r")


def _is_pointer(node: Node) -> bool:
    kind = node.canonical.kind.name
    return kind in ("POINTER", "LVALUEREFERENCE") or "ARRAY" in kind


def is_operator(call: Node) -> bool:
    """Whether a member function is called as an operator, whose first argument is its object."""
    return not call.children or call.children[0].kind != "MEMBER_REF_EXPR"


def object_of(call: Node) -> Node | None:
    """Return the object whose member function is called; None where that is the caller's own."""
    if is_operator(call):
        return call.arguments[0]
    callee = call.children[0]
    return callee.children[0] if callee.children else None


def _leads_somewhere(node: Node) -> bool:
    """Whether an expression is a pointer, or a struct that may have some."""
    return _is_pointer(node) or node.canonical.kind.name == "RECORD"


def _is_lvalue(node: Node) -> bool:
    """Whether an argument is passed as the place it is: what is passed by value is an implicit conversion of it."""
    return node.kind in ("DECL_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR", "MEMBER_REF_EXPR")
