"""What benchmarks of searches replay: which evaluations count, in which order tools are told, what is kept."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.fronts.problem import FrontProblem, FrontRecorder
from benchmarks.search import score
from benchmarks.search.peers import PEERS
from benchmarks.search.problem import BudgetSpent, Problem, Recorder
from benchmarks.search.tools import replay
from mptune.interop import write_run
from mptune.interop.recorded import Record, assemble
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status
from mptune.run import Run

BYTES = {"fp64": 8, "fp32": 4, "fp16": 2}
ERRORS = {"fp64": 1e-16, "fp32": 1e-7, "fp16": 1e-3}


def measured(**metrics: float) -> Any:
    return {"status": Status.OK, "measurement": Measurement(metrics)}


def scattered() -> Run:
    """Return 96 of 120 combinations, 12 of them failing, with a category, a truth value and a constant."""
    rng = np.random.default_rng(1)
    rows = list(itertools.product((1, 2, 4, 8, 16), (3, 1, 2), ("row", "column"), (False, True), (7,), (10, 20)))
    records = []
    for number, i in enumerate(rng.permutation(len(rows))[:96]):
        ran = Record(rows[i], **measured(time_ms=float(rng.uniform(1, 9))))
        records.append(Record(rows[i], Status.LAUNCH_ERROR) if number < 12 else ran)
    return assemble("toy", ("block", "tile", "order", "pad", "one", "unroll"), {}, records)


# -- evaluations ----------------------------------------------------------------------------------


def test_repetitions_are_free_failures_are_not_and_foreign_configurations_are_refused() -> None:
    problem = Problem.from_recorded(scattered(), Objective())
    failing, running = (
        [c for c, cost in zip(problem.configurations, problem.costs, strict=True) if math.isnan(cost) == failed]
        for failed in (True, False)
    )
    recorder = Recorder(problem, 3, patience=50)
    assert recorder.propose(failing[0]) is None
    first = recorder.propose(running[0])
    by_values = {trial.configuration.subset(problem.names): trial for trial in scattered().trials}
    assert [by_values[c].time_ms for c in running] == problem.costs[~np.isnan(problem.costs)].tolist()
    assert recorder.propose(running[0]) == first
    with pytest.raises(KeyError):
        recorder.propose((0, 0, "row", False, 7, 10))
    recorder.propose(failing[1])
    assert recorder.done
    with pytest.raises(BudgetSpent):
        recorder.propose(running[1])
    assert recorder.best == [None, first, first]
    patient = Recorder(problem, 3, patience=50)
    for _ in range(51):
        patient.propose(running[0])
    with pytest.raises(BudgetSpent):  # by a tool that repeats itself
        patient.propose(running[0])
    assert patient.best == [first]


def front_space() -> Run:
    """Return 36 of 45 combinations."""
    rng = np.random.default_rng(1)
    rows = list(itertools.product((1, 2, 4, 8, 16), (1, 2, 4), BYTES))
    records = [
        Record(row, **measured(time_ms=float(BYTES[row[2]] * rng.uniform(1.0, 2.0)), error=ERRORS[row[2]]))
        for row in (rows[i] for i in sorted(rng.permutation(len(rows))[:36]))
    ]
    return assemble("toy", ("block", "tile", "type"), {}, records)


def test_an_evaluation_of_a_front_is_a_recorded_configuration_that_is_new() -> None:
    problem = FrontProblem.of(front_space(), ("time", "error"))
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
    assert problem.scale.share(problem.levels) == pytest.approx(1.0)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PEERS)
def test_every_peer_spends_its_budget_on_recorded_configurations(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not PEERS[name].is_installed:
        pytest.skip(PEERS[name].install)
    monkeypatch.chdir(tmp_path)
    write_run(scattered(), tmp_path / "toy.json", "cache")
    run = replay({"space": str(tmp_path / "toy.json"), "budget": 16, "tool": {"peer": name}})
    best = run(3)["best"]
    assert len(best) == 16
    assert best == run(3)["best"]
    values = [value for value in best if value is not None]
    assert set(values) <= {t.time_ms for t in scattered().trials if t.status is Status.OK}
    assert values == sorted(values, reverse=True)
    assert run(4)["best"] != best


def test_the_best_from_the_start_scores_1_and_the_median_less_than_random_search() -> None:
    pytest.importorskip("autotuning_methodology")
    times = sorted(trial.time_ms for trial in scattered().trials if trial.is_valid)
    runs = {"best": np.full((60, 3), times[0]), "median": np.full((60, 3), times[len(times) // 2])}
    scores = score.scores(scattered(), runs)
    assert scores["best"] == pytest.approx(1.0)
    assert scores["median"] < 0


# -- order ----------------------------------------------------------------------------------------


# -- what is kept ---------------------------------------------------------------------------------
