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
    """Turns configurations into trials; what is submitted comes back in the order in which it ends.

    A failing configuration gives a trial with that status; only a mistake of the user's that affects every
    configuration raises.
    """

    #: Whether a strategy may compute while trials are measured, without disturbing them.
    may_overlap: bool = False

    @property
    def capacity(self) -> int:
        """How many configurations may be under way now, at least 1."""
        return 1

    @property
    def lead(self) -> int:
        """How many configurations are worth asking for before the first of them is told: under way or prepared."""
        return self.capacity

    @property
    @abstractmethod
    def under_way(self) -> int:
        """How many configurations have been submitted and not come back."""

    def prepare(self, configuration: Configuration) -> None:  # noqa: B027 - optional
        """Begin what can be done ahead for a configuration that is going to be submitted."""

    @abstractmethod
    def submit(self, configuration: Configuration) -> None:
        """Begin to evaluate a configuration; only if there is room for it."""

    @abstractmethod
    def finished(self) -> list[Trial]:
        """Wait for one of the configurations under way; return its trial and those of all others that have ended.

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
                # A configuration that comes twice is evaluated twice, but not at the same time.
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
    """Answers with the trials of a run, which end as soon as they are submitted."""

    def __init__(self, run: Run) -> None:
        self._name = run.name
        self._trials = {trial.configuration: trial for trial in run.trials}
        self._ended: list[Trial] = []

    @property
    def under_way(self) -> int:
        """How many trials have not been taken."""
        return len(self._ended)

    def submit(self, configuration: Configuration) -> None:
        """Look a configuration up; a SpaceFileError says that the run has no trial of it."""
        trial = self._trials.get(configuration)
        if trial is None:
            raise SpaceFileError(f"{self._name} does not hold the configuration {configuration}")
        self._ended.append(trial)

    def finished(self) -> list[Trial]:
        """Return the trials of what was submitted."""
        ended, self._ended = self._ended, []
        return ended
