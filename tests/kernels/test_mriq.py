import mpmath
import numpy as np
import pytest
from launching import all_in, launcher, nrmse

from mptune.kernel import Kernel
from mptune.precision import PRECISIONS
from mptune.source.loading import load_kernel
from tests.tiers import few

TILED = {"block_size": 64, "tile_size": 8, "unroll": 2}


@pytest.fixture(scope="module")
def mriq() -> Kernel:
    return load_kernel("mriq")


@pytest.mark.parametrize("sizes", [{"side": 3, "samples": 17}, {"side": 1, "samples": 1}], ids=str)
def test_reference_against_mpmath(mriq: Kernel, sizes: dict[str, int]) -> None:
    size = mriq.resolve_sizes("smoke", sizes)
    inputs = mriq.inputs(np.random.default_rng(1), size)
    q = mriq.reference(inputs, size)["q"]
    assert q.shape == (size.side**3, 2)
    with mpmath.workdps(40):
        for position, (real, imaginary) in zip(inputs["position"].T, q, strict=True):
            expected = mpmath.mpc(0)
            for *k, weight in inputs["sample"]:
                turns = mpmath.fdot((mpmath.mpf(a), mpmath.mpf(b)) for a, b in zip(k, position, strict=True))
                expected += mpmath.mpf(weight) * mpmath.expjpi(2 * turns)
            # Of angles up to some ten radians the last bit is 2e-15.
            assert abs(real - expected.real) < 1e-14 * size.samples
            assert abs(imaginary - expected.imag) < 1e-14 * size.samples


def test_reference_takes_the_voxels_in_parts(mriq: Kernel) -> None:
    size = mriq.resolve_sizes("smoke", {"side": 4, "samples": 1500})
    inputs = mriq.inputs(np.random.default_rng(2), size)
    k, weight = inputs["sample"][:, :3], inputs["sample"][:, 3]
    q = (weight * np.exp(2j * np.pi * (inputs["position"].T[:, None, :] * k).sum(axis=2))).sum(axis=1)
    expected = np.column_stack([q.real, q.imag])
    np.testing.assert_allclose(mriq.reference(inputs, size)["q"], expected, atol=1e-11)


def test_the_mean_keeps_away_from_zero(mriq: Kernel) -> None:
    """NRMSE divides by it."""
    q = launcher(mriq, {"side": 24, "samples": 500}).data.references["q"]
    assert q.mean() > 0.3 * np.sqrt(np.mean(q**2))


def test_samples_lie_on_spokes_that_fill_k_space(mriq: Kernel) -> None:
    size = mriq.resolve_sizes("smoke", {"side": 32, "samples": 900})
    sample = mriq.inputs(np.random.default_rng(3), size)["sample"]
    radius = np.linalg.norm(sample[:, :3], axis=1)
    edge = size.side / 24 / 2
    assert 0.95 * edge < radius.max() <= edge
    spoke = sample[30:60, :3]
    np.testing.assert_allclose(np.cross(spoke[0], spoke), 0, atol=1e-12)
    assert np.linalg.norm(np.sign(sample[::30, :3]).mean(axis=0)[:2]) < 0.3
    assert 0 < sample[:, 3].min() < 0.7
    assert 0.99 < sample[:, 3].max() <= 1


@pytest.mark.parametrize(("name", "policy"), few([("fp32", "fast"), ("fp16", "approx")]))
def test_the_policy_is_that_of_sine_and_cosine(mriq: Kernel, name: str, policy: str) -> None:
    run = launcher(mriq, {"samples": 9}, seed=4)
    accurate, other = (
        run.run(mriq.configuration({**all_in(mriq, name), **TILED, "policy": p}))["q"] for p in ("accurate", policy)
    )
    assert (accurate != other).any(axis=0).all()


@pytest.mark.parametrize("argument", ["position", "sample"])
def test_inputs_have_their_own_types(mriq: Kernel, argument: str) -> None:
    """They are rounded once, to their own type; turns are computed in the wider one of the two."""
    run = launcher(mriq, {"side": 7}, seed=5)
    rounded = run.data.inputs[argument].astype(PRECISIONS["bf16"].dtype).astype(np.float64)
    expected = mriq.reference({**run.data.inputs, argument: rounded}, run.data.sizes)["q"]
    types = {**all_in(mriq, "fp64"), f"{argument}_type": "bf16"}
    np.testing.assert_allclose(run.run(mriq.configuration({**types, **TILED}))["q"], expected, rtol=0, atol=1e-13)


def test_a_narrow_angle_loses_only_digits_of_the_fraction(mriq: Kernel) -> None:
    run = launcher(mriq, {"side": 9}, seed=6)
    types = {**all_in(mriq, "fp32"), "angle_type": "fp16"}
    output = run.run(mriq.configuration({**types, **TILED, "policy": "accurate"}))["q"]
    error = nrmse(output, run.data.references["q"]) / PRECISIONS["fp16"].unit_roundoff
    # The angle of at most pi is rounded once, its sine or cosine once more: about a unit in each of 101 terms, which
    # add up to 10 times as much, against a mean of about 10.
    assert 0.2 < error < 2


def test_the_sum_has_the_type_of_q(mriq: Kernel) -> None:
    """Every term is rounded to it before it is added, and every sum after that."""
    run = launcher(mriq, {"side": 4, "samples": 40}, seed=7)
    total = np.zeros((4**3, 2), np.float16)
    for *k, weight in run.data.inputs["sample"]:
        angle = 2 * np.pi * (k @ run.data.inputs["position"])
        total += (weight * np.column_stack([np.cos(angle), np.sin(angle)])).astype(np.float16)
    output = run.run(mriq.configuration({**all_in(mriq, "fp64"), **TILED, "q_type": "fp16"}))["q"]
    np.testing.assert_array_equal(output, total)
