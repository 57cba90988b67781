"""Willemsen 2021 done again: the definition of the mean deviation factor against the published runs, and the items."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import papers  # noqa: E402
from benchmarks.reproductions import willemsen  # noqa: E402
from benchmarks.reproductions.item import Given, Skipped  # noqa: E402
from benchmarks.search.tools import Tool  # noqa: E402
from mptune.comparison import Comparison  # noqa: E402
from mptune.errors import SpaceFileError  # noqa: E402
from mptune.objective import Objective  # noqa: E402
from mptune.simulation import Simulation, SimulationRun  # noqa: E402
from mptune.strategies.bayesian_multi import BayesianMultiOptions  # noqa: E402

PUBLISHED = ROOT.parent / "shared" / "published" / "willemsen2021-runs.json.gz"
POINTS = [20 * i for i in range(1, 12)]


def given(tmp_path: Path) -> Given:
    return Given(tmp_path / "data", tmp_path / "spaces", tmp_path / "published", tmp_path / "work", quick=True)


def made_up(path: Path, runs: dict[str, list[list[float]]]) -> Path:
    document = {"evaluations": POINTS, "devices": {"A100": {"GEMM": {"optimum": 10.0, "strategies": runs}}}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the paper's raw runs are not here")
@pytest.mark.parametrize(("device", "better"), [("RTX2070S", 0.636), ("A100", 0.198)])
def test_the_published_runs_have_the_published_deviation_factors(device: str, better: float) -> None:
    comparison = willemsen.published_comparison(PUBLISHED, device)
    assert willemsen.advantage(comparison) == pytest.approx(better, abs=0.001)
    assert sum(willemsen.factors(comparison).values()) == pytest.approx(7.0)


def test_factors_of_runs_by_hand(tmp_path: Path) -> None:
    # Sec. IV-A looks at evaluations from 40 on: the first value must not count.
    advanced = [[99.0, 14.0, *[12.0] * 9], [50.0, *[12.0] * 10]]
    genetic = [[10.0, *[16.0] * 10]]
    path = made_up(tmp_path / "runs.json.gz", {"advanced multi": advanced, "genetic algorithm": genetic})
    comparison = willemsen.published_comparison(path, "A100")
    means = {"advanced multi": (0.4 + 9 * 0.2 + 10 * 0.2) / 20, "genetic algorithm": 0.6}
    middle = sum(means.values()) / 2
    assert willemsen.factors(comparison) == pytest.approx({name: mean / middle for name, mean in means.items()})
    assert willemsen.advantage(comparison) == pytest.approx((0.6 - means["advanced multi"]) / middle)
    best = comparison.simulation("GEMM", "genetic algorithm").runs[0].best
    assert (best[18], best[19], best[38], best[39], best[219]) == (None, 10.0, 10.0, 16.0, 16.0)


@pytest.mark.parametrize("content", [b"", b"{}", gzip.compress(b"{}", mtime=0), gzip.compress(b"[1, 2]", mtime=0)])
def test_a_file_without_runs_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "runs.json.gz"
    path.write_bytes(content)
    with pytest.raises(SpaceFileError, match="no published runs of A100"):
        willemsen.published_comparison(path, "A100")
    cut_off = made_up(path, {"genetic algorithm": [[16.0] * 10]})
    with pytest.raises(SpaceFileError, match="no published runs of A100"):
        willemsen.published_comparison(cut_off, "A100")


@pytest.mark.parametrize("name", list(willemsen.ITEMS))
def test_without_data_an_item_is_skipped(tmp_path: Path, name: str) -> None:
    with pytest.raises(Skipped, match="runs" if name == "w-mdf" else "recorded spaces"):
        papers.items()[name].run(given(tmp_path))


def test_when_the_mean_of_the_runs_is_as_near(tmp_path: Path) -> None:
    runs = {"random": [[12.0] * 4 + [10.0] * 7, [12.0] * 2 + [11.0] * 9]}
    simulation = willemsen.published_comparison(made_up(tmp_path / "f", runs), "A100").simulation("GEMM", "random")
    assert willemsen._arrival(simulation, 0.16) == 60
    assert willemsen._arrival(simulation, 0.05) == 100
    assert willemsen._arrival(simulation, 0.04) == math.inf


def replays(space: str, tool: str, *runs: tuple[float, ...]) -> Simulation:
    """Return runs whose best is each of the values for 20 evaluations."""
    made = tuple(
        SimulationRun(seed, tuple(value for value in run for _ in range(20)), None, 0.0)
        for seed, run in enumerate(runs)
    )
    return Simulation(space, tool, 220, Objective(), 10.0, None, "ms", 100, made)


def constant(space: str, **best: float) -> tuple[Simulation, ...]:
    """Return two runs of each tool that have the same best from the start."""
    return tuple(replays(space, tool.replace("_", " "), (ms,) * 11, (ms,) * 11) for tool, ms in best.items())


def test_the_default_has_a_factor_and_does_not_change_the_others() -> None:
    tools = {"random": 16.0, "EI": 12.0, "genetic_algorithm": 14.0, "advanced_multi": 12.0}
    simulations = (*constant("a", **tools, mptune_bayesian=11.0), *constant("b", **tools, mptune_bayesian=13.5))
    comparison = Comparison(simulations)
    found = willemsen.factors_with_default(comparison)
    # The mean distance of the paper's four tools is 35%.
    assert found.pop("mptune bayesian") == pytest.approx((0.1 + 0.35) / 2 / 0.35)
    assert found == pytest.approx(
        {"random": 0.6 / 0.35, "EI": 2 / 3.5, "genetic algorithm": 4 / 3.5} | {"advanced multi": 2 / 3.5}
    )
    alone = willemsen.factors(Comparison(tuple(s for s in simulations if s.strategy != "mptune bayesian")))
    assert found == pytest.approx(alone)


def test_every_recorded_gpu_is_compared_and_a_part_of_a_name_selects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, set[int]] = {}

    def replayed(given: Given, tools: list[tuple[Tool, int]], files: dict[str, Path], budget: int) -> Comparison:
        for name in files:
            asked[name] = {runs for _, runs in tools}
        return Comparison(
            tuple(s for n in files for t, _ in tools for s in constant(n, **{t.name: 11.0 + len(t.name)}))
        )

    monkeypatch.setattr(willemsen, "replayed", replayed)
    spaces = tmp_path / "spaces"
    spaces.mkdir()
    for name in ("gemm-rtx2080ti", "pnpoly-rtx3060", "gemm-rtx3060", "dedispersion-a4000"):
        (spaces / f"{name}.json.gz").touch()
    whole = dataclasses.replace(given(tmp_path), quick=False, runs=7)
    (table,) = willemsen.w_f1(whole).tables
    assert asked == {"gemm-rtx2080ti": {7}, "pnpoly-rtx3060": {7}, "gemm-rtx3060": {7}}
    assert table.columns == ("tool", "rtx2080ti", "rtx3060", "end, rtx2080ti", "end, rtx3060")
    assert all(isinstance(row[1], float) for row in table.rows)
    assert table.rows[-1][0] == "mptune bayesian"
    asked.clear()
    willemsen.w_f1(dataclasses.replace(whole, only=("rtx3060",)))
    assert list(asked) == ["gemm-rtx3060", "pnpoly-rtx3060"]
    with pytest.raises(Skipped, match="with h100 in their names"):
        willemsen.w_f1(dataclasses.replace(whole, only=("h100",)))
    with pytest.raises(Skipped, match="of an rtx2080ti"):
        willemsen.w_t1(dataclasses.replace(whole, only=("rtx3060",)))


def test_values_that_are_equally_good_are_all_best_and_idle_ones_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert willemsen.best_of({"a": 1.0, "b": 1.0 + 1e-15, "c": 1.1}) == ["a", "b"]
    sweeps = (
        willemsen.Sweep("scale", "2", willemsen._each("length_scale", (1, 2, 3))),
        willemsen.Sweep("discount", "0.65", willemsen._each("discount_multi", (0.5, 0.65))),
    )
    best = {"1": (20.0,) * 11, "2": (15.0,) * 11, "3": (30.0, *(15.0,) * 10)}
    runs = {f"bayesian-multi length_scale {value}": (one, one) for value, one in best.items()}
    runs |= {f"bayesian-multi discount_multi {value}": ((15.0,) * 11,) * 2 for value in (0.5, 0.65)}
    made = Comparison(tuple(replays("gemm-rtx2080ti", tool, *some) for tool, some in runs.items()))
    monkeypatch.setattr(willemsen, "SWEEPS", sweeps)
    monkeypatch.setattr(willemsen, "recordings", lambda *_: {"gemm-rtx2080ti": tmp_path})
    monkeypatch.setattr(willemsen, "replayed", lambda *_: made)
    outcome = willemsen.w_t1(dataclasses.replace(given(tmp_path), quick=False, runs=2))
    rows = {row[:2]: row[5:] for row in outcome.tables[0].rows}
    # The third begins worse, and is as good where the factor looks.
    assert rows["scale", "1"] == ("0 of 2", None)
    assert rows["scale", "2"] == ("2 of 2", "paper, here")
    assert rows["scale", "3"] == ("0 of 2", "here")
    assert rows["discount", "0.5"] == ("2 of 2", "here")
    assert rows["discount", "0.65"] == ("2 of 2", "paper, here")
    assert "Of 1 hyperparameters that matter 1 have the least" in outcome.summary
    assert "All values are as good of: discount." in outcome.summary


def test_runs_that_are_as_near_are_counted_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replayed(given: Given, tools: list[tuple[Tool, int]], files: dict[str, Path], budget: int) -> Comparison:
        if budget == willemsen.BUDGET:
            return Comparison((replays("gemm-rtx2080ti", "EI", (12.0,) * 11, (11.0,) * 11),))
        far = [(20.0, *(11.5,) * 10), (11.0,) * 11, (20.0,) * 11, (20.0,) * 11, (20.0,) * 11]
        return Comparison(tuple(replays("gemm-rtx2080ti", tool.name, *far) for tool, _ in tools))

    monkeypatch.setattr(willemsen, "recordings", lambda *_: {"gemm-rtx2080ti": tmp_path})
    monkeypatch.setattr(willemsen, "replayed", replayed)
    tables = willemsen.w_f4(dataclasses.replace(given(tmp_path), quick=False, runs=5)).tables
    assert tables[0].rows[1][2] == "more than 1,020"
    rows = dict(tables[1].rows)
    assert rows["random"] == "more than 1,020 (21 to more than 1,020)"
    # One run of EI is worse than the mean of both.
    assert rows["EI"] == "1 [1 to more than 220]"


def test_every_value_of_a_sweep_is_an_option_and_the_papers_is_among_them() -> None:
    for sweep in willemsen.SWEEPS:
        assert sweep.best in sweep.values
        for options in sweep.values.values():
            assert willemsen._variant(options).missing == ""
            BayesianMultiOptions(**options)
