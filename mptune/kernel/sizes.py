"""The problem sizes of a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

__all__ = ["Sizes"]


class Sizes(Mapping[str, int]):
    """The problem sizes by name, also readable as attributes (``size.n``)."""

    __slots__ = ("_values",)

    _values: dict[str, int]

    def __init__(self, values: Mapping[str, int]) -> None:
        object.__setattr__(self, "_values", dict(values))

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> int:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"no size {name!r} (sizes: {', '.join(self._values)})") from None

    def __repr__(self) -> str:
        return f"Sizes({self})"

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self._values.items())

    def __reduce__(self) -> tuple[type[Sizes], tuple[dict[str, int]]]:
        return Sizes, (self._values,)
