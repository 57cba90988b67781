"""The sizes that are fixed in a rendered source, and C++ expressions of the others."""

from __future__ import annotations

import ast
import builtins
import functools
import operator
import re
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, cast

from mptune.errors import ExpressionError, MptuneError
from mptune.kernel import Kernel, Sizes
from mptune.source.render import render_body, with_parameters
from mptune.space.configuration import Configuration
from mptune.space.constraints import compile_constraint
from mptune.space.expressions import Expression, free_names
from mptune.space.parameters import names_of_precisions


def fixed_sizes(kernel: Kernel, configuration: Configuration, sizes: Sizes) -> frozenset[str]:
    """Return the sizes that a configuration's source or block depends on; the others may differ at a launch.

    A size in a constraint may differ as long as the constraint holds (:func:`conditions`).
    """
    fixed = (fixed_by_launch(kernel) | kernel.forms.keys()) & set(sizes)
    return frozenset(fixed) | _used_by_template(kernel, configuration, sizes)


def fixed_by_launch(kernel: Kernel) -> set[str]:
    """Return the names that the block, its shared memory and constant arrays depend on."""
    if kernel.launch_functions:
        return set(kernel.sizes["default"])  # what a function depends on is not known
    expressions = [*kernel.expressions("block"), *kernel.expressions("shared_bytes")]
    for argument in kernel.arguments:
        if argument.is_constant:
            expressions += argument.shape
    return set().union(*(Expression(text).names for text in expressions))


def free_sizes(kernel: Kernel, configuration: Configuration, sizes: Sizes) -> frozenset[str]:
    """Return the sizes that may differ at a launch: no source depends on them, and C++ can express all that does."""
    return said_in_cpp(kernel, configuration, sizes, set(sizes) - fixed_sizes(kernel, configuration, sizes))


def said_in_cpp(kernel: Kernel, configuration: Configuration, sizes: Sizes, free: Set[str]) -> frozenset[str]:
    """Return those of some sizes whose grid, shapes and constraints can be expressed in C++."""
    said = set(free)
    for text in (*kernel.expressions("grid"), *(axis for argument in kernel.arguments for axis in argument.shape)):
        try:
            formula(str(text), {**configuration, **sizes}, dict.fromkeys(said, ""))
        except NotTranslatableError:
            said -= Expression(str(text)).names
    return frozenset(said - conditions(kernel, configuration, sizes, dict.fromkeys(said, ""))[1])


def _used_by_template(kernel: Kernel, configuration: Configuration, sizes: Sizes) -> Set[str]:
    """Return the sizes whose values the template uses for this configuration."""
    path = _Path()
    try:
        body = render_body(kernel, configuration, cast("Any", _tracked(sizes, sizes, path)))
        used = path.pinned | path.compared | {name for name in sizes if re.search(rf"\b{_parameter(name)}\b", body)}
        # A template may tell a tracked size from an integer without using its value.
        others: Any = {**sizes, **_tracked(sizes.keys() - used, sizes, _Path())}
        same = render_body(kernel, configuration, others) == render_body(kernel, configuration, sizes)
    except Exception:
        return set(sizes)  # the template needs plain integers
    return used if same else set(sizes)


# -- sizes given at a launch ---------------------------------------------------------------------

_LARGEST_INT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Opened:
    """A source whose function takes sizes as further parameters of type ``int``."""

    names: tuple[str, ...]  #: names of these sizes, in the order of the parameters; may be empty
    body: str  #: the instantiated template
    #: expressions that must hold at the sizes: comparisons of the template, and that no number overflows
    conditions: tuple[str, ...]
    #: every condition that the template evaluated. A size for which all hold renders to the same source.
    asked: tuple[str, ...]


def opened(kernel: Kernel, configuration: Configuration, sizes: Sizes) -> Opened | None:
    """Return the source that takes the ``runtime_sizes`` of a kernel as parameters; None if there are none.

    A size that the template needs as a number is fixed in the source. Comparisons of sizes in the template become
    conditions on the sizes.
    """
    names = set(kernel.runtime_sizes) - fixed_by_launch(kernel)
    asked: dict[str, None] = {}
    while kernel.runtime_sizes:
        path = _Path()
        given: Any = _tracked(names, sizes, path)
        for each in given.values():
            each.keep_small()
        try:
            body = render_body(kernel, configuration, {**sizes, **given})
        except MptuneError:
            return None  # the template needs plain integers
        asked |= path.conditions
        if not path.pinned:
            ordered = tuple(name for name in sizes if name in names)
            parameters = [f"int {_parameter(name)}" for name in ordered]
            whole = with_parameters(kernel, body, parameters) if parameters else body
            return Opened(ordered, whole, tuple(path.conditions), tuple(asked))
        names -= path.pinned
    return None


def _parameter(name: str) -> str:
    return f"launched_{name}"


@dataclass(slots=True)
class _Path:
    """The sizes that a template used as numbers, the sizes that it compared, and its conditions in order."""

    pinned: set[str] = field(default_factory=set)
    compared: set[str] = field(default_factory=set)
    conditions: dict[str, None] = field(default_factory=dict)


def _tracked(names: Collection[str], sizes: Mapping[str, int], path: _Path) -> dict[str, _Size]:
    return {
        name: _Size(name, _parameter(name), value, path, frozenset({name}))
        for name, value in sizes.items()
        if name in names
    }


class _Size:
    """A size, or an expression of sizes, that records its uses in a template.

    It prints as C++. It is no subclass of ``int``, whose value Python would use without a call.
    """

    __slots__ = ("_cpp", "_names", "_path", "_text", "_value")

    def __init__(self, text: str, cpp: str, value: int, path: _Path, names: frozenset[str]) -> None:
        self._text = text
        self._cpp = cpp
        self._value = value
        self._path = path
        self._names = names

    def look(self) -> int:
        self._path.pinned |= self._names
        return self._value

    def keep_small(self) -> None:
        """Require that the value fits an ``int`` of C++ at all sizes."""
        self._path.conditions[f"abs({self._text}) <= {_LARGEST_INT}"] = None

    def __str__(self) -> str:
        return self._cpp

    def __format__(self, spec: str) -> str:
        return format(self.look(), spec) if spec else str(self)

    def __neg__(self) -> Any:
        return self._made(f"(-{self._text})", f"(-{self._cpp})", -self._value, self)

    def __bool__(self) -> bool:
        return self.compared("!=", 0)

    def computed(self, sign: str, left: Any, right: Any) -> Any:
        """Return a sum, difference or product with an integer."""
        texts, codes, values = zip(*map(_parts, (left, right)), strict=True)
        text, cpp = (f"({one} {sign} {other})" for one, other in (texts, codes))
        return self._made(text, cpp, _PLAIN[sign](*values), left, right)

    def divided(self, sign: str, by: int) -> Any:
        """Return the quotient or remainder by a positive number, rounded down as in Python."""
        down = f"({self._cpp} % {by} < 0)"
        cpp = f"({self._cpp} / {by} - {down})" if sign == "//" else f"({self._cpp} % {by} + {down} * {by})"
        return self._made(f"({self._text} {sign} {by})", cpp, _PLAIN[sign](self._value, by), self)

    def compared(self, sign: str, other: Any) -> bool:
        """Return the result of a comparison at the rendered sizes, and record it as a condition."""
        text, _, value = _parts(other)
        holds = bool(_PLAIN[sign](self._value, value))
        condition = f"{self._text} {sign} {text}"
        self._path.compared |= self._names | (other._names if isinstance(other, _Size) else frozenset())
        self._path.conditions[condition if holds else f"not ({condition})"] = None
        return holds

    def _made(self, text: str, cpp: str, value: int, *of: Any) -> _Size:
        names = frozenset[str]().union(*(each._names for each in of if isinstance(each, _Size)))
        found = _Size(text, cpp, value, self._path, names)
        found.keep_small()
        return found


def _parts(value: Any) -> tuple[str, str, int]:
    return (value._text, value._cpp, value._value) if isinstance(value, _Size) else (str(value), str(value), value)


#: Operators that C++ has as well, by their names in Python.
_SIGNS: Final = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "pow": "**"}
_COMPARISONS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_PLAIN: Final = {sign: getattr(operator, name) for name, sign in (_SIGNS | _COMPARISONS).items()}


def _is_integer(value: Any) -> bool:
    return isinstance(value, _Size) or (isinstance(value, int) and abs(value) <= _LARGEST_INT)


def _looked_at(value: Any) -> Any:
    return value.look() if isinstance(value, _Size) else value


def _arithmetic(sign: str, function: Callable[[Any, Any], Any], *, swapped: bool) -> Callable[[_Size, Any], Any]:
    def method(size: _Size, other: Any) -> Any:
        left, right = (other, size) if swapped else (size, other)
        if sign in ("+", "-", "*") and _is_integer(other):
            return size.computed(sign, left, right)
        if not swapped and type(other) is int:
            if sign in ("//", "%") and 0 < other <= _LARGEST_INT:
                return size.divided(sign, other)
            if sign == "**" and 1 <= other <= _LARGEST_POWER:
                return functools.reduce(operator.mul, [size] * other)
        return function(*map(_looked_at, (left, right)))

    return method


def _comparing(sign: str) -> Callable[[_Size, Any], bool]:
    def method(size: _Size, other: Any) -> bool:
        if _is_integer(other):
            return size.compared(sign, other)
        return bool(_PLAIN[sign](size.look(), _looked_at(other)))

    return method


for _name in (*_SIGNS, "truediv", "lshift", "rshift", "and", "or", "xor"):
    for _prefix in ("", "r"):
        _method = _arithmetic(_SIGNS.get(_name, ""), getattr(operator, f"__{_name}__"), swapped=bool(_prefix))
        setattr(_Size, f"__{_prefix}{_name}__", _method)
for _name, _sign in _COMPARISONS.items():
    setattr(_Size, f"__{_name}__", _comparing(_sign))
for _kind in ("abs", "invert", "pos", "index", "int", "float", "hash", "round", "repr"):
    _of = getattr(builtins, _kind, None) or getattr(operator, _kind)
    setattr(_Size, f"__{_kind}__", lambda size, of=_of: of(size.look()))


# -- integer expressions as C++ ------------------------------------------------------------------

_OPERATORS: Final[dict[type[ast.AST], str]] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_FUNCTIONS: Final[dict[type[ast.AST], str]] = {ast.FloorDiv: "detail::floor_div", ast.Mod: "detail::floor_mod"}
_COMPARED: Final = dict(zip((ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq), _COMPARISONS.values(), strict=True))
_LARGEST_POWER: Final = 4


class NotTranslatableError(MptuneError):
    """An expression that integer C++ cannot express."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A constraint on the sizes of a launch: its text, and the same in C++."""

    text: str
    cpp: str


def conditions(
    kernel: Kernel, configuration: Configuration, sizes: Sizes, free: Mapping[str, str]
) -> tuple[list[Condition], frozenset[str]]:
    """Return the constraints of a kernel on the free sizes, and the free sizes whose constraints C++ cannot express.

    Args:
        kernel: the kernel.
        configuration: has the values of all parameters.
        sizes: the sizes of the run.
        free: the sizes that may differ, with their names in C++.
    """
    found: list[Condition] = []
    uncovered: set[str] = set()
    types = names_of_precisions(kernel.parameters)
    for given in kernel.constraints:
        constraint = compile_constraint(given, (*kernel.parameter_names, *sizes), precisions=types)
        names = constraint.names & free.keys()
        try:
            if constraint.functions:
                raise NotTranslatableError(f"{constraint.text} is a function of Python")
            cpp = truth(constraint.tree, {**configuration, **sizes}, free) if names else ""
            if cpp not in ("", "1LL"):
                found.append(Condition(constraint.text, cpp))
        except (NotTranslatableError, ExpressionError):
            uncovered |= names
    return found, frozenset(uncovered)


def formula(text: str, values: Mapping[str, Any], free: Mapping[str, str]) -> str:
    """Return an integer expression as C++ of type ``long long``.

    Names in ``free`` stand for C++, other names for their ``values``. Parts without free names are evaluated. Calls are
    to functions of the header's namespace ``detail``.
    """
    return _translate(Expression(text).tree, values, free)


def _translate(node: ast.expr, values: Mapping[str, Any], free: Mapping[str, str]) -> str:
    def parts(*nodes: ast.expr) -> list[str]:
        return [_translate(each, values, free) for each in nodes]

    if free_names(node).isdisjoint(free):
        value = Expression(ast.unparse(node)).evaluate(values)
        if not isinstance(value, int) or abs(value) >= 2**63:
            raise NotTranslatableError(f"{ast.unparse(node)} is {value!r}, no integer of C++")
        return f"{int(value)}LL"
    match node:
        case ast.Name():
            return free[node.id]
        case ast.UnaryOp(ast.USub(), operand):
            return f"(-{parts(operand)[0]})"
        case ast.UnaryOp(ast.Not(), operand):
            return f"(!{truth(operand, values, free)})"
        case ast.IfExp(test, then, other):
            return f"({truth(test, values, free)} ? {' : '.join(parts(then, other))})"
        case ast.BinOp(left, ast.Pow(), ast.Constant(int(exponent))) if 1 <= exponent <= _LARGEST_POWER:
            return f"({' * '.join(parts(left) * exponent)})"
        case ast.BinOp(left, sign, right) if type(sign) in _OPERATORS:
            return f"({f' {_OPERATORS[type(sign)]} '.join(parts(left, right))})"
        case ast.BinOp(left, sign, right) if type(sign) in _FUNCTIONS:
            return f"{_FUNCTIONS[type(sign)]}({', '.join(parts(left, right))})"
        case ast.Compare(left, [ast.In() | ast.NotIn() as sign], [ast.Tuple() | ast.List() | ast.Set() as members]):
            (one,) = parts(left)
            found = " || ".join(f"{one} == {member}" for member in parts(*members.elts))
            if found:
                return f"({found})" if isinstance(sign, ast.In) else f"(!({found}))"
        case ast.Compare(left, signs, others) if all(type(sign) in _COMPARED for sign in signs):
            pairs = zip(pairwise(parts(left, *others)), signs, strict=True)
            compared = [f"({one} {_COMPARED[type(sign)]} {other})" for (one, other), sign in pairs]
            return compared[0] if len(compared) == 1 else f"({' && '.join(compared)})"
        case ast.Call(ast.Name("ceildiv"), [_, _] as arguments):
            return f"detail::ceil_div({', '.join(parts(*arguments))})"
        case ast.Call(ast.Name("abs"), [argument]):
            return f"detail::magnitude({parts(argument)[0]})"
        case ast.Call(ast.Name("min" | "max" as name), [_, _, *_] as arguments):
            function = "smaller" if name == "min" else "larger"
            return functools.reduce(lambda one, other: f"detail::{function}({one}, {other})", parts(*arguments))
    raise NotTranslatableError(f"{ast.unparse(node)} is not an integer formula of C++")


def truth(node: ast.expr, values: Mapping[str, Any], free: Mapping[str, str]) -> str:
    """Return the truth of an expression as C++; parts without free names are evaluated."""
    if isinstance(node, ast.BoolOp) and not free_names(node).isdisjoint(free):
        sign, decides = (" && ", False) if isinstance(node.op, ast.And) else (" || ", True)
        parts = []
        for part in node.values:
            if not free_names(part).isdisjoint(free):
                parts.append(truth(part, values, free))
            elif bool(Expression(ast.unparse(part)).evaluate(values)) == decides:
                return f"{int(decides)}LL"
        return parts[0] if len(parts) == 1 else f"({sign.join(parts)})"
    return _translate(node, values, free)
