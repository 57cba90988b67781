"""A synthetic recorded space without accuracy: a smooth time with interactions, constraints and failing launches."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from searches import drive

from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import BooleanParameter, CategoricalParameter, OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make

SPACE = SearchSpace(
    [
        OrdinalParameter("block_x", [8, 16, 32, 64, 128, 256]),
        OrdinalParameter("block_y", [1, 2, 4, 8, 16]),
        OrdinalParameter("tile_x", range(1, 9)),
        OrdinalParameter("tile_y", range(1, 9)),
        OrdinalParameter("unroll", [1, 2, 4, 8]),
        CategoricalParameter("layout", ["row", "column", "blocked"]),
        BooleanParameter("padded"),
    ],
    ["32 <= block_x * block_y <= 1024", "unroll <= tile_x * tile_y", "layout != 'blocked' or tile_x % 2 == 0"],
)


def evaluate(c: Configuration) -> Trial:
    """Return the trial of a configuration: the same every time."""
    x, y, u, v, unroll = (float(c[name]) for name in ("block_x", "block_y", "tile_x", "tile_y", "unroll"))  # type: ignore[arg-type]
    if x * y * u * v > 16384:
        return Trial(c, Status.LAUNCH_ERROR, "too many registers")
    occupancy = 1.0 + 0.08 * (math.log2(x * y) - 7.0) ** 2
    reuse = 1.0 + 0.06 * ((u - 5.0) ** 2 + (v - 3.0) ** 2) / 4.0 + 0.3 / (u * v)
    loads = 1.0 + {"row": 0.2, "column": 0.5, "blocked": 0.0}[str(c["layout"])] + 0.05 * abs(math.log2(x) - 5.0)
    loop = 1.0 + 0.1 * abs(math.log2(unroll) - 2.0) - (0.1 if c["padded"] else 0.0)
    return Trial(c, Status.OK, measurement=Measurement({"time_ms": occupancy * reuse * loads * loop}))


def search(strategy: str, budget: int, seed: int, batch: int = 1, **options: object) -> list[Trial]:
    """Return the trials of one search, in order."""
    return drive(make(strategy, SPACE, Objective(), seed=seed, options=options), evaluate, budget, batch)


@cache
def mean_best(strategy: str, budget: int, seeds: range, batch: int = 1, **options: object) -> float:
    """Return the best time of a search, the mean over seeds."""
    times = [[trial.time_ms for trial in search(strategy, budget, seed, batch, **options)] for seed in seeds]
    return float(np.mean([np.nanmin(found) for found in times]))
