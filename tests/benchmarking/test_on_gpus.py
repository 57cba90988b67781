"""The GPU benchmarks, run on simulated libraries and clocks, and on recordings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import gpu

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

    monkeypatch.setattr(gpu.time, "perf_counter", lambda: now_s[0])
    backend: Any = SimpleNamespace(name="cuda", device=SimpleNamespace(allocate=Memory))
    assert gpu.copy_bytes_per_s(backend, 10**9) == pytest.approx(2e12)
