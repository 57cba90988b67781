"""A phase of a run: the search for the baseline, or for the best."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from mptune.evaluators.device import DeviceEvaluator
from mptune.results import Trial
from mptune.space.configuration import Configuration
from mptune.strategies.base import Strategy
from mptune.tuner.asynchronous import AskAndTell
from mptune.tuner.ledger import Ledger
from mptune.tuner.settings import Progress

__all__ = ["Phase"]


class Phase(AskAndTell):
    """Evaluates what it gets by asking until the run has so many trials, those of the run file first among them.

    Args:
        ledger: has the trials so far and takes in all others.
        evaluator: turns configurations into trials.
        on_progress: told about every trial.
        name: "baseline" or "search".
        budget: trials the run has at its end, at most.
        ask: gives up to so many configurations.
        strategy: told about every trial, stored ones that are not asked for among them; None if nobody is.
        lead: how many to have asked for and not told; by default what is worth preparing.
    """

    def __init__(
        self,
        ledger: Ledger,
        evaluator: DeviceEvaluator,
        on_progress: Callable[[Progress], None],
        name: str,
        budget: int,
        ask: Callable[[int], Sequence[Configuration]],
        strategy: Strategy | None = None,
        lead: int | None = None,
    ) -> None:
        self._ledger = ledger
        self._evaluator = evaluator
        self._on_progress = on_progress
        self._name = name
        self._budget = budget
        self._ask = ask
        self._strategy = strategy
        self._lead = lead
        self._replayed: list[Trial] = []

    @property
    def capacity(self) -> int:
        """How many trials may be under way now."""
        return self._evaluator.capacity

    @property
    def may_overlap(self) -> bool:
        """Whether devices are not disturbed by what the strategy computes."""
        return self._evaluator.is_apart

    @property
    def wanted(self) -> int:
        """How many configurations to have asked for and not told, at most."""
        if not self._ledger.is_in_time:
            return 0
        lead = self._evaluator.lead if self._lead is None else self._lead
        return min(lead, self._budget - len(self._ledger.trials))

    def ask(self, n: int) -> Sequence[Configuration]:
        """Return up to ``n`` configurations, and begin to compile them."""
        with self._ledger.searching():
            proposed = self._ask(n)
        for configuration in proposed:
            if configuration not in self._ledger.stored:
                self._evaluator.prepare(configuration)
        return proposed

    def may_begin(self, configuration: Configuration, under_way: int) -> bool:
        """Whether time and budget allow it: what is stored counts against the budget before what is not."""
        stored = self._ledger.stored
        limit = self._budget if configuration in stored else self._budget - len(stored)
        return self._ledger.is_in_time and len(self._ledger.trials) + under_way < limit

    def begin(self, configuration: Configuration, following: Collection[Configuration]) -> None:
        """Submit a configuration, or take its trial from the run file."""
        stored = self._ledger.stored.get(configuration)
        if stored is not None:
            self._replayed.append(self._ledger.replay(stored, self._name))
            return
        if self._strategy is not None:
            self.tell(self._ledger.leftovers(following))
        self._ledger.measured_here = True
        self._evaluator.submit(configuration, self._ledger.best_ms(self._name))

    def finish(self) -> Sequence[Trial]:
        """Wait for a trial, commit it and all others that have ended, and tell of them."""
        is_replay = bool(self._replayed)
        if is_replay:
            trials, self._replayed = self._replayed, []
        else:
            trials = [self._ledger.keep(trial, self._name) for trial in self._evaluator.finished()]
        for trial in trials:
            budget, elapsed_s = self._ledger.budget, self._ledger.elapsed_s
            ahead = self._evaluator.ahead
            self._on_progress(Progress(self._name, trial, self._ledger.result, budget, elapsed_s, is_replay, ahead))
        return trials

    def tell(self, trials: Sequence[Trial]) -> None:
        """Tell the strategy."""
        if self._strategy is not None:
            with self._ledger.searching():
                self._strategy.tell(trials)
