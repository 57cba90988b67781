"""Runs to report on, made without tuning: usual ones, huge ones, and those a page could stumble over."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from described import create, described_run

from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration

__all__ = ["HOSTILE", "hostile_run", "large_run", "run_of", "small_run", "stored", "timing_run", "trial", "valid"]

#: Ends scripts, comments, attributes and strings of every language in the page, if it is let.
HOSTILE: Final = "</script><script>window.pwned=1</script><!--<img src=x onerror=pwned=1>&lt;\"'`\u2028\\u003c{{x}}"

TYPES: Final = ("fp64", "fp32", "fp16")
BLOCKS: Final = (32, 64, 128, 256)


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "mptune_version": "0.1.0",
        "kernel": "saxpby",
        "kernel_path": "/nowhere/saxpby.py",
        "backend": "host",
        "device": "a processor",
        "architecture": "x86-64-v4",
        "versions": {"compiler": "g++ 12.2.0"},
        "sizes": {"n": 4000003},
        "seed": 3,
        "threshold": 1e-4,
        "metric": "NRMSE",
        "objective": "time_ms",
        "minimise": True,
        "penalty": "decay",
        "alpha": 1.0,
        "beta": 1.0,
        "strategy": "bayesian",
        "strategy_options": {},
        "budget": 100,
        "configurations": 36,
        "baseline_values": {"x_type": ["fp64"]},
        "signature": ["x_type"],
        "parameters": [
            {"name": "x_type", "kind": "precision", "values": list(TYPES)},
            {"name": "block", "kind": "ordinal", "values": list(BLOCKS)},
            {"name": "unroll", "kind": "boolean", "values": [False, True]},
        ],
        "command": "mptune tune ./saxpby.py --max-error 1e-4 --seed 3",
        "created_at": "2026-01-02T03:04:05+00:00",
        "wall_s": 12.5,
        "prepare_s": 2.0,
    } | changes


def trial(x_type: str, block: int, unroll: bool = False, status: Status = Status.OK, **given: Any) -> Trial:
    message = given.pop("message", "" if status is Status.OK else f"it was {status}")
    values = {"x_type": x_type, "block": block, "unroll": unroll}
    key = f"{x_type}{block}{unroll}"
    durations = {"compile": 0.5, "timing": 0.1}
    return Trial(Configuration(values), status, message, Measurement(given, (), durations), key=key)


def valid(x_type: str, block: int, time_ms: float, error: float, **given: Any) -> Trial:
    size = {"fp64": 8, "fp32": 4, "fp16": 2}[x_type]
    numbers = {"time_ms": time_ms, "error": error, "error.y": error, "memory_bytes": size * 4e6}
    return trial(x_type, block, **numbers, **given)


def run_of(*trials: Trial, **changes: Any) -> Run:
    """Return a run with its trials judged as the tuner judges them."""
    objective = described_run(settings(**changes), ()).objective
    return described_run(settings(**changes), [objective.judge(trial) for trial in trials])


def small_run(**changes: Any) -> Run:
    """Return a run of nine trials with one of everything."""
    return run_of(
        valid("fp64", 32, 8.0, 0.0),
        valid("fp64", 64, 6.0, 1e-16),
        trial("fp64", 128, status=Status.TIMEOUT, message="no end after 30 s"),
        valid("fp32", 32, 4.0, 1e-7),
        valid("fp32", 64, 3.0, 2e-7),
        trial("fp32", 128, status=Status.NON_FINITE, message="y[3] is nan", time_ms=0.1, error=float("nan")),
        valid("fp16", 32, 2.0, 4e-3),
        trial("fp16", 64, status=Status.COMPILE_ERROR, message="g++ rejected k\nk.cu:7:3: error: no such thing 7"),
        trial("fp16", 128, status=Status.COMPILE_ERROR, message="g++ rejected k\nk.cu:9:3: error: no such thing 9"),
        **changes,
    )


def large_run(count: int = 10_000, **changes: Any) -> Run:
    """Return a run of thousands of trials, with the statuses a real one has."""
    rng = np.random.default_rng(7)
    trials = []
    for i in range(count):
        x_type = TYPES[i % 3]
        error = {"fp64": 1e-16, "fp32": 1e-7, "fp16": 1e-3}[x_type] * float(rng.lognormal(0.0, 0.7))
        time_ms = {"fp64": 4.0, "fp32": 2.0, "fp16": 1.2}[x_type] * float(rng.lognormal(0.4, 0.5))
        values = {"x_type": x_type, "block": 32 * (1 + i // 6 % 50), "order": i // 300, "unroll": bool(i // 3 % 2)}
        status = Status.OK
        numbers = {"time_ms": time_ms, "error": error, "error.y": error, "memory_bytes": 8e6 + 100 * i}
        message = ""
        if i % 23 == 22:
            status, numbers, message = Status.LAUNCH_ERROR, {}, f"out of shared memory: {i} bytes asked for"
        trials.append(Trial(Configuration(values), status, message, Measurement(numbers), key=f"{i:016x}"))
    parameters = [
        {"name": "x_type", "kind": "precision", "values": list(TYPES)},
        {"name": "block", "kind": "integer", "values": [32 * (1 + i) for i in range(50)]},
        {"name": "order", "kind": "integer", "values": list(range(count // 300 + 1))},
        {"name": "unroll", "kind": "boolean", "values": [False, True]},
    ]
    return run_of(*trials, **{"parameters": parameters, "budget": count, "configurations": 2 * count} | changes)


def hostile_run() -> Run:
    """Return a run whose every text tries to be code."""
    values = {HOSTILE: HOSTILE, "block": 32}
    trials = [
        Trial(Configuration(values), Status.OK, "", Measurement({"time_ms": 1.0, "error": 1e-9, HOSTILE: 2.0})),
        Trial(
            Configuration(values | {"block": 64}),
            Status.CRASH,
            HOSTILE,
            Measurement({"error": float("inf")}),
            (HOSTILE,),
        ),
    ]
    names = ("kernel", "backend", "device", "metric", "strategy", "command", "architecture", "created_at")
    texts = dict.fromkeys(names, HOSTILE)
    parameters = [
        {"name": HOSTILE, "kind": HOSTILE, "values": [HOSTILE]},
        {"name": "block", "kind": "ordinal", "values": [32, 64]},
    ]
    more = {"versions": {HOSTILE: HOSTILE}, "sizes": {HOSTILE: 1}, "baseline_values": {}, "parameters": parameters}
    return described_run(settings(**texts, **more), trials)


def timing_run() -> Run:
    """Return a run that knows times alone, as one imported from another tool does."""
    trials = [
        Trial(Configuration({"block": 32 * i}), Status.OK, "", Measurement({"time_ms": 1.0 + abs(i - 4) / 3}))
        for i in range(1, 9)
    ]
    return described_run({"kernel": "convolution", "device": "A GPU", "objective": "time_ms"}, trials)


def stored(run: Run, path: Path) -> Path:
    """Write a run file with these settings and trials."""
    with create(path, run) as file:
        file.add(*run.trials)
    return path
