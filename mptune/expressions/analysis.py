"""What can be known about an expression without evaluating it, and how to evaluate parts of it early."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from mptune.errors import UnknownNameError
from mptune.expressions.functions import FUNCTIONS
from mptune.expressions.syntax import free_names, map_children, operands
from mptune.precision import precision

__all__ = ["Facts", "early_parts", "is_integer", "is_numeric", "is_total", "regroup", "replace_parts"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What holds for every value of some names."""

    integer: frozenset[str]  #: names whose values are all integers or truth values
    numeric: frozenset[str]  #: names whose values are all numbers or truth values
    nonzero: frozenset[str]  #: numeric names without a zero
    precisions: frozenset[str]  #: names whose values are all names of precisions

    @classmethod
    def of(cls, values: Mapping[str, Iterable[object]]) -> Facts:
        """Return the facts of names from all values each can have."""
        held = {name: tuple(entries) for name, entries in values.items()}

        def names_where(test: Callable[[object], bool]) -> frozenset[str]:
            return frozenset(name for name, entries in held.items() if all(test(entry) for entry in entries))

        numeric = names_where(lambda value: isinstance(value, int | float))
        return cls(
            integer=names_where(lambda value: isinstance(value, int)),
            numeric=numeric,
            nonzero=names_where(lambda value: value != 0) & numeric,
            precisions=names_where(lambda value: isinstance(value, str) and _is_precision(value)),
        )

    def with_derived(self, name: str, part: ast.expr) -> Facts:
        """Return the facts with one more name, that of a part of an expression."""
        return Facts(
            self.integer | {name} if is_integer(part, self) else self.integer,
            self.numeric | {name} if is_numeric(part, self) else self.numeric,
            self.nonzero | {name} if _is_nonzero(part, self) else self.nonzero,
            self.precisions,
        )


def _is_precision(text: str) -> bool:
    try:
        precision(text)
    except UnknownNameError:
        return False
    return True


def is_numeric(node: ast.expr, facts: Facts) -> bool:
    """Return whether a part gives a number or truth value for all values of its names, if it does not fail."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float)
        case ast.Name(id=name):
            return name in facts.numeric
        case ast.BinOp(left=left, right=right):
            return is_numeric(left, facts) and is_numeric(right, facts)
        case ast.UnaryOp(op=ast.Not()) | ast.Compare():
            return True
        case ast.UnaryOp(operand=operand):
            return is_numeric(operand, facts)
        case ast.BoolOp(values=parts):
            return _all_numeric(parts, facts)
        case ast.IfExp(body=body, orelse=orelse):
            return is_numeric(body, facts) and is_numeric(orelse, facts)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            gives = FUNCTIONS[name].gives
            if gives in ("number", "integer"):
                return bool(arguments) and all(is_numeric(argument, facts) for argument in arguments)
            return gives == "positive integer"
    return False


def is_integer(node: ast.expr, facts: Facts) -> bool:
    """Return whether a part gives an integer (or truth value) for all values of its names, if it does not fail."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int)
        case ast.Name(id=name):
            return name in facts.integer
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() | ast.Mod(), right=right):
            return is_integer(left, facts) and is_integer(right, facts)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return is_integer(operand, facts)
        case ast.UnaryOp(op=ast.Not()) | ast.Compare():
            return True
        case ast.BoolOp(values=parts):
            return all(is_integer(part, facts) for part in parts)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            if FUNCTIONS[name].gives == "integer":
                return bool(arguments) and all(is_integer(argument, facts) for argument in arguments)
            return FUNCTIONS[name].gives == "positive integer"
    return False


def _is_nonzero(node: ast.expr, facts: Facts) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and value != 0
        case ast.Name(id=name):
            return name in facts.nonzero
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return is_integer(node, facts) and _is_nonzero(left, facts) and _is_nonzero(right, facts)
        case ast.Call(func=ast.Name(id=name)):
            return FUNCTIONS[name].gives == "positive integer"
    return False


def is_total(node: ast.expr, facts: Facts) -> bool:
    """Return whether evaluating a part cannot fail for any values of its names.

    Only such a part may be evaluated where Python's ``and``, ``or`` and ``if`` would not have reached it.
    """
    match node:
        case ast.Constant() | ast.Name():
            return True
        case ast.BinOp(left=left, op=op, right=right):
            safe = isinstance(op, ast.Add | ast.Sub | ast.Mult) or (
                isinstance(op, ast.Div | ast.FloorDiv | ast.Mod) and _is_nonzero(right, facts)
            )
            return safe and _all_numeric((left, right), facts) and _all_total((left, right), facts)
        case ast.UnaryOp(op=op, operand=operand):
            return is_total(operand, facts) and (isinstance(op, ast.Not) or _all_numeric((operand,), facts))
        case ast.BoolOp(values=parts):
            return _all_total(parts, facts)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _all_total((test, body, orelse), facts)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            sides = [left, *comparators]
            unordered = all(isinstance(op, ast.Eq | ast.NotEq) for op in ops)
            is_listed = isinstance(comparators[0], ast.List | ast.Tuple)
            contains = len(ops) == 1 and isinstance(ops[0], ast.In | ast.NotIn) and is_listed
            return _all_total(sides, facts) and (unordered or contains or _all_numeric(sides, facts))
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return _all_total(elements, facts)
        case ast.Call(func=ast.Name(id="sizeof"), args=[ast.Name(id=name)]):
            return name in facts.precisions
        case ast.Call(func=ast.Name(id=name), args=arguments):
            cannot_fail = len(arguments) in FUNCTIONS[name].total
            return cannot_fail and _all_numeric(arguments, facts) and _all_total(arguments, facts)
    return False


def _all_total(nodes: Iterable[ast.expr], facts: Facts) -> bool:
    return all(is_total(node, facts) for node in nodes)


def _all_numeric(nodes: Iterable[ast.expr], facts: Facts) -> bool:
    return all(is_numeric(node, facts) for node in nodes)


# -- parts that can be evaluated before every name has a value -----------------------------------------


def regroup(node: ast.expr, known: frozenset[str], facts: Facts) -> ast.expr:
    """Return the tree with the operands of integer sums and products reordered, those over ``known`` names first.

    Integer arithmetic is exact, so the order does not matter to the result; it does to what can be evaluated early:
    in ``a * b * c <= n`` with a and c known, ``(a * c) * b`` leaves one number to remember in place of two.
    """
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult) and is_integer(node, facts)):
        return map_children(node, lambda child: regroup(child, known, facts))
    terms = _chain(node, type(node.op))
    early_first = sorted(terms, key=lambda term: not free_names(term) <= known)
    changed = [regroup(term, known, facts) for term in early_first]
    if all(a is b for a, b in zip(terms, changed, strict=True)):
        return node
    return functools.reduce(lambda left, right: ast.BinOp(left, node.op, right), changed)


def _chain(node: ast.expr, op: type[ast.operator]) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, op):
        return _chain(node.left, op) + _chain(node.right, op)
    return [node]


def replace_parts(node: ast.expr, names: Mapping[int, str]) -> ast.expr:
    """Return the tree with some of its parts, given by their ``id``, replaced by names."""
    if id(node) in names:
        return ast.Name(names[id(node)], ast.Load())
    return map_children(node, lambda child: replace_parts(child, names))


def early_parts(node: ast.expr, known: frozenset[str], facts: Facts) -> list[ast.expr]:
    """Return the largest parts of a tree that give a number, use only ``known`` names and cannot fail.

    A part that is just a name is left out: remembering it means remembering the name.
    """
    names = free_names(node)
    is_known = bool(names) and names <= known and not isinstance(node, ast.Name)
    if is_known and is_numeric(node, facts) and is_total(node, facts):
        return [node]
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return []
    return [part for child in operands(node) for part in early_parts(child, known, facts)]
