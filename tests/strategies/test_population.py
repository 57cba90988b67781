from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from smooth import SPACE, evaluate

from mptune.results.objective import Objective
from mptune.results.trial import Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import CategoricalParameter, OrdinalParameter, Parameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.population import Champion, Grid, PopulationStrategy, single_changes

NAMES = ("differential-evolution", "firefly", "genetic", "particle-swarm")


def _strategy(name: str, space: SearchSpace = SPACE, **given: Any) -> PopulationStrategy:
    strategy = make(name, space, Objective(), **given)
    assert isinstance(strategy, PopulationStrategy)
    return strategy


def test_values_lie_evenly_from_zero_to_one() -> None:
    space = SearchSpace([OrdinalParameter("a", [1, 2, 4, 8, 16]), OrdinalParameter("b", [3])])
    assert Grid(space).points(range(5)).tolist() == [[0, 0], [0.25, 0], [0.5, 0], [0.75, 0], [1, 0]]


def test_the_nearest_to_a_valid_configuration_is_itself() -> None:
    rng = np.random.default_rng(0)
    indices = SPACE.sample(500, rng)
    grid = Grid(SPACE)
    steps = np.array([max(len(p.values) - 1, 1) for p in SPACE.parameters])
    shaken = grid.points(indices) + rng.uniform(-0.49, 0.49, (500, len(steps))) / steps
    assert grid.nearest(shaken, rng).tolist() == indices.tolist()


def test_what_lies_outside_the_cube_is_nearest_to_its_faces() -> None:
    space = SearchSpace([OrdinalParameter("a", range(5)), OrdinalParameter("b", range(3))])
    found = Grid(space).nearest(np.array([[-3.0, 7.0]]), np.random.default_rng(0))
    assert space.configuration(int(found[0])) == Configuration({"a": 0, "b": 2})


def test_halves_are_rounded_both_ways() -> None:
    space = SearchSpace([OrdinalParameter("a", range(3))])
    found = Grid(space).nearest(np.full((400, 1), 0.25), np.random.default_rng(0))
    assert 150 < np.sum(found == 0) < 250
    assert np.sum(found == 0) + np.sum(found == 1) == 400


def _brute_force(space: SearchSpace, point: NDArray[np.float64]) -> float:
    """Return the squared distance to the nearest valid configuration among the roundings and their single changes."""
    scale = np.array([len(p.values) - 1 for p in space.parameters])
    rounded = np.rint(point * scale)
    every = space.codes(range(space.size))
    near = every[np.sum(every != rounded, axis=1) <= 1]
    return float(np.min(np.sum((near / scale - point) ** 2, axis=1), initial=math.inf))


def test_repair_finds_the_nearest_single_change() -> None:
    space = SearchSpace(
        [OrdinalParameter(name, range(6)) for name in "abcd"], ["a + b + c + d in (6, 12)", "a != b", "c * d <= 12"]
    )
    rng = np.random.default_rng(5)
    points = rng.random((300, 4))
    grid = Grid(space)
    found = grid.nearest(points, rng)
    assert found.min() >= 0
    distances = np.sum((grid.points(found) - points) ** 2, axis=1)
    bounds = np.array([_brute_force(space, point) for point in points])
    assert np.isfinite(bounds).mean() > 0.8
    assert (distances <= bounds + 1e-8).all()


def test_another_category_is_as_far_as_any() -> None:
    space = SearchSpace(
        [CategoricalParameter("c", list("pqrstu")), OrdinalParameter("a", range(4))],
        ["c != 'p' or a == 3", "a < 3 or c == 'p'"],
    )
    # p with a = 0 is not valid: one category over is a fifth of the axis but no nearer than the last.
    found = Grid(space).nearest(np.zeros((300, 2)), np.random.default_rng(0))
    chosen = [space.configuration(int(index)) for index in found]
    counts = {c: sum(1 for x in chosen if x["c"] == c) for c in "pqrstu"}
    # Three steps of a are as far as another category, so that p with a = 3 is among the ties.
    assert min(counts.values()) > 25


@pytest.mark.parametrize("dimensions", [1, 7])
def test_repair_looks_no_further_than_it_must_in_long_parameters(dimensions: int) -> None:
    parameters: list[Parameter] = [OrdinalParameter(f"p{i}", range(10_000)) for i in range(dimensions)]
    codes = np.full((3, dimensions), 5000, dtype=np.int32)
    assert single_changes(codes, parameters).shape == (3, 64 * dimensions, dimensions)
    space = SearchSpace(parameters[:1], ["p0 % 5000 == 4999"])
    assert Grid(space).nearest(np.array([[0.0], [1.0]]), np.random.default_rng(0)).tolist() == [0, 1]


def test_single_changes_are_all_of_them() -> None:
    space = SearchSpace([OrdinalParameter("a", range(4)), OrdinalParameter("b", [1]), OrdinalParameter("c", range(3))])
    codes = np.array([[1, 0, 2], [3, 0, 0]], dtype=np.int32)
    for row, variants in zip(codes, single_changes(codes, space.parameters), strict=True):
        valid = [tuple(v) for v in variants.tolist() if space.indices_of(np.array([v]))[0] >= 0]
        expected = [
            c
            for c in itertools.product(range(4), [0], range(3))
            if sum(x != y for x, y in zip(c, row, strict=True)) == 1
        ]
        assert sorted(valid) == sorted(expected)


def test_a_point_stays_in_the_parameters_that_repair_kept() -> None:
    space = SearchSpace([OrdinalParameter("a", range(5)), OrdinalParameter("b", range(5))])
    (index,) = space.indices_of(np.array([[1, 4]]))
    settled = Grid(space).settled(np.array([[0.3, 0.2]]), [int(index)])
    assert settled.tolist() == [[0.3, 1.0]]


def test_the_best_known_wins_and_of_equals_the_latest() -> None:
    champion = Champion(1)
    for index in (2, 3, 2):
        champion.challenge(index)
    assert champion.settle({1: 5.0, 2: 7.0, 3: 7.0}) == 3
    assert champion.awaited == []


def test_late_trials_stay_in_the_running() -> None:
    champion = Champion(1)
    champion.challenge(2)
    assert champion.settle({}) == 1
    assert champion.settle({2: -math.inf}) == 2
    champion.challenge(3)
    assert champion.settle({2: -math.inf}) == 2
    assert champion.settle({1: 4.0, 2: -math.inf}) == 1
    assert champion.settle({1: 4.0, 2: -math.inf, 3: 3.0}) == 1
    assert champion.awaited == []


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
