"""Device families by name: ``host``, ``cuda``, ``hip``, ``opencl``.

A backend is one module in this folder: its file name is its name. Third parties add theirs by an entry
point of the group ``mptune.backends`` that gives a :class:`~mptune.backends.base.Backend` subclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mptune.backends.base import Backend
from mptune.errors import BackendUnavailableError, UnknownNameError
from mptune.plugins import Registry

__all__ = ["BACKENDS", "get_backend"]

#: The order "auto" tries them in: a GPU before the processor. OpenCL is taken by its name alone: its devices are mostly
#: those of the others, and of several a user knows which is meant.
_PREFERRED: Final = ("cuda", "hip", "host")


#: Every backend class by name.
BACKENDS: Final[Mapping[str, type[Backend]]] = Registry("backend", __name__, Backend)


def get_backend(name: str = "auto") -> Backend:
    """Return a new handle of the backend of that name; "auto" is the first of cuda, hip, host that can run here."""
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
