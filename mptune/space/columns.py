"""Whitelisted syntax trees compiled to closures over NumPy columns, exactly as Python would evaluate each row.

What NumPy cannot do as Python does raises :class:`NotVectorisableError`, and the caller evaluates row by row.
``and``, ``or`` and ``if`` evaluate a part that can fail only for the rows that reach it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import MptuneError
from mptune.space.evaluation import compile_scalar
from mptune.space.vectors import (
    BINARY,
    VECTOR_FUNCTIONS,
    NotVectorisableError,
    Vector,
    compare,
    merge,
    truth,
    unary,
)

__all__ = ["Compiled", "Rows", "compile_columns"]

_MAX_MEMBERS: Final = 1_000
_PARTIAL_FUNCTIONS: Final = ("sqrt", "log2", "ceildiv", "int", "round", "pow", "sizeof")


class Rows:
    """Columns of values, or a selection of their rows."""

    __slots__ = ("_cache", "_columns", "_selected", "n")

    def __init__(self, columns: Mapping[str, NDArray[Any]], n: int, selected: NDArray[np.intp] | None = None) -> None:
        self._columns = columns
        self._selected = selected
        self._cache: dict[str, NDArray[Any]] = {}
        self.n = n

    def column(self, name: str) -> NDArray[Any]:
        """Return a column as bool, int64, float64 or text, (n,)."""
        if name not in self._cache:
            values = self._columns[name]
            match values.dtype.kind:
                case "b" | "U":
                    pass
                case "i" | "u" if values.dtype != np.uint64:
                    values = values.astype(np.int64, copy=False)
                case "f" if values.dtype.itemsize <= 8:
                    values = values.astype(np.float64, copy=False)
                case _:
                    raise NotVectorisableError(name)
            self._cache[name] = values if self._selected is None else values[self._selected]
        return self._cache[name]

    def take(self, mask: NDArray[np.bool_]) -> Rows:
        """Return only the rows where ``mask`` is true."""
        chosen = np.flatnonzero(mask)
        within = chosen if self._selected is None else self._selected[chosen]
        return Rows(self._columns, len(chosen), within)


Compiled = Callable[[Rows], Vector]


def compile_columns(node: ast.expr, text: str) -> Compiled:
    """Compile a tree to a closure over rows.

    Raises:
        NotVectorisableError: the tree has a part that only Python values can have (lists, comprehensions, ...).
    """
    match node:
        case ast.Constant(value=constant) if isinstance(constant, int | float | str):
            return lambda _: constant
        case ast.Name(id=name):
            return lambda rows: rows.column(name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            function, a, b = BINARY[type(op)], compile_columns(left, text), compile_columns(right, text)
            return lambda rows: function(a(rows), b(rows))
        case ast.UnaryOp(op=operation, operand=operand):
            inner = compile_columns(operand, text)
            return lambda rows: unary(operation, inner(rows), rows.n)
        case ast.BoolOp(op=op, values=operands):
            return _boolean(isinstance(op, ast.And), operands, text)
        case ast.Compare(left=left, ops=ops, comparators=comparators) if len(ops) > 1:
            pairs = zip([left, *comparators[:-1]], ops, comparators, strict=True)
            return _boolean(True, [ast.Compare(a, [op], [b]) for a, op, b in pairs], text)
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[right]):
            return _membership(left, right, isinstance(op, ast.NotIn), text)
        case ast.Compare(left=left, ops=[relation], comparators=[right]):
            first, second = compile_columns(left, text), compile_columns(right, text)
            return lambda rows: compare(relation, first(rows), second(rows), rows.n)
        case ast.IfExp():
            return _conditional(node, text)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _call(name, arguments, text)
    raise NotVectorisableError(ast.unparse(node))


def _may_fail(node: ast.AST) -> bool:
    """Return whether evaluating a tree can fail in some rows, so that it must not run in those not reached."""
    for part in ast.walk(node):
        if isinstance(part, ast.BinOp) and not isinstance(part.op, ast.Add | ast.Sub | ast.Mult):
            positive = isinstance(part.right, ast.Constant) and isinstance(part.right.value, int | float)
            if not (positive and part.right.value > 0):  # type: ignore[attr-defined]
                return True
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in _PARTIAL_FUNCTIONS:
            return True
    return False


def _where_reached(node: ast.expr, text: str) -> Callable[[Rows, NDArray[np.bool_]], Vector]:
    """Compile a part that only the rows of a mask reach; its values elsewhere are arbitrary, (n,)."""
    compiled = compile_columns(node, text)
    if not _may_fail(node):
        return lambda rows, _: compiled(rows)

    def evaluate(rows: Rows, mask: NDArray[np.bool_]) -> Vector:
        part = compiled(rows.take(mask))
        if not isinstance(part, np.ndarray):
            return part
        spread = np.zeros(rows.n, dtype=part.dtype)
        spread[mask] = part
        return spread

    return evaluate


def _boolean(conjunction: bool, operands: list[ast.expr], text: str) -> Compiled:
    first = compile_columns(operands[0], text)
    rest = [_where_reached(operand, text) for operand in operands[1:]]

    def evaluate(rows: Rows) -> Vector:
        result = first(rows)
        for part in rest:
            undecided = truth(result, rows.n) == conjunction
            if not undecided.any():
                return result
            result = merge(undecided, part(rows, undecided), result)
        return result

    return evaluate


def _conditional(node: ast.IfExp, text: str) -> Compiled:
    test = compile_columns(node.test, text)
    yes, no = _where_reached(node.body, text), _where_reached(node.orelse, text)

    def evaluate(rows: Rows) -> Vector:
        condition = truth(test(rows), rows.n)
        if condition.all():
            return yes(rows, condition)
        if not condition.any():
            return no(rows, ~condition)
        return merge(condition, yes(rows, condition), no(rows, ~condition))

    return evaluate


def _membership(left: ast.expr, right: ast.expr, negated: bool, text: str) -> Compiled:
    member = compile_columns(left, text)
    elements = [compile_columns(element, text) for element in _elements(right, text)]

    def evaluate(rows: Rows) -> Vector:
        vector, found = member(rows), np.zeros(rows.n, dtype=np.bool_)
        for element in elements:
            found |= compare(ast.Eq(), vector, element(rows), rows.n)
        return ~found if negated else found

    return evaluate


def _elements(node: ast.expr, text: str) -> list[ast.expr]:
    """Return what a container holds: the parts of a list, or the items of a constant sequence."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return node.elts
    try:
        container = compile_scalar(node, text)({})
    except (MptuneError, ArithmeticError, TypeError, ValueError, LookupError) as error:
        raise NotVectorisableError(ast.unparse(node)) from error
    if not isinstance(container, list | tuple | set | range) or len(container) > _MAX_MEMBERS:
        raise NotVectorisableError(ast.unparse(node))
    return [ast.Constant(item) for item in container]


def _call(name: str, arguments: list[ast.expr], text: str) -> Compiled:
    if len(arguments) == 1 and isinstance(arguments[0], ast.List | ast.Tuple):
        return _over_display(name, arguments[0].elts, text)
    inner = [compile_columns(argument, text) for argument in arguments]
    if name == "bool" and len(inner) == 1:
        return lambda rows: truth(inner[0](rows), rows.n)
    if name not in VECTOR_FUNCTIONS:
        raise NotVectorisableError(name)
    function = VECTOR_FUNCTIONS[name]
    return lambda rows: function(*[argument(rows) for argument in inner])


def _over_display(name: str, elements: list[ast.expr], text: str) -> Compiled:
    """Compile a function of a list that is written out: ``any([a > 1, b > 1])``, ``sum((a, b))``."""
    inner = [compile_columns(element, text) for element in elements]
    if name in ("min", "max") and len(inner) > 1:
        function = VECTOR_FUNCTIONS[name]
        return lambda rows: function(*[element(rows) for element in inner])
    if name in ("all", "any"):
        reduce = np.logical_and if name == "all" else np.logical_or
        return lambda rows: reduce.reduce(
            [np.full(rows.n, name == "all"), *(truth(element(rows), rows.n) for element in inner)]
        )
    if name == "sum" and inner:
        add = BINARY[ast.Add]

        def total(rows: Rows) -> Vector:
            result: Vector = 0
            for element in inner:
                result = add(result, element(rows))
            return result

        return total
    raise NotVectorisableError(name)
