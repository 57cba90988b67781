"""What the benchmarks for GPUs compute: of played libraries and clocks, of recordings."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu_sections import axpy, spaces
from benchmarks.gpu_sections.searching import fastest
from mptune.results.trial import Measurement, Status, Trial
from mptune.source.loading import load_kernel

# -- sections -------------------------------------------------------------------------------------


def test_copies_are_timed_without_what_it_takes_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]

    class Memory:
        def __init__(self, nbytes: int) -> None:
            self.nbytes = nbytes

        def fill(self, byte: int) -> None:
            now_s[0] += 3.0

        def copy_from(self, other: Memory) -> None:
            now_s[0] += 2 * other.nbytes / 2e12

        def part(self, offset: int, nbytes: int) -> Memory:
            return self

        def read(self, data: Any) -> None:
            now_s[0] += 5e-3

        def free(self) -> None:
            pass

    monkeypatch.setattr(axpy.time, "perf_counter", lambda: now_s[0])
    backend: Any = SimpleNamespace(name="cuda", device=SimpleNamespace(allocate=Memory))
    assert axpy.copy_bytes_per_s(backend, 10**9) == pytest.approx(2e12)


def test_the_summary_of_a_space() -> None:
    kernel = load_kernel("axpy")

    def trial(type_name: str, time_ms: float, error: float, status: Status = Status.OK) -> Trial:
        types = dict.fromkeys(("a_type", "x_type", "y_type"), type_name)
        configuration = kernel.configuration({"block_size": 32 if time_ms < 9 else 64, "vector_width": 1, **types})
        return Trial(configuration, status, measurement=Measurement({"time_ms": time_ms, "error": error}))

    trials = [trial("fp64", 8.0, 1e-17), trial("fp64", 10.0, 1e-17), trial("fp32", 4.0, 1e-8)]
    trials += [trial("fp16", 2.0, 1e-3), trial("bf16", 2.5, 1e-2), trial("bf16", 1.0, math.nan)]
    trials.append(Trial(trial("bf16", 9.0, 1.0).configuration, Status.LAUNCH_ERROR, "too slow"))
    found = spaces.summary(kernel, trials, (1e-8, 1e-4, 1e-2))
    assert found["fp64"]["time_ms"] == 8.0
    assert {level: point["time_ms"] for level, point in found["best"].items()} == {"high": 4, "medium": 4, "low": 2}
    assert [point["time_ms"] for point in found["front"]] == [2.0, 4.0, 8.0]
    assert found["statuses"] == {"ok": 6, "launch_error": 1}
    assert spaces.summary(kernel, [], (1e-8,))["best"] == {"high": None}
    assert fastest(trials[-2:], {}, math.inf, 3) == []  # NaN is never among them
