"""bbac: Bregman block average co-clustering with I-divergence (Banerjee 2004, Algorithm 1 with basis C2).

Years and cells of a map are put into clusters at the same time, so that a block, the data of a cluster of years and a
cluster of cells, differs as little as possible from its average: what Heldens 2026, Sec. V-I, uses to find where and
when spring began early in the USA. In every iteration three kernels pass over the matrix: ``statistics`` sums blocks,
``year_distances`` tells how far the years are from the averages, and ``update`` finds the nearest cluster of each cell.
What is small, the averages and which cluster a year is nearest to, is left to NumPy.

The matrix is prepared so that narrow types have digits left where they matter. Its values z become y = z / mean - 1,
the deviation from the mean, in the type ``data_type``. The I-divergence of 1 + y from the average 1 + m of a block, but
for what is the same for all averages, is then ``m - log(1 + m) - y log(1 + m)``, in which nothing large cancels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune import Application, Buffer, In, InOut, Kernel, OrdinalParameter, Out, PrecisionParameter, Scratch
from mptune.kernel import Sizes

ITERATIONS = 25
TYPES = ("fp64", "fp32", "fp16", "bf16")
#: A block of one thread suits a processor, on which a thread with a long run is a loop that vectorises.
BLOCKS = [1, 32, 64, 128, 256, 512]
RUNS = [1, 2, 4, 8, 16, 32]

statistics = Kernel(
    name="statistics",
    parameters=[
        OrdinalParameter("block_size", BLOCKS),
        OrdinalParameter("run", RUNS),
        PrecisionParameter("data_type", TYPES),
        PrecisionParameter("sum_type", TYPES),
    ],
    # Of shared memory in any types: which they are, only a launch knows. Of each thread it holds sums, and counts.
    constraints=["block_size == 1 or block_size * cell_clusters * (8 + 4) <= 48 * 1024"],
    arguments=[
        In("data", ("years", "cells"), precision="data_type"),
        In("cluster", "cells", dtype="uint8"),
        Out("sums", ("parts", "years", "cell_clusters"), precision="sum_type"),
        Out("counts", ("parts", "cell_clusters"), dtype="int32"),
    ],
    grid=["years", "parts"],
    block=["block_size"],
)
year_distances = Kernel(
    name="year_distances",
    parameters=[
        OrdinalParameter("block_size", BLOCKS),
        OrdinalParameter("run", RUNS),
        PrecisionParameter("data_type", TYPES),
        PrecisionParameter("centre_type", TYPES),
        PrecisionParameter("distance_type", TYPES),
    ],
    constraints=["block_size == 1 or (block_size + cell_clusters) * year_clusters * 8 <= 48 * 1024"],
    arguments=[
        In("data", ("years", "cells"), precision="data_type"),
        In("cluster", "cells", dtype="uint8"),
        In("centres", ("year_clusters", "cell_clusters"), precision="centre_type"),
        Out("distances", ("parts", "years", "year_clusters"), precision="distance_type"),
    ],
    grid=["years", "parts"],
    block=["block_size"],
)
update = Kernel(
    name="update",
    parameters=[
        OrdinalParameter("block_size", BLOCKS[1:]),
        OrdinalParameter("run", RUNS),
        PrecisionParameter("data_type", TYPES),
        PrecisionParameter("centre_type", TYPES),
        # Of distances of cells, which never leave a thread.
        PrecisionParameter("distance_type", TYPES),
    ],
    arguments=[
        In("data", ("years", "cells"), precision="data_type"),
        In("centres", ("years + 1", "cell_clusters"), precision="centre_type"),
        InOut("cluster", "cells", dtype="uint8"),
        InOut("changed", 1, dtype="int32"),
    ],
    grid=["ceildiv(cells, min(block_size * min(run, cells), cells))"],
    block=["block_size"],
)


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """Onset of spring over the years on a map, as the deviation from its mean, and clusters to begin with.

    Days of the year: later towards the north and in the mountains (smooth in space), earlier from year to year and
    more so in some regions, in warm years and cold ones (trends in time), with the noise of single cells.

    Clusters of cells begin as what is nearest to random places on the map. Were they drawn cell by cell, all averages
    would be the same but for noise at first, and the rounding of the first iterations would decide which of many
    clusterings, all about as good, is found.
    """
    x, y = coordinates(size.cells)
    # A fresh landscape for each draw: two dozen waves, the long ones high.
    mountains, warming = np.zeros(size.cells), np.zeros(size.cells)
    for wave in range(12):
        for field in (mountains, warming):
            kx, ky = rng.normal(0.0, 1.5 + 0.5 * wave, 2)
            field += np.cos(2 * np.pi * (kx * x + ky * y) + rng.uniform(0, 2 * np.pi)) / (2 + wave)
    climate = 95.0 + 45.0 * (y - 0.5) + 14.0 * mountains
    pace = 0.15 + 0.12 * warming  # days a year
    spells = rng.choice([-9.0, -3.0, 3.0, 9.0], size.years) + rng.normal(0.0, 1.0, size.years)
    reach = 1.0 + 0.4 * (0.5 - y)  # warm spells are felt more in the south
    data = np.empty((size.years, size.cells))
    for year, row in enumerate(data):
        rng.standard_normal(out=row)
        row *= 4.0
        row += climate
        row -= pace * (year - (size.years - 1) / 2)
        row += spells[year] * reach
        np.maximum(row, 1.0, out=row)
    mean = data.mean()
    data /= mean
    data -= 1.0
    return {
        "data": data,
        "cell_cluster": regions(rng, x, y, size.cell_clusters),
        "year_cluster": rng.integers(size.year_clusters, size=size.years, dtype=np.uint8),
    }


def regions(rng: np.random.Generator, x: NDArray[np.float64], y: NDArray[np.float64], count: int) -> NDArray[np.uint8]:
    """Return which of some random places on the map each cell is nearest to."""
    nearest, least = np.zeros(x.size, np.uint8), np.full(x.size, np.inf)
    for place in range(count):
        px, py = rng.random(2)
        distance = (x - px) ** 2 + (y - py) ** 2
        nearest[distance < least] = place
        np.minimum(least, distance, out=least)
    return nearest


def coordinates(cells: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return where cells are on a map 1.6 times as wide as high, from 0 to 1, shapes ``(cells,)``."""
    width = map_width(cells)
    index = np.arange(cells)
    return (index % width) / width, (index // width) / -(-cells // width)


def map_width(cells: int) -> int:
    """Return how many cells a row of the map has; the last row may have fewer."""
    return max(1, round(math.sqrt(1.6 * cells)))


def averages(
    sums: NDArray[np.float64], counts: NDArray[np.int64], year_cluster: NDArray[np.uint8], year_clusters: int
) -> NDArray[np.float64]:
    """Return the average deviation of each block, 0 for one that is empty, shape ``(year_clusters, cell_clusters)``.

    Args:
        sums: of every year over each cluster of cells, shape ``(years, cell_clusters)``.
        counts: cells of each cluster, shape ``(cell_clusters,)``.
        year_cluster: of each year, shape ``(years,)``.
        year_clusters: how many there are.
    """
    members = year_cluster == np.arange(year_clusters)[:, None]
    elements = members.sum(axis=1)[:, None] * counts
    # Sums of narrow types can be off by any amount. No average of days is below 0, where logarithms end.
    found: NDArray[np.float64] = np.maximum(members @ sums / np.maximum(elements, 1), -0.99)
    return found


def steps(run: Any, size: Sizes) -> None:
    """Alternate between years and cells, until no cell moves or for 25 iterations as in Heldens 2026."""
    year_cluster = run.read(run.year_cluster)
    for _ in range(ITERATIONS):
        run.statistics(data=run.data, cluster=run.cell_cluster, sums=run.sums, counts=run.counts)
        sums, counts = run.read(run.sums).sum(axis=0), run.read(run.counts).sum(axis=0)

        means = averages(sums, counts, year_cluster, size.year_clusters)
        run.write(run.year_centres, -np.log1p(means))
        run.year_distances(data=run.data, cluster=run.cell_cluster, centres=run.year_centres, distances=run.distances)
        constant = (means - np.log1p(means)) @ counts
        year_cluster = (constant + run.read(run.distances).sum(axis=0)).argmin(axis=1).astype(np.uint8)

        means = averages(sums, counts, year_cluster, size.year_clusters)[year_cluster]
        constant = (means - np.log1p(means)).sum(axis=0)
        run.write(run.cell_centres, np.vstack([constant, -np.log1p(means)]))
        run.fill(run.changed, 0)
        run.update(data=run.data, centres=run.cell_centres, cluster=run.cell_cluster, changed=run.changed)
        if run.read(run.changed)[0] == 0:
            break
    run.write(run.year_cluster, year_cluster)


def nmi_error(output: NDArray[Any], reference: NDArray[Any]) -> float:
    """Return 1 - the normalised mutual information of two clusterings, 0 for the same but for the names of clusters.

    Normalised by the arithmetic mean of both entropies, as scikit-learn does. What is missing to 1 is what of each
    clustering the other one does not tell, ``(H(A|B) + H(B|A)) / (H(A) + H(B))``, which is exactly 0 for the same.
    """
    (first, one), (second, other) = (np.unique(x.ravel(), return_inverse=True) for x in (output, reference))
    joint = np.bincount(one * len(second) + other, minlength=len(first) * len(second)).reshape(len(first), len(second))
    totals = joint.sum(axis=1, keepdims=True), joint.sum(axis=0, keepdims=True)
    seen = joint > 0
    untold = sum(np.sum(joint[seen] * np.log((total / np.maximum(joint, 1))[seen])) for total in totals)
    entropies = sum(np.sum(total * np.log(output.size / total)) for total in totals)
    return 0.0 if entropies == 0 else float(untold / entropies)


nmi_error.__name__ = "1 - NMI"
nmi_error.version = "1"  # type: ignore[attr-defined]


def picture(outputs: Mapping[str, NDArray[Any]], inputs: Mapping[str, Any], size: Sizes) -> Any:
    """Draw the map of clusters of cells, as Heldens 2026 does in Fig. 14.

    A cluster's colour says how late spring is in it, so that maps of two runs, in which clusters may have other
    numbers, can be compared.
    """
    from mptune.show import map_of

    cluster = np.asarray(outputs["cell_cluster"], dtype=np.int64)
    lateness = np.asarray(inputs["data"]).mean(axis=0)
    counts = np.bincount(cluster, minlength=size.cell_clusters)
    means = np.bincount(cluster, lateness, minlength=size.cell_clusters) / np.maximum(counts, 1)
    rank = np.argsort(np.argsort(np.where(counts > 0, means, np.inf)))
    width = map_width(size.cells)
    drawn = np.full(-(-size.cells // width) * width, np.nan)
    drawn[: size.cells] = rank[cluster]
    label = "clusters of cells, from early to late spring"
    return map_of(drawn.reshape(-1, width), label, scheme="viridis", domain=(0, size.cell_clusters - 1))


application = Application(
    name="bbac",
    description="co-clustering of years and cells of a map by the onset of spring, 25 iterations of three kernels",
    kernels=[statistics, year_distances, update],
    buffers=[
        Buffer("data", ("years", "cells"), precision="data_type"),
        InOut("cell_cluster", "cells", dtype="uint8"),
        InOut("year_cluster", "years", dtype="uint8"),
        Scratch("sums", ("parts", "years", "cell_clusters"), precision="sum_type"),
        Scratch("counts", ("parts", "cell_clusters"), dtype="int32"),
        Scratch("year_centres", ("year_clusters", "cell_clusters"), precision="centre_type"),
        Scratch("distances", ("parts", "years", "year_clusters"), precision="distance_type"),
        Scratch("cell_centres", ("years + 1", "cell_clusters"), precision="centre_type"),
        Scratch("changed", 1, dtype="int32"),
    ],
    # A part of the map is a block's, in the kernels that add up.
    sizes={
        "smoke": {"years": 40, "cells": 2_003, "year_clusters": 4, "cell_clusters": 8, "parts": 3},
        "default": {"years": 40, "cells": 50_021, "year_clusters": 4, "cell_clusters": 8, "parts": 16},
        "paper": {"years": 40, "cells": 10_110_912, "year_clusters": 4, "cell_clusters": 8, "parts": 128},
    },
    inputs=inputs,
    steps=steps,
    outputs=["cell_cluster"],
    metric=nmi_error,
)
