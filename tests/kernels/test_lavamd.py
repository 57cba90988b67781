import itertools

import mpmath
import numpy as np
import pytest
from launching import all_in, launcher, nmae

from mptune.errors import EmptySpaceError
from mptune.kernel import Kernel
from mptune.precision import PRECISIONS
from mptune.source.loading import load_kernel
from tests.tiers import few

TILED = {"block_size": 32, "tile_size": 8, "use_shared": True}


@pytest.fixture(scope="module")
def lavamd() -> Kernel:
    return load_kernel("lavamd")


@pytest.mark.parametrize("sizes", [{"boxes": 3, "particles": 2}, {"boxes": 1, "particles": 3}], ids=str)
def test_reference_against_mpmath(lavamd: Kernel, sizes: dict[str, int]) -> None:
    size = lavamd.resolve_sizes("smoke", sizes)
    inputs = lavamd.inputs(np.random.default_rng(1), size)
    force = lavamd.reference(inputs, size)["force"]
    assert force.shape == (size.boxes**3, 4, size.particles)
    corners = [(x, y, z) for z, y, x in itertools.product(range(size.boxes), repeat=3)]
    with mpmath.workdps(40):
        for (a, home), i in itertools.product(enumerate(corners), range(size.particles)):
            expected = mpmath.zeros(4, 1)
            for (b, other), j in itertools.product(enumerate(corners), range(size.particles)):
                if max(abs(p - q) for p, q in zip(home, other, strict=True)) > 1:
                    continue
                apart = [
                    mpmath.mpf(inputs["position"][a, d, i])
                    + home[d]
                    - mpmath.mpf(inputs["position"][b, d, j])
                    - other[d]
                    for d in range(3)
                ]
                term = inputs["charge"][b, j] * mpmath.exp(-9 * mpmath.fsum(d**2 for d in apart))
                expected += term * mpmath.matrix([1, *(18 * d for d in apart)])
            np.testing.assert_allclose(force[a, :, i], [float(e) for e in expected], rtol=0, atol=1e-14)


def test_reference_takes_the_pairs_in_parts(lavamd: Kernel) -> None:
    size = lavamd.resolve_sizes("smoke", {"boxes": 1, "particles": 1500})
    inputs = lavamd.inputs(np.random.default_rng(2), size)
    (position,), (charge,) = inputs["position"], inputs["charge"]
    for i in (0, 698, 699, 1499):
        apart = position[:, i, None] - position
        term = charge * np.exp(-9 * (apart**2).sum(axis=0))
        expected = [term.sum(), *(18 * (term * apart).sum(axis=1))]
        np.testing.assert_allclose(lavamd.reference(inputs, size)["force"][0, :, i], expected, rtol=0, atol=1e-11)


def test_forces_push_outward_at_the_surface(lavamd: Kernel) -> None:
    force = launcher(lavamd, {"boxes": 3, "particles": 100}, seed=3).data.references["force"].reshape(3, 3, 3, 4, 100)
    assert force[..., 0, 1, :].mean() < -1
    assert force[..., 2, 1, :].mean() > 1
    assert abs(force[..., 1, 1, :].mean()) < 0.5


@pytest.mark.parametrize(("name", "policy"), few([("fp32", "fast"), ("fp16", "approx")]))
def test_the_policy_is_that_of_the_exponential(lavamd: Kernel, name: str, policy: str) -> None:
    run = launcher(lavamd, {"boxes": 2}, seed=4)
    accurate, other = (
        run.run(lavamd.configuration({**all_in(lavamd, name), **TILED, "policy": p}))["force"]
        for p in ("accurate", policy)
    )
    assert not np.array_equal(accurate, other)


@pytest.mark.parametrize("argument", ["position", "charge"])
@pytest.mark.parametrize("use_shared", [False, True])
def test_inputs_have_their_own_types(lavamd: Kernel, argument: str, use_shared: bool) -> None:
    """They are rounded once, to their own type; what comes of them has the wider types of the others."""
    run = launcher(lavamd, {"boxes": 2, "particles": 13}, seed=5)
    rounded = run.data.inputs[argument].astype(PRECISIONS["bf16"].dtype).astype(np.float64)
    expected = lavamd.reference({**run.data.inputs, argument: rounded}, run.data.sizes)["force"]
    types = {**all_in(lavamd, "fp64"), f"{argument}_type": "bf16"}
    output = run.run(lavamd.configuration({**types, **TILED, "use_shared": use_shared}))["force"]
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-13)


def test_narrow_distances_of_wide_positions_lose_little(lavamd: Kernel) -> None:
    """The difference of wide positions is right to the last bit of a narrow distance."""
    run = launcher(lavamd, {"boxes": 2}, seed=6)
    types = {**all_in(lavamd, "fp32"), "distance_type": "fp16"}
    wide, narrow = (
        nmae(
            run.run(lavamd.configuration({**types, **TILED, "position_type": p, "policy": "accurate"}))["force"],
            run.data.references["force"],
        )
        for p in ("fp32", "fp16")
    )
    assert 0.2 * PRECISIONS["fp16"].unit_roundoff < wide < 0.7 * narrow


def test_the_sum_has_the_type_of_the_force(lavamd: Kernel) -> None:
    """Every term is rounded to it before it is added, and every sum after that."""
    run = launcher(lavamd, {"boxes": 1, "particles": 40}, seed=7)
    (position,), (charge,) = run.data.inputs["position"], run.data.inputs["charge"]
    total = np.zeros((4, 40), np.float16)
    for other, q in zip(position.T, charge, strict=True):
        apart = position - other[:, None]
        term = q * np.exp(-9 * (apart**2).sum(axis=0))
        total += (term * np.vstack([np.ones(40), apart])).astype(np.float16)
    total[1:] *= np.float16(18)
    output = run.run(lavamd.configuration({**all_in(lavamd, "fp64"), **TILED, "force_type": "fp16"}))["force"]
    np.testing.assert_array_equal(output[0], total)


def test_shared_memory_bounds_the_particles_of_a_box(lavamd: Kernel) -> None:
    crowded = lavamd.search_space(lavamd.resolve_sizes("smoke", {"particles": 2000}))
    with pytest.raises(EmptySpaceError, match="sizeof"):
        crowded.restrict({"use_shared": (True,), "position_type": ("fp64",)})
    assert crowded.restrict({"use_shared": (True,), "position_type": ("fp16",)}).size > 0
