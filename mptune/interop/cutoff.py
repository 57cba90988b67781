"""Reading a JSON object of entries whose end is missing.

Kernel Tuner appends to its cache file while it runs and closes the braces only afterwards, so a run that
was cut off leaves a file that ends after a comma, after an entry, or in the middle of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mptune.errors import SpaceFileError

__all__ = ["read_cut_off"]

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\r\n]*")
#: What can be left of a number, a literal or an escape that was cut in two.
_PARTIAL_TOKEN: Final = re.compile(r"[\w.+\-\\]*\s*\Z")


class _CutOffError(Exception):
    """The text ends before the value does."""


class _Cursor:
    """A position in a text that moves over JSON tokens."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text
        self.position = 0

    def peek(self) -> str:
        """Skip white space and return the next character.

        Raises:
            _CutOffError: there is none.
        """
        found = _SPACE.match(self.text, self.position)
        self.position = found.end() if found else self.position
        if self.position >= len(self.text):
            raise _CutOffError
        return self.text[self.position]

    def expect(self, character: str) -> None:
        if self.peek() != character:
            raise self.corrupt(f"expected {character!r}", self.position)
        self.position += 1

    def value(self) -> Any:
        """Read one whole value.

        Raises:
            _CutOffError: the text ends inside it.
            SpaceFileError: it is not JSON.
        """
        self.peek()
        try:
            value, self.position = _DECODER.raw_decode(self.text, self.position)
        except json.JSONDecodeError as error:
            if error.msg.startswith("Unterminated string") or _PARTIAL_TOKEN.match(self.text, error.pos):
                raise _CutOffError from error
            raise self.corrupt(error.msg, error.pos) from error
        except (RecursionError, ValueError) as error:
            raise SpaceFileError(f"{self.path}: {error}") from error
        return value

    def names(self) -> Iterator[str]:
        """Yield the names of the object that starts here; the caller reads each value before asking for the next."""
        self.expect("{")
        first = True
        while self.peek() != "}":
            if not first:
                self.expect(",")
                self.peek()
            first = False
            start = self.position
            key = self.value()
            if not isinstance(key, str):
                raise self.corrupt("expected a name in double quotes", start)
            self.expect(":")
            yield key
        self.position += 1

    def corrupt(self, what: str, position: int) -> SpaceFileError:
        line = self.text.count("\n", 0, position) + 1
        column = position - self.text.rfind("\n", 0, position)
        return SpaceFileError(f"{self.path}: not valid JSON at line {line}, column {column}: {what}")


def read_cut_off(path: Path, text: str, key: str) -> dict[str, Any]:
    """Read a JSON object, keeping every complete entry of its member ``key`` when the end of the text is missing.

    An entry is to be an object, a list or text: of a number nothing says whether its last digits are missing.

    Args:
        path: names the file in messages.
        text: the object's text.
        key: the member, itself an object, that may be cut off.

    Returns:
        The object; ``key`` is absent when the text ends before it.

    Raises:
        SpaceFileError: the text is damaged elsewhere than at its end.
    """
    cursor = _Cursor(path, text)
    document: dict[str, Any] = {}
    try:
        for name in cursor.names():
            if name == key and cursor.peek() == "{":
                entries = document.setdefault(key, {})
                for entry in cursor.names():
                    entries[entry] = cursor.value()
            else:
                document[name] = cursor.value()
        cursor.peek()
    except _CutOffError:
        return document
    raise cursor.corrupt("text after the end of the document", cursor.position)
