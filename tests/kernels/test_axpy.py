from fractions import Fraction

import numpy as np
import pytest
from launching import all_in, launcher, nrmse

from mptune.kernel import Kernel
from mptune.precision import PRECISIONS, precision
from mptune.registry import load_kernel
from tests.tiers import few


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


@pytest.mark.parametrize("name", few(["fp16", "bf16", "fp32"]))
def test_narrow_types_err_by_their_unit_roundoff(axpy: Kernel, name: str) -> None:
    run = launcher(axpy, seed=2)
    error = nrmse(run.run(axpy.configuration({**all_in(axpy, name), "vector_width": 2}))["y"], run.data.references["y"])
    # y is near 1 and rounded twice, when read and when written.
    assert 0.2 < error / PRECISIONS[name].unit_roundoff < 2


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


@pytest.mark.parametrize(("n", "vector_width"), few([(1, 8), (31, 1), (7, 8), (256, 8), (2049, 1), (2049, 8)], 2))
def test_every_length(axpy: Kernel, n: int, vector_width: int) -> None:
    run = launcher(axpy, {"n": n}, seed=n)
    values = {**all_in(axpy, "fp64"), "x_type": "fp32", "vector_width": vector_width, "block_size": 32}
    output = run.run(axpy.configuration(values))["y"]
    np.testing.assert_allclose(output, run.data.references["y"], rtol=0, atol=1e-8)
