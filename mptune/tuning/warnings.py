"""What a run has to say to its user: each thing once, and kept in the run file."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Warnings"]


class Warnings:
    """The warnings of one session of a run: called with a plain line, it tells the user, once.

    Args:
        tell: told each new warning, at once.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._said: dict[str, None] = {}

    def __call__(self, message: str) -> None:
        """Say something, unless this session has said it."""
        if message not in self._said:
            self._said[message] = None
            self._tell(message)

    @property
    def said(self) -> tuple[str, ...]:
        """Everything this session has said, in that order."""
        return tuple(self._said)
