"""An evaluator with no device: it looks every trial up in a recording."""

from __future__ import annotations

from collections.abc import Mapping

from mptune.errors import SpaceFileError
from mptune.measure.base import Evaluator
from mptune.results.trial import Trial
from mptune.space.configuration import Configuration

__all__ = ["SimulatedEvaluator"]


class SimulatedEvaluator(Evaluator):
    """Replays recorded trials, which end as soon as they are submitted.

    Args:
        trials: the recorded trial of each configuration.
        name: what to call the recording in messages.
    """

    def __init__(self, trials: Mapping[Configuration, Trial], name: str = "the recording") -> None:
        self._trials = trials
        self._name = name
        self._ended: list[Trial] = []

    @property
    def under_way(self) -> int:
        """How many trials have been submitted and not been taken."""
        return len(self._ended)

    def submit(self, configuration: Configuration) -> None:
        """Look a configuration up.

        Raises:
            SpaceFileError: it is not recorded; nothing can be said about it.
        """
        trial = self._trials.get(configuration)
        if trial is None:
            raise SpaceFileError(f"{self._name} does not hold the configuration {configuration}")
        self._ended.append(trial)

    def finished(self) -> list[Trial]:
        """Return the recorded trials of what was submitted."""
        ended, self._ended = self._ended, []
        return ended
