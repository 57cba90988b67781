"""The figures that compare strategies: who comes nearer to the optimum, and after how many evaluations.

All of them are computed from :class:`~mptune.tuning.simulation.Simulation` objects alone, so that one made of another
tool's runs is compared like any other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import MptuneError, UnknownNameError
from mptune.tuning.simulation import Simulation, finite, quartiles

__all__ = ["SMALLEST_DISTANCE", "WITHIN", "Comparison"]

Floats = NDArray[np.float64]

#: Relative distances from the optimum whose first evaluation is reported.
WITHIN: Final = (0.01, 0.05)
#: A distance below this counts as this in a geometric mean, where one space solved at once would decide everything.
SMALLEST_DISTANCE: Final = 1e-4


@dataclass(frozen=True, slots=True)
class Comparison:
    """Replays of several strategies on several recorded spaces, with the figures that compare them.

    A run that has found nothing feasible yet is as far from the optimum as the worst feasible value, and no nearer than
    1; or infinitely far where a simulation does not know that value. It has not come within any distance, has no share
    of the optimum and loses to every run that has found something.

    Spaces without a feasible configuration are in :attr:`simulations` and in no figure. Arrays have spaces (those
    of :attr:`spaces`) along their first axis and strategies along their second.

    Attributes:
        simulations: one per space and strategy.
    """

    simulations: tuple[Simulation, ...]

    def __post_init__(self) -> None:
        cells = [(simulation.space, simulation.strategy) for simulation in self.simulations]
        if len(set(cells)) != len(cells):
            raise MptuneError("a comparison holds one simulation per space and strategy")
        if set(cells) != set(itertools.product(dict(cells), self.strategies)):
            raise MptuneError("a comparison needs every strategy on every space")
        if len({s.budget for s in self.simulations}) > 1 or not all(s.runs for s in self.simulations):
            raise MptuneError("a comparison needs the same budget everywhere and at least one run")

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
        """The numbers of evaluations a mean looks at: 40, 60, ... up to the budget."""
        return self.simulations[0].checkpoints() if self.simulations else ()

    def simulation(self, space: str, strategy: str) -> Simulation:
        """Return the replays of one strategy on one space.

        Raises:
            UnknownNameError: no such space or strategy.
        """
        for simulation in self.simulations:
            if (simulation.space, simulation.strategy) == (space, strategy):
                return simulation
        if strategy not in self.strategies:
            raise UnknownNameError("strategy in the comparison:", strategy, self.strategies)
        raise UnknownNameError("space in the comparison:", space, (*self.spaces, *self.infeasible))

    def mean_distances(self) -> Floats:
        """Return the mean relative distance from the optimum over runs and checkpoints.

        Shape ``(n_spaces, n_strategies)``.
        """
        return self._over_cells(lambda s: float(_run_distances(s).mean()))

    def without_feasible(self) -> Floats:
        """Return the share of runs that had found nothing feasible at the first checkpoint.

        Shape ``(n_spaces, n_strategies)``.
        """
        return self._over_cells(lambda s: s.summary()[0]["nothing_feasible"])

    def run_distances(self, space: str, strategy: str) -> Floats:
        """Return each run's mean relative distance over the checkpoints, shape ``(n_runs,)``."""
        return _run_distances(self.simulation(space, strategy))

    def geometric_means(self) -> Floats:
        """Return each strategy's geometric mean of :meth:`mean_distances` over the spaces, shape ``(n_strategies,)``.

        Distances below 0.01% count as 0.01%.
        """
        with np.errstate(divide="ignore"):
            return np.asarray(np.exp(np.log(np.maximum(self.mean_distances(), SMALLEST_DISTANCE)).mean(axis=0)))

    def deviation_factors(self) -> Floats:
        """Return each strategy's mean distance as a share of the mean over strategies (Willemsen 2021, Sec. IV-A).

        Shape ``(n_spaces, n_strategies)``. The mean over spaces is the mean deviation factor. A strategy without
        a finite distance has an infinite factor and is left out of the mean over strategies.
        """
        distances = self.mean_distances()
        finite = np.isfinite(distances)
        counts = np.maximum(finite.sum(axis=1, keepdims=True), 1)
        means = np.where(finite, distances, 0.0).sum(axis=1, keepdims=True) / counts
        equal = np.where(distances == 0.0, 1.0, np.inf)
        return np.asarray(np.divide(distances, means, out=equal, where=(means > 0.0) & finite), dtype=np.float64)

    def evaluations_within(self, distance: float) -> Floats:
        """Return the median over runs of the evaluations it took to come within a relative distance.

        Shape ``(n_spaces, n_strategies)``; infinite where half of the runs never came so near.
        """
        return self._over_cells(lambda s: _median_arrival(s.distance_curves(), distance))

    def best_at_end(self) -> Floats:
        """Return the mean over runs of the last best as a share of the optimum, 1 where it was found and 0 for nothing.

        Of several objectives it is the share of the recorded front's hypervolume.

        Shape ``(n_spaces, n_strategies)``.
        """
        return self._over_cells(lambda s: float(_shares_of_optimum(s).mean()))

    def overheads_ms(self) -> Floats:
        """Return the milliseconds per evaluation spent in the strategy, shape ``(n_spaces, n_strategies)``."""
        return self._over_cells(lambda s: s.overhead_ms_per_evaluation)

    def win_probabilities(self, evaluations: int | None = None) -> Floats:
        """Return the probability that one run of A is better than one of B after so many evaluations (default: all).

        Ties count half (Heldens 2026, Sec. V-E).

        Returns:
            Shape ``(n_spaces, n_strategies, n_strategies)``; [s, a, b] is the probability that a beats b.
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
        """Return the document ``mptune compare --json`` prints; None stands for what is not finite."""
        distances, factors = self.mean_distances(), self.deviation_factors()
        ends, overheads, without = self.best_at_end(), self.overheads_ms(), self.without_feasible()
        arrivals = [self.evaluations_within(distance) for distance in WITHIN]
        cells = [
            {
                "space": space,
                "strategy": strategy,
                "mean_distance": finite(distances[i, j]),
                "deviation_factor": finite(factors[i, j]),
                "evaluations_within": {_percent(d): finite(a[i, j]) for d, a in zip(WITHIN, arrivals, strict=True)},
                "best_at_end": finite(ends[i, j]),
                "overhead_ms_per_evaluation": finite(overheads[i, j]),
                "quartiles": self._quartile_rows(space, strategy),
                "nothing_feasible": float(without[i, j]),
            }
            for i, space in enumerate(self.spaces)
            for j, strategy in enumerate(self.strategies)
        ]
        wins = self.win_probabilities()
        return {
            "budget": self.budget,
            "seeds": [run.seed for run in self.simulations[0].runs] if self.simulations else [],
            "checkpoints": list(self.checkpoints),
            "spaces": self._space_rows(),
            "strategies": self.overall(),
            "cells": cells,
            "win_probabilities": self._win_rows(wins.mean(axis=0)) if self.spaces else {},
        }

    def overall(self) -> list[dict[str, Any]]:
        """Return a row per strategy over all spaces, in the order given; None stands for what is not finite."""
        if not self.spaces:
            return [{"strategy": strategy} for strategy in self.strategies]
        geometric, factors = self.geometric_means(), self.deviation_factors()
        ends, overheads = self.best_at_end(), self.overheads_ms()
        arrivals = [self.evaluations_within(distance) for distance in WITHIN]
        return [
            {
                "strategy": strategy,
                "geometric_mean_distance": finite(geometric[j]),
                "mean_deviation_factor": finite(factors[:, j].mean()),
                "deviation_factor_std": finite(factors[:, j].std()) if np.isfinite(factors[:, j]).all() else None,
                "evaluations_within": {
                    _percent(d): finite(np.median(a[:, j])) for d, a in zip(WITHIN, arrivals, strict=True)
                },
                "best_at_end": finite(ends[:, j].mean()),
                "overhead_ms_per_evaluation": finite(overheads[:, j].mean()),
            }
            for j, strategy in enumerate(self.strategies)
        ]

    def _over_cells(self, figure: Callable[[Simulation], float]) -> Floats:
        rows = [[figure(self.simulation(space, strategy)) for strategy in self.strategies] for space in self.spaces]
        return np.array(rows, dtype=np.float64).reshape(len(self.spaces), len(self.strategies))

    def _quartile_rows(self, space: str, strategy: str) -> list[dict[str, Any]]:
        columns = ("evaluations", "lower", "median", "upper", "nothing_feasible")
        return [{name: finite(row[name]) for name in columns} for row in self.simulation(space, strategy).summary()]

    def _space_rows(self) -> list[dict[str, Any]]:
        first = {simulation.space: simulation for simulation in reversed(self.simulations)}
        return [
            {
                "space": s.space,
                "configurations": s.configurations,
                "optimum": s.optimum,
                "worst": s.worst,
                "unit": s.unit,
            }
            for s in reversed(first.values())
        ]

    def _win_rows(self, wins: Floats) -> dict[str, dict[str, float]]:
        names = self.strategies
        return {a: {b: float(wins[i, j]) for j, b in enumerate(names) if i != j} for i, a in enumerate(names)}


def _run_distances(simulation: Simulation) -> Floats:
    columns = np.array(simulation.checkpoints(), dtype=np.int64) - 1
    return np.asarray(simulation.filled_curves()[:, columns].mean(axis=1), dtype=np.float64)


def _median_arrival(curves: Floats, distance: float) -> float:
    near = curves <= distance
    arrivals = np.where(near.any(axis=1), near.argmax(axis=1) + 1.0, np.inf)
    return float(np.median(arrivals))


def _shares_of_optimum(simulation: Simulation) -> Floats:
    distances = simulation.distance_curves()[:, -1]
    # A minimised metric at distance d is (1 + d) times its optimum; a maximised one, and a hypervolume, 1 - d times.
    is_less = simulation.objective.minimise and not simulation.objective.also
    shares = 1.0 / (1.0 + distances) if is_less else 1.0 - distances
    return np.where(np.isfinite(distances), shares, 0.0)


def _percent(distance: float) -> str:
    return f"{distance:.0%}"
