"""Where code of the host uses more of a program's memory than its numbers: bytes, addresses, the digits of a sum.

Memory that is used so keeps its type in a patched program, with a line that says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final

from mptune.adopt.classes import Union
from mptune.adopt.containers import container_of, held_by
from mptune.adopt.number_types import (
    bare_name,
    element_behind,
    element_of,
    is_array,
    is_pointer,
    math_function,
    numbers_in,
    pointee,
    scalar_of,
)
from mptune.adopt.parsing import ANY_CAST, TRANSPARENT, Extent, Function, Node, TranslationUnit, bare, without_casts
from mptune.adopt.reading import Program
from mptune.adopt.source_text import SourceText

#: The nodes of a number that converts without a cast.
LITERAL: Final = ("FLOATING_LITERAL", "INTEGER_LITERAL", "UNARY_OPERATOR", *TRANSPARENT)
_CONVERSIONS: Final = (*TRANSPARENT, *ANY_CAST)
_COMPOUND: Final = "COMPOUND_ASSIGNMENT_OPERATOR"
_ALLOCATES: Final = re.compile(r"(?:cuda|hip)(?:Host)?(?:Malloc|Free|Alloc)\w*|free")
_PRINTS: Final = ("printf", "fprintf", "sprintf", "snprintf")
#: Whole numbers that have room for an address.
_ADDRESSES: Final = ("LONG", "ULONG", "LONGLONG", "ULONGLONG")
#: Calls of the runtime.
RUNTIME: Final = re.compile(r"(?:cuda|hip)([A-Z]\w+)")


class HostUses:
    """Gathers such uses over the functions of the host.

    Args:
        program: the program.
        text: of its files.
        place: gives the node of the memory that an expression points at, refers to or is; None if it has none.
    """

    def __init__(self, program: Program, text: SourceText, place: Callable[[Node], Hashable]) -> None:
        self._program = program
        self._text = text
        self._place = place
        self._raw: dict[tuple[Extent, Hashable], None] = {}
        self._summed: dict[tuple[Extent, Hashable], None] = {}
        #: Fields of structs by value that the host computes, and the first computation with each field.
        self._computed: set[Hashable] = set()
        self._read_back: dict[Hashable, Extent] = {}
        #: The memory that pointers to void lead to, and a call with such a pointer, by clang's name of the pointer, or
        #: of the array or container of them; variables that loop over these are joined with them.
        self._typed: dict[str, list[Hashable]] = {}
        self._given_raw: dict[str, Extent] = {}
        #: The memory whose addresses pointers to void are given, and where such pointers are cast to one with a type.
        self._stored: dict[str, list[Hashable]] = {}
        self._cast_back: dict[str, Extent] = {}
        self._same_pointers = Union()
        #: Addresses of fields that may lead to the other fields of their struct.
        self._reached: list[tuple[Extent, list[str]]] = []

    def found(self, root: Callable[[Hashable], Hashable]) -> Iterator[tuple[Extent, Hashable, str]]:
        """Yield each use, the node of its memory, and what is used, in words.

        Args:
            root: gives the node that stands for all of one type.
        """
        raw = dict(self._raw)
        same = self._same_pointers.root
        casts = {pointer: e for pointer, e in self._cast_back.items() if same(pointer) in map(same, self._stored)}
        for given, extent in (*self._given_raw.items(), *casts.items()):
            for pointer, places in (*self._typed.items(), *self._stored.items()):
                if same(pointer) == same(given):
                    raw.update(dict.fromkeys((extent, place) for place in places))
        for extent, fields in self._reached:
            if len(set(map(root, fields))) > 1:
                raw.update(dict.fromkeys((extent, field) for field in fields))
        yield from ((extent, place, "more than its numbers are used") for extent, place in raw)
        yield from ((extent, place, "the host adds up in it") for extent, place in self._summed)
        for field, extent in self._read_back.items():
            if field in self._computed:
                yield extent, field, "the host computes with it"

    def note_place(self, extent: Extent, place: Hashable) -> None:
        """Note that the host shares memory with something else."""
        self._raw[extent, place] = None

    def note_sum(self, extent: Extent, place: Hashable) -> None:
        """Note that the host adds up in a number."""
        self._summed[extent, place] = None

    def note(self, node: Node, used: Node, element: Any) -> None:
        """Note that a node uses the bytes of memory with such elements; those of a struct are all its numbers."""
        if node.extent is not None:
            is_struct = element.kind.name == "RECORD" and scalar_of(element) is None
            places = numbers_in(element) if is_struct else [self._place(used)] if scalar_of(element) else []
            self._raw.update(dict.fromkeys((node.extent, place) for place in places if place is not None))

    def read(self, node: Node, above: tuple[Node, ...], unit: TranslationUnit, function: Function) -> None:
        """Note the uses in one node of a host function.

        Args:
            node: the node.
            above: the nodes around it, outermost first.
            unit: its file.
            function: the function.
        """
        self._unit, self._function = unit, function
        kind = node.kind
        if kind == "CALL_EXPR":
            self._passing(node)
        elif kind == "CXX_UNARY_EXPR":
            self._counting(node, above)
        elif kind in ("DECL_REF_EXPR", "MEMBER_REF_EXPR"):
            self._untyped(node, above)
        elif kind == "INIT_LIST_EXPR":
            self._listing(node, above)
        elif kind == "UNARY_OPERATOR" and node.operator == "&":
            self._reaching(node, above)
        elif kind in ("UNEXPOSED_EXPR", _COMPOUND) or node.operator == "=":
            self._computing(node, above)
        if kind in ("UNEXPOSED_EXPR", *ANY_CAST) and node.children:
            self._converting(node, above)

    def _passing(self, call: Node) -> None:
        """Note addresses among the further arguments of a call, whose types it leaves to a format."""
        called = call.referenced
        if called is None or call.spelling in _PRINTS or called.type.kind.name != "FUNCTIONPROTO":
            return
        if called.type.is_function_variadic():
            for argument in call.arguments[len(list(called.get_arguments())) :]:
                if (element := element_behind(argument.canonical)) is not None:
                    self.note(call, argument, element)

    def _converting(self, node: Node, above: tuple[Node, ...]) -> None:
        """Note the conversion of an address to that of another type."""
        inner, result = node.children[-1], node.canonical
        old, new = element_behind(inner.canonical), element_behind(result)
        if old is None and node.kind in ANY_CAST and self._is_to_reference(node, inner):
            old, new = element_of(inner.canonical), element_of(result)
        is_to_number = node.kind in ANY_CAST and result.kind.name in _ADDRESSES
        is_same = old is not None and new is not None and bare_name(old) == bare_name(new)
        if old is None or (new is None and not is_to_number) or is_same:
            return
        is_struct = new is not None and {old.kind.name, new.kind.name} == {"RECORD"}
        is_base = is_struct and node.kind in ("UNEXPOSED_EXPR", "CXX_STATIC_CAST_EXPR")
        if is_base or self._is_for_any_type(node, above):
            return
        if new is not None and new.kind.name == "VOID" and (holder := _holder(above)):
            self._stored.setdefault(holder, []).extend(self._places_in(inner))
            return
        self.note(node, inner, old)
        if new is not None and old.kind.name != "VOID":
            self.note(node, node, new)

    def _is_to_reference(self, node: Node, inner: Node) -> bool:
        """Whether a cast is to a reference; only its text says so."""
        if node.extent is None or inner.extent is None:
            return False
        return any(
            word.text == "&" for word in self._text.within(node.extent.file, node.extent.start, inner.extent.start)
        )

    def _counting(self, size: Node, above: tuple[Node, ...]) -> None:
        """Note a size of a struct that is used for more than a number of bytes, as for how many numbers are in it."""
        struct = _sized(size)
        if struct is None or struct.kind.name != "RECORD" or scalar_of(struct) is not None:
            return
        inner = size
        for parent in reversed(above):
            if parent.kind == "BINARY_OPERATOR":
                left, right = parent.children
                other = right if left is inner else left
                others = [_sized(each) for each in other.walk() if each.kind == "CXX_UNARY_EXPR"]
                is_alone = without_casts(inner) is size
                is_divided = is_alone and left is inner and parent.operator in ("/", "%", "==", "!=")
                is_of_other = any(each is None or bare_name(each) != bare_name(struct) for each in others)
                if is_of_other or (is_divided and not others):
                    self.note(size, size, struct)
            elif parent.kind not in _CONVERSIONS:
                return
            inner = parent

    def _computing(self, node: Node, above: tuple[Node, ...]) -> None:
        """Note that the host computes a field of a struct by value, or computes with it."""
        field = self._place(node.children[0]) if node.children and _is_field_by_value(node.children[0]) else None
        if field is None or node.extent is None or is_pointer(node.canonical):
            return
        if node.kind != "UNEXPOSED_EXPR":
            if not all(each.kind in LITERAL for each in node.children[1].walk()):
                self._computed.add(field)
            if node.kind == _COMPOUND:
                self._read_back.setdefault(field, node.extent)
            return
        parent = next((each for each in reversed(above) if each.kind not in _CONVERSIONS), None)
        if parent is None or parent.kind == "INIT_LIST_EXPR":
            return
        is_used = parent.operator != "=" or not _is_field_by_value(parent.children[0])
        if parent.kind == "CALL_EXPR":
            is_kernel = any(kernel.name == parent.spelling for kernel in self._program.kernels)
            is_own = parent.referenced is not None and self._unit.extent(parent.referenced) is not None
            is_used = (is_own and not is_kernel) or math_function(parent.spelling) is not None
        if is_used:
            self._read_back.setdefault(field, node.extent)

    def _places_in(self, address: Node) -> list[Hashable]:
        """Return the nodes of the memory with numbers that an address leads to; of a struct, its numbers."""
        element = element_behind(address.canonical)
        if element is None or (scalar_of(element) is None and element.kind.name != "RECORD"):
            return []
        return [self._place(address)] if scalar_of(element) is not None else list(numbers_in(element))

    def _listing(self, node: Node, above: tuple[Node, ...]) -> None:
        """Note the memory whose addresses are listed as the elements of an array or container of pointers to void."""
        variable = next((each for each in reversed(above) if each.kind == "VAR_DECL"), None)
        if variable is not None and _leads_to_void(variable.canonical):
            for each in node.children:
                self._stored.setdefault(variable.usr, []).extend(self._places_in(each))

    def _untyped(self, node: Node, above: tuple[Node, ...]) -> None:
        """Note the casts of a pointer to void, or of one in an array or container, and the calls that are given it."""
        if node.referenced is None or not _leads_to_void(node.canonical):
            return
        pointer, outer = node.referenced.get_usr(), [each for each in above if each.kind not in TRANSPARENT]
        while outer and (outer[-1].kind == "ARRAY_SUBSCRIPT_EXPR" or outer[-1].operator in ("*", "&")):
            node = outer.pop()
        while outer and container_of(outer[-1]) is not None:
            node = outer.pop()
        parent = outer[-1] if outer else None
        if parent is None or node.extent is None or (parent.kind in ANY_CAST and parent.canonical.kind.name == "VOID"):
            return
        if parent.kind == "CXX_FOR_RANGE_STMT":
            loops = (child.usr for child in parent.children if child.kind == "VAR_DECL")
            self._same_pointers.join(pointer, next(loops))
        elif parent.kind in ANY_CAST and (places := self._places_in(parent)):
            self._typed.setdefault(pointer, []).extend(places)
            self._cast_back.setdefault(pointer, node.extent)
        elif parent.kind in ("CALL_EXPR", *ANY_CAST):
            call, index = _given_to(node, above[: above.index(node)] if node in above else above)
            if call is not None and (parameter := self._untyped_parameter(call, index)):
                self._same_pointers.join(pointer, parameter)
            elif call is None or not (_ALLOCATES.fullmatch(call.spelling) or call.spelling in _PRINTS):
                self._given_raw.setdefault(pointer, node.extent)

    def _untyped_parameter(self, call: Node, index: int) -> str:
        """Return clang's name of the parameter of a function of the program that is a pointer to void; "" for none."""
        function = self._function_of(call.referenced)
        if function is None or not 0 <= index < len(function.parameters):
            return ""
        parameter = function.parameters[index]
        return parameter.usr if _leads_to_void(parameter.canonical) else ""

    def _reaching(self, node: Node, above: tuple[Node, ...]) -> None:
        """Note the address of a field that is a number: an offset from it may lead to the next field."""
        field = bare(node.children[0]).referenced
        if node.extent is None or field is None or field.kind.name != "FIELD_DECL":
            return
        if scalar_of(field.type.get_canonical()) is None or is_pointer(field.type.get_canonical()):
            return
        parent = next((each for each in reversed(above) if each.kind not in TRANSPARENT), None)
        is_one = parent is not None and (parent.operator == "*" or self._is_given_one(parent, node.extent))
        if not is_one and not self._is_for_any_type(node, above):
            self._reached.append((node.extent, numbers_in(field.semantic_parent.type.get_canonical())))

    def _is_given_one(self, parent: Node, address: Extent) -> bool:
        """Whether a variable or parameter gets an address and only the one number there is used."""
        function: Function | None = self._function
        variable = parent.cursor if parent.kind == "VAR_DECL" else None
        if parent.kind == "CALL_EXPR":
            function = self._function_of(parent.referenced)
            given = zip(parent.arguments, function.parameters if function is not None else (), strict=False)
            named = (own.cursor for each, own in given if each.extent is not None and address in each.extent)
            variable = next(named, None)
        if function is None or variable is None:
            return False
        within = list(function.block.walk())
        uses = sum(each.kind == "DECL_REF_EXPR" and each.referenced == variable for each in within)
        read = (bare(each.children[0]) for each in within if each.kind == "UNARY_OPERATOR" and each.operator == "*")
        return bool(uses == sum(each.referenced == variable for each in read))

    def _function_of(self, called: Any) -> Function | None:
        """Return a function of the program that is called."""
        usr = called.get_usr() if called is not None else ""
        return next((f for unit in self._program.units for f in unit.functions if f.usr == usr), None)

    def _is_for_any_type(self, node: Node, above: tuple[Node, ...]) -> bool:
        """Whether an address is converted for a call that does the same with memory of any type."""
        call, index = _given_to(node, above)
        if call is None or call.referenced is None:
            return False
        if self._unit.extent(call.referenced) is not None:
            if parameter := self._untyped_parameter(call, index):
                self._stored.setdefault(parameter, []).extend(self._places_in(without_casts(node)))
            return bool(parameter)
        if RUNTIME.fullmatch(call.spelling) or call.spelling in (*_PRINTS, "free", "operator<<", "host_array"):
            return True
        if call.spelling not in ("memset", "memcpy", "memmove") or len(call.arguments) != 3:
            return False
        sides = [without_casts(each).canonical for each in call.arguments[: 1 if call.spelling == "memset" else 2]]
        sizes = [_sized(inner) for inner in call.arguments[2].walk() if inner.kind == "CXX_UNARY_EXPR"]
        elements = [element_behind(side) for side in sides]
        size = call.arguments[2].extent
        if size is not None and all(each is not None and scalar_of(each) for each in elements):
            words = [word.text for word in self._text.within(size.file, size.start, size.end)]
            is_zero = call.spelling != "memset" or bare(call.arguments[1]).value == 0
            return is_zero and "sizeof" in words and len(set(map(bare_name, elements))) == 1
        are_structs = all(each is not None and each.kind.name == "RECORD" for each in (*elements, *sizes))
        return are_structs and bool(sizes) and len(set(map(bare_name, (*elements, *sizes)))) == 1


def _given_to(node: Node, above: Sequence[Node]) -> tuple[Node | None, int]:
    """Return the call that is given an expression, converted or not, and as which argument; None for no call."""
    outer = list(above)
    while outer and outer[-1].kind in _CONVERSIONS:
        node = outer.pop()
    call = outer[-1] if outer and outer[-1].kind == "CALL_EXPR" else None
    arguments = call.arguments if call is not None else ()
    return call, next((index for index, each in enumerate(arguments) if each.extent == node.extent), -1)


def _leads_to_void(canonical: Any) -> bool:
    """Whether a type is a pointer to void, a pointer to such a pointer, or an array or container of them."""
    while is_array(canonical) or held_by(canonical) is not None or canonical.kind.name == "POINTER":
        canonical = pointee(canonical)
    return bool(canonical.kind.name == "VOID")


def _holder(above: tuple[Node, ...]) -> str:
    """Return clang's name of the variable that keeps an address which is made a pointer to void; "" for none."""
    outer = next((each for each in reversed(above) if each.kind not in _CONVERSIONS), None)
    if outer is None or outer.kind == "VAR_DECL":
        return outer.usr if outer is not None else ""
    is_kept = outer.operator == "=" or outer.spelling in ("push_back", "emplace_back")
    named = (each for each in outer.children[0].walk() if is_kept and _leads_to_void(each.canonical))
    return next((each.referenced.get_usr() for each in named if each.referenced is not None), "")


def _is_field_by_value(node: Node) -> bool:
    """Whether an expression is a number in a struct that no pointer or index leads to."""
    node = bare(node)
    while node.kind == "ARRAY_SUBSCRIPT_EXPR" and is_array(bare(node.children[0]).canonical):
        node = bare(node.children[0])
    if node.kind != "MEMBER_REF_EXPR" or node.referenced is None or node.referenced.kind.name != "FIELD_DECL":
        return False
    while node.kind == "MEMBER_REF_EXPR" and node.children:
        node = bare(node.children[0])
    return node.kind == "MEMBER_REF_EXPR" or (node.kind == "DECL_REF_EXPR" and node.canonical.kind.name == "RECORD")


def _sized(size: Node) -> Any:
    """Return the type whose size is asked for, of an array that of its elements; None for a type of C++'s own."""
    return element_of(size.children[-1].canonical) if size.children else None
