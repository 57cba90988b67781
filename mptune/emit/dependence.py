"""Which sizes are written into a rendered source, so that it computes for no others."""

from __future__ import annotations

import operator
from collections.abc import Callable, Set
from typing import Any, Final

from mptune.expressions import Expression
from mptune.kernel import Kernel, Sizes
from mptune.rendering import render_body
from mptune.space.configuration import Configuration
from mptune.space.constraints import compile_constraint

__all__ = ["fixed_sizes"]


def fixed_sizes(kernel: Kernel, configuration: Configuration, sizes: Sizes) -> frozenset[str]:
    """Return the sizes a configuration's source, block or validity depends on; the others may differ at a launch.

    Raises:
        TemplateError: the template cannot be rendered.
        ConstraintError: a constraint cannot be compiled.
    """
    expressions = [str(axis) for axis in (*kernel.block, kernel.shared_bytes)]
    for argument in kernel.arguments:
        if argument.is_constant:
            expressions += argument.shape
    names: set[str] = set().union(*(Expression(text).names for text in expressions))
    for constraint in kernel.constraints:
        names |= compile_constraint(constraint, (*kernel.parameter_names, *sizes)).names
    return frozenset(names & set(sizes)) | _used_by_template(kernel, configuration, sizes)


def _used_by_template(kernel: Kernel, configuration: Configuration, sizes: Sizes) -> Set[str]:
    """Return the sizes whose values the template looks at on the way to this configuration's source."""
    seen: set[str] = set()
    watched: Any = {name: _Watched(name, value, seen) for name, value in sizes.items()}
    plain = render_body(kernel, configuration, sizes)
    try:
        same = render_body(kernel, configuration, watched) == plain
    except Exception:
        # What a template does with an integer and not with a watched one is its own affair: it looks, that is all.
        same = False
    return seen if same else set(sizes)


class _Watched:
    """A size that notes when anything depends on its value. No ``int``, whose value Python takes without asking."""

    __slots__ = ("_name", "_seen", "_value")

    def __init__(self, name: str, value: int, seen: set[str]) -> None:
        self._name = name
        self._value = value
        self._seen = seen

    def look(self) -> int:
        self._seen.add(self._name)
        return self._value


_UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    **{f"__{name}__": getattr(operator, name) for name in ("neg", "pos", "abs", "invert", "index")},
    **{f"__{kind.__name__}__": kind for kind in (int, float, bool, str, repr, hash, round)},
}
_BINARY: Final = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and", "or", "xor")
_COMPARISONS: Final = ("lt", "le", "eq", "ne", "gt", "ge")


def _value_of(other: Any) -> Any:
    return other.look() if isinstance(other, _Watched) else other


def _unary(function: Callable[[Any], Any]) -> Callable[[_Watched], Any]:
    return lambda watched: function(watched.look())


def _forward(function: Callable[[Any, Any], Any]) -> Callable[[_Watched, Any], Any]:
    return lambda watched, other: function(watched.look(), _value_of(other))


def _reverse(function: Callable[[Any, Any], Any]) -> Callable[[_Watched, Any], Any]:
    return lambda watched, other: function(_value_of(other), watched.look())


for _name, _unary_function in _UNARY.items():
    setattr(_Watched, _name, _unary(_unary_function))
for _name in (*_BINARY, *_COMPARISONS):
    _function = getattr(operator, f"__{_name}__")
    setattr(_Watched, f"__{_name}__", _forward(_function))
    if _name in _BINARY:
        setattr(_Watched, f"__r{_name}__", _reverse(_function))
setattr(_Watched, "__format__", lambda watched, spec: format(watched.look(), spec))  # noqa: B010 - as the others
