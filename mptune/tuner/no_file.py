"""What stands in for a run file where none is wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mptune.results import Trial

__all__ = ["NoFile"]


class NoFile:
    """Has no trials and keeps none."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = dict(settings)

    def add(self, trial: Trial, phase: str = "search", settings: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        """Keep the settings for as long as the run takes."""
        self.update(settings or {})

    def retire(self, trials: Sequence[Trial]) -> None:
        """Keep nothing."""

    def trials(self, phase: str | None = None) -> list[Trial]:  # noqa: ARG002 - as a run file has it
        """Return nothing."""
        return []

    def update(self, settings: Mapping[str, Any]) -> None:
        """Keep the settings for as long as the run takes."""
        self.settings.update(settings)

    def __enter__(self) -> NoFile:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""
