"""The trials of a run: those the run file has from before, those measured now, and how the time was spent."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Final

from mptune.measure.base import Evaluator
from mptune.measure.device import DeviceEvaluator
from mptune.results.objective import Objective
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.space.search_space import SearchSpace
from mptune.store import KERNEL, RunState, RunStore
from mptune.tuning.loop import Stopwatch
from mptune.tuning.warnings import Warnings

__all__ = ["Ledger"]

#: What follows the search goes on for so much of the time limit once it is over, and for the least that it takes.
_CLOSING_SHARE: Final = 0.25


class Ledger(Evaluator):
    """The evaluator of a run: takes trials the run file has, has all others measured, and commits every one.

    The objective is replaced by one with a baseline as soon as there is one. The run began at ``start`` by
    ``time.monotonic``.
    """

    def __init__(
        self,
        objective: Objective,
        space: SearchSpace,
        evaluator: DeviceEvaluator,
        file: RunStore,
        time_limit_s: float | None,
        start: float,
        warn: Warnings,
    ) -> None:
        self.objective = objective
        self._space = space
        self._evaluator = evaluator
        self._file = file
        self._time_limit_s = time_limit_s
        self._start = start
        self._warn = warn
        self._warned_before = file.state.warnings
        self._wall_before_s = file.state.wall_s
        self._prepare_s = file.state.prepare_s + time.monotonic() - start
        #: Time in the strategy.
        self.searching = Stopwatch(file.state.search_s)
        #: Time in the verification on unseen inputs.
        self.verifying = Stopwatch(file.state.verify_s)
        #: Every trial of this run so far, in the order in which they ended, and the phase of each.
        self.trials: dict[Configuration, Trial] = {}
        self.phases: dict[Configuration, str] = {}
        #: The configurations whose trials were taken from the run file.
        self.replayed: set[Configuration] = set()
        self._best: Trial | None = None
        #: Whether anything was measured rather than taken from the run file.
        self.measured_here = False
        #: How many of the run file's trials were measured under other conditions.
        self.outdated = 0
        #: What the run file has and this run has not come to yet.
        self._stored = self._read_stored()
        #: Trials of an application's kernels alone, by the launch they are of.
        self._of_kernels = {label: list(trials) for label, trials in file.kernel_trials().items()}
        self._asked: set[Configuration] = set()
        self._ended: list[Trial] = []
        self._phase, self._budget, self._adopts = "search", 0, False

    # -- as an evaluator -----------------------------------------------------------------------

    def begin_phase(self, phase: str, budget: int, *, adopts: bool) -> None:
        """Say what the following configurations are for.

        Args:
            phase: "baseline" or "search".
            budget: evaluations the run has at the end of the phase, at most.
            adopts: whether stored trials nobody asked for are taken over and told.
        """
        self._phase, self._budget, self._adopts = phase, budget, adopts
        self._asked.clear()

    @property
    def capacity(self) -> int:
        return self._evaluator.capacity

    @property
    def lead(self) -> int:
        return self._evaluator.lead

    @property
    def may_overlap(self) -> bool:
        return self._evaluator.may_overlap

    @property
    def under_way(self) -> int:
        return self._evaluator.under_way + len(self._ended)

    def remaining(self) -> int:
        """Return how many more evaluations the phase may have; 0 once the time is up."""
        return self._budget - self.evaluations - self.kernel_evaluations if self.is_in_time else 0

    def has_room(self, configuration: Configuration) -> bool:
        """Whether a device is free, and time and budget allow it; stored trials come before new ones."""
        limit = self._budget if configuration in self._stored else self._budget - len(self._stored)
        begun = self.evaluations + self.kernel_evaluations + self._evaluator.under_way
        return self.under_way < self._evaluator.capacity and self.is_in_time and begun < limit

    def prepare(self, configuration: Configuration) -> None:
        """Begin to compile a configuration, unless the run file has its trial."""
        self._asked.add(configuration)
        if configuration not in self._stored:
            self._evaluator.prepare(configuration)

    def submit(self, configuration: Configuration) -> None:
        """Take a configuration's trial from the run file, or begin to measure it."""
        self._asked.discard(configuration)
        if configuration in self._stored:
            self._ended.append(self._replay(configuration, self._phase))
            return
        if self._adopts:
            leftovers = [left for left in self._stored if left not in self._asked]
            self._ended += [self._replay(left, "search") for left in leftovers]
        self.measured_here = True
        policy = self._evaluator.policy
        best_ms = policy.time_to_beat(self._best, in_baseline=self._phase == "baseline")
        self._evaluator.submit(configuration, best_ms)

    def finished(self) -> list[Trial]:
        """Return the trials that have ended, judged and committed."""
        ended, self._ended = self._ended, []
        for trial in self._evaluator.finished() if self._evaluator.under_way else ():
            ended.append(self.keep(trial, self._phase))
        return ended

    # -- trials --------------------------------------------------------------------------------

    def keep(self, trial: Trial, phase: str, stored: Trial | None = None) -> Trial:
        """Judge a trial, commit it unless it is as the run file has it (``stored``), and return it."""
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

    @property
    def evaluations(self) -> int:
        """How many of the budget's evaluations the trials are."""
        return len(self.trials)

    @property
    def kernel_evaluations(self) -> int:
        """How many of the evaluations are of an application's kernels alone."""
        return sum(map(len, self._of_kernels.values()))

    def keep_of_kernel(self, label: str, trial: Trial) -> None:
        """Commit a trial of one of an application's kernels alone, on data of the launch with this label."""
        self._of_kernels.setdefault(label, []).append(trial)
        self._file.add(trial, KERNEL + label, self.spent())
        self.measured_here = True

    def stored_of_kernel(self, label: str, key_of: Callable[[Configuration], str]) -> list[Trial]:
        """Return the stored trials of a kernel alone that stand, by the keys they have now; set the others aside."""
        policy = self._evaluator.policy
        stored = self._of_kernels.get(label, [])
        stands = [policy.keeps(t, is_current=t.key == key_of(t.configuration)) for t in stored]
        self._of_kernels[label] = [trial for trial, does in zip(stored, stands, strict=True) if does]
        self._file.retire([trial for trial, does in zip(stored, stands, strict=True) if not does])
        self._file.update(self.spent())
        return self._of_kernels[label]

    @property
    def waiting(self) -> list[Configuration]:
        """The configurations of stored trials this run has not come to."""
        return list(self._stored)

    def take_leftovers(self) -> None:
        """Take over every stored trial this run has not come to; they are as good as its own."""
        for configuration in list(self._stored):
            self._replay(configuration, "search")

    def result(self) -> Run:
        """Return everything so far."""
        return Run(self._file.info, list(self.trials.values()), self._file.state, kernel_trials=self._of_kernels)

    def _replay(self, configuration: Configuration, phase: str) -> Trial:
        """Take over a stored trial."""
        stored = self._stored.pop(configuration)
        self.replayed.add(configuration)
        return self.keep(stored, phase, stored)

    def _read_stored(self) -> dict[Configuration, Trial]:
        """Return the stored trials that stand; set the others aside."""
        policy = self._evaluator.policy
        current, stale = {}, []
        outdated: set[Configuration] = set()
        retired = self._file.trials("stale")
        stored = self._file.trials()
        for trial in (*retired, *stored):
            is_valid = trial.configuration in self._space
            is_current = is_valid and trial.key == self._evaluator.key_of(trial.configuration)
            (outdated.discard if is_current else outdated.add)(trial.configuration)
            if policy.keeps(trial, is_current=is_current):
                current[trial.configuration] = trial
            else:
                stale.append(trial)
        self.outdated = sum(trial.configuration in outdated for trial in stored)
        self._revived = current.keys() & {trial.configuration for trial in retired}
        self._file.retire(stale)
        self._file.update(dataclasses.replace(self._file.state, stale=len(stale)))
        return current

    def end_verification(self, why_not: str, wanted: int) -> None:
        """Record why some of what is reported was run on no unseen input, or on fewer than wanted, if some was not.

        Args:
            why_not: why something was run on none.
            wanted: how many were wanted, where time is why it was fewer; else 0.
        """
        feasible = [trial for trial in self.result().reported if self.objective.is_feasible(trial)]
        is_missing = not all(trial.metric("unseen_inputs") > 0 for trial in feasible)
        unverified = why_not if is_missing else ""
        self._file.update(dataclasses.replace(self._file.state, unverified=unverified, verify_wanted=wanted))

    # -- time ----------------------------------------------------------------------------------

    @property
    def elapsed_s(self) -> float:
        """Wall time since the run began."""
        return time.monotonic() - self._start

    def left_s(self, share: float) -> float:
        """Return how much longer the verification may take if it is to have this share of the run, all its sessions.

        It also keeps to the time limit (:attr:`closing_s`).
        """
        spent_s = self.verifying.seconds
        others_s = self._wall_before_s + self.elapsed_s - spent_s
        return min(others_s * share / (1 - share) - spent_s, self.closing_s)

    @property
    def closing_s(self) -> float:
        """How much longer what follows the search may take beyond the least of it; infinite without a time limit."""
        if self._time_limit_s is None:
            return math.inf
        return (1 + _CLOSING_SHARE) * self._time_limit_s - self.elapsed_s

    @property
    def is_in_time(self) -> bool:
        """Whether evaluations may still begin."""
        return self._time_limit_s is None or self.elapsed_s < self._time_limit_s

    def spent(self) -> RunState:
        """Return how long the run took so far, what no trial accounts for, and the warnings of all its sessions."""
        wall_s = self._wall_before_s + self.elapsed_s
        search_s = self.searching.seconds
        return dataclasses.replace(
            self._file.state,
            wall_s=wall_s,
            prepare_s=self._prepare_s,
            search_s=search_s,
            verify_s=self.verifying.seconds,
            kernel_evaluations=self.kernel_evaluations,
            warnings=tuple(dict.fromkeys((*self._warned_before, *self._warn.said))),
        )

    def finish(self) -> Run:
        """Record that the run has come to its end, and return everything.

        What still holds this session has said, unless it measured nothing.
        """
        spent = self.spent()
        self._file.update(dataclasses.replace(spent, warnings=self._warn.said) if self.measured_here else spent)
        return self.result()
