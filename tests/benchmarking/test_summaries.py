"""What benchmarks conclude of what they measured: means, shares, fronts, who is the fastest, what breaks its limit."""

from __future__ import annotations

import argparse
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import (
    adopt,
    applications,
    kernels,
    promise,
    size_errors,
    timing_quality,
    unseen,
)
from benchmarks.in_turn import Remeasured
from mptune.backends.host_compiler import find_compiler
from mptune.results.trial import Measurement, Status, Trial
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration

# -- applications ---------------------------------------------------------------------------------


def test_gains_of_applications() -> None:
    def entry(fp32: float, joint: float, fresh: float | None = 0.5, **more: Any) -> dict[str, Any]:
        def way(speedup: float, **more: Any) -> dict[str, Any]:
            times = {"speedup": [speedup] * 3, "wall_s": 10.0, "thought_s": 0.5}
            return {**times, "fresh_used": 0.5, "is_baseline": False, **more}

        return {"ways": {"fp64": way(1.0), "fp32": way(fp32, **more), "joint": way(joint, fresh_used=fresh)}}

    # fp32 breaks the limit of the second and stays in fp64: its measured speed is not what counts.
    found = applications.summary([entry(2.0, 4.0), entry(1.7, 0.5, fresh=None, is_baseline=True)])
    assert (found["least"], found["broken"]) == (0.5, 1)
    assert (found["fp32"], found["joint"]) == (pytest.approx(math.sqrt(2)), pytest.approx(math.sqrt(2)))
    assert (found["gain"], found["overhead"]) == (pytest.approx(1.0), pytest.approx(0.05))


# -- adopted programs -----------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("types", ["double", "float"])
def test_a_program_for_promise_computes_what_the_program_does(types: str, tmp_path: Path) -> None:
    tagged = promise.as_cplusplus((adopt.PROGRAMS / "coulombic.cu").read_text())
    found = tagged.replace("__PR_t2__", "double").replace("__PR_vectors__", types)
    for variable in range(9):
        found = found.replace(f"__PR_t{variable}__", types)
    numbered = {f"t{variable}": "double" if variable == 2 else types for variable in range(1, 6)}
    assert promise.types_of(tagged, found) == {"vectors": types, **numbered}
    (tmp_path / "program.cc").write_text(found)
    command = [*find_compiler().command, "-std=c++17", "-O1", "-w", f"-I{promise.HEADER.parent}", "-DTIMED"]
    subprocess.run([*command, tmp_path / "program.cc", "-o", tmp_path / "program"], check=True)
    answer = subprocess.run([tmp_path / "program", "64", "40", "100"], capture_output=True, text=True, check=False)
    assert answer.stdout.splitlines()[-1] == "100 charges, 64 x 40 points, PASS"


# -- bundled kernels ------------------------------------------------------------------------------


def of_axpy(time_ms: float, error: float, status: Status = Status.OK, **values: str) -> Trial:
    types = dict.fromkeys(("a_type", "x_type", "y_type"), "fp64") | values
    return Trial(Configuration(types), status, "", Measurement({"time_ms": time_ms, "error": error}))


def test_the_best_of_each_class_of_accuracy() -> None:
    assert all(high < medium < low for high, medium, low in kernels.THRESHOLDS.values())
    classes = {entry.name: entry for entry in kernels.classes_of(load_kernel("axpy"))}
    exact, mixed = of_axpy(8.0, 1e-17), of_axpy(6.0, 2e-8, x_type="fp32")
    rough, broken = of_axpy(2.0, 1e-3, x_type="fp16", y_type="bf16"), of_axpy(1.0, 0.0, Status.CRASH, y_type="fp32")
    trials = [rough, exact, mixed, broken, of_axpy(0.5, math.nan, a_type="bf16")]
    expected = {"fp64": [exact], "high": [exact], "medium": [mixed, exact], "low": [rough, mixed]}
    for name, best in expected.items():
        fastest = kernels.fastest(trials, classes[name], len(best))
        assert fastest == [trial.configuration for trial in best]
    measured = [Remeasured(entry, [entry.time_ms]) for entry in (exact, mixed)]
    assert [one.trial for one in kernels.best_of(classes.values(), measured).values()] == [exact, exact, mixed, mixed]
    assert [one.name for one in kernels.best_of(classes.values(), [Remeasured(rough, [2.0])])] == ["low"]
    # gemm is searched in NumPy's types, too.
    classes = {entry.name: entry for entry in kernels.classes_of(load_kernel("gemm"))}
    types = dict.fromkeys(("a_type", "b_type", "accumulator_type", "c_type"), "fp32")
    assert classes["fp32"].admits(of_axpy(1.0, 1e-7, **types))
    assert not classes["fp32"].admits(of_axpy(1.0, 1e-7, **{**types, "a_type": "fp16"}))


# -- sizes, inputs, times -------------------------------------------------------------------------


def test_draws_above_what_was_told_of_them_are_counted() -> None:
    def entry(n: int, worst: float) -> dict[str, Any]:
        return {"sizes": {"n": n}, "types": ["t"], "seen": [0.8 * worst] * 22 + [worst], "fresh": [0.9 * worst] * 10}

    steady = [entry(1000 * 2**i, 1e-7) for i in range(6)]
    wild = [entry(1000 * 2**i, 1e-3 * (1000 if i == 2 else 1)) for i in range(6)]
    assert sum(each["broken"] for each in size_errors.breaks(steady)) == 0
    # What is told from all but the wild size is broken there, and only there.
    found = [*size_errors.breaks(wild)]
    assert {each["broken"] for each in found} == {0, 10}
    assert {each["where"] for each in found if each["broken"]} == {"between", "beyond"}


def test_violations_are_pooled_and_compared_with_the_bound_that_was_printed() -> None:
    def entry(way: str, violations: int, time_ms: float, tau: float) -> dict[str, Any]:
        verified = {"inputs": 20, "at_most": 0.14} if way == "now" else None
        found = {"threshold": tau, "way": way, "verified": verified, "verification_s": 1.0, "wall_s": 10.0}
        return {**found, "draws": 1000, "violations": violations, "time_ms": time_ms}

    winners = [entry("before", 440, 1.0, 1e-4), entry("now", 150, 2.0, 1e-4)]
    winners += [entry("before", 0, 1.0, 1e-2), entry("now", 0, 1.0, 1e-2)]
    of = [{"kernel": "near_pole", "winners": winners}]
    before, now = (unseen.summary(of, way) for way in unseen.WAYS)
    assert (before["pooled"], now["pooled"], now["worst"]) == (0.22, 0.075, 0.15)
    assert (now["above"], now["verified"], now["share_s"]) == (1, 2, 0.1)
    assert unseen.speeds(of) == [1.0, 0.5]
    assert unseen.speeds(of, held=True) == [1.0]


def test_intervals_hold_and_are_narrower_of_the_shortest_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_quality, "REPETITIONS", 40)
    found = timing_quality.statistics_part(argparse.Namespace())
    busy = found["always busy"]
    assert busy["shortest"]["half_width"] < 0.6 * busy["median"]["half_width"]
    assert all(by_name["shortest"]["coverage"] >= 0.85 for by_name in found.values())
