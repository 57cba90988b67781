"""A kernel's body for a tile of its threads at once: loops that are the same for all of them go around the tile.

A thread that sums over k reads what its neighbours read, too. If one does the work of several, one after the other, all
of that is read anew for each. With the loop over k outside and the one over the threads of a tile inside, it is read
once and stays in registers, and compilers make vectors of the loop inside: this is what blocking for registers does by
hand. Threads of a grid may go on in any order in CUDA, so it is right for all kernels whose threads do not wait for
each other. What has to be found out is which loops are the same for all threads, and which variables each of them needs
for itself (Stratton, Stone and Hwu, MCUDA, 2008, do so at barriers).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mptune.adopt.parsing import CASTS, TRANSPARENT, Edits, Extent, Function, Node, TranslationUnit
from mptune.adopt.reading import Kernel, Program

#: The parameter that says how often the innermost loops around a tile are unrolled.
UNROLL: Final = "unroll"
_ALL: Final = frozenset("xyz")
_NONE: Final[frozenset[str]] = frozenset()
_X: Final = frozenset("x")
_Y: Final = frozenset("y")
_PLACES: Final = ("threadIdx", "blockIdx", "blockDim", "gridDim")
_WHOLE: Final = re.compile(r"BOOL|CHAR.*|[SU]CHAR|U?SHORT|U?INT|U?LONG|U?LONGLONG|POINTER")
#: What may be in an expression that is computed again wherever it is needed.
_PURE: Final = (
    *("INTEGER_LITERAL", "CXX_BOOL_LITERAL_EXPR", "PAREN_EXPR", "UNEXPOSED_EXPR", "CONDITIONAL_OPERATOR", "TYPE_REF"),
    *("BINARY_OPERATOR", "UNARY_OPERATOR", "DECL_REF_EXPR", "MEMBER_REF_EXPR", *CASTS),
)
_LOOPS: Final = ("FOR_STMT", "WHILE_STMT", "DO_STMT", "CXX_FOR_RANGE_STMT")
_UNKNOWN: Final = ("LAMBDA_EXPR", "GOTO_STMT", "LABEL_STMT", "SWITCH_STMT", "CXX_TRY_STMT", "CXX_FOR_RANGE_STMT")
_LEAVES: Final = ("BREAK_STMT", "CONTINUE_STMT", "RETURN_STMT")
_QUALIFIERS: Final = re.compile(r"\b(const|constexpr|register)\b")
#: Numbers in memory of which neighbours are moved at once, and those that count them without a loss.
_MOVED: Final = ("DOUBLE", "FLOAT", "INT", "UINT")
_INDICES: Final = ("INT", "UINT", "LONG", "ULONG", "LONGLONG", "ULONGLONG")
#: Expressions that are computed whenever the statement is that they are in.
_COMPUTED: Final = (
    *("COMPOUND_STMT", "DECL_STMT", "VAR_DECL", "PAREN_EXPR", "UNEXPOSED_EXPR", "CALL_EXPR", "ARRAY_SUBSCRIPT_EXPR"),
    *("UNARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR", "MEMBER_REF_EXPR", "INIT_LIST_EXPR", *CASTS),
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a tile is written.

    Attributes:
        each: stands before what each thread does.
        own: gives a thread what it keeps between two of these, with a place for its name.
        kept: the type of what all of them keep, with places for "tile", "column" or "row" and for a type.
        unroll: stands before the innermost loops around a tile; "" for nothing.
    """

    each: str
    own: str
    kept: str
    unroll: str


def of_templates(unroll: str) -> Dialect:
    """Return how templates have it, with :data:`UNROLL` as it is written there."""
    return Dialect("EACH_THREAD", "OF_THREAD({});", "mp::per_{}<Tile, {}>", unroll)


@dataclass(frozen=True, slots=True)
class Tiled:
    """The body of a kernel for a tile of its threads.

    Attributes:
        condition: the body of a function that says whether a thread has anything to do; "" if all have.
        body: the body of one that does the work of a tile.
        unrolls: whether :data:`UNROLL` is in it.
    """

    condition: str
    body: str
    unrolls: bool


@dataclass(frozen=True, slots=True)
class SideBySide:
    """What threads next to each other in x have next to each other in memory, too.

    Attributes:
        condition: the body of a function that says whether a thread has anything to do; "" if all have.
        pointers: to what they have: the first of them to the elements marked with 0.
    """

    condition: str
    pointers: tuple[str, ...]


def tiled(program: Program, kernel: Kernel, edits: Edits, dialect: Dialect) -> Tiled | None:
    """Return a kernel's body for a tile of its threads; None where no loop is the same for all, or that is not known.

    Args:
        program: that it is of.
        kernel: one whose threads do not wait for each other.
        edits: what is changed in its text.
        dialect: how it is written.
    """
    try:
        return _Tiler(program, kernel, edits, dialect).result()
    except _LeaveItError:
        return None


def side_by_side(program: Program, kernel: Kernel, edits: Edits, apart: Collection[str]) -> SideBySide | None:
    """Mark in a kernel's text what its threads have side by side in memory; None, and no mark, where they have nothing.

    That is an element whose index is one higher in the next thread along x, and which each thread that has anything
    to do reads or writes, whichever way it goes. What is written is used by no other thread.

    Args:
        program: that it is of.
        kernel: one whose threads do not wait for each other.
        edits: gets ``OWN_INPUT``, ``OWN_RESULT`` and ``OWN_ELEMENT`` around such elements, and ``HAS_WORK`` and
            ``HAS_NONE`` around what says which threads have anything to do.
        apart: the pointers to memory that the kernel does not write to by another name.
    """
    try:
        return _Tiler(program, kernel, edits, of_templates("")).side_by_side(apart)
    except _LeaveItError:
        return None


class _LeaveItError(Exception):
    """The kernel does something whose meaning for a tile is not known."""


@dataclass(slots=True)
class _Variable:
    """A parameter of the kernel, or a variable of its body.

    Attributes:
        cursor: where it is declared.
        initial: its initial value; None for parameters, and where there is none.
        axes: those along which its value differs from thread to thread.
        changes: what changes it later, each with the statements around.
        type: as it is written, of those in a list of statements.
        node: its declaration; None for parameters.
    """

    cursor: Any
    node: Node | None = None
    initial: Node | None = None
    axes: frozenset[str] = _NONE
    changes: list[tuple[Node, tuple[Node, ...]]] = field(default_factory=list)
    type: str = ""

    @property
    def name(self) -> str:
        return str(self.cursor.spelling)

    @property
    def kind(self) -> str:
        return str(self.cursor.type.get_canonical().kind.name)


@dataclass(frozen=True, slots=True)
class _Use:
    """One use of a parameter that is a pointer.

    Attributes:
        node: the element, or the pointer where something else is done with it.
        place: which element of a thread's own; "" if it is not known to be one.
        is_read: whether its value is used.
        is_written: whether it gets another one.
        is_certain: whether each thread that has anything to do comes by.
    """

    node: Node
    place: str
    is_read: bool
    is_written: bool
    is_certain: bool


@dataclass(slots=True)
class _Item:
    """A statement, or a declarator of one.

    Attributes:
        kind: "all" if it is done once for all threads, "loop" if the tile is inside, "each" if each thread does it.
        node: the statement, or the declaration of the variable.
        before: comments and pragmas that stand before it.
        variable: which it declares.
        inner: what is in the loop.
        region: the number of the loop over the tile that it is in, for "each".
    """

    kind: str
    node: Node
    before: str = ""
    variable: _Variable | None = None
    inner: list[_Item] = field(default_factory=list)
    region: int = 0


class _Tiler:
    """Finds out what the body of a kernel becomes."""

    def __init__(self, program: Program, kernel: Kernel, edits: Edits, dialect: Dialect) -> None:
        self._unit, function = _read_from(program, kernel)
        self._edits, self._dialect = edits, dialect
        self._file = kernel.extent.file
        self._source = next(file.text for file in program.files if file.path == self._file)
        self._block = function.block
        self._variables = {p.cursor.hash: _Variable(p.cursor) for p in function.parameters}
        self._role = {parameter.name: parameter.role for parameter in kernel.parameters}
        #: Variables that each thread has to have for itself, whatever they are made of.
        self._own: set[int] = set()
        if _CONDITIONAL.search(self._source[kernel.body.start : kernel.body.end]):
            raise _LeaveItError
        for node in self._block.walk():
            if node.kind in _UNKNOWN or node.spelling.startswith("atomic"):
                raise _LeaveItError
            if node.kind == "VAR_DECL":
                values = [child for child in node.children if not child.kind.endswith(("_REF", "_ATTR"))]
                variable = _Variable(node.cursor, node, values[-1] if values else None)
                self._variables[node.cursor.hash] = variable
                if "ARRAY" in variable.kind and "const" not in node.cursor.type.spelling:
                    self._own.add(node.cursor.hash)

    def result(self) -> Tiled | None:
        """Return the body; None if no loop is around a tile."""
        condition, items = self._understood(*self._guarded())
        if not any(item.kind == "loop" for item in items):
            return None
        self._number(items, 0)
        uses = self._uses(items)
        kept = {key for key, regions in uses.items() if self._is_kept(self._variables[key], regions, items)}
        names = [variable.name for variable in self._variables.values()]
        again = [self._variables[key].name for key in uses if key in kept or self._is_remade(self._variables[key])]
        if any(names.count(name) > 1 or f"{name}_of" in names for name in again):
            return None
        body = "\n".join(self._written(items, kept))
        return Tiled(condition, body, bool(self._dialect.unroll) and self._dialect.unroll in body)

    def side_by_side(self, apart: Collection[str]) -> SideBySide | None:
        """Mark what threads have side by side in memory."""
        conditions, statements = self._guarded()
        condition, _ = self._understood(conditions, statements)
        uses: dict[int, list[_Use]] = {}
        for node in statements:
            self._find_uses(node, uses, is_certain=True)
        marks: list[tuple[str, list[_Use]]] = []
        for key, found in uses.items():
            variable = self._variables[key]
            if variable.name in apart and not variable.changes:
                is_input = self._role.get(variable.name) == "in"
                marks += ((variable.name, places) for places in _own_places(found, is_input=is_input))
        if not marks:
            return None
        for number, (_, places) in enumerate(marks):
            is_read, is_written = any(use.is_read for use in places), any(use.is_written for use in places)
            name = "OWN_ELEMENT" if is_read and is_written else "OWN_RESULT" if is_written else "OWN_INPUT"
            # (A macro has its argument more than once.)
            for place in dict.fromkeys(use.node.extent for use in places if use.node.extent is not None):
                self._edits.surround(place, f"{name}({number}, ", ")")
        for node, holds in conditions:
            if node.extent is not None:
                self._edits.surround(node.extent, "HAS_WORK(" if holds else "HAS_NONE(", ")")
        return SideBySide(condition, tuple(name for name, _ in marks))

    def _understood(
        self, conditions: Sequence[tuple[Node, bool]], statements: Sequence[Node]
    ) -> tuple[str, list[_Item]]:
        """Return the body of a function that says whether a thread has anything to do, and what those do that have."""
        if any(inner.kind == "RETURN_STMT" for node in statements for inner in node.walk()):
            raise _LeaveItError
        for node in statements:
            self._find_changes(node, ())
        known = -1
        while known != len(self._own):  # until no variable turns out to be each thread's own
            known = len(self._own)
            self._find_axes()
            items = self._items(statements)
            self._find_own(items)
        if any(variable.axes for variable in self._variables.values() if variable.node is None):
            raise _LeaveItError
        return self._condition(conditions), items

    # -- what threads have side by side --------------------------------------------------------

    def _find_uses(
        self, node: Node, uses: dict[int, list[_Use]], *, is_certain: bool, parent: Node | None = None
    ) -> None:
        """Collect what is done with the memory that parameters point at, by the parameter."""
        base = _alone(node.children[0]) if node.kind == "ARRAY_SUBSCRIPT_EXPR" else node
        named = base.referenced if base.kind == "DECL_REF_EXPR" else None
        variable = self._variables.get(named.hash) if named is not None else None
        if variable is not None and variable.node is None and variable.kind == "POINTER":
            change = parent if parent is not None and parent.children[0].cursor.hash == node.cursor.hash else None
            is_written = change is not None and (_is_assignment(change) or change.operator in ("++", "--"))
            is_read = change is None or change.operator != "="
            is_value = is_written or (parent is not None and parent.kind == "UNEXPOSED_EXPR")
            place = self._place(node, base) if base is not node and is_value else ""
            use = _Use(node, place, is_read, is_written, is_certain)
            uses.setdefault(variable.cursor.hash, []).append(use)
            if base is not node:
                self._find_uses(node.children[1], uses, is_certain=is_certain, parent=node)
            return
        for position, child in enumerate(node.children):
            is_first = position == 0 and node.kind in ("IF_STMT", "CONDITIONAL_OPERATOR", "BINARY_OPERATOR")
            is_both = node.kind == "BINARY_OPERATOR" and node.operator not in ("&&", "||")
            follows = is_certain and (is_first or is_both or node.kind in _COMPUTED)
            self._find_uses(child, uses, is_certain=follows, parent=node)

    def _place(self, node: Node, base: Node) -> str:
        """Return which element of a thread's own this is; "" if it is none, or may be another one later."""
        index, place = node.children[1], node.extent
        named = [self._variables.get(inner.referenced.hash) for inner in index.walk() if inner.referenced is not None]
        if node.canonical.kind.name not in _MOVED or "volatile" in node.cursor.type.spelling or place is None:
            return ""
        if self._step(index) != 1 or not self._is_pure(index) or any(v is not None and v.changes for v in named):
            return ""
        text = self._source[place.start : place.end] if place.file == self._file else ""
        is_written_out = re.fullmatch(rf"{base.spelling}\s*\[.*\]", text, re.DOTALL) is not None
        return f"{''.join(text.split())} {[v.cursor.hash for v in named if v is not None]}" if is_written_out else ""

    def _step(self, node: Node) -> int | None:
        """Return by how much a whole number is higher in the next thread along x; None if that is not known."""
        node = _alone(node)
        if "x" not in self._axes(node):
            return 0
        if node.canonical.kind.name not in _INDICES:
            return None
        if node.kind in CASTS:
            return self._step(node.children[-1])
        if node.kind == "MEMBER_REF_EXPR":
            return 1 if node.children and node.children[0].spelling == "threadIdx" else None
        if node.kind == "DECL_REF_EXPR" and node.referenced is not None:
            variable = self._variables.get(node.referenced.hash)
            if variable is None or variable.initial is None or variable.changes or variable.kind not in _INDICES:
                return None
            return self._step(variable.initial)
        if node.kind == "BINARY_OPERATOR" and node.operator in ("+", "-"):
            one, other = map(self._step, node.children)
            if one is not None and other is not None:
                return one + other if node.operator == "+" else one - other
        return None

    # -- which threads do anything -------------------------------------------------------------

    def _guarded(self) -> tuple[list[tuple[Node, bool]], list[Node]]:
        """Return on what it depends whether a thread does anything, each with what it has to be, and the rest."""
        conditions: list[tuple[Node, bool]] = []
        declarations: list[Node] = []
        rest = list(self._block.children)
        while rest:
            node = rest[0]
            if node.kind == "DECL_STMT":
                declarations.append(node)
                rest = rest[1:]
                continue
            if node.kind != "IF_STMT" or len(node.children) != 2:
                break
            condition, then = node.children
            inner = _statements(then)
            if any(_reads_memory(one) for one in condition.walk()):
                break
            if [one.kind for one in inner] == ["RETURN_STMT"]:
                conditions.append((condition, False))
                rest = rest[1:]
            elif len(rest) == 1:
                conditions.append((condition, True))
                rest = inner
            else:
                break
        return conditions, [*declarations, *rest]

    def _condition(self, conditions: Sequence[tuple[Node, bool]]) -> str:
        if not conditions:
            return ""
        if not all(self._is_pure(condition) for condition, _ in conditions):
            raise _LeaveItError
        needed = self._needed([condition for condition, _ in conditions])
        if not all(self._is_remade(variable, of_all=True) for variable in needed if variable.node is not None):
            raise _LeaveItError
        lines = [self._declaration(variable) for variable in needed if variable.node is not None]
        texts = [f"{'' if holds else '!'}({self._text(condition)})" for condition, holds in conditions]
        return "\n".join((*lines, f"return {' && '.join(texts)};"))

    # -- what depends on the thread ------------------------------------------------------------

    def _find_changes(self, node: Node, around: tuple[Node, ...]) -> None:
        for variable in self._changed(node):
            variable.changes.append((node, around))
            if node.kind == "VAR_DECL" or node.operator == "&":  # it has another name now, under which it may change
                self._own.add(variable.cursor.hash)
        inside = (*around, node) if node.kind in ("IF_STMT", *_LOOPS) else around
        for child in node.children:
            self._find_changes(child, inside)

    def _changed(self, node: Node) -> Iterator[_Variable]:
        """Give the variables that a node itself changes, not what is in it."""
        places: list[Node] = []
        is_address = node.kind == "UNARY_OPERATOR" and node.operator == "&"
        if _is_assignment(node) or node.operator in ("++", "--") or is_address:
            places = [node.children[0]]
        elif node.kind == "CALL_EXPR":
            types = _parameter_types(node)
            places = [a for a, type_of_it in zip(node.arguments, types, strict=False) if _may_change(type_of_it)]
            if len(types) != len(node.arguments):  # a member, whose object it may change
                places = [*node.arguments, *node.children[:1]]
        elif node.kind == "VAR_DECL" and node.canonical.kind.name == "LVALUEREFERENCE" and _may_change(node.canonical):
            places = list(node.children)
        for place in places:
            variable = self._variable_in(place)
            if variable is not None:
                yield variable

    def _variable_in(self, place: Node) -> _Variable | None:
        """Return the variable that a place is in; None if it is memory."""
        while place.kind in ("PAREN_EXPR", "UNEXPOSED_EXPR", "MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR", *CASTS):
            if not place.children:
                return None
            inner = place.children[-1 if place.kind in CASTS else 0]
            through = place.kind in ("MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR")
            if through and inner.canonical.kind.name == "POINTER" and "ARRAY" not in _undecayed(inner):
                return None
            place = inner
        if place.kind == "DECL_REF_EXPR" and place.referenced is not None:
            return self._variables.get(place.referenced.hash)
        return None

    def _find_axes(self) -> None:
        for variable in self._variables.values():
            variable.axes = _ALL if variable.cursor.hash in self._own else _NONE
        known = -1
        while known != (known := sum(len(variable.axes) for variable in self._variables.values())):
            for variable in self._variables.values():
                if variable.initial is not None:
                    variable.axes |= self._axes(variable.initial)
                for node, around in variable.changes:
                    values = [node.children[1]] if _is_assignment(node) else [*_heading(node), *node.arguments]
                    for value in (*values, *(part for outer in around for part in _heading(outer))):
                        variable.axes |= self._axes(value)

    def _axes(self, node: Node) -> frozenset[str]:
        """Return along which axes the value of an expression differs."""
        if node.kind == "MEMBER_REF_EXPR" and node.children and node.children[0].spelling in _PLACES:
            return frozenset(node.spelling) if node.children[0].spelling == "threadIdx" else _NONE
        if node.kind == "DECL_REF_EXPR":
            if node.spelling == "threadIdx":
                return _ALL
            variable = self._variables.get(node.referenced.hash) if node.referenced is not None else None
            return variable.axes if variable is not None else _NONE
        found = _NONE.union(*(self._axes(child) for child in node.children))
        is_read = _reads_memory(node) or (
            node.kind == "MEMBER_REF_EXPR" and bool(node.children) and _is_pointer(node.children[0])
        )
        if is_read and self._is_written(node.children[0], ()):
            return _ALL
        if node.kind == "CALL_EXPR" and any(_is_pointer(a) and self._is_written(a, ()) for a in node.arguments):
            return _ALL
        return found

    def _is_written(self, pointer: Node, on_the_way: tuple[int, ...]) -> bool:
        """Whether a thread may write to what a pointer points at."""
        for node in pointer.walk():
            if node.kind != "DECL_REF_EXPR" or node.referenced is None or not _points(node):
                continue
            variable = self._variables.get(node.referenced.hash)
            if variable is None:
                is_function = node.referenced.kind.name.startswith(("FUNCTION", "CXX"))
                constant = any(child.kind.name == "CUDACONSTANT_ATTR" for child in node.referenced.get_children())
                if not (is_function or constant or "const" in node.canonical.spelling):
                    return True
            elif variable.node is None:
                if self._role.get(variable.name) != "in":
                    return True
            elif variable.kind != "POINTER":
                continue  # an array of its own, or a struct
            elif variable.cursor.hash not in on_the_way:
                values = [variable.initial, *(change.children[-1] for change, _ in variable.changes if change.children)]
                way = (*on_the_way, variable.cursor.hash)
                if any(value is None or self._is_written(value, way) for value in values):
                    return True
        return False

    # -- what is done once, and what by each thread --------------------------------------------

    def _items(self, statements: Sequence[Node]) -> list[_Item]:
        found: list[_Item] = []
        end = 0
        for node in statements:
            if node.extent is None or node.extent.file != self._file or node.extent.start < end:
                raise _LeaveItError  # statements of one macro
            end = node.extent.end
            before = self._before(node)
            if node.kind == "DECL_STMT":
                for item in self._declarators(node):
                    found.append(item)
                    item.before, before = before, ""
            elif self._is_for_all(node):
                found.append(_Item("all", node, before))
            elif self._is_around(node):
                inner = self._items(_statements(node.children[-1]))
                first = next((i for i, item in enumerate(inner) if _continues(item.node)), len(inner))
                # What leaves the round of a thread alone leaves the tile's loop: nothing else may follow.
                if any(_breaks(item.node) for item in inner) or any(item.kind != "each" for item in inner[first:]):
                    found.append(_Item("each", node, before))
                else:
                    found.append(_Item("loop", node, before, inner=inner))
            else:
                found.append(_Item("each", node, before))
        return found

    def _declarators(self, statement: Node) -> Iterator[_Item]:
        for node in statement.children:
            if node.kind != "VAR_DECL" or statement.extent is None:
                raise _LeaveItError
            variable = self._variables[node.cursor.hash]
            first, name = self._name(statement.children[0]), self._name(node)
            variable.type = self._edits.text(Extent(name.file, statement.extent.start, first.start, name.line)).strip()
            if "static" in variable.type or (len(statement.children) > 1 and re.search(r"[*&]", variable.type)):
                raise _LeaveItError
            is_for_all = not variable.axes and (variable.initial is None or self._is_for_all(variable.initial))
            yield _Item("all" if is_for_all else "each", node, variable=variable)

    def _is_for_all(self, node: Node) -> bool:
        """Whether it does the same for all threads, and nothing but change their variables."""
        for inner in node.walk():
            if inner.kind in _LEAVES:
                return False
            if inner.kind == "CALL_EXPR" and not self._is_function(inner):
                return False
            if _is_assignment(inner) or inner.operator in ("++", "--"):
                variable = self._variable_in(inner.children[0])
                if variable is None or variable.axes:
                    return False
            if inner.kind == "VAR_DECL" and self._variables[inner.cursor.hash].axes:
                return False
        return not self._axes(node)

    def _is_function(self, call: Node) -> bool:
        """Whether a call has a value and does nothing else."""
        if call.referenced is not None and call.referenced.kind.name == "CONSTRUCTOR":
            return True
        return call.canonical.kind.name != "VOID" and not any(map(_may_change, _parameter_types(call)))

    def _is_around(self, node: Node) -> bool:
        """Whether a loop makes the same rounds for all threads."""
        if node.kind != "FOR_STMT" or len(node.children) != 4:
            return False
        return all(map(self._is_for_all, node.children[:3]))

    def _find_own(self, items: Iterable[_Item]) -> None:
        """Find the variables from outside that each thread changes: no two can have one in common."""
        for item in items:
            self._find_own(item.inner)
            if item.kind != "each":
                continue
            inside = {node.cursor.hash for node in item.node.walk() if node.kind == "VAR_DECL"}
            for node in item.node.walk():
                self._own |= {v.cursor.hash for v in self._changed(node) if v.cursor.hash not in inside}

    # -- which variables outlive a loop over the tile ------------------------------------------

    def _number(self, items: Sequence[_Item], number: int) -> int:
        """Give neighbours that each thread does a number in common; what is computed anew where it is used has none."""
        is_open = False
        for item in items:
            if item.kind == "each" and not (item.variable and self._is_remade(item.variable)):
                number += not is_open
                is_open = True
                item.region = number
            elif item.kind == "loop":
                is_open = False
                number = self._number(item.inner, number)
            elif item.kind == "all" and not self._is_light(item):
                is_open = False
        return number

    def _is_light(self, item: _Item) -> bool:
        """Whether it declares a number that may be computed before what stands before it."""
        return item.variable is not None and self._is_remade(item.variable, of_all=True)

    def _uses(self, items: Iterable[_Item]) -> dict[int, set[int]]:
        """Return for each variable the loops over the tile that use it."""
        found: dict[int, set[int]] = {}
        for item in items:
            for key, regions in self._uses(item.inner).items():
                found.setdefault(key, set()).update(regions)
            if item.region:
                for variable in self._needed([item.node]):
                    found.setdefault(variable.cursor.hash, set()).add(item.region)
        return found

    def _is_kept(self, variable: _Variable, regions: set[int], items: Sequence[_Item]) -> bool:
        """Whether a variable of each thread is used in another loop over the tile than that of its declaration."""
        item = _declaring(items, variable)
        if item is None or item.kind != "each" or self._is_remade(variable) or regions <= {item.region}:
            return False
        if re.search(r"[*&]|\bauto\b|\bvolatile\b", variable.type) or "ARRAY" in variable.kind:
            raise _LeaveItError
        return True

    def _is_remade(self, variable: _Variable, *, of_all: bool = False) -> bool:
        """Whether a variable is computed anew in each loop over the tile that uses it, as numbers of threads are."""
        if variable.initial is None or variable.changes or not (variable.axes or of_all):
            return False
        return _WHOLE.fullmatch(variable.kind) is not None and self._is_pure(variable.initial)

    def _is_pure(self, node: Node) -> bool:
        """Whether an expression has the same value wherever it is computed, and needs no memory."""
        if node.kind == "CALL_EXPR" and node.spelling in ("min", "max", "abs"):
            return all(map(self._is_pure, node.arguments))
        if node.kind not in _PURE or _is_assignment(node) or node.operator in ("++", "--", ","):
            return False
        if node.kind == "UNARY_OPERATOR" and node.operator in ("*", "&"):
            return False
        if node.kind == "MEMBER_REF_EXPR":
            return bool(node.children) and node.children[0].spelling in _PLACES
        if node.kind == "DECL_REF_EXPR":
            if node.referenced is None:
                return False
            variable = self._variables.get(node.referenced.hash)
            if variable is None:
                return "const" in node.cursor.type.spelling or node.referenced.kind.name == "ENUM_CONSTANT_DECL"
            # What differs from thread to thread and is not computed anew itself may be declared later than that.
            return self._is_steady(variable) and (not variable.axes or self._is_remade(variable))
        return all(map(self._is_pure, node.children))

    def _is_steady(self, variable: _Variable) -> bool:
        """Whether a variable never changes, or only where a loop counts in it."""
        for change, around in variable.changes:
            if not around or around[-1].kind != "FOR_STMT" or len(around[-1].children) != 4:
                return False
            first, _, step, _ = around[-1].children
            is_its_own = any(node.cursor.hash == variable.cursor.hash for node in first.walk())
            if not is_its_own or all(node.cursor.hash != change.cursor.hash for node in step.walk()):
                return False
        return True

    def _needed(self, nodes: Iterable[Node]) -> list[_Variable]:
        """Return the variables that are used, also for what is computed anew; in the order of their declarations."""
        found: dict[int, _Variable] = {}
        waiting = list(nodes)
        while waiting:
            for node in waiting.pop().walk():
                if node.kind != "DECL_REF_EXPR" or node.referenced is None:
                    continue
                variable = self._variables.get(node.referenced.hash)
                if variable is not None and variable.cursor.hash not in found:
                    found[variable.cursor.hash] = variable
                    if variable.initial is not None and self._is_remade(variable, of_all=True):
                        waiting.append(variable.initial)
        return sorted(found.values(), key=lambda variable: variable.cursor.location.offset)

    # -- text ----------------------------------------------------------------------------------

    def _written(self, items: Sequence[_Item], kept: set[int]) -> Iterator[str]:
        """Yield the lines of a list of statements."""
        waiting: list[_Item] = []
        for item in items:
            if item.region:
                waiting.append(item)
            elif item.kind == "loop" or (item.kind == "all" and not self._is_light(item)):
                yield from self._of_each(waiting, kept)
                waiting = []
            if item.kind == "loop":
                inner = list(self._written(item.inner, kept))
                if "pragma" not in item.before and all(one.kind != "loop" for one in item.inner):
                    item.before = "\n".join(filter(None, (item.before, self._dialect.unroll)))
                yield from item.before.splitlines()
                yield f"{self._heading(item.node)} {{"
                yield from (f"    {line}" for line in inner)
                yield "}"
            elif item.kind == "all":
                yield from self._statement(item, kept)
        yield from self._of_each(waiting, kept)

    def _of_each(self, items: Sequence[_Item], kept: set[int]) -> Iterator[str]:
        """Yield the lines of a loop over the tile."""
        if not items:
            return
        declared = [item.variable for item in items if item.variable is not None and item.variable.cursor.hash in kept]
        for variable in declared:
            # What one axis says alone is the same in a whole column or row; what a thread changes is its own.
            extent = {_X: "column", _Y: "row"}.get(variable.axes, "tile")
            type_of_it = _QUALIFIERS.sub("", variable.type).strip()
            yield f"{self._dialect.kept.format(extent, type_of_it)} {variable.name}_of;"
        own: list[str] = []
        lines: list[str] = []
        for variable in sorted(
            {v.cursor.hash: v for v in (*self._needed(item.node for item in items), *declared)}.values(),
            key=lambda variable: variable.cursor.location.offset,
        ):
            if variable.cursor.hash in kept:
                own.append(self._dialect.own.format(variable.name))
            elif self._is_remade(variable):
                lines.append(self._declaration(variable))
        for item in items:
            lines += self._statement(item, kept)
        yield f"{self._dialect.each} {{"
        yield from (f"    {line}" for line in (*textwrap.wrap(" ".join(own), 100), *lines))
        yield "}"

    def _statement(self, item: _Item, kept: set[int]) -> list[str]:
        variable = item.variable
        if variable is None:
            text = self._text(item.node)
            if self._source[self._end(item.node) :].lstrip().startswith(";"):
                text += ";"
        elif variable.cursor.hash not in kept:
            text = self._declaration(variable)
        else:
            value = self._declarator(variable).removeprefix(variable.name).strip()
            if value and not value.startswith("="):
                value = f"= {_QUALIFIERS.sub('', variable.type).strip()}{value}"
            text = f"{variable.name} {value};" if value else ""
        return [*item.before.splitlines(), *text.splitlines()]

    def _declaration(self, variable: _Variable) -> str:
        return f"{variable.type} {self._declarator(variable)};"

    def _declarator(self, variable: _Variable) -> str:
        assert variable.node is not None
        name = self._name(variable.node)
        return self._edits.text(Extent(name.file, name.start, self._end(variable.node), name.line))

    def _heading(self, loop: Node) -> str:
        body = loop.children[-1].extent
        if loop.extent is None or body is None:
            raise _LeaveItError
        return self._edits.text(Extent(body.file, loop.extent.start, body.start, body.line)).strip()

    def _name(self, node: Node) -> Extent:
        found = self._unit.name(node.cursor)
        if found is None or found.file != self._file or self._source[found.start : found.end] != node.spelling:
            raise _LeaveItError
        return found

    def _end(self, node: Node) -> int:
        if node.extent is None:
            raise _LeaveItError
        return node.extent.end

    def _text(self, node: Node) -> str:
        """Return the changed text of a statement, its lines as if it began in the first column."""
        if node.extent is None:
            raise _LeaveItError
        column = node.extent.start - self._source.rfind("\n", 0, node.extent.start) - 1
        first, *others = self._edits.text(node.extent).split("\n")
        return "\n".join((first, *(line[min(column, len(line) - len(line.lstrip())) :] for line in others)))

    def _before(self, node: Node) -> str:
        """Return the comments and pragmas on the lines before a statement."""
        if node.extent is None:
            raise _LeaveItError
        *lines, start = self._source[: node.extent.start].split("\n")
        found: list[str] = []
        while not start.strip() and lines and (not lines[-1].strip() or _ASIDE.match(lines[-1])):
            found.append(lines.pop().strip())
        return "\n".join(filter(None, reversed(found)))


#: A line that is a comment, or a pragma.
_ASIDE: Final = re.compile(r"\s*(//|#\s*pragma\b|/\*.*\*/\s*$)")
_CONDITIONAL: Final = re.compile(r"^[ \t]*#[ \t]*(?!pragma\b)", re.MULTILINE)


def _own_places(uses: Iterable[_Use], *, is_input: bool) -> list[list[_Use]]:
    """Return those of all uses of a pointer that may be marked, by the element."""
    places: dict[str, list[_Use]] = {}
    for use in uses:
        places.setdefault(use.place, []).append(use)
    others = places.pop("", [])
    certain = [each for each in places.values() if any(use.is_certain for use in each)]
    if is_input:
        return [] if any(use.is_written for each in certain for use in each) else certain
    # What is written has to be the thread's alone. Of several elements one may be the next thread's other one; those
    # that are written once, and not read, end up as they would.
    is_alone = len(places) == 1 or all(len(each) == 1 and not each[0].is_read for each in certain)
    return certain if is_alone and not others and len(certain) == len(places) else []


def _read_from(program: Program, kernel: Kernel) -> tuple[TranslationUnit, Function]:
    for unit in program.units:
        for function in unit.functions:
            if function.is_kernel and function.label == kernel.label and function.extent == kernel.extent:
                return unit, function
    raise _LeaveItError


def _alone(node: Node) -> Node:
    """Return what is in parentheses, or converted without a word; ``a ?: b`` is one of several, and stays."""
    while node.kind in TRANSPARENT and len(node.children) == 1:
        node = node.children[0]
    return node


def _statements(node: Node) -> list[Node]:
    return list(node.children) if node.kind == "COMPOUND_STMT" else [node]


def _heading(node: Node) -> Sequence[Node]:
    """Return what decides how often a statement does what is in it."""
    return {
        "IF_STMT": node.children[:1],
        "FOR_STMT": node.children[:-1],
        "WHILE_STMT": node.children[:-1],
        "DO_STMT": node.children[1:],
    }.get(node.kind, ())


def _is_assignment(node: Node) -> bool:
    return node.kind == "COMPOUND_ASSIGNMENT_OPERATOR" or (node.kind == "BINARY_OPERATOR" and node.operator == "=")


def _is_pointer(node: Node) -> bool:
    return str(node.canonical.kind.name) == "POINTER"


def _reads_memory(node: Node) -> bool:
    return node.kind == "ARRAY_SUBSCRIPT_EXPR" or (node.kind == "UNARY_OPERATOR" and node.operator == "*")


def _points(node: Node) -> bool:
    kind = str(node.canonical.kind.name)
    return kind in ("POINTER", "LVALUEREFERENCE", "RECORD") or "ARRAY" in kind


def _undecayed(node: Node) -> str:
    """Return the kind of type of what may have become a pointer."""
    while node.kind in TRANSPARENT and node.children:
        node = node.children[0]
    return str(node.canonical.kind.name)


def _parameter_types(call: Node) -> list[Any]:
    """Return the types of the parameters of what is called."""
    if call.referenced is None:
        return []
    return [argument.type.get_canonical() for argument in call.referenced.get_arguments()]


def _may_change(type_of_it: Any) -> bool:
    """Whether what is passed to a parameter of this type may be changed there."""
    kind = type_of_it.kind.name
    return kind in ("LVALUEREFERENCE", "POINTER") and not type_of_it.get_pointee().is_const_qualified()


def _inside(node: Node, *, loops: bool) -> Iterator[Node]:
    """Give a statement and what is in it, without the loops in it if so wanted."""
    yield node
    for child in node.children:
        if loops or child.kind not in _LOOPS:
            yield from _inside(child, loops=loops)


def _breaks(node: Node) -> bool:
    return node.kind not in _LOOPS and any(inner.kind == "BREAK_STMT" for inner in _inside(node, loops=False))


def _continues(node: Node) -> bool:
    return node.kind not in _LOOPS and any(inner.kind == "CONTINUE_STMT" for inner in _inside(node, loops=False))


def _declaring(items: Iterable[_Item], variable: _Variable) -> _Item | None:
    """Return the item of a list, or of the loops in it, that declares a variable."""
    for item in items:
        if item.variable is variable:
            return item
        found = _declaring(item.inner, variable)
        if found is not None:
            return found
    return None
