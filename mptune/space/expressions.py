"""Expressions over named values in Python's syntax, read from text.

The tree of an expression may only have the nodes and functions listed here; then it is compiled to a Python function.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import itertools
import math
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ExpressionError, MptuneError, did_you_mean
from mptune.precision import is_precision, precision

_MAX_LENGTH: Final = 100_000  # characters of a text
_MAX_BITS: Final = 4096  # bits of a power's or shift's result
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = 200

_Functions = Mapping[str, Callable[..., Any]]
_Node = TypeVar("_Node", bound=ast.AST)

_LOOPS: Final = (ast.ListComp, ast.SetComp, ast.GeneratorExp)
_FAILURES: Final = (
    MptuneError,
    ArithmeticError,
    TypeError,
    ValueError,
    LookupError,
    NameError,
    RecursionError,
    MemoryError,
)


class Expression:
    """One expression with Python's semantics.

    Allowed are numbers, strings, names (``error.y`` is one name), arithmetic, comparisons (chained too),
    ``and``/``or``/``not``/``in``, ``a if c else b``, lists, tuples, sets, subscripts, comprehensions over one name and
    calls of the :data:`FUNCTIONS`.

    Attributes:
        names: the names it uses, without functions and loop variables.
        tree: its syntax tree.
        functions: what it may call besides, by name.
    """

    __slots__ = ("_function", "_ordered", "functions", "names", "text", "tree")

    def __init__(self, text: str, tree: ast.expr | None = None, functions: _Functions | None = None) -> None:
        self.text = text
        self.functions = functions or {}
        self.tree = _parse(text) if tree is None else tree
        self.names = free_names(self.tree)
        self._ordered = sorted(self.names)
        self._function: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return (type(self), (self.text, self.tree, self.functions))

    def _compiled(self) -> Callable[..., Any]:
        if self._function is None:
            self._function = _compiled(self.tree, self._ordered, self.functions)
        return self._function

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return the expression's value; raise ExpressionError, with the values at which it fails."""
        try:
            return self._compiled()(*[values[name] for name in self._ordered])
        except _FAILURES as error:
            self._check_given(values)
            at = ", ".join(f"{name}={values[name]!r}" for name in self._ordered)
            raise ExpressionError(f"expression {self.text!r} fails{f' at {at}' if at else ''}: {error}") from error

    def evaluate_columns(self, columns: Mapping[str, NDArray[Any]], n: int) -> NDArray[Any]:
        """Return the expression's value for each of ``n`` rows, (n,), from columns by name, (n,) each.

        Raise ExpressionError, with the values of the row in which it fails.
        """
        self._check_given(columns)
        given = [columns[name] for name in self._ordered]
        if n and given and _is_exact(self.tree, dict(zip(self._ordered, given, strict=True))):
            with contextlib.suppress(ArithmeticError), np.errstate(all="raise"):
                return np.array(self._compiled()(*given))
        lists = [column.tolist() for column in given]
        rows = list(zip(*lists, strict=True)) if lists else [()] * n
        try:
            return column_of(list(itertools.starmap(self._compiled(), rows)))
        except _FAILURES:  # once more, for the values at which it fails
            return column_of([self.evaluate(dict(zip(self._ordered, row, strict=True))) for row in rows])

    def _check_given(self, values: Mapping[str, Any]) -> None:
        for name in self._ordered:
            if name not in values:
                raise ExpressionError(unknown_name(name, self.text, values))


def unknown_name(name: str, text: str, valid: Iterable[str]) -> str:
    """Return the message for a name an expression may not use."""
    names = tuple(valid)
    listed = ", ".join(names) if names else "none"
    return f"unknown name {name!r} in {text!r}{did_you_mean(name, names)} (names that may be used: {listed})"


# -- reading --------------------------------------------------------------------------------------------

_ALLOWED: Final = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.IfExp, ast.Compare, ast.Name, ast.Subscript, ast.List, ast.Tuple, ast.Set,
    ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip


def _parse(text: str) -> ast.expr:
    if not isinstance(text, str):
        raise ExpressionError(f"an expression is text, not {text!r}")
    if len(text) > _MAX_LENGTH:
        raise ExpressionError(f"the expression has {len(text)} characters; at most {_MAX_LENGTH} are read")
    # On one line, so that columns are those of the text.
    source = text.strip().replace("\r", " ").replace("\n", " ")
    if not source:
        raise ExpressionError("the expression is empty")
    try:
        # The line break makes the parser report an early end where it is.
        tree = ast.parse(source + "\n", mode="eval").body
        _check(tree, source)
        tree = _with_dotted_names(tree)
        compile(ast.Expression(tree), "", "eval")
    except SyntaxError as error:
        start = max((error.offset or 1) - 1, 0)
        offending = source[start : max((error.end_offset or 0) - 1, start + 1)].strip()
        where = f"at {offending!r}" if offending else "at the end"
        reason = f"{error.msg} {where} (column {start + 1})"
        raise ExpressionError(f"cannot parse {_SHOWN.repr(source)}: {reason}") from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionError(f"cannot parse {_SHOWN.repr(source)}: it is nested too deeply, or no text") from None
    return tree


def _check(tree: ast.expr, text: str) -> None:
    def refuse(what: str, node: ast.AST) -> ExpressionError:
        token = ast.get_source_segment(text, node) or ast.unparse(node)
        return ExpressionError(f"{what} is not allowed in an expression: {_SHOWN.repr(token)} in {text!r}")

    for parent in ast.walk(ast.Expression(tree)):
        for node in ast.iter_child_nodes(parent):
            match node:
                case ast.Constant(value=int() | float() | str()):
                    pass
                case ast.Attribute(attr=attribute):
                    if not isinstance(node.value, ast.Name | ast.Attribute):
                        raise refuse(f"attribute access (.{attribute})", node)
                case ast.Call(func=ast.Name(id=name)):
                    if name not in FUNCTIONS:
                        hint, valid = did_you_mean(name, FUNCTIONS), ", ".join(FUNCTIONS)
                        raise ExpressionError(f"unknown function {name!r}{hint} in {text!r} (valid: {valid})")
                case ast.Call():
                    raise refuse("a call of anything but a named function", node)
                case ast.comprehension(target=target, is_async=is_async):
                    if is_async or not isinstance(target, ast.Name):
                        raise refuse("a loop over more than one name", target)
                case _ if not isinstance(node, _ALLOWED) or isinstance(node, ast.MatMult | ast.Is | ast.IsNot):
                    token = node if isinstance(node, ast.expr) and not isinstance(node, ast.Slice) else parent
                    raise refuse(type(node).__name__, token)


def _with_dotted_names(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Attribute):
        return ast.copy_location(ast.Name(ast.unparse(node), ast.Load()), node)
    return map_children(node, _with_dotted_names)


# -- trees ----------------------------------------------------------------------------------------------


def operands(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the operands of a node in order; the name of a called function is none."""
    for field, value in ast.iter_fields(node):
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.expr | ast.comprehension) and field != "func":
                yield item


@functools.lru_cache(maxsize=4096)  # trees are never modified, and share parts
def free_names(node: ast.AST) -> frozenset[str]:
    """Return the names a tree takes from outside: no functions, no loop variables."""
    if isinstance(node, ast.Name):
        return frozenset((node.id,))
    if not isinstance(node, _LOOPS):
        return frozenset().union(*map(free_names, operands(node)))
    found = free_names(node.elt)
    for loop in reversed(node.generators):
        found = (found.union(*map(free_names, loop.ifs)) - free_names(loop.target)) | free_names(loop.iter)
    return found


def map_children(node: _Node, change: Callable[[ast.expr], ast.expr]) -> _Node:
    """Return a node with its operands changed: the node itself if none changes, else a copy."""

    def changed(item: Any) -> Any:
        if isinstance(item, ast.expr):
            return change(item)
        return map_children(item, change) if isinstance(item, ast.comprehension) else item

    clone = node
    for field in node._fields:
        value = getattr(node, field, None)
        if field not in ("func", "id", "ctx", "op"):
            new = list(map(changed, value)) if isinstance(value, list) else changed(value)
            if new != value:
                clone = copy.copy(node) if clone is node else clone
                setattr(clone, field, new)
    return clone


def rewrite_names(
    tree: ast.expr, replace: Callable[[ast.Name], ast.expr], bound: frozenset[str] = frozenset()
) -> ast.expr:
    """Return a tree with each name that is not ``bound`` by a loop replaced by what ``replace`` returns for it."""
    if isinstance(tree, ast.Name):
        return tree if tree.id in bound else replace(tree)
    if not isinstance(tree, _LOOPS):
        return map_children(tree, lambda child: rewrite_names(child, replace, bound))
    loops: list[ast.comprehension] = []
    for loop in tree.generators:
        items = rewrite_names(loop.iter, replace, bound)
        bound = bound | free_names(loop.target)
        tests = [rewrite_names(test, replace, bound) for test in loop.ifs]
        loops.append(ast.comprehension(loop.target, items, tests, loop.is_async))
    return ast.copy_location(type(tree)(rewrite_names(tree.elt, replace, bound), loops), tree)


def fold(tree: ast.expr, values: Mapping[str, Any]) -> ast.expr:
    """Return a tree with constants put in for names and constant parts evaluated.

    A part whose evaluation fails stays as it is, so that the failure shows only if the part is reached.
    """
    return _fold(rewrite_names(tree, lambda name: ast.Constant(values[name.id]) if name.id in values else name))


def _fold(node: ast.expr) -> ast.expr:
    node = map_children(node, _fold)
    match node:
        case ast.BoolOp():
            return _fold_boolean(node)
        case ast.IfExp(test=ast.Constant(value=decided), body=body, orelse=orelse):
            return body if decided else orelse
        case ast.BinOp() | ast.UnaryOp() | ast.Call() | ast.Compare() if not free_names(node):
            try:
                value = _compiled(node, (), {})()
            except _FAILURES:
                return node
            return ast.copy_location(ast.Constant(value), node) if isinstance(value, int | float | str) else node
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


# -- evaluating -----------------------------------------------------------------------------------------


def _compiled(tree: ast.expr, names: Iterable[str], functions: _Functions) -> Callable[..., Any]:
    """Return a tree as a function of the values of names, in their order."""
    called = {f"{name}()": function for name, function in functions.items()}
    arguments = ast.arguments([], list(map(ast.arg, names)), None, [], [], None, [])
    function = ast.fix_missing_locations(ast.Expression(ast.Lambda(arguments, _runnable(tree))))
    return eval(compile(function, "<expression>", "eval"), {**_GLOBALS, **called})  # type: ignore[no-any-return]


def _runnable(node: ast.expr) -> ast.expr:
    """Return a tree whose functions are those of :data:`FUNCTIONS`; powers and shifts refuse huge results."""
    node = map_children(node, _runnable)
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return ast.Call(ast.Name(f"{name}()", ast.Load()), node.args, [])
        case ast.BinOp(left=left, op=ast.Pow() | ast.LShift() as op, right=right):
            name = "pow()" if isinstance(op, ast.Pow) else "shift()"
            return ast.Call(ast.Name(name, ast.Load()), [left, right], [])
    return node


def _is_exact(tree: ast.expr, columns: Mapping[str, NDArray[Any]]) -> bool:
    """Return whether a tree is integer arithmetic, or one comparison of it, that int64 columns do as Python does."""
    if not all(column.dtype == np.int64 for column in columns.values()):
        return False
    largest = {name: max(-int(column.min()), int(column.max())) for name, column in columns.items()}
    match tree:
        case ast.Compare(ops=[ast.Eq() | ast.NotEq() | ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE()]):
            sides = (tree.left, *tree.comparators)
        case _:
            sides = (tree,)
    return all(_largest(side, largest) < 2**62 for side in sides)


def _largest(node: ast.expr, names: Mapping[str, int]) -> float:
    """Return a bound on the absolute values within integer arithmetic, infinity for other expressions."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return abs(value)
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() | ast.Mod() | ast.FloorDiv() as op, right):
            a, b = _largest(left, names), _largest(right, names)
            return max(a, b, a * b if isinstance(op, ast.Mult) else a + b)
    return math.inf


def _power(base: Any, exponent: Any) -> Any:
    integers = isinstance(base, int) and isinstance(exponent, int)
    if integers and abs(base) > 1 and (abs(base).bit_length() - 1) * exponent > _MAX_BITS:
        raise OverflowError(f"{base}**{exponent} has more than {_MAX_BITS} bits")
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError(f"{base}**{exponent} is not real")
    return result


def _shift(value: Any, by: Any) -> Any:
    if by > _MAX_BITS:
        raise OverflowError(f"a shift by {by} is more than {_MAX_BITS} bits")
    return value << by


def column_of(values: list[Any]) -> NDArray[Any]:
    """Return values as one column: bool, int64, float64 or text if all agree, else objects, (n,)."""
    kinds = {*map(type, values)}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind in (bool, float, str) or (kind is int and min(values) >= -(2**63) and max(values) < 2**63):
        return np.array(values, dtype=kind)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


# -- functions ------------------------------------------------------------------------------------------


class _Function(NamedTuple):
    call: Callable[..., Any]
    total: range = range(0)  #: for which numbers of arguments it cannot fail, if all of them are numbers
    #: "number": its value is one if its arguments are; "integer": the same, and also an integer if they are integers
    gives: Literal["anything", "number", "integer"] = "anything"


_SEVERAL: Final = range(2, 1 << 30)

#: The functions an expression may call. To add one, add a row.
FUNCTIONS: Final[Mapping[str, _Function]] = MappingProxyType(
    {
        "min": _Function(min, _SEVERAL, "integer"),
        "max": _Function(max, _SEVERAL, "integer"),
        "abs": _Function(abs, range(1, 2), "integer"),
        "ceildiv": _Function(lambda a, b: -(-a // b), gives="number"),
        "round": _Function(round, gives="number"),
        "int": _Function(int, gives="number"),
        "float": _Function(float, gives="number"),
        "bool": _Function(bool, gives="number"),
        "pow": _Function(_power, gives="number"),
        "sqrt": _Function(math.sqrt, gives="number"),
        "log2": _Function(math.log2, gives="number"),
        "sizeof": _Function(functools.cache(lambda name: precision(name).size_bytes)),
        **{f.__name__: _Function(f) for f in (all, any, sum, len, range, list, tuple, set, sorted)},
    }
)
_GLOBALS: Final[Mapping[str, Any]] = {
    "__builtins__": {},
    "shift()": _shift,
    **{f"{name}()": function.call for name, function in FUNCTIONS.items()},
}


# -- what is known before evaluation --------------------------------------------------------------------


class Known(NamedTuple):
    """What holds of a part of an expression for all values of its names."""

    is_number: bool = False  #: its value is a number or truth value, if it has one
    is_integer: bool = False  #: its value is an integer or truth value
    is_nonzero: bool = False  #: a number that is never zero
    is_precision: bool = False  #: the name of a precision
    is_total: bool = True  #: evaluating it cannot fail


_TRUTH: Final = Known(is_number=True, is_integer=True)


def known_of(values: Iterable[object]) -> Known:
    """Return what holds of a name that can have these values."""
    held = tuple(values)
    is_number = all(isinstance(value, int | float) for value in held)
    return Known(
        is_number,
        all(isinstance(value, int) for value in held),
        is_number and all(value != 0 for value in held),
        all(isinstance(value, str) and is_precision(value) for value in held),
    )


def known(node: ast.AST, names: Mapping[str, Known]) -> Known:
    """Return what holds of a part of an expression, given what holds of its names.

    Only a total part may be evaluated where Python's ``and``, ``or`` and ``if`` would not have reached it.
    """
    parts = [known(part, names) for part in operands(node)]
    numbers, total = all(part.is_number for part in parts), all(part.is_total for part in parts)
    integers = all(part.is_integer for part in parts)
    match node:
        case ast.Constant(value=value):
            return known_of([value])
        case ast.Name(id=name):
            return names.get(name, Known())
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() as op):
            is_nonzero = isinstance(op, ast.Mult) and integers and all(part.is_nonzero for part in parts)
            return Known(numbers, integers, is_nonzero, is_total=total and numbers)
        case ast.BinOp(op=ast.Div() | ast.FloorDiv() | ast.Mod() as op):
            is_integer = integers and not isinstance(op, ast.Div)
            return Known(numbers, is_integer, is_total=total and numbers and parts[1].is_nonzero)
        case ast.BinOp():
            return Known(numbers, is_total=False)
        case ast.UnaryOp(op=ast.Not()):
            return _TRUTH._replace(is_total=total)
        case ast.UnaryOp(op=op):
            return Known(numbers, integers, is_total=total and (integers if isinstance(op, ast.Invert) else numbers))
        case ast.BoolOp():
            return Known(numbers, integers, is_total=total)
        case ast.IfExp():
            _, body, orelse = parts
            return Known(body.is_number and orelse.is_number, body.is_integer and orelse.is_integer, is_total=total)
        case ast.Compare(ops=ops, comparators=comparators):
            if any(isinstance(op, ast.In | ast.NotIn) for op in ops):
                cannot_fail = len(ops) == 1 and isinstance(comparators[0], ast.List | ast.Tuple)
            else:
                cannot_fail = numbers or all(isinstance(op, ast.Eq | ast.NotEq) for op in ops)
            return _TRUTH._replace(is_total=total and cannot_fail)
        case ast.List() | ast.Tuple():
            return Known(is_total=total)
        case ast.Call(func=ast.Name(id="sizeof")):
            return Known(True, True, True, is_total=len(parts) == 1 and parts[0].is_precision)
        case ast.Call(func=ast.Name(id=name)) if name in FUNCTIONS:
            function = FUNCTIONS[name]
            is_number = function.gives != "anything" and bool(parts) and numbers
            is_total = total and numbers and len(parts) in function.total
            return Known(is_number, is_number and integers and function.gives == "integer", is_total=is_total)
    return Known(is_total=False)


# -- parts that can be evaluated before every name has a value -------------------------------------------


def regroup(node: ast.expr, available: frozenset[str], names: Mapping[str, Known]) -> ast.expr:
    """Return the tree with the operands of integer sums and products reordered, those over ``available`` names first.

    Integer arithmetic is exact, so the order does not matter to the result; it does to what can be evaluated early:
    in ``a * b * c <= n`` with a and c available, ``(a * c) * b`` leaves one number to remember in place of two.
    """
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult) and known(node, names).is_integer):
        return map_children(node, lambda child: regroup(child, available, names))
    terms = _chain(node, type(node.op))
    early_first = sorted(terms, key=lambda term: not free_names(term) <= available)
    changed = [regroup(term, available, names) for term in early_first]
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


def early_parts(node: ast.AST, available: frozenset[str], names: Mapping[str, Known]) -> list[ast.expr]:
    """Return the largest parts of a tree that give a number, use only ``available`` names and cannot fail.

    A part that is just a name is left out: remembering it means remembering the name.
    """
    if isinstance(node, ast.expr) and not isinstance(node, ast.Name):
        used = free_names(node)
        if used and used <= available:
            of_node = known(node, names)
            if of_node.is_number and of_node.is_total:
                return [node]
    if isinstance(node, _LOOPS):
        return []
    return [part for child in operands(node) for part in early_parts(child, available, names)]
