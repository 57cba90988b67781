"""Programs as libclang reads them, and changes of their text.

CUDA and HIP are parsed as clang's own CUDA, for the host. The headers with which programs run here (``files/layer``)
stand in place of theirs. Every place in a source is an :class:`Extent`, in characters of the text as it stands in the
file. A place in a macro's argument is where the argument is written.
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

from mptune.adopt.rewriting import has_device_code, without_definitions
from mptune.cpp.prelude import LIBRARIES, prelude_folder, shared_intrinsics
from mptune.errors import MptuneError, did_you_mean

#: Kinds of nodes around an expression that its text does not name: implicit conversions and parentheses.
TRANSPARENT: Final = ("UNEXPOSED_EXPR", "PAREN_EXPR")
#: Kinds of casts that convert a value; and with the one that reads memory as another type.
CASTS: Final = ("CSTYLE_CAST_EXPR", "CXX_STATIC_CAST_EXPR", "CXX_FUNCTIONAL_CAST_EXPR")
ANY_CAST: Final = (*CASTS, "CXX_REINTERPRET_CAST_EXPR")
#: Kinds of cursors that are functions.
FUNCTIONS: Final = (
    *("FUNCTION_DECL", "FUNCTION_TEMPLATE", "CXX_METHOD", "CONSTRUCTOR", "DESTRUCTOR", "CONVERSION_FUNCTION"),
)
#: Kinds of expressions that name or call a declaration.
REFERENCES: Final = ("DECL_REF_EXPR", "CALL_EXPR", "MEMBER_REF_EXPR")
_BODIES: Final = ("COMPOUND_STMT", "CXX_TRY_STMT")
#: Compiler built-ins that zig's C++ library uses and libclang does not know.
_LATER_BUILTINS: Final = (
    *("-D__builtin_clzg(x,...)=__builtin_clzll(x)", "-D__builtin_ctzg(x,...)=__builtin_ctzll(x)"),
    *("-D__builtin_popcountg(x)=__builtin_popcountll(x)", "-D__GCC_DESTRUCTIVE_SIZE=64"),
    "-D__GCC_CONSTRUCTIVE_SIZE=64",
)
_LINE: Final = re.compile(r"#line (\d+)")


class ProgramError(MptuneError):
    """A program that cannot be read, run or changed; the message names file and line and says what to do."""


@dataclass(frozen=True, slots=True, order=True)
class Extent:
    """A piece of a file of the program.

    Attributes:
        file: the file, resolved.
        start: the place of its first character.
        end: the place after its last character.
        line: the line of its first character, from 1.
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
        text: its text, line ends unchanged; bytes that are no UTF-8 survive a write with ``surrogateescape``.
    """

    path: Path
    text: str

    @classmethod
    def read(cls, path: Path) -> SourceFile:
        """Read a file.

        Raises:
            ProgramError: it is missing, or no regular file.
        """
        if path.exists() and not (path.is_file() or path.is_dir()):  # reading a pipe may never end
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
        """Return the number that ``#line`` directives give to a line, from 1."""
        for at, named in reversed(_named_lines(self.text)):
            if number > at:
                return named + number - at - 1
        return number


@functools.lru_cache(maxsize=256)
def _named_lines(text: str) -> tuple[tuple[int, int], ...]:
    """Return the lines with ``#line``, each with the number of the next line."""
    if "#line " not in text:
        return ()
    found = ((number, _LINE.match(line)) for number, line in enumerate(text.split("\n"), 1))
    return tuple((number, int(line[1])) for number, line in found if line)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something in the program that mptune cannot adopt.

    Attributes:
        extent: its place.
        what: what the program does there ("uses cub").
        remedy: what the user can do.
        kernel: the label of the kernel that cannot be adopted, or the function with the loop; "" for the program.
        is_loop: whether it is a loop, which stays in its function then.
    """

    extent: Extent
    what: str
    remedy: str
    kernel: str
    is_loop: bool = False

    def __str__(self) -> str:
        subject = f"the loop in {self.kernel}" if self.is_loop else f"kernel {self.kernel}"
        subject = subject if self.kernel else "the program"
        return f"{self.extent}: {subject} cannot be adopted: it {self.what}; {self.remedy}"


class KernelRefusedError(ProgramError):
    """A run, or a compiler, shows that a kernel cannot be adopted.

    Attributes:
        refusal: the kernel and the reason.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """An error of clang, with its place; the place is None outside the program's files."""

    message: str
    extent: Extent | None

    def __str__(self) -> str:
        return self.message if self.extent is None else f"{self.extent}: {self.message}"


@dataclass(frozen=True, slots=True, order=True)
class _Edit:
    """A replacement of the text from ``start`` to ``end``; it moves with the piece of the text that is its scope."""

    start: int
    end: int
    text: str = field(compare=False)
    scope: tuple[int, int] = field(compare=False)


class Edits:
    """Replacements in the texts of a program, at places that do not overlap.

    Args:
        files: the texts.
    """

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self._texts = {file.path: file.text for file in files}
        self._edits: dict[Path, list[_Edit]] = {path: [] for path in self._texts}

    def replace(self, extent: Extent, text: str) -> None:
        """Replace a piece of a text; an empty piece is an insertion. The same replacement twice counts once.

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
        """Insert a text before a character of a file, after earlier insertions at the same place."""
        self._insert(file, offset, text, (offset, offset))

    def surround(self, extent: Extent, before: str, after: str) -> None:
        """Insert texts before and after a piece; they are part of any text that contains the piece."""
        self._insert(extent.file, extent.start, before, (extent.start, extent.end))
        self._insert(extent.file, extent.end, after, (extent.start, extent.end))

    def _insert(self, file: Path, offset: int, text: str, scope: tuple[int, int]) -> None:
        edits = self._edits[file]
        if any(edit.start < offset < edit.end for edit in edits):
            raise ValueError(f"an insertion within a changed text of {file.name}")
        new = _Edit(offset, offset, text, scope)
        edits.insert(bisect.bisect_right(edits, new), new)  # before a replacement that starts there

    def text(self, extent: Extent) -> str:
        """Return a piece of a text with the replacements within the piece done."""
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
    *("", "++", "--", "++", "--", "&", "*", "+", "-", "~", "!", "__real", "__imag", "__extension__", "co_await"),
)


class Node:
    """A cursor of libclang with its properties kept.

    Attributes:
        unit: the file it is read from.
        cursor: libclang's.
        kind: the kind of the cursor ("CALL_EXPR").
    """

    __slots__ = ("_canonical", "_children", "_extent", "_referenced", "cursor", "kind", "unit")

    def __init__(self, unit: TranslationUnit, cursor: Any) -> None:
        self.cursor = cursor
        self.kind: str = cursor.kind.name
        self.unit = unit
        self._children: tuple[Node, ...] | None = None
        if self.kind == "UNEXPOSED_EXPR" and (parts := _parts_without_middle(cursor)):
            self.kind, self._children = "CONDITIONAL_OPERATOR", tuple(Node(unit, part) for part in parts)
        self._canonical: Any = None
        self._extent: Extent | bool | None = False
        self._referenced: Any = False

    @property
    def children(self) -> tuple[Node, ...]:
        """Its parts, in the order of the text."""
        if self._children is None:
            self._children = tuple(Node(self.unit, child) for child in self.cursor.get_children())
        return self._children

    @property
    def arguments(self) -> tuple[Node, ...]:
        """The arguments of a call, or the parameters of a function."""
        if self.kind == "CALL_EXPR" and self.is_launch:
            return self.children[2:]
        return tuple(Node(self.unit, child) for child in self.cursor.get_arguments() if child is not None)

    @property
    def is_launch(self) -> bool:
        """Whether a call is the launch of a kernel (``k<<<grid, block>>>(x)``)."""
        return len(self.children) > 1 and self.children[1].spelling == "__cudaPushCallConfiguration"

    @property
    def spelling(self) -> str:
        """The name it has or calls; "" for none."""
        return str(self.cursor.spelling)

    @property
    def usr(self) -> str:
        """The name that clang has for a declaration, the same in all files."""
        return str(self.cursor.get_usr())

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
            self._extent = self.unit.extent(self.cursor)
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
        """The value of a constant expression of whole numbers; None for any other."""
        library = _libclang().conf.lib
        found = library.clang_Cursor_Evaluate(self.cursor)
        if not found:
            return None
        is_whole = library.clang_EvalResult_getKind(found) == 1
        value = library.clang_EvalResult_getAsLongLong(found) if is_whole else None
        library.clang_EvalResult_dispose(found)
        return value

    def walk(self) -> Iterator[Node]:
        """Yield it and everything within it, in the order of the text."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


def library_of(cursor: Any) -> str:
    """Return the library for kernels that declares something, by its name in templates; "" for none."""
    file = cursor.location.file if cursor is not None else None
    path = Path(str(file.name)) if file is not None else Path()
    return path.stem if path.name in LIBRARIES and path.parent == prelude_folder() else ""


def _parts_without_middle(cursor: Any) -> list[Any]:
    """Return the three parts of GNU's ``a ?: b``, for which libclang has no kind; none for anything else.

    libclang gives the condition twice: as written, and as a value.
    """
    parts = list(cursor.get_children())
    return parts[1:] if len(parts) == 4 and parts[0].extent == parts[1].extent == parts[2].extent else []


def bare(node: Node) -> Node:
    """Return an expression without parentheses and implicit conversions."""
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
    """An argument of a template.

    Attributes:
        name: of the parameter (``T``).
        kind: "typename", or the type of a parameter that is a value (``int``).
        value: the argument (``double``, ``19``).
    """

    name: str
    kind: str
    value: str


def labelled(name: str, arguments: Iterable[TemplateArgument]) -> str:
    """Return the name by which a call names an instantiation (``find_wall<19>``)."""
    given = ", ".join(argument.value for argument in arguments)
    return f"{name}<{given}>" if given else name


@dataclass(frozen=True, slots=True)
class Specialisation:
    """An instantiation of a class template.

    Attributes:
        template: clang's name of the template.
        name: of the type (``Grid<double>``).
        arguments: of the template.
        fields: its fields, with their types; they are written in the template.
    """

    template: str
    name: str
    arguments: tuple[TemplateArgument, ...]
    fields: tuple[Any, ...] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the program with a body; each instantiation of a template is one.

    Attributes:
        name: its name.
        arguments: of its template; empty for a function that is none.
        extent: its definition, with ``template <...>``.
        body: from the opening brace (or ``try``) to the closing one.
        is_kernel: whether it is ``__global__``.
        is_device: whether it is a kernel or a device function.
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
        """The name by which a call names it (``find_wall<19>``)."""
        return labelled(self.name, self.arguments)

    @property
    def parameters(self) -> tuple[Node, ...]:
        """Its parameters."""
        return tuple(child for child in self.node.children if child.kind == "PARM_DECL")

    @property
    def block(self) -> Node:
        """Its body, with the handlers of a ``try``."""
        return next(child for child in self.node.children if child.kind in _BODIES)


class TranslationUnit:
    """A file as clang parsed it, with the program's headers that it includes.

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
        """Return the file and the program's headers that it includes, in the order in which they are read."""
        names = [str(self.path), *(str(inclusion.include.name) for inclusion in self.unit.get_includes())]
        found = {source.path: source for name in names if (source := self.source(name)) is not None}
        return tuple(found.values())

    def _outside(self, cursors: Iterable[Any]) -> Iterator[Any]:
        """Yield the program's declarations, those in namespaces after the namespace."""
        for cursor in cursors:
            if not cursor.location.is_in_system_header and self.extent(cursor) is not None:
                yield cursor
                if cursor.kind.name in ("NAMESPACE", "LINKAGE_SPEC"):
                    yield from self._outside(cursor.get_children())

    @functools.cached_property
    def _declarations(self) -> tuple[Node, ...]:
        return tuple(Node(self, cursor) for cursor in self._outside(self.unit.cursor.get_children()))

    @functools.cached_property
    def top(self) -> tuple[Node, ...]:
        """The declarations of the program's files outside functions; macros and their uses, too."""
        return tuple(node for node in self._declarations if node.kind not in ("NAMESPACE", "LINKAGE_SPEC"))

    @functools.cached_property
    def namespaces(self) -> frozenset[str]:
        """The names of the namespaces in the program's files."""
        found = (node for node in self._declarations if node.kind in ("NAMESPACE", "NAMESPACE_ALIAS"))
        return frozenset(node.spelling for node in found) - {""}

    @functools.cached_property
    def macros(self) -> frozenset[str]:
        """The names of all macros, with the system's."""
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
                called = inner.referenced if inner.kind in REFERENCES else None
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

    def contains(self, path: Path) -> bool:
        """Whether it is the file, or includes it."""
        return path in self._order_of_files

    @functools.cached_property
    def _order_of_files(self) -> dict[Path, tuple[int, ...]]:
        """The places of the includes that lead to each file of the program."""
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
            return None  # (functions that the compiler adds have the struct's extent)
        template = _libclang().conf.lib.clang_getSpecializedCursorTemplate(node.cursor)
        extent = self.extent(template) if template is not None else node.extent
        if extent is None or body.extent not in extent:
            extent = node.extent
        if extent is None:
            return None
        attributes = {child.kind for child in node.children}
        return Function(
            name=node.spelling,
            arguments=_arguments(node.cursor, template),
            extent=extent,
            body=body.extent,
            is_kernel="CUDAGLOBAL_ATTR" in attributes,
            is_device=not attributes.isdisjoint(("CUDAGLOBAL_ATTR", "CUDADEVICE_ATTR")),
            usr=node.usr,
            node=node,
        )

    def extent(self, cursor: Any) -> Extent | None:
        """Return where a cursor is written; None outside the program's files."""
        return self.range(cursor.extent)

    def range(self, extent: Any) -> Extent | None:
        """Return where a range of clang's is; a place in the body of a macro is where the macro is used."""
        start, end = (self._located("clang_getSpellingLocation", each) for each in (extent.start, extent.end))
        if start is None or end is None or start[0] != end[0] or end[1] < start[1] or self.source(start[0]) is None:
            return self._expanded(extent)
        return self._extent(start, end[1])

    def expansion(self, cursor: Any) -> Extent | None:
        """Return the use of the macro that a cursor is written with; its own place if there is no macro."""
        return self._expanded(cursor.extent)

    def _expanded(self, extent: Any) -> Extent | None:
        start, end = (self._located("clang_getExpansionLocation", each) for each in (extent.start, extent.end))
        return self._extent(start, end[1]) if start is not None and end is not None and start[0] == end[0] else None

    def name(self, cursor: Any) -> Extent | None:
        """Return where the name of a declaration is written."""
        start = self._located("clang_getSpellingLocation", cursor.location)
        return self._extent(start, start[1] + len(cursor.spelling.encode())) if start is not None else None

    def diagnostics(self) -> Iterator[Diagnostic]:
        """Yield clang's errors, in order."""
        for found in self.unit.diagnostics:
            if found.severity >= 3:
                start = self._located("clang_getExpansionLocation", found.location)
                yield Diagnostic(found.spelling, self._extent(start, start[1]) if start else None)

    def _located(self, function: str, location: Any) -> tuple[str, int, int] | None:
        """Return file, byte and line of a location: where it is written, or where the macro around it is used."""
        cindex = _libclang()
        file, line, column, offset = cindex.c_object_p(), ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
        getattr(cindex.conf.lib, function)(location, file, line, column, offset)
        if not file:
            return None
        address = ctypes.addressof(file.contents)
        if address not in self._names:
            self._names[address] = str(cindex.File(file).name)
        return self._names[address], offset.value, line.value

    def _extent(self, start: tuple[str, int, int], end: int) -> Extent | None:
        name, first, line = start
        source = self.source(name)
        if source is None:
            return None
        line = source.line(line)
        if source.text.isascii():
            return Extent(source.path, first, end, line)
        if source.path not in self._places:
            lengths = (len(character.encode("utf-8", "surrogateescape")) for character in source.text)
            self._places[source.path] = tuple(itertools.accumulate(lengths, initial=0))
        known = self._places[source.path]
        return Extent(source.path, bisect.bisect_left(known, first), bisect.bisect_left(known, end), line)


def parse(
    files: Sequence[Path],
    defines: Mapping[str, str] | None = None,
    includes: Sequence[Path] = (),
    texts: Mapping[Path, str] | None = None,
) -> list[TranslationUnit]:
    """Parse the files of a program: CUDA and HIP by clang's CUDA, C++ (``.cpp``, ``.cc``, ``.cxx``) as such.

    Errors of clang are no exceptions (see :meth:`TranslationUnit.diagnostics`): a program may call functions that
    ``reading.hpp`` lacks.

    Args:
        files: the files that a compiler is given, no headers.
        defines: macros of the command line (``-D``), by name; "" for one without a value. They replace the program's.
        includes: folders of headers (``-I``).
        texts: texts of files that differ from those on disk.

    Raises:
        ProgramError: a file is missing, or libclang is.
    """
    cindex = _libclang()
    texts = texts or {}
    unsaved = [(str(path), text.encode("utf-8", "surrogateescape")) for path, text in texts.items()]
    arguments = [
        *("-x", "cuda", "-std=c++17", "-nocudainc", "-nocudalib", "--cuda-host-only", "-w", "-Wno-register"),
        *("-D__NVCC__", "-ferror-limit=0", f"-I{_files() / 'layer'}", *shared_intrinsics(), *_compiler_headers()),
    ]
    own = [SourceFile.read(path.resolve()) for path in files]
    if not any(file.path.suffix in (".cu", ".hip") or has_device_code(file.text) for file in own):
        arguments.append("-DMPTUNE_PLAIN")  # it may have functions with the names of CUDA's
    elif not any(file.path.suffix == ".hip" or "hip_runtime" in file.text for file in own):
        arguments.append("-D__CUDACC__")
    arguments += ["-include", str(_files() / "reading.hpp")]
    arguments += [f"-D{name}={value}" if value else f"-D{name}" for name, value in (defines or {}).items()]
    arguments += [f"-I{folder}" for folder in includes]
    options = cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD | 0x200  # keep going after a missing header
    units = []
    for file in own:
        path = file.path
        try:
            unit = cindex.Index.create().parse(str(path), [*_of_device(file), *arguments], unsaved, options)
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


def _of_device(file: SourceFile) -> tuple[str, ...]:
    """Return the macros by which a source knows that a compiler for devices reads it."""
    if file.path.suffix not in (".cu", ".hip") and not has_device_code(file.text):
        return ()
    return ("-D__HIPCC__", "-D__HIP_PLATFORM_AMD__") if "hip/hip_runtime" in file.text else ("-D__CUDACC__",)


def reached(node: Node, functions: Mapping[str, Function]) -> list[Function]:
    """Return those of some functions, by clang's names, that a piece of code uses, also through one another."""
    found: dict[str, Function] = {}
    waiting = [node]
    while waiting:
        for inner in waiting.pop().walk():
            named = inner.referenced if inner.kind in REFERENCES else None
            usr = named.get_usr() if named is not None and named.kind.name in FUNCTIONS else ""
            if usr in functions and usr not in found:
                found[usr] = functions[usr]
                waiting.append(functions[usr].node)
    return list(found.values())


def _functions_of(node: Node) -> Iterator[Node]:
    """Yield the functions that a declaration is or has as members."""
    if node.kind in FUNCTIONS:
        yield node
    elif node.kind in ("STRUCT_DECL", "CLASS_DECL"):
        for child in node.children:
            yield from _functions_of(child)


def specialised_from(node: Node) -> str:
    """Return clang's name of the template that a class is written for some arguments of; "" for any other class."""
    template = _libclang().conf.lib.clang_getSpecializedCursorTemplate(node.cursor)
    return str(template.get_usr()) if template is not None and node.extent is not None else ""


def specialisation_of(canonical: Any) -> Specialisation | None:
    """Return the instantiation of a class template that a type is; None for any other type."""
    if canonical.kind.name != "RECORD":
        return None
    declaration = canonical.get_declaration()
    template = _libclang().conf.lib.clang_getSpecializedCursorTemplate(declaration)
    if template is None or template.kind.name != "CLASS_TEMPLATE" or template.location.is_in_system_header:
        return None
    name = re.sub(r"\b(const|volatile)\b", "", canonical.spelling).strip()
    return Specialisation(template.get_usr(), name, _arguments(declaration, template), tuple(canonical.get_fields()))


def _arguments(cursor: Any, template: Any) -> tuple[TemplateArgument, ...]:
    """Return the arguments of a template in an instantiation."""
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
    library, number = cindex.conf.lib, ctypes.POINTER(ctypes.c_uint)
    for name in ("clang_getSpellingLocation", "clang_getExpansionLocation"):
        located = [cindex.SourceLocation, ctypes.POINTER(cindex.c_object_p), number, number, number]
        getattr(library, name).argtypes = located
    for name in ("clang_getCursorBinaryOperatorKind", "clang_getCursorUnaryOperatorKind"):
        getattr(library, name).argtypes = [cindex.Cursor]
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
    # zig brings the headers of the C and C++ libraries, too, and prints the flags with which they are read.
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
