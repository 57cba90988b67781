"""Figures of the search benchmark's sections, from runs made by hand; stages against brute force."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.search.cells import Job, Results
from benchmarks.search.mixed import Mixed
from benchmarks.search.precision_cells import cells_of
from benchmarks.search.section import Section, Settings
from benchmarks.search.two_stages import ORDERS, search_in_stages
from mptune.interop import write_run
from mptune.interop.recorded import Record, assemble
from mptune.precision import precision
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run

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


def recording(fails: Callable[[Values], bool] = lambda _: False) -> Run:
    records = []
    for row in itertools.product(TYPES, TYPES, ("accurate", "fast", "approx"), (32, 64, 128, 256), (1, 2, 4)):
        c = dict(zip(NAMES, row, strict=True))
        numbers = Measurement({"time_ms": time_of(c), "error": error_of(c)})
        records.append(Record(row, Status.CRASH) if fails(c) else Record(row, Status.OK, measurement=numbers))
    return assemble("axpy", NAMES, {}, records, kernel="axpy", signature=PRECISION)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    write_run(recording(), tmp_path / "axpy-host.json.gz", "space")
    return Settings(spaces=tmp_path, data=tmp_path, seeds=4, slow_seeds=1, strategies=("bayesian", "genetic"))


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


def brute_force(recorded: Run, admitted: Callable[[Trial], bool]) -> Trial:
    return min((t for t in recorded.trials if t.is_valid and admitted(t)), key=lambda t: t.time_ms)


# -- figures --------------------------------------------------------------------------------------


def test_cells_are_the_recordings_under_their_kernels_thresholds(settings: Settings) -> None:
    cells = cells_of(settings)
    assert [cell.threshold for cell in cells] == [1e-8, 1e-4, 1e-2]
    for cell in cells:
        tau = cell.threshold
        best = brute_force(recording(), lambda t, tau=tau: t.error <= tau)  # type: ignore[misc]
        assert cell.optimum == pytest.approx(best.time_ms, rel=1e-5)
        assert cell.feasible == sum(t.error <= tau for t in recording().trials)


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


# -- stages ---------------------------------------------------------------------------------------


def staged(folder: Path, recorded: Run, order: str, tau: float, **more: Any) -> dict[str, Any]:
    path = folder / "axpy-host.json.gz"
    write_run(recorded, path, "space")
    settings = {"space": str(path), "budget": 250, "tool": EXHAUSTIVE, "max_error": tau, "order": order, **more}
    return search_in_stages(settings)(0)


@pytest.mark.parametrize("tau", [1e-8, 1e-2])
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
    assert result["best"][-1] == pytest.approx(last.time_ms, rel=1e-5)
    found = [value for value in result["best"] if value is not None]
    assert found == sorted(found, reverse=True)
    # Searching at once finds more.
    assert tau < 1e-2 or result["best"][-1] > 1.02 * brute_force(recorded, lambda t: t.error <= tau).time_ms
