"""Kernels with barriers as what all threads of a block do between them, see ``templates/prelude/phases.hpp``.

Between two barriers the statements of a kernel become a phase, in which one thread does the work of a block in a loop.
Loops and conditions around barriers must be the same for all threads; what only they need stands between phases and is
done once. What a thread computed in one phase and uses in another is computed anew where that only takes its place in
the grid, and is an element of an array over threads otherwise. A thread that returns is left out from then on.

A kernel of which one of these is not certain is left as it is: its threads then take turns at every barrier.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mptune.adopt import tiling
from mptune.adopt.number_types import math_function
from mptune.adopt.parsing import Edits, Extent, Function, Node, SourceFile, TranslationUnit, bare
from mptune.adopt.reading import Kernel, Program
from mptune.adopt.rewriting import blanked
from mptune.cpp.tokens import tokens


@dataclass(frozen=True, slots=True)
class Dialect:
    """How phases are written.

    Attributes:
        phase: stands before what ends in a barrier.
        piece: stands before what does not.
        thread: the number of a thread in its block.
        array: of a value for each thread, with a place for its type.
        indent: before lines that are added; None if there are to be none.
    """

    phase: str
    piece: str
    thread: str
    array: str
    indent: str | None = None


#: In programs as they run on the processor, where a block may have any number of threads.
IN_LAYER: Final = Dialect("MPTUNE_PHASE", "MPTUNE_PHASE", "mptune_thread", "::mptune_layer::per_thread<{}>")


def in_templates(threads: int) -> Dialect:
    """Return how templates have it.

    Args:
        threads: the most there are in a block.
    """
    return Dialect("PHASE", "PIECE", "thread", f"mp::per_thread<{{}}, {threads}>", "    ")


#: What waits for others, but is no plain barrier.
_OTHER_WAITS: Final = re.compile(
    r"__sync(?!threads\b)\w+|__shfl\w*|__ballot\w*|__any(?:_sync)?|__all(?:_sync)?|__activemask|__match_\w+|__reduce_\w+"
)
_IN_BLOCK: Final = re.compile(r"threadIdx|hipThreadIdx_\w|__syncthreads")
#: What a function does that has to know its thread, or to run in it from beginning to end.
_OF_THREAD: Final = re.compile(r"threadIdx|hipThreadIdx_|atomic")
_TILES_IN_LAYER: Final = tiling.Dialect(
    "MPTUNE_EACH_OF_TILE", "auto& {0} = {0}_of[threadIdx.x];", "::mptune_layer::per_thread<{1}>", ""
)
#: Names that mean something in a phase.
_TAKEN: Final = frozenset(("thread", "PHASE", "PIECE", "IN_PHASES"))
_LOOPS: Final = ("FOR_STMT", "WHILE_STMT", "DO_STMT")
_SHAPES: Final = ("blockIdx", "blockDim", "gridDim", "warpSize")
_LITERALS: Final = ("INTEGER_LITERAL", "FLOATING_LITERAL", "CXX_BOOL_LITERAL_EXPR", "CHARACTER_LITERAL")
_PLAIN: Final = (
    *("UNEXPOSED_EXPR", "PAREN_EXPR", "BINARY_OPERATOR", "CONDITIONAL_OPERATOR", "CXX_UNARY_EXPR", "CSTYLE_CAST_EXPR"),
    *("CXX_STATIC_CAST_EXPR", "CXX_FUNCTIONAL_CAST_EXPR", "UNARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR"),
)
#: What makes a function too difficult.
_DIFFICULT: Final = ("GOTO_STMT", "LABEL_STMT", "INDIRECT_GOTO_STMT", "LAMBDA_EXPR", "CXX_TRY_STMT", "ASM_STMT")
_PURE_CALLS: Final = frozenset(("min", "max", "abs", "umin", "umax", "__ldg"))
_DECLARED: Final = ("VAR_DECL", "PARM_DECL")


class _Uncertain(Exception):
    """The kernel cannot be shown to be the same in phases."""


class _Again(Exception):
    """Something was found out that changes what was found before."""


def in_phases(unit: TranslationUnit, function: Function, text: Callable[[Extent], str], dialect: Dialect) -> str | None:
    """Return the body of a kernel in phases, from brace to brace; None if it is not certain to do the same.

    Args:
        unit: the file that it is in.
        function: the kernel.
        text: gives the text of a piece of the program's files.
        dialect: how phases are written.
    """
    if not any(_is_barrier(node) for node in function.block.walk()):
        return None
    try:
        return _Kernel(unit, function, text, dialect).body()
    except _Uncertain:
        return None


def files_in_phases(program: Program) -> tuple[SourceFile, ...]:
    """Return the files of a program, for this machine's processor, with kernels in phases where that is certain.

    Kernels without barriers become tiles (:mod:`mptune.adopt.tiling`) where loops are the same for all threads: while
    these are inside of a thread, compilers make no vectors. The numbers of lines stay. A kernel whose name is used
    otherwise than for a launch, or that another has, too, stays as it is.
    """
    bodies: dict[Extent, str | None] = {}
    of_name: dict[str, set[Extent]] = {}
    texts = {file.path: file for file in program.files}
    kernels = {(kernel.label, kernel.body): kernel for kernel in program.kernels}
    for unit in program.units:
        for function in unit.functions:
            if function.is_kernel and function.body.file in texts:
                of_name.setdefault(function.name, set()).add(function.body)
                if function.body not in bodies:
                    body = in_phases(unit, function, texts[function.body.file].of, IN_LAYER)
                    kernel = kernels.get((function.label, function.body))
                    bodies[function.body] = body or (_in_tiles(program, kernel) if kernel is not None else None)
    code = "\n".join(blanked(file.text) for file in program.files)
    changes: dict[Path, list[tuple[int, int, str]]] = {}
    for name, places in of_name.items():
        (place, *others) = places
        body = bodies[place]
        if body is not None and not others and not _is_taken(name, code):
            changes.setdefault(place.file, []).append((place.start, place.end, body))
    return tuple(SourceFile(path, _replaced(file.text, changes.get(path, []))) for path, file in texts.items())


def _in_tiles(program: Program, kernel: Kernel) -> str | None:
    """Return the body of a kernel as what rows of a block's threads do; None if it is not certain to do the same."""
    called = " ".join(program.text(need.extent) for need in kernel.needs)
    if kernel.has_barrier or kernel.has_shared or kernel.arguments or _OF_THREAD.search(called):
        return None
    tile = tiling.tiled(program, kernel, Edits(program.files), _TILES_IN_LAYER)
    if tile is None:
        return None
    text = next(file.text for file in program.files if file.path == kernel.body.file)
    line = text.count("\n", 0, kernel.body.end) + 1
    condition = tile.condition or "return true;"
    return f"{{\nMPTUNE_TILES(\n{condition}\n) {{\n{tile.body}\n}}\n}}\n#line {line}\n"


def _is_taken(name: str, code: str) -> bool:
    """Whether a kernel's name is used for more than declarations and launches."""
    uses = re.finditer(rf"(.?)\b{name}\b\s*(?=(\(|<))?", code, re.DOTALL)
    launched = re.compile(r"hipLaunchKernelGGL\s*\(\s*(?:HIP_KERNEL_NAME\s*\(\s*)?\(?\s*$")
    return any(use[2] is None and not launched.search(code[: use.start() + len(use[1])][-200:]) for use in uses)


def _replaced(text: str, changes: Iterable[tuple[int, int, str]]) -> str:
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text


# -- what there is in a kernel -------------------------------------------------------------------


@dataclass(slots=True)
class _Variable:
    """A variable of the kernel.

    Attributes:
        node: its declaration.
        statement: that it is declared by; None for a parameter.
        writes: where it gets a value, but by its declaration.
        is_shared: whether it is the same memory for all threads.
    """

    node: Node
    statement: Node | None
    writes: list[Node] = field(default_factory=list)
    is_shared: bool = False

    @property
    def name(self) -> str:
        return self.node.spelling

    @property
    def is_array(self) -> bool:
        return "ARRAY" in self.node.canonical.kind.name

    @property
    def is_reference(self) -> bool:
        return "REFERENCE" in self.node.canonical.kind.name

    @property
    def initial(self) -> Node | None:
        """What it is declared with."""
        last = self.node.children[-1] if self.node.children and not self.is_array else None
        return last if last is not None and not last.kind.endswith(("_REF", "_ATTR")) else None


@dataclass(frozen=True, slots=True)
class _Piece:
    """A statement with what stands before it: spaces, comments, directives.

    Attributes:
        node: the statement.
        gap: where what stands before it begins.
        start: where it begins.
        end: where it ends, with its semicolon.
    """

    node: Node
    gap: int
    start: int
    end: int


@dataclass(slots=True)
class _Run:
    """Statements that become a phase.

    Attributes:
        pieces: the statements.
        is_top: whether they are in the kernel's outermost block.
        barrier: that ends it; None if none does.
    """

    pieces: list[_Piece]
    is_top: bool
    barrier: _Piece | None = None


@dataclass(slots=True)
class _Block:
    """What is between two braces.

    Attributes:
        items: in order; of a statement around barriers the text before each block in it, and the block. A variable
            (clang's name for it) is declared alone.
        end: the place of the closing brace.
        done: where the last statement ends.
    """

    items: list[_Run | _Piece | str | list[tuple[int, int, _Block]]]
    end: int
    done: int


class _Kernel:
    """One kernel."""

    def __init__(
        self, unit: TranslationUnit, function: Function, text: Callable[[Extent], str], dialect: Dialect
    ) -> None:
        self._unit, self._function, self._changed, self._dialect = unit, function, text, dialect
        self._file: Path = function.body.file
        source = unit.source(str(self._file))
        assert source is not None
        self._text = source.text
        self._parents: dict[int, Node] = {}
        self._variables: dict[str, _Variable] = {}
        self._references: dict[str, list[Node]] = {}
        self._look()
        self._varying = {
            usr
            for usr, each in self._variables.items()
            if each.is_shared or each.is_array or each.is_reference or each.node.canonical.kind.name == "RECORD"
            if each.statement is not None
        }
        self._find_varying()
        #: Variables that are the same for all threads and stand between phases.
        self._outside = {usr for usr, each in self._variables.items() if each.statement is None and each.writes}
        self._runs: list[_Run] = []
        self._guards: list[tuple[int, Node]] = []
        self._is_masked = False

    def body(self) -> str:
        """Return its body in phases."""
        for _ in range(4 * len(self._variables) + 4):
            try:
                for usr in self._outside & self._varying:
                    raise _Uncertain(self._variables[usr].name)
                self._runs, self._guards, self._is_masked = [], [], False
                block = self._block(self._function.block)
                self._place_variables()
            except _Again:
                continue
            return self._written(block)
        raise _Uncertain

    def _look(self) -> None:
        """Find variables and what is done with them."""
        used = [self._function, *self._called()]
        for each in used:
            text = self._unit.source(str(each.extent.file)).of(each.extent)  # type: ignore[union-attr]
            words = {token.text for token in tokens(text) if token.kind == "name"}
            is_kernel = each is self._function
            if any(_OTHER_WAITS.fullmatch(word) for word in words):
                raise _Uncertain
            if any((word in _TAKEN) if is_kernel else _IN_BLOCK.fullmatch(word) for word in words):
                raise _Uncertain
        statements = [self._function.block]
        for parameter in self._function.parameters:
            self._variables[parameter.cursor.get_usr()] = _Variable(parameter, None)
        while statements:
            node = statements.pop()
            if node.kind in _DIFFICULT:
                raise _Uncertain
            for child in node.children:
                self._parents[id(child)] = node
            statements += reversed(node.children)
            if node.kind == "VAR_DECL":
                statement = self._parents[id(node)]
                attributes = {child.kind for child in node.children}
                is_shared = "CUDASHARED_ATTR" in attributes or node.cursor.storage_class.name in ("EXTERN", "STATIC")
                self._variables[node.cursor.get_usr()] = _Variable(node, statement, is_shared=is_shared)
        for node in self._function.block.walk():
            if node.kind == "DECL_REF_EXPR" and node.referenced is not None:
                self._references.setdefault(node.referenced.get_usr(), []).append(node)
            for target in _written_by(node):
                if target in self._variables:
                    self._variables[target].writes.append(node)

    def _called(self) -> list[Function]:
        functions = {each.usr: each for each in self._unit.functions}
        found: dict[str, Function] = {}
        waiting = [self._function]
        while waiting:
            for node in waiting.pop().node.walk():
                if node.kind not in ("DECL_REF_EXPR", "CALL_EXPR", "MEMBER_REF_EXPR") or node.referenced is None:
                    continue
                usr = node.referenced.get_usr()
                if usr in functions and usr not in found and usr != self._function.usr:
                    found[usr] = functions[usr]
                    waiting.append(functions[usr])
        return list(found.values())

    # -- what is the same for all threads ----------------------------------------------------------

    def _find_varying(self) -> None:
        """Find the variables that may differ between the threads of a block."""
        before = -1
        while before != (before := len(self._varying)):
            self._scan(self._function.block, is_same=True, loops=[])

    def _scan(self, node: Node, *, is_same: bool, loops: list[Node]) -> None:
        """Look through a statement that all threads do together, or only some."""
        kind, children = node.kind, node.children
        if kind == "VAR_DECL":
            usr, initial = node.cursor.get_usr(), self._variables[node.cursor.get_usr()].initial
            if initial is not None and not (is_same and self._is_same(initial)):
                self._varying.add(usr)
        written = [usr for usr in _written_by(node) if usr in self._variables]
        if written and not (is_same and _assigned(node) == written and all(map(self._is_same, children))):
            self._varying.update(written)
        if kind in ("BREAK_STMT", "CONTINUE_STMT") and not is_same and loops:
            self._varying.update(self._written_in(loops[-1]))
        if kind in _LOOPS or kind in ("IF_STMT", "SWITCH_STMT", "CONDITIONAL_OPERATOR"):
            is_same = is_same and all(self._is_same(each) for each in self._conditions(node))
        elif kind == "BINARY_OPERATOR" and node.operator in ("&&", "||"):
            is_same = is_same and self._is_same(children[0])
        elif kind == "CXX_FOR_RANGE_STMT":
            is_same = False
        inner = [*loops, node] if kind in (*_LOOPS, "CXX_FOR_RANGE_STMT", "SWITCH_STMT") else loops
        for child in children:
            self._scan(child, is_same=is_same, loops=inner)

    def _written_in(self, node: Node) -> set[str]:
        return {usr for inner in node.walk() for usr in _written_by(inner) if usr in self._variables}

    def _conditions(self, node: Node) -> list[Node]:
        """Return what decides over what a statement does."""
        children = node.children
        if node.kind == "FOR_STMT":
            return [part for part in self._for(node)[1:2] if part is not None]
        if node.kind == "DO_STMT":
            return [children[-1]]
        return [child for child in children[:1] if child.kind != "DECL_STMT"] or [node]

    def _is_same(self, node: Node) -> bool:
        """Whether an expression has one value for all threads of a block."""
        kind, children = node.kind, node.children
        if kind in _LITERALS:
            return True
        if kind == "DECL_REF_EXPR":
            return self._has_one_value(node)
        if kind == "MEMBER_REF_EXPR" and children:
            return not _is_pointer(children[0]) and self._is_same(children[0])
        if kind == "ARRAY_SUBSCRIPT_EXPR" or (kind == "UNARY_OPERATOR" and node.operator == "*"):
            return _is_constant_memory(node) and all(map(self._is_same, children))
        if kind == "CALL_EXPR":
            known = node.spelling in _PURE_CALLS or math_function(node.spelling) is not None
            return known and self._is_no_function_of_program(node) and all(map(self._is_same, node.arguments))
        if kind == "CXX_UNARY_EXPR":
            return True
        return kind in _PLAIN and all(map(self._is_same, children))

    def _is_no_function_of_program(self, node: Node) -> bool:
        return node.referenced is None or self._unit.extent(node.referenced) is None

    def _has_one_value(self, node: Node) -> bool:
        declared = node.referenced
        if declared is None:
            return False
        usr, kind = declared.get_usr(), declared.kind.name
        if usr in self._variables:
            return usr not in self._varying
        if kind in ("ENUM_CONSTANT_DECL", "TEMPLATE_NON_TYPE_PARAMETER"):
            return True
        if kind != "VAR_DECL" or node.spelling == "threadIdx":
            return False
        return node.spelling in _SHAPES or _is_constant(declared)

    def _is_place(self, node: Node, *, of_memory: bool = False) -> bool:
        """Whether an expression follows from a thread's place in the grid and what never changes, without memory.

        Args:
            node: the expression.
            of_memory: whether it only says where something is, for a reference.
        """
        kind, children = node.kind, node.children
        if kind in _LITERALS or kind == "CXX_UNARY_EXPR":
            return True
        if kind == "DECL_REF_EXPR":
            usr = node.referenced.get_usr() if node.referenced is not None else ""
            if usr in self._variables:
                variable = self._variables[usr]
                if variable.writes and not (variable.is_shared or variable.is_reference):
                    return False
                return variable.statement is None or variable.is_shared or self._is_place_variable(usr)
            return node.spelling == "threadIdx" or self._has_one_value(node)
        if kind == "MEMBER_REF_EXPR" and children:
            return not _is_pointer(children[0]) and self._is_place(children[0])
        if kind == "ARRAY_SUBSCRIPT_EXPR" and of_memory:
            return self._is_place(children[0], of_memory=True) and self._is_place(children[1])
        if kind == "UNARY_OPERATOR" and node.operator == "&":
            return self._is_place(children[0], of_memory=True)
        if kind == "COMPOUND_ASSIGNMENT_OPERATOR" or node.operator in ("=", "++", "--"):
            return False
        if kind == "UNARY_OPERATOR" and node.operator == "*" and not of_memory:
            return False
        if kind == "UNEXPOSED_EXPR" and _reads(node):
            return False
        return kind in _PLAIN and all(self._is_place(child, of_memory=of_memory) for child in children)

    def _is_place_variable(self, usr: str) -> bool:
        """Whether a variable can be computed anew wherever it is used."""
        variable = self._variables[usr]
        if variable.is_array or variable.initial is None or (variable.writes and not variable.is_reference):
            return False
        if not variable.is_reference and variable.node.canonical.kind.name == "RECORD":
            return False
        return self._is_place(variable.initial, of_memory=variable.is_reference)

    # -- what becomes phases -----------------------------------------------------------------------

    def _start(self, node: Node) -> int:
        """Return where a statement begins, in the text that is compiled."""
        extent = self._unit.expansion(node.cursor)
        if extent is None or extent.file != self._file:
            raise _Uncertain
        return extent.start

    def _braces(self, node: Node) -> tuple[int, int]:
        """Return the places of the braces of a block."""
        extent = self._unit.expansion(node.cursor)
        if extent is None or self._text[extent.start] != "{" or self._text[extent.end - 1] != "}":
            raise _Uncertain
        return extent.start, extent.end - 1

    def _pieces(self, statements: Iterable[Node], begin: int, end: int) -> Iterator[_Piece]:
        """Give the statements between two places, each with its text."""
        known = [(node, self._start(node)) for node in statements]
        done = begin
        for index, (node, start) in enumerate(known):
            limit = known[index + 1][1] if index + 1 < len(known) else end
            if not done <= start < limit:
                raise _Uncertain  # several statements of one macro
            words = [token for token in tokens(self._text[start:limit]) if token.kind != "directive"]
            finish = start + words[-1].start + len(words[-1].text)
            yield _Piece(node, done, start, finish)
            done = finish

    def _finish(self, node: Node) -> int:
        """Return where a statement ends."""
        if node.kind == "COMPOUND_STMT":
            return self._braces(node)[1] + 1
        if node.kind in ("IF_STMT", "FOR_STMT", "WHILE_STMT"):
            return self._finish(node.children[-1])
        start = self._start(node)
        return start + _statement_length(self._text[start:])

    def _block(self, node: Node) -> _Block:
        """Return what a block, or a statement in place of one, becomes."""
        if node.kind == "COMPOUND_STMT":
            start, end = self._braces(node)
            pieces = list(self._pieces(node.children, start + 1, end))
        else:
            start = self._start(node)
            end = self._finish(node)
            pieces = [_Piece(node, start, start, end)]
        items: list[_Run | _Piece | str | list[tuple[int, int, _Block]]] = []
        is_top = node is self._function.block
        run = _Run([], is_top)

        def close(barrier: _Piece | None = None) -> None:
            nonlocal run
            if run.pieces or barrier is not None:
                run.barrier = barrier
                items.append(run)
                self._runs.append(run)
            run = _Run([], is_top)

        for piece in pieces:
            if _is_barrier(piece.node):
                close(piece)
            elif self._is_outside(piece.node):
                if self._may_go_first(piece.node, run):
                    items.append(piece)
                else:
                    close()
                    items.append(piece)
            elif piece.node.kind == "DECL_STMT":  # some of its variables may be the same for all threads
                items += [usr for usr in self._declared(piece.node) if usr in self._outside]
                run.pieces.append(piece)
            elif self._is_around(piece.node):
                close()
                items.append(self._control(piece))
            else:
                self._check(piece.node)
                run.pieces.append(piece)
        close()
        return _Block(items, end, pieces[-1].end if pieces else start + 1)

    def _is_outside(self, node: Node) -> bool:
        """Whether a statement is done once for all threads."""
        if node.kind == "DECL_STMT":
            declared = {c.cursor.get_usr() for c in node.children if c.kind == "VAR_DECL"}
            if not declared or all(self._variables[usr].is_shared for usr in declared):
                return True
            if not declared & self._outside or declared & self._varying:
                return False
            self._add_outside(declared)
            return True
        if node.kind == "IF_STMT" and len(node.children) == 2 and _leaves(node.children[1]):
            if not self._is_same(node.children[0]):
                return False
            self._need(node.children[0])
            return True
        written = set(_written_by(node))
        return bool(written) and written <= self._outside and set(_assigned(node)) == written

    def _may_go_first(self, node: Node, run: _Run) -> bool:
        """Whether what is done once may be done before what threads do before it."""
        if node.kind == "DECL_STMT" or not run.pieces:
            return True
        written = set(_written_by(node))
        return bool(written) and not any(written & self._used(piece.node) for piece in run.pieces)

    def _is_around(self, node: Node) -> bool:
        """Whether phases begin or end within a statement."""
        for inner in node.walk():
            if _is_barrier(inner):
                return True
            written = [usr for usr in _written_by(inner) if usr in self._outside]
            declared = inner.cursor.get_usr() if inner.kind == "VAR_DECL" else ""
            if written or declared in self._outside:
                return True
        return any(self._leaves_for_all(inner, node) for inner in node.walk() if inner.kind == "IF_STMT")

    def _leaves_for_all(self, node: Node, within: Node) -> bool:
        """Whether a condition in a statement ends a loop around that for all threads."""
        if len(node.children) != 2 or not _leaves(node.children[1]) or not self._is_same(node.children[0]):
            return False
        leaving = next(inner for inner in node.children[1].walk() if inner.kind in _LEAVING)
        return leaving.kind != "RETURN_STMT" and self._loop_of(leaving, within) is None

    def _control(self, piece: _Piece) -> list[tuple[int, int, _Block]]:
        """Return a statement around barriers: the text before each block in it, and the block."""
        node, kind = piece.node, piece.node.kind
        children = node.children
        begin = piece.gap
        if kind == "COMPOUND_STMT":
            return [(begin, piece.start, self._block(node))]
        if kind not in (*_LOOPS, "IF_STMT") or not self._text.startswith(_WORDS[kind], piece.start):
            raise _Uncertain
        conditions = self._conditions(node)
        if kind == "FOR_STMT":
            initial, condition, step, body = self._for(node)
            conditions = [part for part in (initial, condition, step) if part is not None]
            for part in conditions:
                self._once(part)
            blocks = [body]
        elif kind == "IF_STMT":
            blocks = list(children[1:])
            if len(children) > 3 or children[0].kind == "DECL_STMT":
                raise _Uncertain
        else:
            blocks = [children[0] if kind == "DO_STMT" else children[-1]]
            if len(children) != 2:
                raise _Uncertain
        for condition in conditions:
            if condition.kind != "DECL_STMT" and not self._is_same(condition):
                raise _Uncertain
            self._need(condition)
        found = []
        for body in blocks:
            assert body is not None
            start = self._start(body)
            inner = self._block(body)
            found.append((begin, start, inner))
            begin = inner.end + (body.kind == "COMPOUND_STMT")
        if begin < piece.end:  # while (...) of a do
            found.append((begin, piece.end, _Block([], -1, -1)))
        return found

    def _loop_of(self, node: Node, within: Node) -> Node | None:
        """Return the loop that a statement belongs to, at most a given one; a ``switch`` counts for ``break``."""
        kinds = {*_LOOPS, "CXX_FOR_RANGE_STMT"} | ({"SWITCH_STMT"} if node.kind != "CONTINUE_STMT" else set())
        while node is not within:
            node = self._parents[id(node)]
            if node.kind in kinds:
                return node
        return None

    def _for(self, node: Node) -> tuple[Node | None, Node | None, Node | None, Node]:
        """Return the parts of a ``for``: some of the first three may be missing."""
        *parts, body = node.children
        start = self._start(node)
        depth, ends = 0, []
        for token in tokens(self._text[start : self._start(body)]):
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if token.text == ";" and depth == 1:
                ends.append(start + token.start)
        if len(ends) != 2:
            raise _Uncertain
        found: list[Node | None] = [None, None, None]
        for part in parts:
            at = self._start(part)
            index = 0 if at <= ends[0] else 1 if at <= ends[1] else 2
            if found[index] is not None:
                raise _Uncertain
            found[index] = part
        return found[0], found[1], found[2], body

    def _once(self, node: Node) -> None:
        """Note what the head of a loop declares and changes: that is done once for all threads."""
        changed = {usr for inner in node.walk() for usr in _written_by(inner)}
        changed |= {inner.cursor.get_usr() for inner in node.walk() if inner.kind == "VAR_DECL"}
        if not changed <= self._variables.keys() or changed & self._varying:
            raise _Uncertain
        self._add_outside(changed)

    def _need(self, node: Node) -> None:
        """Note that an expression is computed once for all threads, so that what it takes is, too."""
        used = {usr for usr in self._used(node) if self._variables[usr].statement is not None}
        self._add_outside({usr for usr in used if not self._variables[usr].is_shared})

    def _add_outside(self, variables: set[str]) -> None:
        new = variables - self._outside
        if not new:
            return
        waiting = list(new)
        while waiting:
            usr = waiting.pop()
            if usr in self._varying:
                raise _Uncertain
            self._outside.add(usr)
            variable = self._variables[usr]
            for node in (variable.initial, *variable.writes):
                for other in self._used(node) if node is not None else ():
                    each = self._variables[other]
                    if other not in self._outside and each.statement is not None and not each.is_shared:
                        waiting.append(other)
        raise _Again

    def _used(self, node: Node) -> set[str]:
        """Return the variables in a statement."""
        found = {n.referenced.get_usr() for n in node.walk() if n.kind == "DECL_REF_EXPR" and n.referenced is not None}
        return found & self._variables.keys()

    def _check(self, node: Node) -> None:
        """Check that a statement of a phase does not leave a loop around it."""
        for inner in node.walk():
            if inner.kind in ("BREAK_STMT", "CONTINUE_STMT") and not self._leaves_within(inner, node):
                raise _Uncertain
            if inner.kind == "RETURN_STMT" and self._leaves_within(inner, node):
                raise _Uncertain

    def _leaves_within(self, leaving: Node, node: Node) -> bool:
        if leaving is node:
            return False
        found = self._loop_of(leaving, node)
        return found is not None

    # -- variables from phase to phase -------------------------------------------------------------

    def _place_variables(self) -> None:
        """Find out which variables keep their values from phase to phase, and which threads return."""
        self._find_guards()
        places: dict[str, set[int]] = {}
        for index, run in enumerate(self._runs):
            for usr in self._of_run(run) | self._declared_in(run):
                places.setdefault(usr, set()).add(index)
        for usr, found in places.items():
            variable = self._variables[usr]
            is_own = variable.statement is not None and not variable.is_shared
            if len(found) > 1 and is_own and usr not in self._varying | self._outside:
                self._add_outside({usr})
        self._crossing = {
            usr
            for usr, found in places.items()
            if len(found) > 1 and usr not in self._outside
            if self._variables[usr].statement is not None and not self._variables[usr].is_shared
            if not self._is_place_variable(usr)
        }
        for run in self._runs:  # a statement declares all or none of them
            for piece in run.pieces:
                declared = self._own_declared(piece.node)
                if any(usr in self._crossing for usr in declared):
                    self._crossing.update(declared)

    def _declared(self, node: Node) -> list[str]:
        if node.kind != "DECL_STMT":
            return []
        return [child.cursor.get_usr() for child in node.children if child.kind == "VAR_DECL"]

    def _own_declared(self, node: Node) -> list[str]:
        """Return the variables that a statement of a phase declares there."""
        declared = self._declared(node)
        return [usr for usr in declared if usr not in self._outside and not self._variables[usr].is_shared]

    def _declared_in(self, run: _Run) -> set[str]:
        return {usr for piece in run.pieces for usr in self._own_declared(piece.node)}

    def _of_run(self, run: _Run) -> set[str]:
        """Return the variables that a phase uses, also those that follow from a thread's place, and what they take."""
        own = self._declared_in(run)
        found = {usr for piece in run.pieces for usr in self._used(piece.node)}
        for node in self._guards_of(run):
            found |= self._used(node)
        waiting = list(found)
        while waiting:
            usr = waiting.pop()
            initial = self._variables[usr].initial
            is_anew = usr not in own and usr not in self._outside and self._is_place_variable(usr)
            if is_anew and self._variables[usr].statement is not None and initial is not None:
                new = self._used(initial) - found
                found |= new
                waiting += new
        return found

    def _find_guards(self) -> None:
        """Find out where threads return, and whether their places say so."""
        self._guards = []
        for index, run in enumerate(self._runs):
            for piece in run.pieces:
                returns = [node for node in piece.node.walk() if node.kind == "RETURN_STMT"]
                if not returns or (run.is_top and index == len(self._runs) - 1):
                    continue
                children = piece.node.children
                is_plain = piece.node.kind == "IF_STMT" and len(children) == 2 and _leaves(children[1])
                if is_plain and run.is_top and self._is_place(children[0]):
                    self._guards.append((index, children[0]))
                else:
                    self._is_masked = True

    def _guards_of(self, run: _Run) -> list[Node]:
        index = next(i for i, each in enumerate(self._runs) if each is run)
        return [node for at, node in self._guards if at < index]

    # -- text --------------------------------------------------------------------------------------

    def _of(self, start: int, end: int) -> str:
        """Return a piece of the text."""
        return self._changed(Extent(self._file, start, end, 0)) if start < end else ""

    def _line(self, text: str, indent: str) -> str:
        """Return a line that is added."""
        return f"\n{indent}{text}" if self._dialect.indent is not None else f" {' '.join(text.split())} "

    def _written(self, block: _Block) -> str:
        text = "{"
        if self._is_masked:
            indent = self._dialect.indent or ""
            text += self._line(f"{self._dialect.array.format('bool')} is_on_of;", indent)
            text += self._line(f"{self._dialect.piece} {{ is_on_of[{self._dialect.thread}] = true; }}", indent)
        return text + self._of_block(block, 1) + "}"

    def _of_block(self, block: _Block, depth: int) -> str:
        indent = (self._dialect.indent or "") * depth
        parts: list[str] = []
        for item in block.items:
            if isinstance(item, _Run):
                parts.append(self._phase(item, indent))
            elif isinstance(item, str):
                parts.append(self._line(self._declaration(item), indent))
            elif isinstance(item, _Piece):
                parts.append(self._of(item.gap, item.end))
            else:
                for start, end, inner in item:
                    parts.append(self._of(start, end))
                    if inner.end >= 0:
                        parts.append("{" + self._of_block(inner, depth + 1) + "}")
        closing = self._of(block.done, block.end) if self._text[block.end : block.end + 1] == "}" else " "
        return "".join(parts) + closing

    def _phase(self, run: _Run, indent: str) -> str:
        dialect = self._dialect
        word = dialect.piece if run.barrier is None else dialect.phase
        after = "" if run.barrier is None else self._of(run.barrier.gap, run.barrier.start)
        if dialect.indent is not None:
            after = after.rstrip()
        if not run.pieces:
            return (self._line(f"{word} {{}}", indent) if dialect.phase != dialect.piece else "") + after
        inner = indent + (dialect.indent or "")
        text = ""
        own = self._declared_in(run)
        for usr in self._variables:
            if usr in self._crossing & own:
                text += self._line(f"{dialect.array.format(self._type(usr))} {self._array(usr)};", indent)
        text += self._line(f"{word} {{", indent)
        if self._is_masked:
            text += self._line(f"if (!is_on_of[{dialect.thread}]) continue;", inner)
        used = self._of_run(run)
        for usr, variable in self._variables.items():
            if usr not in used | own or variable.statement is None or variable.is_shared or usr in self._outside:
                continue
            if usr in self._crossing:
                text += self._line(f"auto& {variable.name} = {self._array(usr)}[{dialect.thread}];", inner)
            elif usr not in own and self._is_place_variable(usr) and self._is_of_another(usr, run):
                text += self._line(self._declaration(usr), inner)
        for node in self._guards_of(run):
            statement = self._parents[id(node)]
            start = self._start(statement)
            head = self._without_comments(self._of(start, self._start(statement.children[1])))
            text += self._line(f"{head.rstrip()} continue;", inner)
        for piece in run.pieces:
            before = self._of(piece.gap, piece.start)
            if piece.gap == piece.start and dialect.indent is not None:  # it had no braces
                text += self._line(self._statement(piece), inner)
            else:
                text += self._shifted(before + self._statement(piece))
        return text + (self._line("}", indent) if dialect.indent is not None else " }") + after

    def _shifted(self, text: str) -> str:
        """Return lines of a program one level further in."""
        if self._dialect.indent is None:
            return text
        return re.sub(r"\n(?=[ \t]*[^\s#])", "\n" + self._dialect.indent, text)

    def _is_of_another(self, usr: str, run: _Run) -> bool:
        """Whether a variable is declared in a phase, but not within a statement of this one."""
        statement = self._variables[usr].statement
        return not any(inner is statement for piece in run.pieces for inner in piece.node.walk())

    def _array(self, usr: str) -> str:
        name = f"{self._variables[usr].name}_of"
        while re.search(rf"\b{name}\b", self._text):
            name += "_"
        return name

    def _declaration(self, usr: str) -> str:
        """Return the declaration of a variable alone."""
        statement = self._variables[usr].statement
        assert statement is not None
        if len(self._declared(statement)) > 1:
            if self._variables[usr].is_reference or self._variables[usr].is_array:
                raise _Uncertain
            first, last = self._name_of(usr), self._end_of(usr)
            return f"{self._type(usr)} {self._without_comments(self._of(first, last))};"
        start = self._start(statement)
        return self._without_comments(self._of(start, start + _statement_length(self._text[start:])))

    def _without_comments(self, text: str) -> str:
        return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)

    def _name_of(self, usr: str) -> int:
        """Return where a variable's name is written in its declaration."""
        variable = self._variables[usr]
        place = self._unit.name(variable.node.cursor)
        if place is None or place.file != self._file or self._text[place.start : place.end] != variable.name:
            raise _Uncertain
        return place.start

    def _end_of(self, usr: str) -> int:
        """Return where a variable's declarator ends: at a comma or the semicolon."""
        start = self._name_of(usr)
        depth = 0
        for token in tokens(self._text[start:]):
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token.text, 0)
            if depth == 0 and token.text in (",", ";"):
                return start + token.start
        raise _Uncertain

    def _type(self, usr: str) -> str:
        """Return the type of a variable as a text."""
        variable = self._variables[usr]
        assert variable.statement is not None
        others = self._declared(variable.statement)
        first = min(map(self._name_of, others))
        text = self._without_comments(self._of(self._start(variable.statement), first)).strip()
        is_pointer = "POINTER" in variable.node.canonical.kind.name
        if variable.is_reference or re.search(r"\bauto\b|[()&]", text):
            raise _Uncertain
        if len(others) > 1 and (
            "*" in text or any(_is_pointer_or_array(self._variables[other].node) for other in others)
        ):
            raise _Uncertain
        text = re.sub(r"\bregister\b", "", text)
        text = re.sub(r"\*\s*const\s*$", "*", text) if is_pointer else re.sub(r"\b(const|constexpr)\b", "", text)
        if variable.is_array:
            if variable.node.canonical.kind.name != "CONSTANTARRAY":
                raise _Uncertain
            place = self._name_of(usr) + len(variable.name)
            text += self._of(place, self._end_of(usr))
            if "=" in text or "{" in text:
                raise _Uncertain
        return " ".join(text.split())

    def _statement(self, piece: _Piece) -> str:
        """Return a statement of a phase."""
        declared = self._own_declared(piece.node)
        if any(usr in self._crossing for usr in declared):
            return self._with_lines(self._assignments(declared), piece)
        if len(declared) < len(self._declared(piece.node)):
            return self._with_lines(" ".join(self._declaration(usr) for usr in declared), piece)
        parts, done = [], piece.start
        guarded = {id(node) for _, node in self._guards}
        plain = piece.node.kind == "IF_STMT" and id(piece.node.children[0]) in guarded
        for node in piece.node.walk():
            if node.kind == "RETURN_STMT":
                start = self._start(node)
                if not self._text.startswith("return", start):
                    raise _Uncertain
                end = start + _statement_length(self._text[start:])
                leave = "continue;"
                if self._is_masked and not plain:
                    leave = f"{{ is_on_of[{self._dialect.thread}] = false; continue; }}"
                parts += [self._of(done, start), leave]
                done = end
        return "".join(parts) + self._of(done, piece.end)

    def _assignments(self, declared: list[str]) -> str:
        """Return what becomes of a declaration whose variables are in arrays."""
        found = []
        for usr in declared:
            variable = self._variables[usr]
            start, finish = self._name_of(usr), self._end_of(usr)
            rest = self._text[start + len(variable.name) : finish].strip()
            if variable.is_array or not rest:
                continue
            if not rest.startswith("="):
                raise _Uncertain
            found.append(f"{self._of(start, finish).rstrip()};")
        return " ".join(found)

    def _with_lines(self, text: str, piece: _Piece) -> str:
        """Return what stands for a statement, with as many lines where no line may move."""
        lines = self._text.count("\n", piece.start, piece.end) - text.count("\n")
        return text if self._dialect.indent is not None else text + "\n" * lines


_PLACES: Final = ("DECL_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR", "MEMBER_REF_EXPR")
_LEAVING: Final = ("RETURN_STMT", "BREAK_STMT", "CONTINUE_STMT")
_WORDS: Final = {"FOR_STMT": "for", "WHILE_STMT": "while", "DO_STMT": "do", "IF_STMT": "if"}


def _is_barrier(node: Node) -> bool:
    return node.kind == "CALL_EXPR" and node.spelling == "__syncthreads"


def _leaves(node: Node) -> bool:
    """Whether a statement is nothing but the end of a loop or of the kernel."""
    if node.kind == "COMPOUND_STMT" and len(node.children) == 1:
        node = node.children[0]
    return node.kind in _LEAVING


def _is_pointer(node: Node) -> bool:
    return "POINTER" in node.canonical.kind.name


def _is_pointer_or_array(node: Node) -> bool:
    return _is_pointer(node) or "ARRAY" in node.canonical.kind.name


def _reads(node: Node) -> bool:
    """Whether an implicit conversion is that of a place in memory to its value."""
    inner = node.children[-1] if node.children else None
    if inner is None or "ARRAY" in inner.canonical.kind.name:
        return False
    inner = bare(inner)
    return inner.kind == "ARRAY_SUBSCRIPT_EXPR" or (inner.kind == "UNARY_OPERATOR" and inner.operator == "*")


def _is_constant(declared: Any) -> bool:
    """Whether a variable outside functions never changes while a kernel runs."""
    kinds = {child.kind.name for child in declared.get_children()}
    canonical = declared.type.get_canonical()
    while "ARRAY" in canonical.kind.name:
        canonical = canonical.element_type.get_canonical()
    return "CUDACONSTANT_ATTR" in kinds or bool(canonical.is_const_qualified())


def _is_constant_memory(node: Node) -> bool:
    """Whether what is read is memory that never changes while a kernel runs."""
    while node.kind in ("ARRAY_SUBSCRIPT_EXPR", "PAREN_EXPR", "UNEXPOSED_EXPR", "UNARY_OPERATOR") and node.children:
        node = node.children[0]
    declared = node.referenced if node.kind == "DECL_REF_EXPR" else None
    if declared is None:
        return False
    if declared.kind.name == "PARM_DECL":
        canonical = declared.type.get_canonical()
        is_const = canonical.kind.name == "POINTER" and canonical.get_pointee().is_const_qualified()
        return bool(is_const and canonical.is_restrict_qualified())
    return declared.kind.name == "VAR_DECL" and _is_constant(declared) and "FUNCTION" not in _home(declared)


def _home(declared: Any) -> str:
    return str(declared.semantic_parent.kind.name) if declared.semantic_parent is not None else ""


def _target(node: Node) -> str:
    """Return the variable that a place belongs to; "" if it is memory that something points at."""
    while True:
        kind, children = node.kind, node.children
        if kind == "DECL_REF_EXPR":
            return str(node.referenced.get_usr()) if node.referenced is not None else ""
        if kind == "MEMBER_REF_EXPR" and children and not _is_pointer(children[0]):
            node = children[0]
        elif kind == "ARRAY_SUBSCRIPT_EXPR":
            inner = bare(children[0])
            if "ARRAY" not in inner.canonical.kind.name:
                return ""
            node = inner
        elif kind in ("PAREN_EXPR", "UNEXPOSED_EXPR") and children:
            node = children[-1]
        elif kind in ("BINARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR") and node.operator.endswith("=") and children:
            node = children[0]
        else:
            return ""


def _assigned(node: Node) -> list[str]:
    """Return the variable that an assignment, ``++`` or ``--`` changes."""
    kind = node.kind
    is_assignment = (kind == "BINARY_OPERATOR" and node.operator == "=") or kind == "COMPOUND_ASSIGNMENT_OPERATOR"
    if is_assignment or (kind == "UNARY_OPERATOR" and node.operator in ("++", "--")):
        target = _target(node.children[0])
        return [target] if target else []
    return []


def _written_by(node: Node) -> list[str]:
    """Return the variables that a node may give a value, itself and not what is within it."""
    kind = node.kind
    if kind == "UNARY_OPERATOR" and node.operator == "&":
        target = _target(node.children[0])
        return [target] if target else []
    if kind == "VAR_DECL" and "REFERENCE" in node.canonical.kind.name and node.children:
        target = _target(node.children[-1])
        return [target] if target else []
    if kind == "CALL_EXPR":
        # What is passed by value is an implicit conversion of it.
        passed = [each for each in node.arguments if each.kind in _PLACES]
        decayed = [each for each in node.arguments if _is_pointer(each) and each.kind == "UNEXPOSED_EXPR"]
        arrays = [each for each in decayed if each.children and "ARRAY" in each.children[-1].canonical.kind.name]
        return [target for each in (*passed, *arrays) if (target := _target(each))]
    return _assigned(node)


def _statement_length(text: str) -> int:
    """Return the length of the statement that a text begins with, up to its semicolon."""
    depth = 0
    for token in tokens(text):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token.text, 0)
        if depth == 0 and token.text == ";":
            return token.start + 1
    raise _Uncertain
