"""Device families by name: ``host``, ``cuda``, ``hip``.

A backend is one module in this folder: its file name is its name. Third parties add theirs by an entry
point of the group ``mptune.backends`` that gives a :class:`~mptune.backends.base.Backend` subclass.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Final

from mptune.backends.base import Backend
from mptune.errors import BackendUnavailableError, UnknownNameError
from mptune.plugins import load_point

__all__ = ["BACKENDS", "get_backend"]

_ENTRY_POINTS: Final = "mptune.backends"
#: The order "auto" tries them in: a GPU before the processor.
_PREFERRED: Final = ("cuda", "hip", "host")


class _Registry(Mapping[str, type[Backend]]):
    """Backend classes by name, found when first looked at; no device library is loaded."""

    def __init__(self) -> None:
        self._found: dict[str, type[Backend]] | None = None

    def _classes(self) -> dict[str, type[Backend]]:
        if self._found is None:
            self._found = {**_third_party(), **_bundled()}
        return self._found

    def __getitem__(self, name: str) -> type[Backend]:
        classes = self._classes()
        if name not in classes:
            raise UnknownNameError("backend", name, classes)
        return classes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._classes()

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes())

    def __len__(self) -> int:
        return len(self._classes())


def _bundled() -> dict[str, type[Backend]]:
    found: dict[str, type[Backend]] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Backend) and getattr(value, "name", None) == info.name:
                found[info.name] = value
    return found


def _third_party() -> dict[str, type[Backend]]:
    found: dict[str, type[Backend]] = {}
    for point in importlib.metadata.entry_points(group=_ENTRY_POINTS):
        loaded = load_point(point, "backend")
        if not (isinstance(loaded, type) and issubclass(loaded, Backend)):
            raise BackendUnavailableError(f"entry point {point.value!r} of backend {point.name!r} is not a Backend")
        found[point.name] = loaded
    return found


#: Every backend class by name.
BACKENDS: Final[Mapping[str, type[Backend]]] = _Registry()


def get_backend(name: str = "auto") -> Backend:
    """Return a new handle of the backend of that name; "auto" is the first of cuda, hip, host that can run here.

    Raises:
        UnknownNameError: no backend has that name.
        BackendUnavailableError: "auto", and none can run; says why for each.
    """
    if name != "auto":
        if name not in BACKENDS:
            raise UnknownNameError("backend", name, ("auto", *BACKENDS))
        return BACKENDS[name]()
    reasons = []
    for candidate in _PREFERRED:
        found = BACKENDS[candidate].availability()
        if found.can_run:
            return BACKENDS[candidate]()
        reasons.append(f"{candidate}: {found.reason}")
    raise BackendUnavailableError(f"no backend can run here; {'; '.join(reasons)}")
