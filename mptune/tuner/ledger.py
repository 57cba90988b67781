"""The trials of a run: those there are, those the run file has from before, and how the time was spent."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Collection, Iterator

from mptune.evaluators.device import DeviceEvaluator
from mptune.objective import Objective
from mptune.results import Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.space.search_space import SearchSpace
from mptune.store import RunState, RunStore
from mptune.tuner.settings import TuneSettings

__all__ = ["Ledger"]


class Ledger:
    """Judges trials, commits each to the run file, and knows which of the file's can be taken as they are.

    Args:
        objective: judges trials; given a baseline when there is one.
        space: the valid configurations.
        evaluator: knows the keys of trials, and remembers errors.
        file: keeps every trial; those it has already are not evaluated again.
        settings: budget and limits of time.
        start: when the run began, by ``time.monotonic``.
    """

    def __init__(
        self,
        objective: Objective,
        space: SearchSpace,
        evaluator: DeviceEvaluator,
        file: RunStore,
        settings: TuneSettings,
        start: float,
    ) -> None:
        self.objective = objective
        self._space = space
        self._evaluator = evaluator
        self._file = file
        self._settings = settings
        self._start = start
        self._wall_before_s = file.state.wall_s
        self._prepare_s = file.state.prepare_s + time.monotonic() - start
        self._search_s = file.state.search_s
        #: Every trial of this run so far, in the order in which they ended, and the phase of each.
        self.trials: dict[Configuration, Trial] = {}
        self.phases: dict[Configuration, str] = {}
        self._best: Trial | None = None
        #: Whether anything was measured rather than taken from the run file.
        self.measured_here = False
        #: What the run file has and this run has not come to yet.
        self.stored = self._read_stored()

    # -- trials --------------------------------------------------------------------------------

    def keep(self, trial: Trial, phase: str, stored: Trial | None = None) -> Trial:
        """Judge a trial, commit it where the run file does not have it like that, and return it.

        Args:
            trial: what was measured.
            phase: "baseline" or "search".
            stored: what the run file has of it.
        """
        trial = self.objective.judge(trial)
        if trial != stored or trial.configuration in self._revived:
            self._file.add(trial, phase, self.spent())
        is_again = trial.configuration in self.trials
        self.trials[trial.configuration] = trial
        self.phases[trial.configuration] = phase
        # What is measured again may have been the best.
        rivals = self.trials.values() if is_again else (*([self._best] if self._best else []), trial)
        self._best = self.objective.best(list(rivals))
        return trial

    def best_ms(self, phase: str) -> float:
        """Return the time to beat in milliseconds; infinite if every time matters."""
        return self._evaluator.policy.time_to_beat(self._best, in_baseline=phase == "baseline")

    def replay(self, stored: Trial, phase: str) -> Trial:
        """Take over a stored trial."""
        del self.stored[stored.configuration]
        self._evaluator.remember(stored)
        return self.keep(stored, phase, stored)

    def leftovers(self, asked: Collection[Configuration] = ()) -> list[Trial]:
        """Take over stored trials a differently set up strategy did not ask for; they are as good as its own."""
        left = [trial for configuration, trial in self.stored.items() if configuration not in asked]
        return [self.replay(trial, "search") for trial in left]

    def result(self) -> Run:
        """Return everything so far."""
        return Run(self._file.info, list(self.trials.values()), self._file.state)

    # -- time ----------------------------------------------------------------------------------

    @property
    def budget(self) -> int:
        """Trials the run has at its end, at most."""
        return self._settings.budget

    @property
    def elapsed_s(self) -> float:
        """Wall time since the run began."""
        return time.monotonic() - self._start

    @property
    def is_in_time(self) -> bool:
        """Whether more may begin."""
        limit_s = self._settings.time_limit_s
        return limit_s is None or self.elapsed_s < limit_s

    @contextlib.contextmanager
    def searching(self) -> Iterator[None]:
        """Count the time of a block as the strategy's."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._search_s += time.monotonic() - start

    def spent(self) -> RunState:
        """Return how long the run took so far, and what no trial accounts for."""
        wall_s = self._wall_before_s + self.elapsed_s
        return dataclasses.replace(self._file.state, wall_s=wall_s, prepare_s=self._prepare_s, search_s=self._search_s)

    # -- the run file's own --------------------------------------------------------------------

    def _read_stored(self) -> dict[Configuration, Trial]:
        """Return the stored trials measured under the present conditions; set the others aside."""
        policy = self._evaluator.policy
        current, stale = {}, []
        retired = self._file.trials("stale")
        for trial in (*retired, *self._file.trials()):
            is_valid = trial.configuration in self._space
            is_current = is_valid and trial.key == self._evaluator.key_of(trial.configuration)
            if policy.keeps(trial, is_current=is_current):
                current[trial.configuration] = trial
            else:
                stale.append(trial)
        checked = [t for t in current.values() if t.is_valid and not t.measurement.reused_error]
        unbacked = [t for t in current.values() if t.measurement.reused_error and not policy.is_backed(t, checked)]
        stale += [current.pop(trial.configuration) for trial in unbacked]
        self._revived = current.keys() & {trial.configuration for trial in retired}
        self._file.retire(stale)
        self._file.update(dataclasses.replace(self._file.state, stale=len(stale)))
        return current
