"""Parallel loops of plain C++ as kernels: each ``omp parallel for`` becomes a kernel that its function launches.

The result is the text of a CUDA program, and everything else takes it for one. Lines keep their numbers by ``#line``.
Arrays of the host are passed by their addresses; the layer knows their lengths
(``files/layer/mptune_layer/host_memory.cpp``). The pragma vouches for the independence of the iterations. In a program
with kernels, the loops of OpenMP stay with the host.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mptune.adopt.containers import ADDRESSES, held_by, library_class
from mptune.adopt.parsing import FUNCTIONS, Extent, Function, Node, Refusal, SourceFile, TranslationUnit, bare

#: Functions of the C++ library that only compute; besides those of :data:`mptune.adopt.number_types.MATH`.
_PURE: Final = re.compile(
    r"min|max|clamp|abs|labs|llabs|a?cosh?|a?sinh?|a?tan2?|a?tanh|f?abs[fl]?|sqrt|cbrt|hypot|exp[2m]?1?|log(2|10|1p|b)?"
    r"|pow|erfc?|[tl]gamma|fma|fmod|fmin|fmax|fdim|floor|ceil|trunc|l?l?round|l?l?rint|nearbyint|remainder|copysign"
    r"|isnan|isinf|isfinite|signbit|ldexp|epsilon|infinity|lowest|__builtin_\w+"
)
#: Threads of a block, by the number of axes, the innermost first.
_BLOCKS: Final = {1: (256,), 2: (32, 8), 3: (32, 4, 2)}
_AXES: Final = "xyz"
_PRAGMA: Final = re.compile(r"[ \t]*#[ \t]*pragma[ \t]+omp\b((?:[^\n\\]|\\.|\\\n)*)")
_CLAUSE: Final = re.compile(r"(\w+)\s*(?:\(((?:[^()]|\([^()]*\))*)\))?")
#: What may stand between a directive and its statement.
_BETWEEN: Final = re.compile(r"(?:\s|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/|#(?:[^\n\\]|\\.|\\\n)*)*")
_LOOPS: Final = ("FOR_STMT", "CXX_FOR_RANGE_STMT")
_ANY_LOOP: Final = (*_LOOPS, "WHILE_STMT", "DO_STMT")
_ENDS_WITH_ANOTHER: Final = (*_LOOPS, "WHILE_STMT", "IF_STMT", "SWITCH_STMT")
_VARIABLES: Final = ("VAR_DECL", "PARM_DECL", "FIELD_DECL")
_CLASSES: Final = ("STRUCT_DECL", "CLASS_DECL")
_INTEGERS: Final = ("INT", "UINT", "LONG", "ULONG", "LONGLONG", "ULONGLONG", "SHORT", "USHORT")
_NUMBERS: Final = (*_INTEGERS, "DOUBLE", "FLOAT", "BOOL", "CHAR_S", "SCHAR", "UCHAR", "ENUM")
#: The initial value of a reduction on every thread, and how two results become one.
_REDUCTIONS: Final = {
    "+": ("0", "{a} += {b};"),
    "-": ("0", "{a} += {b};"),
    "*": ("1", "{a} *= {b};"),
    "max": ("{a}_start", "if ({b} > {a}) {a} = {b};"),
    "min": ("{a}_start", "if ({b} < {a}) {a} = {b};"),
}
#: Reductions that every thread begins with the value before the loop.
_STARTED: Final = ("max", "min")
_TEMPLATE: Final = re.compile(r"template\s*<[^{;()]*?>\s*(?=[\w_])")
#: Statements and expressions that no kernel can have: what they do, and the remedy.
_EFFECTS: Final = {
    "RETURN_STMT": ("returns from the function", "let the loop end"),
    "GOTO_STMT": ("jumps (goto)", "let the loop end"),
    "CXX_NEW_EXPR": ("allocates memory", "do that outside of the loop"),
    "CXX_DELETE_EXPR": ("frees memory", "do that outside of the loop"),
    "CXX_THROW_EXPR": ("throws an exception", "do that outside of the loop"),
    "CXX_TRY_STMT": ("catches exceptions", "do that outside of the loop"),
    "LAMBDA_EXPR": ("has a lambda", "make it a function"),
    "CXX_FOR_RANGE_STMT": ("has a loop without a counter", "count with an index"),
}
_NEGATED: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
#: An expression that needs no parentheses beside a comparison.
_PLAIN: Final = re.compile(r"[\w\s.+\-*/()\[\]]+")
_ALLOCATES: Final = ("malloc", "calloc", "aligned_alloc")


@dataclass(frozen=True, slots=True)
class CutLoop:
    """A loop that became a kernel.

    Attributes:
        kernel: its name.
        reduced: the operator of each variable that it reduces (``+``).
        scratch: the parameters whose memory nothing but loops uses: no answer of the program.
    """

    kernel: str
    reduced: Mapping[str, str]
    scratch: frozenset[str]


@dataclass(frozen=True, slots=True)
class Outlined:
    """A program whose loops became kernels.

    Attributes:
        texts: the new text of each changed file.
        places: of each character in them, where it begins and ends in the original file; -1 for no such place.
        loops: the loops that became kernels.
        refusals: the loops that stay, each with the reason.
    """

    texts: Mapping[Path, str]
    places: Mapping[Path, Sequence[tuple[int, int]]]
    loops: tuple[CutLoop, ...]
    refusals: tuple[Refusal, ...]


def outlined(units: Sequence[TranslationUnit]) -> Outlined:
    """Cut the parallel loops out of a program's files."""
    files = {source.path: source for unit in units for source in unit.files()}
    has_kernels = any(function.is_kernel for unit in units for function in unit.functions)
    program = _Outliner(files)
    if not has_kernels and any(program.directives.values()):
        for unit in units:
            program.read(unit)
    return program.result()


class _NotSafeError(Exception):
    """A loop cannot be cut out: where, what it does, and the remedy."""


# -- moved text ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Moved:
    """A text, and the place of each of its characters in the file that it was taken from."""

    text: str
    places: list[tuple[int, int]]


_Edit = tuple[int, int, _Moved]


def _new(text: str, start: int = -1, end: int = -1) -> _Moved:
    """Return a text that is not in the file; as a whole, it stands for the piece from start to end."""
    places = [(-1, -1)] * len(text)
    if text:
        places[0] = start, places[0][1]
        places[-1] = places[-1][0], end
    return _Moved(text, places)


def _joined(pieces: Iterable[_Moved | str]) -> _Moved:
    moved = [_new(piece) if isinstance(piece, str) else piece for piece in pieces]
    return _Moved("".join(each.text for each in moved), [place for each in moved for place in each.places])


def _changed(text: str, start: int, end: int, edits: Iterable[_Edit]) -> _Moved:
    """Return a piece of a file with the edits that lie within it."""
    pieces: list[_Moved] = []

    def keep(first: int, last: int) -> None:
        pieces.append(_Moved(text[first:last], [(at, at + 1) for at in range(first, last)]))

    at = start
    for first, last, new in sorted(edits, key=lambda edit: edit[:2]):
        if at <= first and last <= end:
            keep(at, first)
            pieces.append(new)
            at = last
    keep(at, end)
    return _joined(pieces)


def _indented(piece: _Moved, indent: str) -> _Moved:
    """Return lines with another indentation of all of them."""
    lines = piece.text.splitlines(keepends=True)
    margin = min((len(line) - len(line.lstrip(" \t")) for line in lines if line.strip()), default=0)
    pieces: list[_Moved] = []
    at = 0
    for line in lines:
        cut = margin if line.strip() else len(line) - len(line.lstrip(" \t"))
        pieces.append(_new(indent if line.strip() else ""))
        pieces.append(_Moved(line[cut:], piece.places[at + cut : at + len(line)]))
        at += len(line)
    return _joined(pieces)


# -- a program -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Directive:
    """The directives of OpenMP before a statement: where they begin, and the arguments of each of their words."""

    start: int
    clauses: dict[str, list[str]] = field(default_factory=dict)

    def names(self, clause: str) -> list[str]:
        """Return the variables in a clause."""
        return [name for text in self.clauses.get(clause, ()) for name in re.findall(r"\w+", text)]


def _directives(file: SourceFile) -> dict[int, _Directive]:
    """Return the directives in a file, by the places of their statements."""
    found: dict[int, _Directive] = {}
    for pragma in _PRAGMA.finditer(file.text):
        after = _BETWEEN.match(file.text, pragma.end())
        directive = found.setdefault(after.end() if after else pragma.end(), _Directive(pragma.start()))
        for clause in _CLAUSE.finditer(re.sub(r"\\\r?\n", " ", pragma[1])):
            directive.clauses.setdefault(clause[1], []).append(clause[2] or "")
    return found


@dataclass(frozen=True, slots=True)
class _Loop:
    """A parallel loop, with the parallel regions around it."""

    unit: TranslationUnit
    function: Function
    node: Node
    directive: _Directive
    around: tuple[_Directive, ...]

    @property
    def extent(self) -> Extent:
        """All of it, with the directive."""
        extent = self.node.extent
        assert extent is not None
        end, last = extent.end, self.node
        while last.kind in _ENDS_WITH_ANOTHER:
            last = last.children[-1]
        if last.kind not in ("COMPOUND_STMT", "NULL_STMT"):  # (clang leaves their semicolon out)
            source = self.unit.source(str(extent.file))
            assert source is not None
            end = source.text.find(";", end - 1) + 1
        return Extent(extent.file, self.directive.start, end, extent.line)

    @property
    def outermost(self) -> Extent:
        """The function, or the class it is in, before which a kernel can stand."""
        cursor, extent = self.function.node.cursor, self.function.extent
        while (cursor := cursor.semantic_parent) is not None and cursor.kind.name in _CLASSES:
            found = self.unit.extent(cursor)
            if found is not None and self.function.extent in found:
                extent = found
        return extent


class _Outliner:
    """Cuts out the loops of a program, file by file."""

    def __init__(self, files: Mapping[Path, SourceFile]) -> None:
        self.directives = {path: _directives(file) for path, file in files.items()}
        self.files = files
        self._edits: dict[Path, list[_Edit]] = {}
        self._refusals: list[Refusal] = []
        self._loops: list[CutLoop] = []
        self._done: set[object] = set()
        self._kernels: set[str] = set()

    def result(self) -> Outlined:
        """Return the changed files."""
        moved = {
            path: _changed(self.files[path].text, 0, len(self.files[path].text), edits)
            for path, edits in self._edits.items()
        }
        texts = {path: each.text for path, each in moved.items()}
        places = {path: each.places for path, each in moved.items()}
        return Outlined(texts, places, tuple(self._loops), tuple(self._refusals))

    def read(self, unit: TranslationUnit) -> None:
        """Cut out the loops of a file and of what it includes."""
        functions = {function.usr: function for function in unit.functions}
        loops = [loop for function in unit.functions for loop in self._parallel_loops(unit, function)]
        # What a loop calls runs in its threads, and has no kernels itself.
        called = {usr for loop in loops for usr in _called(loop.node, functions)}
        cut: list[_Cut] = []
        for loop in loops:
            if loop.function.usr in called or loop.extent in self._done:
                continue
            self._done.add(loop.extent)
            try:
                piece = _Cut(loop, self, functions, self._name(loop.function.name))
                kernel, launch = piece.texts()
            except _NotSafeError as error:
                extent, what, remedy = error.args
                self._refusals.append(Refusal(extent, what, remedy, loop.function.name, is_loop=True))
                continue
            self._kernels.add(piece.name)
            self._replace(loop, kernel, launch)
            cut.append(piece)
        self._loops += (CutLoop(each.name, dict(each.reduced()), each.scratch(cut)) for each in cut)
        if cut:
            on_device = {usr for each in cut for usr in _called(each.loop.node, functions)}
            self._mark_functions(unit, functions, on_device)
            of_host = [function for usr, function in functions.items() if usr not in on_device]
            self._mark_arrays(unit, of_host, [each.loop.extent for each in cut])

    def _parallel_loops(self, unit: TranslationUnit, function: Function) -> Iterator[_Loop]:
        """Give the loops of a function that OpenMP has in parallel."""

        def look(node: Node, around: tuple[_Directive, ...]) -> Iterator[_Loop]:
            place = node.extent if node.kind.endswith("_STMT") else None
            directive = self.directives[place.file].get(place.start) if place is not None else None
            if directive is not None and node.kind in _LOOPS and {"for", "loop"} & directive.clauses.keys():
                yield _Loop(unit, function, node, directive, around)
                return
            for child in node.children:
                yield from look(child, (*around, directive) if directive is not None else around)

        return look(function.block, ())

    def _name(self, function: str) -> str:
        stem = re.sub(r"\W+", "_", function).strip("_") + "_loop"
        names = itertools.chain([stem], (f"{stem}_{number}" for number in itertools.count(2)))
        return next(name for name in names if name not in self._kernels)

    def _edit(self, file: Path, start: int, end: int, text: _Moved | str) -> None:
        """Replace a piece of a file; the same edit twice counts once."""
        new = start, end, _new(text) if isinstance(text, str) else text
        edits = self._edits.setdefault(file, [])
        if new not in edits:
            edits.append(new)

    def _replace(self, loop: _Loop, kernel: _Moved, launch: str) -> None:
        extent, outside = loop.extent, loop.outermost
        source = self.files[extent.file]
        self._edit(extent.file, extent.start, extent.end, launch + "\n" * source.of(extent).count("\n"))
        start = max(source.text.rfind(sign, 0, outside.start) + 1 for sign in "\n{};")
        line = f'\n#line {outside.line} "{outside.file}"\n'
        self._edit(outside.file, start, start, _joined(["\n", kernel, line]))

    def _mark_functions(self, unit: TranslationUnit, functions: Mapping[str, Function], called: set[str]) -> None:
        """Make functions, and the constant arrays that they use, available to the device, too."""
        names = [n for usr in called for n in functions[usr].block.walk() if n.kind == "DECL_REF_EXPR"]
        arrays = [n.referenced for n in names if n.referenced is not None and "ARRAY" in n.canonical.kind.name]
        tables = {each.get_usr() for each in arrays}
        for node in unit.top:
            if node.kind == "VAR_DECL" and node.cursor.get_usr() in tables and node.extent is not None:
                self._edit(node.extent.file, node.extent.start, node.extent.start, "__constant__ ")
        declared = [node.extent for node in unit.top if node.kind in FUNCTIONS and node.cursor.get_usr() in called]
        for extent in (*(functions[usr].extent for usr in called), *declared):
            if extent is not None:
                template = _TEMPLATE.match(self.files[extent.file].of(extent))
                at = extent.start + (template.end() if template else 0)
                self._edit(extent.file, at, at, "__host__ __device__ ")

    def _mark_arrays(self, unit: TranslationUnit, functions: Iterable[Function], cut: Sequence[Extent]) -> None:
        """Tell the layer the lengths of arrays outside of the heap."""
        statements = [(node, node.children) for f in functions for node in f.block.walk() if node.kind == "DECL_STMT"]
        statements += [(node, (node,)) for node in unit.top if node.kind == "VAR_DECL" and node.cursor.is_definition()]
        for statement, variables in statements:
            extent = statement.extent
            if extent is None or any(extent in whole for whole in cut):
                continue
            text = self.files[extent.file].text
            end = extent.end if text[extent.end - 1] == ";" else text.find(";", extent.end) + 1
            for each in (each for each in variables if each.kind == "VAR_DECL" and _is_array(each.canonical)):
                is_static = statement is each or each.cursor.storage_class.name == "STATIC"
                holder = f"host_array mptune_{each.spelling}(&{each.spelling}, sizeof {each.spelling});"
                self._edit(extent.file, end, end, f"{' static' if is_static else ''} ::mptune_layer::{holder}")


# -- a loop ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Axis:
    """The counter of a loop: ``for (type name = first; name sign bound; name += step)``; a step down is negative."""

    name: str
    type: str
    usr: str
    first: Node
    sign: str
    bound: Node
    step: str
    is_down: bool


@dataclass(frozen=True, slots=True)
class _Captured:
    """A variable from outside of a loop, or a member of one: a parameter of the kernel.

    Attributes:
        name: in the kernel.
        declared: the parameter.
        passed: the argument.
        variable: clang's name of the variable.
        order: where it is declared.
        first: a line that the kernel begins with.
    """

    name: str
    declared: str
    passed: str
    variable: str
    order: Extent
    first: str = ""


class _Cut:
    """One loop, cut out.

    Args:
        loop: the loop.
        program: whose loop it is.
        functions: of the file, by clang's name.
        name: of the kernel.
    """

    def __init__(self, loop: _Loop, program: _Outliner, functions: Mapping[str, Function], name: str) -> None:
        self.loop, self.name, self._unit, self._functions = loop, name, loop.unit, functions
        self._files, self._directives = program.files, program.directives[loop.extent.file]
        self._clauses = [loop.directive, *loop.around]
        self._edits: list[_Edit] = []
        self._captured: dict[tuple[str, ...], _Captured] = {}
        self._counters: set[str] = set()
        #: The operators of reduced variables, and the arrays that are reduced: each thread adds to them at once.
        self._reductions: dict[str, str] = {}
        self._summed: set[str] = set()
        #: Variables that every thread has for itself, with their types.
        self._own: dict[str, str] = {}

    def texts(self) -> tuple[_Moved, str]:
        """Return the kernel and its launch.

        Raises:
            _NotSafeError: a kernel cannot do what the loop does.
        """
        loop = self.loop
        if loop.function.arguments:
            raise self._unsafe(loop.node, "is in a template", "write its function out for the type it is used with")
        for clause in ("lastprivate", "linear", "ordered"):
            if any(clause in directive.clauses for directive in self._clauses):
                raise self._unsafe(loop.node, f"has the clause {clause}", "do without it, after the loop")
        self._find_reductions()
        axes, body = self._nest()
        self._counters = {axis.usr for axis in axes}
        self._check(body)
        for usr in sorted(_called(loop.node, self._functions)):
            self._check(self._functions[usr].block, self._functions[usr])
        self._check_jumps(body)
        self._check_directives(body)
        self._capture(loop.node)
        self._check_shared(body)
        return self._kernel(axes, body), self._launch(axes)

    def reduced(self) -> list[tuple[str, str]]:
        """Return the variables that it reduces and uses, each with its operator."""
        return [(name, sign) for name, sign in self._reductions.items() if name in self._own]

    def scratch(self, cut: Sequence[_Cut]) -> frozenset[str]:
        """Return the parameters that get memory of a variable of the function that nothing but loops names."""
        nodes = list(self.loop.function.block.walk())
        ends = (n for n in nodes if n.kind == "CXX_DELETE_EXPR" or (n.kind == "CALL_EXPR" and n.spelling == "free"))
        harmless = [*(each.loop.extent for each in cut), *(node.extent for node in ends if node.extent is not None)]
        owners = {node.cursor.get_usr() for node in nodes if node.kind == "VAR_DECL" and _owns(node)}
        named: dict[str, list[Extent]] = {}
        for node in nodes:
            if node.kind == "DECL_REF_EXPR" and node.referenced is not None and node.extent is not None:
                named.setdefault(node.referenced.get_usr(), []).append(node.extent)
        return frozenset(
            each.name
            for each in self._captured.values()
            if each.variable in owners
            and all(any(place in extent for extent in harmless) for place in named.get(each.variable, ()))
        )

    def _unsafe(self, node: Node, what: str, remedy: str) -> _NotSafeError:
        return _NotSafeError(node.extent or self.loop.extent, what, remedy)

    def _text(self, node: Node) -> str:
        assert node.extent is not None
        return self._files[node.extent.file].of(node.extent)

    def _edited(self, node: Node) -> _Moved:
        assert node.extent is not None
        return _changed(self._files[node.extent.file].text, node.extent.start, node.extent.end, self._edits)

    def _edit(self, extent: Extent | None, text: str) -> None:
        assert extent is not None
        edit = (extent.start, extent.end, _new(text, extent.start, extent.end))
        if edit not in self._edits:
            self._edits.append(edit)

    # -- its counters --------------------------------------------------------------------------------------------------

    def _nest(self) -> tuple[list[_Axis], Node]:
        """Return the counters that become a thread's place, the outermost first, and the body that is left."""
        clause = self.loop.directive.clauses.get("collapse", ("1",))[0].strip()
        wanted = min(int(clause) if clause.isdigit() else 1, 1 if self._reductions else len(_BLOCKS))
        axis, body = self._axis(self.loop.node)
        axes = [axis]
        while len(axes) < wanted:
            inner = body.children[0] if body.kind == "COMPOUND_STMT" and len(body.children) == 1 else body
            axis, inside = self._axis(inner)
            if any(_refers(node, outer.usr) for outer in axes for node in (axis.first, axis.bound)):
                break
            axes.append(axis)
            body = inside
        return axes, body

    def _axis(self, node: Node) -> tuple[_Axis, Node]:
        """Take a loop apart."""
        expected = "write it as for (int i = a; i < b; i += c)"
        if node.kind != "FOR_STMT" or len(node.children) != 4:
            raise self._unsafe(node, "does not count", expected)
        start, condition, step, body = node.children
        declared: Any = None
        if start.kind == "DECL_STMT" and len(start.children) == 1 and start.children[0].children:
            declared, first = start.children[0].cursor, start.children[0].children[-1]
        elif start.kind == "BINARY_OPERATOR" and start.operator == "=" and bare(start.children[0]).referenced:
            declared, first = bare(start.children[0]).referenced, start.children[1]
        if declared is None or declared.type.get_canonical().kind.name not in _INTEGERS:
            raise self._unsafe(node, "does not count in whole numbers", expected)
        usr = declared.get_usr()
        by, is_down = self._step(step, usr)
        sign = condition.operator if condition.operator in (*_NEGATED, "!=") else ""
        bound = condition.children[-1]
        is_known = bool(sign) and _is_variable(condition.children[0], usr) and not _refers(bound, usr)
        if not is_known or not by or sign in ((">", ">=") if not is_down else ("<", "<=")):
            raise self._unsafe(node, "does not count up or down to a bound", expected)
        sign = (">" if is_down else "<") if sign == "!=" else sign
        spelled = self._spelled(declared.type).removeprefix("const ")
        return _Axis(declared.spelling, spelled, usr, first, sign, bound, by, is_down), body

    def _step(self, node: Node, usr: str) -> tuple[str, bool]:
        """Return by how much a loop counts, and whether down; "" if that is not known."""
        if node.kind == "UNARY_OPERATOR" and node.operator in ("++", "--") and _is_variable(node.children[0], usr):
            return "1", node.operator == "--"
        if node.kind == "COMPOUND_ASSIGNMENT_OPERATOR" and node.operator in ("+=", "-="):
            target, by = node.children
            if _is_variable(target, usr) and not _refers(by, usr):
                return self._text(by), node.operator == "-="
        return "", False

    # -- what it uses --------------------------------------------------------------------------------------------------

    def _find_reductions(self) -> None:
        for text in (text for directive in self._clauses for text in directive.clauses.get("reduction", ())):
            sign, _, names = (part.strip() for part in text.partition(":"))
            if sign not in _REDUCTIONS:
                raise self._unsafe(self.loop.node, f"reduces {names} by {sign}", f"use one of {', '.join(_REDUCTIONS)}")
            named = [node.cursor for node in self.loop.node.walk() if node.kind == "DECL_REF_EXPR"]
            arrays = {each.spelling for each in named if "ARRAY" in each.type.get_canonical().kind.name}
            for name, section in re.findall(r"(\w+)\s*((?:\[[^\]]*\]\s*)*)", names):
                is_array = bool(section) or name in arrays
                if is_array and sign not in "+-":
                    raise self._unsafe(self.loop.node, f"reduces the array {name} by {sign}", "reduce it by +")
                if is_array:
                    self._summed.add(name)
                else:
                    self._reductions[name] = sign

    def _capture(self, node: Node) -> None:
        """Make parameters of the variables and members from outside of the loop that a piece of it uses."""
        if self._capture_call(node):
            return
        path = _path(node)
        if path is None:
            for child in node.children:
                self._capture(child)
            return
        root, name = path[0].referenced, path[0].spelling
        extent, canonical = self._unit.extent(root), root.type.get_canonical()
        if self._is_inside(extent) or root.get_usr() in self._counters:
            return
        private = {each for directive in self._clauses for each in directive.names("private")}
        if path[0].kind == "DECL_REF_EXPR" and name in {*private, *self._reductions}:
            if canonical.kind.name not in _NUMBERS:
                raise self._unsafe(node, f"has the array {name} for each thread", "declare it in the loop")
            self._own[name] = self._spelled(root.type)
        elif extent is None:
            raise self._unsafe(node, f"uses {name} of a library", "compute with the program's own variables")
        elif (
            root.semantic_parent.kind.name not in ("TRANSLATION_UNIT", "NAMESPACE")
            or canonical.kind.name not in _NUMBERS
            or not canonical.is_const_qualified()  # (kernels see such constants, too)
        ):
            used, captured = self._used(path), self._parameter(path)
            if used.kind == "MEMBER_REF_EXPR" and self._text(used) != captured.name:
                self._edit_member(used, captured.name)

    def _capture_call(self, node: Node) -> bool:
        """Make parameters of the length or address that a container is asked for."""
        member = node.children[0] if node.kind == "CALL_EXPR" and node.children else None
        path = _path(bare(member.children[0])) if member is not None and len(member.children) == 1 else None
        for argument in node.arguments if node.kind == "CALL_EXPR" and node.spelling != "operator[]" else ():
            name = library_class(bare(argument).canonical)
            if name in ADDRESSES:
                what = f"passes the std::{name} {self._text(argument)} on"
                raise self._unsafe(node, what, f"pass its address: {self._text(argument)}.{ADDRESSES[name]}()")
        if path is None or member is None or member.kind != "MEMBER_REF_EXPR":
            return False
        if held_by(path[-1].canonical) is None or self._is_inside(self._unit.extent(path[0].referenced)):
            return False
        if node.spelling not in ("size", *ADDRESSES.values()):
            raise self._unsafe(node, f"calls {self._text(member)}", "use its elements by [], and size()")
        captured = self._parameter(path)
        name = captured.name
        if node.spelling == "size":
            name = f"{captured.name}_size"
            size = _Captured(name, f"unsigned long {name}", self._text(node), "", captured.order)
            self._captured.setdefault((*_usrs(path), "size"), size)
        self._edit_member(node, name)
        return True

    def _edit_member(self, node: Node, name: str) -> None:
        text = self._text(node)
        if not re.fullmatch(r"(?:\w+\s*(?:->|\.)\s*)*\w+(?:\s*\(\s*\))?", text):
            raise self._unsafe(node, f"uses {name} in a macro", "write it out")
        self._edit(node.extent, name)

    def _is_inside(self, extent: Extent | None) -> bool:
        whole = self.loop.node.extent
        return extent is not None and whole is not None and extent in whole

    def _used(self, path: Sequence[Node]) -> Node:
        """Return the part of a path that becomes a parameter: a struct as a whole, if it holds no container."""
        for node, following in zip(path, (*path[1:], None), strict=True):
            canonical = node.canonical
            is_pointer = canonical.kind.name == "POINTER"
            struct = canonical.get_pointee().get_canonical() if is_pointer else canonical
            is_own = struct.kind.name == "RECORD" and self._unit.extent(struct.get_declaration()) is not None
            if following is None or not is_own or not (is_pointer or _container_in(struct)):
                return node
        return path[-1]

    def _parameter(self, path: Sequence[Node]) -> _Captured:
        """Return the parameter that stands for a variable, or for a member of one."""
        used = self._used(path)
        path = path[: [node is used for node in path].index(True) + 1]
        key = _usrs(path)
        if key not in self._captured:
            name = "_".join(node.spelling for node in path)
            while any(each.name == name for each in self._captured.values()):
                name += "_"
            order = self._unit.extent(used.referenced)
            assert order is not None
            variable = path[0].referenced.get_usr() if path[0].kind == "DECL_REF_EXPR" else ""
            passed = used.spelling if len(path) == 1 else " ".join(self._text(used).split())
            declared, passed, first = self._declared(used, name, passed)
            self._captured[key] = _Captured(name, declared, passed, variable, order, first)
        return self._captured[key]

    def _declared(self, node: Node, name: str, passed: str) -> tuple[str, str, str]:
        """Return a parameter's declaration, the argument for it, and a line that the kernel begins with."""
        type_of_it = node.cursor.type if node.kind == "MEMBER_REF_EXPR" else node.referenced.type
        if "REFERENCE" in type_of_it.get_canonical().kind.name:
            type_of_it = type_of_it.get_canonical().get_pointee()
        canonical, spelled = type_of_it.get_canonical(), self._spelled(type_of_it)
        kind, library = canonical.kind.name, library_class(canonical)
        declaration = canonical.get_declaration()
        if kind in _NUMBERS:
            return f"{spelled.removeprefix('const ')} {name}", passed, ""
        if kind == "POINTER" or "ARRAY" in kind:
            spelled = spelled.removesuffix("const")  # (of a pointer itself)
            element = (canonical.get_pointee() if kind == "POINTER" else canonical.element_type).get_canonical()
            self._check_element(node, name, element)
            base, star, rows = spelled.partition("(*)") if kind == "POINTER" else spelled.partition("[")
            rows = rows if kind == "POINTER" else rows.partition("]")[2]
            if not star or not rows:
                return f"{spelled if kind == 'POINTER' else base.strip() + '*'} {name}", passed, ""
            # An array of arrays: its numbers, one after the other.
            base = base.strip()
            first = f"    {base} (*{name}){rows} = ({base} (*){rows}){name}_numbers;"
            return f"{base}* {name}_numbers", f"&{passed}[0]{'[0]' * rows.count('[')}", first
        if library in ADDRESSES:
            held = held_by(canonical)
            self._check_element(node, name, held)
            const = "const " if canonical.is_const_qualified() else ""
            element = held.spelling.removeprefix("const ")
            return f"{const}{element}* {name}", f"{passed}.{ADDRESSES[library]}()", ""
        is_own = kind == "RECORD" and not library and self._unit.extent(declaration) is not None
        if is_own and _container_in(canonical):
            remedy = "name what it uses of that before the loop, or give the struct a function that returns its address"
            raise self._unsafe(node, f"uses {name}, a struct with a std::{_container_in(canonical)}", remedy)
        if is_own and "lambda" not in canonical.spelling and declaration.semantic_parent.kind.name not in FUNCTIONS:
            return f"{spelled.removeprefix('const ')} {name}", passed, ""
        remedy = "keep its numbers in a std::vector, and what it does in a function"
        raise self._unsafe(node, f"uses {name}, a {type_of_it.spelling}", remedy)

    def _check_element(self, node: Node, name: str, element: Any) -> None:
        while "ARRAY" in element.kind.name:
            element = element.element_type.get_canonical()
        if element.kind.name == "POINTER" or library_class(element):
            raise self._unsafe(node, f"uses {name}, an array of arrays", "keep the numbers in one array, row after row")

    def _spelled(self, type_of_it: Any) -> str:
        """Return how a type is written where the kernel is: names of functions and classes are unknown there."""
        base = type_of_it
        while base.kind.name in ("POINTER", "LVALUEREFERENCE") or "ARRAY" in base.kind.name:
            base = base.element_type if "ARRAY" in base.kind.name else base.get_pointee()
        parent = base.get_declaration().semantic_parent
        is_hidden = parent is not None and parent.kind.name in (*FUNCTIONS, *_CLASSES)
        spelled = type_of_it.spelling
        if is_hidden or "std::" in spelled:
            spelled = type_of_it.get_canonical().spelling
        return str(spelled.replace(" *", "*"))

    # -- what it does --------------------------------------------------------------------------------------------------

    def _check(self, piece: Node, caller: Function | None = None) -> None:
        """Check that a piece of code does nothing that a kernel cannot do."""
        by = f"calls {caller.name}, which " if caller is not None else ""
        for node in piece.walk():
            if node.kind in _EFFECTS and not (caller is not None and node.kind == "RETURN_STMT"):
                what, remedy = _EFFECTS[node.kind]
                raise self._unsafe(node, by + what, remedy)
            if node.kind == "VAR_DECL" and node.cursor.storage_class.name == "STATIC":
                raise self._unsafe(node, f"{by}has the static variable {node.spelling}", "pass it as an argument")
            if node.kind == "VAR_DECL" and library_class(node.canonical):
                what = f"{by}makes {node.spelling}, a {node.cursor.type.spelling}"
                raise self._unsafe(node, what, "use numbers and plain arrays in the loop")
            if node.kind == "CALL_EXPR" and node.referenced is not None:
                self._check_call(node, by, caller)
            declared = node.referenced if caller is not None and node.kind == "DECL_REF_EXPR" else None
            if caller is not None and declared is not None and declared.kind.name == "VAR_DECL":
                extent = self._unit.extent(declared)
                is_own = extent is not None and extent in caller.extent
                if not is_own and not declared.type.get_canonical().is_const_qualified():
                    raise self._unsafe(node, f"{by}uses the variable {declared.spelling}", "pass it as an argument")

    def _check_call(self, node: Node, by: str, caller: Function | None) -> None:
        called = node.referenced
        if called.get_usr() in self._functions:
            member = node.children[0] if node.children else None
            if caller is None and member is not None and member.kind == "MEMBER_REF_EXPR" and not member.children:
                raise self._unsafe(node, f"calls {called.spelling} of its own object", "make it a static function")
        elif called.spelling == "operator()" or called.kind.name in _VARIABLES:
            raise self._unsafe(node, f"{by}calls a lambda or a pointer to a function", "call a function")
        elif self._unit.extent(called) is not None:
            if called.spelling != "operator=" and called.kind.name != "CONSTRUCTOR":  # (those of the compiler)
                remedy = "define it in this file, or in a header"
                raise self._unsafe(node, f"{by}calls {called.spelling}, whose body is in another file", remedy)
        elif called.kind.name != "CONSTRUCTOR" and not _PURE.fullmatch(node.spelling) and not _is_of_container(node):
            what = f"{by}calls {node.spelling or called.spelling}, which may do more than compute"
            raise self._unsafe(node, what, "call it outside of the loop")

    def _check_jumps(self, node: Node, *, in_loop: bool = False, in_switch: bool = False) -> None:
        """Check that an iteration ends at its end, or goes on with the next."""
        if node.kind == "BREAK_STMT" and not in_loop and not in_switch:
            raise self._unsafe(node, "ends before its last iteration (break)", "let each iteration find out for itself")
        if node.kind == "CONTINUE_STMT" and not in_loop and not self._reductions:
            self._edit(node.extent, "return")
        in_loop, in_switch = in_loop or node.kind in _ANY_LOOP, in_switch or node.kind == "SWITCH_STMT"
        for child in node.children:
            self._check_jumps(child, in_loop=in_loop, in_switch=in_switch)

    def _check_directives(self, body: Node) -> None:
        """Check the directives of OpenMP in the loop, and take them out."""
        extent = body.extent
        assert extent is not None
        source = self._files[extent.file]
        for found in _PRAGMA.finditer(source.text, extent.start, extent.end):
            line = source.line(source.text.count("\n", 0, found.start()) + 1)
            place = Extent(extent.file, found.start(), found.end(), line)
            word = next(iter(found[1].split()), "")
            if word not in ("simd", "parallel", "for", "loop", "atomic"):
                raise _NotSafeError(place, f"has #pragma omp {word} in it", "write it without")
            self._edits.append((found.start(), found.end(), _new("\n" * found[0].count("\n"))))
        for node in body.walk():
            if _is_write(node) and node.extent is not None:
                directive = self._directives.get(node.extent.start)
                is_atomic = directive is not None and "atomic" in directive.clauses
                if is_atomic or _array_of(node.children[0]) in self._summed:
                    self._add_at_once(node)

    def _add_at_once(self, node: Node) -> None:
        """Let a thread add to a number that others add to as well."""
        if node.operator not in ("+=", "-=", "++", "--") or node.extent is None:
            raise self._unsafe(node, "changes a shared number in another way than by adding", "use += or -=")
        target = node.children[0].extent
        assert target is not None
        if node.kind == "UNARY_OPERATOR":
            self._edit(node.extent, f"atomicAdd(&{self._text(node.children[0])}, {node.operator[0]}1)")
            return
        by = node.children[1].extent
        assert by is not None
        minus, closed = (", -(", "))") if node.operator == "-=" else (", ", ")")
        for start, end, text in (
            (target.start, target.start, "atomicAdd(&"),
            (target.end, by.start, minus),
            (node.extent.end, node.extent.end, closed),
        ):
            self._edits.append((start, end, _new(text)))

    def _check_shared(self, body: Node) -> None:
        """Check that no iteration writes to a variable that the kernel has a copy of."""
        own = {name for directive in self._clauses for name in directive.names("firstprivate")}
        shared = {key[0] for key in self._captured}
        for node in body.walk():
            path = _path(bare(node.children[0])) if _is_write(node) else None
            name = path[0].spelling if path is not None else ""
            if path is not None and name not in own and path[0].referenced.get_usr() in shared:
                remedy = f"declare it in the loop or, if it is a sum, say reduction(+:{name})"
                raise self._unsafe(node, f"writes to {name}, which all iterations share", remedy)

    # -- its text ------------------------------------------------------------------------------------------------------

    def _parameters(self) -> list[_Captured]:
        return sorted(self._captured.values(), key=lambda each: (each.order, each.name))

    def _kernel(self, axes: Sequence[_Axis], body: Node) -> _Moved:
        assert body.extent is not None
        assert self.loop.node.extent is not None
        # Threads that have loops of their own are few, for all processors to have some.
        has_loop = len(axes) == 1 and not self._reductions and any(node.kind in _ANY_LOOP for node in body.walk())
        self._widths = (16,) if has_loop else _BLOCKS[len(axes)]
        inside, first = self._edited(body), body.extent.line
        if body.kind == "COMPOUND_STMT":
            blank = re.match(r"\{[ \t]*\r?\n|\{", inside.text)
            assert blank is not None
            first += blank[0].count("\n")
            inside = _Moved(inside.text[blank.end() : -1], inside.places[blank.end() : -1])
        else:
            inside = _joined([inside, ";"])
        end = len(inside.text.rstrip())
        inside = _indented(_Moved(inside.text[:end], inside.places[:end]), "        " if self._reductions else "    ")
        place = f'#line {first} "{body.extent.file}"\n'
        lines = [f"{each.first}\n" for each in self._parameters() if each.first]
        lines += [f"    {kind} {name};\n" for name, kind in self._own.items() if name not in self._reductions]
        indices = [
            f"    {axis.type} {axis.name} = {self._index(axis, xyz)};\n"
            for axis, xyz in zip(axes, reversed(_AXES[: len(axes)]), strict=True)
        ]
        parameters = [each.declared for each in self._parameters()]
        code: list[_Moved | str]
        if self._reductions:
            (axis,) = axes
            condition = f"{axis.name} {axis.sign} {_bracketed(self._edited(axis.bound).text)}"
            more, code = self._reducing([*indices, *lines], condition, [place, inside])
            parameters += more
        else:
            outside = " || ".join(
                f"{axis.name} {_NEGATED[axis.sign]} {_bracketed(self._edited(axis.bound).text)}" for axis in axes
            )
            code = [*indices, f"    if ({outside}) return;\n", *lines, place, inside, "\n"]
        head = f'#line {self.loop.node.extent.line} "{body.extent.file}"\n'
        return _joined([f"{head}static __global__ void {self.name}({', '.join(parameters)}) {{\n", *code, "}"])

    def _index(self, axis: _Axis, xyz: str) -> str:
        """Return the value of a counter in a thread."""
        index, start = f"blockIdx.{xyz} * blockDim.{xyz} + threadIdx.{xyz}", self._edited(axis.first).text
        if start == "0" and axis.step == "1" and not axis.is_down:
            return index
        index = f"({axis.type})({index})"
        index = index if axis.step == "1" else f"{_bracketed(axis.step)} * {index}"
        before = "" if start == "0" else f"{_bracketed(start)} "
        return f"{before}{'-' if axis.is_down else '+'} {index}".removeprefix("+ ")

    def _reducing(
        self, before: Sequence[_Moved | str], condition: str, inside: Sequence[_Moved | str]
    ) -> tuple[list[str], list[_Moved | str]]:
        """Return further parameters, and the body of a kernel whose blocks each leave a part of the result."""
        (threads,) = self._widths
        parameters: list[str] = []
        shared, start, keep, fold, leave = [], [], [], [], []
        for name, sign in self.reduced():
            type_of_it = self._own[name]
            neutral, combine = _REDUCTIONS[sign]
            parameters.append(f"{type_of_it}* {name}_parts")
            if sign in _STARTED:
                parameters.append(f"{type_of_it} {name}_start")
            shared.append(f"    __shared__ {type_of_it} {name}_shared[{threads}];\n")
            start.append(f"    {type_of_it} {name} = {neutral.format(a=name)};\n")
            keep.append(f"    {name}_shared[threadIdx.x] = {name};\n")
            one, other = f"{name}_shared[threadIdx.x]", f"{name}_shared[threadIdx.x + half]"
            fold.append(f"            {combine.format(a=one, b=other)}\n")
            leave.append(f"    if (threadIdx.x == 0) {name}_parts[blockIdx.x] = {name}_shared[0];\n")
        continues = any("continue" in each.text for each in inside if isinstance(each, _Moved))
        opening, closing = ("do {", "} while (false);") if continues else ("{", "}")
        return parameters, [
            *shared,
            *before,
            *start,
            f"    if ({condition}) {opening}\n",
            *inside,
            f"\n    {closing}\n",
            *keep,
            f"    for (unsigned half = {threads // 2}; half > 0; half /= 2) {{\n",
            "        __syncthreads();\n",
            "        if (threadIdx.x < half) {\n",
            *fold,
            "        }\n",
            "    }\n",
            *leave,
        ]

    def _launch(self, axes: Sequence[_Axis]) -> str:
        """Return the launch as the host's code, on one line."""
        counts, grid = [], []
        for axis, xyz, width in zip(reversed(axes), _AXES, self._widths, strict=False):
            low, high = self._text(axis.first), self._text(axis.bound)
            low, high = (high, low) if axis.is_down else (low, high)
            count = f"(long long)({high})" + ("" if low == "0" else f" - (long long)({low})")
            count += " + 1" if axis.sign in ("<=", ">=") else ""
            step = f"(long long)({axis.step})"
            counts.append(f"mptune_{xyz} = " + (count if axis.step == "1" else f"({count} + {step} - 1) / {step}"))
            grid.append(f"(mptune_{xyz} + {width - 1}) / {width}")
        given = [parameter.passed for parameter in self._parameters()]
        before, after = "", ""
        for name, sign in self.reduced():
            type_of_it, room, combine = self._own[name], f"mptune_room_{name}", _REDUCTIONS[sign][1]
            before += (
                f" static {type_of_it}* {name}_parts = nullptr; static long long {room} = 0;"
                f" if ({room} < {grid[0]}) {{ {room} = {grid[0]}; cudaFree({name}_parts);"
                f" cudaMallocManaged(&{name}_parts, {room} * sizeof({type_of_it})); }}"
            )
            given += [f"{name}_parts", *([name] if sign in _STARTED else [])]
            part = combine.format(a=name, b=f"{name}_parts[mptune_i]")
            after += f" for (long long mptune_i = 0; mptune_i < {grid[0]}; ++mptune_i) {part}"
        shape = f"dim3({', '.join(grid)}), dim3({', '.join(map(str, self._widths))})"
        if len(axes) == 1:
            shape = f"{grid[0]}, {self._widths[0]}"
        launch = f"{self.name}<<<{shape}>>>({', '.join(given)});"
        positive = " && ".join(f"mptune_{xyz} > 0" for xyz in _AXES[: len(axes)])
        return f"{{ const long long {', '.join(counts)}; if ({positive}) {{{before} {launch}{after} }} }}"


def _called(node: Node, functions: Mapping[str, Function]) -> set[str]:
    """Return the program's functions that are called in a piece of it, also by one another."""
    found: set[str] = set()
    waiting = [node]
    while waiting:
        for inner in waiting.pop().walk():
            called = inner.referenced if inner.kind in ("CALL_EXPR", "DECL_REF_EXPR") else None
            usr = called.get_usr() if called is not None and called.kind.name in FUNCTIONS else ""
            if usr in functions and usr not in found:
                found.add(usr)
                waiting.append(functions[usr].node)
    return found


def _path(node: Node) -> list[Node] | None:
    """Return a variable and the members of it that an expression names; None for any other expression.

    Members of the object at hand begin without a variable.
    """
    kind = node.referenced.kind.name if node.referenced is not None else ""
    if node.kind == "DECL_REF_EXPR":
        return [node] if kind in _VARIABLES else None
    if node.kind != "MEMBER_REF_EXPR" or kind != "FIELD_DECL":
        return None
    owner = bare(node.children[0]) if node.children else None
    if owner is None or owner.kind == "CXX_THIS_EXPR":
        return [node]
    above = _path(owner)
    return [*above, node] if above is not None else None


def _usrs(path: Sequence[Node]) -> tuple[str, ...]:
    return tuple(node.referenced.get_usr() for node in path)


def _is_variable(node: Node, usr: str) -> bool:
    node = bare(node)
    return node.kind == "DECL_REF_EXPR" and node.referenced is not None and node.referenced.get_usr() == usr


def _refers(node: Node, usr: str) -> bool:
    """Whether an expression has a variable in it."""
    return any(_is_variable(inner, usr) for inner in node.walk())


def _is_write(node: Node) -> bool:
    return node.kind == "COMPOUND_ASSIGNMENT_OPERATOR" or node.operator in ("=", "++", "--")


def _array_of(node: Node) -> str:
    """Return the name of the array that an expression is an element of; "" for any other expression."""
    node, name = bare(node), ""
    while node.kind == "ARRAY_SUBSCRIPT_EXPR" or (node.kind == "CALL_EXPR" and node.spelling == "operator[]"):
        node = bare((node.children if node.kind == "ARRAY_SUBSCRIPT_EXPR" else node.arguments)[0])
        name = node.spelling
    return name


def _is_of_container(node: Node) -> bool:
    """Whether a call asks for an element of a container, or for its length or address."""
    member = node.children[0] if node.children else None
    owner = node.arguments[0] if node.spelling == "operator[]" and node.arguments else None
    if owner is None and member is not None and member.kind == "MEMBER_REF_EXPR" and member.children:
        owner = member.children[0]
    return owner is not None and held_by(bare(owner).canonical) is not None


def _container_in(struct: Any) -> str:
    """Return a class of the C++ library that a struct, or a struct in it, holds; "" for none."""
    for held in struct.get_fields():
        kind = held.type.get_canonical()
        found = library_class(kind) or (_container_in(kind) if kind.kind.name == "RECORD" else "")
        if found:
            return found
    return ""


def _owns(variable: Node) -> bool:
    """Whether the memory of a variable is its own, and goes with it."""
    canonical = variable.canonical
    if variable.cursor.storage_class.name == "STATIC":
        return False
    if canonical.kind.name == "POINTER":
        return any(
            node.kind == "CXX_NEW_EXPR" or (node.kind == "CALL_EXPR" and node.spelling in _ALLOCATES)
            for node in variable.walk()
        )
    return "ARRAY" in canonical.kind.name or library_class(canonical) in ADDRESSES


def _is_array(canonical: Any) -> bool:
    """Whether a variable is an array of numbers itself."""
    if "ARRAY" not in canonical.kind.name:
        return library_class(canonical) == "array"
    while "ARRAY" in canonical.kind.name:
        canonical = canonical.element_type.get_canonical()
    return canonical.kind.name in _NUMBERS


def _bracketed(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else f"({text})"
