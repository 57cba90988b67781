from __future__ import annotations

from typing import Any

import pytest
from smooth import SPACE, evaluate

from mptune.results.objective import Objective
from mptune.results.trial import Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.population import PopulationStrategy

NAMES = ("differential-evolution", "firefly", "genetic", "particle-swarm")


def _strategy(name: str, space: SearchSpace = SPACE, **given: Any) -> PopulationStrategy:
    strategy = make(name, space, Objective(), **given)
    assert isinstance(strategy, PopulationStrategy)
    return strategy


@pytest.mark.parametrize("name", NAMES)
def test_the_order_in_which_trials_come_does_not_matter(name: str) -> None:
    strategies = [_strategy(name, seed=2, options={"population": 8}) for _ in range(2)]
    for _ in range(5):
        asked, same = (strategy.ask(6) for strategy in strategies)
        assert asked == same
        trials = [evaluate(c) for c in asked]
        strategies[0].tell(trials)
        for trial in reversed(trials):
            strategies[1].tell([trial])


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_many_generations_is_filled(name: str) -> None:
    strategy = _strategy(name, options={"population": 5})
    asked = strategy.ask(60)
    assert len(set(asked)) == 60
    strategy.tell([Trial(c, Status.TIMEOUT) for c in asked])
    assert len(set(strategy.ask(60)) | set(asked)) == 120


@pytest.mark.parametrize(
    ("name", "population"),
    [("particle-swarm", 1), ("firefly", 1), ("firefly", 2), ("differential-evolution", 4), ("particle-swarm", 1000)],
)
@pytest.mark.parametrize("values", [1, 3, 40])
def test_any_population_searches_any_space_to_its_end(name: str, population: int, values: int) -> None:
    space = SearchSpace([OrdinalParameter("tile_x", range(values)), OrdinalParameter("only", [1])])
    strategy = _strategy(name, space, options={"population": population})
    found: list[Configuration] = []
    while asked := strategy.ask(3):
        found += asked
        strategy.tell([Trial(c, Status.COMPILE_ERROR) for c in asked])
    assert len(found) == len(set(found)) == values
