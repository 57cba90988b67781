"""Replaying recordings: budgets, best-so-far, the optimum, and what a wrong request says."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import statistics
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mptune.errors import ExpressionError, MptuneError, UnknownNameError
from mptune.interop.recorded import Record, assemble
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.tuning.comparison import Comparison, compare
from mptune.tuning.simulation import Simulation, SimulationRun, simulate

BLOCKS = (32, 64, 128, 256)
TILES = (1, 2, 3, 4, 5)
KINDS = ("fp64", "fp32", "fp16")
ERRORS = {"fp64": 1e-15, "fp32": 1e-7, "fp16": 1e-3}


def recording(seed: int = 1, *, errors: bool = True, failing: int = 12) -> Run:
    """Return 60 configurations, some failing, with fresh times; a lower precision is faster and less accurate."""
    rng = np.random.default_rng(seed)
    rows = list(itertools.product(BLOCKS, TILES, KINDS))
    failed = set(rng.choice(len(rows), failing, replace=False).tolist())
    records = []
    for number, row in enumerate(rows):
        if number in failed:
            records.append(Record(row, Status.LAUNCH_ERROR, "failed"))
            continue
        time_ms = float(rng.uniform(1, 2)) * {"fp64": 4, "fp32": 2, "fp16": 1}[row[2]]
        metrics = {"time_ms": time_ms, "GFLOP/s": 100 / time_ms, "energy_j": float(rng.uniform(1, 2))}
        if errors:
            metrics |= {"error": ERRORS[row[2]], "error.y": ERRORS[row[2]] / 2}
        records.append(Record(row, Status.OK, measurement=Measurement(metrics)))
    return assemble("toy", ("block", "tile", "type"), {}, records)


def valid_times(recorded: Run, max_error: float = math.inf) -> list[float]:
    trials = [t for t in recorded.trials if t.status is Status.OK]
    return [t.measurement.metrics["time_ms"] for t in trials if t.measurement.metrics.get("error", 0.0) <= max_error]


def test_nothing_valid_yet_is_null() -> None:
    rows = [Record((n,), Status.CRASH if n < 5 else Status.OK, measurement=_time(n)) for n in range(8)]
    simulation = simulate(assemble("late", ("n",), {}, rows), "exhaustive", budget=8, repeats=1)
    assert simulation.runs[0].best == (None,) * 5 + (5.0, 5.0, 5.0)
    assert simulation.to_json()["runs"][0]["best"][:5] == [None] * 5


def _time(n: int) -> Measurement:
    return Measurement({"time_ms": float(n)} if n >= 5 else {})


@pytest.mark.parametrize(("max_error", "kinds"), [(1e-2, KINDS), (1e-3, KINDS), (1e-5, KINDS[:2]), (1e-10, KINDS[:1])])
def test_only_accurate_configurations_count(max_error: float, kinds: tuple[str, ...]) -> None:
    recorded = recording()
    simulation = simulate(recorded, "random", budget=60, repeats=2, max_error=max_error)
    assert simulation.optimum == min(valid_times(recorded, max_error))
    for run in simulation.runs:
        assert run.best[-1] == simulation.optimum
        assert run.best_configuration is not None
        assert run.best_configuration["type"] in kinds


# -- objectives --------------------------------------------------------------------------------------


def test_any_metric_or_expression_can_be_optimised() -> None:
    recorded = recording()
    ran = [t.measurement.metrics for t in recorded.trials if t.status is Status.OK]

    def optimum(objective: str, maximise: bool = False) -> tuple[float | None, str]:
        found = simulate(recorded, "exhaustive", budget=60, repeats=1, objective=objective, maximise=maximise)
        assert found.runs[0].best[-1] == found.optimum
        return found.optimum, found.unit

    assert optimum("time") == optimum("time_ms") == (min(m["time_ms"] for m in ran), "ms")
    assert optimum("energy_j") == (min(m["energy_j"] for m in ran), "J")
    assert optimum("GFLOP/s", maximise=True) == (max(m["GFLOP/s"] for m in ran), "GFLOP/s")
    assert optimum("energy_j * time_ms") == (min(m["energy_j"] * m["time_ms"] for m in ran), "")
    assert optimum("GFLOP_s / energy_j", True)[0] == max(m["GFLOP/s"] / m["energy_j"] for m in ran)


# -- wrong requests ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        ({"budget": 0}, MptuneError, "budget 0: expected at least 1"),
        ({"strategy": "genetics"}, UnknownNameError, "unknown strategy 'genetics'; did you mean 'genetic'"),
        ({"objective": "tiem"}, UnknownNameError, "unknown metric of recording toy: 'tiem'; did you mean 'time'"),
        ({"objective": "time_ms *"}, ExpressionError, "time_ms"),
        ({"max_error": {"z": 1e-3}}, UnknownNameError, "'z'"),
    ],
)
def test_a_wrong_request_names_what_is_wrong(request_: dict[str, Any], error: type[MptuneError], message: str) -> None:
    with pytest.raises(error, match=message):
        simulate(recording(), **{"strategy": "random", "budget": 5, "repeats": 1, **request_})


# -- the summary -------------------------------------------------------------------------------------


def made_up(budget: int, *best: tuple[float | None, ...], optimum: float | None = 2.0) -> Simulation:
    runs = tuple(SimulationRun(seed, b, Configuration({}), 0.001) for seed, b in enumerate(best))
    return Simulation("s", "random", budget, Objective(), optimum, None, "ms", 9, runs)


def test_distances_are_relative_to_the_optimum() -> None:
    simulation = made_up(4, (4.0, 3.0, 3.0, 2.0), (None, 2.5))
    assert simulation.distances(1).tolist() == [1.0, math.inf]
    assert simulation.distances(2).tolist() == [0.5, 0.25]
    # A run that ended keeps its last best.
    assert simulation.distances(4).tolist() == [0.0, 0.25]

    assert simulation.overhead_ms_per_evaluation == pytest.approx(2 / 6, rel=1e-12)
    assert simulation.summary() == [
        {
            "evaluations": 4,
            "mean": 0.125,
            "lower": 0.0625,
            "median": 0.125,
            "upper": 0.1875,
            "worst": 0.25,
            "found_optimum": 0.5,
            "nothing_feasible": 0.0,
        }
    ]


def test_several_objectives_are_measured_by_the_hypervolume_of_the_front() -> None:
    recorded = recording()
    simulation = simulate(recorded, "random", objectives=("time", "error"), budget=60, repeats=2)
    assert simulation.objective.metrics == ("time_ms", "error")
    assert simulation.optimum == min(valid_times(recorded))
    for run in simulation.runs:
        assert len(run.hypervolume) == len(run.best) == 60
        assert list(run.hypervolume) == sorted(run.hypervolume)
        assert run.hypervolume[-1] == pytest.approx(1.0)
        assert run.hypervolume[0] < 0.9
    document = json.loads(json.dumps(simulation.to_json(), allow_nan=False))
    assert document["objectives"] == ["time_ms", "error"]
    assert document["runs"][0]["hypervolume"] == list(simulation.runs[0].hypervolume)
    fastest = {kind: min(valid_times(recorded, error)) for kind, error in ERRORS.items()}
    assert document["ideal"] == pytest.approx([min(fastest.values()), 1e-15])
    assert document["nadir"][0] == pytest.approx(
        min(t.time_ms for t in recorded.trials if t.status is Status.OK and t.error == 1e-15)
    )


def test_a_source_that_does_not_fit_is_refused() -> None:
    def of(names: tuple[str, ...], metrics: dict[str, float], kernel: str = "", **about: Any) -> Run:
        records = [Record((size,) * len(names), Status.OK, measurement=Measurement(metrics)) for size in (32, 64, 128)]
        return assemble("other", names, {}, records, kernel=kernel, **about)

    target = of(("block", "tile"), {"time_ms": 1.0, "GFLOP/s": 5.0}, "gemm")
    for source, message in (
        (of(("block",), {"time_ms": 1.0}, "axpy"), "source other is of kernel 'axpy', not 'gemm'"),
        (of(("threads",), {"time_ms": 1.0}), "no parameter in common with the search space: it has threads, the space"),
        (of(("block",), {"energy_j": 1.0}), "metric of source other: 'time_ms'.*energy_j"),
        (
            of(("block",), {"time_ms": 1.0}, units={"time_ms": "s"}),
            "source other has time_ms in s, .* has it in ms",
        ),
    ):
        with pytest.raises(MptuneError, match=message):
            simulate(target, budget=2, sources=[source])
    values = assemble("other", ("block",), {}, [Record((33,), Status.OK, measurement=Measurement({"time_ms": 1.0}))])
    with pytest.raises(MptuneError, match="none of its 1 trials has values that the search space has for block"):
        simulate(target, budget=2, sources=[values])
    same_parameters = of(("block", "tile"), {"time_ms": 1.0, "GFLOP/s": 5.0}, "gemm_of_another_name")
    assert simulate(target, budget=2, repeats=1, sources=[same_parameters]).runs[0].sources[0].trials == 3
    assert simulate(target, budget=2, repeats=1, objective="GFLOP/s", maximise=True, sources=[same_parameters]).runs


# -- comparing strategies: every figure against a slow computation of its definition, and what -------

Curve = Sequence[float | None]


def simulation(
    space: str,
    strategy: str,
    curves: Sequence[Curve],
    optimum: float | None = 1.0,
    *,
    minimise: bool = True,
    budget: int = 0,
) -> Simulation:
    runs = tuple(SimulationRun(seed, tuple(curve), None, 0.001 * len(curve)) for seed, curve in enumerate(curves))
    return Simulation(
        space=space,
        strategy=strategy,
        budget=budget or len(curves[0]),
        objective=Objective(minimise=minimise),
        optimum=optimum,
        optimum_configuration=None if optimum is None else Configuration({"a": 1}),
        unit="ms",
        configurations=1000,
        runs=runs,
    )


def descending(rng: np.random.Generator, budget: int, late: int = 0) -> list[float | None]:
    """Return a fresh best-so-far curve above 1 in exact binary fractions, nothing valid before evaluation ``late``."""
    values = np.minimum.accumulate(rng.integers(1024, 4096, budget)) / 1024
    return [None] * late + values[late:].tolist()


def fresh(seed: int, strategies: str = "abc", spaces: str = "xyz", runs: int = 7, budget: int = 100) -> Comparison:
    rng = np.random.default_rng(seed)
    return Comparison(
        tuple(
            simulation(space, strategy, [descending(rng, budget, int(rng.integers(0, 20))) for _ in range(runs)])
            for space in spaces
            for strategy in strategies
        )
    )


def slow_distance(curve: Curve, evaluations: int) -> Fraction:
    best = curve[evaluations - 1]
    assert best is not None
    return Fraction(best) - 1


@pytest.mark.parametrize("seed", range(3))
def test_mean_distance_deviation_factor_and_geometric_mean_follow_their_definitions(seed: int) -> None:
    comparison = fresh(seed)
    assert comparison.checkpoints == (40, 60, 80, 100)
    exact = {
        (s.space, s.strategy): statistics.mean(
            slow_distance(run.best, point) for run in s.runs for point in (40, 60, 80, 100)
        )
        for s in comparison.simulations
    }
    means = comparison.mean_distances()
    factors = comparison.deviation_factors()
    for (i, space), (j, strategy) in itertools.product(enumerate("xyz"), enumerate("abc")):
        assert means[i, j] == pytest.approx(float(exact[space, strategy]), rel=1e-13)
        of_all = statistics.mean(exact[space, other] for other in "abc")
        assert factors[i, j] == pytest.approx(float(exact[space, strategy] / of_all), rel=1e-12)
    for j, strategy in enumerate("abc"):
        wanted = math.prod(exact[space, strategy] for space in "xyz") ** (1 / 3)
        assert comparison.geometric_means()[j] == pytest.approx(wanted, rel=1e-12)
    assert factors.mean(axis=1) == pytest.approx([1.0] * 3)


@pytest.mark.parametrize("seed", range(3))
def test_win_probability_counts_pairs_of_runs_and_ties_half(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = {name: rng.integers(1, 5, size).tolist() for name, size in (("a", 5), ("b", 8))}
    comparison = Comparison(
        tuple(simulation("x", name, [[9.0, float(end)] for end in values]) for name, values in ends.items())
    )
    pairs = list(itertools.product(ends["a"], ends["b"]))
    wanted = Fraction(sum(2 * (a < b) + (a == b) for a, b in pairs), 2 * len(pairs))
    wins = comparison.win_probabilities()
    assert wins.shape == (1, 2, 2)
    assert wins[0, 0, 1] == pytest.approx(float(wanted))
    assert wins[0, 1, 0] == pytest.approx(1 - float(wanted))
    assert comparison.win_probabilities(1)[0, 0, 1] == 0.5


def test_evaluations_within_are_medians_over_runs_and_censored() -> None:
    curves = [[2.0, 1.04, 1.0], [2.0, 2.0, 1.05], [1.01, 1.01, 1.01], [2.0, 2.0, 2.0]]
    comparison = Comparison((simulation("x", "a", curves), simulation("x", "b", curves[:3])))
    # First within 5%: 2, 3, 1 and never; within 1%: 3, never, 1 (1.01 itself counts) and never.
    assert comparison.evaluations_within(0.0501).tolist() == [[2.5, 2.0]]
    assert comparison.evaluations_within(0.0101).tolist() == [[math.inf, 3.0]]
    assert comparison.to_json()["cells"][0]["evaluations_within"]["1%"] is None


def test_runs_without_anything_feasible_count_with_the_worst_feasible_value() -> None:
    sparse = dataclasses.replace(simulation("x", "a", [[None] * 60, [None] * 50 + [1.5] * 10]), worst=4.0)
    found = dataclasses.replace(simulation("x", "b", [[1.25] * 60] * 2), worst=4.0)
    comparison = Comparison((sparse, found))
    # At evaluations 40 and 60: 3 and 3, 3 and 0.5.
    assert comparison.mean_distances().tolist() == [[pytest.approx(9.5 / 4), 0.25]]
    assert comparison.without_feasible().tolist() == [[1.0, 0.0]]
    assert comparison.quartiles("x", "a")[:, 59].tolist() == [1.125, 1.75, 2.375]
    # It has neither come near the optimum nor a share of it, and is worse than the worst that was found.
    assert comparison.evaluations_within(3.0).tolist() == [[math.inf, 1.0]]
    assert comparison.best_at_end() == pytest.approx(np.array([[1 / 3, 0.8]]))
    worst = dataclasses.replace(simulation("x", "b", [[4.0] * 60]), worst=4.0)
    assert Comparison((dataclasses.replace(sparse, runs=sparse.runs[:1]), worst)).win_probabilities()[0, 0, 1] == 0.0
    document = comparison.to_json()
    assert [cell["nothing_feasible"] for cell in document["cells"]] == [1.0, 0.0]
    assert [row["nothing_feasible"] for row in document["cells"][0]["quartiles"]] == [1.0, 0.5]


def comparison_recording(name: str, seed: int) -> Run:
    rng = np.random.default_rng(seed)
    rows = itertools.product(range(8), range(6), ("fp64", "fp32"))
    metrics = [{"time_ms": float(rng.uniform(1, 2)), "error": 1e-15 if row[2] == "fp64" else 1e-7} for row in rows]
    rows = itertools.product(range(8), range(6), ("fp64", "fp32"))
    records = [Record(row, Status.OK, measurement=Measurement(m)) for row, m in zip(rows, metrics, strict=True)]
    return assemble(name, ("a", "b", "type"), {}, records)


@pytest.mark.full
def test_worker_processes_give_what_simulate_gives() -> None:
    spaces = [comparison_recording("x", 1), comparison_recording("y", 2)]
    done: list[tuple[str, str]] = []
    comparison = compare(
        spaces,
        ("genetic", "random"),
        budget=30,
        repeats=2,
        seed=4,
        max_error=1e-9,
        options={"genetic": {"population": "6"}},
        processes=2,
        on_done=lambda s: done.append((s.space, s.strategy)),
    )
    assert sorted(done) == [(space, strategy) for space in "xy" for strategy in ("genetic", "random")]
    for space in spaces:
        for strategy, options in (("genetic", {"population": 6}), ("random", {})):
            own = simulate(space, strategy, budget=30, repeats=2, seed=4, max_error=1e-9, options=options)
            replayed = comparison.simulation(space.name, strategy)
            assert [(run.seed, run.best) for run in replayed.runs] == [(run.seed, run.best) for run in own.runs]
            assert replayed.optimum == own.optimum
            assert replayed.objective == own.objective
