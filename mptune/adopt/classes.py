"""The type classes of a program: which of its floating-point types must change together.

A place in the text where a floating-point type is written is a type slot; slots that must have one type are one class.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mptune.adopt.parsing import Extent


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


#: What clang calls a struct without a name.
_NAMELESS: Final = re.compile(r" at [^()]*?([^/()]+:\d+):\d+\)")
_TELLING: Final = ("device", "constant", "parameter", "shared", "field", "local", "result", "host", "cast", "size")


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


def _union(classes: Sequence[TypeClass]) -> TypeClass:
    """Return the class of memory that these share."""
    members = sorted({member for each in classes for member in each.members}, key=lambda member: member.extent)
    return dataclasses.replace(
        classes[0],
        slots=tuple(sorted({slot for each in classes for slot in each.slots}, key=lambda slot: slot.extent)),
        members=tuple(members),
        role="buffer",
        kernels=tuple(dict.fromkeys(label for each in classes for label in each.kernels)),
        kept=next((each.kept for each in classes if each.kept), mixed(members)),
    )


def mixed(members: Sequence[Member]) -> str:
    """Say why a class cannot change whose members have different types already; "" for any other."""
    scalars = sorted({member.slot.scalar for member in members})
    return f"the same memory is {' and '.join(scalars)}" if len(scalars) > 1 else ""


def role_of(members: Sequence[Member], is_updated: bool) -> str:
    """Return the role of a class by its members and whether a loop updates one."""
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


def _best(members: Sequence[Member]) -> Member:
    """Return the member of a class whose name tells most."""
    return min(members, key=lambda member: (_TELLING.index(member.kind), member.extent))


def _plain_name(members: Sequence[Member]) -> str:
    best = _best(members)
    name = re.sub(r"\W+", "", best.name)  # operator()
    return "cast" if best.kind == "cast" else best.name if name == best.name else f"{name}_result"


def names_of(groups: list[list[Member]]) -> list[str]:
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
