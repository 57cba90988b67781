"""Expressions over named values in Python's syntax, read from text.

The tree of an expression may only have the nodes and functions listed here; then it is compiled. For columns of values
the same tree is evaluated by NumPy, where NumPy gives exactly what Python gives, and row by row elsewhere.
"""

from __future__ import annotations

import ast
import copy
import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ExpressionError, MptuneError, UnknownNameError, did_you_mean
from mptune.precision import precision

_MAX_LENGTH: Final = 100_000  # characters of a text
_MAX_BITS: Final = 4096  # bits of a power's or shift's result
_MAX_ITEMS: Final = 1_000_000  # items of a list or text that is repeated
_MAX_MEMBERS: Final = 1_000  # items of a constant sequence that a column is compared with
_EXACT: Final = 2**53  # up to here float64 has every integer

_Node = TypeVar("_Node", bound=ast.AST)

_FAILURES: Final = (MptuneError, ArithmeticError, TypeError, ValueError, LookupError, RecursionError, MemoryError)


class Expression:
    """One expression with Python's semantics.

    Allowed are numbers, strings, names (``error.y`` is one name), arithmetic, comparisons (chained too),
    ``and``/``or``/``not``/``in``, ``a if c else b``, lists, tuples, sets, subscripts, comprehensions over one name and
    calls of the :data:`FUNCTIONS`.

    Attributes:
        names: the names it uses, without functions and loop variables.
        tree: its syntax tree.

    Raises:
        ExpressionError: it does not parse or uses a construct that is not allowed; names the offending token.
    """

    __slots__ = ("_compiled", "names", "text", "tree")

    def __init__(self, text: str) -> None:
        self._set(text, _parse(text))

    @classmethod
    def from_tree(cls, text: str, tree: ast.expr) -> Expression:
        """Return the expression of a tree of allowed nodes, shown as ``text``."""
        expression = cls.__new__(cls)
        expression._set(text, tree)
        return expression

    def _set(self, text: str, tree: ast.expr) -> None:
        self.text = text
        self.tree = tree
        self.names = free_names(tree)
        self._compiled: Callable[[Mapping[str, Any]], Any] | None = None

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return (Expression.from_tree, (self.text, self.tree))

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return the expression's value.

        Raises:
            ExpressionError: a name is missing, or the operation fails (division by zero, wrong type, overflow);
                the message holds the values it fails at.
        """
        try:
            if self._compiled is None:
                self._compiled = _compiled(self.tree)
            return self._compiled(values)
        except _FAILURES as error:
            for name in sorted(self.names):
                if name not in values:
                    raise ExpressionError(unknown_name(name, self.text, values)) from None
            at = ", ".join(f"{name}={values[name]!r}" for name in sorted(self.names))
            raise ExpressionError(f"expression {self.text!r} fails{f' at {at}' if at else ''}: {error}") from error

    def evaluate_columns(self, columns: Mapping[str, NDArray[Any]], n: int) -> NDArray[Any]:
        """Return the expression's value for each of ``n`` rows, (n,).

        ``columns`` holds the values by name, each (n,).

        Raises:
            ExpressionError: a name is missing, or the operation fails in some row; holds that row's values.
        """
        missing = sorted(self.names - set(columns))
        if missing:
            raise ExpressionError(unknown_name(missing[0], self.text, columns))
        try:
            with np.errstate(all="ignore"):
                return np.broadcast_to(_column(self.tree, _Rows(columns, n)), n).copy()
        except (_NotVectorisableError, ArithmeticError, TypeError, ValueError):
            return self._row_by_row(columns, n)

    def _row_by_row(self, columns: Mapping[str, NDArray[Any]], n: int) -> NDArray[Any]:
        names = sorted(self.names)
        rows = zip(*(columns[name].tolist() for name in names), strict=True) if names else iter([()] * n)
        return column_of([self.evaluate(dict(zip(names, row, strict=True))) for row in rows])


def unknown_name(name: str, text: str, valid: Iterable[str]) -> str:
    """Return the message for a name an expression may not use."""
    names = tuple(valid)
    listed = ", ".join(names) if names else "none"
    return f"unknown name {name!r} in {text!r}{did_you_mean(name, names)} (names that may be used: {listed})"


# -- reading --------------------------------------------------------------------------------------------

_ALLOWED: Final = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.IfExp, ast.List, ast.Tuple, ast.Set, ast.ListComp, ast.SetComp,
    ast.GeneratorExp, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
_FORBIDDEN: Final[Mapping[type[ast.AST], str]] = {
    ast.Lambda: "lambda",
    ast.JoinedStr: "a formatted string",
    ast.NamedExpr: "an assignment",
    ast.Dict: "a dictionary",
    ast.DictComp: "a dictionary",
    ast.Slice: "a slice",
    ast.Starred: "unpacking with *",
    ast.MatMult: "the operator @",
    ast.Is: "the operator 'is'",
    ast.IsNot: "the operator 'is not'",
    ast.keyword: "a keyword argument",
    ast.Constant: "this kind of constant",
}


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
        raise ExpressionError(_syntax_message(source, error)) from None
    except UnicodeError:
        raise ExpressionError(f"cannot parse {_short(source, 200)!r}: it has characters that are no text") from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionError(f"cannot parse {_short(source, 200)!r}: it is nested too deeply") from None
    return tree


def _syntax_message(source: str, error: SyntaxError) -> str:
    start = max((error.offset or 1) - 1, 0)
    end = (error.end_offset or 0) - 1
    offending = source[start : max(end, start + 1)].strip()
    where = f"at {offending!r}" if offending else "at the end"
    return f"cannot parse {_short(source, 200)!r}: {error.msg} {where} (column {start + 1})"


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def _check(tree: ast.expr, text: str) -> None:
    def refuse(what: str, node: ast.AST) -> ExpressionError:
        token = ast.get_source_segment(text, node) or ast.unparse(node)
        return ExpressionError(f"{what} is not allowed in an expression: {_short(token, 60)!r} in {text!r}")

    for parent in ast.walk(ast.Expression(tree)):
        for node in ast.iter_child_nodes(parent):
            match node:
                case ast.Constant(value=int() | float() | str()) | ast.Name() | ast.Compare() | ast.Subscript():
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
                case _ if not isinstance(node, _ALLOWED) or isinstance(node, tuple(_FORBIDDEN)):
                    token = node if isinstance(node, ast.expr) and not isinstance(node, ast.Slice) else parent
                    raise refuse(_FORBIDDEN.get(type(node), type(node).__name__), token)


def _with_dotted_names(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Attribute):
        return ast.copy_location(ast.Name(ast.unparse(node), ast.Load()), node)
    return map_children(node, _with_dotted_names)


# -- trees ----------------------------------------------------------------------------------------------


def operands(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the operands of a node in order; the name of a called function is none."""
    for field in node._fields:
        value = getattr(node, field, None)
        if isinstance(value, ast.expr | ast.comprehension):
            if not (field == "func" and isinstance(node, ast.Call)):
                yield value
        elif isinstance(value, list):
            yield from (item for item in value if isinstance(item, ast.expr | ast.comprehension))


def free_names(tree: ast.expr) -> frozenset[str]:
    """Return the names a tree takes from outside: no functions, no loop variables."""
    found: set[str] = set()
    waiting: list[ast.AST] = [tree]
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
        found |= set().union(*map(free_names, loop.ifs)) - bound
    return found | (free_names(node.elt) - bound)


def map_children(node: _Node, change: Callable[[ast.expr], ast.expr]) -> _Node:
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
            items = [
                change(item)
                if isinstance(item, ast.expr)
                else map_children(item, change)
                if isinstance(item, ast.comprehension)
                else item
                for item in value
            ]
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
        bound = bound | free_names(loop.target)
        tests = [rewrite_names(test, replace, bound) for test in loop.ifs]
        loops.append(ast.comprehension(loop.target, items, tests, loop.is_async))
    return ast.copy_location(type(tree)(rewrite_names(tree.elt, replace, bound), loops), tree)


def conjuncts(tree: ast.expr) -> list[ast.expr]:
    """Return the parts of a top-level ``and``, the tree itself if there is none."""
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        return [part for operand in tree.values for part in conjuncts(operand)]
    return [tree]


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
                value = _compiled(node)({})
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


# -- over Python values ---------------------------------------------------------------------------------

_VALUES: Final = "<values>"  # the argument of the compiled function: no name of an expression
_POWER, _SHIFT, _REPEAT = "<power>", "<shift>", "<repeat>"


def _compiled(tree: ast.expr) -> Callable[[Mapping[str, Any]], Any]:
    def lookup(name: ast.Name) -> ast.expr:
        return ast.Subscript(ast.Name(_VALUES, ast.Load()), ast.Constant(name.id), ast.Load())

    arguments = ast.arguments([], [ast.arg(_VALUES)], None, [], [], None, [])
    function = ast.Expression(ast.Lambda(arguments, _bounded(rewrite_names(tree, lookup))))
    compiled: Callable[[Mapping[str, Any]], Any] = eval(
        compile(ast.fix_missing_locations(function), "<expression>", "eval"), dict(_GLOBALS)
    )
    return compiled


def _bounded(node: ast.expr) -> ast.expr:
    """Return a tree whose powers, shifts and repetitions are calls of functions that refuse huge results."""
    node = map_children(node, _bounded)
    match node:
        case ast.BinOp(left, ast.Mult(), right) if not (_is_number(left) and _is_number(right)):
            return ast.Call(ast.Name(_REPEAT, ast.Load()), [left, right], [])
        case ast.BinOp(left=left, op=ast.Pow() | ast.LShift() as op, right=right):
            name = ast.Name(_POWER if isinstance(op, ast.Pow) else _SHIFT, ast.Load())
            return ast.Call(name, [left, right], [])
    return node


def _is_number(node: ast.expr) -> bool:
    return not isinstance(node, ast.List | ast.Tuple | ast.ListComp) and not (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _repeat(a: Any, b: Any) -> Any:
    for sequence, count in ((a, b), (b, a)):
        if isinstance(sequence, list | tuple | str) and isinstance(count, int) and len(sequence) * count > _MAX_ITEMS:
            raise OverflowError(f"it needs a sequence of more than {_MAX_ITEMS} items")
    return a * b


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


# -- over columns ---------------------------------------------------------------------------------------


class _NotVectorisableError(Exception):
    """NumPy would not give what Python gives."""


def _require(condition: Any) -> None:
    if not condition:
        raise _NotVectorisableError


def column_of(values: list[Any]) -> NDArray[Any]:
    """Return values as one column: bool, int64, float64 or text if all agree, else objects, (n,)."""
    kinds = {type(value) for value in values}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind in (bool, int, float, str) and (kind is not int or all(-(2**63) <= value < 2**63 for value in values)):
        return np.array(values, dtype=kind)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def truth(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the truth of each value as Python sees it."""
    if column.dtype.kind == "U":
        return np.asarray(column != "")
    return column.astype(np.bool_)


class _Rows:
    """Columns of values, or a selection of their rows."""

    __slots__ = ("_columns", "_selected", "n")

    def __init__(self, columns: Mapping[str, NDArray[Any]], n: int, selected: NDArray[np.intp] | None = None) -> None:
        self._columns = columns
        self._selected = selected
        self.n = n

    def column(self, name: str) -> NDArray[Any]:
        values = self._columns[name]
        _require(values.dtype.kind in "biufU")
        return values if self._selected is None else values[self._selected]

    def where(self, mask: NDArray[np.bool_]) -> _Rows:
        chosen = np.flatnonzero(mask)
        return _Rows(self._columns, len(chosen), chosen if self._selected is None else self._selected[chosen])


def _column(node: ast.AST, rows: _Rows) -> NDArray[Any]:
    """Return a tree's value for each row, (n,) or () if it is the same for all."""
    match node:
        case ast.Constant(value=constant):
            _require(not (isinstance(constant, str) and constant.endswith("\0")))  # NumPy drops it
            return np.asarray(constant)
        case ast.Name(id=name):
            return rows.column(name)
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_column(left, rows), _column(right, rows))
        case ast.UnaryOp(op=op, operand=operand):
            return _UNARY[type(op)](_column(operand, rows))
        case ast.BoolOp(op=op, values=[first, *rest]):
            return _boolean_column(isinstance(op, ast.And), first, rest, rows)
        case ast.Compare(left=left, ops=ops, comparators=comparators) if len(ops) > 1:
            pairs = zip([left, *comparators[:-1]], ops, comparators, strict=True)
            compared = [ast.Compare(a, [op], [b]) for a, op, b in pairs]
            return _boolean_column(True, compared[0], compared[1:], rows)
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[container]):
            member = _column(left, rows)
            equal = [_compare(ast.Eq, member, _column(item, rows)) for item in _members(container)]
            is_in = functools.reduce(operator.or_, equal, np.zeros((), np.bool_))
            return is_in if isinstance(op, ast.In) else ~is_in
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _compare(type(op), _column(left, rows), _column(right, rows))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            condition = np.broadcast_to(truth(_column(test, rows)), rows.n)
            yes, no = _column(body, rows.where(condition)), _column(orelse, rows.where(~condition))
            return _merged(condition, yes, no)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            function = FUNCTIONS[name]
            is_list = len(arguments) == 1 and isinstance(arguments[0], ast.List | ast.Tuple)
            _require(function.columns is not None and is_list >= function.is_of_list)
            found: NDArray[Any] = function.columns(  # type: ignore[misc]
                *(_column(part, rows) for part in (operands(arguments[0]) if is_list else arguments))
            )
            return found
    raise _NotVectorisableError


def _boolean_column(conjunction: bool, first: ast.expr, rest: Iterable[ast.expr], rows: _Rows) -> NDArray[Any]:
    result = _column(first, rows)
    for part in rest:
        # Later operands are evaluated only in the rows that reach them: elsewhere they may fail.
        undecided = np.broadcast_to(truth(result) == conjunction, rows.n)
        if undecided.any():
            kept = np.broadcast_to(result, rows.n)[~undecided]
            result = _merged(undecided, _column(part, rows.where(undecided)), kept)
    return result


def _merged(mask: NDArray[np.bool_], chosen: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
    """Return ``chosen`` in the rows of the mask and ``others`` elsewhere, (n,)."""
    if not mask.any() or mask.all():
        return np.broadcast_to(others if not mask.any() else chosen, len(mask))
    if "b" in (chosen.dtype.kind, others.dtype.kind) and chosen.dtype.kind != others.dtype.kind:
        chosen, others = _number(chosen), _number(others)
    # Where some rows are integers and others are not, what follows could be inexact.
    _require(chosen.dtype.kind == others.dtype.kind)
    merged = np.empty(len(mask), np.result_type(chosen, others))
    merged[mask], merged[~mask] = chosen, others
    return merged


def _members(node: ast.expr) -> Iterable[ast.AST]:
    """Return what a container holds: the parts of a list, or the items of a constant sequence."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return node.elts
    _require(not free_names(node))
    items = _compiled(node)({})
    _require(isinstance(items, list | tuple | set | range) and len(items) <= _MAX_MEMBERS)
    return [ast.Constant(item) for item in items]


def _number(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column as float64 or as int64 that float64 holds exactly; truth values are integers."""
    if column.dtype.kind == "f" and column.dtype.itemsize <= 8:
        return column.astype(np.float64, copy=False)
    _require(column.dtype.kind in "biu")
    if column.size and column.dtype.kind != "b":
        _require(column.max() <= _EXACT and column.min() >= -_EXACT)
    return column.astype(np.int64, copy=False)


def _compare(op: type[ast.cmpop], a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    if (a.dtype.kind == "U") != (b.dtype.kind == "U"):
        _require(op in (ast.Eq, ast.NotEq))
        return np.asarray(op is ast.NotEq)
    if a.dtype.kind != "U":
        a, b = _number(a), _number(b)
    return np.asarray(_COMPARISONS[op](a, b))


def _product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    a, b = _number(a), _number(b)
    if a.dtype.kind == b.dtype.kind == "i":
        _require(np.all(np.abs(np.multiply(a, b, dtype=np.float64)) <= _EXACT))
    return np.asarray(a * b)


def _quotient(function: Callable[..., Any]) -> Callable[..., NDArray[Any]]:
    def apply(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        _require(np.all(b != 0))
        return np.asarray(function(_number(a), _number(b)))

    return apply


def _of_numbers(function: Callable[..., Any]) -> Callable[..., NDArray[Any]]:
    return lambda *columns: np.asarray(function(*map(_number, columns)))


def _of_distinct(function: Callable[..., Any]) -> Callable[..., NDArray[Any]]:
    """Return a function of columns that calls Python's once for each distinct combination of values."""

    def apply(*columns: NDArray[Any]) -> NDArray[Any]:
        shape = np.broadcast_shapes(*(column.shape for column in columns))
        codes = np.zeros(shape, dtype=np.int64)
        values: list[list[Any]] = []
        for column in columns:
            distinct, inverse = np.unique(column, return_inverse=True)
            codes = codes * len(distinct) + inverse.reshape(column.shape)
            values.append(distinct.tolist())
        combinations, inverse = np.unique(codes, return_inverse=True)
        positions = np.unravel_index(combinations, [len(distinct) for distinct in values])
        picked = [[held[i] for i in chosen] for held, chosen in zip(values, positions, strict=True)]
        try:
            results = column_of([function(*row) for row in zip(*picked, strict=True)])
        except Exception as error:
            raise _NotVectorisableError from error
        _require(results.dtype.kind != "O")
        return results[inverse].reshape(shape)

    return apply


def _extreme(better: Callable[[Any, Any], Any]) -> Callable[..., NDArray[Any]]:
    def apply(*columns: NDArray[Any]) -> NDArray[Any]:
        _require(len(columns) > 1)
        numbers = [_number(column) for column in columns]
        _require(len({number.dtype.kind for number in numbers}) == 1)
        return functools.reduce(lambda a, b: np.where(better(b, a), b, a), numbers)

    return apply


_BINARY: Final[Mapping[type[ast.operator], Callable[..., NDArray[Any]]]] = {
    ast.Add: _of_numbers(operator.add),
    ast.Sub: _of_numbers(operator.sub),
    ast.Mult: _product,
    ast.Div: _quotient(operator.truediv),
    ast.FloorDiv: _quotient(operator.floordiv),
    ast.Mod: _quotient(operator.mod),
    ast.Pow: _of_distinct(_power),
    ast.LShift: _of_distinct(_shift),
    ast.RShift: _of_distinct(operator.rshift),
    ast.BitAnd: _of_distinct(operator.and_),
    ast.BitOr: _of_distinct(operator.or_),
    ast.BitXor: _of_distinct(operator.xor),
}
_UNARY: Final[Mapping[type[ast.unaryop], Callable[..., NDArray[Any]]]] = {
    ast.USub: _of_numbers(operator.neg),
    ast.UAdd: _of_numbers(operator.pos),
    ast.Not: lambda column: ~truth(column),
    ast.Invert: _of_distinct(operator.invert),
}
_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


# -- functions ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Function:
    scalar: Callable[..., Any]  #: of Python values
    columns: Callable[..., NDArray[Any]] | None = None  #: of columns; None: rows are evaluated one by one
    is_of_list: bool = False  #: whether it takes one list, whose items are given as columns if it is written out
    total: range = range(0)  #: for which numbers of arguments it cannot fail, if all of them are numbers
    #: "number": its value is one if its arguments are; "integer": the same, and also an integer if they are integers
    gives: Literal["anything", "number", "integer"] = "anything"


def _size_bytes(name: str) -> int:
    return precision(name).size_bytes


_SEVERAL: Final = range(2, 1 << 30)

#: The functions an expression may call. To add one, add a row.
FUNCTIONS: Final[Mapping[str, _Function]] = MappingProxyType(
    {
        "min": _Function(min, _extreme(operator.lt), total=_SEVERAL, gives="integer"),
        "max": _Function(max, _extreme(operator.gt), total=_SEVERAL, gives="integer"),
        "abs": _Function(abs, lambda column: np.abs(_number(column)), total=range(1, 2), gives="integer"),
        "ceildiv": _Function(lambda a, b: -(-a // b), _of_distinct(lambda a, b: -(-a // b)), gives="number"),
        "round": _Function(round, _of_distinct(round), gives="number"),
        "int": _Function(int, _of_distinct(int), gives="number"),
        "float": _Function(float, _of_distinct(float), gives="number"),
        "bool": _Function(bool, lambda column: truth(column), gives="number"),
        "pow": _Function(_power, _of_distinct(_power), gives="number"),
        "sqrt": _Function(math.sqrt, _of_distinct(math.sqrt), gives="number"),
        "log2": _Function(math.log2, _of_distinct(math.log2), gives="number"),
        "sizeof": _Function(_size_bytes, _of_distinct(_size_bytes)),
        "all": _Function(all, lambda *parts: functools.reduce(operator.and_, map(truth, parts)), is_of_list=True),
        "any": _Function(any, lambda *parts: functools.reduce(operator.or_, map(truth, parts)), is_of_list=True),
        "sum": _Function(sum, lambda *parts: functools.reduce(_BINARY[ast.Add], parts, np.asarray(0)), is_of_list=True),
        "len": _Function(len),
        "range": _Function(range),
        "list": _Function(list),
        "tuple": _Function(tuple),
        "set": _Function(set),
        "sorted": _Function(sorted),
    }
)
_GLOBALS: Final[Mapping[str, Any]] = {
    "__builtins__": {},
    _POWER: _power,
    _SHIFT: _shift,
    _REPEAT: _repeat,
    **{name: function.scalar for name, function in FUNCTIONS.items()},
}


# -- what is known before evaluation --------------------------------------------------------------------


class Known(NamedTuple):
    """What holds of a part of an expression for all values of its names."""

    is_number: bool = False  #: its value is a number or truth value, if it has one
    is_integer: bool = False  #: its value is an integer or truth value
    is_nonzero: bool = False  #: a number that is never zero
    is_precision: bool = False  #: the name of a precision
    is_total: bool = True  #: evaluating it cannot fail


UNKNOWN: Final = Known()
_TRUTH: Final = Known(is_number=True, is_integer=True)


def known_of(values: Iterable[object]) -> Known:
    """Return what holds of a name that can have these values."""
    held = tuple(values)
    is_number = all(isinstance(value, int | float) for value in held)
    return Known(
        is_number,
        all(isinstance(value, int) for value in held),
        is_number and all(value != 0 for value in held),
        all(isinstance(value, str) and _is_precision(value) for value in held),
    )


def _is_precision(text: str) -> bool:
    try:
        precision(text)
    except UnknownNameError:
        return False
    return True


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
            return names.get(name, UNKNOWN)
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
        case ast.Call(func=ast.Name(id=name)):
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
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return []
    return [part for child in operands(node) for part in early_parts(child, available, names)]
