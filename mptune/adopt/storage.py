"""Variables of the host whose type can change where they are declared: all that is done with them goes on as before.

What is done with single numbers does, since they are made double again where they are read. An array is followed to
where else it is known by a name: through parameters, pointers and swaps. What is done with its bytes, by a template or
by a library with the whole of it, or with its numbers by other names, ends that.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mptune.adopt.parsing import ANY_CAST, FUNCTIONS, TRANSPARENT, Extent, Node, TranslationUnit, bare
from mptune.cpp.tokens import tokens

_VARIABLES: Final = ("VAR_DECL", "PARM_DECL", "FIELD_DECL")
_REFERENCES: Final = ("DECL_REF_EXPR", "MEMBER_REF_EXPR")
_CONTAINERS: Final = ("vector", "array", "valarray", "unique_ptr")
_TEMPLATES: Final = ("FUNCTION_TEMPLATE", "CLASS_TEMPLATE", "CLASS_TEMPLATE_PARTIAL_SPECIALIZATION")
#: Members of containers, by what they give.
_ELEMENTS: Final = ("at", "front", "back")
_ADDRESSES: Final = ("data", "get")
_HARMLESS: Final = (
    *("size", "empty", "capacity", "resize", "reserve", "assign", "clear", "push_back", "emplace_back", "pop_back"),
    *("fill", "reset", "shrink_to_fit"),
)
_ITERATORS: Final = ("begin", "end", "cbegin", "cend", "rbegin", "rend")
#: Functions of the library that compute nothing with the numbers they are given.
_GENERIC: Final = (
    *("free", "fill", "fill_n", "copy", "copy_n", "generate", "generate_n", "iota", "sort"),
    *("size", "operator==", "operator!="),
)
_ONE_OF: Final = ("max_element", "min_element")
#: Expressions whose value is no array, whatever they are of.
_NO_VALUES: Final = ("CXX_DELETE_EXPR", "CXX_UNARY_EXPR", "COMPOUND_ASSIGNMENT_OPERATOR", "BINARY_OPERATOR")
_ALLOCATES: Final = ("malloc", "calloc", "aligned_alloc", "realloc", "make_unique")


@dataclass(frozen=True, slots=True)
class Variables:
    """Variables that have one type.

    Attributes:
        names: clang's.
        slots: where ``double`` is written in their declarations, each with the variable's name; "" for a parameter,
            which has its type for itself.
        sizes: where it is written for the memory that they are given.
        reads: where their numbers are read, and not just stored.
        kept: why it cannot be another type; "" if it can.
    """

    names: frozenset[str]
    slots: tuple[tuple[Extent, str], ...]
    sizes: tuple[Extent, ...]
    reads: tuple[Extent, ...]
    kept: str


def host_variables(units: Sequence[TranslationUnit], wanted: Collection[str]) -> list[Variables]:
    """Find out which variables must have one type with those of some names, and whether it can be another.

    Args:
        units: the files of a program.
        wanted: clang's names of variables that are, or have, numbers in double precision.
    """
    finder = _Finder(units)
    for unit in units:
        finder.read(unit)
    return list(finder.groups(set(wanted)))


class _Finder:
    """Gathers what is done with the variables of a program, over its files.

    A parameter is the same in all declarations of its function: its function and its number stand for it.
    """

    def __init__(self, units: Sequence[TranslationUnit]) -> None:
        self._defined = {function.usr for unit in units for function in unit.functions}
        self._parent: dict[str, str] = {}
        self._kept: dict[str, str] = {}
        self._slots: dict[str, dict[tuple[Extent, str], None]] = {}
        self._sizes: dict[str, dict[Extent, None]] = {}
        self._reads: dict[str, dict[Extent, None]] = {}
        self._names: dict[str, set[str]] = {}

    def groups(self, wanted: set[str]) -> Iterator[Variables]:
        """Give the groups that have variables of some names."""
        found: dict[str, list[str]] = {}
        for key in self._names:
            found.setdefault(self._root(key), []).append(key)
        for keys in found.values():
            names = frozenset(name for key in keys for name in self._names[key])
            if not names.isdisjoint(wanted):
                yield Variables(
                    names,
                    tuple(dict.fromkeys(slot for key in keys for slot in self._slots.get(key, ()))),
                    tuple(dict.fromkeys(size for key in keys for size in self._sizes.get(key, ()))),
                    tuple(dict.fromkeys(read for key in keys for read in self._reads.get(key, ()))),
                    next((self._kept[key] for key in keys if key in self._kept), ""),
                )

    def _root(self, key: str) -> str:
        while key in self._parent:
            key = self._parent[key]
        return key

    def _join(self, key: str, other: Any, node: Node) -> None:
        """Let a variable have the type of another one, a declaration of clang's; None for none that is known."""
        if other is None or _kind_of(other.type) is None:
            self._keep(key, node)
        else:
            self._merge(key, self._key(other))

    def _merge(self, key: str, other: str) -> None:
        one, two = self._root(key), self._root(other)
        if one != two:
            self._parent[two] = one

    def _returned(self, key: str, parents: Sequence[Node], *, is_number: bool) -> None:
        """Take in that an array, or a number in it, is what a function returns."""
        function = next((node for node in reversed(parents) if node.kind in FUNCTIONS), None)
        result = _result_of(function.cursor) if function is not None else None
        if function is not None and result == ("number" if is_number else "array"):
            self._merge(key, f"{function.cursor.get_usr()} result")
        elif not is_number or result is not None:
            self._keep(key, parents[-1])

    def _keep(self, key: str, node: Node) -> None:
        place = f" at {node.extent}" if node.extent is not None else ""
        self._kept.setdefault(key, f"more than its numbers are used{place}")

    def _key(self, cursor: Any) -> str:
        """Return what stands for a variable."""
        key = str(cursor.get_usr())
        function = cursor.semantic_parent
        if cursor.kind.name == "PARM_DECL" and function is not None and function.kind.name in FUNCTIONS:
            parameters = list(function.get_arguments())
            key = f"{function.get_usr()} {parameters.index(cursor) if cursor in parameters else key}"
        self._names.setdefault(key, set()).add(str(cursor.get_usr()))
        return key

    # -- declarations ------------------------------------------------------------------------------------------------

    def read(self, unit: TranslationUnit) -> None:
        """Take in a file and what it includes."""
        self._unit = unit
        self._types = {"double"}
        self._uses = {e for node in unit.top if node.kind == "MACRO_INSTANTIATION" and (e := node.extent) is not None}
        for node in unit.top:
            if node.kind in ("TYPEDEF_DECL", "TYPE_ALIAS_DECL"):
                if node.cursor.underlying_typedef_type.get_canonical().kind.name == "DOUBLE":
                    self._types.add(node.spelling)
            elif node.kind == "MACRO_DEFINITION" and node.extent is not None:
                words = [token.text for token in tokens(self._text(node.extent))]
                if len(words) == 2 and words[1] in self._types:
                    self._types.add(words[0])
        self._visit_all([node for node in unit.top if not node.kind.startswith("MACRO")], ())
        for function in unit.functions:
            if function.arguments:
                self._visit(function.node, ())

    def _visit_all(self, nodes: Sequence[Node], above: tuple[Node, ...]) -> None:
        start, previous = 0, None
        for node in nodes:
            if node.kind in _VARIABLES and node.extent is not None:
                name = self._unit.name(node.cursor)
                is_first = previous is None or previous.kind != node.kind or name is None
                if is_first or (name is not None and name.start > node.extent.start):
                    start = node.extent.start
                self._declare(node, start)
            elif node.kind in FUNCTIONS and _result_of(node.cursor) is not None:
                self._declare_result(node)
            previous = node
            if node.kind not in _TEMPLATES:
                self._visit(node, above)

    def _visit(self, node: Node, above: tuple[Node, ...]) -> None:
        if node.kind in _REFERENCES and node.referenced is not None and node.referenced.kind.name in _VARIABLES:
            kind = _kind_of(node.referenced.type)
            if kind is not None:
                key = self._key(node.referenced)
                (self._follow_array if kind == "array" else self._follow_number)(key, node, above)
        elif node.kind == "CALL_EXPR" and node.referenced is not None and node.referenced.get_usr() in self._defined:
            self._follow_result(node, above)
        elif node.kind == "BINARY_OPERATOR" and node.operator == "=":
            variable = bare(node.children[0]).referenced
            if variable is not None and variable.kind.name in _VARIABLES and _kind_of(variable.type) == "array":
                self._given(self._key(variable), node.children[1])
        elif node.kind == "CONSTRUCTOR":
            for member, value in itertools.pairwise(node.children):
                variable = member.referenced if member.kind == "MEMBER_REF" else None
                if variable is not None and value.kind != "MEMBER_REF" and _kind_of(variable.type) == "array":
                    self._given(self._key(variable), value)
        self._visit_all(node.children, (*above, node))

    def _declare(self, node: Node, start: int) -> None:
        """Take in where the type of a variable is written, and what it is initialised with."""
        kind, name = _kind_of(node.cursor.type), self._unit.name(node.cursor)
        if kind is None or node.extent is None or name is None:
            return
        key, file = self._key(node.cursor), node.extent.file
        end = name.start if node.spelling else node.extent.end
        slot = next(self._written(Extent(file, start, end, node.extent.line)), None)
        function = node.cursor.semantic_parent
        of_template = function is not None and _is_instantiation(function)
        if slot is not None:
            self._slots.setdefault(key, {})[slot, "" if node.kind == "PARM_DECL" else node.spelling] = None
        elif "auto" not in self._text(Extent(file, start, end, 0)) and not of_template:
            self._kept.setdefault(key, f"its type is not written as double at {node.extent}")
        values = [child for child in node.children if child.kind not in ("TYPE_REF", "NAMESPACE_REF", "TEMPLATE_REF")]
        if kind == "array" and node.kind == "VAR_DECL" and values:
            self._given(key, values[-1])

    def _declare_result(self, node: Node) -> None:
        """Take in where the type is written that a function returns a place of."""
        name = self._unit.name(node.cursor)
        if node.extent is not None and name is not None:
            key = f"{node.cursor.get_usr()} result"
            self._names.setdefault(key, set()).add(key)
            slot = next(self._written(Extent(name.file, node.extent.start, name.start, node.extent.line)), None)
            if slot is not None:
                self._slots.setdefault(key, {})[slot, ""] = None
            else:
                self._kept.setdefault(key, f"its type is not written as double at {node.extent}")

    def _follow_result(self, call: Node, above: Sequence[Node]) -> None:
        """Follow the use of a place that a function returns."""
        result = _result_of(call.referenced)
        key = f"{call.referenced.get_usr()} result"
        if result == "array":
            self._follow_array(key, call, above)
        elif result == "number":
            self._follow_number(key, call, above, is_element=True)

    def _given(self, key: str, value: Node) -> None:
        """Take in the memory that an array is given."""
        inner = bare(value)
        while inner.kind in ANY_CAST and inner.children:
            inner = bare(inner.children[-1])
        called = inner.referenced if inner.kind == "CALL_EXPR" else None
        is_made = called is not None and called.kind.name == "CONSTRUCTOR"
        is_followed = called is not None and called.get_usr() in self._defined and _result_of(called) is not None
        is_known = is_made or is_followed or inner.spelling in (*_ALLOCATES, *_ADDRESSES)
        if inner.kind == "CALL_EXPR" and not is_known:
            self._keep(key, inner)
        calls = (node for node in value.walk() if node.kind == "CALL_EXPR" and node.spelling in _ALLOCATES[:-1])
        if any("sizeof" not in self._text(call.extent) for call in calls if call.extent is not None):
            self._keep(key, value)
        if value.extent is not None and inner.kind in ("CXX_NEW_EXPR", "CALL_EXPR"):
            self._sizes.setdefault(key, {}).update(dict.fromkeys(self._written(value.extent)))

    def _written(self, extent: Extent) -> Iterator[Extent]:
        """Give the places in a piece of text where the type is written."""
        for token in tokens(self._text(extent)):
            if token.text in self._types:
                at = extent.start + token.start
                yield Extent(extent.file, at, at + len(token.text), extent.line)

    # -- uses --------------------------------------------------------------------------------------------------------

    def _follow_number(self, key: str, node: Node, above: Sequence[Node], *, is_element: bool = False) -> None:
        """Follow the use of a number to what it is used for."""
        child, parents = node, list(above)
        while parents and parents[-1].kind in TRANSPARENT:
            child = parents.pop()
        if not parents:
            return
        parent = parents[-1]
        kind, sign = parent.kind, parent.operator
        if kind == "UNARY_OPERATOR" and sign == "&":
            if is_element:
                self._follow_array(key, parent, parents[:-1])
            else:
                self._keep(key, parent)
            return
        if kind == "CALL_EXPR":
            parameter = _parameter(parent, child)
            if parameter is not None and _is_changeable(parameter.type):
                if parent.spelling not in ("operator>>", "swap"):
                    self._keep(key, parent)
                return
            if parameter is None and parent.referenced is not None and parent.referenced.type.is_function_variadic():
                return
            if _is_named(parents):
                self._keep(key, parent)
        elif kind == "RETURN_STMT":
            self._returned(key, parents, is_number=True)
            if self._says_its_result(parents):
                return
        elif kind == "VAR_DECL":
            if "REFERENCE" in parent.canonical.kind.name:
                self._keep(key, parent)
            if not self._is_auto(parent):
                return
        elif _is_stored_to(parent, child):
            above_it = next((node for node in reversed(parents[:-1]) if node.kind not in TRANSPARENT), None)
            if above_it is not None and not above_it.kind.endswith("_STMT") and above_it.operator not in ("=", ","):
                self._keep(key, parent)
            return
        elif sign == "=" or kind in ("COMPOUND_STMT", "CXX_UNARY_EXPR"):
            return
        self._read(key, node)

    def _read(self, key: str, node: Node) -> None:
        """Take in that a number is read; one that a macro reads is nowhere."""
        place, use = node.extent, self._unit.expansion(node.cursor)
        around = [macro for macro in self._uses if place is not None and place in macro and macro != place]
        if place is not None and place not in self._uses and (place == use or around):
            self._reads.setdefault(key, {})[place] = None
        else:
            self._keep(key, node)

    def _says_its_result(self, parents: Sequence[Node]) -> bool:
        """Whether the type that a function returns is written."""
        functions = (node for node in reversed(parents) if node.kind in (*FUNCTIONS, "LAMBDA_EXPR"))
        function = next(functions, None)
        if function is None or function.kind == "LAMBDA_EXPR" or function.extent is None:
            return False
        return "auto" not in self._text(function.extent).split("{")[0]

    def _follow_array(self, key: str, node: Node, above: Sequence[Node]) -> None:
        """Follow the use of an array, or of a pointer to it."""
        child, parents = node, list(above)
        while parents:
            parent = parents.pop()
            kind, sign = parent.kind, parent.operator
            if kind in (*TRANSPARENT, "CONDITIONAL_OPERATOR") or (kind == "UNARY_OPERATOR" and sign in ("++", "--")):
                child = parent
            elif _is_element(parent, child):
                if "ARRAY" not in parent.canonical.kind.name:
                    self._follow_number(key, parent, parents, is_element=True)
                    return
                child = parent
            elif kind == "BINARY_OPERATOR" and sign in ("+", "-") and parent.canonical.kind.name == "POINTER":
                child = parent
            elif kind == "BINARY_OPERATOR" and sign == "=":
                if child is not parent.children[0]:
                    self._join(key, bare(parent.children[0]).referenced, parent)
                return
            elif kind == "VAR_DECL":
                self._join(key, parent.cursor, parent)
                return
            elif kind == "MEMBER_REF_EXPR" and parents and parents[-1].kind == "CALL_EXPR":
                call, name = parents.pop(), parent.spelling
                if name in _ADDRESSES:
                    child = call
                    continue
                if name in _ELEMENTS:
                    self._follow_number(key, call, parents, is_element=True)
                elif name == "swap":
                    self._join(key, bare(call.arguments[-1]).referenced, call)
                elif name in _ITERATORS:
                    self._iterated(key, call, parents)
                elif name not in _HARMLESS:
                    self._keep(key, call)
                return
            elif kind == "RETURN_STMT":
                self._returned(key, [*parents, parent], is_number=False)
                return
            elif kind == "CALL_EXPR" and self._is_copy(parent):
                child = parent
            elif kind == "CALL_EXPR":
                self._passed(key, parent, child, parents)
                return
            else:
                names = (
                    inner for inner in parent.children if kind == "CXX_FOR_RANGE_STMT" and inner.kind == "VAR_DECL"
                )
                is_used_up = kind.endswith("_STMT") or kind in _NO_VALUES or sign == "!"
                if any("REFERENCE" in n.canonical.kind.name or self._is_auto(n) for n in names) or not is_used_up:
                    self._keep(key, parent)
                return

    def _iterated(self, key: str, start: Node, above: Sequence[Node]) -> None:
        """Follow what is done with an iterator."""
        child, parents = start, list(above)
        while parents:
            parent = parents.pop()
            is_step = parent.kind == "CALL_EXPR" and parent.spelling in ("operator+", "operator-")
            if parent.kind not in TRANSPARENT and not is_step and not _is_conversion(parent):
                if parent.kind == "CALL_EXPR":
                    self._passed(key, parent, child, parents)
                else:
                    self._keep(key, parent)
                return
            child = parent

    def _passed(self, key: str, call: Node, argument: Node, above: Sequence[Node]) -> None:
        """Take in that an array is an argument of a function."""
        called, text = call.referenced, self._text(call.extent) if call.extent is not None else ""
        if called is not None and (called.spelling in ("swap", "operator=") and self._unit.extent(called) is None):
            for other in call.arguments:
                self._join(key, bare(other).referenced, call)
        elif called is not None and called.get_usr() in self._defined:
            if _is_instantiation(called):  # of another type it may be another function
                self._keep(key, call)
            self._join(key, _parameter(call, argument), call)
        elif call.spelling == "memset" and "sizeof" in text and "0" in [token.text for token in tokens(text)]:
            assert call.extent is not None
            self._sizes.setdefault(key, {}).update(dict.fromkeys(self._written(call.extent)))
        elif called is None or self._unit.extent(called) is not None:
            self._keep(key, call)
        elif call.spelling in _ONE_OF and len(call.arguments) == 2 and (found := _found_by(above)) is not None:
            self._follow_number(key, above[found], above[:found], is_element=True)
        elif call.spelling not in _GENERIC or (call.spelling == "sort" and len(call.arguments) > 2):
            self._keep(key, call)

    def _is_copy(self, call: Node) -> bool:
        """Whether a call makes an array of the library, of another one."""
        called = call.referenced
        is_library = called is not None and called.kind.name == "CONSTRUCTOR" and self._unit.extent(called) is None
        return is_library and _kind_of(call.cursor.type) == "array"

    def _is_auto(self, node: Node) -> bool:
        """Whether the type of a variable is that of its value."""
        return node.extent is None or "auto" in self._text(node.extent).split("=")[0]

    def _text(self, extent: Extent) -> str:
        source = self._unit.source(str(extent.file))
        assert source is not None
        return source.of(extent)


def _is_stored_to(node: Node, number: Node) -> bool:
    """Whether a number is changed."""
    if node.kind == "UNARY_OPERATOR":
        return node.operator in ("++", "--")
    is_assignment = node.kind == "COMPOUND_ASSIGNMENT_OPERATOR" or node.operator == "="
    return is_assignment and node.children[0] is number


def _is_named(parents: Sequence[Node]) -> bool:
    """Whether what a call gives may be one of its arguments, and gets a name."""
    for node in reversed(parents):
        if node.kind == "VAR_DECL":
            return "REFERENCE" in node.canonical.kind.name
        if node.kind not in (*TRANSPARENT, "CALL_EXPR"):
            break
    return False


def _is_conversion(node: Node) -> bool:
    """Whether a call only makes an iterator of another one."""
    called = node.referenced if node.kind == "CALL_EXPR" else None
    return called is not None and called.kind.name == "CONSTRUCTOR" and "iterator" in node.spelling


def _found_by(above: Sequence[Node]) -> int | None:
    """Return which of the expressions around one is the element that it points at; None if it is none."""
    for index in range(len(above) - 1, -1, -1):
        node = above[index]
        if node.operator == "*" or (node.kind == "CALL_EXPR" and node.spelling == "operator*"):
            return index if node.kind in ("UNARY_OPERATOR", "CALL_EXPR") else None
        if node.kind not in TRANSPARENT:
            return None
    return None


def _is_element(node: Node, array: Node) -> bool:
    """Whether an expression is an element of an array."""
    if node.kind == "CALL_EXPR" and node.spelling == "operator[]":
        return True
    is_subscript = node.kind == "ARRAY_SUBSCRIPT_EXPR" and node.children[0] is array
    return is_subscript or (node.kind == "UNARY_OPERATOR" and node.operator == "*")


def _is_instantiation(function: Any) -> bool:
    return function.kind.name in FUNCTIONS and function.get_num_template_arguments() > 0


def _is_changeable(kind: Any) -> bool:
    canonical = kind.get_canonical()
    return canonical.kind.name == "LVALUEREFERENCE" and not canonical.get_pointee().is_const_qualified()


def _result_of(function: Any) -> str | None:
    """Return what a function returns a place of: "number" or "array"; None for anything else."""
    if function.kind.name not in FUNCTIONS:
        return None
    kind = function.result_type.get_canonical()
    return _kind_of(kind) if kind.kind.name in ("LVALUEREFERENCE", "POINTER") else None


def _parameter(call: Node, argument: Node) -> Any:
    """Return the parameter that an argument is for; None if that is not seen."""
    if call.referenced is None:
        return None
    parameters = list(call.referenced.get_arguments() or ())
    given = zip(call.arguments, parameters, strict=False)
    return next((parameter for each, parameter in given if each.extent == argument.extent), None)


def _kind_of(kind: Any) -> str | None:
    """Return "number" for one in double precision, "array" for an array or pointer to such, None for anything else."""
    canonical = kind.get_canonical()
    if "REFERENCE" in canonical.kind.name:
        canonical = canonical.get_pointee().get_canonical()
    if canonical.kind.name == "DOUBLE":
        return "number"
    if canonical.kind.name == "RECORD":
        declaration = canonical.get_declaration()
        parent = declaration.semantic_parent
        while parent is not None and parent.kind.name == "NAMESPACE" and parent.spelling != "std":
            parent = parent.semantic_parent
        if parent is None or parent.spelling != "std" or declaration.spelling not in _CONTAINERS:
            return None
        canonical = canonical.get_template_argument_type(0).get_canonical()
    elif canonical.kind.name == "POINTER":
        canonical = canonical.get_pointee().get_canonical()
    elif "ARRAY" not in canonical.kind.name:
        return None
    while "ARRAY" in canonical.kind.name:
        canonical = canonical.element_type.get_canonical()
    return "array" if canonical.kind.name == "DOUBLE" else None
