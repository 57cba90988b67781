"""Runs made by hand: what a plot has to show is known."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from described import described_run

from mptune.results import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration

SETTINGS = {
    "kernel": "axpy",
    "device": "a processor",
    "threshold": 1e-4,
    "metric": "NRMSE",
    "objective": "time_ms",
    "baseline_values": {"x_type": ["fp64"], "y_type": ["fp64"]},
    "signature": ["x_type", "y_type"],
    "parameters": [
        {"name": "block", "kind": "ordinal", "values": [32, 64, 128]},
        {"name": "shared", "kind": "boolean", "values": [False, True]},
        {"name": "x_type", "kind": "precision", "values": ["fp64", "fp32", "fp16"]},
        {"name": "y_type", "kind": "precision", "values": ["fp64", "fp32", "fp16"]},
    ],
    "wall_s": 100.0,
    "prepare_s": 10.0,
    "search_s": 20.0,
    "workers": 1,
}
TYPES = ("fp64", "fp32", "fp16")
ERRORS = (1e-16, 1e-7, 1e-3)


def trial(
    block: int = 32,
    shared: bool = False,
    x_type: str = "fp64",
    y_type: str = "fp64",
    status: Status = Status.OK,
    durations_s: Mapping[str, float] | None = None,
    **metrics: float,
) -> Trial:
    configuration = Configuration({"block": block, "shared": shared, "x_type": x_type, "y_type": y_type})
    return Trial(configuration, status, "", Measurement(metrics, durations_s=durations_s or {}))


def run_of(trials: Sequence[Trial], **settings: Any) -> Run:
    return described_run({**SETTINGS, **settings}, trials)


@functools.cache
def whole_space(**settings: Any) -> Run:
    """Return all 54 configurations: the block size decides most, the types something, shared memory nothing."""
    rng = np.random.default_rng(0)
    trials = []
    for block, shared, x, y in itertools.product((32, 64, 128), (False, True), range(3), range(3)):
        time_ms = {32: 8.0, 64: 4.0, 128: 2.0}[block] * 0.8 ** (x + y) * rng.uniform(0.99, 1.01)
        error = ERRORS[max(x, y)] * (1.0 if x == y else 0.5)
        spent = {"compile": 0.5, "timing": 0.25}
        memory = 1e6 * (8 / 2**x + 8 / 2**y)
        trials.append(
            trial(
                block, shared, TYPES[x], TYPES[y], Status.OK, spent, time_ms=time_ms, error=error, memory_bytes=memory
            )
        )
    return run_of(trials, **settings)


def many_trials(count: int, parameters: int, *, seed: int = 0, noise: float = 0.05) -> Run:
    """Return trials with that many parameters, of which the first three matter: less and less."""
    rng = np.random.default_rng(seed)
    names = [f"a_parameter_{number}" for number in range(parameters)]
    described = [{"name": name, "kind": "ordinal", "values": [1, 2, 4, 8]} for name in names]
    trials = []
    distinct = dict.fromkeys(map(tuple, rng.integers(0, 4, (2 * count, parameters)).tolist()))
    for values in list(distinct)[:count]:
        weight = sum(factor * value for factor, value in zip((0.8, 0.4, 0.2), values, strict=False))
        time_ms = float(np.exp(weight * (noise < 1) + noise * rng.standard_normal()))
        configuration = Configuration({name: 2**value for name, value in zip(names, values, strict=True)})
        numbers = {"time_ms": time_ms, "error": 10.0 ** -rng.integers(2, 15)}
        trials.append(Trial(configuration, Status.OK, "", Measurement(numbers)))
    assert len(trials) == count
    return run_of(trials, parameters=described, signature=[], baseline_values={})
