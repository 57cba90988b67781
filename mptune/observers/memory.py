"""Observes how much device memory the arguments take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from mptune.observers.base import LaunchContext, Observer

__all__ = ["MemoryObserver"]


class MemoryObserver(Observer):
    """Measures ``memory_bytes``, the footprint of the arguments in this configuration's precisions."""

    name: ClassVar[str] = "memory"
    metrics: ClassVar[tuple[str, ...]] = ("memory_bytes",)
    is_optional: ClassVar[bool] = False

    def __init__(self) -> None:
        self._footprint_bytes: int | None = None

    def before(self, context: LaunchContext) -> None:
        """Take the footprint, which is known before the launch."""
        self._footprint_bytes = context.footprint_bytes

    def results(self) -> Mapping[str, float]:
        """Return the footprint; nothing before the launches."""
        return {} if self._footprint_bytes is None else {"memory_bytes": float(self._footprint_bytes)}
