"""C++ as its compiler reads it: tokens, without comments, and with strings and directives each in one piece."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: The words of C++17 and C++20 that no name can be.
KEYWORDS: Final = frozenset(
    re.findall(
        r"\w+",
        "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t "
        "char32_t class compl concept const consteval constexpr constinit const_cast continue co_await "
        "co_return co_yield decltype default delete do double dynamic_cast else enum explicit export extern "
        "false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr "
        "operator or or_eq private protected public register reinterpret_cast requires return short signed "
        "sizeof static static_assert static_cast struct switch template this thread_local throw true try "
        "typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq",
    )
)


@dataclass(frozen=True, slots=True)
class Token:
    """One piece of a source."""

    kind: str  #: "name" (keywords too), "number", "text" (a string or character), "directive" or "sign"
    text: str  #: how it is written
    start: int  #: where it begins in the source


# A line that ends with a backslash goes on. Numbers are preprocessing numbers (ISO C++, lex.ppnumber).
_TOKEN: Final = re.compile(
    r"""
      (?P<skip>\s+ | \\\r?\n | //(?:[^\\\n]|\\(?:.|\n)|\\$)* | /\*.*?(?:\*/|\Z))
    | (?P<text>(?:u8|[uUL])?R"(?P<fence>[^\s()\\]{0,16})\(.*?\)(?P=fence)" | (?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"
             | (?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
    | (?P<number>\.?\d(?:[eEpP][+-]|'\w|[\w.])*)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<directive>\#)
    | (?P<sign><<=|>>=|<=>|\.\.\.|->\*|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE: Final = re.compile(
    r"""\#(?: /\*.*?\*/ | "(?:[^"\\\n]|\\.)*" | (?!//|/\*) (?:[^\\\n] | \\\r?\n | \\))*""", re.VERBOSE | re.DOTALL
)


def tokens(source: str, start: int = 0) -> Iterator[Token]:
    """Give the tokens of a source, from a place on; what is no C++ gives tokens all the same."""
    is_first = True
    while start < len(source):
        match = _TOKEN.match(source, start)
        assert match is not None
        kind = match.lastgroup or "sign"
        if kind == "fence":
            kind = "text"
        if kind == "directive":
            # A number sign elsewhere than at the start of a line is an operator of the preprocessor.
            match = (_DIRECTIVE.match(source, start) if is_first else None) or match
            kind = "directive" if is_first else "sign"
        if kind == "skip":
            is_first = is_first or "\n" in match[0].replace("\\\n", "")
        else:
            yield Token(kind, match[0], start)
            is_first = False
        start = match.end()
