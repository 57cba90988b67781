"""Finds the type classes of a program: the floating-point types in its text, and what merges them.

Slots belong to one class if their declarations share memory: through pointers, references, arrays, swaps, struct
fields, copies on the device. Values convert by themselves, so arithmetic never puts two slots into one class. A host
array that is only copied to or from the device stays out, since a copy can convert.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from mptune.adopt.classes import (
    OFFERED,
    Braced,
    Choice,
    Copy,
    Literal,
    MathCall,
    Member,
    RawUse,
    Read,
    TypeClass,
    TypeClasses,
    TypeSlot,
    Union,
    mixed,
    names_of,
    role_of,
)
from mptune.adopt.containers import container_of, held_by
from mptune.adopt.host_uses import LITERAL, RUNTIME, HostUses
from mptune.adopt.number_types import (
    bare_name,
    is_pointer,
    math_function,
    pointee,
    scalar_named,
    scalar_of,
)
from mptune.adopt.parsing import (
    ANY_CAST,
    TRANSPARENT,
    Extent,
    Function,
    Node,
    TranslationUnit,
    bare,
    library_of,
    specialisation_of,
)
from mptune.adopt.reading import Memory, Program, arguments_by_address, launched_by_address
from mptune.adopt.source_text import SourceText
from mptune.adopt.template import fields_of
from mptune.cpp.tokens import Token

_VARIABLES: Final = ("DECL_REF_EXPR", "MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR")
_STRUCTS: Final = ("STRUCT_DECL", "CLASS_DECL", "UNION_DECL")
_LOOPS: Final = ("FOR_STMT", "WHILE_STMT", "DO_STMT")
_ALLOCATES: Final = ("malloc", "calloc", "aligned_alloc", "realloc")
_ASSIGNS: Final = ("=", "+=", "-=", "*=", "/=")
_NUMBER: Final = re.compile(r"\.?\d.*")
#: Functions that read the bits of a number.
_BITS: Final = re.compile(r"__(double|float)(_as_|2hiint|2loint)\w*")
#: Warp functions that return a value they are given, behind the mask if they have one.
EXCHANGED: Final = re.compile(r"__shfl(?:_\w+?)?(_sync)?|__reduce_\w+(_sync)")
_Noted = TypeVar("_Noted", Literal, MathCall, Choice)
#: A call of a function of the host, after the call of the function that it is in.
_Call = tuple[Extent, ...]
#: Further calls, and calls within so many, share the nodes of a function.
_MOST_CALLS: Final = 400
_MOST_CALLS_DEEP: Final = 4


_Groups = Callable[[TypeClasses], Iterable[Iterable[str]]]


def type_classes(
    program: Program,
    sharing: _Groups | None = None,
    tied: _Groups | None = None,
    kept: Callable[[TypeClasses], Mapping[str, str]] | None = None,
) -> TypeClasses:
    """Find the type classes of a program.

    Args:
        program: the program.
        sharing: gives the names of the classes that a run has in the same memory, for each memory: they become one.
        tied: gives the names of the classes that must have the same type for another reason: they become one.
        kept: gives the names of the classes that keep their type, each with why.
    """
    finder = _Finder(program)
    finder.read()
    found = finder.result()
    if kept is not None and (reasons := kept(found)):
        finder.keep((found[name].slots[0], why) for name, why in reasons.items())
        found = finder.result()
    for joins in (sharing, tied):
        groups = [list(group) for group in joins(found)] if joins is not None else []
        if any(len(group) > 1 for group in groups):
            for group in groups:
                finder.share((found[name].slots[0] for name in group), in_memory=joins is sharing)
            found = finder.result()
    return found


class _Finder:
    """Gathers slots and what merges them, over the files of a program.

    A node stands for something with a type: a slot, a declaration (by clang's name for it), a parameter of a function
    by its position, or a function's result. Nodes that must have the same type are joined. A function of the host is
    read once for each call, with nodes of its own, so that a function that is called for several buffers does not join
    their classes.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._text = SourceText(program.files)
        self._host_uses = HostUses(program, self._text, self._place)
        self._union = Union()
        self._members: dict[tuple[object, ...], Member] = {}
        self._slots: dict[tuple[object, ...], TypeSlot] = {}
        self._kept: list[tuple[Hashable, str]] = []
        #: Numbers that a loop changes again and again, and fields of structs that are in arrays.
        self._updated: list[Hashable] = []
        self._in_memory: list[Hashable] = []
        #: Literals, functions and choices, with the nodes that each meets.
        self._noted: dict[tuple[type, Extent, str], tuple[Literal | MathCall | Choice, list[Hashable]]] = {}
        self._copies: dict[tuple[Extent, _Call], tuple[str, list[Hashable], list[Hashable], Sequence[Node]]] = {}
        self._reads: dict[tuple[Extent, str, _Call], tuple[Hashable, bool, bool]] = {}
        self._braced: dict[tuple[Extent, _Call], tuple[Hashable, list[Hashable], bool]] = {}
        #: The values that variables declared ``auto`` follow; the slots of typedefs of pointers and arrays.
        self._follows: dict[Hashable, list[Hashable]] = {}
        self._memory_types: dict[str, TypeSlot] = {}
        #: The types for which functions use libraries for kernels: the template's name, the function, the type.
        self._of_libraries: set[tuple[str, str, str, str]] = set()
        #: The functions of the host that are given or return memory, with the calls that they are still to be read for.
        functions = [function for unit in program.units for function in unit.functions]
        self._by_call = {f.usr: f for f in functions if _is_given_memory(f) and not program.originals}
        self._chosen = set(_chosen_by(functions))
        self._calls: dict[tuple[str, _Call], bool] = {}
        self._prototypes: dict[str, list[Node]] = {}
        self._call_read: _Call = ()
        self._function: Function | None = None
        self._owners_at = [
            (place, kernel.label, owner)
            for kernel in program.kernels
            for place, owner in (
                (kernel.extent, kernel.label),
                *((need.extent, need.label if need.kind == "function" else "") for need in kernel.needs),
            )
        ]
        self._structs_in_memory()

    def share(self, slots: Iterable[TypeSlot], *, in_memory: bool) -> None:
        """Join slots that must have one type, such as those that a run has in the same memory."""
        nodes = [_node(slot) for slot in slots]
        self._union.join(*nodes)
        self._in_memory += nodes[: in_memory and len(nodes) > 1]

    def keep(self, slots: Iterable[tuple[TypeSlot, str]]) -> None:
        """Let slots keep their type, each for a reason."""
        self._kept += ((_node(slot), why) for slot, why in slots)

    def _structs_in_memory(self) -> None:
        """Let the fields of structs in memory have one type, if nothing else is in them; else they keep theirs."""
        parameters = (outer for kernel in self._program.kernels for outer in kernel.parameters)
        memories = [inner.memory for outer in parameters for inner, _ in fields_of(outer)]
        memories += [need.memory for kernel in self._program.kernels for need in kernel.needs]
        found: dict[str, Memory] = {memory.name: memory for memory in memories if memory is not None}
        for memory in found.values():
            why = ""
            if not memory.fields or memory.is_mixed:
                why = f"an array of {memory.name} has other things in it, too"
            elif memory.has_gaps_in_others:
                aligned = f"aligned to {memory.alignment} bytes"
                why = f"an array of {memory.name}, {aligned}, would have gaps between shorter numbers"
            self._in_memory += memory.declared
            if why:
                self._kept += ((field, why) for field in memory.declared)
            else:
                self._union.join(*memory.declared)

    # -- declarations --------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read the files of the program with the headers that they include."""
        self._needed = [need.extent for kernel in self._program.kernels for need in kernel.needs]
        seen: set[str] = set()
        for unit in self._program.units:
            self._open(unit)
            for node, start in self._with_starts(unit.top):
                self._declaration(node, start)
            for function in unit.functions:
                if function.usr not in seen and function.usr not in self._by_call:
                    self._read_function(function)
                seen.add(function.usr)
        while waiting := self._unread():
            for unit in self._program.units:
                own = [(function, call) for function in unit.functions for usr, call in waiting if usr == function.usr]
                if own:
                    self._open(unit)
                for function, call in own:
                    if not self._calls[function.usr, call]:
                        self._calls[function.usr, call] = True
                        self._read_function(function, call)

    def _unread(self) -> list[tuple[str, _Call]]:
        """Return the functions of the host that are still to be read, with the calls; at last those never called."""
        found = [each for each, is_read in self._calls.items() if not is_read]
        if not found:
            called = {usr for usr, _ in self._calls}
            found = [(usr, ()) for usr in self._by_call if usr not in called]
            self._calls |= dict.fromkeys(found, False)
        return found

    def _open(self, unit: TranslationUnit) -> None:
        self._unit = unit
        self._text.read(unit)

    def _with_starts(self, nodes: Iterable[Node]) -> Iterator[tuple[Node, int | None]]:
        """Yield nodes, each with the place where its declaration begins: that of its first declarator."""
        start, kind = None, ""
        for node in nodes:
            if node.extent is not None:
                name = self._unit.name(node.cursor)
                if start is None or kind != node.kind or name is None or name.start > node.extent.start:
                    start = node.extent.start
            kind = node.kind
            yield node, start if node.extent is not None else None

    def _declaration(self, node: Node, start: int | None) -> None:
        if node.kind in ("TYPEDEF_DECL", "TYPE_ALIAS_DECL"):
            self._typedef(node)
            for child in node.children:
                self._statement(child, ())
        elif node.kind in _STRUCTS:
            self._fields(node)
        elif node.kind == "CLASS_TEMPLATE":
            self._fields_of_template(node)
        elif node.kind == "VAR_DECL":
            self._variable(node, start)
            for child in node.children:
                self._statement(child, ())
        elif node.kind == "FUNCTION_DECL" and not node.cursor.is_definition():
            self._prototypes.setdefault(node.usr, []).append(node)
            if node.usr not in self._by_call:
                attributes = {child.kind for child in node.children}
                self._signature(node, node.spelling, bool(attributes & {"CUDAGLOBAL_ATTR", "CUDADEVICE_ATTR"}))

    def _typedef(self, node: Node) -> None:
        """Note a typedef. Its uses are replaced by the type it stands for, except pointers and arrays."""
        underlying = node.cursor.underlying_typedef_type.get_canonical()
        found = scalar_of(underlying)
        if found is not None and not is_pointer(underlying):
            self._text.name(node.spelling, found)
        elif found is not None and node.extent is not None:
            slot = self._slot(node.extent, found, True)
            if slot is not None:
                self._memory_types[node.spelling] = slot
        self._fields(node)

    def _is_needed(self, node: Node) -> bool:
        return node.extent is not None and any(node.extent in need for need in self._needed)

    def _fields(self, node: Node) -> None:
        """Read the fields of a struct, and of structs within."""
        if node.kind == "UNION_DECL":
            self._host_uses.note(node, node, node.canonical)
        for child, start in self._with_starts(node.children):
            if child.kind == "FIELD_DECL":
                place = self._declare(child, "field", node.spelling, self._is_needed(child), start)
                if node.kind == "UNION_DECL":
                    self._keep(place, "it is in a union")
            elif child.kind in _STRUCTS:
                self._fields(child)

    def _fields_of_template(self, node: Node) -> None:
        """Read the fields of a class template; one of several types has to name its parameter, and keeps it."""
        found = self._unit.specialisations.get(node.usr, ())
        if len(found) > 1:
            why = f"{node.spelling} is a template of several types ({', '.join(other.name for other in found)})"
            self._kept += ((field.get_usr(), why) for each in found for field in each.fields)
            return
        for each in found:
            with self._text.bound(each.arguments):
                for field in (Node(self._unit, cursor) for cursor in each.fields):
                    start = field.extent.start if field.extent is not None else None
                    self._declare(field, "field", each.name, self._is_needed(field), start)

    def _signature(self, node: Node, name: str, on_device: bool) -> None:
        start = node.extent.start if node.extent is not None else None
        self._union.join((node.usr, "result", *self._call_read), self._declare(node, "result", name, on_device, start))
        parameters = [child for child in node.children if child.kind == "PARM_DECL"]
        for index, parameter in enumerate(parameters):
            start = parameter.extent.start if parameter.extent is not None else None
            kind = "parameter" if on_device else "host"
            place = self._declare(parameter, kind, name, on_device, start)
            self._union.join((node.usr, index, *self._call_read), place)
            if (node.usr, index) in self._chosen:
                self._keep(place, f"chooses between functions named {node.spelling}")

    def _read_function(self, function: Function, call: _Call = ()) -> None:
        """Read a function; one of the host for a call of it."""
        self._function, self._call_read = function, call
        scope = function.node.cursor.semantic_parent
        owner = specialisation_of(scope.type.get_canonical()) if scope is not None else None
        is_one = owner is not None and len(self._unit.specialisations.get(owner.template, ())) == 1
        of_class = owner.arguments if owner is not None and is_one else ()
        with self._text.bound((*of_class, *function.arguments)):
            prototypes = self._prototypes.get(function.usr, ()) if function.usr in self._by_call else ()
            for node in (function.node, *prototypes):
                self._signature(node, function.label, function.is_device)
            for member, value in itertools.pairwise(function.node.children):
                if member.kind == "MEMBER_REF" and member.referenced is not None:  # initialised by a constructor
                    self._fill(member.referenced.get_usr(), value)
            self._statement(function.block, ())
        self._function, self._call_read = None, ()

    def _own(self, declared: Any) -> Hashable:
        """Return the node of a declaration: of a local of a function, as the call that is read has it."""
        usr: str = declared.get_usr()
        if not self._call_read or self._function is None or declared.storage_class.name == "STATIC":
            return usr
        parent = declared.semantic_parent
        return (usr, *self._call_read) if parent is not None and parent.get_usr() == self._function.usr else usr

    def _called(self, called: Any, extent: Extent | None, part: str | int) -> Hashable:
        """Return the node of the result or of a parameter of a function, as a call of it has that."""
        usr: str = called.get_usr()
        if usr not in self._by_call:
            return (usr, part)
        call = (*self._call_read, extent) if extent is not None else ()
        is_one_more = (usr, call) not in self._calls and len(self._calls) >= _MOST_CALLS
        call = () if is_one_more or len(call) > _MOST_CALLS_DEEP else call
        self._calls.setdefault((usr, call), False)
        return (usr, part, *call)

    @property
    def _on_device(self) -> bool:
        return self._function is not None and self._function.is_device

    @property
    def _label(self) -> str:
        return self._function.label if self._function is not None else ""

    def _variable(self, node: Node, start: int | None) -> Hashable:
        attributes = {child.kind for child in node.children}
        on_device = self._on_device
        if "CUDASHARED_ATTR" in attributes:
            kind = "shared"
        elif self._function is not None:
            kind = "local" if on_device else "host"
        else:
            on_device = self._is_needed(node)
            kind = "host" if not on_device else "constant" if "CUDADEVICE_ATTR" not in attributes else "device"
        return self._declare(node, kind, self._label, on_device, start)

    def _declare(self, node: Node, kind: str, function: str, on_device: bool, start: int | None) -> Hashable:
        """Note a declaration; return its node, None if it has no floating-point type."""
        canonical = node.cursor.result_type.get_canonical() if kind == "result" else node.canonical
        found, name = scalar_of(canonical), node.unit.name(node.cursor)
        if found is None or start is None or node.extent is None or name is None:
            return None
        if not node.spelling:  # a parameter
            name = dataclasses.replace(node.extent, start=node.extent.end)
        own = (node.usr, " result", *self._call_read) if kind == "result" else self._own(node.cursor)
        before = dataclasses.replace(node.extent, file=name.file, start=start, end=name.start)
        words = self._text.within(name.file, start, name.start)
        auto = next((token for token in words if token.text == "auto"), None)
        slot = self._slot(
            before, found, on_device, node.spelling if kind == "host" and self._is_list(node, name) else ""
        )
        slot = slot or next((self._memory_types[t.text] for t in words if t.text in self._memory_types), None)
        if slot is None and auto is not None and self._is_new(node) and self._on_device and not is_pointer(canonical):
            slot = self._slot_at(name.file, auto.start, auto.start + len("auto"), found, True)
        if slot is not None:
            self._union.join(own, self._member(slot, node.spelling, kind, is_pointer(canonical), name, function))
        elif auto is not None or (kind == "result" and not words):  # (a lambda writes no result)
            self._follows.setdefault(own, [])
        else:
            self._keep(own, "its type is not written where it could be changed")
        return own

    def _member(
        self, slot: TypeSlot, name: str, kind: str, is_memory: bool, extent: Extent, function: str | None = None
    ) -> Hashable:
        function = self._label if function is None else function
        member = Member(name, function, kind, is_memory, slot, extent)
        self._members.setdefault((extent, kind, slot.scalar, function, slot.call), member)
        return _node(slot)

    def _keep(self, place: Hashable, why: str) -> None:
        if place is not None:
            self._kept.append((place, why))

    def _is_new(self, node: Node) -> bool:
        """Whether a variable declared ``auto`` has the type of no other: ``auto sum = 0.0``."""
        return bool(node.children) and not any(map(self._union.root, self._values(node.children[-1])))

    def _is_list(self, node: Node, name: Extent) -> bool:
        """Whether a variable is one of several of a declaration."""
        assert node.extent is not None
        after = self._text.within(name.file, node.extent.end, node.extent.end + 200)
        return node.kind == "VAR_DECL" and (node.extent.start == name.start or bool(after and after[0].text == ","))

    def _slot(self, extent: Extent, found: tuple[str, int], on_device: bool, declarator: str = "") -> TypeSlot | None:
        """Return the slot of the first floating-point type in a piece of text."""
        words = self._text.within(extent.file, extent.start, extent.end)
        for token, following in itertools.zip_longest(words, words[1:]):
            end = token.start + len(token.text)
            if token.text == "long" and following is not None and following.text == "double":
                end = following.start + len("double")
            elif self._text.spelled(token.text) is None:
                continue
            return self._slot_at(extent.file, token.start, end, found, on_device, declarator)
        return None

    def _slot_at(
        self, file: Path, start: int, end: int, found: tuple[str, int], on_device: bool, declarator: str = ""
    ) -> TypeSlot:
        place = self._text.place(file, start, end)
        text = self._text.sources[file].of(place)
        slot = TypeSlot(place, text, *found, declarator, self._label, on_device, self._call_read)
        return self._slots.setdefault((place, found[0], declarator, self._label, self._call_read), slot)

    # -- statements and expressions ------------------------------------------------------------------------------------

    def _statement(self, node: Node, above: tuple[Node, ...]) -> None:
        kind, children = node.kind, node.children
        if self._function is not None and not self._on_device:
            self._host_uses.read(node, above, self._unit, self._function)
        if kind == "DECL_STMT":
            for child, start in self._with_starts(children):
                if child.kind == "VAR_DECL":
                    self._local(child, start)
                elif child.kind in ("TYPEDEF_DECL", "TYPE_ALIAS_DECL"):
                    self._typedef(child)
                elif child.kind == "UNION_DECL":
                    self._fields(child)
        elif kind == "CXX_FOR_RANGE_STMT":
            self._for_range(children)
        elif kind == "INIT_LIST_EXPR":
            self._fill(self._initialised(above), node)
        elif kind == "BINARY_OPERATOR" and node.operator == "=":
            self._assign(node, above)
        elif kind == "COMPOUND_ASSIGNMENT_OPERATOR":
            self._update(node, self._place(children[0]), above)
        elif kind == "RETURN_STMT" and children and self._function is not None:
            if is_pointer(self._function.node.cursor.result_type.get_canonical()):
                self._union.join((self._function.usr, "result", *self._call_read), self._place(children[0]))
        elif kind in ANY_CAST:
            self._cast(node)
        elif kind == "CALL_EXPR":
            self._call(node, above)
        elif kind == "FLOATING_LITERAL" and self._on_device:
            self._literal(node, above)
        elif kind == "CONDITIONAL_OPERATOR" and self._on_device:
            self._choice(node)
        elif kind == "UNEXPOSED_EXPR" and self._function is not None:
            self._read(node, above)
        elif kind == "TEMPLATE_REF" and library_of(node.referenced):
            self._argument_of_library(node)
        for child in children:
            self._statement(child, (*above, node))

    def _argument_of_library(self, node: Node) -> None:
        """Note the type for which a template of a library for kernels is used: ``cub::BlockReduce<double, 256>``."""
        place = node.extent
        if place is None:
            return
        words = self._text.within(place.file, place.end, place.end + 200)
        depth = 0
        for at, word in enumerate(words):
            depth += (word.text == "<") - (word.text == ">")
            if at > 0 and (depth < 1 or (depth == 1 and word.text == ",")):
                found = next((kind for each in words[1:at] if (kind := self._text.spelled(each.text))), None)
                end = dataclasses.replace(place, start=place.end, end=word.start)
                slot = self._slot(end, found, True) if words[0].text == "<" and found is not None else None
                if slot is not None:
                    member = self._member(slot, node.spelling, "local", False, slot.extent)
                    of_library = ("library", node.spelling, self._label, slot.scalar)
                    self._of_libraries.add(of_library)
                    self._union.join(member, of_library)
                return

    def _call_of_library(self, node: Node) -> None:
        """Join what goes through a library for kernels with its type: arrays, results, and numbers in variables."""
        called = node.referenced
        named = [each for each in node.walk() if each.kind == "TEMPLATE_REF" and library_of(each.referenced)]
        for each in named:
            self._argument_of_library(each)
        owners = {called.semantic_parent.spelling, *(each.spelling for each in named)}
        for argument, parameter in zip(node.arguments, called.get_arguments(), strict=False):
            found, kind = scalar_of(argument.canonical), parameter.type.get_canonical()
            is_variable = bare(argument).kind == "DECL_REF_EXPR" and not is_pointer(argument.canonical)
            if found is not None and (is_variable or kind.kind.name == "LVALUEREFERENCE"):
                places = [("library", owner, label, found[0]) for owner in owners for label in (self._label, "")]
                self._union.join(self._place(argument), *(each for each in places if each in self._of_libraries))

    def _read(self, node: Node, above: tuple[Node, ...]) -> None:
        """Note the conversion of a variable to its value."""
        inner = node.children[0] if len(node.children) == 1 else None
        while inner is not None and inner.kind == "PAREN_EXPR" and inner.children:
            inner = inner.children[0]
        is_element = inner is not None and (inner.operator == "*" or container_of(inner) is not None)
        if inner is None or inner.extent is None or (inner.kind not in _VARIABLES and not is_element):
            return
        found = scalar_of(node.canonical)
        if found is None or is_pointer(node.canonical) or found[1] != 1 or found != scalar_of(inner.canonical):
            return
        parent = _parent(above)
        is_stored = parent is not None and (
            (parent.kind == "VAR_DECL" and self._own(parent.cursor) not in self._follows)
            or parent.kind in (*ANY_CAST, "INIT_LIST_EXPR")
            or (parent.kind == "RETURN_STMT" and not any(each.kind == "LAMBDA_EXPR" for each in above))
            or parent.operator == "="
            or (not self._on_device and _is_converted(parent, node))
        )
        self._reads.setdefault(
            (inner.extent, self._label, self._call_read), (self._place(inner), self._on_device, is_stored)
        )

    def _local(self, node: Node, start: int | None) -> None:
        own = self._variable(node, start)
        if own is None or not node.children:
            return
        value = node.children[-1]
        if own in self._follows:
            self._follows[own] = [self._place(value)] if is_pointer(node.canonical) else list(self._values(value))
        if is_pointer(node.canonical):
            self._union.join(own, self._place(value))

    def _for_range(self, children: Sequence[Node]) -> None:
        """Read the variable of a loop over an array, or over numbers in braces."""
        at = next(index for index, child in enumerate(children) if child.kind == "VAR_DECL")
        variable, place = children[at], self._place(children[at + 1])
        own = self._variable(variable, variable.extent.start if variable.extent is not None else None)
        if own in self._follows:
            self._follows[own] = [place]
        if is_pointer(variable.canonical):
            self._union.join(own, place)

    def _initialised(self, above: tuple[Node, ...]) -> Hashable:
        """Return the node of the variable or result that braces initialise; None for any other, and within braces."""
        parent = _parent(above)
        if parent is not None and parent.kind == "RETURN_STMT" and self._function is not None:
            return (self._function.usr, "result", *self._call_read)
        return self._own(parent.cursor) if parent is not None and parent.kind == "VAR_DECL" else None

    def _fill(self, own: Hashable, value: Node) -> None:
        """Note an initial value: memory is shared, and numbers in braces may need a cast."""
        value = bare(value)
        kind = value.canonical
        if value.kind != "INIT_LIST_EXPR":
            if is_pointer(kind):
                self._union.join(own, self._place(value))
            return
        is_struct = kind.kind.name == "RECORD" and scalar_of(kind) is None
        fields: Iterator[Hashable]
        if is_struct:
            fields = (field.get_usr() if scalar_of(field.type.get_canonical()) else None for field in kind.get_fields())
        else:  # (pointers to void keep nothing together)
            fields = itertools.repeat(own if scalar_of(kind) is not None else None)
        for place, each in zip(fields, value.children, strict=False):
            named = each.children[0] if each.children and each.children[0].kind == "MEMBER_REF" else None
            if named is not None and named.referenced is not None:  # { .x = 1 }
                place, each = named.referenced.get_usr(), each.children[-1]
            self._fill(place, each)
            is_number = scalar_of(each.canonical) == ("double", 1) and not is_pointer(each.canonical)
            is_literal = all(inner.kind in LITERAL for inner in each.walk())
            if is_number and not is_literal and bare(each).kind != "INIT_LIST_EXPR" and each.extent is not None:
                self._braced.setdefault(
                    (each.extent, self._call_read), (place, list(self._values(each)), self._on_device)
                )

    def _assign(self, node: Node, above: tuple[Node, ...]) -> None:
        left, right = node.children
        place = self._place(left)
        if is_pointer(left.canonical):
            self._union.join(place, self._place(right))
        elif place is not None and place in self._values(right):
            self._update(node, place, above)

    def _update(self, node: Node, place: Hashable, above: tuple[Node, ...]) -> None:
        """Note that a loop changes a number again and again."""
        if not any(each.kind in _LOOPS for each in above):
            return
        self._updated.append(place)
        is_on_host = self._function is not None and not self._on_device
        if is_on_host and node.extent is not None and not _is_each_once(node.children[0], above):
            self._host_uses.note_sum(node.extent, place)

    def _cast(self, node: Node) -> Hashable:
        """Note a cast to a floating-point type; return its node, None for any other cast."""
        extent, canonical = node.extent, node.canonical
        found = scalar_of(canonical)
        inner = node.children[-1] if node.children else None
        if found is None and inner is not None and self._on_device and _reads_bits(canonical, inner):
            self._keep(self._place(inner), f"its bits are read as {node.cursor.type.spelling}")
        if found is None or extent is None:
            return None
        if (macro := self._text.macro_at(extent)) is not None and macro not in self._text.types:
            return self._cast_in_macro(extent, found)
        end = inner.extent.start if inner is not None and inner.extent is not None else extent.end
        slot = self._slot(dataclasses.replace(extent, end=max(end, extent.start + 1)), found, self._on_device)
        if slot is None and end <= extent.start:
            slot = self._slot(extent, found, self._on_device)  # its operand is in a macro
        if slot is None:
            return None
        own = self._member(slot, slot.spelled, "cast", is_pointer(canonical), slot.extent)
        if is_pointer(canonical) and inner is not None:
            self._union.join(own, self._place(inner))
            call = bare(inner)
            if call.kind == "CALL_EXPR" and call.spelling in _ALLOCATES:
                self._merge_sizes(call.arguments, own)
            if self._on_device and _is_other_memory(inner):
                self._keep(own, f"its memory is {bare_name(pointee(inner.canonical))} elsewhere")
        return own

    def _cast_in_macro(self, extent: Extent, found: tuple[str, int]) -> Hashable:
        """Note the casts in a macro's body; they share a class. A macro that is a number has none."""
        if self._text.in_macro(extent) is None:
            return None
        places = self._written(extent, lambda token: token.kind == "name" and self._text.spelled(token.text) == found)
        slots = [self._slot_at(place.file, place.start, place.end, found, self._on_device) for place, _ in places]
        nodes = [self._member(slot, slot.spelled, "cast", False, slot.extent) for slot in slots]
        self._union.join(*nodes)
        return nodes[-1] if nodes else None

    def _written(self, extent: Extent, is_wanted: Callable[[Token], bool]) -> list[tuple[Extent, str]]:
        """Return a place and its text; where a macro is used that is no number, the wanted tokens of its body."""
        parts = self._text.in_macro(extent)
        if parts is None:
            return [(extent, self._text.sources[extent.file].of(extent))]
        return [(self._text.extent_of(file, token), token.text) for file, token in parts if is_wanted(token)]

    def _call(self, node: Node, above: tuple[Node, ...]) -> None:
        called, name, arguments = node.referenced, node.spelling, node.arguments
        if called is None or not node.children:
            return
        if self._unit.extent(called) is not None:
            parameters = [parameter for parameter in called.get_arguments() if parameter is not None]
            for index, (argument, parameter) in enumerate(zip(arguments, parameters, strict=False)):
                kind = parameter.type.get_canonical()
                if is_pointer(kind):
                    place, given = self._place(argument), self._called(called, node.extent, index)
                    self._union.join(given, place)
                    kind = kind.get_pointee().get_canonical() if "REFERENCE" in kind.kind.name else kind
                    is_template = bool(self._program.originals) and called.get_num_template_arguments() > 0
                    is_unknown = place is None and held_by(kind) is not None
                    if (is_template or is_unknown) and not self._on_device and argument.extent is not None:
                        self._host_uses.note_place(argument.extent, given)
        elif library_of(called):
            self._call_of_library(node)
        elif name == "cudaLaunchKernel" and (kernel := launched_by_address(node)) is not None:
            for index, address in enumerate(arguments_by_address(node) or ()):
                self._union.join((kernel.get_usr(), index), self._place(address))
        elif runtime := RUNTIME.fullmatch(name):
            self._runtime(node, f"cuda{runtime[1]}", arguments)
        elif (
            name in ("swap", "operator=", "reset", "push_back", "emplace_back")
            and arguments
            and (name == "swap" or is_pointer(arguments[-1].canonical))
        ):
            other = arguments[0] if len(arguments) > 1 else next(iter(node.children[0].children), arguments[0])
            self._union.join(self._place(other), self._place(arguments[-1]))
        elif name in ("max", "min") and not self._on_device:
            for element in map(bare, arguments):
                place = self._place(element) if scalar_of(element.canonical) == ("double", 1) else None
                if place is not None and element.extent is not None and self._function is not None:
                    self._reads.setdefault((element.extent, self._label, self._call_read), (place, False, False))
        elif name in ("memcpy", "memmove", "memset") and len(arguments) == 3:
            self._bytes(name, arguments)
        elif not self._on_device:
            return
        elif _is_limit(node):
            self._literal(node, above)
        elif (math := math_function(name)) is not None:
            if any(scalar_of(argument.canonical) for argument in arguments) and not _rounds(node):
                self._math(node, math, above)
        elif _BITS.fullmatch(name) or name in ("printf", "atomicCAS"):
            for argument in arguments:
                self._keep(
                    self._place(bare(argument)), "it is printed" if name == "printf" else f"its bits are read by {name}"
                )

    def _bytes(self, name: str, arguments: Sequence[Node]) -> None:
        """Note a call that copies or clears bytes, as many as ``sizeof`` says."""
        places = [self._place(argument) for argument in arguments[: 1 if name == "memset" else 2]]
        self._union.join(*places)
        if not self._on_device:
            self._merge_sizes(arguments[2:], places[0])
        if not self._on_device or not any(places):
            return
        value = bare(arguments[1]).extent
        is_plain = all(places)
        if name == "memset":
            is_plain = value is not None and self._text.sources[value.file].of(value) == "0"
        size = self._sized(arguments[2])
        self._union.join(places[0], size)
        if not is_plain or not (self._merge_sizes(arguments[2:], places[0]) or size is not None):
            for place in places:
                self._keep(place, f"its bytes are counted for {name}")

    def _runtime(self, node: Node, name: str, arguments: Sequence[Node]) -> None:
        if node.extent is None:
            return
        places = [self._place(argument) for argument in arguments]
        self._copies[node.extent, self._call_read] = (name, places, list(map(self._sized, arguments)), arguments)
        direction = " ".join(inner.spelling for argument in arguments[3:] for inner in argument.walk())
        of_device = [place for place in places if place is not None]
        if "DeviceToDevice" in direction and len(places) > 1:
            self._union.join(*places[:2])
        elif name.startswith("cudaMemcpy"):
            of_device = places[1:2] if "DeviceToHost" in direction or "FromSymbol" in name else places[:1]
        if of_device:
            self._merge_sizes(arguments, of_device[0])

    def _merge_sizes(self, arguments: Sequence[Node], place: Hashable) -> bool:
        """Join the types in ``sizeof`` of arguments with the memory they are about; return whether there are any."""
        are_some = False
        for inner in (inner for argument in arguments for inner in argument.walk()):
            extent = inner.extent
            if inner.kind != "CXX_UNARY_EXPR" or _variable_of(inner) or extent is None:
                continue
            words = self._text.within(extent.file, extent.start, extent.end)
            found = next((spelled for token in words if (spelled := self._text.spelled(token.text))), None)
            slot = self._slot(extent, found, self._on_device) if found is not None else None
            if slot is not None:
                node = self._member(slot, slot.spelled, "size", False, slot.extent)
                self._union.join(place, node)
                are_some = True
        return are_some

    def _place(self, node: Node) -> Hashable:
        """Return the node of the memory that an expression points at, refers to or is; None if it has none."""
        kind, children = node.kind, node.children
        if kind in TRANSPARENT and children:
            return self._place(children[-1])
        if kind in ("DECL_REF_EXPR", "MEMBER_REF_EXPR"):
            declared = node.referenced
            if declared is None or declared.kind.name not in ("VAR_DECL", "PARM_DECL", "FIELD_DECL"):
                return None
            if self._unit.extent(declared) is None:  # a component of double3 and its like
                return self._place(children[0]) if kind == "MEMBER_REF_EXPR" and children else None
            return self._own(declared) if scalar_of(declared.type.get_canonical()) is not None else None
        if kind == "ARRAY_SUBSCRIPT_EXPR" or (kind == "UNARY_OPERATOR" and node.operator in ("*", "&", "++", "--")):
            return self._place(children[0])
        if kind == "BINARY_OPERATOR":
            sides = [child for child in children if is_pointer(child.canonical)]
            return self._place(sides[-1] if node.operator == "," else sides[0]) if sides else None
        if kind == "INIT_LIST_EXPR" and scalar_of(node.canonical) is None:  # pointers to void keep nothing together
            return None
        if kind in ("INIT_LIST_EXPR", "CONDITIONAL_OPERATOR"):
            sides = (
                [child for child in children if is_pointer(child.canonical)] if kind[0] == "I" else list(children[1:])
            )
            places = [self._place(side) for side in sides]
            self._union.join(*places)
            return places[0] if places else None
        if kind in ANY_CAST and children:
            if not is_pointer(node.canonical):
                return None
            return self._place(children[-1]) if scalar_of(node.canonical) is None else self._cast(node)
        if (container := container_of(node)) is not None:
            return self._place(container)
        if kind == "CXX_NEW_EXPR" or (kind == "CALL_EXPR" and node.spelling == "make_unique"):
            found = scalar_of(node.canonical)
            slot = self._slot(node.extent, found, self._on_device) if found is not None and node.extent else None
            return self._member(slot, slot.spelled, "cast", True, slot.extent) if slot is not None else None
        if kind == "CALL_EXPR" and node.referenced is not None and is_pointer(node.canonical):
            own = self._unit.extent(node.referenced) is not None
            return self._called(node.referenced, node.extent, "result") if own else None
        return None

    def _values(self, node: Node) -> Iterator[Hashable]:
        """Yield the nodes of the values that enter an expression's arithmetic."""
        kind, within = node.kind, node.children
        place: Hashable = None
        if kind in _VARIABLES or (kind == "UNARY_OPERATOR" and node.operator == "*"):
            place, within = self._place(node), ()
            if place in self._follows:
                yield from self._follows[place]
                return
        elif kind in ANY_CAST:
            place, within = self._cast(node) if scalar_of(node.canonical) is not None else None, ()
        elif kind == "CALL_EXPR":
            called = node.referenced
            is_vector = called is not None and called.kind.name == "CONSTRUCTOR" and len(within) == 1  # copied
            if called is not None and self._unit.extent(called) is not None:
                place, within = self._called(called, node.extent, "result"), ()
            elif math_function(node.spelling) or node.spelling in ("__ldg", "__ldcs", "atomicAdd"):
                within = node.arguments
            elif found := EXCHANGED.fullmatch(node.spelling):
                within = node.arguments[bool(found[1]) :][:1]
            else:
                within = within if is_vector else ()
        elif kind == "CONDITIONAL_OPERATOR":
            within = within[1:]
        elif kind == "BINARY_OPERATOR" and node.operator in ("=", ","):
            within = within[-1:]
        elif kind in ("LAMBDA_EXPR", "CXX_UNARY_EXPR"):
            within = ()
        if place is not None:
            yield place
        for child in within:
            yield from self._values(child)

    def _meets(self, node: Node, above: tuple[Node, ...]) -> list[Hashable]:
        """Return the nodes that an operand meets: of the nearest arithmetic, or of the variable it is assigned to."""
        for parent in reversed(above):
            kind, children = parent.kind, parent.children
            if kind == "VAR_DECL":
                return [self._own(parent.cursor)]
            if kind == "RETURN_STMT" and self._function is not None:
                return [(self._function.usr, "result", *self._call_read)]
            if kind.endswith("_STMT") or kind == "ARRAY_SUBSCRIPT_EXPR":
                return []
            if kind in ANY_CAST:
                place = self._cast(parent)
                if place is not None or scalar_of(parent.canonical) is None:
                    return [place] if place is not None else []
            elif (
                kind == "CALL_EXPR"
                and math_function(parent.spelling) is None
                and not EXCHANGED.fullmatch(parent.spelling)
            ):
                at = next((i for i, argument in enumerate(parent.arguments) if argument.extent == node.extent), None)
                return [(parent.referenced.get_usr(), at)] if at is not None and parent.referenced is not None else []
            else:
                assigns = kind == "COMPOUND_ASSIGNMENT_OPERATOR" or parent.operator == "="
                values = list(dict.fromkeys(self._values(children[0] if assigns else parent)))
                if values:
                    return values
            node = parent
        return []

    # -- literals, functions and choices of the device -----------------------------------------------------------------

    def _note(self, noted: Literal | MathCall | Choice, met: Iterable[Hashable]) -> None:
        key = (type(noted), noted.extent, noted.function)
        self._noted.setdefault(key, (noted, []))[1].extend(met)

    def _literal(self, node: Node, above: tuple[Node, ...]) -> None:
        extent = node.extent
        if extent is None or self._function is None:
            return
        met = self._meets(node, above)
        found = self._written(extent, self._text.is_literal)
        if node.kind == "FLOATING_LITERAL" and self._text.in_macro(extent) is None and not _NUMBER.match(found[0][1]):
            words = self._text.within(extent.file, extent.start, extent.end)[:1]
            found = [(self._text.extent_of(extent.file, w), w.text) for w in words if w.kind == "name"]
        for place, text in found:
            self._note(Literal(place, text, node.canonical.spelling, self._label, ()), met)

    def _math(self, node: Node, name: str, above: tuple[Node, ...]) -> None:
        extent = node.children[0].extent
        if extent is None or self._function is None:
            return
        met = list(dict.fromkeys(self._values(node))) or self._meets(node, above)
        scope = node.referenced.semantic_parent
        is_of_cuda = scope is None or scope.kind.name != "NAMESPACE"  # those of C++ keep NaN where they find it
        called = f"f{name}" if name in ("min", "max") and is_of_cuda and scalar_of(node.canonical) else name
        for place, text in self._written(extent, lambda token: math_function(token.text) == name):
            self._note(MathCall(place, called, text, self._label, ()), met)

    def _choice(self, node: Node) -> None:
        """Note a choice between two numbers or vectors whose sides need not have one type."""
        sides = node.children[1:]
        found, plain = scalar_of(node.canonical), [bare(side) for side in sides]
        if found is None or is_pointer(node.canonical):
            return
        if found[1] > 1:  # vectors in memory have one type
            memory = [self._place(side) for side in sides]
            self._union.join(*memory)
            if None not in memory:
                return
        are_literals = [side.kind == "FLOATING_LITERAL" or _is_limit(side) for side in plain]
        are_numbers = [scalar_of(side.canonical) is not None for side in plain]
        places = {self._place(side) if side.kind in _VARIABLES else None for side in plain}
        if all(are_literals) or (any(are_literals) and all(are_numbers)) or (len(places) == 1 and None not in places):
            return
        met = [value for side in sides for value in self._values(side)]
        extents = [part.extent for part in node.children if part.extent is not None]
        if len(extents) < 3 or node.extent is None:
            return
        file = node.extent.file
        between = [self._text.within(file, before.end, after.start) for before, after in itertools.pairwise(extents)]
        if [[token.text for token in found] for found in between] == [["?"], [":"]]:
            question, colon = (self._text.extent_of(file, found[0]) for found in between)
            self._note(Choice(node.extent, question, colon, self._label, ()), met)
            return
        for file, body in self._text.bodies_at(node.extent):
            for first, *signs, last in _choices(body):
                question, colon = (self._text.extent_of(file, sign) for sign in signs)
                self._note(Choice(self._text.extent_of(file, first, last), question, colon, self._label, ()), met)

    # -- the result ----------------------------------------------------------------------------------------------------

    def result(self) -> TypeClasses:
        """Return the classes, named."""
        root = self._union.root
        groups: dict[Hashable, list[Member]] = {}
        for member in sorted(self._members.values(), key=lambda m: m.extent):
            groups.setdefault(root(_node(member.slot)), []).append(member)
        kernels = {root: self._kernels(members) for root, members in groups.items()}
        groups = {root: members for root, members in groups.items() if kernels[root]}
        kept = {root(node): reason for node, reason in reversed(self._kept)}
        updated, in_memory = ({root(node) for node in nodes} for nodes in (self._updated, self._in_memory))
        names = dict(zip(groups, names_of(list(groups.values())), strict=True))

        def named(place: Hashable) -> str:
            return names.get(root(place), "")

        def met(nodes: Iterable[Hashable]) -> tuple[str, ...]:
            return tuple(dict.fromkeys(filter(None, map(named, nodes))))

        def noted(kind: type[_Noted]) -> tuple[_Noted, ...]:
            found = sorted(
                (each.extent, each.function, each, nodes)
                for each, nodes in self._noted.values()
                if isinstance(each, kind)
            )
            return tuple(
                dataclasses.replace(each, meets=met(nodes)) for extent, _, each, nodes in found if self._owners(extent)
            )

        return TypeClasses(
            classes=tuple(
                TypeClass(
                    name=names[root],
                    scalar=members[0].slot.scalar,
                    slots=tuple(sorted({member.slot for member in members}, key=lambda slot: slot.extent)),
                    members=tuple(members),
                    role="buffer" if root in in_memory else role_of(members, root in updated),
                    kernels=kernels[root],
                    kept=kept.get(root, "") or mixed(members),
                    types=OFFERED.get(members[0].slot.scalar, ()),
                )
                for root, members in groups.items()
            ),
            literals=noted(Literal),
            calls=noted(MathCall),
            choices=noted(Choice),
            copies=tuple(
                Copy(
                    call=extent,
                    name=name,
                    classes=tuple(map(named, places)),
                    arguments=tuple(argument.extent or extent for argument in given),
                    elements=tuple(map(_pointed_at, given)),
                    sizes=tuple(map(named, sizes)),
                )
                for (extent, _), (name, places, sizes, given) in sorted(self._copies.items(), key=lambda copy: copy[0])
                if any(map(named, places))
            ),
            reads=tuple(
                Read(extent, named(place), function, is_device, is_stored)
                for (extent, function, _), (place, is_device, is_stored) in sorted(self._reads.items())
                if named(place)
            ),
            braced=tuple(
                Braced(extent, named(place), met(values), is_device)
                for (extent, _), (place, values, is_device) in sorted(self._braced.items())
                if named(place)
            ),
            raw=tuple(
                RawUse(extent, named(place), why) for extent, place, why in self._host_uses.found(root) if named(place)
            ),
        )

    def _sized(self, node: Node) -> Hashable:
        """Return the node of a variable whose numbers' size an expression computes with; None if there is none."""
        for inner in node.walk():
            variable = _variable_of(inner) if inner.kind == "CXX_UNARY_EXPR" else None
            if variable is not None and variable.canonical.kind.name != "POINTER":
                return self._place(variable)
        return None

    def _owners(self, extent: Extent) -> list[tuple[str, str]]:
        """Return in whose code a place is: labels of kernels, each with the label of the function it is for, or ""."""
        return [(label, owner) for place, label, owner in self._owners_at if extent in place]

    def _kernels(self, members: list[Member]) -> tuple[str, ...]:
        """Return the labels of the kernels in whose code, or that of what they need, a class has a slot."""
        owners = ((member, owner) for member in members for owner in self._owners(member.slot.extent))
        found = {label for member, (label, owner) in owners if owner in ("", member.function)}
        return tuple(kernel.label for kernel in self._program.kernels if kernel.label in found)


def _is_given_memory(function: Function) -> bool:
    """Whether a function is one of the host that is given or returns pointers to floating-point numbers."""
    types = [parameter.canonical for parameter in function.parameters]
    types.append(function.node.cursor.result_type.get_canonical())
    return not function.is_device and any(is_pointer(kind) and scalar_of(kind) is not None for kind in types)


def _node(slot: TypeSlot) -> Hashable:
    return ("slot", slot.extent, slot.scalar, slot.declarator, slot.call)


def _parent(above: Sequence[Node]) -> Node | None:
    """Return the nearest node around an expression that is neither a parenthesis nor an implicit conversion."""
    return next((each for each in reversed(above) if each.kind not in TRANSPARENT), None)


def _chosen_by(functions: Iterable[Function]) -> Iterator[tuple[str, int]]:
    """Yield the parameters by whose type C++ chooses between functions of a name, with clang's name of the function."""
    alike: dict[tuple[str, str, int], list[Function]] = {}
    for function in functions:
        scope = function.node.cursor.semantic_parent
        key = scope.get_usr() if scope is not None else "", function.name, len(function.parameters)
        alike.setdefault(key, []).append(function)
    for one, other in (pair for group in alike.values() for pair in itertools.permutations(group, 2)):
        # Instances of a template are one definition, not overloads.
        for index in range(len(one.parameters) if one.extent != other.extent and _is_written(other) else 0):
            mine, theirs = (scalar_of(each.parameters[index].canonical) for each in (one, other))
            if mine is not None and theirs is not None and mine[0] != theirs[0] and mine[1] == theirs[1]:
                yield one.usr, index


def _is_written(function: Function) -> bool:
    """Whether a function is written as it is, and is no instance of a template that the compiler makes."""
    return not function.arguments or function.extent == function.node.extent


def _reads_bits(canonical: Any, inner: Node) -> bool:
    """Whether a cast reads floating-point numbers as another type."""
    if canonical.kind.name != "POINTER" or scalar_of(inner.canonical) is None or not is_pointer(inner.canonical):
        return False
    return bool(pointee(canonical).kind.name != "VOID")


def _is_each_once(place: Node, above: Sequence[Node]) -> bool:
    """Whether a loop over the elements of an array changes each of them, and none again and again."""
    place = bare(place)
    loop = next((node for node in reversed(above) if node.kind in _LOOPS), None)
    parts = place.arguments if place.kind == "CALL_EXPR" and place.spelling == "operator[]" else place.children
    if loop is None or loop.kind != "FOR_STMT" or place.kind not in ("ARRAY_SUBSCRIPT_EXPR", "CALL_EXPR"):
        return False
    counted = [child.cursor for child in loop.children[0].children if child.kind == "VAR_DECL"]
    index = list(parts[1].walk()) if len(parts) > 1 else []
    is_counted = any(each.referenced is not None and each.referenced in counted for each in index)
    return is_counted and not any(each.operator in ("%", "/", ">>", "&") for each in index)


def _is_converted(parent: Node | None, number: Node) -> bool:
    """Whether C++ makes a number double by itself, or prints it: it meets one that the host has in double."""
    if parent is None or parent.kind == "CALL_EXPR":
        called = parent.referenced if parent is not None else None
        kind = called.type if called is not None else None
        is_variadic = kind is not None and kind.kind.name == "FUNCTIONPROTO" and kind.is_function_variadic()
        return is_variadic or (parent is not None and parent.spelling == "operator<<")
    sides = [bare(each) for each in parent.children] if parent.kind.endswith("_OPERATOR") else []
    if len(sides) != 2 or parent.operator in ("=", ","):
        return False
    left, right = sides
    if right.cursor == bare(number).cursor:  # (what is on the left is double by then)
        is_double = left.kind in (*_VARIABLES, "FLOATING_LITERAL") or container_of(left) is not None
        return is_double and left.canonical.kind.name == "DOUBLE"
    value = right.referenced if right.kind == "DECL_REF_EXPR" else None
    is_by_value = value is not None and value.type.get_canonical().kind.name == "DOUBLE"
    return is_by_value or (right.kind == "FLOATING_LITERAL" and right.canonical.kind.name == "DOUBLE")


def _is_other_memory(node: Node) -> bool:
    """Whether a pointer is to memory without floating-point numbers that outlives a block."""
    if not is_pointer(node.canonical) or scalar_of(node.canonical) is not None:
        return False
    named = (inner.referenced for inner in node.walk() if inner.kind == "DECL_REF_EXPR" and is_pointer(inner.canonical))
    declared = (child.kind.name for cursor in named if cursor is not None for child in cursor.get_children())
    return "CUDASHARED_ATTR" not in declared


def _rounds(call: Node) -> bool:
    """Whether a function of fp32 is given a wider number, which it rounds first: ``sqrtf(x)`` of a double."""
    given = [bare(argument) for argument in call.arguments]
    is_wider = (scalar_of(each.canonical) == ("double", 1) and each.kind != "FLOATING_LITERAL" for each in given)
    return scalar_of(call.canonical) == ("float", 1) and any(is_wider)


def _is_limit(node: Node) -> bool:
    """Whether an expression is the limit of a floating-point type (``std::numeric_limits<T>::max()``)."""
    called = node.referenced if node.kind == "CALL_EXPR" else None
    parent = called.semantic_parent if called is not None else None
    return parent is not None and parent.spelling == "numeric_limits" and scalar_of(node.canonical) is not None


def _choices(body: Sequence[Token]) -> Iterator[tuple[Token, Token, Token, Token]]:
    """Yield the first token, the signs and the last token of each ``?:`` in an expression."""

    def end_of(at: int, step: int, ends: Sequence[str]) -> int:
        """Return the place from a token on, in either direction, of the first token that ends an operand."""
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


def _variable_of(size: Node) -> Node | None:
    """Return the expression whose size ``sizeof`` gives; None for a type."""
    return next((child for child in size.children if child.kind not in ("TYPE_REF", "NAMESPACE_REF")), None)


def _pointed_at(node: Node) -> str:
    """Return the type of the numbers that an argument points at, or is an array of; "" for anything else."""
    kind = bare(node).canonical
    is_value = not is_pointer(kind) or "REFERENCE" in kind.kind.name
    name = kind.spelling if is_value else bare_name(pointee(kind))
    found = scalar_named(name)
    return name if found is not None and (found[1] == 1 or not is_value) else ""
