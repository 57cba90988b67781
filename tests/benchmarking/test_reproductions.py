"""Papers' experiments done again: what each computes of runs and recordings made by hand."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.reproductions import hellsten, lin, willemsen
from benchmarks.reproductions.heldens import replays, searches, spaces
from benchmarks.reproductions.item import Given
from mptune.interop import read_run, write_run
from mptune.interop.recorded import Record, assemble
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.tuning.comparison import Comparison
from mptune.tuning.simulation import Simulation, SimulationRun

SHARED = Path(__file__).parents[3] / "shared"
PUBLISHED = SHARED / "published" / "willemsen2021-runs.json.gz"
GEMM = SHARED / "spaces" / "gemm-rtx2080ti.json.gz"


def given_in(folder: Path, **changes: Any) -> Given:
    of = Given(*(folder / name for name in ("data", "spaces", "published", "work")), quick=True, runs=2)
    return dataclasses.replace(of, **changes)


def simulated(space: str, tool: str, each: int, *of_runs: Sequence[float | None]) -> Simulation:
    """Return runs whose best is each of the values for so many evaluations; the optimum is 10."""
    made = tuple(
        SimulationRun(seed, tuple(value for value in run for _ in range(each)), None, 0.0)
        for seed, run in enumerate(of_runs)
    )
    return Simulation(space, tool, each * len(of_runs[0]), Objective(), 10.0, None, "ms", 100, made)


# -- Hellsten 2023 --------------------------------------------------------------------------------

REPLAYED = Comparison(
    (
        simulated("a", "BaCO", 10, (40.0, 20.0, 20.0, 12.5, 12.5, 10.0), (None, 20.0, 20.0, 12.5, 12.5, 10.0)),
        simulated("a", "uniform sampling", 10, (40.0,) * 5 + (20.0,)),
        simulated("b", "BaCO", 10, (20.0,) * 6, (20.0,) * 6),
        simulated("b", "uniform sampling", 10, (None,) * 5 + (12.5,)),
    )
)


def test_what_hellsten_s_runs_reach_and_how_much_sooner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hellsten.reached(REPLAYED, "BaCO", 20).tolist() == [0.5, 0.5]
    assert hellsten.reached(REPLAYED, "BaCO", 10).tolist() == [0.375, 0.25]
    assert hellsten.reached(REPLAYED, "uniform sampling", 60).tolist() == [pytest.approx(0.65)]
    monkeypatch.setattr(hellsten, "compared", lambda _: REPLAYED)
    rows = {row[1]: row[2:] for row in hellsten.b_t6(given_in(tmp_path)).tables[0].rows}
    # Of BaCO at the end, 1 and 0.5 in the mean: after a third and two thirds of the budget, and by random sampling.
    assert (rows["BaCO"][2], rows["BaCO"][5], rows["uniform sampling"][-1]) == ("0.67", "0.87", "0.87")
    factors = hellsten.b_t9(given_in(tmp_path)).data["factors"]
    assert factors["a: uniform sampling"] == 60 / 11
    assert math.isnan(factors["b: uniform sampling"])  # it is never reached


# -- Willemsen 2021 -------------------------------------------------------------------------------


def published(path: Path, of_runs: dict[str, list[list[float]]]) -> Path:
    devices = {"A100": {"GEMM": {"optimum": 10.0, "strategies": of_runs}}}
    path.write_bytes(gzip.compress(json.dumps({"evaluations": [*range(20, 221, 20)], "devices": devices}).encode()))
    return path


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the paper's raw runs are not here")
@pytest.mark.parametrize(("device", "better"), [("RTX2070S", 0.636), ("A100", 0.198)])
def test_the_published_runs_have_the_published_deviation_factors(device: str, better: float) -> None:
    comparison = willemsen.published_comparison(PUBLISHED, device)
    assert willemsen.advantage(comparison) == pytest.approx(better, abs=0.001)
    assert sum(willemsen.factors(comparison).values()) == pytest.approx(7.0)


def test_deviation_factors_by_hand(tmp_path: Path) -> None:
    # Sec. IV-A looks at evaluations from 40 on: the first value must not count.
    advanced = [[99.0, 14.0, *[12.0] * 9], [50.0, *[12.0] * 10]]
    genetic = [[10.0, *[16.0] * 10]]
    path = published(tmp_path / "runs.json.gz", {"advanced multi": advanced, "genetic algorithm": genetic})
    comparison = willemsen.published_comparison(path, "A100")
    means = {"advanced multi": (0.4 + 9 * 0.2 + 10 * 0.2) / 20, "genetic algorithm": 0.6}
    middle = sum(means.values()) / 2
    assert willemsen.factors(comparison) == pytest.approx({name: mean / middle for name, mean in means.items()})
    assert willemsen.advantage(comparison) == pytest.approx((0.6 - means["advanced multi"]) / middle)
    best = comparison.simulation("GEMM", "genetic algorithm").runs[0].best
    assert (best[18], best[19], best[38], best[39], best[219]) == (None, 10.0, 10.0, 16.0, 16.0)


# -- Lin 2025 -------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.skipif(not GEMM.exists(), reason="the recorded space is not here")
def test_balanced_configurations_satisfy_equation_8_by_hand() -> None:
    narrowed = lin.balanced(str(GEMM), 2.0)
    assert 0 < narrowed.space.size < 17956
    for index in np.random.default_rng(0).integers(narrowed.space.size, size=50).tolist():
        c = narrowed.space.configuration(index)
        assert narrowed.indexed[index].configuration.subset(narrowed.space.names) == tuple(c.values())
        multiply = c["MWG"] * c["NWG"] / 6.7e12
        private = 4 * (c["MWG"] * c["NDIMC"] + c["NWG"] * c["MDIMC"]) / 1.34e13
        tile = 4 * (c["MWG"] + c["NWG"]) * (1 / 6.16e11 + 1 / 1.34e13)
        for seconds in (private, tile):
            assert abs(math.log2(seconds / multiply)) <= 1 + 1e-9


# -- Heldens 2026: searches -----------------------------------------------------------------------

NAMES = ("x_type", "y_type", "block", "tile")
SIZES = {"fp64": 8, "fp32": 4, "fp16": 2}
ERRORS = {"fp64": 0.0, "fp32": 1e-7, "fp16": 1e-3}


def bessel() -> Run:
    """The best block depends on the types; blocks of 32 with tiles of 4 crash."""
    records = []
    for row in itertools.product(SIZES, SIZES, (32, 64, 128, 256), (1, 2, 4)):
        x, y, block, tile = row
        size = SIZES[x] + SIZES[y]
        time_ms = size * (1 + math.log2(block * size / 512) ** 2) + tile
        numbers = Measurement({"time_ms": time_ms, "error": 1e-16 + ERRORS[x] + 2 * ERRORS[y]})
        crashed = (block, tile) == (32, 4)
        records.append(Record(row, Status.CRASH) if crashed else Record(row, Status.OK, measurement=numbers))
    return assemble("bessel", NAMES, {}, records, kernel="bessel", device="a processor", signature=NAMES[:2])


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Given:
    monkeypatch.setattr(searches, "_MOST_TRIED", 10.0)
    (tmp_path / "data").mkdir()
    write_run(bessel(), tmp_path / "data" / "bessel-host.json.gz", "space")
    return given_in(tmp_path, quick=False)


def test_peers_are_told_a_longer_time_where_the_error_is_too_large_and_only_feasible_times_count(given: Given) -> None:
    recorded = read_run(given.data / "bessel-host.json.gz")
    problem, times_ms = replays.penalised(recorded, recorded.derive(objective=Objective(threshold=1e-6)).objective)
    assert len(problem.costs) == recorded.space.size
    trials = {t.configuration: t for t in recorded.trials}
    for configuration, cost, time_ms in zip(problem.configurations, problem.costs, times_ms, strict=True):
        trial = trials[Configuration(dict(zip(NAMES, configuration, strict=True)))]
        if trial.status is Status.CRASH:
            assert math.isnan(cost)
            assert math.isnan(time_ms)
        elif trial.error <= 1e-6:
            assert (cost, time_ms) == (pytest.approx(trial.time_ms), trial.time_ms)
        else:
            assert cost == pytest.approx(trial.time_ms * math.exp(math.log10(trial.error / 1e-6)))
            assert math.isnan(time_ms)
    recorder = replays.PenalisedRecorder(problem, times_ms, budget=4)
    inaccurate, crashing = ("fp16", "fp16", 128, 1), ("fp64", "fp32", 32, 4)
    wide, narrow = ("fp64", "fp64", 32, 1), ("fp32", "fp32", 64, 1)
    for proposed in (inaccurate, wide, wide, crashing, narrow):
        recorder.propose(proposed)
    wide_ms, narrow_ms = (trials[Configuration(dict(zip(NAMES, c, strict=True)))].time_ms for c in (wide, narrow))
    assert recorder.best_feasible == pytest.approx([None, wide_ms, wide_ms, narrow_ms])


# -- Heldens 2026: spaces, times and energy -------------------------------------------------------

#: Time, error and footprint by the types of x and of the sum.
MEASURED = {
    ("fp64", "fp64"): (8.0, 1e-16, 80.0),
    ("fp64", "fp32"): (6.0, 2e-8, 80.0),
    ("fp32", "fp64"): (5.0, 1e-8, 40.0),
    ("fp32", "fp32"): (4.0, 3e-8, 40.0),
    ("fp16", "fp32"): (2.0, 1e-4, 20.0),
    ("fp16", "fp16"): (2.5, 1e-3, 20.0),
}


def axpy() -> Run:
    """Blocks of 64 take twice as long, those of 128 crash."""
    records = []
    for (types, (time_ms, error, memory)), block in itertools.product(MEASURED.items(), (32, 64, 128)):
        numbers = {"time_ms": time_ms * block / 32, "error": error, "memory_bytes": memory * 1e6}
        ran = Record((*types, block), Status.OK, measurement=Measurement(numbers))
        records.append(Record((*types, block), Status.CRASH) if block == 128 else ran)
    names = ("x_type", "sum_type", "block")
    return assemble("axpy", names, {}, records, kernel="axpy", device="a processor", signature=names[:2])


def test_figures_of_a_recording(tmp_path: Path) -> None:
    given = given_in(tmp_path)
    given.data.mkdir()
    write_run(axpy(), given.data / "axpy-host.json.gz", "space")
    shares = [row[4:] for row in spaces.h_t4(given).tables[0].rows]
    assert shares == [(f"{100 * n / 18:.1f}%", n, 18) for n in (4, 10, 12)]
    ((name, ran, largest, at, *within, on_front, mixed),) = spaces.h_f2(given).tables[0].rows
    assert (name, ran, largest, at, within) == ("axpy", 12, 4.0, pytest.approx(-4.0), [8 / 5, 4.0, 4.0])
    # fp64; fp32 with sums in fp64; fp32; fp16 with sums in fp32.
    assert (on_front, mixed) == (4, 2)
    memory = [(row[3], row[5]) for row in spaces.h_f11(given).tables[0].rows]
    assert memory == [("2.00×", "1.60×"), ("4.00×", "4.00×"), ("4.00×", "4.00×")]
    assert spaces.smallest_within(axpy(), 1e-17) is None
    points = spaces.Points.of(axpy())
    assert (points.fastest_within(-8.0), points.fastest_within(-3.99)) == (8 / 5, 4.0)
    assert math.isnan(points.fastest_within(-17.0))
