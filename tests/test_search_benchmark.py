"""The search benchmark's frame: what counts as an evaluation, what a stopped benchmark remembers, what may go wrong."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mptune.interop.cache import write_cache
from mptune.interop.recorded import Record, RecordedSpace, assemble
from mptune.objective import Objective
from mptune.results import Measurement, Status

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import search_quality  # noqa: E402
from benchmarks.search import cells, score  # noqa: E402
from benchmarks.search.cells import Cache, Job  # noqa: E402
from benchmarks.search.peers import PEERS  # noqa: E402
from benchmarks.search.problem import BudgetSpent, Problem, Recorder  # noqa: E402
from benchmarks.search.runner import run_jobs  # noqa: E402
from benchmarks.search.tools import replay, simulations  # noqa: E402

BUDGET = 16


def recording(seed: int = 1) -> RecordedSpace:
    """Return 96 of 120 combinations, 12 of them failing, with a category, a truth value and a constant."""
    rng = np.random.default_rng(seed)
    rows = list(itertools.product((1, 2, 4, 8, 16), (3, 1, 2), ("row", "column"), (False, True), (7,), (10, 20)))
    chosen = [rows[i] for i in rng.permutation(len(rows))[:96]]
    records = [
        Record(row, Status.LAUNCH_ERROR, "failed")
        if number < 12
        else Record(row, Status.OK, measurement=Measurement({"time_ms": float(rng.uniform(1, 9))}))
        for number, row in enumerate(chosen)
    ]
    return assemble(f"toy{seed}", ("block", "tile", "order", "pad", "one", "unroll"), {}, records)


@pytest.fixture
def space_file(tmp_path: Path) -> Path:
    path = tmp_path / "toy1.json"
    write_cache(recording(), path)
    return path


def test_a_problem_is_the_recording() -> None:
    recorded = recording()
    problem = Problem.from_recorded(recorded, Objective())
    assert len(problem.configurations) == 96
    assert int(np.isnan(problem.costs).sum()) == 12
    for configuration, cost in zip(problem.configurations, problem.costs.tolist(), strict=True):
        (trial,) = [t for t in recorded.trials.values() if t.configuration.subset(problem.names) == configuration]
        assert (math.isnan(cost) and trial.status is Status.LAUNCH_ERROR) or cost == trial.time_ms


def test_repetitions_are_free_failures_are_not_and_foreign_configurations_are_refused() -> None:
    problem = Problem.from_recorded(recording(), Objective())
    failing = [c for c, cost in zip(problem.configurations, problem.costs, strict=True) if math.isnan(cost)]
    running = [c for c, cost in zip(problem.configurations, problem.costs, strict=True) if not math.isnan(cost)]
    recorder = Recorder(problem, 3)
    assert recorder.propose(failing[0]) is None
    first = recorder.propose(running[0])
    assert recorder.propose(running[0]) == first
    with pytest.raises(KeyError):
        recorder.propose((0, 0, "row", False, 7, 10))
    assert recorder.best == [None, first]
    recorder.propose(failing[1])
    assert recorder.best == [None, first, first]
    assert recorder.done
    assert recorder.propose(running[0]) == first
    with pytest.raises(BudgetSpent):
        recorder.propose(running[1])
    assert len(recorder.best) == 3


def test_a_tool_that_repeats_itself_is_stopped() -> None:
    problem = Problem.from_recorded(recording(), Objective())
    recorder = Recorder(problem, 3, patience=50)
    recorder.propose(problem.configurations[0])
    for _ in range(50):
        recorder.propose(problem.configurations[0])
    with pytest.raises(BudgetSpent):
        recorder.propose(problem.configurations[0])
    assert len(recorder.best) == 1


def squares(settings: dict[str, Any]) -> Any:
    """A target: writes down each call, so that a test can count them."""

    def run(seed: int) -> dict[str, Any]:
        print("chatter that is no result")
        with Path(settings["log"]).open("a") as log:
            log.write(f"{seed}\n")
        if seed in settings.get("failing", ()):
            raise ValueError(f"cannot square {seed}")
        while seed in settings.get("endless", ()):
            pass
        return {"square": seed * seed}

    return run


def job(tmp_path: Path, **changes: Any) -> Job:
    settings = {"log": str(tmp_path / "log")} | changes.pop("settings", {})
    made = Job("section", "space", "tool", "tests.test_search_benchmark:squares", settings, (1, 2, 3))
    return dataclasses.replace(made, **changes)


@pytest.mark.full
def test_a_stopped_benchmark_goes_on_where_it_was(tmp_path: Path) -> None:
    said: list[str] = []
    results = run_jobs([job(tmp_path, seeds=(1, 2))], Cache(tmp_path / "work"), 1, said.append)
    assert results.of("space", "tool") == {1: {"square": 1}, 2: {"square": 4}}
    assert not results.failures
    cells = tmp_path / "work" / "cells.jsonl"
    text = cells.read_text()
    assert [json.loads(line)["seed"] for line in text.splitlines()] == [1, 2]
    # Stopped in the middle of the second line.
    cells.write_text(text[: text.index("\n") + 20])
    results = run_jobs([job(tmp_path)], Cache(tmp_path / "work"), 1, said.append)
    assert results.of("space", "tool") == {1: {"square": 1}, 2: {"square": 4}, 3: {"square": 9}}
    assert (tmp_path / "log").read_text().split() == ["1", "2", "2", "3"]
    again = run_jobs([job(tmp_path)], Cache(tmp_path / "work"), 1, said.append)
    assert again.found == results.found
    assert (tmp_path / "log").read_text().split() == ["1", "2", "2", "3"]


def test_results_of_other_settings_files_or_versions_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "data"
    file.write_text("1")
    first = job(tmp_path, files=(file,))
    cache = Cache(tmp_path / "work")
    cache.add(first, 1, {"square": 1})
    assert cache.get(first, 1) == {"square": 1}
    assert cache.get(job(tmp_path, files=(file,), version="2"), 1) is None
    assert cache.get(job(tmp_path, files=(file,), settings={"budget": 3}), 1) is None
    monkeypatch.setattr(cells, "_reading", lambda: "what reads recordings is another")
    assert cache.get(first, 1) is None
    monkeypatch.undo()
    assert cache.get(first, 1) == {"square": 1}
    file.write_text("22")
    assert cache.get(first, 1) is None


def changing(settings: dict[str, Any]) -> Any:
    """A target: the file it has read becomes another one."""

    def run(seed: int) -> dict[str, Any]:
        if Path(settings["file"]).read_text() != "another":
            Path(settings["file"]).write_text("another")
        return {"seed": seed}

    return run


@pytest.mark.full
def test_a_result_of_a_file_that_was_changed_meanwhile_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("1")
    target = "tests.test_search_benchmark:changing"
    made = job(tmp_path, target=target, settings={"file": str(file)}, files=(file,))
    cache = Cache(tmp_path / "work")
    results = run_jobs([made], cache, 1, lambda _: None)
    assert results.failures == {("space", "tool"): "what it reads was changed meanwhile"}
    assert results.of("space", "tool") == {}
    assert cache.get(made, 1) is None
    # Nothing changes it any more.
    assert set(run_jobs([made], cache, 1, lambda _: None).of("space", "tool")) == {1, 2, 3}


@pytest.mark.full
def test_who_stops_a_benchmark_does_not_wait_for_all_of_it(tmp_path: Path) -> None:
    def stop(line: str) -> None:
        raise KeyboardInterrupt

    jobs = [job(tmp_path, tool=f"tool {number}") for number in range(6)]
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, Cache(tmp_path / "work"), 1, stop)
    done = (tmp_path / "log").read_text().split()
    assert done[:3] == ["1", "2", "3"]
    assert len(done) < 18


@pytest.mark.full
def test_a_seed_that_fails_or_hangs_is_named_and_the_others_run(tmp_path: Path) -> None:
    jobs = [
        job(tmp_path, tool="failing", settings={"failing": [2]}),
        job(tmp_path, tool="hanging", settings={"endless": [2]}, limit_s=30.0),
        job(tmp_path, tool="broken", target="tests.test_search_benchmark:nothing"),
    ]
    results = run_jobs(jobs, Cache(tmp_path / "work"), 2, lambda _: None)
    assert set(results.of("space", "failing")) == set(results.of("space", "hanging")) == {1, 3}
    assert results.of("space", "broken") == {}
    assert "cannot square 2" in results.failures["space", "failing"]
    assert results.failures["space", "hanging"] == "seed 2 took more than 30 s"
    assert "nothing" in results.failures["space", "broken"]


def _installed(name: str) -> Any:
    missing = not PEERS[name].is_installed
    return pytest.param(name, marks=pytest.mark.skipif(missing, reason=PEERS[name].install))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [_installed(name) for name in PEERS])
def test_every_peer_spends_its_budget_on_recorded_configurations(
    name: str, space_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = replay({"space": str(space_file), "budget": BUDGET, "tool": {"peer": name}})
    result, again = run(3), run(3)
    best = result["best"]
    assert len(best) == BUDGET
    assert best == again["best"]
    assert result["proposals"] >= BUDGET
    recorded = {t.time_ms for t in recording().trials.values() if t.status is Status.OK}
    values = [value for value in best if value is not None]
    assert set(values) <= recorded
    assert values == sorted(values, reverse=True)
    assert run(4)["best"] != best


@pytest.mark.full
def test_the_timing_section_writes_its_results(
    space_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--sections", "timing", "--spaces", space_file.parent, "--only", "toy", "--seeds", 2, "--budget", 60]
    arguments += ["--strategies", "random,genetic", "--peers", "none", "--processes", 1]
    arguments += ["--work", tmp_path / "work", "--output", tmp_path / "results"]
    assert search_quality.main([str(argument) for argument in arguments]) == 0
    assert "mptune genetic" in capsys.readouterr().out
    document = json.loads((tmp_path / "results" / "search" / "timing.json").read_text())
    assert [row["strategy"] for row in document["results"]["strategies"]] == ["mptune random", "mptune genetic"]
    assert document["results"]["spaces"][0]["configurations"] == 96
    assert "| mptune random |" in (tmp_path / "results" / "search.md").read_text()
    assert len((tmp_path / "work" / "cells.jsonl").read_text().splitlines()) == 4


def test_the_score_section_scores_the_runs_of_the_timing_section(
    space_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("autotuning_methodology")
    arguments = ["--sections", "timing,score", "--spaces", space_file.parent, "--only", "toy", "--seeds", 3]
    arguments += ["--budget", 60, "--strategies", "random,bayesian", "--peers", "none", "--processes", 1]
    arguments += ["--work", tmp_path / "work", "--output", tmp_path / "results"]
    assert search_quality.main([str(argument) for argument in arguments]) == 0
    assert "| mptune random |" in capsys.readouterr().out
    assert len((tmp_path / "work" / "cells.jsonl").read_text().splitlines()) == 6
    document = json.loads((tmp_path / "results" / "search" / "score.json").read_text())
    (scores,) = document["results"]["scores"].values()
    assert set(scores) == {"mptune random", "mptune bayesian"}
    assert all(-1 < score <= 1 for score in scores.values())


def test_the_best_from_the_start_scores_1_and_the_median_less_than_random_search() -> None:
    pytest.importorskip("autotuning_methodology")
    recorded = recording()
    times = sorted(trial.time_ms for trial in recorded.trials.values() if trial.is_valid)
    runs = {"best": np.full((60, 3), times[0]), "median": np.full((60, 3), times[len(times) // 2])}
    scores = score.scores(recorded, runs)
    assert scores["best"] == pytest.approx(1.0)
    assert scores["median"] < 0


def test_wrong_input_exits_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert search_quality.main(["--sections", "timng"]) == 2
    assert "did you mean 'timing'" in capsys.readouterr().err
    assert search_quality.main(["--strategies", "genetc"]) == 2
    assert "did you mean 'genetic'" in capsys.readouterr().err
    assert search_quality.main(["--seeds", "0"]) == 2


def test_tools_without_results_everywhere_are_not_compared(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "work")
    jobs = [job(tmp_path, space=space, tool=tool, seeds=(1,)) for space in ("toy1", "toy2") for tool in ("a", "b")]
    for one in jobs[:-1]:
        cache.add(one, 1, {"best": [None, 3.0], "strategy_s": 0.1})
    results = run_jobs(jobs[:-1], cache, 1, lambda _: None)
    spaces = {"toy1": recording(1), "toy2": recording(2)}
    made = simulations(results, spaces, ("a", "b"), 2, Objective())
    assert [(s.space, s.strategy) for s in made] == [("toy1", "a"), ("toy2", "a")]
    assert made[1].optimum == min(t.time_ms for t in spaces["toy2"].trials.values() if t.status is Status.OK)
