"""Driving a strategy by hand: in batches, against a recording or a function, with the time each evaluation takes."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.search.tools import DEFAULT
from mptune.results import Trial
from mptune.space.configuration import Configuration
from mptune.strategies.base import Strategy

__all__ = ["Driven", "drive", "version_of"]

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


class _Watch:
    """Adds up wall and processor time of what happens under it."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.wall_s += time.perf_counter() - self._started[0]
        self.cpu_s += time.process_time() - self._started[1]


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
    waiting: deque[list[Configuration]] = deque()
    while True:
        before = watch.wall_s
        while len(waiting) < under_way and len(best) + sum(map(len, waiting)) < budget:
            with watch:
                asked = strategy.ask(min(batch, budget - len(best) - sum(map(len, waiting))))
            if not asked:
                break
            waiting.append(asked)
        if not waiting:
            return Driven(tuple(best), tuple(seconds), watch.cpu_s)
        trials = list(evaluate(waiting.popleft()))
        for trial in trials:
            last = best[-1] if best else None
            value = objective.value(trial) if objective.is_feasible(trial) else None
            best.append(last if value is None else value if last is None else min(last, value))
        with watch:
            strategy.tell(trials)
        seconds += [(watch.wall_s - before) / len(trials)] * len(trials)


def version_of(*modules: str) -> str:
    """Return a version for jobs that run mptune's strategies by these modules of the benchmark."""
    digest = hashlib.sha256(DEFAULT.version.encode())
    for module in ("driving", *modules):
        digest.update((Path(__file__).parent / f"{module}.py").read_bytes())
    return digest.hexdigest()[:16]
