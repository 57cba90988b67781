"""What the tuner needs of a run file, and what stands in for one if no file is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from mptune.results import Trial
from mptune.store.info import RunInfo, RunState

__all__ = ["RunStore", "UnsavedRun"]


class RunStore(Protocol):
    """Keeps what a run is, how far it has come, and its trials."""

    @property
    def info(self) -> RunInfo:
        """What the run is."""

    @property
    def state(self) -> RunState:
        """How far it has come."""

    def update(self, state: RunState) -> None:
        """Record how far it has come."""

    def add(self, trial: Trial, phase: str = ..., state: RunState | None = ...) -> None:
        """Record a trial and how far the run has come."""

    def retire(self, trials: Sequence[Trial]) -> None:
        """Set trials aside that were measured under other conditions."""

    def trials(self, phase: str | None = ...) -> list[Trial]:
        """Return the stored trials, of one phase or of all but "stale"."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class UnsavedRun:
    """A :class:`RunStore` that writes nothing: it has no trials and keeps none."""

    def __init__(self, info: RunInfo, state: RunState) -> None:
        self.info = info
        self.state = state

    def update(self, state: RunState) -> None:
        """Keep the state for as long as the run takes."""
        self.state = state

    def add(self, trial: Trial, phase: str = "search", state: RunState | None = None) -> None:  # noqa: ARG002
        """Keep the state for as long as the run takes."""
        self.state = state or self.state

    def retire(self, trials: Sequence[Trial]) -> None:
        """Keep nothing."""

    def trials(self, phase: str | None = None) -> list[Trial]:  # noqa: ARG002
        """Return nothing."""
        return []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""
