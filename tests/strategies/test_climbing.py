"""Local search, basin hopping and simulated annealing: where they start, move and end; all beat random search."""

from __future__ import annotations

import math
from typing import Any

import landscape
import mpmath
import numpy as np
import pytest
import smooth
from hypothesis import given
from hypothesis import strategies as st
from landscape import EVERY, SPACE, evaluate, is_local_optimum, neighbours, run, score

from mptune.results.objective import Objective
from mptune.results.trial import Status, Trial
from mptune.space.configuration import Configuration
from mptune.strategies import make
from mptune.strategies.base import Strategy
from mptune.strategies.simulated_annealing import (
    SimulatedAnnealingStrategy,
    acceptance_probability,
    relative_loss,
)

KINDS = ("hamming", "adjacent")
#: Far from everything good, but it runs.
CORNER = Configuration({"a": 1, "b": 1, "c": 0, "d": 0, "layout": "row"})
COLD: dict[str, Any] = {"start_temperature": 1e-9, "end_temperature": 1e-9}


def climber(name: str = "local-search", seed: int = 0, **options: object) -> Strategy:
    return make(name, SPACE, Objective(), seed=seed, options=options)


def told(strategy: Strategy, *configurations: Configuration) -> Strategy:
    strategy.tell([evaluate(c) for c in configurations])
    return strategy


# -- climbing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "options"), [("local-search", {}), ("simulated-annealing", COLD)], ids=["first improvement", "cold"]
)
def test_first_improvement_and_a_cold_walk_move_at_once_and_never_down(
    name: str, options: dict[str, Any], kind: str
) -> None:
    strategy = told(climber(name, neighbourhood=kind, **options), CORNER)
    here, steps = CORNER, 0
    while not (is_local_optimum(here, kind) and all(SPACE.index(c) in strategy.seen for c in neighbours(here, kind))):
        (c,) = run(strategy, 1)
        assert c in neighbours(here, kind)
        here = max(here, c, key=score)
        steps += 1
    assert steps > 10


@pytest.mark.parametrize("kind", KINDS)
def test_best_improvement_looks_at_all_neighbours_first(kind: str) -> None:
    strategy = told(climber(neighbourhood=kind, improvement="best"), CORNER)
    here, seen, moves = CORNER, {CORNER}, 0
    while True:
        around = neighbours(here, kind)
        seen.update(run(strategy, len(set(around) - seen), batch=4))
        assert seen >= set(around)
        if is_local_optimum(here, kind):
            break
        here, moves = max(around, key=score), moves + 1
    assert moves >= 2
    assert strategy.ask(1)[0] not in seen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["local-search", "simulated-annealing"])
def test_it_starts_at_the_best_trial_it_was_told(name: str, kind: str) -> None:
    known = [EVERY[i] for i in np.random.default_rng(5).choice(len(EVERY), 30, replace=False)]
    strategy = told(climber(name, neighbourhood=kind), *known)
    assert strategy.ask(1)[0] in neighbours(max(known, key=score), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_climb_starts_at_random_where_the_kernel_runs(kind: str) -> None:
    optimum = next(c for c in EVERY if is_local_optimum(c, kind) and score(c) > 0)
    strategy = told(climber(neighbourhood=kind), optimum, *neighbours(optimum, kind))
    (failing,) = strategy.ask(1)
    strategy.tell([Trial(failing, Status.CRASH)])
    (start,) = strategy.ask(1)
    assert start not in neighbours(failing, kind)
    told(strategy, start)
    assert 0 < score(start) < score(optimum)
    assert strategy.ask(1)[0] in neighbours(start, kind)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("perturbation", "least", "most"), [(1, 1, 2), (99, 4, 5)])
def test_basin_hopping_climbs_on_near_its_optimum(seed: int, perturbation: int, least: int, most: int) -> None:
    optimum = next(c for c in EVERY if is_local_optimum(c, "adjacent") and score(c) > 0)
    strategy = climber("basin-hopping", seed, neighbourhood="adjacent", perturbation=perturbation)
    (start,) = told(strategy, optimum, *neighbours(optimum, "adjacent")).ask(1)
    # Where the result is not valid, the nearest configuration that is differs in other parameters too.
    assert least <= sum(start[name] != optimum[name] for name in SPACE.names) <= most


# -- annealing -------------------------------------------------------------------------------------

POSITIVE = st.floats(1e-300, 1e300)
ANY = st.floats(-1e300, 1e300)


@given(POSITIVE, POSITIVE, st.floats(1e-4, 10.0))
def test_the_probability_of_moving_to_a_worse_neighbour(current: float, other: float, temperature: float) -> None:
    loss = max(1 - mpmath.mpf(other) / mpmath.mpf(current), 0)
    expected = float(mpmath.exp(-loss / mpmath.mpf(temperature)))
    assert acceptance_probability(current, other, temperature) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@given(ANY, ANY, st.integers(-60, 60))
def test_the_loss_is_from_0_to_1_and_0_for_an_improvement_at_any_scale(
    current: float, other: float, exponent: int
) -> None:
    loss = relative_loss(current, other)
    assert 0.0 <= loss <= 1.0
    assert (loss == 0.0) == (other >= current)
    # Away from the subnormal numbers a power of two changes nothing at all.
    if all(value == 0 or 1e-250 < abs(value) < 1e250 for value in (current, other)):
        assert relative_loss(current * 2.0**exponent, other * 2.0**exponent) == loss


def test_penalties_lose_by_their_magnitude_and_failures_are_left_at_once_and_never_entered() -> None:
    assert relative_loss(-2.0, -2.5) == pytest.approx(0.2)
    assert relative_loss(0.0, -1e-9) == relative_loss(1e-9, 0.0) == relative_loss(3.0, -7.0) == 1.0
    for other in (-math.inf, 0.0):
        assert acceptance_probability(-math.inf, other, 0.01) == 1.0
    for current in (0.0, 5.0):
        assert acceptance_probability(current, -math.inf, 10.0) == 0.0


def annealing(**options: object) -> SimulatedAnnealingStrategy:
    strategy = climber("simulated-annealing", start_temperature=0.4, end_temperature=0.1, **options)
    assert isinstance(strategy, SimulatedAnnealingStrategy)
    return strategy


def test_the_temperature_falls_geometrically_with_unique_evaluations_and_starts_again() -> None:
    strategy, seen = annealing(evaluations=10), []
    for _ in range(21):
        seen.append(strategy.temperature)
        asked = strategy.ask(1)
        told(strategy, *asked, *asked)
    assert seen == pytest.approx([0.4 * 0.25 ** (k % 10 / 10) for k in range(21)])
    # Or over the budget.
    spread = annealing(evaluations=0)
    spread.budget = 20
    run(spread, 10)
    assert spread.temperature == pytest.approx(0.2)


# -- better than random search ---------------------------------------------------------------------

CLIMBERS = [
    ("local-search", {}, 1),
    ("basin-hopping", {}, 1),
    ("simulated-annealing", {}, 1),
    ("local-search", {"neighbourhood": "adjacent"}, 1),
    ("local-search", {"neighbourhood": "adjacent", "improvement": "best"}, 1),
    ("basin-hopping", {}, 8),
    ("simulated-annealing", {}, 8),
]
POPULATIONS = [
    ("differential-evolution", {}, 1),
    ("firefly", {}, 1),
    ("particle-swarm", {}, 1),
    ("genetic", {}, 1),
    ("differential-evolution", {}, 16),
    ("firefly", {}, 16),
    ("particle-swarm", {}, 16),
    ("genetic", {"crossover": "uniform"}, 1),
]


def _cases(cases: list[tuple[str, dict[str, Any], int]], fast: int) -> list[Any]:
    """Return the first cases with two seeds, and all of them with twenty, every night."""
    return [(*each, 2) for each in cases[:fast]] + [
        pytest.param(*each, 20, marks=pytest.mark.nightly) for each in cases
    ]


@pytest.mark.parametrize(("name", "options", "batch", "seeds"), _cases(CLIMBERS, 3))
def test_climbing_beats_random(name: str, options: dict[str, object], batch: int, seeds: int) -> None:
    found = landscape.best_ms(name, 120, range(seeds), batch, **options)
    assert found < landscape.expected_random_ms(120)


@pytest.mark.parametrize(("name", "options", "batch", "seeds"), _cases(POPULATIONS, 4))
def test_a_population_beats_random(name: str, options: dict[str, object], batch: int, seeds: int) -> None:
    assert smooth.mean_best(name, 150, range(seeds), batch, **options) < smooth.mean_best("random", 150, range(10))
