"""The real Kernel Tuner simulates what is exported, and gets mptune's numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mptune.interop import EXPORTERS
from mptune.results.trial import Status, Trial
from mptune.tuning import TuneSettings, tune

kernel_tuner = pytest.importorskip("kernel_tuner", reason="Kernel Tuner is not installed")
constraint = pytest.importorskip("constraint", reason="Kernel Tuner is not installed")

ROOT = Path(__file__).parents[2]

Values = tuple[Any, ...]


def simulate(path: Path, **options: Any) -> tuple[dict[Values, dict[str, Any]], Values]:
    """Run Kernel Tuner over every entry of a cache file; return its results and the values of its best."""
    document = json.loads(path.read_text())
    names = document["tune_params_keys"]
    entries = {tuple(entry[name] for name in names) for entry in document["cache"].values()}
    results, environment = kernel_tuner.tune_kernel(
        document["kernel_name"],
        "__global__ void unused(int n) {}",
        document["problem_size"],
        [np.int32(1)],
        document["tune_params"],
        restrictions=[constraint.FunctionConstraint(lambda *values: values in entries)],
        simulation_mode=True,
        cache=str(path),
        strategy="brute_force",
        block_size_names=[names[0]],
        quiet=True,
        **options,
    )
    found = {tuple(result[name] for name in names): result for result in results}
    assert len(found) == len(results) == len(entries)
    return found, tuple(environment["best_config"][name] for name in names)


def times(results: Mapping[Values, Mapping[str, Any]]) -> dict[Values, float]:
    """Return the times of what did not fail."""
    return {values: result["time"] for values, result in results.items() if "__error__" not in result}


def expected(trials: Sequence[Trial]) -> dict[Values, float]:
    return {tuple(t.configuration.values()): t.time_ms for t in trials if t.status is Status.OK}


@pytest.mark.full
def test_a_run_of_a_kernel(tmp_path: Path) -> None:
    settings = TuneSettings(backend="host", size="smoke", max_error=1e-5, strategy="random", budget=12, seed=3)
    run = tune(ROOT / "tests" / "own_kernel.py", settings, output=tmp_path / "run.db")
    path = tmp_path / "run.json"
    path.write_text(str(EXPORTERS["cache"](run)))
    results, best = simulate(path)
    assert len(results) == len(run.trials) > 6
    assert times(results) == expected(run.trials)
    # Not the run's best: finals side by side may order anew what took about as long.
    assert times(results)[best] == min(t.time_ms for t in run.trials if run.info.objective.is_feasible(t))
    assert run.statuses["inaccurate"] > 0
