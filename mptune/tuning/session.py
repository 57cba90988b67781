"""Sessions: configurations are asked for, evaluated, told and kept."""

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
from mptune.results.trial import Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.space.search_space import SearchSpace
from mptune.store import RunFile, RunState

#: Finals and verification may exceed the time limit by this share of it.
_CLOSING_SHARE: Final = 0.25


class Warnings:
    """Tells the user each warning once, at once; the run file keeps them."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.said: tuple[str, ...] = ()  #: in their order

    def __call__(self, message: str) -> None:
        """Tell a warning, unless this session has told it."""
        if message not in self.said:
            self.said += (message,)
            self._tell(message)


def warn_caller(message: str) -> None:
    """Warn as Python does, of the line outside this package that called."""
    package = str(Path(mptune.__file__).parent)
    own = itertools.takewhile(
        lambda entry: entry[0].f_code.co_filename.startswith(package), traceback.walk_stack(sys._getframe())
    )
    warnings.warn(message, stacklevel=len(list(own)) + 1)  # where tune was called


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a tuning run stands, reported after every trial."""

    phase: str  #: "baseline", "search" or, of a trial told before, "verification"
    trial: Trial  #: the latest
    run: Callable[[], Run]  #: returns everything so far
    budget: int  #: the most evaluations the run will make
    elapsed_s: float  #: wall time since the start
    replayed: bool  #: whether the trial comes from the run file
    ahead: tuple[Configuration, ...] = ()  #: are compiled, or being compiled, for the next evaluations


class Stopwatch:
    """Adds up the wall time of the blocks it is entered for, in seconds."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._started


class Session:
    """Evaluates configurations and judges their trials, which it has in the order in which they ended."""

    def __init__(self, evaluator: Evaluator, objective: Objective, searching: Stopwatch | None = None) -> None:
        self.evaluator = evaluator
        self.objective = objective
        self.trials: dict[Configuration, Trial] = {}
        self.best: Trial | None = None  #: None if none is feasible
        self.searching = searching or Stopwatch()  #: the time that the strategy takes

    def left(self, budget: int) -> int:
        """Return how many further trials there may be if the session is to have that many in all."""
        return max(0, budget - len(self.trials))

    def evaluate(
        self,
        budget: int,
        ask: Callable[[int], Sequence[Configuration]],
        tell: Callable[[Sequence[Trial]], None] = lambda _: None,
    ) -> None:
        """Evaluate what is asked for until there are that many trials, none may begin, or nothing is asked for.

        Trials that end while the strategy computes are told together, so a strategy that is slower than the devices
        is asked for several configurations at a time.
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
        """Judge a trial, and return it as judged."""
        trial = self.objective.judge(trial)
        # A trial that is measured again may have been the best.
        is_again = trial.configuration in self.trials
        self.trials[trial.configuration] = trial
        rivals = self.trials.values() if is_again else (*([self.best] if self.best else []), trial)
        self.best = self.objective.best(list(rivals))
        return trial

    def report(self, trials: Sequence[Trial]) -> None:
        """Report trials that have been told; nobody listens here."""


def still_stands(stored: Trial, evaluator: DeviceEvaluator, objective: Objective) -> bool:
    """Whether a stored trial counts, measured under the same conditions: it was timed if need be, and long enough."""
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
    """A session whose trials are committed to a run file, each before the next is asked for, and which keeps its time.

    It began at ``start`` by ``time.monotonic``; no evaluation begins ``time_limit_s`` later. ``on_progress`` is called
    with every trial, ``on_verification`` with every trial that has run on further unseen inputs.
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
        #: A launch of the fastest feasible trial in the baseline's types, in milliseconds.
        self._baseline_ms = math.inf

    # -- trials --------------------------------------------------------------------------------

    def take_over(self, space: SearchSpace) -> int:
        """Take over the stored trials that stand; return how many were measured under other conditions."""
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
        self.update(stale=len(stale))
        revived = {trial.configuration for trial in retired}
        for trial in current.values():
            self.keep(trial, None if trial.configuration in revived else trial)
        return sum(trial.configuration in outdated for trial in stored)

    def keep(self, trial: Trial, stored: Trial | None = None) -> Trial:
        """Judge a trial, commit it unless the run file has it as it is (``stored``), and return it."""
        trial = super().keep(trial)
        if trial != stored:
            self._file.add(trial, state=self.spent())
        if trial.configuration.is_among(self.fixed) and self.objective.is_feasible(trial) and trial.time_ms > 0:
            self._baseline_ms = min(self._baseline_ms, trial.time_ms)
        return trial

    def result(self) -> Run:
        """Return everything so far."""
        return Run(self._file.info, list(self.trials.values()), self._file.state)

    # -- evaluating ----------------------------------------------------------------------------

    def left(self, budget: int) -> int:
        """Return how many further trials there may be if the run is to have that many; 0 once the time is up."""
        return super().left(budget) if self.is_in_time else 0

    def _begin(self, asked: deque[Configuration], budget: int) -> None:
        evaluator = self.evaluator
        while asked and evaluator.under_way < min(evaluator.capacity, self.left(budget)):
            configuration = asked.popleft()
            self.measured_here = True
            in_baseline = self._has_other_types and configuration.is_among(self.fixed)
            # Every time matters where something else can win, and among baselines, which are slower than the best.
            is_race = self.objective.is_time and not self.objective.also and not in_baseline
            best_ms = self.best.time_ms if self.best is not None and is_race else math.inf
            evaluator.submit(configuration, best_ms, self._baseline_ms)

    def report(self, trials: Sequence[Trial], *, replayed: bool = False) -> None:
        """Report trials to the user."""
        for trial in trials:
            in_baseline = self._has_other_types and trial.configuration.is_among(self.fixed)
            self._on_progress(self._progress("baseline" if in_baseline else "search", trial, replayed=replayed))

    def report_verified(self, trial: Trial) -> None:
        """Report a trial that has run on further unseen inputs."""
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
        """How much longer finals and verification may take, beyond their least; infinite without a time limit."""
        return (1 + _CLOSING_SHARE) * self._time_limit_s - self.elapsed_s

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
            warnings=tuple(dict.fromkeys((*self._before.warnings, *self.warn.said))),
        )

    def finish(self) -> Run:
        """Record the end of the run, and return everything.

        A session that measured something replaces the warnings of earlier ones.
        """
        spent = self.spent()
        self._file.update(dataclasses.replace(spent, warnings=self.warn.said) if self.measured_here else spent)
        return self.result()
