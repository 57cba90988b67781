"""References of the bundled kernels against 40 digits, written independently; large inputs in all their chunks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from mptune.precision import PRECISIONS
from mptune.source.loading import load_kernel

Given = Mapping[str, Any]
#: The exact value of one element of one output.
Exact = Callable[[Given, Any, str, tuple[int, ...]], Any]


def black_scholes(given: Given, size: Any, output: str, i: tuple[int, ...]) -> Any:
    stock, strike, years, rate, volatility = (
        mpf(given[name][i] if np.ndim(given[name]) else given[name])
        for name in ("stock", "strike", "years", "rate", "volatility")
    )
    deviation = volatility * mpmath.sqrt(years)
    d1 = (mpmath.log(stock / strike) + (rate + volatility**2 / 2) * years) / deviation
    present = strike * mpmath.exp(-rate * years)
    call = stock * mpmath.ncdf(d1) - present * mpmath.ncdf(d1 - deviation)
    return call if output == "call" else call - stock + present


def convolution2d(given: Given, size: Any, output: str, at: tuple[int, ...]) -> Any:
    rows = range(size.filter_height), range(size.filter_width)
    image, weights = given["input"], given["filter"]
    return mpmath.fsum(mpf(weights[j, i]) * mpf(image[at[0] + j, at[1] + i]) for j, i in itertools.product(*rows))


def coulombic(given: Given, size: Any, output: str, at: tuple[int, ...]) -> Any:
    y0, x0 = (index * mpf(given["spacing"]) for index in at)
    return mpmath.fsum(
        mpf(q) / mpmath.sqrt((x0 - mpf(x)) ** 2 + (y0 - mpf(y)) ** 2 + mpf(z) ** 2)
        for q, (x, y, z) in zip(given["charge"], given["position"], strict=True)
    )


def kmeans(given: Given, size: Any, output: str, i: tuple[int, ...]) -> Any:
    point = given["points"][:, i[0]]
    return min(
        mpmath.fsum((mpf(p) - mpf(c)) ** 2 for p, c in zip(point, centre, strict=True)) for centre in given["centres"]
    )


def lavamd(given: Given, size: Any, output: str, at: tuple[int, ...]) -> Any:
    """Add up the particles of this box and of those around it."""
    corners = [(x, y, z) for z, y, x in itertools.product(range(size.boxes), repeat=3)]
    box, component, i = at
    home, total = corners[box], mpf(0)
    for b, other in enumerate(corners):
        if max(abs(p - q) for p, q in zip(home, other, strict=True)) > 1:
            continue
        for j in range(size.particles):
            own, others = given["position"][box, :, i], given["position"][b, :, j]
            apart = [mpf(own[d]) + home[d] - mpf(others[d]) - other[d] for d in range(3)]
            term = given["charge"][b, j] * mpmath.exp(-9 * mpmath.fsum(d**2 for d in apart))
            total += term * (18 * apart[component - 1] if component else 1)
    return total


def mode_product(given: Given, size: Any, output: str, at: tuple[int, ...]) -> Any:
    i, r, j = at
    terms = zip(given["response"][r], given["image"][i, :, j], strict=True)
    return mpmath.fsum(mpf(u) * mpf(x) for u, x in terms)


def mriq(given: Given, size: Any, output: str, at: tuple[int, ...]) -> Any:
    position, total = given["position"][:, at[0]], mpmath.mpc(0)
    for *k, weight in given["sample"]:
        turns = mpmath.fdot((mpf(a), mpf(b)) for a, b in zip(k, position, strict=True))
        total += mpf(weight) * mpmath.expjpi(2 * turns)
    return total.imag if at[1] else total.real


def newton_raphson(given: Given, size: Any, output: str, i: tuple[int, ...]) -> Any:
    c = [mpf(x) for x in given["coefficients"][:, i[0]]]
    return mpmath.findroot(lambda x: mpmath.fsum(a * x**k for k, a in enumerate(c)), given["guess"][i[0]])


def inverse_kinematics(given: Given, size: Any, output: str, at: tuple[int, ...]) -> Any:
    """Solve for the joints of three links of a quarter behind one that points where the target does."""
    x, y, direction = (mpf(value) for value in given["target"][:, at[1]])
    wrist = mpmath.mpc(x, y) - mpmath.expj(direction) / 4
    # Three links with equal bends reach |1 + e^ib + e^2ib| / 4 = (1 + 2 cos b) / 4, in the direction of the middle one.
    bend = mpmath.acos((4 * abs(wrist) - 1) / 2)
    first = mpmath.arg(wrist) - bend
    return (first, bend, bend, direction - first - 2 * bend)[at[0]]


def axpy(given: Given, size: Any, output: str, i: tuple[int, ...]) -> Any:
    return mpf(given["a"]) * mpf(given["x"][i]) + mpf(given["y"][i])


def bessel(given: Given, size: Any, output: str, i: tuple[int, ...]) -> Any:
    return mpmath.besseli(0, mpf(given["x"][i]))


ONE = {"rows": 1, "bands": 1, "filters": 1, "columns": 1}
#: By kernel: the exact values, how far off the reference may be (relative and absolute), and sizes.
CASES: tuple[tuple[Exact, float, float, tuple[Mapping[str, int], ...]], ...] = (
    (axpy, 1e-15, 2.0**-51, ({"n": 101},)),
    (bessel, 1e-15, 0, ({"n": 200},)),
    (black_scholes, 0, 2e-13, ({"n": 100}, {"n": 140_001})),
    (
        convolution2d,
        1e-14,
        0,
        (
            {"width": 9, "height": 6, "filter_width": 17, "filter_height": 17},
            {"width": 70, "height": 3, "filter_width": 4, "filter_height": 7},
            {"width": 1, "height": 1, "filter_width": 5, "filter_height": 2},
        ),
    ),
    (coulombic, 1e-14, 0, ({"width": 5, "height": 4, "charges": 7}, {"width": 1, "height": 1, "charges": 1})),
    (inverse_kinematics, 0, 5e-15, ({"n": 101}, {"n": 40_000})),
    (kmeans, 1e-14, 0, ({"n": 57}, {"n": 9, "features": 1, "clusters": 1}, {"n": 4100, "clusters": 3})),
    (lavamd, 0, 1e-11, ({"boxes": 3, "particles": 2}, {"boxes": 1, "particles": 3}, {"boxes": 1, "particles": 1500})),
    (mode_product, 1e-14, 0, ({"rows": 2, "bands": 5, "filters": 3, "columns": 4}, ONE)),
    # Of angles up to some ten radians the last bit is 2e-15.
    (mriq, 0, 1e-11, ({"side": 3, "samples": 17}, {"side": 1, "samples": 1}, {"side": 4, "samples": 1500})),
    # The residual that is to vanish errs by some units in the last place of its terms.
    (newton_raphson, 5e-15, 0, ({"n": 53}, {"n": 40_000})),
)


@pytest.mark.parametrize(
    ("exact", "relative", "absolute", "sizes"),
    [(*case[:3], sizes) for case in CASES for sizes in case[3]],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_the_reference_is_exact(exact: Exact, relative: float, absolute: float, sizes: Mapping[str, int]) -> None:
    kernel = load_kernel(exact.__name__)
    size = kernel.resolve_sizes("smoke", sizes)
    inputs = dict(kernel.inputs(np.random.default_rng(1), size))
    if kernel.name == "convolution2d":  # no filter that is the same the other way round
        inputs["filter"] = np.random.default_rng(2).random(inputs["filter"].shape)
    found = kernel.reference(inputs, size)
    for argument in kernel.outputs:
        values = found[argument.name]
        assert values.shape == kernel.shape_of(argument, size)
        few = 5 if max(sizes.values()) >= 1500 else 64
        chosen = np.linspace(0, values.size - 1, min(values.size, few)).astype(int)
        with mpmath.workdps(40):
            for at in zip(*np.unravel_index(chosen, values.shape), strict=True):
                expected = exact(inputs, size, argument.name, at)
                assert abs(mpf(values[at]) - expected) <= relative * abs(expected) + absolute, (argument.name, at)


@pytest.mark.parametrize("exact", [case[0] for case in CASES], ids=lambda exact: exact.__name__)
def test_inputs_follow_the_seed_and_numbers_fit_into_fp16(exact: Exact) -> None:
    kernel = load_kernel(exact.__name__)
    size = kernel.resolve_sizes("smoke")
    first, again, other = (kernel.inputs(np.random.default_rng(seed), size) for seed in (0, 0, 1))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert any(not np.array_equal(first[name], other[name]) for name in first)
    for values in (*first.values(), *kernel.reference(first, size).values()):
        assert np.abs(values).max() < PRECISIONS["fp16"].largest
