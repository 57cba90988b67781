"""Expressions over parameters and sizes: parsed once to a whitelisted tree, never executed as text."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ExpressionError, MptuneError, did_you_mean
from mptune.space.columns import Compiled, Rows, compile_columns
from mptune.space.configuration import Value
from mptune.space.evaluation import FUNCTIONS, Scalar, compile_scalar, fresh_budget
from mptune.space.syntax import fold, free_names, one_line, parse, unknown_name
from mptune.space.vectors import NotVectorisableError, column_of

__all__ = ["Expression", "parse_values"]


class Expression:
    """One expression in Python's syntax and with Python's semantics.

    Allowed are numbers, strings, names, arithmetic, comparisons (chained too), ``and``/``or``/``not``/``in``,
    ``a if c else b``, lists, tuples, subscripts, comprehensions and calls of the functions in
    :data:`mptune.space.evaluation.FUNCTIONS`. Powers, shifts and sequences are bounded.

    Args:
        text: the expression.

    Attributes:
        text: the expression as it was given.
        names: the names it uses, without functions and loop variables.
        tree: its syntax tree.

    Raises:
        ExpressionError: it does not parse or uses a construct that is not allowed; names the offending token.
    """

    __slots__ = ("_columns", "_is_folded", "_scalar", "names", "text", "tree")

    text: str
    names: frozenset[str]
    tree: ast.expr
    _scalar: Scalar
    _columns: Compiled | None
    _is_folded: bool

    def __init__(self, text: str) -> None:
        self._set(text, parse(text), is_folded=False)

    @classmethod
    def from_tree(cls, text: str, tree: ast.expr) -> Expression:
        """Return the expression of a tree whose constant parts are evaluated already, shown as ``text``."""
        expression = cls.__new__(cls)
        expression._set(text, tree, is_folded=True)
        return expression

    def _set(self, text: str, tree: ast.expr, is_folded: bool) -> None:
        self.text = text
        self._is_folded = is_folded
        self.tree = tree
        self._columns = None
        try:
            self._scalar = compile_scalar(tree, one_line(text))
            self.names = free_names(tree)
        except RecursionError:
            raise ExpressionError(f"the expression is nested too deeply: {text[:60]!r}...") from None

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return (Expression.from_tree, (self.text, self.tree)) if self._is_folded else (Expression, (self.text,))

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return the expression's value.

        Raises:
            ExpressionError: a name is missing, or the operation fails (division by zero, wrong type, overflow);
                the message holds the values it fails at.
        """
        fresh_budget()
        try:
            return self._scalar(values)
        except (MptuneError, ArithmeticError, TypeError, ValueError, LookupError, RecursionError) as error:
            for name in sorted(self.names):
                if name not in values:
                    raise ExpressionError(unknown_name(name, self.text, values)) from None
            at = ", ".join(f"{name}={values[name]!r}" for name in sorted(self.names))
            raise ExpressionError(f"expression {self.text!r} fails{f' at {at}' if at else ''}: {error}") from error

    def evaluate_columns(self, columns: Mapping[str, NDArray[Any]], n: int) -> NDArray[Any]:
        """Return the expression's value for each of ``n`` rows, (n,).

        Rows are evaluated together where NumPy gives what Python gives, and one by one where it does not.

        Args:
            columns: the values by name, each (n,).
            n: the number of rows.

        Raises:
            ExpressionError: a name is missing, or the operation fails in some row; holds that row's values.
        """
        missing = sorted(self.names - set(columns))
        if missing:
            raise ExpressionError(unknown_name(missing[0], self.text, columns))
        try:
            if self._columns is None:
                tree = self.tree if self._is_folded else fold(self.tree, {}, self.text)
                self._columns = compile_columns(tree, self.text)
            with np.errstate(all="ignore"):
                result = self._columns(Rows(columns, n))
        except (NotVectorisableError, ArithmeticError, TypeError, ValueError):
            return self._row_by_row(columns, n)
        if not isinstance(result, np.ndarray):
            return np.full(n, result)
        return result if result.shape == (n,) and result.flags.writeable else np.broadcast_to(result, n).copy()

    def _row_by_row(self, columns: Mapping[str, NDArray[Any]], n: int) -> NDArray[Any]:
        names = sorted(self.names)
        rows = zip(*(columns[name].tolist() for name in names), strict=True) if names else iter([()] * n)
        return column_of([self.evaluate(dict(zip(names, row, strict=True))) for row in rows])


def parse_values(text: str) -> list[Value]:
    """Return the values of a T1 "Values" text such as ``"[1, 2] + list(range(32, 65, 32))"``.

    Raises:
        ExpressionError: the text is not an expression without names that gives a sequence of values.
    """
    expression = Expression(text)
    if expression.names:
        name = min(expression.names)
        raise ExpressionError(f"values cannot use names: {name!r} in {text!r}{did_you_mean(name, FUNCTIONS)}")
    found = expression.evaluate({})
    if not isinstance(found, list | tuple | range):
        raise ExpressionError(f"values need a list, not {found!r}: {text!r}")
    for value in found:
        if not isinstance(value, int | float | str | tuple):
            raise ExpressionError(f"{value!r} is not a value of a parameter: {text!r}")
    return list(found)
