"""Multi-start local search (Heldens 2026, Sec. III-E): hill climbing from one random configuration after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mptune.strategies.base import Options
from mptune.strategies.moves.climbing import ClimbingOptions, ClimbingStrategy

__all__ = ["LocalSearchOptions", "LocalSearchStrategy"]


@dataclass(frozen=True, slots=True)
class LocalSearchOptions(ClimbingOptions):
    """Hyperparameters: those of a climb; the defaults are those of Heldens 2026, Sec. III-E."""

    strategy: ClassVar[str] = "local-search"


class LocalSearchStrategy(ClimbingStrategy):
    """Climbs from a random configuration to a local optimum, then from another."""

    name: ClassVar[str] = "local-search"
    options_class: ClassVar[type[Options]] = LocalSearchOptions
    options: LocalSearchOptions

    def _reached(self, optimum: int) -> None:
        """Forget it: the next climb does not depend on where this one ended."""
