"""What a program consists of: its kernels with all that they need, its launches, and what cannot be adopted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mptune.adopt.parsing import Diagnostic, Extent, ProgramError, SourceFile, TranslationUnit, cursors, parse

__all__ = ["Declaration", "Kernel", "LaunchSite", "Parameter", "Program", "Refusal", "RuntimeCall", "read"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel.

    Attributes:
        name: its name; "" for one without.
        type: its type as the program writes it (``const Real *``).
        canonical: its type without typedefs (``const double *``).
        role: "in", "out" or "inout" for a pointer, by what the kernel and its device functions do with it; "scalar" for
            a number; "struct" for a struct by value.
        extent: where it is declared.
    """

    name: str
    type: str
    canonical: str
    role: str
    extent: Extent

    @property
    def is_pointer(self) -> bool:
        """Whether it is a pointer (or an array, which is one)."""
        return self.role in ("in", "out", "inout")

    @property
    def element(self) -> str:
        """The type it points at, or its own, without typedefs and qualifiers (``double``, ``double3``, ``BoxCU``)."""
        return re.sub(r"\b(const|volatile|struct|__restrict)\b|[*&]|\[\w*\]", "", self.canonical).strip()


@dataclass(frozen=True, slots=True)
class Declaration:
    """Something outside a kernel that it needs.

    Attributes:
        kind: "function" (of the device), "prototype" (of one that is used before it is defined), "struct", "typedef",
            "enum", "constant" (``__constant__``), "device" (``__device__`` variable), "variable" (of both sides,
            constant) or "macro".
        name: its name.
        extent: all of it, with ``template <...>``, ``#define`` and the semicolon.
    """

    kind: str
    name: str
    extent: Extent


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a program; an instantiation, if it is a template.

    Attributes:
        name: its name.
        arguments: of its template: what each parameter of it stands for, by name (``{"T": "double", "N": "19"}``).
        parameters: in order.
        extent: its definition, with ``template <...>``.
        body: from the opening brace to the closing one.
        needs: what is declared outside and used in it, also through device functions; in the order of the source.
        has_barrier: whether its threads wait for each other.
        has_shared: whether its threads share memory.
        is_flat: whether where a thread is enters only as the index ``blockIdx.x * blockDim.x + threadIdx.x`` (and
            ``gridDim.x * blockDim.x``, its stride), or the same of other axes, so that any block size does the same.
    """

    name: str
    arguments: Mapping[str, str]
    parameters: tuple[Parameter, ...]
    extent: Extent
    body: Extent
    needs: tuple[Declaration, ...]
    has_barrier: bool
    has_shared: bool
    is_flat: bool

    @property
    def label(self) -> str:
        """How a launch names it (``find_wall<19>``); no two of a program are the same."""
        return self.name + (f"<{', '.join(self.arguments.values())}>" if self.arguments else "")

    @property
    def identifier(self) -> str:
        """A name for what is made of it (``find_wall_19``)."""
        return re.sub(r"\W+", "_", self.label).strip("_")


@dataclass(frozen=True, slots=True)
class LaunchSite:
    """A place where the program launches a kernel.

    Attributes:
        kernel: the kernel's label.
        function: the host function it is in.
        extent: the whole call (``k<19><<<grid, block>>>(u, n)``, or ``hipLaunchKernelGGL(...)``).
        callee: the kernel's name in it, with template arguments.
        grid: its number of blocks, as written.
        block: its threads per block, as written.
        shared: its bytes of dynamic shared memory; None where none are written.
        stream: None where none is written.
        arguments: of the kernel, in order.
    """

    kernel: str
    function: str
    extent: Extent
    callee: Extent
    grid: Extent
    block: Extent
    shared: Extent | None
    stream: Extent | None
    arguments: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class RuntimeCall:
    """A call of the CUDA or HIP runtime.

    Attributes:
        name: in CUDA's spelling (``cudaMemcpy``, also for ``hipMemcpy``).
        function: the host function it is in.
        extent: the whole call.
        arguments: as written, in order.
    """

    name: str
    function: str
    extent: Extent
    arguments: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something in the program that mptune cannot adopt.

    Attributes:
        extent: where.
        what: what it is ("cub::BlockReduce").
        remedy: what the user can do.
        kernel: the label of the kernel that cannot be adopted; "" if it is the program.
    """

    extent: Extent
    what: str
    remedy: str
    kernel: str

    def __str__(self) -> str:
        subject = f"kernel {self.kernel} uses" if self.kernel else "the program uses"
        return f"{self.extent}: {subject} {self.what}, which cannot be adopted; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Program:
    """A program, read.

    Attributes:
        sources: the files a compiler is given.
        files: all files of the program, headers too.
        defines: macros of the command line.
        includes: folders of headers.
        entry: where ``main`` is defined; None if it is in none of the files.
        kernels: those that can be adopted, in the order of the source.
        launches: of kernels, also refused ones, in the order of the source.
        calls: of the runtime, in the order of the source.
        refusals: what cannot be adopted, and why.
        errors: clang's, outside kernels: the program may still be run.
        units: the files as clang parsed them.
    """

    sources: tuple[Path, ...]
    files: tuple[SourceFile, ...]
    defines: Mapping[str, str]
    includes: tuple[Path, ...]
    entry: Extent | None
    kernels: tuple[Kernel, ...]
    launches: tuple[LaunchSite, ...]
    calls: tuple[RuntimeCall, ...]
    refusals: tuple[Refusal, ...]
    errors: tuple[Diagnostic, ...]
    units: tuple[TranslationUnit, ...] = field(repr=False, compare=False)

    def text(self, extent: Extent) -> str:
        """Return a piece of the program as it is written."""
        return next(file for file in self.files if file.path == extent.file).of(extent)

    def kernel(self, label: str) -> Kernel:
        """Return a kernel by its label (``KeyError``, if there is none)."""
        for kernel in self.kernels:
            if kernel.label == label:
                return kernel
        raise KeyError(label)


def read(files: Sequence[Path], defines: Mapping[str, str] | None = None, includes: Sequence[Path] = ()) -> Program:
    """Read a program.

    Args:
        files: its sources, as a compiler is given them.
        defines: macros of the command line (``-D``), by name; "" for one without a value.
        includes: folders of headers (``-I``).

    Raises:
        ProgramError: a file is missing or does not parse, or there is no kernel in it.
    """
    units = parse(files, defines, includes)
    found = [_UnitReader(unit) for unit in units]
    texts = {source.path: source for unit in units for source in unit.files()}
    program = Program(
        sources=tuple(unit.path for unit in units),
        files=tuple(texts.values()),
        defines=dict(defines or {}),
        includes=tuple(includes),
        entry=next((reader.entry for reader in found if reader.entry), None),
        kernels=tuple({kernel.label: kernel for reader in found for kernel in reader.kernels}.values()),
        launches=tuple(launch for reader in found for launch in reader.launches),
        calls=tuple(call for reader in found for call in reader.calls),
        refusals=tuple(refusal for reader in found for refusal in reader.refusals),
        errors=tuple(error for reader in found for error in reader.errors),
        units=tuple(units),
    )
    if not program.kernels and not program.refusals:
        errors = "".join(f"\n  {error}" for error in program.errors[:5])
        names = ", ".join(file.name for file in files)
        raise ProgramError(f"no kernel in {names}" + (f"; clang could not read all of it:{errors}" if errors else ""))
    return program


_FUNCTIONS: Final = ("FUNCTION_DECL", "FUNCTION_TEMPLATE", "CXX_METHOD", "CONSTRUCTOR", "CONVERSION_FUNCTION")
_TYPES: Final = ("STRUCT_DECL", "CLASS_DECL", "UNION_DECL", "CLASS_TEMPLATE")
_RUNTIME: Final = re.compile(r"(cuda|hip)[A-Z]\w+")
#: `blockIdx.x * blockDim.x + threadIdx.x` in every order, and `gridDim.x * blockDim.x`.
_FLAT: Final = re.compile(
    r"\(?\bblock(?:Idx|Dim)\.(\w)\)?\s*\*\s*\(?block(?:Idx|Dim)\.\1\)?\s*\+\s*threadIdx\.\1"
    r"|\bthreadIdx\.(\w)\s*\+\s*\(?\s*block(?:Idx|Dim)\.\2\s*\*\s*block(?:Idx|Dim)\.\2"
    r"|\b(?:gridDim|blockDim)\.(\w)\s*\*\s*(?:gridDim|blockDim)\.\3"
)


class _UnitReader:
    """What there is in one translation unit."""

    def __init__(self, unit: TranslationUnit) -> None:
        self._unit = unit
        self.entry: Extent | None = None
        self.kernels: list[Kernel] = []
        self.launches: list[LaunchSite] = []
        self.calls: list[RuntimeCall] = []
        self.refusals: list[Refusal] = []
        self.errors = list(unit.diagnostics())
        self._order = _order_of_files(unit)
        self._macros: dict[str, Any] = {}
        self._uses_of_macros: list[tuple[Extent, Any]] = []
        top = [cursor for cursor in unit.unit.cursor.get_children() if unit.extent(cursor) is not None]
        for cursor in top:
            if cursor.kind.name == "MACRO_DEFINITION":
                self._macros[cursor.spelling] = cursor
            elif cursor.kind.name == "MACRO_INSTANTIATION":
                extent = unit.extent(cursor)
                assert extent is not None
                self._uses_of_macros.append((extent, cursor))
        for cursor in top:
            self._read(cursor)

    def _read(self, cursor: Any) -> None:
        kind = cursor.kind.name
        if kind in ("NAMESPACE", "LINKAGE_SPEC", "UNEXPOSED_DECL"):
            for child in cursor.get_children():
                self._read(child)
        elif kind in _FUNCTIONS and cursor.is_definition():
            if is_kernel(cursor):
                self.kernels.append(self._kernel(cursor))
            elif not is_device(cursor):
                if cursor.spelling == "main":
                    self.entry = self._unit.extent(cursor)
                self._host(cursor)

    def _kernel(self, cursor: Any) -> Kernel:
        extent, body = self._unit.extent(cursor), self._unit.extent(_body(cursor))
        assert extent is not None
        assert body is not None
        needs, text = self._needs(cursor)
        without_index = _FLAT.sub("", text)
        return Kernel(
            name=cursor.spelling,
            arguments={},
            parameters=tuple(
                self._parameter(child) for child in cursor.get_children() if child.kind.name == "PARM_DECL"
            ),
            extent=extent,
            body=body,
            needs=needs,
            has_barrier="__syncthreads" in text,
            has_shared="__shared__" in text or "HIP_DYNAMIC_SHARED" in text,
            is_flat=re.search(r"\b(threadIdx|blockIdx|blockDim|gridDim|hipThreadIdx|hipBlock|hipGrid)", without_index)
            is None,
        )

    def _parameter(self, cursor: Any) -> Parameter:
        canonical = cursor.type.get_canonical()
        extent = self._unit.extent(cursor)
        assert extent is not None
        if canonical.kind.name in ("POINTER", "INCOMPLETEARRAY", "CONSTANTARRAY"):
            pointee = canonical.get_pointee() if canonical.kind.name == "POINTER" else canonical.element_type
            role = "in" if pointee.is_const_qualified() else "inout"
        else:
            role = "struct" if canonical.kind.name == "RECORD" else "scalar"
        return Parameter(cursor.spelling, cursor.type.spelling, canonical.spelling, role, extent)

    def _needs(self, kernel: Any) -> tuple[tuple[Declaration, ...], str]:
        """Find what a kernel needs, and the text of itself and of all device functions among it."""
        found: dict[tuple[object, ...], Declaration] = {}
        seen: set[str] = set()
        texts: list[str] = []
        waiting = [kernel]
        while waiting:
            cursor = waiting.pop()
            extent = self._unit.extent(cursor)
            if extent is None:
                continue
            if cursor.kind.name in _FUNCTIONS:
                texts.append(self._text(extent))
            for name in self._macros_used(extent):
                definition = self._macros[name]
                place = self._macro(definition)
                found.setdefault(self._place(place), Declaration("macro", name, place))
            for inner in cursors(cursor):
                referenced = inner.referenced
                if referenced is None:
                    continue
                for target in filter(None, (self._outermost(referenced), self._definition(referenced))):
                    if target.get_usr() + str(target.is_definition()) in seen or target == kernel:
                        continue
                    seen.add(target.get_usr() + str(target.is_definition()))
                    declaration = self._declaration(target)
                    if declaration is None:
                        continue
                    found.setdefault(self._place(declaration.extent), declaration)
                    waiting.append(target)
        return tuple(found[place] for place in sorted(found)), "\n".join(texts)

    def _macros_used(self, extent: Extent) -> Iterator[str]:
        """Give the program's macros that are used in a piece, and those that these use."""
        waiting = [cursor.spelling for place, cursor in self._uses_of_macros if place in extent]
        seen: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self._macros:
                continue
            seen.add(name)
            yield name
            waiting += re.findall(r"[A-Za-z_]\w*", self._text(self._macro(self._macros[name])))

    def _macro(self, definition: Any) -> Extent:
        """Return the whole line (or lines) of a macro's definition."""
        extent = self._unit.extent(definition)
        assert extent is not None
        text = self._source(extent).text
        return Extent(extent.file, text.rindex("#", 0, extent.start), extent.end, extent.line)

    def _outermost(self, cursor: Any) -> Any:
        """Return the declaration at the program's top level that holds another; None for a local of a function."""
        while (parent := cursor.semantic_parent) is not None:
            if parent.kind.name in ("TRANSLATION_UNIT", "NAMESPACE", "LINKAGE_SPEC"):
                return cursor
            if parent.kind.name in _FUNCTIONS:
                return None
            cursor = parent
        return None

    def _definition(self, cursor: Any) -> Any:
        outermost = self._outermost(cursor)
        return outermost.get_definition() if outermost is not None else None

    def _declaration(self, cursor: Any) -> Declaration | None:
        extent = self._unit.extent(cursor)
        if extent is None:
            return None
        kind = cursor.kind.name
        if kind in _FUNCTIONS:
            if cursor.is_definition():
                return Declaration("function", cursor.spelling, extent)
            return Declaration("prototype", cursor.spelling, self._with_semicolon(extent))
        if kind in _TYPES:
            return Declaration("struct", cursor.spelling, self._with_semicolon(extent))
        if kind in ("TYPEDEF_DECL", "TYPE_ALIAS_DECL", "TYPE_ALIAS_TEMPLATE_DECL"):
            return Declaration("typedef", cursor.spelling, self._with_semicolon(extent))
        if kind == "ENUM_DECL":
            return Declaration("enum", cursor.spelling, self._with_semicolon(extent))
        if kind == "VAR_DECL":
            kinds = {child.kind.name for child in cursor.get_children()}
            constant = (
                "constant" if "CUDACONSTANT_ATTR" in kinds else "device" if "CUDADEVICE_ATTR" in kinds else "variable"
            )
            return Declaration(constant, cursor.spelling, self._with_semicolon(extent))
        return None

    def _host(self, function: Any) -> None:
        for cursor in cursors(_body(function) or function):
            if cursor.kind.name != "CALL_EXPR":
                continue
            children = list(cursor.get_children())
            if len(children) > 1 and children[1].spelling == "__cudaPushCallConfiguration":
                self._launch(function, cursor, children)
            elif not children or cursor.referenced is None or cursor.referenced.kind.name == "CONSTRUCTOR":
                continue
            elif _RUNTIME.fullmatch(cursor.spelling) and (extent := self._unit.extent(cursor)) is not None:
                name = re.sub("^hip", "cuda", cursor.spelling)
                arguments = tuple(filter(None, (self._unit.extent(child) for child in cursor.get_arguments())))
                self.calls.append(RuntimeCall(name, function.spelling, extent, arguments))

    def _launch(self, function: Any, cursor: Any, children: list[Any]) -> None:
        unit = self._unit
        grid, block, shared, stream = (unit.extent(child) for child in list(children[1].get_children())[1:5])
        extent, callee = unit.extent(cursor), unit.extent(children[0])
        assert extent is not None
        assert callee is not None
        assert grid is not None
        assert block is not None
        arguments = tuple(filter(None, (unit.extent(child) for child in children[2:])))
        label = children[0].spelling
        self.launches.append(
            LaunchSite(label, function.spelling, extent, callee, grid, block, shared, stream, arguments)
        )

    def _with_semicolon(self, extent: Extent) -> Extent:
        text = self._source(extent).text
        end = text.find(";", extent.end)
        return Extent(extent.file, extent.start, end + 1 if end >= 0 else extent.end, extent.line)

    def _place(self, extent: Extent) -> tuple[object, ...]:
        return (*self._order[extent.file], extent.start)

    def _source(self, extent: Extent) -> SourceFile:
        source = self._unit.source(str(extent.file))
        assert source is not None
        return source

    def _text(self, extent: Extent) -> str:
        return self._source(extent).of(extent)


def is_kernel(function: Any) -> bool:
    """Whether a function is a kernel."""
    return any(child.kind.name == "CUDAGLOBAL_ATTR" for child in function.get_children())


def is_device(function: Any) -> bool:
    """Whether a function runs on the device, perhaps on the host too."""
    return any(child.kind.name == "CUDADEVICE_ATTR" for child in function.get_children())


def _body(function: Any) -> Any:
    return next((child for child in function.get_children() if child.kind.name == "COMPOUND_STMT"), None)


def _order_of_files(unit: TranslationUnit) -> dict[Path, tuple[int, ...]]:
    """Return for each file of the program where it is read: the places of the includes that lead to it."""
    order: dict[Path, tuple[int, ...]] = {unit.path: ()}
    for inclusion in unit.unit.get_includes():
        if inclusion.source is None:
            continue  # the command line's
        source, path = Path(str(inclusion.source.name)).resolve(), Path(str(inclusion.include.name)).resolve()
        if source in order and path not in order:
            order[path] = (*order[source], inclusion.location.offset)
    return order
