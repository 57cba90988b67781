"""Reading and rewriting syntax trees: parsing with clear messages, free names, replacing names and parts."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from mptune.errors import ExpressionError, did_you_mean

__all__ = [
    "conjuncts",
    "free_names",
    "map_children",
    "one_line",
    "operands",
    "parse",
    "rewrite_names",
    "token",
    "unknown_name",
]

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


def token(node: ast.AST, text: str) -> str:
    """Return the piece of ``text`` a node was parsed from, shortened when it is long."""
    piece = ast.get_source_segment(text, node) or ast.unparse(node)
    return piece if len(piece) <= 60 else piece[:57] + "..."


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
            waiting.extend(operands(node))
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


def operands(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the operands of a node in order; the name of a called function is none."""
    for field in node._fields:
        value = getattr(node, field, None)
        if isinstance(value, ast.expr):
            if not (field == "func" and isinstance(node, ast.Call)):
                yield value
        elif isinstance(value, list):
            yield from (item for item in value if isinstance(item, ast.expr))


def map_children(node: ast.expr, change: Callable[[ast.expr], ast.expr]) -> ast.expr:
    """Return a node with its operands changed: the node itself if none changes, else a copy.

    Trees are never modified, so they may share parts.
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


def conjuncts(tree: ast.expr) -> list[ast.expr]:
    """Return the parts of a top-level ``and``, the tree itself if there is none."""
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        return [part for operand in tree.values for part in conjuncts(operand)]
    return [tree]
