"""Comparison of strategies on recorded spaces: distances from the optimum, and evaluations to reach them.

Every strategy replays every space once per seed, in worker processes of one thread. The figures depend on
:class:`~mptune.tuning.simulation.Simulation` objects alone, so that runs of another tool can be compared, too.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import joblib
import numpy as np
from numpy.typing import NDArray

from mptune.errors import MptuneError
from mptune.interop import read_run
from mptune.run import Run, json_document
from mptune.space.arguments import COUNT, checked
from mptune.strategies import STRATEGIES
from mptune.tuning.simulation import Simulation, quartiles, simulate

Floats = NDArray[np.float64]

#: Relative distances from the optimum whose first evaluation is reported.
WITHIN: Final = (0.01, 0.05)
#: Minimum distance in a geometric mean, which a single solved space would otherwise decide.
SMALLEST_DISTANCE: Final = 1e-4


@dataclass(frozen=True, slots=True)
class Comparison:
    """Replays of several strategies on several recorded spaces, with the figures that compare them.

    The distance of a run without a feasible trial is that of the worst feasible value, at least 1, or infinity where
    that value is unknown. The run loses to every run with a feasible trial.

    Spaces without a feasible configuration are in :attr:`simulations` and in no figure. Arrays have shape
    ``(n_spaces, n_strategies)``, in the orders of :attr:`spaces` and :attr:`strategies`.
    """

    simulations: tuple[Simulation, ...]  #: one per space and strategy

    @property
    def strategies(self) -> tuple[str, ...]:
        """Names of the strategies, in the order given."""
        return tuple(dict.fromkeys(simulation.strategy for simulation in self.simulations))

    @property
    def spaces(self) -> tuple[str, ...]:
        """Names of the spaces that have a feasible configuration."""
        return tuple(dict.fromkeys(s.space for s in self.simulations if s.optimum is not None))

    @property
    def infeasible(self) -> tuple[str, ...]:
        """Names of the spaces where nothing recorded meets the threshold."""
        return tuple(dict.fromkeys(s.space for s in self.simulations if s.optimum is None))

    @property
    def budget(self) -> int:
        """Evaluations each run could make."""
        return self.simulations[0].budget if self.simulations else 0

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The numbers of evaluations that a mean is taken over: 40, 60, ... up to the budget."""
        return self.simulations[0].checkpoints() if self.simulations else ()

    def simulation(self, space: str, strategy: str) -> Simulation:
        """Return the replays of one strategy on one space; raises KeyError if there are none."""
        return {(each.space, each.strategy): each for each in self.simulations}[space, strategy]

    def mean_distances(self) -> Floats:
        """Return the mean relative distance from the optimum over runs and checkpoints."""
        return self._over_cells(lambda s: float(_run_distances(s).mean()))

    def without_feasible(self) -> Floats:
        """Return the share of runs without a feasible trial at the first checkpoint."""
        return self._over_cells(lambda s: s.summary()[0]["nothing_feasible"])

    def run_distances(self, space: str, strategy: str) -> Floats:
        """Return each run's mean relative distance over the checkpoints, shape ``(n_runs,)``."""
        return _run_distances(self.simulation(space, strategy))

    def geometric_means(self) -> Floats:
        """Return each strategy's geometric mean of :meth:`mean_distances` over the spaces, shape ``(n_strategies,)``.

        Distances below 0.01% count as 0.01%.
        """
        return np.asarray(np.exp(np.log(np.maximum(self.mean_distances(), SMALLEST_DISTANCE)).mean(axis=0)))

    def deviation_factors(self) -> Floats:
        """Return each strategy's mean distance as a share of the mean over strategies (Willemsen 2021, Sec. IV-A).

        A strategy without a finite distance has an infinite factor and is not in the mean over strategies.
        """
        distances = self.mean_distances()
        finite = np.isfinite(distances)
        counts = np.maximum(finite.sum(axis=1, keepdims=True), 1)
        means = np.where(finite, distances, 0.0).sum(axis=1, keepdims=True) / counts
        equal = np.where(distances == 0.0, 1.0, np.inf)
        return np.asarray(np.divide(distances, means, out=equal, where=(means > 0.0) & finite), dtype=np.float64)

    def evaluations_within(self, distance: float) -> Floats:
        """Return the median over runs of the evaluations needed to come within a distance; infinite for never."""
        return self._over_cells(lambda s: _median_arrival(s, distance))

    def best_at_end(self) -> Floats:
        """Return the mean over runs of the final share of the optimum: 1 for the optimum, 0 without a feasible trial.

        For several objectives, the share of the recorded front's hypervolume.
        """
        return self._over_cells(_mean_share_of_optimum)

    def overheads_ms(self) -> Floats:
        """Return the milliseconds per evaluation spent in the strategy."""
        return self._over_cells(lambda s: s.overhead_ms_per_evaluation)

    def win_probabilities(self, evaluations: int | None = None) -> Floats:
        """Return the probability that a run of a strategy beats a run of another after some evaluations (default: all).

        Ties count half (Heldens 2026, Sec. V-E). Shape ``(n_spaces, n_strategies, n_strategies)``: [s, a, b] is the
        probability that a beats b.
        """
        column = min(evaluations or self.budget, self.budget) - 1
        n = len(self.strategies)
        wins = np.full((len(self.spaces), n, n), 0.5)
        for i, space in enumerate(self.spaces):
            ends = [self.simulation(space, name).distance_curves()[:, column] for name in self.strategies]
            for a, b in itertools.permutations(range(n), 2):
                better, other = ends[a][:, None], ends[b][None, :]
                wins[i, a, b] = float(((better < other) + 0.5 * (better == other)).mean())
        return wins

    def quartiles(self, space: str, strategy: str) -> Floats:
        """Return lower quartile, median and upper quartile of the distance over runs, shape ``(3, budget)``."""
        return quartiles(self.simulation(space, strategy).filled_curves())

    def to_json(self) -> dict[str, Any]:
        """Return the document that ``mptune compare --json`` prints; None replaces numbers that are not finite."""
        wins = self.win_probabilities()
        mean_wins = wins.mean(axis=0) if self.spaces else wins[0:0]
        columns = {
            "mean_distance": self.mean_distances(),
            "deviation_factor": self.deviation_factors(),
            "best_at_end": self.best_at_end(),
            "overhead_ms_per_evaluation": self.overheads_ms(),
            "nothing_feasible": self.without_feasible(),
        }
        arrivals = self._arrivals()
        quartile_columns = ("evaluations", "lower", "median", "upper", "nothing_feasible")
        names = self.strategies
        document = {
            "budget": self.budget,
            "seeds": [run.seed for run in self.simulations[0].runs] if self.simulations else [],
            "checkpoints": self.checkpoints,
            "spaces": [
                {name: getattr(simulation, name) for name in ("space", "configurations", "optimum", "worst", "unit")}
                for simulation in {simulation.space: simulation for simulation in self.simulations}.values()
            ],
            "strategies": self.overall(),
            "cells": [
                {"space": space, "strategy": strategy}
                | {name: values[i, j] for name, values in columns.items()}
                | {"evaluations_within": {distance: values[i, j] for distance, values in arrivals.items()}}
                | {
                    "quartiles": [
                        {name: row[name] for name in quartile_columns}
                        for row in self.simulation(space, strategy).summary()
                    ]
                }
                for (i, space), (j, strategy) in itertools.product(enumerate(self.spaces), enumerate(names))
            ],
            "win_probabilities": {
                a: {b: row[j] for j, b in enumerate(names) if b != a} for a, row in zip(names, mean_wins, strict=False)
            },
        }
        return json_document(document)

    def overall(self) -> list[dict[str, Any]]:
        """Return a row per strategy over all spaces; None replaces numbers that are not finite."""
        if not self.spaces:
            return [{"strategy": strategy} for strategy in self.strategies]
        factors = self.deviation_factors()
        with np.errstate(invalid="ignore"):
            columns = {
                "geometric_mean_distance": self.geometric_means(),
                "mean_deviation_factor": factors.mean(axis=0),
                "deviation_factor_std": factors.std(axis=0),
                "best_at_end": self.best_at_end().mean(axis=0),
                "overhead_ms_per_evaluation": self.overheads_ms().mean(axis=0),
            }
        medians = {distance: np.median(values, axis=0) for distance, values in self._arrivals().items()}
        return [
            json_document(
                {"strategy": strategy}
                | {name: values[j] for name, values in columns.items()}
                | {"evaluations_within": {distance: values[j] for distance, values in medians.items()}}
            )
            for j, strategy in enumerate(self.strategies)
        ]

    def _arrivals(self) -> dict[str, Floats]:
        return {f"{distance:.0%}": self.evaluations_within(distance) for distance in WITHIN}

    def _over_cells(self, figure: Callable[[Simulation], float]) -> Floats:
        rows = [[figure(self.simulation(space, strategy)) for strategy in self.strategies] for space in self.spaces]
        return np.array(rows, dtype=np.float64).reshape(len(self.spaces), len(self.strategies))


def _run_distances(simulation: Simulation) -> Floats:
    columns = np.array(simulation.checkpoints()) - 1
    return np.asarray(simulation.filled_curves()[:, columns].mean(axis=1))


def _median_arrival(simulation: Simulation, distance: float) -> float:
    near = simulation.distance_curves() <= distance
    return float(np.median(np.where(near.any(axis=1), near.argmax(axis=1) + 1.0, np.inf)))


def _mean_share_of_optimum(simulation: Simulation) -> float:
    distances = simulation.distance_curves()[:, -1]
    # A minimised metric at distance d is (1 + d) times its optimum; a maximised one, and a hypervolume, 1 - d times.
    is_less = simulation.objective.minimise and not simulation.objective.also
    shares = 1.0 / (1.0 + distances) if is_less else 1.0 - distances
    return float(np.where(np.isfinite(distances), shares, 0.0).mean())


@checked
def compare(
    spaces: Sequence[str | Path | Run],
    strategies: Sequence[str],
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    processes: Annotated[int | None, COUNT] = None,
    on_done: Callable[[Simulation], None] = lambda _: None,
    **settings: Any,
) -> Comparison:
    """Replay every strategy on every recorded space, in worker processes of one thread each.

    Args:
        spaces: runs or recorded spaces, or files of them.
        strategies: names of strategies.
        options: hyperparameters by strategy and name.
        processes: worker processes; by default one per core. With one, simulations run in this process.
        on_done: called with each finished simulation, in any order.
        settings: of :func:`~mptune.tuning.simulation.simulate`: budget, repeats, seed and the objective.
    """
    if not spaces or not strategies:
        raise MptuneError(f"nothing to compare: {len(spaces)} spaces and {len(strategies)} strategies")
    by_strategy = {strategy: dict((options or {}).get(strategy, {})) for strategy in strategies}
    for strategy, given in by_strategy.items():
        STRATEGIES[strategy].options_class.from_mapping(strategy, given)
    recorded = [space if isinstance(space, Run) else read_run(space) for space in spaces]
    for what, names in (("space", [space.name for space in recorded]), ("strategy", strategies)):
        if twice := [name for number, name in enumerate(names) if name in names[:number]]:
            raise MptuneError(f"{what} {twice[0]!r} is given twice: names must be unique")
    jobs = [
        joblib.delayed(simulate)(space, strategy, options=by_strategy[strategy], **settings)
        for space in recorded
        for strategy in strategies
    ]
    parallel = joblib.Parallel(min(len(jobs), processes or os.cpu_count() or 1), return_as="generator_unordered")
    done: dict[tuple[str, str], Simulation] = {}
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        for simulation in parallel(jobs):
            done[simulation.space, simulation.strategy] = simulation
            on_done(simulation)
    return Comparison(tuple(done[space.name, strategy] for space in recorded for strategy in strategies))
