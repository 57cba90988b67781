"""Programs as libclang reads them, and changes of their text.

CUDA and HIP are parsed as clang's own CUDA, for the host, with a header of ours (``files/reading.hpp``) in place of
theirs. Every place in a source is an :class:`Extent`, in characters of the text as it stands in the file; what is
written through a macro's argument is where the argument is written.
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from mptune.adopt.first_header import first_header
from mptune.adopt.rewriting import without_definitions
from mptune.cpp.prelude import prelude_folder, shared_intrinsics
from mptune.errors import MptuneError, did_you_mean

#: Kinds of nodes around an expression that its text does not name: implicit conversions and parentheses.
TRANSPARENT: Final = ("UNEXPOSED_EXPR", "PAREN_EXPR")
#: Kinds of casts: those that convert a value, and with the one that only reads memory as something else.
CASTS: Final = ("CSTYLE_CAST_EXPR", "CXX_STATIC_CAST_EXPR", "CXX_FUNCTIONAL_CAST_EXPR")
ANY_CAST: Final = (*CASTS, "CXX_REINTERPRET_CAST_EXPR")

#: Headers of CUDA and HIP that ``reading.hpp`` stands for.
RUNTIME_HEADERS: Final = (
    "cuda.h",
    "cuda_runtime.h",
    "cuda_runtime_api.h",
    "cuda_fp16.h",
    "cuda_bf16.h",
    "cuda_profiler_api.h",
    "device_functions.h",
    "device_launch_parameters.h",
    "driver_types.h",
    "math_constants.h",
    "math_functions.h",
    "sm_60_atomic_functions.h",
    "vector_functions.h",
    "vector_types.h",
    "helper_cuda.h",
    "hip/hip_runtime.h",
    "hip/hip_runtime_api.h",
    "hip/hip_fp16.h",
    "hip/hip_bf16.h",
)

#: Names of types that only these headers declare: a program without them may have a kernel, or a number, called half.
_OF_HEADERS: Final = dict.fromkeys(
    ("cuda_fp16.h", "cuda_bf16.h", "hip/hip_fp16.h", "hip/hip_bf16.h"),
    "typedef __half half;\ntypedef __half2 half2;\n",
)
#: What the C++ library of zig takes of a compiler that is newer than libclang's.
_LATER_BUILTINS: Final = (
    *("-D__builtin_clzg(x,...)=__builtin_clzll(x)", "-D__builtin_ctzg(x,...)=__builtin_ctzll(x)"),
    *(
        "-D__builtin_popcountg(x)=__builtin_popcountll(x)",
        "-D__GCC_DESTRUCTIVE_SIZE=64",
        "-D__GCC_CONSTRUCTIVE_SIZE=64",
    ),
)
#: zig has no OpenMP.
_OMP: Final = """#pragma GCC system_header
#if __has_include_next(<omp.h>)
#include_next <omp.h>
#else
#include "{}"
#endif
"""


class ProgramError(MptuneError):
    """A program that cannot be read, run or changed; the message names file and line and says what to do."""


@dataclass(frozen=True, slots=True, order=True)
class Extent:
    """A piece of a file of the program.

    Attributes:
        file: the file, resolved.
        start: where it begins, in characters.
        end: where it ends (the first character that no longer belongs to it).
        line: the line it begins at, from 1.
    """

    file: Path
    start: int
    end: int
    line: int = field(compare=False)

    def __str__(self) -> str:
        return f"{self.file.name}:{self.line}"

    def __contains__(self, other: Extent) -> bool:
        return self.file == other.file and self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the program.

    Attributes:
        path: the file, resolved.
        text: what is in it, line ends as they are; bytes that are no UTF-8 survive a write with ``surrogateescape``.
    """

    path: Path
    text: str

    @classmethod
    def read(cls, path: Path) -> SourceFile:
        """Read a file.

        Raises:
            ProgramError: it is not there, or no file.
        """
        if path.exists() and not (path.is_file() or path.is_dir()):  # of a pipe nothing may ever come
            raise ProgramError(f"cannot read {path}: it is not a regular file")
        try:
            return cls(path, path.read_bytes().decode("utf-8", "surrogateescape"))
        except OSError as error:
            near = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
            suggestion = did_you_mean(path.name, near, path.parent)
            raise ProgramError(f"cannot read {path}: {error.strerror}{suggestion}") from None

    def of(self, extent: Extent) -> str:
        """Return the text of a piece of it."""
        return self.text[extent.start : extent.end]

    def line(self, number: int) -> int:
        """Return which line a line counts as, from 1: ``#line`` says so."""
        for at, named in reversed(_named_lines(self.text)):
            if number > at:
                return named + number - at - 1
        return number


@functools.lru_cache(maxsize=256)
def _named_lines(text: str) -> tuple[tuple[int, int], ...]:
    """Return the lines with ``#line``, each with the number it gives to the next."""
    if "#line " not in text:
        return ()
    found = ((number, _LINE.match(line)) for number, line in enumerate(text.split("\n"), 1))
    return tuple((number, int(line[1])) for number, line in found if line)


_LINE: Final = re.compile(r"#line (\d+)")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something in the program that mptune cannot adopt.

    Attributes:
        extent: where.
        what: what it does that cannot be adopted ("uses cub").
        remedy: what the user can do.
        kernel: the label of the kernel that cannot be adopted, or the function with the loop; "" if it is the program.
        is_loop: whether it is a loop, which stays in its function then.
    """

    extent: Extent
    what: str
    remedy: str
    kernel: str
    is_loop: bool = False

    def __str__(self) -> str:
        subject = f"kernel {self.kernel}" if self.kernel else "the program"
        if self.is_loop:
            subject = f"the loop in {self.kernel}"
        return f"{self.extent}: {subject} cannot be adopted: it {self.what}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What clang has to say of a place in the program.

    Attributes:
        message: clang's words.
        extent: where, of no length; None outside the program's files.
    """

    message: str
    extent: Extent | None

    def __str__(self) -> str:
        return self.message if self.extent is None else f"{self.extent}: {self.message}"


@dataclass(frozen=True, slots=True, order=True)
class _Edit:
    """A replacement of what is from ``start`` to ``end``, which goes with the piece of the text that is its scope."""

    start: int
    end: int
    text: str = field(compare=False)
    scope: tuple[int, int] = field(compare=False)


class Edits:
    """Replacements in the texts of a program, at places that do not overlap.

    Args:
        files: the texts that are changed.
    """

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self._texts = {file.path: file.text for file in files}
        self._edits: dict[Path, list[_Edit]] = {path: [] for path in self._texts}

    def replace(self, extent: Extent, text: str) -> None:
        """Replace a piece of a text; one of no length is an insertion. The same replacement twice counts once.

        Raises:
            ValueError: it overlaps another replacement.
        """
        edits = self._edits[extent.file]
        new = _Edit(extent.start, extent.end, text, (extent.start, extent.end))
        at = bisect.bisect_right(edits, new)
        if extent.start < extent.end and at > 0 and edits[at - 1] == new and edits[at - 1].text == text:
            return
        if (at > 0 and edits[at - 1].end > extent.start) or (at < len(edits) and edits[at].start < extent.end):
            raise ValueError(
                f"two changes of the same text at {extent}: {self._texts[extent.file][extent.start : extent.end]!r}"
            )
        edits.insert(at, new)

    def insert(self, file: Path, offset: int, text: str) -> None:
        """Insert a text before a character of a file; of two at the same place the later one comes second."""
        self._insert(file, offset, text, (offset, offset))

    def surround(self, extent: Extent, before: str, after: str) -> None:
        """Insert texts before and after a piece, without which the piece does not have them."""
        self._insert(extent.file, extent.start, before, (extent.start, extent.end))
        self._insert(extent.file, extent.end, after, (extent.start, extent.end))

    def _insert(self, file: Path, offset: int, text: str, scope: tuple[int, int]) -> None:
        edits = self._edits[file]
        if any(edit.start < offset < edit.end for edit in edits):
            raise ValueError(f"an insertion within a changed text of {file.name}")
        new = _Edit(offset, offset, text, scope)
        edits.insert(bisect.bisect_right(edits, new), new)  # before what is replaced there

    def text(self, extent: Extent) -> str:
        """Return a piece of a changed text: the replacements that lie within the piece are done."""
        return self._changed(extent.file, extent.start, extent.end)

    def file(self, path: Path) -> str:
        """Return the whole changed text of a file."""
        return self._changed(path, 0, len(self._texts[path]) + 1)

    def _changed(self, path: Path, start: int, end: int) -> str:
        original = self._texts[path]
        parts, done = [], start
        for edit in self._edits[path]:
            first, last = edit.scope
            if start <= first < end and last <= end:
                parts += [original[done : edit.start], edit.text]
                done = edit.end
        return "".join(parts) + original[done:end]

    def changed(self) -> tuple[Path, ...]:
        """Return the files whose text is changed."""
        return tuple(path for path, edits in self._edits.items() if edits)


#: libclang's numbers of operators (CXBinaryOperatorKind, CXUnaryOperatorKind).
_BINARY: Final = (
    *("", ".*", "->*", "*", "/", "%", "+", "-", "<<", ">>", "<=>", "<", ">", "<=", ">=", "==", "!=", "&", "^", "|"),
    *("&&", "||", "=", "*=", "/=", "%=", "+=", "-=", "<<=", ">>=", "&=", "^=", "|=", ","),
)
_UNARY: Final = (
    "",
    "++",
    "--",
    "++",
    "--",
    "&",
    "*",
    "+",
    "-",
    "~",
    "!",
    "__real",
    "__imag",
    "__extension__",
    "co_await",
)


#: What a function does.
_BODIES: Final = ("COMPOUND_STMT", "CXX_TRY_STMT")


class Node:
    """A cursor of libclang's with what is asked of it more than once.

    Attributes:
        cursor: libclang's.
        kind: of the cursor ("CALL_EXPR").
    """

    __slots__ = ("_canonical", "_children", "_extent", "_referenced", "_unit", "cursor", "kind")

    def __init__(self, unit: TranslationUnit, cursor: Any) -> None:
        self.cursor = cursor
        self.kind: str = cursor.kind.name
        self._unit = unit
        self._children: tuple[Node, ...] | None = None
        if self.kind == "UNEXPOSED_EXPR" and (parts := _parts_without_middle(cursor)):
            self.kind, self._children = "CONDITIONAL_OPERATOR", tuple(Node(unit, part) for part in parts)
        self._canonical: Any = None
        self._extent: Extent | bool | None = False
        self._referenced: Any = False

    @property
    def children(self) -> tuple[Node, ...]:
        """What it consists of, in the order of the text."""
        if self._children is None:
            self._children = tuple(Node(self._unit, child) for child in self.cursor.get_children())
        return self._children

    @property
    def arguments(self) -> tuple[Node, ...]:
        """The arguments of a call, or the parameters of a function."""
        return tuple(Node(self._unit, child) for child in self.cursor.get_arguments())

    @property
    def spelling(self) -> str:
        """The name it has or calls; "" for none."""
        return str(self.cursor.spelling)

    @property
    def canonical(self) -> Any:
        """Its type, without typedefs."""
        if self._canonical is None:
            self._canonical = self.cursor.type.get_canonical()
        return self._canonical

    @property
    def referenced(self) -> Any:
        """The declaration it refers to or calls; None for none."""
        if self._referenced is False:
            self._referenced = self.cursor.referenced
            if self._referenced is None and self.kind == "CALL_EXPR" and self.children:  # (k)<<<...>>>
                named = (node.cursor for node in self.children[0].walk() if node.kind == "DECL_REF_EXPR")
                self._referenced = next((cursor.referenced for cursor in named), None)
        return self._referenced

    @property
    def extent(self) -> Extent | None:
        """Where it is written; None outside the program's files."""
        if self._extent is False:
            self._extent = self._unit.extent(self.cursor)
        assert not isinstance(self._extent, bool)
        return self._extent

    @property
    def operator(self) -> str:
        """The sign of an operator; "" for anything else."""
        library = _libclang().conf.lib
        if self.kind in ("BINARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR"):
            return _BINARY[library.clang_getCursorBinaryOperatorKind(self.cursor)]
        return _UNARY[library.clang_getCursorUnaryOperatorKind(self.cursor)] if self.kind == "UNARY_OPERATOR" else ""

    @property
    def value(self) -> int | None:
        """The whole number that it always is; None for anything else."""
        library = _libclang().conf.lib
        found = library.clang_Cursor_Evaluate(self.cursor)
        if not found:
            return None
        is_whole = library.clang_EvalResult_getKind(found) == 1
        value = library.clang_EvalResult_getAsLongLong(found) if is_whole else None
        library.clang_EvalResult_dispose(found)
        return value

    def walk(self) -> Iterator[Node]:
        """Give it and everything within it, in the order of the text."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


def _parts_without_middle(cursor: Any) -> list[Any]:
    """Return the three parts of GNU's ``a ?: b``, for which libclang has no kind; none for anything else.

    It gives what is asked twice before: as it is written, and as the condition.
    """
    parts = list(cursor.get_children())
    return parts[1:] if len(parts) == 4 and parts[0].extent == parts[1].extent == parts[2].extent else []


def bare(node: Node) -> Node:
    """Return an expression without what :data:`TRANSPARENT` says is around it."""
    while node.kind in TRANSPARENT and node.children:
        node = node.children[-1]
    return node


def without_casts(node: Node) -> Node:
    """Return an expression without parentheses and conversions, written or not."""
    while node.kind in (*TRANSPARENT, *ANY_CAST) and node.children:
        node = node.children[-1]
    return node


@dataclass(frozen=True, slots=True)
class TemplateArgument:
    """What a parameter of a template stands for.

    Attributes:
        name: the parameter (``T``).
        kind: "typename", or the type of a parameter that is a value (``int``).
        value: the argument (``double``, ``19``).
    """

    name: str
    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Specialisation:
    """An instantiation of a class template.

    Attributes:
        template: clang's name of the template.
        name: of the type (``Grid<double>``).
        arguments: what the template's parameters stand for.
        fields: its fields, with their types; where they are written is in the template.
    """

    template: str
    name: str
    arguments: tuple[TemplateArgument, ...]
    fields: tuple[Any, ...] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the program with a body; of a template, each instantiation is one.

    Attributes:
        name: its name.
        arguments: what the parameters of its template stand for; empty for a function that is none.
        extent: its definition, with ``template <...>``.
        body: from the opening brace (or ``try``) to the closing one.
        is_kernel: whether it is ``__global__``.
        is_device: whether it is a kernel or runs on the device when called there.
        usr: clang's name of it, the same in all files.
        node: its cursor: parameters and body with their types, the template's parameters replaced.
    """

    name: str
    arguments: tuple[TemplateArgument, ...]
    extent: Extent
    body: Extent
    is_kernel: bool
    is_device: bool
    usr: str = field(repr=False)
    node: Node = field(repr=False, compare=False)

    @property
    def label(self) -> str:
        """How a call names it (``find_wall<19>``)."""
        return self.name + (f"<{', '.join(argument.value for argument in self.arguments)}>" if self.arguments else "")

    @property
    def parameters(self) -> tuple[Node, ...]:
        """Its parameters."""
        return tuple(child for child in self.node.children if child.kind == "PARM_DECL")

    @property
    def block(self) -> Node:
        """Its body, with what catches where that is a ``try``."""
        return next(child for child in self.node.children if child.kind in _BODIES)


class TranslationUnit:
    """A file as clang parsed it, with everything of the program that it includes.

    Attributes:
        path: the file, resolved.
        unit: libclang's translation unit.
    """

    def __init__(self, path: Path, unit: Any, texts: Mapping[Path, str]) -> None:
        self.path = path
        self.unit = unit
        self._texts = texts
        self._files: dict[str, SourceFile | None] = {}
        self._places: dict[Path, tuple[int, ...]] = {}
        self._names: dict[int, str] = {}

    def source(self, name: str) -> SourceFile | None:
        """Return the program's file of this name, as clang calls it; None for a header of the system."""
        if name not in self._files:
            path = Path(name).resolve()
            is_ours = path.is_relative_to(_files()) or path.is_relative_to(prelude_folder())
            own = not is_ours and not _is_system(self.unit, name)
            if own and path in self._texts:
                self._files[name] = SourceFile(path, self._texts[path])
            else:
                self._files[name] = SourceFile.read(path) if own and path.is_file() else None
        return self._files[name]

    def files(self) -> tuple[SourceFile, ...]:
        """Return the file and those of the program that it includes, in the order in which they are read."""
        names = [str(self.path), *(str(inclusion.include.name) for inclusion in self.unit.get_includes())]
        found = {source.path: source for name in names if (source := self.source(name)) is not None}
        return tuple(found.values())

    @functools.cached_property
    def top(self) -> tuple[Node, ...]:
        """What the program's files declare and define outside functions and namespaces; macros and their uses, too."""
        found: list[Node] = []

        def take(cursors: Iterable[Any]) -> None:
            for cursor in cursors:
                if cursor.location.is_in_system_header or self.extent(cursor) is None:
                    continue
                if cursor.kind.name in ("NAMESPACE", "LINKAGE_SPEC"):
                    take(cursor.get_children())
                else:
                    found.append(Node(self, cursor))

        take(self.unit.cursor.get_children())
        return tuple(found)

    @functools.cached_property
    def namespaces(self) -> frozenset[str]:
        """The names of the namespaces in the program's files."""

        def within(cursors: Iterable[Any]) -> Iterator[str]:
            for cursor in cursors:
                if cursor.kind.name in ("NAMESPACE", "NAMESPACE_ALIAS") and self.extent(cursor) is not None:
                    yield str(cursor.spelling)
                    yield from within(cursor.get_children())

        return frozenset(within(self.unit.cursor.get_children())) - {""}

    @functools.cached_property
    def macros(self) -> frozenset[str]:
        """The names of all macros, of the system's headers too."""
        children = self.unit.cursor.get_children()
        return frozenset(str(cursor.spelling) for cursor in children if cursor.kind.name == "MACRO_DEFINITION")

    @functools.cached_property
    def functions(self) -> tuple[Function, ...]:
        """All functions with a body: kernels, device and host functions, and instantiations of templates."""
        found: dict[str, Function] = {}
        waiting = [inner for node in self.top for inner in _functions_of(node)]
        while waiting:
            node = waiting.pop(0)
            function = self._function(node)
            if function is None or function.usr in found:
                continue
            found[function.usr] = function
            for inner in node.walk():
                called = inner.referenced if inner.kind in ("DECL_REF_EXPR", "CALL_EXPR", "MEMBER_REF_EXPR") else None
                if called is None or called.kind.name not in FUNCTIONS or called.get_usr() in found:
                    continue
                definition = called.get_definition()
                if definition is not None and self.extent(definition) is not None:
                    waiting.append(Node(self, definition))
        return tuple(sorted(found.values(), key=lambda function: self.order(function.extent)))

    @functools.cached_property
    def specialisations(self) -> Mapping[str, tuple[Specialisation, ...]]:
        """The instantiations of the program's class templates that functions name, by clang's name of the template."""
        found: dict[str, dict[str, Specialisation]] = {}
        if any(node.kind == "CLASS_TEMPLATE" for node in self.top):
            for node in (node for function in self.functions for node in function.node.walk()):
                specialised = specialisation_of(node.canonical)
                if specialised is not None:
                    found.setdefault(specialised.template, {}).setdefault(specialised.name, specialised)
        return {usr: tuple(each.values()) for usr, each in found.items()}

    def order(self, extent: Extent) -> tuple[int, ...]:
        """Return a key that puts places into the order in which the compiler reads them, through includes."""
        return (*self._order_of_files.get(extent.file, ()), extent.start)

    @functools.cached_property
    def _order_of_files(self) -> dict[Path, tuple[int, ...]]:
        """For each file of the program where it is read: the places of the includes that lead to it."""
        order: dict[Path, tuple[int, ...]] = {self.path: ()}
        for inclusion in self.unit.get_includes():
            if inclusion.source is None:
                continue  # the command line's
            source, path = Path(str(inclusion.source.name)).resolve(), Path(str(inclusion.include.name)).resolve()
            if source in order and path not in order:
                order[path] = (*order[source], inclusion.location.offset)
        return order

    def _function(self, node: Node) -> Function | None:
        """Return a function with a body; None for one that has none, and for a template itself."""
        body = next((child for child in node.children if child.kind in _BODIES), None)
        if body is None or node.kind == "FUNCTION_TEMPLATE" or body.extent in (None, node.extent):
            return None  # (what the compiler writes by itself has the struct's extent)
        cindex = _libclang()
        template = cindex.conf.lib.clang_getSpecializedCursorTemplate(node.cursor)
        extent = self.extent(template) if template is not None else node.extent
        if extent is None or body.extent not in extent:
            extent = node.extent
        if extent is None:
            return None
        attributes = {child.kind for child in node.children}
        is_kernel = "CUDAGLOBAL_ATTR" in attributes
        return Function(
            name=node.spelling,
            arguments=_arguments(node.cursor, template),
            extent=extent,
            body=body.extent,
            is_kernel=is_kernel,
            is_device=is_kernel or "CUDADEVICE_ATTR" in attributes,
            usr=node.cursor.get_usr(),
            node=node,
        )

    def extent(self, cursor: Any) -> Extent | None:
        """Return where a cursor is written; None outside the program's files."""
        return self.range(cursor.extent)

    def range(self, extent: Any) -> Extent | None:
        """Return where a range of clang's is; what is in the body of a macro is where the macro is used."""
        start, end = self._place(extent.start), self._place(extent.end)
        if start is None or end is None or start[0] != end[0] or end[1] < start[1]:
            start, end = self._expansion(extent.start), self._expansion(extent.end)
        if start is None or end is None or start[0] != end[0]:
            return None
        return self._extent(start[0], start[1], end[1], start[2])

    def expansion(self, cursor: Any) -> Extent | None:
        """Return the use of the macro that a cursor is written with; where it is written, if it is by none."""
        start, end = self._expansion(cursor.extent.start), self._expansion(cursor.extent.end)
        if start is None or end is None:
            return None
        return self._extent(start[0], start[1], end[1], start[2])

    def name(self, cursor: Any) -> Extent | None:
        """Return where the name of a declaration is written."""
        start = self._place(cursor.location)
        if start is None:
            return None
        return self._extent(start[0], start[1], start[1] + len(cursor.spelling.encode()), start[2])

    def diagnostics(self) -> Iterator[Diagnostic]:
        """Give clang's errors, in order."""
        for found in self.unit.diagnostics:
            if found.severity >= 3:
                start = self._expansion(found.location)
                yield Diagnostic(
                    found.spelling, self._extent(start[0], start[1], start[1], start[2]) if start else None
                )

    def _place(self, location: Any) -> tuple[str, int, int] | None:
        """Return file, byte and line of what is written at a location, also in a macro's argument."""
        return self._located("clang_getSpellingLocation", location)

    def _expansion(self, location: Any) -> tuple[str, int, int] | None:
        return self._located("clang_getExpansionLocation", location)

    def _located(self, function: str, location: Any) -> tuple[str, int, int] | None:
        cindex = _libclang()
        file, line, column, offset = cindex.c_object_p(), ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
        getattr(cindex.conf.lib, function)(location, file, line, column, offset)
        if not file:
            return None
        address = ctypes.addressof(file.contents)
        if address not in self._names:
            self._names[address] = str(cindex.File(file).name)
        return self._names[address], offset.value, line.value

    def _extent(self, name: str, start: int, end: int, line: int) -> Extent | None:
        source = self.source(name)
        if source is None:
            return None
        line = source.line(line)
        if source.text.isascii():
            return Extent(source.path, start, end, line)
        if source.path not in self._places:
            encoded = 0
            places: list[int] = []
            for character in source.text:
                places.append(encoded)
                encoded += len(character.encode("utf-8", "surrogateescape"))
            self._places[source.path] = tuple(places)
        known = self._places[source.path]
        return Extent(source.path, bisect.bisect_left(known, start), bisect.bisect_left(known, end), line)


def parse(
    files: Sequence[Path],
    defines: Mapping[str, str] | None = None,
    includes: Sequence[Path] = (),
    texts: Mapping[Path, str] | None = None,
) -> list[TranslationUnit]:
    """Parse the files of a program: CUDA and HIP by clang's CUDA, C++ (``.cpp``, ``.cc``, ``.cxx``) as such.

    Errors of clang do not end it (see :meth:`TranslationUnit.diagnostics`): a program may call what ``reading.hpp``
    lacks.

    Args:
        files: the files that a compiler is given, no headers.
        defines: macros of the command line (``-D``), by name; "" for one without a value. They replace the program's.
        includes: folders of headers (``-I``).
        texts: of files that are taken to have another text than on disk.

    Raises:
        ProgramError: a file is missing, or libclang is.
    """
    cindex = _libclang()
    stub = _files() / "include"
    texts = texts or {}
    unsaved: list[tuple[str, Any]] = [(str(stub / name), _OF_HEADERS.get(name, "")) for name in RUNTIME_HEADERS]
    unsaved.append((str(stub / "omp.h"), _OMP.format(_files() / "layer" / "omp.h")))
    unsaved += ((str(path), text.encode("utf-8", "surrogateescape")) for path, text in texts.items())
    arguments = [
        *(
            "-x",
            "cuda",
            "-std=c++17",
            "-nocudainc",
            "-nocudalib",
            "--cuda-host-only",
            "-w",
            "-Wno-register",
            "-D__NVCC__",
            "-ferror-limit=0",
        ),
        *(f"-I{stub}", *shared_intrinsics()),
        *_compiler_headers(),
    ]
    options = cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD | 0x200  # keep going after a missing header
    header = _files() / "reading.hpp"
    if defines or includes:  # the header may be another one then
        arguments += ["-include", str(header)]
        arguments += [f"-D{name}={value}" if value else f"-D{name}" for name, value in (defines or {}).items()]
        arguments += [f"-I{folder}" for folder in includes]
    else:
        arguments += first_header(cindex, header, tuple(arguments), options)
    units = []
    for path in (file.resolve() for file in files):
        SourceFile.read(path)
        try:
            unit = cindex.Index.create().parse(str(path), arguments, unsaved, options)
        except cindex.TranslationUnitLoadError:
            raise ProgramError(f"clang cannot parse {path}; is it a CUDA, HIP or C++ source?") from None
        found = TranslationUnit(path, unit, texts)
        changed = [
            (str(name), text.encode("utf-8", "surrogateescape"))
            for name in (path, *(inclusion.include.name for inclusion in unit.get_includes()))
            if (source := found.source(str(name))) is not None
            if (text := without_definitions(source.text, defines or ())) != source.text
        ]
        if changed:
            unit.reparse([*unsaved, *changed], options)
            found = TranslationUnit(path, unit, texts)
        units.append(found)
    return units


#: Kinds of cursors that are functions.
FUNCTIONS: Final = (
    *("FUNCTION_DECL", "FUNCTION_TEMPLATE", "CXX_METHOD", "CONSTRUCTOR", "DESTRUCTOR", "CONVERSION_FUNCTION"),
)


def _functions_of(node: Node) -> Iterator[Node]:
    """Give the functions that a declaration is or has as members."""
    if node.kind in FUNCTIONS:
        yield node
    elif node.kind in ("STRUCT_DECL", "CLASS_DECL"):
        for child in node.children:
            yield from _functions_of(child)


def specialisation_of(canonical: Any) -> Specialisation | None:
    """Return which instantiation of a class template a type is; None if it is none."""
    if canonical.kind.name != "RECORD":
        return None
    declaration = canonical.get_declaration()
    template = _libclang().conf.lib.clang_getSpecializedCursorTemplate(declaration)
    if template is None or template.kind.name != "CLASS_TEMPLATE" or template.location.is_in_system_header:
        return None
    name = re.sub(r"\b(const|volatile)\b", "", canonical.spelling).strip()
    return Specialisation(template.get_usr(), name, _arguments(declaration, template), tuple(canonical.get_fields()))


def _arguments(cursor: Any, template: Any) -> tuple[TemplateArgument, ...]:
    """Return what the parameters of a template stand for in an instantiation."""
    if template is None or cursor.get_num_template_arguments() < 1:
        return ()
    found = []
    parameters = [child for child in template.get_children() if child.kind.name.startswith("TEMPLATE_")]
    for index, parameter in enumerate(parameters[: cursor.get_num_template_arguments()]):
        try:
            kind = cursor.get_template_argument_kind(index).name
        except ValueError:  # the binding does not know packs of parameters
            kind = "PACK"
        if kind == "TYPE":
            value = cursor.get_template_argument_type(index).spelling
        else:
            value = str(cursor.get_template_argument_value(index)) if kind == "INTEGRAL" else "..."
        is_type = parameter.kind.name == "TEMPLATE_TYPE_PARAMETER"
        name = "typename" if is_type else parameter.type.spelling
        if name == "bool":
            value = "true" if value not in ("0", "") else "false"
        found.append(TemplateArgument(parameter.spelling, name, value))
    return tuple(found)


def _files() -> Path:
    return Path(__file__).resolve().parent / "files"


@functools.cache
def _libclang() -> Any:
    try:
        from clang import cindex
    except ImportError:
        raise ProgramError("reading a program needs libclang: pip install 'libclang>=18'") from None
    for name in ("clang_getSpellingLocation", "clang_getExpansionLocation"):
        function = getattr(cindex.conf.lib, name)
        number = ctypes.POINTER(ctypes.c_uint)
        function.argtypes = [cindex.SourceLocation, ctypes.POINTER(cindex.c_object_p), number, number, number]
    for name in ("clang_getCursorBinaryOperatorKind", "clang_getCursorUnaryOperatorKind"):
        getattr(cindex.conf.lib, name).argtypes = [cindex.Cursor]
    library = cindex.conf.lib
    library.clang_Cursor_Evaluate.argtypes, library.clang_Cursor_Evaluate.restype = [cindex.Cursor], ctypes.c_void_p
    for name, result in (("getKind", ctypes.c_int), ("getAsLongLong", ctypes.c_longlong), ("dispose", None)):
        function = getattr(library, f"clang_EvalResult_{name}")
        function.argtypes, function.restype = [ctypes.c_void_p], result
    return cindex


@functools.cache
def _compiler_headers() -> tuple[str, ...]:
    """Return flags with the folders of a compiler's own headers (``stddef.h``): the package of libclang has none."""
    try:
        found = subprocess.run(["g++", "-print-file-name=include"], capture_output=True, text=True, check=True)
        return (f"-isystem{found.stdout.strip()}",)
    except (OSError, subprocess.CalledProcessError):
        zig = find_spec("ziglang")
    if zig is None or zig.origin is None:
        return ()
    if Path("/usr/include/c++").is_dir():  # libclang finds these
        return (f"-isystem{Path(zig.origin).parent / 'lib' / 'include'}",)
    # zig brings the headers of the C and C++ libraries, too, and says with which flags they are read.
    command = [sys.executable, "-m", "ziglang", "c++", "-c", "-x", "c++", os.devnull, "-###"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    words = shlex.split(said.strip().rpartition("\n")[2])
    flags = (flag + value for flag, value in itertools.pairwise(words) if flag in ("-isystem", "-D"))
    return ("-nostdinc", "-nostdinc++", *_LATER_BUILTINS, *flags)


def _is_system(unit: Any, name: str) -> bool:
    cindex = _libclang()
    file = cindex.File.from_name(unit, name)
    location = cindex.SourceLocation.from_offset(unit, file, 0)
    return bool(location.is_in_system_header)
