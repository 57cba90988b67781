"""The ask → evaluate → tell loop of live runs, simulations and benchmarks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from mptune.measure.base import Evaluator
from mptune.results.trial import Trial
from mptune.space.configuration import Configuration

__all__ = ["Stopwatch", "ask_and_tell"]


class Stopwatch:
    """Adds up the wall time of the blocks it is entered for.

    Args:
        seconds: to begin with.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        #: The last block.
        self.latest_s = 0.0
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.latest_s = time.perf_counter() - self._started
        self.seconds += self.latest_s


def ask_and_tell(
    evaluator: Evaluator,
    ask: Callable[[int], Sequence[Configuration]],
    tell: Callable[[Sequence[Trial]], None],
    remaining: Callable[[], int],
    *,
    thinking: AbstractContextManager[None],
    lead: int | None = None,
) -> Iterator[list[Trial]]:
    """Ask ahead, evaluate whatever there is room for, and tell what has ended; so no device waits for another.

    What ends while a strategy thinks is told together, so that a strategy which cannot keep up with the devices is
    asked for more at a time instead of holding up all of them. Ends when nothing more is asked for, or may begin, and
    nothing is under way.

    Args:
        evaluator: turns configurations into trials.
        ask: returns up to so many configurations; fewer if there are no more for now.
        tell: takes in trials.
        remaining: how many more trials are wanted; 0 or less for none. Asked after every yield.
        thinking: entered whenever ``ask`` or ``tell`` is called.
        lead: how many configurations to have asked for and not told; by default the evaluator's.

    Yields:
        The trials that have just been told.
    """
    asked: deque[Configuration] = deque()

    def begin() -> None:
        while asked and evaluator.has_room(asked[0]):
            evaluator.submit(asked.popleft())

    while True:
        wanted = min(evaluator.lead if lead is None else lead, remaining())
        missing = wanted - len(asked) - evaluator.under_way
        if missing > 0:
            with thinking:
                proposed = ask(missing)
            for configuration in proposed:
                evaluator.prepare(configuration)
            asked += proposed
        begin()
        if not evaluator.under_way:
            return
        trials = evaluator.finished()
        if evaluator.may_overlap:
            begin()
        with thinking:
            tell(trials)
        yield trials
