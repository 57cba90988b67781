"""Device families by name: ``host``, ``cuda``, ``hip``, ``opencl``.

Backends are named like their modules in this folder. Third parties add a :class:`~mptune.backends.base.Backend`
subclass by an entry point of the group ``mptune.backends``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mptune.backends.base import Backend
from mptune.errors import BackendUnavailableError, UnknownNameError
from mptune.plugins import Registry

__all__ = ["BACKENDS", "get_backend"]

#: The order of "auto": a GPU before the processor. OpenCL is chosen only by name, as its devices mostly have another
#: backend, too.
_PREFERRED: Final = ("cuda", "hip", "host")

#: Every backend class by name.
BACKENDS: Final[Mapping[str, type[Backend]]] = Registry("backend", __name__, Backend)


def get_backend(name: str = "auto") -> Backend:
    """Return a new backend by name; "auto" is the first of cuda, hip and host that can run here."""
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
