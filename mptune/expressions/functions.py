"""The operators and functions of expressions, each in one row: for Python values, and for NumPy columns.

For Python values they do what Python does, bounded where Python could exhaust time or memory (powers, shifts,
sequences). A column is an array (n,) of bool, int64, float64 or text; one Python value may stand for all its rows. What
NumPy would do differently from Python (overflow, zero divisors, mixed types) raises :class:`NotVectorisableError`; the
caller then evaluates row by row.

To add a function, add one row to :data:`FUNCTIONS`.
"""

from __future__ import annotations

import ast
import math
import operator
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mptune.precision import precision

__all__ = [
    "BINARY",
    "COMPARISONS",
    "FUNCTIONS",
    "MAX_ITEMS",
    "SEQUENCES",
    "UNARY",
    "Column",
    "Function",
    "NotVectorisableError",
    "charge",
    "column_of",
    "compare",
    "fresh_budget",
    "merge",
    "truth",
]

#: The largest integer an expression may produce, in bits, and the most sequence items one evaluation may touch.
MAX_BITS: Final = 4096
MAX_ITEMS: Final = 1_000_000
_MAX_DIGITS: Final = 1000
SEQUENCES: Final = (list, tuple, set, str)

#: A column (n,), or one Python value for all rows.
Column = Any

_EXACT: Final = 2**53  # the integers a double holds exactly
_INT64: Final = 2**63
_KINDS: Final = {bool: "b", int: "i", float: "f", str: "U"}


class NotVectorisableError(Exception):
    """NumPy would not give what Python gives."""


# -- Python values: bounds ------------------------------------------------------------------------------


class _Budget(threading.local):
    left: int = MAX_ITEMS


_BUDGET: Final = _Budget()


def fresh_budget() -> None:
    """Allow the evaluation that starts now to touch ``MAX_ITEMS`` items."""
    _BUDGET.left = MAX_ITEMS


def charge(items: int) -> None:
    """Count items an evaluation touches.

    Raises:
        OverflowError: it has touched more than ``MAX_ITEMS``.
    """
    _BUDGET.left -= items
    if _BUDGET.left < 0:
        raise OverflowError(f"it needs sequences of more than {MAX_ITEMS} items")


def _numbers(symbol: str, *operands: Any) -> None:
    for operand in operands:
        if not isinstance(operand, int | float):
            raise TypeError(f"{symbol} needs numbers, not {operand!r}")


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise OverflowError(f"a number of more than {MAX_BITS} bits")
    return value


def _checked(symbol: str, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(a: Any, b: Any) -> Any:
        _numbers(symbol, a, b)
        return function(a, b)

    return apply


def _over_items(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*arguments: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, (*SEQUENCES, range)):
                charge(len(argument))
        return function(*arguments)

    return apply


# -- columns: their kinds and extents -------------------------------------------------------------------


def column_of(values: list[Any]) -> NDArray[Any]:
    """Return values as one column: bool, int64, float64 or text if all agree, else objects, (n,)."""
    kinds = {type(value) for value in values}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind in _KINDS and (kind is not int or all(-_INT64 <= value < _INT64 for value in values)):
        return np.array(values, dtype=kind)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def truth(column: Column, n: int) -> NDArray[np.bool_]:
    """Return the truth of each of ``n`` values as Python sees it, (n,)."""
    if not isinstance(column, np.ndarray):
        return np.full(n, bool(column))
    if column.dtype.kind == "b":
        return column
    if column.dtype.kind == "O":
        return np.fromiter(map(bool, column), np.bool_, n)
    found: NDArray[np.bool_] = column != ("" if column.dtype.kind == "U" else 0)
    return found


def merge(mask: NDArray[np.bool_], chosen: Column, other: Column) -> Column:
    """Return ``chosen`` where ``mask`` is true and ``other`` elsewhere, (n,); both give one kind of value."""
    if "b" in (_kind(chosen), _kind(other)) and _kind(chosen) != _kind(other):
        chosen, other = _integer(chosen), _integer(other)
    _require(_kind(chosen) == _kind(other))
    _within(_INT64 - 1, chosen, other)
    return np.where(mask, chosen, other)


def _require(condition: bool) -> None:
    if not condition:
        raise NotVectorisableError


def _kind(column: Column) -> str:
    if isinstance(column, np.ndarray):
        return str(column.dtype.kind)
    _require(type(column) in _KINDS)
    return _KINDS[type(column)]


def _integer(column: Column) -> Column:
    """Return truth values as the integers they are in arithmetic."""
    if isinstance(column, np.ndarray):
        return column.astype(np.int64) if column.dtype.kind == "b" else column
    return int(column) if isinstance(column, bool) else column


def _numeric(*columns: Column) -> tuple[Column, ...]:
    found = tuple(_integer(column) for column in columns)
    _require(all(_kind(column) in "if" for column in found))
    return found


def _integers(a: Column, b: Column) -> tuple[Column, Column]:
    a, b = _numeric(a, b)
    _require(_kind(a) == _kind(b) == "i")
    return a, b


def _extent(column: Column) -> tuple[int, int]:
    """Return the least and largest integer of a column."""
    if not isinstance(column, np.ndarray):
        return int(column), int(column)
    return (int(column.min()), int(column.max())) if len(column) else (0, 0)


def _within(bound: int, *columns: Column) -> None:
    for column in columns:
        if _kind(column) == "i":
            low, high = _extent(column)
            _require(-bound <= low and high <= bound)


# -- operators ------------------------------------------------------------------------------------------


class Operator(NamedTuple):
    """One operator: of Python values, and of columns."""

    scalar: Callable[..., Any]
    columns: Callable[..., Column]


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, list | tuple | str) and isinstance(b, list | tuple | str):
        charge(len(a) + len(b))
        return a + b  # type: ignore[operator]  # list + str is the TypeError the user should see
    _numbers("+", a, b)
    return _bounded(a + b)


def _multiply(a: Any, b: Any) -> Any:
    for sequence, count in ((a, b), (b, a)):
        if isinstance(sequence, list | tuple) and isinstance(count, int):
            charge(len(sequence) * max(count, 0))
            return sequence * count
    _numbers("*", a, b)
    return _bounded(a * b)


def _ring(function: Callable[[Any, Any], Any]) -> Callable[[Column, Column], Column]:
    """Return +, - or *: exact on the corners of the operands' extents means exact everywhere."""

    def apply(a: Column, b: Column) -> Column:
        a, b = _numeric(a, b)
        if _kind(a) == _kind(b) == "i":
            corners = [function(x, y) for x in _extent(a) for y in _extent(b)]
            _require(min(corners) >= -_INT64 and max(corners) < _INT64)
        return function(a, b)

    return apply


def _quotient(function: Callable[[Any, Any], Any], bound: int = _INT64 - 1) -> Callable[[Column, Column], Column]:
    def apply(a: Column, b: Column) -> Column:
        a, b = _numeric(a, b)
        _require(bool(np.all(b != 0)))
        _within(bound if _kind(a) == _kind(b) == "i" else _INT64, a, b)
        return function(a, b)

    return apply


def _power(base: Any, exponent: Any) -> Any:
    _numbers("**", base, exponent)
    integers = isinstance(base, int) and isinstance(exponent, int)
    if integers and abs(base) > 1 and (abs(base).bit_length() - 1) * exponent > MAX_BITS:
        raise OverflowError(f"{base}**{exponent} has more than {MAX_BITS} bits")
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError(f"{base}**{exponent} is not real")
    return _bounded(result)


def _power_columns(a: Column, b: Column) -> Column:
    a, b = _integers(a, b)
    (low, high), (least, most) = _extent(a), _extent(b)
    base = max(abs(low), abs(high), 1)
    _require(least >= 0 and base.bit_length() * most < 63)
    return np.power(a, b)


def _shift_left(value: Any, by: Any) -> Any:
    _numbers("<<", value, by)
    if by > MAX_BITS:
        raise OverflowError(f"a shift by {by} is more than {MAX_BITS} bits")
    return _bounded(value << by)


def _shift_left_columns(a: Column, b: Column) -> Column:
    a, b = _integers(a, b)
    (low, high), (least, most) = _extent(a), _extent(b)
    _require(least >= 0 and most < 64 and max(low.bit_length(), high.bit_length()) + most < 63)
    return np.left_shift(a, b)


def _shift_right_columns(a: Column, b: Column) -> Column:
    a, b = _integers(a, b)
    _require(_extent(b)[0] >= 0)
    return np.right_shift(a, np.minimum(b, 63))


def _bitwise(symbol: str, function: Callable[[Any, Any], Any]) -> Operator:
    def columns(a: Column, b: Column) -> Column:
        if not _kind(a) == _kind(b) == "b":
            a, b = _integer(a), _integer(b)
            _require(_kind(a) == _kind(b) == "i")
        return function(a, b)

    return Operator(_checked(symbol, function), columns)


BINARY: Final[Mapping[type[ast.operator], Operator]] = {
    ast.Add: Operator(_add, _ring(operator.add)),
    ast.Sub: Operator(_checked("-", operator.sub), _ring(operator.sub)),
    ast.Mult: Operator(_multiply, _ring(operator.mul)),
    ast.Div: Operator(_checked("/", operator.truediv), _quotient(operator.truediv, _EXACT)),
    ast.FloorDiv: Operator(_checked("//", operator.floordiv), _quotient(operator.floordiv)),
    ast.Mod: Operator(_checked("%", operator.mod), _quotient(operator.mod)),
    ast.Pow: Operator(_power, _power_columns),
    ast.LShift: Operator(_shift_left, _shift_left_columns),
    ast.RShift: Operator(_checked(">>", operator.rshift), _shift_right_columns),
    ast.BitAnd: _bitwise("&", operator.and_),
    ast.BitOr: _bitwise("|", operator.or_),
    ast.BitXor: _bitwise("^", operator.xor),
}


def _signed(function: Callable[[Any], Any]) -> Callable[[Column], Column]:
    def apply(column: Column) -> Column:
        (number,) = _numeric(column)
        _within(_INT64 - 1, number)
        return function(number)

    return apply


def _inverted(column: Column) -> Column:
    (number,) = _numeric(column)
    _require(_kind(number) == "i")
    return ~number


def _bool(column: Column) -> Column:
    return truth(column, len(column)) if isinstance(column, np.ndarray) else bool(column)


def _not(column: Column) -> Column:
    truths = _bool(column)
    return ~truths if isinstance(truths, np.ndarray) else not truths


UNARY: Final[Mapping[type[ast.unaryop], Operator]] = {
    ast.USub: Operator(operator.neg, _signed(operator.neg)),
    ast.UAdd: Operator(operator.pos, lambda column: _numeric(column)[0]),
    ast.Not: Operator(operator.not_, _not),
    ast.Invert: Operator(operator.invert, _inverted),
}

COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


def compare(op: type[ast.cmpop], a: Column, b: Column, n: int) -> NDArray[np.bool_]:
    """Return one comparison's truth (of any but ``in`` and ``not in``), (n,)."""
    a, b = _integer(a), _integer(b)
    if (_kind(a) == "U") != (_kind(b) == "U"):
        _require(op in (ast.Eq, ast.NotEq))
        return np.full(n, op is ast.NotEq)
    if _kind(a) != _kind(b):
        _within(_EXACT, a, b)
    _within(_INT64 - 1, a, b)
    return np.broadcast_to(np.asarray(COMPARISONS[op](a, b), dtype=np.bool_), n)


# -- functions ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Function:
    """One function an expression may call."""

    scalar: Callable[..., Any]  #: of Python values
    columns: Callable[..., Column] | None = None  #: of columns; None: rows are evaluated one by one
    #: of a list that is written out (``any([a > 1, b > 1])``), given its elements as columns
    of_list: Callable[..., Column] | None = None
    total: range = range(0)  #: for which numbers of arguments it cannot fail, if all of them are numbers
    #: what can be said about its value without evaluating it: "number" if its arguments are numbers; "integer" the
    #: same, and an integer if they are integers; "positive integer" always; "anything" otherwise
    gives: Literal["anything", "number", "integer", "positive integer"] = "anything"


def _ceildiv_columns(a: Column, b: Column) -> Column:
    a, b = _numeric(a, b)
    _within(_INT64 - 1, a, b)
    return -BINARY[ast.FloorDiv].columns(-a, b)


def _round(value: Any, digits: int | None = None) -> Any:
    if digits is not None and abs(digits) > _MAX_DIGITS:
        raise OverflowError(f"rounding to {digits} digits")
    return round(value, digits)


def _best_of(better: Callable[[Any, Any], Any]) -> Callable[..., Column]:
    def apply(*columns: Column) -> Column:
        _require(len(columns) > 1)
        _require(len({_kind(column) for column in columns}) == 1 and _kind(columns[0]) != "b")
        _within(_INT64 - 1, *columns)
        best = columns[0]
        for column in columns[1:]:
            best = np.where(better(column, best), column, best)
        return best

    return apply


def _to_integer(rounding: Callable[[Any], Any]) -> Callable[[Column], Column]:
    def apply(column: Column) -> Column:
        (number,) = _numeric(column)
        if _kind(number) == "i":
            return number
        _require(bool(np.all(np.abs(number) < 2.0**62)))
        return np.asarray(rounding(number)).astype(np.int64)

    return apply


def _square_root(column: Column) -> Column:
    (number,) = _numeric(column)
    _require(bool(np.all(number >= 0)))
    return np.sqrt(np.asarray(number, dtype=np.float64))


def _by_value(function: Callable[[Any], Any], kinds: str) -> Callable[[Column], Column]:
    """Apply a Python function to each distinct value only, so that results are Python's to the last bit."""

    def apply(column: Column) -> Column:
        _require(isinstance(column, np.ndarray) and column.dtype.kind in kinds)
        distinct, inverse = np.unique(column, return_inverse=True)
        try:
            results = [function(value) for value in distinct.tolist()]
        except Exception as error:
            raise NotVectorisableError from error
        return column_of(results)[inverse]

    return apply


def _size_bytes(name: str) -> int:
    return precision(name).size_bytes


_SEVERAL: Final = range(2, 1 << 30)
_min, _max = _best_of(operator.lt), _best_of(operator.gt)

#: The functions an expression may call.
FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType(
    {
        "min": Function(_over_items(min), _min, of_list=_min, total=_SEVERAL, gives="integer"),
        "max": Function(_over_items(max), _max, of_list=_max, total=_SEVERAL, gives="integer"),
        "abs": Function(abs, _signed(np.abs), total=range(1, 2), gives="integer"),
        "ceildiv": Function(lambda a, b: -(-a // b), _ceildiv_columns, gives="number"),
        "round": Function(_round, _to_integer(np.rint), gives="number"),
        "int": Function(int, _to_integer(np.trunc), gives="number"),
        "float": Function(float, lambda x: np.asarray(_numeric(x)[0], dtype=np.float64), gives="number"),
        "bool": Function(bool, _bool, gives="number"),
        "pow": Function(_power, _power_columns, gives="number"),
        "sqrt": Function(math.sqrt, _square_root, gives="number"),
        "log2": Function(math.log2, _by_value(math.log2, "if"), gives="number"),
        "sizeof": Function(_size_bytes, _by_value(_size_bytes, "U"), gives="positive integer"),
        "all": Function(_over_items(all), of_list=lambda *columns: reduce(operator.and_, map(_bool, columns), True)),
        "any": Function(_over_items(any), of_list=lambda *columns: reduce(operator.or_, map(_bool, columns), False)),
        "sum": Function(
            _over_items(lambda items: _bounded(sum(items))),
            of_list=lambda *columns: reduce(BINARY[ast.Add].columns, columns, 0),
        ),
        "len": Function(len),
        "range": Function(range),
        "list": Function(_over_items(list)),
        "tuple": Function(_over_items(tuple)),
        "set": Function(_over_items(set)),
        "sorted": Function(_over_items(sorted)),
    }
)
