"""A run of an application made by hand: two kernels, five buffers; where its time went and what limits it is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from described import described_run

from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration

__all__ = ["application_run", "run_trial"]

TYPES = ("fp64", "fp32", "fp16")
SETTINGS: dict[str, Any] = {
    "kernel": "heat",
    "backend": "host",
    "device": "a processor",
    "sizes": {"n": 100},
    "threshold": 1e-4,
    "metric": "NRMSE",
    "metrics": {"NRMSE": "NRMSE", "drift": "drift"},
    "objective": "time_ms",
    "strategy": "bayesian",
    "seed": 0,
    "budget": 30,
    "configurations": 72,
    "baseline_values": {"u_type": ["fp64"], "step.sum_type": ["fp64"]},
    "signature": ["u_type", "step.sum_type", "method"],
    "buffers": {"u": "u_type", "v": "u_type", "norms": "fp64", "cells": "int32"},
    "parameters": [
        {"name": "u_type", "kind": "precision", "values": list(TYPES)},
        {"name": "method", "kind": "categorical", "values": ["plain", "refined"]},
        {"name": "step.block", "kind": "ordinal", "values": [32, 64]},
        {"name": "step.sum_type", "kind": "precision", "values": list(TYPES)},
        {"name": "norm.block", "kind": "ordinal", "values": [32, 64]},
    ],
    "launches": [
        {
            "kernel": "step",
            "sizes": {"n": 100},
            "buffers": {"source": "u", "target": "v"},
            "types": {"type": ["u_type"], "sum_type": ["step.sum_type"]},
        },
        {
            "kernel": "norm",
            "sizes": {"n": 100},
            "buffers": {"x": "u", "partial": "norms"},
            "types": {"type": ["u_type"]},
        },
    ],
    "wall_s": 9.0,
    "prepare_s": 1.0,
}
ROUNDOFF = {"fp64": 1e-16, "fp32": 1e-8, "fp16": 1e-4}
BYTES = {"fp64": 8, "fp32": 4, "fp16": 2}


def run_trial(u: str, total: str, *, steps: int = 100, **more: float) -> Trial:
    """Return a run in which step takes most of the time and its sum most digits; one launch of each kernel a step."""
    step_ms, norm_ms = 0.01 * steps * (BYTES[u] + BYTES[total] / 4), 0.001 * steps * BYTES[u]
    error = ROUNDOFF[u] + 1e3 * ROUNDOFF[total]
    metrics = {
        "time_ms": step_ms + norm_ms + 1.0,
        "host_ms": 1.0,
        "launches.step": steps,
        "time_ms.step": step_ms,
        "launches.norm": steps,
        "time_ms.norm": norm_ms,
        "error": error,
        "error.NRMSE": error,
        "error.drift": 2 * error,
        "memory_bytes": 1e6 * BYTES[u],
        **more,
    }
    values = {"u_type": u, "method": "plain", "step.block": 32, "step.sum_type": total, "norm.block": 64}
    status = Status.OK if error <= 1e-4 else Status.INACCURATE
    return Trial(Configuration(values), status, "", Measurement(metrics), key=f"{u} {total}")


def application_run(trials: Sequence[Trial] = (), **settings: Any) -> Run:
    """Return the run; without trials of its own: everything that fp64 and fp32 give, and fp32 converges more slowly."""
    usual = [run_trial("fp64", "fp64"), run_trial("fp64", "fp32", steps=110), run_trial("fp32", "fp64", steps=110)]
    return described_run({**SETTINGS, **settings}, trials or [*usual, run_trial("fp32", "fp32", steps=120)])
