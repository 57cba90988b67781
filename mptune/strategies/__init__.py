"""Search algorithms behind ask and tell, by name.

A strategy is one module in this folder: its file name, underscores as hyphens, is its name. Third
parties add theirs by an entry point of the group ``mptune.strategies`` that gives a
:class:`~mptune.strategies.base.Strategy` subclass.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mptune.errors import MptuneError, UnknownNameError
from mptune.objective import Objective
from mptune.space.search_space import SearchSpace
from mptune.strategies.base import Strategy

__all__ = ["STRATEGIES", "make"]

_ENTRY_POINTS: Final = "mptune.strategies"


class _Registry(Mapping[str, type[Strategy]]):
    """Strategy classes by name, found when first looked at."""

    def __init__(self) -> None:
        self._found: dict[str, type[Strategy]] | None = None

    def _classes(self) -> dict[str, type[Strategy]]:
        if self._found is None:
            found = {**_third_party(), **_bundled()}
            self._found = dict(sorted(found.items()))
        return self._found

    def __getitem__(self, name: str) -> type[Strategy]:
        classes = self._classes()
        if name not in classes:
            raise UnknownNameError("strategy", name, classes)
        return classes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._classes()

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes())

    def __len__(self) -> int:
        return len(self._classes())


def _bundled() -> dict[str, type[Strategy]]:
    found: dict[str, type[Strategy]] = {}
    for info in pkgutil.iter_modules(__path__):
        name = info.name.replace("_", "-")
        module = importlib.import_module(f"{__name__}.{info.name}")
        for candidate in vars(module).values():
            if _is_strategy(candidate) and candidate.__module__ == module.__name__ and candidate.name == name:
                found[name] = candidate
    return found


def _third_party() -> dict[str, type[Strategy]]:
    found: dict[str, type[Strategy]] = {}
    for point in importlib.metadata.entry_points(group=_ENTRY_POINTS):
        loaded = point.load()
        if not _is_strategy(loaded):
            raise MptuneError(f"entry point {point.value!r} of strategy {point.name!r} is not a Strategy subclass")
        found[point.name] = loaded
    return found


def _is_strategy(candidate: object) -> bool:
    return inspect.isclass(candidate) and issubclass(candidate, Strategy) and not inspect.isabstract(candidate)


#: Every strategy class by name: the bundled ones and those of installed third parties.
STRATEGIES: Final[Mapping[str, type[Strategy]]] = _Registry()


def make(
    name: str,
    space: SearchSpace,
    objective: Objective,
    *,
    signature: Sequence[str] = (),
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> Strategy:
    """Return a new strategy.

    Args:
        name: key of :data:`STRATEGIES`.
        space: the valid configurations.
        objective: scores trials and knows the threshold.
        signature: names of the parameters that can change the numbers.
        seed: seeds everything random.
        options: hyperparameters by name; values may be text.

    Raises:
        UnknownNameError: no strategy, or no option of it, has that name.
        MptuneError: an option's value is of the wrong type or out of range.
    """
    chosen = STRATEGIES[name]
    parsed = chosen.options_class.from_mapping(name, dict(options or {}))
    return chosen(space, objective, signature=signature, seed=seed, options=parsed)
