"""The benchmark of the bundled kernels: what wins, what is printed, what a second run leaves out."""

from __future__ import annotations

import functools
import json
import math
import re
import sys
from pathlib import Path

import pytest

from mptune.buffers import DataManager
from mptune.evaluators.timing import TimingPlan
from mptune.registry import bundled_kernels, load_kernel
from mptune.results import Measurement, Status, Trial
from mptune.space.configuration import Configuration

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import kernels as benchmark  # noqa: E402
from benchmarks.in_turn import Remeasured  # noqa: E402

SHARED = ("--size", "smoke", "--rounds", "2", "--candidates", "2")


def trial(time_ms: float, error: float, status: Status = Status.OK, **values: str) -> Trial:
    types = dict.fromkeys(("a_type", "x_type", "y_type"), "fp64") | values
    return Trial(Configuration(types), status, "", Measurement({"time_ms": time_ms, "error": error}))


def test_every_bundled_kernel_has_thresholds_that_loosen() -> None:
    assert set(benchmark.THRESHOLDS) == set(bundled_kernels())
    assert all(high < medium < low for high, medium, low in benchmark.THRESHOLDS.values())


def test_the_best_of_each_class() -> None:
    classes = {entry.name: entry for entry in benchmark.classes_of(load_kernel("axpy"))}
    assert list(classes) == ["fp64", "high", "medium", "low"]
    exact, mixed = trial(8.0, 1e-17), trial(6.0, 2e-8, x_type="fp32")
    rough, broken = trial(2.0, 1e-3, x_type="fp16", y_type="bf16"), trial(1.0, 0.0, Status.CRASH, y_type="fp32")
    unknown = trial(0.5, math.nan, a_type="bf16")
    trials = [rough, exact, mixed, broken, unknown]
    assert benchmark.fastest(trials, classes["fp64"], 3) == [exact.configuration]
    assert benchmark.fastest(trials, classes["high"], 3) == [exact.configuration]
    assert benchmark.fastest(trials, classes["medium"], 3) == [mixed.configuration, exact.configuration]
    assert benchmark.fastest(trials, classes["low"], 2) == [rough.configuration, mixed.configuration]

    measured = [Remeasured(entry, [entry.time_ms]) for entry in (exact, mixed)]
    best = benchmark.best_of(classes.values(), measured)
    assert [entry.trial for entry in best.values()] == [exact, exact, mixed, mixed]
    best = benchmark.best_of(classes.values(), [Remeasured(rough, [2.0])])
    assert [wanted.name for wanted in best] == ["low"]


def test_a_time_is_the_median_of_the_rounds() -> None:
    measured = Remeasured(trial(8.0, 0.0), [30.0, 10.0, 20.0])
    assert (measured.time_ms, measured.spread_ms) == (20.0, 10.0)
    assert Remeasured(trial(8.0, 0.0), [8.0]).spread_ms == 0.0


def test_gemm_is_searched_in_numpy_s_types_too() -> None:
    classes = {entry.name: entry for entry in benchmark.classes_of(load_kernel("gemm"))}
    assert list(classes) == ["fp64", "fp32", "high", "medium", "low"]
    types = dict.fromkeys(("a_type", "b_type", "accumulator_type", "c_type"), "fp32")
    assert classes["fp32"].admits(trial(1.0, 1e-7, **types))
    assert not classes["fp32"].admits(trial(1.0, 1e-7, **{**types, "a_type": "fp16"}))


def test_numpy_s_product_takes_time_in_both_types() -> None:
    gemm = load_kernel("gemm")
    data = DataManager(gemm, gemm.resolve_sizes("smoke"))
    assert all(benchmark.blas_ms(data, name, rounds=2, threads=1) > 0 for name in ("fp64", "fp32"))


@pytest.mark.full
def test_it_searches_then_measures_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # How exactly the machine is measured matters to nobody here, and it is the same machine both times.
    monkeypatch.setattr("mptune.evaluators.roofline._PLAN", TimingPlan(warmups=0, min_repeats=2, max_repeats=2))
    monkeypatch.setattr(benchmark, "Roofline", functools.cache(benchmark.Roofline))
    monkeypatch.setattr(benchmark, "get_backend", functools.cache(benchmark.get_backend))
    output, runs = tmp_path / "kernels.md", ("--runs", str(tmp_path / "runs"))
    assert benchmark.main([*SHARED, *runs, "--kernels", "axpy", "--budget", "3", "--output", str(output)]) == 0
    text = output.read_text()
    assert capsys.readouterr().out.strip() == text.strip()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert [(row[0], row[1]) for row in rows[2:]] == [("axpy", level) for level in ("fp64", "high", "medium", "low")]
    assert all(row[9] in ("memory", "compute") and row[-1] == "" for row in rows[2:])
    assert re.search(r"- peak in fp64: \d+ GFlop/s", text)
    assert re.search(r"- axpy, fp64: `.*a_type=fp64, x_type=fp64, y_type=fp64`", text)

    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").iterdir()}
    assert benchmark.main([*SHARED, *runs, "--kernels", "axpy", "--no-search", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {file: file.stat().st_mtime_ns for file in files} == files
    assert set(document) == {"command", "machine", "rows"}
    for row in document["rows"]:
        assert row["time_ms"] > 0
        assert row["error"] <= (row["threshold"] or math.inf)
        assert row["roofline"] == pytest.approx(max(row["memory_ms"], row["compute_ms"]) / row["time_ms"])
    assert document["rows"][0]["speedup"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kernels", "gem"], "did you mean 'gemm'"),
        (["--rounds", "0"], "--rounds 0: expected at least 1"),
        (["--kernels", "axpy", "--no-search", "--runs", "nowhere"], "nowhere"),
    ],
)
def test_it_says_what_is_wrong(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(benchmark, "machine", lambda backend, roofline: {})
    assert benchmark.main(arguments) == 2
    assert message in capsys.readouterr().err
