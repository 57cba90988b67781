"""Expressions over parameters and sizes: parsed once to a whitelisted tree, never executed as text."""

from __future__ import annotations

import ast
import numbers
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ExpressionError, MptuneError, did_you_mean
from mptune.space.configuration import Value
from mptune.space.evaluation import FUNCTIONS, Scalar, compile_scalar

__all__ = ["Expression", "parse_values"]

_MAX_LENGTH: Final = 100_000


class Expression:
    """One expression in Python's syntax and with Python's semantics.

    Allowed are numbers, strings, names, arithmetic, comparisons (chained too), ``and``/``or``/``not``/``in``,
    ``a if c else b``, lists, tuples, subscripts, comprehensions and calls of the functions in
    :data:`mptune.space.evaluation.FUNCTIONS`. Powers, shifts and ranges are bounded.

    Args:
        text: the expression.

    Attributes:
        text: the expression as it was given.
        names: the names it uses, without functions and loop variables.

    Raises:
        ExpressionError: it does not parse or uses a construct that is not allowed; names the offending token.
    """

    text: str
    names: frozenset[str]
    tree: ast.expr

    def __init__(self, text: str) -> None:
        self._set(text, _parse(text))

    @classmethod
    def from_tree(cls, text: str, tree: ast.expr) -> Expression:
        """Return the expression of an already parsed tree that is shown as ``text``."""
        expression = cls.__new__(cls)
        expression._set(text, tree)
        return expression

    def _set(self, text: str, tree: ast.expr) -> None:
        self.text = text
        self.tree = tree
        try:
            self._scalar: Scalar = compile_scalar(tree, text)
        except RecursionError:
            raise ExpressionError(f"the expression is nested too deeply: {text[:60]!r}...") from None
        self.names = frozenset(free_names(tree))

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __reduce__(self) -> tuple[Any, tuple[str, ast.expr]]:
        return Expression.from_tree, (self.text, self.tree)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return the expression's value.

        Raises:
            ExpressionError: a name is missing, or the operation fails (division by zero, wrong type, overflow);
                the message holds the values it fails at.
        """
        try:
            return self._scalar(values)
        except KeyError as error:
            missing = str(error.args[0])
            if missing in values:
                raise ExpressionError(f"expression {self.text!r} fails: no entry {missing}") from error
            raise ExpressionError(unknown_name(missing, self.text, values)) from None
        except MptuneError as error:
            raise ExpressionError(f"expression {self.text!r} fails{self._at(values)}: {error}") from error
        except (ArithmeticError, TypeError, ValueError, IndexError, RecursionError) as error:
            raise ExpressionError(f"expression {self.text!r} fails{self._at(values)}: {error}") from error

    def _at(self, values: Mapping[str, Any]) -> str:
        shown = ", ".join(f"{name}={values[name]!r}" for name in sorted(self.names) if name in values)
        return f" at {shown}" if shown else ""

    def evaluate_columns(self, columns: Mapping[str, NDArray[Any]], n: int) -> NDArray[Any]:
        """Return the expression's value for each of ``n`` rows, (n,).

        Args:
            columns: the values by name, each (n,).
            n: the number of rows.

        Raises:
            ExpressionError: a name is missing, or the operation fails in some row; holds that row's values.
        """
        return self._rows(columns, n)

    def _rows(self, columns: Mapping[str, NDArray[Any]], n: int) -> NDArray[Any]:
        used = [name for name in sorted(self.names) if name in columns]
        rows = zip(*(columns[name].tolist() for name in used), strict=True) if used else iter([()] * n)
        return column_of([self.evaluate(dict(zip(used, row, strict=True))) for row in rows])


def column_of(values: Iterable[Any]) -> NDArray[Any]:
    """Return values as one column: bool, int64, float64 or text where all agree, else objects, (n,)."""
    found = list(values)
    kinds = {type(value) for value in found}
    if kinds == {bool}:
        return np.array(found, dtype=np.bool_)
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in found):
        return np.array(found, dtype=np.int64)
    if kinds == {float}:
        return np.array(found, dtype=np.float64)
    if kinds == {str}:
        return np.array(found, dtype=np.str_)
    column = np.empty(len(found), dtype=object)
    column[:] = found
    return column


def unknown_name(name: str, text: str, known: Iterable[str]) -> str:
    """Return the message for a name an expression may not use."""
    valid = tuple(known)
    listed = ", ".join(valid) if valid else "none"
    return f"unknown name {name!r} in {text!r}{did_you_mean(name, valid)} (names that may be used: {listed})"


def _parse(text: str) -> ast.expr:
    if not isinstance(text, str):
        raise ExpressionError(f"an expression is text, not {text!r}")
    if len(text) > _MAX_LENGTH:
        raise ExpressionError(f"the expression has {len(text)} characters; at most {_MAX_LENGTH} are read")
    source = text.strip()
    if not source:
        raise ExpressionError("the expression is empty")
    try:
        return ast.parse(f"({source}\n)", mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(_syntax_message(text, source, error)) from None
    except (ValueError, MemoryError, RecursionError) as error:
        raise ExpressionError(f"cannot parse {text[:60]!r}: {error or 'nested too deeply'}") from None


def _syntax_message(text: str, source: str, error: SyntaxError) -> str:
    try:
        ast.parse(source, mode="eval")
    except SyntaxError as plain:
        error = plain
    line = error.text.rstrip("\n") if error.text else source
    start = max((error.offset or 1) - 1, 0)
    end = error.end_offset - 1 if error.end_offset and error.end_offset - 1 > start else start + 1
    offending = line[start:end].strip() or "the end"
    return f"cannot parse {text!r}: {error.msg} at {offending!r} (column {start + 1})"


def free_names(tree: ast.expr) -> set[str]:
    """Return the names a tree takes from outside: no functions, no loop variables."""
    loops = {
        target.id for node in ast.walk(tree) if isinstance(node, ast.comprehension) for target in _targets(node.target)
    }
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called}
    return names - loops


def _targets(target: ast.expr) -> list[ast.Name]:
    return [node for node in ast.walk(target) if isinstance(node, ast.Name)]


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
    if not isinstance(found, list | tuple | range | set):
        raise ExpressionError(f"values need a list, not {found!r}: {text!r}")
    values = sorted(found) if isinstance(found, set) else list(found)
    for value in values:
        if not isinstance(value, bool | str | numbers.Real | tuple):
            raise ExpressionError(f"{value!r} is not a value of a parameter: {text!r}")
    return values
