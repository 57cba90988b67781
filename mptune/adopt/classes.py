"""Which floating-point types of a program must change together: its type classes.

A place in the text where a floating-point type is written is a type slot. Slots belong to one class if what they
declare shares memory: through pointers, references, arrays, swaps, struct fields, copies on the device. Values convert
by themselves, so arithmetic never puts two slots into one class; and a host array that is only copied to or from the
device stays out, since a copy can convert.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from mptune.adopt.parsing import Extent, TranslationUnit, cursors
from mptune.adopt.reading import Program, is_device, is_kernel
from mptune.cplusplus import tokens

__all__ = ["Copy", "Literal", "MathCall", "Member", "TypeClass", "TypeClasses", "TypeSlot", "type_classes"]


@dataclass(frozen=True, slots=True)
class TypeSlot:
    """A place in the text where a floating-point type is written; all declarators after it share it.

    Attributes:
        extent: the tokens of the type alone (``double``, ``Real``, ``double3``), without ``const``, ``*`` and ``&``.
        spelled: how it is written.
        scalar: the type of its numbers: "double", "float", "long double", "__half" or "__nv_bfloat16".
        components: how many numbers: 1, or 2 to 4 for ``double2`` to ``double4``.
        function: the kernel (its label), device or host function it is in; "" outside functions.
        is_device: whether it is in code of the device: a kernel, a device function, or what these use.
    """

    extent: Extent
    spelled: str
    scalar: str
    components: int
    function: str
    is_device: bool


@dataclass(frozen=True, slots=True)
class Member:
    """Something a type class is the type of.

    Attributes:
        name: of the variable, parameter, field or function; for a cast the type it casts to.
        function: the kernel (its label) or function it belongs to; the struct of a field; "" outside.
        kind: "parameter", "local", "shared", "field", "constant" (``__constant__`` and ``const`` outside functions),
            "device" (a ``__device__`` variable), "result" (of a function), "cast", "size" (``sizeof``) or "host" (a
            variable of host code).
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
        extent: the literal; for one that is written through a macro without arguments, the macro's name where it is
            used.
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
        name: the function, without ``f``, ``__`` or ``std::`` (``exp`` for ``expf``, ``__expf`` and ``std::exp``).
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
class Copy:
    """A call of the runtime that is given memory of the device by a pointer of some class.

    Attributes:
        call: the whole call.
        name: in CUDA's spelling.
        classes: for each argument the name of its class; "" for one that has none (numbers, sizes, host arrays).
    """

    call: Extent
    name: str
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TypeClasses:
    """The type classes of a program, with the literals and mathematical functions that take their types.

    Attributes:
        classes: in the order in which the source first names them.
        literals: in code of the device.
        calls: of mathematical functions, in code of the device.
        copies: calls of the runtime that are given pointers to the device.
    """

    classes: tuple[TypeClass, ...]
    literals: tuple[Literal, ...]
    calls: tuple[MathCall, ...]
    copies: tuple[Copy, ...]

    def __getitem__(self, name: str) -> TypeClass:
        for found in self.classes:
            if found.name == name:
                return found
        raise KeyError(name)

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
_VECTOR: Final = re.compile(r"(double|float|__half)([1234])")
_FUNCTIONS: Final = ("FUNCTION_DECL", "FUNCTION_TEMPLATE", "CXX_METHOD", "CONSTRUCTOR")
_TRANSPARENT: Final = ("UNEXPOSED_EXPR", "PAREN_EXPR")
_ARITHMETIC: Final = ("+", "-", "*", "/", "<", ">", "<=", ">=", "==", "!=")
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


def scalar_of(canonical: Any) -> tuple[str, int] | None:
    """Return the type of the numbers behind a type (through pointers, references and arrays) and how many make one."""
    while canonical.kind.name in (
        "POINTER",
        "LVALUEREFERENCE",
        "RVALUEREFERENCE",
        "INCOMPLETEARRAY",
        "CONSTANTARRAY",
        "VARIABLEARRAY",
        "DEPENDENTSIZEDARRAY",
        "VECTOR",
    ):
        kind = canonical.kind.name
        canonical = (
            canonical.element_type if "ARRAY" in kind or kind == "VECTOR" else canonical.get_pointee()
        ).get_canonical()
    name = re.sub(r"\b(const|volatile|struct)\b", "", canonical.spelling).strip()
    if name in _SCALARS:
        return name, 1
    if vector := _VECTOR.fullmatch(name):
        return vector[1], int(vector[2])
    return None


def is_pointer(canonical: Any) -> bool:
    """Whether values of a type are places in memory that others may share."""
    kind: str = canonical.kind.name
    return kind in ("POINTER", "LVALUEREFERENCE", "RVALUEREFERENCE") or "ARRAY" in kind


class _Finder:
    """Gathers slots and what merges them, over the files of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._sources = {file.path: file for file in program.files}
        self._tokens: dict[Any, list[Any]] = {}
        self._parent: dict[object, object] = {}
        self._members: dict[tuple[Extent, str], Member] = {}
        self._slots: dict[Extent, TypeSlot] = {}
        self._kept: dict[object, str] = {}
        self._updated: set[object] = set()
        self._literals: dict[Extent, tuple[str, str, str, list[object]]] = {}
        self._calls: dict[Extent, tuple[str, str, str, list[object]]] = {}
        self._copies: dict[Extent, tuple[str, list[object]]] = {}
        self._users: dict[Extent, list[str]] = {}
        self._types: dict[str, tuple[str, int]] = {}
        self._literal_macros: set[str] = set()
        self._latest: TypeSlot | None = None  # of the declarator before
        for kernel in program.kernels:
            self._users.setdefault(kernel.extent, []).append(kernel.label)
            for need in kernel.needs:
                self._users.setdefault(need.extent, []).append(kernel.label)

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

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(self, unit: TranslationUnit) -> None:
        """Take in a file and what it includes."""
        self._unit = unit
        own = [cursor for cursor in unit.unit.cursor.get_children() if unit.extent(cursor) is not None]
        for cursor in own:
            if cursor.kind.name == "MACRO_DEFINITION":
                self._macro(cursor)
        for cursor in own:
            self._declaration(cursor, "", False)

    def _macro(self, cursor: Any) -> None:
        """Note a macro without arguments that stands for a type or a literal."""
        words = [token.spelling for token in cursor.get_tokens()]
        body = " ".join(words[1:])
        if body in _SCALARS:
            self._types[words[0]] = (body, 1)
        elif body in self._types:
            self._types[words[0]] = self._types[body]
        elif vector := _VECTOR.fullmatch(body):
            self._types[words[0]] = (vector[1], int(vector[2]))

    def _declaration(self, cursor: Any, function: str, on_device: bool) -> None:
        kind = cursor.kind.name
        if kind in ("NAMESPACE", "LINKAGE_SPEC", "UNEXPOSED_DECL"):
            for child in cursor.get_children():
                self._declaration(child, function, on_device)
        elif kind in ("TYPEDEF_DECL", "TYPE_ALIAS_DECL"):
            underlying = cursor.underlying_typedef_type.get_canonical()
            found = scalar_of(underlying)
            if found is not None and not is_pointer(underlying):
                self._types[cursor.spelling] = found
            for child in cursor.get_children():
                self._declaration(child, function, on_device)
        elif kind in ("STRUCT_DECL", "CLASS_DECL", "UNION_DECL", "CLASS_TEMPLATE"):
            for child in cursor.get_children():
                if child.kind.name == "FIELD_DECL":
                    node = self._declare(child, "field", cursor.spelling, on_device or self._is_needed(child))
                    if kind == "UNION_DECL" and node is not None:
                        self._kept[node] = "it is in a union"
                else:
                    self._declaration(child, function, on_device)
        elif kind == "VAR_DECL":
            self._variable(cursor, function, on_device or self._is_needed(cursor))
        elif kind in _FUNCTIONS:
            self._function(cursor)

    def _is_needed(self, cursor: Any) -> bool:
        extent = self._unit.extent(cursor)
        return extent is not None and any(extent in user for user in self._users)

    def _function(self, cursor: Any) -> None:
        on_device = is_kernel(cursor) or is_device(cursor)
        name = cursor.spelling
        usr = cursor.get_usr()
        result = self._declare(cursor, "result", name, on_device)
        self._merge((usr, "result"), result)
        for index, parameter in enumerate(c for c in cursor.get_children() if c.kind.name == "PARM_DECL"):
            node = self._declare(parameter, "parameter" if on_device else "host", name, on_device)
            self._merge((usr, index), node)
        for child in cursor.get_children():
            if child.kind.name == "COMPOUND_STMT":
                self._statement(child, name, usr, on_device, ())

    def _variable(self, cursor: Any, function: str, on_device: bool) -> None:
        attributes = {child.kind.name for child in cursor.get_children()}
        if "CUDASHARED_ATTR" in attributes:
            kind = "shared"
        elif function:
            kind = "local" if on_device else "host"
        elif "CUDADEVICE_ATTR" in attributes:
            kind = "device"
        else:
            kind = "constant" if on_device else "host"
        node = self._declare(cursor, kind, function, on_device)
        if not function:
            self._merge((cursor.get_usr(), "variable"), node)

    def _declare(self, cursor: Any, kind: str, function: str, on_device: bool) -> object:
        """Note what a declaration declares; return its node, None if it has no floating-point type."""
        canonical = (cursor.result_type if kind == "result" else cursor.type).get_canonical()
        found, name = scalar_of(canonical), self._unit.name(cursor)
        extent = self._unit.extent(cursor)
        if found is None or name is None or extent is None:
            return None
        node = self._node(name)
        before = Extent(extent.file, extent.start, name.start if name.start > extent.start else extent.end, extent.line)
        slot = self._slot(before, found, function, on_device)
        if slot is None and name.start == extent.start and self._follows_a_comma(name):
            slot = self._latest  # `double *u, *v`: all declarators have the type written once
        self._latest = slot
        if slot is None:
            if not any(
                token.text == "auto" for token in self._words(extent.file) if extent.start <= token.start < name.start
            ):
                self._kept.setdefault(node, "its type is written in a macro")
            return node
        self._merge(("slot", slot.extent), node)
        self._members.setdefault(
            (name, kind), Member(cursor.spelling, function, kind, is_pointer(canonical), slot, name)
        )
        return node

    def _follows_a_comma(self, name: Extent) -> bool:
        """Whether a name is a further one of its declaration, of which libclang's extents begin with the name."""
        return self._sources[name.file].text[: name.start].rstrip("*& \t\r\n").endswith(",")

    def _node(self, name: Extent) -> object:
        return ("name", name.file, name.start)

    def _slot(self, extent: Extent, found: tuple[str, int], function: str, on_device: bool) -> TypeSlot | None:
        """Find where a floating-point type is written in a piece of text."""
        words = [token for token in self._words(extent.file) if extent.start <= token.start < extent.end]
        for index, token in enumerate(words):
            start, end = token.start, token.start + len(token.text)
            if token.text == "long" and index + 1 < len(words) and words[index + 1].text == "double":
                end = words[index + 1].start + len("double")
            elif token.text not in _SCALARS and not _VECTOR.fullmatch(token.text) and token.text not in self._types:
                continue
            place = Extent(
                extent.file, start, end, extent.line + self._sources[extent.file].text.count("\n", extent.start, start)
            )
            text = self._sources[extent.file].of(place)
            return self._slots.setdefault(place, TypeSlot(place, text, *found, function, on_device))
        return None

    def _words(self, file: Any) -> list[Any]:
        if file not in self._tokens:
            self._tokens[file] = [token for token in tokens(self._sources[file].text) if token.kind == "name"]
        return self._tokens[file]

    # -- statements and expressions ----------------------------------------------------------------------------------

    def _statement(self, cursor: Any, function: str, usr: str, on_device: bool, above: tuple[Any, ...]) -> None:
        kind = cursor.kind.name
        children = list(cursor.get_children())
        if kind == "VAR_DECL":
            self._variable(cursor, function, on_device)
            name = self._unit.name(cursor)
            if is_pointer(cursor.type.get_canonical()) and name is not None and children:
                self._merge(self._node(name), self._place(children[-1]))
        elif kind == "BINARY_OPERATOR" and operator(cursor) == "=" and is_pointer(children[0].type.get_canonical()):
            self._merge(self._place(children[0]), self._place(children[1]))
        elif kind == "COMPOUND_ASSIGNMENT_OPERATOR" and any(c.kind.name in _LOOPS for c in above):
            self._updated.add(self._place(children[0]))
        elif kind == "RETURN_STMT" and children and is_pointer(children[0].type.get_canonical()):
            self._merge((usr, "result"), self._place(children[0]))
        elif kind in (
            "CSTYLE_CAST_EXPR",
            "CXX_STATIC_CAST_EXPR",
            "CXX_FUNCTIONAL_CAST_EXPR",
            "CXX_REINTERPRET_CAST_EXPR",
        ):
            self._cast(cursor, children, function, on_device)
        elif kind == "CALL_EXPR":
            self._call(cursor, children, function, on_device, above)
        elif kind == "FLOATING_LITERAL" and on_device:
            self._literal(cursor, function, above)
        for child in children:
            self._statement(child, function, usr, on_device, (*above, cursor))

    def _cast(self, cursor: Any, children: list[Any], function: str, on_device: bool) -> object:
        canonical = cursor.type.get_canonical()
        found, extent = scalar_of(canonical), self._unit.extent(cursor)
        inner = self._unit.extent(children[-1]) if children else None
        if found is None or extent is None:
            return None
        end = inner.start if inner is not None and inner.start > extent.start else extent.end
        slot = self._slot(Extent(extent.file, extent.start, end, extent.line), found, function, on_device)
        if slot is None:
            return None
        node = self._node(slot.extent)
        self._merge(("slot", slot.extent), node)
        member = Member(slot.spelled, function, "cast", is_pointer(canonical), slot, slot.extent)
        self._members.setdefault((slot.extent, "cast"), member)
        if is_pointer(canonical):
            self._merge(node, self._place(children[-1]))
        return node

    def _call(self, cursor: Any, children: list[Any], function: str, on_device: bool, above: tuple[Any, ...]) -> None:
        called = cursor.referenced
        arguments = list(cursor.get_arguments())
        if len(children) > 1 and children[1].spelling == "__cudaPushCallConfiguration":
            arguments = children[2:]
        name = cursor.spelling
        if called is None:
            return
        if self._unit.extent(called) is not None:
            for index, (argument, parameter) in enumerate(zip(arguments, called.get_arguments(), strict=False)):
                if is_pointer(parameter.type.get_canonical()):
                    self._merge((called.get_usr(), index), self._place(argument))
        elif re.fullmatch(r"(cuda|hip)[A-Z]\w+", name):
            self._runtime(cursor, re.sub("^hip", "cuda", name), arguments)
        elif name in ("swap", "memcpy", "memmove"):
            self._merge(self._place(arguments[0]), self._place(arguments[1]))
        elif on_device and (math := math_function(name)) is not None:
            self._math(children[0], math, arguments, function, above, cursor)

    def _runtime(self, cursor: Any, name: str, arguments: list[Any]) -> None:
        extent = self._unit.extent(cursor)
        if extent is None:
            return
        places = [self._place(argument) for argument in arguments]
        self._copies[extent] = (name, places)
        to_device = {"cudaMemcpyDeviceToDevice"} & {c.spelling for argument in arguments for c in cursors(argument)}
        if to_device:
            self._merge(places[0], places[1])

    def _place(self, cursor: Any) -> object:
        """Return the node of the memory that an expression points at, refers to or is; None if it has none."""
        kind = cursor.kind.name
        children = list(cursor.get_children())
        if kind in _TRANSPARENT and children:
            return self._place(children[-1])
        if kind == "DECL_REF_EXPR" and cursor.referenced is not None:
            name = self._unit.name(cursor.referenced)
            return self._node(name) if name is not None and scalar_of(cursor.referenced.type.get_canonical()) else None
        if kind == "MEMBER_REF_EXPR" and cursor.referenced is not None:
            name = self._unit.name(cursor.referenced)
            if name is None:  # a component of double3 and its like
                return self._place(children[0]) if children else None
            return self._node(name) if scalar_of(cursor.referenced.type.get_canonical()) else None
        if kind in ("ARRAY_SUBSCRIPT_EXPR", "UNARY_OPERATOR"):
            return self._place(children[0])
        if kind == "BINARY_OPERATOR":
            sides = [child for child in children if is_pointer(child.type.get_canonical())]
            return self._place(sides[0]) if sides else None
        if kind == "CONDITIONAL_OPERATOR":
            self._merge(self._place(children[1]), self._place(children[2]))
            return self._place(children[1])
        if kind == "CSTYLE_CAST_EXPR" and children:
            if scalar_of(cursor.type.get_canonical()) is None:
                return self._place(children[-1])
            extent = self._unit.extent(cursor)
            return self._cast(cursor, children, "", False) if extent else None
        if kind == "CALL_EXPR" and cursor.referenced is not None:
            return (cursor.referenced.get_usr(), "result") if is_pointer(cursor.type.get_canonical()) else None
        return None

    def _values(self, cursor: Any) -> Iterator[object]:
        """Give the nodes of the values that enter an expression's arithmetic."""
        kind = cursor.kind.name
        children = list(cursor.get_children())
        if kind in ("DECL_REF_EXPR", "MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR"):
            place = self._place(cursor)
            if place is not None:
                yield place
        elif kind in ("CSTYLE_CAST_EXPR", "CXX_STATIC_CAST_EXPR", "CXX_FUNCTIONAL_CAST_EXPR"):
            if (place := self._cast(cursor, children, "", True)) is not None:
                yield place
        elif kind == "CALL_EXPR":
            called = cursor.referenced
            if called is not None and self._unit.extent(called) is not None:
                yield (called.get_usr(), "result")
            elif math_function(cursor.spelling):
                for argument in cursor.get_arguments():
                    yield from self._values(argument)
        elif kind == "CONDITIONAL_OPERATOR":
            for child in children[1:]:
                yield from self._values(child)
        elif kind == "BINARY_OPERATOR" and operator(cursor) in ("=", ","):
            yield from self._values(children[-1])
        else:
            for child in children:
                yield from self._values(child)

    def _meets(self, cursor: Any, above: tuple[Any, ...]) -> list[object]:
        """Return the nodes that an operand meets: of the nearest arithmetic with others, or what it is assigned to."""
        for parent in reversed(above):
            kind = parent.kind.name
            if kind == "VAR_DECL":
                name = self._unit.name(parent)
                return [self._node(name)] if name is not None else []
            if kind in ("CALL_EXPR",) and math_function(parent.spelling) is None:
                called = parent.referenced
                if called is not None:
                    for index, argument in enumerate(parent.get_arguments()):
                        if self._unit.extent(argument) == self._unit.extent(cursor):
                            return [(called.get_usr(), index)]
                return []
            if kind.endswith("_STMT"):
                return []
            values = list(dict.fromkeys(self._values(parent)))
            if kind in ("BINARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR") and operator(parent) not in (
                "+",
                "-",
                "*",
                "/",
            ):
                first = next(iter(parent.get_children()))
                values = list(self._values(first)) or values
            if values:
                return values
        return []

    def _literal(self, cursor: Any, function: str, above: tuple[Any, ...]) -> None:
        extent = self._unit.extent(cursor)
        if extent is None:
            return
        text = self._sources[extent.file].of(extent)
        scalar = cursor.type.get_canonical().spelling
        self._literals[extent] = (text, scalar, function, self._meets(cursor, above))

    def _math(
        self, callee: Any, name: str, arguments: list[Any], function: str, above: tuple[Any, ...], call: Any
    ) -> None:
        extent = self._unit.extent(callee)
        if extent is None:
            return
        met = [node for argument in arguments for node in self._values(argument)] or self._meets(call, above)
        self._calls[extent] = (name, self._sources[extent.file].of(extent), function, met)

    # -- the result --------------------------------------------------------------------------------------------------

    def result(self) -> TypeClasses:
        """Put the slots into classes and name these."""
        groups: dict[object, list[Member]] = {}
        for member in sorted(self._members.values(), key=lambda m: m.extent):
            groups.setdefault(self._root(("slot", member.slot.extent)), []).append(member)
        kept: dict[object, str] = {}
        for node, reason in self._kept.items():
            kept.setdefault(self._root(node), reason)
        updated = {self._root(node) for node in self._updated}
        taken = [
            (root, members) for root, members in groups.items() if any(member.slot.is_device for member in members)
        ]
        names = _names([members for _, members in taken])
        by_root = {root: name for (root, _), name in zip(taken, names, strict=True)}
        classes = tuple(
            TypeClass(
                name=name,
                scalar=members[0].slot.scalar,
                slots=tuple(sorted({member.slot for member in members}, key=lambda slot: slot.extent)),
                members=tuple(members),
                role=_role(members, root in updated),
                kernels=self._kernels(members),
                kept=kept.get(root, ""),
            )
            for (root, members), name in zip(taken, names, strict=True)
        )
        return TypeClasses(
            classes,
            tuple(
                Literal(extent, text, scalar, function, self._named(met, by_root))
                for extent, (text, scalar, function, met) in sorted(self._literals.items())
            ),
            tuple(
                MathCall(extent, name, text, function, self._named(met, by_root))
                for extent, (name, text, function, met) in sorted(self._calls.items())
            ),
            tuple(
                Copy(extent, name, found)
                for extent, (name, places) in sorted(self._copies.items())
                if any(found := tuple(by_root.get(self._root(place), "") for place in places))
            ),
        )

    def _named(self, nodes: Iterable[object], names: dict[object, str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(names[root] for node in nodes if (root := self._root(node)) in names))

    def _kernels(self, members: list[Member]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for member in members:
            for user, labels in self._users.items():
                if member.slot.extent in user:
                    found.update(dict.fromkeys(labels))
        return tuple(kernel.label for kernel in self._program.kernels if kernel.label in found)


_LOOPS: Final = ("FOR_STMT", "WHILE_STMT", "DO_STMT")


def operator(cursor: Any) -> str:
    """Return the sign of a binary operator: what is written between its operands."""
    children = list(cursor.get_children())
    if len(children) != 2:
        return ""
    left, right = children[0].extent.end.offset, children[1].extent.start.offset
    for token in cursor.get_tokens():
        if left <= token.extent.start.offset < right and token.kind.name == "PUNCTUATION":
            return str(token.spelling)
    return ""


def math_function(name: str) -> str | None:
    """Return the mathematical function of a name (``expf``, ``__expf``); None if it is none."""
    if intrinsic := _INTRINSIC.fullmatch(name):
        return intrinsic[1]
    if name in MATH:
        return name
    return name[:-1] if name.endswith("f") and name[:-1] in MATH else None


_ROLES: Final = {"result": "result", "constant": "constant", "field": "local"}


def _role(members: list[Member], is_updated: bool) -> str:
    kinds = {member.kind for member in members}
    if any(m.is_pointer and m.kind in ("parameter", "device") for m in members) and "shared" not in kinds:
        return "buffer"
    for kind, role in (("shared", "shared"), ("constant", "constant"), ("parameter", "argument"), ("result", "result")):
        if kind in kinds:
            return role
    return "accumulator" if is_updated else "local"


def _names(groups: list[list[Member]]) -> list[str]:
    """Give each class a name: of the first member that tells most, with its function where another class has it too."""
    order = ("device", "constant", "parameter", "shared", "field", "local", "result", "host", "cast", "size")
    best = [min(members, key=lambda m: (order.index(m.kind), m.extent)) for members in groups]
    plain = [re.sub(r"\W+", "_", member.name) for member in best]
    names: list[str] = []
    for member, name in zip(best, plain, strict=True):
        candidate = name if plain.count(name) == 1 and member.kind != "cast" else f"{member.function}_{name}".strip("_")
        number = 2
        unique = candidate
        while unique in names:
            unique, number = f"{candidate}_{number}", number + 1
        names.append(unique)
    return names
