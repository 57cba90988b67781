"""The benchmark of unseen inputs: its kernels are what they say, and its page has the figures."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import unseen
from benchmarks.unseen_kernels import KERNELS
from mptune.buffers import DataManager, Draw


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_inputs_and_references_are_as_declared_and_draws_differ_in_difficulty(name):
    kernel = KERNELS[name]
    draws = [
        DataManager(kernel, kernel.resolve_sizes("smoke"), draw=Draw(number=number), caches=False)
        for number in range(20)
    ]
    assert all(np.isfinite(data.references["out"]).all() for data in draws)
    spreads = [np.abs(data.inputs["x"]).max() / np.abs(data.references["out"]).mean() for data in draws]
    assert max(spreads) > 1.5 * min(spreads)


def entry(way, *, violations, time_ms, tau=1e-4, inputs=20):
    verified = {"inputs": inputs, "violations": 0, "worst_error": 1e-5, "at_most": 0.14, "confidence": 0.95}
    return {
        "threshold": tau,
        "way": way,
        "configuration": "block=1",
        "error": 1e-5,
        "verified": verified if way == "now" else None,
        "fragile": 1,
        "verification_s": 1.0,
        "wall_s": 10.0,
        "draws": 1000,
        "violations": violations,
        "time_ms": time_ms,
    }


def test_the_page_has_pooled_rates_speeds_and_what_is_above_its_bound():
    winners = [
        entry("before", violations=440, time_ms=1.0),
        entry("now", violations=150, time_ms=2.0),
        entry("before", violations=0, time_ms=1.0, tau=1e-2),
        entry("now", violations=0, time_ms=1.0, tau=1e-2),
    ]
    kernels = [{"kernel": "near_pole", "winners": winners}]
    before, now = (unseen.summary(kernels, way) for way in unseen.WAYS)
    assert (before["pooled"], now["pooled"]) == (0.22, 0.075)
    assert (now["above"], now["verified"], now["share_s"]) == (1, 2, 0.1)
    assert unseen.speeds(kernels) == [1.0, 0.5]
    assert unseen.speeds(kernels, held=True) == [1.0]
    measured = {"wall_s": 20.0, "search_s": 16.0, "draws_s": 0.4, "verification_s": 4.0, "unseen": 12}
    wall = {"axpy": {"kernel": "axpy", "one": measured, "three": measured}}
    document = {"machine": "M", "command": "C", "budget": 30, "wall_budget": 100}
    document |= {"rates": {"near_pole": kernels[0]}, "wall": wall}
    page = unseen.markdown(document)
    assert "| near_pole | 0.0001 | 44.00% | 15.00% | 13.9% | 20 | 1 | 0.50 |" in page
    assert "| axpy | 16.0 | 16.0 | 0.40 (2.5%) | 4.00 (20.0%) | 12 |" in page
