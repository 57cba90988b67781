from fractions import Fraction

import numpy as np
import pytest
from launching import launcher

from mptune.kernel import Kernel
from mptune.precision import PRECISIONS, precision
from mptune.source.loading import load_kernel


@pytest.fixture(scope="module")
def axpy() -> Kernel:
    return load_kernel("axpy")


def test_reference_against_exact_arithmetic(axpy: Kernel) -> None:
    sizes = axpy.resolve_sizes("smoke", {"n": 101})
    inputs = axpy.inputs(np.random.default_rng(5), sizes)
    y = axpy.reference(inputs, sizes)["y"]
    for i in range(sizes.n):
        exact = Fraction(inputs["a"]) * Fraction(inputs["x"][i]) + Fraction(inputs["y"][i])
        assert abs(Fraction(y[i]) - exact) <= Fraction(2) ** -51


def test_the_widest_type_of_the_three_computes(axpy: Kernel) -> None:
    """Operands are rounded once to their own types; in between nothing is lost."""
    run = launcher(axpy, {"n": 1009}, seed=3)
    configuration = axpy.configuration({"a_type": "fp32", "x_type": "fp16", "y_type": "bf16", "vector_width": 8})
    a, x, y = (
        np.asarray(run.data.inputs[n], precision(str(configuration[f"{n}_type"])).dtype).astype(np.float64)
        for n in "axy"
    )
    expected = (a * x + y).astype(np.float32).astype(PRECISIONS["bf16"].dtype).astype(np.float64)
    np.testing.assert_array_equal(run.run(configuration)["y"], expected)
