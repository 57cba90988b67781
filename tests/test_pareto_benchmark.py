"""The benchmark of fronts: what counts as an evaluation, what the peers are given, and what is written."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from mptune.interop.recorded import Record, RecordedSpace, assemble
from mptune.interop.recording import write_recording
from mptune.pareto import front
from mptune.results import Measurement, Status

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import pareto_quality  # noqa: E402
from benchmarks.fronts.problem import FrontProblem, FrontRecorder  # noqa: E402
from benchmarks.search.problem import BudgetSpent  # noqa: E402

BYTES = {"fp64": 8, "fp32": 4, "fp16": 2}
ERRORS = {"fp64": 1e-16, "fp32": 1e-7, "fp16": 1e-3}


def recording() -> RecordedSpace:
    """Return 36 of 45 combinations."""
    rng = np.random.default_rng(1)
    rows = list(itertools.product((1, 2, 4, 8, 16), (1, 2, 4), BYTES))
    records = []
    for row in (rows[i] for i in sorted(rng.permutation(len(rows))[:36])):
        time_ms = float(BYTES[row[2]] * rng.uniform(1.0, 2.0))
        metrics = {"time_ms": time_ms, "error": ERRORS[row[2]], "memory_bytes": float(BYTES[row[2]])}
        records.append(Record(row, Status.OK, measurement=Measurement(metrics)))
    return assemble("toy", ("block", "tile", "type"), {}, records)


def test_an_evaluation_is_a_recorded_configuration_that_is_new() -> None:
    problem = FrontProblem.of(recording(), ("time", "error"))
    configurations = problem.problem.configurations
    recorder = FrontRecorder(problem, 3, patience=5)
    assert recorder.propose((3, 1, "fp64")) is None
    for _ in range(3):
        levels = recorder.propose(configurations[0])
        assert levels is not None
        assert levels.tolist() == problem.levels[0].tolist()
    assert len(recorder.shares) == 1
    for configuration in configurations[1:3]:
        recorder.propose(configuration)
    assert recorder.shares[-1] == pytest.approx(problem.scale.share(problem.levels[:3]))
    with pytest.raises(BudgetSpent):
        recorder.propose(configurations[3])
    patient = FrontRecorder(problem, 3, patience=5)
    assert [patient.propose((3, 1, "fp64")) for _ in range(5)] == [None] * 5
    with pytest.raises(BudgetSpent):
        patient.propose((3, 1, "fp64"))


@pytest.mark.parametrize(("adapter", "module"), [("peer_pymoo", "pymoo"), ("peer_kernel_tuner", "kernel_tuner")])
def test_a_peer_finds_the_front_of_a_small_space(
    adapter: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    monkeypatch.chdir(tmp_path)
    problem = FrontProblem.of(recording(), ("time", "error"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the peers import warns of all sorts of things
        run = importlib.import_module(f"benchmarks.fronts.{adapter}").prepare(problem)
        shares = []
        for _repetition in range(2):
            recorder = FrontRecorder(problem, 36, patience=300)
            run(recorder, 3)
            shares.append(recorder.shares)
    assert shares[0] == shares[1]
    assert shares[0][-1] > 0.9
    assert len(front(problem.levels, [True, True])) == 3


@pytest.mark.full
def test_everything_is_written_and_a_second_run_is_free(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_recording(recording(), tmp_path / "toy.json.gz")
    tools = "mptune bayesian-pareto,mptune random"
    options = ["--data", str(tmp_path), "--tools", tools, "--seeds", "2", "--budget", "12", "--processes", "1"]
    options += ["--work", str(tmp_path / "work"), "--output", str(tmp_path / "out")]
    assert pareto_quality.main(options) == 0
    document = json.loads((tmp_path / "out" / "pareto.json").read_text())
    cells = document["results"]["cells"]
    assert list(cells) == ["toy time,error", "toy time,error,memory"]
    for found in cells.values():
        assert set(found) == {"mptune bayesian-pareto", "mptune random"}
        low, median, high = found["mptune random"]["quartiles"]
        assert len(median) == len(document["results"]["evaluations"])
        assert all(a <= b <= c for a, b, c in zip(low, median, high, strict=True))
    page = (tmp_path / "out" / "pareto.md").read_text()
    assert "| toy time,error |" in page
    capsys.readouterr()
    assert pareto_quality.main(options) == 0
    assert "0 of 2 seeds to run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tools", "pymo"], "did you mean 'pymoo NSGA-II'"),
        (["--seeds", "0"], "at least 1"),
        (["--only", "nowhere"], "nothing"),
    ],
)
def test_wrong_input_is_told(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pareto_quality.main(["--work", str(tmp_path), "--output", str(tmp_path), *arguments]) == 2
    assert message in capsys.readouterr().err
