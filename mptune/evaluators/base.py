"""What an evaluator is: something that turns configurations into trials."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Self

from mptune.results import Trial
from mptune.space.configuration import Configuration

__all__ = ["Evaluator"]


class Evaluator(ABC):
    """Evaluates configurations; returns trials and changes nothing it was given."""

    @abstractmethod
    def evaluate(self, configurations: Sequence[Configuration]) -> Iterator[Trial]:
        """Yield one trial per configuration, in the order given.

        A failing configuration gives a trial with that status; only a mistake of the user's that
        affects every configuration raises.
        """

    def close(self) -> None:  # noqa: B027 - optional
        """Release workers and devices; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
