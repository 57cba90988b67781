"""Co-clustering: the application against Banerjee's algorithm in plain NumPy, and each kernel at awkward sizes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from application_runs import run_once
from numpy.typing import NDArray
from sklearn.metrics import normalized_mutual_info_score

from mptune.kernel import Application, Role, Sizes
from mptune.source.loading import load_tunable, loaded_modules
from tests.tiers import few

SMALL = {"years": 9, "cells": 331, "year_clusters": 3, "cell_clusters": 5, "parts": 4}
SIZES = [SMALL, {"years": 40, "cells": 2003, "year_clusters": 4, "cell_clusters": 8, "parts": 3}]


@functools.cache
def bbac() -> Application:
    found = load_tunable("bbac")
    assert isinstance(found, Application)
    return found


def module() -> ModuleType:
    bbac()
    return next(one for one in loaded_modules() if one.__name__.endswith("applications_bbac"))


def made(sizes: dict[str, int], seed: int = 5) -> tuple[Sizes, dict[str, Any]]:
    size = bbac().resolve_sizes("smoke", sizes)
    return size, bbac().inputs(np.random.default_rng(seed), size)


# -- Banerjee 2004, Algorithm 1, as it stands there ------------------------------------------------


def block_means(z: NDArray[Any], rows: NDArray[Any], columns: NDArray[Any], size: Sizes) -> NDArray[Any]:
    """Return the average of every block, that of everything for empty ones."""
    means = np.full((size.year_clusters, size.cell_clusters), z.mean())
    for r in np.unique(rows):
        for c in np.unique(columns):
            means[r, c] = z[np.ix_(rows == r, columns == c)].mean()
    return means


def divergence(z: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    return z * np.log(z / y) - z + y


def coclustered(given: dict[str, Any], size: Sizes, iterations: int) -> tuple[NDArray[Any], NDArray[Any], list[float]]:
    """Return the clusters of years and cells, and what was minimised after each iteration."""
    z = 1 + given["data"]
    rows, columns = given["year_cluster"], given["cell_cluster"]
    losses = []
    for _ in range(iterations):
        means = block_means(z, rows, columns, size)
        rows = np.array([[divergence(z[t], means[r, columns]).sum() for r in range(len(means))] for t in range(len(z))])
        rows = rows.argmin(axis=1)
        means = block_means(z, rows, columns, size)
        before = columns
        distances = np.stack([divergence(z, means[rows, c][:, None]).sum(axis=0) for c in range(size.cell_clusters)])
        columns = distances.argmin(axis=0)
        losses.append(loss(z, rows, columns, size))
        if np.array_equal(before, columns):
            break
    return rows, columns, losses


def loss(z: NDArray[Any], rows: NDArray[Any], columns: NDArray[Any], size: Sizes) -> float:
    return float(divergence(z, block_means(z, rows, columns, size)[np.ix_(rows, columns)]).sum())


def same_but_for_names(one: NDArray[Any], other: NDArray[Any]) -> bool:
    pairs = set(zip(one.tolist(), other.tolist(), strict=True))
    return len(pairs) == len(np.unique(one)) == len(np.unique(other))


# -- the application -----------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SIZES, ids=["small", "smoke"])
@pytest.mark.parametrize("seed", few([5, 6]))
def test_clusters_are_those_of_plain_numpy(sizes: dict[str, int], seed: int) -> None:
    size, given = made(sizes, seed)
    rows, columns, _ = coclustered(given, size, 25)
    assert len(np.unique(columns)) > 2
    both = bbac().changed(outputs=["cell_cluster", "year_cluster"])
    found, launched, _ = run_once(both, {}, given, size)
    assert same_but_for_names(found["cell_cluster"], columns)
    assert same_but_for_names(found["year_cluster"], rows)
    assert {one.kernel for one in launched} == {"statistics", "year_distances", "update"}


def test_what_is_minimised_never_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    size, given = made(SMALL)
    both = bbac().changed(outputs=["cell_cluster", "year_cluster"])
    z = 1 + given["data"]
    losses = [loss(z, given["year_cluster"], given["cell_cluster"], size)]
    for iterations in range(1, 13):
        monkeypatch.setattr(module(), "ITERATIONS", iterations)
        found, _, _ = run_once(both, {}, given, size)
        losses.append(loss(z, found["year_cluster"], found["cell_cluster"], size))
    assert np.all(np.diff(losses) <= 1e-12 * losses[0])
    assert losses[-1] < 0.5 * losses[0]
    _, _, theirs = coclustered(given, size, 12)
    assert losses[1 : 1 + len(theirs)] == pytest.approx(theirs, rel=1e-10)


def test_it_stops_when_no_cell_moves() -> None:
    size, given = made(SMALL)
    _, launched, _ = run_once(bbac(), {}, given, size)
    _, _, losses = coclustered(given, size, 25)
    assert {count for count, _ in launched.values()} == {len(losses)}
    assert len(losses) < 25


# -- each kernel, in all block sizes and runs ------------------------------------------------------

AWKWARD = [
    {"years": 1, "cells": 1, "year_clusters": 1, "cell_clusters": 1, "parts": 1},
    {"years": 2, "cells": 31, "year_clusters": 2, "cell_clusters": 3, "parts": 40},
    {"years": 3, "cells": 1031, "year_clusters": 3, "cell_clusters": 7, "parts": 3},
]


def expected(kernel: str, given: dict[str, Any], size: Sizes) -> dict[str, NDArray[Any]]:
    data, own = given["data"], given["cell_cluster"]
    if kernel == "statistics":
        members = own[:, None] == np.arange(size.cell_clusters)
        return {"sums": data @ members, "counts": members.sum(axis=0)}
    if kernel == "year_distances":
        return {"distances": np.einsum("tx,rx->tr", data, given["year_centres"][:, own])}
    centres = given["cell_centres"]
    nearest = (centres[0] + data.T @ centres[1:]).argmin(axis=1)
    return {"cell_cluster": nearest, "changed": np.array([int(np.any(nearest != own))])}


LAUNCHES = {
    "statistics": lambda run, size: run.statistics(
        data=run.data, cluster=run.cell_cluster, sums=run.sums, counts=run.counts
    ),
    "year_distances": lambda run, size: run.year_distances(
        data=run.data, cluster=run.cell_cluster, centres=run.year_centres, distances=run.distances
    ),
    "update": lambda run, size: (
        run.fill(run.changed, 0),
        run.update(data=run.data, centres=run.cell_centres, cluster=run.cell_cluster, changed=run.changed),
    ),
}
OUTPUTS = {"statistics": ["sums", "counts"], "year_distances": ["distances"], "update": ["cell_cluster", "changed"]}


def alone(kernel: str, given: Mapping[str, Any]) -> Application:
    """Return the application of one launch, in which all buffers that are given begin with that."""
    buffers = [
        dataclasses.replace(each, role=Role.INOUT) if each.name in given and not each.is_input else each
        for each in bbac().arguments
    ]
    return bbac().changed(buffers=buffers, steps=LAUNCHES[kernel], outputs=OUTPUTS[kernel], metric="MAE")


@pytest.mark.parametrize("kernel", few(reversed(LAUNCHES)))
@pytest.mark.parametrize("sizes", few(AWKWARD), ids=lambda sizes: f"{sizes['cells']} cells")
def test_a_kernel_is_right_at_any_size_with_any_block(kernel: str, sizes: dict[str, int]) -> None:
    size, given = made(sizes)
    rng = np.random.default_rng(7)
    given["year_centres"] = rng.normal(size=(size.year_clusters, size.cell_clusters))
    given["cell_centres"] = rng.normal(size=(size.years + 1, size.cell_clusters))
    one = alone(kernel, given)
    space = one.search_space(size).restrict(one.baseline_values())
    wanted = expected(kernel, given, size)
    tried = {
        (c[f"{kernel}.block_size"], c[f"{kernel}.run"]): c
        for c in space.configurations(space.covering(np.random.default_rng(3)))
    }
    assert {block for block, _ in tried} >= {32, 64, 128, 256, 512}
    for configuration in tried.values():
        found, _, _ = run_once(one, configuration, given, size)
        for name, values in found.items():
            # Of sums and distances there is one for each part of the map.
            total = values.sum(axis=0) if name in ("sums", "counts", "distances") else values
            np.testing.assert_allclose(total, wanted[name], rtol=1e-12, atol=1e-12, err_msg=f"{name} {configuration}")


# -- metric, inputs and picture --------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_nmi_is_that_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = rng.integers(5, size=400)
    other = np.where(rng.random(400) < seed / 4, rng.integers(7, size=400), one)
    found = bbac().metric(one, other)
    assert found == pytest.approx(1 - normalized_mutual_info_score(one, other), abs=1e-12)
    assert found == pytest.approx(bbac().metric(other, one), abs=1e-12)
