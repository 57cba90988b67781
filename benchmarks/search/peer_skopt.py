"""scikit-optimize's Bayesian optimisation as ytopt sets it up for tuning kernels: a random forest and a lower bound.

Its default Gaussian process takes several times as long, minutes for one run. The tool finds the 10,000 candidates of
each step by drawing from the product of all values until enough meet the constraint, most of the time it needs; here
they are drawn from the recorded configurations at once, which is the same distribution.

BayesianOptimization, the other tool of this kind, can learn a constraint from evaluations but not be told one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

import numpy as np
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

    points = [list(row) for row in rows]

    def draw(n_samples: int = 1, random_state: np.random.RandomState | None = None) -> list[list[int]]:
        generator = np.random.RandomState() if random_state is None else random_state
        return [points[i] for i in generator.randint(len(points), size=n_samples)]

    def run(recorder: Recorder, seed: int) -> float | None:
        optimizer = Optimizer(
            dimensions, base_estimator="RF", acq_func="LCB", space_constraint=is_recorded, random_state=seed
        )
        optimizer.space.rvs = draw
        worst: float | None = None
        waiting: list[list[int]] = []
        started = time.perf_counter()
        with contextlib.suppress(BudgetSpent):
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
        return time.perf_counter() - started

    return run
