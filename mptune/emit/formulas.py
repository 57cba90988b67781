"""Expressions over sizes as C++."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Final

from mptune.errors import MptuneError
from mptune.expressions import Expression
from mptune.expressions.syntax import free_names

__all__ = ["NotTranslatableError", "formula"]

_OPERATORS: Final = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_FUNCTIONS: Final = {ast.FloorDiv: "detail::floor_div", ast.Mod: "detail::floor_mod"}
_COMPARISONS: Final = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_LARGEST_POWER: Final = 4


class NotTranslatableError(MptuneError):
    """An expression that has no equal in integer C++."""


def formula(text: str, values: Mapping[str, Any], free: Mapping[str, str]) -> str:
    """Return an integer expression as C++ of type ``long long``.

    Whatever depends on no free name is evaluated here. The functions it may call are those of the header's
    namespace ``detail``.

    Args:
        text: the expression.
        values: what the other names stand for.
        free: the C++ of each free name.

    Raises:
        NotTranslatableError: it uses a construct, or gives a number, that integers do not have.
        ExpressionError: it has no value.
    """
    return _translate(Expression(text).tree, values, free)


def _translate(node: ast.expr, values: Mapping[str, Any], free: Mapping[str, str]) -> str:
    if free_names(node).isdisjoint(free):
        return _constant(node, values)
    if isinstance(node, ast.Name):
        return free[node.id]
    if isinstance(node, ast.BinOp):
        return _binary(node, values, free)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return f"(-{_translate(node.operand, values, free)})"
    if isinstance(node, ast.IfExp):
        test, then, other = (_translate(part, values, free) for part in (node.test, node.body, node.orelse))
        return f"({test} ? {then} : {other})"
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        left, right = (_translate(part, values, free) for part in (node.left, node.comparators[0]))
        return f"({left} {_COMPARISONS[type(node.ops[0])]} {right})"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _call(node.func.id, [_translate(argument, values, free) for argument in node.args])
    raise NotTranslatableError(f"{ast.unparse(node)} is not an integer formula of C++")


def _constant(node: ast.expr, values: Mapping[str, Any]) -> str:
    value = Expression(ast.unparse(node)).evaluate(values)
    if not isinstance(value, int) or abs(value) >= 2**63:
        raise NotTranslatableError(f"{ast.unparse(node)} is {value!r}, no integer of C++")
    return f"{int(value)}LL"


def _binary(node: ast.BinOp, values: Mapping[str, Any], free: Mapping[str, str]) -> str:
    left = _translate(node.left, values, free)
    kind = type(node.op)
    if kind is ast.Pow:
        exponent = node.right.value if isinstance(node.right, ast.Constant) else None
        if not isinstance(exponent, int) or not 1 <= exponent <= _LARGEST_POWER:
            raise NotTranslatableError(f"{ast.unparse(node)} is not a product of a few factors")
        return f"({' * '.join([left] * exponent)})"
    right = _translate(node.right, values, free)
    if kind in _OPERATORS:
        return f"({left} {_OPERATORS[kind]} {right})"
    if kind in _FUNCTIONS:
        return f"{_FUNCTIONS[kind]}({left}, {right})"
    raise NotTranslatableError(f"{ast.unparse(node)} is not an integer formula of C++")


def _call(name: str, arguments: list[str]) -> str:
    if name == "ceildiv" and len(arguments) == 2:
        return f"detail::ceil_div({', '.join(arguments)})"
    if name == "abs" and len(arguments) == 1:
        return f"detail::magnitude({arguments[0]})"
    if name in ("min", "max") and len(arguments) > 1:
        chosen = arguments[0]
        for argument in arguments[1:]:
            chosen = f"detail::{'smaller' if name == 'min' else 'larger'}({chosen}, {argument})"
        return chosen
    raise NotTranslatableError(f"{name} of {len(arguments)} is not a function of integers")
