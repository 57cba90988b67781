"""Floating-point literals that make a narrow computation double.

``0.5 * x`` is computed in double whatever the type of ``x`` is: a template that writes it pays for conversions and for
double arithmetic in every narrow configuration, and its narrow types look slower than they are. The reader looks for
literals without a suffix that an operator, or a function of the prelude, combines with a narrower value. Types come
from the declarations in the rendered source, the latest of a name; where a type is unknown, nothing is reported.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from mptune.cpp.prelude import prelude
from mptune.cpp.tokens import KEYWORDS, Token, tokens


class _Value(NamedTuple):
    """An expression's type and the literals that alone make it double."""

    type: str = ""  #: "integer", "narrow" (floating-point below double), "double", or "" if unknown
    literals: tuple[Token, ...] = ()


_UNKNOWN: Final = _Value()
_INTEGER: Final = _Value("integer")
_NARROW: Final = _Value("narrow")
_DOUBLE: Final = _Value("double")

_TYPES: Final = {
    r"(float|half|__half)[234]?|bfloat16|fp8_e\dm\d|_Float16|__nv_bfloat16": _NARROW,
    r"double[234]?": _DOUBLE,
    "void": _UNKNOWN,
    r"bool|char|short|int|long|(un)?signed|size_t|ptrdiff_t|u(int|char|short)|u?int\d+_t|(u?int|dim)[234]": _INTEGER,
}
_BUILT_IN: Final = frozenset(("unsigned", "signed", "long", "short", "int", "char", "double", "float", "bool", "void"))
#: Words around a type in a declaration. Some have an argument in parentheses.
_QUALIFIER: Final = re.compile(
    "const|constexpr|static|inline|volatile|extern|register|typename|mutable|struct|class|"
    "__(shared|constant|device|global|host|managed|restrict|forceinline|noinline)__|__restrict|"
    r"alignas|__align__|__attribute__|__launch_bounds__|\*|&&?"
)
_INDICES: Final = ("threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "true", "false")
_LITERAL: Final = re.compile(
    r"(?:[\d']+\.[\d']*|\.[\d']+|[\d']+(?=[eE]))(?:[eE][+-]?\d+)?|0[xX][\da-fA-F'.]*[pP][+-]?\d+"
)
_FLOAT_LITERAL: Final = re.compile(r"(?!0[xX][^pP]*$).*[fF](?:16|32)?|.*[bB][fF]16")
_COMPARISONS: Final = frozenset(("==", "!=", "<", "<=", ">", ">="))
#: What ends an expression: values on both sides of it are not combined.
_ENDS: Final = frozenset((",", ";", "{", "}", ")", "]", "=", "?", "&&", "||", ""))
_STATEMENTS: Final = frozenset(
    ("return", "if", "else", "for", "while", "do", "switch", "case", "default", "using", "typedef", "template")
)
_CLOSING: Final = {"(": ")", "[": "]", "{": "}", "<": ">"}


def widening_literals(body: str) -> tuple[Token, ...]:
    """Return the literals that make narrow computations of an instantiated template double, in their order."""
    reader = _Reader(list(_expanded(body)))
    with contextlib.suppress(RecursionError):  # hundreds of nested brackets: keep what was found so far
        reader.read(0)
    return tuple(sorted(reader.found, key=lambda token: token.start))


def _expanded(body: str) -> Iterator[Token]:
    """Yield the tokens of a source with its macros without parameters replaced."""
    macros: dict[str, list[Token]] = {}
    for token in tokens(body):
        if token.kind != "directive":
            yield from macros.get(token.text, (token,))
        elif match := re.match(r"#\s*define\s+(\w+)(?=\s)", token.text):
            value = tokens(token.text, match.end())
            macros[match[1]] = [Token(each.kind, each.text, token.start + each.start) for each in value]


@functools.cache
def _functions() -> frozenset[str]:
    """Return the functions of the prelude that compute in the widest type of their arguments."""
    listed = re.findall(r"\b(?:one|two)\((\w+)\)", prelude())
    return frozenset((*listed, "fma", "min", "max", "fmin", "fmax", "abs", "load", "sum", "dot"))


@functools.cache
def _known_type(name: str) -> _Value | None:
    return next((value for pattern, value in _TYPES.items() if re.fullmatch(pattern, name)), None)


class _Reader:
    """Reads a source once, from its beginning to its end, and skips what it does not know."""

    def __init__(self, source: list[Token]) -> None:
        self.found: set[Token] = set()
        self._tokens = source
        self._types: dict[str, _Value] = {}
        self._names = dict.fromkeys(_INDICES, _INTEGER)
        # A template's open type is narrow unless the source declares something double.
        self._open = _UNKNOWN if any(token.text == "double" for token in source) else _NARROW

    def read(self, i: int, closing: str = "") -> tuple[list[_Value], int]:
        """Read up to a closing bracket; return the values of all expressions and the place behind it."""
        values: list[_Value] = []
        declaring: _Value | None = None
        while i < len(self._tokens) and (text := self._text(i)) != closing:
            start = i
            if text == "using" and self._text(i + 2) == "=":
                self._types[self._text(i + 1)], i = self._type(i + 3) or (_UNKNOWN, i + 3)
            elif text == "typedef" and (read := self._type(i + 1)) is not None:
                self._types[self._text(read[1])], i = read
            elif text == "template":
                i = self._behind(i + 1)
                for j in range(start, i):
                    if self._text(j) in ("class", "typename"):
                        self._types[self._text(j + 1)] = self._open
                    elif self._text(j) in _BUILT_IN:
                        self._names[self._text(j + 1)] = _INTEGER
            elif text in _STATEMENTS:
                i = self.read(i + 2, ")")[1] if self._text(i + 1) == "(" else i + 1
            elif read := self._declaration(i, declaring):
                declaring, i = read
                name, i = self._text(i), i + 1
                self._names[name] = declaring
                if declaring.type == "auto":
                    self._names[name], i = self._expression(i + 1) if self._text(i) == "=" else (_UNKNOWN, i)
            elif text not in _ENDS:
                value, i = self._expression(i)
                values.append(value)
            elif text in (";", "{", "}"):
                declaring = None
            i = max(i, start + 1)
        return values, i + 1

    def _text(self, i: int) -> str:
        return self._tokens[i].text if i < len(self._tokens) else ""

    def _is_name(self, i: int) -> bool:
        return i < len(self._tokens) and self._tokens[i].kind == "name" and self._text(i) not in KEYWORDS

    def _is_declarator(self, i: int) -> bool:
        return self._is_name(i) and self._text(i + 1) in ("=", ";", ",", ")", "[", "(", "{", ":")

    def _declaration(self, i: int, before: _Value | None) -> tuple[_Value, int] | None:
        """Return the type of a name that is declared here, or behind a comma with the name before, and its place."""
        if before is not None and self._text(i) == "," and self._is_declarator(i + 1):
            return before, i + 1
        if (read := self._type(i)) is not None and self._is_declarator(read[1]):
            return read
        return (_UNKNOWN, i + 1) if self._is_name(i) and self._is_name(i + 1) else None  # Something name

    def _type(self, i: int) -> tuple[_Value, int] | None:
        """Return the values of the type here and the place behind its qualifiers; None if there is no type."""
        i = self._qualifiers(i)
        while self._text(i + 1) == "::" and self._is_name(i):
            i += 2
        name = self._text(i)
        value = self._types.get(name) or _known_type(name)
        if name == "auto":
            value, i = _Value("auto"), i + 1
        elif name == "decltype" and self._text(i + 1) == "(":
            value, i = _Value(self._expression(i + 2)[0].type), self._behind(i + 1)
        elif name in ("vec", "local") and self._text(i + 1) == "<":
            inner = self._type(i + 2)
            value, i = inner[0] if inner else _UNKNOWN, self._behind(i + 1)
        elif name in _BUILT_IN:
            while self._text(i) in _BUILT_IN:
                value = _DOUBLE if self._text(i) == "double" else value
                i += 1
        elif value is not None:
            i = self._behind(i + 1) if self._text(i + 1) == "<" else i + 1
        return None if value is None else (value, self._qualifiers(i))

    def _qualifiers(self, i: int) -> int:
        while _QUALIFIER.fullmatch(self._text(i)):
            i = self._behind(i + 1) if self._text(i + 1) == "(" and self._text(i).isidentifier() else i + 1
        return i

    # -- expressions ---------------------------------------------------------------------------

    def _expression(self, i: int) -> tuple[_Value, int]:
        """Return the value of all operands up to the end of an expression, whatever their operators, and the end."""
        values, compares = list[_Value](), False
        while (text := self._text(i)) not in _ENDS and text not in _STATEMENTS:
            if self._tokens[i].kind == "sign" and text not in ("(", "["):
                compares |= text in _COMPARISONS
                i += 1
            else:
                value, i = self._operand(i)
                values.append(value)
        value = self._combine(*values)
        return (_INTEGER if compares else value), i

    def _combine(self, *values: _Value) -> _Value:
        """Return the widest of values, and note the literals that make it double."""
        types = {value.type for value in values}
        literals = tuple(token for value in values for token in value.literals)
        by_literals = all(value.literals or value.type != "double" for value in values)
        if literals and "narrow" in types and by_literals:
            self.found.update(literals)
            return _UNKNOWN
        if not types <= {"integer", "narrow", "double"}:
            return _UNKNOWN
        if "double" in types:
            return _Value("double", literals if by_literals else ())
        return _NARROW if "narrow" in types else _INTEGER

    def _operand(self, i: int) -> tuple[_Value, int]:
        """Return the value of an operand with what follows it, of a cast with its operand, and the place behind it."""
        if self._text(i) == "(" and (cast := self._type(i + 1)) is not None and self._text(cast[1]) == ")":
            i = cast[1] + 1
            while self._text(i) in ("+", "-", "*", "&", "!", "~"):
                i += 1
            return cast[0], i if self._text(i) in _ENDS else self._operand(i)[1]
        value, i = self._primary(i)
        while (text := self._text(i)) in ("[", "(", ".", "->"):
            if text in (".", "->"):
                i += 2
            else:
                value = value if text == "[" else _UNKNOWN
                i = self.read(i + 1, _CLOSING[text])[1]
        return value, i

    def _primary(self, i: int) -> tuple[_Value, int]:
        """Return the value of a number, a variable, a call, or an expression in parentheses."""
        text = self._text(i)
        if text == "(":
            values, i = self.read(i + 1, ")")
            return values[-1] if values else _UNKNOWN, i
        if text == "[":  # a lambda, or the extent of an array
            return _UNKNOWN, self._behind(i)
        if self._tokens[i].kind == "number":
            if _LITERAL.fullmatch(text):
                return _Value("double", (self._tokens[i],)), i + 1
            return (_NARROW if _FLOAT_LITERAL.fullmatch(text) else _INTEGER), i + 1
        if text.endswith("_cast") and self._text(i + 1) == "<":
            value, end = (self._type(i + 2) or (_UNKNOWN, 0))[0], self._behind(i + 1)
            return (value, self.read(end + 1, ")")[1]) if self._text(end) == "(" else (_UNKNOWN, i + 1)
        if text not in self._names and (declared := self._type(i)) is not None:
            value, i = declared
            opening = self._text(i)
            return (value, self.read(i + 1, _CLOSING[opening])[1]) if opening in ("(", "{") else (_UNKNOWN, i)
        while self._text(i + 1) == "::" and self._is_name(i + 2):
            i += 2
        name, i = self._text(i), i + 1
        end = self._behind(i) if self._text(i) == "<" else i
        if self._text(end) != "(" or not name.isidentifier():
            return self._names.get(name, _UNKNOWN), i
        values, i = self.read(end + 1, ")")
        if name in self._names:
            return self._names[name], i
        if name in _functions():
            return self._combine(*values), i
        if name == "literal":  # of the prelude, which takes the other operand's type as an integer does
            return _INTEGER, i
        is_float = re.fullmatch(r"_*(f?\w+?)f(?:_r[nzud])?", name)  # CUDA's sqrtf, __expf, __fmaf_rn
        return (_NARROW if is_float and is_float[1] in _functions() else _UNKNOWN), i

    def _behind(self, i: int) -> int:
        """Return the place behind the bracket that closes the one here, or the next place."""
        opening, depth = self._text(i), 0
        closing = _CLOSING.get(opening, "")
        for j in range(i, len(self._tokens)):
            text = self._text(j)
            depth += (text == opening) - (text == closing) - 2 * (text == ">>" and closing == ">")
            if depth <= 0:
                return j + 1
            if closing == ">" and text in (";", "{", "}", "&&", "||"):  # a comparison
                break
        return i + 1
