"""Floating-point literals that make a narrow computation double.

``0.5 * x`` is computed in double whatever the type of ``x`` is: a template that writes it pays for conversions and for
double arithmetic in every narrow configuration, and its narrow types look slower than they are. What is looked for is a
literal without a suffix that an operator, or a function of the prelude that takes several numbers, combines with a
value of a narrower floating-point type. Types are worked out from the declarations in the rendered source. Where one
cannot be, nothing is said: the aim is that what is said is right.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mptune.cpp.prelude import prelude
from mptune.cpp.tokens import KEYWORDS, Token, tokens

__all__ = ["widening_literals"]


@dataclass(frozen=True, slots=True)
class _Value:
    """What is known of an expression.

    Attributes:
        type: "integer", "narrow" (floating-point below double), "double", or "" if not known.
        literals: those that alone make it double.
    """

    type: str = ""
    literals: tuple[Token, ...] = ()


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


_UNKNOWN: Final = _Value()
_INTEGER: Final = _Value("integer")
_NARROW: Final = _Value("narrow")
_DOUBLE: Final = _Value("double")

_TYPES: Final = {
    **dict.fromkeys(_words("bool char short int long unsigned signed size_t ptrdiff_t uint uchar ushort"), _INTEGER),
    **{f"{sign}int{bits}_t": _INTEGER for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"{kind}{n}": _INTEGER for kind in ("int", "uint", "dim") for n in (2, 3, 4)},
    **dict.fromkeys(
        _words("float half bfloat16 fp8_e4m3 fp8_e5m2 _Float16 __half __half2 half2 __nv_bfloat16"), _NARROW
    ),
    **{f"float{n}": _NARROW for n in (2, 3, 4)},
    "double": _DOUBLE,
    **{f"double{n}": _DOUBLE for n in (2, 3, 4)},
}
#: Of these, several can stand together.
_BUILT_IN: Final = frozenset(_words("unsigned signed long short int char double float bool void"))
#: Templates of the prelude whose values compute like their first argument.
_LIKE_ARGUMENT: Final = ("vec", "local")
_QUALIFIERS: Final = frozenset(
    _words(
        "const constexpr static inline volatile extern register typename mutable thread_local struct class "
        "__shared__ __constant__ __device__ __global__ __host__ __managed__ __restrict__ __restrict "
        "__forceinline__ __noinline__"
    )
)
_ATTRIBUTES: Final = ("alignas", "__align__", "__attribute__", "__launch_bounds__")
_CASTS: Final = ("static_cast", "const_cast", "reinterpret_cast")
_INDICES: Final = ("threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize")
_SKIPPED: Final = frozenset(_words("return else case do throw goto default break continue new delete"))
#: A literal of type double, decimal or hexadecimal.
_LITERAL: Final = re.compile(
    r"(?:[\d']+\.[\d']*|\.[\d']+|[\d']+(?=[eE]))(?:[eE][+-]?\d+)?|0[xX][\da-fA-F'.]*[pP][+-]?\d+"
)
_FLOAT_LITERAL: Final = re.compile(r"(?!0[xX][^pP]*$).*[fF](?:16|32)?|.*[bB][fF]16")

_ASSIGNMENTS: Final = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "^=", "|="))
_PRECEDENCE: Final = {
    **dict.fromkeys(_ASSIGNMENTS, 1),
    "?": 1,
    "||": 2,
    "&&": 3,
    "|": 4,
    "^": 5,
    "&": 6,
    **dict.fromkeys(("==", "!="), 7),
    **dict.fromkeys(("<", "<=", ">", ">="), 8),
    **dict.fromkeys(("<<", ">>"), 9),
    **dict.fromkeys(("+", "-"), 10),
    **dict.fromkeys(("*", "/", "%"), 11),
}
_COMPUTING: Final = frozenset(("+", "-", "*", "/", "+=", "-=", "*=", "/="))
_COMPARING: Final = frozenset(("==", "!=", "<", "<=", ">", ">="))
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}


def widening_literals(body: str) -> tuple[Token, ...]:
    """Return the literals that make narrow computations of an instantiated template double, in their order."""
    reader = _Reader(tuple(tokens(body)))
    with contextlib.suppress(RecursionError):  # hundreds of brackets in one another: what was found so far
        reader.read()
    return tuple(sorted(reader.found, key=lambda token: token.start))


@functools.cache
def _functions() -> frozenset[str]:
    """Return the functions of the prelude that compute in the widest type of their arguments."""
    listed = re.findall(r"\b(?:one|two)\((\w+)\)", prelude())
    return frozenset((*listed, "fma", "min", "max", "fmin", "fmax", "abs", "load", "sum", "dot"))


class _Reader:
    """Reads a source once, from its beginning to its end, and never gives up: what it does not know it passes over."""

    def __init__(self, source: Sequence[Token]) -> None:
        self.found: set[Token] = set()
        self._tokens = source
        self._types = dict(_TYPES)
        self._scopes: list[dict[str, _Value]] = [dict.fromkeys(_INDICES, _INTEGER)]
        self._functions: dict[str, _Value] = {}
        #: The type of the declaration that has not come to its semicolon.
        self._declaring: _Value | None = None
        #: A type that a template of the source leaves open is narrow where nothing is declared double.
        self._open = _UNKNOWN if any(token.text == "double" for token in source) else _NARROW

    def read(self) -> None:
        """Read everything."""
        i = 0
        while i < len(self._tokens):
            i = max(i + 1, self._step(i))

    def _text(self, i: int) -> str:
        return self._tokens[i].text if i < len(self._tokens) else ""

    def _is_name(self, i: int) -> bool:
        return i < len(self._tokens) and self._tokens[i].kind == "name" and self._tokens[i].text not in KEYWORDS

    # -- statements and declarations -----------------------------------------------------------

    def _step(self, i: int) -> int:
        """Read one thing at a place, and return the place behind it."""
        token = self._tokens[i]
        text = token.text
        if token.kind == "directive":
            self._define(token)
        elif text in ("{", "}", ";", "("):
            self._declaring = None
            if text == "{":
                self._scopes.append({})
            elif text == "}" and len(self._scopes) > 1:
                self._scopes.pop()
        if text == "using" and self._is_name(i + 1) and self._text(i + 2) == "=":
            return self._alias(self._text(i + 1), i + 3)
        if text == "typedef":
            read = self._type(i + 1)
            return i + 1 if read is None else self._alias(self._text(read[1]), i + 1)
        if text == "template" and self._text(i + 1) == "<":
            return self._template(i + 2)
        if text in ("if", "while", "for", "switch"):
            return i + 2 + (self._text(i + 1) == "constexpr")
        if text == "," and self._declaring is not None:
            return self._declarator(i + 1, self._declaring, i + 1)
        if token.kind == "name" and text not in _SKIPPED:
            declared = self._type(i)
            if declared is None and self._is_name(i) and self._is_name(self._behind_pointers(i + 1)):
                declared = _UNKNOWN, i + 1  # "Something name"
            if declared is not None and (j := self._declarator(declared[1], declared[0], 0)):
                return j
            return self._expression(i)[1]
        if token.kind in ("number", "text") or text in ("[", "(", "-", "+", "!", "~", "*", "&", "++", "--"):
            return self._expression(i)[1]
        return i + 1

    def _define(self, directive: Token) -> None:
        """Take in a macro that stands for a type or a value; one with parameters is passed over."""
        match = re.match(r"#\s*define\s+(\w+)(?=\s)", directive.text)
        if match is None:
            return
        behind = tokens(directive.text, match.end())
        inner = _Reader([dataclasses.replace(token, start=directive.start + token.start) for token in behind])
        inner._types, inner._scopes = self._types, self._scopes
        known = inner._type(0)
        if known is not None and known[1] == len(inner._tokens):
            self._types[match[1]] = known[0]
        elif inner._tokens:
            self._scopes[0][match[1]] = inner._expression(0)[0]
            self.found |= inner.found

    def _alias(self, name: str, i: int) -> int:
        read = self._type(i)
        self._types[name] = _UNKNOWN if read is None else read[0]
        return i if read is None else read[1]

    def _template(self, i: int) -> int:
        """Take in the parameters of a template, the first of which stands here."""
        while i < len(self._tokens) and self._text(i) not in (">", ">>"):
            if self._text(i) in ("class", "typename") and self._is_name(i + 1):
                self._types[self._text(i + 1)] = self._open
            elif self._is_name(i) and self._text(i - 1) in ("int", "unsigned", "bool", "size_t", "long"):
                self._scopes[0][self._text(i)] = _INTEGER
            i += 1
        return i + 1

    def _type(self, i: int) -> tuple[_Value, int] | None:
        """Return what values of the type at a place are, and the place behind it; None if there is no type."""
        i = self._qualifiers(i)
        found: _Value | None = None
        if self._text(i) == "auto":
            return _Value("auto"), self._qualifiers(i + 1)
        if self._text(i) == "decltype" and self._text(i + 1) == "(":
            value, i = self._expression(i + 2)
            return _Value(value.type), self._qualifiers(i + 1)
        while self._text(i + 1) == "::" and self._is_name(i):
            i += 2
        while self._text(i) in _BUILT_IN:
            found = _DOUBLE if "double" in (self._text(i), found and found.type) else self._types.get(self._text(i))
            found = found or _UNKNOWN
            i += 1
        if found is None:
            name = self._text(i)
            if name in _LIKE_ARGUMENT and self._text(i + 1) == "<":
                inner = self._type(i + 2)
                end = self._behind_angles(i + 1)
                if inner is None or end is None:
                    return None
                found, i = inner[0], end
            elif name in self._types and self._is_name(i):
                found, i = self._types[name], i + 1
                if self._text(i) == "<" and (end := self._behind_angles(i)) is not None:
                    i = end
            else:
                return None
        return found, self._qualifiers(i)

    def _qualifiers(self, i: int) -> int:
        while True:
            if self._text(i) in _QUALIFIERS:
                i += 1
            elif self._text(i) in _ATTRIBUTES and self._text(i + 1) == "(":
                i = self._behind_brackets(i + 1)
            else:
                return i

    def _behind_pointers(self, i: int) -> int:
        while self._text(i) in ("*", "&", "&&", "const", "__restrict__", "__restrict", "volatile"):
            i += 1
        return i

    def _declarator(self, i: int, type_: _Value, otherwise: int) -> int:
        """Declare the name at a place and return the place behind it; if none is declared there, ``otherwise``."""
        i = self._qualifiers(self._behind_pointers(i))
        if self._text(i) == "(" and self._text(i + 1) in ("&", "*") and self._text(i + 3) == ")":
            i += 2  # T (&name)[n]
        if self._text(i) == "[" and type_.type == "auto":
            # auto [a, b] = something: taken for elements of one type.
            end = self._behind_brackets(i)
            value = self._expression(end + 1)[0] if self._text(end) == "=" else _UNKNOWN
            self._scopes[-1].update({token.text: value for token in self._tokens[i:end] if token.kind == "name"})
            return end
        if not self._is_name(i) or self._text(i) in self._types:
            return otherwise
        after = self._text(i + 1)
        if after not in ("=", ";", ",", ")", "[", "(", "{", ":") or (after == "(" and type_.type == "auto"):
            return otherwise
        name, value = self._text(i), type_
        if type_.type == "auto":
            value = self._expression(i + 2)[0] if after == "=" else _UNKNOWN
        self._scopes[-1][name] = value
        if after == "(":
            self._functions[name] = value
        self._declaring = type_
        return i + 1 + (after in ("=", "("))

    # -- expressions ---------------------------------------------------------------------------

    def _expression(self, i: int, least: int = 0) -> tuple[_Value, int]:
        """Return what is known of the expression at a place, and the place behind it."""
        value, i = self._operand(i)
        while (level := _PRECEDENCE.get(sign := self._text(i))) is not None and level >= least:
            if sign == "?":
                first, i = self._expression(i + 1)
                if self._text(i) != ":":
                    return _UNKNOWN, i
                second, i = self._expression(i + 1, 1)
                value = self._combine(first, second)
                continue
            other, i = self._expression(i + 1, level if sign in _ASSIGNMENTS else level + 1)
            if sign in _COMPUTING or sign in _COMPARING:
                combined = self._combine(value, other)
                # What is compared or assigned to has the type it had.
                value = _INTEGER if sign in _COMPARING else _Value(value.type) if sign in _ASSIGNMENTS else combined
            elif sign != "=":
                value = _INTEGER
        return value, i

    def _combine(self, *values: _Value) -> _Value:
        """Return what values give together, in the widest of their types; note the literals that make it double."""
        types = {value.type for value in values}
        literals = tuple(token for value in values for token in value.literals)
        by_literals = all(value.literals or value.type != "double" for value in values)
        if literals and "narrow" in types and by_literals:
            self.found.update(literals)
            return _UNKNOWN
        if "" in types or "auto" in types:
            return _UNKNOWN
        if "double" in types:
            return _Value("double", literals if by_literals else ())
        return _NARROW if "narrow" in types else _INTEGER

    def _operand(self, i: int) -> tuple[_Value, int]:
        text = self._text(i)
        if text in ("+", "-", "*", "&", "++", "--"):
            return self._operand(i + 1)
        if text in ("!", "~"):
            return _INTEGER, self._operand(i + 1)[1]
        if text in ("sizeof", "alignof"):
            return _INTEGER, self._behind_brackets(i + 1)
        if text == "(":
            cast = self._type(i + 1)
            if cast is not None and self._text(end := self._behind_pointers(cast[1])) == ")":
                return cast[0], self._operand(end + 1)[1]
        value, i = self._primary(i)
        while True:
            text = self._text(i)
            if text == "[":
                i = self._arguments(i)[1]
            elif text in (".", "->") and self._is_name(i + 1):
                i += 2
                if self._text(i) == "(":
                    value, i = _UNKNOWN, self._arguments(i)[1]
            elif text in ("++", "--"):
                i += 1
            elif text == "(":
                value, i = _UNKNOWN, self._arguments(i)[1]
            else:
                return value, i

    def _primary(self, i: int) -> tuple[_Value, int]:
        if i >= len(self._tokens):
            return _UNKNOWN, i
        token = self._tokens[i]
        if token.kind == "number":
            if _LITERAL.fullmatch(token.text):
                return _Value("double", (token,)), i + 1
            return (_NARROW if _FLOAT_LITERAL.fullmatch(token.text) else _INTEGER), i + 1
        if token.text == "(":
            values, i = self._arguments(i)
            return values[-1] if values else _UNKNOWN, i
        if token.text == "[":
            # A function without a name: what stands in its brackets are declarations.
            i = self._behind_brackets(i)
            return _UNKNOWN, i + (self._text(i) == "(")
        if token.kind != "name":
            return _UNKNOWN, i + (token.kind == "text")
        if token.text in ("true", "false"):
            return _INTEGER, i + 1
        if token.text in _CASTS and self._text(i + 1) == "<":
            cast, end = self._type(i + 2), self._behind_angles(i + 1)
            if cast is not None and end is not None and self._text(end) == "(":
                return cast[0], self._arguments(end)[1]
            return _UNKNOWN, i + 1
        declared = self._type(i)
        if declared is not None:
            value, i = declared
            return (value, self._arguments(i)[1]) if self._text(i) in ("(", "{") else (_UNKNOWN, i)
        return self._named(i)

    def _named(self, i: int) -> tuple[_Value, int]:
        """Return what is known of a variable, or of what a function returns."""
        while self._text(i + 1) == "::" and self._is_name(i + 2):
            i += 2
        name, i = self._text(i), i + 1
        if self._text(i) == "<" and (end := self._behind_angles(i)) is not None and self._text(end) == "(":
            i = end
        if self._text(i) == "(" and not any(name in scope for scope in self._scopes[1:]):
            values, i = self._arguments(i)
            if name in self._functions:
                return self._functions[name], i
            if name in _functions() and values:
                return self._combine(*values), i
            # CUDA's functions of float: sqrtf, __expf, __fmaf_rn.
            is_float = re.fullmatch(r"_*f?(\w+?)f(_r[nzud])?", name) and name.strip("_").split("f")[0] in _functions()
            return (_NARROW if is_float else _UNKNOWN), i
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name], i
        return _UNKNOWN, i

    def _arguments(self, i: int) -> tuple[list[_Value], int]:
        """Return what is known of the expressions between the bracket here and its partner, and the place behind it."""
        closing, values = _CLOSING[self._text(i)], list[_Value]()
        i += 1
        while i < len(self._tokens) and self._text(i) not in (closing, ";"):
            if self._text(i) == ",":
                i += 1
                continue
            value, end = self._expression(i)
            values.append(value if end > i else _UNKNOWN)
            i = end if end > i else self._behind_brackets(i)
        return values, i + (self._text(i) == closing)

    # -- brackets ------------------------------------------------------------------------------

    def _behind_brackets(self, i: int) -> int:
        """Return the place behind the bracket that closes the one here; without one, the next place."""
        depth = 0
        for j in range(i, len(self._tokens)):
            depth += (self._text(j) in "([{") - (self._text(j) in ")]}")
            if depth <= 0:
                return j + 1
        return i + 1

    def _behind_angles(self, i: int) -> int | None:
        """Return the place behind the arguments of a template; None if the sign here means less."""
        depth = 0
        for j in range(i, min(i + 64, len(self._tokens))):
            text = self._text(j)
            if text in (";", "{", "}", "&&", "||", "=") or text in _COMPARING - {"<", ">"}:
                return None
            depth += {"<": 1, ">": -1, ">>": -2}.get(text, 0)
            if depth <= 0:
                return j + 1
        return None
