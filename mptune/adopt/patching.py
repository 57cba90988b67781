"""A program's own text with other types: what a careful programmer would change by hand, and nothing else.

Only arrays are stored in 16 bits: a variable becomes a ``float``, and an element is made one where it is used. Where a
type cannot be changed in place, the wider of the types that share the place is taken, or the program's own, and a note
says so.
"""

from __future__ import annotations

import itertools
import re
import string
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mptune.adopt.byte_counts import ByteCounts, Resized
from mptune.adopt.classes import Copy, TypeClass, TypeClasses, TypeSlot
from mptune.adopt.number_types import PRECISIONS
from mptune.adopt.parsing import Edits, Extent, Function, SourceFile
from mptune.adopt.reading import Program
from mptune.cpp.tokens import tokens

#: How CUDA spells the types of a program's numbers.
SPELLED: Final = {precision: scalar for scalar, precision in PRECISIONS.items()}
_BITS: Final = {"fp64": 64, "fp32": 32, "fp16": 16, "bf16": 16}
_HEADERS: Final = {"fp16": ("cuda_fp16.h", "hip/hip_fp16.h"), "bf16": ("cuda_bf16.h", "hip/hip_bf16.h")}
_HIP_BF16: Final = "__hip_bfloat16"
#: Calls of the runtime with the bytes of memory, and which argument says how many.
_BYTES: Final = {
    "cudaMalloc": 1, "cudaMallocAsync": 1, "cudaMallocManaged": 1, "cudaMallocHost": 1, "cudaHostAlloc": 1,
    "cudaMemset": 2, "cudaMemsetAsync": 2, "cudaMemcpy": 2, "cudaMemcpyAsync": 2, "cudaMemcpyToSymbol": 2,
    "cudaMemcpyFromSymbol": 2, "cudaMemPrefetchAsync": 1, "cudaMemAdvise": 1,
}  # fmt: skip
#: Calls that are the same for memory of any type.
_WITHOUT_BYTES: Final = (
    *("cudaFree", "cudaFreeAsync", "cudaFreeHost", "cudaHostFree", "cudaPointerGetAttributes"),
    *("cudaHostGetDevicePointer", "cudaHostRegister", "cudaHostUnregister"),
)
_COPIES: Final = ("cudaMemcpy", "cudaMemcpyAsync")
#: Copies between the host and a variable of the device: what takes their place, and which argument is the host's.
_OF_SYMBOLS: Final = {"cudaMemcpyToSymbol": ("copy_to_symbol", 1), "cudaMemcpyFromSymbol": ("copy_from_symbol", 0)}
_MAKE: Final = re.compile(r"make_double([234])")
#: The literal that is cast, after the type: ``(0.5)``.
_CAST_LITERAL: Final = re.compile(r"\(\s*(\d+\.?\d*(?:[eE][-+]?\d+)?)\s*\)")
#: Columns of a line.
_WIDTH: Final = 100


@dataclass(frozen=True, slots=True)
class Patch:
    """A program with other types.

    Attributes:
        files: all of its files.
        changed: those whose text is another.
        types: the precision of each type class, by name.
        notes: what could not be expressed, and what took its place.
    """

    files: tuple[SourceFile, ...]
    changed: tuple[SourceFile, ...]
    types: Mapping[str, str]
    notes: tuple[str, ...]


def own_types(classes: TypeClasses) -> dict[str, str]:
    """Return the precision that each type class has in the program, by name; "" for one there is no name for."""
    return {each.name: PRECISIONS.get(each.scalar, "") for each in classes.classes}


@dataclass(slots=True)
class _Parameter:
    """A parameter of a function template that is a type, in one instantiation.

    Attributes:
        function: the instantiation.
        name: the parameter's.
        own: the type that it stands for in the program.
        places: where the template is named, each with the function that does so (its label; "" for several).
        varies: whether other instantiations of the template have another type for it.
        new: the type that it stands for from now on.
        is_free: whether that can be another one.
    """

    function: Function
    name: str
    own: str
    places: tuple[tuple[Extent, str], ...]
    varies: bool
    new: str = field(init=False)
    is_free: bool = True

    def __post_init__(self) -> None:
        self.new = self.own


@dataclass(frozen=True, slots=True)
class _HostParameter:
    """A type that a function of the host gets as a parameter of its template, since its calls have several.

    Attributes:
        name: the parameter's.
        default: what the function has there in the program, as it is written.
        own: the type that this is in each call; calls are as those of a :class:`TypeSlot`.
        types: what it stands for in each call from now on.
        places: where it is written.
        is_deduced: whether calls need not write it: it is the type of what a parameter points at.
    """

    name: str
    default: str
    own: Mapping[tuple[Extent, ...], str]
    types: Mapping[tuple[Extent, ...], str]
    places: frozenset[Extent]
    is_deduced: bool


class Patcher:
    """Decides which types can be had, then edits.

    Attributes:
        types: the precision of each class, by name.
    """

    def __init__(self, program: Program, classes: TypeClasses, wanted: Mapping[str, str]) -> None:
        self._program, self._classes = program, classes
        self._by_name = {each.name: each for each in classes.classes}
        self._own = own_types(classes)
        self._edits = Edits(program.files)
        self._is_hip = any("hip/hip_runtime" in file.text for file in program.files)
        self._functions = {f.label: f for unit in program.units for f in unit.functions}
        #: Functions that files need for copies: by file, those of names, and those of vectors (to, from).
        self._helpers: dict[object, set[str]] = {}
        self._vector_copies: dict[object, set[tuple[str, str]]] = {}
        self._parameters = {(each.function.label, each.name): each for each in self._template_parameters()}
        self._can_be_templates = _can_be_templates(program)
        self._shared = _called_by_host(self._functions.values())
        self._words = {token.text for file in program.files for token in tokens(file.text)}
        self._host_parameters: dict[Extent, list[_HostParameter]] = {}
        #: The labels of the functions that calls of the host are of.
        self._called: dict[tuple[Extent, ...], str] = {}
        self.want(wanted)

    def want(self, wanted: Mapping[str, str]) -> None:
        """Begin with these precisions of classes, and the program's own for all others."""
        self.types = {**self._own, **{name: wanted[name] for name in wanted if name in self._own}}
        self._why: dict[str, str] = {}
        #: Classes of constants that the host uses, too: they are converted where kernels use them.
        self._at_uses: set[str] = set()
        for each in self._parameters.values():
            each.new, each.is_free = each.own, True

    # -- which types can be had ------------------------------------------------------------------

    def settle(self) -> None:
        """Take wider types for the classes whose type cannot be written where it would have to be."""
        self._settle_vectors()
        self._settle_host_functions()
        self._settle_storage()
        for raw in self._classes.raw:
            if raw.type_class not in self._at_uses:
                self._keep([raw.type_class], f"{raw.why} at {raw.extent}")
        for copy in self._classes.copies:
            self._settle_copy(copy)
        self._settle_texts()

    def _settle_texts(self) -> None:
        """Take one type where one text has several."""
        for _ in self._classes.classes:  # each round widens one class at least, or settles a template
            before = dict(self.types), [each.new for each in self._parameters.values()]
            self._settle_vectors()
            self._settle_templates()
            self._settle_places()
            self._settle_host_calls()
            self._settle_reads()
            if before == (self.types, [each.new for each in self._parameters.values()]):
                break

    def _widen(self, names: Iterable[str], precision: str, why: str) -> None:
        """Give classes a type at least as wide as another, and say so where that is not the one wanted."""
        for name in names:
            own = self._own[name]
            new = precision if own and _BITS[precision] <= _BITS[own] else own
            if self._bits(name) < _BITS.get(new, 64) and self.types[name] != new:
                self.types[name] = new
                self._why[name] = why

    def why(self, name: str) -> str:
        """Return why a class has another type than wanted; "" if it has the type wanted."""
        return self._why.get(name, "")

    def notes(self) -> tuple[str, ...]:
        """Say which classes have another type than wanted, and why; those of one reason together."""
        found: dict[tuple[str, str], list[str]] = {}
        for name, why in self._why.items():
            found.setdefault((SPELLED.get(self.types[name], self._by_name[name].scalar), why), []).append(name)
        return tuple(f"{', '.join(names)}: {new} instead, since {why}" for (new, why), names in found.items())

    def _keep(self, names: Iterable[str], why: str) -> None:
        self._widen([name for name in names if name], "fp64", why)

    def _bits(self, name: str) -> int:
        return _BITS.get(self.types[name], 64)

    def _is_changed(self, name: str) -> bool:
        return bool(name) and self.types[name] != self._own[name]

    def _widest(self, names: Iterable[str]) -> str:
        found = list(dict.fromkeys(self.types[name] for name in names))
        widest = max(found, key=lambda precision: _BITS.get(precision, 64))
        return "fp32" if {"fp16", "bf16"} <= set(found) and _BITS[widest] == 16 else widest

    def _settle_vectors(self) -> None:
        """Structs such as double3 convert to no others: all of them have one type, of 32 bits at least."""
        vectors = [each.name for each in self._classes.classes if any(slot.components > 1 for slot in each.slots)]
        narrow = [name for name in vectors if self._bits(name) == 16]
        self._widen(narrow, "fp32", "vectors such as double3 have no type of 16 bits")
        changed = [name for name in vectors if self._own[name] == "fp64"]
        if changed:
            self._widen(changed, self._widest(changed), "vectors of different types do not convert to each other")

    def _settle_host_functions(self) -> None:
        """Functions of the device that the host calls as well compute there what they did."""
        for each in self._classes.classes:
            name = next((self._shared[slot.function] for slot in each.slots if slot.function in self._shared), "")
            if name:
                self._keep([each.name], f"the host calls {name} as well")

    def _settle_storage(self) -> None:
        """Let 16 bits be for arrays in memory; constants that the host uses, too, are left as they are declared."""
        variables = {need.extent for k in self._program.kernels for need in k.needs if need.kind == "variable"}
        used_by_host = {read.type_class for read in self._classes.reads if not read.is_device}
        for each in self._classes.classes:
            is_constant = each.role == "constant"
            is_variable = is_constant and any(member.extent in v for member in each.members for v in variables)
            if is_variable and each.name in used_by_host and self._is_changed(each.name):
                self._at_uses.add(each.name)
            if self._bits(each.name) > 16:
                continue
            if each.role not in ("buffer", "shared") and not (is_constant and self._is_copied_to(each)):
                what = "constants with values have" if is_constant and not is_variable else "a single number has"
                self._widen([each.name], "fp32", f"{what} no type of 16 bits")

    def _is_copied_to(self, each: TypeClass) -> bool:
        """Whether a table in constant memory has its values from a copy alone."""
        tables = [member for member in each.members if member.kind == "constant"]
        return all(
            member.is_pointer and not re.match(r"[^;,]*=", self._after(member.extent)) for member in tables
        ) and bool(tables)

    def _after(self, extent: Extent) -> str:
        return self._source(extent).text[extent.end : extent.end + 200]

    def _settle_copy(self, copy: Copy) -> None:
        """Keep the type of memory that the program does more with than can be written for another type."""
        names = [name for name in copy.classes if self._is_changed(name)]
        if not names or copy.name in _WITHOUT_BYTES or copy.name.startswith("cudaFuncSet"):
            return
        where = f"at {copy.call}"
        if copy.name not in _BYTES or len(copy.arguments) <= _BYTES[copy.name]:
            self._keep(names, f"{copy.name} {where} takes memory of its type")
        elif not self._text(copy.call).startswith(_spelled(copy.name, self._is_hip)):
            self._keep(names, f"{copy.name} {where} is called by a macro")
        elif copy.name.startswith("cudaMemset"):
            if self._text(copy.arguments[1]).strip() not in ("0", "0x0", "0x00", "'\\0'"):
                self._keep(names, f"{copy.name} {where} sets bytes that mean another number in another type")
        elif self._converts(copy):
            device = self._device_side(copy)
            own = {self._by_name[copy.classes[device]].scalar} if device is not None and copy.classes[device] else set()
            host = _OF_SYMBOLS.get(copy.name, ("", None))[1]
            sides = copy.elements[:2] if host is None else copy.elements[host : host + 1]
            if len(names) > 1 or {re.sub(r"\d$", "", element) for element in sides} != own:
                self._keep(names, f"what the copy {where} takes does not say its type")

    def _converts(self, copy: Copy) -> bool:
        """Whether the two sides of a copy get different types: one is an array of the host that keeps its own."""
        if copy.name not in (*_COPIES, *_OF_SYMBOLS) or "DeviceToDevice" in self._direction(copy):
            return False
        return not copy.classes[0] or copy.classes[0] != copy.classes[1]

    def _direction(self, copy: Copy) -> str:
        return self._text(copy.arguments[3]) if copy.name in _COPIES and len(copy.arguments) > 3 else ""

    def _device_side(self, copy: Copy) -> int | None:
        """Return which argument of a copy to or from the host is the device's."""
        if copy.name in _OF_SYMBOLS:
            return 1 - _OF_SYMBOLS[copy.name][1]
        sides = [side for side, name in enumerate(copy.classes[:2]) if name]
        if "Default" in self._direction(copy) and len(sides) == 1:
            return sides[0]
        return 0 if "HostToDevice" in self._direction(copy) else 1 if "DeviceToHost" in self._direction(copy) else None

    def _template_parameters(self) -> Iterator[_Parameter]:
        """Yield the parameters of function templates that are types."""
        places: dict[str, list[tuple[Extent, str]]] = {}
        for site in self._program.launches:
            around = [function.label for function in self._functions.values() if site.callee in function.body]
            places.setdefault(site.kernel, []).append((site.callee, around[0] if len(around) == 1 else ""))
        for kernel in self._program.kernels:
            for caller, calls in ((kernel.label, kernel.calls), *((need.label, need.calls) for need in kernel.needs)):
                for call in calls:
                    places.setdefault(call.label, []).append((call.extent, caller))
        for label, function in self._functions.items():
            others = [other for other in self._functions.values() if other.extent == function.extent]
            for index, each in enumerate(function.arguments):
                if each.kind == "typename":
                    varies = any(other.arguments[index].value != each.value for other in others)
                    at = tuple(dict.fromkeys(places.get(label, ())))
                    yield _Parameter(function, each.name, each.value, at, varies)

    def _settle_templates(self) -> None:
        """Decide what parameters of function templates stand for.

        It is the type of all that the function is given and returns, if that is one. Other types are written out in the
        text, unless another instantiation shares it.
        """
        found: dict[tuple[str, str], list[tuple[TypeSlot, TypeClass]]] = {}
        for each, slot in self._slots():
            if (slot.function, slot.spelled) in self._parameters and self._definition(slot) is None:
                found.setdefault((slot.function, slot.spelled), []).append((slot, each))
        for key, slots in found.items():
            parameter = self._parameters[key]
            given = [pair for pair in slots if parameter.varies or self._is_signature(*pair)] or slots
            is_deduced = any(self._written_argument(place, parameter) is None for place, _ in parameter.places)
            if len({self._type_at(*pair) for pair in given}) > 1 and (parameter.varies or is_deduced):
                names = [each.name for _, each in given]
                why = f"{parameter.function.label} has one type {parameter.name} for them"
                self._widen(names, self._widest(names), why)
            types = {self._type_at(*pair) for pair in given}
            parameter.is_free &= parameter.function.is_device and not self._is_elsewhere(parameter, slots)
            parameter.new = types.pop() if len(types) == 1 and parameter.is_free else parameter.own
        for key, slots in found.items():
            if why := self._why_not(self._parameters[key], slots):
                self._parameters[key].is_free, self._parameters[key].new = False, self._parameters[key].own
                self._keep([each.name for _, each in slots], why)

    def _why_not(self, parameter: _Parameter, slots: Sequence[tuple[TypeSlot, TypeClass]]) -> str:
        """Say why the types of a template cannot be written; "" if they can."""
        label = parameter.function.label
        if parameter.varies and any(self._type_at(*pair) != parameter.new for pair in slots):
            return f"{label} has its text in common with other types of {parameter.name}"
        tops = (node for unit in self._program.units for node in unit.top if node.kind == "FUNCTION_TEMPLATE")
        declared = next((n.extent for n in tops if n.spelling == parameter.function.name), parameter.function.extent)
        written_out = any(self._is_signature(*pair) and self._type_at(*pair) != parameter.new for pair in slots)
        if written_out and declared != parameter.function.extent:
            return f"{label} is declared with {parameter.name} at {declared}, too"
        for place, caller in parameter.places:
            named = self._named_anew(place, caller, parameter)
            if named is not None and self._is_shared(place):
                return f"{label} is launched by a template, or called by one, with other types at {place}"
            if named is not None and named.start == named.end and "..." in self._explicit(parameter.function):
                return f"not all arguments of {label} can be written at {place}"
        return ""

    def _type_at(self, slot: TypeSlot, each: TypeClass) -> str:
        """Return the type that is to be at a slot, also where it is written with the parameter of a template."""
        new, parameter = self._spell(slot, each), self._parameters.get((slot.function, slot.spelled))
        return parameter.own if parameter is not None and new == parameter.name else new

    def _is_signature(self, slot: TypeSlot, each: TypeClass) -> bool:
        """Whether a slot is of what a function is given or returns."""
        kinds = {member.kind for member in each.members if member.slot == slot}
        return not kinds.isdisjoint(("parameter", "result"))

    def _is_elsewhere(self, each: _Parameter, slots: Sequence[tuple[TypeSlot, TypeClass]]) -> bool:
        """Whether a template has its parameter where it is no type of numbers: ``Grid<T>``, ``sizeof(T)``."""
        whole = each.function.extent
        header = re.match(r"template\s*<[^{;()]*?>", self._text(whole))
        start = whole.start + (header.end() if header is not None else 0)
        known = {slot.extent.start for slot, _ in slots}
        for other in self._parameters.values():
            of_it = (place for place, caller in other.places if caller == each.function.label)
            known |= {written.start for place in of_it if (written := self._written_argument(place, other))}
        named = (whole.start + token.start for token in tokens(self._text(whole)) if token.text == each.name)
        return any(at >= start and at not in known for at in named)

    def _is_shared(self, place: Extent) -> bool:
        """Whether several instantiations of a template are named at one place."""
        named = {each.function.label for each in self._parameters.values() if any(at == place for at, _ in each.places)}
        return len(named) > 1

    def _named_anew(self, place: Extent, caller: str, each: _Parameter) -> Extent | None:
        """Return what has to be written where a template is named, of no length for all arguments; None for nothing."""
        written = self._written_argument(place, each)
        if written is not None:
            around = self._parameters.get((caller, self._text(written)))
            return written if each.new != (each.own if around is None else around.new) else None
        is_deduced = each.new == each.own or all(
            re.match(r"[^,)]*[*\[]", self._after(slot.extent))
            for c, slot in self._slots()
            if slot.function == each.function.label and slot.spelled == each.name and self._is_signature(slot, c)
        )
        return None if is_deduced else Extent(place.file, place.end, place.end, place.line)

    def _explicit(self, function: Function) -> str:
        """Return the arguments of a template as they are written."""
        known = {name: each.new for (label, name), each in self._parameters.items() if label == function.label}
        return f"<{', '.join(known.get(a.name, a.value) for a in function.arguments)}>"

    def _written_argument(self, place: Extent, each: _Parameter) -> Extent | None:
        """Return where an argument of a template is written; None where it follows from the call."""
        text = self._text(place)
        index = [argument.name for argument in each.function.arguments].index(each.name)
        opening = text.find("<")
        start, depth, count = opening + 1, 0, 0
        for at in range(opening + 1, len(text) if opening >= 0 else 0):
            if text[at] in "(<[":
                depth += 1
            elif depth == 0 and text[at] in ",>":
                if count == index:
                    piece = text[start:at]
                    begin, end = start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
                    return Extent(place.file, place.start + begin, place.start + end, place.line)
                start, count = at + 1, count + 1
            elif text[at] in ")>]":
                depth -= 1
        return None

    def _settle_places(self) -> None:
        """Take one type where one place in the text gives several."""
        found: dict[Extent, list[tuple[TypeSlot, TypeClass]]] = {}
        for each, slot in self._slots():
            parameter = self._parameters.get((slot.function, slot.spelled))
            if parameter is None or not parameter.varies:
                found.setdefault(slot.extent, []).append((slot, each))
        for place, slots in found.items():
            names = list(dict.fromkeys(each.name for _, each in slots))
            if len({self._type_at(slot, each) for slot, each in slots}) < 2:
                continue
            if all(slot.declarator for slot, _ in slots) and can_split(self._source(place).text, place):
                continue
            if all(self._definition(slot) is not None for slot, _ in slots):
                continue
            why = f"one {slots[0][0].spelled} at {place} is the type of all"
            if len({self._own[name] for name in names}) == 1:
                self._widen(names, self._widest(names), why)
            else:
                self._keep(names, why)

    def _definition(self, slot: TypeSlot) -> Extent | None:
        """Return the function of the host that a slot is in, if it can become a template for the types of its calls."""
        function = self._functions.get(slot.function) if slot.call and not slot.declarator else None
        return function.extent if function is not None and function.extent in self._can_be_templates else None

    def _settle_host_calls(self) -> None:
        """Give functions of the host parameters for the types that their calls have; these calls name them."""
        self._host_parameters, self._called = {}, {}
        by_definition: dict[Extent, dict[Extent, dict[tuple[Extent, ...], tuple[TypeSlot, str]]]] = {}
        for each, slot in self._slots():
            if (definition := self._definition(slot)) is not None:
                places = by_definition.setdefault(definition, {})
                places.setdefault(slot.extent, {})[slot.call] = slot, self._type_at(slot, each)
        taken = self._words
        for definition, places in by_definition.items():
            self._called |= {call: slot.function for types in places.values() for call, (slot, _) in types.items()}
            is_alone = sum(function.extent == definition for function in self._functions.values()) == 1
            groups: dict[tuple[tuple[tuple[Extent, ...], str], ...], dict[Extent, TypeSlot]] = {}
            for place, types in places.items():
                own = {call: _own_type(slot) for call, (slot, _) in types.items()}
                new = {call: own[call] if text == slot.spelled else text for call, (slot, text) in types.items()}
                if new != own and (not is_alone or len(set(new.values())) > 1):
                    groups.setdefault(tuple(new.items()), {})[place] = next(slot for slot, _ in types.values())
            found: list[_HostParameter] = []
            for types_of_calls, at in groups.items():
                numbered = (f"Real{number or ''}" for number in (0, *range(2, 2 + len(taken) + len(found))))
                name = next(each for each in numbered if each not in (*taken, *(other.name for other in found)))
                first, is_deduced = next(iter(at)), any(map(self._is_pointed_at, at.values()))
                own = {call: _own_type(slot) for call, (slot, _) in places[first].items()}
                default = at[first].spelled
                found.append(_HostParameter(name, default, own, dict(types_of_calls), frozenset(at), is_deduced))
            self._host_parameters[definition] = sorted(found, key=lambda each: each.is_deduced)
        for written, (_, calls) in self._calls_in_text().items():
            if None in self._arguments_of(written):
                within = set(calls)
                names = [each.name for each, slot in self._slots() if slot.call in within]
                is_one = len({self.types[name] for name in names}) == 1  # the call cannot name any type
                self._widen(names, "fp64" if is_one else self._widest(names), f"the call at {written} has one type")

    def _is_pointed_at(self, slot: TypeSlot) -> bool:
        """Whether a slot is the type that a parameter of a function of the host points at."""
        parameters = self._functions[slot.function].parameters
        is_of_parameter = any(each.extent is not None and slot.extent in each.extent for each in parameters)
        return is_of_parameter and re.match(rf"{_COMMENTS}(?:const\b\s*)?\*", self._after(slot.extent)) is not None

    def _calls_in_text(self) -> dict[Extent, tuple[Extent, list[tuple[Extent, ...]]]]:
        """Return the calls of functions of the host that have parameters: the definition, and the calls around each."""
        found: dict[Extent, tuple[Extent, list[tuple[Extent, ...]]]] = {}
        for definition, parameters in self._host_parameters.items():
            for call in parameters[0].types if parameters else ():
                found.setdefault(call[-1], (definition, []))[1].append(call)
        return found

    def _arguments_of(self, written: Extent) -> list[str | None]:
        """Return the types that a call of a function of the host has to write; None for one that it cannot write."""
        definition, calls = self._calls_in_text()[written]
        outer = next((found for around, found in self._host_parameters.items() if written in around), [])
        given: list[str | None] = []
        shown = 0
        for each in self._host_parameters[definition]:
            types = [each.types[call] for call in calls]
            same = [other.name for other in outer if [other.types.get(call[:-1]) for call in calls] == types]
            given.append(next(iter(same), None) if len(set(types)) > 1 else types[0])
            is_own = all(each.types[call] == each.own[call] for call in calls)
            shown = len(given) if not each.is_deduced and not is_own else shown
        function = self._functions[self._called[calls[0]]]
        is_named = re.search(rf"\b{function.name}\s*(<.*)?$", self._callee(written), re.DOTALL) is not None
        return given[:shown] if is_named else [None] * shown

    def _callee(self, written: Extent) -> str:
        """Return the text of a call up to its arguments."""
        return self._text(written)[: _arguments_at(self._text(written))].rstrip()

    def _settle_reads(self) -> None:
        """What is made a float where it is used must not be a double in another instantiation."""
        found: dict[Extent, set[str]] = {}
        for read in self._classes.reads:
            found.setdefault(read.extent, set()).add(read.type_class)
        for place, names in found.items():
            if len(names) > 1 and {self._bits(name) for name in names} >= {16, 64}:
                self._widen(names, "fp32", f"{self._text(place)} at {place} is both")

    def _slots(self) -> Iterator[tuple[TypeClass, TypeSlot]]:
        return ((each, slot) for each in self._classes.classes for slot in each.slots)

    def _spell(self, slot: TypeSlot, each: TypeClass) -> str:
        """Return the type that is to be at a slot."""
        if not self._is_changed(each.name) or each.name in self._at_uses:
            return slot.spelled
        name = self._name(each.name)
        return f"{name}{slot.components}" if slot.components > 1 else name

    def _name(self, type_class: str) -> str:
        precision = self.types[type_class]
        return _HIP_BF16 if self._is_hip and precision == "bf16" else SPELLED[precision]

    # -- the text --------------------------------------------------------------------------------

    def edit(self) -> None:
        """Change the types, and what follows from them."""
        kept = self._edit_copies()
        self._edit_templates()
        self._edit_host_functions()
        self._edit_slots(kept)
        self._edit_reads()
        self._edit_reads_of_host()
        self._edit_braced()
        self._edit_literals()
        self._edit_vectors()

    def _edit_host_functions(self) -> None:
        """Make templates of the functions of the host whose calls have several types, and name these in the calls."""
        for definition, parameters in self._host_parameters.items():
            if not parameters:
                continue
            declared = ", ".join(f"typename {each.name} = {each.default}" for each in parameters)
            text = self._text(definition)
            if header := re.match(r"template\s*<([^{;()]*?)>(?=\s*[\w_])", text):
                self._edits.insert(definition.file, definition.start + header.end(1), f", {declared}")
            else:
                line = self._source(definition).text[: definition.start].rpartition("\n")[2]
                indent = line if line.isspace() else ""
                self._edits.insert(definition.file, definition.start, f"template <{declared}>\n{indent}")
        for written, (_, (call, *_)) in self._calls_in_text().items():
            if given := [each for each in self._arguments_of(written) if each is not None]:
                callee = self._callee(written)
                end = written.start + len(callee)
                if callee.endswith(">"):
                    self._edits.insert(written.file, end - 1, "".join(f", {each}" for each in given))
                else:
                    own = (each.value for each in self._functions[self._called[call]].arguments)
                    self._edits.insert(written.file, end, f"<{', '.join((*own, *given))}>")

    def _host_parameter(self, slot: TypeSlot) -> str:
        """Return the parameter that a slot in a function of the host is written with; "" for none."""
        definition = self._definition(slot)
        parameters = self._host_parameters.get(definition, []) if definition is not None else []
        return next((each.name for each in parameters if slot.extent in each.places), "")

    def _edit_slots(self, kept: Collection[Extent] = ()) -> None:
        """Change the types where they are written, but for some places."""
        lists: dict[Extent, dict[str, str]] = {}
        for each, slot in self._slots():
            new, parameter = self._type_at(slot, each), self._parameters.get((slot.function, slot.spelled))
            if parameter is not None and new == parameter.new:
                new = parameter.name
            new = self._host_parameter(slot) or new
            if slot.declarator:
                lists.setdefault(slot.extent, {})[slot.declarator] = new
            elif new != slot.spelled and slot.extent not in kept:
                cast = _CAST_LITERAL.match(self._after(slot.extent)) if new == "float" else None
                length = cast.end() if cast is not None else 0
                place = Extent(slot.extent.file, slot.extent.start, slot.extent.end + length, slot.extent.line)
                self._edits.replace(place, new if cast is None else f"{cast[1]}{'.0' * cast[1].isdigit()}f")
        for place, names in lists.items():
            for piece, text in with_types(self._source(place).text, place, names).items():
                self._edits.replace(piece, text)

    def _edit_templates(self) -> None:
        new: dict[Extent, str] = {}
        for each in self._parameters.values():
            for place, caller in each.places:
                if (named := self._named_anew(place, caller, each)) is not None:
                    new[named] = each.new if named.start < named.end else self._explicit(each.function)
        for place, text in new.items():
            self._edits.replace(place, text)

    def _edit_reads(self) -> None:
        done: set[Extent] = set()
        for read in self._classes.reads:
            if read.is_stored or read.extent in done or not self._is_changed(read.type_class):
                continue
            # (Constants that the host uses are as they were.)
            is_constant = read.type_class in self._at_uses
            if (is_constant and read.is_device) or (not is_constant and self._bits(read.type_class) == 16):
                done.add(read.extent)
                wide = "float" if read.is_device else self._by_name[read.type_class].scalar
                self._edits.surround(read.extent, f"{wide}(", ")")

    def _edit_reads_of_host(self) -> None:
        """Let the host compute with numbers of 32 bits as it did."""
        found: dict[Extent, str] = {}
        for read in self._classes.reads:
            name = read.type_class
            is_wider = self._is_changed(name) and name not in self._at_uses and self._bits(name) == 32
            if is_wider and not read.is_device and not read.is_stored:
                found[read.extent] = self._by_name[name].scalar
        for place, scalar in found.items():
            self._edits.surround(place, f"{scalar}(", ")")

    def _edit_braced(self) -> None:
        """Cast numbers in braces to narrower types, to which C++ does not convert them by itself."""
        by_place = {each.extent: each for each in reversed(self._classes.braced)}
        for each in by_place.values():
            is_narrow = self._is_changed(each.type_class) and self.types[each.type_class] == "fp32"
            is_own = each.is_device and bool(each.meets) and all(self._bits(name) < 64 for name in each.meets)
            if is_narrow and each.type_class not in self._at_uses and not is_own:
                self._edits.surround(each.extent, "float(", ")")

    def _edit_literals(self) -> None:
        """Let literals not make narrow arithmetic double."""
        found: dict[Extent, list[bool]] = {}
        text_of: dict[Extent, str] = {}
        for literal in self._classes.literals:
            narrow = bool(literal.meets) and all(self._bits(name) < 64 for name in literal.meets)
            changed = any(self._is_changed(name) for name in literal.meets)
            found.setdefault(literal.extent, []).append(literal.scalar == "double" and narrow and changed)
            text_of[literal.extent] = literal.text
        bodies = [function.extent for function in self._functions.values()]
        for place, is_narrow in found.items():
            text = text_of[place]
            if not all(is_narrow) or self._is_cast(place):
                continue
            if not text.startswith((".", *string.digits)):
                self._edits.replace(place, f"float({text})")
            elif any(place in body for body in bodies) or _is_exact(text):
                # (In the body of a macro, which the host may use, only what means the same number.)
                self._edits.replace(place, f"{text.rstrip('lL')}f")

    def _is_cast(self, literal: Extent) -> bool:
        """Whether a literal is cast: ``T(0.5)``, ``(float)0.5``."""
        ends = (m.extent.end for each in self._classes.classes for m in each.members if m.kind == "cast")
        text = self._source(literal).text
        near = (text[end : literal.start] for end in ends if 0 < literal.start - end < 6)
        return any(between.rstrip("+- ").strip() in ("(", ")", ">(") for between in near)

    def _edit_vectors(self) -> None:
        """Make vectors of the new type in code of the device."""
        if not any(slot.components > 1 and self._spell(slot, each) != slot.spelled for each, slot in self._slots()):
            return
        done: set[Extent] = set()
        for function in self._functions.values():
            for token in tokens(self._text(function.extent)) if function.is_device else ():
                made = _MAKE.fullmatch(token.text)
                start = function.extent.start + token.start
                place = Extent(function.extent.file, start, start + len(token.text), 0)
                if made and place not in done:
                    done.add(place)
                    self._edits.replace(place, f"make_float{made[1]}")

    # -- copies ----------------------------------------------------------------------------------

    def _edit_copies(self) -> set[Extent]:
        """Convert what is copied between host and device; return the places whose types stay: those of the host."""
        kept: set[Extent] = set()
        counts: dict[Extent, Resized] = {}
        done: set[Extent] = set()
        for copy in self._classes.copies:
            name = next((name for name in copy.classes if self._is_changed(name)), "")
            if not name or copy.name not in _BYTES or copy.call in done:
                continue
            done.add(copy.call)  # (a function of the host has its copies once for each call of it)
            size = copy.arguments[_BYTES[copy.name]]
            is_of_device = self._is_changed(copy.sizes[_BYTES[copy.name]])
            sizes = {slot.extent for slot in self._by_name[name].slots if slot.extent in size}
            if self._converts(copy):
                kept |= sizes
                resized = self._resized(name, copy.call)
                self._convert(copy, self._by_name[name].scalar, self._name(name), resized)
                if is_of_device and not sizes:
                    own, new = self._by_name[name].scalar, resized.names[self._by_name[name].scalar]
                    self._edits.replace(size, f"{self._text(size)} / sizeof({new}) * sizeof({own})")
            elif not is_of_device:
                counts[size] = self._resized(name, copy.call)
        counts |= self._shared_bytes()
        slots = {slot.extent for _, slot in self._slots()} - kept
        for place, new in (ByteCounts(self._program).changes(counts, slots) if counts else {}).items():
            self._edits.replace(place, new)
        return kept

    def _resized(self, name: str, place: Extent) -> Resized:
        """Return how numbers of bytes of a class are written with its new type at a place."""
        own, slots = self._by_name[name].scalar, self._by_name[name].slots
        here = (slot for slot in slots if (definition := self._definition(slot)) is not None and place in definition)
        if named := {slot.spelled: each for slot in here if (each := self._host_parameter(slot))}:
            of_all = next(iter(named.values()))
            return Resized({own: of_all, **named}, f" / sizeof({own}) * sizeof({of_all})")
        names = {slot.spelled: self._spell(slot, self._by_name[name]) for slot in slots}
        return Resized({own: self._name(name), **names}, f" / {_BITS[self._own[name]] // _BITS[self.types[name]]}")

    def _shared_bytes(self) -> dict[Extent, Resized]:
        """Return where launches say how many bytes of shared memory arrays have whose type changes."""
        found: dict[Extent, Resized] = {}
        for site in (site for site in self._program.launches if site.shared is not None):
            arrays = {
                member
                for each in self._classes.classes
                for member in each.members
                if member.kind == "shared" and member.function == site.kernel
                if "extern" in _beginning(self._source(member.extent).text, member.slot.extent)
            }
            names = {c.name for c in self._classes.classes if not arrays.isdisjoint(c.members)}
            if len(arrays) == 1 and self._is_changed(name := names.pop()) and site.shared is not None:
                found[site.shared] = Resized(self._resized(name, site.shared).names, "")
        return found

    def _convert(self, copy: Copy, own: str, new: str, resized: Resized) -> None:
        """Convert the numbers of a copy between host and device."""
        is_symbol, file = copy.name in _OF_SYMBOLS, copy.call.file
        length = len(_spelled(copy.name, self._is_hip))
        written = f"{_OF_SYMBOLS[copy.name][0]}<{resized.names[own]}, {own}>" if is_symbol else "copy_converted"
        self._edits.replace(Extent(file, copy.call.start, copy.call.start + length, copy.call.line), written)
        helpers = self._helpers.setdefault(file, set())
        helpers |= {written.partition("<")[0], *(["copy_alike"] if resized.names[own] != new and not is_symbol else [])}
        device = self._device_side(copy)
        if "Default" in self._direction(copy):
            kind = "cudaMemcpyDeviceToHost" if device else "cudaMemcpyHostToDevice"
            self._edits.replace(copy.arguments[3], _spelled(kind, self._is_hip))
        vectors = [re.sub(r"^[a-z]+", new if i == device else own, each) for i, each in enumerate(copy.elements[:2])]
        if not is_symbol and re.search(r"\d$", "".join(copy.elements[:2])):
            to, source = vectors
            self._vector_copies.setdefault(file, set()).add((to, source))

    # -- files -----------------------------------------------------------------------------------

    def text(self, file: SourceFile) -> str:
        """Return the new text of a file, with the headers and helpers that it needs."""
        text = self._edits.file(file.path)
        if text == file.text:
            return text
        here = [each for each, slot in self._slots() if slot.extent.file == file.path]
        stored = {self.types[each.name] for each in here if self._is_changed(each.name)}
        helpers = self._helpers.get(file.path, set())
        names = [names[self._is_hip] for precision, names in _HEADERS.items() if precision in stored]
        names += ["vector"] if helpers else []
        lines = [f"#include <{name}>\n" for name in names if f"<{name}>" not in text]
        parts = [_HELPERS[name] for name in _HELPERS if name in helpers]
        parts += [_of_vectors(*each) for each in sorted(self._vector_copies.get(file.path, ()))]
        written = "".join(f"\n{part}" for part in parts)
        if self._is_hip:
            written = written.replace("cuda", "hip")
        text = _after_includes(_broken(text, file.text), "".join(lines), written)
        return text.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in file.text else text

    def _text(self, extent: Extent) -> str:
        return self._source(extent).of(extent)

    def _source(self, extent: Extent) -> SourceFile:
        return next(file for file in self._program.files if file.path == extent.file)


#: Spaces and comments; each can be read in one way only.
_COMMENTS: Final = r"(?:\s|//[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*"
_DECORATIONS: Final = ("const", "volatile", "__restrict__", "__restrict", "restrict")
_HELPERS: Final = {
    "copy_converted": """\
// Copies between an array of the host and one of another type on the device; the bytes are those of the host's.
template <class To, class From>
static cudaError_t copy_converted(To* to, const From* from, size_t bytes, cudaMemcpyKind kind,
                                  cudaStream_t stream = 0) {
    if (kind == cudaMemcpyHostToDevice) {
        const std::vector<To> converted(from, from + bytes / sizeof(From));
        const cudaError_t error =
            cudaMemcpyAsync(to, converted.data(), converted.size() * sizeof(To), kind, stream);
        return error != cudaSuccess ? error : cudaStreamSynchronize(stream);
    }
    std::vector<From> found(bytes / sizeof(To));
    cudaError_t error = cudaMemcpyAsync(found.data(), from, found.size() * sizeof(From), kind, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    for (size_t i = 0; i < found.size(); ++i) to[i] = found[i];
    return error;
}
""",
    "copy_alike": """\
template <class T>
static cudaError_t copy_converted(T* to, const T* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream = 0) {
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, stream);
    return error != cudaSuccess ? error : cudaStreamSynchronize(stream);
}
""",
    "copy_to_symbol": """\
// Copies an array of the host to a variable of another type on the device; bytes and offset are those of the host's.
template <class To, class From, class Symbol>
static cudaError_t copy_to_symbol(const Symbol& symbol, const void* from, size_t bytes, size_t offset = 0,
                                  cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
    const From* numbers = static_cast<const From*>(from);
    const std::vector<To> converted(numbers, numbers + bytes / sizeof(From));
    return cudaMemcpyToSymbol(symbol, converted.data(), converted.size() * sizeof(To),
                              offset / sizeof(From) * sizeof(To), kind);
}
""",
    "copy_from_symbol": """\
// Copies a variable of another type on the device to an array of the host; bytes and offset are those of the host's.
template <class From, class To, class Symbol>
static cudaError_t copy_from_symbol(void* to, const Symbol& symbol, size_t bytes, size_t offset = 0,
                                    cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
    std::vector<From> found(bytes / sizeof(To));
    const cudaError_t error = cudaMemcpyFromSymbol(found.data(), symbol, found.size() * sizeof(From),
                                                   offset / sizeof(To) * sizeof(From), kind);
    for (size_t i = 0; i < found.size(); ++i) static_cast<To*>(to)[i] = found[i];
    return error;
}
""",
}


def _of_vectors(to: str, source: str) -> str:
    """Return an overload of ``copy_converted`` for arrays of vectors."""
    return (
        f"static cudaError_t copy_converted({to}* to, const {source}* from, size_t bytes, cudaMemcpyKind kind,\n"
        "                                  cudaStream_t stream = 0) {\n"
        f"    return copy_converted(&to->x, &from->x, bytes, kind, stream);\n}}\n"
    )


def declarators(text: str, place: Extent) -> tuple[list[str], list[Extent]]:
    """Return the names of the declarators after a type, and the commas between them."""
    depth, names, commas, wanted, is_value = 0, [], [], True, False
    for token in tokens(text[place.end : place.end + 4000]):
        at = place.end + token.start
        if token.text in ("(", "[", "{"):
            depth += 1
        elif token.text in (")", "]", "}"):
            depth -= 1
        elif depth == 0 and token.text == ";":
            break
        elif depth == 0 and token.text == ",":
            commas.append(Extent(place.file, at, at + 1, place.line))
            wanted, is_value = True, False
        elif depth == 0 and token.text == "=":
            is_value = True
        elif wanted and not is_value and token.kind == "name" and token.text not in _DECORATIONS:
            names.append(token.text)
            wanted = False
        if depth < 0:
            break
    return names, commas


def _beginning(text: str, place: Extent) -> str:
    """Return what a declaration has before its type (``static const``, ``std::vector<``)."""
    return re.split(r"[;{}]|\n\s*#.*\n|//.*", text[max(0, place.start - 200) : place.start])[-1]


def _end(text: str, place: Extent, beginning: str) -> str:
    """Return what stands between a type and what is declared: it closes the templates that the type is given to."""
    closed = re.match(rf"(?:\s*(?:\[\])?\s*>){{{beginning.count('<')}}}", text[place.end :])
    return closed[0] if closed is not None else ""


def can_split(text: str, place: Extent) -> bool:
    """Whether the declaration that begins with a type, or with a template of it, can be written as several."""
    names, commas = declarators(text, place)
    beginning = _beginning(text, place)
    is_known = re.fullmatch(r"(?:\w|\s|::|<)*", beginning) is not None
    is_closed = _end(text, place, beginning).count(">") == beginning.count("<")
    return len(names) == len(commas) + 1 and is_known and is_closed


def with_types(text: str, place: Extent, new: Mapping[str, str]) -> dict[Extent, str]:
    """Return the changes of a declaration of several variables that give some of them another type, by name."""
    spelled = text[place.start : place.end]
    names, commas = declarators(text, place)
    types = [new.get(name, spelled) for name in names]
    changes = {place: types[0]} if types[0] != spelled else {}
    beginning = _beginning(text, place)
    closed = _end(text, place, beginning)
    indent = re.search(r"\n([ \t]*)[^\n]*$", beginning)
    for comma, (before, after) in zip(commas, itertools.pairwise(types), strict=False):
        if before != after:
            blank = re.match(r"\s*", text[comma.end :])
            end = comma.end + (blank.end() if blank else 0)
            split = f";\n{indent[1] if indent else ''}{beginning.lstrip()}{after}{closed} "
            changes[Extent(comma.file, comma.start, end, comma.line)] = split
    return changes


def _own_type(slot: TypeSlot) -> str:
    return f"{slot.scalar}{slot.components}" if slot.components > 1 else slot.scalar


def _arguments_at(call: str) -> int:
    """Return the place of the parenthesis that begins the arguments of a call."""
    depth = 0
    for at in range(len(call) - 1, -1, -1):
        depth += (call[at] == ")") - (call[at] == "(")
        if depth == 0:
            return at
    return 0


def _called_by_host(functions: Collection[Function]) -> dict[str, str]:
    """Return the functions of the device that the host calls as well: names by label."""
    usrs = {other.usr: other for other in functions if other.is_device and not other.is_kernel}
    bodies = (function.block for function in functions if not function.is_device)
    named = (node.referenced for body in bodies for node in body.walk() if node.kind in ("CALL_EXPR", "DECL_REF_EXPR"))
    called = {cursor.get_usr() for cursor in named if cursor is not None and cursor.kind.name.startswith("FUNCTION")}
    return {other.label: other.name for usr, other in usrs.items() if usr in called}


def _can_be_templates(program: Program) -> frozenset[Extent]:
    """Return the functions of the host that can become templates: declared once, where they are, and only called."""
    named, called = Counter[str](), Counter[str]()
    functions = [f for unit in program.units for f in unit.functions if not f.is_device]
    declared = {node.spelling for unit in program.units for node in unit.top if not node.cursor.is_definition()}
    for node in (node for function in functions for node in function.block.walk()):
        if node.kind in ("DECL_REF_EXPR", "MEMBER_REF_EXPR", "CALL_EXPR") and node.referenced is not None:
            (called if node.kind == "CALL_EXPR" else named)[node.referenced.get_usr()] += 1

    def may_be(function: Function) -> bool:
        cursor = function.node.cursor
        is_plain = cursor.kind.name in ("FUNCTION_DECL", "CXX_METHOD") and not cursor.is_virtual_method()
        is_here = cursor.semantic_parent == cursor.lexical_parent and function.name not in (*declared, "main")
        is_called = called[function.usr] == named[function.usr]
        return is_plain and is_here and is_called and not function.name.startswith("operator")

    return frozenset(function.extent for function in functions if may_be(function))


def _spelled(name: str, is_hip: bool) -> str:
    return re.sub("^cuda", "hip", name) if is_hip else name


def _is_exact(literal: str) -> bool:
    """Whether a literal is the same number in 32 bits."""
    try:
        value = float.fromhex(literal) if literal[:2] in ("0x", "0X") else float(literal.rstrip("lL"))
    except ValueError:
        return False
    with np.errstate(over="ignore"):
        return float(np.float32(value)) == value


def _after_includes(text: str, lines: str, helpers: str) -> str:
    """Return a file with further headers, and functions after them, behind the headers that it includes.

    Headers in a condition do not count.
    """
    if not lines and not helpers:
        return text
    depth, at = 0, 0
    is_guarded = re.match(rf"{_COMMENTS}#[ \t]*ifndef\b", text) is not None
    for line in re.finditer(r"^[ \t]*#[ \t]*(\w+)[^\n]*\n", text, re.MULTILINE):
        if re.search(r"^\w[^\n;]*\)\s*\{", text[at : line.start()], re.MULTILINE):
            break
        depth += line[1] in ("if", "ifdef", "ifndef")
        depth -= line[1] == "endif"
        ends_includes = line[1] == "endif" and at and not re.search(r"[;{}]", text[at : line.start()])
        if depth <= is_guarded and (line[1] == "include" or (ends_includes and depth == is_guarded)):
            at = line.end()
    if not at and (begin := re.match(rf"{_COMMENTS}(?:#[ \t]*pragma once[^\n]*\n)?", text)):
        at = begin.end()
    return text[:at] + lines + helpers + text[at:]


def _broken(text: str, own: str) -> str:
    """Return a text in which new lines are no longer than the program's longest, or 100 characters."""
    old = own.splitlines(keepends=True)
    limit = max(_WIDTH, *(len(line.rstrip()) for line in old), 0)
    known = set(old)
    lines = (line if line in known else _broken_line(line, limit) for line in text.splitlines(keepends=True))
    return "".join(lines)


def _broken_line(line: str, limit: int, *, is_rest: bool = False) -> str:
    commas: list[tuple[int, int]] = []
    depths = [len(line) - len(line.lstrip())]
    for token in tokens(line):
        if token.text in ("(", "{", "["):
            depths.append(token.start + 1)
        elif token.text in (")", "}", "]") and len(depths) > 1:
            depths.pop()
        elif token.text == "," and token.start < limit and (is_rest or len(depths) > 1):
            commas.append((token.start + 1, depths[-1]))
    is_whole = line.lstrip().startswith("#") or line.rstrip().endswith("\\") or "//" in line
    if len(line.rstrip()) <= limit or not commas or is_whole:
        return line
    at, column = commas[-1]
    return f"{line[:at]}\n{_broken_line(' ' * column + line[at:].lstrip(), limit, is_rest=True)}"
