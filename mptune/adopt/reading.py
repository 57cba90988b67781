"""What a program consists of: its kernels with their needs, its launches, and what cannot be adopted."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mptune.adopt.accesses import Accesses
from mptune.adopt.number_types import NUMBERS, bare_name, element_of, fields_within, has_bases, is_array, vector_of
from mptune.adopt.outlining import CutLoop, outlined
from mptune.adopt.parsing import (
    FUNCTIONS,
    REFERENCES,
    Diagnostic,
    Extent,
    Function,
    Node,
    ProgramError,
    Refusal,
    SourceFile,
    TemplateArgument,
    TranslationUnit,
    bare,
    labelled,
    library_of,
    parse,
    specialisation_of,
    specialised_from,
    without_casts,
)
from mptune.adopt.rewriting import WAITS, blanked, has_device_code
from mptune.cpp.prelude import WAITING_LIBRARIES
from mptune.cpp.tokens import tokens
from mptune.errors import did_you_mean


@dataclass(frozen=True, slots=True)
class Field:
    """A number, or an array of numbers, in an element of memory.

    Attributes:
        name: of the field, with the fields on the way (``position.x``); "" in memory of numbers.
        scalar: its type in C++ without typedefs; "pointer" for a pointer.
        count: how many there are.
        offset: where it begins, in bytes.
        struct: the struct with the field; "" in memory of numbers.
        components: how many make a vector (3 of ``double3``); 1 of numbers.
    """

    name: str
    scalar: str
    count: int
    offset: int
    struct: str = ""
    components: int = 1


@dataclass(frozen=True, slots=True)
class Memory:
    """An element of an array in memory.

    Attributes:
        name: its type without typedefs and qualifiers (``double``, ``double3``, ``Body``).
        bytes: its size.
        fields: the numbers in it; none for a type whose numbers cannot be told apart (unions, fields of bits).
        declared: clang's names of the fields of its structs, also of those whose numbers cannot be told apart; vectors
            have none.
        alignment: of its place in memory, in bytes.
    """

    name: str
    bytes: int
    fields: tuple[Field, ...]
    declared: tuple[str, ...] = ()
    alignment: int = 1

    @property
    def numbers(self) -> tuple[str, int]:
        """The type of its numbers and how many there are; bytes if there are several types."""
        scalars = {field.scalar for field in self.fields}
        count = sum(field.count for field in self.fields)
        if len(scalars) == 1 and count and self.bytes == count * _bytes_of(next(iter(scalars))):
            return scalars.pop(), count
        return "unsigned char", self.bytes

    @property
    def components(self) -> int:
        """How many numbers there are in an element that is a struct; 1 for numbers and arrays of them."""
        return 1 if len(self.fields) == 1 and not self.fields[0].name else self.numbers[1]

    @property
    def is_mixed(self) -> bool:
        """Whether it is a struct that is no array of numbers of one type."""
        return self.numbers[0] == "unsigned char" and any(field.scalar != "unsigned char" for field in self.fields)

    @property
    def has_gaps_in_others(self) -> bool:
        """Whether its numbers, which are of one type, would have gaps between them in a shorter type.

        CUDA aligns a vector of two or four numbers to its length, but to 16 bytes at most.
        """
        scalar = _bytes_of(self.numbers[0]) or 1
        lengths = {each.offset: (each.components & -each.components) * scalar for each in self.fields}
        is_apart = any(place % length or self.bytes % length for place, length in lengths.items())
        return is_apart or self.alignment > min(max(lengths.values(), default=1), 16)

    @property
    def padding(self) -> tuple[bool, ...]:
        """For each byte whether it is padding; empty if no byte is, or if the layout is not known."""
        if not all(_bytes_of(field.scalar) for field in self.fields):
            return ()
        spans = [(field.offset, field.offset + field.count * _bytes_of(field.scalar)) for field in self.fields]
        found = tuple(not any(start <= at < end for start, end in spans) for at in range(self.bytes))
        return found if spans and any(found) else ()

    @property
    def has_pointers(self) -> bool:
        """Whether pointers are kept in it."""
        return any(field.scalar == "pointer" for field in self.fields)


def _bytes_of(scalar: str) -> int:
    return NUMBERS[scalar].bytes if scalar in NUMBERS else 0


#: The parts of a type besides the name of the element.
_DECORATION: Final = re.compile(r"\b(const|volatile|struct|__restrict)\b|\(anonymous namespace\)::|[*&()]|\[\w*\]")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel, or a field of a struct that is one.

    Attributes:
        name: its name ("" for none); of a field with the fields on the way (``u.x``, ``u.weights[2]``).
        type: its type as the program writes it (``const Real *``).
        canonical: its type without typedefs (``const double *``).
        role: "in", "out" or "inout" for a pointer, by the accesses of the kernel and its device functions; "scalar" for
            a number; "struct" for a struct by value.
        extent: its declaration.
        fields: of a struct by value, with the fields of structs in it and the elements of arrays in it.
        memory: an element of a pointer's memory; None for any other.
        is_used: whether the kernel uses it; a field that is a pointer may be left alone.
        struct: the name of a struct by value, as members of type classes have it, without its namespace.
    """

    name: str
    type: str
    canonical: str
    role: str
    extent: Extent
    fields: tuple[Parameter, ...] = ()
    memory: Memory | None = None
    is_used: bool = True
    struct: str = ""

    @property
    def is_pointer(self) -> bool:
        """Whether it is a pointer (or an array, which is one)."""
        return self.role in ("in", "out", "inout")

    @property
    def flat(self) -> str:
        """Its name as a parameter of its own: that of a field has those of the fields on the way (``u_x``)."""
        return re.sub(r"\W+", "_", self.name).strip("_") if self.name[-1:] == "]" or "." in self.name else self.name

    @property
    def element(self) -> str:
        """The type it points at, or its own, without typedefs and qualifiers (``double``, ``double3``, ``BoxCU``)."""
        return _DECORATION.sub("", self.canonical).strip()


@dataclass(frozen=True, slots=True)
class TemplateCall:
    """A call of a device function that is an instantiation of a template.

    Attributes:
        extent: the function's name in the call, with template arguments if they are written (``help<T, N>``).
        label: of the function (``help<double, 3>``).
    """

    extent: Extent
    label: str


@dataclass(frozen=True, slots=True)
class Declaration:
    """A declaration outside a kernel that the kernel needs.

    Attributes:
        kind: "function" (of the device), "prototype" (of one that is declared before it is defined), "struct",
            "typedef", "enum", "constant" (``__constant__``), "device" (``__device__`` variable), "shared" (memory whose
            size a launch gives), "variable" (of both sides, constant) or "macro".
        name: its name.
        extent: all of it, with ``template <...>``, ``#define`` and the semicolon.
        arguments: of a function's template, as those of a kernel.
        calls: of instantiated device functions, in a function.
        memory: an element of a variable.
        namespace: clang's name of the scope of a struct.
    """

    kind: str
    name: str
    extent: Extent
    arguments: tuple[TemplateArgument, ...] = ()
    calls: tuple[TemplateCall, ...] = ()
    memory: Memory | None = None
    namespace: str = ""

    @property
    def label(self) -> str:
        """The name by which a call names it, with template arguments."""
        return labelled(self.name, self.arguments)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a program; each instantiation of a template is one.

    Attributes:
        name: its name.
        arguments: of its template; empty if it is none.
        parameters: in order.
        extent: its definition, with ``template <...>``.
        body: from the opening brace to the closing one.
        needs: the declarations outside that it uses, also through device functions, in the order of the source. A
            device function that is a template is there once for each instantiation.
        calls: of instantiated device functions in its body.
        has_barrier: whether its threads wait for each other, all of a block or those of a warp.
        has_shared: whether its threads share memory.
        is_flat: whether any block size does the same: a thread's place enters only as the index
            ``blockIdx.x * blockDim.x + threadIdx.x`` (and ``gridDim.x * blockDim.x``, its stride), also of other axes.
        asks_elsewhere: whether a function that it calls uses a thread's place.
        libraries: those for kernels that it uses, by their names in templates.
    """

    name: str
    arguments: tuple[TemplateArgument, ...]
    parameters: tuple[Parameter, ...]
    extent: Extent
    body: Extent
    needs: tuple[Declaration, ...]
    calls: tuple[TemplateCall, ...]
    has_barrier: bool
    has_shared: bool
    is_flat: bool
    asks_elsewhere: bool
    libraries: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name by which a launch names it (``find_wall<19>``), unique in a program."""
        return labelled(self.name, self.arguments)

    @property
    def identifier(self) -> str:
        """Its label as an identifier (``find_wall_19``)."""
        return re.sub(r"\W+", "_", self.label).strip("_")


@dataclass(frozen=True, slots=True)
class LaunchSite:
    """A place where the program launches a kernel.

    Attributes:
        kernel: the kernel's label.
        extent: the whole call (``k<19><<<grid, block>>>(u, n)``, or ``hipLaunchKernelGGL(...)``).
        callee: the kernel's name in it, with template arguments.
        shared: its bytes of dynamic shared memory; None where none are written.
        arguments: of the kernel, in order.
    """

    kernel: str
    extent: Extent
    callee: Extent
    shared: Extent | None
    arguments: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A program, read.

    Attributes:
        sources: the files a compiler is given.
        files: all files of the program, headers too.
        defines: macros of the command line.
        includes: folders of headers.
        entry: the definition of ``main``; None if it is in none of the files.
        kernels: those that can be adopted, in the order of the source.
        launches: of kernels, also refused ones, in the order of the source.
        refusals: what cannot be adopted, and why.
        errors: clang's, outside kernels: the program may still be run.
        tuned: the labels of the kernels to tune, if not all are.
        originals: the files with another text on disk, since loops were cut out of their functions.
        loops: those that became kernels.
        places: of each character of the files with kernels for loops, where it begins and ends on disk; -1 for no such
            place. Empty if more than its loops was changed.
        units: the files as clang parsed them.
        macros: macros whose values are tuned, with these.
    """

    sources: tuple[Path, ...]
    files: tuple[SourceFile, ...]
    defines: Mapping[str, str]
    includes: tuple[Path, ...]
    entry: Extent | None
    kernels: tuple[Kernel, ...]
    launches: tuple[LaunchSite, ...]
    refusals: tuple[Refusal, ...]
    errors: tuple[Diagnostic, ...]
    tuned: tuple[str, ...]
    originals: tuple[SourceFile, ...]
    loops: tuple[CutLoop, ...]
    places: Mapping[Path, Sequence[tuple[int, int]]] = field(repr=False, compare=False)
    units: tuple[TranslationUnit, ...] = field(repr=False, compare=False)
    macros: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def text(self, extent: Extent) -> str:
        """Return a piece of the program as it is written."""
        return next(file for file in self.files if file.path == extent.file).of(extent)

    def kernel(self, label: str) -> Kernel:
        """Return a kernel by its label (``KeyError``, if there is none)."""
        for kernel in self.kernels:
            if kernel.label == label:
                return kernel
        raise KeyError(label)


def paddings(program: Program) -> tuple[tuple[bool, ...], ...]:
    """Return for structs in the memory of a program's kernels which of their bytes are between fields."""
    parameters = [each for kernel in program.kernels for each in kernel.parameters]
    found = (each.memory.padding for each in parameters if each.memory is not None)
    return tuple(dict.fromkeys(filter(None, found)))


def own_files(program: Program) -> list[SourceFile]:
    """Return the files of a program as they are on disk."""
    return list({file.path: file for file in (*program.files, *program.originals)}.values())


def read(
    files: Sequence[Path],
    defines: Mapping[str, str] | None = None,
    includes: Sequence[Path] = (),
    kernels: Sequence[str] = (),
    texts: Mapping[Path, str] | None = None,
) -> Program:
    """Read a program.

    Args:
        files: its sources, as a compiler is given them.
        defines: macros of the command line (``-D``), by name; "" for one without a value.
        includes: folders of headers (``-I``).
        kernels: the names of the kernels to tune; empty for all.
        texts: texts of files that differ from those on disk.

    Raises:
        ProgramError: a file is missing or does not parse, or there is no kernel in it, or none of a name.
    """
    texts = texts or {}
    units = parse(files, defines, includes, texts)
    found = [file for unit in units for file in unit.files()]
    changed = _with_own_vectors(found)
    if changed:
        units = parse(files, defines, includes, {**texts, **changed})
    cut = outlined(units)
    is_otherwise_as_it_was = not changed
    if cut.texts:
        changed = {**changed, **cut.texts}
        units = parse(files, defines, includes, {**texts, **changed})
    originals = {file.path: file for file in found if file.path in changed}
    reader = _Reader(units)
    refusals = (*cut.refusals, *reader.refusals)
    program = Program(
        sources=tuple(unit.path for unit in units),
        files=tuple({source.path: source for unit in units for source in unit.files()}.values()),
        defines=dict(defines or {}),
        includes=tuple(includes),
        entry=reader.entry,
        kernels=tuple(reader.kernels.values()),
        launches=tuple(reader.launches.values()),
        refusals=tuple({str(refusal): refusal for refusal in refusals}.values()),
        errors=tuple(error for error in reader.errors if error.extent is not None),
        tuned=(),
        originals=tuple(originals.values()),
        loops=cut.loops,
        places=cut.places if is_otherwise_as_it_was else {},
        units=tuple(units),
    )
    if not program.kernels and not program.refusals:
        errors = "".join(f"\n  {error}" for error in program.errors[:5])
        hint = f"; clang could not read all of it:{errors}" if errors else ""
        if unused := next((name for unit in units for name in _templates(unit)), ""):
            hint = f"; no launch in the same file says which types the template {unused} has"
        raise ProgramError(f"no kernel in {', '.join(map(str, files))}{hint}")
    return dataclasses.replace(program, tuned=_tuned(program, kernels))


def _templates(unit: TranslationUnit) -> Iterator[str]:
    for node in unit.top:
        if node.kind == "FUNCTION_TEMPLATE" and any(child.kind == "CUDAGLOBAL_ATTR" for child in node.children):
            yield node.spelling


_VECTOR: Final = r"(?:u?(?:char|short|int|long|longlong)|float|double)[1-4]"
_OWN_VECTOR: Final = re.compile(rf"\b(?:struct|class)\s+({_VECTOR})\s*\{{|\}}\s*({_VECTOR})\s*;")
_INCLUDES_CUDA: Final = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<(?:cuda|hip|vector_)", re.MULTILINE)


def _with_own_vectors(files: Sequence[SourceFile]) -> dict[Path, str]:
    """Return the files of plain C++ that have structs with the names of CUDA's vectors, with other names for those.

    Their kernels are compiled with headers that have CUDA's vectors.
    """
    code = {file.path: blanked(file.text) for file in files}
    names = {name for text in code.values() for found in _OWN_VECTOR.findall(text) for name in found if name}
    if not names or any(has_device_code(text) or _INCLUDES_CUDA.search(text) for text in code.values()):
        return {}
    named = re.compile(rf"\b(?:make_)?(?:{'|'.join(sorted(names))})\b")
    changed = {}
    for file in files:
        places = [found.end() for found in named.finditer(code[file.path])]
        if places:
            pieces = itertools.pairwise((0, *places, len(file.text)))
            changed[file.path] = "_".join(file.text[start:end] for start, end in pieces)
    return changed


def _tuned(program: Program, names: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of the kernels that a user names; the name of a template stands for all instantiations."""
    labels: list[str] = []
    for name in names:
        found = [kernel.label for kernel in program.kernels if name in (kernel.label, kernel.name, kernel.identifier)]
        refused = [str(refusal) for refusal in program.refusals if refusal.kernel == name]
        if not found:
            known = [kernel.label for kernel in program.kernels]
            expected = f"expected {', '.join(known)}{did_you_mean(name, known)}"
            raise ProgramError("\n".join(refused) or f"there is no kernel {name} in the program; {expected}")
        labels += found
    return tuple(dict.fromkeys(labels))


# -- kernels, launches, refusals -------------------------------------------------------------------

#: What a kernel does that launches another: on the processor no part of the program runs then.
NESTED: Final = "launches a kernel itself"
#: What a kernel does whose blocks wait for each other: on the processor they do not run at the same time.
GRID: Final = "waits for all blocks of its grid"
IN_STEP: Final = "counts on the threads of a warp to run in step, which they need not do on a GPU either"
_KINDS: Final = {
    **dict.fromkeys(("STRUCT_DECL", "CLASS_DECL", "UNION_DECL", "CLASS_TEMPLATE"), "struct"),
    "CLASS_TEMPLATE_PARTIAL_SPECIALIZATION": "struct",
    **dict.fromkeys(("TYPEDEF_DECL", "TYPE_ALIAS_DECL", "TYPE_ALIAS_TEMPLATE_DECL"), "typedef"),
    "ENUM_DECL": "enum",
}
_HIP_PLACE: Final = re.compile(r"hip(Thread|Block|Grid)(Idx|Dim)_(\w)")
_PLACE: Final = re.compile(r"(threadIdx|blockIdx|blockDim|gridDim)\.")
#: A cast of one of these to a type that has room for any index, in a text without spaces.
_ROOM: Final = r"(?:unsigned|int|unsignedint|(?:unsigned)?(?:long)?long|(?:std::)?(?:size_t|u?int(?:32|64)_t))"
_PLACE_CAST: Final = re.compile(
    rf"(?:\({_ROOM}\)|static_cast<{_ROOM}>)(?=\(?(?:threadIdx|blockIdx|blockDim|gridDim)\.)"
)
#: The index of a thread among all of them, and how many there are, in a text without spaces.
_INDEX: Final = re.compile(
    r"\(?(?:blockIdx\.(\w)\)?\*\(?blockDim|blockDim\.(\w)\)?\*\(?blockIdx)\.(?:\1|\2)\)?\+\(?threadIdx\.(?:\1|\2)\b"
    r"|threadIdx\.(\w)\)?\+\(?(?:blockIdx\.\3\)?\*\(?blockDim|blockDim\.\3\)?\*\(?blockIdx)\.\3\b"
    r"|(?:gridDim\.(\w)\)?\*\(?blockDim|blockDim\.(\w)\)?\*\(?gridDim)\.(?:\4|\5)\b"
)
#: clang's errors of a function or type of CUDA that is not there.
_NOT_THERE: Final = re.compile(
    r"(?:use of undeclared identifier|unknown type name) '((?:cuda|hip|cublas|cufft|curand)[A-Z]\w*)'"
)
#: clang's errors of an operator that is not there, and the functions' names of pairs, which have them in CUDA.
_NO_OPERATOR: Final = re.compile(r"invalid operands|invalid argument type|no viable overloaded")
_PAIR: Final = re.compile(r"\b(?:__)?(?:half2|(?:nv_|hip_)bfloat162)\b")
#: Constructs that kernels cannot use: the words that show them, what they are called, and what to do.
_FORBIDDEN: Final = (
    (re.compile(r"thrust"), "thrust", "write the algorithm out as a kernel"),
    (re.compile(r"wmma|nvcuda"), "tensor cores (wmma)", "write the product out as loops"),
    (re.compile(r"tex[123]D\w*|surf[123]D\w*|texture|surface|(?:cuda|hip)(?:Texture|Surface)Object_t|tex1Dfetch"),
     "textures or surfaces", "read from a buffer instead"),
    (re.compile(r"asm|__asm__|__asm"), "inline assembly", "write it in C++"),
    (re.compile(r"__pipeline_\w+|memcpy_async"), "asynchronous copies", "copy with ordinary loads"),
    (re.compile(r"__(?:[fd](?:add|sub|mul|div|rcp|sqrt)|fmaf?)_r[duz]"),
     "arithmetic that rounds to a side", "round to the nearest: the same with _rn"),
    (re.compile(r"(?:erfcx|erfinv|erfcinv|normcdfinv)f?"),
     "a function that the C library of processors has not", "compute it on the host, or write an approximation out"),
    (re.compile(r"__v[a-z]+[24]"), "instructions on the bytes of a word", "compute each byte for itself"),
    (re.compile(r"__trap|__nanosleep|clock|clock64|wall_clock64"),
     "what only a GPU has (__trap, clocks)", "leave it out: mptune measures times itself"),
)  # fmt: skip
_NAMED: Final = ("VAR_DECL", "PARM_DECL", "FIELD_DECL", "FUNCTION_DECL")
#: Kinds that may name a declaration, by themselves or by their type.
_NAMING: Final = (
    *("DECL_REF_EXPR", "MEMBER_REF_EXPR", "TYPE_REF", "TEMPLATE_REF", "OVERLOADED_DECL_REF", "NAMESPACE_REF"),
    *("VAR_DECL", "PARM_DECL", "FIELD_DECL", "CXX_BASE_SPECIFIER", "CALL_EXPR"),
)
#: Advice on libraries that are not supported, by the beginning of their headers' names.
_LIBRARIES: Final = {
    "cub/": "write its reductions and scans out with shared memory: mptune has no more of cub",
    "thrust/": "write its algorithms out as kernels: mptune has no more of thrust",
    **dict.fromkeys(
        ("cublas", "cusparse", "cusolver", "cufft", "cudnn", "curand", "nccl", "nvml", "npp", "cutlass", "mma", "nvtx",
         "hipblas", "rocblas", "hipfft", "rocfft", "hiprand", "rocrand", "hipsparse", "cooperative_groups", "cuda/"),
        "mptune runs the program on the CPU, where this library is not: write out what it does, or call it elsewhere",
    ),
    "mpi": "build the program without MPI: mptune runs one process",
    "": "give its folder with -I",
}  # fmt: skip


#: Why a kernel cannot be adopted: the place, what the kernel does there, and what to do.
_Reason = tuple[Extent, str, str]


@dataclass(slots=True)
class _Facts:
    """The functions a function uses, its template calls, the declarations it names, and reasons to refuse it."""

    called: dict[str, None] = field(default_factory=dict)
    calls: dict[Extent, TemplateCall] = field(default_factory=dict)
    targets: dict[tuple[str, bool], Node] = field(default_factory=dict)
    forbidden: list[_Reason] = field(default_factory=list)
    libraries: dict[str, None] = field(default_factory=dict)


class _Reader:
    """Reads the kernels and launches of all files: a device function may be defined in another file than its call."""

    def __init__(self, units: Sequence[TranslationUnit]) -> None:
        self._units = units
        self.entry: Extent | None = None
        self.kernels: dict[str, Kernel] = {}
        self.launches: dict[tuple[Extent, str], LaunchSite] = {}
        self.refusals: list[Refusal] = []
        self.errors = [error for unit in units for error in unit.diagnostics()]
        self._functions: dict[str, Function] = {}
        for function in (function for unit in units for function in unit.functions):
            self._functions.setdefault(function.usr, function)
        self._accesses = Accesses(self._functions)
        declared = [node for unit in units for node in unit.top if node.kind in (*_NAMED, *_KINDS)]
        #: Names that the program declares itself: no construct of CUDA is meant by them.
        self._own = {node.spelling for each in declared for node in (each, *each.children) if node.kind in _NAMED}
        self._own |= {function.name for function in self._functions.values()}
        self._known: dict[str, _Facts] = {}
        #: Of each file that a compiler is given: macros by name, and their uses in order.
        self._macros: dict[Path, tuple[dict[str, list[Extent]], list[tuple[Extent, str]]]] = {}
        for unit in units:
            macros: dict[str, list[Extent]] = {}
            for node in unit.top:
                if node.kind == "MACRO_DEFINITION" and node.extent is not None:
                    macros.setdefault(node.spelling, []).append(node.extent)
            uses = [node for node in unit.top if node.kind == "MACRO_INSTANTIATION" and node.spelling in macros]
            self._macros[unit.path] = macros, sorted((n.extent, n.spelling) for n in uses if n.extent is not None)
        #: What a class template is for some arguments, by clang's name of the template.
        self._special: dict[str, list[Node]] = {}
        for node in (node for unit in units for node in unit.top if _KINDS.get(node.kind) == "struct"):
            if template := specialised_from(node):
                self._special.setdefault(template, []).append(node)
        self._not_there()
        for function in (function for unit in units for function in unit.functions):
            if function.is_kernel:
                self._kernel(function)
            else:
                if function.name == "main" and not function.is_device:
                    self.entry = self.entry or function.extent
                self._host(function)

    def _not_there(self) -> None:
        """Refuse headers and functions of CUDA that mptune does not have."""
        for error in self.errors:
            if error.extent is None:
                continue
            if missing := re.fullmatch(r"'(.+)' file not found", error.message):
                remedy = next(text for start, text in _LIBRARIES.items() if missing[1].startswith(start))
                self.refusals.append(Refusal(error.extent, f"includes {missing[1]}, which is not there", remedy, ""))
            if missing := _NOT_THERE.match(error.message):
                launches = "Launch" in missing[1]
                remedy = "launch kernels as k<<<blocks, threads>>>(arguments)" if launches else "do without it"
                self.refusals.append(Refusal(error.extent, f"uses {missing[1]}, which is not there", remedy, ""))

    def _kernel(self, function: Function) -> None:
        used = self._used_functions(function)
        needs = self._needs(used)
        found = list(self._reasons(function, used, needs)) or list(self._errors_in(used))
        reasons = [Refusal(place, what, remedy, function.label) for place, what, remedy in found]
        self.refusals += reasons
        if reasons:
            return
        macros = [need.extent for need in needs if need.kind == "macro"]  # (which may name a thread's place)
        pieces = [*(inner.extent for inner in used), *macros]
        code = (re.sub(r"\s", "", "".join(token.text for token in tokens(self._text(piece)))) for piece in pieces)
        texts = [_HIP_PLACE.sub(lambda m: f"{m[1].lower()}{m[2]}.{m[3]}", text) for text in code]
        text = "".join(texts)
        accesses = self._accesses.of(function)
        libraries = tuple(dict.fromkeys(name for inner in used for name in self._facts(inner).libraries))
        waits = not WAITING_LIBRARIES.isdisjoint(libraries)
        shares = "__shared__" in text or "HIP_DYNAMIC_SHARED" in text or any(need.kind == "shared" for need in needs)
        kernel = Kernel(
            name=function.name,
            arguments=function.arguments,
            parameters=tuple(
                _parameter(node.spelling, node.cursor.type, node.extent, (index,), accesses)
                for index, node in enumerate(function.parameters)
                if node.extent is not None
            ),
            extent=function.extent,
            body=function.body,
            needs=needs,
            calls=tuple(self._facts(function).calls.values()),
            has_barrier=waits or WAITS.search(text) is not None,
            has_shared=shares,
            is_flat=not waits and _PLACE.search(_INDEX.sub("", _PLACE_CAST.sub("", text))) is None,
            asks_elsewhere=_PLACE.search("".join(texts[1 : len(used)])) is not None,
            libraries=libraries,
        )
        other = self.kernels.setdefault(kernel.label, kernel)
        if other.extent != kernel.extent and self._text(other.extent) != self._text(kernel.extent):
            what = f"has the name of another kernel ({other.extent})"
            self.refusals.append(Refusal(kernel.extent, what, "rename one of them", kernel.label))

    def _used_functions(self, function: Function) -> list[Function]:
        """Return a function and the program's functions that it uses, itself first."""
        found = {function.usr: function}
        waiting = [function]
        while waiting:
            for usr in self._facts(waiting.pop()).called:
                if usr not in found:
                    found[usr] = self._functions[usr]
                    waiting.append(self._functions[usr])
        return list(found.values())

    def _errors_in(self, used: list[Function]) -> Iterator[_Reason]:
        """Yield clang's first error in a kernel."""
        for error in self.errors:
            function = next((f for f in used if error.extent is not None and error.extent in f.extent), None)
            if function is not None and error.extent is not None:
                remedy = "if nvcc or hipcc takes it, write it in plainer C++"
                if _NO_OPERATOR.search(error.message) and _PAIR.search(self._text(function.extent)):
                    remedy = "pairs of numbers of 16 bits have no operators here: "
                    remedy += "write __hadd2, __hmul2, __hfma2 or their like"
                yield error.extent, f"does not compile ({error.message})", remedy
                return

    def _reasons(self, kernel: Function, used: list[Function], needs: Iterable[Declaration]) -> Iterator[_Reason]:
        """Yield why a kernel cannot be adopted, by the functions and declarations that it uses."""
        for node in kernel.parameters:
            spelled, place = bare_name(node.canonical), node.extent or kernel.extent
            if node.canonical.kind.name == "RECORD" and spelled.startswith(("cuda", "hip")):
                yield place, f"takes a {spelled} by value, which is CUDA's own", "pass what is in it"
            if "(lambda at " in spelled:
                what = f"takes a lambda by value as {node.spelling}, whose captures have no names"
                yield place, what, "make it a struct with operator() and fields for what it captures"
        for function in used:
            facts = self._facts(function)
            yield from facts.forbidden
            if any(function in self._used_functions(self._functions[usr]) for usr in facts.called):
                yield function.extent, f"calls {function.name} recursively", "write it as a loop"
        known: dict[str, Declaration] = {}
        for need in needs:
            if need.kind == "device" and "__managed__" in self._text(need.extent):
                yield need.extent, f"uses {need.name}, a variable that the host has, too", "pass it as an argument"
            other = known.setdefault(need.name, need) if need.kind == "struct" and need.name else need
            if other.namespace != need.namespace:
                what = f"uses a struct {need.name} beside another one of that name at {other.extent}"
                yield need.extent, what, "give one of the two another name"

    def _facts(self, function: Function) -> _Facts:
        """Look through a function once."""
        if function.usr in self._known:
            return self._known[function.usr]
        facts = self._known[function.usr] = _Facts()
        text = self._text(function.extent)
        own = self._own | {node.spelling for node in function.node.walk() if node.kind in _NAMED}
        words = [token for token in tokens(text) if token.kind == "name" and token.text not in own]
        for pattern, what, remedy in _FORBIDDEN:
            word = next((word for word in words if pattern.fullmatch(word.text)), None)
            if word is not None:
                start = function.extent.start + word.start
                line = function.extent.line + text.count("\n", 0, word.start)
                place = Extent(function.extent.file, start, start + len(word.text), line)
                facts.forbidden.append((place, f"uses {what}", remedy))
        for node in function.node.walk():
            place = node.extent or function.extent
            called = node.referenced if node.kind in REFERENCES else None
            if called is not None and called.kind.name in FUNCTIONS:
                usr = called.get_usr()
                if usr in self._functions:
                    facts.called[usr] = None
                    name = node.children[0].extent if node.kind == "CALL_EXPR" and node.children else None
                    if self._functions[usr].arguments and name is not None:
                        facts.calls.setdefault(name, TemplateCall(name, self._functions[usr].label))
                elif node.spelling == "__cudaPushCallConfiguration" and function.is_device:
                    facts.forbidden.append((place, NESTED, "launch from the host"))
                elif function.is_device and _is_undefined(node.unit, called):
                    what = f"calls {called.spelling}, which is defined in none of the files"
                    facts.forbidden.append((place, what, "give the file with its definition, too"))
            elif node.kind in ("CXX_NEW_EXPR", "CXX_DELETE_EXPR"):
                facts.forbidden.append((place, "allocates memory itself", "allocate a buffer on the host"))
            self._note_library(node, called, facts)
            for target in _targets(node):
                facts.targets.setdefault((target.usr, target.cursor.is_definition()), target)
        statement = _in_step(function.node, []) if function.is_device else None
        if statement is not None:
            facts.forbidden.append(
                (statement, IN_STEP, "put __syncwarp() between what they write and what others read")
            )
        return facts

    def _note_library(self, node: Node, called: Any, facts: _Facts) -> None:
        """Note the library that a node is of; it calls the operators of the functors that it is given."""
        library = library_of(_declared_of(node.canonical) if node.kind == "VAR_DECL" else called)
        if library:
            facts.libraries[library] = None
        if not library or called is None or node.kind != "CALL_EXPR":
            return
        declared = [_declared_of(each.canonical) for each in node.arguments]
        groups = [each.spelling for each in (called.semantic_parent, *declared[:1]) if each is not None]
        if node.spelling == "sync" and "grid_group" in groups and node.extent is not None:
            facts.forbidden.append((node.extent, GRID, "launch a kernel for each part"))
        members = (member for each in declared if each is not None for member in each.get_children())
        facts.called |= dict.fromkeys(usr for each in members if (usr := each.get_usr()) in self._functions)

    # -- needs of kernels --------------------------------------------------------------------------

    def _needs(self, used: list[Function]) -> tuple[Declaration, ...]:
        """Return the declarations that a kernel needs besides itself, in the order of the source."""
        kernel = used[0]
        home = kernel.node.unit
        found: dict[tuple[object, ...], Declaration] = {}
        places = [(function.node.unit, function.extent) for function in used]
        targets: dict[tuple[str, bool], Node] = {}

        def order(unit: TranslationUnit, extent: Extent) -> tuple[object, ...]:
            """Return a key by which the declarations of other files come after those of the kernel's."""
            if home.contains(extent.file):
                return (0, *home.order(extent))
            return (1, self._units.index(unit), *unit.order(extent))

        for function in used:
            facts = self._facts(function)
            targets = {**facts.targets, **targets}
            parent = _outermost(function.node.cursor)
            if function is not kernel and parent is not None and _KINDS.get(parent.kind.name) != "struct":
                calls = tuple(facts.calls.values())
                own = Declaration("function", function.name, function.extent, function.arguments, calls)
                found[(*order(function.node.unit, function.extent), function.label)] = own
        waiting = list(targets.values())
        while waiting:
            target = waiting.pop()
            for special in self._special.get(target.usr, ()):
                if (special.usr, True) not in targets:
                    targets[special.usr, True] = special
                    waiting.append(special)
            declaration = self._declaration(target) if target.usr != kernel.usr else None
            if declaration is None or declaration.extent == kernel.extent:
                continue
            found.setdefault((*order(target.unit, declaration.extent), declaration.name), declaration)
            places.append((target.unit, declaration.extent))
            for inner in (i for n in target.walk() for i in _targets(n)) if declaration.kind != "prototype" else ():
                key = (inner.usr, inner.cursor.is_definition())
                if key not in targets:
                    targets[key] = inner
                    waiting.append(inner)
        for unit, place in places:
            for name, whole in self._macros_used(unit, place):
                found.setdefault((*order(unit, whole), ""), Declaration("macro", name, whole))
        within = {one for one in found.values() for other in found.values() if one.extent in other.extent != one.extent}
        return tuple(_callees_first([found[place] for place in sorted(found) if found[place] not in within]))

    def _macros_used(self, unit: TranslationUnit, extent: Extent) -> Iterator[tuple[str, Extent]]:
        """Yield the program's macros that are used in a piece, and those that these use, with their definitions."""
        macros, uses = self._macros[unit.path]
        first, last = (
            bisect.bisect_left(uses, (Extent(extent.file, at, 0, 0), "")) for at in (extent.start, extent.end)
        )
        waiting = [name for _, name in uses[first:last]]
        seen: set[str] = set()
        while waiting:
            name = waiting.pop()
            known = macros.get(name, []) if name not in seen else []
            seen.add(name)
            before = [each for each in known if unit.order(each) < unit.order(extent)]  # some are defined again
            if definition := next(iter((before or known)[-1:]), None):
                text = next(file.text for file in unit.files() if file.path == definition.file)
                whole = dataclasses.replace(definition, start=text.rindex("#", 0, definition.start))
                yield name, whole
                waiting += re.findall(r"[A-Za-z_]\w*", self._text(whole))

    def _declaration(self, node: Node) -> Declaration | None:
        extent, kind = node.extent, node.kind
        if extent is None:
            return None
        end = self._source(extent).text.find(";", extent.end)
        extent = dataclasses.replace(extent, end=end + 1 if end >= 0 else extent.end)
        if kind in FUNCTIONS:  # (those with a body are there with their template arguments)
            is_declared = node.cursor.is_definition() or node.spelling.startswith("__builtin_")
            return None if is_declared else Declaration("prototype", node.spelling, extent)
        if kind == "VAR_DECL":
            kinds = {child.kind for child in node.children}
            found = "device" if "CUDADEVICE_ATTR" in kinds else "variable"
            found = "constant" if "CUDACONSTANT_ATTR" in kinds else "shared" if "CUDASHARED_ATTR" in kinds else found
            return Declaration(found, node.spelling, extent, memory=_memory(element_of(node.canonical)))
        if kind in _KINDS:
            scope = node.cursor.semantic_parent.get_usr() if _KINDS[kind] == "struct" else ""
            return Declaration(_KINDS[kind], node.spelling, extent, namespace=scope)
        return None

    # -- the host ----------------------------------------------------------------------------------

    def _host(self, function: Function) -> None:
        for node in function.block.walk():
            if node.kind != "CALL_EXPR":
                continue
            if node.is_launch:
                called, configuration, *given = node.children
                _, _, _, shared, *_ = configuration.children
                launched = node.referenced
            elif node.spelling == "cudaLaunchKernel":
                called, _, _, _, shared, *_ = node.arguments
                launched = launched_by_address(node)
                passed = arguments_by_address(node)
                if launched is None or passed is None:
                    what = "launches a kernel by an address, or with arguments, that is not written there"
                    remedy = "launch it as k<<<blocks, threads>>>(arguments), or with void* list[] = {&x, &y}"
                    self.refusals.append(Refusal(node.extent or function.extent, what, remedy, ""))
                    continue
                given = [bare(each.children[0]) for each in passed]
            else:
                continue
            kernel = self._functions.get(launched.get_usr()) if launched is not None else None
            named = launched.spelling if launched is not None else called.spelling
            label = kernel.label if kernel is not None else named
            whole = node.extent
            if whole is not None and "<<<" not in self._text(whole):
                whole = node.unit.expansion(node.cursor)  # hipLaunchKernelGGL
            if whole is None or called.extent is None:
                place = node.extent or function.extent
                self.refusals.append(
                    Refusal(place, "is launched in the body of a macro", "write the launch out", label)
                )
                continue
            places = tuple(filter(None, (argument.extent for argument in given)))
            site = LaunchSite(label, whole, called.extent, shared.extent, places)
            self.launches[whole, label] = site

    def _source(self, extent: Extent) -> SourceFile:
        found = (unit.source(str(extent.file)) for unit in self._units)
        return next(source for source in found if source is not None)

    def _text(self, extent: Extent) -> str:
        return self._source(extent).of(extent)


def launched_by_address(call: Node) -> Any:
    """Return the kernel whose address cudaLaunchKernel is given; None if it is not named there."""
    named = (node.referenced for node in call.arguments[0].walk() if node.kind == "DECL_REF_EXPR")
    return next((each for each in named if each is not None and each.kind.name == "FUNCTION_DECL"), None)


def arguments_by_address(call: Node) -> list[Node] | None:
    """Return the addresses of variables in the array that cudaLaunchKernel is given; None if they are not known."""
    named = bare(call.arguments[3])
    declared = Node(call.unit, named.referenced) if named.referenced is not None else named
    values = next((child for child in declared.children if child.kind == "INIT_LIST_EXPR"), None)
    found = [without_casts(child) for child in values.children] if values is not None else []
    return found if found and all(each.operator == "&" for each in found) else None


def _callees_first(needs: Sequence[Declaration]) -> Iterator[Declaration]:
    """Yield declarations in order, but an instantiation after those it calls: all of a template are at one place."""
    labels = {need.label for need in needs if need.arguments}
    waiting, done = list(needs), set[str]()
    while waiting:
        ready = [
            need
            for need in waiting
            if all(call.label in done or call.label not in labels or call.label == need.label for call in need.calls)
        ]
        need = (ready or waiting)[0]
        waiting.remove(need)
        done.add(need.label)
        yield need


def _is_undefined(unit: TranslationUnit, called: Any) -> bool:
    """Whether a device function of the program is declared without a definition."""
    attributes = {child.kind.name for child in called.get_children()}
    return unit.extent(called) is not None and called.get_definition() is None and "CUDADEVICE_ATTR" in attributes


def _in_step(node: Node, written: list[str]) -> Extent | None:
    """Return the statement that adds what other threads wrote to volatile memory, with nothing that waits before it.

    Args:
        node: a statement.
        written: what was written so since threads last waited; changed.
    """
    if node.kind == "CALL_EXPR" and WAITS.fullmatch(node.spelling):
        written.clear()
    for _ in range(
        2 if node.kind in ("FOR_STMT", "WHILE_STMT", "DO_STMT") else 1
    ):  # (the second turn follows the first)
        for child in node.children:
            if (found := _in_step(child, written)) is not None:
                return found
    if node.kind == "COMPOUND_ASSIGNMENT_OPERATOR" or node.operator == "=":
        places = list(filter(None, map(_volatile_element, node.walk())))
        if any(name == places[0][0] and index != places[0][1] for name, index in places[1:]):
            if places[0][0] in written:
                return node.extent
            written.append(places[0][0])
    return None


def _volatile_element(node: Node) -> tuple[str, str] | None:
    """Return the array and the index of an element of volatile memory."""
    if node.kind != "ARRAY_SUBSCRIPT_EXPR" or not node.cursor.type.is_volatile_qualified():
        return None
    array, index = node.children
    return bare(array).spelling, "".join(token.spelling for token in index.cursor.get_tokens())


def _targets(node: Node) -> Iterator[Node]:
    """Yield the top-level declarations that a node refers to, by its name or its type."""
    for cursor in (node.referenced, _declared_of(node.canonical)) if node.kind in _NAMING else ():
        outermost = _outermost(cursor)
        if outermost is None or node.unit.extent(outermost) is None:
            continue
        yield Node(node.unit, outermost)
        definition = outermost.get_definition()
        if definition is not None and definition != outermost:
            yield Node(node.unit, definition)


def _outermost(cursor: Any) -> Any:
    """Return the declaration outside functions that holds another; None for a local of a function."""
    if cursor is not None and cursor.lexical_parent is not None and cursor.lexical_parent.kind.name in FUNCTIONS:
        return None  # extern __shared__
    while cursor is not None and (parent := cursor.semantic_parent) is not None:
        if parent.kind.name in ("TRANSLATION_UNIT", "NAMESPACE", "LINKAGE_SPEC"):
            return cursor
        cursor = parent if parent.kind.name not in FUNCTIONS else None
    return None


# -- parameters and memory -------------------------------------------------------------------------

#: A struct of more numbers is bytes.
_MOST_FIELDS: Final = 64


def _declared_of(kind: Any) -> Any:
    """Return the declaration of a type, or of the type behind arrays and pointers; None if it is built in."""
    kind = kind.get_canonical()
    while kind.kind.name in ("POINTER", "LVALUEREFERENCE", "INCOMPLETEARRAY", "CONSTANTARRAY"):
        kind = (kind.element_type if is_array(kind) else kind.get_pointee()).get_canonical()
    return kind.get_declaration() if kind.kind.name in ("RECORD", "ENUM") else None


def _fields(declaration: Any) -> list[Any]:
    """Return the fields of a struct, with those of nameless structs in it; of a union one that fills it."""
    specialised = specialisation_of(declaration.type.get_canonical())
    if specialised is not None:  # (whose declaration has nothing in it)
        return list(specialised.fields)
    found = []
    children = list(declaration.get_children())
    # clang also calls a type anonymous that has no name but is the type of a field with one.
    fields = (child for child in children if child.kind.name == "FIELD_DECL" and child.spelling)
    named = [declared for field in fields if (declared := _declared_of(field.type)) is not None]
    for child in children:
        if child.kind.name in ("STRUCT_DECL", "UNION_DECL") and child.is_anonymous() and child not in named:
            found.append((child.type.get_size(), _fields(child)))
        elif child.kind.name == "FIELD_DECL":
            found.append((child.type.get_size(), [child]))
    if declaration.kind.name == "UNION_DECL":
        found = [max(found, key=lambda each: each[0])] if found else []
    return [field for _, fields in found for field in fields]


def _struct_name(canonical: Any) -> str:
    specialised = specialisation_of(canonical)
    return str(canonical.get_declaration().spelling if specialised is None else specialised.name)


def _parameter(
    name: str,
    kind: Any,
    extent: Extent,
    path: tuple[int | str, ...],
    accesses: Mapping[tuple[int | str, ...], set[str]],
) -> Parameter:
    """Describe a parameter, or a field of one, by its type and by the accesses to what it points at."""
    canonical = kind.get_canonical()
    role, memory, is_used, struct = "scalar", None, True, ""
    fields: tuple[Parameter, ...] = ()
    if canonical.kind.name in ("POINTER", "INCOMPLETEARRAY", "LVALUEREFERENCE"):
        # Accesses through a struct that was made of it are accesses to what it points at.
        modes = {mode for place, found in accesses.items() if place[: len(path)] == path for mode in found}
        element = canonical.element_type if is_array(canonical) else canonical.get_pointee()
        modes -= {"w"} if element.is_const_qualified() else set()
        memory = _memory(element)
        role = "inout" if modes >= {"r", "w"} else "out" if "w" in modes else "in"
        is_used = bool(modes) or "." not in name
    elif canonical.kind.name == "RECORD":
        role, struct = "struct", _struct_name(canonical)
        fields = tuple(
            _parameter(f"{name}.{field.spelling}{place}", element, extent, (*path, field.spelling), accesses)
            for field in _fields(canonical.get_declaration())
            for place, element in _elements(field.type)
        )
    elif canonical.kind.name == "ENUM":  # the number that it is
        canonical = canonical.get_declaration().enum_type.get_canonical()
    return Parameter(name, kind.spelling, canonical.spelling, role, extent, fields, memory, is_used, struct)


def _elements(kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield the elements of a type that is an array, each with its place (``[1][0]``), or the type itself."""
    canonical = kind.get_canonical()
    if canonical.kind.name != "CONSTANTARRAY" or canonical.element_count > _MOST_FIELDS:
        yield "", kind
        return
    for index in range(canonical.element_count):
        for place, element in _elements(canonical.element_type):
            yield f"[{index}]{place}", element


def _memory(kind: Any) -> Memory:
    """Describe an element of memory by its type."""
    kind = kind.get_canonical()
    if kind.kind.name == "INCOMPLETEARRAY":
        kind = kind.element_type.get_canonical()
    declared = tuple(dict.fromkeys(field.get_usr() for field in fields_within(kind)))
    numbers = tuple(_numbers(kind, "", 0) or ())
    return Memory(bare_name(kind), max(kind.get_size(), 1), numbers, declared, kind.get_align())


def _numbers(kind: Any, name: str, offset: int, struct: str = "") -> list[Field] | None:
    """Return the numbers that a type is made of; None if they cannot be told apart."""
    count = 1
    while kind.kind.name == "CONSTANTARRAY":
        count, kind = count * kind.element_count, kind.element_type.get_canonical()
    spelled = bare_name(kind)
    if kind.kind.name in ("POINTER", "LVALUEREFERENCE", "MEMBERPOINTER"):
        return [Field(name, "pointer", count, offset, struct)]
    if kind.kind.name == "ENUM":
        spelled = kind.get_declaration().enum_type.get_canonical().spelling
    if spelled in NUMBERS:
        return [Field(name, spelled, count, offset, struct)]
    vector = vector_of(spelled)
    if name and vector is not None and vector[0] != "int":
        return [Field(name, vector[0], count * vector[1], offset, struct, vector[1])]
    if kind.kind.name != "RECORD" or kind.get_declaration().kind.name == "UNION_DECL" or has_bases(kind):
        return None
    found: list[Field] = []
    for index in range(count):
        for each in kind.get_fields():
            if each.is_bitfield() or not each.spelling:
                return None
            place = offset + index * kind.get_size() + kind.get_offset(each.spelling) // 8
            at = f"{name}_{index}" if count > 1 else name
            inner = _numbers(each.type.get_canonical(), f"{at}.{each.spelling}".strip("."), place, _struct_name(kind))
            if inner is None or len(found) > _MOST_FIELDS:
                return None
            found += inner
    return found
