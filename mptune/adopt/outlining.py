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

from mptune.adopt.accesses import Accesses, object_of
from mptune.adopt.containers import ADDRESSES, held_by, library_class
from mptune.adopt.parsing import FUNCTIONS, Extent, Function, Node, Refusal, SourceFile, TranslationUnit, bare, reached

#: Functions of the C++ library that only compute.
_PURE: Final = re.compile(
    r"min|max|clamp|abs|labs|llabs|a?cosh?|a?sinh?|a?tan2?|a?tanh|f?abs[fl]?|sqrt|cbrt|hypot|exp[2m]?1?|log(2|10|1p|b)?"
    r"|pow|erfc?|[tl]gamma|fma|fmod|fmin|fmax|fdim|floor|ceil|trunc|l?l?round|l?l?rint|nearbyint|remainder|copysign"
    r"|isnan|isinf|isfinite|signbit|ldexp|epsilon|infinity|lowest|__builtin_\w+"
)
#: Threads of a block, by the number of axes, the innermost first.
_BLOCKS: Final = {1: (256,), 2: (32, 8), 3: (32, 4, 2)}
#: Threads that have loops of their own are few: there should be blocks for all processors.
_SMALL_BLOCK: Final = (16,)
_AXES: Final = "xyz"
_PRAGMA: Final = re.compile(r"[ \t]*#[ \t]*pragma[ \t]+omp\b((?:[^\n\\]|\\.|\\\n)*)")
_CLAUSE: Final = re.compile(r"(\w+)\s*(?:\(((?:[^()]|\([^()]*\))*)\))?")
#: What may stand between a directive and its statement.
_BETWEEN: Final = re.compile(r"(?:\s|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/|#(?:[^\n\\]|\\.|\\\n)*)*")
_OPENING: Final = re.compile(r"\{(?:[ \t]*\r?\n)?")
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
#: Clauses that no kernel can follow; directives that mean nothing in a thread, and those that a loop may have.
_REFUSED_CLAUSES: Final = ("lastprivate", "linear", "ordered")
_WITHOUT_EFFECT: Final = re.compile(r"\s*(?:simd|parallel|for|loop)\b.*", re.DOTALL)
_INNER_DIRECTIVES: Final = re.compile(rf"{_WITHOUT_EFFECT.pattern}|\s*atomic(?:\s+update)?\s*", re.DOTALL)
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
#: A member, or a call of one, that can be replaced by a parameter.
_MEMBER: Final = re.compile(r"(?:\w+\s*(?:->|\.)\s*)*\w+(?:\s*\(\s*\))?")
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
    program = _Outliner({source.path: source for unit in units for source in unit.files()})
    has_kernels = any(function.is_kernel for unit in units for function in unit.functions)
    if not has_kernels and any(program.directives.values()):
        for unit in units:
            program.read(unit)
    return program.result()


class _NotSafeError(Exception):
    """A loop cannot be cut out: where, what it does, and the remedy."""


#: Characters, each with where it begins and ends in the file that it was taken from; -1 for no such place.
_Text = list[tuple[str, int, int]]
_Edit = tuple[int, int, _Text]


def _new(text: str, start: int = -1, end: int = -1) -> _Text:
    """Return a text that is not in the file; as a whole, it stands for the piece from start to end."""
    last = len(text) - 1
    return [(each, start if at == 0 else -1, end if at == last else -1) for at, each in enumerate(text)]


def _kept(text: str, start: int, end: int) -> _Text:
    return [(text[at], at, at + 1) for at in range(start, end)]


def _changed(text: str, start: int, end: int, edits: Iterable[_Edit]) -> _Text:
    """Return a piece of a file with the edits that lie within it."""
    found: _Text = []
    for first, last, new in sorted(edits, key=lambda edit: edit[:2]):
        if start <= first and last <= end:
            found += _kept(text, start, first) + new
            start = last
    return found + _kept(text, start, end)


def _text_of(text: _Text) -> str:
    return "".join(character for character, _, _ in text)


def _indented(text: _Text, indent: str) -> _Text:
    """Return lines with another indentation of all of them."""
    lines = _text_of(text).splitlines(keepends=True)
    blanks = [len(line) - len(line.lstrip(" \t")) for line in lines]
    margin = min((blank for line, blank in zip(lines, blanks, strict=True) if line.strip()), default=0)
    found: _Text = []
    at = 0
    for line, blank in zip(lines, blanks, strict=True):
        found += _new(indent if line.strip() else "") + text[at + (margin if line.strip() else blank) : at + len(line)]
        at += len(line)
    return found


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


class _Outliner:
    """Cuts out the loops of a program, file by file."""

    def __init__(self, files: Mapping[Path, SourceFile]) -> None:
        self.files = files
        self.directives = {path: _directives(file) for path, file in files.items()}
        #: The functions of the unit that is read, by clang's name.
        self.functions: dict[str, Function] = {}
        self.accesses = Accesses(self.functions)
        self._edits: dict[Path, list[_Edit]] = {}
        self._refusals: list[Refusal] = []
        self._loops: list[CutLoop] = []
        self._done: set[Extent] = set()

    def result(self) -> Outlined:
        """Return the changed files."""
        files = {path: self.files[path].text for path in self._edits}
        changed = {path: _changed(text, 0, len(text), self._edits[path]) for path, text in files.items()}
        texts = {path: _text_of(each) for path, each in changed.items()}
        places = {path: [(start, end) for _, start, end in each] for path, each in changed.items()}
        return Outlined(texts, places, tuple(self._loops), tuple(self._refusals))

    def read(self, unit: TranslationUnit) -> None:
        """Cut out the loops of a file and of what it includes."""
        self.functions = {function.usr: function for function in unit.functions}
        self.accesses = Accesses(self.functions)
        loops = [loop for function in unit.functions for loop in self._parallel_loops(unit, function)]
        # What a loop calls runs in its threads, and has no kernels itself.
        called = {usr for loop in loops for usr in loop.called}
        cut: list[_Loop] = []
        for loop in loops:
            if loop.function.usr in called or loop.extent in self._done:
                continue
            self._done.add(loop.extent)
            loop.name = self._name(loop.function.name, cut)
            try:
                kernel, launch = loop.texts()
            except _NotSafeError as error:
                extent, what, remedy = error.args
                self._refusals.append(Refusal(extent, what, remedy, loop.function.name, is_loop=True))
                continue
            self._replace(loop, kernel, launch)
            cut.append(loop)
        self._loops += (CutLoop(each.name, dict(each.reduced()), each.scratch(cut)) for each in cut)
        if cut:
            on_device = {usr for each in cut for usr in each.called}
            self._mark_functions(unit, on_device)
            self._mark_arrays(unit, on_device, [each.extent for each in cut])

    def _parallel_loops(self, unit: TranslationUnit, function: Function) -> Iterator[_Loop]:
        """Give the loops of a function that OpenMP has in parallel."""

        def look(node: Node, around: tuple[_Directive, ...]) -> Iterator[_Loop]:
            place = node.extent if node.kind.endswith("_STMT") else None
            directive = self.directives[place.file].get(place.start) if place is not None else None
            if directive is not None and node.kind in _LOOPS and {"for", "loop"} & directive.clauses.keys():
                yield _Loop(self, unit, function, node, (directive, *around))
                return
            for child in node.children:
                yield from look(child, (*around, directive) if directive is not None else around)

        return look(function.block, ())

    def _name(self, function: str, cut: Iterable[_Loop]) -> str:
        stem = re.sub(r"\W+", "_", function).strip("_") + "_loop"
        taken = {loop.kernel for loop in self._loops} | {loop.name for loop in cut}
        names = itertools.chain([stem], (f"{stem}_{number}" for number in itertools.count(2)))
        return next(name for name in names if name not in taken)

    def _edit(self, file: Path, start: int, end: int, text: str, moved: _Text | None = None) -> None:
        """Replace a piece of a file by a moved text and a new one; the same edit twice counts once."""
        new = start, end, (moved or []) + _new(text)
        edits = self._edits.setdefault(file, [])
        if new not in edits:
            edits.append(new)

    def _replace(self, loop: _Loop, kernel: _Text, launch: str) -> None:
        extent, outside = loop.extent, loop.outermost
        source = self.files[extent.file]
        self._edit(extent.file, extent.start, extent.end, launch + "\n" * source.of(extent).count("\n"))
        start = max(source.text.rfind(sign, 0, outside.start) + 1 for sign in "\n{};")
        line = f'\n#line {outside.line} "{outside.file}"\n'
        self._edit(outside.file, start, start, line, _new("\n") + kernel)

    def _mark_functions(self, unit: TranslationUnit, called: set[str]) -> None:
        """Make functions, and the constant arrays that they use, available to the device, too."""
        names = [n for usr in called for n in self.functions[usr].block.walk() if n.kind == "DECL_REF_EXPR"]
        arrays = [n.referenced for n in names if n.referenced is not None and "ARRAY" in n.canonical.kind.name]
        tables = {each.get_usr() for each in arrays}
        for node in unit.top:
            if node.kind == "VAR_DECL" and node.usr in tables and node.extent is not None:
                self._edit(node.extent.file, node.extent.start, node.extent.start, "__constant__ ")
        declared = [node.extent for node in unit.top if node.kind in FUNCTIONS and node.usr in called]
        for extent in (*(self.functions[usr].extent for usr in called), *declared):
            if extent is not None:
                template = _TEMPLATE.match(self.files[extent.file].of(extent))
                at = extent.start + (template.end() if template else 0)
                self._edit(extent.file, at, at, "__host__ __device__ ")

    def _mark_arrays(self, unit: TranslationUnit, on_device: set[str], cut: Sequence[Extent]) -> None:
        """Tell the layer the lengths of arrays outside of the heap."""
        host = [function for usr, function in self.functions.items() if usr not in on_device]
        statements = [(node, node.children) for f in host for node in f.block.walk() if node.kind == "DECL_STMT"]
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
    """The counter of a loop: ``for (type name = first; name sign bound; name += step)``; a step down is negative.

    An unsigned counter that counts down past 0 wraps.
    """

    name: str
    type: str
    usr: str
    first: Node
    sign: str
    bound: Node
    step: str
    is_down: bool
    wraps: bool


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


class _Loop:
    """One parallel loop, which is cut out.

    Args:
        program: whose loop it is.
        unit: the file that is read.
        function: the function with the loop.
        node: the loop.
        directives: the loop's, then those of the parallel regions around it.

    Attributes:
        name: of the kernel.
    """

    def __init__(
        self,
        program: _Outliner,
        unit: TranslationUnit,
        function: Function,
        node: Node,
        directives: Sequence[_Directive],
    ) -> None:
        assert node.extent is not None
        self.function, self.name = function, ""
        self._node, self._place, self._directives = node, node.extent, directives
        self._unit, self._program = unit, program
        self._text_of_file = program.files[self._place.file].text
        self._edits: list[_Edit] = []
        self._captured: dict[tuple[str, ...], _Captured] = {}
        self._counters: set[str] = set()
        #: Names of variables that are declared or used in the loop.
        self._names = {each.spelling for each in node.walk() if each.kind in ("VAR_DECL", "DECL_REF_EXPR")}
        #: The operators of reduced variables, and the arrays that are reduced: each thread adds to them at once.
        self._reductions: dict[str, str] = {}
        self._summed: set[str] = set()
        #: Variables that every thread has for itself, with their types.
        self._own: dict[str, str] = {}

    @property
    def extent(self) -> Extent:
        """All of it, with the directive."""
        end, last = self._place.end, self._node
        while last.kind in _ENDS_WITH_ANOTHER:
            last = last.children[-1]
        if last.kind not in ("COMPOUND_STMT", "NULL_STMT"):  # (clang leaves their semicolon out)
            end = self._text_of_file.find(";", end - 1) + 1
        return Extent(self._place.file, self._directives[0].start, end, self._place.line)

    @property
    def outermost(self) -> Extent:
        """The function, or the class it is in, before which a kernel can stand."""
        cursor, extent = self.function.node.cursor, self.function.extent
        while (cursor := cursor.semantic_parent) is not None and cursor.kind.name in _CLASSES:
            found = self._unit.extent(cursor)
            if found is not None and self.function.extent in found:
                extent = found
        return extent

    @property
    def called(self) -> set[str]:
        """The program's functions that are called in it, also by one another."""
        return {function.usr for function in reached(self._node, self._program.functions)}

    def texts(self) -> tuple[_Text, str]:
        """Return the kernel and its launch.

        Raises:
            _NotSafeError: a kernel cannot do what the loop does.
        """
        if self.function.arguments:
            raise self._unsafe(self._node, "is in a template", "write its function out for the type it is used with")
        for clause in _REFUSED_CLAUSES:
            if any(clause in directive.clauses for directive in self._directives):
                raise self._unsafe(self._node, f"has the clause {clause}", "do without it, after the loop")
        self._find_reductions()
        axes, body = self._nest()
        self._counters = {axis.usr for axis in axes}
        self._check(self._node)
        self._check_jumps(body)
        self._check_directives(body)
        for function in (self._program.functions[usr] for usr in sorted(self.called)):
            self._check(function.block, function)
            self._check_directives(function.block, function)
        self._capture(self._node)
        self._check_shared(body)
        # Threads that have loops of their own are few, for all processors to have some.
        has_loop = len(axes) == 1 and not self._reductions and any(node.kind in _ANY_LOOP for node in body.walk())
        widths = _SMALL_BLOCK if has_loop else _BLOCKS[len(axes)]
        return self._kernel(axes, body, widths), self._launch(axes, widths)

    def reduced(self) -> list[tuple[str, str]]:
        """Return the variables that it reduces and uses, each with its operator."""
        return [(name, sign) for name, sign in self._reductions.items() if name in self._own]

    def scratch(self, cut: Sequence[_Loop]) -> frozenset[str]:
        """Return the parameters that get memory of a variable of the function that nothing but loops names."""
        nodes = list(self.function.block.walk())
        ends = (n for n in nodes if n.kind == "CXX_DELETE_EXPR" or (n.kind == "CALL_EXPR" and n.spelling == "free"))
        harmless = [*(each.extent for each in cut), *(node.extent for node in ends if node.extent is not None)]
        owners = {node.usr for node in nodes if node.kind == "VAR_DECL" and _owns(node)}
        for node in nodes:
            named, place = node.referenced if node.kind == "DECL_REF_EXPR" else None, node.extent
            if named is not None and place is not None and not any(place in extent for extent in harmless):
                owners.discard(named.get_usr())
        return frozenset(each.name for each in self._captured.values() if each.variable in owners)

    def _unsafe(self, node: Node, what: str, remedy: str) -> _NotSafeError:
        return _NotSafeError(node.extent or self.extent, what, remedy)

    def _text(self, node: Node) -> str:
        assert node.extent is not None
        return self._program.files[node.extent.file].of(node.extent)

    def _edited(self, node: Node) -> _Text:
        assert node.extent is not None
        text = self._program.files[node.extent.file].text
        return _changed(text, node.extent.start, node.extent.end, self._edits)

    def _edit(self, extent: Extent | None, text: str) -> None:
        assert extent is not None
        edit = (extent.start, extent.end, _new(text, extent.start, extent.end))
        if edit not in self._edits:
            self._edits.append(edit)

    # -- its counters --------------------------------------------------------------------------------------------------

    def _nest(self) -> tuple[list[_Axis], Node]:
        """Return the counters that become a thread's place, the outermost first, and the body that is left."""
        clause = self._directives[0].clauses.get("collapse", ("1",))[0].strip()
        wanted = min(int(clause) if clause.isdigit() else 1, 1 if self._reductions else len(_BLOCKS))
        axis, body = self._axis(self._node)
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
        by = ""
        is_down = step.operator in ("--", "-=")
        if step.operator in ("++", "--", "+=", "-=") and _is_variable(step.children[0], usr):
            if step.kind == "UNARY_OPERATOR":
                by = "1"
            elif not _refers(step.children[1], usr):
                by = self._text(step.children[1])
        sign = condition.operator
        is_compared = sign in (*_NEGATED, "!=") and _is_variable(condition.children[0], usr)
        is_away = sign in (("<", "<=") if is_down else (">", ">=")) or (sign == "!=" and by != "1")
        if not is_compared or not by or is_away or _refers(bound := condition.children[1], usr):
            raise self._unsafe(node, "does not count up or down to a bound", expected)
        sign = (">" if is_down else "<") if sign == "!=" else sign
        spelled = self._spelled(declared.type).removeprefix("const ")
        wraps = is_down and declared.type.get_canonical().kind.name.startswith("U")
        return _Axis(declared.spelling, spelled, usr, first, sign, bound, by, is_down, wraps), body

    # -- what it uses --------------------------------------------------------------------------------------------------

    def _named(self, clause: str) -> set[str]:
        """Return the variables in a clause of the directives."""
        return {name for directive in self._directives for name in directive.names(clause)}

    def _find_reductions(self) -> None:
        named = [node.cursor for node in self._node.walk() if node.kind == "DECL_REF_EXPR"]
        arrays = {each.spelling for each in named if "ARRAY" in each.type.get_canonical().kind.name}
        for text in (text for directive in self._directives for text in directive.clauses.get("reduction", ())):
            sign, _, names = (part.strip() for part in text.partition(":"))
            if sign not in _REDUCTIONS:
                raise self._unsafe(self._node, f"reduces {names} by {sign}", f"use one of {', '.join(_REDUCTIONS)}")
            for name, section in re.findall(r"(\w+)\s*((?:\[[^\]]*\]\s*)*)", names):
                is_array = bool(section) or name in arrays
                if is_array and sign not in "+-":
                    raise self._unsafe(self._node, f"reduces the array {name} by {sign}", "reduce it by +")
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
        if path[0].kind == "DECL_REF_EXPR" and name in {*self._named("private"), *self._reductions}:
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
            used, captured = self._parameter(path)
            if used.kind == "MEMBER_REF_EXPR" and self._text(used) != captured.name:
                self._edit_member(used, captured.name)

    def _capture_call(self, node: Node) -> bool:
        """Make parameters of the length or address that a container is asked for."""
        member = node.children[0] if node.kind == "CALL_EXPR" and node.children else None
        for argument in node.arguments if node.kind == "CALL_EXPR" and node.spelling != "operator[]" else ():
            name = library_class(bare(argument).canonical)
            if name in ADDRESSES:
                what = f"passes the std::{name} {self._text(argument)} on"
                raise self._unsafe(node, what, f"pass its address: {self._text(argument)}.{ADDRESSES[name]}()")
        is_of_object = member is not None and member.kind == "MEMBER_REF_EXPR" and len(member.children) == 1
        path = _path(bare(member.children[0])) if is_of_object and member is not None else None
        if path is None or member is None or held_by(path[-1].canonical) is None:
            return False
        if self._is_inside(self._unit.extent(path[0].referenced)):
            return False
        if node.spelling not in ("size", *ADDRESSES.values()):
            raise self._unsafe(node, f"calls {self._text(member)}", "use its elements by [], and size()")
        _, captured = self._parameter(path)
        name = captured.name
        if node.spelling == "size":
            name = self._unused(f"{captured.name}_size")
            size = _Captured(name, f"unsigned long {name}", self._text(node), "", captured.order)
            self._captured.setdefault((*_usrs(path), "size"), size)
        self._edit_member(node, name)
        return True

    def _edit_member(self, node: Node, name: str) -> None:
        if not _MEMBER.fullmatch(self._text(node)):
            raise self._unsafe(node, f"uses {name} in a macro", "write it out")
        self._edit(node.extent, name)

    def _unused(self, name: str, taken: Iterable[str] = ()) -> str:
        """Return a name for a member that no variable in the loop has."""
        while name in taken or name in self._names:
            name += "_"
        return name

    def _is_inside(self, extent: Extent | None) -> bool:
        return extent is not None and extent in self._place

    def _parameter(self, path: Sequence[Node]) -> tuple[Node, _Captured]:
        """Return the part of a path that becomes a parameter, and the parameter.

        A struct is passed as a whole if it holds no container.
        """
        used = 0
        is_within = True
        while is_within:
            node = path[used]
            used += 1
            is_pointer = node.canonical.kind.name == "POINTER"
            struct = node.canonical.get_pointee().get_canonical() if is_pointer else node.canonical
            is_own = struct.kind.name == "RECORD" and self._unit.extent(struct.get_declaration()) is not None
            is_within = used < len(path) and is_own and (is_pointer or bool(_container_in(struct)))
        path = path[:used]
        key = _usrs(path)
        if key not in self._captured:
            name, taken = "_".join(each.spelling for each in path), {each.name for each in self._captured.values()}
            if node.kind == "DECL_REF_EXPR" and name in taken:
                raise self._unsafe(node, f"uses two variables called {name}", "give one of them another name")
            name = name if node.kind == "DECL_REF_EXPR" else self._unused(name, taken)
            order = self._unit.extent(node.referenced)
            assert order is not None
            variable = path[0].referenced.get_usr() if path[0].kind == "DECL_REF_EXPR" else ""
            passed = node.spelling if len(path) == 1 else " ".join(self._text(node).split())
            declared, passed, first = self._declared(node, name, passed)
            self._captured[key] = _Captured(name, declared, passed, variable, order, first)
        return node, self._captured[key]

    def _declared(self, node: Node, name: str, passed: str) -> tuple[str, str, str]:
        """Return a parameter's declaration, the argument for it, and a line that the kernel begins with."""
        type_of_it = node.cursor.type if node.kind == "MEMBER_REF_EXPR" else node.referenced.type
        if "REFERENCE" in type_of_it.get_canonical().kind.name:
            type_of_it = type_of_it.get_canonical().get_pointee()
        canonical, spelled = type_of_it.get_canonical(), self._spelled(type_of_it)
        kind, library = canonical.kind.name, library_class(canonical)
        if kind in _NUMBERS:
            return f"{spelled.removeprefix('const ')} {name}", passed, ""
        if kind == "POINTER" or "ARRAY" in kind:
            spelled = spelled.removesuffix("const")  # (of a pointer itself)
            self._check_element(node, name, canonical.get_pointee() if kind == "POINTER" else canonical.element_type)
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
        declaration = canonical.get_declaration()
        if kind == "RECORD" and not library and self._unit.extent(declaration) is not None:
            if contained := _container_in(canonical):
                remedy = (
                    "name what it uses of that before the loop, or give the struct a function that returns its address"
                )
                raise self._unsafe(node, f"uses {name}, a struct with a std::{contained}", remedy)
            if "lambda" not in canonical.spelling and declaration.semantic_parent.kind.name not in FUNCTIONS:
                return f"{spelled.removeprefix('const ')} {name}", passed, ""
        remedy = "keep its numbers in a std::vector, and what it does in a function"
        raise self._unsafe(node, f"uses {name}, a {type_of_it.spelling}", remedy)

    def _check_element(self, node: Node, name: str, element: Any) -> None:
        element = _within_arrays(element.get_canonical())
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
            if found := self._effect(node, caller):
                raise self._unsafe(node, by + found[0], found[1])

    def _effect(self, node: Node, caller: Function | None) -> tuple[str, str] | None:
        """Return what a statement or an expression does that a kernel cannot do, and the remedy; None for nothing."""
        if node.kind in _EFFECTS and not (caller is not None and node.kind == "RETURN_STMT"):
            return _EFFECTS[node.kind]
        if node.kind == "VAR_DECL" and node.cursor.storage_class.name == "STATIC":
            return f"has the static variable {node.spelling}", "pass it as an argument"
        if node.kind == "VAR_DECL" and library_class(node.canonical):
            return f"makes {node.spelling}, a {node.cursor.type.spelling}", "use numbers and plain arrays in the loop"
        called = node.referenced if node.kind in ("CALL_EXPR", "DECL_REF_EXPR") else None
        if called is None:
            return None
        if node.kind == "DECL_REF_EXPR":
            is_free = caller is not None and called.kind.name == "VAR_DECL"
            extent = self._unit.extent(called) if is_free else None
            is_own = caller is not None and extent is not None and extent in caller.extent
            if not is_free or is_own or called.type.get_canonical().is_const_qualified():
                return None
            return f"uses the variable {called.spelling}", "pass it as an argument"
        member = node.children[0] if node.children else None
        if called.get_usr() in self._program.functions:
            is_of_this = member is not None and member.kind == "MEMBER_REF_EXPR" and not member.children
            if caller is None and is_of_this:
                return f"calls {called.spelling} of its own object", "make it a static function"
        elif called.spelling == "operator()" or called.kind.name in _VARIABLES:
            return "calls a lambda or a pointer to a function", "call a function"
        elif called.kind.name == "CONSTRUCTOR":
            return None
        elif self._unit.extent(called) is not None:
            if called.spelling != "operator=":  # (that of the compiler)
                what = f"calls {called.spelling}, whose body is in another file"
                return what, "define it in this file, or in a header"
        elif not _PURE.fullmatch(node.spelling) and not _is_of_container(node):
            what = f"calls {node.spelling or called.spelling}, which may do more than compute"
            return what, "call it outside of the loop"
        return None

    def _check_jumps(self, node: Node, *, in_loop: bool = False, in_switch: bool = False) -> None:
        """Check that an iteration ends at its end, or goes on with the next."""
        if node.kind == "BREAK_STMT" and not in_loop and not in_switch:
            raise self._unsafe(node, "ends before its last iteration (break)", "let each iteration find out for itself")
        if node.kind == "CONTINUE_STMT" and not in_loop and not self._reductions:
            self._edit(node.extent, "return")
        in_loop, in_switch = in_loop or node.kind in _ANY_LOOP, in_switch or node.kind == "SWITCH_STMT"
        for child in node.children:
            self._check_jumps(child, in_loop=in_loop, in_switch=in_switch)

    def _check_directives(self, body: Node, caller: Function | None = None) -> None:
        """Check the directives of OpenMP in the loop, and take them out; those of a function that it calls stay."""
        assert body.extent is not None
        file = body.extent.file
        source = self._program.files[file]
        allowed, by = (_INNER_DIRECTIVES, "") if caller is None else (_WITHOUT_EFFECT, f"calls {caller.name}, which ")
        for found in _PRAGMA.finditer(source.text, body.extent.start, body.extent.end):
            if not allowed.fullmatch(found[1]):
                line = source.line(source.text.count("\n", 0, found.start()) + 1)
                place = Extent(file, found.start(), found.end(), line)
                raise _NotSafeError(
                    place, f"{by}has #pragma omp {' '.join(found[1].split())} in it", "write it without"
                )
            if caller is None:
                self._edits.append((found.start(), found.end(), _new("\n" * found[0].count("\n"))))
        for node in body.walk() if caller is None else ():
            if _is_write(node) and node.extent is not None:
                directive = self._program.directives[file].get(node.extent.start)
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
        own, shared = self._named("firstprivate"), {key[0] for key in self._captured}
        for node in body.walk():
            for path in filter(None, map(_path, map(bare, self._changed_by(node)))):
                name = path[0].spelling
                if name not in own and path[0].referenced.get_usr() in shared:
                    remedy = f"declare it in the loop or, if it is a sum, say reduction(+:{name})"
                    raise self._unsafe(node, f"writes to {name}, which all iterations share", remedy)

    def _changed_by(self, node: Node) -> Iterator[Node]:
        """Yield what an expression may change: the target of an assignment, or what a function is given to change."""
        if _is_write(node):
            yield node.children[0]
        if node.kind != "CALL_EXPR" or node.referenced is None:
            return
        types = [argument.type.get_canonical().kind.name for argument in node.referenced.get_arguments()]
        arguments = node.arguments[len(node.arguments) - len(types) :]  # (operators have their object before)
        for place, modes in self._program.accesses.called(node.referenced).items():
            if "w" in modes and len(place) == 1 and isinstance(place[0], int):
                given = bare(arguments[place[0]])
                if types[place[0]] == "LVALUEREFERENCE":
                    yield given
                elif given.operator == "&":
                    yield given.children[0]
        function = self._program.functions.get(node.referenced.get_usr())
        if function is not None and node.referenced.kind.name == "CXX_METHOD":
            written = (_path(bare(inner.children[0])) for inner in function.block.walk() if _is_write(inner))
            if any(path is not None and path[0].kind == "MEMBER_REF_EXPR" for path in written):
                yield from filter(None, [object_of(node)])

    # -- its text ------------------------------------------------------------------------------------------------------

    def _parameters(self) -> list[_Captured]:
        return sorted(self._captured.values(), key=lambda each: (each.order, each.name))

    def _kernel(self, axes: Sequence[_Axis], body: Node, widths: Sequence[int]) -> _Text:
        assert body.extent is not None
        inside, first = self._edited(body), body.extent.line
        if body.kind == "COMPOUND_STMT":
            opening = _OPENING.match(_text_of(inside))
            assert opening is not None
            inside, first = inside[opening.end() : -1], first + opening[0].count("\n")
        else:
            inside += _new(";")
        inside = inside[: len(_text_of(inside).rstrip())]
        parameters = [each.declared for each in self._parameters()]
        counters = "".join(
            f"    {axis.type} {axis.name} = {self._index(axis, xyz)};\n"
            for axis, xyz in zip(axes, reversed(_AXES[: len(axes)]), strict=True)
        )
        own = "".join(f"{each.first}\n" for each in self._parameters() if each.first)
        own += "".join(f"    {kind} {name};\n" for name, kind in self._own.items() if name not in self._reductions)
        if self._reductions:
            shared, start, after = self._reducing(widths[0])
            is_left = "continue" in _text_of(inside)
            within = self._compared(axes[0], axes[0].sign, " && ")
            before = f"{shared}{counters}{own}{start}    if ({within}) {'do {' if is_left else '{'}\n"
            after = f"\n    {'} while (false);' if is_left else '}'}\n{after}"
            for name, sign in self.reduced():
                parameters.append(f"{self._own[name]}* {name}_parts")
                parameters += [f"{self._own[name]} {name}_start"] if sign in _STARTED else []
        else:
            outside = (self._compared(axis, _NEGATED[axis.sign], " || ") for axis in axes)
            before, after = f"{counters}    if ({' || '.join(outside)}) return;\n{own}", "\n"
        head = f'#line {self._place.line} "{body.extent.file}"\n'
        head += f"static __global__ void {self.name}({', '.join(parameters)}) {{\n"
        line = f'#line {first} "{body.extent.file}"\n'
        inside = _indented(inside, "        " if self._reductions else "    ")
        return _new(f"{head}{before}{line}") + inside + _new(f"{after}}}")

    def _index(self, axis: _Axis, xyz: str) -> str:
        """Return the value of a counter in a thread."""
        index, start = f"blockIdx.{xyz} * blockDim.{xyz} + threadIdx.{xyz}", _text_of(self._edited(axis.first))
        if start == "0" and axis.step == "1" and not axis.is_down:
            return index
        index = f"({axis.type})({index})"
        step = axis.step if axis.step.isalnum() else f"({axis.step})"
        index = index if step == "1" else f"{step} * {index}"
        before = "" if start == "0" else f"{_bracketed(start)} "
        return f"{before}{'-' if axis.is_down else '+'} {index}".removeprefix("+ ")

    def _compared(self, axis: _Axis, sign: str, joined: str) -> str:
        """Return whether a counter is within its bound, or outside of it."""
        condition = f"{axis.name} {sign} {_bracketed(_text_of(self._edited(axis.bound)))}"
        if axis.wraps:
            first = _bracketed(_text_of(self._edited(axis.first)))
            condition += f"{joined}{axis.name} {'>' if joined == ' || ' else '<='} {first}"
        return condition

    def _reducing(self, threads: int) -> tuple[str, str, str]:
        """Return what a kernel begins with, and what is before and after its body, for blocks to leave their parts."""
        shared = start = keep = fold = leave = ""
        for name, sign in self.reduced():
            neutral, combine = _REDUCTIONS[sign]
            one, other = f"{name}_shared[threadIdx.x]", f"{name}_shared[threadIdx.x + half]"
            shared += f"    __shared__ {self._own[name]} {name}_shared[{threads}];\n"
            start += f"    {self._own[name]} {name} = {neutral.format(a=name)};\n"
            keep += f"    {one} = {name};\n"
            fold += f"            {combine.format(a=one, b=other)}\n"
            leave += f"    if (threadIdx.x == 0) {name}_parts[blockIdx.x] = {name}_shared[0];\n"
        halving = f"    for (unsigned half = {threads // 2}; half > 0; half /= 2) {{\n        __syncthreads();\n"
        fold = f"{halving}        if (threadIdx.x < half) {{\n{fold}        }}\n    }}\n"
        return shared, start, f"{keep}{fold}{leave}"

    def _launch(self, axes: Sequence[_Axis], widths: Sequence[int]) -> str:
        """Return the launch as the host's code, on one line."""
        counts, grid = [], []
        for axis, xyz, width in zip(reversed(axes), _AXES, widths, strict=False):
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
        shape = f"dim3({', '.join(grid)}), dim3({', '.join(map(str, widths))})"
        if len(axes) == 1:
            shape = f"{grid[0]}, {widths[0]}"
        launch = f"{self.name}<<<{shape}>>>({', '.join(given)});"
        positive = " && ".join(f"mptune_{xyz} > 0" for xyz in _AXES[: len(axes)])
        return f"{{ const long long {', '.join(counts)}; if ({positive}) {{{before} {launch}{after} }} }}"


# -- nodes -----------------------------------------------------------------------------------------


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


def _within_arrays(canonical: Any) -> Any:
    """Return the type of the elements of arrays of arrays."""
    while "ARRAY" in canonical.kind.name:
        canonical = canonical.element_type.get_canonical()
    return canonical


def _is_array(canonical: Any) -> bool:
    """Whether a variable is an array of numbers itself."""
    if "ARRAY" not in canonical.kind.name:
        return library_class(canonical) == "array"
    return _within_arrays(canonical).kind.name in _NUMBERS


def _bracketed(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else f"({text})"
