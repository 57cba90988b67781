"""Which line of a program a line of a template was made of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from mptune.adopt.parsing import Extent, SourceFile
from mptune.adopt.reading import Kernel, Program
from mptune.cpp.tokens import tokens

#: How much the lines before and after a line count.
_NEIGHBOUR: Final = 0.25
#: What a template has besides the program's own words.
_ADDED: Final = frozenset(("mp", "{", "}", "::", ";"))


def origin(program: Program, kernel: Kernel, template: str, line: int) -> tuple[Extent, str] | None:
    """Return the place and the text of the line of a program that is most like a line of a kernel's template.

    Types, literals, calls and the order of some lines have changed on the way, and most words have not. What gives the
    fields of a struct their values, which a template is passed one by one, is of the kernel's parameter.

    Args:
        program: that it is of.
        kernel: whose template it is.
        template: the template's text.
        line: from 1.

    Returns:
        None if no line is like it.
    """
    lines = template.splitlines()
    wanted = [_words(lines[at]) if 0 <= at < len(lines) else [] for at in (line - 2, line - 1, line)]
    for parameter in kernel.parameters if 0 < line <= len(lines) else ():
        if re.fullmatch(rf"\s*{parameter.name}\.\S+ = .*\b{parameter.name}_\w+\)?;", lines[line - 1]):
            file = next(file for file in program.files if file.path == parameter.extent.file)
            return parameter.extent, file.of(parameter.extent)
    best, found = 0.0, None
    for file, extent in _pieces(program, kernel):
        first = file.text.rfind("\n", 0, extent.start) + 1
        number = file.text.count("\n", 0, first)
        texts = file.text[first : extent.end].split("\n")
        words = [[], *map(_words, texts), []]
        for at, text in enumerate(texts):
            middle = _likeness(wanted[1], words[at + 1])
            around = _likeness(wanted[0], words[at]) + _likeness(wanted[2], words[at + 2])
            if middle > 0 and middle + _NEIGHBOUR * around > best:
                best = middle + _NEIGHBOUR * around
                start = first + sum(len(each) + 1 for each in texts[:at])
                found = Extent(file.path, start, start + len(text), file.line(number + at + 1)), text.strip()
    return found


def _pieces(program: Program, kernel: Kernel) -> Iterator[tuple[SourceFile, Extent]]:
    """Give the pieces of the program that a template is made of: those of the kernel first."""
    files = {file.path: file for file in program.files}
    for extent in (kernel.extent, *(need.extent for need in kernel.needs)):
        yield files[extent.file], extent


def _words(line: str) -> list[str]:
    return [text.removesuffix("_num") for token in tokens(line) if (text := token.text) not in _ADDED]


def _likeness(one: Sequence[str], other: Sequence[str]) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio() if one and other else 0.0
