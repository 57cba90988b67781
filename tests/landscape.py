"""A small constrained space with a rugged landscape on it, and what an independent observer says of its neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from searches import drive

from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import CategoricalParameter, OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.base import Strategy

ORDINALS = {"a": (1, 2, 4, 8, 16), "b": (1, 2, 4, 8, 16), "c": (0, 1, 2, 3, 4, 5), "d": (0, 1, 2)}
LAYOUTS = ("row", "column", "tiled")
SPACE = SearchSpace(
    [*(OrdinalParameter(name, values) for name, values in ORDINALS.items()), CategoricalParameter("layout", LAYOUTS)],
    ["a * b <= 64", "c != 2 or d > 0"],
)
EVERY = SPACE.configurations(range(SPACE.size))
VALUES: dict[str, tuple[object, ...]] = {**ORDINALS, "layout": LAYOUTS}
#: Of each of these configurations, the place of each value.
PLACES = np.array([[values.index(c[name]) for name, values in VALUES.items()] for c in EVERY])


def ruggedness(c: Configuration) -> float:
    """Return a number from 0 to 1 that looks random and is the same everywhere."""
    return math.modf(math.sin(sum(ord(x) * (i + 1.0) for i, x in enumerate(str(c)))) * 1e4)[0] ** 2


def time_ms(c: Configuration) -> float:
    """Return a valley at a = 8, b = 4, c = 4, d = 1, tiled, under noise-like bumps."""
    a, b, third, d = (float(c[name]) for name in ORDINALS)  # type: ignore[arg-type]
    far = abs(math.log2(a) - 3.0) + abs(math.log2(b) - 2.0) + 0.5 * abs(third - 4.0) + abs(d - 1.0)
    return 1.0 + far + 0.8 * LAYOUTS[::-1].index(str(c["layout"])) + 2.5 * ruggedness(c)


def evaluate(c: Configuration) -> Trial:
    """Return the trial of a configuration; one in seven fails."""
    if int(1e6 * ruggedness(c)) % 7 == 0:
        return Trial(c, Status.LAUNCH_ERROR, "too many resources")
    return Trial(c, Status.OK, measurement=Measurement({"time_ms": time_ms(c)}))


@cache
def score(c: Configuration) -> float:
    return Objective().score(evaluate(c))


def neighbours(c: Configuration, kind: str) -> list[Configuration]:
    """Return the valid configurations that differ in one parameter, by one step where kind is adjacent."""
    steps = np.abs(PLACES - [values.index(c[name]) for name, values in VALUES.items()])
    is_near = (steps <= 1) | (kind == "hamming") | (np.array(list(VALUES)) == "layout")
    return [EVERY[i] for i in np.flatnonzero(((steps > 0).sum(axis=1) == 1) & is_near.all(axis=1))]


def is_local_optimum(c: Configuration, kind: str) -> bool:
    return all(score(other) <= score(c) for other in neighbours(c, kind))


def run(strategy: Strategy, budget: int, batch: int = 1) -> list[Configuration]:
    """Return what a strategy proposed, in order."""
    return [trial.configuration for trial in drive(strategy, evaluate, budget, batch)]


def expected_random_ms(budget: int) -> float:
    """Return the best time random search finds, in the mean over all its orders in which anything runs."""
    times = sorted(1.0 / score(c) for c in EVERY if score(c) > 0)
    chances = [math.comb(len(EVERY) - 1 - k, budget - 1) / math.comb(len(EVERY), budget) for k in range(len(times))]
    return float(np.average(times, weights=chances))


def best_ms(name: str, budget: int, seeds: Sequence[int], batch: int = 1, **options: object) -> float:
    """Return the best time found, in the mean over seeds."""
    strategies = [make(name, SPACE, Objective(), seed=seed, options=options) for seed in seeds]
    return float(np.mean([1.0 / max(map(score, run(strategy, budget, batch))) for strategy in strategies]))
