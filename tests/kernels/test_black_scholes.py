import mpmath
import numpy as np
import pytest
from launching import all_in, launcher, nrmse
from numpy.typing import NDArray

from mptune.kernel import Kernel
from mptune.precision import PRECISIONS
from mptune.source.loading import load_kernel

OUTPUTS = ("call", "put")
OPTIONS = ("stock", "strike", "years")


@pytest.fixture(scope="module")
def black_scholes() -> Kernel:
    return load_kernel("black_scholes")


def assert_prices(found: dict[str, NDArray[np.float64]], expected: dict[str, NDArray[np.float64]]) -> None:
    """Prices of up to 200 dollars, in fp64, to a few units in the last place of the terms they are differences of."""
    for name in OUTPUTS:
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-12, err_msg=name)


def test_reference_against_forty_digits(black_scholes: Kernel) -> None:
    sizes = black_scholes.resolve_sizes("smoke", {"n": 200})
    inputs = black_scholes.inputs(np.random.default_rng(1), sizes)
    exact: dict[str, list[float]] = {name: [] for name in OUTPUTS}
    with mpmath.workdps(40):
        rate, volatility = mpmath.mpf(inputs["rate"]), mpmath.mpf(inputs["volatility"])
        for values in zip(*(inputs[name] for name in OPTIONS), strict=True):
            stock, strike, years = map(mpmath.mpf, values)
            deviation = volatility * mpmath.sqrt(years)
            d1 = (mpmath.log(stock / strike) + (rate + volatility**2 / 2) * years) / deviation
            present = strike * mpmath.exp(-rate * years)
            call = stock * mpmath.ncdf(d1) - present * mpmath.ncdf(d1 - deviation)
            exact["call"].append(float(call))
            exact["put"].append(float(call - stock + present))
    found = black_scholes.reference(inputs, sizes)
    for name in OUTPUTS:
        np.testing.assert_allclose(found[name], exact[name], rtol=0, atol=2e-13)


def test_a_reference_of_several_chunks_is_that_of_each(black_scholes: Kernel) -> None:
    sizes = black_scholes.resolve_sizes("smoke", {"n": 140_001})
    inputs = black_scholes.inputs(np.random.default_rng(2), sizes)
    last = {name: value[-9:] if name in OPTIONS else value for name, value in inputs.items()}
    whole, part = (
        black_scholes.reference(inputs, sizes),
        black_scholes.reference(last, black_scholes.resolve_sizes("smoke", {"n": 9})),
    )
    for name in OUTPUTS:
        np.testing.assert_allclose(whole[name][-9:], part[name], rtol=1e-13)


def test_options_of_all_kinds_are_quoted(black_scholes: Kernel) -> None:
    sizes = black_scholes.resolve_sizes()
    inputs = black_scholes.inputs(np.random.default_rng(3), sizes)
    prices = black_scholes.reference(inputs, sizes)
    in_the_money = np.mean(inputs["stock"] > inputs["strike"])
    assert 0.3 < in_the_money < 0.7
    for name in OUTPUTS:
        assert prices[name].min() > -1e-13
        assert np.mean(prices[name] < 0.01) > 0.001
        assert prices[name].mean() > 10
    assert max(inputs[name].max() for name in OPTIONS) < PRECISIONS["fp16"].largest


def test_options_are_rounded_once_to_their_own_type(black_scholes: Kernel) -> None:
    run = launcher(black_scholes, seed=5)
    rounded = {
        name: value.astype(np.float16).astype(np.float64) if name in OPTIONS else value
        for name, value in run.data.inputs.items()
    }
    prices = run.run(black_scholes.configuration({**all_in(black_scholes, "fp64"), "input_type": "fp16"}))
    assert_prices(prices, black_scholes.reference(rounded, run.data.sizes))


def test_prices_are_rounded_once_to_their_own_type(black_scholes: Kernel) -> None:
    run = launcher(black_scholes, seed=6)
    prices = run.run(black_scholes.configuration({**all_in(black_scholes, "fp64"), "output_type": "bf16"}))
    for name in OUTPUTS:
        reference = run.data.references[name]
        worth_something = reference > 1e-3
        error = np.abs(prices[name] / reference - 1)[worth_something]
        assert 0.9 < error.max() / PRECISIONS["bf16"].unit_roundoff <= 1 + 1e-6


def test_each_kind_of_intermediate_value_has_its_own_type(black_scholes: Kernel) -> None:
    run = launcher(black_scholes, seed=7)
    errors = {}
    for narrow in ("d_type", "price_type"):
        types = {**all_in(black_scholes, "fp64"), "input_type": "fp32", "output_type": "fp32", narrow: "fp32"}
        prices = run.run(black_scholes.configuration(types))
        unit = PRECISIONS["fp32"].unit_roundoff
        errors[narrow] = nrmse(prices["call"], run.data.references["call"]) / unit
    # Rounded inputs alone cost about one unit; d moves a price by the density at it, rounded terms go in in full.
    assert 0.5 < errors["d_type"] < errors["price_type"] < 5
