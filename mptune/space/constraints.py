"""Constraints: predicates over parameters and constants that are known before anything runs."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ConstraintError, ExpressionError, UnknownNameError
from mptune.precision import precision
from mptune.space.expressions import (
    Expression,
    Known,
    conjuncts,
    fold,
    known,
    map_children,
    rewrite_names,
    truth,
    unknown_name,
)


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """One predicate, compiled."""

    text: str  #: how it is shown: the text it was given as, or a callable's name and arguments
    names: frozenset[str]  #: the parameters it depends on
    predicate: Expression | Callable[..., Any]  #: an expression with the constants put in, or the callable
    constants: Mapping[str, Any]  #: the constants a callable is called with
    why: str = ""  #: what it comes from, for messages

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether the configuration with these values satisfies it.

        Raises:
            ConstraintError: it cannot be evaluated there; names it and the values.
        """
        if isinstance(self.predicate, Expression):
            try:
                return bool(self.predicate.evaluate(values))
            except ExpressionError as error:
                raise ConstraintError(f"constraint: {error}") from error
        given = {name: values[name] for name in sorted(self.names)}
        try:
            return bool(self.predicate(**self.constants, **given))
        except (Exception, SystemExit) as error:
            at = ", ".join(f"{name}={value!r}" for name, value in given.items())
            raise ConstraintError(f"constraint {self.text} fails at {at}: {type(error).__name__}: {error}") from error

    def mask(self, columns: Mapping[str, NDArray[Any]], n: int) -> NDArray[np.bool_]:
        """Return whether each of ``n`` rows satisfies it, (n,).

        ``columns`` holds the values of at least the parameters it depends on, each (n,).

        Raises:
            ConstraintError: it cannot be evaluated in some row; names it and the values.
        """
        if isinstance(self.predicate, Expression):
            try:
                return truth(self.predicate.evaluate_columns(columns, n))
            except ExpressionError as error:
                raise ConstraintError(f"constraint: {error}") from error
        names = sorted(self.names)
        rows = zip(*(columns[name].tolist() for name in names), strict=True) if names else iter([()] * n)
        return np.fromiter((self.holds(dict(zip(names, row, strict=True))) for row in rows), np.bool_, n)

    def bind(self, values: Mapping[str, Any]) -> Constraint:
        """Return the constraint with some parameters fixed to one value."""
        fixed = {name: value for name, value in values.items() if name in self.names}
        if not fixed:
            return self
        if isinstance(self.predicate, Expression):
            return self.with_tree(fold(self.predicate.tree, fixed))
        return replace(self, names=self.names - set(fixed), constants={**self.constants, **fixed})

    def renamed(self, names: Mapping[str, str]) -> Constraint:
        """Return it over parameters of other names, which may have dots."""
        if isinstance(self.predicate, Expression):
            tree = rewrite_names(self.predicate.tree, lambda name: ast.Name(names.get(name.id, name.id), ast.Load()))
            return replace(self.with_tree(tree), text=ast.unparse(tree))
        call, olds = self.predicate, {new: old for old, new in names.items()}

        def renamed(**given: Any) -> Any:
            return call(**{olds.get(name, name): value for name, value in given.items()})

        found = frozenset(names.get(name, name) for name in self.names)
        return replace(self, names=found, predicate=renamed)

    def with_tree(self, tree: ast.expr) -> Constraint:
        """Return the constraint with another predicate under the same text."""
        expression = Expression.from_tree(self.text, tree)
        return replace(self, names=expression.names, predicate=expression)

    def split(self, facts: Mapping[str, Known]) -> list[Constraint]:
        """Return constraints that together say the same, one for each part of a top-level ``and``.

        A part that can fail keeps the parts before it, which may protect it (``a != 0 and b % a == 0``).
        """
        if not isinstance(self.predicate, Expression):
            return [self]
        parts = conjuncts(self.predicate.tree)
        pieces: list[Constraint] = []
        for position, part in enumerate(parts):
            safe = position == 0 or known(part, facts).is_total
            pieces.append(self.with_tree(part if safe else ast.BoolOp(ast.And(), parts[: position + 1])))
        return pieces

    def is_total(self, facts: Mapping[str, Known]) -> bool:
        """Return whether it can be evaluated whatever the values of its parameters."""
        return isinstance(self.predicate, Expression) and known(self.predicate.tree, facts).is_total


def compile_constraint(
    constraint: str | Callable[..., Any] | Constraint, names: Iterable[str], constants: Mapping[str, Any] | None = None
) -> Constraint:
    """Compile a constraint over parameters ``names`` and constants.

    A callable takes the parameters and constants it needs by keyword name.

    Raises:
        ConstraintError: it does not parse, or uses a name that is neither a parameter nor a constant.
    """
    if isinstance(constraint, Constraint):
        return constraint
    parameters, constant = tuple(names), dict(constants or {})
    usable = (*parameters, *constant)
    if isinstance(constraint, str):
        try:
            expression = Expression(constraint)
        except ExpressionError as error:
            raise ConstraintError(f"constraint: {error} (names that may be used: {', '.join(usable)})") from error
        _check_names(expression.names, constraint, usable)
        folded = Expression.from_tree(constraint, fold(expression.tree, constant))
        return Constraint(constraint, folded.names, folded, {})
    if not callable(constraint):
        raise ConstraintError(f"a constraint is text or a callable, not {constraint!r}")
    try:
        signature = inspect.signature(constraint).parameters
    except (ValueError, TypeError) as error:
        raise ConstraintError(f"constraint {constraint!r}: its arguments cannot be determined") from error
    name = getattr(constraint, "__qualname__", type(constraint).__name__).rpartition("<locals>.")[2]
    text = f"{name}({', '.join(signature)})"
    used = _arguments(text, signature, usable)
    _check_names(used, text, usable)
    held = {name: value for name, value in constant.items() if name in used}
    return Constraint(text, frozenset(used) & frozenset(parameters), constraint, held)


def _check_names(used: Iterable[str], text: str, usable: tuple[str, ...]) -> None:
    for name in sorted(used):
        if name not in usable:
            raise ConstraintError(f"constraint: {unknown_name(name, text, usable)}")


def _arguments(text: str, signature: Mapping[str, inspect.Parameter], usable: tuple[str, ...]) -> set[str]:
    used: set[str] = set()
    for name, argument in signature.items():
        if argument.kind is inspect.Parameter.VAR_KEYWORD:
            used.update(usable)
        elif argument.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
            raise ConstraintError(
                f"constraint {text}: argument {name!r} cannot be given by name; "
                f"take parameters as keyword arguments (names that may be used: {', '.join(usable)})"
            )
        elif argument.default is inspect.Parameter.empty or name in usable:
            used.add(name)
    return used


def with_canonical_precisions(constraint: Constraint, parameters: frozenset[str]) -> Constraint:
    """Return the constraint with aliases of precisions replaced in comparisons with precision parameters.

    Raises:
        ConstraintError: a precision parameter is compared with text that names no precision, or by order.
    """
    predicate = constraint.predicate
    if not isinstance(predicate, Expression) or not parameters & predicate.names:
        return constraint
    return constraint.with_tree(_canonical(predicate.tree, parameters, constraint.text))


def _canonical(node: ast.expr, parameters: frozenset[str], text: str) -> ast.expr:
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
