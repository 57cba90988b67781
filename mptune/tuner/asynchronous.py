"""Asking and telling while trials are under way, so that no worker waits for another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Sequence

from mptune.results import Trial
from mptune.space.configuration import Configuration

__all__ = ["AskAndTell"]


class AskAndTell(ABC):
    """Asks for configurations ahead of their turn, begins one whenever a worker is free, and tells what has ended.

    What ends while a strategy thinks is told together, so that a strategy which cannot keep up with the workers is
    asked for more at a time instead of holding up all of them.
    """

    def run(self) -> None:
        """Go on until nothing more is asked for, or may begin, and nothing is under way."""
        asked: deque[Configuration] = deque()
        under_way = 0
        while True:
            missing = self.wanted - len(asked) - under_way
            if missing > 0:
                asked += self.ask(missing)
            under_way = self._begin(asked, under_way)
            if not under_way:
                return
            trials = self.finish()
            under_way -= len(trials)
            if self.may_overlap:
                under_way = self._begin(asked, under_way)
            self.tell(trials)

    def _begin(self, asked: deque[Configuration], under_way: int) -> int:
        """Begin what there is room for; return how many are under way."""
        while asked and under_way < self.capacity and self.may_begin(asked[0], under_way):
            self.begin(asked.popleft(), asked)
            under_way += 1
        return under_way

    @property
    @abstractmethod
    def capacity(self) -> int:
        """How many trials may be under way now."""

    @property
    @abstractmethod
    def may_overlap(self) -> bool:
        """Whether what was asked for ahead begins before the strategy is told and asked again."""

    @property
    @abstractmethod
    def wanted(self) -> int:
        """How many configurations to have asked for and not told, at most; 0 or less once no more are wanted."""

    @abstractmethod
    def ask(self, n: int) -> Sequence[Configuration]:
        """Return up to ``n`` configurations; fewer where there are no more for now."""

    @abstractmethod
    def may_begin(self, configuration: Configuration, under_way: int) -> bool:
        """Whether a configuration may begin beside so many others."""

    @abstractmethod
    def begin(self, configuration: Configuration, following: Collection[Configuration]) -> None:
        """Begin to evaluate a configuration; those asked for after it follow."""

    @abstractmethod
    def finish(self) -> Sequence[Trial]:
        """Wait for a trial, and return it with all others that have ended."""

    @abstractmethod
    def tell(self, trials: Sequence[Trial]) -> None:
        """Take in trials."""
