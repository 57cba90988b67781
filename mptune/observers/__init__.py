"""What measures around a launch, by name.

An observer is one module in this folder; its file name is its name. Third parties add theirs by an entry point of
the group ``mptune.observers`` that gives an :class:`~mptune.observers.base.Observer` subclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mptune.observers.base import Observer
from mptune.plugins import Registry

__all__ = ["OBSERVERS"]

#: Every observer class by name: the bundled ones and those of installed third parties.
OBSERVERS: Final[Mapping[str, type[Observer]]] = Registry("observer", __name__, Observer)
