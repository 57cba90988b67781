"""What a source includes beside the prelude, so that a change of a header counts as one of the source."""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mptune.cpp.prelude import prelude

_INCLUDE: Final = re.compile(
    r'^[ \t]*#[ \t]*(?:include|include_next|import)\b[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|\S).*', re.MULTILINE
)
#: What stands before a folder or file in a compiler's flag, in the same word.
_OPTION: Final = re.compile(
    r"\A-+(?:I|isystem|iquote|idirafter|imacros|include-path|include-directory|pre-include|include)?=?"
)
_VARIABLES: Final = ("CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH")
#: Stands for a header whose name a macro gives: nobody knows what it holds, so nothing of it is used in a later run.
_UNKNOWN: Final = uuid.uuid4().hex


def include_lines(text: str) -> str:
    """Return the lines of a text that include a header."""
    return "\n".join(found[0].strip() for found in _INCLUDE.finditer(text))


def with_headers(source: str, flags: Sequence[str] = ()) -> str:
    """Return a source as the keys of binaries and trials have it: with a digest of the headers it includes, if any.

    Headers are found by reading, not by preprocessing: also those in a branch that is not taken, and those that a
    header includes. What is in none of the folders that flags, ``$CXX`` and the environment name is the compiler's
    own and changes with its version.

    Args:
        source: prelude, template and entry; the prelude's own headers do not count.
        flags: of the compiler.
    """
    words = [_OPTION.sub("", word, count=1) for word in (*flags, *os.environ.get("CXX", "").split())]
    folders = [Path(folder) for name in _VARIABLES for folder in os.environ.get(name, "").split(os.pathsep)]
    named = [Path(word) for word in words if word]
    digest, seen = hashlib.sha256(), set[Path]()
    pending = [path for path in named if os.path.isfile(path)]  # noqa: PTH113
    folders += named
    pending += _included(source.removeprefix(prelude()), folders)
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            content = path.read_bytes()
        except OSError:
            content = _UNKNOWN.encode()
        digest.update(hashlib.sha256(content).digest())
        pending += _included(content.decode("latin-1"), [path.parent, *folders])
    return f"{source}\n// headers: {digest.hexdigest()}\n" if seen else source


def _included(text: str, folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the files that a text may mean by what it includes; one that is not there for a name a macro gives."""
    for quoted, angled in _INCLUDE.findall(text):
        if name := quoted or angled:
            # Which of several is taken, the compiler knows. A name no file can have is no error here.
            yield from (path for folder in folders if os.path.isfile(path := folder / name))  # noqa: PTH113
        else:
            yield Path(_UNKNOWN)
