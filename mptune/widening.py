"""A rendered source with every floating-point type made the one that is wider than fp64: what a wide reference runs.

Templates and constraints see a configuration in fp64, as ever. What is changed is what was rendered, so that a
``double`` or ``float`` that a template names itself becomes wide, too, and a literal has all the digits it is written
with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from mptune.cplusplus import Token, tokens
from mptune.precision import PRECISIONS, WIDE

__all__ = ["growth", "widened"]

#: What a source calls floating-point types, with their bytes.
_NAMES: Final = {entry.cpp: entry.size_bytes for entry in PRECISIONS.values()}
#: A literal of a floating-point type, with or without a suffix.
_LITERAL: Final = re.compile(
    r"((?:[\d']+\.[\d']*|\.[\d']+|[\d']+(?=[eE]))(?:[eE][+-]?\d+)?|0[xX][\da-fA-F'.]*[pP][+-]?\d+)"
    r"(?:[fF](?:16|32|64)?|[bB][fF]16)?"
)
_DEFINE: Final = re.compile(r"#\s*define\s+\w+")


def widened(source: str) -> str:
    """Return a source in which every floating-point type and literal is wide; every line keeps its number."""
    pieces: list[str] = []
    done = 0
    for token, text in _changes(source):
        pieces += (source[done : token.start], text)
        done = token.start + len(token.text)
    return "".join((*pieces, source[done:]))


def growth(source: str) -> int:
    """Return how many times as many bytes what a source keeps in shared memory may take once it is widened."""
    sizes = [_NAMES[token.text] for token in _tokens(source) if token.text in _NAMES]
    return WIDE.size_bytes // min(sizes, default=WIDE.size_bytes)


def _changes(source: str) -> Iterator[tuple[Token, str]]:
    is_long: Token | None = None
    for token in _tokens(source):
        if token.text in _NAMES:
            if token.text == "double" and is_long is not None:
                yield is_long, ""
            yield token, WIDE.cpp
        elif token.kind == "number" and (match := _LITERAL.fullmatch(token.text)):
            yield token, f"{match[1]}L"
        is_long = token if token.text == "long" else None


def _tokens(source: str) -> Iterator[Token]:
    """Give the tokens of a source, and those of what its macros stand for."""
    for token in tokens(source):
        if token.kind != "directive":
            yield token
        elif match := _DEFINE.match(token.text):
            for inner in tokens(token.text, match.end()):
                yield Token(inner.kind, inner.text, token.start + inner.start)
