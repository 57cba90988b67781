"""The benchmark of sizes that were never tuned: it runs, in small, and its page has the figures."""

from __future__ import annotations

import own_kernel
import pytest

from benchmarks import sizes as benchmark
from mptune.wisdom import BySize, gather, read_sources

POLY = own_kernel.kernel


def test_sizes_lie_between_the_tuned_ones_and_up_to_twice_beyond():
    for names, low, high, _ in benchmark.KERNELS.values():
        tuned = benchmark.ladder(names, low, high, 5)
        unseen = benchmark.unseen_sizes(names, low, high, 20)
        assert len(unseen) >= 18
        assert all(sizes not in tuned for sizes in unseen)
        assert (unseen[0][names[0]], unseen[-1][names[0]]) == (low // 2, 2 * high)


def test_it_runs_in_small():
    runs = benchmark.tuned_together(POLY, [{"n": 2000}, {"n": 4000}], 1e-3, 4, 0)
    wisdom = BySize(gather(read_sources(runs)), POLY, "host")
    own = benchmark.tuned_at(POLY, {"n": 3000}, 1e-3, 4, 0)
    middle = benchmark.winner_of(runs[0])
    entry = benchmark.compared(POLY, wisdom, middle.configuration if middle else None, own, 5)
    assert entry["sizes"] == {"n": 3000}
    assert (entry["draws"], entry["violations"]) == (5, 0)
    assert entry["times_ms"]["wisdom"] > 0
    assert "n=3000" in entry["why"]


def test_the_page_has_means_least_speeds_and_violations():
    def entry(n, own, wisdom, one, fp64, violations=0):
        times = {"own": own, "wisdom": wisdom, "one": one, "fp64": fp64}
        return {"sizes": {"n": n}, "why": "because", "times_ms": times, "draws": 40, "violations": violations}

    entries = [entry(10, 1.0, 1.0, 2.0, 4.0), entry(20, 1.0, 1.25, 1.0, 4.0, 1)]
    assert benchmark.speeds(entries, "wisdom") == [1.0, 0.8]
    assert benchmark.speeds([{"times_ms": {"wisdom": 1.0}}], "wisdom") == []
    kernels = {"axpy": entries, "gemm": [entry(30, 1.0, 1.0, None, 2.0)]}
    page = benchmark.markdown({"machine": "M", "command": "C", "budget": 60, "kernels": kernels})
    assert "| axpy | 2 | 0.894 | 0.80 | 0.707 | 0.50 | 0.250 | 0.25 | 1 of 80 draws |" in page
    assert "| all | 3 | 0.928 | 0.80 |" in page
    assert "| gemm | n=30 | 1.00 | - | 0.50 | 0 | because |" in page
    assert benchmark.speeds(entries, "own") == pytest.approx([1.0, 1.0])
