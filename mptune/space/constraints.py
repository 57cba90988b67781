"""Constraints: predicates over parameters and constants that are known before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ConstraintError, ExpressionError
from mptune.space.expression import Expression
from mptune.space.syntax import unknown_name

__all__ = ["Constraint", "compile_constraint"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """One predicate, compiled.

    Attributes:
        text: how it is shown.
        names: the parameters it depends on.
        constants: the constants it uses.
        predicate: the expression or the callable.
    """

    text: str
    names: frozenset[str]
    constants: Mapping[str, Any]
    predicate: Expression | Callable[..., Any]

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether the configuration with these values satisfies it.

        Raises:
            ConstraintError: it cannot be evaluated there; names it and the values.
        """
        given = {name: values[name] for name in self.names}
        if isinstance(self.predicate, Expression):
            try:
                return bool(self.predicate.evaluate({**self.constants, **given}))
            except ExpressionError as error:
                raise ConstraintError(f"constraint: {error}") from error
        try:
            return bool(self.predicate(**self.constants, **given))
        except Exception as error:
            at = ", ".join(f"{name}={value!r}" for name, value in given.items())
            raise ConstraintError(f"constraint {self.text} fails at {at}: {type(error).__name__}: {error}") from error

    def mask(self, columns: Mapping[str, NDArray[Any]], n: int) -> NDArray[np.bool_]:
        """Return whether each of ``n`` rows satisfies it, (n,)."""
        names = sorted(self.names)
        rows = zip(*(columns[name].tolist() for name in names), strict=True) if names else iter([()] * n)
        return np.fromiter((self.holds(dict(zip(names, row, strict=True))) for row in rows), np.bool_, n)


def compile_constraint(
    constraint: str | Callable[..., Any], names: Iterable[str], constants: Mapping[str, Any] | None = None
) -> Constraint:
    """Compile a constraint over parameters ``names`` and constants.

    A callable takes the parameters and constants it needs by keyword name.

    Raises:
        ConstraintError: it does not parse, or uses a name that is neither a parameter nor a constant.
    """
    parameters = tuple(names)
    known = dict(constants or {})
    if isinstance(constraint, str):
        try:
            predicate: Any = Expression(constraint)
        except ExpressionError as error:
            raise ConstraintError(
                f"constraint: {error} (names that may be used: {_listed(parameters, known)})"
            ) from error
        text, used = constraint, predicate.names
    elif callable(constraint):
        text, used, predicate = _describe(constraint), _arguments(constraint, parameters, known), constraint
    else:
        raise ConstraintError(f"a constraint is text or a callable, not {constraint!r}")
    for name in sorted(used):
        if name not in parameters and name not in known:
            raise ConstraintError(f"constraint: {unknown_name(name, text, (*parameters, *known))}")
    return Constraint(
        text,
        frozenset(used) & frozenset(parameters),
        {name: value for name, value in known.items() if name in used},
        predicate,
    )


def _listed(parameters: Iterable[str], constants: Iterable[str]) -> str:
    return ", ".join((*parameters, *constants))


def _describe(constraint: Callable[..., Any]) -> str:
    name = getattr(constraint, "__qualname__", type(constraint).__name__)
    return f"{name}({', '.join(inspect.signature(constraint).parameters)})"


def _arguments(constraint: Callable[..., Any], parameters: tuple[str, ...], constants: Mapping[str, Any]) -> set[str]:
    used: set[str] = set()
    for name, argument in inspect.signature(constraint).parameters.items():
        if argument.kind is inspect.Parameter.VAR_KEYWORD:
            used.update(parameters, constants)
        elif argument.default is inspect.Parameter.empty or name in parameters or name in constants:
            used.add(name)
    return used
