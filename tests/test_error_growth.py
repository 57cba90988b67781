"""Errors by size: known growth is found, limits hold on fresh data, and nothing is said of sizes that are far off."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mptune.error_growth import REACH, ErrorGrowth, SizedError, as_zero_in, fitted, may_overflow_in, rounded_at

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
        (naive, "float32", (1000,), (300, 1000, 2000), (1.0, 1.0)),
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


def test_sizes_at_which_inputs_happen_to_be_exact_do_not_speak_for_smaller_ones() -> None:
    # The types of positions in a cube of so many points: exact in bf16 where n is 6 or 8.
    measured = {6: 3.1e-4, 9: 3.2e-3, 14: 3.9e-3}
    growth = fitted([point(error, mean=0.95 * error, n=n) for n, error in measured.items()])
    assert growth.limit({"n": 5}) >= 4.3e-3
    assert growth.limit({"n": 8}) >= 4.6e-4
    assert growth.limit({"n": 6}) == pytest.approx(3.1e-4)
    # What grows as errors do leaves no more room than before.
    steady = fitted([point(1e-5 * n**0.5, mean=0.95e-5 * n**0.5, n=n) for n in measured])
    assert not steady.log_shifts.any()
    assert steady.limit({"n": 5}) < 3e-5


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


def test_a_size_whose_inputs_are_exact_speaks_for_itself_alone() -> None:
    def at(n: int) -> SizedError:
        # The points of a grid, held in bf16.
        ticks = (np.arange(n) - (n - 1) / 2) * (24 / n)
        lost = float(np.sqrt(np.mean((ticks - ticks.astype(ml_dtypes.bfloat16).astype(np.float64)) ** 2)))
        return SizedError({"n": n}, 1.02 * math.hypot(3e-4, lost), DRAWS, rounded={} if lost else {"n": 0.0})

    for exact in (6, 8):
        assert fitted([at(exact)]).limit({"n": exact}) == pytest.approx(1.02 * 3e-4)
        assert fitted([at(exact)]).limit({"n": 7}) == math.inf
        assert fitted([dataclasses.replace(at(exact), rounded={})]).limit({"n": 7}) < at(7).worst
        # Beside others it changes nothing.
        both, other = fitted([at(exact), at(11)]), fitted([at(11)])
        for n in (5, 7, 9, 13):
            assert at(n).worst < both.limit({"n": n}) == other.limit({"n": n})
    assert fitted([at(6), at(8)]).limit({"n": 7}) == math.inf


def test_errors_are_larger_elsewhere_by_no_more_than_inputs_are_rounded_more() -> None:
    def limits(points: list[SizedError]) -> list[float]:
        return [fitted(points).limit({"n": n, "m": m}) for n, m in ((1000, 5), (1000, 9), (2000, 5), (500, 5))]

    plain = limits([SizedError({"n": 1000, "m": 5}, 1e-4, DRAWS, 9e-5)])
    kinder = limits([SizedError({"n": 1000, "m": 5}, 1e-4, DRAWS, 9e-5, {"n": 0.25})])
    # Where n is the same, so are the inputs.
    assert kinder == pytest.approx([plain[0], plain[1], 4 * plain[2], 4 * plain[3]])
    assert fitted([SizedError({"n": 9}, 0.0, DRAWS, rounded={"n": 0.5})]).limit({"n": 8}) == math.inf


def test_what_decides_an_error_are_the_inputs_in_types_nearly_as_coarse_as_the_coarsest() -> None:
    shares = {"x": {"fp32": {"n": 0.0}, "fp16": {"n": 0.5, "m": 0.2}}, "y": {"fp16": {"n": 0.3}}}
    assert rounded_at(shares, {"x": "fp16", "y": "fp16", "policy": "fast"}) == {"n": 0.3, "m": 0.2}
    assert rounded_at(shares, {"x": "fp16", "y": "bf16"}) == {"n": 0.5, "m": 0.2}
    assert rounded_at(shares, {"x": "fp32", "y": "bf16"}) == {}
    assert rounded_at(shares, {"x": "fp32", "y": "fp64"}) == {"n": 0.0}
    assert rounded_at({}, {"x": "fp16"}) == {}


@pytest.mark.parametrize("draws", [1, 3])
def test_limits_from_few_draws_leave_room_for_others(draws: int) -> None:
    rng = np.random.default_rng(11)
    broken = 0
    for _ in range(60):
        growth = fitted([measured(naive, "float32", 200, draws, rng)])
        broken += relative_error(naive, "float32", 200, rng) > growth.limit({"n": 200})
    assert broken <= 6


# -- what the model says ---------------------------------------------------------------------------


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_the_slope_of_a_power_law_is_found(slope: float) -> None:
    growth = fitted([point(1e-6 * n**slope, n=n) for n in (100, 1000, 10**4, 10**5)])
    assert growth.slopes[0, 0] == pytest.approx(slope, abs=0.03)
    assert growth.limit({"n": 2 * 10**4}) == pytest.approx(1e-6 * (2 * 10**4) ** slope, rel=0.1)
    # Beyond the largest it may have begun to grow faster.
    assert growth.limit({"n": 3 * 10**5}) == pytest.approx(1e-6 * 1e5**slope * 3**2, rel=0.05)
    assert growth.lift == 0


def test_one_size_speaks_for_smaller_ones_and_with_slope_two_for_larger_ones() -> None:
    growth = fitted([point(1e-4, n=1000, m=10)])
    # Smaller ones differ more from draw to draw, of which the worst was 1 / 0.9 times the mean, and may be larger.
    assert growth.limit({"n": 500, "m": 10}) == pytest.approx(1e-4 * (1 / 0.9) ** (2**0.5 - 1) * 2**0.5)
    assert growth.limit({"n": 250, "m": 5}) == pytest.approx(1e-4 * (1 / 0.9) ** (8**0.5 - 1) * 8**0.5)
    assert growth.limit({"n": 3000, "m": 10}) == pytest.approx(9e-4)
    assert growth.limit({"n": 3000, "m": 20}) == pytest.approx(36e-4)


def test_sizes_that_are_far_off_are_refused() -> None:
    growth = fitted([point(1e-4, n=1000), point(2e-4, n=4000)])
    assert math.isfinite(growth.limit({"n": int(4000 * REACH)}))
    assert math.isfinite(growth.limit({"n": int(1000 / REACH)}))
    assert growth.limit({"n": int(4000 * REACH) + 1}) == math.inf
    assert growth.limit({"n": int(1000 / REACH) - 1}) == math.inf


def test_in_a_gap_between_measured_sizes_nothing_is_said() -> None:
    growth = fitted([point(1e-4, n=1000, m=10), point(1e-4, mean=1e-4, n=2**53, m=10)])
    for n, m, is_told in (
        (4000, 10, True),
        (4001, 10, False),
        (10**9, 10, False),
        (2**51, 40, True),
        (1000, 41, False),
    ):
        for limit in (growth.limit({"n": n, "m": m}), float(growth.limits(np.array([[m, n]]))[0])):
            assert math.isfinite(limit) == is_told
    # A size at which results were not finite tells nothing of those around it.
    lost = fitted([point(1e-4, n=1000), point(math.inf, n=16_000)])
    assert [math.isfinite(lost.limit({"n": n})) for n in (4000, 5000)] == [True, False]


def test_sizes_varied_together_leave_open_which_of_them_errors_grow_with() -> None:
    together = fitted([point(1e-6 * n**0.5, M=n, N=n) for n in (100, 1000, 10000)])
    along = together.limit({"M": 20000, "N": 20000})
    assert along == pytest.approx(4e-6 * 10000**0.5, rel=0.02)
    between = together.limit({"M": 200, "N": 200})
    assert between == pytest.approx(1e-6 * 200**0.5, rel=0.02)
    assert together.limit({"M": 200, "N": 100}) == pytest.approx(between)
    assert together.limit({"M": 20000, "N": 10000}) == pytest.approx(along)
    assert together.limit({"M": 10000, "N": 20000}) == pytest.approx(along)
    apart = fitted([*(point(1e-6 * n**0.5, M=n, N=n) for n in (100, 1000)), point(1e-5, M=100, N=1000)])
    assert apart.limit({"M": 100, "N": 500}) < 1.1 * apart.limit({"M": 100, "N": 100})
    assert apart.limit({"M": 200, "N": 100}) > 1.3 * apart.limit({"M": 100, "N": 100})


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


def test_errors_of_fp64_in_narrower_types_say_no_more_than_zeros() -> None:
    zero = as_zero_in(("fp32", "fp64", "fast", 4))
    assert 1e-16 < zero < 1e-15
    assert as_zero_in(("fp64", "accurate")) == as_zero_in(()) == 0.0
    nearly = [dataclasses.replace(point(error, n=n), as_zero=zero) for n, error in ((100, 1e-16), (1000, 3e-16))]
    exact = fitted(nearly)
    assert exact.is_exact
    assert [exact.limit({"n": n}) for n in (50, 99, 101, 400, 1001)] == [math.inf] * 5
    assert exact.limit({"n": 1000}) == pytest.approx(3e-16)
    # Beside errors that are none of fp64's they change nothing; in fp64 they are errors as any others.
    other = point(1e-5, n=4000)
    queries = ({"n": n} for n in (1001, 3000, 5000))
    assert all(fitted([*nearly, other]).limit(n) == pytest.approx(fitted([other]).limit(n)) for n in queries)
    assert fitted([dataclasses.replace(each, as_zero=0.0) for each in nearly]).limit({"n": 400}) < 1e-14


def test_sizes_above_a_billion_are_told_apart() -> None:
    large = 2_000_000_011
    growth = fitted([point(0.0, n=large), point(1e-6, n=large - 2)])
    assert growth.limit({"n": large}) == pytest.approx(1e-6, rel=1e-6)
    assert growth.limit({"n": large - 2}) == pytest.approx(1e-6, rel=1e-6)
    exact = fitted([point(0.0, n=large)])
    assert [exact.limit({"n": large + step}) for step in (-1, 0, 1)] == [math.inf, 0.0, math.inf]
    assert exact.limits(np.array([[large - 1], [large], [large + 1]])).tolist() == [math.inf, 0.0, math.inf]


def test_exactness_that_other_draws_of_the_same_size_refute_gives_no_limit() -> None:
    few = point(1e-5, draws=2, n=1000)
    assert fitted([few, point(0.0, n=1000)]).limit({"n": 1000}) == fitted([few]).limit({"n": 1000}) > 1.5e-5


def test_what_lies_above_the_power_law_lifts_what_is_said_beyond() -> None:
    errors = {100: 1e-6, 1000: 1e-6, 10000: 1e-5}
    growth = fitted([point(error, n=n) for n, error in errors.items()])
    assert growth.limit({"n": 9999}) <= 1.01e-5
    assert growth.limit({"n": 20000}) >= 1.3e-5


def test_many_sizes_that_vary_have_the_steepest_slope_each() -> None:
    rng = np.random.default_rng(3)
    names = [f"n{i}" for i in range(9)]
    points = [SizedError({name: int(rng.integers(10, 1000)) for name in names}, 1e-5, DRAWS) for _ in range(12)]
    assert (fitted(points).slopes == 1).all()


@pytest.mark.parametrize(("points", "confidence"), [([], 0.95), ([point(-1.0, n=3)], 0.95), ([point(1, n=3)], 1.0)])
def test_nonsense_is_refused(points: list[SizedError], confidence: float) -> None:
    with pytest.raises(ValueError, match="expected errors of 0 or more"):
        fitted(points, confidence)


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
    low = growth.log_sizes.max(axis=0) if beyond else growth.log_sizes.min(axis=0)
    high = growth.log_sizes.max(axis=0) + math.log(3.9)
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


@given(POINTS)
@settings(max_examples=30, deadline=None)
def test_downwards_limits_rise_by_no_more_than_the_spread(points: list[SizedError]) -> None:
    growth = fitted(points)
    at = sampled(growth, 5).reshape(-1, 2)
    inside = at[(np.log(at) <= growth.log_sizes.max(axis=0)).all(axis=1)]
    highest = growth.log_limits + growth.log_rooms * np.expm1(np.ptp(growth.log_sizes, axis=0).sum() / 2)
    limits = growth.limits(inside)
    with np.errstate(divide="ignore"):
        logs = np.log(limits[np.isfinite(limits)])
    is_exact = bool(np.isneginf(growth.log_limits).any())
    # What only a smaller size speaks for grows by its slopes, of which another test is.
    largest = growth.log_sizes[growth.log_limits.argmax()]
    if not is_exact and (largest >= growth.log_sizes).all():
        assert (logs <= highest.max() + 1e-6).all()


@given(POINTS, st.lists(st.sampled_from([{}, {"m": 0.0}, {"n": 0.5}, {"m": 0.3, "n": 0.0}]), min_size=6, max_size=6))
@settings(max_examples=30, deadline=None)
def test_limits_of_many_sizes_are_those_of_each(points: list[SizedError], rounded: list[dict[str, float]]) -> None:
    points = [dataclasses.replace(each, rounded=share) for each, share in zip(points, rounded, strict=False)]
    growth = fitted(points)
    at = sampled(growth, 3).reshape(-1, 2)
    each = [growth.limit({"m": int(m), "n": int(n)}) for m, n in at]
    assert growth.limits(at).tolist() == pytest.approx(each, rel=1e-9)


def test_more_confidence_needs_more_room() -> None:
    points = [point(1e-5 * n**0.5, draws=3, n=n) for n in (100, 1000)]
    limits = [fitted(points, confidence).limit({"n": 2000}) for confidence in (0.5, 0.9, 0.95, 0.99)]
    assert limits == sorted(limits)
    assert limits[0] < limits[-1]


@pytest.mark.parametrize("low", [1, 3, 1000, 2**40])
def test_of_what_may_overflow_nothing_is_said_outside_of_the_measured_sizes(low: int) -> None:
    points = [SizedError({"n": n, "m": 7}, 1e-4, DRAWS, 0.9e-4) for n in (low, 8 * low)]
    growth = fitted(points, may_overflow=True)
    inside, outside = [low, 2 * low, 8 * low], [8 * low + max(1, low >> 20)]
    outside += [low - max(1, low >> 20)] if low > 1 else []
    for n, is_known in [*((n, True) for n in inside), *((n, False) for n in outside)]:
        assert math.isfinite(growth.limit({"n": n, "m": 7})) == is_known, n
        assert math.isfinite(growth.limits(np.array([[7, n]]))[0]) == is_known, n
    assert math.isinf(growth.limit({"n": low, "m": 8}))
    signatures = ("fp32", "bf16", "fast"), ("fp16", "fp64"), ("fp8_e5m2",)
    assert [may_overflow_in(types) for types in signatures] == [False, True, True]
