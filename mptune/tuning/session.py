"""A run under way: it evaluates configurations, judges and commits their trials, and keeps its time."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from mptune.measure.device import DeviceEvaluator
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.space.search_space import SearchSpace
from mptune.store import RunFile, RunState
from mptune.tuning.loop import Stopwatch
from mptune.tuning.plan import TuningPlan
from mptune.tuning.settings import Progress

__all__ = ["Session", "Warnings"]

#: Finals and verification may exceed the time limit by this share of it.
_CLOSING_SHARE: Final = 0.25


class Warnings:
    """Tells the user each warning once, at once; the run file keeps them."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._said: dict[str, None] = {}

    def __call__(self, message: str) -> None:
        """Tell a warning, unless this session has told it."""
        if message not in self._said:
            self._said[message] = None
            self._tell(message)

    @property
    def said(self) -> tuple[str, ...]:
        """All warnings of this session, in their order."""
        return tuple(self._said)


class Session:
    """Evaluates configurations on devices and commits each trial to the run file before the next is asked for.

    Stored trials of the run file that are still valid are trials of the session from the beginning.

    Args:
        plan: what is tuned, and how.
        space: the valid configurations.
        evaluator: measures.
        file: has the stored trials, and takes new ones.
        start: when the run began, by ``time.monotonic``.
        on_progress: called with every trial.
        warn: told what the user should know.

    Attributes:
        objective: judges trials; replaced by one with a baseline once there is one.
        trials: by configuration, in the order in which they ended.
        searching: time in the strategies.
        verifying: time of the verification on unseen inputs.
        measured_here: whether anything was measured in this session.
        outdated: stored trials that were measured under other conditions, and are set aside.
    """

    def __init__(
        self,
        plan: TuningPlan,
        space: SearchSpace,
        evaluator: DeviceEvaluator,
        file: RunFile,
        start: float,
        on_progress: Callable[[Progress], None],
        warn: Warnings,
    ) -> None:
        self.objective = plan.objective
        self.fixed = plan.kernel.baseline_values()
        #: Whether there are other types than the baseline's.
        self._has_others = any({*space.parameter(n).values} - {*self.fixed[n]} for n in self.fixed)
        self._settings = plan.settings
        self._evaluator = evaluator
        self._file = file
        self._start = start
        self._on_progress = on_progress
        self._warn = warn
        self._before = file.state
        self._prepare_s = file.state.prepare_s + time.monotonic() - start
        self.searching = Stopwatch(file.state.search_s)
        self.verifying = Stopwatch(file.state.verify_s)
        self.trials: dict[Configuration, Trial] = {}
        self.measured_here = False
        self.outdated = 0
        self._best: Trial | None = None
        #: A launch of the fastest feasible trial in the baseline's types, in milliseconds.
        self._baseline_ms = math.inf
        self._adopt_stored(space)

    # -- trials --------------------------------------------------------------------------------

    def _adopt_stored(self, space: SearchSpace) -> None:
        """Take over the stored trials that stand, and set the others aside."""
        retired, stored = self._file.trials(stale=True), self._file.trials()
        current: dict[Configuration, Trial] = {}
        stale: list[Trial] = []
        outdated: set[Configuration] = set()
        for trial in (*retired, *stored):
            is_current = trial.configuration in space and trial.key == self._evaluator.key_of(trial.configuration)
            (outdated.discard if is_current else outdated.add)(trial.configuration)
            if self._evaluator.policy.keeps(trial, is_current=is_current):
                current[trial.configuration] = trial
            else:
                stale.append(trial)
        self.outdated = sum(trial.configuration in outdated for trial in stored)
        self._file.retire(stale)
        self._file.update(dataclasses.replace(self._file.state, stale=len(stale)))
        revived = {trial.configuration for trial in retired}
        for trial in current.values():
            self.keep(trial, None if trial.configuration in revived else trial)

    def keep(self, trial: Trial, stored: Trial | None = None) -> Trial:
        """Judge a trial, commit it unless the run file has it as it is (``stored``), and return it."""
        trial = self.objective.judge(trial)
        if trial != stored:
            self._file.add(trial, state=self.spent())
        # A trial that is measured again may have been the best.
        is_again = trial.configuration in self.trials
        self.trials[trial.configuration] = trial
        rivals = self.trials.values() if is_again else (*([self._best] if self._best else []), trial)
        self._best = self.objective.best(list(rivals))
        if trial.configuration.is_among(self.fixed) and self.objective.is_feasible(trial) and trial.time_ms > 0:
            self._baseline_ms = min(self._baseline_ms, trial.time_ms)
        return trial

    def phase_of(self, configuration: Configuration) -> str:
        """Return "baseline" for configurations in the baseline's types, if there are other types, and else "search"."""
        return "baseline" if self._has_others and configuration.is_among(self.fixed) else "search"

    def result(self) -> Run:
        """Return everything so far."""
        return Run(self._file.info, list(self.trials.values()), self._file.state)

    # -- evaluating ----------------------------------------------------------------------------

    def report(self, trials: Sequence[Trial], *, replayed: bool = False) -> None:
        """Report trials to the user."""
        for trial in trials:
            phase, budget, ahead = self.phase_of(trial.configuration), self._settings.budget, self._evaluator.ahead
            self._on_progress(Progress(phase, trial, self.result, budget, self.elapsed_s, replayed, ahead))

    def left(self, budget: int) -> int:
        """Return how many evaluations there may be until the run has that many; 0 once the time is up."""
        return max(0, budget - len(self.trials)) if self.is_in_time else 0

    def evaluate(
        self,
        budget: int,
        ask: Callable[[int], Sequence[Configuration]],
        tell: Callable[[Sequence[Trial]], None] = lambda _: None,
        *,
        ahead: bool = True,
    ) -> None:
        """Evaluate what is asked for until the run has that many trials, the time is up, or nothing is asked for.

        Args:
            budget: trials that the run has at the end, at most.
            ask: returns up to so many configurations.
            tell: takes in trials.
            ahead: whether to ask for more than devices can take, so that compilers run ahead.
        """
        evaluator, asked = self._evaluator, deque[Configuration]()

        def begin() -> None:
            while asked and evaluator.under_way < min(evaluator.capacity, self.left(budget)):
                configuration = asked.popleft()
                in_baseline = self.phase_of(configuration) == "baseline"
                self.measured_here = True
                best_ms = evaluator.policy.time_to_beat(self._best, in_baseline=in_baseline)
                evaluator.submit(configuration, best_ms, self._baseline_ms)

        while True:
            wanted = min(evaluator.lead if ahead else evaluator.capacity, self.left(budget))
            if (missing := wanted - len(asked) - evaluator.under_way) > 0:
                with self.searching:
                    proposed = ask(missing)
                for configuration in proposed:
                    evaluator.prepare(configuration)
                asked += proposed
            begin()
            if not evaluator.under_way:
                return
            trials = []
            for trial in evaluator.finished():
                trials.append(self.keep(trial))  # noqa: PERF401 - one frame less to read
            if evaluator.may_overlap:
                begin()
            with self.searching:
                tell(trials)
            self.report(trials)

    # -- time and state ------------------------------------------------------------------------

    def update(self, **changes: object) -> None:
        """Change fields of the state that the run file keeps."""
        self._file.update(dataclasses.replace(self._file.state, **changes))  # type: ignore[arg-type]

    @property
    def state(self) -> RunState:
        """The state that the run file keeps."""
        return self._file.state

    @property
    def elapsed_s(self) -> float:
        """Wall time since the run began."""
        return time.monotonic() - self._start

    @property
    def is_in_time(self) -> bool:
        """Whether evaluations may still begin."""
        limit_s = self._settings.time_limit_s
        return limit_s is None or self.elapsed_s < limit_s

    @property
    def closing_s(self) -> float:
        """How much longer finals and verification may take, beyond their least; infinite without a time limit."""
        limit_s = self._settings.time_limit_s
        return math.inf if limit_s is None else (1 + _CLOSING_SHARE) * limit_s - self.elapsed_s

    def left_s(self, share: float) -> float:
        """Return how much longer the verification may take if it is to have this share of the run.

        All sessions of the run count. The time limit holds, too (:attr:`closing_s`).
        """
        spent_s = self.verifying.seconds
        others_s = self._before.wall_s + self.elapsed_s - spent_s
        return min(others_s * share / (1 - share) - spent_s, self.closing_s)

    def spent(self) -> RunState:
        """Return the state with the times and warnings of all sessions so far."""
        return dataclasses.replace(
            self._file.state,
            wall_s=self._before.wall_s + self.elapsed_s,
            prepare_s=self._prepare_s,
            search_s=self.searching.seconds,
            verify_s=self.verifying.seconds,
            warnings=tuple(dict.fromkeys((*self._before.warnings, *self._warn.said))),
        )

    def end_verification(self, why_not: str, wanted: int) -> None:
        """Record why a reported trial was verified on fewer unseen inputs than requested.

        Args:
            why_not: why a trial ran on none.
            wanted: the number requested, where time is why some trial ran on fewer; else 0.
        """
        feasible = [trial for trial in self.result().reported if self.objective.is_feasible(trial)]
        is_missing = not all(trial.metric("unseen_inputs") > 0 for trial in feasible)
        self.update(unverified=why_not if is_missing else "", verify_wanted=wanted)

    def finish(self) -> Run:
        """Record the end of the run, and return everything.

        A session that measured something replaces the warnings of earlier ones.
        """
        spent = self.spent()
        self._file.update(dataclasses.replace(spent, warnings=self._warn.said) if self.measured_here else spent)
        return self.result()
