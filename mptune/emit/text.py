"""Escaping of values in files of other languages, and filling templates."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from typing import Any, Final

import jinja2

#: Keywords of C++20, and macros and types of device compilers.
_WORDS: Final = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete
do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
requires return short signed sizeof static static_assert static_cast struct switch template this thread_local throw
true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq half NULL EOF
errno assert linux unix restrict
"""
_RESERVED: Final = frozenset(_WORDS.split())
_LARGEST_INTEGER: Final = 2**63 - 1


def identifier(name: str) -> str:
    """Return a name as a C++ identifier."""
    return f"{name}_" if name in _RESERVED else name


def quoted(text: object) -> str:
    """Return text as a C++ string literal of its UTF-8."""
    escaped = []
    for byte in str(text).encode("utf-8", "backslashreplace"):
        plain = 0x20 <= byte < 0x7F and chr(byte) not in '"\\?'
        # A hexadecimal escape would continue into the next character.
        escaped.append(chr(byte) if plain else f"\\{byte:03o}")
    return f'"{"".join(escaped)}"'


def literal(value: object) -> str:
    """Return a number or truth value as C++, and anything else as a string literal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) <= _LARGEST_INTEGER:
        return f"{value}LL" if abs(value) >= 2**31 else str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    return quoted(value)


def comment(text: object) -> str:
    """Return text as one line that cannot end a comment of C++ or Python."""
    shown = _visible(" ".join(str(text).splitlines()))
    shown = shown.replace("*/", "* /").replace("/*", "/ *").replace("??/", "? ?/").replace('"""', "'''")
    # A backslash at the end of a line would continue the comment.
    return shown.rstrip("\\ ") if shown.rstrip().endswith("\\") else shown


def code_span(text: object) -> str:
    """Return text as an inline code span of Markdown."""
    shown = comment(text)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") or not shown else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def table_cell(text: object) -> str:
    """Return text as a code span inside a table of Markdown."""
    return code_span(text).replace("|", "\\|")


def table_text(text: object) -> str:
    """Return text inside a table of Markdown, as a code span if it has special characters."""
    shown = str(text)
    return shown if re.fullmatch(r"[\w .()+-]*", shown, re.ASCII) else table_cell(shown)


def fenced(text: object) -> str:
    """Return text as a code block of Markdown."""
    shown = _visible(str(text))
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    return f"{fence}\n{shown}\n{fence}"


def _visible(text: str) -> str:
    """Return text with the code points of invisible characters."""
    return "".join(char if char.isprintable() else f"<U+{ord(char):04X}>" for char in text)


def fill(template: str, values: Mapping[str, Any]) -> str:
    """Return a template of ``files``, named without ``.j2``, filled with values."""
    return _environment().get_template(f"{template}.j2").render(**values)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mptune.emit", "files"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    named = (code_span, comment, fenced, identifier, literal, quoted, table_cell, table_text)
    environment.filters.update({function.__name__: function for function in named})
    environment.filters["python"] = ascii
    return environment
