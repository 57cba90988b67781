"""The ask → evaluate → tell loop: baseline first, then the whole space, every trial committed before the next."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from mptune.errors import EmptySpaceError
from mptune.evaluators.device import DeviceEvaluator
from mptune.evaluators.timing import BEATEN_FACTOR
from mptune.kernel import Kernel
from mptune.objective import Objective
from mptune.precision import PRECISIONS, Precision, precision
from mptune.results import Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration, Value
from mptune.space.parameters import PrecisionParameter
from mptune.space.search_space import SearchSpace
from mptune.store import RunFile
from mptune.strategies import make
from mptune.strategies.base import Strategy
from mptune.tuner.finalists import finalists, rounds_within
from mptune.tuner.settings import Progress, TuneSettings

__all__ = ["NoFile", "Tuning", "uniform_types"]

#: How often finalists are chosen anew, because those measured again turned out slower than others.
_SETTLING: Final = 10
#: Share of the run's wall time that may add.
_SETTLING_SHARE: Final = 0.1


def _bits(entry: Precision) -> int:
    return entry.significand_bits


def uniform_types(kernel: Kernel) -> list[dict[str, Value]]:
    """Return, for each precision below the widest, the values that give it to every precision parameter.

    A parameter without that precision has the narrowest of its wider ones, or its widest. Widest first.
    """
    parameters = [p for p in kernel.parameters if isinstance(p, PrecisionParameter)]
    values = {p.name: [precision(str(v)) for v in p.values] for p in parameters}
    found: list[dict[str, Value]] = []
    for level in PRECISIONS.values():
        types: dict[str, Value] = {}
        for name, offered in values.items():
            wide_enough = [p for p in offered if p.significand_bits >= level.significand_bits]
            nearest = min(wide_enough, key=_bits) if wide_enough else max(offered, key=_bits)
            types[name] = nearest.name
        if level.name in types.values() and types not in found:
            found.append(types)
    return found


class NoFile:
    """Stands in for a run file where none is wanted."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = dict(settings)

    def add(self, trial: Trial, phase: str = "search", settings: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        """Keep the settings for as long as the run takes."""
        self.update(settings or {})

    def retire(self, trials: Sequence[Trial]) -> None:
        """Keep nothing."""

    def trials(self, phase: str | None = None) -> list[Trial]:  # noqa: ARG002 - as a run file has it
        """Return nothing."""
        return []

    def update(self, settings: Mapping[str, Any]) -> None:
        """Keep the settings for as long as the run takes."""
        self.settings.update(settings)

    def __enter__(self) -> NoFile:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""


class Tuning:
    """One run of the ask → evaluate → tell loop.

    Args:
        kernel: the kernel.
        settings: how to tune.
        objective: scores trials.
        space: the valid configurations.
        evaluator: turns configurations into trials.
        file: keeps every trial; those it has already are not evaluated again.
        on_progress: told about every trial.
        start: when the run began, by ``time.monotonic``.
    """

    def __init__(
        self,
        kernel: Kernel,
        settings: TuneSettings,
        objective: Objective,
        space: SearchSpace,
        evaluator: DeviceEvaluator,
        file: RunFile | NoFile,
        on_progress: Callable[[Progress], None],
        start: float,
    ) -> None:
        self._kernel = kernel
        self._settings = settings
        self._objective = objective
        self._space = space
        self._evaluator = evaluator
        self._file = file
        self._on_progress = on_progress
        self._start = start
        self._wall_before_s = float(file.settings["wall_s"])
        self._prepare_s = float(file.settings.get("prepare_s", 0.0)) + time.monotonic() - start
        self._search_s = float(file.settings.get("search_s", 0.0))
        self._trials: dict[Configuration, Trial] = {}
        self._phases: dict[Configuration, str] = {}
        self._measured_here = False
        self._stored = self._read_stored()

    def run(self) -> Run:
        """Search the baseline, then the space, then the winners' own baselines; return everything."""
        budget = self._settings.budget
        share = max(1, round(budget * self._settings.baseline_share)) if self._settings.baseline_share else 0
        # A third of the share is kept for the end, when it is known which configurations are fast.
        kept = share // 3
        self._search_baseline(share - kept)
        if share:
            self._narrow_baseline(budget - kept)
        strategy = self._strategy(self._space)
        strategy.tell(list(self._trials.values()))
        self._search(strategy, budget - kept, "search")
        self._confirm_baseline(budget)
        strategy.tell(list(self._trials.values()))
        self._search(strategy, budget, "search")
        # A smaller budget or a time limit may have ended the run before it came to them.
        self._take_leftovers()
        self._settle()
        self._file.update(self._spent())
        return self._result()

    # -- phases --------------------------------------------------------------------------------

    def _search_baseline(self, budget: int) -> None:
        """Search among the all-fp64, accurate configurations, and measure speedup against the fastest."""
        try:
            space = self._space.restrict(self._kernel.baseline_values())
        except EmptySpaceError:
            return
        self._search(self._strategy(space), budget, "baseline")
        baseline = self._result().baseline
        if baseline is not None:
            self._objective = self._objective.with_baseline(self._objective.value(baseline))

    def _narrow_baseline(self, budget: int) -> None:
        """Give the baseline every narrower type at once: the marks any mixture of types is to be seen against."""
        baseline = self._result().baseline
        if baseline is None:
            return
        siblings = [Configuration({**baseline.configuration, **types}) for types in uniform_types(self._kernel)]
        untried = [c for c in siblings if c not in self._trials and c in self._space]
        for i, configuration in enumerate(untried):
            if not self._may_evaluate(configuration, budget):
                return
            for following in untried[i : i + self._evaluator.lead]:
                if following not in self._stored:
                    self._evaluator.prepare(following)
            self._evaluate(configuration, "search")

    def _confirm_baseline(self, budget: int) -> None:
        """Give the fastest configurations the baseline's types, so that their speedup is not the tuning's alone."""
        types = {name: values[0] for name, values in self._kernel.baseline_values().items()}
        while self._may_go_on(budget):
            performance = {t.configuration: self._objective.performance(t) for t in self._trials.values()}
            timed = [configuration for configuration, value in performance.items() if not math.isnan(value)]
            fastest = sorted(timed, key=performance.__getitem__, reverse=True)
            siblings = (Configuration({**configuration, **types}) for configuration in fastest)
            untried = (c for c in siblings if c not in self._trials and c in self._space)
            configuration = next(untried, None)
            if configuration is None or not self._may_evaluate(configuration, budget):
                return
            self._evaluate(configuration, "baseline")

    def _search(self, strategy: Strategy, budget: int, phase: str) -> None:
        """Ask and tell until the budget is used; the configurations asked for next are compiled meanwhile."""
        asked: deque[Configuration] = deque()
        while self._may_go_on(budget):
            while len(asked) < min(self._evaluator.lead, budget - len(self._trials)):
                with self._searching():
                    proposed = strategy.ask(1)
                if not proposed:
                    break
                asked += proposed
                if proposed[0] not in self._stored:
                    self._evaluator.prepare(proposed[0])
            if asked and asked[0] not in self._stored:
                strategy.tell(self._take_leftovers(asked))
            if not asked or not self._may_evaluate(asked[0], budget):
                return
            trial = self._evaluate(asked.popleft(), phase)
            with self._searching():
                strategy.tell([trial])

    def _settle(self) -> None:
        """Measure again in turn what can be the best or the baseline, until both have been."""
        if not self._measured_here:
            return
        settled: set[Configuration] = set()
        until = time.monotonic() + _SETTLING_SHARE * (time.monotonic() - self._start)
        for _ in range(_SETTLING):
            run = self._result()
            last = finalists(run, self._objective, self._kernel.baseline_values())
            rounds = rounds_within(last, until - time.monotonic())
            deciding = {trial.configuration for trial in (run.best, run.baseline) if trial is not None}
            if not last or not rounds or deciding <= settled:
                return
            for trial in self._evaluator.remeasure(last, rounds):
                if trial.is_valid:
                    self._keep(self._objective.judge(trial), self._phases[trial.configuration], None)
            settled.update(trial.configuration for trial in last)

    def _strategy(self, space: SearchSpace) -> Strategy:
        return make(
            self._settings.strategy,
            space,
            self._objective,
            signature=self._kernel.signature_names,
            seed=self._settings.seed,
            options=dict(self._settings.strategy_options),
        )

    # -- trials --------------------------------------------------------------------------------

    def _evaluate(self, configuration: Configuration, phase: str) -> Trial:
        """Return the trial of a configuration, from the run file if it is there, and tell of it."""
        stored = self._stored.pop(configuration, None)
        trial = stored
        if trial is None:
            self._measured_here = True
            limit_ms = math.inf if phase == "baseline" else self._beaten_above_ms()
            trial = next(iter(self._evaluator.evaluate([configuration], limit_ms)))
        else:
            self._evaluator.remember(trial)
        trial = self._keep(self._objective.judge(trial), phase, stored)
        elapsed_s = time.monotonic() - self._start
        self._on_progress(Progress(phase, trial, self._result, self._settings.budget, elapsed_s, stored is not None))
        return trial

    def _beaten_above_ms(self) -> float:
        """Return the time above which a configuration is clearly beaten, in milliseconds."""
        if self._objective.metric != "time_ms" or not self._objective.minimise:
            return math.inf
        best = self._objective.best(list(self._trials.values()))
        return math.inf if best is None else BEATEN_FACTOR * best.time_ms

    def _keep(self, trial: Trial, phase: str, stored: Trial | None) -> Trial:
        if trial != stored or trial.configuration in self._revived:
            self._file.add(trial, phase, self._spent())
        self._trials[trial.configuration] = trial
        self._phases[trial.configuration] = phase
        return trial

    def _read_stored(self) -> dict[Configuration, Trial]:
        """Return the stored trials measured under the present conditions; set the others aside."""
        current, stale = {}, []
        retired = self._file.trials("stale")
        for trial in (*retired, *self._file.trials()):
            same_space = trial.configuration in self._space
            same_key = same_space and trial.key == self._evaluator.key_of(trial.configuration)
            if same_key and not self._has_more_time(trial) and not self._lacks_time(trial):
                current[trial.configuration] = trial
            else:
                stale.append(trial)
        measured = [t for t in current.values() if t.is_valid and not t.measurement.reused_error]
        unbacked = [t for t in current.values() if t.measurement.reused_error and not self._is_backed(t, measured)]
        stale += [current.pop(trial.configuration) for trial in unbacked]
        self._revived = current.keys() & {trial.configuration for trial in retired}
        self._file.retire(stale)
        self._file.update({"stale": len(stale)})
        return current

    def _has_more_time(self, trial: Trial) -> bool:
        """Whether a trial ran out of a time that is longer now."""
        limit_s = trial.measurement.metrics.get("limit_s", 0.0)
        return trial.status is Status.TIMEOUT and self._settings.limits.run_s > limit_s

    def _lacks_time(self, trial: Trial) -> bool:
        """Whether a trial was not timed under a threshold or penalty that did not need it, and is now."""
        if not trial.is_valid or not math.isnan(trial.time_ms):
            return False
        return not self._objective.error_limits or self._objective.error_excess(trial) <= 0

    def _is_backed(self, trial: Trial, measured: Sequence[Trial]) -> bool:
        """Whether a trial whose error was never measured on it still cannot win by that error."""
        if math.isnan(trial.time_ms):
            return True
        return self._evaluator.reuses_errors and any(
            other.time_ms <= trial.time_ms and other.error <= trial.error for other in measured
        )

    def _take_leftovers(self, asked: Collection[Configuration] = ()) -> list[Trial]:
        """Return stored trials a differently set up strategy did not ask for; they are as good as its own."""
        leftovers = []
        for configuration in [c for c in self._stored if c not in asked]:
            stored = self._stored.pop(configuration)
            trial = self._keep(self._objective.judge(stored), "search", stored)
            self._evaluator.remember(trial)
            leftovers.append(trial)
        return leftovers

    def _may_evaluate(self, configuration: Configuration, budget: int) -> bool:
        """Whether a configuration may be evaluated: what is stored counts against the budget before what is not."""
        return self._may_go_on(budget if configuration in self._stored else budget - len(self._stored))

    def _may_go_on(self, budget: int) -> bool:
        limit_s = self._settings.time_limit_s
        in_time = limit_s is None or time.monotonic() - self._start < limit_s
        return in_time and len(self._trials) < budget

    @contextlib.contextmanager
    def _searching(self) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self._search_s += time.monotonic() - start

    def _spent(self) -> dict[str, float]:
        """Return how long the run took so far, and what no trial accounts for."""
        wall_s = self._wall_before_s + time.monotonic() - self._start
        return {"wall_s": wall_s, "prepare_s": self._prepare_s, "search_s": self._search_s}

    def _result(self) -> Run:
        return Run(self._file.settings, list(self._trials.values()))
