from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from landscape import LAYOUTS, SPACE, ruggedness, time_ms
from landscape import evaluate as evaluate_time
from searches import drive

from mptune.errors import UnknownNameError
from mptune.objective import Objective
from mptune.results import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.strategies import make
from mptune.strategies.moves.population import CROSSOVERS
from mptune.strategies.nsga2 import Nsga2Strategy


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


def _nsga2(seed: int = 0, objective: Objective | None = None, **options: object) -> Nsga2Strategy:
    strategy = make("nsga2", SPACE, objective or Objective(), seed=seed, options=options)
    assert isinstance(strategy, Nsga2Strategy)
    return strategy


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
def _mean_hypervolume(
    name: str, second: str = "error", batch: int = 1, objective: Objective | None = None, **options: object
) -> float:
    found = [_search(name, seed, 150, batch, objective, **options) for seed in range(20)]
    return float(np.mean([_hypervolume(trials, second) for trials in found]))


@pytest.mark.parametrize("crossover", CROSSOVERS)
def test_it_covers_more_than_random(crossover: str) -> None:
    assert _mean_hypervolume("nsga2", crossover=crossover) > 1.02 * _mean_hypervolume("random")


def test_batches_cover_more_than_random_too() -> None:
    assert _mean_hypervolume("nsga2", batch=16) > 1.02 * _mean_hypervolume("random")


def test_any_metric_can_be_an_objective() -> None:
    found = _mean_hypervolume("nsga2", "energy_j", objective=Objective(also=("energy_j",)))
    assert found > _mean_hypervolume("random", "energy_j")
    assert found > _mean_hypervolume("nsga2", "energy_j")


def test_three_objectives_are_compared_by_their_logarithms() -> None:
    objective = Objective(also=("error", "energy_j"))
    strategy = _nsga2(objective=objective)
    trials = [
        _trial(0, time_ms=1.0, error=1e-3, energy_j=9.0),
        _trial(1, time_ms=2.0, error=1e-6, energy_j=9.0),
        _trial(2, time_ms=3.0, error=1e-9, energy_j=1.0),
        _trial(3, time_ms=3.0, error=1e-8, energy_j=1.0),
    ]
    assert _ranked(strategy, trials)[-1] == 3
    assert strategy._costs[1] == pytest.approx((math.log10(2.0), -6.0, math.log10(9.0)))


def test_error_alone_is_minimised() -> None:
    trials = [_trial(i, time_ms=1.0, error=10.0**-i) for i in range(4)]
    assert _ranked(_nsga2(objective=Objective("error")), trials) == [3, 2, 1, 0]


def _trial(index: int, **metrics: float) -> Trial:
    return Trial(SPACE.configuration(index), Status.OK, measurement=Measurement(metrics))


def _ranked(strategy: Nsga2Strategy, trials: Sequence[Trial]) -> list[int | None]:
    """Return the indices of trials from the fittest to the least fit."""
    strategy.tell(trials)
    strategy._select(strategy._arrived)
    return list(strategy._parents)


def test_the_fittest_are_on_the_front_and_far_apart() -> None:
    times_and_errors = [(1.0, 1e-1), (2.0, 1e-2), (2.1, 1e-3), (5.0, 1e-9), (5.0, 1e-8), (9.0, 1e-1)]
    trials = [_trial(i, time_ms=time, error=error) for i, (time, error) in enumerate(times_and_errors)]
    # The ends of the front, of the rest the one with more space around it in time and decades, then the dominated.
    assert _ranked(_nsga2(), trials) == [0, 3, 2, 1, 4, 5]


def test_the_population_keeps_its_size() -> None:
    trials = [_trial(i, time_ms=1.0 + i, error=1e-3) for i in range(30)]
    assert _ranked(_nsga2(population=7), trials) == list(range(7))


def test_a_metric_a_trial_lacks_makes_it_worst() -> None:
    trials = [_trial(0, time_ms=5.0), _trial(1, time_ms=5.0, error=math.nan), _trial(2, time_ms=5.0, error=1e3)]
    assert _ranked(_nsga2(), trials)[0] == 2
    better_elsewhere = [*trials, _trial(3, time_ms=1.0)]
    assert set(_ranked(_nsga2(), better_elsewhere)[:2]) == {2, 3}


def test_feasible_beats_infeasible_by_excess() -> None:
    trials = [
        _trial(0, time_ms=1.0, error=1e-1),
        _trial(1, time_ms=2.0, error=1e-3),
        _trial(2, time_ms=9.0, error=1e-5),
        _trial(3, time_ms=8.0, error=1e-4),
        Trial(SPACE.configuration(4), Status.CRASH),
    ]
    strategy = _nsga2(objective=Objective(threshold=1e-4))
    ranked = _ranked(strategy, trials)
    assert set(ranked[:2]) == {2, 3}
    assert ranked[2:] == [1, 0, 4]


def test_the_direction_is_that_of_the_objective() -> None:
    trials = [_trial(i, throughput=float(i), error=1e-3) for i in range(4)]
    assert _ranked(_nsga2(objective=Objective("throughput", minimise=False)), trials) == [3, 2, 1, 0]
    trials = [_trial(i, throughput=1.0, error=10.0**i) for i in range(4)]
    assert _ranked(_nsga2(objective=Objective("throughput", minimise=False)), trials) == [0, 1, 2, 3]


def test_an_error_of_zero_is_the_best() -> None:
    trials = [_trial(0, time_ms=3.0, error=1e-300), _trial(1, time_ms=3.0, error=0.0)]
    assert _ranked(_nsga2(), trials) == [1, 0]


def test_winners_of_tournaments_are_fit() -> None:
    strategy = _nsga2(population=10)
    _ranked(strategy, [_trial(i, time_ms=1.0 + i, error=1e-3) for i in range(10)])
    drawn = np.array([strategy._winner() for _ in range(4000)])
    # The smaller of two uniform draws from ten is k with probability (19 - 2k) / 100.
    expected = np.array([(19 - 2 * k) / 100 for k in range(10)])
    assert np.abs(np.bincount(drawn, minlength=10) / 4000 - expected).max() < 0.03


def test_mutation_changes_as_many_genes_as_it_should() -> None:
    strategy = _nsga2(mutations=1.5)
    before = SPACE.codes(np.arange(1000))
    after = strategy._mutated(before)
    sizes = np.array([len(p.values) for p in SPACE.parameters])
    assert ((after >= 0) & (after < sizes)).all()
    assert (after != before).sum(axis=1).mean() == pytest.approx(1.5, abs=0.15)
    assert (_nsga2(mutations=0.0)._mutated(before) == before).all()


def test_told_trials_are_parents_of_the_first_children() -> None:
    told = _search("random", 5, 60)
    strategy = _nsga2(population=10, mutations=0.0)
    strategy.tell(told)
    strategy.ask(10)
    assert strategy._parents == _ranked(_nsga2(population=10), told)


def test_a_metric_no_trial_has_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match="objective 'enery_j': 'enery_j'; did you mean 'energy_j'"):
        _search("nsga2", 0, 60, objective=Objective(also=("enery_j",)))
