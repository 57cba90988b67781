"""Runs of the tests' own kernel at several sizes, with errors and times that are made up."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import own_kernel
from awkward_kernel import run_of

from mptune.kernel import Kernel
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.wisdom import Wisdom

__all__ = ["HALF", "POLY", "SINGLE", "at_size", "trial", "undecided", "with_intervals"]

POLY = own_kernel.kernel
HALF = {"x_type": "fp16", "y_type": "fp16"}
SINGLE = {"x_type": "fp32", "y_type": "fp32"}


def trial(
    time_ms: float,
    error: float,
    draws: int = 23,
    status: Status = Status.OK,
    kernel: Kernel = POLY,
    further: Mapping[str, float] | None = None,
    **values: Any,
) -> Trial:
    """Return a trial whose error is the worst of so many draws, 20 of them unseen where there are that many."""
    metrics = {"time_ms": time_ms, "error": error, "error_draws": float(draws), "error_mean": 0.9 * error}
    if draws > 20:
        metrics |= {"unseen_inputs": 20.0, "unseen_violations": 0.0, "unseen_error": error}
    return Trial(kernel.configuration(values), status, "", Measurement(metrics | dict(further or {})))


def at_size(
    n: int,
    slope: float = 0.5,
    threshold: float | None = 1e-3,
    exact: Sequence[str] = (),
    nearly: float = 0.0,
    **settings: Any,
) -> Run:
    """Return a run in which fp16 is four times as fast as fp64 and has the error 1e-4 at n = 1000, fp32 twice and 1e-7.

    Blocks of 256 are the best from n = 10000 on, and of 64 below. What is exact has an error of 0, or nearly so.
    """
    half, single = (
        nearly if t in exact else error * (n / 1000) ** slope for t, error in (("fp16", 1e-4), ("fp32", 1e-7))
    )
    fast, slow = (256, 64) if n >= 10000 else (64, 256)
    trials = [
        trial(4.0, 1e-16, block=fast),
        trial(5.0, 1e-16, 3, block=slow),
        trial(1.0, half, block=fast, **HALF),
        trial(1.3, half, 3, block=slow, **HALF),
        trial(2.0, single, 3, block=fast, **SINGLE),
        trial(2.4, single, 1, block=slow, **SINGLE),
        trial(3.9, half, 3, block=128, **HALF),
    ]
    made = run_of(POLY, trials, sizes=POLY.resolve_sizes("default", {"n": n}), threshold=threshold)
    return Run(dataclasses.replace(made.info, **settings), trials)


def with_intervals(wisdom: Wisdom, speedups: Mapping[str, tuple[float, float, float]]) -> Wisdom:
    """Return wisdom in which all of some types have speedups with intervals, and no run named a winner."""
    (known,) = wisdom.kernels
    tuned = []
    for record in known.tuned:
        timed = []
        for each in record.configurations:
            low, speedup, high = speedups.get(str(each.configuration["x_type"]), (1.0, 1.0, 1.0))
            timed.append(dataclasses.replace(each, is_best=False, speedup=speedup, interval=(low, high)))
        tuned.append(dataclasses.replace(record, configurations=tuple(timed)))
    return Wisdom((dataclasses.replace(known, tuned=tuple(tuned)),))


def undecided(wisdom: Wisdom, n: int, interval: tuple[float, float] | None, speedup: float = 1.02) -> Wisdom:
    """Return wisdom in which the run at a size named no winner, and nothing narrow there is faster than this."""
    (known,) = wisdom.kernels
    tuned = []
    for record in known.tuned:
        timed = [
            dataclasses.replace(
                each, is_best=False, time_ms=record.baseline.time_ms / speedup, speedup=speedup, interval=interval
            )
            if record.baseline is not None and record.sizes["n"] == n and each.configuration["x_type"] != "fp64"
            else each
            for each in record.configurations
        ]
        tuned.append(dataclasses.replace(record, configurations=tuple(timed)))
    return Wisdom((dataclasses.replace(known, tuned=tuple(tuned)),))
