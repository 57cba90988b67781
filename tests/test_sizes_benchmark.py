"""The benchmark of sizes that were never tuned: it runs, in small, and its page has the figures."""

from __future__ import annotations

import re

import own_kernel
import pytest
from runs_by_size import at_size

from benchmarks import size_errors
from benchmarks import sizes as benchmark
from mptune.registry import bundled_kernels, load_kernel
from mptune.wisdom import BySize, gather, read_sources

POLY = own_kernel.kernel


def test_sizes_lie_between_the_tuned_ones_and_up_to_twice_beyond():
    for names, low, high, _ in benchmark.KERNELS.values():
        tuned = benchmark.ladder(names, low, high, 5)
        unseen = benchmark.unseen_sizes(names, low, high, 20)
        assert len(unseen) >= 18
        assert all(sizes not in tuned for sizes in unseen)
        assert (unseen[0][names[0]], unseen[-1][names[0]]) == (low // 2, 2 * high)


@pytest.mark.full
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


@pytest.mark.full
def test_choosing_is_timed_in_the_emitted_header():
    wisdom = gather(read_sources([at_size(1000), at_size(4000)]))
    took_ns = benchmark.selection_ns(wisdom, POLY, [{"n": 900}, {"n": 2000}])
    assert took_ns is None or took_ns > 0


def test_draws_above_what_was_told_of_them_are_counted():
    def entry(n, types, worst):
        return {"sizes": {"n": n}, "types": [types], "seen": [0.8 * worst] * 22 + [worst], "fresh": [0.9 * worst] * 10}

    steady = [entry(1000 * 2**i, "fp32", 1e-7) for i in range(6)]
    wild = [entry(1000 * 2**i, "fp16", 1e-3 * (1000 if i == 2 else 1)) for i in range(6)]
    assert sum(each["broken"] for each in size_errors.breaks(steady)) == 0
    found = [*size_errors.breaks(wild)]
    # What is told from all but the wild size is broken there, and only there.
    assert {each["broken"] for each in found} == {0, 10}
    assert {each["where"] for each in found if each["broken"]} == {"between", "beyond"}
    page = size_errors.markdown({"axpy": steady, "kmeans": wild}, "M", "C")
    assert re.search(r"\| _axpy_ \| \d+ \| \d+ \| 0.0% \| 0.0% \| 0.0% \| 0.0% \| 0% \|", page)
    assert "| the others together |" in page


def test_errors_are_looked_at_of_all_bundled_kernels_whose_sizes_vary():
    assert set(size_errors.LADDERS) == set(bundled_kernels())
    for name, ladder in size_errors.LADDERS.items():
        assert set(ladder) <= set(load_kernel(name).sizes["default"])


def test_the_page_has_means_least_speeds_and_violations():
    def entry(n, own, wisdom, one, fp64, violations=0):
        times = {"own": own, "wisdom": wisdom, "one": one, "fp64": fp64}
        return {"sizes": {"n": n}, "why": "because", "times_ms": times, "draws": 40, "violations": violations}

    entries = [entry(10, 1.0, 1.0, 2.0, 4.0), entry(20, 1.0, 1.25, 1.0, 4.0, 1)]
    assert benchmark.speeds(entries, "wisdom") == [1.0, 0.8]
    assert benchmark.speeds([{"times_ms": {"wisdom": 1.0}}], "wisdom") == []
    kernels = {"axpy": entries, "gemm": [entry(30, 1.0, 1.0, None, 2.0)]}
    selection = {"axpy": 312.4, "gemm": None}
    timed = {"machine": "M", "command": "C", "budget": 60, "kernels": {"gemm": entries}, "selection_ns": selection}
    assert "chooses in at most (target 1000 ns): axpy 312 ns." in benchmark.markdown(timed)
    assert "Lin 2025, Fig. 15: gemm tuned for its size is 1.41 times as fast" in benchmark.markdown(timed)
    page = benchmark.markdown({"machine": "M", "command": "C", "budget": 60, "kernels": kernels})
    assert "| axpy | 2 | 0.894 | 0.80 | 0.707 | 0.50 | 0.250 | 0.25 | 1 of 80 draws |" in page
    assert "| all | 3 | 0.928 | 0.80 |" in page
    assert "| gemm | n=30 | 1.00 | - | 0.50 | 0 | because |" in page
    assert benchmark.speeds(entries, "own") == pytest.approx([1.0, 1.0])
