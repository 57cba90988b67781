"""The text of a program's files: its tokens, its macros, and the spellings of its types."""

from __future__ import annotations

import bisect
import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from mptune.adopt.number_types import scalar_named
from mptune.adopt.parsing import Extent, SourceFile, TemplateArgument, TranslationUnit
from mptune.cpp.tokens import Token, tokens

#: The words of a limit of a type, which takes the type of what it meets.
_LIMITS: Final = frozenset(("std", "numeric_limits", "max", "min", "lowest", "epsilon", "infinity", "quiet_NaN"))
_FLOATING: Final = re.compile(r"(?!0[xX])(\d*\.\d*|\d+(?=[eE]))([eE][+-]?\d+)?[fFlL]?|0[xX].*[pP].*|\d+[fF]")

#: Names of CUDA's headers for floating-point types.
_OF_HEADERS: Final = {
    "half": ("__half", 1),
    "nv_bfloat16": ("__nv_bfloat16", 1),
    "cuComplex": ("float", 2),
    "cuFloatComplex": ("float", 2),
    "cuDoubleComplex": ("double", 2),
}


class SourceText:
    """Text of the files of a program, which are read one after another.

    Attributes:
        sources: the files by path.
        types: names that stand for a floating-point type (typedefs, macros, parameters of templates), with the type of
            its numbers and how many of them there are.
    """

    def __init__(self, files: Iterable[SourceFile]) -> None:
        self.sources = {file.path: file for file in files}
        self.types = dict(_OF_HEADERS)
        self._tokens: dict[Path, tuple[list[Token], list[int]]] = {}

    def read(self, unit: TranslationUnit) -> None:
        """Read the macros of a file and of its headers."""
        self._unit = unit
        nodes = (node for node in unit.top if node.kind == "MACRO_DEFINITION")
        self._macros = {node.spelling: node.extent for node in nodes if node.extent is not None}
        self._bodies = {name: " ".join(token.text for token in self.body(name)) for name in self._macros}
        self._resolve()

    def name(self, name: str, found: tuple[str, int]) -> None:
        """Note a name for a type; macros may stand for it."""
        self.types[name] = found
        self._resolve()

    def _resolve(self) -> None:
        """Find the macros that stand for a type: a macro may stand for one that is defined after it."""
        for _ in self._bodies:
            found = {
                name: spelled for name, body in self._bodies.items() if (spelled := self.spelled(body)) is not None
            }
            if found.items() <= self.types.items():
                break
            self.types |= found

    def spelled(self, type_name: str) -> tuple[str, int] | None:
        """Return type and number of the numbers that a name stands for; None for any other name."""
        return scalar_named(type_name) or self.types.get(type_name)

    @contextlib.contextmanager
    def bound(self, arguments: Iterable[TemplateArgument]) -> Iterator[None]:
        """Let the parameters of a template stand for their arguments."""
        before = self.types
        found = {each.name: self.spelled(each.value) for each in arguments if each.kind == "typename"}
        self.types = {**before, **{name: spelled for name, spelled in found.items() if spelled is not None}}
        yield
        self.types = before

    def within(self, file: Path, start: int, end: int) -> list[Token]:
        """Return the tokens in a piece of a file."""
        if file not in self._tokens:
            found = list(tokens(self.sources[file].text))
            self._tokens[file] = found, [token.start for token in found]
        all_of_it, starts = self._tokens[file]
        return all_of_it[bisect.bisect_left(starts, start) : bisect.bisect_left(starts, end)]

    def place(self, file: Path, start: int, end: int) -> Extent:
        """Return a piece of a file."""
        source = self.sources[file]
        return Extent(file, start, end, source.line(source.text.count("\n", 0, start) + 1))

    def extent_of(self, file: Path, token: Token, last: Token | None = None) -> Extent:
        """Return the place of a token, or of all from one to another."""
        last = last or token
        return self.place(file, token.start, last.start + len(last.text))

    def macro_at(self, extent: Extent) -> str | None:
        """Return the program's macro whose use a place begins with; None for any other text."""
        found = self.within(extent.file, extent.start, extent.start + 1)
        return found[0].text if found and found[0].text in self._macros else None

    def body(self, name: str) -> list[Token]:
        """Return the tokens of a macro's body, with places in its file."""
        extent = self._macros[name]
        found = list(tokens(self.sources[extent.file].text[: extent.end], extent.start))[1:]
        if self.has_arguments(name):
            closing = next(index for index, token in enumerate(found) if token.text == ")")
            found = found[closing + 1 :]
        return found

    def has_arguments(self, name: str) -> bool:
        """Whether a macro of the program takes arguments."""
        extent = self._macros[name]
        return self.sources[extent.file].text[extent.start + len(name) : extent.start + len(name) + 1] == "("

    def is_number(self, name: str) -> bool:
        """Whether a macro stands for a number, computed from no variable."""
        if name not in self._macros:
            return True  # of the system: M_PI, FLT_MAX
        body = self.body(name)
        if self.has_arguments(name) or any(token.text == "{" for token in body):
            return False
        words = {token.text for token in body if token.kind == "name"} - {name}
        words -= _LIMITS if "numeric_limits" in words else frozenset()
        return all(self.spelled(word) or (word in self._unit.macros and self.is_number(word)) for word in words)

    def in_macro(self, extent: Extent) -> list[tuple[Path, Token]] | None:
        """Return the tokens of the macro whose use a place begins with, and of macros in it, each with its file.

        A macro that is a number is text as any other: None.
        """
        bodies = self.bodies_at(extent)
        return [(file, token) for file, body in bodies for token in body] if bodies else None

    def bodies_at(self, extent: Extent) -> list[tuple[Path, list[Token]]]:
        """Return the same, each body for itself; none for other text."""
        macro = self.macro_at(extent)
        return list(self._bodies_of(macro)) if macro is not None and not self.is_number(macro) else []

    def _bodies_of(self, name: str) -> Iterator[tuple[Path, list[Token]]]:
        body = self.body(name)
        yield self._macros[name].file, body
        for token in body:
            inner = token.text
            if token.kind == "name" and inner in self._macros and inner != name and not self.is_number(inner):
                yield from self._bodies_of(inner)

    def is_literal(self, token: Token) -> bool:
        """Whether a token of a macro's body is a literal, or a macro that stands for a floating-point number."""
        if token.kind != "name":
            return token.kind == "number" and _FLOATING.fullmatch(token.text) is not None
        is_number = token.text in self._macros and self.is_number(token.text)
        return is_number and any(self.is_literal(inner) for inner in self.body(token.text))
