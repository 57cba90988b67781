import numpy as np
import pytest
from launching import all_in, launcher, mre

from mptune.kernel import Kernel
from mptune.precision import PRECISIONS, precision
from mptune.registry import load_kernel
from tests.tiers import few


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


@pytest.mark.parametrize("name", few(["bf16", "fp32", "fp16"]))
def test_narrow_types_err_by_their_unit_roundoff(kmeans: Kernel, name: str) -> None:
    run = launcher(kmeans, {"n": 2003}, seed=3)
    output = run.run(kmeans.configuration({**all_in(kmeans, name), "points_per_thread": 16}))["distance"]
    # Fifteen rounded points, centres, differences and sums; most of it cancels in the mean of fifteen.
    assert 0.5 < mre(output, run.data.references["distance"]) / PRECISIONS[name].unit_roundoff < 2


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


@pytest.mark.parametrize("use_shared", few([True, False]))
@pytest.mark.parametrize(
    "sizes",
    [
        {"n": 1},
        {"n": 7, "features": 1, "clusters": 1},
        {"n": 31, "features": 3, "clusters": 41},
        {"n": 64},
        {"n": 1031, "features": 17, "clusters": 2},
    ],
    ids=str,
)
def test_every_size(kmeans: Kernel, sizes: dict[str, int], use_shared: bool) -> None:
    run = launcher(kmeans, sizes, seed=7)
    values = {**all_in(kmeans, "fp64"), "points_per_thread": 16, "use_shared": use_shared}
    output = run.run(kmeans.configuration(values))["distance"]
    np.testing.assert_allclose(output, run.data.references["distance"], rtol=1e-14)


def test_every_size_of_a_grid_is_covered_once_or_twice(kmeans: Kernel) -> None:
    """A block moved back writes what its neighbour wrote: the sizes around a multiple of the block."""
    for n in (2047, 2048, 2049):
        run = launcher(kmeans, {"n": n}, seed=n)
        output = run.run(kmeans.configuration({**all_in(kmeans, "fp64"), "points_per_thread": 4, "block_size": 64}))[
            "distance"
        ]
        np.testing.assert_allclose(output, run.data.references["distance"], rtol=1e-14)
