"""A program's own text with other types: what a careful programmer would change by hand, and nothing else.

What is stored in 16 bits is computed with in fp32: a variable that is no array becomes a ``float``, and an element of
an array in 16 bits is made one where it is used. Where a type cannot be changed in place, the wider of the types that
share the place is taken, or the program's own, and a note says so.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mptune.adopt.classes import Copy, TypeClass, TypeClasses, TypeSlot
from mptune.adopt.geometry import Block, geometry
from mptune.adopt.number_types import PRECISIONS
from mptune.adopt.parsing import Edits, Extent, Function, SourceFile, TemplateArgument
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
    "cudaMemPrefetchAsync": 1, "cudaMemAdvise": 1,
}  # fmt: skip
#: Calls that are the same for memory of any type.
_WITHOUT_BYTES: Final = (
    *("cudaFree", "cudaFreeAsync", "cudaFreeHost", "cudaHostFree", "cudaPointerGetAttributes"),
    *("cudaHostGetDevicePointer", "cudaHostRegister", "cudaHostUnregister"),
)
_COPIES: Final = ("cudaMemcpy", "cudaMemcpyAsync")
_MAKE: Final = re.compile(r"make_double([234])")
_PLAIN_FACTORS: Final = re.compile(r"[\w.:>()\s*-]+")


@dataclass(frozen=True, slots=True)
class Patch:
    """A program with other types.

    Attributes:
        files: all of its files.
        changed: those whose text is another.
        types: the precision of each type class, by name.
        notes: what could not be expressed, and what took its place.
        blocks: of the kernels whose launches have the block that was wanted, by label.
    """

    files: tuple[SourceFile, ...]
    changed: tuple[SourceFile, ...]
    types: Mapping[str, str]
    notes: tuple[str, ...]
    blocks: Mapping[str, Block]


def own_types(classes: TypeClasses) -> dict[str, str]:
    """Return the precision that each type class has in the program, by name; "" for one there is no name for."""
    return {each.name: PRECISIONS.get(each.scalar, "") for each in classes.classes}


def patch(
    program: Program,
    classes: TypeClasses,
    wanted: Mapping[str, str],
    blocks: Mapping[str, Block] | None = None,
) -> Patch:
    """Change the types of a program, and its block sizes, in its text.

    Args:
        program: the program.
        classes: its type classes.
        wanted: the precision of each class that shall change, by name.
        blocks: the threads of a block along each axis, by the label of the kernel; 0 where they stay.
    """
    patcher = Patcher(program, classes, wanted)
    patcher.settle()
    patcher.edit()
    launches, found_blocks = geometry(program, blocks or {})
    patcher.replace(launches)
    files = tuple(SourceFile(file.path, patcher.text(file)) for file in program.files)
    changed = tuple(new for new, old in zip(files, program.files, strict=True) if new.text != old.text)
    return Patch(files, changed, dict(patcher.types), patcher.notes(), found_blocks)


class Patcher:
    """Decides which types can be had, then edits.

    Attributes:
        types: the precision of each class, by name.
    """

    def __init__(self, program: Program, classes: TypeClasses, wanted: Mapping[str, str]) -> None:
        self._program, self._classes = program, classes
        self._by_name = {each.name: each for each in classes.classes}
        self._own = own_types(classes)
        self.types = {**self._own, **{name: wanted[name] for name in wanted if name in self._own}}
        self._why: dict[str, str] = {}
        self._edits = Edits(program.files)
        self._is_hip = any("hip/hip_runtime" in file.text for file in program.files)
        self._functions = {f.label: f for unit in program.units for f in unit.functions}
        self._calls = {call.extent: call for call in program.calls}
        self._helpers: dict[object, set[str]] = {}
        #: Classes of constants that the host uses, too: they are converted where kernels use them.
        self._at_uses: set[str] = set()
        #: What parameters of function templates stand for from now on, by label and name, and those that stay.
        self._arguments: dict[tuple[str, str], str] = {}
        self._stay: set[tuple[str, str]] = set()

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
            before = dict(self.types), dict(self._arguments)
            self._settle_vectors()
            self._settle_templates()
            self._settle_places()
            self._settle_reads()
            if before == (self.types, self._arguments):
                break

    def _widen(self, names: Iterable[str], precision: str, why: str) -> None:
        """Give classes a type at least as wide as another, and say so where that is not the one wanted."""
        for name in names:
            own = self._own[name]
            new = precision if own and _BITS[precision] <= _BITS[own] else own
            if self._bits(name) < _BITS.get(new, 64) and self.types[name] != new:
                self.types[name] = new
                self._why[name] = why

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
        shared: dict[str, str] = {}
        for function in self._functions.values():
            if function.is_device:
                continue
            for node in function.block.walk():
                called = node.referenced if node.kind in ("CALL_EXPR", "DECL_REF_EXPR") else None
                name = called.get_usr() if called is not None and called.kind.name.startswith("FUNCTION") else ""
                for other in self._functions.values():
                    if other.usr == name and other.is_device and not other.is_kernel:
                        shared[other.label] = other.name
        for each in self._classes.classes:
            name = next((shared[slot.function] for slot in each.slots if slot.function in shared), "")
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
                self.types[each.name] = min("fp32", self._own[each.name], key=lambda p: _BITS[p])
                if is_constant and not is_variable:
                    self._widen([each.name], "fp32", "constants with values have no type of 16 bits")

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
        elif copy.name in (*_COPIES, "cudaMemcpyToSymbol") and not self._is_on_device(copy):
            device = self._device_side(copy)
            own = {self._by_name[copy.classes[device]].scalar} if device is not None and copy.classes[device] else set()
            sides = copy.elements[1:2] if copy.name == "cudaMemcpyToSymbol" else copy.elements[:2]
            if len(names) > 1 or {re.sub(r"\d$", "", element) for element in sides} != own:
                self._keep(names, f"what the copy {where} takes does not say its type")

    def _is_on_device(self, copy: Copy) -> bool:
        return copy.name in _COPIES and "DeviceToDevice" in self._direction(copy)

    def _direction(self, copy: Copy) -> str:
        return self._text(copy.arguments[3]) if len(copy.arguments) > 3 else ""

    def _device_side(self, copy: Copy) -> int | None:
        """Return which argument of a copy to or from the host is the device's."""
        if copy.name == "cudaMemcpyToSymbol" or "HostToDevice" in self._direction(copy):
            return 0
        return 1 if "DeviceToHost" in self._direction(copy) else None

    def _settle_templates(self) -> None:
        """Decide what parameters of function templates stand for.

        A template of one type takes another argument where all that it is given and returns agree on that, and has
        types written out in its text where they differ. One of several types has to name its parameter.
        """
        found: dict[tuple[str, str], list[tuple[TypeSlot, TypeClass]]] = {}
        for each, slot in self._slots():
            if (parameter := self._parameter(slot)) is not None:
                found.setdefault((slot.function, parameter), []).append((slot, each))
        for (label, parameter), slots in found.items():
            varies = self._varies(label, parameter)
            deciding = slots if varies else [pair for pair in slots if self._is_signature(*pair)]
            if varies and len({self._type_at(*pair) for pair in slots}) > 1:
                names = [each.name for _, each in slots]
                self._widen(names, self._widest(names), f"{label} has one type {parameter} for them")
            types = {self._type_at(*pair) for pair in deciding or slots}
            agree = len(types) == 1 and (label, parameter) not in self._stay
            own = self._function_argument(label, parameter)
            self._arguments[label, parameter] = types.pop() if agree else own
        for (label, parameter), slots in found.items():
            if not (why := self._why_not(label, parameter, slots)):
                continue
            self._stay.add((label, parameter))
            self._arguments[label, parameter] = self._function_argument(label, parameter)
            if self._why_not(label, parameter, slots):
                kept = [pair for pair in slots if self._varies(label, parameter) or self._is_signature(*pair)]
                for place, caller in self._instantiations(label):
                    written = self._written_argument(place, label, parameter)
                    if written is not None and self._is_shared(place):
                        kept += found.get((caller, self._text(written)), [])
                self._keep([each.name for _, each in kept], why)

    def _parameter(self, slot: TypeSlot) -> str | None:
        """Return the parameter of a function template that a slot is written with; None for a type."""
        function = self._functions.get(slot.function)
        types = {a.name for a in function.arguments if a.kind == "typename"} if function is not None else set()
        return slot.spelled if slot.spelled in types else None

    def _type_at(self, slot: TypeSlot, each: TypeClass) -> str:
        """Return the type that is to be at a slot, also where it is written with the parameter of a template."""
        new, parameter = self._spell(slot, each), self._parameter(slot)
        return self._function_argument(slot.function, parameter) if parameter is not None and new == parameter else new

    def _is_signature(self, slot: TypeSlot, each: TypeClass) -> bool:
        """Whether a slot is of what a function is given or returns."""
        kinds = {member.kind for member in each.members if member.slot == slot}
        return not kinds.isdisjoint(("parameter", "result"))

    def _function_argument(self, label: str, parameter: str) -> str:
        return next(a.value for a in self._functions[label].arguments if a.name == parameter)

    def _varies(self, label: str, parameter: str) -> bool:
        """Whether a template's parameter stands for several types in the program."""
        return len({self._function_argument(other.label, parameter) for other in self._instances(label)}) > 1

    def _instances(self, label: str) -> list[Function]:
        """Return the instantiations of the template that a function is one of."""
        return [other for other in self._functions.values() if other.extent == self._functions[label].extent]

    def _instantiations(self, label: str) -> Iterator[tuple[Extent, str]]:
        """Give the places where an instantiation is named, and the label of the function that does; "" for several.

        (Functions of the host are not looked through for what they call.)
        """
        for site in self._program.launches:
            if site.kernel == label:
                around = [function.label for function in self._functions.values() if site.callee in function.body]
                yield site.callee, around[0] if len(around) == 1 else ""
        for kernel in self._program.kernels:
            for caller, calls in ((kernel.label, kernel.calls), *((need.label, need.calls) for need in kernel.needs)):
                yield from ((call.extent, caller) for call in calls if call.label == label)

    def _why_not(self, label: str, parameter: str, slots: Sequence[tuple[TypeSlot, TypeClass]]) -> str:
        """Say why what a parameter stands for cannot be said where the template is named; "" if it can."""
        new, function = self._arguments[label, parameter], self._functions[label]
        is_own = new == self._function_argument(label, parameter)
        others = [pair for pair in slots if self._type_at(*pair) != new]
        if not is_own and (not function.is_device or self._is_elsewhere(label, parameter, slots)):
            return f"{label} has {parameter} where another type would mean something else"
        if others and self._varies(label, parameter):
            return f"{label} has its text in common with other types of {parameter}"
        if any(self._is_signature(*pair) for pair in others):
            for node in (node for unit in self._program.units for node in unit.top):
                is_same = node.kind == "FUNCTION_TEMPLATE" and node.spelling == function.name
                if is_same and node.extent != function.extent:
                    return f"{label} is declared with {parameter} at {node.extent}, too"
        for place, caller in self._instantiations(label):
            if self._named_anew(place, caller, label, parameter) is None:
                continue
            if self._is_shared(place):
                return f"{label} is launched by a template, too, or called by one, with other types at {place}"
            if self._explicit(label, place) is None:
                return f"not all arguments of {label} can be written at {place}"
        return ""

    def _is_elsewhere(self, label: str, parameter: str, slots: Sequence[tuple[TypeSlot, TypeClass]]) -> bool:
        """Whether a template has its parameter where it is no type of numbers: ``Grid<T>``, ``sizeof(T)``."""
        whole = self._functions[label].extent
        header = re.match(r"template\s*<[^{;()]*?>", self._text(whole))
        start = whole.start + (header.end() if header is not None else 0)
        known = {slot.extent.start for slot, _ in slots}
        for other in (function for function in self._functions.values() if function.arguments):
            for place, caller in self._instantiations(other.label):
                arguments = other.arguments if caller == label else ()
                written = (self._written_argument(place, other.label, argument.name) for argument in arguments)
                known |= {extent.start for extent in written if extent is not None}
        named = (whole.start + token.start for token in tokens(self._text(whole)) if token.text == parameter)
        return any(at >= start and at not in known for at in named)

    def _is_shared(self, place: Extent) -> bool:
        """Whether several instantiations of a template are named at one place."""
        called = {site.kernel for site in self._program.launches if site.callee == place}
        for kernel in self._program.kernels:
            calls = (*kernel.calls, *(call for need in kernel.needs for call in need.calls))
            called |= {call.label for call in calls if call.extent == place}
        return len(called) > 1

    def _named_anew(self, place: Extent, caller: str, label: str, parameter: str) -> Extent | None:
        """Return what has to be written where a template is named, of no length for all of its arguments; or None."""
        own, new = self._function_argument(label, parameter), self._arguments[label, parameter]
        written = self._written_argument(place, label, parameter)
        if written is not None:
            return written if self._arguments.get((caller, self._text(written)), own) != new else None
        return None if self._is_deduced(caller, label, parameter) else Extent(place.file, place.end, place.end, 0)

    def _is_deduced(self, caller: str, label: str, parameter: str) -> bool:
        """Whether what a template is given goes on to say what its parameter stands for."""
        own, new = self._function_argument(label, parameter), self._arguments[label, parameter]
        given = [
            (slot, each)
            for each, slot in self._slots()
            if slot.function == label and self._parameter(slot) == parameter
            if any(member.slot == slot and member.kind == "parameter" for member in each.members)
        ]
        changes = new != own or any(self._type_at(*pair) != own for pair in given)
        if all(re.match(r"[^,)]*[*\[]", self._after(slot.extent)) for slot, _ in given):
            return not changes or any(self._type_at(*pair) == new for pair in given)
        # What numbers have for a type is that of the arithmetic they come from.
        return not changes and not any(
            s.function == caller and self._is_changed(each.name) for each, s in self._slots()
        )

    def _explicit(self, label: str, place: Extent) -> str | None:
        """Return a template's arguments as they are written where it is named by its name; None if they are not known.

        (Those that are written there are replaced one by one.)
        """
        if "<" in self._text(place):
            return ""
        arguments = self._functions[label].arguments
        values = [self._arguments.get((label, a.name), a.value) for a in arguments]
        return f"<{', '.join(values)}>" if "..." not in values else None

    def _written_argument(self, place: Extent, label: str, parameter: str) -> Extent | None:
        """Return where an argument of a template is written; None where it follows from the call."""
        text = self._text(place)
        index = [a.name for a in self._functions[label].arguments].index(parameter)
        opening = text.find("<")
        if opening < 0:
            return None
        start, depth, count = opening + 1, 0, 0
        for at in range(opening + 1, len(text)):
            if text[at] in "(<[":
                depth += 1
            elif depth == 0 and text[at] in ",>":
                if count == index:
                    piece = text[start:at]
                    lead = len(piece) - len(piece.lstrip())
                    return Extent(place.file, place.start + start + lead, place.start + start + len(piece.rstrip()), 0)
                start, count = at + 1, count + 1
            elif text[at] in ")>]":
                depth -= 1
        return None

    def _settle_places(self) -> None:
        """Take one type where one place in the text gives several."""
        found: dict[Extent, list[tuple[TypeSlot, TypeClass]]] = {}
        for each, slot in self._slots():
            parameter = self._parameter(slot)
            if parameter is None or not self._varies(slot.function, parameter):
                found.setdefault(slot.extent, []).append((slot, each))
        for place, slots in found.items():
            names = list(dict.fromkeys(each.name for _, each in slots))
            if len({self._type_at(slot, each) for slot, each in slots}) < 2:
                continue
            if all(slot.declarator for slot, _ in slots) and can_split(self._source(place).text, place):
                continue
            why = f"one {slots[0][0].spelled} at {place} is the type of all"
            if len({self._own[name] for name in names}) == 1:
                self._widen(names, self._widest(names), why)
            else:
                self._keep(names, why)

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
        kept |= self._edit_class_templates()
        self._edit_slots(kept)
        self._edit_reads()
        self._edit_reads_of_host()
        self._edit_braced()
        self._edit_literals()
        self._edit_vectors()

    def _edit_slots(self, kept: Collection[Extent] = ()) -> None:
        """Change the types where they are written, but for some places."""
        lists: dict[Extent, dict[str, str]] = {}
        for each, slot in self._slots():
            new, parameter = self._type_at(slot, each), self._parameter(slot)
            if parameter is not None and new == self._arguments.get((slot.function, parameter)):
                new = parameter
            if slot.declarator:
                lists.setdefault(slot.extent, {})[slot.declarator] = new
            elif new != slot.spelled and slot.extent not in kept:
                self._edits.replace(slot.extent, new)
        for place, names in lists.items():
            for piece, text in with_types(self._source(place).text, place, names).items():
                self._edits.replace(piece, text)

    def replace(self, places: Mapping[Extent, str]) -> None:
        """Change further places."""
        for place, new in places.items():
            self._edits.replace(place, new)

    def _edit_templates(self) -> None:
        done: set[Extent] = set()
        for (label, parameter), new in self._arguments.items():
            for place, caller in self._instantiations(label):
                named = self._named_anew(place, caller, label, parameter)
                if named is not None and named.start < named.end:
                    self._edits.replace(named, new)
                elif named is not None and named not in done:
                    done.add(named)
                    self._edits.insert(named.file, named.start, self._explicit(label, place) or "")

    def _edit_class_templates(self) -> set[Extent]:
        """Name class templates with another type where all that has it changes to one; return where that is written."""
        kept: set[Extent] = set()
        for whole, name, (argument, *others) in self._class_templates():
            written = [(each, slot) for each, slot in self._slots() if slot.extent in whole]
            slots = [(each, slot) for each, slot in written if slot.spelled == argument.name]
            types = {self._spell(slot, each) for each, slot in slots}
            header = re.match(r"template\s*<[^{;()]*?>", self._text(whole))
            places = (token for token in tokens(self._text(whole)) if token.text == argument.name)
            used = {whole.start + each.start for each in places if header is None or each.start >= header.end()}
            named = self._named(name, argument.value)
            is_all = used == {slot.extent.start for _, slot in slots}
            if others or not named or not is_all or len(types) != 1 or types == {argument.name}:
                continue
            kept |= {slot.extent for _, slot in slots}
            self.replace(dict.fromkeys(named, types.pop()))
        return kept

    def _class_templates(self) -> Iterator[tuple[Extent, str, tuple[TemplateArgument, ...]]]:
        """Give the class templates of which the program has one instantiation: where, their names, its arguments."""
        found: dict[tuple[Extent, str], set[tuple[TemplateArgument, ...]]] = {}
        for unit in self._program.units:
            for node in unit.top:
                if node.kind == "CLASS_TEMPLATE" and node.extent is not None:
                    instances = unit.specialisations.get(node.cursor.get_usr(), ())
                    found.setdefault((node.extent, node.spelling), set()).update(each.arguments for each in instances)
        return ((*place, next(iter(arguments))) for place, arguments in found.items() if len(arguments) == 1)

    def _named(self, name: str, value: str) -> list[Extent]:
        """Return where a class template's one argument is written; nothing if it is another one anywhere."""
        places: list[Extent] = []
        for file in self._program.files:
            words = list(tokens(file.text))
            for at, word in enumerate(words[:-3]):
                if word.text == name and words[at + 1].text == "<":
                    argument, closing = words[at + 2 : at + 4]
                    if argument.text != value or closing.text != ">":
                        return []
                    start = argument.start
                    places.append(Extent(file.path, start, start + len(argument.text), 0))
        return places

    def _edit_reads(self) -> None:
        done: set[Extent] = set()
        for read in self._classes.reads:
            if read.is_stored or read.extent in done or not self._is_changed(read.type_class):
                continue
            # (Constants that the host uses are as they were.)
            is_constant = read.type_class in self._at_uses
            if (is_constant and read.is_device) or (not is_constant and self._bits(read.type_class) == 16):
                done.add(read.extent)
                self._edits.surround(read.extent, "float(", ")")

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

    def _edit_braced(self, *, on_host: bool = True) -> None:
        """Cast numbers in braces to narrower types, to which C++ does not convert them by itself."""
        for each in (each for each in self._classes.braced if on_host or each.is_device):
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
            if not all(is_narrow):
                continue
            if not text.startswith((".", *string.digits)):
                self._edits.replace(place, f"float({text})")
            elif any(place in body for body in bodies) or _is_exact(text):
                # (In the body of a macro, which the host may use, only what means the same number.)
                self._edits.replace(place, f"{text.rstrip('lL')}f")

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
        for copy in self._classes.copies:
            name = next((name for name in copy.classes if self._is_changed(name)), "")
            if not name or copy.name not in _BYTES:
                continue
            size = copy.arguments[_BYTES[copy.name]]
            is_converted = copy.name in (*_COPIES, "cudaMemcpyToSymbol") and not self._is_on_device(copy)
            sizes = {slot.extent for slot in self._by_name[name].slots if slot.extent in size}
            is_of_device = self._is_changed(copy.sizes[_BYTES[copy.name]])
            own, new = self._by_name[name].scalar, self._name(name)
            if is_converted:
                kept |= sizes
                self._convert(copy, own, new)
                if is_of_device and not sizes:
                    self._scale(size, new, own)
            elif not sizes and not is_of_device:
                self._scale(size, own, new)
        return kept

    def _scale(self, size: Extent, before: str, after: str) -> None:
        if not _PLAIN_FACTORS.fullmatch(self._text(size)) or "-" in self._text(size).replace("->", ""):
            self._edits.surround(size, "(", ")")
        self._edits.insert(size.file, size.end, f" / sizeof({before}) * sizeof({after})")

    def _convert(self, copy: Copy, own: str, new: str) -> None:
        to_symbol = copy.name == "cudaMemcpyToSymbol"
        helper = "copy_to_symbol" if to_symbol else "copy_converted"
        called = copy.call
        length = len(_spelled(copy.name, self._is_hip))
        # The type of a symbol is a vector's, and numbers are converted one by one.
        written = f"{helper}<{new}>" if to_symbol and re.search(r"\d$", copy.elements[1]) else helper
        self._edits.replace(Extent(called.file, called.start, called.start + length, called.line), written)
        self._helpers.setdefault(called.file, set()).add(helper)
        device = self._device_side(copy)
        for index, place in enumerate(copy.arguments[:2]):
            if re.search(r"\d$", copy.elements[index]) and not (to_symbol and index == 0):
                scalar = new if index == device else own
                const = "const " if index == 1 else ""
                self._edits.surround(place, f"({const}{scalar}*)(", ")")

    # -- files -----------------------------------------------------------------------------------

    def text(self, file: SourceFile) -> str:
        """Return the new text of a file, with the headers and helpers that it needs."""
        text = self._edits.file(file.path)
        if text == file.text:
            return text
        precisions = [
            precision
            for precision in _HEADERS
            if any(
                self.types[each.name] == precision != self._own[each.name]
                for each, slot in self._slots()
                if slot.extent.file == file.path
            )
        ]
        names = [_HEADERS[precision][self._is_hip] for precision in precisions]
        lines = [f"#include <{name}>" for name in names if f"<{name}>" not in text]
        ending = "\r\n" if "\r\n" in file.text else "\n"
        helpers = self._helpers.get(file.path, set())
        needed = [*(["type_traits"] if "copy_to_symbol" in helpers else []), *(["vector"] if helpers else [])]
        lines += [f"#include <{name}>" for name in needed if f"<{name}>" not in text]
        text = _with_includes(text, lines, ending)
        if helpers:
            written = "\n".join(_HELPERS[name] for name in _HELPERS if name in helpers)
            written = written.replace("cuda", "hip") if self._is_hip else written
            text = _after_includes(text, f"\n{written}".replace("\n", ending))
        return text

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
    "copy_to_symbol": """\
// Copies an array of the host to a variable of another type on the device; bytes and offset are those of the host's.
template <class Number = void, class Symbol, class From>
static cudaError_t copy_to_symbol(const Symbol& symbol, const From* from, size_t bytes, size_t offset = 0,
                                  cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
    typedef typename std::remove_cv<typename std::remove_all_extents<Symbol>::type>::type Element;
    typedef typename std::conditional<std::is_void<Number>::value, Element, Number>::type To;
    const std::vector<To> converted(from, from + bytes / sizeof(From));
    return cudaMemcpyToSymbol(symbol, converted.data(), converted.size() * sizeof(To),
                              offset / sizeof(From) * sizeof(To), kind);
}
""",
}


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


def _directives(text: str) -> Sequence[re.Match[str]]:
    return list(re.finditer(r"^[ \t]*#[ \t]*include\b[^\n]*\n", text, re.MULTILINE))


def _with_includes(text: str, lines: Sequence[str], ending: str) -> str:
    """Return a file with further headers included, before the first that it includes."""
    if not lines:
        return text
    added = "".join(f"{line}{ending}" for line in lines)
    found = _directives(text)
    if found:
        return text[: found[0].start()] + added + text[found[0].start() :]
    comments = re.match(rf"{_COMMENTS}(?:#[ \t]*pragma once[^\n]*\n)?", text)
    at = comments.end() if comments else 0
    return text[:at] + added + text[at:]


def _after_includes(text: str, helpers: str) -> str:
    """Return a file with functions after the headers it includes: those that no condition is on."""
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
    return text[:at] + helpers + text[at:]
