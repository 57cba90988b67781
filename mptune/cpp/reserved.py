"""Names a kernel cannot have: the words of C++, and what the prelude declares where everything can see it.

The prelude's names are read from its text, so that the list is as long as the prelude is wide.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mptune.cpp.prelude import prelude
from mptune.cpp.tokens import KEYWORDS, Token, tokens

__all__ = ["FUNCTIONS_OF_CUDA", "WORDS_OF_OPENCL", "clash", "parameter_names", "prelude_names", "why_reserved"]

_MACRO: Final = re.compile(r"#\s*(define|undef)\s+(\w+)")
#: The functions that one macro of the prelude lists, to declare each of them.
_LISTED: Final = re.compile(r"\b(?:one|two)\((\w+)\)")
#: What has a bracket behind it and is no function.
_ATTRIBUTES: Final = frozenset(("__attribute__", "__asm__", "alignas", "static_assert", "decltype"))
_OTHERS: Final = ("main", "std")
#: Functions that CUDA declares in every source besides the prelude's: a kernel of such a name is for the host alone.
FUNCTIONS_OF_CUDA: Final = frozenset(
    re.findall(
        r"\w+",
        """clock clock64 cyl_bessel_i0 cyl_bessel_i1 erfcinv erfcx erfinv fabsf fmaxf fminf free frexp
        ilogb j0 j0f j1 jn labs ldexp llabs llrint llround logb lrint
        lround malloc modf nan nextafter norm norm3d norm4d normcdfinv normf remquo rnorm
        rnorm3d rnorm4d rnormf rsqrtf scalbln scalbn sincos sincospi umax umin y0 y1
        yn""",
    )
)
#: Words of OpenCL's C++ that are none of C++: they have another meaning in a template, and no kernel can be launched by
#: the name.
WORDS_OF_OPENCL: Final = re.compile(
    r"""global|local|constant|private|kernel|generic|pipe|read_only|write_only|read_write|vec_step|as_\w+|M_\w+
    |image\w*_t|(sampler|event|clk_event|queue|ndrange|reserve_id)_t
    |(u?(char|short|int|long)|half|float|double)(2|3|4|8|16)""",
    re.VERBOSE,
)
_OWN: Final = re.compile(r"\b(?:mptune|MPTUNE)_\w+")


def why_reserved(name: str) -> str:
    """Say what a name means already; empty if nothing.

    Reading the prelude takes a moment, so it is only read where it has the name at all.
    """
    if name in KEYWORDS:
        return "a word of C++"
    if name in _OTHERS:
        return "a name that every C++ program has"
    if re.search(rf"\b{re.escape(name)}\b", prelude()) is None:
        return ""
    kind = prelude_names().get(name)
    return f"a {kind} of the prelude that stands before every template" if kind else ""


def clash(body: str, function: str) -> tuple[Token, str] | None:
    """Return a parameter of a function that cannot be called what it is, and why; None if there is none.

    A parameter may well be called ``sum``, unless the source calls the prelude's ``sum``, which it hides.

    Args:
        body: an instantiated template.
        function: name of the function in it.
    """
    source = tuple(tokens(body))
    words = [token.text for token in source]
    start = _start(words, function)
    called = {
        words[i]
        for i in range(start + 1, len(source) - 1)
        if source[i].kind == "name" and words[i + 1] in ("(", "<") and words[i - 1] not in ("::", ".", "->")
    }
    for parameter in _parameters(source, start + 1):
        name = parameter.text
        why = why_reserved(name)
        if why and (name in KEYWORDS or prelude_names().get(name) == "macro"):
            return parameter, f"it cannot be called {name!r}, which is {why}"
        if why and name in called:
            return parameter, f"it is called {name!r} and hides {why}, and the template uses that one too"
    return None


def parameter_names(body: str, function: str) -> tuple[Token, ...]:
    """Return the names of the parameters of a function in an instantiated template; nothing where it is not there."""
    source = tuple(tokens(body))
    return tuple(_parameters(source, _start([token.text for token in source], function) + 1))


def _start(words: Sequence[str], function: str) -> int:
    """Return where a function's name stands before a bracket."""
    return next((i for i in range(len(words) - 1) if words[i] == function and words[i + 1] == "("), len(words))


def _parameters(source: Sequence[Token], i: int) -> Iterator[Token]:
    """Give the names of the parameters in the brackets that open here."""
    depth, last = 0, None
    for token in source[i : _behind(source, i)] if i < len(source) else ():
        depth += (token.text in ("(", "<", "[")) - (token.text in (")", ">", "]"))
        if (token.text == "," and depth == 1) or depth == 0:
            if last is not None:
                yield last
            last = None
        elif depth == 1 and token.kind == "name":
            last = token


@functools.cache
def prelude_names() -> Mapping[str, str]:
    """Return what the prelude declares outside of its namespaces, for any compiler: by name, what it is."""
    source = tuple(tokens(prelude()))
    found = {**dict.fromkeys(_OWN.findall(prelude()), "name"), **dict.fromkeys(_LISTED.findall(prelude()), "function")}
    undone = set()
    for token in source:
        if token.kind == "directive" and (match := _MACRO.match(token.text)):
            if match[1] == "undef":
                undone.add(match[2])
            found.setdefault(match[2], "macro")
    depth, i = 0, 0
    while i < len(source):
        text = source[i].text
        if text == "template":
            i = _behind(source, i + 1)
            continue
        if text == "{" and not (i and source[i - 1].kind == "text"):  # not that of extern "C" {
            depth += 1
        elif text == "}" and depth:
            depth -= 1
        elif depth == 0 and source[i].kind == "name":
            declared = _declared(source, i)
            # In "long double" the second word is none of its own.
            if declared and text not in found and text not in KEYWORDS:
                found[text] = declared
            elif found.get(text) == "name" and source[i + 1].text == "(":
                # A macro that declares what it is given.
                inner = source[i + 2]
                if inner.kind == "name" and inner.text not in KEYWORDS and source[i + 3].text == ")":
                    found.setdefault(inner.text, "function")
            if source[i + 1].text == "(" and text not in undone:
                i = _behind(source, i + 1)
                continue
        i += 1
    return {name: kind for name, kind in found.items() if name not in undone}


def _declared(source: Sequence[Token], i: int) -> str:
    """Say what is declared by a name outside of all braces; empty if it only occurs there."""
    before, after = source[i - 1], source[i + 1].text
    if before.text in ("struct", "class", "enum") or (before.text == "using" and after == "="):
        return "type"
    if before.text == "namespace":
        return "namespace"
    if before.text == "::" and after == ";":
        return "name"  # using mp::name;
    is_declarator = before.kind == "name" or before.text in ("*", "&", ">", ")")
    if after == "(" and is_declarator and source[i].text not in _ATTRIBUTES:
        return "function"
    return "variable" if after in (",", ";", "=", "[") and (is_declarator or before.text == ",") else ""


def _behind(source: Sequence[Token], i: int) -> int:
    """Return the place behind the bracket that closes the one here."""
    opening, closing = ("<", ">") if source[i].text == "<" else ("(", ")")
    depth = 0
    for j in range(i, len(source)):
        depth += {opening: 1, closing: -1, closing * 2 if closing == ">" else "": -2}.get(source[j].text, 0)
        if depth <= 0:
            return j + 1
    return len(source)
