"""scikit-optimize's Bayesian optimisation, with the constraint its optimiser takes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from skopt import Optimizer
from skopt.space import Categorical, Integer

from benchmarks.search.peers import PeerRun
from benchmarks.search.problem import BudgetSpent, Problem, Recorder

__all__ = ["prepare"]

_NUMBERS = ("ordinal", "integer", "real")


def prepare(problem: Problem) -> PeerRun:
    """Return a function that runs the optimiser; parameters with a single value are left out."""
    free = [i for i, values in enumerate(problem.values) if len(values) > 1]
    codes = [{value: code for code, value in enumerate(values)} for values in problem.values]
    rows = {tuple(codes[i][configuration[i]] for i in free): configuration for configuration in problem.configurations}
    dimensions = [
        Integer(0, len(problem.values[i]) - 1)
        if problem.kinds[i] in _NUMBERS
        else Categorical(list(range(len(problem.values[i]))))
        for i in free
    ]

    def is_recorded(point: Sequence[int]) -> bool:
        return tuple(map(int, point)) in rows

    def run(recorder: Recorder, seed: int) -> float | None:
        optimizer = Optimizer(dimensions, space_constraint=is_recorded, random_state=seed)
        worst: float | None = None
        waiting: list[list[int]] = []
        started = time.perf_counter()
        try:
            while not recorder.done:
                point = optimizer.ask()
                cost = recorder.propose(rows[tuple(map(int, point))])
                if cost is not None:
                    worst = cost if worst is None else max(worst, cost)
                if worst is None:
                    # Nothing has run yet, so there is no value a failure could be told.
                    waiting.append(point)
                    continue
                for failed in waiting:
                    optimizer.tell(failed, worst)
                waiting.clear()
                optimizer.tell(point, worst if cost is None else cost)
        except BudgetSpent:
            pass
        return time.perf_counter() - started

    return run
