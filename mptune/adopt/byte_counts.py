"""Numbers of bytes in code of the host, such as ``n * sizeof(double)``, for elements of another type."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from mptune.adopt.parsing import Extent, Node, bare
from mptune.adopt.reading import Program

_ASSIGNS: Final = ("=", "++", "--", "&")
_FACTORS: Final = re.compile(r"(?:->|[\w.:()\s*])+")


@dataclass(frozen=True, slots=True)
class Resized:
    """Another type of the elements that a number of bytes counts.

    Attributes:
        names: the new names of types, by the old ones.
        scaled: what is written after a number that names no type, such as `` / 2``; "" if it stays.
    """

    names: Mapping[str, str]
    scaled: str

    def found(self, text: str) -> list[tuple[int, int, str]]:
        """Return the types whose size is in a text: begin, end and new name."""
        names = "|".join(map(re.escape, self.names))
        sizes = re.finditer(rf"\bsizeof\s*\(\s*({names})\s*\)", text)
        return [(*each.span(1), self.names[each[1]]) for each in sizes]

    def text(self, text: str) -> str | None:
        """Return a number of bytes with the new types; None unless each term has the size of one of them."""
        found = self.found(text)
        if not _has_one_a_term(text, [start for start, _, _ in found]):
            return None
        for start, end, name in reversed(found):
            text = text[:start] + name + text[end:]
        return text


class ByteCounts:
    """The host's variables that hold numbers of bytes.

    Args:
        program: the program.
    """

    def __init__(self, program: Program) -> None:
        self._files = {file.path: file for file in program.files}
        #: Where the values of variables are written that have one value only, by clang's name; and their uses.
        self._values: dict[str, Extent] = {}
        self._uses: dict[str, set[Extent]] = {}
        assigned: set[str] = set()
        bodies = [f.block for unit in program.units for f in unit.functions if not f.is_device]
        tops = [node for unit in program.units for node in unit.top if node.kind == "VAR_DECL"]
        for node in (node for root in (*tops, *bodies) for node in root.walk()):
            if node.kind == "VAR_DECL" and node.children and (value := node.children[-1].extent) is not None:
                self._values[node.cursor.get_usr()] = value
            elif node.kind == "DECL_REF_EXPR" and node.referenced is not None and node.extent is not None:
                self._uses.setdefault(node.referenced.get_usr(), set()).add(node.extent)
            elif (node.kind == "COMPOUND_ASSIGNMENT_OPERATOR" or node.operator in _ASSIGNS) and node.children:
                assigned |= _names(node.children[0])
        self._values = {usr: value for usr, value in self._values.items() if usr not in assigned}

    def changes(self, counts: Mapping[Extent, Resized], slots: Collection[Extent]) -> dict[Extent, str]:
        """Return the changes of the text that make numbers of bytes those of other types.

        A variable that counts the bytes of such elements only is computed with the new type; elsewhere its value is
        written in its place. Other numbers are divided.

        Args:
            counts: where the numbers are written.
            slots: the types that change without this.
        """
        changes: dict[Extent, str] = {}
        values: dict[str, dict[Extent, str]] = {}
        for count, resized in counts.items():
            text = self._text(count)
            types = {
                Extent(count.file, count.start + start, count.start + end, count.line): name
                for start, end, name in resized.found(text)
            }
            uses = {
                use: (usr, value)
                for usr, at in self._values.items()
                for use in self._uses.get(usr, ())
                if use in count and (value := resized.text(self._text(at))) is not None
            }
            if _has_one_a_term(text, [place.start - count.start for place in (*types, *uses)]):
                changes |= {place: name for place, name in types.items() if place not in slots}
                for use, (usr, value) in uses.items():
                    values.setdefault(usr, {})[use] = value
            elif not types and resized.scaled:
                changes[count] = (text if _FACTORS.fullmatch(text) else f"({text})") + resized.scaled
        for usr, new in values.items():
            if new.keys() == self._uses[usr] and len(set(new.values())) == 1:
                changes[self._values[usr]] = next(iter(new.values()))
            else:
                changes |= {use: value if use in counts else f"({value})" for use, value in new.items()}
        return changes

    def _text(self, extent: Extent) -> str:
        return self._files[extent.file].of(extent)


def _names(node: Node) -> set[str]:
    inner = bare(node)
    return {inner.referenced.get_usr()} if inner.kind == "DECL_REF_EXPR" and inner.referenced is not None else set()


def _has_one_a_term(text: str, places: Collection[int]) -> bool:
    """Whether there is one of some places in each term of a sum."""
    return all(sum(start <= place < end for place in places) == 1 for start, end in _terms(text))


def _terms(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the terms of a sum are."""
    depth, start = 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0 and sign in "+-" and text[at : at + 2] != "->":
            yield start, at
            start = at + 1
    yield start, len(text)
