"""An evaluator with no device: it looks every trial up in a recording."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mptune.errors import SpaceFileError
from mptune.evaluators.base import Evaluator
from mptune.results import Trial
from mptune.space.configuration import Configuration

__all__ = ["SimulatedEvaluator"]


class SimulatedEvaluator(Evaluator):
    """Replays recorded trials.

    Args:
        trials: the recorded trial of each configuration.
        name: what to call the recording in messages.
    """

    def __init__(self, trials: Mapping[Configuration, Trial], name: str = "the recording") -> None:
        self._trials = trials
        self._name = name

    def evaluate(self, configurations: Sequence[Configuration]) -> Iterator[Trial]:
        """Yield the recorded trial of each configuration, in the order given.

        Raises:
            SpaceFileError: a configuration is not recorded; nothing can be said about it.
        """
        for configuration in configurations:
            trial = self._trials.get(configuration)
            if trial is None:
                raise SpaceFileError(f"{self._name} does not hold the configuration {configuration}")
            yield trial
