"""An evaluator without a device: it answers from a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mptune.errors import SpaceFileError
from mptune.measure.base import Evaluator
from mptune.results.trial import Trial
from mptune.space.configuration import Configuration

if TYPE_CHECKING:
    from mptune.run import Run

__all__ = ["Replay"]


class Replay(Evaluator):
    """Answers with the trials of a run, which end as soon as they are submitted."""

    def __init__(self, run: Run) -> None:
        self._name = run.name
        self._trials = {trial.configuration: trial for trial in run.trials}
        self._ended: list[Trial] = []

    @property
    def under_way(self) -> int:
        """How many trials have been submitted and not been taken."""
        return len(self._ended)

    def submit(self, configuration: Configuration) -> None:
        """Look a configuration up.

        Raises:
            SpaceFileError: the run has no trial of it.
        """
        trial = self._trials.get(configuration)
        if trial is None:
            raise SpaceFileError(f"{self._name} does not hold the configuration {configuration}")
        self._ended.append(trial)

    def finished(self) -> list[Trial]:
        """Return the trials of what was submitted."""
        ended, self._ended = self._ended, []
        return ended
