"""A synthetic mixed-precision kernel: time from bytes and optimisations, error from roundoffs.

The shape is that of the recorded ones: time falls with the bytes moved and with well chosen block, tile and
vector sizes (which depend on the types), error is a sum over variables of condition times unit roundoff.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from searches import drive

from mptune.precision import precision
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter, PolicyParameter, PrecisionParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make

PRECISIONS = ("x_type", "y_type", "w_type", "sum_type")
SIGNATURE = (*PRECISIONS, "policy")
#: Condition numbers of the variables: the sum is the critical one, the weights hardly matter.
CONDITION = {"x_type": 1.0, "y_type": 0.4, "w_type": 0.01, "sum_type": 30.0}
POLICY_ERROR = {"accurate": 0.0, "fast": 3e-7, "approx": 2e-4}


@dataclass(frozen=True)
class Kernel:
    """One such kernel and a threshold; ``types`` are the precisions of every variable."""

    threshold: float | None
    types: tuple[str, ...] = ("fp64", "fp32", "fp16")
    fail: bool = True
    shared_limit: float = 4096

    @cached_property
    def space(self) -> SearchSpace:
        return SearchSpace(
            [
                *(PrecisionParameter(name, self.types) for name in PRECISIONS),
                PolicyParameter("policy"),
                OrdinalParameter("block", [32, 64, 128, 256, 512]),
                OrdinalParameter("tile", [1, 2, 4, 8]),
                OrdinalParameter("vector", [1, 2, 4]),
            ],
            ["block * tile <= 1024"],
        )

    @property
    def objective(self) -> Objective:
        return Objective(threshold=self.threshold)

    def error(self, c: Configuration) -> float:
        rounding = sum(CONDITION[name] * precision(str(c[name])).unit_roundoff for name in PRECISIONS)
        return rounding + POLICY_ERROR[str(c["policy"])]

    def time_ms(self, c: Configuration) -> float:
        size = {name: precision(str(c[name])).size_bytes for name in PRECISIONS}
        block, tile, vector = (float(c[name]) for name in ("block", "tile", "vector"))  # type: ignore[arg-type]
        traffic = size["x_type"] + size["y_type"] + 0.2 * size["w_type"]
        wide_loads = 1.0 + 0.15 * abs(math.log2(vector * size["x_type"] / 16.0))
        occupancy = 1.0 + 0.05 * (math.log2(block * tile * size["sum_type"]) - 10.0) ** 2
        reuse = 1.0 + 0.4 / tile
        mixing = 0.1 * len({c[name] for name in PRECISIONS})
        arithmetic = 0.3 * size["sum_type"] * {"accurate": 1.5, "fast": 1.0, "approx": 0.9}[str(c["policy"])]
        return traffic * wide_loads * occupancy * reuse + arithmetic + mixing

    def evaluate(self, c: Configuration) -> Trial:
        shared = float(c["block"]) * float(c["tile"]) * precision(str(c["sum_type"])).size_bytes  # type: ignore[arg-type]
        if self.fail and shared > self.shared_limit:
            return Trial(c, Status.LAUNCH_ERROR, "too much shared memory")
        error = self.error(c)
        exceeded = self.threshold is not None and error > self.threshold
        metrics = {"time_ms": self.time_ms(c), "error": error, "log10_error": math.log10(error)}
        return Trial(c, Status.INACCURATE if exceeded else Status.OK, measurement=Measurement(metrics))

    @cached_property
    def optimum(self) -> float:
        trials = [self.evaluate(c) for c in self.space.configurations(range(self.space.size))]
        best = self.objective.best(trials)
        assert best is not None
        return best.time_ms

    def feasible_signatures(self) -> float:
        """Return the fraction of signatures that meet the threshold."""
        assert self.threshold is not None
        errors: dict[tuple[object, ...], float] = {}
        for c in self.space.configurations(range(self.space.size)):
            errors[c.subset(SIGNATURE)] = self.error(c)
        return float(np.mean([error <= self.threshold for error in errors.values()]))

    def search(self, strategy: str, budget: int, seed: int, batch: int = 1, **options: object) -> list[Trial]:
        searcher = make(strategy, self.space, self.objective, signature=SIGNATURE, seed=seed, options=options)
        return drive(searcher, self.evaluate, budget, batch)

    def regret(self, trials: list[Trial]) -> float:
        """Return how much slower than the optimum the best feasible trial is, relative; infinity without one."""
        best = self.objective.best(trials)
        return math.inf if best is None else best.time_ms / self.optimum - 1.0
