"""Checks of arguments against their annotations, for public functions and settings."""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import reprlib
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, ParamSpec, TypeVar

from mptune.errors import MptuneError, did_you_mean
from mptune.space.parameters import listed

P = ParamSpec("P")
R = TypeVar("R")

_WORDS: Final[Mapping[Any, str]] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "True or False",
    Path: "a path",
    Callable: "a function",
    types.NoneType: "None",
    Any: "anything",
}
_UNIONS: Final = (types.UnionType, typing.Union)


@dataclass(frozen=True, slots=True)
class Between:
    """The bounds of a number, as an annotation of its type."""

    least: float
    most: float = math.inf

    def __str__(self) -> str:
        least = "more than 0" if self == POSITIVE else f"at least {self.least:g}"
        return least if self.most == math.inf else f"{self.least:g} to {self.most:g}"


POSITIVE: Final = Between(5e-324)
COUNT: Final = Between(1)


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose calls raise MptuneError for arguments that do not fit their annotations."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checking(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            unknown = next((name for name in kwargs if name not in signature.parameters), "")
            called = function.__qualname__.removesuffix(".__init__")
            raise MptuneError(f"{called}: {error}{did_you_mean(unknown, signature.parameters)}") from None
        bound.arguments |= fitted_arguments(function, bound.arguments)
        return function(*bound.args, **bound.kwargs)

    return checking


def fitted_arguments(owner: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of a function, or fields of a dataclass, as values of their annotations' types.

    Raises MptuneError, with name, value and expected values, if one does not fit.
    """
    kinds, found = _kinds_of(owner), {}
    for name, value in given.items():
        try:
            found[name] = _fitted(value, kinds.get(name, Any))
        except (TypeError, ValueError, OverflowError) as error:
            expected = str(error) if isinstance(error, ValueError) else _words(kinds[name])
            shown = " ".join(reprlib.repr(value).split())
            raise MptuneError(f"{name} {shown}: expected {expected}{_other_number(name, value, kinds)}") from None
    return found


_kinds_of = functools.cache(functools.partial(typing.get_type_hints, include_extras=True))


def _other_number(name: str, value: Any, kinds: Mapping[str, Any]) -> str:
    """Suggest the plural or singular of an argument's name if the value fits that: sizes for size={"n": 5}."""
    for other, kind in kinds.items():
        if other != name and (other.startswith(name) or name.startswith(other)):
            with suppress(TypeError, ValueError, OverflowError):
                _fitted(value, kind)
                return did_you_mean(name, [other])
    return ""


def _fitted(value: Any, kind: Any) -> Any:
    """Return a value as one of a type; raise TypeError for another type, and ValueError if it is out of bounds.

    Scalars of NumPy become Python's, whole floats integers, and sequences tuples. A truth value is no number. A value
    that is no sequence is the only entry of one.
    """
    origin, of = typing.get_origin(kind) or kind, typing.get_args(kind)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if origin is Annotated:
        value, bounds = _fitted(value, of[0]), of[1]
        if value is not None and not bounds.least <= value <= bounds.most:
            raise ValueError(bounds)
        return value
    if origin in _UNIONS and type(value) not in of:
        for each in of:
            with suppress(TypeError, ValueError, OverflowError):
                return _fitted(value, each)
    elif origin is Mapping and isinstance(value, Mapping):
        found = {_fitted(name, of[0]): _fitted(entry, of[1]) for name, entry in value.items()}
        return value if all(found[name] is entry for name, entry in value.items()) else found
    elif origin in (tuple, Sequence):
        entries = listed(value)
        kinds = of[:1] * len(entries) if of[1:] in ((), (...,)) else of
        if len(kinds) == len(entries):
            return tuple(map(_fitted, entries, kinds))
    elif origin in (int, float):
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        is_number = is_whole or (origin is float and isinstance(value, numbers.Real))
        if is_number and not isinstance(value, bool):
            return origin(value)
    elif origin in (Any, *_UNIONS) or (callable(value) if origin is Callable else isinstance(value, origin)):
        return value
    raise TypeError


def _words(kind: Any) -> str:
    origin, of = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is Annotated:
        return f"{_words(of[0])}, {of[1]}"
    if origin in _UNIONS:
        return " or ".join(map(_words, of))
    if origin in (tuple, Sequence, Mapping):
        entry = textwrap.shorten(_words(of[origin is Mapping]), 70, placeholder=" ...")
        return f"{{name: {entry}}}" if origin is Mapping else f"[{entry}, ...]"
    return _WORDS.get(origin) or str(origin.__name__)
