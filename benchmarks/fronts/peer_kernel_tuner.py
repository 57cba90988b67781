"""Kernel Tuner's NSGA-II, in its simulation mode; its multi-objective interface is ``tune_kernel(objectives={...})``.

Simulation mode, restrictions and the count of evaluations are as in :mod:`benchmarks.search.peer_kernel_tuner`. It is
given the logarithms of the objectives, between which its crowding distance is a better guide. It draws from several
generators; all are seeded.
"""

from __future__ import annotations

import contextlib
import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import kernel_tuner
import numpy as np
from constraint import FunctionConstraint

from benchmarks.fronts.problem import FrontProblem, FrontRecorder
from benchmarks.search.peer_kernel_tuner import cache_text
from benchmarks.search.problem import BudgetSpent

__all__ = ["prepare"]


def prepare(problem: FrontProblem) -> Any:
    """Return a function that runs it with a recorder and a seed; the cache file goes to the working directory."""
    known = problem.problem
    names = [f"level{position}" for position in range(problem.levels.shape[1])]
    cache = Path("kernel_tuner_fronts.json").resolve()
    document = json.loads(cache_text(known))
    for row, levels in zip(known.configurations, problem.levels.tolist(), strict=True):
        document["cache"][",".join(map(str, row))] |= dict(zip(names, levels, strict=True))
    cache.write_text(json.dumps(document))
    valid = set(known.configurations)

    def is_recorded(*values: Any) -> bool:
        return values in valid

    start = partial(
        kernel_tuner.tune_kernel,
        known.name,
        "",
        (1,),
        [],
        {name: list(values) for name, values in zip(known.names, known.values, strict=True)},
        strategy="nsga2",
        objectives=dict.fromkeys(names, False),
        cache=str(cache),
        simulation_mode=True,
        lang="C",
        quiet=True,
    )

    def run(recorder: FrontRecorder, seed: int) -> None:
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the generator it uses
        results, _ = start(
            restrictions=[FunctionConstraint(is_recorded)], seed=seed, strategy_options={"max_fevals": recorder.budget}
        )
        with contextlib.suppress(BudgetSpent):
            for result in results:
                recorder.propose(tuple(result[name] for name in known.names))

    return run
