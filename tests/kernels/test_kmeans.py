import numpy as np
import pytest
from launching import all_in, launcher, mre

from mptune.kernel import Kernel
from mptune.precision import PRECISIONS, precision
from mptune.source.loading import load_kernel


@pytest.fixture(scope="module")
def kmeans() -> Kernel:
    return load_kernel("kmeans")


@pytest.mark.parametrize(
    "sizes", [{"n": 57}, {"n": 9, "features": 1, "clusters": 1}, {"n": 4100, "clusters": 3}], ids=str
)
def test_reference_against_a_loop(kmeans: Kernel, sizes: dict[str, int]) -> None:
    size = kmeans.resolve_sizes("smoke", sizes)
    inputs = kmeans.inputs(np.random.default_rng(1), size)
    points, centres = (inputs[name].astype(np.longdouble) for name in ("points", "centres"))
    expected = [min(sum((points[:, i] - centre) ** 2) for centre in centres) for i in range(size.n)]
    np.testing.assert_allclose(kmeans.reference(inputs, size)["distance"], np.float64(expected), rtol=1e-14)


def test_points_lie_in_clusters(kmeans: Kernel) -> None:
    size = kmeans.resolve_sizes("smoke")
    inputs = kmeans.inputs(np.random.default_rng(2), size)
    distance = kmeans.reference(inputs, size)["distance"]
    assert inputs["points"].std() == pytest.approx(1, abs=0.1)
    # Nearer to one centre than to the mean of all; and no point is a centre, so relative errors mean something.
    assert np.median(distance) < 0.3 * size.features
    assert distance.min() > 0.1
    # Every centre has points of its own.
    chosen = {int(np.argmin(((point - inputs["centres"]) ** 2).sum(axis=1))) for point in inputs["points"].T[:2000]}
    assert len(chosen) == size.clusters


def test_every_argument_has_its_own_type(kmeans: Kernel) -> None:
    """Points and centres are rounded once, to their own types; the distance loses nothing more."""
    run = launcher(kmeans, {"n": 509}, seed=4)
    types = {"point_type": "fp16", "centre_type": "fp32", "distance_type": "fp64"}
    rounded = {
        name: run.data.inputs[name].astype(precision(types[f"{name[:-1]}_type"]).dtype).astype(np.float64)
        for name in ("points", "centres")
    }
    expected = kmeans.reference(rounded, run.data.sizes)["distance"]
    for use_shared in (False, True):
        output = run.run(kmeans.configuration({**types, "use_shared": use_shared}))["distance"]
        np.testing.assert_allclose(output, expected, rtol=1e-14)


def test_sums_are_of_the_distances_own_type(kmeans: Kernel) -> None:
    run = launcher(kmeans, {"n": 509}, seed=5)
    types = {**all_in(kmeans, "fp64"), "distance_type": "bf16"}
    output = run.run(kmeans.configuration(types))["distance"]
    # Rounding the result alone would give at most one unit, a third of one on average.
    assert 0.5 < mre(output, run.data.references["distance"]) / PRECISIONS["bf16"].unit_roundoff < 2
