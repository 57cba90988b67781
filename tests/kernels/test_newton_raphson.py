import dataclasses

import mpmath
import numpy as np
import pytest
from launching import all_in, launcher, nrmse

from mptune.kernel import Kernel
from mptune.precision import PRECISIONS
from mptune.source.loading import load_kernel

BUFFERS = ("coefficient_type", "guess_type", "root_type")


@pytest.fixture(scope="module")
def newton() -> Kernel:
    return load_kernel("newton_raphson")


def test_reference_against_mpmath(newton: Kernel) -> None:
    size = newton.resolve_sizes("smoke", {"n": 53})
    inputs = newton.inputs(np.random.default_rng(1), size)
    root = newton.reference(inputs, size)["root"]
    with mpmath.workdps(40):
        for found, guess, c in zip(root, inputs["guess"], inputs["coefficients"].T, strict=True):
            exact = [mpmath.mpf(x) for x in c]
            expected = mpmath.findroot(lambda x, c=exact: sum(a * x**k for k, a in enumerate(c)), guess)
            # The residual that is to vanish errs by some units in the last place of its terms.
            assert abs(found - expected) < 5e-15 * expected


def test_reference_takes_the_quartics_in_parts(newton: Kernel) -> None:
    size = newton.resolve_sizes("smoke", {"n": 40_000})
    inputs = newton.inputs(np.random.default_rng(2), size)
    root = newton.reference(inputs, size)["root"]
    terms = inputs["coefficients"] * root ** np.arange(5)[:, None]
    np.testing.assert_array_less(np.abs(terms.sum(axis=0)), 1e-14 * np.abs(terms).sum(axis=0))


def test_the_gas_is_real_but_fits_into_half(newton: Kernel) -> None:
    size = newton.resolve_sizes("smoke")
    inputs = newton.inputs(np.random.default_rng(3), size)
    c, guess = inputs["coefficients"], inputs["guess"]
    root = newton.reference(inputs, size)["root"]
    compressibility = root / guess
    assert 0.7 < compressibility.min() < 0.8
    assert 0.99 < compressibility.max() < 1.01
    largest = max(np.abs(c[k] * guess**k).max() for k in range(5))
    assert largest < PRECISIONS["fp16"].largest
    # What a slope is in the end is well above what fp16 holds with all its digits.
    assert (4 * c[4] * root**3 + 3 * c[3] * root**2 + 2 * c[2] * root + c[1]).min() > 0.1


def test_there_are_ten_steps(newton: Kernel) -> None:
    """From far off, where every step takes a quarter of the way, ten of them do not reach the root."""
    far = dataclasses.replace(
        newton, inputs=lambda rng, size: {**(i := newton.inputs(rng, size)), "guess": 50 * i["guess"]}
    )
    run = launcher(far, {"n": 101}, seed=5)
    c, x = run.data.inputs["coefficients"][::-1], run.data.inputs["guess"]
    slope = c[:4] * np.array([4, 3, 2, 1])[:, None]
    for _ in range(10):
        x = x - np.array([np.polyval(p, at) / np.polyval(d, at) for p, d, at in zip(c.T, slope.T, x, strict=True)])
    assert (x > 2 * run.data.references["root"]).all()
    np.testing.assert_allclose(run.run(far.configuration(all_in(newton, "fp64")))["root"], x, rtol=1e-13)


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_the_first_steps_may_be_rough(newton: Kernel, name: str) -> None:
    run = launcher(newton, seed=6)
    types = {**all_in(newton, "fp64"), "guess_type": name, "first_type": name, "correction_type": "fp32"}
    output = run.run(newton.configuration({**types, "tile_size": 4}))["root"]
    np.testing.assert_allclose(output, run.data.references["root"], rtol=5e-15)


def test_a_rough_correction_gains_its_own_digits_in_every_step(newton: Kernel) -> None:
    run = launcher(newton, seed=7)
    types = {**all_in(newton, "fp64"), "first_type": "bf16", "guess_type": "bf16", "correction_type": "bf16"}
    error = nrmse(run.run(newton.configuration(types))["root"], run.data.references["root"])
    # The first five steps leave an error near the unit roundoff of bf16, 2^-8; the others take at least 6 bits off it.
    assert 2.0**-53 < error < 2.0 ** (-8 - 5 * 6)


@pytest.mark.parametrize(("argument", "parameter"), [("coefficients", "coefficient_type"), ("guess", "guess_type")])
def test_inputs_have_their_own_types(newton: Kernel, argument: str, parameter: str) -> None:
    run = launcher(newton, {"n": 2003}, seed=8)
    rounded = run.data.inputs[argument].astype(PRECISIONS["bf16"].dtype).astype(np.float64)
    expected = newton.reference({**run.data.inputs, argument: rounded}, run.data.sizes)["root"]
    types = {**all_in(newton, "fp64"), parameter: "bf16"}
    np.testing.assert_allclose(run.run(newton.configuration(types))["root"], expected, rtol=1e-14)


def test_the_root_is_rounded_once_to_its_own_type(newton: Kernel) -> None:
    run = launcher(newton, {"n": 2003}, seed=9)
    wide = run.run(newton.configuration(all_in(newton, "fp64")))["root"]
    narrow = run.run(newton.configuration({**all_in(newton, "fp64"), "root_type": "fp16"}))["root"]
    np.testing.assert_array_equal(narrow, wide.astype(np.float16).astype(np.float64))
