"""kmeans' distances by matrix units, which the host simulates, against long double of what is multiplied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from launching import Launcher, is_valid, launcher
from matrix_units import WAYS as EVERY_WAY
from matrix_units import simulated, stored, to_tf32
from numpy.typing import NDArray

from mptune.kernel import Argument, Kernel
from mptune.precision import PRECISIONS
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.space.configuration import Configuration
from tests.support.simulator.compiler import static_shared_bytes
from tests.tiers import few

WAYS = [
    pytest.param(unit, how, factor, total, id=f"{unit}-{how}-{factor}")
    for unit, ways in EVERY_WAY.items()
    for how, factor, total in ways
    if total not in ("fp16", "bf16x3")
]
#: One of each; the rest of a block and of 16 x 16; features of several instructions and a part of one.
SIZES = ({"n": 1, "features": 1, "clusters": 1}, {"n": 301}, {"n": 65, "features": 37, "clusters": 33})
#: What is farther than any distance.
FAR = float(np.float32(1e38))


@pytest.fixture(scope="module")
def kmeans() -> Kernel:
    return load_kernel("kmeans")


@dataclass(frozen=True)
class Given(Launcher):
    """Has other points or centres than were drawn."""

    given: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def initial(self, argument: Argument, configuration: Configuration) -> NDArray[Any]:
        if argument.name not in self.given:
            return super().initial(argument, configuration)
        kept = self.kernel.dtype_of(argument, configuration)
        return self.given[argument.name].astype(PRECISIONS[str(configuration["point_type"])].dtype).view(kept)


def by_units(kernel: Kernel, how: str, factor: str, total: str, **values: Any) -> Configuration:
    types = {"point_type": factor, "centre_type": factor, "distance_type": total}
    launch = {"block_size": 64, "points_per_thread": 2, "use_shared": False}
    return kernel.configuration({**launch, **types, "math": how, **values})


def simulated_with(run: Launcher, **given: NDArray[np.float64]) -> Given:
    return Given(run.kernel, run.data, run.options, run.backend, given)


def bounds(
    points: NDArray[np.float64], centres: NDArray[np.float64], configuration: Configuration
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return between which two numbers each distance has to be: exact but for the roundings of sums and the end."""
    how, factor, total = (str(configuration[name]) for name in ("math", "point_type", "distance_type"))
    x, c = (
        (to_tf32(values) if how == "tf32" else stored(values, factor)).astype(np.longdouble)
        for values in (points.T, centres)
    )
    exact = ((x[:, None, :] - c) ** 2).sum(axis=2)
    # Each square adds one rounding to a sum, and so does each product; then come three operations.
    size = ((np.abs(x)[:, None, :] + np.abs(c)) ** 2).sum(axis=2)
    error = PRECISIONS[total].unit_roundoff * (x.shape[1] + 3) * size * (1 + 2.0**-10)
    return np.maximum(exact - error, 0).min(axis=1), (exact + error).min(axis=1)


def check(run: Launcher, configuration: Configuration, points: NDArray[Any], centres: NDArray[Any]) -> None:
    least, most = bounds(points, centres, configuration)
    output = simulated_with(run, points=points, centres=centres).run(configuration)["distance"]
    wrong = ~((least <= output) & (output <= most))
    assert not wrong.any(), f"{configuration}: {np.argwhere(wrong)[:5]}"


@pytest.mark.parametrize("sizes", few(SIZES[::-1], 1, 2), ids=str)
@pytest.mark.parametrize(("unit", "how", "factor", "total"), few(WAYS, 3, 6))
def test_every_size(kmeans: Kernel, unit: str, how: str, factor: str, total: str, sizes: dict[str, int]) -> None:
    run = simulated(kmeans, unit, sizes, 31)
    configuration = by_units(kmeans, how, factor, total)
    assert is_valid(kmeans, configuration, run.data.sizes)
    check(run, configuration, run.data.inputs["points"], run.data.inputs["centres"])


@pytest.mark.parametrize(("unit", "how", "factor", "total"), few(WAYS, 2, 4))
def test_far_from_the_origin_small_distances_cancel_and_none_is_negative(
    kmeans: Kernel, unit: str, how: str, factor: str, total: str
) -> None:
    """Every second point is a centre, and every other one next to one."""
    run = simulated(kmeans, unit, SIZES[1], 32)
    rng = np.random.default_rng(33)
    centres = rng.normal(100.0, 1.0, run.data.inputs["centres"].shape)
    points = centres[rng.integers(len(centres), size=run.data.sizes.n)].T.copy()
    points[:, 1::2] += rng.normal(0.0, 0.3, points[:, 1::2].shape)
    check(run, by_units(kmeans, how, factor, total), points, centres)


@pytest.mark.parametrize(("unit", "how", "factor", "total"), WAYS[::3])
def test_what_is_no_number_or_infinite_is_as_where_threads_multiply(
    kmeans: Kernel, unit: str, how: str, factor: str, total: str
) -> None:
    """A point of NaN has no distance, an infinite one is far, and neither changes others; such a centre is no one's."""
    plain = simulated(kmeans, unit, SIZES[1], 34)
    configuration = by_units(kmeans, how, factor, total)
    points, centres = (plain.data.inputs[name].copy() for name in ("points", "centres"))
    points[3, 7], points[0, 100], points[14, 300] = np.nan, np.inf, -np.inf
    points[:2, 40] = np.inf, -np.inf
    centres[11, 2], centres[38, 3] = np.inf, -np.inf
    run = simulated_with(plain, points=points, centres=centres)
    output, threads = (
        run.run(c)["distance"] for c in (configuration, kmeans.configuration({**configuration, "math": "simt"}))
    )
    apart = [7, 40, 100, 300]
    np.testing.assert_array_equal(output[apart], [np.nan, FAR, FAR, FAR])
    np.testing.assert_array_equal(threads[apart], output[apart])
    # Threads forget with a centre of NaN those before it, of which here are none.
    centres[0, 5] = np.nan
    rest = np.setdiff1d(np.arange(len(output)), apart)
    least, most = bounds(points[:, rest], np.delete(centres, [0, 11, 38], axis=0), configuration)
    for c in (configuration, kmeans.configuration({**configuration, "math": "simt"})):
        output = simulated_with(plain, points=points, centres=centres).run(c)["distance"][rest]
        assert (how == "tf32" and c["math"] == "simt") or ((least <= output) & (output <= most)).all()


@pytest.mark.parametrize(
    ("block_size", "points_per_thread", "n"), [(64, 1, 129), (128, 4, 512), (256, 1, 255), (512, 16, 8193)]
)
def test_every_point_is_somebody_s(kmeans: Kernel, block_size: int, points_per_thread: int, n: int) -> None:
    run = simulated(kmeans, "mma.sync", {"n": n, "features": 2, "clusters": 3}, n)
    shape = {"block_size": block_size, "points_per_thread": points_per_thread}
    configuration = by_units(kmeans, "mma", "fp16", "fp32", **shape)
    check(run, configuration, run.data.inputs["points"], run.data.inputs["centres"])


def test_the_error_of_tf32_is_that_of_its_digits(kmeans: Kernel) -> None:
    """So it is told apart from fp32 in signatures."""
    run = simulated(kmeans, "mma.sync", SIZES[1], 35)
    reference = run.data.references["distance"]
    tf32 = by_units(kmeans, "tf32", "fp32", "fp32")
    error = np.abs(run.run(tf32)["distance"] / reference - 1).mean()
    assert 2.0**-14 < error < 2.0**-11
    threads = kmeans.configuration({**tf32, "math": "simt"})
    assert np.abs(launcher(kmeans, SIZES[1], seed=35).run(threads)["distance"] / reference - 1).mean() < 2.0**-20
    assert kmeans.signature_of(tf32) != kmeans.signature_of(threads)


@pytest.mark.parametrize(("factor", "block_size"), [("fp16", 1024), ("fp32", 512), ("fp64", 256)])
def test_the_constraint_counts_shared_memory(kmeans: Kernel, factor: str, block_size: int) -> None:
    """As the compiler of the host does: it knows how large the static arrays of the source are."""
    how, total = "tf32" if factor == "fp32" else "mma", "fp64" if factor == "fp64" else "fp32"
    run = simulated(kmeans, "mma.sync", {"n": 5}, 36)
    configuration = by_units(kmeans, how, factor, total, block_size=block_size)
    binary = run.backend.compiler.compile(render(kmeans, configuration, run.data.sizes), "kmeans", run.options)
    word, number = {"fp16": 2, "fp32": 4, "fp64": 8}[factor], 8 if factor == "fp64" else 4
    expected = block_size * max(16 * word, 10 * number) + 48 * (-(-15 * word // 128) * 128 + number)
    assert static_shared_bytes(binary.image, "kmeans") == expected <= 48 * 1024
