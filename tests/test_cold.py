"""Speedups that are a cache's: said, and measured with caches emptied."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mptune.errors import OutOfMemoryError
from mptune.measure.rounds import Finished
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.store import RunInfo
from mptune.tuning.cold import compare_cold
from mptune.tuning.warnings import Warnings

OWN = load_kernel(Path(__file__).with_name("own_kernel.py"))
MB = 10**6


def trial(kind: str, time_ms: float, memory_bytes: float) -> Trial:
    metrics = {"time_ms": time_ms, "error": 0.0, "memory_bytes": memory_bytes}
    return Trial(OWN.configuration({"x_type": kind, "y_type": kind}), Status.OK, "", Measurement(metrics, (time_ms,)))


class Stage:
    """Stands in for what measures: the baseline takes 8 ms and the best 4 ms with caches emptied."""

    def __init__(self, limits: dict[str, int], *, room: bool = True, cold_ms: float = 8.0) -> None:
        self.device = SimpleNamespace(limits=limits)
        self.room, self.cold_ms = room, cold_ms
        self.visits: list[Any] = []

    def start(self) -> Stage:
        return self

    def remeasure(self, trials: list[Trial], rounds: int, visit: Any) -> Finished:
        if not self.room:
            raise OutOfMemoryError("no room")
        self.visits.append(visit)
        cold_ms = {"fp64": self.cold_ms, "fp32": 4.0}
        kinds = [str(t.configuration["x_type"]) for t in trials]
        return Finished(
            tuple(trial(kind, cold_ms[kind] + (-1) ** turn, 1.0) for turn in range(rounds) for kind in kinds)
        )


def told(
    stage: Stage, best_bytes: float = 43 * MB, base_bytes: float = 86 * MB, flops: Any = None, **settings: Any
) -> tuple[list[str], dict[str, float]]:
    """Return what is said, and the times with caches emptied that are kept."""
    trials = [trial("fp64", 6.9, base_bytes), trial("fp32", 1.0, best_bytes)]
    info = RunInfo(kernel="poly", backend=settings.get("backend", "host"), baseline_values=OWN.baseline_values())
    kept: list[Trial] = []
    ledger = SimpleNamespace(
        result=lambda: Run(info, trials),
        keep=lambda trial, phase: kept.append(trial),
        phases={t.configuration: "search" for t in trials},
        measured_here=settings.get("measured_here", True),
        closing_s=settings.get("closing_s", 60.0),
    )
    kernel = SimpleNamespace(work=lambda configuration, sizes: SimpleNamespace(intensity=flops))
    plan = SimpleNamespace(
        kernel=kernel, sizes=None, settings=SimpleNamespace(flush_cache=settings.get("flush_cache", "auto"))
    )
    said: list[str] = []
    compare_cold(plan, stage, ledger, Warnings(said.append))  # type: ignore[arg-type]
    return said, {str(t.configuration["x_type"]): t.metric("time_cold_ms") for t in kept}


def test_a_cache_that_holds_the_narrow_data_alone_is_said_and_measured() -> None:
    stage = Stage({"cache_bytes": 60 * MB, "own_cache_bytes": 4 * MB})
    (said,), cold = told(stage)
    assert cold == {"fp64": 8.0, "fp32": 4.0}
    assert said.startswith(
        "the data of the best (43 MB) fit the last-level cache (60 MB), those of the baseline (86 MB) do not: "
        "the speedup is 6.9, and 2 with caches emptied before each launch;"
    )
    assert [visit.flush_cache for visit in stage.visits] == ["on"]
    (said,), _ = told(Stage({"cache_bytes": 600 * MB, "own_cache_bytes": 60 * MB}))
    assert "fit the cores' own caches (60 MB)" in said


@pytest.mark.parametrize(
    "settings",
    [
        {"best_bytes": 61 * MB},
        {"base_bytes": 59 * MB},
        {"best_bytes": 86 * MB, "base_bytes": 43 * MB},
        {"flops": 100.0},
        {"flush_cache": "on"},
        {"closing_s": 0.0},
        {"measured_here": False},
        {"backend": "cuda"},
    ],
)
def test_where_a_cache_makes_no_difference_nothing_is_measured(settings: dict[str, Any]) -> None:
    stage = Stage({"cache_bytes": 60 * MB})
    assert told(stage, **settings) == ([], {})
    assert not stage.visits


def test_without_room_to_empty_caches_it_is_said_all_the_same() -> None:
    (said,), cold = told(Stage({"cache_bytes": 60 * MB}, room=False))
    assert "the speedup is 6.9; tune at the size" in said
    assert not cold
    assert math.isnan(trial("fp64", 1.0, 1.0).metric("time_cold_ms"))
