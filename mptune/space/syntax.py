"""Reading and rewriting syntax trees: parsing with messages a user can act on, free names, constants."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from mptune.errors import ExpressionError, MptuneError, did_you_mean
from mptune.space.evaluation import compile_scalar, fresh_budget

__all__ = ["conjuncts", "fold", "free_names", "map_children", "one_line", "parse", "rewrite_names", "unknown_name"]

_MAX_LENGTH: Final = 100_000


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
        # The line break makes the parser report an early end where it is.
        return ast.parse(source + "\n", mode="eval").body
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


def free_names(tree: ast.expr) -> frozenset[str]:
    """Return the names a tree takes from outside: no functions, no loop variables."""
    found: set[str] = set()
    waiting: list[ast.expr] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            found |= _free_in_comprehension(node)
        else:
            waiting.extend(_operands(node))
    return frozenset(found)


def _free_in_comprehension(node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> set[str]:
    found: set[str] = set()
    bound: set[str] = set()
    for loop in node.generators:
        found |= free_names(loop.iter) - bound
        bound |= free_names(loop.target)
        for test in loop.ifs:
            found |= free_names(test) - bound
    return found | (free_names(node.elt) - bound)


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    for field in node._fields:
        value = getattr(node, field, None)
        if isinstance(value, ast.expr):
            if not (field == "func" and isinstance(node, ast.Call)):
                yield value
        elif isinstance(value, list):
            yield from (item for item in value if isinstance(item, ast.expr))


def map_children(node: ast.expr, change: Callable[[ast.expr], ast.expr]) -> ast.expr:
    """Return a node with its operands changed: the node itself where none changes, else a copy.

    The name of a called function is no operand. Trees are never modified, so they may share parts.
    """
    changed: dict[str, Any] = {}
    for field in node._fields:
        value = getattr(node, field, None)
        if isinstance(value, ast.expr) and not (field == "func" and isinstance(node, ast.Call)):
            new = change(value)
            if new is not value:
                changed[field] = new
        elif isinstance(value, list):
            items = [change(item) if isinstance(item, ast.expr) else item for item in value]
            if any(new is not old for new, old in zip(items, value, strict=True)):
                changed[field] = items
    if not changed:
        return node
    clone = copy.copy(node)
    for field, value in changed.items():
        setattr(clone, field, value)
    return clone


def rewrite_names(
    tree: ast.expr, replace: Callable[[ast.Name], ast.expr], bound: frozenset[str] = frozenset()
) -> ast.expr:
    """Return a tree with each name that is not ``bound`` by a loop replaced by what ``replace`` returns for it."""
    if isinstance(tree, ast.Name):
        return tree if tree.id in bound else replace(tree)
    if not isinstance(tree, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return map_children(tree, lambda child: rewrite_names(child, replace, bound))
    loops: list[ast.comprehension] = []
    for loop in tree.generators:
        items = rewrite_names(loop.iter, replace, bound)
        bound = bound | {name.id for name in ast.walk(loop.target) if isinstance(name, ast.Name)}
        tests = [rewrite_names(test, replace, bound) for test in loop.ifs]
        loops.append(ast.comprehension(loop.target, items, tests, loop.is_async))
    return ast.copy_location(type(tree)(rewrite_names(tree.elt, replace, bound), loops), tree)


def fold(tree: ast.expr, values: Mapping[str, Any], text: str) -> ast.expr:
    """Return a tree with constants put in for names and constant parts evaluated.

    A part whose evaluation fails stays as it is, so that the failure shows only if the part is reached.
    """
    replaced = rewrite_names(tree, lambda name: ast.Constant(values[name.id]) if name.id in values else name)
    return _fold(replaced, text)


def _fold(node: ast.expr, text: str) -> ast.expr:
    node = map_children(node, lambda child: _fold(child, text))
    match node:
        case ast.BoolOp():
            return _fold_boolean(node)
        case ast.IfExp(test=ast.Constant(value=decided), body=body, orelse=orelse):
            return body if decided else orelse
        case ast.BinOp() | ast.UnaryOp() | ast.Call() | ast.Compare() if not free_names(node):
            return _evaluated(node, text)
    return node


def _fold_boolean(node: ast.BoolOp) -> ast.expr:
    """Leave out operands that decide nothing and those after one that decides."""
    conjunction = isinstance(node.op, ast.And)
    kept: list[ast.expr] = []
    for position, operand in enumerate(node.values):
        decides = isinstance(operand, ast.Constant) and bool(operand.value) is not conjunction
        neutral = isinstance(operand, ast.Constant) and not decides and position < len(node.values) - 1
        if not neutral:
            kept.append(operand)
        if decides:
            break
    if len(kept) == len(node.values):
        return node
    return kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept)


def _evaluated(node: ast.expr, text: str) -> ast.expr:
    fresh_budget()
    try:
        value = compile_scalar(node, text)({})
    except (MptuneError, ArithmeticError, TypeError, ValueError, LookupError, RecursionError):
        return node
    return ast.copy_location(ast.Constant(value), node) if isinstance(value, int | float | str) else node


def conjuncts(tree: ast.expr) -> list[ast.expr]:
    """Return the parts of a top-level ``and``, the tree itself where there is none."""
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        return [part for operand in tree.values for part in conjuncts(operand)]
    return [tree]
