from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from landscape import LAYOUTS, SPACE, ruggedness, time_ms
from landscape import evaluate as evaluate_time
from searches import drive

from mptune.results.objective import Objective
from mptune.results.pareto import hypervolume
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.base import Strategy
from mptune.strategies.nsga2 import crowding_distances, non_dominated_ranks
from mptune.strategies.population import CROSSOVERS


def _evaluate(c: Configuration) -> Trial:
    """Return a trial with an error that is smallest where the kernel is slow."""
    if not evaluate_time(c).is_valid:
        return evaluate_time(c)
    decades = float(c["a"]) / 4 + float(c["c"]) + 2.0 * LAYOUTS.index(str(c["layout"]))  # type: ignore[arg-type]
    metrics = {"time_ms": time_ms(c), "error": 10.0 ** (decades - 12.0 + ruggedness(c))}
    return Trial(c, Status.OK, measurement=Measurement(metrics))


@cache
def _mean_hypervolume(name: str, seeds: int, batch: int = 1, **options: object) -> float:
    """Return the area that time and log10 of the error dominate, up to 16 ms and 1e3."""
    found = []
    for seed in range(seeds):
        strategy = make(name, SPACE, Objective(), seed=seed, options=options)
        trials = [t for t in drive(strategy, _evaluate, 150, batch) if t.is_valid]
        found.append(hypervolume(np.array([[t.time_ms, math.log10(t.error)] for t in trials]), [16.0, 3.0]))
    return float(np.mean(found))


@pytest.mark.parametrize(
    ("crossover", "batch", "seeds"),
    [
        ("two_point", 1, 4),
        *(pytest.param(name, 1, 20, marks=pytest.mark.nightly) for name in CROSSOVERS),
        pytest.param("uniform", 16, 20, marks=pytest.mark.nightly),
    ],
)
def test_it_covers_more_than_random(crossover: str, batch: int, seeds: int) -> None:
    found = _mean_hypervolume("nsga2", seeds, batch=batch, crossover=crossover)
    assert found > 1.02 * _mean_hypervolume("random", 8)


# -- who has children --------------------------------------------------------------------------------

#: Trial i has the value i of every parameter: the genes of a child say who its parents are.
GENES = SearchSpace([OrdinalParameter(name, range(10)) for name in "abcdefgh"])


def _trial(index: int, status: Status = Status.OK, **metrics: float) -> Trial:
    return Trial(Configuration(dict.fromkeys(GENES.names, index)), status, measurement=Measurement(metrics))


def _told(trials: Sequence[Trial], objective: Objective | None = None, **options: object) -> Strategy:
    """Return a search whose first generation is known: the best half was told, the others are drawn and fail."""
    strategy = make("nsga2", GENES, objective or Objective(), options={"mutations": 0.0} | options)
    strategy.tell(trials)
    population = strategy.options.population  # type: ignore[attr-defined]
    strategy.tell([Trial(c, Status.CRASH) for c in strategy.ask(population - min(population // 2, len(trials)))])
    return strategy


def _fittest(n: int, trials: Sequence[Trial], objective: Objective | None = None) -> set[object]:
    """Return which n trials are the parents of the next generation."""
    strategy = _told(trials, objective, population=n, crossover="uniform", crossover_probability=1.0)
    children = [set(c.values()) for c in strategy.ask(30 * n)]
    # What has more values than parents is a random configuration, in place of children that were proposed before.
    return {value for child in children if len(child) <= 2 for value in child}


def test_the_fittest_are_on_the_front_and_far_apart() -> None:
    times_and_errors = [(1.0, 1e-1), (2.0, 1e-2), (2.1, 1e-3), (5.0, 1e-9), (5.0, 1e-8), (9.0, 1e-1)]
    trials = [_trial(i, time_ms=time, error=error) for i, (time, error) in enumerate(times_and_errors)]
    # The ends of the front, of the rest the one with more space around it in time and decades, then the dominated.
    order = [0, 3, 2, 1, 4, 5]
    for n in range(2, 7):
        assert _fittest(n, trials) == set(order[:n])


def test_feasible_beats_infeasible_by_excess() -> None:
    trials = [
        _trial(0, time_ms=1.0, error=1e-1),
        _trial(1, time_ms=2.0, error=1e-3),
        _trial(2, time_ms=9.0, error=1e-5),
        _trial(3, time_ms=8.0, error=1e-4),
        _trial(4, Status.CRASH),
    ]
    for n, expected in ((2, {2, 3}), (3, {1, 2, 3}), (4, {0, 1, 2, 3})):
        assert _fittest(n, trials, Objective(threshold=1e-4)) == expected


RATE = Objective("throughput", minimise=False)


@pytest.mark.parametrize(
    ("objective", "trials", "expected"),
    [
        (Objective("error"), [{"time_ms": 1.0, "error": 10.0**-i} for i in range(4)], {2, 3}),
        (RATE, [{"throughput": float(i), "error": 1e-3} for i in range(4)], {2, 3}),
        (RATE, [{"throughput": 1.0, "error": 10.0**i} for i in range(4)], {0, 1}),
        # An error of zero is the best.
        (Objective(), [{"time_ms": 3.0, "error": error} for error in (1e-300, 0.0, 1e-200)], {0, 1}),
    ],
)
def test_objectives_have_their_directions(objective: Objective, trials: list[Any], expected: set[int]) -> None:
    assert _fittest(2, [_trial(i, **metrics) for i, metrics in enumerate(trials)], objective) == expected


def test_parents_are_winners_of_tournaments_and_their_genes_mutate_as_often_as_they_should() -> None:
    parents = [_trial(i, time_ms=1.0 + i, error=1e-3) for i in range(10)]
    strategy = _told(parents, population=10, crossover_probability=0.0, mutations=1.5)
    children = [list(c.values()) for c in strategy.ask(600)]
    parent_of = [max(child, key=child.count) for child in children]
    # The smaller of two uniform draws from ten is below five with a probability of 0.75.
    assert np.mean([parent < 5 for parent in parent_of]) == pytest.approx(0.75, abs=0.05)  # type: ignore[operator]
    changed = [len(child) - child.count(parent) for child, parent in zip(children, parent_of, strict=True)]
    # Of eight genes; a child without any mutation is not proposed again.
    assert np.mean(changed) == pytest.approx(1.5 / (1 - (1 - 1.5 / 8) ** 8), abs=0.15)


# -- dominance ---------------------------------------------------------------------------------------

Rows = list[list[float]]


@st.composite
def _rows(draw: st.DrawFn, numbers: st.SearchStrategy[float]) -> Rows:
    columns = draw(st.integers(1, 4))
    return draw(st.lists(st.lists(numbers, min_size=columns, max_size=columns), min_size=1, max_size=14))


FEW = st.sampled_from([0.0, 1.0, 2.0, 3.0, math.inf, -math.inf])
MANY = st.floats(-1e6, 1e6)


def _dominates(one: tuple[list[float], float], other: tuple[list[float], float]) -> bool:
    (costs, violation), (rivals, rival_violation) = one, other
    if violation != rival_violation:
        return violation < rival_violation
    return all(a <= b for a, b in zip(costs, rivals, strict=True)) and costs != rivals


def _peeled(costs: Rows, violations: list[float]) -> list[int]:
    """Return the front of each row by taking away the non-dominated ones until none is left."""
    rows = list(zip(costs, violations, strict=True))
    ranks: dict[int, int] = {}
    while len(ranks) < len(rows):
        left = [i for i in range(len(rows)) if i not in ranks]
        best = [i for i in left if not any(_dominates(rows[j], rows[i]) for j in left)]
        ranks.update(dict.fromkeys(best, max(ranks.values(), default=-1) + 1))
    return [ranks[i] for i in range(len(rows))]


@settings(max_examples=50)
@given(_rows(st.one_of(FEW, MANY)), st.data())
def test_ranks_are_those_of_peeling(costs: Rows, data: st.DataObject) -> None:
    violation = st.sampled_from([0.0, 0.0, 0.5, 2.0, math.inf])
    violations = data.draw(st.lists(violation, min_size=len(costs), max_size=len(costs)))
    assert non_dominated_ranks(np.array(costs), np.array(violations)).tolist() == _peeled(costs, violations)


def _exact_crowding(costs: Rows) -> list[Fraction | float]:
    distances: list[Fraction | float] = [Fraction(0)] * len(costs)
    for m in range(len(costs[0])):
        finite = [row[m] for row in costs if math.isfinite(row[m])]
        if not finite or len({row[m] for row in costs}) == 1:
            continue
        order = sorted(range(len(costs)), key=lambda i: costs[i][m])
        at = [Fraction(min(max(costs[i][m], min(finite)), max(finite))) for i in order]
        distances[order[0]] = distances[order[-1]] = math.inf
        for k in range(1, len(order) - 1):
            if at[-1] > at[0]:
                distances[order[k]] += (at[k + 1] - at[k - 1]) / (at[-1] - at[0])
    return distances


@settings(max_examples=50)
@given(_rows(st.one_of(FEW, st.floats(-1.7e308, 1.7e308), st.integers(-5, 5).map(float))))
def test_crowding_is_the_relative_gap_between_neighbours(costs: Rows) -> None:
    expected = [float(value) for value in _exact_crowding(costs)]
    assert crowding_distances(np.array(costs)).tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_a_metric_a_trial_lacks_makes_it_worst() -> None:
    trials = [_trial(0, time_ms=5.0), _trial(1, time_ms=5.0, error=math.nan), _trial(2, time_ms=5.0, error=1e3)]
    assert _fittest(2, [*trials, _trial(3, time_ms=1.0)]) == {2, 3}
