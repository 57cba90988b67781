"""Finds the type classes of a program: the floating-point types in its text, and what merges them.

Slots belong to one class if what they declare shares memory: through pointers, references, arrays, swaps, struct
fields, copies on the device. Values convert by themselves, so arithmetic never puts two slots into one class; and a
host array that is only copied to or from the device stays out, since a copy can convert.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mptune.adopt.classes import (
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
    mixed,
    names_of,
    role_of,
)
from mptune.adopt.containers import container_of, held_by
from mptune.adopt.host_uses import LITERAL, RUNTIME, HostUses
from mptune.adopt.number_types import QUALIFIERS, SCALARS, is_pointer, math_function, pointee, scalar_of
from mptune.adopt.parsing import ANY_CAST, TRANSPARENT, Extent, Function, Node, TranslationUnit, bare, specialisation_of
from mptune.adopt.reading import VECTOR, Memory, Parameter, Program
from mptune.adopt.source_text import SourceText
from mptune.cpp.tokens import Token

_VARIABLES: Final = ("DECL_REF_EXPR", "MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR")
_LOOPS: Final = ("FOR_STMT", "WHILE_STMT", "DO_STMT")
_ALLOCATES: Final = ("malloc", "calloc", "aligned_alloc", "realloc")
_ASSIGNS: Final = ("=", "+=", "-=", "*=", "/=")
_NUMBER: Final = re.compile(r"\.?\d.*")
#: Functions that take a number for its bits.
_BITS: Final = re.compile(r"__(double|float)(_as_|2hiint|2loint)\w*")


def type_classes(program: Program) -> TypeClasses:
    """Find the type classes of a program."""
    finder = _Finder(program)
    for unit in program.units:
        finder.read(unit)
    return finder.result()


class _Finder:
    """Gathers slots and what merges them, over the files of a program.

    A node stands for something that has a type: a slot, a declaration (by clang's name for it), a parameter of a
    function by its position, or a function's result. Nodes that must have the same type have the same root.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._text = SourceText(program.files)
        self._host_uses = HostUses(program, self._text, self._place)
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
        self._follows: dict[object, list[object]] = {}
        self._memory_types: dict[str, TypeSlot] = {}
        self._seen: set[str] = set()
        self._places: list[tuple[Extent, str, str]] | None = None
        self._function: Function | None = None
        #: Fields of structs that are in arrays.
        self._in_memory: list[object] = []
        self._structs_in_memory()

    # -- what belongs together -----------------------------------------------------------------------------------------

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

    # -- declarations --------------------------------------------------------------------------------------------------

    def read(self, unit: TranslationUnit) -> None:
        """Take in a file and what it includes."""
        self._unit = unit
        self._text.read(unit)
        self._needed = [need.extent for kernel in self._program.kernels for need in kernel.needs]
        self._named_alike: dict[tuple[str, str], list[Function]] = {}
        for function in unit.functions:
            self._named_alike.setdefault(_scoped(function.node.cursor), []).append(function)
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
            self._text.name(node.spelling, found)
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
            self._host_uses.note(node, node, node.canonical)
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
            with self._text.bound(each.arguments):
                for field in (Node(self._unit, cursor) for cursor in each.fields):
                    on_device = any(field.extent in need for need in self._needed if field.extent is not None)
                    start = field.extent.start if field.extent is not None else None
                    self._declare(field, "field", each.name, on_device, start)

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
        with self._text.bound((*of_class, *function.arguments)):
            self._signature(function.node, function.label, function.is_device)
            for member, value in itertools.pairwise(function.node.children):
                if member.kind == "MEMBER_REF" and member.referenced is not None:  # initialised by a constructor
                    self._fill(member.referenced.get_usr(), value)
            self._statement(function.block, ())
        self._function = None

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
            words = [token.text for token in self._text.within(name.file, start, name.start)]
            slot = next((self._memory_types[word] for word in words if word in self._memory_types), None)
        if slot is None and not is_pointer(canonical) and self._on_device and self._is_new(node, words):
            auto = next(token for token in self._text.within(name.file, start, name.start) if token.text == "auto")
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
        after = self._text.within(name.file, node.extent.end, node.extent.end + 200)
        return node.kind == "VAR_DECL" and (node.extent.start == name.start or bool(after and after[0].text == ","))

    def _slot(self, extent: Extent, found: tuple[str, int], on_device: bool, declarator: str = "") -> TypeSlot | None:
        """Find where a floating-point type is written in a piece of text."""
        words = self._text.within(extent.file, extent.start, extent.end)
        for index, token in enumerate(words):
            end = token.start + len(token.text)
            if token.text == "long" and index + 1 < len(words) and words[index + 1].text == "double":
                end = words[index + 1].start + len("double")
            elif token.text not in SCALARS and not VECTOR.fullmatch(token.text) and token.text not in self._text.types:
                continue
            return self._slot_at(extent.file, token.start, end, found, on_device, declarator)
        return None

    def _slot_at(
        self, file: Path, start: int, end: int, found: tuple[str, int], on_device: bool, declarator: str = ""
    ) -> TypeSlot:
        text = self._text.sources[file].text
        place = Extent(file, start, end, self._text.sources[file].line(text.count("\n", 0, start) + 1))
        function = self._function.label if self._function is not None else ""
        slot = TypeSlot(place, text[start:end], *found, declarator, function, on_device)
        return self._slots.setdefault((place, found[0], declarator, function), slot)

    # -- statements and expressions ------------------------------------------------------------------------------------

    def _statement(self, node: Node, above: tuple[Node, ...]) -> None:
        kind, children = node.kind, node.children
        if self._function is not None and not self._on_device:
            self._host_uses.read(node, above, self._unit, self._function)
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
        for child in children:
            self._statement(child, (*above, node))

    def _read(self, node: Node, above: tuple[Node, ...]) -> None:
        """Take in the conversion of a variable to its value."""
        inner = node.children[0] if len(node.children) == 1 else None
        while inner is not None and inner.kind == "PAREN_EXPR" and inner.children:
            inner = inner.children[0]
        is_element = inner is not None and (inner.operator == "*" or container_of(inner) is not None)
        if inner is None or inner.extent is None or (inner.kind not in _VARIABLES and not is_element):
            return
        found = scalar_of(node.canonical)
        if found is None or is_pointer(node.canonical) or found[1] != 1 or found != scalar_of(inner.canonical):
            return
        parent = next((each for each in reversed(above) if each.kind not in TRANSPARENT), None)
        is_stored = parent is not None and (
            (parent.kind == "VAR_DECL" and parent.cursor.get_usr() not in self._follows)
            or parent.kind in (*ANY_CAST, "INIT_LIST_EXPR")
            or (parent.kind == "RETURN_STMT" and not any(each.kind == "LAMBDA_EXPR" for each in above))
            or (parent.kind == "BINARY_OPERATOR" and parent.operator == "=")
            or (not self._on_device and _is_converted(parent, node))
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
        parent = next((each for each in reversed(above) if each.kind not in TRANSPARENT), None)
        if parent is not None and parent.kind == "RETURN_STMT" and self._function is not None:
            return (self._function.usr, "result")
        return parent.cursor.get_usr() if parent is not None and parent.kind == "VAR_DECL" else None

    def _fill(self, own: object, value: Node) -> None:
        """Take in what something is initialised with: memory is shared, and numbers in braces may need a cast."""
        value = bare(value)
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
            is_literal = all(inner.kind in LITERAL for inner in each.walk())
            if is_number and not is_literal and bare(each).kind != "INIT_LIST_EXPR" and each.extent is not None:
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
            self._host_uses.note_sum(node.extent, place)

    def _cast(self, node: Node) -> object:
        """Take in a cast to a floating-point type; return its node, None for any other."""
        extent, canonical = node.extent, node.canonical
        found = scalar_of(canonical)
        inner = node.children[-1] if node.children else None
        if found is None and inner is not None and self._on_device and self._reads_bits(canonical, inner):
            self._kept.append((self._place(inner), f"its bits are read as {node.cursor.type.spelling}"))
        if found is None or extent is None:
            return None
        if (macro := self._text.macro_at(extent)) is not None and macro not in self._text.types:
            return None if self._text.is_number(macro) else self._cast_in_macro(macro, found)
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
            call = bare(inner)
            if call.kind == "CALL_EXPR" and call.spelling in _ALLOCATES:
                self._merge_sizes(call.arguments, own)
            if self._on_device and _is_other_memory(inner):
                other = QUALIFIERS.sub("", pointee(inner.canonical).spelling).strip()
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
        for file, token in self._text.parts(macro):
            if token.kind == "name" and self._text.spelled(token.text) == found:
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
                kind = parameter.type.get_canonical()
                if is_pointer(kind):
                    place = self._place(argument)
                    self._merge((called.get_usr(), index), place)
                    kind = kind.get_pointee().get_canonical() if "REFERENCE" in kind.kind.name else kind
                    is_template = bool(self._program.originals) and called.get_num_template_arguments() > 0
                    is_unknown = place is None and held_by(kind) is not None
                    if (is_template or is_unknown) and not self._on_device and argument.extent is not None:
                        self._host_uses.note_place(argument.extent, (called.get_usr(), index))
            self._keep_overload(called, arguments)
        elif runtime := RUNTIME.fullmatch(name):
            self._runtime(node, f"cuda{runtime[1]}", arguments)
        elif (
            name in ("swap", "operator=", "reset")
            and arguments
            and (name == "swap" or is_pointer(arguments[-1].canonical))
        ):
            other = arguments[0] if len(arguments) > 1 else next(iter(children[0].children), arguments[0])
            self._merge(self._place(other), self._place(arguments[-1]))
        elif name in ("max", "min") and not self._on_device:
            for element in map(bare, arguments):
                place = self._place(element) if scalar_of(element.canonical) == ("double", 1) else None
                if place is not None and element.extent is not None and self._function is not None:
                    self._reads.setdefault((element.extent, self._function.label), (place, False, False))
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
                place = self._place(bare(argument))
                if place is not None:
                    self._kept.append((place, reason))

    def _keep_overload(self, called: Any, arguments: Sequence[Node]) -> None:
        """Keep the types by which C++ chooses between the program's functions of one name."""
        alike, usr = self._named_alike.get(_scoped(called), []), called.get_usr()
        own = {function.extent for function in alike if function.usr == usr}
        types = [parameter.type.get_canonical() for parameter in called.get_arguments()]
        if called.kind.name == "CXX_METHOD":  # the first argument of an operator is the object
            arguments = arguments[max(len(arguments) - len(types), 0) :]
        for other in alike:
            # Instances of a template are one definition, not overloads.
            is_other = other.usr != usr and other.extent not in own and _is_written(other)
            if not is_other or len(other.parameters) != len(types):
                continue
            for index, (argument, mine, parameter) in enumerate(zip(arguments, types, other.parameters, strict=False)):
                if not _differ(scalar_of(mine), scalar_of(parameter.canonical)):
                    continue
                # What the host reads of a number is given its own type again.
                is_by_type = self._on_device or is_pointer(mine)
                nodes = [(usr, index), *(self._values(argument) if is_by_type else ())]
                self._kept += ((node, f"chooses between functions named {other.name}") for node in nodes)

    def _bytes(self, name: str, arguments: Sequence[Node]) -> None:
        """Take in a call that copies or clears bytes, as many as ``sizeof`` says."""
        given = arguments[:1] if name == "memset" else arguments[:2]
        places = [self._place(argument) for argument in given]
        self._merge(places[0], places[-1])
        if not self._on_device:
            self._merge_sizes(arguments[2:], places[0])
        if not self._on_device or not any(places):
            return
        value = bare(arguments[1]).extent
        is_plain = (
            value is not None and self._text.sources[value.file].of(value) == "0" if name == "memset" else all(places)
        )
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
            words = self._text.within(extent.file, extent.start, extent.end)
            found = next((self._text.spelled(token.text) for token in words if self._text.spelled(token.text)), None)
            slot = self._slot(extent, found, self._on_device) if found is not None else None
            if slot is not None:
                function = self._function.label if self._function is not None else ""
                member = Member(slot.spelled, function, "size", False, slot, slot.extent)
                self._members.setdefault((slot.extent, "size", slot.scalar, function), member)
                self._merge(place, _node(slot))
                are_some = True
        return are_some

    def _place(self, node: Node) -> object:
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
        if kind in ANY_CAST and children:
            if not is_pointer(node.canonical):
                return None
            return self._place(children[-1]) if scalar_of(node.canonical) is None else self._cast(node)
        if (container := container_of(node)) is not None:
            return self._place(container)
        if kind == "CXX_NEW_EXPR" or (kind == "CALL_EXPR" and node.spelling == "make_unique"):
            found = scalar_of(node.canonical)
            slot = self._slot(node.extent, found, self._on_device) if found is not None and node.extent else None
            return self._note_cast(slot, True) if slot is not None else None
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
        elif kind in ANY_CAST:
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
            if kind in ANY_CAST:
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
        text = self._text.sources[extent.file].of(extent)
        macro = self._text.macro_at(extent)
        if macro is not None and not self._text.is_number(macro):
            for file, token in self._text.parts(macro):
                if self._text.is_literal(token):
                    self._note_literal(self._text.extent_of(file, token), token.text, scalar, met)
            return
        if node.kind == "FLOATING_LITERAL" and not _NUMBER.match(text):
            words = self._text.within(extent.file, extent.start, extent.end)
            if not words or words[0].kind != "name":
                return
            extent, text = self._text.extent_of(extent.file, words[0]), words[0].text
        self._note_literal(extent, text, scalar, met)

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
        text = self._text.sources[extent.file].of(extent)
        is_of_cuda = (
            node.referenced.semantic_parent.kind.name != "NAMESPACE"
        )  # those of C++ keep NaN where they find it
        called = f"f{name}" if name in ("min", "max") and is_of_cuda and scalar_of(node.canonical) else name
        macro = self._text.macro_at(extent)
        if macro is not None and not self._text.is_number(macro):
            for file, token in self._text.parts(macro):
                if token.kind == "name" and math_function(token.text) == name:
                    self._note_math(self._text.extent_of(file, token), called, token.text, met)
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
        found, plain = scalar_of(node.canonical), [bare(side) for side in sides]
        if found is None or is_pointer(node.canonical):
            return
        if found[1] > 1:  # those in memory are vectors of one type
            memory = [self._place(side) for side in sides]
            self._merge(*memory)
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
        macro = self._text.macro_at(node.extent)
        if [[token.text for token in found] for found in between] == [["?"], [":"]]:
            self._note_choice(node.extent, file, between[0][0], between[1][0], met)
        elif macro is not None and not self._text.is_number(macro):
            for file, body in self._text.bodies(macro):
                for first, question, colon, last in _choices(body):
                    self._note_choice(self._text.extent_of(file, first, last), file, question, colon, met)

    def _note_choice(self, extent: Extent, file: Path, question: Token, colon: Token, met: Iterable[object]) -> None:
        assert self._function is not None
        label = self._function.label
        choice = Choice(extent, self._text.extent_of(file, question), self._text.extent_of(file, colon), label, ())
        self._choices.setdefault((extent, label), choice)
        self._met.setdefault(("choice", extent, label), []).extend(met)

    # -- the result ----------------------------------------------------------------------------------------------------

    def result(self) -> TypeClasses:
        """Put the slots into classes and name these."""
        groups: dict[object, list[Member]] = {}
        for member in sorted(self._members.values(), key=lambda m: m.extent):
            groups.setdefault(self._root(_node(member.slot)), []).append(member)
        kept: dict[object, str] = {}
        for node, reason in self._kept:
            kept.setdefault(self._root(node), reason)
        updated = {self._root(node) for node in self._updated if node is not None}
        in_memory = {self._root(node) for node in self._in_memory}
        kernels = {root: self._kernels(members) for root, members in groups.items()}
        taken = [(root, members) for root, members in groups.items() if kernels[root]]
        names = dict(zip((root for root, _ in taken), names_of([members for _, members in taken]), strict=True))
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
            raw=tuple(
                RawUse(extent, names[root], why)
                for extent, place, why in self._host_uses.found(self._root)
                if (root := self._root(place)) in names
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


def _within_structs(parameter: Parameter) -> Iterator[Parameter]:
    """Give a parameter, or the fields of one that is a struct."""
    yield parameter
    for field in parameter.fields:
        yield from _within_structs(field)


def _scoped(function: Any) -> tuple[str, str]:
    """Return the scope of a function, by clang's name of it, and the function's name; built-in ones have no scope."""
    scope = function.semantic_parent
    return str(scope.get_usr()) if scope is not None else "", str(function.spelling)


def _differ(one: tuple[str, int] | None, other: tuple[str, int] | None) -> bool:
    """Whether two types are of floating-point numbers, as many of them, but not of the same."""
    return one is not None and other is not None and one[0] != other[0] and one[1] == other[1]


def _is_written(function: Function) -> bool:
    """Whether a function is written as it is, and is no instance of a template that the compiler makes."""
    return not function.arguments or function.extent == function.node.extent


def _node(slot: TypeSlot) -> object:
    return ("slot", slot.extent, slot.scalar, slot.declarator)


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


def _variable_of(size: Node) -> Node | None:
    """Return the expression whose size ``sizeof`` gives; None for a type."""
    return next((child for child in size.children if child.kind not in ("TYPE_REF", "NAMESPACE_REF")), None)


def _pointed_at(node: Node) -> str:
    """Return the type of the numbers that an argument points at, or is an array of; "" for anything else."""
    node = bare(node)
    kind = node.canonical
    if not is_pointer(kind) or "REFERENCE" in kind.kind.name:
        return kind.spelling if kind.spelling in SCALARS else ""
    inner = pointee(kind).get_canonical()
    name = QUALIFIERS.sub("", inner.spelling).strip()
    return name if name in SCALARS or VECTOR.fullmatch(name) else ""
