"""Reading and rewriting syntax trees: parsing with messages a user can act on, free names, constants."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from mptune.errors import ExpressionError, MptuneError, did_you_mean
from mptune.space.evaluation import compile_scalar, fresh_budget

__all__ = ["conjuncts", "fold", "free_names", "parse", "rewrite_names", "unknown_name"]

_MAX_LENGTH: Final = 100_000
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.GeneratorExp)


def parse(text: str) -> ast.expr:
    """Parse one expression.

    Raises:
        ExpressionError: the text is not an expression; names the offending token and its column.
    """
    if not isinstance(text, str):
        raise ExpressionError(f"an expression is text, not {text!r}")
    if len(text) > _MAX_LENGTH:
        raise ExpressionError(f"the expression has {len(text)} characters; at most {_MAX_LENGTH} are read")
    source = one_line(text)
    if not source:
        raise ExpressionError("the expression is empty")
    try:
        return ast.parse(source, mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(_syntax_message(source, error)) from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionError(f"cannot parse {_short(source)!r}: it is nested too deeply") from None


def one_line(text: str) -> str:
    """Return the text as it is parsed: trimmed, line breaks as spaces, so that columns are those of one line."""
    return text.strip().replace("\r", " ").replace("\n", " ")


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:197] + "..."


def _syntax_message(source: str, error: SyntaxError) -> str:
    start = max((error.offset or 1) - 1, 0)
    end = (error.end_offset or 0) - 1
    offending = source[start : max(end, start + 1)].strip()
    where = f"at {offending!r}" if offending else "at the end"
    return f"cannot parse {_short(source)!r}: {error.msg} {where} (column {start + 1})"


def unknown_name(name: str, text: str, known: Iterable[str]) -> str:
    """Return the message for a name an expression may not use."""
    valid = tuple(known)
    listed = ", ".join(valid) if valid else "none"
    return f"unknown name {name!r} in {text!r}{did_you_mean(name, valid)} (names that may be used: {listed})"


def free_names(tree: ast.AST) -> frozenset[str]:
    """Return the names a tree takes from outside: no functions, no loop variables."""
    found: set[str] = set()

    def note(node: ast.Name) -> ast.expr:
        found.add(node.id)
        return node

    _visit(tree, note, frozenset())
    return frozenset(found)


def rewrite_names(tree: ast.expr, replace: Callable[[ast.Name], ast.expr]) -> ast.expr:
    """Return a copy of a tree with each free name replaced by what ``replace`` returns for it."""
    clone = copy.deepcopy(tree)
    rewritten = _visit(clone, replace, frozenset())
    assert isinstance(rewritten, ast.expr)
    return rewritten


def _visit(node: ast.AST, replace: Callable[[ast.Name], ast.expr], bound: frozenset[str]) -> ast.AST:
    if isinstance(node, ast.Name):
        return node if node.id in bound else replace(node)
    if isinstance(node, _COMPREHENSIONS):
        for loop in node.generators:
            loop.iter = _expression(_visit(loop.iter, replace, bound))
            bound = bound | {name.id for name in ast.walk(loop.target) if isinstance(name, ast.Name)}
            loop.ifs = [_expression(_visit(test, replace, bound)) for test in loop.ifs]
        node.elt = _expression(_visit(node.elt, replace, bound))
        return node
    for field, value in ast.iter_fields(node):
        if isinstance(node, ast.Call) and field == "func":
            continue
        if isinstance(value, ast.AST):
            setattr(node, field, _visit(value, replace, bound))
        elif isinstance(value, list):
            value[:] = [_visit(item, replace, bound) if isinstance(item, ast.AST) else item for item in value]
    return node


def _expression(node: ast.AST) -> ast.expr:
    assert isinstance(node, ast.expr)
    return node


def fold(tree: ast.expr, values: Mapping[str, Any], text: str) -> ast.expr:
    """Return a copy of a tree with constants put in for names and constant parts evaluated.

    A part whose evaluation fails stays as it is, so that the failure shows only if the part is reached.
    """
    replaced = rewrite_names(tree, lambda name: ast.Constant(values[name.id]) if name.id in values else name)
    return _expression(_Folder(text).visit(replaced))


class _Folder(ast.NodeTransformer):
    def __init__(self, text: str) -> None:
        self.text = text

    def visit(self, node: ast.AST) -> ast.AST:
        node = super().generic_visit(node)
        match node:
            case ast.BoolOp():
                return self._boolean(node)
            case ast.IfExp(test=ast.Constant(value=decided), body=body, orelse=orelse):
                return body if decided else orelse
            case ast.BinOp() | ast.UnaryOp() | ast.Call() | ast.Compare():
                return self._evaluate(node)
        return node

    def _boolean(self, node: ast.BoolOp) -> ast.AST:
        conjunction = isinstance(node.op, ast.And)
        kept: list[ast.expr] = []
        for position, operand in enumerate(node.values):
            decided = isinstance(operand, ast.Constant) and bool(operand.value) is not conjunction
            neutral = isinstance(operand, ast.Constant) and not decided and position < len(node.values) - 1
            if not neutral:
                kept.append(operand)
            if decided:
                break
        return kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept)

    def _evaluate(self, node: ast.expr) -> ast.AST:
        if free_names(node):
            return node
        fresh_budget()
        try:
            value = compile_scalar(node, self.text)({})
        except (MptuneError, ArithmeticError, TypeError, ValueError, LookupError, RecursionError):
            return node
        return ast.copy_location(ast.Constant(value), node) if isinstance(value, int | float | str) else node


def conjuncts(tree: ast.expr) -> list[ast.expr]:
    """Return the parts of a top-level ``and``, the tree itself where there is none."""
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        return [part for operand in tree.values for part in conjuncts(operand)]
    return [tree]
