"""The text of a program's files: its tokens, what its macros stand for, and how its types are spelled."""

from __future__ import annotations

import bisect
import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from mptune.adopt.number_types import SCALARS
from mptune.adopt.parsing import Extent, SourceFile, TemplateArgument, TranslationUnit
from mptune.adopt.reading import VECTOR
from mptune.cpp.tokens import Token, tokens

#: How limits of types are written that take the type of what they meet.
_LIMITS: Final = frozenset(("std", "numeric_limits", "max", "min", "lowest", "epsilon", "infinity", "quiet_NaN"))
_FLOATING: Final = re.compile(r"(?!0[xX])(\d*\.\d*|\d+(?=[eE]))([eE][+-]?\d+)?[fFlL]?|0[xX].*[pP].*|\d+[fF]")


class SourceText:
    """Text of the files of a program, of which one after another is read.

    Attributes:
        sources: the files by path.
        types: names that stand for a floating-point type where they are used, with the type of its numbers and how
            many of them there are: typedefs, macros, parameters of templates.
    """

    def __init__(self, files: Iterable[SourceFile]) -> None:
        self.sources = {file.path: file for file in files}
        self.types: dict[str, tuple[str, int]] = {"half": ("__half", 1), "nv_bfloat16": ("__nv_bfloat16", 1)}
        self._tokens: dict[Any, list[Token]] = {}
        self._token_starts: dict[Any, list[int]] = {}

    def read(self, unit: TranslationUnit) -> None:
        """Take in the macros of a file and of what it includes."""
        self._unit = unit
        self._macros = {node.spelling: node for node in unit.top if node.kind == "MACRO_DEFINITION"}
        self._bodies = {name: " ".join(token.text for token in self.body(name)) for name in self._macros}
        self._resolve()

    def name(self, name: str, found: tuple[str, int]) -> None:
        """Take in a name for a type, for which macros may stand."""
        self.types[name] = found
        self._resolve()

    def _resolve(self) -> None:
        """Find what macros stand for a type: a macro may stand for one that is defined after it."""
        for _ in self._bodies:
            found = {
                name: spelled for name, body in self._bodies.items() if (spelled := self.spelled(body)) is not None
            }
            if found.items() <= self.types.items():
                break
            self.types |= found

    def spelled(self, type_name: str) -> tuple[str, int] | None:
        """Return the type of the numbers that a name stands for, and how many of them; None if it is another name."""
        if type_name in SCALARS:
            return type_name, 1
        vector = VECTOR.fullmatch(type_name)
        return (vector[1], int(vector[2])) if vector else self.types.get(type_name)

    @contextlib.contextmanager
    def bound(self, arguments: Iterable[TemplateArgument]) -> Iterator[None]:
        """Let parameters of a template be the types that they stand for."""
        bound = {
            argument.name: found
            for argument in arguments
            if argument.kind == "typename" and (found := self.spelled(argument.value)) is not None
        }
        hidden = {name: self.types[name] for name in bound if name in self.types}
        self.types.update(bound)
        yield
        for name in bound:
            del self.types[name]
        self.types.update(hidden)

    def within(self, file: Any, start: int, end: int) -> list[Token]:
        """Return the tokens in a piece of a file."""
        if file not in self._tokens:
            self._tokens[file] = list(tokens(self.sources[file].text))
            self._token_starts[file] = [token.start for token in self._tokens[file]]
        starts = self._token_starts[file]
        return self._tokens[file][bisect.bisect_left(starts, start) : bisect.bisect_left(starts, end)]

    def extent_of(self, file: Path, token: Token, last: Token | None = None) -> Extent:
        """Return where a token is written, or all from one to another."""
        last = last or token
        line = self.sources[file].line(self.sources[file].text.count("\n", 0, token.start) + 1)
        return Extent(file, token.start, last.start + len(last.text), line)

    def macro_at(self, extent: Extent) -> str | None:
        """Return the program's macro whose use a place begins with; None for what is written there itself."""
        found = self.within(extent.file, extent.start, extent.start + 1)
        return found[0].text if found and found[0].text in self._macros else None

    def body(self, name: str) -> list[Token]:
        """Return what a macro of the program stands for, with places in its file."""
        extent = self._macros[name].extent
        assert extent is not None
        text = self.sources[extent.file].text[: extent.end]
        found = list(tokens(text, extent.start))[1:]
        if self.has_arguments(name):
            closing = next(index for index, token in enumerate(found) if token.text == ")")
            found = found[closing + 1 :]
        return found

    def has_arguments(self, name: str) -> bool:
        """Whether a macro of the program takes arguments."""
        extent = self._macros[name].extent
        assert extent is not None
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
        return all(
            word in self.types or word in SCALARS or (word in self._unit.macros and self.is_number(word))
            for word in words
        )

    def bodies(self, name: str) -> Iterator[tuple[Path, list[Token]]]:
        """Give what a macro that computes with variables stands for, with its file, and what such macros in it do."""
        extent = self._macros[name].extent
        assert extent is not None
        body = self.body(name)
        yield extent.file, body
        for token in body:
            inner = token.text
            if token.kind == "name" and inner in self._macros and inner != name and not self.is_number(inner):
                yield from self.bodies(inner)

    def parts(self, name: str) -> Iterator[tuple[Path, Token]]:
        """Give the tokens of a macro that computes with variables, and of such macros in it."""
        return ((file, token) for file, body in self.bodies(name) for token in body)

    def is_literal(self, token: Token) -> bool:
        """Whether a token of a macro's body is a literal, or a macro that stands for a floating-point number."""
        if token.kind != "name":
            return token.kind == "number" and _FLOATING.fullmatch(token.text) is not None
        is_number = token.text in self._macros and self.is_number(token.text)
        return is_number and any(self.is_literal(inner) for inner in self.body(token.text))
