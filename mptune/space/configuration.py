"""A configuration: one value for each parameter, immutable and hashable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

__all__ = ["Configuration", "Value"]

#: What a parameter can be set to. A precision or policy is its canonical name, a permutation a tuple.
Value = int | float | str | bool | tuple[int, ...]


class Configuration(Mapping[str, Value]):
    """An immutable mapping from parameter name to value, compared and hashed by its items.

    Args:
        values: the parameters in the order of the search space.
    """

    __slots__ = ("_hash", "_items")

    _items: dict[str, Value]
    _hash: int

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._items = dict(values)
        self._hash = hash(frozenset(self._items.items()))

    def __getitem__(self, name: str) -> Value:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Configuration):
            return self._items == other._items
        return NotImplemented

    def __repr__(self) -> str:
        return f"Configuration({self})"

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self._items.items())

    def __reduce__(self) -> tuple[type[Configuration], tuple[dict[str, Value]]]:
        return Configuration, (self._items,)

    def subset(self, names: tuple[str, ...]) -> tuple[Value, ...]:
        """Return the values of ``names``, in that order."""
        return tuple(self._items[name] for name in names)

    def to_json(self) -> str:
        """Return the canonical JSON text: one object, parameters in order."""
        return json.dumps(self._items, separators=(",", ":"))
