"""The ask → evaluate → tell loop: baseline first, then the whole space, every trial committed as it ends."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from mptune.errors import EmptySpaceError
from mptune.evaluators.device import DeviceEvaluator
from mptune.kernel import Kernel, Sizes
from mptune.loop import ask_and_tell
from mptune.objective import Objective
from mptune.results import Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.space.parameters import uniform_types
from mptune.space.search_space import SearchSpace
from mptune.store import RunStore
from mptune.strategies import make
from mptune.strategies.base import Strategy
from mptune.tuner.finalists import finalists, rounds_within
from mptune.tuner.footprints import footprints
from mptune.tuner.ledger import Ledger
from mptune.tuner.settings import Progress, TuneSettings

__all__ = ["Tuning"]

#: How often finalists are chosen anew, because those measured again turned out slower than others.
_SETTLING: Final = 10
#: Share of the run's wall time that may add.
_SETTLING_SHARE: Final = 0.1


class Tuning:
    """One run of the ask → evaluate → tell loop.

    Args:
        kernel: the kernel.
        sizes: its sizes.
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
        sizes: Sizes,
        settings: TuneSettings,
        objective: Objective,
        space: SearchSpace,
        evaluator: DeviceEvaluator,
        file: RunStore,
        on_progress: Callable[[Progress], None],
        start: float,
    ) -> None:
        self._kernel = kernel
        self._sizes = sizes
        self._settings = settings
        self._space = space
        self._evaluator = evaluator
        self._file = file
        self._on_progress = on_progress
        self._ledger = Ledger(objective, space, evaluator, file, settings, start)

    def run(self) -> Run:
        """Search the baseline, then the space, then the winners' own baselines; return everything."""
        ledger = self._ledger
        budget = self._settings.budget
        share = max(1, round(budget * self._settings.baseline_share)) if self._settings.baseline_share else 0
        # A third of the share is kept for the end, when it is known which configurations are fast.
        kept = share // 3
        self._search_baseline(share - kept)
        if share:
            self._narrow_baseline(budget - kept)
        strategy = self._strategy(self._space)
        strategy.tell(list(ledger.trials.values()))
        self._evaluate("search", budget - kept, strategy.ask, strategy.tell)
        self._confirm_baseline(budget)
        strategy.tell(list(ledger.trials.values()))
        self._evaluate("search", budget, strategy.ask, strategy.tell)
        # A smaller budget or a time limit may have ended the run before it came to them.
        ledger.take_leftovers()
        self._settle()
        self._file.update(ledger.spent())
        return ledger.result()

    def _search_baseline(self, budget: int) -> None:
        """Search among the all-fp64, accurate configurations, and measure speedup against the fastest."""
        try:
            space = self._space.restrict(self._kernel.baseline_values())
        except EmptySpaceError:
            return
        strategy = self._strategy(space)
        self._evaluate("baseline", budget, strategy.ask, strategy.tell)
        baseline = self._ledger.result().baseline
        if baseline is not None:
            objective = self._ledger.objective
            self._ledger.objective = objective.with_baseline(objective.value(baseline))

    def _narrow_baseline(self, budget: int) -> None:
        """Give the baseline every narrower type at once: the marks any mixture of types is to be seen against."""
        baseline = self._ledger.result().baseline
        if baseline is None:
            return
        uniform = uniform_types(self._kernel.parameters).values()
        siblings = [Configuration({**baseline.configuration, **types}) for types in uniform]
        untried = iter([c for c in siblings if c not in self._ledger.trials and c in self._space])
        self._evaluate("search", budget, lambda n: list(islice(untried, n)))

    def _confirm_baseline(self, budget: int) -> None:
        """Give the fastest configurations the baseline's types, so that their speedup is not the tuning's alone."""
        types = {name: values[0] for name, values in self._kernel.baseline_values().items()}
        asked: set[Configuration] = set()

        def siblings() -> Iterator[Configuration]:
            objective, trials = self._ledger.objective, self._ledger.trials
            performance = {t.configuration: objective.performance(t) for t in trials.values()}
            timed = [configuration for configuration, value in performance.items() if not math.isnan(value)]
            for configuration in sorted(timed, key=performance.__getitem__, reverse=True):
                sibling = Configuration({**configuration, **types})
                if sibling not in trials and sibling not in asked and sibling in self._space:
                    asked.add(sibling)
                    yield sibling

        # No further ahead than devices are free: which are the fastest changes with every trial.
        self._evaluate("baseline", budget, lambda n: list(islice(siblings(), n)), lead=self._evaluator.capacity)

    def _evaluate(
        self,
        phase: str,
        budget: int,
        ask: Callable[[int], Sequence[Configuration]],
        tell: Callable[[Sequence[Trial]], None] | None = None,
        lead: int | None = None,
    ) -> None:
        """Evaluate what ``ask`` gives until the run has so many trials, and report each.

        Stored trials nobody asked for are taken over as soon as something new is asked for, if anybody is told.
        """
        ledger, settings = self._ledger, self._settings
        ledger.begin_phase(phase, budget, adopts=tell is not None)
        for trials in ask_and_tell(
            ledger, ask, tell or _tell_nobody, ledger.remaining, thinking=ledger.searching, lead=lead
        ):
            for trial in trials:
                is_replay, ahead = trial.configuration in ledger.replayed, self._evaluator.ahead
                self._on_progress(
                    Progress(phase, trial, ledger.result, settings.budget, ledger.elapsed_s, is_replay, ahead)
                )

    def _settle(self) -> None:
        """Measure again in turn what can be the best, on the front or the baseline, until all of it has been."""
        ledger = self._ledger
        if not ledger.measured_here:
            return
        settled: set[Configuration] = set()
        until = time.monotonic() + _SETTLING_SHARE * ledger.elapsed_s
        for _ in range(_SETTLING):
            run = ledger.result()
            last = finalists(run, ledger.objective, self._kernel.baseline_values())
            rounds = rounds_within(last, until - time.monotonic())
            if not last or not rounds or {trial.configuration for trial in _deciding(run)} <= settled:
                break
            self._measure_again(last, rounds)
            settled.update(trial.configuration for trial in last)
        # The last times may have put another one on top whose error was its signature's; that has no limit of time.
        checks = self._evaluator.policy.checks_before_report
        while unsure := [t for t in _deciding(ledger.result()) if checks(t) and t.configuration not in settled]:
            self._measure_again(unsure, 1)
            settled.update(trial.configuration for trial in unsure)

    def _measure_again(self, trials: Sequence[Trial], rounds: int) -> None:
        for trial in self._evaluator.remeasure(trials, rounds):
            if trial.is_valid:
                self._ledger.keep(trial, self._ledger.phases[trial.configuration])

    def _strategy(self, space: SearchSpace) -> Strategy:
        return make(
            self._settings.strategy,
            space,
            self._ledger.objective,
            signature=self._kernel.signature_names,
            seed=self._settings.seed,
            options=dict(self._settings.strategy_options),
            known={"memory_bytes": footprints(self._kernel, self._sizes, space)},
        )


def _tell_nobody(trials: Sequence[Trial]) -> None:
    """Evaluate without a strategy."""


def _deciding(run: Run) -> list[Trial]:
    """Return what is reported: the best, the front and the baseline."""
    return [trial for trial in (run.best, run.baseline, *run.front) if trial is not None]
