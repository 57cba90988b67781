"""The mixed-precision sections of the search benchmark: figures from runs made by hand, stages against brute force."""

from __future__ import annotations

import importlib
import itertools
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mptune.errors import UnknownNameError
from mptune.interop.recorded import Record, RecordedSpace, assemble
from mptune.interop.recording import write_recording
from mptune.precision import precision
from mptune.results import Measurement, Status, Trial

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.search.cells import Job, Results  # noqa: E402
from benchmarks.search.mixed import Mixed  # noqa: E402
from benchmarks.search.precision_cells import cells_of  # noqa: E402
from benchmarks.search.ranking import Ranking  # noqa: E402
from benchmarks.search.section import Section, Settings  # noqa: E402
from benchmarks.search.sequential import Sequential  # noqa: E402
from benchmarks.search.two_stages import ORDERS, Halves, search_in_stages  # noqa: E402

TYPES = ("fp64", "fp32", "fp16")
NAMES = ("x_type", "sum_type", "policy", "block", "tile")
PRECISION = NAMES[:3]
EXHAUSTIVE = {"strategy": "exhaustive", "options": {}, "penalty": "decay"}
Values = Mapping[str, Any]


def error_of(c: Values) -> float:
    rounding = precision(c["x_type"]).unit_roundoff + 2 * precision(c["sum_type"]).unit_roundoff
    return float(rounding + {"accurate": 0.0, "fast": 1e-6, "approx": 1e-3}[c["policy"]])


def time_of(c: Values) -> float:
    """The best block depends on the type, so that neither order of stages ends at the optimum."""
    size = precision(c["x_type"]).size_bytes + precision(c["sum_type"]).size_bytes
    away = math.log2(c["block"] * size / 512)
    return float(size * (1 + away * away) + c["tile"] + {"accurate": 2, "fast": 1, "approx": 0.5}[c["policy"]])


def recording(
    name: str = "axpy", fails: Callable[[Values], bool] = lambda _: False, keep: float = 1.0, floor: float = 0.0
) -> RecordedSpace:
    rng = np.random.default_rng(3)
    records = []
    for row in itertools.product(TYPES, TYPES, ("accurate", "fast", "approx"), (32, 64, 128, 256), (1, 2, 4)):
        c = dict(zip(NAMES, row, strict=True))
        if rng.uniform() >= keep:
            continue
        numbers = Measurement({"time_ms": time_of(c), "error": max(error_of(c), floor)})
        records.append(Record(row, Status.CRASH) if fails(c) else Record(row, Status.OK, measurement=numbers))
    return assemble(name, NAMES, {}, records, kernel=name, signature=PRECISION)


def settings_for(folder: Path, **recordings: RecordedSpace) -> Settings:
    for name, recorded in recordings.items():
        write_recording(recorded, folder / f"{name}-host.json.gz")
    return Settings(spaces=folder, data=folder, seeds=4, slow_seeds=1, strategies=("bayesian", "genetic"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_for(tmp_path, axpy=recording())


def by_hand(section: Section, settings: Settings, runs: Callable[[Job, int, float], list[float | None]]) -> Results:
    """Return results of a section's jobs, given a job, a seed and the best time there is."""
    optima = {cell.name: cell.optimum for cell in cells_of(settings)}
    jobs = section.jobs(settings)
    found: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for job in jobs:
        optimum = optima[job.space]
        assert optimum is not None
        found[job.space, job.tool] = {seed: {"best": runs(job, seed, optimum), "strategy_s": 0.0} for seed in job.seeds}
    return Results(tuple(jobs), found)


def brute_force(recorded: RecordedSpace, admitted: Callable[[Trial], bool]) -> Trial:
    return min((t for t in recorded.trials.values() if t.is_valid and admitted(t)), key=lambda t: t.time_ms)


# -- jobs ------------------------------------------------------------------------------------------


def test_cells_are_the_recordings_under_their_kernels_thresholds(settings: Settings) -> None:
    cells = cells_of(settings)
    assert [(cell.name, cell.threshold) for cell in cells] == [
        ("axpy-host high", 1e-8),
        ("axpy-host medium", 1e-4),
        ("axpy-host low", 1e-2),
    ]
    for cell in cells:
        best = brute_force(recording(), lambda t, cell=cell: t.error <= cell.threshold)  # type: ignore[misc]
        assert cell.optimum == pytest.approx(best.time_ms, rel=1e-5)
        assert cell.feasible == sum(t.error <= cell.threshold for t in recording().trials.values())


def test_a_recording_must_be_named_after_a_kernel_with_thresholds(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"axpz-host.*did you mean 'axpy'"):
        cells_of(settings_for(tmp_path, axpz=recording()))


def test_a_penalty_is_tried_only_where_it_is_looked_at(settings: Settings) -> None:
    jobs = Mixed().jobs(settings)
    assert {job.tool: len(job.seeds) for job in jobs} == {
        "mptune bayesian": 4,
        "mptune genetic (hard)": 1,
        "mptune genetic (linear)": 1,
        "mptune genetic (decay)": 2,
        "mptune random": 4,
    }
    assert len(jobs) == 5 * 3
    for job in jobs:
        module, _, name = job.target.partition(":")
        assert callable(getattr(importlib.import_module(module), name))
        assert job.settings["budget"] == 250


def test_sections_share_their_runs(settings: Settings) -> None:
    mixed = {(job.section, job.space, job.tool, job.key, job.seeds) for job in Mixed().jobs(settings)}
    ranking = {(job.section, job.space, job.tool, job.key, job.seeds) for job in Ranking().jobs(settings)}
    assert ranking < mixed
    assert not any("hard" in tool or "linear" in tool for _, _, tool, _, _ in ranking)
    unified = [job for job in Sequential().jobs(settings) if job.section == "mixed"]
    shared = [job for job in unified if "multi" not in job.tool]
    assert len(shared) == 2 * 3
    assert {(job.section, job.space, job.tool, job.key, job.seeds) for job in shared} < mixed


# -- figures ---------------------------------------------------------------------------------------


def some_runs(job: Job, seed: int, optimum: float) -> list[float | None]:
    """The default is at the optimum from 101 on; random never is, and has nothing at all in one of four runs."""
    if "random" in job.tool:
        return [None] * 250 if seed == 3 else [None] * 39 + [4 * optimum] * 211
    if "bayesian" in job.tool:
        late = 31 if job.space.endswith("high") and seed == 0 else 30
        return [None] * (late - 1) + [2 * optimum] * (101 - late) + [optimum] * 150
    return [1.25 * optimum] * 250


def test_the_figures_of_runs_made_by_hand(settings: Settings) -> None:
    report = Mixed().report(settings, by_hand(Mixed(), settings, some_runs))
    tools = report.data["tools"]
    assert tools["mptune bayesian"]["share"] == pytest.approx({100: 0.5, 250: 1.0})
    assert tools["mptune random"]["share"] == pytest.approx({100: 0.75 / 4, 250: 0.75 / 4})
    assert tools["mptune genetic (hard)"]["share"] == pytest.approx({100: 0.8, 250: 0.8})
    assert tools["mptune bayesian"]["beats_random"] == {100: 1.0, 250: 1.0}
    assert tools["mptune bayesian"]["cells_feasible_in_time"] == pytest.approx(2 / 3)
    assert tools["mptune random"]["cells_feasible_in_time"] == 0.0
    high = report.data["cells"][0]["tools"]
    assert high["mptune bayesian"]["first_feasible"] == [31, 30, 30, 30]
    assert high["mptune random"]["first_feasible"] == [40, 40, 40, None]


def test_ties_count_half(settings: Settings) -> None:
    def runs(job: Job, seed: int, optimum: float) -> list[float | None]:
        return [optimum if "bayesian" in job.tool or seed % 2 else 2 * optimum] * 250

    report = Mixed().report(settings, by_hand(Mixed(), settings, runs))
    assert report.data["tools"]["mptune bayesian"]["beats_random"] == {100: 0.75, 250: 0.75}


def test_a_tool_without_results_on_every_cell_is_left_out(settings: Settings) -> None:
    results = by_hand(Mixed(), settings, some_runs)
    found = {key: runs for key, runs in results.found.items() if key != ("axpy-host low", "mptune genetic (hard)")}
    why = {("axpy-host low", "mptune genetic (hard)"): "seed 0: it broke"}
    report = Mixed().report(settings, Results(results.jobs, found, why))
    assert "mptune genetic (hard)" not in report.data["tools"]


def test_who_beats_whom_adds_up(settings: Settings) -> None:
    report = Ranking().report(settings, by_hand(Ranking(), settings, some_runs))
    assert report.data["strategies"] == ["mptune bayesian", "mptune genetic (decay)", "mptune random"]
    by_level = {at: {k: np.array(m) for k, m in rows.items()} for at, rows in report.data["probabilities"].items()}
    for matrix in (m for rows in by_level.values() for m in rows.values()):
        np.testing.assert_allclose(matrix + matrix.T, 1.0)
    assert set(by_level[250]) == {"high", "medium", "low", "all"}
    assert by_level[250]["all"][0].tolist() == [0.5, 1.0, 1.0]
    assert by_level[100]["all"][0].tolist() == [0.5, 0.0, 1.0]


def test_unified_and_staged_runs_side_by_side(settings: Settings) -> None:
    def runs(job: Job, seed: int, optimum: float) -> list[float | None]:
        return [optimum * (1.25 if "performance then" in job.tool else 2 if "then" in job.tool else 1)] * 250

    report = Sequential().report(settings, by_hand(Sequential(), settings, runs))
    shares = {(row["tool"], row["approach"]): row["share"] for row in report.data["approaches"]}
    for tool in ("mptune bayesian", "mptune bayesian-multi (decay)", "mptune genetic (decay)"):
        assert shares[tool, "unified"] == pytest.approx(1.0)
        assert shares[tool, "performance then precision"] == pytest.approx(0.8)
        assert shares[tool, "precision then performance"] == pytest.approx(0.5)


# -- stages ----------------------------------------------------------------------------------------


def staged(folder: Path, recorded: RecordedSpace, order: str, tau: float, budget: int = 250) -> dict[str, Any]:
    path = folder / "axpy-host.json.gz"
    write_recording(recorded, path)
    settings = {"space": str(path), "budget": budget, "tool": EXHAUSTIVE, "max_error": tau, "order": order}
    return search_in_stages(settings)(0)


@pytest.mark.parametrize("tau", [1e-8, 1e-4, 1e-2])
@pytest.mark.parametrize("order", ORDERS)
def test_stages_end_where_brute_force_does(order: str, tau: float, tmp_path: Path) -> None:
    recorded = recording()
    accurate = {"x_type": "fp64", "sum_type": "fp64", "policy": "accurate"}

    def like(values: Values) -> Callable[[Trial], bool]:
        return lambda t: all(t.configuration[name] == value for name, value in values.items())

    if ORDERS[order] == "optimisation":
        first = brute_force(recorded, like(accurate)).configuration
        fixed, stages = {name: first[name] for name in NAMES[3:]}, [12, 27]
    else:
        first = brute_force(recorded, lambda t: like({"block": 32, "tile": 1})(t) and t.error <= tau).configuration
        fixed, stages = {name: first[name] for name in PRECISION}, [27, 12]
    last = brute_force(recorded, lambda t: like(fixed)(t) and t.error <= tau)
    result = staged(tmp_path, recorded, order, tau)
    assert result["stages"] == stages
    assert len(result["best"]) == sum(stages)
    assert result["best"][-1] == pytest.approx(last.time_ms, rel=1e-5)
    found = [value for value in result["best"] if value is not None]
    assert found == sorted(found, reverse=True)


def test_stages_miss_what_searching_at_once_finds(tmp_path: Path) -> None:
    recorded = recording()
    optimum = brute_force(recorded, lambda t: t.error <= 1e-2).time_ms
    for order in ORDERS:
        assert staged(tmp_path, recorded, order, 1e-2)["best"][-1] > 1.02 * optimum


def test_the_budget_is_divided_and_what_is_left_over_goes_on(tmp_path: Path) -> None:
    halves = Halves(recording())
    assert halves.budgets("performance then precision", 250) == (100, 150)
    assert halves.budgets("precision then performance", 250) == (150, 100)
    assert halves.budgets("performance then precision", 2) == (1, 1)
    # The first stage has 12 configurations and may try 2 of 5: all of 12, then 4.
    assert staged(tmp_path, recording(), "performance then precision", 1e-2, 30)["stages"] == [12, 18]
    assert staged(tmp_path, recording(), "performance then precision", 1e-2, 10)["stages"] == [4, 6]


def test_a_first_stage_that_finds_nothing_goes_on_from_the_start(tmp_path: Path) -> None:
    recorded = recording(fails=lambda c: c["x_type"] == c["sum_type"] == "fp64" and c["policy"] == "accurate")
    start = Halves(recorded).start
    assert start.subset(NAMES) == ("fp64", "fp64", "accurate", 32, 1)
    result = staged(tmp_path, recorded, "performance then precision", 1e-2)
    last = brute_force(
        recorded, lambda t: t.configuration["block"] == 32 and t.configuration["tile"] == 1 and t.error <= 1e-2
    )
    assert result["best"][11] is None
    assert result["best"][-1] == pytest.approx(last.time_ms, rel=1e-5)


def test_a_start_is_the_plainest_that_ran() -> None:
    start = Halves(recording(fails=lambda c: c["block"] == 32 or c["tile"] == 1)).start
    assert start.subset(NAMES) == ("fp64", "fp64", "accurate", 64, 2)


def test_a_sample_is_no_space_for_stages(tmp_path: Path) -> None:
    assert Halves(recording()).density == 1.0
    settings = settings_for(tmp_path, axpy=recording(keep=0.3), kmeans=recording("kmeans"))
    jobs = Sequential().jobs(settings)
    assert {job.space.partition("-")[0] for job in jobs} == {"kmeans"}
    report = Sequential().report(settings, by_hand(Sequential(), settings, lambda job, seed, best: [best] * 250))
    assert report.data["left_out"] == ["axpy-host.json.gz"]
    assert report.markdown.endswith("axpy-host.json.gz.")
