"""Python's operators and functions over NumPy columns, exact or not at all.

A vector is a column (n,) of bool, int64, float64 or text, or one Python value that stands for all rows. Whatever
NumPy would do otherwise than Python (overflow, zero divisors, mixed types) raises :class:`NotVectorisableError`.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.precision import precision

__all__ = [
    "BINARY",
    "VECTOR_FUNCTIONS",
    "NotVectorisableError",
    "Vector",
    "column_of",
    "compare",
    "merge",
    "truth",
    "unary",
]

#: A column (n,), or one Python value for all rows.
Vector = Any

_EXACT: Final = 2**53  # the integers a double holds exactly
_INT64: Final = 2**63
_KINDS: Final = {bool: "b", int: "i", float: "f", str: "U"}


class NotVectorisableError(Exception):
    """NumPy would not give what Python gives."""


def column_of(values: list[Any]) -> NDArray[Any]:
    """Return values as one column: bool, int64, float64 or text where all agree, else objects, (n,)."""
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return np.array(values, dtype=np.bool_)
    if kinds == {int} and all(-_INT64 <= value < _INT64 for value in values):
        return np.array(values, dtype=np.int64)
    if kinds == {float}:
        return np.array(values, dtype=np.float64)
    if kinds == {str}:
        return np.array(values, dtype=np.str_)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _kind(vector: Vector) -> str:
    if isinstance(vector, np.ndarray):
        return str(vector.dtype.kind)
    _require(type(vector) in _KINDS)
    return _KINDS[type(vector)]


def _integer(vector: Vector) -> Vector:
    """Return truth values as the integers they are in arithmetic."""
    if isinstance(vector, np.ndarray):
        return vector.astype(np.int64) if vector.dtype.kind == "b" else vector
    return int(vector) if isinstance(vector, bool) else vector


def _extent(vector: Vector) -> tuple[int, int]:
    """Return the least and largest integer of a vector."""
    if not isinstance(vector, np.ndarray):
        return int(vector), int(vector)
    return (int(vector.min()), int(vector.max())) if len(vector) else (0, 0)


def _require(condition: bool) -> None:
    if not condition:
        raise NotVectorisableError


def _within(bound: int, *vectors: Vector) -> None:
    for vector in vectors:
        if _kind(vector) == "i":
            low, high = _extent(vector)
            _require(-bound <= low and high <= bound)


def _numeric(*vectors: Vector) -> tuple[Vector, ...]:
    found = tuple(_integer(vector) for vector in vectors)
    _require(all(_kind(vector) in "if" for vector in found))
    return found


def truth(vector: Vector, n: int) -> NDArray[np.bool_]:
    """Return the truth of each of ``n`` values as Python sees it, (n,)."""
    if not isinstance(vector, np.ndarray):
        return np.full(n, bool(vector))
    if vector.dtype.kind == "b":
        return vector
    if vector.dtype.kind == "O":
        return np.fromiter(map(bool, vector), np.bool_, n)
    found: NDArray[np.bool_] = vector != ("" if vector.dtype.kind == "U" else 0)
    return found


# -- arithmetic ------------------------------------------------------------------------------------


def _ring(function: Callable[[Any, Any], Any]) -> Callable[[Vector, Vector], Vector]:
    """Return +, - or *: exact on the corners of the operands' extents means exact everywhere."""

    def apply(a: Vector, b: Vector) -> Vector:
        a, b = _numeric(a, b)
        if _kind(a) == _kind(b) == "i":
            corners = [function(x, y) for x in _extent(a) for y in _extent(b)]
            _require(min(corners) >= -_INT64 and max(corners) < _INT64)
        return function(a, b)

    return apply


def _quotient(function: Callable[[Any, Any], Any], bound: int) -> Callable[[Vector, Vector], Vector]:
    def apply(a: Vector, b: Vector) -> Vector:
        a, b = _numeric(a, b)
        _require(bool(np.all(b != 0)))
        _within(bound if _kind(a) == _kind(b) == "i" else _INT64, a, b)
        return function(a, b)

    return apply


def _power(a: Vector, b: Vector) -> Vector:
    a, b = _numeric(a, b)
    _require(_kind(a) == _kind(b) == "i")
    (low, high), (least, most) = _extent(a), _extent(b)
    base = max(abs(low), abs(high), 1)
    _require(least >= 0 and base.bit_length() * most < 63)
    return np.power(a, b)


def _shift(left: bool) -> Callable[[Vector, Vector], Vector]:
    def apply(a: Vector, b: Vector) -> Vector:
        a, b = _numeric(a, b)
        _require(_kind(a) == _kind(b) == "i")
        (low, high), (least, most) = _extent(a), _extent(b)
        bits = max(low.bit_length(), high.bit_length())
        _require(least >= 0 and (most < 64 and bits + most < 63 if left else True))
        return np.left_shift(a, b) if left else np.right_shift(a, np.minimum(b, 63))

    return apply


def _bitwise(function: Callable[[Any, Any], Any]) -> Callable[[Vector, Vector], Vector]:
    def apply(a: Vector, b: Vector) -> Vector:
        if _kind(a) == _kind(b) == "b":
            return function(a, b)
        a, b = _integer(a), _integer(b)
        _require(_kind(a) == _kind(b) == "i")
        return function(a, b)

    return apply


#: Binary operators.
BINARY: Final[Mapping[type[ast.operator], Callable[[Vector, Vector], Vector]]] = {
    ast.Add: _ring(operator.add),
    ast.Sub: _ring(operator.sub),
    ast.Mult: _ring(operator.mul),
    ast.Div: _quotient(operator.truediv, _EXACT),
    ast.FloorDiv: _quotient(operator.floordiv, _INT64 - 1),
    ast.Mod: _quotient(operator.mod, _INT64 - 1),
    ast.Pow: _power,
    ast.LShift: _shift(left=True),
    ast.RShift: _shift(left=False),
    ast.BitAnd: _bitwise(operator.and_),
    ast.BitOr: _bitwise(operator.or_),
    ast.BitXor: _bitwise(operator.xor),
}


def unary(op: ast.unaryop, vector: Vector, n: int) -> Vector:
    """Return a unary operator's result."""
    if isinstance(op, ast.Not):
        return ~truth(vector, n)
    (number,) = _numeric(vector)
    if isinstance(op, ast.UAdd):
        return number
    if isinstance(op, ast.Invert):
        _require(_kind(number) == "i")
        return ~number
    _within(_INT64 - 1, number)
    return -number


# -- comparison ------------------------------------------------------------------------------------

_COMPARE: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def compare(op: ast.cmpop, a: Vector, b: Vector, n: int) -> NDArray[np.bool_]:
    """Return one comparison's truth, (n,)."""
    a, b = _integer(a), _integer(b)
    if (_kind(a) == "U") != (_kind(b) == "U"):
        _require(isinstance(op, ast.Eq | ast.NotEq))
        return np.full(n, isinstance(op, ast.NotEq))
    if _kind(a) != _kind(b):
        _within(_EXACT, a, b)
    _within(_INT64 - 1, a, b)
    return np.broadcast_to(np.asarray(_COMPARE[type(op)](a, b), dtype=np.bool_), n)


def merge(mask: NDArray[np.bool_], chosen: Vector, other: Vector) -> Vector:
    """Return ``chosen`` where ``mask`` is true and ``other`` elsewhere, (n,); both give one kind of value."""
    if "b" in (_kind(chosen), _kind(other)) and _kind(chosen) != _kind(other):
        chosen, other = _integer(chosen), _integer(other)
    _require(_kind(chosen) == _kind(other))
    _within(_INT64 - 1, chosen, other)
    return np.where(mask, chosen, other)


# -- functions -------------------------------------------------------------------------------------


def _same_kind(vectors: list[Vector]) -> None:
    _require(len({_kind(vector) for vector in vectors}) == 1 and _kind(vectors[0]) != "b")


def _choose(better: Callable[[Any, Any], Any]) -> Callable[..., Vector]:
    def apply(*vectors: Vector) -> Vector:
        _require(len(vectors) > 1)
        _same_kind(list(vectors))
        _within(_INT64 - 1, *vectors)
        best = vectors[0]
        for vector in vectors[1:]:
            best = np.where(better(vector, best), vector, best)
        return best

    return apply


def _by_value(function: Callable[[Any], Any], kinds: str) -> Callable[[Vector], Vector]:
    """Apply a Python function to each distinct value only, so that results are Python's to the last bit."""

    def apply(vector: Vector) -> Vector:
        _require(isinstance(vector, np.ndarray) and vector.dtype.kind in kinds)
        distinct, inverse = np.unique(vector, return_inverse=True)
        try:
            results = [function(value) for value in distinct.tolist()]
        except Exception as error:
            raise NotVectorisableError from error
        return column_of(results)[inverse]

    return apply


def _absolute(vector: Vector) -> Vector:
    (number,) = _numeric(vector)
    _within(_INT64 - 1, number)
    return np.abs(number)


def _to_integer(rounding: Callable[[Any], Any]) -> Callable[[Vector], Vector]:
    def apply(vector: Vector) -> Vector:
        (number,) = _numeric(vector)
        if _kind(number) == "i":
            return number
        _require(bool(np.all(np.abs(number) < 2.0**62)))
        return np.asarray(rounding(number)).astype(np.int64)

    return apply


def _square_root(vector: Vector) -> Vector:
    (number,) = _numeric(vector)
    _require(bool(np.all(number >= 0)))
    return np.sqrt(np.asarray(number, dtype=np.float64))


def _ceildiv(a: Vector, b: Vector) -> Vector:
    a, b = _numeric(a, b)
    _within(_INT64 - 1, a, b)
    return -BINARY[ast.FloorDiv](-a, b)


#: Functions with a vectorised form.
VECTOR_FUNCTIONS: Final[Mapping[str, Callable[..., Vector]]] = {
    "min": _choose(operator.lt),
    "max": _choose(operator.gt),
    "abs": _absolute,
    "ceildiv": _ceildiv,
    "round": _to_integer(np.rint),
    "int": _to_integer(np.trunc),
    "float": lambda vector: np.asarray(_numeric(vector)[0], dtype=np.float64),
    "pow": _power,
    "sqrt": _square_root,
    "log2": _by_value(math.log2, "if"),
    "sizeof": _by_value(lambda name: precision(name).size_bytes, "U"),
}
