from __future__ import annotations

import numpy as np
from scipy.stats import chisquare

from mptune.results.objective import Objective
from mptune.results.trial import Status, Trial
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies.exhaustive import ExhaustiveStrategy
from mptune.strategies.random import RandomStrategy

SPACE = SearchSpace([OrdinalParameter("a", range(5)), OrdinalParameter("b", range(4))], ["a * b <= 8"])


def _indices(strategy: RandomStrategy | ExhaustiveStrategy, n: int) -> list[int | None]:
    return [SPACE.index(c) for c in strategy.ask(n)]


def test_random_is_uniform_at_every_position() -> None:
    runs = np.array([_indices(RandomStrategy(SPACE, Objective(), seed=s), SPACE.size) for s in range(600)])
    for position in (0, 1, 7, SPACE.size - 1):
        counts = np.bincount(runs[:, position], minlength=SPACE.size)
        assert chisquare(counts).pvalue > 1e-3


def test_random_order_does_not_depend_on_batches() -> None:
    one, many = (RandomStrategy(SPACE, Objective(), seed=5) for _ in range(2))
    assert [i for _ in range(12) for i in _indices(one, 1)] == [i for _ in range(4) for i in _indices(many, 3)]


def test_a_resumed_random_search_goes_on_with_its_order() -> None:
    whole = _indices(RandomStrategy(SPACE, Objective(), seed=5), SPACE.size)
    resumed = RandomStrategy(SPACE, Objective(), seed=5)
    resumed.tell([Trial(SPACE.configuration(int(i or 0)), Status.CRASH) for i in whole[:6]])
    assert _indices(resumed, SPACE.size) == whole[6:]


def test_exhaustive_goes_in_order_and_skips_what_it_was_told() -> None:
    strategy = ExhaustiveStrategy(SPACE, Objective())
    strategy.tell([Trial(SPACE.configuration(2), Status.CRASH)])
    assert _indices(strategy, 4) == [0, 1, 3, 4]
