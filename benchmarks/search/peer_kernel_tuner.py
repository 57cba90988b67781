"""Kernel Tuner's strategies, in its simulation mode.

Simulation mode answers every configuration from a cache file. ``max_fevals`` counts a configuration once, the first
time it is run, failed or not; those that break a restriction are not run and not counted. That is the definition of
an evaluation used here, so its results in order are all that is needed.
"""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import kernel_tuner
import numpy as np
from constraint import FunctionConstraint
from kernel_tuner.strategies import bayes_opt
from scipy.stats.qmc import LatinHypercube

from benchmarks.search.peers import PeerRun
from benchmarks.search.problem import BudgetSpent, Problem, Recorder

__all__ = ["cache_text", "prepare"]

_FAILED = "RuntimeFailedConfig"


def prepare(problem: Problem, strategy: str) -> PeerRun:
    """Return a function that runs a strategy; the cache file is written to the working directory."""
    cache = Path("kernel_tuner_cache.json").resolve()
    cache.write_text(cache_text(problem))
    valid = set(problem.configurations)

    def is_recorded(*values: Any) -> bool:
        return values in valid

    def run(recorder: Recorder, seed: int) -> float | None:
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the generator it uses
        # The one generator it makes itself, without a seed.
        bayes_opt.LatinHypercube = partial(LatinHypercube, rng=seed)
        results, _ = kernel_tuner.tune_kernel(
            problem.name,
            "",
            (1,),
            [],
            {name: list(values) for name, values in zip(problem.names, problem.values, strict=True)},
            strategy=strategy,
            strategy_options={"max_fevals": recorder.budget},
            restrictions=[FunctionConstraint(is_recorded)],
            cache=str(cache),
            simulation_mode=True,
            lang="C",
            quiet=True,
        )
        for result in results:
            try:
                recorder.propose(tuple(result[name] for name in problem.names))
            except BudgetSpent:
                break
        return float(sum(result.get("strategy_time", 0.0) for result in results)) / 1e3

    return run


def cache_text(problem: Problem) -> str:
    """Return a problem as one of its cache files."""
    entries = {}
    for configuration, cost in zip(problem.configurations, problem.costs.tolist(), strict=True):
        entry: dict[str, Any] = dict(zip(problem.names, configuration, strict=True))
        entry["time"] = _FAILED if cost != cost else cost
        entry |= dict.fromkeys(
            ("compile_time", "verification_time", "benchmark_time", "strategy_time", "framework_time"), 0.0
        )
        entries[",".join(map(str, configuration))] = entry
    return json.dumps(
        {
            "device_name": "recording",
            "kernel_name": problem.name,
            "problem_size": [1],
            "tune_params_keys": list(problem.names),
            "tune_params": dict(zip(problem.names, problem.values, strict=True)),
            "cache": entries,
        }
    )
