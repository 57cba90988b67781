"""Constraints: predicates over parameters and constants."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ConstraintError, ExpressionError, UnknownNameError
from mptune.precision import precision
from mptune.space.expressions import Expression, Known, fold, known, map_children, rewrite_names, unknown_name


class Constraint(Expression):
    """A predicate over parameters, with constants substituted; a callable becomes a call expression.

    ``text`` is the given text, or name and arguments of the callable.
    """

    __slots__ = ()

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether values satisfy the constraint; raise ConstraintError if the evaluation fails."""
        try:
            return bool(self.evaluate(values))
        except ExpressionError as error:
            raise ConstraintError(f"constraint: {error}") from error

    def mask(self, columns: Mapping[str, NDArray[Any]], n: int) -> NDArray[np.bool_]:
        """Return whether each of ``n`` rows satisfies the constraint, (n,); raise as :meth:`holds`."""
        try:
            return self.evaluate_columns(columns, n).astype(object).astype(np.bool_)
        except ExpressionError as error:
            raise ConstraintError(f"constraint: {error}") from error

    def with_tree(self, tree: ast.expr) -> Constraint:
        """Return the constraint with another predicate and the same text."""
        return Constraint(self.text, tree, self.functions)

    def bind(self, values: Mapping[str, Any]) -> Constraint:
        """Return the constraint with some parameters fixed to one value."""
        return self if self.names.isdisjoint(values) else self.with_tree(fold(self.tree, values))

    def renamed(self, names: Mapping[str, str]) -> Constraint:
        """Return the constraint over renamed parameters; new names may have dots."""
        tree = rewrite_names(self.tree, lambda name: ast.Name(names.get(name.id, name.id), ast.Load()))
        return Constraint(self.text if self.functions else ast.unparse(tree), tree, self.functions)

    def split(self, facts: Mapping[str, Known]) -> list[Constraint]:
        """Return equivalent constraints, one for each part of a top-level ``and``.

        A part whose evaluation can fail keeps the parts before it as a guard (``a != 0 and b % a == 0``).
        """
        parts = _conjuncts(self.tree)
        pieces: list[Constraint] = []
        for position, part in enumerate(parts):
            safe = position == 0 or known(part, facts).is_total
            pieces.append(self.with_tree(part if safe else ast.BoolOp(ast.And(), parts[: position + 1])))
        return pieces

    def is_total(self, facts: Mapping[str, Known]) -> bool:
        """Return whether no values of the parameters make the evaluation fail."""
        return known(self.tree, facts).is_total


def _conjuncts(tree: ast.expr) -> list[ast.expr]:
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        return [part for operand in tree.values for part in _conjuncts(operand)]
    return [tree]


def compile_constraint(
    constraint: str | Callable[..., Any] | Constraint,
    names: Iterable[str],
    constants: Mapping[str, Any] | None = None,
    precisions: Collection[str] = (),
) -> Constraint:
    """Compile a constraint over parameters ``names`` and constants; a callable takes them by keyword.

    Comparisons with the parameters in ``precisions`` may use any name of a precision.
    """
    if isinstance(constraint, Constraint):
        return constraint.with_tree(_canonical(constraint.tree, precisions, constraint.text))
    parameters, constant = tuple(names), dict(constants or {})
    usable = (*parameters, *constant)
    if isinstance(constraint, str):
        try:
            expression = Expression(constraint)
        except ExpressionError as error:
            raise ConstraintError(f"constraint: {error} (names that may be used: {', '.join(usable)})") from error
        _check_names(expression.names, constraint, usable)
        return Constraint(constraint, _canonical(fold(expression.tree, constant), precisions, constraint))
    if not callable(constraint):
        raise ConstraintError(f"a constraint is text or a callable, not {constraint!r}")
    try:
        signature = inspect.signature(constraint).parameters
    except (ValueError, TypeError) as error:
        raise ConstraintError(f"constraint {constraint!r}: its arguments cannot be determined") from error
    name = getattr(constraint, "__qualname__", type(constraint).__name__).rpartition("<locals>.")[2]
    text = f"{name}({', '.join(signature)})"
    if any(argument.kind is argument.VAR_KEYWORD for argument in signature.values()):
        used = sorted(usable)
    else:
        used = sorted(name for name, each in signature.items() if each.default is each.empty or name in usable)
    _check_names(used, text, usable)
    call = ast.Call(ast.Name("given", ast.Load()), [ast.Name(name, ast.Load()) for name in used], [])
    given = functools.partial(_by_name, constraint, used)
    return Constraint(text, fold(call, constant), {"given": given})


def _by_name(function: Callable[..., Any], names: Sequence[str], *values: Any) -> Any:
    try:
        return function(**dict(zip(names, values, strict=True)))
    except (Exception, SystemExit) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _check_names(used: Iterable[str], text: str, usable: tuple[str, ...]) -> None:
    for name in sorted(used):
        if name not in usable:
            raise ConstraintError(f"constraint: {unknown_name(name, text, usable)}")


@functools.lru_cache(maxsize=1024)
def canonical(text: str, precisions: frozenset[str]) -> str:
    """Return an expression with canonical names of precisions in comparisons with the parameters in ``precisions``.

    An expression that does not parse is returned as it is.
    """
    try:
        tree = Expression(text).tree
        return ast.unparse(found) if (found := _canonical(tree, precisions, text)) is not tree else text
    except (ExpressionError, ConstraintError):
        return text


def _canonical(node: ast.expr, parameters: Collection[str], text: str) -> ast.expr:
    """Return a predicate with canonical names of precisions in comparisons with precision parameters."""
    node = map_children(node, lambda child: _canonical(child, parameters, text))
    if not isinstance(node, ast.Compare):
        return node
    operands = [node.left, *node.comparators]
    compared = [operand.id for operand in operands if isinstance(operand, ast.Name) and operand.id in parameters]
    if not compared:
        return node
    if any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops):
        raise ConstraintError(
            f"constraint: precisions have no order: {ast.unparse(node)!r} in {text!r}; compare sizeof({compared[0]})"
        )

    def rename(operand: ast.expr) -> ast.expr:
        if isinstance(operand, ast.List | ast.Tuple | ast.Set):
            return map_children(operand, rename)
        if not (isinstance(operand, ast.Constant) and isinstance(operand.value, str)):
            return operand
        try:
            return ast.Constant(precision(operand.value).name)
        except UnknownNameError as error:
            raise ConstraintError(f"constraint {text!r}: {error}") from error

    return map_children(node, rename)
