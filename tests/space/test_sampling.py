"""Samples: uniform without bias and without replacement, and Latin hypercubes that spread."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from mptune.space.parameters import (
    BooleanParameter,
    CategoricalParameter,
    IntegerParameter,
    OrdinalParameter,
    PermutationParameter,
)
from mptune.space.search_space import SearchSpace

#: A tree that is much denser on one side: choosing children uniformly would be biased (Hellsten 2023, Sec. 4.2).
LOPSIDED = SearchSpace(
    [IntegerParameter("a", 1, 8), IntegerParameter("b", 1, 8), BooleanParameter("c")], ["b <= a or a == 1"]
)


def test_every_subset_is_equally_likely() -> None:
    rng = np.random.default_rng(12)
    space = SearchSpace([IntegerParameter("a", 0, 5)])
    subsets = dict.fromkeys(itertools.combinations(range(6), 3), 0)
    for _ in range(4000):
        subsets[tuple(sorted(space.sample(3, rng).tolist()))] += 1  # type: ignore[index]
    assert stats.chisquare(list(subsets.values())).pvalue > 0.01


def test_what_is_excluded_never_comes_and_the_rest_is_equally_likely() -> None:
    rng = np.random.default_rng(13)
    excluded = {0, 1, 5, 6, 7, LOPSIDED.size - 1, -3, LOPSIDED.size + 4}
    drawn = np.concatenate([LOPSIDED.sample(4, rng, exclude=excluded) for _ in range(4000)])
    counts = np.bincount(drawn, minlength=LOPSIDED.size)
    allowed = [i for i in range(LOPSIDED.size) if i not in excluded]
    assert counts[allowed].sum() == len(drawn)
    assert stats.chisquare(counts[allowed]).pvalue > 0.01


@pytest.mark.parametrize("n", [0, 40, 80, 81, 500])
def test_samples_are_distinct_up_to_the_last_configuration(n: int) -> None:
    space = SearchSpace([IntegerParameter("a", 1, 100)])
    excluded = set(range(3, 100, 5))
    drawn = space.sample(n, np.random.default_rng(n), exclude=excluded)
    assert drawn.dtype == np.int64
    assert len(drawn) == len(set(drawn.tolist())) == min(n, 80)
    assert not excluded & set(drawn.tolist())
    assert space.sample(3, np.random.default_rng(0), exclude=frozenset(range(100))).tolist() == []


def test_samples_of_a_space_near_the_limit_of_indices() -> None:
    space = SearchSpace([IntegerParameter(f"p{k}", 1, 1000) for k in range(6)])
    drawn = space.sample(1000, np.random.default_rng(3))
    assert len(set(drawn.tolist())) == 1000
    assert space.indices_of(space.codes(drawn)).tolist() == drawn.tolist()
    assert stats.kstest(drawn / space.size, "uniform").pvalue > 0.01
    assert len(set(space.latin_hypercube(300, np.random.default_rng(3)).tolist())) == 300


@pytest.mark.parametrize("n", [1, 2, 20, 60, LOPSIDED.size - 1, LOPSIDED.size, LOPSIDED.size + 50])
def test_a_latin_hypercube_is_distinct_and_valid(n: int) -> None:
    points = LOPSIDED.latin_hypercube(n, np.random.default_rng(n))
    assert points.dtype == np.int64
    assert len(set(points.tolist())) == len(points) == min(n, LOPSIDED.size)
    assert all(LOPSIDED.configuration(int(i)) in LOPSIDED for i in points)


def test_a_latin_hypercube_is_uniform_over_valid_configurations_and_spreads_more_than_chance() -> None:
    space = SearchSpace(
        [IntegerParameter(name, 1, 20) for name in "abcd"], ["a * b <= 100", "c + d > 10", "a + c != 7"]
    )
    rng = np.random.default_rng(8)
    everywhere = space.features(np.arange(space.size)).mean(axis=0)
    chance, designed, spread_by_chance, spread = [], [], [], []
    for _ in range(60):
        for draw, means, spreads in (
            (space.sample, chance, spread_by_chance),
            (space.latin_hypercube, designed, spread),
        ):
            points = space.features(draw(24, rng))
            means.append(points.mean(axis=0) - everywhere)
            distances = np.linalg.norm(points[:, None] - points[None], axis=2)
            spreads.append(distances[np.triu_indices(24, 1)].min())
    # Stratified means vary less about the true mean, and the closest two points are further apart.
    assert np.abs(np.mean(designed, axis=0)).max() < 0.02
    assert np.std(designed) < 0.6 * np.std(chance)
    assert np.mean(spread) > 1.3 * np.mean(spread_by_chance)


def test_the_nearest_valid_configuration_moves_as_little_as_it_can() -> None:
    space = SearchSpace(
        [IntegerParameter("a", 1, 9), OrdinalParameter("b", [1, 2, 4, 8]), CategoricalParameter("c", ["x", "y", "z"])],
        ["a in (2, 3, 8)", "c != 'y'"],
    )
    rows = np.array([[0, 1, 0], [4, 2, 2], [8, 3, 1], [1, 0, 0]])
    found = space.codes(space.nearest_valid(rows, np.random.default_rng(0)))
    assert found[:, 0].tolist() == [1, 2, 7, 1]
    assert found[:, 1].tolist() == [1, 2, 3, 0]
    assert found[[0, 1, 3], 2].tolist() == [0, 2, 0]
    assert found[2, 2] in (0, 2)


def test_ties_and_categories_are_drawn_when_the_nearest_is_not_unique() -> None:
    space = SearchSpace(
        [IntegerParameter("a", 1, 5), CategoricalParameter("c", ["x", "y", "z"]), PermutationParameter("p", 2)],
        ["a != 3 or c == 'x'", "c != 'y' or a == 9", "a < 3 or a > 3"],
    )
    rows = np.tile([2, 1, 0], (400, 1))
    found = space.codes(space.nearest_valid(rows, np.random.default_rng(1)))
    assert sorted(set(found[:, 0].tolist())) == [1, 3]
    assert sorted(set(found[:, 1].tolist())) == [0, 2]
    for column in (found[:, 0], found[:, 1]):
        assert min(np.unique(column, return_counts=True)[1]) > 130
