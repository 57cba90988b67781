"""Checking the names a definition uses, so that a slip is told where it was made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mptune.errors import MptuneError, UnknownNameError
from mptune.expressions import Expression
from mptune.precision import PRECISIONS, precision

__all__ = ["check_expression", "check_precision"]


def check_expression(text: str, known: Sequence[str], what: str, kernel: str) -> None:
    """Check that an expression parses and uses known names alone.

    Args:
        text: the expression.
        known: the names it may use.
        what: what it is part of, for messages.
        kernel: name of the kernel, for messages.

    Raises:
        ExpressionError: it does not parse.
        UnknownNameError: it uses another name.
    """
    try:
        names = Expression(text).names
    except MptuneError as error:
        raise type(error)(f"kernel {kernel}, {what}: {error}") from error
    for name in sorted(names):
        if name not in known:
            raise UnknownNameError(f"name in the {what} of kernel {kernel}:", name, known)


def check_precision(name: str, parameters: Iterable[str], what: str) -> None:
    """Check that a name is one of the precision parameters or a fixed precision.

    Raises:
        UnknownNameError: it is neither.
    """
    parameters = tuple(parameters)
    if name in parameters:
        return
    try:
        precision(name)
    except UnknownNameError as error:
        raise UnknownNameError(
            f"precision of {what}:",
            name,
            [*parameters, *PRECISIONS],
            aliases=[alias for entry in PRECISIONS.values() for alias in entry.aliases],
        ) from error
