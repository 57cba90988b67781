"""Which floating-point types of a program must change together: its type classes.

A place in the text where a floating-point type is written is a type slot. Slots belong to one class if what they
declare shares memory: through pointers, references, arrays, swaps, struct fields, copies on the device. Values convert
by themselves, so arithmetic never puts two slots into one class; and a host array that is only copied to or from the
device stays out, since a copy can convert.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mptune.adopt.parsing import Extent, Function, Node, TemplateArgument, TranslationUnit, specialisation_of
from mptune.adopt.reading import VECTOR, Memory, Parameter, Program
from mptune.cplusplus import Token, tokens

__all__ = [
    "PRECISIONS",
    "Braced",
    "Choice",
    "Copy",
    "Literal",
    "MathCall",
    "Member",
    "Read",
    "TypeClass",
    "TypeClasses",
    "TypeSlot",
    "told",
    "type_classes",
]

#: The types of a program's numbers that mptune has a name for.
PRECISIONS: Final = {"double": "fp64", "float": "fp32", "__half": "fp16", "__nv_bfloat16": "bf16"}


@dataclass(frozen=True, slots=True)
class TypeSlot:
    """A place in the text where a floating-point type is written.

    All declarators after it share it in code of the device. In host code each has a slot of its own at the same place,
    so that ``double *a, *b;`` ties nothing together: where their classes get different types, it must be split.

    Attributes:
        extent: the tokens of the type alone (``double``, ``Real``, ``double3``), without ``const``, ``*`` and ``&``.
        spelled: how it is written.
        scalar: the type of its numbers: "double", "float", "long double", "__half" or "__nv_bfloat16".
        components: how many numbers: 1, or 2 to 4 for ``double2`` to ``double4``.
        declarator: which one it is of, where there are several in host code; "" otherwise.
        function: the kernel (its label), device or host function it is in; "" outside functions.
        is_device: whether it is in code of the device: a kernel, a device function, or what these use.
    """

    extent: Extent
    spelled: str
    scalar: str
    components: int
    declarator: str
    function: str
    is_device: bool


@dataclass(frozen=True, slots=True)
class Member:
    """Something a type class is the type of.

    Attributes:
        name: of the variable, parameter, field or function; for a cast the type it casts to.
        function: the kernel (its label) or function it belongs to; the struct of a field; "" outside.
        kind: "parameter" (of a kernel or device function), "local", "shared", "field", "constant" (``__constant__`` and
            ``const`` outside functions), "device" (a ``__device__`` variable), "result" (of a function), "cast", "size"
            (``sizeof`` in a call of the runtime) or "host" (a variable or parameter of host code).
        is_pointer: whether it is a pointer, a reference or an array.
        slot: where its type is written.
        extent: where its name is written.
    """

    name: str
    function: str
    kind: str
    is_pointer: bool
    slot: TypeSlot
    extent: Extent


@dataclass(frozen=True, slots=True)
class TypeClass:
    """Type slots that must have the same type.

    Attributes:
        name: of its own in the program, and a valid name of C++ and Python (``u``; ``solve_r``, where ``r`` alone would
            not be the only one).
        scalar: the type of its numbers in the program.
        slots: in the order of the source.
        members: what has the type, in the order of the source.
        role: "buffer" (device memory), "shared", "constant", "accumulator" (a local that a loop updates), "local",
            "argument" (a number a kernel or function is given by value), "result" (of a device function).
        kernels: the labels of the kernels whose code has a slot of it.
        kept: why it must keep its type; "" if it may change.
    """

    name: str
    scalar: str
    slots: tuple[TypeSlot, ...]
    members: tuple[Member, ...]
    role: str
    kernels: tuple[str, ...]
    kept: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A floating-point literal in code of the device.

    Attributes:
        extent: the literal, also in the body of a macro that computes with its arguments; a macro that stands for a
            number (``M_PI``, ``#define HALF (1.0 / 2)``) is one literal where it is used, as is a limit of a type
            (``std::numeric_limits<double>::max()``).
        text: how it is written (``0.5f``), or the macro's name.
        scalar: its type in the program.
        function: the kernel (its label) or device function it is in.
        meets: names of the classes it meets in its arithmetic; of the class it is assigned to, if it meets none.
    """

    extent: Extent
    text: str
    scalar: str
    function: str
    meets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MathCall:
    """A call of a mathematical function in code of the device.

    Attributes:
        extent: the function's name in the call (with ``std::``).
        name: the function, without ``f``, ``__`` or ``std::`` (``exp`` for ``expf``, ``__expf`` and ``std::exp``);
            CUDA's ``min`` of floating-point numbers, which is not that of C++, is ``fmin``.
        text: how it is written.
        function: the kernel (its label) or device function it is in.
        meets: names of the classes of its arguments' arithmetic; of the class its result is assigned to, if these have
            none.
    """

    extent: Extent
    name: str
    text: str
    function: str
    meets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A ``condition ? a : b`` of numbers in code of the device, whose sides need not have the same type.

    Attributes:
        extent: all of it, also in the body of a macro.
        question: the sign.
        colon: the sign.
        function: the kernel (its label) or device function it is in.
        meets: names of the classes of its sides.
    """

    extent: Extent
    question: Extent
    colon: Extent
    function: str
    meets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """A place where the value of something that has a class is used.

    Attributes:
        extent: the variable, element or field (``u[i + 1]``).
        type_class: the name of its class.
        function: the kernel (its label), device or host function it is in.
        is_device: whether that is code of the device.
        is_stored: whether it is assigned, initialises a variable, is returned or is cast as it is, which converts it.
    """

    extent: Extent
    type_class: str
    function: str
    is_device: bool
    is_stored: bool


@dataclass(frozen=True, slots=True)
class RawUse:
    """A place where the host uses more of memory than its numbers: bytes, another type's address, the digits of a sum.

    Attributes:
        extent: what does so.
        type_class: the name of the class of the memory.
        why: what is used, in words.
    """

    extent: Extent
    type_class: str
    why: str = "more than its numbers are used"


@dataclass(frozen=True, slots=True)
class Braced:
    """A number, no literal, that initialises something in braces: where its type is wider, that needs a cast.

    Attributes:
        extent: the expression.
        type_class: the name of the class of what is initialised.
        meets: names of the classes of its arithmetic.
        is_device: whether it is in code of the device.
    """

    extent: Extent
    type_class: str
    meets: tuple[str, ...]
    is_device: bool


@dataclass(frozen=True, slots=True)
class Copy:
    """A call of the runtime that is given memory of the device by a pointer of some class.

    Attributes:
        call: the whole call.
        name: in CUDA's spelling.
        classes: for each argument the name of its class; "" for one that has none (numbers, sizes, host arrays).
        arguments: where each argument is written.
        elements: for each argument the type of the numbers it points at, or is an array of; "" for anything else.
        sizes: for each argument the name of the class of a variable whose ``sizeof`` is in it; "" for none.
    """

    call: Extent
    name: str
    classes: tuple[str, ...]
    arguments: tuple[Extent, ...]
    elements: tuple[str, ...]
    sizes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TypeClasses:
    """The type classes of a program, with the literals and mathematical functions that take their types.

    Attributes:
        classes: in the order in which the source first names them.
        literals: in code of the device.
        calls: of mathematical functions, in code of the device.
        choices: whose sides may get different types, in code of the device.
        copies: calls of the runtime that are given pointers to the device.
        reads: of single numbers that have a class, in all code.
        braced: numbers in braces that initialise what has a class, in all code.
        raw: where the host uses bytes or addresses of what has a class.
        keeps_unsigned: whether unsigned indices stay in 32 bits, since some are meant to wrap.
    """

    classes: tuple[TypeClass, ...]
    literals: tuple[Literal, ...]
    calls: tuple[MathCall, ...]
    choices: tuple[Choice, ...]
    copies: tuple[Copy, ...]
    reads: tuple[Read, ...]
    braced: tuple[Braced, ...] = ()
    raw: tuple[RawUse, ...] = ()
    keeps_unsigned: bool = False

    def __getitem__(self, name: str) -> TypeClass:
        for found in self.classes:
            if found.name == name:
                return found
        raise KeyError(name)

    def joined(self, groups: Iterable[Iterable[str]]) -> TypeClasses:
        """Return them with those in memory together that a run has shown to share it, by name."""
        order = {each.name: number for number, each in enumerate(self.classes)}
        leader = {name: name for name in order}

        def first_of(name: str) -> str:
            while leader[name] != name:
                name = leader[name]
            return name

        for group in groups:
            first, *others = sorted(dict.fromkeys(map(first_of, group)), key=order.__getitem__)
            leader.update(dict.fromkeys(others, first))
        members: dict[str, list[TypeClass]] = {}
        for each in self.classes:
            members.setdefault(first_of(each.name), []).append(each)
        joined = {name: _union(each) for name, each in members.items() if len(each) > 1}
        # What had the name of its function before it, since others have it too, may be alone with it now.
        plain = [_plain_name(each.members) for each in joined.values()]
        taken = {name for name in members if name not in joined}
        called = {
            name: own if plain.count(own) == 1 and own not in taken else name
            for name, own in zip(joined, plain, strict=True)
        }

        def met(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(dict.fromkeys(called.get(first_of(name), first_of(name)) for name in names))

        return dataclasses.replace(
            self,
            classes=tuple(
                dataclasses.replace(joined[name], name=called[name]) if name in joined else each[0]
                for name, each in members.items()
            ),
            literals=tuple(dataclasses.replace(each, meets=met(each.meets)) for each in self.literals),
            calls=tuple(dataclasses.replace(each, meets=met(each.meets)) for each in self.calls),
            choices=tuple(dataclasses.replace(each, meets=met(each.meets)) for each in self.choices),
            copies=tuple(
                dataclasses.replace(
                    each,
                    classes=tuple("".join(met([name])) if name else "" for name in each.classes),
                    sizes=tuple("".join(met([name])) if name else "" for name in each.sizes),
                )
                for each in self.copies
            ),
            reads=tuple(dataclasses.replace(each, type_class=met([each.type_class])[0]) for each in self.reads),
            braced=tuple(
                dataclasses.replace(each, type_class=met([each.type_class])[0], meets=met(each.meets))
                for each in self.braced
            ),
            raw=tuple(dataclasses.replace(each, type_class=met([each.type_class])[0]) for each in self.raw),
        )

    def at(self, extent: Extent) -> TypeClass | None:
        """Return the class of the slot at a place; None if there is none."""
        return next((found for found in self.classes for slot in found.slots if slot.extent == extent), None)


def type_classes(program: Program) -> TypeClasses:
    """Find the type classes of a program."""
    finder = _Finder(program)
    for unit in program.units:
        finder.read(unit)
    return finder.result()


_SCALARS: Final = ("double", "float", "long double", "__half", "__nv_bfloat16")
_QUALIFIERS: Final = re.compile(r"\b(const|volatile|struct|__restrict)\b")
_TRANSPARENT: Final = ("UNEXPOSED_EXPR", "PAREN_EXPR")
_VARIABLES: Final = ("DECL_REF_EXPR", "MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR")
_CASTS: Final = ("CSTYLE_CAST_EXPR", "CXX_STATIC_CAST_EXPR", "CXX_FUNCTIONAL_CAST_EXPR", "CXX_REINTERPRET_CAST_EXPR")
_LOOPS: Final = ("FOR_STMT", "WHILE_STMT", "DO_STMT")
#: What a number is made of that converts without a cast.
_LITERAL: Final = ("FLOATING_LITERAL", "INTEGER_LITERAL", "UNARY_OPERATOR", *_TRANSPARENT)
_COMPOUND: Final = "COMPOUND_ASSIGNMENT_OPERATOR"
_ASSIGNS: Final = ("=", "+=", "-=", "*=", "/=")
_NUMBER: Final = re.compile(r"\.?\d.*")
#: How limits of types are written that take the type of what they meet.
_LIMITS: Final = frozenset(("std", "numeric_limits", "max", "min", "lowest", "epsilon", "infinity", "quiet_NaN"))
_FLOATING: Final = re.compile(r"(?!0[xX])(\d*\.\d*|\d+(?=[eE]))([eE][+-]?\d+)?[fFlL]?|0[xX].*[pP].*|\d+[fF]")
#: Functions of one or more numbers, by the name without ``f``; whatever else a kernel calls is the program's own.
MATH: Final = frozenset(
    re.findall(
        r"\w+",
        "abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi erf erfc erfcinv erfcx erfinv "
        "exp exp10 exp2 expm1 fabs fdim fdivide floor fma fmax fmin fmod frexp hypot ilogb isfinite isinf isnan ldexp "
        "lgamma llrint llround log log10 log1p log2 logb lrint lround max min modf nearbyint nextafter norm3d normcdf "
        "normcdfinv pow rcbrt remainder rhypot rint round rsqrt saturate scalbn signbit sin sincos sincospi sinh sinpi "
        "sqrt tan tanh tgamma trunc",
    )
)
_INTRINSIC: Final = re.compile(r"__(exp|exp10|log|log2|log10|sin|cos|tan|pow|sincos|fdivide)f")
#: Functions that take a number for its bits.
_BITS: Final = re.compile(r"__(double|float)(_as_|2hiint|2loint)\w*")
_RUNTIME: Final = re.compile(r"(?:cuda|hip)([A-Z]\w+)")
_ALLOCATES: Final = re.compile(r"(?:cuda|hip)(?:Host)?(?:Malloc|Free|Alloc)\w*|free")
#: Functions that print numbers, and addresses as such.
_PRINTS: Final = ("printf", "fprintf", "sprintf", "snprintf")
#: Types that an address is computed with as a number.
_ADDRESSES: Final = ("LONG", "ULONG", "LONGLONG", "ULONGLONG")


def scalar_of(canonical: Any) -> tuple[str, int] | None:
    """Return the type of the numbers behind a type (through pointers, references and arrays) and how many make one."""
    while is_pointer(canonical):
        is_array = "ARRAY" in canonical.kind.name
        canonical = (canonical.element_type if is_array else canonical.get_pointee()).get_canonical()
    name = _QUALIFIERS.sub("", canonical.spelling).strip()
    if name in _SCALARS:
        return name, 1
    vector = VECTOR.fullmatch(name)
    return (vector[1], int(vector[2])) if vector else None


def is_pointer(canonical: Any) -> bool:
    """Whether values of a type are places in memory that others may share."""
    kind: str = canonical.kind.name
    return kind in ("POINTER", "LVALUEREFERENCE", "RVALUEREFERENCE") or "ARRAY" in kind


def math_function(name: str) -> str | None:
    """Return the mathematical function of a name (``expf``, ``__expf``); None if it is none."""
    if intrinsic := _INTRINSIC.fullmatch(name):
        return intrinsic[1]
    if name in MATH:
        return name
    return name[:-1] if name.endswith("f") and name[:-1] in MATH else None


class _Finder:
    """Gathers slots and what merges them, over the files of a program.

    A node stands for something that has a type: a slot, a declaration (by clang's name for it), a parameter of a
    function by its position, or a function's result. Nodes that must have the same type have the same root.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._sources = {file.path: file for file in program.files}
        self._tokens: dict[Any, list[Token]] = {}
        self._token_starts: dict[Any, list[int]] = {}
        self._starts: dict[int, int] = {}
        self._parent: dict[object, object] = {}
        self._members: dict[tuple[object, ...], Member] = {}
        self._slots: dict[tuple[Extent, str, str, str], TypeSlot] = {}
        self._kept: list[tuple[object, str]] = []
        self._updated: set[object] = set()
        self._literals: dict[tuple[Extent, str], Literal] = {}
        self._calls: dict[tuple[Extent, str], MathCall] = {}
        self._choices: dict[tuple[Extent, str], Choice] = {}
        self._met: dict[object, list[object]] = {}
        self._copies: dict[Extent, tuple[str, list[object], Sequence[Node]]] = {}
        self._reads: dict[tuple[Extent, str], tuple[object, bool, bool]] = {}
        self._braced: dict[Extent, tuple[object, list[object], bool]] = {}
        self._raw: dict[tuple[Extent, object], None] = {}
        #: Where the host adds up in a number, with that.
        self._summed: dict[tuple[Extent, object], None] = {}
        #: Fields of structs by value that the host computes, and where it first computes with what a field holds.
        self._computed: set[object] = set()
        self._read_back: dict[object, Extent] = {}
        #: What pointers to void are cast to, and where they are given to calls, by clang's name.
        self._typed: dict[str, list[object]] = {}
        self._given_raw: dict[str, Extent] = {}
        #: Where a pointer to a field may lead to the others of its struct, and all of these.
        self._reached: list[tuple[Extent, tuple[str, ...]]] = []
        self._follows: dict[object, list[object]] = {}
        self._types: dict[str, tuple[str, int]] = {"half": ("__half", 1), "nv_bfloat16": ("__nv_bfloat16", 1)}
        self._memory_types: dict[str, TypeSlot] = {}
        self._seen: set[str] = set()
        self._places: list[tuple[Extent, str, str]] | None = None
        self._function: Function | None = None
        #: Fields of structs that are in arrays.
        self._in_memory: list[object] = []
        self._structs_in_memory()

    # -- what belongs together ---------------------------------------------------------------------------------------

    def _root(self, node: object) -> object:
        while node in self._parent:
            node = self._parent[node]
        return node

    def _merge(self, one: object, other: object) -> None:
        if one is None or other is None:
            return
        one, other = self._root(one), self._root(other)
        if one != other:
            self._parent[other] = one

    def _structs_in_memory(self) -> None:
        """Let the fields of structs in memory have one type, if they are all there is; else they keep theirs."""
        found: dict[str, Memory] = {}
        for kernel in self._program.kernels:
            for parameter in (inner for outer in kernel.parameters for inner in _within_structs(outer)):
                if parameter.memory is not None:
                    found[parameter.memory.name] = parameter.memory
            for need in kernel.needs:
                if need.memory is not None:
                    found[need.memory.name] = need.memory
        for memory in found.values():
            why = ""
            if not memory.fields or memory.is_mixed:
                why = f"an array of {memory.name} has other things in it, too"
            elif memory.has_gaps_in_others:
                aligned = f"aligned to {memory.alignment} bytes"
                why = f"an array of {memory.name}, {aligned}, would have gaps between shorter numbers"
            for field in memory.declared:
                self._in_memory.append(field)
                if why:
                    self._kept.append((field, why))
                else:
                    self._merge(memory.declared[0], field)

    # -- declarations ------------------------------------------------------------------------------------------------

    def read(self, unit: TranslationUnit) -> None:
        """Take in a file and what it includes."""
        self._unit = unit
        self._macros = {node.spelling: node for node in unit.top if node.kind == "MACRO_DEFINITION"}
        self._needed = [need.extent for kernel in self._program.kernels for need in kernel.needs]
        for name in self._macros:
            body = " ".join(token.text for token in self._body(name))
            if body in _SCALARS:
                self._types[name] = (body, 1)
            elif body in self._types:
                self._types[name] = self._types[body]
            elif vector := VECTOR.fullmatch(body):
                self._types[name] = (vector[1], int(vector[2]))
        previous: Node | None = None
        for node in unit.top:
            self._declaration(node, previous)
            previous = node
        for function in unit.functions:
            if function.usr not in self._seen:
                self._seen.add(function.usr)
                self._read_function(function)

    def _declaration(self, node: Node, previous: Node | None) -> None:
        if node.kind in ("TYPEDEF_DECL", "TYPE_ALIAS_DECL"):
            self._typedef(node)
        elif node.kind in ("STRUCT_DECL", "CLASS_DECL", "UNION_DECL"):
            self._fields(node)
        elif node.kind == "CLASS_TEMPLATE":
            self._fields_of_template(node)
        elif node.kind == "VAR_DECL":
            self._variable(node, self._start(node, previous))
            for child in node.children:
                self._statement(child, ())
        elif node.kind == "FUNCTION_DECL" and not node.cursor.is_definition():
            attributes = {child.kind for child in node.children}
            self._signature(node, node.spelling, bool(attributes & {"CUDAGLOBAL_ATTR", "CUDADEVICE_ATTR"}))

    def _typedef(self, node: Node) -> None:
        """Note a name for a type: it is written anew where the name is used, but for one of pointers and arrays."""
        underlying = node.cursor.underlying_typedef_type.get_canonical()
        found = scalar_of(underlying)
        if found is not None and not is_pointer(underlying):
            self._types[node.spelling] = found
        elif found is not None and node.extent is not None:
            slot = self._slot(node.extent, found, True)
            if slot is not None:
                self._memory_types[node.spelling] = slot
        self._fields(node)

    def _start(self, node: Node, previous: Node | None) -> int | None:
        """Return where a declaration begins; that of a second declarator is where the first one's does."""
        if node.extent is None:
            return None
        name = self._unit.name(node.cursor)
        before = previous.extent if previous is not None and previous.kind == node.kind else None
        if name is None or name.start > node.extent.start or before is None:
            return node.extent.start
        known = self._starts.get(before.start, before.start)
        self._starts[node.extent.start] = known
        return known

    def _fields(self, node: Node) -> None:
        """Take in the fields of a struct, and of structs within."""
        if node.kind == "UNION_DECL":
            self._note_raw(node, node, node.canonical)
        previous: Node | None = None
        for child in node.children:
            if child.kind == "FIELD_DECL":
                on_device = any(child.extent in need for need in self._needed if child.extent is not None)
                place = self._declare(child, "field", node.spelling, on_device, self._start(child, previous))
                if node.kind == "UNION_DECL" and place is not None:
                    self._kept.append((place, "it is in a union"))
            elif child.kind in ("STRUCT_DECL", "CLASS_DECL", "UNION_DECL"):
                self._fields(child)
            previous = child

    def _fields_of_template(self, node: Node) -> None:
        """Take in the fields of a class template; one of several types has to name its parameter, and keeps it."""
        found = self._unit.specialisations.get(node.cursor.get_usr(), ())
        for each in found if len(found) > 1 else ():
            why = f"{node.spelling} is a template of several types ({', '.join(other.name for other in found)})"
            self._kept += ((field.get_usr(), why) for field in each.fields)
        for each in found if len(found) == 1 else ():
            with self._bound(each.arguments):
                for field in (Node(self._unit, cursor) for cursor in each.fields):
                    on_device = any(field.extent in need for need in self._needed if field.extent is not None)
                    start = field.extent.start if field.extent is not None else None
                    self._declare(field, "field", each.name, on_device, start)

    @contextlib.contextmanager
    def _bound(self, arguments: Iterable[TemplateArgument]) -> Iterator[None]:
        """Let parameters of a template be the types that they stand for."""
        bound = {
            argument.name: found
            for argument in arguments
            if argument.kind == "typename" and (found := self._spelled(argument.value)) is not None
        }
        hidden = {name: self._types[name] for name in bound if name in self._types}
        self._types.update(bound)
        yield
        for name in bound:
            del self._types[name]
        self._types.update(hidden)

    def _signature(self, node: Node, name: str, on_device: bool) -> None:
        usr = node.cursor.get_usr()
        start = node.extent.start if node.extent is not None else None
        self._merge((usr, "result"), self._declare(node, "result", name, on_device, start))
        parameters = [child for child in node.children if child.kind == "PARM_DECL"]
        for index, parameter in enumerate(parameters):
            start = parameter.extent.start if parameter.extent is not None else None
            kind = "parameter" if on_device else "host"
            self._merge((usr, index), self._declare(parameter, kind, name, on_device, start))

    def _read_function(self, function: Function) -> None:
        self._function = function
        owner = specialisation_of(function.node.cursor.semantic_parent.type.get_canonical())
        is_one = owner is not None and len(self._unit.specialisations.get(owner.template, ())) == 1
        of_class = owner.arguments if owner is not None and is_one else ()
        with self._bound((*of_class, *function.arguments)):
            self._signature(function.node, function.label, function.is_device)
            for member, value in itertools.pairwise(function.node.children):
                if member.kind == "MEMBER_REF" and member.referenced is not None:  # initialised by a constructor
                    self._fill(member.referenced.get_usr(), value)
            self._statement(function.block, ())
        self._function = None

    def _spelled(self, type_name: str) -> tuple[str, int] | None:
        if type_name in _SCALARS:
            return type_name, 1
        vector = VECTOR.fullmatch(type_name)
        return (vector[1], int(vector[2])) if vector else self._types.get(type_name)

    @property
    def _on_device(self) -> bool:
        return self._function is not None and self._function.is_device

    def _variable(self, node: Node, start: int | None) -> object:
        attributes = {child.kind for child in node.children}
        on_device = self._on_device
        if "CUDASHARED_ATTR" in attributes:
            kind = "shared"
        elif self._function is not None:
            kind = "local" if on_device else "host"
        else:
            on_device = any(node.extent in need for need in self._needed if node.extent is not None)
            kind = "host" if not on_device else "constant" if "CUDADEVICE_ATTR" not in attributes else "device"
        function = self._function.label if self._function is not None else ""
        return self._declare(node, kind, function, on_device, start)

    def _declare(self, node: Node, kind: str, function: str, on_device: bool, start: int | None) -> object:
        """Note what a declaration declares; return its node, None if it has no floating-point type."""
        canonical = node.cursor.result_type.get_canonical() if kind == "result" else node.canonical
        found, name = scalar_of(canonical), self._unit.name(node.cursor)
        if found is None or start is None or node.extent is None or name is None:
            return None
        if not node.spelling:  # a parameter
            name = Extent(node.extent.file, node.extent.end, node.extent.end, node.extent.line)
        own = node.cursor.get_usr() + (" result" if kind == "result" else "")
        before = Extent(name.file, start, name.start, node.extent.line)
        is_one_of_many = kind == "host" and self._is_list(node, name)
        slot = self._slot(before, found, on_device, node.spelling if is_one_of_many else "")
        if slot is None:
            words = [token.text for token in self._within(name.file, start, name.start)]
            slot = next((self._memory_types[word] for word in words if word in self._memory_types), None)
        if slot is None and not is_pointer(canonical) and self._on_device and self._is_new(node, words):
            auto = next(token for token in self._within(name.file, start, name.start) if token.text == "auto")
            slot = self._slot_at(name.file, auto.start, auto.start + len("auto"), found, True)
        if slot is None:
            if "auto" in words:
                self._follows.setdefault(own, [])
            else:
                self._kept.append((own, "its type is not written where it could be changed"))
            return own
        self._merge(own, _node(slot))
        member = Member(node.spelling, function, kind, is_pointer(canonical), slot, name)
        self._members.setdefault((name, kind, slot.scalar, function), member)
        return own

    def _is_new(self, node: Node, words: Sequence[str]) -> bool:
        """Whether a variable is declared ``auto`` and has no type of something else: ``auto sum = 0.0``."""
        return "auto" in words and bool(node.children) and not any(map(self._root, self._values(node.children[-1])))

    def _is_list(self, node: Node, name: Extent) -> bool:
        """Whether a variable is one of several of a declaration."""
        assert node.extent is not None
        after = self._within(name.file, node.extent.end, node.extent.end + 200)
        return node.kind == "VAR_DECL" and (node.extent.start == name.start or bool(after and after[0].text == ","))

    def _slot(self, extent: Extent, found: tuple[str, int], on_device: bool, declarator: str = "") -> TypeSlot | None:
        """Find where a floating-point type is written in a piece of text."""
        words = self._within(extent.file, extent.start, extent.end)
        for index, token in enumerate(words):
            end = token.start + len(token.text)
            if token.text == "long" and index + 1 < len(words) and words[index + 1].text == "double":
                end = words[index + 1].start + len("double")
            elif token.text not in _SCALARS and not VECTOR.fullmatch(token.text) and token.text not in self._types:
                continue
            return self._slot_at(extent.file, token.start, end, found, on_device, declarator)
        return None

    def _slot_at(
        self, file: Path, start: int, end: int, found: tuple[str, int], on_device: bool, declarator: str = ""
    ) -> TypeSlot:
        text = self._sources[file].text
        place = Extent(file, start, end, self._sources[file].line(text.count("\n", 0, start) + 1))
        function = self._function.label if self._function is not None else ""
        slot = TypeSlot(place, text[start:end], *found, declarator, function, on_device)
        return self._slots.setdefault((place, found[0], declarator, function), slot)

    # -- macros ------------------------------------------------------------------------------------------------------

    def _within(self, file: Any, start: int, end: int) -> list[Token]:
        """Return the tokens in a piece of a file."""
        if file not in self._tokens:
            self._tokens[file] = list(tokens(self._sources[file].text))
            self._token_starts[file] = [token.start for token in self._tokens[file]]
        starts = self._token_starts[file]
        return self._tokens[file][bisect.bisect_left(starts, start) : bisect.bisect_left(starts, end)]

    def _body(self, name: str) -> list[Token]:
        """Return what a macro of the program stands for, with places in its file."""
        extent = self._macros[name].extent
        assert extent is not None
        text = self._sources[extent.file].text[: extent.end]
        found = list(tokens(text, extent.start))[1:]
        if self._has_arguments(name):
            closing = next(index for index, token in enumerate(found) if token.text == ")")
            found = found[closing + 1 :]
        return found

    def _has_arguments(self, name: str) -> bool:
        extent = self._macros[name].extent
        assert extent is not None
        return self._sources[extent.file].text[extent.start + len(name) : extent.start + len(name) + 1] == "("

    def _is_number(self, name: str) -> bool:
        """Whether a macro stands for a number, computed from no variable."""
        if name not in self._macros:
            return True  # of the system: M_PI, FLT_MAX
        body = self._body(name)
        if self._has_arguments(name) or any(token.text == "{" for token in body):
            return False
        words = {token.text for token in body if token.kind == "name"} - {name}
        words -= _LIMITS if "numeric_limits" in words else frozenset()
        return all(
            word in self._types or word in _SCALARS or (word in self._unit.macros and self._is_number(word))
            for word in words
        )

    def _bodies(self, name: str) -> Iterator[tuple[Path, list[Token]]]:
        """Give what a macro that computes with variables stands for, with its file, and what such macros in it do."""
        extent = self._macros[name].extent
        assert extent is not None
        body = self._body(name)
        yield extent.file, body
        for token in body:
            inner = token.text
            if token.kind == "name" and inner in self._macros and inner != name and not self._is_number(inner):
                yield from self._bodies(inner)

    def _parts(self, name: str) -> Iterator[tuple[Path, Token]]:
        """Give the tokens of a macro that computes with variables, and of such macros in it."""
        return ((file, token) for file, body in self._bodies(name) for token in body)

    def _macro_at(self, extent: Extent) -> str | None:
        """Return the program's macro whose use a place begins with; None for what is written there itself."""
        found = self._within(extent.file, extent.start, extent.start + 1)
        return found[0].text if found and found[0].text in self._macros else None

    # -- statements and expressions ----------------------------------------------------------------------------------

    def _statement(self, node: Node, above: tuple[Node, ...]) -> None:
        kind, children = node.kind, node.children
        if self._function is not None and not self._on_device:
            self._raw_uses(node, above)
        if kind == "DECL_STMT":
            previous: Node | None = None
            for child in children:
                if child.kind == "VAR_DECL":
                    self._local(child, self._start(child, previous))
                elif child.kind in ("TYPEDEF_DECL", "TYPE_ALIAS_DECL"):
                    self._typedef(child)
                elif child.kind == "UNION_DECL":
                    self._fields(child)
                previous = child
        elif kind == "CXX_FOR_RANGE_STMT":
            self._for_range(children)
        elif kind == "INIT_LIST_EXPR":
            self._fill(self._initialised(above), node)
        elif kind == "BINARY_OPERATOR" and node.operator == "=":
            self._assign(node, above)
        elif kind == "COMPOUND_ASSIGNMENT_OPERATOR" and self._in_loop(above):
            self._update(node, self._place(children[0]), above)
        elif kind == "RETURN_STMT" and children and self._function is not None:
            if is_pointer(self._function.node.cursor.result_type.get_canonical()):
                self._merge((self._function.usr, "result"), self._place(children[0]))
        elif kind in _CASTS:
            self._cast(node)
        elif kind == "CALL_EXPR":
            self._call(node, above)
        elif kind == "FLOATING_LITERAL" and self._on_device:
            self._literal(node, above)
        elif kind == "CONDITIONAL_OPERATOR" and self._on_device:
            self._choice(node)
        elif kind == "UNEXPOSED_EXPR" and self._function is not None:
            self._read(node, above)
        for child in children:
            self._statement(child, (*above, node))

    def _read(self, node: Node, above: tuple[Node, ...]) -> None:
        """Take in the conversion of a variable to its value."""
        inner = node.children[0] if len(node.children) == 1 else None
        while inner is not None and inner.kind == "PAREN_EXPR" and inner.children:
            inner = inner.children[0]
        if inner is None or inner.extent is None or (inner.kind not in _VARIABLES and inner.operator != "*"):
            return
        found = scalar_of(node.canonical)
        if found is None or is_pointer(node.canonical) or found[1] != 1 or found != scalar_of(inner.canonical):
            return
        parent = next((each for each in reversed(above) if each.kind not in _TRANSPARENT), None)
        is_stored = parent is not None and (
            (parent.kind == "VAR_DECL" and parent.cursor.get_usr() not in self._follows)
            or parent.kind in (*_CASTS, "RETURN_STMT", "INIT_LIST_EXPR")
            or (parent.kind == "BINARY_OPERATOR" and parent.operator == "=")
        )
        assert self._function is not None
        key = (inner.extent, self._function.label)
        self._reads.setdefault(key, (self._place(inner), self._function.is_device, is_stored))

    def _in_loop(self, above: tuple[Node, ...]) -> bool:
        return any(node.kind in _LOOPS for node in above)

    def _local(self, node: Node, start: int | None) -> None:
        own = self._variable(node, start)
        if own is None or not node.children:
            return
        value = node.children[-1]
        if own in self._follows:
            self._follows[own] = [self._place(value)] if is_pointer(node.canonical) else list(self._values(value))
        if is_pointer(node.canonical):
            self._merge(own, self._place(value))

    def _for_range(self, children: Sequence[Node]) -> None:
        """Take in the variable of a loop over an array, or over what is written in braces."""
        at = next(index for index, child in enumerate(children) if child.kind == "VAR_DECL")
        variable, place = children[at], self._place(children[at + 1])
        own = self._variable(variable, self._start(variable, None))
        if own in self._follows:
            self._follows[own] = [place]
        if is_pointer(variable.canonical):
            self._merge(own, place)

    def _initialised(self, above: tuple[Node, ...]) -> object:
        """Return the node of the variable or result whose value braces are; None for any other, and within braces."""
        parent = next((each for each in reversed(above) if each.kind not in _TRANSPARENT), None)
        if parent is not None and parent.kind == "RETURN_STMT" and self._function is not None:
            return (self._function.usr, "result")
        return parent.cursor.get_usr() if parent is not None and parent.kind == "VAR_DECL" else None

    def _fill(self, own: object, value: Node) -> None:
        """Take in what something is initialised with: memory is shared, and numbers in braces may need a cast."""
        value = _bare(value)
        if value.kind != "INIT_LIST_EXPR":
            if is_pointer(value.canonical):
                self._merge(own, self._place(value))
            return
        kind = value.canonical
        is_struct = kind.kind.name == "RECORD" and scalar_of(kind) is None
        fields: Iterable[object] = (
            (field.get_usr() for field in kind.get_fields()) if is_struct else itertools.repeat(own)
        )
        for place, each in zip(fields, value.children, strict=False):
            named = each.children[0] if each.children and each.children[0].kind == "MEMBER_REF" else None
            if named is not None and named.referenced is not None:  # { .x = 1 }
                place, each = named.referenced.get_usr(), each.children[-1]
            self._fill(place, each)
            is_number = scalar_of(each.canonical) == ("double", 1) and not is_pointer(each.canonical)
            is_literal = all(inner.kind in _LITERAL for inner in each.walk())
            if is_number and not is_literal and _bare(each).kind != "INIT_LIST_EXPR" and each.extent is not None:
                self._braced.setdefault(each.extent, (place, list(self._values(each)), self._on_device))

    def _assign(self, node: Node, above: tuple[Node, ...]) -> None:
        left, right = node.children
        if is_pointer(left.canonical):
            self._merge(self._place(left), self._place(right))
        elif self._in_loop(above) and (place := self._place(left)) is not None and place in self._values(right):
            self._update(node, place, above)

    def _update(self, node: Node, place: object, above: tuple[Node, ...]) -> None:
        """Take in that a loop changes a number again and again."""
        self._updated.add(place)
        is_on_host = self._function is not None and not self._on_device
        if is_on_host and node.extent is not None and not _is_each_once(node.children[0], above):
            self._summed[node.extent, place] = None

    def _cast(self, node: Node) -> object:
        """Take in a cast to a floating-point type; return its node, None for any other."""
        extent, canonical = node.extent, node.canonical
        found = scalar_of(canonical)
        inner = node.children[-1] if node.children else None
        if found is None and inner is not None and self._on_device and self._reads_bits(canonical, inner):
            self._kept.append((self._place(inner), f"its bits are read as {node.cursor.type.spelling}"))
        if found is None or extent is None:
            return None
        if (macro := self._macro_at(extent)) is not None and macro not in self._types:
            return None if self._is_number(macro) else self._cast_in_macro(macro, found)
        end = inner.extent.start if inner is not None and inner.extent is not None else extent.end
        slot = self._slot(
            Extent(extent.file, extent.start, max(end, extent.start + 1), extent.line), found, self._on_device
        )
        if slot is None and end <= extent.start:
            slot = self._slot(extent, found, self._on_device)  # its operand is in a macro
        if slot is None:
            return None
        own = self._note_cast(slot, is_pointer(canonical))
        if is_pointer(canonical) and inner is not None:
            self._merge(own, self._place(inner))
            if self._on_device and _is_other_memory(inner):
                other = _QUALIFIERS.sub("", _pointee(inner.canonical).spelling).strip()
                self._kept.append((own, f"its memory is {other} elsewhere"))
        return own

    def _note_cast(self, slot: TypeSlot, is_memory: bool) -> object:
        function = self._function.label if self._function is not None else ""
        own = _node(slot)
        member = Member(slot.spelled, function, "cast", is_memory, slot, slot.extent)
        self._members.setdefault((slot.extent, "cast", slot.scalar, function), member)
        return own

    def _cast_in_macro(self, macro: str, found: tuple[str, int]) -> object:
        """Take in the casts in a macro's body; they share a class."""
        own: object = None
        for file, token in self._parts(macro):
            if token.kind == "name" and self._spelled(token.text) == found:
                slot = self._slot_at(file, token.start, token.start + len(token.text), found, self._on_device)
                cast = self._note_cast(slot, False)
                self._merge(own, cast)
                own = cast
        return own

    def _reads_bits(self, canonical: Any, inner: Node) -> bool:
        """Whether a cast looks at floating-point numbers as something else."""
        if canonical.kind.name != "POINTER" or scalar_of(inner.canonical) is None or not is_pointer(inner.canonical):
            return False
        return bool(canonical.get_pointee().get_canonical().kind.name != "VOID")

    def _call(self, node: Node, above: tuple[Node, ...]) -> None:
        called, children, name = node.referenced, node.children, node.spelling
        if called is None or not children:
            return
        arguments: Sequence[Node] = node.arguments
        if len(children) > 1 and children[1].spelling == "__cudaPushCallConfiguration":
            arguments = children[2:]
        if self._unit.extent(called) is not None:
            for index, (argument, parameter) in enumerate(zip(arguments, called.get_arguments(), strict=False)):
                if is_pointer(parameter.type.get_canonical()):
                    self._merge((called.get_usr(), index), self._place(argument))
        elif runtime := _RUNTIME.fullmatch(name):
            self._runtime(node, f"cuda{runtime[1]}", arguments)
        elif name == "swap" and len(arguments) > 1:
            self._merge(self._place(arguments[0]), self._place(arguments[1]))
        elif name in ("memcpy", "memmove", "memset") and len(arguments) == 3:
            self._bytes(name, arguments)
        elif self._on_device and _is_limit(node):
            self._literal(node, above)
        elif self._on_device and (math := math_function(name)) is not None:
            if any(scalar_of(argument.canonical) for argument in arguments):
                self._math(node, math, above)
        elif self._on_device and (_BITS.fullmatch(name) or name in ("printf", "atomicCAS")):
            reason = "it is printed" if name == "printf" else f"its bits are read by {name}"
            for argument in arguments:
                place = self._place(_bare(argument))
                if place is not None:
                    self._kept.append((place, reason))

    def _bytes(self, name: str, arguments: Sequence[Node]) -> None:
        """Take in a call that copies or clears bytes, as many as ``sizeof`` says."""
        given = arguments[:1] if name == "memset" else arguments[:2]
        places = [self._place(argument) for argument in given]
        self._merge(places[0], places[-1])
        if not self._on_device or not any(places):
            return
        value = _bare(arguments[1]).extent
        is_plain = value is not None and self._sources[value.file].of(value) == "0" if name == "memset" else all(places)
        size = self._sized(arguments[2])
        self._merge(places[0], size)
        if not is_plain or not (self._merge_sizes(arguments[2:], places[0]) or size):
            self._kept.extend((place, f"its bytes are counted for {name}") for place in places if place is not None)

    def _runtime(self, node: Node, name: str, arguments: Sequence[Node]) -> None:
        if node.extent is None:
            return
        places = [self._place(argument) for argument in arguments]
        self._copies[node.extent] = (name, places, arguments)
        direction = " ".join(inner.spelling for argument in arguments[3:] for inner in argument.walk())
        of_device = [place for place in places if place is not None]
        if "DeviceToDevice" in direction and len(places) > 1:
            self._merge(places[0], places[1])
        elif name.startswith("cudaMemcpy"):
            of_device = places[1:2] if "DeviceToHost" in direction or "FromSymbol" in name else places[:1]
        if of_device:
            self._merge_sizes(arguments, of_device[0])

    def _merge_sizes(self, arguments: Sequence[Node], place: object) -> bool:
        """Let types whose size is asked for in arguments be that of the memory they are about; return if there are."""
        are_some = False
        for inner in (inner for argument in arguments for inner in argument.walk()):
            extent = inner.extent
            if inner.kind != "CXX_UNARY_EXPR" or _variable_of(inner) or extent is None:
                continue
            words = self._within(extent.file, extent.start, extent.end)
            found = next((self._spelled(token.text) for token in words if self._spelled(token.text)), None)
            slot = self._slot(extent, found, self._on_device) if found is not None else None
            if slot is not None:
                function = self._function.label if self._function is not None else ""
                member = Member(slot.spelled, function, "size", False, slot, slot.extent)
                self._members.setdefault((slot.extent, "size", slot.scalar, function), member)
                self._merge(place, _node(slot))
                are_some = True
        return are_some

    # -- what the host does with bytes -------------------------------------------------------------------------------

    def _raw_uses(self, node: Node, above: tuple[Node, ...]) -> None:
        """Take in that the host gets at memory by an address of another type, or leaves its type to a format."""
        kind, children = node.kind, node.children
        called = node.referenced if kind == "CALL_EXPR" else None
        if called is not None and _is_variadic(called.type) and node.spelling not in _PRINTS:
            for argument in node.arguments[len(list(called.get_arguments())) :]:
                if (element := _element_behind(argument.canonical)) is not None:
                    self._note_raw(node, argument, element)
        if kind == "CXX_UNARY_EXPR":
            self._counting(node, above)
        if kind == "UNEXPOSED_EXPR" or (kind == "BINARY_OPERATOR" and node.operator == "=") or kind == _COMPOUND:
            self._computing(node, above)
        if kind == "DECL_REF_EXPR" and node.canonical.kind.name == "POINTER":
            self._untyped(node, above)
        if kind == "UNARY_OPERATOR" and node.operator == "&":
            self._reaching(node, above)
        if kind not in ("UNEXPOSED_EXPR", *_CASTS) or not children:
            return
        inner, result = children[-1], node.canonical
        old, new = _element_behind(inner.canonical), _element_behind(result)
        if old is None and kind in _CASTS and self._is_to_reference(node, inner):
            old, new = _element(inner.canonical), _element(result)
        is_to_number = kind in _CASTS and result.kind.name in _ADDRESSES
        is_same = old is not None and new is not None and _bare_name(old) == _bare_name(new)
        if old is None or (new is None and not is_to_number) or is_same:
            return
        is_struct = new is not None and {old.kind.name, new.kind.name} == {"RECORD"}
        is_base = is_struct and kind in ("UNEXPOSED_EXPR", "CXX_STATIC_CAST_EXPR")
        if is_base or self._is_for_any_type(node, above):
            return
        self._note_raw(node, inner, old)
        if new is not None and old.kind.name != "VOID":
            self._note_raw(node, node, new)

    def _counting(self, size: Node, above: tuple[Node, ...]) -> None:
        """Take in that the size of a struct says more than how many bytes some are: how many numbers are in it, say."""
        struct = _sized(size)
        if struct is None or struct.kind.name != "RECORD" or scalar_of(struct) is not None:
            return
        inner = size
        for parent in reversed(above):
            if parent.kind == "BINARY_OPERATOR":
                left, right = parent.children
                other = right if left is inner else left
                others = [_sized(each) for each in other.walk() if each.kind == "CXX_UNARY_EXPR"]
                is_alone = _without_casts(inner) is size
                is_divided = is_alone and left is inner and parent.operator in ("/", "%", "==", "!=")
                if any(each is None or _bare_name(each) != _bare_name(struct) for each in others) or (
                    is_divided and not others
                ):
                    self._note_raw(size, size, struct)
            elif parent.kind not in (*_TRANSPARENT, *_CASTS):
                return
            inner = parent

    def _computing(self, node: Node, above: tuple[Node, ...]) -> None:
        """Take in that the host computes a field of a struct by value, or computes with it."""
        field = self._place(node.children[0]) if node.children and _is_field_by_value(node.children[0]) else None
        if field is None or node.extent is None or is_pointer(node.canonical):
            return
        if node.kind != "UNEXPOSED_EXPR":
            if not all(each.kind in _LITERAL for each in node.children[1].walk()):
                self._computed.add(field)
            if node.kind == _COMPOUND:
                self._read_back.setdefault(field, node.extent)
            return
        parent = next((each for each in reversed(above) if each.kind not in (*_TRANSPARENT, *_CASTS)), None)
        if parent is None or parent.kind == "INIT_LIST_EXPR":
            return
        if parent.kind == "CALL_EXPR":
            is_used = self._program_calls(parent) or math_function(parent.spelling) is not None
        else:
            is_used = parent.operator != "=" or not _is_field_by_value(parent.children[0])
        if is_used:
            self._read_back.setdefault(field, node.extent)

    def _program_calls(self, call: Node) -> bool:
        """Whether a function of the program's host is called."""
        called = call.referenced
        kernels = {launched.name for launched in self._program.kernels}
        return called is not None and self._unit.extent(called) is not None and call.spelling not in kernels

    def _untyped(self, node: Node, above: tuple[Node, ...]) -> None:
        """Take in what is done with a pointer to void: what it is cast to has its bytes."""
        parent = next((each for each in reversed(above) if each.kind not in _TRANSPARENT), None)
        if parent is None or node.referenced is None or _element_behind(node.canonical).kind.name != "VOID":
            return
        element = _element_behind(parent.canonical) if parent.kind in _CASTS else None
        if element is not None and (scalar_of(element) is not None or element.kind.name == "RECORD"):
            places = [self._place(parent)] if scalar_of(element) is not None else list(_numbers_in(element))
            self._typed.setdefault(node.referenced.get_usr(), []).extend(places)
            return
        is_given = parent.kind in ("CALL_EXPR", *_CASTS) and not self._is_for_any_type(node, above)
        if is_given and node.extent is not None:
            self._given_raw.setdefault(node.referenced.get_usr(), node.extent)

    def _reaching(self, node: Node, above: tuple[Node, ...]) -> None:
        """Take in the address of a field that is a number: counted on from there, it is that of the next field."""
        field = _bare(node.children[0]).referenced
        if node.extent is None or field is None or field.kind.name != "FIELD_DECL":
            return
        if scalar_of(field.type.get_canonical()) is None or is_pointer(field.type.get_canonical()):
            return
        parent = next((each for each in reversed(above) if each.kind not in _TRANSPARENT), None)
        is_one = parent is not None and (parent.operator == "*" or self._is_given_one(parent, node.extent))
        if not is_one and not self._is_for_any_type(node, above):
            struct = field.semantic_parent.type.get_canonical()
            self._reached.append((node.extent, tuple(_numbers_in(struct))))

    def _is_given_one(self, parent: Node, address: Extent) -> bool:
        """Whether a variable or parameter gets an address of which no more than the one number there is used."""
        function, variable = self._function, parent.cursor if parent.kind == "VAR_DECL" else None
        if parent.kind == "CALL_EXPR" and parent.referenced is not None:
            called = parent.referenced.get_usr()
            function = next((f for unit in self._program.units for f in unit.functions if f.usr == called), None)
            given = zip(parent.arguments, function.parameters if function is not None else (), strict=False)
            named = (own.cursor for each, own in given if each.extent is not None and address in each.extent)
            variable = next(named, None)
        if function is None or variable is None:
            return False
        uses = ones = 0
        for each in function.block.walk():
            uses += each.kind == "DECL_REF_EXPR" and each.referenced == variable
            is_one = each.kind == "UNARY_OPERATOR" and each.operator == "*"
            ones += is_one and _bare(each.children[0]).referenced == variable
        return uses == ones

    def _is_to_reference(self, node: Node, inner: Node) -> bool:
        """Whether a cast is to a reference, which only its text says."""
        if node.extent is None or inner.extent is None:
            return False
        words = self._within(node.extent.file, node.extent.start, inner.extent.start)
        return any(word.text == "&" for word in words)

    def _note_raw(self, node: Node, used: Node, element: Any) -> None:
        """Note that a node uses the bytes of memory with such elements; those of a struct are all its numbers."""
        if node.extent is not None:
            is_struct = element.kind.name == "RECORD" and scalar_of(element) is None
            places = _numbers_in(element) if is_struct else [self._place(used)] if scalar_of(element) else []
            self._raw.update(dict.fromkeys((node.extent, place) for place in places if place is not None))

    def _is_for_any_type(self, node: Node, above: tuple[Node, ...]) -> bool:
        """Whether an address is converted for a call that does the same with memory of any type."""
        passed, call = node, None
        for parent in reversed(above):
            if parent.kind not in (*_TRANSPARENT, *_CASTS):
                call = parent if parent.kind == "CALL_EXPR" else None
                break
            passed = parent
        if call is None or call.referenced is None:
            return False
        if self._unit.extent(call.referenced) is not None:
            index = next((i for i, each in enumerate(call.arguments) if each.extent == passed.extent), -1)
            return index >= 0 and self._only_allocates(call.referenced, index)
        if _RUNTIME.fullmatch(call.spelling) or call.spelling in (*_PRINTS, "free", "operator<<"):
            return True
        if call.spelling not in ("memset", "memcpy", "memmove") or len(call.arguments) != 3:
            return False
        sides = [_without_casts(each).canonical for each in call.arguments[: 1 if call.spelling == "memset" else 2]]
        sizes = [inner for inner in call.arguments[2].walk() if inner.kind == "CXX_UNARY_EXPR"]
        elements = [_element_behind(side) for side in sides]
        elements += [_element(size.children[-1].canonical) if size.children else None for size in sizes]
        are_structs = all(each is not None and each.kind.name == "RECORD" for each in elements)
        return are_structs and bool(sizes) and len(set(map(_bare_name, elements))) == 1

    def _only_allocates(self, called: Any, index: int) -> bool:
        """Whether a function of the program only allocates or frees what a parameter points at."""
        function = next((f for unit in self._program.units for f in unit.functions if f.usr == called.get_usr()), None)
        if function is None or index >= len(function.parameters):
            return False
        parameter = function.parameters[index].cursor

        def uses(node: Node) -> int:
            return sum(each.referenced is not None and each.referenced == parameter for each in node.walk())

        calls = (node for node in function.block.walk() if node.kind == "CALL_EXPR")
        return uses(function.block) == sum(uses(call) for call in calls if _ALLOCATES.fullmatch(call.spelling))

    def _place(self, node: Node) -> object:
        """Return the node of the memory that an expression points at, refers to or is; None if it has none."""
        kind, children = node.kind, node.children
        if kind in _TRANSPARENT and children:
            return self._place(children[-1])
        if kind in ("DECL_REF_EXPR", "MEMBER_REF_EXPR"):
            declared = node.referenced
            if declared is None or declared.kind.name not in ("VAR_DECL", "PARM_DECL", "FIELD_DECL"):
                return None
            if self._unit.extent(declared) is None:  # a component of double3 and its like
                return self._place(children[0]) if kind == "MEMBER_REF_EXPR" and children else None
            return declared.get_usr() if scalar_of(declared.type.get_canonical()) is not None else None
        if kind == "ARRAY_SUBSCRIPT_EXPR" or (kind == "UNARY_OPERATOR" and node.operator in ("*", "&", "++", "--")):
            return self._place(children[0])
        if kind == "BINARY_OPERATOR":
            sides = [child for child in children if is_pointer(child.canonical)]
            return self._place(sides[-1] if node.operator == "," else sides[0]) if sides else None
        if kind == "INIT_LIST_EXPR":
            places = [self._place(child) for child in children if is_pointer(child.canonical)]
            for place in places[1:]:
                self._merge(places[0], place)
            return places[0] if places else None
        if kind == "CONDITIONAL_OPERATOR":
            self._merge(self._place(children[1]), self._place(children[2]))
            return self._place(children[1])
        if kind in _CASTS and children:
            if not is_pointer(node.canonical):
                return None
            return self._place(children[-1]) if scalar_of(node.canonical) is None else self._cast(node)
        if kind == "CALL_EXPR" and node.referenced is not None and is_pointer(node.canonical):
            own = self._unit.extent(node.referenced) is not None
            return (node.referenced.get_usr(), "result") if own else None
        return None

    def _values(self, node: Node) -> Iterator[object]:
        """Give the nodes of the values that enter an expression's arithmetic."""
        kind, children = node.kind, node.children
        if kind in ("DECL_REF_EXPR", "MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR") or (
            kind == "UNARY_OPERATOR" and node.operator == "*"
        ):
            place = self._place(node)
            if place in self._follows:
                yield from self._follows[place]
            elif place is not None:
                yield place
        elif kind in _CASTS:
            if scalar_of(node.canonical) is not None:
                place = self._cast(node)
                if place is not None:
                    yield place
        elif kind == "CALL_EXPR":
            if node.referenced is not None and self._unit.extent(node.referenced) is not None:
                yield (node.referenced.get_usr(), "result")
            elif math_function(node.spelling) or node.spelling in ("__ldg", "__ldcs", "atomicAdd"):
                for argument in node.arguments:
                    yield from self._values(argument)
            elif node.referenced is not None and node.referenced.kind.name == "CONSTRUCTOR" and len(children) == 1:
                yield from self._values(children[0])  # a vector, copied
        elif kind == "CONDITIONAL_OPERATOR":
            for child in children[1:]:
                yield from self._values(child)
        elif kind == "BINARY_OPERATOR" and node.operator in ("=", ","):
            yield from self._values(children[-1])
        elif kind not in ("LAMBDA_EXPR", "CXX_UNARY_EXPR"):
            for child in children:
                yield from self._values(child)

    def _meets(self, node: Node, above: tuple[Node, ...]) -> list[object]:
        """Return the nodes that an operand meets: of the nearest arithmetic with others, or what it is assigned to."""
        for parent in reversed(above):
            kind, children = parent.kind, parent.children
            if kind == "VAR_DECL":
                return [parent.cursor.get_usr()]
            if kind == "RETURN_STMT" and self._function is not None:
                return [(self._function.usr, "result")]
            if kind.endswith("_STMT"):
                return []
            if kind in _CASTS:
                place = self._cast(parent)
                if place is not None or scalar_of(parent.canonical) is None:
                    return [place] if place is not None else []
                node = parent  # in a macro that stands for a number
                continue
            if kind == "CALL_EXPR" and math_function(parent.spelling) is None:
                called = parent.referenced
                for index, argument in enumerate(parent.arguments):
                    if called is not None and argument.extent == node.extent:
                        return [(called.get_usr(), index)]
                return []
            if kind == "ARRAY_SUBSCRIPT_EXPR":
                return []
            assigns = kind == "COMPOUND_ASSIGNMENT_OPERATOR" or (kind == "BINARY_OPERATOR" and parent.operator == "=")
            values = list(dict.fromkeys(self._values(children[0] if assigns else parent)))
            if values:
                return values
            node = parent
        return []

    def _literal(self, node: Node, above: tuple[Node, ...]) -> None:
        extent = node.extent
        if extent is None or self._function is None:
            return
        scalar, met = node.canonical.spelling, self._meets(node, above)
        text = self._sources[extent.file].of(extent)
        macro = self._macro_at(extent)
        if macro is not None and not self._is_number(macro):
            for file, token in self._parts(macro):
                if self._is_literal(token):
                    self._note_literal(self._token_extent(file, token), token.text, scalar, met)
            return
        if node.kind == "FLOATING_LITERAL" and not _NUMBER.match(text):
            words = self._within(extent.file, extent.start, extent.end)
            if not words or words[0].kind != "name":
                return
            extent, text = self._token_extent(extent.file, words[0]), words[0].text
        self._note_literal(extent, text, scalar, met)

    def _is_literal(self, token: Token) -> bool:
        """Whether a token of a macro's body is a literal, or a macro that stands for a floating-point number."""
        if token.kind != "name":
            return token.kind == "number" and _FLOATING.fullmatch(token.text) is not None
        is_number = token.text in self._macros and self._is_number(token.text)
        return is_number and any(self._is_literal(inner) for inner in self._body(token.text))

    def _note_literal(self, extent: Extent, text: str, scalar: str, met: list[object]) -> None:
        assert self._function is not None
        key = (extent, self._function.label)
        self._literals.setdefault(key, Literal(extent, text, scalar, self._function.label, ()))
        self._met.setdefault(key, []).extend(met)

    def _math(self, node: Node, name: str, above: tuple[Node, ...]) -> None:
        extent = node.children[0].extent
        if extent is None or self._function is None:
            return
        met = list(dict.fromkeys(self._values(node))) or self._meets(node, above)
        text = self._sources[extent.file].of(extent)
        is_of_cuda = (
            node.referenced.semantic_parent.kind.name != "NAMESPACE"
        )  # those of C++ keep NaN where they find it
        called = f"f{name}" if name in ("min", "max") and is_of_cuda and scalar_of(node.canonical) else name
        macro = self._macro_at(extent)
        if macro is not None and not self._is_number(macro):
            for file, token in self._parts(macro):
                if token.kind == "name" and math_function(token.text) == name:
                    self._note_math(self._token_extent(file, token), called, token.text, met)
            return
        self._note_math(extent, called, text, met)

    def _note_math(self, extent: Extent, name: str, text: str, met: list[object]) -> None:
        assert self._function is not None
        key = (extent, self._function.label)
        self._calls.setdefault(key, MathCall(extent, name, text, self._function.label, ()))
        self._met.setdefault(("math", *key), []).extend(met)

    def _choice(self, node: Node) -> None:
        """Take in a choice between two numbers or vectors; but where both sides have one type anyhow."""
        sides = node.children[1:]
        found, bare = scalar_of(node.canonical), [_bare(side) for side in sides]
        if found is None or is_pointer(node.canonical):
            return
        if found[1] > 1:  # those in memory are vectors of one type
            memory = [self._place(side) for side in sides]
            self._merge(*memory)
            if None not in memory:
                return
        are_literals = [side.kind == "FLOATING_LITERAL" or _is_limit(side) for side in bare]
        are_numbers = [scalar_of(side.canonical) is not None for side in bare]
        places = {self._place(side) if side.kind in _VARIABLES else None for side in bare}
        if all(are_literals) or (any(are_literals) and all(are_numbers)) or (len(places) == 1 and None not in places):
            return
        met = [value for side in sides for value in self._values(side)]
        extents = [part.extent for part in node.children if part.extent is not None]
        if len(extents) < 3 or node.extent is None:
            return
        file = node.extent.file
        between = [self._within(file, before.end, after.start) for before, after in itertools.pairwise(extents)]
        macro = self._macro_at(node.extent)
        if [[token.text for token in found] for found in between] == [["?"], [":"]]:
            self._note_choice(node.extent, file, between[0][0], between[1][0], met)
        elif macro is not None and not self._is_number(macro):
            for file, body in self._bodies(macro):
                for first, question, colon, last in _choices(body):
                    self._note_choice(self._token_extent(file, first, last), file, question, colon, met)

    def _note_choice(self, extent: Extent, file: Path, question: Token, colon: Token, met: Iterable[object]) -> None:
        assert self._function is not None
        label = self._function.label
        choice = Choice(extent, self._token_extent(file, question), self._token_extent(file, colon), label, ())
        self._choices.setdefault((extent, label), choice)
        self._met.setdefault(("choice", extent, label), []).extend(met)

    def _token_extent(self, file: Path, token: Token, last: Token | None = None) -> Extent:
        last = last or token
        line = self._sources[file].line(self._sources[file].text.count("\n", 0, token.start) + 1)
        return Extent(file, token.start, last.start + len(last.text), line)

    # -- the result --------------------------------------------------------------------------------------------------

    def result(self) -> TypeClasses:
        """Put the slots into classes and name these."""
        groups: dict[object, list[Member]] = {}
        for member in sorted(self._members.values(), key=lambda m: m.extent):
            groups.setdefault(self._root(_node(member.slot)), []).append(member)
        for pointer, extent in self._given_raw.items():
            self._raw.update(dict.fromkeys((extent, place) for place in self._typed.get(pointer, ())))
        for extent, fields in self._reached:
            if len({self._root(field) for field in fields}) > 1:
                self._raw.update(dict.fromkeys((extent, field) for field in fields))
        kept: dict[object, str] = {}
        for node, reason in self._kept:
            kept.setdefault(self._root(node), reason)
        updated = {self._root(node) for node in self._updated if node is not None}
        in_memory = {self._root(node) for node in self._in_memory}
        kernels = {root: self._kernels(members) for root, members in groups.items()}
        taken = [(root, members) for root, members in groups.items() if kernels[root]]
        names = dict(zip((root for root, _ in taken), _names([members for _, members in taken]), strict=True))
        return TypeClasses(
            classes=tuple(
                TypeClass(
                    name=names[root],
                    scalar=members[0].slot.scalar,
                    slots=tuple(sorted({member.slot for member in members}, key=lambda slot: slot.extent)),
                    members=tuple(members),
                    role="buffer" if root in in_memory else _role(members, root in updated),
                    kernels=kernels[root],
                    kept=kept.get(root, "") or _mixed(members),
                )
                for root, members in taken
            ),
            literals=tuple(
                dataclasses.replace(literal, meets=self._named(self._met[key], names))
                for key, literal in sorted(self._literals.items())
                if self._is_used(literal.extent)
            ),
            calls=tuple(
                dataclasses.replace(call, meets=self._named(self._met["math", *key], names))
                for key, call in sorted(self._calls.items())
                if self._is_used(call.extent)
            ),
            choices=tuple(
                dataclasses.replace(choice, meets=self._named(self._met["choice", *key], names))
                for key, choice in sorted(self._choices.items())
                if self._is_used(choice.extent)
            ),
            copies=tuple(self._copies_named(names)),
            reads=tuple(
                Read(extent, names[root], function, is_device, is_stored)
                for (extent, function), (place, is_device, is_stored) in sorted(self._reads.items())
                if (root := self._root(place)) in names
            ),
            braced=tuple(
                Braced(extent, names[root], self._named(values, names), is_device)
                for extent, (place, values, is_device) in sorted(self._braced.items())
                if (root := self._root(place)) in names
            ),
            raw=(
                *(RawUse(extent, names[root]) for extent, place in self._raw if (root := self._root(place)) in names),
                *(
                    RawUse(extent, names[root], "the host adds up in it")
                    for extent, place in self._summed
                    if (root := self._root(place)) in names
                ),
                *(
                    RawUse(extent, names[root], "the host computes with it")
                    for field, extent in self._read_back.items()
                    if field in self._computed and (root := self._root(field)) in names
                ),
            ),
        )

    def _copies_named(self, names: Mapping[object, str]) -> Iterator[Copy]:
        for extent, (name, places, given) in sorted(self._copies.items(), key=lambda copy: copy[0]):
            found = tuple(names.get(self._root(place), "") for place in places)
            if any(found):
                sizes = tuple(names.get(self._root(self._sized(node)), "") for node in given)
                elements = tuple(map(_pointed_at, given))
                yield Copy(extent, name, found, tuple(a.extent or extent for a in given), elements, sizes)

    def _sized(self, node: Node) -> object:
        """Return the node of a variable whose numbers' size an expression computes with; None if there is none."""
        for inner in node.walk():
            variable = _variable_of(inner) if inner.kind == "CXX_UNARY_EXPR" else None
            if variable is not None and variable.canonical.kind.name != "POINTER":
                return self._place(variable)
        return None

    def _named(self, nodes: Iterable[object], names: Mapping[object, str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(names[root] for node in nodes if (root := self._root(node)) in names))

    def _is_used(self, extent: Extent) -> bool:
        return bool(self._owners(extent))

    def _owners(self, extent: Extent) -> tuple[tuple[str, str], ...]:
        """Return in whose code a place is: labels of kernels, each with the label of the function it is for, or ""."""
        if self._places is None:
            self._places = [
                (place, kernel.label, owner)
                for kernel in self._program.kernels
                for place, owner in (
                    (kernel.extent, kernel.label),
                    *((need.extent, need.label if need.kind == "function" else "") for need in kernel.needs),
                )
            ]
        return tuple((label, owner) for place, label, owner in self._places if extent in place)

    def _kernels(self, members: list[Member]) -> tuple[str, ...]:
        """Return the labels of the kernels in whose code, or that of what they need, a class has a slot."""
        found = {
            label
            for member in members
            for label, owner in self._owners(member.slot.extent)
            if owner in ("", member.function)
        }
        return tuple(kernel.label for kernel in self._program.kernels if kernel.label in found)


#: What clang calls a struct without a name.
_NAMELESS: Final = re.compile(r" at [^()]*?([^/()]+:\d+):\d+\)")


def told(members: Iterable[Member]) -> list[str]:
    """Return what has a type, each once, as the program calls it; what has no name by its place."""
    named: dict[str, None] = {}
    nameless: dict[str, None] = {}
    for each in members:
        if each.name and each.kind not in ("cast", "size"):
            name = f"{each.name}()" if each.kind == "result" else f"{each.function}.{each.name}".strip(".")
            named[_NAMELESS.sub(r" at \1)", name)] = None
        else:
            what = {"cast": f"({each.name})", "size": f"sizeof({each.name})"}.get(each.kind, f"a {each.kind}")
            nameless[f"{what} at {each.extent}"] = None
    return list(named or nameless)


def _within_structs(parameter: Parameter) -> Iterator[Parameter]:
    """Give a parameter, or the fields of one that is a struct."""
    yield parameter
    for field in parameter.fields:
        yield from _within_structs(field)


def _node(slot: TypeSlot) -> object:
    return ("slot", slot.extent, slot.scalar, slot.declarator)


def _bare(node: Node) -> Node:
    """Return what is converted, for an implicit conversion."""
    while node.kind in _TRANSPARENT and node.children:
        node = node.children[-1]
    return node


def _pointee(canonical: Any) -> Any:
    return canonical.element_type if "ARRAY" in canonical.kind.name else canonical.get_pointee()


def _element(canonical: Any) -> Any:
    """Return a type without the arrays that it is of."""
    while "ARRAY" in canonical.kind.name:
        canonical = canonical.element_type.get_canonical()
    return canonical


def _element_behind(canonical: Any) -> Any:
    """Return the type of what a pointer points at, or an array is of; None for any other type."""
    kind = canonical.kind.name
    return _element(_pointee(canonical).get_canonical()) if kind == "POINTER" or "ARRAY" in kind else None


def _bare_name(canonical: Any) -> str:
    return _QUALIFIERS.sub("", canonical.spelling).strip()


def _numbers_in(struct: Any) -> Iterator[str]:
    """Give clang's names of the fields of a struct, and of structs within, that are numbers or arrays of numbers."""
    for base in struct.get_declaration().get_children():
        if base.kind.name == "CXX_BASE_SPECIFIER":
            yield from _numbers_in(base.type.get_canonical())
    for field in struct.get_fields():
        element = _element(field.type.get_canonical())
        if scalar_of(element) is None and element.kind.name == "RECORD":
            yield from _numbers_in(element)
        elif element.kind.name != "POINTER":
            yield field.get_usr()


def _sized(size: Node) -> Any:
    """Return the type whose size is asked for, of an array that of its elements; None if it is a type of C++'s own."""
    return _element(size.children[-1].canonical) if size.children else None


def _is_field_by_value(node: Node) -> bool:
    """Whether an expression is a number in a struct that no pointer or index leads to."""
    node = _bare(node)
    while node.kind == "ARRAY_SUBSCRIPT_EXPR" and "ARRAY" in _bare(node.children[0]).canonical.kind.name:
        node = _bare(node.children[0])
    if node.kind != "MEMBER_REF_EXPR" or node.referenced is None or node.referenced.kind.name != "FIELD_DECL":
        return False
    while node.kind == "MEMBER_REF_EXPR" and node.children:
        node = _bare(node.children[0])
    return node.kind == "MEMBER_REF_EXPR" or (node.kind == "DECL_REF_EXPR" and node.canonical.kind.name == "RECORD")


def _is_variadic(kind: Any) -> bool:
    """Whether what is called takes more arguments than it names; what is no function, as a pointer to one, does not."""
    return kind.kind.name == "FUNCTIONPROTO" and bool(kind.is_function_variadic())


def _without_casts(node: Node) -> Node:
    while node.kind in (*_TRANSPARENT, *_CASTS) and node.children:
        node = node.children[-1]
    return node


def _is_each_once(place: Node, above: Sequence[Node]) -> bool:
    """Whether a loop over the elements of an array changes each of them, and none again and again."""
    place = _bare(place)
    loop = next((node for node in reversed(above) if node.kind in _LOOPS), None)
    if loop is None or loop.kind != "FOR_STMT" or place.kind != "ARRAY_SUBSCRIPT_EXPR":
        return False
    counted = [child.cursor for child in loop.children[0].children if child.kind == "VAR_DECL"]
    index = list(place.children[1].walk())
    is_counted = any(each.referenced is not None and each.referenced in counted for each in index)
    return is_counted and not any(each.operator in ("%", "/", ">>", "&") for each in index)


def _is_other_memory(node: Node) -> bool:
    """Whether a pointer is to memory that holds something else than floating-point numbers, and outlives a block."""
    if not is_pointer(node.canonical) or scalar_of(node.canonical) is not None:
        return False
    named = (inner.referenced for inner in node.walk() if inner.kind == "DECL_REF_EXPR" and is_pointer(inner.canonical))
    declared = (child.kind.name for cursor in named if cursor is not None for child in cursor.get_children())
    return "CUDASHARED_ATTR" not in declared


def _is_limit(node: Node) -> bool:
    """Whether an expression is the limit of a floating-point type (``std::numeric_limits<T>::max()``)."""
    called = node.referenced if node.kind == "CALL_EXPR" else None
    parent = called.semantic_parent if called is not None else None
    return parent is not None and parent.spelling == "numeric_limits" and scalar_of(node.canonical) is not None


def _choices(body: Sequence[Token]) -> Iterator[tuple[Token, Token, Token, Token]]:
    """Give the first token, the signs and the last token of each ``?:`` in an expression."""

    def end_of(at: int, step: int, ends: Sequence[str]) -> int:
        """Return where what lies between such signs ends, from a place on in either direction."""
        opening, closing = ("([{?", ")]}:") if step > 0 else (")]}", "([{")
        depth = 0
        while 0 <= at < len(body) and (depth > 0 or body[at].text not in (*closing, *ends)):
            depth += (body[at].text in opening) - (body[at].text in closing)
            at += step
        return at

    for at in (index for index, token in enumerate(body) if token.text == "?"):
        first = end_of(at - 1, -1, (",", ";", "?", ":", "return", *_ASSIGNS)) + 1
        colon = end_of(at + 1, 1, ())
        last = end_of(colon + 1, 1, (",", ";")) - 1
        if first < at and last > colon:
            yield body[first], body[at], body[colon], body[last]


def _union(classes: Sequence[TypeClass]) -> TypeClass:
    """Return the class of memory that these share."""
    members = sorted({member for each in classes for member in each.members}, key=lambda member: member.extent)
    return dataclasses.replace(
        classes[0],
        slots=tuple(sorted({slot for each in classes for slot in each.slots}, key=lambda slot: slot.extent)),
        members=tuple(members),
        role="buffer",
        kernels=tuple(dict.fromkeys(label for each in classes for label in each.kernels)),
        kept=next((each.kept for each in classes if each.kept), _mixed(members)),
    )


def _variable_of(size: Node) -> Node | None:
    """Return the expression whose size ``sizeof`` gives; None for a type."""
    return next((child for child in size.children if child.kind not in ("TYPE_REF", "NAMESPACE_REF")), None)


def _pointed_at(node: Node) -> str:
    """Return the type of the numbers that an argument points at, or is an array of; "" for anything else."""
    node = _bare(node)
    kind = node.canonical
    if not is_pointer(kind) or "REFERENCE" in kind.kind.name:
        return kind.spelling if kind.spelling in _SCALARS else ""
    inner = (kind.element_type if "ARRAY" in kind.kind.name else kind.get_pointee()).get_canonical()
    name = _QUALIFIERS.sub("", inner.spelling).strip()
    return name if name in _SCALARS or VECTOR.fullmatch(name) else ""


def _mixed(members: Sequence[Member]) -> str:
    """Say why a class cannot change whose members have different types already; "" for any other."""
    scalars = sorted({member.slot.scalar for member in members})
    return f"the same memory is {' and '.join(scalars)}" if len(scalars) > 1 else ""


def _role(members: list[Member], is_updated: bool) -> str:
    kinds = {member.kind for member in members}
    if "shared" in kinds:
        return "shared"
    if any(m.is_pointer and m.kind in ("parameter", "device", "field") for m in members):
        return "buffer" if any(m.kind in ("device", "field", "host") for m in members) else "local"
    for kind, role in (
        ("constant", "constant"),
        ("device", "constant"),
        ("parameter", "argument"),
        ("result", "result"),
    ):
        if kind in kinds:
            return role
    return "accumulator" if is_updated else "local"


_TELLING: Final = ("device", "constant", "parameter", "shared", "field", "local", "result", "host", "cast", "size")


def _best(members: Sequence[Member]) -> Member:
    """Return the member of a class whose name tells most."""
    return min(members, key=lambda member: (_TELLING.index(member.kind), member.extent))


def _plain_name(members: Sequence[Member]) -> str:
    best = _best(members)
    name = re.sub(r"\W+", "", best.name)  # operator()
    return "cast" if best.kind == "cast" else best.name if name == best.name else f"{name}_result"


def _names(groups: list[list[Member]]) -> list[str]:
    """Give each class a name: of the member that tells most, with its function where another class has it too."""
    best = [_best(members) for members in groups]
    plain = [_plain_name(members) for members in groups]
    names: list[str] = []
    for member, name in zip(best, plain, strict=True):
        is_alone = plain.count(name) == 1 and member.kind != "cast" and name
        function = re.sub(r"\W+", "_", member.function).strip("_")
        candidate = name if is_alone else f"{function}_{name or 'unnamed'}".strip("_")
        unique, number = candidate, 2
        while unique in names:
            unique, number = f"{candidate}_{number}", number + 1
        names.append(unique)
    return names
