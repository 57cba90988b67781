"""Expressions, compiled from whitelisted syntax trees to closures: over Python values, and over NumPy columns.

Text is never executed: every kind of node has one closure, and there is no attribute access. Over columns the result is
exactly what Python gives row by row: what NumPy does differently is evaluated row by row. ``and``, ``or``, ``if``
evaluate a part that can fail only for the rows that reach it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ExpressionError, MptuneError, did_you_mean
from mptune.expressions.functions import (
    BINARY,
    COMPARISONS,
    FUNCTIONS,
    SEQUENCES,
    UNARY,
    Column,
    NotVectorisableError,
    charge,
    column_of,
    compare,
    fresh_budget,
    merge,
    truth,
)
from mptune.expressions.syntax import free_names, map_children, one_line, parse, rewrite_names, token, unknown_name

__all__ = ["Expression", "fold"]

_FAILURES: Final = (MptuneError, ArithmeticError, TypeError, ValueError, LookupError, RecursionError)


class Expression:
    """One expression in Python's syntax and with Python's semantics.

    Allowed are numbers, strings, names, arithmetic, comparisons (chained too), ``and``/``or``/``not``/``in``,
    ``a if c else b``, lists, tuples, subscripts, comprehensions and calls of the functions in
    :data:`mptune.expressions.functions.FUNCTIONS`. Powers, shifts and sequences are bounded.

    Attributes:
        names: the names it uses, without functions and loop variables.
        tree: its syntax tree.

    Raises:
        ExpressionError: it does not parse or uses a construct that is not allowed; names the offending token.
    """

    __slots__ = ("_columns", "_is_folded", "_scalar", "names", "text", "tree")

    def __init__(self, text: str) -> None:
        self._set(text, parse(text), is_folded=False)

    @classmethod
    def with_dotted_names(cls, text: str) -> Expression:
        """Return an expression in which a name may have dots, such as ``error.y``.

        Raises:
            ExpressionError: as for the constructor.
        """
        try:
            return cls.from_tree(text, _DottedNames().visit(parse(text)))
        except RecursionError:
            raise _too_deep(text) from None

    @classmethod
    def from_tree(cls, text: str, tree: ast.expr) -> Expression:
        """Return the expression of a tree whose constant parts are evaluated already, shown as ``text``."""
        expression = cls.__new__(cls)
        expression._set(text, tree, is_folded=True)
        return expression

    def _set(self, text: str, tree: ast.expr, is_folded: bool) -> None:
        self.text = text
        self._is_folded = is_folded
        self.tree = tree
        self._columns: _Columns | None = None
        try:
            self._scalar = _compile(tree, one_line(text))
            self.names = free_names(tree)
        except RecursionError:
            raise _too_deep(text) from None

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return (Expression.from_tree, (self.text, self.tree)) if self._is_folded else (Expression, (self.text,))

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return the expression's value.

        Raises:
            ExpressionError: a name is missing, or the operation fails (division by zero, wrong type, overflow);
                the message holds the values it fails at.
        """
        fresh_budget()
        try:
            return self._scalar(values)
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
            if self._columns is None:
                self._columns = _compile_columns(self.tree if self._is_folded else fold(self.tree, {}, self.text))
            with np.errstate(all="ignore"):
                result = self._columns(_Rows(columns, n))
        except (NotVectorisableError, ArithmeticError, TypeError, ValueError):
            return self._row_by_row(columns, n)
        if not isinstance(result, np.ndarray):
            return np.full(n, result)
        return result if result.shape == (n,) and result.flags.writeable else np.broadcast_to(result, n).copy()

    def _row_by_row(self, columns: Mapping[str, NDArray[Any]], n: int) -> NDArray[Any]:
        names = sorted(self.names)
        rows = zip(*(columns[name].tolist() for name in names), strict=True) if names else iter([()] * n)
        return column_of([self.evaluate(dict(zip(names, row, strict=True))) for row in rows])


class _DottedNames(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name):
            return ast.copy_location(ast.Name(f"{node.value.id}.{node.attr}", ast.Load()), node)
        return node


def _too_deep(text: str) -> ExpressionError:
    return ExpressionError(f"the expression is nested too deeply: {text[:60]!r}...")


# -- constant parts -------------------------------------------------------------------------------------


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
        value = _compile(node, text)({})
    except _FAILURES:
        return node
    return ast.copy_location(ast.Constant(value), node) if isinstance(value, int | float | str) else node


# -- over Python values ---------------------------------------------------------------------------------

_Scalar = Callable[[Mapping[str, Any]], Any]

_CONSTRUCTS: Final[Mapping[type[ast.AST], str]] = {
    ast.Lambda: "lambda",
    ast.JoinedStr: "a formatted string",
    ast.NamedExpr: "an assignment",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.Dict: "a dictionary",
    ast.Subscript: "a slice",
    ast.Starred: "unpacking with *",
    ast.BinOp: "this operator",
    ast.DictComp: "a dictionary",
}


def _compile(node: ast.expr, text: str) -> _Scalar:
    """Compile a tree to a closure over a mapping from name to value.

    Raises:
        ExpressionError: the tree holds a construct that is not allowed; names the offending token.
    """
    match node:
        case ast.Constant(value=constant):
            if not isinstance(constant, int | float | str):
                raise _forbidden(node, text, "this kind of constant")
            return lambda _: constant
        case ast.Name(id=name):
            return lambda values: values[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            binary, a, b = BINARY[type(op)].scalar, _compile(left, text), _compile(right, text)
            return lambda values: binary(a(values), b(values))
        case ast.UnaryOp(op=op, operand=operand):
            unary, inner = UNARY[type(op)].scalar, _compile(operand, text)
            return lambda values: unary(inner(values))
        case ast.BoolOp(op=op, values=operands):
            return _boolean(isinstance(op, ast.And), [_compile(operand, text) for operand in operands])
        case ast.Compare():
            return _comparison(node, text)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            condition, yes, no = (_compile(part, text) for part in (test, body, orelse))
            return lambda values: yes(values) if condition(values) else no(values)
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            parts = [_compile(element, text) for element in elements]
            make: Callable[[Iterable[Any]], Any] = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
            return lambda values: make(part(values) for part in parts)
        case ast.Subscript(value=sequence, slice=index) if not isinstance(index, ast.Slice):
            of, at = _compile(sequence, text), _compile(index, text)
            return lambda values: of(values)[at(values)]
        case ast.Call():
            return _call(node, text)
        case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
            return _comprehension(node, text)
        case ast.Attribute(attr=attribute):
            raise _forbidden(node, text, f"attribute access (.{attribute})")
    raise _forbidden(node, text, _CONSTRUCTS.get(type(node), type(node).__name__))


def _forbidden(node: ast.AST, text: str, what: str) -> ExpressionError:
    return ExpressionError(f"{what} is not allowed in an expression: {token(node, text)!r} in {text!r}")


def _boolean(conjunction: bool, parts: list[_Scalar]) -> _Scalar:
    def evaluate(values: Mapping[str, Any]) -> Any:
        result: Any = conjunction
        for part in parts:
            result = part(values)
            if bool(result) is not conjunction:
                return result
        return result

    return evaluate


def _comparison(node: ast.Compare, text: str) -> _Scalar:
    first = _compile(node.left, text)
    for op in node.ops:
        if type(op) not in COMPARISONS:
            raise _forbidden(node, text, "the operator 'is'")
    rest = [
        (COMPARISONS[type(op)], _compile(right, text)) for op, right in zip(node.ops, node.comparators, strict=True)
    ]

    def evaluate(values: Mapping[str, Any]) -> Any:
        left = first(values)
        result: Any = True
        for compare_two, right in rest:
            value = right(values)
            if isinstance(value, SEQUENCES):
                charge(len(value))
            result = compare_two(left, value)
            if not result:
                return result
            left = value
        return result

    return evaluate


def _call(node: ast.Call, text: str) -> _Scalar:
    if not isinstance(node.func, ast.Name):
        raise _forbidden(node, text, "a call of anything but a named function")
    name = node.func.id
    if name not in FUNCTIONS:
        raise ExpressionError(
            f"unknown function {name!r}{did_you_mean(name, FUNCTIONS)} in {text!r} (valid: {', '.join(FUNCTIONS)})"
        )
    if node.keywords:
        raise _forbidden(node, text, "a keyword argument")
    function = FUNCTIONS[name].scalar
    arguments = [_compile(argument, text) for argument in node.args]
    return lambda values: function(*[argument(values) for argument in arguments])


def _comprehension(node: ast.ListComp | ast.GeneratorExp | ast.SetComp, text: str) -> _Scalar:
    element = _compile(node.elt, text)
    loops: list[tuple[str, _Scalar, list[_Scalar]]] = []
    for loop in node.generators:
        if not isinstance(loop.target, ast.Name) or loop.is_async:
            raise _forbidden(loop.target, text, "a loop over more than one name")
        loops.append((loop.target.id, _compile(loop.iter, text), [_compile(test, text) for test in loop.ifs]))

    def run(values: dict[str, Any], depth: int) -> Iterator[Any]:
        if depth == len(loops):
            yield element(values)
            return
        target, items, conditions = loops[depth]
        for item in items(values):
            charge(1)
            inner = {**values, target: item}
            if all(condition(inner) for condition in conditions):
                yield from run(inner, depth + 1)

    make: Callable[[Iterable[Any]], Any] = set if isinstance(node, ast.SetComp) else list
    return lambda values: make(run(dict(values), 0))


# -- over columns ---------------------------------------------------------------------------------------

_MAX_MEMBERS: Final = 1_000


class _Rows:
    """Columns of values, or a selection of their rows."""

    __slots__ = ("_cache", "_columns", "_selected", "n")

    def __init__(self, columns: Mapping[str, NDArray[Any]], n: int, selected: NDArray[np.intp] | None = None) -> None:
        self._columns = columns
        self._selected = selected
        self._cache: dict[str, NDArray[Any]] = {}
        self.n = n

    def column(self, name: str) -> NDArray[Any]:
        """Return a column as bool, int64, float64 or text, (n,)."""
        if name not in self._cache:
            values = self._columns[name]
            match values.dtype.kind:
                case "b" | "U":
                    pass
                case "i" | "u" if values.dtype != np.uint64:
                    values = values.astype(np.int64, copy=False)
                case "f" if values.dtype.itemsize <= 8:
                    values = values.astype(np.float64, copy=False)
                case _:
                    raise NotVectorisableError(name)
            self._cache[name] = values if self._selected is None else values[self._selected]
        return self._cache[name]

    def take(self, mask: NDArray[np.bool_]) -> _Rows:
        """Return only the rows where ``mask`` is true."""
        chosen = np.flatnonzero(mask)
        within = chosen if self._selected is None else self._selected[chosen]
        return _Rows(self._columns, len(chosen), within)


_Columns = Callable[[_Rows], Column]


def _compile_columns(node: ast.expr) -> _Columns:
    """Compile a tree to a closure over rows.

    Raises:
        NotVectorisableError: the tree has a part that only Python values can have (lists, comprehensions, ...).
    """
    match node:
        case ast.Constant(value=constant) if isinstance(constant, int | float | str):
            return lambda _: constant
        case ast.Name(id=name):
            return lambda rows: rows.column(name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            binary, a, b = BINARY[type(op)].columns, _compile_columns(left), _compile_columns(right)
            return lambda rows: binary(a(rows), b(rows))
        case ast.UnaryOp(op=op, operand=operand):
            unary, inner = UNARY[type(op)].columns, _compile_columns(operand)
            return lambda rows: unary(inner(rows))
        case ast.BoolOp(op=op, values=operands):
            return _boolean_columns(isinstance(op, ast.And), operands)
        case ast.Compare(left=left, ops=ops, comparators=comparators) if len(ops) > 1:
            pairs = zip([left, *comparators[:-1]], ops, comparators, strict=True)
            return _boolean_columns(True, [ast.Compare(a, [op], [b]) for a, op, b in pairs])
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[right]):
            return _membership_columns(left, right, isinstance(op, ast.NotIn))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            relation, first, second = type(op), _compile_columns(left), _compile_columns(right)
            return lambda rows: compare(relation, first(rows), second(rows), rows.n)
        case ast.IfExp():
            return _conditional_columns(node)
        case ast.Call(func=ast.Name(id=name), args=[ast.List(elts=elements) | ast.Tuple(elts=elements)]):
            return _call_columns(FUNCTIONS[name].of_list, elements)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _call_columns(FUNCTIONS[name].columns, arguments)
    raise NotVectorisableError(ast.unparse(node))


def _call_columns(function: Callable[..., Column] | None, arguments: list[ast.expr]) -> _Columns:
    if function is None:
        raise NotVectorisableError
    inner = [_compile_columns(argument) for argument in arguments]
    return lambda rows: function(*[argument(rows) for argument in inner])


def _may_fail(node: ast.AST) -> bool:
    """Return whether evaluating a tree can fail in some rows, so that it must not run in those not reached."""
    for part in ast.walk(node):
        match part:
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult()):
                pass
            case ast.BinOp(right=ast.Constant(value=int() | float() as divisor)) if divisor > 0:
                pass
            case ast.Call(args=[ast.List() | ast.Tuple()]):
                pass
            case ast.Call(func=ast.Name(id=name)) if FUNCTIONS[name].total:
                pass
            case ast.BinOp() | ast.Call():
                return True
    return False


def _where_reached(node: ast.expr) -> Callable[[_Rows, NDArray[np.bool_]], Column]:
    """Compile a part that only the rows of a mask reach; its values elsewhere are arbitrary, (n,)."""
    compiled = _compile_columns(node)
    if not _may_fail(node):
        return lambda rows, _: compiled(rows)

    def evaluate(rows: _Rows, mask: NDArray[np.bool_]) -> Column:
        part = compiled(rows.take(mask))
        if not isinstance(part, np.ndarray):
            return part
        spread = np.zeros(rows.n, dtype=part.dtype)
        spread[mask] = part
        return spread

    return evaluate


def _boolean_columns(conjunction: bool, operands: list[ast.expr]) -> _Columns:
    first = _compile_columns(operands[0])
    rest = [_where_reached(operand) for operand in operands[1:]]

    def evaluate(rows: _Rows) -> Column:
        result = first(rows)
        for part in rest:
            undecided = truth(result, rows.n) == conjunction
            if not undecided.any():
                return result
            result = merge(undecided, part(rows, undecided), result)
        return result

    return evaluate


def _conditional_columns(node: ast.IfExp) -> _Columns:
    test = _compile_columns(node.test)
    yes, no = _where_reached(node.body), _where_reached(node.orelse)

    def evaluate(rows: _Rows) -> Column:
        condition = truth(test(rows), rows.n)
        if condition.all():
            return yes(rows, condition)
        if not condition.any():
            return no(rows, ~condition)
        return merge(condition, yes(rows, condition), no(rows, ~condition))

    return evaluate


def _membership_columns(left: ast.expr, right: ast.expr, negated: bool) -> _Columns:
    member = _compile_columns(left)
    elements = [_compile_columns(element) for element in _elements(right)]

    def evaluate(rows: _Rows) -> Column:
        column, found = member(rows), np.zeros(rows.n, dtype=np.bool_)
        for element in elements:
            found |= compare(ast.Eq, column, element(rows), rows.n)
        return ~found if negated else found

    return evaluate


def _elements(node: ast.expr) -> list[ast.expr]:
    """Return what a container holds: the parts of a list, or the items of a constant sequence."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return node.elts
    try:
        container = _compile(node, "")({})
    except _FAILURES as error:
        raise NotVectorisableError(ast.unparse(node)) from error
    if not isinstance(container, list | tuple | set | range) or len(container) > _MAX_MEMBERS:
        raise NotVectorisableError(ast.unparse(node))
    return [ast.Constant(item) for item in container]
