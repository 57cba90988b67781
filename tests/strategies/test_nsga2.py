from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from landscape import LAYOUTS, SPACE, ruggedness, time_ms
from landscape import evaluate as evaluate_time
from searches import drive

from mptune.errors import UnknownNameError
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.base import Strategy
from mptune.strategies.population import CROSSOVERS


def _error(c: Configuration) -> float:
    """Return an error that is smallest where the kernel is slow."""
    decades = float(c["a"]) / 4 + float(c["c"]) + 2.0 * LAYOUTS.index(str(c["layout"]))  # type: ignore[arg-type]
    return 10.0 ** (decades - 12.0 + ruggedness(c))


def _evaluate(c: Configuration) -> Trial:
    if not evaluate_time(c).is_valid:
        return evaluate_time(c)
    energy_j = 1.0 + abs(float(c["a"]) - 1.0) + abs(float(c["b"]) - 16.0)  # type: ignore[arg-type]
    metrics = {"time_ms": time_ms(c), "error": _error(c), "energy_j": energy_j}
    return Trial(c, Status.OK, measurement=Measurement(metrics))


def _search(
    name: str, seed: int, budget: int, batch: int = 1, objective: Objective | None = None, **options: object
) -> list[Trial]:
    return drive(make(name, SPACE, objective or Objective(), seed=seed, options=options), _evaluate, budget, batch)


def _hypervolume(trials: Sequence[Trial], second: str = "error") -> float:
    """Return the area that time and log10 of the second metric dominate, up to 16 ms and 1e3."""
    points = sorted((t.time_ms, math.log10(t.metric(second))) for t in trials if t.is_valid)
    area, lowest = 0.0, 3.0
    for time, level in points:
        if time < 16.0 and level < lowest:
            area += (16.0 - time) * (lowest - level)
            lowest = level
    return area


@cache
def _mean_hypervolume(name: str, seeds: int, second: str = "error", batch: int = 1, **options: object) -> float:
    objective = Objective() if second == "error" else Objective(also=(second,))
    found = [_search(name, seed, 150, batch, objective, **options) for seed in range(seeds)]
    return float(np.mean([_hypervolume(trials, second) for trials in found]))


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


def test_any_metric_can_be_an_objective() -> None:
    assert _mean_hypervolume("nsga2", 4, "energy_j") > _mean_hypervolume("random", 8, "energy_j")


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


def test_a_metric_a_trial_lacks_makes_it_worst() -> None:
    trials = [_trial(0, time_ms=5.0), _trial(1, time_ms=5.0, error=math.nan), _trial(2, time_ms=5.0, error=1e3)]
    assert _fittest(2, [*trials, _trial(3, time_ms=1.0)]) == {2, 3}


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


def test_three_objectives_are_compared() -> None:
    numbers = [(1.0, 1e-3, 9.0), (2.0, 1e-6, 9.0), (3.0, 1e-9, 1.0), (3.0, 1e-8, 1.0)]
    trials = [_trial(i, time_ms=t, error=e, energy_j=j) for i, (t, e, j) in enumerate(numbers)]
    assert _fittest(3, trials, Objective(also=("error", "energy_j"))) == {0, 1, 2}


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


def test_a_metric_no_trial_has_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match="objective 'enery_j': 'enery_j'; did you mean 'energy_j'"):
        _search("nsga2", 0, 60, objective=Objective(also=("enery_j",)))
