"""Frozen dataclasses as JSON and back, checked against the types of their fields."""

from __future__ import annotations

import functools
import json
import reprlib
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from mptune.errors import MptuneError, RunFileError
from mptune.space.configuration import Configuration, Value, is_number, is_value, is_whole

__all__ = ["is_amount", "parse_json", "plain", "read_fields", "types_of"]


def is_amount(value: Any) -> bool:
    """Whether this is a number whose sums and products with others of its kind a double can hold."""
    return is_number(value) and abs(value) <= 1e100


def parse_json(text: str) -> Any:
    """Parse JSON; raises ValueError also for text that UTF-8 cannot hold (a lone surrogate)."""
    value = json.loads(text)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


#: The types of single values: what checks a value, and what a message calls one and several of them.
_SINGLE: Final[Mapping[Any, tuple[Callable[[Any], bool], str, str]]] = {
    str: (lambda value: isinstance(value, str), "a text", "texts"),
    bool: (lambda value: isinstance(value, bool), "true or false", "truth values"),
    int: (is_whole, "a whole number a double can hold", "whole numbers a double can hold"),
    float: (is_amount, "a number up to 1e100", "numbers up to 1e100"),
    Value: (is_value, "a value", "values"),
    Any: (lambda _: True, "anything", "anything"),
}


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: objects for dataclasses and mappings, lists for tuples."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value) if field.init}
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, list | tuple) else value


@functools.cache
def types_of(record: Any) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields by name."""
    hints = typing.get_type_hints(record)
    return {field.name: hints[field.name] for field in fields(record) if field.init}


def read_fields(kinds: Mapping[str, Any], document: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the fields of a JSON object; one that is missing or null is left out, and so has its usual value.

    Raises:
        RunFileError: a field has another type.
    """
    found = {}
    for name, kind in kinds.items():
        value = document.get(name)
        if value is not None:
            try:
                found[name] = _read(kind, value)
            except (ValueError, MptuneError) as error:
                raise RunFileError(
                    f"{where}: its field {name!r} should be {_called(kind)}, and is {reprlib.repr(value)}"
                ) from error
    return found


def _read(kind: Any, value: Any) -> Any:
    """Return a JSON value as one of a type; raises ValueError, or what a dataclass raises, where it is none."""
    if kind in _SINGLE:
        if not _SINGLE[kind][0](value):
            raise ValueError
        return tuple(value) if kind == Value and isinstance(value, list) else value
    if kind is Configuration:
        return Configuration(_read(Mapping[str, Value], value))
    if isinstance(kind, type) and is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise ValueError
        return kind(**{name: _read(each, value.get(name)) for name, each in types_of(kind).items()})
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        for each in arguments:
            try:
                return None if each is types.NoneType and value is None else _read(each, value)
            except (ValueError, MptuneError):
                pass
    elif typing.get_origin(kind) is tuple and isinstance(value, list | tuple):
        return tuple(_read(arguments[0], entry) for entry in value)
    elif typing.get_origin(kind) is Mapping and isinstance(value, Mapping):
        return {name: _read(arguments[1], entry) for name, entry in value.items()}
    raise ValueError


def _called(kind: Any, *, several: bool = False) -> str:
    """Return what a message calls a type."""
    if kind in _SINGLE:
        _, one, many = _SINGLE[kind]
        return many if several else one
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return " or ".join(_called(each, several=several) for each in arguments if each is not types.NoneType)
    if typing.get_origin(kind) is tuple:
        return f"{'lists' if several else 'a list'} of {_called(arguments[0], several=True)}"
    if typing.get_origin(kind) is Mapping:
        return f"{_called(arguments[1], several=True)} by name"
    return f"{'objects' if several else 'an object'} with {', '.join(types_of(kind))}"
