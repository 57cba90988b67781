"""Driving a strategy by hand: in batches, against a recording or a function, with the time each evaluation takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mptune.measure.base import Evaluator
from mptune.results.trial import Trial
from mptune.space.configuration import Configuration
from mptune.strategies.base import Strategy
from mptune.tuning.loop import Stopwatch, ask_and_tell

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

    def __init__(self, evaluate: Evaluate, size: int) -> None:
        self._evaluate = evaluate
        self._size = size
        self._submitted: list[Configuration] = []

    @property
    def capacity(self) -> int:
        return self._size

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
    objective = strategy.objective
    best: list[float | None] = []
    seconds: list[float] = []
    watch = _Watch()
    before = 0.0
    batches = _Batches(evaluate, batch)
    told = ask_and_tell(
        batches, strategy.ask, strategy.tell, lambda: budget - len(best), thinking=watch, lead=batch * under_way
    )
    for trials in told:
        for trial in trials:
            last = best[-1] if best else None
            value = objective.value(trial) if objective.is_feasible(trial) else None
            best.append(last if value is None else value if last is None else min(last, value))
        seconds += [(watch.seconds - before) / len(trials)] * len(trials)
        before = watch.seconds
    return Driven(tuple(best), tuple(seconds), watch.cpu_s)
