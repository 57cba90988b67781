from __future__ import annotations

import math

import numpy as np
import pytest

from mptune.objective import Objective
from mptune.results import Measurement, Status, Trial
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies.firefly import FireflyOptions, FireflyStrategy, attracted


def test_a_move_computed_by_hand() -> None:
    options = FireflyOptions(attraction=0.5, absorption=2.0, randomness=0.2)
    moved = attracted(np.array([[0.0, 0.5]]), np.array([1.0, 0.5]), np.array([[0.5, 0.75]]), options)
    # r^2 = (1 + 0) / 2, so the share of the way is 0.5 / e; the random part is 0 and 0.2 x 0.25.
    assert moved == pytest.approx(np.array([[0.5 / math.e, 0.55]]))


def test_a_move_is_that_of_its_formula() -> None:
    rng = np.random.default_rng(4)
    positions, draws, other = rng.random((6, 3)), rng.random((6, 3)), rng.random(3)
    options = FireflyOptions(attraction=0.8, absorption=1.7, randomness=0.3)
    moved = attracted(positions, other, draws, options)
    for i in range(6):
        distance = math.dist(positions[i], other) / math.sqrt(3)
        share = 0.8 * math.exp(-1.7 * distance**2)
        for k in range(3):
            expected = positions[i, k] + share * (other[k] - positions[i, k]) + 0.3 * (draws[i, k] - 0.5)
            assert moved[i, k] == pytest.approx(min(1.0, max(0.0, expected)))


LINE = SearchSpace([OrdinalParameter("a", range(1001))])


def _lit(options: FireflyOptions, positions: list[float]) -> FireflyStrategy:
    """Return fireflies at positions on a line, told that the higher ``a`` is, the brighter; below 0.1 all fail."""
    strategy = FireflyStrategy(LINE, Objective(), options=options)
    strategy.ask(len(positions))
    strategy._positions = np.array(positions)[:, None]
    strategy._population = [round(1000 * x) for x in positions]
    for index in strategy._population:
        status = Status.OK if index >= 100 else Status.LAUNCH_ERROR
        measurement = Measurement({"time_ms": 1001.0 - index} if status is Status.OK else {})
        strategy.tell([Trial(LINE.configuration(index), status, measurement=measurement)])
    return strategy


def test_fireflies_move_to_the_brighter_ones() -> None:
    strategy = _lit(FireflyOptions(population=3, attraction=1.0, absorption=0.0, randomness=0.0), [0.2, 0.9, 0.5])
    # Each covers the whole way to every brighter one in turn: the first ends at the third, the third at the second.
    assert strategy._evolved() == [500, 900, 900]


def test_the_further_the_weaker() -> None:
    strategy = _lit(FireflyOptions(population=2, attraction=1.0, absorption=5.0, randomness=0.0), [0.2, 0.8])
    assert strategy._evolved() == [round(1000 * (0.2 + 0.6 * math.exp(-5.0 * 0.36))), 800]


def test_the_brightest_moves_at_random_alone() -> None:
    strategy = _lit(FireflyOptions(population=2, attraction=1.0, absorption=1e6, randomness=0.1), [0.5, 0.7])
    (_, moved) = strategy._evolved()
    assert 0 < abs(moved - 700) <= 50


def test_failures_attract_nobody() -> None:
    strategy = _lit(FireflyOptions(population=3, attraction=1.0, absorption=0.0, randomness=0.0), [0.05, 0.01, 0.02])
    assert strategy._evolved() == [50, 10, 20]
