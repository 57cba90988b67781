"""Comparing strategies on recorded spaces: who comes nearer to the optimum, and after how many evaluations.

Every strategy replays every space once per seed, in worker processes of one thread. The figures are computed from
:class:`~mptune.tuning.simulation.Simulation` objects alone, so that another tool's runs can be compared, too.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from mptune.backends.processes import ChildEnded, PythonChild
from mptune.errors import MptuneError, UnknownNameError, did_you_mean
from mptune.interop import read_run
from mptune.run import Run
from mptune.strategies import STRATEGIES
from mptune.tuning.simulation import Simulation, finite, quartiles, simulate

__all__ = ["SMALLEST_DISTANCE", "WITHIN", "Comparison", "compare", "serve"]

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


# -- running -------------------------------------------------------------------------------------

#: Numerical libraries read these when they are loaded.
_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def compare(
    spaces: Sequence[str | Path | Run],
    strategies: Sequence[str],
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    processes: int | None = None,
    on_done: Callable[[Simulation], None] | None = None,
    **settings: Any,
) -> Comparison:
    """Replay every strategy on every recorded space, in worker processes of one thread each.

    Args:
        spaces: runs or recorded spaces, or files of them.
        strategies: names of strategies.
        options: hyperparameters by strategy and name.
        processes: worker processes; by default one per core. With one, all runs in this process.
        on_done: called with each simulation as it is done, in no particular order.
        settings: of :func:`~mptune.tuning.simulation.simulate`: budget, repeats, seed and the objective.

    Raises:
        SpaceFileError: a file cannot be read.
        UnknownNameError: no such strategy, option or metric.
        MptuneError: nothing to compare, a space or strategy twice, or what :func:`~mptune.tuning.simulation.simulate`
        refuses.
    """
    given = dict(options or {})
    _check(spaces, strategies, given, processes)
    recorded = [space if isinstance(space, Run) else read_run(space) for space in spaces]
    names = [space.name for space in recorded]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise MptuneError(f"two of the spaces are called {twice!r}; figures are told apart by the name")
    for name in settings:
        if name not in (known := inspect.signature(simulate).parameters):
            raise UnknownNameError("setting", name, known)
    jobs = [
        (space, settings | {"strategy": strategy, "options": given.get(strategy)})
        for space in recorded
        for strategy in strategies
    ]
    report = on_done or (lambda _: None)
    workers = min(len(jobs), processes or os.cpu_count() or 1)
    if workers == 1:
        return Comparison(tuple(_reported(simulate(space, **job), report) for space, job in jobs))
    return Comparison(_in_parallel(jobs, workers, report))


def _check(
    spaces: Sequence[object], strategies: Sequence[str], options: Mapping[str, Mapping[str, Any]], processes: int | None
) -> None:
    if not spaces or not strategies:
        raise MptuneError(f"nothing to compare: {len(spaces)} spaces and {len(strategies)} strategies")
    if processes is not None and processes < 1:
        raise MptuneError(f"processes must be at least 1, got {processes}")
    for number, strategy in enumerate(strategies):
        chosen = STRATEGIES[strategy]
        if strategy in strategies[:number]:
            raise MptuneError(f"strategy {strategy!r} is given twice")
        chosen.options_class.from_mapping(strategy, dict(options.get(strategy, {})))
    for strategy in options:
        if strategy not in strategies:
            raise MptuneError(
                f"options for strategy {strategy!r}, which is not compared{did_you_mean(strategy, strategies)} "
                f"(compared: {', '.join(strategies)})"
            )


def _reported(simulation: Simulation, report: Callable[[Simulation], None]) -> Simulation:
    report(simulation)
    return simulation


def _in_parallel(
    jobs: Sequence[tuple[Run, Mapping[str, Any]]], workers: int, report: Callable[[Simulation], None]
) -> tuple[Simulation, ...]:
    # Recordings hold read-only views, which only cloudpickle takes along.
    pickled = {id(space): cloudpickle.dumps(space) for space, _ in jobs}
    idle: SimpleQueue[PythonChild] = SimpleQueue()

    def run(space: Run, job: Mapping[str, Any]) -> Simulation:
        child = idle.get()
        try:
            child.send((pickled[id(space)], job))
            answer = cloudpickle.loads(child.receive())
        except ChildEnded as ended:
            raise MptuneError(f"the process that simulated {job['strategy']} on {space.name} {ended.how}") from None
        finally:
            idle.put(child)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    done: dict[int, Simulation] = {}
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(PythonChild(f"{__name__}:serve", environment=_ONE_THREAD)) for _ in range(workers)
        ]
        for child in children:
            idle.put(child)
        with ThreadPoolExecutor(workers) as pool:
            futures = {pool.submit(run, *job): number for number, job in enumerate(jobs)}
            try:
                for future in as_completed(futures):
                    done[futures[future]] = _reported(future.result(), report)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                for child in children:
                    child.signal(signal.SIGKILL)  # the thread that waits for it is told
    return tuple(done[number] for number in range(len(jobs)))


def serve(channel: Connection) -> None:
    """Run the simulations that come over the connection."""
    while True:
        space, job = channel.recv()
        try:
            answer: Simulation | Exception = simulate(cloudpickle.loads(space), **job)
        except Exception as error:
            answer = error
        channel.send(cloudpickle.dumps(answer))
