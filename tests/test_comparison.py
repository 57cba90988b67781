"""Comparing strategies: every figure against a slow computation of its definition, and what a wrong request says."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from mptune.errors import MptuneError
from mptune.interop.recorded import Record, assemble
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.tuning.comparison import Comparison, compare
from mptune.tuning.simulation import Simulation, SimulationRun, simulate

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


def test_several_objectives_are_compared_by_what_is_missing_of_the_hypervolume() -> None:
    space = recording("x", 1)
    comparison = compare([space], ("exhaustive", "random"), objectives=("time", "error"), budget=96, processes=1)
    whole = comparison.simulation("x", "exhaustive")
    assert whole.distance_curves()[:, -1] == pytest.approx(0.0, abs=1e-12)
    shares = np.array([run.hypervolume for run in comparison.simulation("x", "random").runs])
    assert comparison.simulation("x", "random").distance_curves() == pytest.approx(1 - shares, abs=1e-12)
    assert comparison.best_at_end() == pytest.approx(1.0)
    with pytest.raises(MptuneError, match="multi-objective strategies: bayesian-pareto, exhaustive, nsga2"):
        compare([space], ("genetic",), objectives=("time", "error"), budget=5, processes=1)


def recording(name: str, seed: int) -> Run:
    rng = np.random.default_rng(seed)
    rows = itertools.product(range(8), range(6), ("fp64", "fp32"))
    metrics = [{"time_ms": float(rng.uniform(1, 2)), "error": 1e-15 if row[2] == "fp64" else 1e-7} for row in rows]
    rows = itertools.product(range(8), range(6), ("fp64", "fp32"))
    records = [Record(row, Status.OK, measurement=Measurement(m)) for row, m in zip(rows, metrics, strict=True)]
    return assemble(name, ("a", "b", "type"), {}, records)


@pytest.mark.full
def test_worker_processes_give_what_simulate_gives() -> None:
    spaces = [recording("x", 1), recording("y", 2)]
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
