"""Hellsten 2023 done again: what the items make of replays."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import papers  # noqa: E402
from benchmarks.reproductions import hellsten  # noqa: E402
from benchmarks.reproductions.item import Given, Skipped  # noqa: E402
from benchmarks.search.cells import Job, Results  # noqa: E402
from benchmarks.search.tools import Tool  # noqa: E402
from mptune.comparison import Comparison  # noqa: E402
from mptune.objective import Objective  # noqa: E402
from mptune.simulation import Simulation, SimulationRun  # noqa: E402
from mptune.strategies.bayesian_baco import BayesianBacoOptions  # noqa: E402


def given(tmp_path: Path) -> Given:
    return Given(*(tmp_path / name for name in ("data", "spaces", "published", "work")), quick=True, runs=10)


def replays(space: str, tool: str, *runs: tuple[float | None, ...]) -> Simulation:
    """Return runs whose best is each of the values for ten evaluations."""
    made = tuple(
        SimulationRun(seed, tuple(value for value in run for _ in range(10)), None, 0.0)
        for seed, run in enumerate(runs)
    )
    return Simulation(space, tool, 60, Objective(), 10.0, None, "ms", 100, made)


COMPARISON = Comparison(
    (
        replays("a", "BaCO", (40.0, 20.0, 20.0, 12.5, 12.5, 10.0), (None, 20.0, 20.0, 12.5, 12.5, 10.0)),
        replays("a", "uniform sampling", (40.0,) * 5 + (20.0,)),
        replays("b", "BaCO", (20.0,) * 6, (20.0,) * 6),
        replays("b", "uniform sampling", (None,) * 5 + (12.5,)),
    )
)


def test_what_runs_reach_and_how_much_sooner() -> None:
    assert hellsten.reached(COMPARISON, "BaCO", 20).tolist() == [0.5, 0.5]
    assert hellsten.reached(COMPARISON, "BaCO", 10).tolist() == [0.375, 0.25]
    assert hellsten.reached(COMPARISON, "uniform sampling", 60).tolist() == [pytest.approx(0.65)]
    assert hellsten._faster(COMPARISON, "a", "uniform sampling") == 60 / 11
    assert hellsten._times(hellsten._faster(COMPARISON, "b", "uniform sampling")) == "-"


def test_tables_from_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hellsten, "compared", lambda _: COMPARISON)
    made = hellsten.b_t6(given(tmp_path))
    rows = {row[1]: row[2:] for row in made.tables[0].rows}
    assert rows["BaCO"] == (0.76, "0.54", "0.67", 1.22, "0.87", "0.87", 1.41, "1.00", "1.00")
    assert rows["uniform sampling"][-3:] == (0.76, "0.54", "0.87")
    made.plots["budgets"](tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 0
    factors, by_run = (table.rows for table in hellsten.b_t9(given(tmp_path)).tables)
    assert [row[1] for row in factors] == ["5.45×", "-", "5.45×", "3.86×"]
    assert by_run == (("a", "5.45× [5.45× to 5.45×]"), ("b", "- [- to -]"))
    assert set(hellsten._needed(COMPARISON, "b", "uniform sampling")) == {math.inf}


def test_every_tool_is_run_as_often_as_asked_for_but_slow_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, int] = {}

    def run_all(given: Given, jobs: list[Job]) -> Results:
        assert given.processes == 1
        asked.update((job.tool, len(job.seeds)) for job in jobs)
        found = {(job.space, job.tool): {seed: {"strategy_s": 1.0 + seed} for seed in job.seeds} for job in jobs}
        return Results(tuple(jobs), found)

    spaces = tmp_path / "spaces"
    spaces.mkdir()
    for name in hellsten._FAILING:
        (spaces / f"{name}.json.gz").touch()
    monkeypatch.setattr(hellsten, "run_all", run_all)
    monkeypatch.setattr(hellsten, "tools_of", lambda _: [hellsten.BACO, Tool("scikit-optimize")])
    monkeypatch.setattr(Tool, "missing", "")
    for runs, slow in ((3, 3), (20, 5), (100, 10)):
        made = hellsten.b_t10(dataclasses.replace(given(tmp_path), quick=False, runs=runs, processes=8))
        assert asked == {"BaCO": runs, "scikit-optimize": slow}
        assert f"BaCO {runs}, scikit-optimize {slow}; 30 in the paper" in made.differs[1]
    assert [row[3] for row in made.tables[0].rows] == ["50 (26 to 75)", "5.5 (3.2 to 7.8)"]


def test_a_variant_lacks_what_its_name_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tool in (*hellsten._FIGURE_8, *hellsten._FIGURE_9, *hellsten._FIGURE_10, hellsten._BIASED):
        BayesianBacoOptions(**tool.options)
    figures = (hellsten._FIGURE_8, hellsten._FIGURE_9, hellsten._FIGURE_10)
    assert all(len({str(tool.options) for tool in tools}) == len(tools) for tools in figures)
    same = tuple(replays("a", tool.name, (20.0,) * 6) for tool in hellsten._FIGURE_10)
    monkeypatch.setattr(hellsten, "recordings", lambda *_: {})
    monkeypatch.setattr(hellsten, "replayed", lambda *_: Comparison(same))
    made = hellsten.b_f10(given(tmp_path))
    assert [row[2] for row in made.tables[0].rows] == ["1.000"] * 3
    assert "100.0% (no feasibility model)" in made.summary


@pytest.mark.parametrize("name", list(hellsten.ITEMS))
def test_without_recordings_an_item_is_skipped(tmp_path: Path, name: str) -> None:
    with pytest.raises(Skipped, match="no recorded spaces"):
        papers.items()[name].run(given(tmp_path))
