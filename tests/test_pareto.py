"""The Pareto front against its definition, by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mptune.results import pareto


def brute_force(values, minimise):
    costs = [[v if least else -v for v, least in zip(row, minimise, strict=True)] for row in values.tolist()]
    real = [i for i, row in enumerate(costs) if row == row and not any(v != v for v in row)]

    def dominates(a, b):
        return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))

    return [i for i in real if not any(dominates(costs[j], costs[i]) for j in real)]


@st.composite
def tables(draw):
    columns = draw(st.integers(1, 4))
    # A small grid makes ties and duplicates common; the specials are NaN and both infinities.
    element = st.one_of(
        st.integers(-2, 2).map(float), st.floats(allow_nan=False), st.sampled_from([np.nan, np.inf, -np.inf, -0.0])
    )
    values = draw(hnp.arrays(np.float64, st.tuples(st.integers(0, 25), st.just(columns)), elements=element))
    return values, draw(st.lists(st.booleans(), min_size=columns, max_size=columns))


@given(tables())
def test_the_front_is_what_nothing_dominates(table):
    values, minimise = table
    assert pareto.front(values, minimise).tolist() == brute_force(values, minimise)


@st.composite
def fronts(draw):
    columns = draw(st.integers(1, 4))
    element = st.one_of(st.integers(0, 4).map(float), st.floats(-1.0, 5.0))
    points = draw(hnp.arrays(np.float64, st.tuples(st.integers(0, 8), st.just(columns)), elements=element))
    return points, [3.5] * columns


@settings(deadline=None)
@given(fronts())
def test_the_hypervolume_is_that_of_inclusion_and_exclusion(problem):
    points, reference = problem
    distinct = np.unique(points, axis=0)
    expected = 0.0
    for size in range(1, len(distinct) + 1):
        for chosen in itertools.combinations(distinct, size):
            expected -= (-1) ** size * np.maximum(np.array(reference) - np.max(chosen, axis=0), 0.0).prod()
    assert pareto.hypervolume(points, reference) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("columns", [2, 3, 4])
def test_the_hypervolume_is_that_of_a_library(columns):
    moocore = pytest.importorskip("moocore", reason="moocore is not installed")
    rng = np.random.default_rng(columns)
    for _ in range(30):
        points = np.round(rng.random((30, columns)), 2)
        expected = moocore.hypervolume(points, ref=[0.9] * columns)
        assert pareto.hypervolume(points, [0.9] * columns) == pytest.approx(expected, rel=1e-12)


def test_what_is_beyond_the_reference_or_unknown_adds_nothing():
    points = np.array([[1.0, 1.0], [np.nan, 0.0], [0.0, 3.0], [5.0, 0.0], [np.inf, -np.inf]])
    assert pareto.hypervolume(points, [2.0, 3.0]) == 2.0
    assert pareto.hypervolume(np.empty((0, 2)), [1.0, 1.0]) == 0.0


@settings(deadline=None)
@given(fronts(), st.data())
def test_boxes_are_disjoint_and_all_that_is_not_dominated(problem, data):
    points, reference = problem
    best = points[pareto.front(points, [True] * len(reference))]
    boxes = pareto.Boxes.around(best, reference)
    assert len(boxes.lower) <= {1: 1, 2: len(best) + 1, 3: 2 * len(best) + 1}.get(len(reference), 10**6)
    element = st.floats(-2.0, 4.0)
    row = np.array(data.draw(st.lists(element, min_size=len(reference), max_size=len(reference))))
    inside = ((boxes.lower <= row) & (row < boxes.upper)).all(axis=1).sum()
    free = bool((row < reference).all()) and not (best <= row).all(axis=1).any()
    assert inside == free
    before, after = (pareto.hypervolume(p, reference) for p in (best, np.vstack([best, row])))
    assert boxes.gains(row[None, :])[0] == pytest.approx(after - before, abs=1e-9)


def test_fronts_are_compared_between_ideal_and_nadir_point():
    levels = np.array([[0.0, 4.0], [1.0, 2.0], [3.0, 0.0], [9.0, 9.0], [np.nan, -5.0]])
    scale = pareto.FrontScale.of(levels)
    assert scale.ideal == (0.0, 0.0)
    assert scale.nadir == (3.0, 4.0)
    assert scale.share(levels) == pytest.approx(1.0)
    # Of the square with sides of 1.1 the middle point alone takes what is beyond (1/3, 1/2).
    assert scale.share(levels[1:2]) * scale.best == pytest.approx((1.1 - 1 / 3) * 0.6)
    assert scale.share(levels[3:]) == 0.0
