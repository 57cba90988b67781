"""The ask → evaluate → tell loop: baseline first, then the whole space, every trial committed before the next."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from mptune.errors import EmptySpaceError
from mptune.evaluators.device import DeviceEvaluator
from mptune.kernel import Kernel
from mptune.objective import Objective
from mptune.results import Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.space.search_space import SearchSpace
from mptune.store import RunFile
from mptune.strategies import make
from mptune.strategies.base import Strategy
from mptune.tuner.settings import Progress, TuneSettings

__all__ = ["NoFile", "Tuning"]


class NoFile:
    """Stands in for a run file where none is wanted."""

    def add(self, trial: Trial, phase: str = "search") -> None:
        """Keep nothing."""

    def trials(self) -> list[Trial]:
        """Return nothing."""
        return []

    def update(self, settings: Mapping[str, Any]) -> None:
        """Keep nothing."""

    def __enter__(self) -> NoFile:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""


class Tuning:
    """One run of the ask → evaluate → tell loop."""

    def __init__(
        self,
        kernel: Kernel,
        settings: TuneSettings,
        objective: Objective,
        space: SearchSpace,
        evaluator: DeviceEvaluator,
        file: RunFile | NoFile,
        described: Mapping[str, Any],
        on_progress: Callable[[Progress], None],
        start: float,
    ) -> None:
        self._kernel = kernel
        self._settings = settings
        self._objective = objective
        self._space = space
        self._evaluator = evaluator
        self._file = file
        self._described = dict(described)
        self._on_progress = on_progress
        self._stored = {trial.configuration: trial for trial in file.trials()}
        self._trials: dict[Configuration, Trial] = {}
        self._start = start
        self._wall_before_s = float(self._described.get("wall_s") or 0.0)

    def run(self) -> Run:
        """Search the baseline, then the space; return everything."""
        settings = self._settings
        baseline = self._search_baseline(max(1, round(settings.budget * settings.baseline_share)))
        if baseline is not None:
            self._objective = self._objective.with_baseline(self._objective.value(baseline))
        strategy = self._strategy(self._space)
        strategy.tell(list(self._trials.values()))
        self._loop(strategy, settings.budget, "search")
        run = self._result()
        self._file.update({"wall_s": run.settings["wall_s"]})
        return run

    def _search_baseline(self, budget: int) -> Trial | None:
        """Return the fastest valid configuration found among the all-fp64, accurate ones."""
        if self._settings.baseline_share == 0.0:
            return None
        try:
            space = self._space.restrict(self._kernel.baseline_values())
        except EmptySpaceError:
            return None
        self._loop(self._strategy(space), budget, "baseline")
        return self._result().baseline

    def _strategy(self, space: SearchSpace) -> Strategy:
        return make(
            self._settings.strategy,
            space,
            self._objective,
            signature=self._kernel.signature_names,
            seed=self._settings.seed,
            options=dict(self._settings.strategy_options),
        )

    def _loop(self, strategy: Strategy, budget: int, phase: str) -> None:
        while len(self._trials) < budget and not self._out_of_time():
            asked = strategy.ask(1)
            if not asked:
                return
            trial = self._replay(asked[0])
            replayed = trial is not None
            if trial is None:
                strategy.tell(self._take_leftovers())
                trial = self._judge(next(iter(self._evaluator.evaluate(asked))))
                self._file.add(trial, phase)
            self._trials[trial.configuration] = trial
            strategy.tell([trial])
            elapsed_s = time.monotonic() - self._start
            self._on_progress(Progress(phase, trial, self._result, self._settings.budget, elapsed_s, replayed))

    def _replay(self, configuration: Configuration) -> Trial | None:
        """Return the stored trial of a configuration, if it was measured under the present conditions."""
        stored = self._stored.get(configuration)
        if stored is None or stored.key != self._evaluator.key_of(configuration):
            return None
        del self._stored[configuration]
        self._evaluator.remember(stored)
        return self._judge(stored)

    def _take_leftovers(self) -> list[Trial]:
        """Return stored trials a differently set up strategy did not ask for; they are as good as its own."""
        leftovers = [self._replay(configuration) for configuration in list(self._stored)]
        self._stored.clear()
        found = [trial for trial in leftovers if trial is not None]
        self._trials.update({trial.configuration: trial for trial in found})
        return found

    def _judge(self, trial: Trial) -> Trial:
        """Give a valid trial its status under the threshold."""
        if not trial.is_valid:
            return trial
        if self._objective.is_feasible(trial):
            return dataclasses.replace(trial, status=Status.OK, message="")
        message = f"error {trial.error:.3g} is above the threshold"
        return dataclasses.replace(trial, status=Status.INACCURATE, message=message)

    def _out_of_time(self) -> bool:
        limit_s = self._settings.time_limit_s
        return limit_s is not None and time.monotonic() - self._start >= limit_s

    def _wall_s(self) -> float:
        return self._wall_before_s + time.monotonic() - self._start

    def _result(self) -> Run:
        return Run({**self._described, "wall_s": self._wall_s()}, list(self._trials.values()))
