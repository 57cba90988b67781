import itertools

import mpmath
import numpy as np
import pytest
from launching import all_in, launcher, nrmse

from mptune.kernel import Kernel
from mptune.precision import PRECISIONS
from mptune.source.loading import load_kernel
from mptune.space.parameters import PermutationParameter
from tests.tiers import few

ORDERS = list(itertools.permutations(range(3)))


@pytest.fixture(scope="module")
def mode_product() -> Kernel:
    return load_kernel("mode_product")


@pytest.mark.parametrize(
    "sizes",
    [{"rows": 2, "bands": 5, "filters": 3, "columns": 4}, dict.fromkeys(("rows", "bands", "filters", "columns"), 1)],
)
def test_reference_against_mpmath(mode_product: Kernel, sizes: dict[str, int]) -> None:
    size = mode_product.resolve_sizes("smoke", sizes)
    inputs = mode_product.inputs(np.random.default_rng(1), size)
    output = mode_product.reference(inputs, size)["output"]
    assert output.shape == (size.rows, size.filters, size.columns)
    with mpmath.workdps(40):
        for i, r, j in np.ndindex(output.shape):
            terms = zip(inputs["response"][r], inputs["image"][i, :, j], strict=True)
            expected = sum(mpmath.mpf(u) * mpmath.mpf(x) for u, x in terms)
            assert abs(output[i, r, j] / expected - 1) < 1e-14


def test_filters_see_a_mean_of_the_reflectances(mode_product: Kernel) -> None:
    size = mode_product.resolve_sizes("smoke", {"bands": 40})
    inputs = mode_product.inputs(np.random.default_rng(3), size)
    np.testing.assert_allclose(inputs["response"].sum(axis=1), 1.0, rtol=1e-12)
    assert inputs["response"].min() >= 0
    assert 0 < inputs["image"].min() < inputs["image"].max() < 1.2
    # Different filters see different things.
    output = mode_product.reference(inputs, size)["output"]
    assert np.ptp(output.mean(axis=(0, 2))) > 0.01


@pytest.mark.parametrize("types", few(["fp64", "mixed"], 0))
def test_every_order_of_the_loops_gives_the_same_numbers(mode_product: Kernel, types: str) -> None:
    """The order is an optimisation: sums add the same terms one after the other in all of them."""
    run = launcher(mode_product, {"rows": 5, "bands": 17, "filters": 6, "columns": 43}, seed=2)
    mixed = {"image_type": "fp16", "response_type": "bf16", "sum_type": "fp32", "output_type": "fp16"}
    values = {**(all_in(mode_product, "fp64") if types == "fp64" else mixed), "block_size": 32}
    tile = {"tile_columns": 4, "tile_filters": 4, "tile_rows": 2}
    orders = next(p for p in mode_product.parameters if isinstance(p, PermutationParameter)).values
    assert sorted(orders) == ORDERS
    outputs = [
        run.run(mode_product.configuration({**values, **tile, "loop_order": order}))["output"] for order in orders
    ]
    for output in outputs[1:]:
        np.testing.assert_array_equal(output, outputs[0])
    expected = run.data.references["output"]
    if types == "fp64":
        np.testing.assert_allclose(outputs[0], expected, rtol=1e-14)
    else:
        assert 0 < nrmse(outputs[0], expected) < 4 * PRECISIONS["bf16"].unit_roundoff
