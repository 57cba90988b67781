"""The Pareto front against its definition, by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mptune import pareto
from mptune.errors import MptuneError


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


@pytest.mark.parametrize("columns", [2, 3, 5])
def test_random_fronts_in_bulk(columns):
    rng = np.random.default_rng(columns)
    values = rng.integers(0, 12, size=(400, columns)).astype(float)
    values[rng.random(values.shape) < 0.02] = np.nan
    minimise = rng.random(columns) < 0.5
    assert pareto.front(values, minimise.tolist()).tolist() == brute_force(values, minimise.tolist())


def test_all_copies_of_a_point_on_the_front_are_kept():
    values = np.array([[1.0, 2.0], [2.0, 2.0], [1.0, 2.0], [2.0, 1.0]])
    assert pareto.front(values, [True, True]).tolist() == [0, 2, 3]


def test_directions_are_per_objective():
    values = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 5.0]])
    assert pareto.front(values, [True, False]).tolist() == [0, 1]
    assert pareto.front(values, [False, True]).tolist() == [2]


def test_a_nan_row_neither_stays_nor_removes_others():
    values = np.array([[np.nan, 0.0], [1.0, 1.0], [0.5, np.nan]])
    assert pareto.front(values, [True, True]).tolist() == [1]


def test_a_large_two_objective_front_that_is_everything():
    n = 200_000
    values = np.column_stack([np.arange(n), -np.arange(n)]).astype(float)
    assert pareto.front(values, [True, True]).tolist() == list(range(n))


@pytest.mark.parametrize(
    ("values", "minimise"), [(np.zeros((3, 2)), [True]), (np.zeros(3), [True]), (np.zeros((3, 0)), [])]
)
def test_shapes_that_do_not_fit_are_refused(values, minimise):
    with pytest.raises(MptuneError, match="n_objectives"):
        pareto.front(values, minimise)
