"""Plain C++ with other types in its parallel loops, which became kernels to find these types.

The types of the kernels, and of the host's memory that they share, are written as edits of the original text. A number
from outside of a loop is made a float where the loop uses it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final

from mptune.adopt.classes import TypeClass, TypeClasses, TypeSlot
from mptune.adopt.number_types import MATH
from mptune.adopt.parsing import Edits, Extent, ProgramError, SourceFile
from mptune.adopt.patching import Patch, Patcher, own_types
from mptune.adopt.reading import Program, own_files

_CONVERSIONS: Final = ("UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR", "CXX_STATIC_CAST_EXPR", "CXX_FUNCTIONAL_CAST_EXPR")
_INTEGERS: Final = ("SHORT", "USHORT", "INT", "UINT", "LONG", "ULONG", "LONGLONG", "ULONGLONG")


def patch(program: Program, classes: TypeClasses, wanted: Mapping[str, str]) -> Patch:
    """Change the types of a program in its text.

    Args:
        program: the program, of plain C++ with its loops cut out.
        classes: its type classes.
        wanted: the precision of each class that shall change, by name.

    Raises:
        ProgramError: more than its loops was changed to read it.
    """
    if program.originals and not program.places:
        raise ProgramError(
            f"{program.originals[0].path.name} has structs with the names of CUDA's vectors, which got other names to "
            "tune it: give them other names yourself, then adopt and tune it"
        )
    patcher = settled(program, classes, wanted)
    patcher.edit()
    old = own_files(program)
    files = tuple(SourceFile(file.path, patcher.text(file)) for file in old)
    changed = tuple(new for new, own in zip(files, old, strict=True) if new.text != own.text)
    return Patch(files, changed, dict(patcher.types), patcher.notes())


def settled(program: Program, classes: TypeClasses, wanted: Mapping[str, str]) -> Patcher:
    """Return what decides the types of a program's text, as near to the wanted ones as can be written.

    Adopting asks it which types there are to tune, and writing the program which to write.
    """
    patcher = (_LoopPatcher if program.originals else Patcher)(program, classes, wanted)
    patcher.settle()
    return patcher


def with_types_in_text(program: Program, classes: TypeClasses) -> TypeClasses:
    """Return the type classes with the precisions that a program's text can have, its own first."""
    patcher = settled(program, classes, {each.name: "fp16" for each in classes.classes if not each.kept})

    def limited(each: TypeClass) -> TypeClass:
        types, narrowest = each.types, patcher.types[each.name]
        if each.kept or narrowest == "fp16" or narrowest not in types:
            return each
        types = types[: types.index(narrowest) + 1]
        return dataclasses.replace(each, types=types, kept=patcher.why(each.name) if len(types) == 1 else "")

    return dataclasses.replace(classes, classes=tuple(map(limited, classes.classes)))


def tied_in_text(program: Program, classes: TypeClasses) -> list[set[str]]:
    """Return for each type class its name and those of the classes that a program's text gives a wide type with it."""
    own = own_types(classes)
    free = (each for each in with_types_in_text(program, classes).classes if not each.kept and len(each.types) > 1)
    narrowest = {each.name: "fp16" if "fp16" in each.types else each.types[-1] for each in free}
    found: list[set[str]] = []
    patcher = settled(program, classes, narrowest)
    for name in narrowest:
        patcher.want({**narrowest, name: own[name]})
        patcher.settle()
        found.append({name, *(other for other in narrowest if patcher.types[other] == own[other])})
    return found


class _LoopPatcher(Patcher):
    """Decides which types the loops of a program can have, then edits."""

    def __init__(self, program: Program, classes: TypeClasses, wanted: Mapping[str, str]) -> None:
        super().__init__(program, classes, wanted)
        self._moved = _MovedEdits(program)
        self._edits = self._moved

    def settle(self) -> None:
        """Take wider types for the classes whose type cannot be written where it would have to be."""
        reduced = {
            (loop.kernel, each)
            for loop in self._program.loops
            for name in loop.reduced
            for each in (name, f"{name}_shared", f"{name}_parts", f"{name}_start")
        }
        for each in self._classes.classes:
            if self._bits(each.name) == 16:
                self._widen([each.name], "fp32", "plain C++ has no type of 16 bits that all compilers take")
            if any((member.function, member.name) in reduced for member in each.members):
                why = "a loop reduces all of its numbers to one, a kernel those of a block"
                self._keep([each.name], why)
        self._settle_host_functions()
        self._settle_uses()
        self._settle_texts()

    def _settle_uses(self) -> None:
        """Convert numbers that must stay as they are declared where loops use them; memory with other uses stays."""
        used_by_host = {read.type_class for read in self._classes.reads if not read.is_device}
        raw = {use.type_class: f"{use.why} at {use.extent}" for use in self._classes.raw}
        written = {each.name for each, _ in self._slots()}
        for each in (each for each in self._classes.classes if self._is_changed(each.name)):
            why = raw.get(each.name, "" if each.name in written else "its declaration is not found")
            if why and any(member.is_pointer for member in each.members):
                self._keep([each.name], why)
            elif why or (each.role == "constant" and each.name in used_by_host):
                self._at_uses.add(each.name)

    def notes(self) -> tuple[str, ...]:
        """Say which classes have another type than wanted, and why, and where integers are made of narrower numbers."""
        return (*super().notes(), *self._notes_of_integers())

    def _notes_of_integers(self) -> Iterator[str]:
        """Say where integers are made of numbers that are narrower: rounded up, they may lead out of an array."""
        changed = {
            (member.function, member.name)
            for each in self._classes.classes
            if self._is_changed(each.name)
            for member in each.members
        }
        found: dict[str, list[str]] = {}
        for function in (each for each in self._functions.values() if each.is_device):
            for node in function.block.walk():
                number = node.children[-1] if node.kind in _CONVERSIONS and node.children else node
                if node.canonical.kind.name not in _INTEGERS or number.canonical.kind.name not in ("FLOAT", "DOUBLE"):
                    continue
                used = {inner.spelling for inner in number.walk() if inner.kind in ("DECL_REF_EXPR", "CALL_EXPR")}
                if number.extent is not None and any((f, n) in changed for n in used for f in (function.label, n)):
                    found.setdefault(str(number.extent), []).append(self._text(number.extent))
        for place, texts in found.items():
            yield (
                f"{', '.join(dict.fromkeys(texts))} at {place}: an integer is made of it, and in fewer digits it "
                "may be the next one (what is just below 1 becomes 1): see that no index or bound gets too large"
            )

    # -- the text ----------------------------------------------------------------------------------------------------

    def edit(self) -> None:
        """Change the types, and what follows from them."""
        self._edit_slots()
        self._edit_reads()
        self._edit_reads_of_host()
        self._edit_braced()
        self._edit_literals()
        self._edit_math()

    def _edit_math(self) -> None:
        """Let functions that C has for double alone be those of C++, and choose those that take one type."""
        for call in self._classes.calls:
            bits = {self._bits(name) for name in call.meets}
            if not any(self._is_changed(name) for name in call.meets):
                continue
            if max(bits) < 64 and call.text in MATH and call.text != "abs":
                self._edits.replace(call.extent, f"std::{call.text}")
            elif max(bits) == 64 and len(bits) > 1 and call.text in ("std::max", "std::min"):
                self._edits.replace(call.extent, f"{call.text}<double>")

    def _slots(self) -> Iterator[tuple[TypeClass, TypeSlot]]:
        """Give the types that are written in the program's own text."""
        return ((each, slot) for each, slot in super()._slots() if self._moved.place(slot.extent) is not None)

    def text(self, file: SourceFile) -> str:
        """Return the new text of a file."""
        return self._edits.file(file.path)


class _MovedEdits(Edits):
    """Edits at places of the text whose loops are kernels, done in the original text; none of what is only there."""

    def __init__(self, program: Program) -> None:
        super().__init__(own_files(program))
        self._places = program.places

    def place(self, extent: Extent) -> Extent | None:
        """Return where a piece is in the original text; None if it is not there."""
        places = self._places.get(extent.file)
        if places is None:
            return extent
        start, end = places[extent.start][0], places[extent.end - 1][1]
        return Extent(extent.file, start, end, extent.line) if 0 <= start <= end else None

    def replace(self, extent: Extent, text: str) -> None:
        """Replace a piece of a text."""
        if (place := self.place(extent)) is not None:
            super().replace(place, text)

    def surround(self, extent: Extent, before: str, after: str) -> None:
        """Insert texts before and after a piece."""
        if (place := self.place(extent)) is not None:
            super().surround(place, before, after)
