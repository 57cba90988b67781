from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mptune.results.pareto import front
from mptune.strategies.nsga2 import crowding_distances, non_dominated_ranks

Rows = list[list[float]]


@st.composite
def _rows(draw: st.DrawFn, numbers: st.SearchStrategy[float]) -> Rows:
    columns = draw(st.integers(1, 4))
    return draw(st.lists(st.lists(numbers, min_size=columns, max_size=columns), min_size=1, max_size=14))


FEW = st.sampled_from([0.0, 1.0, 2.0, 3.0, math.inf, -math.inf])
MANY = st.floats(-1e6, 1e6)


def _dominates(one: tuple[list[float], float], other: tuple[list[float], float]) -> bool:
    (costs, violation), (rivals, rival_violation) = one, other
    if violation != rival_violation:
        return violation < rival_violation
    return all(a <= b for a, b in zip(costs, rivals, strict=True)) and costs != rivals


def _peeled(costs: Rows, violations: list[float]) -> list[int]:
    """Return the front of each row by taking away the non-dominated ones until none is left."""
    rows = list(zip(costs, violations, strict=True))
    ranks: dict[int, int] = {}
    while len(ranks) < len(rows):
        left = [i for i in range(len(rows)) if i not in ranks]
        best = [i for i in left if not any(_dominates(rows[j], rows[i]) for j in left)]
        ranks.update(dict.fromkeys(best, max(ranks.values(), default=-1) + 1))
    return [ranks[i] for i in range(len(rows))]


@settings(max_examples=50)
@given(_rows(st.one_of(FEW, MANY)), st.data())
def test_ranks_are_those_of_peeling(costs: Rows, data: st.DataObject) -> None:
    violation = st.sampled_from([0.0, 0.0, 0.5, 2.0, math.inf])
    violations = data.draw(st.lists(violation, min_size=len(costs), max_size=len(costs)))
    assert non_dominated_ranks(np.array(costs), np.array(violations)).tolist() == _peeled(costs, violations)


@pytest.mark.parametrize("columns", [1, 2, 3, 5])
def test_the_first_front_is_the_pareto_front(columns: int) -> None:
    costs = np.random.default_rng(columns).integers(0, 30, size=(300, columns)).astype(float)
    ranks = non_dominated_ranks(costs, np.zeros(300))
    assert np.flatnonzero(ranks == 0).tolist() == front(costs, [True] * columns).tolist()


def _exact_crowding(costs: Rows) -> list[Fraction | float]:
    distances: list[Fraction | float] = [Fraction(0)] * len(costs)
    for m in range(len(costs[0])):
        finite = [row[m] for row in costs if math.isfinite(row[m])]
        if not finite or len({row[m] for row in costs}) == 1:
            continue
        order = sorted(range(len(costs)), key=lambda i: costs[i][m])
        at = [Fraction(min(max(costs[i][m], min(finite)), max(finite))) for i in order]
        distances[order[0]] = distances[order[-1]] = math.inf
        for k in range(1, len(order) - 1):
            if at[-1] > at[0]:
                distances[order[k]] += (at[k + 1] - at[k - 1]) / (at[-1] - at[0])
    return distances


@settings(max_examples=50)
@given(_rows(st.one_of(FEW, st.floats(-1.7e308, 1.7e308), st.integers(-5, 5).map(float))))
def test_crowding_is_the_relative_gap_between_neighbours(costs: Rows) -> None:
    expected = [float(value) for value in _exact_crowding(costs)]
    assert crowding_distances(np.array(costs)).tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_an_objective_that_is_the_same_everywhere_says_nothing() -> None:
    costs: NDArray[np.float64] = np.full((4, 2), 3.0)
    assert crowding_distances(costs).tolist() == [0.0] * 4
    assert crowding_distances(np.full((3, 1), math.inf)).tolist() == [0.0] * 3
