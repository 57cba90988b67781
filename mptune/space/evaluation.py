"""Whitelisted syntax trees compiled to closures over Python values, with Python's own semantics.

Nothing here executes text: every node type has one closure, operations that could exhaust time or memory
(powers, shifts, ranges, repetition, comprehensions) are bounded, and there is no attribute access.
"""

from __future__ import annotations

import ast
import math
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from mptune.errors import ExpressionError, did_you_mean
from mptune.precision import precision

__all__ = ["FUNCTIONS", "MAX_BITS", "MAX_ITEMS", "Scalar", "ceildiv", "compile_scalar", "fresh_budget", "token"]

#: The largest integer an expression may produce, in bits, and the most sequence items one evaluation may touch.
MAX_BITS: Final = 4096
MAX_ITEMS: Final = 1_000_000
_MAX_DIGITS: Final = 1000

Scalar = Callable[[Mapping[str, Any]], Any]


class _Budget(threading.local):
    left: int = MAX_ITEMS


_BUDGET: Final = _Budget()


def fresh_budget() -> None:
    """Allow the evaluation that starts now to touch ``MAX_ITEMS`` items."""
    _BUDGET.left = MAX_ITEMS


def _charge(items: int) -> None:
    _BUDGET.left -= items
    if _BUDGET.left < 0:
        raise OverflowError(f"it needs sequences of more than {MAX_ITEMS} items")


def ceildiv(a: Any, b: Any) -> Any:
    """Return a / b rounded up."""
    return -(-a // b)


def _numbers(symbol: str, *operands: Any) -> None:
    for operand in operands:
        if not isinstance(operand, int | float):
            raise TypeError(f"{symbol} needs numbers, not {operand!r}")


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise OverflowError(f"a number of more than {MAX_BITS} bits")
    return value


def _power(base: Any, exponent: Any) -> Any:
    _numbers("**", base, exponent)
    integers = isinstance(base, int) and isinstance(exponent, int)
    if integers and abs(base) > 1 and (abs(base).bit_length() - 1) * exponent > MAX_BITS:
        raise OverflowError(f"{base}**{exponent} has more than {MAX_BITS} bits")
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError(f"{base}**{exponent} is not real")
    return _bounded(result)


def _shift_left(value: Any, by: Any) -> Any:
    _numbers("<<", value, by)
    if by > MAX_BITS:
        raise OverflowError(f"a shift by {by} is more than {MAX_BITS} bits")
    return _bounded(value << by)


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, list | tuple | str) and isinstance(b, list | tuple | str):
        _charge(len(a) + len(b))
        return a + b  # type: ignore[operator]  # list + str is the TypeError the user should see
    _numbers("+", a, b)
    return _bounded(a + b)


def _multiply(a: Any, b: Any) -> Any:
    for sequence, count in ((a, b), (b, a)):
        if isinstance(sequence, list | tuple) and isinstance(count, int):
            _charge(len(sequence) * max(count, 0))
            return sequence * count
    _numbers("*", a, b)
    return _bounded(a * b)


def _checked(symbol: str, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(a: Any, b: Any) -> Any:
        _numbers(symbol, a, b)
        return function(a, b)

    return apply


_BINARY: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: _add,
    ast.Sub: _checked("-", operator.sub),
    ast.Mult: _multiply,
    ast.Div: _checked("/", operator.truediv),
    ast.FloorDiv: _checked("//", operator.floordiv),
    ast.Mod: _checked("%", operator.mod),
    ast.Pow: _power,
    ast.LShift: _shift_left,
    ast.RShift: _checked(">>", operator.rshift),
    ast.BitAnd: _checked("&", operator.and_),
    ast.BitOr: _checked("|", operator.or_),
    ast.BitXor: _checked("^", operator.xor),
}

_SEQUENCES: Final = (list, tuple, set, str)

_UNARY: Final[Mapping[type[ast.unaryop], Callable[[Any], Any]]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}


def _comparing(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compare(a: Any, b: Any) -> Any:
        if isinstance(b, _SEQUENCES):
            _charge(len(b))
        return function(a, b)

    return compare


_COMPARE: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: _comparing(operator.eq),
    ast.NotEq: _comparing(operator.ne),
    ast.Lt: _comparing(operator.lt),
    ast.LtE: _comparing(operator.le),
    ast.Gt: _comparing(operator.gt),
    ast.GtE: _comparing(operator.ge),
    ast.In: _comparing(lambda a, b: a in b),
    ast.NotIn: _comparing(lambda a, b: a not in b),
}


def _over_items(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*arguments: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, (*_SEQUENCES, range)):
                _charge(len(argument))
        return function(*arguments)

    return apply


def _round(value: Any, digits: int | None = None) -> Any:
    if digits is not None and abs(digits) > _MAX_DIGITS:
        raise OverflowError(f"rounding to {digits} digits")
    return round(value, digits)


def _sum(items: Iterable[Any]) -> Any:
    return _bounded(sum(items))


#: The functions an expression may call.
FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "min": _over_items(min),
        "max": _over_items(max),
        "abs": abs,
        "ceildiv": ceildiv,
        "round": _round,
        "int": int,
        "float": float,
        "bool": bool,
        "pow": _power,
        "sqrt": math.sqrt,
        "log2": math.log2,
        "sizeof": lambda name: precision(name).size_bytes,
        "all": _over_items(all),
        "any": _over_items(any),
        "sum": _over_items(_sum),
        "len": len,
        "range": range,
        "list": _over_items(list),
        "tuple": _over_items(tuple),
        "set": _over_items(set),
        "sorted": _over_items(sorted),
    }
)


def token(node: ast.AST, text: str) -> str:
    """Return the piece of ``text`` a node was parsed from, shortened when it is long."""
    piece = ast.get_source_segment(text, node) or ast.unparse(node)
    return piece if len(piece) <= 60 else piece[:57] + "..."


def compile_scalar(node: ast.expr, text: str) -> Scalar:
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
            return _name(name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _binary(_BINARY[type(op)], compile_scalar(left, text), compile_scalar(right, text))
        case ast.UnaryOp(op=op, operand=operand):
            function, inner = _UNARY[type(op)], compile_scalar(operand, text)
            return lambda values: function(inner(values))
        case ast.BoolOp(op=op, values=operands):
            return _boolean(isinstance(op, ast.And), [compile_scalar(operand, text) for operand in operands])
        case ast.Compare():
            return _comparison(node, text)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            condition, yes, no = (compile_scalar(part, text) for part in (test, body, orelse))
            return lambda values: yes(values) if condition(values) else no(values)
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            parts = [compile_scalar(element, text) for element in elements]
            make: Callable[[Iterable[Any]], Any] = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
            return lambda values: make(part(values) for part in parts)
        case ast.Subscript(value=sequence, slice=index) if not isinstance(index, ast.Slice):
            of, at = compile_scalar(sequence, text), compile_scalar(index, text)
            return lambda values: of(values)[at(values)]
        case ast.Call():
            return _call(node, text)
        case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
            return _comprehension(node, text)
        case ast.Attribute(attr=attribute):
            raise _forbidden(node, text, f"attribute access (.{attribute})")
    raise _forbidden(node, text, _CONSTRUCTS.get(type(node), type(node).__name__))


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


def _forbidden(node: ast.AST, text: str, what: str) -> ExpressionError:
    return ExpressionError(f"{what} is not allowed in an expression: {token(node, text)!r} in {text!r}")


def _name(name: str) -> Scalar:
    def look_up(values: Mapping[str, Any]) -> Any:
        return values[name]

    return look_up


def _binary(function: Callable[[Any, Any], Any], left: Scalar, right: Scalar) -> Scalar:
    return lambda values: function(left(values), right(values))


def _boolean(conjunction: bool, parts: list[Scalar]) -> Scalar:
    def evaluate(values: Mapping[str, Any]) -> Any:
        result: Any = conjunction
        for part in parts:
            result = part(values)
            if bool(result) is not conjunction:
                return result
        return result

    return evaluate


def _comparison(node: ast.Compare, text: str) -> Scalar:
    first = compile_scalar(node.left, text)
    for op in node.ops:
        if type(op) not in _COMPARE:
            raise _forbidden(node, text, "the operator 'is'")
    rest = [
        (_COMPARE[type(op)], compile_scalar(right, text)) for op, right in zip(node.ops, node.comparators, strict=True)
    ]

    def evaluate(values: Mapping[str, Any]) -> Any:
        left = first(values)
        result: Any = True
        for compare, right in rest:
            value = right(values)
            result = compare(left, value)
            if not result:
                return result
            left = value
        return result

    return evaluate


def _call(node: ast.Call, text: str) -> Scalar:
    if not isinstance(node.func, ast.Name):
        raise _forbidden(node, text, "a call of anything but a named function")
    name = node.func.id
    if name not in FUNCTIONS:
        raise ExpressionError(
            f"unknown function {name!r}{did_you_mean(name, FUNCTIONS)} in {text!r} (valid: {', '.join(FUNCTIONS)})"
        )
    if node.keywords:
        raise _forbidden(node, text, "a keyword argument")
    function = FUNCTIONS[name]
    arguments = [compile_scalar(argument, text) for argument in node.args]
    return lambda values: function(*[argument(values) for argument in arguments])


def _comprehension(node: ast.ListComp | ast.GeneratorExp | ast.SetComp, text: str) -> Scalar:
    element = compile_scalar(node.elt, text)
    loops: list[tuple[str, Scalar, list[Scalar]]] = []
    for loop in node.generators:
        if not isinstance(loop.target, ast.Name) or loop.is_async:
            raise _forbidden(loop.target, text, "a loop over more than one name")
        loops.append((loop.target.id, compile_scalar(loop.iter, text), [compile_scalar(i, text) for i in loop.ifs]))

    def run(values: dict[str, Any], depth: int) -> Iterator[Any]:
        if depth == len(loops):
            yield element(values)
            return
        target, items, conditions = loops[depth]
        for item in items(values):
            _charge(1)
            inner = {**values, target: item}
            if all(condition(inner) for condition in conditions):
                yield from run(inner, depth + 1)

    make: Callable[[Iterable[Any]], Any] = set if isinstance(node, ast.SetComp) else list
    return lambda values: make(run(dict(values), 0))
