"""Driving a strategy by hand: in batches, against a recording or a function, with the time each evaluation takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mptune.measure.base import Evaluator
from mptune.results.objective import Objective
from mptune.results.trial import Trial
from mptune.space.configuration import Configuration
from mptune.strategies.base import Strategy
from mptune.tuning.session import Session, Stopwatch

__all__ = ["Driven", "drive"]

Evaluate = Callable[[Sequence[Configuration]], Sequence[Trial]]


@dataclass(frozen=True, slots=True)
class Driven:
    """What a search gave.

    Attributes:
        best: best feasible value after each evaluation, None while there is none.
        seconds: time in the strategy by evaluation; a batch's is shared out evenly.
        cpu_s: processor time in the strategy, which other processes of the machine add little to.
    """

    best: tuple[float | None, ...]
    seconds: tuple[float, ...]
    cpu_s: float


class _Watch(Stopwatch):
    """Adds up processor time as well as wall time."""

    cpu_s = 0.0
    _cpu_started = 0.0

    def __enter__(self) -> None:
        self._cpu_started = time.process_time()
        super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.cpu_s += time.process_time() - self._cpu_started


class _Batches(Evaluator):
    """Evaluates what was submitted all at once, when the trials are asked for."""

    def __init__(self, evaluate: Evaluate, size: int, under_way: int) -> None:
        self._evaluate = evaluate
        self._size = size
        self._lead = size * under_way
        self._submitted: list[Configuration] = []

    @property
    def capacity(self) -> int:
        return self._size

    @property
    def lead(self) -> int:
        return self._lead

    @property
    def under_way(self) -> int:
        return len(self._submitted)

    def submit(self, configuration: Configuration) -> None:
        self._submitted.append(configuration)

    def finished(self) -> list[Trial]:
        submitted, self._submitted = self._submitted, []
        return list(self._evaluate(submitted))


def drive(strategy: Strategy, evaluate: Evaluate, budget: int, batch: int = 1, under_way: int = 1) -> Driven:
    """Ask and tell until the budget is spent.

    Args:
        strategy: asked and told.
        evaluate: gives the trials of configurations.
        budget: evaluations in all.
        batch: configurations evaluated and told together.
        under_way: batches asked for before the first of them is told, as a tuner that compiles ahead does.
    """
    watch = _Watch()
    session = _Driving(_Batches(evaluate, batch, under_way), strategy.objective, watch)
    session.evaluate(budget, strategy.ask, strategy.tell)
    return Driven(tuple(session.values), tuple(session.seconds), watch.cpu_s)


class _Driving(Session):
    """Notes the best value after each evaluation, and the time that it took."""

    def __init__(self, evaluator: Evaluator, objective: Objective, watch: _Watch) -> None:
        super().__init__(evaluator, objective, watch)
        self.values: list[float | None] = []
        self.seconds: list[float] = []
        self._before_s = 0.0

    def report(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            last = self.values[-1] if self.values else None
            value = self.objective.value(trial) if self.objective.is_feasible(trial) else None
            self.values.append(last if value is None else value if last is None else min(last, value))
        self.seconds += [(self.searching.seconds - self._before_s) / len(trials)] * len(trials)
        self._before_s = self.searching.seconds
