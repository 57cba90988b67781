"""The expected hypervolume improvement against high precision, Monte Carlo and its definition."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mptune.results.pareto import Boxes, front
from mptune.strategies.model_based.acquisition import (
    ACQUISITIONS,
    log_expected_gain,
    log_expected_improvement,
    log_improvement_bound,
)


@pytest.mark.parametrize("u", [8.0, 1.0, 0.0, -0.9999, -1.0001, -3.0, -20.0, -59.99, -60.01, -150.0])
def test_log_expected_improvement_against_high_precision(u: float) -> None:
    deviation, best = 0.37, 1.25
    mean = np.array([best - u * deviation])
    exact_u = (mpmath.mpf(best) - mpmath.mpf(float(mean[0]))) / mpmath.mpf(deviation)
    with mpmath.workdps(60):
        density = mpmath.exp(-(exact_u**2) / 2) / mpmath.sqrt(2 * mpmath.pi)
        mass = mpmath.erfc(-exact_u / mpmath.sqrt(2)) / 2
        expected = float(mpmath.log(mpmath.mpf(deviation) * (density + exact_u * mass)))
    found = log_expected_improvement(mean, np.array([deviation]), best)
    assert found[0] == pytest.approx(expected, rel=1e-11, abs=1e-12)


def test_the_bound_is_above_and_close_where_it_matters() -> None:
    u = np.concatenate([np.linspace(-100.0, 20.0, 4001), [-1e4, 0.0, 1e4]])
    deviation = np.random.default_rng(0).uniform(1e-6, 1e3, len(u))
    best = -0.75
    exact = log_expected_improvement(best - u * deviation, deviation, best)
    bound = log_improvement_bound(best - u * deviation, deviation, best)
    assert (bound >= exact - 1e-9 * np.abs(exact) - 1e-12).all()
    assert (bound <= exact + 0.5).all()


Array = NDArray[np.float64]


def _front(points: Array) -> Array:
    return points[front(points, [True] * points.shape[1])]


@st.composite
def problems(draw: st.DrawFn) -> tuple[Array, Array, Array]:
    """Return a front, mean and deviation of a point."""
    m = draw(st.integers(2, 3))
    number = st.floats(-1.0, 1.0).map(lambda value: round(value, 2))
    row = st.lists(number, min_size=m, max_size=m)
    points = _front(np.array(draw(st.lists(row, min_size=1, max_size=5))))
    deviation = st.lists(st.floats(0.01, 2.0), min_size=m, max_size=m)
    return points, np.array(draw(row)), np.array(draw(deviation))


def _exact(points: Array, mean: Array, deviation: Array, reference: list[float]) -> float:
    """Sum over the cells of the grid through all coordinates, each with the probability-weighted volume, in 40 digits.

    A cell is not dominated where no point is below its lower corner; the expectation over a cell is that of a box.
    """
    m = points.shape[1]
    with mpmath.workdps(40):

        def shortfall(edge: float, j: int) -> mpmath.mpf:
            if edge == -math.inf:
                return mpmath.mpf(0)
            u = (mpmath.mpf(edge) - mpmath.mpf(mean[j])) / mpmath.mpf(deviation[j])
            return mpmath.mpf(deviation[j]) * (mpmath.npdf(u) + u * mpmath.ncdf(u))

        axes = [[-math.inf, *sorted({*points[:, j].tolist(), reference[j]})] for j in range(m)]
        total = mpmath.mpf(0)
        for cell in itertools.product(*(itertools.pairwise(axis) for axis in axes)):
            lower = np.array([low for low, _ in cell])
            if not (points <= lower).all(axis=1).any():
                volume = mpmath.mpf(1)
                for j, (low, high) in enumerate(cell):
                    volume *= shortfall(high, j) - shortfall(low, j)
                total += volume
        return float(total)


@settings(max_examples=20, deadline=None)
@given(problems())
def test_it_is_exact(problem: tuple[Array, Array, Array]) -> None:
    points, mean, deviation = problem
    reference = [1.5] * len(mean)
    expected = _exact(points, mean, deviation, reference)
    found = log_expected_gain(mean[None, :], deviation[None, :], Boxes.around(points, reference))
    assert math.exp(found[0]) == pytest.approx(expected, rel=1e-8, abs=1e-13)


@pytest.mark.parametrize("exploration", [0.0, 0.3])
def test_acquisition_functions_against_high_precision(exploration: float) -> None:
    rng = np.random.default_rng(5)
    mean, deviation, best = rng.normal(size=40), rng.random(40) + 0.01, -0.7
    mean[:3] = (8.0, 60.0, -9.0)
    improvement, probability, bound = (
        ACQUISITIONS[name](mean, deviation, best, exploration) for name in ("ei", "poi", "lcb")
    )
    with mpmath.workdps(60):
        for i in range(len(mean)):
            m, s = mpmath.mpf(mean[i]), mpmath.mpf(deviation[i])
            gap = mpmath.mpf(best) - mpmath.mpf(exploration) - m
            density = mpmath.exp(-((gap / s) ** 2) / 2) / mpmath.sqrt(2 * mpmath.pi)
            below = mpmath.erfc(-gap / s / mpmath.sqrt(2)) / 2
            assert improvement[i] == pytest.approx(float(mpmath.log(gap * below + s * density)), rel=1e-7, abs=1e-12)
            assert probability[i] == pytest.approx(float(mpmath.log(below)), rel=1e-10, abs=1e-15)
            assert bound[i] == pytest.approx(float(-(m - exploration * s)), rel=1e-12)
