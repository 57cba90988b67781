"""Parallel loops of plain C++ as kernels: each is cut out of its function, which launches a kernel in its place.

What comes of it is the text of a CUDA program, so that everything else takes it for one. Lines keep their numbers: what
is inserted stands between ``#line``. Arrays of the host are passed by where they are; how long they are, the layer
knows that the program then runs on (``files/layer/mptune_layer/host_memory.cpp``).

A loop is cut out if OpenMP has it in parallel or the user names it, and if what its iterations do is seen to depend on
nothing but arrays, and numbers that they only read. In a program that has kernels already, OpenMP's loops are left to
the host: they make its data, or check its results.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mptune.adopt.parsing import (
    CASTS,
    FUNCTIONS,
    Edits,
    Extent,
    Function,
    Node,
    ProgramError,
    Refusal,
    SourceFile,
    TranslationUnit,
    bare,
)
from mptune.errors import did_you_mean

#: Threads of a block, by the number of axes, the innermost first.
_BLOCKS: Final = {1: (256,), 2: (32, 8), 3: (32, 4, 2)}
_AXES: Final = "xyz"
_PRAGMA: Final = re.compile(r"[ \t]*#[ \t]*pragma[ \t]+omp\b((?:[^\n\\]|\\.|\\\n)*)")
_CLAUSE: Final = re.compile(r"(\w+)\s*(?:\(((?:[^()]|\([^()]*\))*)\))?")
_LOOPS: Final = ("FOR_STMT", "CXX_FOR_RANGE_STMT")
_ANY_LOOP: Final = (*_LOOPS, "WHILE_STMT", "DO_STMT")
_ENDS_WITH_ANOTHER: Final = (*_LOOPS, "WHILE_STMT", "IF_STMT", "SWITCH_STMT")
_VARIABLES: Final = ("VAR_DECL", "PARM_DECL", "FIELD_DECL")
_CLASSES: Final = ("STRUCT_DECL", "CLASS_DECL")
_INTEGERS: Final = ("INT", "UINT", "LONG", "ULONG", "LONGLONG", "ULONGLONG", "SHORT", "USHORT")
_NUMBERS: Final = (*_INTEGERS, "DOUBLE", "FLOAT", "BOOL", "CHAR_S", "SCHAR", "UCHAR", "ENUM")
#: Classes of the C++ library that hold an array: how its address is asked for.
_ARRAYS: Final = {"vector": ".data()", "array": ".data()", "valarray": "", "unique_ptr": ".get()"}
#: Functions of the C++ library that do nothing but compute; besides those of mathematics.
_PURE: Final = re.compile(
    r"min|max|clamp|abs|labs|llabs|a?cosh?|a?sinh?|a?tan2?|a?tanh|f?abs[fl]?|sqrt|cbrt|hypot|exp[2m]?1?|log(2|10|1p|b)?"
    r"|pow|erfc?|[tl]gamma|fma|fmod|fmin|fmax|fdim|floor|ceil|trunc|l?l?round|l?l?rint|nearbyint|remainder|copysign"
    r"|isnan|isinf|isfinite|signbit|ldexp|__builtin_\w+"
)
#: What a reduction begins with on every thread, and how two results become one.
_REDUCTIONS: Final = {
    "+": ("0", "{a} += {b};"),
    "-": ("0", "{a} += {b};"),
    "*": ("1", "{a} *= {b};"),
    "max": ("{a}_start", "if ({b} > {a}) {a} = {b};"),
    "min": ("{a}_start", "if ({b} < {a}) {a} = {b};"),
    "&&": ("1", "{a} = {a} && {b};"),
    "||": ("0", "{a} = {a} || {b};"),
    "&": ("~0", "{a} &= {b};"),
    "|": ("0", "{a} |= {b};"),
    "^": ("0", "{a} ^= {b};"),
}
#: Those that every thread begins with the value before the loop.
_STARTED: Final = ("max", "min")
_TEMPLATE: Final = re.compile(r"template\s*<[^{;()]*?>\s*(?=[\w_])")
_HIDDEN: Final = {"PRIVATE": "private", "PROTECTED": "protected"}
_JUMPS: Final = {
    "BREAK_STMT": ("ends before its last iteration (break)", "let each iteration find out for itself"),
    "RETURN_STMT": ("returns from the function", "let the loop end"),
    "GOTO_STMT": ("jumps (goto)", "let the loop end"),
}
_EFFECTS: Final = {
    "CXX_NEW_EXPR": "allocates memory",
    "CXX_DELETE_EXPR": "frees memory",
    "CXX_THROW_EXPR": "throws an exception",
    "CXX_TRY_STMT": "catches exceptions",
    "LAMBDA_EXPR": "has a lambda",
    "ASM_STMT": "has inline assembly",
    "MS_ASM_STMT": "has inline assembly",
    "CXX_FOR_RANGE_STMT": "has a loop that does not count",
}
_UPDATES: Final = ("COMPOUND_ASSIGNMENT_OPERATOR", "BINARY_OPERATOR", "UNARY_OPERATOR")
_NEGATED: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!="}
#: An expression that needs no parentheses beside a comparison.
_PLAIN: Final = re.compile(r"[\w\s.+\-*/()\[\]]+")


@dataclass(frozen=True, slots=True)
class CutLoop:
    """A loop that became a kernel.

    Attributes:
        kernel: its name.
        body: what its threads do, in the text that it was cut out of.
        names: by clang's name for a variable from outside the loop, what the kernel calls it.
        reduced: by what the variables are combined that it reduces (``+``), by the kernel's names for them.
    """

    kernel: str
    body: Extent
    names: Mapping[str, str]
    reduced: Mapping[str, str]


def outlined(
    units: Sequence[TranslationUnit], named: Sequence[str] = ()
) -> tuple[dict[Path, str], tuple[Refusal, ...], tuple[CutLoop, ...]]:
    """Cut the parallel loops out of a program.

    Args:
        units: its files.
        named: further loops: a function (its outermost loops), or ``FILE:LINE``.

    Returns:
        The texts of the files that change, why loops stay in their functions, and the loops that do not.

    Raises:
        ProgramError: there is no loop of a name.
    """
    files = {source.path: source for unit in units for source in unit.files()}
    has_kernels = any(function.is_kernel for unit in units for function in unit.functions)
    if not named and (has_kernels or not any(_PRAGMA.search(file.text) for file in files.values())):
        return {}, (), ()
    program = _Outliner(files, named, takes_openmp=not has_kernels)
    for unit in units:
        program.read(unit)
    program.check_names()
    return program.texts(), tuple(program.refusals), tuple(program.loops)


class _NotSafeError(Exception):
    """A loop cannot be cut out: where, what it does, and what to do about it."""

    def __init__(self, extent: Extent, what: str, remedy: str) -> None:
        super().__init__(extent, what, remedy)
        self.extent, self.what, self.remedy = extent, what, remedy


@dataclass(frozen=True, slots=True)
class _Directive:
    """What OpenMP is told of a loop; nothing, of one that the user names."""

    start: int
    #: What each clause says, as often as it is there.
    clauses: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_parallel_loop(self) -> bool:
        return bool(self.clauses.keys() & {"for", "distribute", "loop"})

    def names(self, clause: str) -> list[str]:
        """Return the variables in a clause."""
        return [name for text in self.clauses.get(clause, ()) for name in re.findall(r"\w+", text.rpartition(":")[2])]


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop that is to become a kernel."""

    unit: TranslationUnit
    function: Function
    node: Node
    directive: _Directive
    #: Of parallel regions around it.
    around: tuple[_Directive, ...]

    @property
    def extent(self) -> Extent:
        """With the directive."""
        extent = self.node.extent
        assert extent is not None
        end, last = extent.end, self.node
        while last.kind in _ENDS_WITH_ANOTHER:
            last = last.children[-1]
        if last.kind not in ("COMPOUND_STMT", "NULL_STMT"):  # (others are without their semicolon)
            source = self.unit.source(str(extent.file))
            assert source is not None
            end = source.text.find(";", end - 1) + 1
        return Extent(extent.file, self.directive.start, end, extent.line)


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
    """A variable of the function that a loop uses: a parameter of the kernel.

    Attributes:
        name: in the loop.
        declared: the parameter.
        passed: the argument.
        first: a line that the kernel begins with.
    """

    name: str
    declared: str
    passed: str
    first: str = ""


class _Outliner:
    """Cuts out the loops of a program, file by file.

    Attributes:
        refusals: the loops that stay, and why.
        loops: those that became kernels.
    """

    def __init__(self, files: Mapping[Path, SourceFile], named: Sequence[str], *, takes_openmp: bool) -> None:
        self.refusals: list[Refusal] = []
        self.loops: list[CutLoop] = []
        self._files, self._named, self._takes_openmp = files, named, takes_openmp
        self._edits = Edits(list(files.values()))
        self._done: set[object] = set()
        self._found: set[str] = set()
        self._names: dict[str, None] = {}
        self._kernels: set[str] = set()

    def texts(self) -> dict[Path, str]:
        """Return the files that are changed."""
        return {path: self._edits.file(path) for path in self._edits.changed()}

    def check_names(self) -> None:
        """Raise ProgramError if there is no loop of a name that the user gave."""
        for name in self._named:
            if name not in self._found:
                suggestion = did_you_mean(name, list(self._names))
                expected = "expected a function with a loop, or FILE:LINE of one"
                raise ProgramError(f"no loop {name} in the program; {expected}{suggestion}")

    def read(self, unit: TranslationUnit) -> None:
        """Cut out the loops of a file and of what it includes."""
        functions = {function.usr: function for function in unit.functions}
        loops = [loop for function in unit.functions if not function.is_device for loop in self._loops(unit, function)]
        # What a loop calls runs in its threads, and has no kernels itself.
        called = {usr for loop in loops for usr in _called(loop.node, functions)}
        cut: list[_Loop] = []
        for loop in loops:
            if loop.function.usr in called or loop.extent in self._done:
                continue
            self._done.add(loop.extent)
            try:
                name = self._name(loop.function.name)
                piece = _Cut(loop, self._files, functions, name)
                kernel, launch = piece.texts()
            except _NotSafeError as error:
                self.refusals.append(Refusal(error.extent, error.what, error.remedy, loop.function.name, is_loop=True))
                continue
            self._kernels.add(name)
            self.loops.append(CutLoop(name, piece.body, piece.names, dict(piece.reduced())))
            self._replace(loop, kernel, launch)
            cut.append(loop)
        if cut:
            on_device = {usr for loop in cut for usr in _called(loop.node, functions)}
            self._mark_functions(unit, functions, on_device)
            self._mark_tables(unit, [functions[usr] for usr in on_device])
            of_host = [function for usr, function in functions.items() if usr not in on_device]
            self._mark_arrays(unit, of_host, [loop.extent for loop in cut])

    # -- which loops -------------------------------------------------------------------------------------------------

    def _loops(self, unit: TranslationUnit, function: Function) -> Iterator[_Loop]:
        """Give the outermost loops of a function that are parallel."""

        def look(node: Node, around: tuple[_Directive, ...], depth: int) -> Iterator[_Loop]:
            directive = self._directive(node) if node.kind.endswith("_STMT") else None
            is_loop = node.kind in _LOOPS
            is_named = is_loop and self._is_named(node, function, depth)
            if is_loop and directive is not None and directive.is_parallel_loop and (is_named or self._takes_openmp):
                yield _Loop(unit, function, node, directive, around)
            elif is_named:
                assert node.extent is not None
                yield _Loop(unit, function, node, _Directive(node.extent.start), around)
            else:
                around = (*around, directive) if directive is not None else around
                for child in node.children:
                    yield from look(child, around, depth + (node.kind in _ANY_LOOP))

        yield from look(function.block, (), 0)

    def _is_named(self, node: Node, function: Function, depth: int) -> bool:
        """Whether the user names a loop: by its function, of the outermost ones, or by its place."""
        names = [str(node.extent), *([function.name] if depth == 0 else [])]
        self._names.update(dict.fromkeys(names))
        given = {name if not name.rpartition(":")[0] else f"{Path(name).name}": name for name in self._named}
        found = {given[name] for name in names if name in given}
        self._found |= found
        return bool(found)

    def _directive(self, node: Node) -> _Directive | None:
        """Return the directive of OpenMP that stands before a statement."""
        return _directive(node, self._files)

    def _name(self, function: str) -> str:
        stem = re.sub(r"\W+", "_", function).strip("_")
        name, number = f"{stem}_loop", 2
        while name in self._kernels:
            name, number = f"{stem}_loop_{number}", number + 1
        return name

    # -- the text ----------------------------------------------------------------------------------------------------

    def _replace(self, loop: _Loop, kernel: str, launch: str) -> None:
        source = self._files[loop.extent.file]
        self._edits.replace(loop.extent, launch + "\n" * source.of(loop.extent).count("\n"))
        outside = _outermost(loop)
        start = source.text.rfind("\n", 0, outside.start) + 1
        start = max(start, *(source.text.rfind(sign, start, outside.start) + 1 for sign in "{};"))
        self._edits.insert(outside.file, start, f'\n{kernel}\n#line {outside.line} "{outside.file}"\n')

    def _mark_functions(self, unit: TranslationUnit, functions: Mapping[str, Function], called: set[str]) -> None:
        """Let functions be the device's, too."""
        declared = [node.extent for node in unit.top if node.kind in FUNCTIONS and node.cursor.get_usr() in called]
        for extent in (*(functions[usr].extent for usr in called), *declared):
            if extent is None or ("function", extent) in self._done:
                continue
            self._done.add(("function", extent))
            template = _TEMPLATE.match(self._files[extent.file].of(extent))
            self._edits.insert(extent.file, extent.start + (template.end() if template else 0), "__host__ __device__ ")

    def _mark_tables(self, unit: TranslationUnit, functions: Iterable[Function]) -> None:
        """Let the constant arrays that functions of the device use be the device's."""
        used = {
            node.referenced.get_usr()
            for function in functions
            for node in function.block.walk()
            if node.kind == "DECL_REF_EXPR" and node.referenced is not None and "ARRAY" in node.canonical.kind.name
        }
        for node in unit.top:
            extent = node.extent
            if node.kind != "VAR_DECL" or node.cursor.get_usr() not in used or extent is None:
                continue
            if ("table", extent) not in self._done:
                self._done.add(("table", extent))
                self._edits.insert(extent.file, extent.start, "__constant__ ")

    def _mark_arrays(self, unit: TranslationUnit, functions: Iterable[Function], cut: Sequence[Extent]) -> None:
        """Let the layer know how long arrays are that are no memory of the heap."""
        statements = [(node, node.children) for f in functions for node in f.block.walk() if node.kind == "DECL_STMT"]
        statements += [(node, (node,)) for node in unit.top if node.kind == "VAR_DECL" and node.cursor.is_definition()]
        for statement, variables in statements:
            for each in variables:
                extent = statement.extent
                if each.kind != "VAR_DECL" or not _is_array(each.canonical) or extent is None:
                    continue
                if ("array", each.extent) in self._done or any(extent in whole for whole in cut):
                    continue
                self._done.add(("array", each.extent))
                text = self._files[extent.file].text
                end = extent.end if text[extent.end - 1] == ";" else text.find(";", extent.end) + 1
                is_static = statement is each or each.cursor.storage_class.name == "STATIC"
                self._edits.insert(
                    extent.file,
                    end,
                    f"{' static' if is_static else ''} ::mptune_layer::host_array "
                    f"mptune_{each.spelling}(&{each.spelling}, sizeof {each.spelling});",
                )


class _Cut:
    """One loop, cut out.

    Args:
        loop: which one.
        files: of the program.
        functions: of the file it is in, by clang's name.
        name: of its kernel.

    Attributes:
        body: what a thread does.
        names: by clang's name for a variable from outside, what the kernel calls it.
    """

    def __init__(
        self, loop: _Loop, files: Mapping[Path, SourceFile], functions: Mapping[str, Function], name: str
    ) -> None:
        self._loop, self._unit, self._files, self._functions, self._name = loop, loop.unit, files, functions, name
        self.body = loop.extent
        self.names: dict[str, str] = {}
        self._edits = Edits([files[loop.extent.file]])
        self._captured: dict[str, tuple[Extent, _Captured]] = {}
        self._sizes: dict[str, _Captured] = {}
        self._clauses = [loop.directive, *loop.around]
        self._reductions: dict[str, str] = {}
        self._atomic: list[Extent] = []
        #: Variables that every thread has for itself, and their types.
        self._own: dict[str, str] = {}
        self._inner_counters = {
            found.get_usr() for node in loop.node.walk() if (found := _assigned_counter(node)) is not None
        }

    def texts(self) -> tuple[str, str]:
        """Return the kernel, and its launch.

        Raises:
            _NotSafeError: its iterations may depend on each other, or on what a kernel does not see.
        """
        loop = self._loop
        if loop.function.arguments:
            raise self._unsafe(loop.node, "is in a template", "write its function out for the type it is used with")
        for clause in ("lastprivate", "linear", "ordered"):
            if any(clause in directive.clauses for directive in self._clauses):
                raise self._unsafe(loop.node, f"has the clause {clause}", "do without it, after the loop")
        self._find_reductions()
        axes, body = self._nest()
        assert body.extent is not None
        self.body = body.extent
        self._check_calls(loop.node)
        self._check_jumps([body], is_inner=False)
        self._check_directives(body)
        counters = {axis.usr for axis in axes}
        private = {name for directive in self._clauses for name in directive.names("private")}
        for node in loop.node.walk():
            self._capture(node, counters, private)
        self._check_writes(counters)
        if not loop.directive.clauses:
            self._check_order()
        self._rewrite()
        return self._kernel(axes, body), self._launch(axes)

    def _unsafe(self, node: Node, what: str, remedy: str) -> _NotSafeError:
        return _NotSafeError(node.extent or self._loop.extent, what, remedy)

    # -- its counters ------------------------------------------------------------------------------------------------

    def _nest(self) -> tuple[list[_Axis], Node]:
        """Return the counters that become a thread's place, the outermost first, and the body that is left."""
        wanted = 1
        if "collapse" in self._loop.directive.clauses:
            wanted = int(self._loop.directive.clauses["collapse"][0].strip() or 1)
        axis, body = self._axis(self._loop.node)
        axes = [axis]
        while len(axes) < (1 if self._reductions else len(_BLOCKS)) and (inner := _only_loop(body)) is not None:
            is_told = len(axes) < wanted
            if not is_told and (inner.kind != "FOR_STMT" or len(inner.children) != 4):
                break
            try:
                axis, inside = self._axis(inner)
            except _NotSafeError:
                if is_told:
                    raise
                break
            outer = {each.usr for each in axes}
            if any(_refers(node, outer) for node in (axis.first, axis.bound)) or (
                not is_told and not self._is_parallel(inside, axis)
            ):
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
        counter: Node | None = None
        first: Node | None = None
        if start.kind == "DECL_STMT" and len(start.children) == 1 and start.children[0].children:
            counter, first = start.children[0], start.children[0].children[-1]
            usr, type_of_it = counter.cursor.get_usr(), counter.cursor.type
        elif start.kind == "BINARY_OPERATOR" and start.operator == "=" and _variable(start.children[0]) is not None:
            declared = _variable(start.children[0])
            first, usr, type_of_it = start.children[1], declared.get_usr(), declared.type
        if first is None or type_of_it.get_canonical().kind.name not in _INTEGERS:
            raise self._unsafe(node, "does not count in whole numbers", expected)
        name = counter.spelling if counter is not None else declared.spelling
        sign, bound = self._bound(condition, usr)
        steps, is_down = self._step(step, usr)
        if not sign or not steps or (sign in ("<", "<=") and is_down) or (sign in (">", ">=") and not is_down):
            raise self._unsafe(node, "does not count up or down to a bound", expected)
        spelled = self._spelled(type_of_it).removeprefix("const ")
        if sign == "!=":
            sign = ">" if is_down else "<"
        return _Axis(name, spelled, usr, first, sign, bound, steps, is_down), body

    def _bound(self, condition: Node, usr: str) -> tuple[str, Node]:
        if condition.kind == "BINARY_OPERATOR" and condition.operator in _MIRRORED:
            left, right = condition.children
            for side, other, sign in ((left, right, condition.operator), (right, left, _MIRRORED[condition.operator])):
                if _is_variable(side, usr) and not _refers(other, {usr}):
                    return sign, other
        return "", condition

    def _step(self, node: Node, usr: str) -> tuple[str, bool]:
        """Return how far a loop counts at a time, and whether down; "" if that is not seen."""
        if node.kind == "UNARY_OPERATOR" and node.operator in ("++", "--") and _is_variable(node.children[0], usr):
            return "1", node.operator == "--"
        if node.kind == "COMPOUND_ASSIGNMENT_OPERATOR" and node.operator in ("+=", "-="):
            target, by = node.children
            if _is_variable(target, usr) and not _refers(by, {usr}) and by.extent is not None:
                return self._text(by), node.operator == "-="
        return "", False

    def _is_parallel(self, body: Node, axis: _Axis) -> bool:
        """Whether the iterations of an inner loop are seen to write to different elements, and to read no other's."""
        for node in body.walk():
            called = node.referenced if node.kind == "CALL_EXPR" else None
            is_own = called is not None and called.get_usr() in self._functions
            if is_own and (_reaches(called) or any(map(_is_pointer, node.arguments))):
                return False  # it may write there
        accesses: dict[str, set[str]] = {}
        for place in _elements(body):
            element = _element(place)
            if element is not None:
                accesses.setdefault(element[0], set()).add("".join(self._text(place).split()))
        for place in _written(body, self._functions):
            element = _element(place)
            if element is None:
                if _variable(place) is None:
                    return False
            elif len(accesses.get(element[0], ())) != 1 or not self._counts_by_one(element[1], axis.usr):
                return False
        return True

    def _counts_by_one(self, indices: Sequence[Node], usr: str) -> bool:
        """Whether the last index of an element is a counter plus something else, and no other has the counter in it."""
        added, others, waiting = [], list(indices[:-1]), [indices[-1]]
        while waiting:
            node = bare(waiting.pop())
            declared = _variable(node)
            if node.kind in CASTS:
                waiting.append(node.children[-1])
            elif node.kind == "BINARY_OPERATOR" and node.operator in ("+", "-"):
                waiting.append(node.children[0])
                (waiting if node.operator == "+" else others).append(node.children[1])
            elif declared is not None and declared.get_usr() != usr and self._is_inside(self._unit.extent(declared)):
                value = Node(self._unit, declared).children[-1:]
                if (
                    any(_is_variable(place, declared.get_usr()) for place in _written(self._loop.node, self._functions))
                    or not value
                ):
                    return False
                waiting += value
            else:
                added.append(node)
        having = [term for term in added if _refers(term, {usr})]
        return len(having) == 1 and _is_variable(having[0], usr) and not any(_refers(term, {usr}) for term in others)

    # -- what it uses ------------------------------------------------------------------------------------------------

    def _find_reductions(self) -> None:
        for text in (text for directive in self._clauses for text in directive.clauses.get("reduction", ())):
            sign, _, names = (part.strip() for part in text.partition(":"))
            if sign not in _REDUCTIONS:
                remedy = f"use one of {', '.join(_REDUCTIONS)}"
                raise self._unsafe(self._loop.node, f"reduces {names} by {sign}", remedy)
            if "[" in names:
                remedy = "reduce numbers, or add to its elements with #pragma omp atomic"
                raise self._unsafe(self._loop.node, f"reduces the array {names}", remedy)
            self._reductions |= dict.fromkeys(re.findall(r"\w+", names), sign)

    def reduced(self) -> list[tuple[str, str]]:
        """Return the variables that it reduces, and by what; without those that it does not use."""
        return [(name, sign) for name, sign in self._reductions.items() if name in self._own]

    def _capture(self, node: Node, counters: set[str], private: set[str]) -> None:
        """Note a variable from outside the loop: a parameter of the kernel, or a variable of each thread's own."""
        declared = node.referenced if node.kind in ("DECL_REF_EXPR", "MEMBER_REF_EXPR") else None
        if declared is None or declared.kind.name not in _VARIABLES:
            return
        if node.kind == "MEMBER_REF_EXPR" and node.children and node.children[0].kind != "CXX_THIS_EXPR":
            return
        extent, usr, name = self._unit.extent(declared), declared.get_usr(), declared.spelling
        if usr in counters or usr in self._captured or name in self._own or self._is_inside(extent):
            return
        if extent is None:
            raise self._unsafe(node, f"uses {name} of a library", "compute with the program's own variables")
        canonical = declared.type.get_canonical()
        if name in self._reductions or name in private or usr in self._inner_counters:
            if canonical.kind.name not in _NUMBERS:
                raise self._unsafe(node, f"has the array {name} for each thread", "declare it in the loop")
            self._own[name] = self._spelled(declared.type)
            self.names[usr] = name
            return
        is_outside = declared.semantic_parent.kind.name in ("TRANSLATION_UNIT", "NAMESPACE")
        if canonical.is_const_qualified() and canonical.kind.name in _NUMBERS and is_outside:
            return  # a constant that kernels see, too
        # A member is constant in a function that changes no member.
        is_member = node.kind == "MEMBER_REF_EXPR"
        self.names[usr] = name
        self._captured[usr] = extent, self._parameter(node, name, node.cursor.type if is_member else declared.type)

    def _is_inside(self, extent: Extent | None) -> bool:
        whole = self._loop.node.extent
        return extent is not None and whole is not None and extent in whole

    def _parameter(self, node: Node, name: str, type_of_it: Any) -> _Captured:
        """Return the parameter that stands for a variable."""
        if type_of_it.get_canonical().kind.name in ("LVALUEREFERENCE", "RVALUEREFERENCE"):
            type_of_it = type_of_it.get_canonical().get_pointee()
        canonical, spelled = type_of_it.get_canonical(), self._spelled(type_of_it)
        kind, library = canonical.kind.name, _library_class(canonical)
        if kind in _NUMBERS:
            return _Captured(name, f"{spelled.removeprefix('const ')} {name}", name)
        if kind == "POINTER":
            pointee = canonical.get_pointee().get_canonical()
            if pointee.kind.name in ("FUNCTIONPROTO", "VOID"):
                raise self._unsafe(node, f"uses {name}, which points to no numbers", "point to the type of the numbers")
            self._check_element(node, name, pointee)
            if "(*)" in spelled:
                base, rows = spelled.split("(*)")
                return self._rows(name, base.strip(), rows)
            return _Captured(name, f"{spelled} {name}", name)
        if "ARRAY" in kind:
            self._check_element(node, name, canonical.element_type.get_canonical())
            base, _, dimensions = spelled.partition("[")
            rows = dimensions.partition("]")[2]
            return self._rows(name, base.strip(), rows) if rows else _Captured(name, f"{base.strip()}* {name}", name)
        if library in _ARRAYS:
            element = canonical.get_template_argument_type(0).get_canonical()
            if library == "unique_ptr" and "ARRAY" in element.kind.name:
                element = element.element_type.get_canonical()
            self._check_element(node, name, element, is_packed=library == "vector")
            const = "const " if canonical.is_const_qualified() else ""
            passed = f"&{name}[0]" if library == "valarray" else f"{name}{_ARRAYS[library]}"
            return _Captured(name, f"{const}{element.spelling.removeprefix('const ')}* {name}", passed)
        declaration = canonical.get_declaration()
        if kind == "RECORD" and "lambda" in canonical.spelling:
            raise self._unsafe(node, f"calls the lambda {name}", "make it a function")
        is_own = kind == "RECORD" and not library and self._unit.extent(declaration) is not None
        if is_own and (way := _library_field(canonical)):  # (kernels are given its bytes)
            held, path = way[-1], ".".join(field.spelling for field in way)
            what = f"uses {name}, a struct with the std::{_library_class(held.type.get_canonical())} {path}"
            remedy = f"name what it uses of that before it: auto& {held.spelling} = {name}.{path};"
            if hidden := next((field for field in way if field.access_specifier.name in _HIDDEN), None):
                owner, word = hidden.semantic_parent.spelling, _HIDDEN[hidden.access_specifier.name]
                gives = f"a function that returns {held.spelling}.data()"
                remedy = f"{hidden.spelling} is {word}: give {owner} {gives}, and index that in the loop"
            raise self._unsafe(node, what, remedy)
        if is_own and declaration.semantic_parent.kind.name not in FUNCTIONS:
            return _Captured(name, f"{spelled.removeprefix('const ')} {name}", name)
        raise self._unsafe(node, f"uses {name}, a {type_of_it.spelling}", "keep its numbers in a std::vector")

    def _rows(self, name: str, element: str, rows: str) -> _Captured:
        """Return the parameter that stands for an array of arrays: its numbers, one after the other."""
        first = f"    {element} (*{name}){rows} = ({element} (*){rows}){name}_numbers;"
        return _Captured(name, f"{element}* {name}_numbers", f"&{name}[0]{'[0]' * rows.count('[')}", first)

    def _check_element(self, node: Node, name: str, element: Any, *, is_packed: bool = False) -> None:
        while "ARRAY" in element.kind.name:
            element = element.element_type.get_canonical()
        if element.kind.name == "POINTER" or _library_class(element):
            remedy = "keep the numbers in one array, row after row"
            raise self._unsafe(node, f"uses {name}, an array of arrays", remedy)
        if is_packed and element.kind.name == "BOOL":
            raise self._unsafe(node, f"uses {name}, a std::vector<bool>", "use a std::vector<char>")

    def _spelled(self, type_of_it: Any) -> str:
        """Return how a type is written where the kernel is: names of functions and classes are unknown there."""
        base = type_of_it
        while base.kind.name in ("POINTER", "LVALUEREFERENCE") or "ARRAY" in base.kind.name:
            base = base.element_type if "ARRAY" in base.kind.name else base.get_pointee()
        parent = base.get_declaration().semantic_parent
        is_hidden = parent is not None and (parent.kind.name in FUNCTIONS or parent.kind.name in _CLASSES)
        spelled = type_of_it.spelling
        if is_hidden or "std::" in spelled:
            spelled = type_of_it.get_canonical().spelling
        return str(spelled.replace(" *", "*"))

    # -- what it does ------------------------------------------------------------------------------------------------

    def _check_jumps(self, nodes: Iterable[Node], *, is_inner: bool) -> None:
        """Check that an iteration ends at its end, or goes on with the next."""
        for node in nodes:
            kind = node.kind
            if kind in _JUMPS and (kind != "BREAK_STMT" or not is_inner):
                raise self._unsafe(node, *_JUMPS[kind])
            if kind == "CONTINUE_STMT" and not is_inner and not self._reductions and node.extent is not None:
                self._edits.replace(node.extent, "return")
            self._check_jumps(node.children, is_inner=is_inner or kind in _ANY_LOOP)

    def _check_calls(self, piece: Node, caller: str = "") -> None:
        """Check that nothing is called but what computes; likewise in the functions of the program that are called."""
        by = f"calls {caller}, which " if caller else ""
        for node in piece.walk():
            if node.kind in _EFFECTS and node is not piece:
                raise self._unsafe(node, f"{by}{_EFFECTS[node.kind]}", "do that outside of the loop")
            if node.kind == "VAR_DECL" and node.cursor.storage_class.name == "STATIC":
                raise self._unsafe(node, f"{by}has the static variable {node.spelling}", "pass it as an argument")
            if node.kind == "VAR_DECL" and _library_class(node.canonical):
                what = f"{by}makes {node.spelling}, a {node.cursor.type.spelling}"
                raise self._unsafe(node, what, "use numbers and plain arrays in the loop")
            called = node.referenced if node.kind == "CALL_EXPR" else None
            if called is None or called.get_usr() in self._functions or called.kind.name == "CONSTRUCTOR":
                continue
            if called.spelling == "operator()" or called.kind.name in _VARIABLES:
                raise self._unsafe(node, f"{by}calls a lambda or a pointer to a function", "call a function")
            if self._unit.extent(called) is not None:
                if called.spelling != "operator=":  # that of the compiler
                    remedy = "define it in this file, or in a header"
                    raise self._unsafe(node, f"{by}calls {called.spelling}, whose body is in another file", remedy)
            elif not _PURE.fullmatch(node.spelling) and not _is_of_array(node):
                what = f"{by}calls {node.spelling or called.spelling}, which may do more than compute"
                raise self._unsafe(node, what, "call it outside of the loop")
        for usr in sorted(_called(piece, self._functions)) if not caller else ():
            function = self._functions[usr]
            self._check_calls(function.block, function.name)
            self._check_variables(function)

    def _check_variables(self, function: Function) -> None:
        """Check that a function uses nothing but its arguments and constants."""
        for node in function.block.walk():
            declared = node.referenced if node.kind == "DECL_REF_EXPR" else None
            if declared is None or declared.kind.name != "VAR_DECL":
                continue
            extent, canonical = self._unit.extent(declared), declared.type.get_canonical()
            if (extent is None or extent not in function.extent) and not canonical.is_const_qualified():
                what = f"calls {function.name}, which uses the variable {declared.spelling}"
                raise self._unsafe(node, what, "pass it as an argument")

    def _check_directives(self, body: Node) -> None:
        """Check what OpenMP is told in the loop, and take it out."""
        extent = body.extent
        assert extent is not None
        source = self._files[extent.file]
        for found in _PRAGMA.finditer(source.text, extent.start, extent.end):
            line = source.line(source.text.count("\n", 0, found.start()) + 1)
            place = Extent(extent.file, found.start(), found.end(), line)
            word = next(iter(found[1].split()), "")
            if word not in ("simd", "parallel", "for", "loop", "atomic"):
                raise _NotSafeError(place, f"has #pragma omp {word} in it", "write it without")
            self._edits.replace(place, "\n" * found[0].count("\n"))
        for node in body.walk():
            directive = _directive(node, self._files) if node.kind in _UPDATES else None
            if directive is None or "atomic" not in directive.clauses:
                continue
            if node.operator not in ("+=", "-=") or node.extent is None:
                raise self._unsafe(node, "has an atomic statement that does not add", "use += or -=")
            target, by = node.children
            sign = "-" if node.operator == "-=" else ""
            self._atomic.append(node.extent)
            self._edits.replace(node.extent, f"atomicAdd(&{self._text(target)}, {sign}({self._text(by)}))")

    def _check_writes(self, counters: set[str]) -> None:
        """Check that iterations write to nothing in common."""
        for place in _written(self._loop.node, self._functions):
            declared = _variable(place)
            if declared is not None and declared.get_usr() in self._captured:
                name = declared.spelling
                if bare(place).canonical.kind.name == "RECORD":
                    what = f"changes {name}, or calls a function of it that may, and all iterations share it"
                    raise self._unsafe(place, what, "let that function be const, or declare the variable in the loop")
                remedy = f"declare it in the loop or, if it is a sum, say reduction(+:{name})"
                raise self._unsafe(place, f"writes to {name}, which all iterations share", remedy)
            element = _element(place)
            if element is None or element[0] not in self._captured or self._is_atomic(place):
                continue
            if not any(self._varies(index, counters) for index in element[1]):
                what = f"writes to {' '.join(self._text(place).split())} in every iteration"
                raise self._unsafe(place, what, "write to an element of each iteration's own")

    def _check_order(self) -> None:
        """Check that no iteration of a loop that the user names reads what another one may write."""
        used: dict[str, dict[str, Node]] = {}
        for place in _elements(self._loop.node):
            element = _element(place)
            if element is not None:
                used.setdefault(element[0], {}).setdefault("".join(self._text(place).split()), place)
        for node in self._loop.node.walk():
            called = node.referenced if node.kind == "CALL_EXPR" else None
            if called is not None and called.get_usr() in self._functions and _reaches(called):
                what = f"calls {called.spelling}, by which it may use what another iteration writes"
                raise self._unsafe(node, what, "if it does not, say so with #pragma omp parallel for")
        places = _written(self._loop.node, self._functions)
        for array in {element[0] for place in places if (element := _element(place)) is not None}:
            if len(used.get(array, ())) > 1:
                one, other = list(used[array])[:2]
                what = f"uses {one} and {other}, which may be another iteration's"
                raise self._unsafe(used[array][other], what, "if they are not, say so with #pragma omp parallel for")

    def _is_atomic(self, place: Node) -> bool:
        return place.extent is not None and any(place.extent in update for update in self._atomic)

    def _varies(self, index: Node, counters: set[str]) -> bool:
        """Whether an index depends on the counter, or on what is computed from it."""
        for node in index.walk():
            declared = node.referenced if node.kind in ("DECL_REF_EXPR", "MEMBER_REF_EXPR") else None
            if declared is None:
                continue
            if declared.get_usr() in counters or declared.spelling in self._own:
                return True
            if self._is_inside(self._unit.extent(declared)):
                return True
        return False

    # -- its text ----------------------------------------------------------------------------------------------------

    def _text(self, node: Node) -> str:
        assert node.extent is not None
        return self._files[node.extent.file].of(node.extent)

    def _rewrite(self) -> None:
        """Write members, and arrays of the C++ library, as parameters."""
        for node in self._loop.node.walk():
            if node.extent is None:
                continue
            is_member = node.kind == "MEMBER_REF_EXPR" and node.children and node.children[0].kind == "CXX_THIS_EXPR"
            if is_member and self._text(node).startswith("this"):
                self._edits.replace(node.extent, node.spelling)
            if node.kind != "CALL_EXPR" or node.spelling == "operator[]" or not _is_of_array(node):
                continue
            found = re.fullmatch(r"(?:this\s*->\s*)?(\w+)\s*\.\s*\w+\s*\(\s*\)", self._text(node))
            if found is None:
                raise self._unsafe(node, f"calls {node.spelling} in a macro", "write it out")
            if node.spelling == "size":
                size = f"{found[1]}_size"
                self._sizes[size] = _Captured(size, f"unsigned long {size}", self._text(node))
                self._edits.replace(node.extent, size)
            else:
                self._edits.replace(node.extent, found[1])

    def _kernel(self, axes: Sequence[_Axis], body: Node) -> str:
        assert body.extent is not None
        loop, source = self._loop, self._files[body.extent.file]
        inside, first = self._edits.text(body.extent), body.extent.line
        if body.kind == "COMPOUND_STMT":
            inside = inside[1:-1]
            if blank := re.match(r"[ \t]*\r?\n", inside):
                inside, first = inside[blank.end() :], first + 1
        else:
            inside += ";"
        inside = textwrap.indent(textwrap.dedent(inside.rstrip()), "    ")
        place = f'#line {first} "{source.path}"\n'
        lines = [each.first for each in self._parameters() if each.first]
        lines += [f"    {type_of_it} {name};" for name, type_of_it in self._own.items() if name not in self._reductions]
        indices = []
        for axis, xyz in zip(axes, reversed(_AXES[: len(axes)]), strict=True):
            assert axis.first.extent is not None
            index = f"blockIdx.{xyz} * blockDim.{xyz} + threadIdx.{xyz}"
            start = self._edits.text(axis.first.extent)
            if start != "0" or axis.step != "1" or axis.is_down:
                index = f"({axis.type})({index})"
                index = index if axis.step == "1" else f"{_bracketed(axis.step)} * {index}"
                before = "" if start == "0" else f"{_bracketed(start)} "
                index = f"{before}{'-' if axis.is_down else '+'} {index}".removeprefix("+ ")
            indices.append(f"    {axis.type} {axis.name} = {index};")
        parameters = [parameter.declared for parameter in self._parameters()]
        if self._reductions:
            (axis,) = axes
            condition = f"{axis.name} {axis.sign} {self._bound_text(axis)}"
            more, code = self._reducing([*indices, *lines], condition, place, inside)
            parameters += more
        else:
            outside = " || ".join(f"{axis.name} {_NEGATED[axis.sign]} {self._bound_text(axis)}" for axis in axes)
            code = [*indices, f"    if ({outside}) return;", *lines, f"{place}{inside}"]
        assert loop.node.extent is not None
        head = f'#line {loop.node.extent.line} "{source.path}"'
        return "\n".join((head, f"static __global__ void {self._name}({', '.join(parameters)}) {{", *code, "}"))

    def _bound_text(self, axis: _Axis) -> str:
        assert axis.bound.extent is not None
        return _bracketed(self._edits.text(axis.bound.extent))

    def _reducing(self, before: Sequence[str], condition: str, place: str, inside: str) -> tuple[list[str], list[str]]:
        """Return further parameters, and the body of a kernel whose blocks each leave a part of the result."""
        (threads,) = _BLOCKS[1]
        parameters: list[str] = []
        shared, start, keep, fold, leave = [], [], [], [], []
        for name, sign in self.reduced():
            type_of_it = self._own[name]
            neutral, combine = _REDUCTIONS[sign]
            parameters.append(f"{type_of_it}* {name}_parts")
            if sign in _STARTED:
                parameters.append(f"{type_of_it} {name}_start")
            shared.append(f"    __shared__ {type_of_it} {name}_shared[{threads}];")
            start.append(f"    {type_of_it} {name} = {neutral.format(a=name)};")
            keep.append(f"    {name}_shared[threadIdx.x] = {name};")
            one, other = f"{name}_shared[threadIdx.x]", f"{name}_shared[threadIdx.x + half]"
            fold.append(f"            {combine.format(a=one, b=other)}")
            leave.append(f"    if (threadIdx.x == 0) {name}_parts[blockIdx.x] = {name}_shared[0];")
        body = textwrap.indent(inside, "    ")
        if "continue" in inside:
            body = f"        do {{\n{textwrap.indent(inside, '        ')}\n        }} while (false);"
        return parameters, [
            *shared,
            *before,
            *start,
            f"    if ({condition}) {{",
            f"{place}{body}",
            "    }",
            *keep,
            f"    for (unsigned half = {threads // 2}; half > 0; half /= 2) {{",
            "        __syncthreads();",
            "        if (threadIdx.x < half) {",
            *fold,
            "        }",
            "    }",
            *leave,
        ]

    def _parameters(self) -> list[_Captured]:
        captured = [each for _, each in sorted(self._captured.values(), key=lambda found: found[0])]
        return [*captured, *self._sizes.values()]

    def _launch(self, axes: Sequence[_Axis]) -> str:
        """Return the launch as the host's code, on one line."""
        widths = _BLOCKS[len(axes)]
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
        launch = f"{self._name}<<<{shape}>>>({', '.join(given)});"
        positive = " && ".join(f"mptune_{xyz} > 0" for xyz in _AXES[: len(axes)])
        return f"{{ const long long {', '.join(counts)}; if ({positive}) {{{before} {launch}{after} }} }}"


def _outermost(loop: _Loop) -> Extent:
    """Return the function, or the class it is in, outside of which a kernel can stand."""
    cursor, extent = loop.function.node.cursor, loop.function.extent
    while (cursor := cursor.semantic_parent) is not None and cursor.kind.name in _CLASSES:
        found = loop.unit.extent(cursor)
        if found is not None and loop.function.extent in found:
            extent = found
    return extent


def _directive(node: Node, files: Mapping[Path, SourceFile]) -> _Directive | None:
    """Return the directive of OpenMP that stands before a statement, on lines of its own."""
    if node.extent is None:
        return None
    text, end = files[node.extent.file].text, node.extent.start
    first = text.rfind("\n", 0, end) + 1
    end = first if not text[first:end].strip() else 0
    while end > 0:
        start = text.rfind("\n", 0, end - 1) + 1
        while start > 1 and text[: start - 1].endswith(("\\", "\\\r")):
            start = text.rfind("\n", 0, start - 1) + 1
        line = text[start:end].strip()
        if found := _PRAGMA.match(text, start, end):
            given = re.sub(r"\\\r?\n", " ", found[1])
            clauses: dict[str, list[str]] = {}
            for clause in _CLAUSE.finditer(given):
                clauses.setdefault(clause[1], []).append(clause[2] or "")
            return _Directive(start, clauses)
        if line and not line.startswith(("#", "//")):
            return None
        end = start
    return None


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


def _variable(node: Node) -> Any:
    """Return the declaration of a variable, or of a member of the object at hand; None for any other expression."""
    node = bare(node)
    if node.kind == "MEMBER_REF_EXPR" and node.children and node.children[0].kind != "CXX_THIS_EXPR":
        return None
    declared = node.referenced if node.kind in ("DECL_REF_EXPR", "MEMBER_REF_EXPR") else None
    return declared if declared is not None and declared.kind.name in _VARIABLES else None


def _is_variable(node: Node, usr: str) -> bool:
    declared = _variable(node)
    return declared is not None and declared.get_usr() == usr


def _refers(node: Node, usrs: set[str]) -> bool:
    """Whether an expression has one of some variables in it."""
    return any(inner.referenced is not None and inner.referenced.get_usr() in usrs for inner in node.walk())


def _assigned_counter(node: Node) -> Any:
    """Return the variable that a loop counts with, if it is declared before it."""
    start = node.children[0] if node.kind == "FOR_STMT" and node.children else None
    is_assignment = start is not None and start.kind == "BINARY_OPERATOR" and start.operator == "="
    return _variable(start.children[0]) if start is not None and is_assignment else None


def _only_loop(body: Node) -> Node | None:
    """Return the loop that a body consists of."""
    if body.kind == "COMPOUND_STMT" and len(body.children) == 1:
        body = body.children[0]
    return body if body.kind in _LOOPS else None


def _is_of_array(node: Node) -> bool:
    """Whether a call asks for an element of an array of the C++ library, or for its length or address."""
    if node.spelling == "operator[]":
        return bool(node.arguments) and _library_class(bare(node.arguments[0]).canonical) in _ARRAYS
    if node.spelling not in ("size", "data", "get") or not node.children or not node.children[0].children:
        return False
    return _library_class(bare(node.children[0].children[0]).canonical) in _ARRAYS


def _subscript(node: Node) -> tuple[Node, Node] | None:
    """Return an array and the index of an element of it; of ``*p`` the pointer is both."""
    if node.kind == "ARRAY_SUBSCRIPT_EXPR":
        return node.children[0], node.children[1]
    if node.kind == "CALL_EXPR" and node.spelling == "operator[]" and len(node.arguments) == 2:
        return node.arguments[0], node.arguments[1]
    if node.kind == "UNARY_OPERATOR" and node.operator == "*":
        return node.children[0], node.children[0]
    return None


def _element(node: Node) -> tuple[str, list[Node]] | None:
    """Return the array of an element, by clang's name, and the indices of the element; None for anything else."""
    indices: list[Node] = []
    node = bare(node)
    while (found := _subscript(node)) is not None:
        indices.insert(0, found[1])
        node = bare(found[0])
    if not indices:
        return None
    names = (inner.referenced for inner in node.walk() if inner.kind in ("DECL_REF_EXPR", "MEMBER_REF_EXPR"))
    named = next(names, None)
    return (named.get_usr() if named is not None else "", indices)


def _elements(node: Node) -> Iterator[Node]:
    """Give the elements of arrays that are used in a piece of code, of ``a[i][j]`` the whole."""
    if _subscript(node) is None:
        for child in node.children:
            yield from _elements(child)
        return
    yield node
    while (found := _subscript(node)) is not None:
        yield from _elements(found[1])
        node = bare(found[0])


def _written(node: Node, functions: Mapping[str, Function]) -> Iterator[Node]:
    """Give what is assigned to, or may be, in a piece of code: variables and elements of arrays.

    Args:
        node: the piece.
        functions: of the program, by clang's name.
    """
    for inner in node.walk():
        places: list[Node] = []
        if inner.operator in ("=", "++", "--", "&") or inner.kind == "COMPOUND_ASSIGNMENT_OPERATOR":
            places = [inner.children[0]] if inner.kind != "BINARY_OPERATOR" or inner.operator == "=" else []
        elif inner.kind == "CALL_EXPR" and (called := inner.referenced) is not None:
            parameters, arguments = list(called.get_arguments() or ()), list(inner.arguments)
            if called.kind.name == "CXX_METHOD" and not called.is_static_method():
                arguments = arguments[1:] if len(arguments) > len(parameters) else arguments
                if not called.is_const_method() and not _is_of_array(inner):
                    method = functions.get(called.get_usr())
                    places = [inner.children[0]] if method is None or not _leaves_object(method) else []
            for argument, parameter in zip(arguments, parameters, strict=False):
                kind = parameter.type.get_canonical()
                if kind.kind.name == "LVALUEREFERENCE" and not kind.get_pointee().is_const_qualified():
                    places.append(argument)
        for place in places:
            at = bare(place)
            while at.kind == "MEMBER_REF_EXPR" and at.children and at.children[0].kind != "CXX_THIS_EXPR":
                at = bare(at.children[0])
            yield at


def _leaves_object(method: Function) -> bool:
    """Whether a member function writes to nothing in its object, nor returns a place in it, but behind its pointers."""
    for place in _written(method.block, {}):
        if not _is_behind_pointer(place) and (
            (declared := _variable(place)) is None or declared.kind.name == "FIELD_DECL"
        ):
            return False
    returned = (node.children[0] for node in method.block.walk() if node.kind == "RETURN_STMT" and node.children)
    gives_place = method.node.cursor.result_type.get_canonical().kind.name in ("LVALUEREFERENCE", "POINTER")
    return not gives_place or all(map(_is_behind_pointer, returned))


def _is_behind_pointer(node: Node) -> bool:
    """Whether an expression is an element of what a pointer points at, or points at that itself."""
    found = _subscript(bare(node))
    return bool(bare(found[0] if found is not None else node).canonical.kind.name == "POINTER")


def _reaches(called: Any) -> bool:
    """Whether a function is a member of a struct with pointers, by which it may use any memory."""
    is_method = called.kind.name == "CXX_METHOD" and not called.is_static_method()
    fields = called.semantic_parent.type.get_canonical().get_fields() if is_method else ()
    return any(field.type.get_canonical().kind.name in ("POINTER", "LVALUEREFERENCE") for field in fields)


def _library_field(canonical: Any) -> list[Any]:
    """Return the fields that lead to one of a class of the C++ library, in a struct or structs in it."""
    for held in canonical.get_fields():
        kind = held.type.get_canonical()
        if _library_class(kind):
            return [held]
        if kind.kind.name == "RECORD" and (way := _library_field(kind)):
            return [held, *way]
    return []


def _is_pointer(node: Node) -> bool:
    return node.canonical.kind.name in ("POINTER", "LVALUEREFERENCE") or "ARRAY" in node.canonical.kind.name


def _is_array(canonical: Any) -> bool:
    """Whether a variable is an array of numbers itself."""
    if "ARRAY" not in canonical.kind.name:
        return _library_class(canonical) == "array"
    while "ARRAY" in canonical.kind.name:
        canonical = canonical.element_type.get_canonical()
    return canonical.kind.name in _NUMBERS


def _library_class(canonical: Any) -> str:
    """Return the class of the C++ library that a type is; "" for any other type."""
    if canonical.kind.name != "RECORD":
        return ""
    declaration = canonical.get_declaration()
    parent = declaration.semantic_parent
    while parent is not None and parent.kind.name == "NAMESPACE":
        if parent.spelling == "std":
            return str(declaration.spelling)
        parent = parent.semantic_parent
    return ""


def _bracketed(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else f"({text})"
