"""Errors by size: known growth is found, limits hold on fresh data, and nothing is said of sizes that are far off."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mptune.wisdom.error_growth import REACH, ErrorGrowth, SizedError, fitted

DRAWS = 23


def point(worst: float, draws: int = DRAWS, mean: float | None = None, **sizes: int) -> SizedError:
    return SizedError(sizes, worst, draws, 0.9 * worst if mean is None else mean)


# -- sums whose errors grow in a known way ---------------------------------------------------------


def naive(values: Any) -> float:
    return float(np.cumsum(values, dtype=values.dtype)[-1])


def pairwise(values: Any) -> float:
    while len(values) > 1:
        values = np.append(values, values.dtype.type(0)) if len(values) % 2 else values
        values = (values[::2] + values[1::2]).astype(values.dtype)
    return float(values[0])


def relative_error(add: Callable[[Any], float], dtype: str, n: int, rng: np.random.Generator) -> float:
    """Return the root mean square of the relative errors of sums, beside exactly rounded ones."""
    errors = []
    for _ in range(8):
        values = rng.uniform(0, 1 / n, n).astype(dtype)
        exact = math.fsum(values.astype(np.float64))
        errors.append((add(values) - exact) / exact)
    return math.sqrt(np.mean(np.square(errors)))


def measured(add: Callable[[Any], float], dtype: str, n: int, draws: int, rng: np.random.Generator) -> SizedError:
    errors = [relative_error(add, dtype, n, rng) for _ in range(draws)]
    return SizedError({"n": n}, max(errors), draws, float(np.mean(errors)))


@pytest.mark.parametrize(
    ("add", "dtype", "sizes", "unseen", "slope"),
    [
        (naive, "float32", (100, 1000, 10000), (60, 300, 5000, 30000), (0.35, 0.75)),
        (naive, "float32", (1000,), (300, 1000, 2000), (0.0, 0.0)),
        (naive, "float16", (50, 400, 1600), (100, 800, 4000), (0.3, 1.1)),
        (pairwise, "float32", (64, 1024, 16384), (128, 2048, 50000), (0.0, 0.35)),
        (pairwise, "float16", (64, 1024), (128, 512, 3000), (0.0, 0.4)),
    ],
)
def test_limits_hold_on_fresh_data_of_sums_whose_errors_grow(
    add: Callable[[Any], float], dtype: str, sizes: tuple[int, ...], unseen: tuple[int, ...], slope: tuple[float, float]
) -> None:
    rng = np.random.default_rng(7)
    growth = fitted([measured(add, dtype, n, DRAWS, rng) for n in sizes])
    assert slope[0] <= growth.slopes.max() <= slope[1]
    broken = 0
    for n in unseen:
        limit = growth.limit({"n": n})
        errors = [relative_error(add, dtype, n, rng) for _ in range(25)]
        broken += sum(error > limit for error in errors)
        # Of use, too: a limit is no larger than the errors and what may lie between two measured sizes.
        assert limit < (12 if n <= max(sizes) else 25) * max(errors)
    # Of 75 to 100 draws at most 5% are to break theirs; twice that is chance.
    assert broken <= 0.1 * 25 * len(unseen)


def test_limits_hold_at_smaller_sizes_whose_errors_are_means_of_fewer_elements() -> None:
    rng = np.random.default_rng(5)

    def error(n: int) -> float:
        values = rng.uniform(1, 2, n)
        return math.sqrt(np.mean((values.astype(np.float16) - values) ** 2))

    broken = 0
    for _ in range(10):
        errors = [error(1000) for _ in range(DRAWS)]
        limit = fitted([SizedError({"n": 1000}, max(errors), DRAWS, float(np.mean(errors)))]).limit({"n": 260})
        broken += sum(error(260) > limit for _ in range(40))
    assert broken <= 0.08 * 400


# -- what the model says ---------------------------------------------------------------------------


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_the_slope_of_a_power_law_is_found(slope: float) -> None:
    growth = fitted([point(1e-6 * n**slope, n=n) for n in (100, 1000, 10**4, 10**5)])
    assert growth.slopes[0] == pytest.approx(slope, abs=0.03)
    assert growth.limit({"n": 2 * 10**4}) == pytest.approx(1e-6 * (2 * 10**4) ** slope, rel=0.1)
    # Beyond the largest it may have begun to grow faster.
    assert growth.limit({"n": 3 * 10**5}) == pytest.approx(1e-6 * 1e5**slope * 3**2, rel=0.05)


def test_one_size_speaks_for_smaller_ones_and_with_slope_two_for_larger_ones() -> None:
    growth = fitted([point(1e-4, n=1000, m=10)])
    assert growth.limit({"n": 500, "m": 10}) == pytest.approx(1e-4 * 2**0.5)
    assert growth.limit({"n": 250, "m": 5}) == pytest.approx(1e-4 * 8**0.5)
    assert growth.limit({"n": 3000, "m": 10}) == pytest.approx(9e-4)
    assert growth.limit({"n": 3000, "m": 20}) == pytest.approx(36e-4)


def test_sizes_that_are_far_off_are_refused() -> None:
    growth = fitted([point(1e-4, n=1000), point(2e-4, n=4000)])
    assert math.isfinite(growth.limit({"n": int(4000 * REACH)}))
    assert math.isfinite(growth.limit({"n": int(1000 / REACH)}))
    assert growth.limit({"n": int(4000 * REACH) + 1}) == math.inf
    assert growth.limit({"n": int(1000 / REACH) - 1}) == math.inf


def test_errors_of_zero_say_nothing_of_other_sizes() -> None:
    exact = fitted([point(0.0, n=100), point(0.0, n=1000)])
    assert [exact.limit({"n": n}) for n in (50, 100, 400, 1000, 1001)] == [math.inf, 0, math.inf, 0, math.inf]
    assert exact.is_exact
    # Beside others they change nothing, except at their own sizes.
    for zero, other, queries in (
        (100, point(1e-5, n=1000), (60, 99, 101, 240, 251, 999, 1000, 2000)),
        (262_144, SizedError({"n": 65_536}, 1e-2, DRAWS, 8e-3), (65_535, 65_536, 100_000, 262_143, 262_145, 10**6)),
    ):
        both, alone = fitted([point(0.0, n=zero), other]), fitted([other])
        assert not both.is_exact
        assert [both.limit({"n": n}) for n in queries] == pytest.approx([alone.limit({"n": n}) for n in queries])
        assert both.limit({"n": zero}) == (0 if zero < other.sizes["n"] else pytest.approx(other.worst))


# -- what holds whatever was measured --------------------------------------------------------------

POINTS = st.lists(
    st.builds(
        lambda m, n, worst, draws, share: SizedError({"m": m, "n": n}, worst, draws, share * worst),
        st.integers(1, 10**4),
        st.integers(1, 10**6),
        st.one_of(st.just(0.0), st.floats(1e-12, 1.0)),
        st.integers(1, 40),
        st.floats(0.05, 1.0),
    ),
    min_size=1,
    max_size=6,
)


def sampled(growth: ErrorGrowth, steps: int = 7, *, beyond: bool = False) -> Any:
    """Return sizes from the largest measured ones on, or from the smallest, shape ``(steps, steps, 2)``."""
    low = np.log(growth.sizes.max(axis=0)) if beyond else np.log(growth.sizes.min(axis=0))
    high = np.log(growth.sizes.max(axis=0)) + math.log(3.9)
    axes = [np.ceil(np.exp(np.linspace(low[i], high[i], steps))) for i in range(2)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)


@given(POINTS)
@settings(max_examples=60, deadline=None)
def test_limits_never_fall_beyond_what_was_measured_and_are_never_below_that(points: list[SizedError]) -> None:
    growth = fitted(points)
    at = sampled(growth, beyond=True)
    limits = growth.limits(at.reshape(-1, 2)).reshape(at.shape[:2])
    with np.errstate(invalid="ignore"):
        for axis in (0, 1):
            steps = np.diff(np.where(np.isinf(limits), 1e300, limits), axis=axis)
            assert (steps >= -1e-9 * np.abs(limits.take(range(steps.shape[axis]), axis=axis))).all()
    for each in points:
        smaller = [other.worst for other in points if all(other.sizes[name] <= each.sizes[name] for name in each.sizes)]
        assert growth.limit(each.sizes) >= max(smaller)


@pytest.mark.parametrize("low", [1, 3, 1000, 2**40])
def test_of_what_may_overflow_nothing_is_said_outside_of_the_measured_sizes(low: int) -> None:
    points = [SizedError({"n": n, "m": 7}, 1e-4, DRAWS, 0.9e-4) for n in (low, 8 * low)]
    growth = fitted(points, types=("fp64", "fp16"))
    inside, outside = [low, 2 * low, 8 * low], [8 * low + max(1, low >> 20)]
    outside += [low - max(1, low >> 20)] if low > 1 else []
    for n, is_known in [*((n, True) for n in inside), *((n, False) for n in outside)]:
        assert math.isfinite(growth.limit({"n": n, "m": 7})) == is_known, n
        assert math.isfinite(growth.limits(np.array([[7, n]]))[0]) == is_known, n
    assert math.isinf(growth.limit({"n": low, "m": 8}))
    signatures = ("fp32", "bf16", "fast"), ("fp16", "fp64"), ("fp8_e5m2",)
    assert [fitted(points, types=types).is_confined for types in signatures] == [False, True, True]
