import mpmath
import numpy as np
import pytest
from launching import all_in, launcher, nmae

from mptune.kernel import Kernel
from mptune.precision import PRECISIONS
from mptune.source.loading import load_kernel
from tests.tiers import few


@pytest.fixture(scope="module")
def kinematics() -> Kernel:
    return load_kernel("inverse_kinematics")


def test_the_reference_reaches_the_targets(kinematics: Kernel) -> None:
    size = kinematics.resolve_sizes("smoke", {"n": 101})
    inputs = kinematics.inputs(np.random.default_rng(1), size)
    joint = kinematics.reference(inputs, size)["joint"]
    with mpmath.workdps(40):
        for (x, y, direction), angles in zip(inputs["target"].T, joint.T, strict=True):
            headings = [mpmath.fsum(angles[: k + 1]) for k in range(4)]
            gripper = mpmath.fsum(mpmath.expj(heading) for heading in headings) / 4
            # Angles of up to three radians err by some units in the last place.
            assert abs(gripper - mpmath.mpc(x, y)) < 2e-15
            assert abs(headings[3] - direction) < 2e-15
    # Of the two solutions it is the one that bends to the left.
    np.testing.assert_array_equal(joint[1], joint[2])
    assert (joint[1] > 0).all()


def test_reference_takes_the_targets_in_parts(kinematics: Kernel) -> None:
    size = kinematics.resolve_sizes("smoke", {"n": 40_000})
    inputs = kinematics.inputs(np.random.default_rng(2), size)
    joint = kinematics.reference(inputs, size)["joint"]
    gripper = np.exp(1j * np.cumsum(joint, axis=0)).sum(axis=0) / 4
    np.testing.assert_allclose(gripper, inputs["target"][0] + 1j * inputs["target"][1], rtol=0, atol=5e-15)


def test_targets_are_within_easy_reach(kinematics: Kernel) -> None:
    size = kinematics.resolve_sizes("smoke")
    inputs = kinematics.inputs(np.random.default_rng(3), size)
    joint = kinematics.reference(inputs, size)["joint"]
    # Stretched out, at a bend of 0, the bend would have no derivative; behind the robot the bearing jumps.
    assert 0.5 < joint[1].min() < 0.6
    assert 1.7 < joint[1].max() < 1.8
    assert np.abs(joint[0] + joint[1]).max() < 2.6
    assert np.ptp(inputs["target"][2] - joint[0] - joint[1]) == pytest.approx(2 * np.pi / 3, rel=0.01)


@pytest.mark.parametrize(("name", "policy"), few([("fp32", "fast"), ("fp16", "approx")]))
def test_the_policy_is_that_of_the_functions(kinematics: Kernel, name: str, policy: str) -> None:
    run = launcher(kinematics, {"n": 1009}, seed=5)
    accurate, other = (
        run.run(kinematics.configuration({**all_in(kinematics, name), "policy": p}))["joint"]
        for p in ("accurate", policy)
    )
    assert (accurate != other).any()


def test_targets_have_their_own_type(kinematics: Kernel) -> None:
    run = launcher(kinematics, {"n": 2003}, seed=6)
    rounded = run.data.inputs["target"].astype(PRECISIONS["fp16"].dtype).astype(np.float64)
    expected = kinematics.reference({"target": rounded}, run.data.sizes)["joint"]
    output = run.run(kinematics.configuration({**all_in(kinematics, "fp64"), "target_type": "fp16"}))["joint"]
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-14)


def test_joints_are_rounded_once_to_their_own_type(kinematics: Kernel) -> None:
    run = launcher(kinematics, {"n": 2003}, seed=7)
    wide = run.run(kinematics.configuration(all_in(kinematics, "fp64")))["joint"]
    narrow = run.run(kinematics.configuration({**all_in(kinematics, "fp64"), "joint_type": "fp16"}))["joint"]
    np.testing.assert_array_equal(narrow, wide.astype(np.float16).astype(np.float64))


@pytest.mark.parametrize("variable", ["position", "angle"])
def test_variables_have_their_own_types(kinematics: Kernel, variable: str) -> None:
    run = launcher(kinematics, seed=8)
    types = {**all_in(kinematics, "fp64"), f"{variable}_type": "fp32"}
    # A buffer of a wider type than its variable is no valid configuration, but shows what the variable alone does.
    error = nmae(run.run(kinematics.configuration(types))["joint"], run.data.references["joint"])
    assert 0.1 < error / PRECISIONS["fp32"].unit_roundoff < 2
