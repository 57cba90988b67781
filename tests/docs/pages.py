"""The code blocks of the documentation's pages, and what the comment before one says about running it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))

#: An HTML comment, which neither GitHub nor the built pages show, right before a block:
#: "not run: REASON" (its commands are only checked for options that exist), "not yet: COMMAND" (neither run nor
#: checked) or "extra: MODULE" (run where it is installed).
_BLOCK = re.compile(
    r"(?:^<!-- (?P<marker>not run|not yet|extra): (?P<detail>[^\n]*) -->\n)?"
    r"^```(?P<language>console|sh|python)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a console block and the output shown below it."""

    line: str
    output: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        return shlex.split(self.line, comments=True)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        language: console, sh or python.
        text: what is between the fences.
        marker: "not run", "not yet", "extra" or empty.
        detail: the reason, command or module.
    """

    language: str
    text: str
    marker: str
    detail: str

    def commands(self) -> Iterator[Command]:
        """Yield the commands; of a ``sh`` block the lines that are mptune's."""
        if self.language == "sh":
            for line in self.text.splitlines():
                if line.startswith("mptune "):
                    yield Command(line, ())
        elif self.language == "console":
            assert self.text.startswith("$ "), self.text
            for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
                line, *output = part.splitlines()
                yield Command(line, tuple(text for text in output if text.strip()))


def blocks(path: Path) -> list[Block]:
    """Return the blocks of a page in order."""
    found = []
    for match in _BLOCK.finditer(path.read_text(encoding="utf-8")):
        parts = match.groupdict(default="")
        found.append(Block(parts["language"], parts["text"], parts["marker"], parts["detail"]))
    return found
