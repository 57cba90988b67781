"""Lines of a program from which lines of a template were made."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Final

from mptune.adopt.parsing import Extent
from mptune.adopt.reading import Kernel, Program
from mptune.cpp.tokens import tokens

#: The weight of the lines before and after a line.
_NEIGHBOUR: Final = 0.25
#: Words that templates have besides the program's own.
_ADDED: Final = frozenset(("mp", "{", "}", "::", ";"))


def origin(program: Program, kernel: Kernel, template: str, line: int) -> tuple[Extent, str] | None:
    """Return the place and the text of the line of a program that is most like a line of a kernel's template.

    A line of a template that sets a field of a struct is that of the kernel's parameter.

    Args:
        program: the program.
        kernel: the kernel.
        template: the text of its template.
        line: the line's number, from 1.
    """
    files = {file.path: file for file in program.files}
    lines = ["", *template.split("\n"), ""]
    wanted = [*lines[line - 1 : line + 2], "", ""][:3]
    for parameter in kernel.parameters:
        if re.fullmatch(rf"\s*{parameter.name}\.\S+ = .*\b{parameter.name}_\w+\)?;", wanted[1]):
            return parameter.extent, files[parameter.extent.file].of(parameter.extent)
    best, found = 0.0, None
    for extent in (kernel.extent, *(need.extent for need in kernel.needs)):
        file = files[extent.file]
        start = file.text.rfind("\n", 0, extent.start) + 1
        number = file.text.count("\n", 0, start)
        texts = ["", *file.text[start : extent.end].split("\n"), ""]
        for at, text in enumerate(texts[1:-1]):
            before, middle, after = map(_likeness, wanted, texts[at : at + 3])
            if middle > 0 and (score := middle + _NEIGHBOUR * (before + after)) > best:
                best = score
                found = Extent(file.path, start, start + len(text), file.line(number + at + 1)), text.strip()
            start += len(text) + 1
    return found


def _likeness(*lines: str) -> float:
    one, other = (
        [word.text.removesuffix("_num") for word in tokens(line) if word.text not in _ADDED] for line in lines
    )
    return SequenceMatcher(None, one, other, autojunk=False).ratio() if one and other else 0.0
