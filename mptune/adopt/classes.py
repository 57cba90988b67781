"""The type classes of a program: floating-point types that must change together.

A place in the text where a floating-point type is written is a type slot; slots that must have one type are one class.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mptune.adopt.parsing import Extent

#: The types offered for one that is written in the program, the program's own first.
OFFERED: Final = {
    "double": ("fp64", "fp32", "fp16", "bf16"),
    "float": ("fp32", "fp16", "bf16"),
}


class Union:
    """Disjoint sets of nodes, joined step by step."""

    def __init__(self) -> None:
        self._parent: dict[Hashable, Hashable] = {}

    def root(self, node: Hashable) -> Hashable:
        """Return the node that stands for all nodes joined with one."""
        while node in self._parent:
            node = self._parent[node]
        return node

    def join(self, *nodes: Hashable) -> None:
        """Join nodes, with the root of the first as the root of all; None is no node."""
        first, *others = [self.root(node) for node in nodes if node is not None] or [None]
        self._parent.update((other, first) for other in others if other != first)


@dataclass(frozen=True, slots=True)
class TypeSlot:
    """A place in the text where a floating-point type is written.

    All declarators after it share it in code of the device. In host code each has a slot of its own at the same place,
    so that ``double *a, *b;`` ties nothing together: if their classes get different types, it must be split.

    Attributes:
        extent: the tokens of the type alone (``double``, ``Real``, ``double3``), without ``const``, ``*`` and ``&``.
        spelled: the text there.
        scalar: the type of its numbers: "double", "float", "long double", "__half" or "__nv_bfloat16".
        components: how many numbers: 1, or 2 to 4 for ``double2`` to ``double4``.
        declarator: the variable, if there are several in host code; "" otherwise.
        function: the kernel (its label), device or host function it is in; "" outside functions.
        is_device: whether it is in code of the device: a kernel, a device function, or a declaration that these use.
        call: the call for which a function of the host is read, with the calls around it, outermost first. The function
            has the slot once for each call, and each may be in another class.
    """

    extent: Extent
    spelled: str
    scalar: str
    components: int
    declarator: str
    function: str
    is_device: bool
    call: tuple[Extent, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """A variable, field, result or cast with the type of a class.

    Attributes:
        name: of the variable, parameter, field or function; of a cast the type it casts to.
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
        name: unique in the program, and valid in C++ and Python (``u``; ``solve_r`` where there are several ``r``).
        scalar: the type of its numbers in the program.
        slots: in the order of the source.
        members: in the order of the source.
        role: "buffer" (device memory), "shared", "constant", "accumulator" (a local that a loop updates), "local",
            "argument" (a number that a kernel or function is given by value), "result" (of a device function).
        kernels: the labels of the kernels whose code has a slot of it.
        kept: why it must keep its type; "" if it may change.
        types: the precisions that it may have, its own first.
    """

    name: str
    scalar: str
    slots: tuple[TypeSlot, ...]
    members: tuple[Member, ...]
    role: str
    kernels: tuple[str, ...]
    kept: str
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Literal:
    """A floating-point literal in code of the device.

    Attributes:
        extent: the literal, also in the body of a macro that computes with its arguments. A macro that is a number
            (``M_PI``, ``#define HALF (1.0 / 2)``) is one literal where it is used, as is a limit of a type
            (``std::numeric_limits<double>::max()``).
        text: as written (``0.5f``), or the macro's name.
        scalar: its type in the program.
        function: the kernel (its label) or device function it is in.
        meets: names of the classes in its arithmetic; if there are none, of the class it is assigned to.
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
            CUDA's ``min`` of floating-point numbers, which differs from that of C++, is ``fmin``.
        text: as written.
        function: the kernel (its label) or device function it is in.
        meets: names of the classes of its arguments; if there are none, of the class its result is assigned to.
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
    """A place where a number with a class is read.

    Attributes:
        extent: the variable, element or field (``u[i + 1]``).
        type_class: the name of its class.
        function: the kernel (its label), device or host function it is in.
        is_device: whether that is code of the device.
        is_stored: whether it is assigned, returned, cast or initialises a variable as it is, which converts it.
    """

    extent: Extent
    type_class: str
    function: str
    is_device: bool
    is_stored: bool


@dataclass(frozen=True, slots=True)
class RawUse:
    """A place where the host uses more of a class's memory than its numbers, and what it uses, in words."""

    extent: Extent
    type_class: str
    why: str


@dataclass(frozen=True, slots=True)
class Braced:
    """A number, no literal, that initialises something in braces: a wider type of it needs a cast.

    Attributes:
        extent: the expression.
        type_class: the name of the class of the initialised variable.
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
        classes: in the order of the source.
        literals: in code of the device.
        calls: of mathematical functions, in code of the device.
        choices: whose sides may get different types, in code of the device.
        copies: calls of the runtime that are given pointers to the device.
        reads: of single numbers that have a class, in all code.
        braced: numbers in braces that initialise something with a class, in all code.
        raw: where the host uses bytes or addresses of memory with a class.
    """

    classes: tuple[TypeClass, ...]
    literals: tuple[Literal, ...]
    calls: tuple[MathCall, ...]
    choices: tuple[Choice, ...]
    copies: tuple[Copy, ...]
    reads: tuple[Read, ...]
    braced: tuple[Braced, ...] = ()
    raw: tuple[RawUse, ...] = ()

    def __getitem__(self, name: str) -> TypeClass:
        for found in self.classes:
            if found.name == name:
                return found
        raise KeyError(name)


#: clang's name of a struct without a name.
_NAMELESS: Final = re.compile(r" at [^()]*?([^/()]+:\d+):\d+\)")
_TELLING: Final = ("device", "constant", "parameter", "shared", "field", "local", "result", "host", "cast", "size")


def told(members: Iterable[Member]) -> list[str]:
    """Return the members of a class, each once, as the program calls them; nameless ones by their place."""
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


def mixed(members: Sequence[Member]) -> str:
    """Return why a class cannot change whose members have different types already; "" for any other."""
    scalars = sorted({member.slot.scalar for member in members})
    return f"the same memory is {' and '.join(scalars)}" if len(scalars) > 1 else ""


def role_of(members: Sequence[Member], is_updated: bool) -> str:
    """Return the role of a class by its members and whether a loop updates one."""
    kinds = {member.kind for member in members}
    if "shared" in kinds:
        return "shared"
    if any(m.is_pointer and m.kind in ("parameter", "device", "field") for m in members):
        return "local" if kinds.isdisjoint(("device", "field", "host")) else "buffer"
    roles = {"constant": "constant", "device": "constant", "parameter": "argument", "result": "result"}
    return next((role for kind, role in roles.items() if kind in kinds), "accumulator" if is_updated else "local")


def names_of(groups: Sequence[Sequence[Member]]) -> Iterator[str]:
    """Yield a name for each class: of its most telling member, with its function where another class has it too."""
    best = [min(members, key=lambda member: (_TELLING.index(member.kind), member.extent)) for members in groups]
    plain = [_plain_name(member) for member in best]
    taken: set[str] = set()
    for member, name in zip(best, plain, strict=True):
        is_alone = plain.count(name) == 1 and member.kind != "cast" and name
        function = re.sub(r"\W+", "_", member.function).strip("_")
        candidate = unique = name if is_alone else f"{function}_{name or 'unnamed'}".strip("_")
        number = 2
        while unique in taken:
            unique, number = f"{candidate}_{number}", number + 1
        taken.add(unique)
        yield unique


def _plain_name(member: Member) -> str:
    name = re.sub(r"\W+", "", member.name)  # operator()
    return "cast" if member.kind == "cast" else name if name == member.name else f"{name}_result"
