from __future__ import annotations

import math

import numpy as np
import pytest
from landscape import EVERY, SPACE, evaluate, neighbours, score

from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.simulated_annealing import SimulatedAnnealingOptions, SimulatedAnnealingStrategy


def _annealing(seed: int = 0, **options: object) -> SimulatedAnnealingStrategy:
    strategy = make("simulated-annealing", SPACE, Objective(), seed=seed, options=options)
    assert isinstance(strategy, SimulatedAnnealingStrategy)
    return strategy


def test_the_temperature_falls_geometrically_with_unique_evaluations_and_starts_again() -> None:
    strategy = _annealing(start_temperature=0.4, end_temperature=0.1, evaluations=10)
    seen = []
    for _ in range(21):
        seen.append(strategy.temperature)
        trials = [evaluate(c) for c in strategy.ask(1)]
        strategy.tell(trials)
        strategy.tell(trials)
    expected = [0.4 * 0.25 ** (k % 10 / 10) for k in range(21)]
    assert seen == pytest.approx(expected)


def test_the_cooling_can_be_spread_over_the_budget() -> None:
    strategy = _annealing(start_temperature=0.4, end_temperature=0.1, evaluations=0)
    strategy.budget = 20
    for _ in range(10):
        strategy.tell([evaluate(c) for c in strategy.ask(1)])
    assert strategy.temperature == pytest.approx(0.2)
    strategy.budget = None
    assert strategy.temperature == pytest.approx(0.4 * 0.25 ** (10 / 200))
    made = make("simulated-annealing", SPACE, Objective(), options={"evaluations": 0}, budget=50)
    assert made.budget == 50


def test_a_worse_neighbour_is_moved_to_as_often_as_the_temperature_says() -> None:
    space = SearchSpace([OrdinalParameter("line", range(4))])
    times = {0: 1.0, 1: 1.0 / 0.9, 2: 9.0, 3: 9.0}

    def trial(c: Configuration) -> Trial:
        return Trial(c, Status.OK, measurement=Measurement({"time_ms": times[int(str(c["line"]))]}))

    options = SimulatedAnnealingOptions("adjacent", start_temperature=0.1, end_temperature=0.1)
    moved, runs = 0, 1000
    for seed in range(runs):
        strategy = SimulatedAnnealingStrategy(space, Objective(), seed=seed, options=options)
        strategy.tell([trial(space.configuration(0))])
        (neighbour,) = strategy.ask(1)
        assert neighbour["line"] == 1
        strategy.tell([trial(neighbour)])
        moved += strategy._current == 1
    # 10% slower at a temperature of 0.1: exp(-1) = 0.368; four standard deviations of a binomial.
    assert moved / runs == pytest.approx(math.exp(-1), abs=4 * math.sqrt(0.368 * 0.632 / runs))


@pytest.mark.parametrize("kind", ["hamming", "adjacent"])
def test_it_starts_at_the_best_trial_it_was_told(kind: str) -> None:
    told = [EVERY[i] for i in np.random.default_rng(5).choice(len(EVERY), 30, replace=False)]
    best = max(told, key=score)
    strategy = _annealing(neighbourhood=kind)
    strategy.tell([evaluate(c) for c in told])
    (first,) = strategy.ask(1)
    assert first in neighbours(best, kind)


def test_a_cold_walk_never_leaves_for_a_worse_neighbour() -> None:
    strategy = _annealing(start_temperature=1e-9, end_temperature=1e-9, neighbourhood="adjacent")
    here = strategy.ask(1)[0]
    strategy.tell([evaluate(here)])
    untried = True
    while untried:
        (c,) = strategy.ask(1)
        assert c in neighbours(here, "adjacent")
        strategy.tell([evaluate(c)])
        here = max(here, c, key=score)
        untried = any(SPACE.index(n) not in strategy.seen for n in neighbours(here, "adjacent"))


def test_a_batch_is_made_of_neighbours_as_long_as_there_are_enough() -> None:
    strategy = _annealing()
    here = strategy.ask(1)[0]
    strategy.tell([evaluate(here)])
    assert set(strategy.ask(5)) <= set(neighbours(here, "hamming"))
