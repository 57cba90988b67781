"""What measures around a launch, by name.

An observer is one module in this folder; its file name is its name. Third parties add theirs by an entry point of
the group ``mptune.observers`` that gives an :class:`~mptune.observers.base.Observer` subclass.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Final, TypeGuard

from mptune.errors import MptuneError, UnknownNameError
from mptune.observers.base import Observer
from mptune.plugins import load_point

__all__ = ["OBSERVERS"]

_ENTRY_POINTS: Final = "mptune.observers"


class _Registry(Mapping[str, type[Observer]]):
    """Observer classes by name; only the one asked for is imported."""

    def __getitem__(self, name: str) -> type[Observer]:
        if name in _bundled():
            module = importlib.import_module(f"{__name__}.{name}")
            return next(found for found in vars(module).values() if _is_observer(found) and found.name == name)
        for point in importlib.metadata.entry_points(group=_ENTRY_POINTS, name=name):
            loaded = load_point(point, "observer")
            if not _is_observer(loaded):
                raise MptuneError(f"entry point {point.value!r} of observer {name!r} is not an Observer subclass")
            return loaded
        raise UnknownNameError("observer", name, self)

    def __contains__(self, name: object) -> bool:
        return any(name == known for known in self)

    def __iter__(self) -> Iterator[str]:
        third_party = {point.name for point in importlib.metadata.entry_points(group=_ENTRY_POINTS)}
        return iter(sorted({*_bundled(), *third_party}))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _bundled() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(__path__) if module.name != "base"]


def _is_observer(candidate: object) -> TypeGuard[type[Observer]]:
    return inspect.isclass(candidate) and issubclass(candidate, Observer) and not inspect.isabstract(candidate)


#: Every observer class by name: the bundled ones and those of installed third parties.
OBSERVERS: Final[Mapping[str, type[Observer]]] = _Registry()
