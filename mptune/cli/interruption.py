"""What Ctrl-C does while a run goes on: the first waits for the trial under way, the second does not."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

__all__ = ["Interruption"]

_PROMISE: Final = b"\nfinishing the current trial; Ctrl-C again stops at once\n"


class Interruption:
    """Turns SIGINT into a KeyboardInterrupt that comes between two trials; a context manager.

    Args:
        is_under_way: whether there may be a trial to wait for; before the first, SIGINT interrupts at once.
    """

    def __init__(self, is_under_way: Callable[[], bool]) -> None:
        self._is_under_way = is_under_way
        self._is_asked_for = False
        self._before: Any = signal.SIG_DFL

    def __enter__(self) -> Interruption:
        self._before = signal.getsignal(signal.SIGINT)
        # A shell lets its background jobs ignore what is typed to another.
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Stop here where that is asked for; call it after each trial.

        Raises:
            KeyboardInterrupt: SIGINT came since.
        """
        if self._is_asked_for:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signal.signal wants it
        if self._is_asked_for or not self._is_under_way():
            raise KeyboardInterrupt
        self._is_asked_for = True
        # Not through Python's own stream: this may have come while it was being written to.
        os.write(2, _PROMISE)
