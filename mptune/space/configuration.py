"""A configuration: one value for each parameter, immutable and hashable."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Self, TypeVar

Entry = TypeVar("Entry")

#: The value of a parameter. Precisions and policies are canonical names, permutations tuples.
Value = int | float | str | bool | tuple[int, ...]


def is_value(value: Any) -> bool:
    """Whether a value read from JSON is a :data:`Value`; a permutation may be a list."""
    if isinstance(value, (list, tuple)):
        return all(map(is_whole, value))
    return isinstance(value, (bool, str)) or is_number(value)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number within the range of a double."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_whole(value: Any) -> bool:
    """Whether a value is an integer within the range of a double."""
    return isinstance(value, int) and is_number(value)


class NamedValues(Mapping[str, Entry]):
    """An immutable mapping from name to value, in order."""

    __slots__ = ("_items",)

    def __init__(self, values: Mapping[str, Entry]) -> None:
        self._items = dict(values)

    def __getitem__(self, name: str) -> Entry:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self._items.items())

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, Entry]]]:
        return type(self), (self._items,)


class Configuration(NamedValues[Value]):
    """The value of each parameter, in the order of the search space; compared and hashed by its items."""

    __slots__ = ("_hash",)

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._items = dict(values)
        self._hash = hash(frozenset(self._items.items()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Configuration):
            return self._items == other._items
        return NotImplemented

    def subset(self, names: tuple[str, ...]) -> tuple[Value, ...]:
        """Return the values of ``names``, in that order."""
        return tuple(self._items[name] for name in names)

    def is_among(self, values: Mapping[str, Collection[Value]]) -> bool:
        """Whether each named parameter has one of the given values."""
        return all(self._items.get(name) in allowed for name, allowed in values.items())

    def to_json(self) -> str:
        """Return the canonical JSON text: one object, parameters in order."""
        return json.dumps(self._items, separators=(",", ":"))
