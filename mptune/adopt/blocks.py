"""Kernels as loops over the threads of a block, by loop fission (Stratton, Stone and Hwu, MCUDA, 2008).

The body of a kernel becomes regions. All threads run one region, one thread after the other, before the next region
begins. A barrier ends a region. So does a shuffle of a warp: each thread gives its value in the region before. A
condition that is not uniform chooses the threads of regions with shuffles. A loop that is uniform in the block goes
around regions: values that its threads share are read once, and compilers make vectors of the loop over the threads.
Uniform statements between regions run once. A variable that several regions use is computed again in each of them if
it follows from the thread's indices. It is an array over the threads otherwise.

The result is written in four forms. Programs on this machine's processor and templates each have one with barriers
(phases, ``templates/prelude/phases.hpp``) and one without (tiles, ``templates/prelude/virtual_threads.hpp``).

A kernel stays as it is if its regions are not certain to compute the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mptune.adopt.accesses import Accesses, is_operator, object_of
from mptune.adopt.parsing import (
    CASTS,
    FUNCTIONS,
    TRANSPARENT,
    Edits,
    Extent,
    Function,
    Node,
    SourceFile,
    TranslationUnit,
    library_of,
    reached,
)
from mptune.adopt.reading import Program
from mptune.adopt.rewriting import blanked
from mptune.cpp.prelude import WAITING_LIBRARIES
from mptune.cpp.tokens import tokens

#: The parameter that says how often the innermost loops around a tile are unrolled.
UNROLL: Final = "unroll"


@dataclass(frozen=True, slots=True)
class Form:
    """How regions are written.

    Attributes:
        region: the macro before a region.
        phase: the macro before a region that ends in a barrier; "" if the kernel must have none.
        own: the declaration of a thread's element of an array over the threads, by its name.
        array: the type of the array, by the type of an element and its ``extent``: "tile", "column" or "row".
        unroll: the line before the innermost loops around regions; "" for none.
        names: names with a meaning in a region.
        thread: the number of the thread in its block.
    """

    region: str
    phase: str
    own: str
    array: str
    unroll: str = ""
    names: frozenset[str] = frozenset()
    thread: str = ""


def phases_of_templates(threads: int) -> Form:
    """Return the form of kernels with barriers in templates, for blocks of at most so many threads."""
    names = frozenset(("thread", "PHASE", "PIECE", "IN_PHASES"))
    array = f"mp::per_thread<{{type}}, {threads}>"
    return Form("PIECE", "PHASE", "auto& {0} = {0}_of[thread];", array, "", names, "thread")


def tiles_of_templates(unroll: str) -> Form:
    """Return the form of kernels without barriers in templates, with :data:`UNROLL` as it is written there."""
    return Form("EACH_THREAD", "", "OF_THREAD({0});", "mp::per_{extent}<Tile, {type}>", unroll)


_ARRAY_OF_LAYER: Final = "::mptune_layer::per_thread<{type}>"
_PHASES_OF_LAYER: Final = Form(
    "MPTUNE_PHASE", "MPTUNE_PHASE", "auto& {0} = {0}_of[mptune_thread];", _ARRAY_OF_LAYER, thread="mptune_thread"
)
_TILES_OF_LAYER: Final = Form("MPTUNE_EACH_OF_TILE", "", "auto& {0} = {0}_of[threadIdx.x];", _ARRAY_OF_LAYER)


@dataclass(frozen=True, slots=True)
class Split:
    """The body of a kernel in regions.

    Attributes:
        condition: the body of a function that says whether a thread has work; "" if all threads have.
        body: the statements.
    """

    condition: str
    body: str


def split(unit: TranslationUnit, function: Function, text: Callable[[Extent], str], form: Form) -> Split | None:
    """Return the body of a kernel in regions; None if they are not certain to compute the same, or gain nothing.

    Args:
        unit: the file with the kernel.
        function: the kernel.
        text: returns the changed text of a piece of the program's files.
        form: how regions are written.
    """
    try:
        return _Kernel(unit, function, text, form).split()
    except _UncertainError:
        return None


def split_kernels(program: Program) -> tuple[SourceFile, ...]:
    """Return the files of a program with its kernels in regions, for this machine's processor.

    A kernel stays as it is if its name is used other than for launches, or is that of another kernel, too.
    """
    texts = {file.path: file for file in program.files}
    adopted = {(kernel.label, kernel.body) for kernel in program.kernels}
    bodies: dict[str, dict[Extent, str]] = {}
    for unit in program.units:
        for function in unit.functions:
            place = function.body
            known = bodies.setdefault(function.name, {})
            if function.is_kernel and place.file in texts and place not in known:
                known[place] = ""
                has_barrier = any(_is_barrier(node) or _is_exchange(node) for node in function.block.walk())
                form = _PHASES_OF_LAYER if has_barrier else _TILES_OF_LAYER
                found = None
                if has_barrier or (function.label, place) in adopted:
                    found = split(unit, function, texts[place.file].of, form)
                if found is not None:
                    tiles = "" if has_barrier else f"MPTUNE_TILES(\n{found.condition or 'return true;'}\n) "
                    line = texts[place.file].text.count("\n", 0, place.end) + 1
                    known[place] = f"{{\n{tiles}{{\n{found.body}\n}}\n}}\n#line {line}\n"
    edits = Edits(program.files)
    code = "\n".join(blanked(file.text) for file in program.files)
    for name, known in bodies.items():
        if len(known) == 1 and any(known.values()) and not _has_other_uses(name, code):
            for place, body in known.items():
                edits.replace(place, body)
    return tuple(SourceFile(path, edits.file(path)) for path in texts)


def _has_other_uses(kernel: str, code: str) -> bool:
    """Return whether a kernel's name is used for more than declarations and launches."""
    uses = re.finditer(rf"(.?)\b{kernel}\b\s*(?=(\(|<))?", code, re.DOTALL)
    launched = re.compile(r"hipLaunchKernelGGL\s*\(\s*(?:HIP_KERNEL_NAME\s*\(\s*)?\(?\s*$")
    return any(use[2] is None and not launched.search(code[: use.start() + len(use[1])][-200:]) for use in uses)


# -- one kernel -----------------------------------------------------------------------------------

_ALL: Final = frozenset("xyz")
_NONE: Final[frozenset[str]] = frozenset()
#: Which part of a tile has one value each, by the axes along which a variable differs; else each thread has.
_EXTENTS: Final = {frozenset("x"): "column", frozenset("y"): "row"}
_INDICES: Final = ("threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize")
_INTEGER: Final = re.compile(r"BOOL|CHAR.*|[SU]CHAR|U?SHORT|U?INT|U?LONG|U?LONGLONG|POINTER|ENUM")
#: Expressions that may be computed again.
_PURE: Final = (
    *("INTEGER_LITERAL", "FLOATING_LITERAL", "CXX_BOOL_LITERAL_EXPR", "CHARACTER_LITERAL", "CXX_UNARY_EXPR"),
    *("PAREN_EXPR", "UNEXPOSED_EXPR", "CONDITIONAL_OPERATOR", "BINARY_OPERATOR", "UNARY_OPERATOR", "TYPE_REF", *CASTS),
)
_PURE_CALLS: Final = ("min", "max", "abs", "umin", "umax")
_LOOPS: Final = ("FOR_STMT", "WHILE_STMT", "DO_STMT", "CXX_FOR_RANGE_STMT")
_WORDS: Final = {"FOR_STMT": "for", "WHILE_STMT": "while", "DO_STMT": "do", "IF_STMT": "if", "COMPOUND_STMT": "{"}
#: Statements that are not followed.
_UNKNOWN: Final = ("GOTO_STMT", "LABEL_STMT", "INDIRECT_GOTO_STMT", "LAMBDA_EXPR", "CXX_TRY_STMT", "ASM_STMT")
#: Functions in which threads wait for each other, other than the barrier.
_WAITS: Final = re.compile(
    r"__sync(?!threads$)\w+|__shfl\w*|__ballot\w*|__any(?:_sync)?|__all(?:_sync)?|__activemask|__match_\w+|__reduce_\w+"
)
_EXCHANGES: Final = re.compile(r"__shfl(?:_up|_down|_xor)?(?:_sync)?")
_QUALIFIERS: Final = re.compile(r"\b(const|constexpr|register)\b")
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMENT_BEHIND: Final = re.compile(r"[ \t]*//[^\n]*")
_DIRECTIVE: Final = re.compile(r"\s*#\s*(?!pragma\b)")
_MASK: Final = "is_on"


class _UncertainError(Exception):
    """The regions are not certain to compute the same as the kernel."""


@dataclass(eq=False, slots=True)
class _Variable:
    """A parameter of the kernel, or a variable in its body.

    Attributes:
        cursor: its declaration.
        initial: its initial value; None for parameters.
        is_parameter: whether it is a parameter.
        is_shared: whether all threads of the block have one.
        head: the ``for`` in whose head it is declared.
        scope_end: where its scope ends.
        axes: the axes along which its value differs between threads.
        changes: later changes, each with the ``for`` in whose head it is, or None.
        item: the statement that declares it, if that is one of a list of items.
    """

    cursor: Any
    initial: Node | None = None
    is_parameter: bool = False
    is_shared: bool = False
    head: Node | None = None
    scope_end: int = 0
    axes: frozenset[str] = _NONE
    changes: list[tuple[Node, Node | None]] = field(default_factory=list)
    item: _Item | None = None

    @property
    def name(self) -> str:
        return str(self.cursor.spelling)

    @property
    def kind(self) -> str:
        return str(self.cursor.type.get_canonical().kind.name)

    @property
    def offset(self) -> int:
        return int(self.cursor.location.offset)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A statement in the text.

    Attributes:
        node: the statement.
        gap: the text between the statement before and this one.
        start: where it begins.
        end: where it ends, with its semicolon and a comment behind it.
    """

    node: Node
    gap: str
    start: int
    end: int


@dataclass(eq=False, slots=True)
class _Item:
    """A statement, or one declarator of it, and how it is run.

    Attributes:
        kind: "each" if each thread runs it, "once" if it is run once, "around" if there are regions in it, "barrier",
            "exchange" between what threads give and what they take, "syncwarp".
        piece: the statement.
        node: the statement, or the declaration of the variable.
        variable: the variable that it declares.
        parts: of a statement around regions its bodies.
        region: the number of its region, for "each"; 0 for a variable that is computed again where it is used.
        given: of a value that is given to the threads of a warp, which one it is.
        mask: of a condition around regions with shuffles, the name of the threads that meet it.
    """

    kind: str
    piece: _Piece
    node: Node
    variable: _Variable | None = None
    parts: tuple[_Part, ...] = ()
    region: int = 0
    given: int | None = None
    mask: str = ""


@dataclass(frozen=True, slots=True)
class _Part:
    """A body of a statement.

    Attributes:
        begin: where the text before it begins.
        start: where it begins.
        items: what is in it.
        done: where the last statement ends.
        end: where it ends.
    """

    begin: int
    start: int
    items: list[_Item]
    done: int
    end: int


class _Kernel:
    def __init__(self, unit: TranslationUnit, function: Function, text: Callable[[Extent], str], form: Form) -> None:
        self._unit, self._function, self._changed_text, self._form = unit, function, text, form
        self._file = function.body.file
        source = unit.source(str(self._file))
        assert source is not None
        self._source = source.text
        self._variables: dict[int, _Variable] = {}
        #: Variables with a value for each thread, whatever they are computed from.
        self._own: set[_Variable] = set()
        #: Parameters with pointers to memory that the kernel writes to.
        self._written: set[_Variable] = set()
        #: Whether functions of the program use variables of the device.
        self._calls_vary = False
        self._regions = 0
        self._kept: set[_Variable] = set()
        self._is_masked = False
        self._guards: list[tuple[int, Node]] = []
        #: Changes of the text: from where to where, and to what.
        self._changes: dict[int, tuple[int, str]] = {}
        #: Of shuffles, by where they are called, their number.
        self._given: dict[int, int] = {}
        #: The threads that run the regions that are being written, if not all do.
        self._mask = ""
        self._look()

    @property
    def _has_phases(self) -> bool:
        return self._form.phase != ""

    def split(self) -> Split | None:
        pieces, _, _ = self._inside(self._function.block, 0)
        conditions: list[tuple[Node, bool]] = []
        if not self._has_phases:
            conditions, pieces = self._guarded(pieces)
        known = -1
        while known != (known := len(self._own)):  # until no other variable turns out to be a thread's own
            for variable in self._variables.values():  # in order: initial values name earlier variables
                values = [variable.initial] if variable.initial is not None else []
                variable.axes = _ALL if variable in self._own else _NONE.union(*map(self._axes, values))
            items = self._items(pieces)
            self._find_own(items)
        for variable in self._variables.values():
            variable.item = None  # of a statement that is not around regions after all
        for item in _every(items):
            if item.variable is not None:
                item.variable.item = item
        if any(variable.is_parameter and variable.axes for variable in self._variables.values()):
            raise _UncertainError
        if not any(item.kind in ("around", "barrier", "exchange") for item in items):
            return None
        self._number(items)
        self._find_returns(items, is_top=True)
        uses = self._uses(items)
        self._kept = {v for v, regions in uses.items() if v.item and v.item.region and regions != {v.item.region}}
        self._check_names(uses)
        lines = list(self._lines_of(items))
        if self._is_masked:
            own = f"{self._form.own.format(_MASK)} {_MASK} = true;"
            lines[:0] = [self._array(_MASK, "bool", _ALL), f"{self._form.region} {{ {own} }}"]
        return Split(self._condition(conditions), "\n".join(lines))

    # -- variables ---------------------------------------------------------------------------------

    def _look(self) -> None:
        """Find the variables, and refuse what is not followed."""
        function = self._function
        functions = {each.usr: each for each in self._unit.functions}
        accesses = Accesses(functions).of(function)
        for index, node in enumerate(function.parameters):
            variable = self._variables[node.cursor.hash] = _Variable(node.cursor, is_parameter=True)
            if any(path[0] == index and "w" in modes for path, modes in accesses.items()):
                self._written.add(variable)
        words = {token.text for token in tokens(self._source[function.body.start : function.body.end])}
        if words & self._form.names:
            raise _UncertainError
        self._collect(function.block, None, _end(function.block))
        for inside in (function, *reached(function.node, functions)):
            for node in inside.node.walk():
                if node.kind not in ("DECL_REF_EXPR", "CALL_EXPR", "MEMBER_REF_EXPR"):
                    continue
                name = node.spelling
                waits = _WAITS.fullmatch(name) and not (
                    self._has_phases and inside is function and (_EXCHANGES.fullmatch(name) or name == "__syncwarp")
                )
                waits = waits or library_of(node.referenced) in WAITING_LIBRARIES
                if waits or (not self._has_phases and name.startswith("atomic")):
                    raise _UncertainError
                if inside is not function:
                    if name == "threadIdx" or _is_barrier(node):
                        raise _UncertainError
                    self._calls_vary |= _is_global(node)

    def _collect(self, node: Node, head: Node | None, end: int) -> None:
        """Find variables and changes in a node in the head of a ``for``, or none, in a scope that ends at a place."""
        if node.kind in _UNKNOWN:
            raise _UncertainError
        if node.kind == "VAR_DECL":
            values = [child for child in node.children if not child.kind.endswith(("_REF", "_ATTR"))]
            attributes = {child.kind for child in node.children}
            is_shared = "CUDASHARED_ATTR" in attributes or node.cursor.storage_class.name in ("EXTERN", "STATIC")
            if is_shared and not self._has_phases:
                raise _UncertainError
            variable = _Variable(node.cursor, values[-1] if values else None, False, is_shared, head, end)
            self._variables[node.cursor.hash] = variable
            is_array = "ARRAY" in variable.kind and "const" not in node.cursor.type.spelling
            if is_array or is_shared:
                self._own.add(variable)
        for place in _changed_places(node):
            changed = self._variable_in(place)
            if changed is not None:
                changed.changes.append((node, head))
                if node.kind == "VAR_DECL" or node.operator == "&":  # it may change under another name
                    self._own.add(changed)
        if node.kind in (*_LOOPS, "COMPOUND_STMT", "IF_STMT", "SWITCH_STMT"):
            end = _end(node)
        for child in node.children:
            if node.kind == "FOR_STMT":
                head = node if child is not node.children[-1] else None
            self._collect(child, head, end)
            if node.kind == "CXX_FOR_RANGE_STMT" and child.kind == "VAR_DECL":
                self._own.add(self._variables[child.cursor.hash])

    def _variable_in(self, place: Node) -> _Variable | None:
        """Return the variable that a place is in; None if it is memory."""
        while place.kind in (*TRANSPARENT, "MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR", *CASTS) or _is_assignment(place):
            if not place.children:
                return None
            inner = place.children[-1 if place.kind in CASTS else 0]
            through = place.kind in ("MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR")
            if through and _is_pointer(inner) and "ARRAY" not in _undecayed(inner):
                return None
            place = inner
        return self._variable_of(place)

    def _variable_of(self, node: Node) -> _Variable | None:
        named = node.referenced if node.kind == "DECL_REF_EXPR" else None
        return self._variables.get(named.hash) if named is not None else None

    # -- uniform values and statements -------------------------------------------------------------

    def _axes(self, node: Node) -> frozenset[str]:
        """Return the axes along which the value of an expression differs between threads."""
        kind, children = node.kind, node.children
        if kind == "MEMBER_REF_EXPR" and children and children[0].spelling in _INDICES:
            return frozenset(node.spelling) if children[0].spelling == "threadIdx" else _NONE
        if kind == "DECL_REF_EXPR":
            variable = self._variable_of(node)
            is_varying = node.spelling == "threadIdx" or (_is_global(node) and not _is_array(node))
            return variable.axes if variable is not None else _ALL if is_varying else _NONE
        if kind == "CXX_UNARY_EXPR":  # sizeof
            return _NONE
        if _reads_memory(node) or (kind == "MEMBER_REF_EXPR" and children and _is_pointer(children[0])):
            if self._is_written(children[0], ()):
                return _ALL
        elif kind == "CALL_EXPR":
            called = node.referenced
            is_of_program = called is None or self._unit.extent(called) is not None
            is_written = any(_is_pointer(each) and self._is_written(each, ()) for each in node.arguments)
            if is_written or (is_of_program and self._calls_vary):
                return _ALL
        return _NONE.union(*map(self._axes, children))

    def _is_written(self, pointer: Node, on_the_way: tuple[_Variable, ...]) -> bool:
        """Return whether a thread may write to the memory that a pointer points to."""
        for node in pointer.walk():
            if node.kind != "DECL_REF_EXPR" or not _points(node):
                continue
            variable = self._variable_of(node)
            if variable is None:
                if _is_global(node):
                    return True
            elif variable.is_parameter or variable.is_shared:
                if variable.is_shared or variable in self._written:
                    return True
            elif variable.kind == "POINTER" and variable not in on_the_way:
                values = [variable.initial]
                for change, _ in variable.changes:
                    is_step = change.operator in ("++", "--")
                    values += [change.children[1] if _is_assignment(change) else None] if not is_step else []
                if any(value is None or self._is_written(value, (*on_the_way, variable)) for value in values):
                    return True
        return False

    def _is_uniform(self, node: Node) -> bool:
        """Return whether a statement does the same for all threads and changes nothing but their common variables."""
        for inner in node.walk():
            if inner.kind == "RETURN_STMT" and not self._has_phases:
                return False
            if inner.kind == "CALL_EXPR" and not _is_function(inner):
                return False
            if _is_assignment(inner) or inner.operator in ("++", "--"):
                variable = self._variable_in(inner.children[0])
                if variable is None or variable.axes:
                    return False
            if inner.kind == "VAR_DECL" and self._variables[inner.cursor.hash].axes:
                return False
        return not self._axes(node)

    def _is_again(self, variable: _Variable, *, is_uniform: bool = False) -> bool:
        """Return whether a variable is computed again in each region that uses it, as indices are.

        Uniform variables, and numbers of any type, count only if ``is_uniform``.
        """
        if variable.initial is None or variable.is_shared or not (variable.axes or is_uniform):
            return False
        if variable.kind == "LVALUEREFERENCE":
            return self._is_pure(variable.initial, is_place=True)
        is_number = is_uniform or _INTEGER.fullmatch(variable.kind) is not None
        return is_number and not variable.changes and self._is_pure(variable.initial)

    def _is_pure(self, node: Node, *, is_place: bool = False) -> bool:
        """Return whether an expression, or the place it names, is the same wherever it is computed without memory."""
        kind, children = node.kind, node.children
        if kind == "CALL_EXPR":
            return node.spelling in _PURE_CALLS and all(map(self._is_pure, node.arguments))
        if _reads_memory(node):
            return is_place and all(map(self._is_pure, children))
        if kind == "UNARY_OPERATOR" and node.operator == "&":
            return self._is_pure(children[0], is_place=True)
        if kind == "MEMBER_REF_EXPR":
            return bool(children) and not _is_pointer(children[0]) and self._is_pure(children[0], is_place=is_place)
        if kind == "DECL_REF_EXPR":
            variable = self._variable_of(node)
            if variable is None:
                return node.spelling == "threadIdx" or not _is_global(node) or (is_place and _is_array(node))
            if variable.is_shared or variable.kind == "LVALUEREFERENCE":
                return is_place and (variable.is_shared or self._is_again(variable, is_uniform=True))
            # A thread's own variable that is not computed again itself may be declared later.
            is_steady = all(head is not None and head is variable.head for _, head in variable.changes)
            return is_steady and (not variable.axes or self._is_again(variable))
        if kind not in _PURE or _is_assignment(node) or node.operator in ("++", "--", ","):
            return False
        return all(self._is_pure(child, is_place=is_place or _is_array(child)) for child in children)

    # -- items -------------------------------------------------------------------------------------

    def _start(self, node: Node) -> int:
        extent = self._unit.expansion(node.cursor)
        if extent is None or extent.file != self._file:
            raise _UncertainError
        return extent.start

    def _pieces(self, statements: Iterable[Node], begin: int, end: int) -> Iterator[_Piece]:
        """Give the statements between two places of the text."""
        known = [(node, self._start(node)) for node in statements]
        for index, (node, start) in enumerate(known):
            limit = known[index + 1][1] if index + 1 < len(known) else end
            if not begin <= start < limit:
                raise _UncertainError  # several statements of one macro
            words = [word for word in tokens(self._source[start:limit]) if word.kind != "directive"]
            while words[-1].text in ("else", "while", "("):  # of the statement that this one is a body of
                words.pop()
            finish = start + words[-1].start + len(words[-1].text)
            comment = _COMMENT_BEHIND.match(self._source, finish)
            if comment is not None and comment.end() <= limit:
                finish = comment.end()
            yield _Piece(node, self._source[begin:start], start, finish)
            begin = finish

    def _inside(self, body: Node, limit: int) -> tuple[list[_Piece], int, int]:
        """Return the statements of a body, where the last one ends, and where the body ends: at most at the limit."""
        if body.kind != "COMPOUND_STMT":
            pieces = list(self._pieces([body], self._start(body), limit))
            return pieces, pieces[0].end, pieces[0].end
        extent = self._unit.expansion(body.cursor)
        if extent is None or self._source[extent.start] != "{" or self._source[extent.end - 1] != "}":
            raise _UncertainError
        pieces = list(self._pieces(body.children, extent.start + 1, extent.end - 1))
        return pieces, pieces[-1].end if pieces else extent.start + 1, extent.end

    def _items(self, pieces: Iterable[_Piece]) -> list[_Item]:
        found: list[_Item] = []
        for piece in pieces:
            node = piece.node
            if _is_barrier(node):
                found.append(_Item("barrier", piece, node))
            elif node.kind == "CALL_EXPR" and node.spelling == "__syncwarp":
                found.append(_Item("syncwarp", piece, node))
            elif any(map(_is_of_warp, node.walk())):
                found += self._exchanged(piece)
            elif node.kind == "DECL_STMT":
                found += self._declared(piece)
            elif self._is_uniform(node):
                found.append(_Item("once", piece, node))
            else:
                found.append(self._around(piece) or self._each(piece))
        return found

    def _exchanged(self, piece: _Piece) -> list[_Item]:
        """Return what a statement with shuffles becomes."""
        node = piece.node
        if node in _bodies(node) or node.kind in (*_LOOPS, "IF_STMT"):
            around = self._around(piece) or self._masked(piece)
            if around is None:
                raise _UncertainError
            return [around]
        calls = [inner for inner in node.walk() if _is_exchange(inner)]
        changes = [inner for inner in node.walk() if _is_assignment(inner) or inner.operator in ("++", "--")]
        are_always = sum(map(_is_of_warp, _always(node))) == len(calls)
        if [each for each in changes if each != node] or not calls or not are_always:
            raise _UncertainError
        found = []
        for call in calls:
            value, start = call.arguments[call.spelling.endswith("_sync")], self._start(call)
            named = {self._variable_of(inner) for inner in value.walk()}
            declared = {self._variables[inner.cursor.hash] for inner in node.walk() if inner.kind == "VAR_DECL"}
            effects = (inner for inner in value.walk() if inner.kind == "CALL_EXPR" and not _is_function(inner))
            is_written = self._source[start:].startswith(f"{call.spelling}(")
            if named & declared or any(map(_is_exchange, value.walk())) or next(effects, None) or not is_written:
                raise _UncertainError
            number = self._given.setdefault(start, len(self._given))
            end = start + len(call.spelling) + 1
            self._changes[start] = end, f"MPTUNE_SHUFFLED({number}, {self._form.thread}, {call.spelling}, "
            gap = piece.gap if call is calls[0] else ""
            found.append(_Item("each", _Piece(value, gap, piece.start, piece.end), value, given=number))
            self._own |= declared
        rest = _Piece(node, "", piece.start, piece.end)
        found.append(_Item("exchange", rest, node))
        return [*found, *(self._declared(rest) if node.kind == "DECL_STMT" else [_Item("each", rest, node)])]

    def _masked(self, piece: _Piece) -> _Item | None:
        """Return a condition that is not uniform around regions with shuffles, which only some threads run."""
        node = piece.node
        leaves = any(inner.kind in ("RETURN_STMT", "BREAK_STMT", "CONTINUE_STMT") for inner in node.walk())
        if node.kind != "IF_STMT" or len(node.children) != 2 or leaves or any(map(_is_barrier, node.walk())):
            return None
        condition, body = node.children
        if condition.kind in ("DECL_STMT", "VAR_DECL") or any(map(_is_of_warp, condition.walk())):
            return None
        name = f"those_{self._given.setdefault(piece.start, len(self._given))}"
        pieces, done, end = self._inside(body, piece.end)
        part = _Part(piece.start, self._start(body), self._items(pieces), done, end)
        return _Item("around", piece, node, parts=(part,), mask=name)

    def _declared(self, piece: _Piece) -> Iterator[_Item]:
        """Give the declarators of a statement; as one item if all threads have what it declares in common."""
        nodes = [node for node in piece.node.children if node.kind == "VAR_DECL"]
        variables = [self._variables[node.cursor.hash] for node in nodes]
        if all(variable.is_shared for variable in variables):
            yield _Item("once", piece, piece.node)
            return
        for number, (node, variable) in enumerate(zip(nodes, variables, strict=True)):
            initial = variable.initial
            is_uniform = not variable.axes and (initial is None or self._is_uniform(initial))
            own = piece if number == 0 else _Piece(piece.node, "", piece.start, piece.end)
            yield _Item("once" if is_uniform else "each", own, node, variable)

    def _each(self, piece: _Piece) -> _Item:
        """Return a statement that each thread runs."""
        returns = [loop for loop in piece.node.walk() if loop.kind in _LOOPS if _leaves_by(loop, "RETURN_STMT")]
        if returns or any(_is_barrier(node) or _is_of_warp(node) for node in piece.node.walk()):
            raise _UncertainError
        if not self._has_phases and _leaves_by(piece.node, "RETURN_STMT"):
            raise _UncertainError
        return _Item("each", piece, piece.node)

    def _around(self, piece: _Piece) -> _Item | None:
        """Return a statement with regions in it; None if it is not uniform, or gains nothing by that."""
        node, is_loop = piece.node, piece.node.kind in _LOOPS
        bodies = _bodies(node)
        heads = [child for child in node.children if child not in bodies] if node not in bodies else []
        if not bodies or not self._source.startswith(_WORDS[node.kind], piece.start):
            return None
        if node.kind != "FOR_STMT" and any(head.kind in ("DECL_STMT", "VAR_DECL") for head in heads):
            return None
        must = any(_is_barrier(inner) or _is_of_warp(inner) for inner in node.walk())
        if not all(map(self._is_uniform, heads)) or not (must or not is_loop or self._gains(piece)):
            return None
        parts: list[_Part] = []
        begin = piece.start
        for number, body in enumerate(bodies):
            limit = self._start(heads[0]) if node.kind == "DO_STMT" else piece.end
            limit = self._start(bodies[number + 1]) if number + 1 < len(bodies) else limit
            pieces, done, end = self._inside(body, limit)
            parts.append(_Part(begin, self._start(body), self._items(pieces), done, end))
            begin = end
        inner = [item for part in parts for item in part.items]
        breaks = [item for item in inner if item.kind == "each" and _leaves_by(item.node, "BREAK_STMT")]
        leaving = [item.kind == "each" and _leaves_by(item.node, "CONTINUE_STMT") for item in inner]
        # After a statement in which a thread ends its round, all others must be in the same region.
        rest = inner[leaving.index(True) :] if any(leaving) else []
        if breaks or (rest and not is_loop) or any(item.kind != "each" for item in rest):
            return None
        if not must and not is_loop and not any(item.kind == "around" for item in inner):
            return None
        return _Item("around", piece, node, parts=tuple(parts))

    def _gains(self, piece: _Piece) -> bool:
        """Return whether a loop without barriers is faster around regions.

        The threads of a tile share what they read in it. Those of a block are too many for registers, as are arrays.
        """
        used = {self._variable_of(node) for node in piece.node.walk()} & self._own
        arrays = (variable for variable in used if variable is not None and "ARRAY" in variable.kind)
        return not self._has_phases and all(array.offset > _offset(piece.node) for array in arrays)

    def _find_own(self, items: Iterable[_Item]) -> None:
        """Find the variables from outside that each thread changes."""
        for item in _every(items):
            if item.kind == "each":
                inside = {node.cursor.hash for node in item.node.walk() if node.kind == "VAR_DECL"}
                for node in item.node.walk():
                    changed = (self._variable_in(place) for place in _changed_places(node))
                    self._own |= {v for v in changed if v is not None and v.cursor.hash not in inside}

    # -- threads without work ----------------------------------------------------------------------

    def _guarded(self, pieces: Sequence[_Piece]) -> tuple[list[tuple[Node, bool]], list[_Piece]]:
        """Return the conditions for a thread to have work, with the value each must have, and the other statements."""
        conditions: list[tuple[Node, bool]] = []
        declarations: list[_Piece] = []
        rest = list(pieces)
        while rest:
            piece = rest[0]
            if piece.node.kind == "DECL_STMT":
                declarations.append(piece)
                rest = rest[1:]
                continue
            if piece.node.kind != "IF_STMT" or len(piece.node.children) != 2:
                break
            condition, then = piece.node.children
            if any(map(_reads_memory, condition.walk())):
                break
            if _returns(then):
                conditions.append((condition, False))
                rest = rest[1:]
            elif len(rest) == 1:
                conditions.append((condition, True))
                rest = self._inside(then, piece.end)[0]
            else:
                break
        return conditions, [*declarations, *rest]

    def _condition(self, conditions: Sequence[tuple[Node, bool]]) -> str:
        if not conditions:
            return ""
        needed = self._needed([condition for condition, _ in conditions], is_uniform=True)
        declared = [variable for variable in needed if not variable.is_parameter]
        if not all(self._is_pure(condition) for condition, _ in conditions):
            raise _UncertainError
        if not all(self._is_again(variable, is_uniform=True) for variable in declared):
            raise _UncertainError
        lines = [self._declaration(variable) for variable in declared]
        texts = [f"{'' if holds else '!'}({self._expression(condition)})" for condition, holds in conditions]
        return "\n".join((*lines, f"return {' && '.join(texts)};"))

    def _find_returns(self, items: Sequence[_Item], *, is_top: bool) -> None:
        """Find out how threads that return are left out of later regions: by a condition again, or by a mask."""
        for item in items:
            for part in item.parts:
                self._find_returns(part.items, is_top=False)
            returns = [node for node in item.node.walk() if node.kind == "RETURN_STMT"] if item.kind == "each" else []
            if not returns:
                continue
            text = "continue;"
            is_guard = is_top and item.node.kind == "IF_STMT" and len(item.node.children) == 2
            if is_guard and _returns(item.node.children[1]) and self._is_pure(item.node.children[0]):
                self._guards.append((item.region, item.node.children[0]))
            elif not is_top or item.region < self._regions:
                self._is_masked = True
                text = f"{{ {_MASK} = false; continue; }}"
            for node in returns:
                start = self._start(node)
                if not self._source.startswith("return", start):
                    raise _UncertainError
                self._changes[start] = self._source.index(";", start) + 1, text

    # -- regions and what lives in several of them -------------------------------------------------

    def _number(self, items: Sequence[_Item]) -> None:
        is_open = False
        for item in items:
            if item.kind == "each" and not (item.variable is not None and self._is_again(item.variable)):
                self._regions += not is_open
                is_open = True
                item.region = self._regions
            elif item.kind != "each" and not self._is_movable(item):
                is_open = False
                if item.mask:
                    self._regions += 1
                    item.region = self._regions
                for part in item.parts:
                    self._number(part.items)

    def _is_movable(self, item: _Item) -> bool:
        """Return whether a declaration that is run once can move ahead of the region before it."""
        if item.kind != "once" or item.node.kind not in ("DECL_STMT", "VAR_DECL") or _directives(item.piece.gap):
            return False
        return item.variable is None or self._is_again(item.variable, is_uniform=True)

    def _uses(self, items: Iterable[_Item]) -> dict[_Variable, set[int]]:
        """Return the regions that use each variable."""
        found: dict[_Variable, set[int]] = {}

        numbered = [item for item in _every(items) if item.region]
        users = [(item.node.children[0] if item.mask else item.node, [item.region]) for item in numbered]
        users += [(guard, [*range(region + 1, self._regions + 1)]) for region, guard in self._guards]
        for node, regions in users:
            for variable in self._needed([node]):
                found.setdefault(variable, set()).update(regions)
        return found

    def _needed(self, nodes: Iterable[Node], *, is_uniform: bool = False) -> list[_Variable]:
        """Return the variables that statements use, also for variables that are computed again; in order."""
        found: set[_Variable] = set()
        waiting = list(nodes)
        while waiting:
            for node in waiting.pop().walk():
                variable = self._variable_of(node)
                if variable is not None and variable not in found:
                    found.add(variable)
                    if variable.initial is not None and self._is_again(variable, is_uniform=is_uniform):
                        waiting.append(variable.initial)
        return sorted(found, key=lambda variable: variable.offset)

    def _check_names(self, uses: Iterable[_Variable]) -> None:
        """Refuse names that mean two things where a variable is declared once more."""
        words = {token.text for token in tokens(self._source[self._function.body.start : self._function.body.end])}
        kept = {f"{variable.name}_of" for variable in self._kept}
        again = {v for v in uses if v in self._kept or (v.item is not None and self._is_again(v))}
        if kept & words or (self._is_masked and words & {_MASK, f"{_MASK}_of"}):
            raise _UncertainError
        if self._given and any(word.startswith("those_") for word in words):
            raise _UncertainError
        for one in self._variables.values():
            for other in again:
                is_inside = other.offset < one.offset < other.scope_end or one.offset < other.offset < one.scope_end
                if one is not other and one.name == other.name and (is_inside or one.is_parameter):
                    raise _UncertainError

    # -- text --------------------------------------------------------------------------------------

    def _lines_of(self, items: Iterable[_Item]) -> Iterator[str]:
        waiting: list[_Item] = []
        for item in items:
            if item.kind == "each":
                waiting.append(item)
                continue
            if not self._is_movable(item):
                yield from self._region(waiting, self._form.phase if item.kind == "barrier" else self._form.region)
                waiting = []
            yield from _aside(item.piece.gap)
            if item.kind == "once":
                yield from self._statement(item)
            elif item.kind == "syncwarp":
                yield self._expression(item.node).replace("__syncwarp", "MPTUNE_SYNCWARP", 1) + ";"
            elif item.mask:
                yield from self._lines_under_mask(item)
            elif item.kind == "around":
                yield from self._lines_around(item)
        yield from self._region(waiting, self._form.region)

    def _lines_under_mask(self, item: _Item) -> Iterator[str]:
        (part,) = item.parts
        if any(each.kind == "once" and each.node.kind not in ("DECL_STMT", "VAR_DECL") for each in _every(part.items)):
            raise _UncertainError
        condition = item.node.children[0]
        may_leave = any(node.kind == "RETURN_STMT" for node in self._function.block.walk())
        if self._mask or (may_leave and not self._is_pure(condition)):
            raise _UncertainError
        needed = self._needed([condition])
        lines = [self._form.own.format(variable.name) for variable in needed if variable in self._kept]
        lines += (self._declaration(v) for v in needed if v.item is not None and self._is_again(v))
        yield f"MPTUNE_THOSE({item.mask}, {' '.join(lines)} return {self._expression(condition)};)"
        yield "{"
        self._mask = item.mask
        yield from (f"    {line}" for line in self._lines_of(part.items))
        self._mask = ""
        yield "}"

    def _lines_around(self, item: _Item) -> Iterator[str]:
        lines: list[str] = []
        is_innermost = all(inner.kind != "around" for part in item.parts for inner in part.items)
        if item.node.kind in _LOOPS and is_innermost and self._form.unroll and "pragma" not in item.piece.gap:
            lines.append(self._form.unroll)
        for number, part in enumerate(item.parts):
            head = f"{self._without_comments(part.begin, part.start)} {{".strip()
            lines[-1:] = [f"{lines[-1]} {head}"] if number else [*lines[-1:], head]
            lines += (f"    {line}" for line in self._lines_of(part.items))
            lines += (f"    {line}" for line in _aside(self._source[part.done : part.end].removesuffix("}")))
            lines.append("}")
        last = self._without_comments(item.parts[-1].end, item.piece.end)
        lines[-1] += f" {last}" if last else ""
        yield from lines

    def _region(self, items: Sequence[_Item], word: str) -> Iterator[str]:
        own = [item for item in items if item.region]
        if not own:
            yield from (line for item in items for line in _directives(item.piece.gap))
            if word == self._form.phase != self._form.region:
                yield f"{word} {{}}"
            return
        for item in own:
            if item.variable is not None and item.variable in self._kept:
                yield self._array(item.variable.name, self._type(item.variable), item.variable.axes)
        guards = [guard for region, guard in self._guards if region < own[0].region]
        needed = self._needed([*(item.node for item in own), *guards])
        declared = {item.variable for item in own if item.variable is not None}
        names = [variable.name for variable in needed if variable in self._kept]
        names += [v.name for v in sorted(declared & self._kept, key=lambda v: v.offset) if v not in needed]
        lines = [self._form.own.format(name) for name in ([_MASK] * self._is_masked) + names]
        lines += [f"if (!{_MASK}) continue;"] if self._is_masked else []
        here = {item.variable for item in items}
        again = [v for v in needed if v.item is not None and v not in here and self._is_again(v)]
        first = [(variable.offset, self._declaration(variable)) for variable in again]
        first += [(_offset(guard), f"if ({self._expression(guard)}) continue;") for guard in guards]
        lines += (line for _, line in sorted(first))
        for item in items:
            if item.region or item.variable in needed:
                lines += [*_aside(item.piece.gap), *self._statement(item)]
            else:
                lines += _directives(item.piece.gap)
        yield f"MPTUNE_EACH_OF({self._mask}) {{" if self._mask else f"{word} {{"
        yield from (f"    {line}" for line in lines)
        yield "}"

    def _statement(self, item: _Item) -> list[str]:
        variable = item.variable
        if item.given is not None:
            return [f"MPTUNE_GIVE({item.given}, {self._form.thread}, {self._expression(item.node)});"]
        if variable is not None and variable in self._kept:
            _, declarator = self._declarator(variable)
            value = declarator.removeprefix(variable.name).strip()
            if "ARRAY" in variable.kind or not value:
                return []
            if not value.startswith("="):
                value = f"= {self._type(variable)}{value}"
            return f"{variable.name} {value};".splitlines()
        if variable is not None and len(item.piece.node.children) > 1:
            return [self._declaration(variable)]
        return self._lines(item.piece.start, item.piece.end)

    def _lines(self, start: int, end: int) -> list[str]:
        """Return the changed text between two places, as if it began in the first column."""
        text = self._text(start, end)
        column = start - self._source.rfind("\n", 0, start) - 1
        first_line, *others = text.split("\n")
        return [first_line, *(line[min(column, len(line) - len(line.lstrip())) :] for line in others)]

    def _text(self, start: int, end: int) -> str:
        text = ""
        for first, (last, new) in sorted(self._changes.items()):
            if start <= first < end:
                text += self._changed_text(Extent(self._file, start, first, 0)) if start < first else ""
                text += new
                start = last
        return text + (self._changed_text(Extent(self._file, start, end, 0)) if start < end else "")

    def _without_comments(self, start: int, end: int) -> str:
        text = _COMMENT.sub("", self._text(start, end))
        if "#" in text:
            raise _UncertainError
        return " ".join(text.split())

    def _expression(self, node: Node) -> str:
        if node.extent is None or node.extent.file != self._file:
            raise _UncertainError
        return self._without_comments(node.extent.start, node.extent.end)

    def _array(self, name: str, type_text: str, axes: frozenset[str]) -> str:
        extent = _EXTENTS.get(axes, "tile")
        return f"{self._form.array.format(extent=extent, type=type_text)} {name}_of;"

    def _declaration(self, variable: _Variable) -> str:
        """Return the declaration of a variable alone."""
        piece = variable.item.piece if variable.item is not None else None
        if piece is None:
            raise _UncertainError
        if len(piece.node.children) == 1:
            return self._without_comments(piece.start, piece.end)
        return "{} {};".format(*self._declarator(variable))

    def _declarator(self, variable: _Variable) -> tuple[str, str]:
        """Return the type of a variable as it is written, and its declarator: the name and the value."""
        item = variable.item
        if item is None or any(child.kind != "VAR_DECL" for child in item.piece.node.children):
            raise _UncertainError
        names = [self._name(child) for child in item.piece.node.children]
        at = next(i for i, child in enumerate(item.piece.node.children) if child.cursor.hash == variable.cursor.hash)
        ends = [names[0], *map(self._end_of, names)]
        first = self._without_comments(item.piece.start, names[0])
        plain = first.rstrip("*& ") if len(names) > 1 else first
        if len(names) > 1 and re.search(r"[*&]", plain):
            raise _UncertainError
        sign = self._without_comments(ends[at] + 1, names[at]) if at else first[len(plain) :].strip()
        return f"{plain} {sign}".strip(), self._text(names[at], ends[at + 1]).rstrip()

    def _type(self, variable: _Variable) -> str:
        """Return the type of an element of an array over the threads."""
        text, declarator = self._declarator(variable)
        if re.search(r"\b(auto|volatile|static)\b|[()&]", text):
            raise _UncertainError
        is_pointer = variable.kind == "POINTER"
        text = re.sub(r"\*\s*const\s*$", "*", text) if is_pointer else _QUALIFIERS.sub("", text)
        if "ARRAY" in variable.kind:
            text += declarator.removeprefix(variable.name)
            if variable.kind != "CONSTANTARRAY" or re.search(r"[={]", text):
                raise _UncertainError
        return " ".join(text.split())

    def _name(self, node: Node) -> int:
        """Return where the name of a declared variable is written."""
        place = self._unit.name(node.cursor)
        if place is None or place.file != self._file or self._source[place.start : place.end] != node.spelling:
            raise _UncertainError
        return place.start

    def _end_of(self, start: int) -> int:
        """Return where a declarator ends: at a comma or the semicolon."""
        depth = 0
        for token in tokens(self._source, start):
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token.text, 0)
            if depth == 0 and token.text in (",", ";"):
                return token.start
        raise _UncertainError


def _every(items: Iterable[_Item]) -> Iterator[_Item]:
    for item in items:
        yield item
        for part in item.parts:
            yield from _every(part.items)


# -- nodes ----------------------------------------------------------------------------------------


def _offset(node: Node) -> int:
    return int(node.cursor.extent.start.offset)


def _end(node: Node) -> int:
    return int(node.cursor.extent.end.offset)


def _is_barrier(node: Node) -> bool:
    return node.kind == "CALL_EXPR" and node.spelling == "__syncthreads"


def _is_exchange(node: Node) -> bool:
    return node.kind == "CALL_EXPR" and _EXCHANGES.fullmatch(node.spelling) is not None


def _is_of_warp(node: Node) -> bool:
    return _is_exchange(node) or (node.kind == "CALL_EXPR" and node.spelling == "__syncwarp")


def _always(node: Node) -> Iterator[Node]:
    """Yield the parts of an expression that are computed whatever the others are."""
    yield node
    has_condition = node.kind == "CONDITIONAL_OPERATOR" or node.operator in ("&&", "||")
    if node.kind != "LAMBDA_EXPR" and node.operator != ",":
        for child in node.children[: 1 if has_condition else None]:
            yield from _always(child)


def _is_assignment(node: Node) -> bool:
    return node.kind == "COMPOUND_ASSIGNMENT_OPERATOR" or (node.kind == "BINARY_OPERATOR" and node.operator == "=")


def _is_pointer(node: Node) -> bool:
    return str(node.canonical.kind.name) == "POINTER"


def _is_array(node: Node) -> bool:
    return "ARRAY" in node.canonical.kind.name


def _points(node: Node) -> bool:
    return node.canonical.kind.name in ("POINTER", "LVALUEREFERENCE", "RECORD") or _is_array(node)


def _reads_memory(node: Node) -> bool:
    return node.kind == "ARRAY_SUBSCRIPT_EXPR" or (node.kind == "UNARY_OPERATOR" and node.operator == "*")


def _undecayed(node: Node) -> str:
    """Return the kind of type of an expression before arrays became pointers."""
    while node.kind in TRANSPARENT and node.children:
        node = node.children[0]
    return str(node.canonical.kind.name)


def _is_global(node: Node) -> bool:
    """Return whether a node names a variable outside functions that may change while a kernel runs."""
    declared = node.referenced if node.kind == "DECL_REF_EXPR" else None
    if declared is None or declared.kind.name != "VAR_DECL" or node.spelling in _INDICES:
        return False
    parent = declared.semantic_parent
    if parent is not None and parent.kind.name.startswith(("FUNCTION", "CXX_METHOD")):
        return False
    canonical = declared.type.get_canonical()
    while "ARRAY" in canonical.kind.name:
        canonical = canonical.element_type.get_canonical()
    is_constant = any(child.kind.name == "CUDACONSTANT_ATTR" for child in declared.get_children())
    return not (is_constant or canonical.is_const_qualified())


def _changed_places(node: Node) -> list[Node]:
    """Return the places that a node itself may change, not those that are changed in its children."""
    is_address = node.kind == "UNARY_OPERATOR" and node.operator == "&"
    if _is_assignment(node) or node.operator in ("++", "--") or is_address:
        return [node.children[0]]
    if node.kind == "VAR_DECL" and node.canonical.kind.name == "LVALUEREFERENCE" and _may_change(node.canonical):
        return list(node.children)
    if node.kind != "CALL_EXPR":
        return []
    arguments, types = node.arguments, _parameter_types(node)
    found: list[Node | None] = []
    if _is_method(node):
        found = [] if node.referenced.is_const_method() else [object_of(node)]
        arguments = arguments[1:] if is_operator(node) else arguments
    if len(types) != len(arguments):
        found += arguments
    found += (
        argument
        for argument, each in zip(arguments, types, strict=False)
        if each.kind.name != "POINTER" and _may_change(each)
    )
    return [place for place in found if place is not None]


def _is_method(call: Node) -> bool:
    called = call.referenced
    return called is not None and called.kind.name == "CXX_METHOD" and not called.is_static_method()


def _parameter_types(call: Node) -> list[Any]:
    if call.referenced is None:
        return []
    return [argument.type.get_canonical() for argument in call.referenced.get_arguments()]


def _may_change(canonical: Any) -> bool:
    """Return whether an argument for a parameter of this type may be changed by the function."""
    kind = canonical.kind.name
    return kind in ("LVALUEREFERENCE", "POINTER") and not canonical.get_pointee().is_const_qualified()


def _is_function(call: Node) -> bool:
    """Return whether a call has a value and no effect."""
    called = call.referenced
    kind = called.kind.name if called is not None else ""
    if kind == "CONSTRUCTOR":
        return True
    if kind not in FUNCTIONS or call.canonical.kind.name == "VOID" or called.type.is_function_variadic():
        return False
    is_constant = not _is_method(call) or called.is_const_method()
    return is_constant and not any(map(_may_change, _parameter_types(call)))


def _bodies(node: Node) -> tuple[Node, ...]:
    """Return the statements that a statement decides over."""
    if node.kind == "COMPOUND_STMT":
        return (node,)
    if node.kind == "IF_STMT":
        return node.children[1:] if len(node.children) <= 3 else ()
    if node.kind == "DO_STMT":
        return node.children[:1]
    return node.children[-1:] if node.kind in ("FOR_STMT", "WHILE_STMT") else ()


def _leaves_by(node: Node, kind: str) -> bool:
    """Return whether a statement of a kind (return, break, continue) in a statement leaves that statement."""
    if node.kind == kind:
        return True
    if kind != "RETURN_STMT" and (node.kind in _LOOPS or (kind == "BREAK_STMT" and node.kind == "SWITCH_STMT")):
        return False
    return any(_leaves_by(child, kind) for child in node.children)


def _returns(statement: Node) -> bool:
    inner = statement.children if statement.kind == "COMPOUND_STMT" else (statement,)
    return [each.kind for each in inner] == ["RETURN_STMT"]


def _aside(gap: str) -> list[str]:
    """Return the comments and directives between statements."""
    return [line.strip() for line in gap.split("\n") if line.strip()]


def _directives(gap: str) -> list[str]:
    """Return the directives between statements, without pragmas."""
    return [line for line in _aside(gap) if _DIRECTIVE.match(line)]
