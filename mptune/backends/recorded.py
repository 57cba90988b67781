"""How to compile again what a run or wisdom is of: the one place where its flags become compile options."""

from __future__ import annotations

from typing import Protocol

from mptune.backends.base import CompileOptions
from mptune.build import on_host, recorded_flags

__all__ = ["Recorded", "options_of"]


class Recorded(Protocol):
    """What was compiled for a backend with flags of the user's: a run's description, or wisdom of a kernel."""

    @property
    def backend(self) -> str:
        """The backend's name."""

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags."""


def options_of(known: Recorded, backend: str) -> CompileOptions:
    """Return how a definition is compiled as what is known was.

    For another backend that is with the definitions of macros and folders of headers alone.

    Raises:
        MptuneError: a flag is none that a file may ask for.
    """
    flags = recorded_flags(known.flags)
    return CompileOptions(flags=flags if backend == known.backend else on_host(flags))
