import mpmath
import numpy as np
import pytest
from launching import all_in, launcher

from mptune.kernel import Kernel
from mptune.precision import PRECISIONS
from mptune.source.loading import load_kernel
from tests.tiers import few

TILED = {"block_size_x": 16, "block_size_y": 4, "tile_size_x": 8, "tile_size_y": 2}


@pytest.fixture(scope="module")
def coulombic() -> Kernel:
    return load_kernel("coulombic")


@pytest.mark.parametrize("sizes", [{"width": 5, "height": 4, "charges": 7}, {"width": 1, "height": 1, "charges": 1}])
def test_reference_against_mpmath(coulombic: Kernel, sizes: dict[str, int]) -> None:
    size = coulombic.resolve_sizes("smoke", sizes)
    inputs = coulombic.inputs(np.random.default_rng(1), size)
    potential = coulombic.reference(inputs, size)["potential"]
    assert potential.shape == (size.height, size.width)
    with mpmath.workdps(40):
        spacing = mpmath.mpf(inputs["spacing"])
        for row, column in np.ndindex(potential.shape):
            expected = sum(
                mpmath.mpf(q) / mpmath.sqrt((column * spacing - x) ** 2 + (row * spacing - y) ** 2 + mpmath.mpf(z) ** 2)
                for q, (x, y, z) in zip(inputs["charge"], inputs["position"], strict=True)
            )
            assert abs(potential[row, column] / expected - 1) < 1e-14


def test_reference_takes_the_charges_in_parts(coulombic: Kernel) -> None:
    size = coulombic.resolve_sizes("smoke", {"width": 30_001, "height": 1, "charges": 5})
    inputs = coulombic.inputs(np.random.default_rng(2), size)
    x, y, z = inputs["position"].T[:, :, None]
    distance = np.sqrt((np.arange(size.width) * inputs["spacing"] - x) ** 2 + y**2 + z**2)
    expected = (inputs["charge"][:, None] / distance).sum(axis=0)
    np.testing.assert_allclose(coulombic.reference(inputs, size)["potential"][0], expected, rtol=1e-14)


def test_the_potential_keeps_away_from_zero(coulombic: Kernel) -> None:
    """The error is relative to each point's potential."""
    potential = launcher(coulombic).data.references["potential"]
    assert 0.3 * potential.mean() < potential.min()
    assert potential.max() < 10 * potential.mean()


@pytest.mark.parametrize(("name", "policy"), few([("fp32", "fast"), ("fp16", "approx")]))
def test_the_policy_is_that_of_the_square_root(coulombic: Kernel, name: str, policy: str) -> None:
    run = launcher(coulombic, {"charges": 9}, seed=4)
    accurate, other = (
        run.run(coulombic.configuration({**all_in(coulombic, name), "tile_size_x": 16, "policy": p}))["potential"]
        for p in ("accurate", policy)
    )
    assert not np.array_equal(accurate, other)


def test_charges_have_their_own_type(coulombic: Kernel) -> None:
    run = launcher(coulombic, {"width": 37, "height": 11}, seed=5)
    types = {**all_in(coulombic, "fp64"), "charge_type": "bf16"}
    charge = run.data.inputs["charge"].astype(PRECISIONS["bf16"].dtype).astype(np.float64)
    expected = coulombic.reference({**run.data.inputs, "charge": charge}, run.data.sizes)["potential"]
    output = run.run(coulombic.configuration({**types, **TILED}))["potential"]
    np.testing.assert_allclose(output, expected, rtol=1e-13)


def test_the_sum_has_the_type_of_the_potential(coulombic: Kernel) -> None:
    """Every term is rounded to it before it is added, and every sum after that."""
    run = launcher(coulombic, {"width": 19, "height": 5, "charges": 300}, seed=6)
    row, column = (np.arange(n) * run.data.inputs["spacing"] for n in (5, 19))
    total = np.zeros((5, 19), np.float16)
    for q, (x, y, z) in zip(run.data.inputs["charge"], run.data.inputs["position"], strict=True):
        total += (q / np.sqrt((column - x) ** 2 + ((row - y) ** 2 + z**2)[:, None])).astype(np.float16)
    output = run.run(coulombic.configuration({**all_in(coulombic, "fp64"), **TILED, "potential_type": "fp16"}))[
        "potential"
    ]
    # A term that is a tie in fp16 within the rounding of fp64 is all that could differ.
    np.testing.assert_array_equal(output, total)
