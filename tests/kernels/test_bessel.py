import dataclasses

import mpmath
import numpy as np
import pytest
from launching import Launcher, all_in, launcher
from numpy.typing import NDArray
from scipy.special import i0

from mptune.kernel import Kernel
from mptune.precision import PRECISIONS
from mptune.source.loading import load_kernel


@pytest.fixture(scope="module")
def bessel() -> Kernel:
    return load_kernel("bessel")


def at(kernel: Kernel, x: NDArray[np.float64]) -> Launcher:
    """Return a launcher for these arguments instead of the kernel's own."""
    return launcher(dataclasses.replace(kernel, inputs=lambda rng, size: {"x": x}), {"n": len(x)})


def test_reference_against_forty_digits(bessel: Kernel) -> None:
    sizes = bessel.resolve_sizes("smoke", {"n": 200})
    inputs = bessel.inputs(np.random.default_rng(1), sizes)
    with mpmath.workdps(40):
        exact = [float(mpmath.besseli(0, mpmath.mpf(x))) for x in inputs["x"]]
    np.testing.assert_allclose(bessel.reference(inputs, sizes)["y"], exact, rtol=1e-15)


def test_arguments_fall_on_both_branches_and_results_into_fp16(bessel: Kernel) -> None:
    sizes = bessel.resolve_sizes()
    inputs = bessel.inputs(np.random.default_rng(2), sizes)
    assert inputs["x"].min() >= 0
    assert 0.2 < np.mean(inputs["x"] > 8) < 0.5
    largest = bessel.reference(inputs, sizes)["y"].max()
    assert largest < PRECISIONS["fp16"].largest < np.exp(inputs["x"].max())


@pytest.mark.parametrize("vector_width", [1, 4])
def test_fp64_agrees_with_the_reference_on_the_whole_axis(bessel: Kernel, vector_width: int) -> None:
    branches_meet = np.nextafter(8.0, [0.0, 8.0, 9.0])
    x = np.concatenate([[0.0, 1e-300, 1e-9, 708.0], branches_meet, np.linspace(0, 40, 4001), np.geomspace(8, 700, 997)])
    run = at(bessel, x)
    output = run.run(bessel.configuration({**all_in(bessel, "fp64"), "vector_width": vector_width}))["y"]
    # A unit in the last place or two of each of a handful of factors, among them the exponential twice.
    np.testing.assert_allclose(output, i0(x), rtol=4e-15)


def test_the_argument_is_rounded_once_to_its_own_type(bessel: Kernel) -> None:
    run = launcher(bessel, seed=3)
    output = run.run(bessel.configuration({**all_in(bessel, "fp64"), "input_type": "fp16"}))["y"]
    rounded = run.data.inputs["x"].astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(output, i0(rounded), rtol=4e-15)


def test_the_result_is_rounded_once_to_its_own_type(bessel: Kernel) -> None:
    run = launcher(bessel, seed=4)
    output = run.run(bessel.configuration({**all_in(bessel, "fp64"), "output_type": "fp16"}))["y"]
    error = np.abs(output / run.data.references["y"] - 1)
    assert 0.9 < error.max() / PRECISIONS["fp16"].unit_roundoff <= 1


def test_every_branch_has_its_own_type(bessel: Kernel) -> None:
    # Arguments every type holds.
    x = np.arange(0, 12, 1 / 16)
    near, far = x < 8, x > 8
    unit = PRECISIONS["fp32"].unit_roundoff
    for narrow_type, narrow, wide in (("series_type", near, far), ("asymptotic_type", far, near)):
        values = {**all_in(bessel, "fp64"), narrow_type: "fp32", "output_type": "fp32"}
        error = np.abs(at(bessel, x).run(bessel.configuration(values))["y"] / i0(x) - 1)
        # Beside the rounding of the result nothing is lost in the wide branch.
        assert error[wide].max() <= unit
        assert 1 < error[narrow].max() / unit < 8
