"""Plain C++ with other types in its parallel loops, which were cut out as kernels to find these types.

What changes in the text of the kernels is changed in the loops that they were. Numbers from outside a loop are made
floats where the loop uses them. Arrays of the host are declared with the new type where all that is done with them goes
on as before (:mod:`mptune.adopt.storage`), and their numbers are made double again where other code reads them; others
stay as they are, and what a loop takes from them is made a float.
"""

from __future__ import annotations

import bisect
import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from mptune.adopt.classes import TypeClass, TypeClasses, TypeSlot
from mptune.adopt.number_types import MATH
from mptune.adopt.parsing import Edits, Extent, ProgramError, SourceFile, parse
from mptune.adopt.patching import Patch, Patcher, can_split, declarators, with_types
from mptune.adopt.reading import Program, own_files
from mptune.adopt.storage import Variables, host_variables
from mptune.cpp.tokens import Token, tokens

_CONVERSIONS: Final = ("UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR", "CXX_STATIC_CAST_EXPR", "CXX_FUNCTIONAL_CAST_EXPR")
_INTEGERS: Final = ("SHORT", "USHORT", "INT", "UINT", "LONG", "ULONG", "LONGLONG", "ULONGLONG")


def patch_loops(program: Program, classes: TypeClasses, wanted: Mapping[str, str]) -> Patch:
    """Change the types of a program of plain C++ in its text.

    Args:
        program: the program, its loops cut out.
        classes: its type classes.
        wanted: the precision of each class that shall change, by name.

    Raises:
        ProgramError: more than its loops was changed to read it.
    """
    if not program.loops:
        raise ProgramError(
            f"{program.originals[0].path.name} has structs with the names of CUDA's vectors, which got other names to "
            "tune it: give them other names yourself, then adopt and tune it"
        )
    patcher = _LoopPatcher(program, classes, wanted)
    patcher.settle()
    patcher.edit()
    files = tuple(SourceFile(file.path, patcher.new_text(file.path)) for file in own_files(program))
    changed = tuple(new for new, old in zip(files, own_files(program), strict=True) if new.text != old.text)
    return Patch(files, changed, patcher.types_in_text(), patcher.notes())


class _LoopPatcher(Patcher):
    """Decides which types the loops of a program can have, then edits."""

    def __init__(self, program: Program, classes: TypeClasses, wanted: Mapping[str, str]) -> None:
        super().__init__(program, classes, wanted)
        self._origins = _Origins(program)
        self._edits: _MovedEdits = _MovedEdits(self._origins)
        self._kernels = {loop.kernel for loop in program.loops}
        self._narrow: list[Variables] = []
        self._kept_in_memory: dict[str, str] = {}

    def settle(self) -> None:
        """Take wider types for the classes whose type cannot be written where it would have to be."""
        self._settle_sums()
        for each in self._classes.classes:
            if self._bits(each.name) == 16:
                self._widen([each.name], "fp32", "plain C++ has no type of 16 bits that all compilers take")
            if not any(self._origins.of(slot.extent) for slot in each.slots) and not self._outside(each):
                self.types[each.name] = self._own[each.name]
        self._settle_host_functions()
        self._settle_constants()
        self._settle_variables()
        self._settle_texts()

    def _settle_sums(self) -> None:
        """Keep the type of what a loop adds all of its numbers to: a kernel's blocks add few, and the host their sums.

        (Of numbers, the largest is the same in the type that they have.)
        """
        for loop in self._program.loops:
            for name in (name for name, sign in loop.reduced.items() if sign in "+-*"):
                of_it = {(loop.kernel, each) for each in (name, f"{name}_shared", f"{name}_parts")}
                found = [c.name for c in self._classes.classes if any((m.function, m.name) in of_it for m in c.members)]
                self._keep(found, f"a loop reduces all of its numbers to one {name}, a kernel those of a block")

    def _settle_constants(self) -> None:
        """Numbers that loops are given, and constants of the host as well, are converted where loops use them."""
        used_by_host = {read.type_class for read in self._classes.reads if not read.is_device}
        for each in self._classes.classes:
            is_given = any(m.function in self._kernels and m.kind == "parameter" for m in each.members)
            if self._is_changed(each.name) and (
                (is_given and each.role == "argument") or (each.role == "constant" and each.name in used_by_host)
            ):
                self._at_uses.add(each.name)

    def _outside(self, each: TypeClass) -> set[str]:
        """Return clang's names of the variables outside of loops that have a class there."""
        names = {(m.function, m.name.removesuffix("_numbers")) for m in each.members if m.function in self._kernels}
        return {usr for loop in self._program.loops for usr, name in loop.names.items() if (loop.kernel, name) in names}

    def _settle_variables(self) -> None:
        """Decide which variables from outside the loops change their type where they are declared."""
        outside = {each.name: self._outside(each) for each in self._classes.classes if each.name not in self._at_uses}
        changing = {name for name, usrs in outside.items() if usrs and self._is_changed(name)}
        groups: list[Variables] = []
        if changing:
            units = parse(self._program.sources, self._program.defines, self._program.includes)
            groups = host_variables(units, set().union(*(outside[name] for name in changing)))
        why: dict[str, str] = {}
        while True:
            kept = {group: self._why_kept(group, outside, changing, why) for group in groups}
            self._narrow = [group for group in groups if not kept[group]]
            kept |= self._in_lists_with_others()
            self._narrow = [group for group in groups if not kept[group]]
            names = set().union(*(group.names for group in self._narrow))
            wide = {name for name in changing if not outside[name] <= names}
            if not wide:
                break
            changing -= wide
            for name in wide:
                reasons = (reason for group, reason in kept.items() if reason and group.names & outside[name])
                why[name] = next(reasons, "its declaration is not found")
        for name, reason in why.items():
            if any(member.is_pointer for member in self._by_name[name].members):
                self._at_uses.add(name)
                self._kept_in_memory[name] = reason
            else:
                self._keep([name], reason)

    @staticmethod
    def _why_kept(
        group: Variables, outside: Mapping[str, set[str]], changing: Collection[str], why: Mapping[str, str]
    ) -> str:
        """Say why variables keep their type; "" if they change it."""
        others = (name for name, usrs in outside.items() if usrs & group.names and name not in changing)
        other = next(others, "")
        return group.kept or (why.get(other, f"{other} has the same memory") if other else "")

    def _in_lists_with_others(self) -> dict[Variables, str]:
        """Return the variables that are declared together with others in a way that cannot be split, and say so."""
        changing = {slot for group in self._narrow for slot in group.slots}
        return {
            group: f"one declaration at {place} is of others, too"
            for group in self._narrow
            for place, variable in group.slots
            if variable and not can_split(self._origins.text(place), place)
            if any((place, name) not in changing for name in declarators(self._origins.text(place), place)[0])
        }

    def types_in_text(self) -> dict[str, str]:
        """Return the precision of each class, of arrays that in memory."""
        return {**self.types, **{name: self._own[name] for name in self._kept_in_memory}}

    def notes(self) -> tuple[str, ...]:
        """Say which classes have another type than wanted, or not in memory, and why."""
        by_reason: dict[str, list[str]] = {}
        for name, why in self._kept_in_memory.items():
            by_reason.setdefault(why, []).append(name)
        return (
            *super().notes(),
            *(
                f"{', '.join(names)}: still double in memory, and made float where loops use it, since {why}"
                for why, names in by_reason.items()
            ),
            *self._notes_of_integers(),
        )

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
        self._edit_braced(on_host=False)
        self._edit_literals()
        self._edit_math()
        lists: dict[Extent, dict[str, str]] = {}
        for group in self._narrow:
            for place, name in group.slots:
                if name:
                    lists.setdefault(place, {})[name] = "float"
            for place in (*group.sizes, *(place for place, name in group.slots if not name)):
                self._edits.original.replace(place, "float")
            own = next((self._origins.text(place)[place.start : place.end] for place, _ in group.slots), "double")
            for read in group.reads:
                if not self._is_adopted(read):
                    self._edits.original.surround(read, f"static_cast<{own}>(", ")")
        for place, names in lists.items():
            for piece, text in with_types(self._origins.text(place), place, names).items():
                # Lines keep their numbers, by which loops may be named.
                was_split = "\n" in self._origins.text(piece)[piece.start : piece.end]
                self._edits.original.replace(piece, text if was_split else re.sub(r";\n[ \t]*", "; ", text))

    def _is_adopted(self, place: Extent) -> bool:
        """Whether a place is in a loop that became a kernel, or in a function that such loops call."""
        functions = (self._origins.of(f.body) for f in self._functions.values() if f.is_device and not f.is_kernel)
        return any(
            body is not None and place in body for body in (*(loop.body for loop in self._program.loops), *functions)
        )

    def _edit_math(self) -> None:
        """Let functions that C has for double alone be those of C++."""
        for call in self._classes.calls:
            is_narrow = bool(call.meets) and all(self._bits(name) < 64 for name in call.meets)
            is_changed = any(self._is_changed(name) for name in call.meets)
            if is_narrow and is_changed and call.text in MATH and call.text != "abs":
                self._edits.replace(call.extent, f"std::{call.text}")

    def _slots(self) -> Iterator[tuple[TypeClass, TypeSlot]]:
        """Give the places of types that are in the program's own text, of code that loops run."""
        return ((each, slot) for each, slot in super()._slots() if slot.is_device and self._origins.of(slot.extent))

    def new_text(self, path: Path) -> str:
        """Return the new text of a file."""
        return self._edits.original.file(path)


class _MovedEdits(Edits):
    """Changes of the text with its loops cut out, made in the program's own text; none of what is only there.

    Attributes:
        original: the changes of the program's own text.
    """

    def __init__(self, origins: _Origins) -> None:
        super().__init__(origins.files)
        self.original = Edits(origins.files)
        self._origins = origins

    def replace(self, extent: Extent, text: str) -> None:
        """Replace a piece of a text."""
        if place := self._origins.of(extent):
            self.original.replace(place, text)

    def surround(self, extent: Extent, before: str, after: str) -> None:
        """Insert texts before and after a piece."""
        if place := self._origins.of(extent):
            self.original.surround(place, before, after)


class _Origins:
    """Where the pieces of a program come from whose loops were cut out.

    Attributes:
        files: the program's own.
    """

    def __init__(self, program: Program) -> None:
        self._cut = {file.path: file for file in program.files}
        self.files = tuple(own_files(program))
        self._own = {file.path: file for file in self.files}
        self._loops = program.loops
        self._tokens = {file.path: list(tokens(self._cut[file.path].text)) for file in program.originals}
        self._starts = {path: [token.start for token in found] for path, found in self._tokens.items()}
        self._moved = {file.path: self._aligned(file.path) for file in program.originals}

    def text(self, extent: Extent) -> str:
        """Return the program's own text of the file of a place."""
        return self._own[extent.file].text

    def of(self, extent: Extent) -> Extent | None:
        """Return where a piece is in the program's own text; None if it is not in there."""
        if extent.file not in self._moved:
            return extent
        start, end = self._place(extent.file, extent.start), self._place(extent.file, extent.end - 1)
        if start is None or end is None or end < start:
            return None
        return Extent(extent.file, start, end + 1, extent.line)

    def _place(self, file: Path, at: int) -> int | None:
        """Return where a character is."""
        index = bisect.bisect_right(self._starts[file], at) - 1
        token = self._tokens[file][index] if index >= 0 else None
        if token is None or at >= token.start + len(token.text) or token.start not in self._moved[file]:
            return None
        return self._moved[file][token.start] + at - token.start

    def _aligned(self, file: Path) -> dict[int, int]:
        """Return for each token of the text with its loops cut out, by its place, where it was."""
        cut, own = self._cut[file], self._own[file]
        found: dict[int, int] = {}
        kernels: list[tuple[int, int]] = []
        for loop in self._loops:
            head = re.search(rf"static __global__ void {loop.kernel}\(", cut.text)
            if head is None or loop.body.file != file:
                continue
            start = cut.text.index("\n", cut.text.index("\n#line ", head.start()) + 1)
            end = cut.text.index("\n#line ", start)
            kernels.append((head.start(), end))
            body = list(tokens(own.of(loop.body)))
            found |= _same(self._between(file, start, end), body, loop.body.start)
        lines: dict[int, list[Token]] = {}
        places = _Lines(cut.text)
        for token in self._tokens[file]:
            if not any(start <= token.start < end for start, end in kernels):
                lines.setdefault(cut.line(places.of(token.start)), []).append(token)
        originals: dict[int, list[Token]] = {}
        places = _Lines(own.text)
        for token in tokens(own.text):
            originals.setdefault(places.of(token.start), []).append(token)
        for line, given in lines.items():
            found |= _same(given, originals.get(line, []), 0)
        return found

    def _between(self, file: Path, start: int, end: int) -> list[Token]:
        starts = self._starts[file]
        return self._tokens[file][bisect.bisect_left(starts, start) : bisect.bisect_left(starts, end)]


class _Lines:
    """Which line of a text a place is in, from 1."""

    def __init__(self, text: str) -> None:
        self._ends = [found.start() for found in re.finditer("\n", text)]

    def of(self, place: int) -> int:
        """Return the line of a place."""
        return bisect.bisect_left(self._ends, place) + 1


def _same(cut: Sequence[Token], own: Sequence[Token], offset: int) -> dict[int, int]:
    """Return where the tokens of a piece are that another piece has as well, by their places."""
    texts = [token.text for token in cut], [token.text for token in own]
    blocks = difflib.SequenceMatcher(None, *texts, autojunk=False).get_matching_blocks()
    pairs = ((cut[one + i], own[other + i]) for one, other, count in blocks for i in range(count))
    return {token.start: source.start + offset for token, source in pairs}
