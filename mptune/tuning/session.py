"""Sessions: configurations are proposed by a strategy, evaluated, reported to it and stored."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import mptune
from mptune.measure.base import Evaluator
from mptune.measure.device import DeviceEvaluator
from mptune.results.objective import Objective
from mptune.results.speedup import Finals
from mptune.results.trial import Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.space.search_space import SearchSpace
from mptune.store import RunFile, RunState

#: Maximum excess of finals and verification over the time limit, as a share of it.
_CLOSING_SHARE: Final = 0.25


class Warnings:
    """Passes each warning to the user once; the run file keeps them."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.said: tuple[str, ...] = ()

    def __call__(self, message: str) -> None:
        """Pass a warning on, unless it has been passed before."""
        if message not in self.said:
            self.said += (message,)
            self._tell(message)


def warn_caller(message: str) -> None:
    """Issue a Python warning at the line outside this package that called."""
    package = str(Path(mptune.__file__).parent)
    own = itertools.takewhile(
        lambda entry: entry[0].f_code.co_filename.startswith(package), traceback.walk_stack(sys._getframe())
    )
    warnings.warn(message, stacklevel=len(list(own)) + 1)  # where tune was called


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run, reported after every trial."""

    phase: str  #: "baseline", "search" or, for an earlier trial, "verification"
    trial: Trial  #: the latest
    run: Callable[[], Run]  #: returns the run so far
    budget: int  #: maximum evaluations of the run
    elapsed_s: float  #: wall time since the start
    replayed: bool  #: whether the trial comes from the run file
    ahead: tuple[Configuration, ...] = ()  #: compiled, or being compiled, for the next evaluations


class Stopwatch:
    """Adds up the wall time of ``with`` blocks, in seconds."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._started


class Session:
    """Evaluates configurations and judges their trials, in the order in which they end."""

    def __init__(self, evaluator: Evaluator, objective: Objective, searching: Stopwatch | None = None) -> None:
        self.evaluator = evaluator
        self.objective = objective
        self.trials: dict[Configuration, Trial] = {}
        self.best: Trial | None = None  #: None if no trial is feasible
        self.searching = searching or Stopwatch()  #: time of the strategy

    def left(self, budget: int) -> int:
        """Return the number of evaluations left of a budget."""
        return max(0, budget - len(self.trials))

    def evaluate(
        self,
        budget: int,
        ask: Callable[[int], Sequence[Configuration]],
        tell: Callable[[Sequence[Trial]], None] = lambda _: None,
    ) -> None:
        """Evaluate proposals until the budget is used up, no evaluation may begin, or there is no proposal.

        Trials that end while the strategy computes are reported in one batch, so that a strategy slower than the
        devices is asked for several configurations at a time.
        """
        evaluator, asked = self.evaluator, deque[Configuration]()
        while True:
            wanted = min(evaluator.lead, self.left(budget))
            if (missing := wanted - len(asked) - evaluator.under_way) > 0:
                with self.searching:
                    proposed = ask(missing)
                for configuration in proposed:
                    evaluator.prepare(configuration)
                asked += proposed
            self._begin(asked, budget)
            if not evaluator.under_way:
                return
            trials = []
            for trial in evaluator.finished():
                trials.append(self.keep(trial))  # noqa: PERF401 - one frame less to read
            if evaluator.may_overlap:
                self._begin(asked, budget)
            with self.searching:
                tell(trials)
            self.report(trials)

    def _begin(self, asked: deque[Configuration], budget: int) -> None:
        evaluator = self.evaluator
        while asked and evaluator.under_way < min(evaluator.capacity, self.left(budget)):
            evaluator.submit(asked.popleft())

    def keep(self, trial: Trial) -> Trial:
        """Judge and store a trial, and return it as judged."""
        trial = self.objective.judge(trial)
        # A repeated measurement may be that of the best trial.
        is_again = trial.configuration in self.trials
        self.trials[trial.configuration] = trial
        rivals = self.trials.values() if is_again else (*([self.best] if self.best else []), trial)
        self.best = self.objective.best(list(rivals))
        return trial

    def report(self, trials: Sequence[Trial]) -> None:
        """Report trials to the user; nothing by default."""


def still_stands(stored: Trial, evaluator: DeviceEvaluator, objective: Objective) -> bool:
    """Whether a stored trial of the same conditions is valid under the present objective and limits."""
    plan, limits = evaluator.plan, evaluator.limits
    if stored.status is Status.TIMEOUT:
        exceeded = stored.measurement.metrics
        is_of_launch = "limit_factor" in exceeded and math.isfinite(limits.launch_factor)
        limit, name = (limits.launch_factor, "limit_factor") if is_of_launch else (limits.run_s, "limit_s")
        if limit > exceeded.get(name, 0.0):
            return False
    is_untimed = stored.is_valid and math.isnan(stored.time_ms)
    is_time_wanted = not plan.error_limits or objective.error_excess(stored) <= 0
    return not (is_untimed and is_time_wanted)


class RunSession(Session):
    """A session with a time limit, whose trials are committed to a run file before the next proposal.

    No evaluation begins ``time_limit_s`` after ``start``, by ``time.monotonic``. ``on_progress`` is called with every
    trial, ``on_verification`` with every trial that has run on further unseen inputs.
    """

    evaluator: DeviceEvaluator

    def __init__(
        self,
        evaluator: DeviceEvaluator,
        file: RunFile,
        objective: Objective,
        *,
        start: float,
        time_limit_s: float | None,
        warn: Warnings,
        on_progress: Callable[[Progress], None] = lambda _: None,
        on_verification: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        super().__init__(evaluator, objective, Stopwatch(file.state.search_s))
        self.fixed = file.info.baseline_values or {}  #: values of the baseline's types
        self.finals = file.state.finals  #: under way; the file has the last complete ones
        parameters = file.info.parameters
        self._has_other_types = any({*p.values} - {*self.fixed[p.name]} for p in parameters if p.name in self.fixed)
        self._file = file
        self._start = start
        self._time_limit_s = math.inf if time_limit_s is None else time_limit_s
        self._on_progress = on_progress
        self._on_verification = on_verification
        self.warn = warn
        self._before = file.state
        self._prepare_s = file.state.prepare_s + time.monotonic() - start
        self.verifying = Stopwatch(file.state.verify_s)  #: on unseen inputs
        self.measured_here = False  #: whether this session measured anything
        self._baseline_ms = math.inf  #: of the fastest feasible trial in the baseline's types

    # -- trials --------------------------------------------------------------------------------

    def take_over(self, space: SearchSpace) -> int:
        """Take over the stored trials that are current; return the number measured under other conditions."""
        retired, stored = self._file.trials(stale=True), self._file.trials()
        current: dict[Configuration, Trial] = {}
        stale: list[Trial] = []
        outdated: set[Configuration] = set()
        for trial in (*retired, *stored):
            is_current = trial.configuration in space and trial.key == self.evaluator.key_of(trial.configuration)
            (outdated.discard if is_current else outdated.add)(trial.configuration)
            if is_current and still_stands(trial, self.evaluator, self.objective):
                current[trial.configuration] = trial
            else:
                stale.append(trial)
        self._file.retire(stale)
        if not set(self.finals.configurations) <= current.keys():  # of other conditions
            self.finals = Finals()
        self.update(stale=len(stale), finals=self.finals)
        revived = {trial.configuration for trial in retired}
        for trial in current.values():
            self.keep(trial, None if trial.configuration in revived else trial)
        return sum(trial.configuration in outdated for trial in stored)

    def keep(self, trial: Trial, stored: Trial | None = None) -> Trial:
        """Judge a trial, commit it unless it equals the ``stored`` trial, and return it."""
        trial = super().keep(trial)
        if trial != stored:
            self._file.add(trial, state=self.spent())
        if trial.configuration.is_among(self.fixed) and self.objective.is_feasible(trial) and trial.time_ms > 0:
            self._baseline_ms = min(self._baseline_ms, trial.time_ms)
        return trial

    def result(self) -> Run:
        """Return the run so far, with the finals under way."""
        state = dataclasses.replace(self._file.state, finals=self.finals)
        return Run(self._file.info, list(self.trials.values()), state)

    # -- evaluating ----------------------------------------------------------------------------

    def left(self, budget: int) -> int:
        """Return the number of evaluations left of a budget; 0 once the time is up."""
        return super().left(budget) if self.is_in_time else 0

    def _begin(self, asked: deque[Configuration], budget: int) -> None:
        evaluator = self.evaluator
        while asked and evaluator.under_way < min(evaluator.capacity, self.left(budget)):
            configuration = asked.popleft()
            self.measured_here = True
            in_baseline = self._has_other_types and configuration.is_among(self.fixed)
            # Slow trials are timed less only where time alone decides; baselines, slower than the best, are not cut.
            is_race = self.objective.is_time and not self.objective.also and not in_baseline
            best_ms = self.best.time_ms if self.best is not None and is_race else math.inf
            evaluator.submit(configuration, best_ms, self._baseline_ms)

    def report(self, trials: Sequence[Trial], *, replayed: bool = False) -> None:
        """Report trials to the user."""
        for trial in trials:
            in_baseline = self._has_other_types and trial.configuration.is_among(self.fixed)
            self._on_progress(self._progress("baseline" if in_baseline else "search", trial, replayed=replayed))

    def report_verified(self, trial: Trial) -> None:
        """Report a trial after further unseen inputs."""
        self._on_verification(self._progress("verification", trial))

    def _progress(self, phase: str, trial: Trial, *, replayed: bool = False) -> Progress:
        budget, ahead = self._file.info.budget or 0, self.evaluator.ahead
        return Progress(phase, trial, self.result, budget, self.elapsed_s, replayed, ahead)

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
        return self.elapsed_s < self._time_limit_s

    @property
    def closing_s(self) -> float:
        """Seconds left for finals and verification beyond their minimum; infinite without a time limit."""
        return (1 + _CLOSING_SHARE) * self._time_limit_s - self.elapsed_s

    def left_s(self, share: float) -> float:
        """Return the seconds left for the verification at this share of all sessions, within :attr:`closing_s`."""
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
            warnings=tuple(dict.fromkeys((*self._before.warnings, *self.warn.said))),
        )

    def finish(self, ended: str) -> Run:
        """Record why the run ended and return it; new measurements replace the warnings of earlier sessions."""
        spent = dataclasses.replace(self.spent(), ended=ended)
        self._file.update(dataclasses.replace(spent, warnings=self.warn.said) if self.measured_here else spent)
        return self.result()
