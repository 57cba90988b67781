"""Figs. 4 to 10 and 12 of Heldens 2026: what peers are told, figures from runs made by hand, and whole replays."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mptune.errors import MptuneError, ObserverUnavailableError
from mptune.interop.recorded import Record, RecordedSpace, assemble
from mptune.interop.recording import write_recording
from mptune.interop.spaces import read_space
from mptune.objective import Objective
from mptune.results import Measurement, Status, Trial
from mptune.space.configuration import Configuration

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.reproductions import item  # noqa: E402
from benchmarks.reproductions.heldens import dominance, replays, runs, searches, strategies, unified  # noqa: E402
from benchmarks.reproductions.item import Given, Skipped  # noqa: E402
from benchmarks.search.cells import Job, Results  # noqa: E402
from benchmarks.search.precision_cells import LEVELS, cells_of  # noqa: E402
from benchmarks.search.section import Settings  # noqa: E402
from benchmarks.search.two_stages import search_in_stages  # noqa: E402

NAMES = ("x_type", "y_type", "block", "tile")
ERRORS = {"fp64": 0.0, "fp32": 1e-7, "fp16": 1e-3}
SIZES = {"fp64": 8, "fp32": 4, "fp16": 2}
Best = list[float | None]


def recording(kernel: str = "bessel") -> RecordedSpace:
    """The best block depends on the types; blocks of 32 with tiles of 4 crash."""
    records = []
    for row in itertools.product(SIZES, SIZES, (32, 64, 128, 256), (1, 2, 4)):
        x, y, block, tile = row
        if (block, tile) == (32, 4):
            records.append(Record(row, Status.CRASH))
            continue
        size = SIZES[x] + SIZES[y]
        time_ms = size * (1 + math.log2(block * size / 512) ** 2) + tile
        error = 1e-16 + ERRORS[x] + 2 * ERRORS[y]
        records.append(Record(row, Status.OK, measurement=Measurement({"time_ms": time_ms, "error": error})))
    return assemble(kernel, NAMES, {}, records, kernel=kernel, device="a processor", signature=NAMES[:2])


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Given:
    monkeypatch.setattr(searches, "_MOST_TRIED", 10.0)
    (tmp_path / "data").mkdir()
    write_recording(recording(), tmp_path / "data" / "bessel-host.json.gz")
    return Given(tmp_path / "data", tmp_path, tmp_path, tmp_path / "work", runs=2)


def here(jobs: Sequence[Job], *_: Any) -> Results:
    """Run jobs in this process."""
    found: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for job in jobs:
        module, _, name = job.target.partition(":")
        with warnings.catch_warnings():
            # As in the process a job usually runs in: peers warn of what is meant.
            warnings.simplefilter("ignore")
            run = getattr(importlib.import_module(module), name)(dict(job.settings))
            found[job.space, job.tool] = {seed: run(seed) for seed in job.seeds}
    return Results(tuple(jobs), found)


def by_hand(given: Given, best: Callable[[str, int, float], float | None]) -> Callable[..., Results]:
    """Return a runner whose runs end at what ``best`` says, given tool, seed and the best time there is."""
    optima = {cell.name: cell.optimum for cell in cells_of(Settings(given.spaces, given.data))}

    def run(jobs: Sequence[Job], *_: Any) -> Results:
        found: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
        for job in jobs:
            optimum = optima[job.space]
            assert optimum is not None
            ends = {seed: best(job.tool, seed, optimum) for seed in job.seeds}
            found[job.space, job.tool] = {seed: {"best": [None, end], "strategy_s": 0.0} for seed, end in ends.items()}
        return Results(tuple(jobs), found)

    return run


def percentages(cell: Any) -> float:
    return float(str(cell).rstrip("%"))


# -- what is replayed ------------------------------------------------------------------------------


def test_peers_are_told_the_time_and_a_longer_one_where_the_error_is_too_large(given: Given) -> None:
    recorded = read_space(given.data / "bessel-host.json.gz")
    goal = recorded.with_baseline(Objective(threshold=1e-6))
    problem, times_ms = replays.penalised(recorded, goal)
    assert len(problem.costs) == recorded.space.size
    for configuration, cost, time_ms in zip(problem.configurations, problem.costs, times_ms, strict=True):
        trial = recorded.by_configuration()[Configuration(dict(zip(NAMES, configuration, strict=True)))]
        if trial.status is Status.CRASH:
            assert math.isnan(cost)
            assert math.isnan(time_ms)
        elif trial.error <= 1e-6:
            assert cost == pytest.approx(trial.time_ms)
            assert time_ms == trial.time_ms
        else:
            assert cost == pytest.approx(trial.time_ms * math.exp(math.log10(trial.error / 1e-6)))
            assert math.isnan(time_ms)


def test_only_feasible_times_count_as_found(given: Given) -> None:
    recorded = read_space(given.data / "bessel-host.json.gz")
    problem, times_ms = replays.penalised(recorded, recorded.with_baseline(Objective(threshold=1e-6)))
    recorder = replays.PenalisedRecorder(problem, times_ms, budget=4)
    told = [
        recorder.propose(configuration)
        for configuration in (
            ("fp16", "fp16", 128, 1),  # fast and too inaccurate
            ("fp64", "fp64", 32, 1),
            ("fp64", "fp64", 32, 1),
            ("fp64", "fp32", 32, 4),  # crashes
            ("fp32", "fp32", 64, 1),
        )
    ]
    wide, narrow = 16 * (1 + math.log2(32 * 16 / 512) ** 2) + 1, 8 * (1 + math.log2(64 * 8 / 512) ** 2) + 1
    assert told[0] is not None
    assert told[3] is None
    assert recorder.best_feasible == pytest.approx([None, wide, wide, narrow])
    assert len(recorder.best) == len(recorder.best_feasible) == 4


def test_a_searcher_is_given_its_penalty_and_the_recorded_baseline(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Objective] = []
    original = replays.make

    def make(name: str, space: Any, objective: Objective, **options: Any) -> Any:
        asked.append(objective)
        return original(name, space, objective, **options)

    monkeypatch.setattr(replays, "make", make)
    (cell, *_) = cells_of(Settings(given.spaces, given.data))
    searcher = replays.Searcher("GA, decay, beta 2.3", "genetic", beta=2.3)
    job = searcher.job(cell, runs=3, budget=30)
    assert job.seeds == (0, 1, 2)
    made = replays.replay(dict(job.settings))(1)
    assert len(made["best"]) == 30
    (objective,) = asked
    assert (objective.penalty, objective.beta, objective.threshold) == ("decay", 2.3, cell.threshold)
    fp64 = [t.time_ms for t in recording().trials.values() if t.is_valid and t.error == 1e-16]
    assert objective.baseline == pytest.approx(min(fp64))


def test_random_sampling_of_everything_finds_the_optimum(given: Given) -> None:
    for cell in cells_of(Settings(given.spaces, given.data)):
        job = replays.Searcher("Rand", "random").job(cell, runs=1, budget=500)
        best = replays.replay(dict(job.settings))(0)["best"]
        assert best[-1] == cell.optimum
        found = [value for value in best if value is not None]
        assert found == sorted(found, reverse=True)


def test_a_strict_split_leaves_what_the_first_stage_does_not_need(given: Given) -> None:
    (_, cell, _) = cells_of(Settings(given.spaces, given.data))
    stages = {}
    for strict in (True, False):
        settings = {
            "space": str(cell.path),
            "budget": 22,
            "tool": {"strategy": "exhaustive", "options": {}, "penalty": "decay"},
            "max_error": cell.threshold,
            "order": "precision then performance",
            "strict": strict,
        }
        stages[strict] = search_in_stages(settings)(0)["stages"]
    # Two of four parameters are types: 11 evaluations each, and nine combinations of types.
    assert stages == {True: [9, 11], False: [9, 12]}


# -- figures ---------------------------------------------------------------------------------------


def test_penalties_are_compared_by_kernel(given: Given, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ends = {"GA, hard": (2.0, None), "GA, linear": (1.6, 1.6), "GA": (1.0, 1.25), "GA, decay, beta 2.3": (1.0, 1.0)}

    def best(tool: str, seed: int, optimum: float) -> float | None:
        factor = ends[tool][seed % 2]
        return None if factor is None else factor * optimum

    monkeypatch.setattr(item, "run_jobs", by_hand(given, best))
    made = searches.h_f4(given)
    assert made.tables[0].rows[0][-1] == "open (too few runs)"
    assert "decay is open (too few runs) on 1" in made.summary
    given = dataclasses.replace(given, runs=6)
    made = searches.h_f4(given)
    (row,) = made.tables[0].rows
    assert row == ("Bessel", "25.0%", "62.5%", "90.0%", "100.0%", "better")
    assert "of 1 kernels, hard is better than linear on 0 and than decay on 0" in made.summary
    assert made.summary.endswith("compared with linear, decay is better on 1.")
    cells = cells_of(Settings(given.spaces, given.data))
    for cell, row in zip(cells, made.tables[1].rows, strict=True):
        speedup = searches.optimal_speedup(cell)
        assert row[:4] == ("Bessel", cell.level, f"{speedup:.2f}", 250)
        assert row[4] == f"{speedup / 4:.2f} (0.00 to {speedup / 2:.2f})"
    # Runs half of which reach 100% and half 80% may as well be those of something that reaches 85%.
    ends["GA, linear"] = (1 / 0.85, 1 / 0.85)
    assert searches.h_f4(given).summary.endswith("decay is on par on 1.")
    (draw,) = made.plots.values()
    draw(tmp_path / "penalties.png")
    assert (tmp_path / "penalties.png").stat().st_size > 1000


def test_inaccurate_configurations_that_score_more_are_counted(given: Given) -> None:
    """By hand: a speed that is more than e times that of the best accurate one, one digit beyond the threshold."""
    for cell in cells_of(Settings(given.spaces, given.data)):
        trials, speed = list(cell.recorded.trials.values()), (cell.objective.baseline or math.nan)
        best = speed / (cell.optimum or math.nan)
        for searcher in searches._PENALTIES:
            excess = [cell.objective.log10_excess(trial) for trial in trials]
            scores = [
                speed / trial.time_ms * math.exp(-searcher.beta * over)
                for trial, over in zip(trials, excess, strict=True)
                if over > 0 and math.isfinite(over)
            ]
            if searcher.penalty == "decay":
                assert searches._rivals(cell, searcher) == sum(score > best for score in scores)
            else:
                assert searches._rivals(cell, searcher) == 0


def test_strategies_and_who_beats_whom(given: Given, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    factors = {"Rand": (2.0, 1.25), "BO": (1.0, 1.25), "BH": (4.0, 4.0), "mptune bayesian": (1.0, 1.0)}

    def best(tool: str, seed: int, optimum: float) -> float | None:
        return factors.get(tool, (2.0, 2.0))[seed] * optimum

    monkeypatch.setattr(item, "run_jobs", by_hand(given, best))
    found = {row[0]: row for row in searches.h_f5(given).tables[0].rows}
    assert len(found) == len(strategies.STRATEGIES) == 9
    assert found["BO"] == ("BO", "bayesian-multi", "96%", "90.0%", "90.0%", "90.0%", "90.0%", 0)
    assert found["mptune bayesian"][-1] == 3
    assert found["GA"][2:4] == ("94%", "50.0%")
    against = dominance.h_f7(given)
    wins = {row[0]: percentages(row[1]) for row in against.tables[0].rows}
    spreads = {row[0]: row[2] for row in against.tables[0].rows}
    # Six runs: two on each of three cells.
    assert spreads["BO"] == "87.5% (75.0% to 100.0%)"
    # BO's 1 beats both runs of random, its 1.25 beats one and equals the other; 2 equals one and loses to the other.
    assert wins["BO"] == 87.5
    assert wins["GA"] == 25.0
    assert (wins["BH"], wins["mptune bayesian"]) == (0.0, 100.0)
    assert "Here the best of the paper's is BO with 87.5%" in against.summary
    pairs = dominance.h_f8(given)
    rows = {(row[0], row[1]): row for row in pairs.tables[0].rows}
    others = "GA, PSO, MLS, FF, SA"
    assert rows["high", "BO"][2:] == ("96%", "88%", "87.5% [75.0% to 100.0%]")
    assert rows["low", "BH"][2:] == (None, "0%", "0.0% [0.0% to 0.0%]")
    assert "on Bessel, BO beats random in 88% (high) and" in pairs.summary
    assert "and BH the one that it beats most in 0%" in pairs.summary
    assert [table.title.rpartition(", ")[2] for table in pairs.tables[1:]] == [f"{w} accuracy" for w in LEVELS]
    matrix = {row[0]: dict(zip(strategies.STRATEGIES, row[1:], strict=True)) for row in pairs.tables[1].rows}
    assert (matrix["BO"]["GA"], matrix["GA"]["BO"], matrix["BO"]["BO"]) == ("100%", "0%", None)
    assert (matrix["BO"]["mptune bayesian"], matrix["mptune bayesian"]["BO"]) == ("25%", "75%")
    assert all(matrix["GA"][name] == "50%" for name in others.split(", ")[1:])
    for name, draw in {**against.plots, **pairs.plots, **searches.h_f5(given).plots}.items():
        draw(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 1000


@pytest.mark.full
def test_unified_and_staged_searches_really_run(given: Given, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(item, "run_jobs", here)
    monkeypatch.setattr(unified, "_STAGED_BY", (strategies.STRATEGIES["BO"], strategies.DEFAULT))
    made = unified.h_f10(given)
    rows = {(row[0], row[1]): row for row in made.tables[0].rows}
    assert len(rows) == 2 * 5
    # The budget is enough for everything at once, and for everything in each stage.
    assert rows["BO", "unified"][2:] == ("96%", "100.0%", "9.1%", "0.0%", "100.0% (100.0% to 100.0%)")
    assert made.tables[1].rows[0][:4] == ("BO", "Bessel", "high", "100.0% [100.0% to 100.0%]")
    for order in ("performance then precision", "precision then performance"):
        strict, passed = rows["BO", f"{order}, strictly"], rows["BO", f"{order}, passed on"]
        other = rows["mptune bayesian", f"{order}, strictly"]
        assert strict[3] == passed[3] == other[3]
        assert strict[5] == passed[5] == other[5]
        assert percentages(strict[3]) < 100.0
    assert rows["BO", "performance then precision, strictly"][2] == "77%"
    assert rows["BO", "performance then precision, passed on"][2] is None
    assert "split strictly: BO 100.0%, " in made.summary
    (draw,) = made.plots.values()
    draw(tmp_path / "approaches.png")
    assert (tmp_path / "approaches.png").stat().st_size > 1000


def test_other_frameworks_really_search(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyatf")
    pytest.importorskip("kernel_tuner")
    monkeypatch.setattr(item, "run_jobs", here)
    monkeypatch.chdir(given.data)
    chosen = [each for each in searches._FRAMEWORKS if each.name in ("pyATF", "Kernel Tuner GA", "GA", "Rand")]
    monkeypatch.setattr(searches, "_FRAMEWORKS", tuple(chosen))
    made = searches.h_f9(given)
    shares = {row[0]: percentages(row[1]) for row in made.tables[0].rows}
    assert set(shares) == {"pyATF", "Kernel Tuner GA", "GA", "Rand"}
    assert shares["Rand"] == 100.0
    assert all(50.0 < share <= 100.0 for share in shares.values())


def test_a_replay_that_fails_is_an_error(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = {("bessel-host high", "GA"): "seed 0 took more than 1800 s"}
    monkeypatch.setattr(item, "run_jobs", lambda jobs, *_: Results(tuple(jobs), {}, failing))
    with pytest.raises(MptuneError, match="GA on bessel-host high: seed 0 took more than 1800 s"):
        searches.h_f5(given)


def test_without_a_feasible_configuration_nothing_is_replayed(tmp_path: Path) -> None:
    records = [Record(("fp16", 32), Status.OK, measurement=Measurement({"time_ms": 1.0, "error": 0.5}))]
    recorded = assemble("bessel", ("x_type", "block"), {}, records, kernel="bessel")
    write_recording(recorded, tmp_path / "bessel-host.json.gz")
    with pytest.raises(Skipped, match="no recording of the paper's kernels has 100 configurations of which some meet"):
        searches.h_f4(Given(tmp_path, tmp_path, tmp_path, tmp_path))


def test_of_small_recordings_a_quarter_is_tried(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "_MOST_TRIED", 0.25)
    size = recording().space.size
    assert size == 108
    budgets: list[int] = []

    def run(jobs: Sequence[Job], *arguments: Any) -> Results:
        budgets.extend(job.settings["budget"] for job in jobs)
        return by_hand(given, lambda tool, seed, optimum: optimum)(jobs, *arguments)

    monkeypatch.setattr(item, "run_jobs", run)
    made = searches.h_f4(given)
    assert set(budgets) == {27}
    assert "Evaluations of unique configurations: 27 of 108 of Bessel." in made.differs[0]
    assert all(row[3] == 27 for row in made.tables[1].rows)
    staged = unified.h_f10(given)
    # Two of four parameters are types.
    assert "(optimisation + precision of combinations of each): Bessel 14 + 13 of 12 + 9." in staged.differs[1]
    assert set(budgets) == {27}
    monkeypatch.setattr(searches, "_MOST_TRIED", 24 / size)
    with pytest.raises(Skipped, match="no recording of the paper's kernels has 112 configurations"):
        searches.replayed(given)


def test_a_kernel_that_is_not_the_papers_is_shown_and_in_no_mean(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    write_recording(recording("axpy"), given.data / "axpy-host.json.gz")
    twice, best = (by_hand(given, lambda tool, seed, optimum, n=n: n * optimum) for n in (2.0, 1.0))

    def run(jobs: Sequence[Job], *_: Any) -> Results:
        halves = [(best if job.space.startswith("axpy") else twice)([job]) for job in jobs]
        return Results(tuple(jobs), {key: runs for half in halves for key, runs in half.found.items()})

    monkeypatch.setattr(item, "run_jobs", run)
    made = searches.h_f4(given)
    rows = {row[0]: row[1] for row in made.tables[0].rows}
    assert rows == {"Bessel": "50.0%", "axpy (not the paper's)": "100.0%"}
    assert "of 1 kernels" in made.summary
    assert "Not one of the paper's kernels, and in no mean: axpy." in made.differs[0]
    strategies_table = searches.h_f5(given).tables[0]
    assert {row[3] for row in strategies_table.rows} == {"50.0%"}
    assert strategies_table.title.endswith("of 3")
    assert dominance.h_f7(given).tables[0].columns[-1] == "axpy (not the paper's)"
    assert {row[3] for row in unified.h_f10(given).tables[0].rows} == {"50.0%"}
    (given.data / "bessel-host.json.gz").unlink()
    with pytest.raises(Skipped, match="no recording of the paper's kernels"):
        searches.h_f4(given)


def test_slow_searches_have_runs_enough_for_quartiles(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: dict[str, int] = {}

    def run(jobs: Sequence[Job], *arguments: Any) -> Results:
        runs.update((job.tool, len(job.seeds)) for job in jobs)
        return by_hand(given, lambda tool, seed, optimum: optimum)(jobs, *arguments)

    monkeypatch.setattr(item, "run_jobs", run)
    monkeypatch.setattr(searches, "_is_installed", lambda _: True)
    for asked, slow in ((3, 3), (30, 5), (100, 10)):
        made = searches.h_f9(dataclasses.replace(given, runs=asked))
        assert (runs.pop("ytopt's surrogate"), set(runs.values())) == (slow, {asked})
        said = f" (ytopt's surrogate {slow})" if slow < asked else ""
        assert made.differs[0].startswith(f"{asked} runs, with the seeds from 0 on, of each{said}; 100 in the paper.")


# -- runs ------------------------------------------------------------------------------------------


def made_up_run(**durations_s: float) -> Any:
    return SimpleNamespace(durations_s=durations_s, state=SimpleNamespace(wall_s=20.0), evaluations=10)


@pytest.mark.full
def test_the_time_of_a_run_is_divided_as_in_the_paper(
    given: Given, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MPTUNE_CACHE_DIR", str(tmp_path / "mine"))
    folders, seeds = set(), set()

    def tune(name: str, **options: Any) -> Any:
        seeds.add(options["seed"])
        folders.add(os.environ["MPTUNE_CACHE_DIR"])
        assert options["max_error"] == {"bessel": 10**-3.5, "kmeans": 1e-5}[name]
        if options["strategy"] == stopped_at:
            raise KeyboardInterrupt
        options["output"].parent.mkdir(parents=True, exist_ok=True)
        options["output"].touch()
        return made_up

    made_up = made_up_run(compile=8.0, accuracy=1.0, timing=4.0, search=1.0, transfer=1.5, other=0.5)
    monkeypatch.setattr(runs, "tune", tune)
    monkeypatch.setattr(runs.Run, "load", lambda _: made_up)
    stopped_at = "genetic"
    with pytest.raises(KeyboardInterrupt):
        runs.h_f6(given)
    before, stopped_at = len(folders), ""
    assert 0 < before < 18 * 2
    made = runs.h_f6(given)
    rows = {row[0]: row[1:] for row in made.tables[0].rows}
    assert rows["paper: most strategies; parts of BO"] == (
        "about 480",
        250,
        "about 2",
        "80.0%",
        "13.0%",
        "3.8%",
        "2.6%",
        None,
    )
    shares = tuple(f"{each} [{each} to {each}]" for each in ("50.0%", "6.2%", "25.0%", "6.2%", "12.5%"))
    assert rows["BO"] == ("20 [20 to 20]", 10, "2 [2 to 2]", *shares)
    assert len(rows) == 10
    assert seeds == {0, 1}
    assert "2 of each strategy with the seeds from 0 on" in made.differs[0]
    # Each run had a cache of its own, and the user's is back. What had ended was not run again, what was stopped was.
    assert len(folders) == 18 * 2 + 1
    assert str(tmp_path / "mine") not in folders
    assert os.environ["MPTUNE_CACHE_DIR"] == str(tmp_path / "mine")
    (draw,) = made.plots.values()
    draw(tmp_path / "time.png")
    assert (tmp_path / "time.png").stat().st_size > 1000
    # However many are asked for, there are five: a search takes minutes.
    runs.h_f6(dataclasses.replace(given, runs=100))
    assert seeds == {0, 1, 2, 3, 4}


def test_energy_that_cannot_be_read_is_said(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(sensors: str) -> None:
        raise ObserverUnavailableError(f"no counter of the {sensors}")

    monkeypatch.setattr(runs, "energy_source", unavailable)
    made = runs.h_f12(given)
    assert made.summary == "The energy of this machine cannot be read: no counter of the processor."
    assert not made.plots
    assert [row[:5] for row in made.tables[0].rows] == [
        ("Black-Scholes", "-3.68", "2.7×", None, "4.96×"),
        ("K-Means", "-3.49", "3.8×", None, "3.7×"),
    ]


def test_energy_is_compared_with_that_in_fp64(given: Given, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def trial(time_ms: float, energy_j: float, error: float = 1e-6) -> Trial:
        numbers = {"time_ms": time_ms, "energy_j": energy_j, "error": error}
        return Trial(Configuration({}), Status.OK, measurement=Measurement(numbers))

    thresholds = []

    def tune(name: str, **options: Any) -> Any:
        thresholds.append((name, options["max_error"], options["objective"]))
        best = trial(2.0, 1.0) if name == "kmeans" else None
        return SimpleNamespace(best=best, baseline=trial(5.0, 4.0), trials=measured)

    measured = [trial(5.0, 4.0, 0.0), trial(2.0, 1.0, 1e-6), trial(2.0, 2.0, 1e-5), trial(1.0, 0.5, 1e-3)]
    unread = Trial(Configuration({}), Status.OK, measurement=Measurement({"time_ms": 1.0, "error": 1e-3}))
    found = runs.Efficiencies.of([*measured, unread, Trial(Configuration({}), Status.CRASH)])
    assert found.per_joule.tolist() == [0.25, 1.0, 0.5, 2.0]
    assert found.errors.tolist() == pytest.approx([-6, -6, -5, -3])
    # An error of 0 counts as the least other one, and then it is no better than what takes less energy.
    assert found.front.tolist() == [1, 3]

    monkeypatch.setattr(runs, "energy_source", lambda sensors: object())
    monkeypatch.setattr(runs, "tune", tune)
    made = runs.h_f12(given)
    rows = made.tables[0].rows
    made.plots["energy-against-error"](tmp_path / "energy.png")
    assert (tmp_path / "energy.png").stat().st_size > 1000
    assert rows[0][3:] == (None, "4.96×", None)
    assert rows[1][3:] == ("4.00×", "3.7×", "2.50×")
    assert thresholds == [
        ("black_scholes", pytest.approx(10**-3.68), "energy"),
        ("kmeans", pytest.approx(10**-3.49), "energy"),
    ]


def test_quartiles_are_of_five_runs_or_more() -> None:
    assert searches.speeds(np.array([0.0, 1.0, 2.0, 3.0, 4.0])) == "2.00 (1.00 to 3.00)"
    assert searches.speeds(np.array([0.0, 1.0, 2.0, 4.0])) == "1.50 [0.00 to 4.00]"
    assert searches.speeds(np.array([0.0, 1.0, 2.0, np.inf, np.inf])) == "2.00 (1.00 to inf)"
