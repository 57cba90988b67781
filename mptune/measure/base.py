"""Evaluators turn configurations into trials, on devices or out of a recording."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Self

from mptune.errors import SpaceFileError
from mptune.results.trial import Trial
from mptune.space.configuration import Configuration

if TYPE_CHECKING:
    from mptune.run import Run


class Evaluator(ABC):
    """Turns configurations into trials, in the order in which they end.

    A failing configuration gives a trial with its status; only a mistake that affects every configuration raises.
    """

    #: Whether a strategy may compute while trials are measured, without disturbing them.
    may_overlap: bool = False

    @property
    def capacity(self) -> int:
        """Maximum number of configurations under way now, at least 1."""
        return 1

    @property
    def lead(self) -> int:
        """Number of configurations under way or prepared that keeps the devices busy."""
        return self.capacity

    @property
    @abstractmethod
    def under_way(self) -> int:
        """Number of submitted configurations whose trials have not been returned."""

    def prepare(self, configuration: Configuration) -> None:  # noqa: B027 - optional
        """Begin work ahead for a configuration that will be submitted."""

    @abstractmethod
    def submit(self, configuration: Configuration) -> None:
        """Begin to evaluate a configuration, within :attr:`capacity`."""

    @abstractmethod
    def finished(self) -> list[Trial]:
        """Wait for a configuration under way to end; return all trials that have ended.

        Raises:
            MptuneError: nothing more can be evaluated.
        """

    def evaluate(self, configurations: Sequence[Configuration]) -> Iterator[Trial]:
        """Yield one trial per configuration, in the order given."""
        waiting = deque(configurations)
        busy: set[Configuration] = set()
        ended: dict[Configuration, Trial] = {}
        for configuration in configurations:
            while configuration not in ended:
                for following in list(waiting)[: self.lead - self.under_way]:
                    self.prepare(following)
                # A repeated configuration is evaluated again, but not at the same time.
                while waiting and waiting[0] not in busy and self.under_way < self.capacity:
                    busy.add(waiting[0])
                    self.submit(waiting.popleft())
                ended |= {trial.configuration: trial for trial in self.finished()}
            busy.discard(configuration)
            yield ended.pop(configuration)

    def close(self) -> None:  # noqa: B027 - optional
        """Release workers and devices; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Replay(Evaluator):
    """Returns the trials of a run, which end as soon as they are submitted."""

    def __init__(self, run: Run) -> None:
        self._name = run.name
        self._trials = {trial.configuration: trial for trial in run.trials}
        self._ended: list[Trial] = []

    @property
    def under_way(self) -> int:
        """Number of trials not returned yet."""
        return len(self._ended)

    def submit(self, configuration: Configuration) -> None:
        """Look a configuration up; raises SpaceFileError if the run has no trial of it."""
        trial = self._trials.get(configuration)
        if trial is None:
            raise SpaceFileError(f"{self._name} does not hold the configuration {configuration}")
        self._ended.append(trial)

    def finished(self) -> list[Trial]:
        """Return the trials of all submitted configurations."""
        ended, self._ended = self._ended, []
        return ended
