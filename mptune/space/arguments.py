"""Checks of arguments against their annotations, for public functions and settings."""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import re
import reprlib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, ParamSpec, TypeVar

from mptune.errors import MptuneError, did_you_mean
from mptune.space.parameters import listed

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Between:
    """The bounds of a number, as an annotation of its type."""

    least: float
    most: float = math.inf

    def __str__(self) -> str:
        if self.least != POSITIVE.least:
            return f"at least {self.least:g}" if self.most == math.inf else f"{self.least:g} to {self.most:g}"
        return "more than 0" if self.most == math.inf else f"more than 0, at most {self.most:g}"


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
        kind = kinds.get(name, Any)
        try:
            found[name] = _fitted(value, kind)
        except ValueError as error:
            bare = typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
            expected = str(error) or re.sub(r"\w+\.(?=\w)", "", inspect.formatannotation(bare))
            # The plural or singular of a name may take the value: sizes for size={"n": 5}.
            near = [each for each in kinds if each != name and (each.startswith(name) or name.startswith(each))]
            hint = did_you_mean(name, [each for each in near if _fits(value, kinds[each])])
            raise MptuneError(f"{name} {' '.join(reprlib.repr(value).split())}: expected {expected}{hint}") from None
    return found


_kinds_of = functools.cache(functools.partial(typing.get_type_hints, include_extras=True))


def _fits(value: Any, kind: Any) -> bool:
    with suppress(ValueError):
        _fitted(value, kind)
        return True
    return False


def _fitted(value: Any, kind: Any) -> Any:
    """Return a value as one of a type; raise ValueError, with the bounds if it is out of bounds.

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
    if origin in (types.UnionType, typing.Union):
        # An exact type first: 2.0 is a float if there is a choice.
        for each in sorted(of, key=lambda each: each is not type(value)):
            with suppress(ValueError):
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
            with suppress(OverflowError):
                return origin(value)
    elif origin is Any or (callable(value) if origin is Callable else isinstance(value, origin)):
        return value
    raise ValueError
