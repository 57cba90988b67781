"""Replays under the paper's objective: strategies of mptune with any penalty, and peers that are told the scores."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.cells import Job
from benchmarks.search.driving import drive
from benchmarks.search.peers import PEERS
from benchmarks.search.precision_cells import BUDGET, Cell
from benchmarks.search.problem import Problem, Recorder
from benchmarks.search.tools import DEFAULT
from mptune.interop import read_run
from mptune.measure.base import Replay
from mptune.results.objective import Objective
from mptune.run import Run
from mptune.strategies import make

__all__ = ["TARGET", "PenalisedRecorder", "Searcher", "penalised", "replay"]

#: The target of :func:`replay`.
TARGET: Final = "benchmarks.reproductions.heldens.replays:replay"


@dataclass(frozen=True, slots=True)
class Searcher:
    """A strategy of mptune under a penalty, or a peer (of :data:`~benchmarks.search.peers.PEERS`).

    Attributes:
        name: what tables call it.
        strategy: name of the strategy, empty for a peer.
        peer: name of the peer, empty for a strategy.
        penalty: what an inaccurate configuration scores.
        beta: rate of the decay penalty.
        options: hyperparameters of the strategy.
    """

    name: str
    strategy: str = ""
    peer: str = ""
    penalty: str = "decay"
    beta: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """What :func:`replay` and the stages of a sequential search need to know of it."""
        return {
            "strategy": self.strategy,
            "peer": self.peer,
            "penalty": self.penalty,
            "beta": self.beta,
            "options": dict(self.options),
        }

    @property
    def version(self) -> str:
        """Version of what a replay runs."""
        return PEERS[self.peer].version if self.peer else DEFAULT.version

    def job(self, cell: Cell, runs: int, budget: int = BUDGET) -> Job:
        """Return its replays on a recorded kernel under a threshold."""
        return self.job_of(cell, runs, self.name, TARGET, {"budget": budget}, Path(__file__))

    def job_of(self, cell: Cell, runs: int, name: str, target: str, settings: Mapping[str, Any], source: Path) -> Job:
        """Return replays by another target, which is in ``source``."""
        own = {"space": str(cell.path.resolve()), "tool": self.settings, "max_error": cell.threshold}
        return Job(
            section="papers",
            space=cell.name,
            tool=name,
            target=target,
            settings={**own, **settings},
            seeds=tuple(range(runs)),
            limit_s=1800.0,
            files=(cell.path, source),
            version=self.version,
        )


def replay(settings: Mapping[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Return a function of the seed that searches a recorded space.

    Args:
        settings: ``space``: a file; ``budget``; ``tool``: :attr:`Searcher.settings`; ``max_error``.

    Returns:
        A function whose result holds ``best`` (best feasible time after each evaluation, None while there is none) and
        ``strategy_s``, for a peer all it did.
    """
    recorded, tool, budget = read_run(settings["space"]), settings["tool"], settings["budget"]
    goal = Objective(threshold=settings["max_error"], penalty=tool["penalty"], beta=tool["beta"])
    goal = recorded.derive(objective=goal).objective
    if tool["peer"]:
        return _peer_replay(recorded, goal, budget, tool["peer"])
    evaluator = Replay(recorded.derive(trials=list(map(goal.judge, recorded.trials))))

    def run(seed: int) -> dict[str, Any]:
        strategy = make(
            tool["strategy"],
            recorded.space,
            goal,
            signature=recorded.info.signature,
            seed=seed,
            options=tool["options"],
            budget=budget,
        )
        driven = drive(strategy, lambda asked: list(evaluator.evaluate(asked)), budget)
        return {"best": list(driven.best), "strategy_s": sum(driven.seconds)}

    return run


def _peer_replay(recorded: Run, objective: Objective, budget: int, name: str) -> Callable[[int], dict[str, Any]]:
    problem, times_ms = penalised(recorded, objective)
    peer = PEERS[name].prepare(problem)

    def run(seed: int) -> dict[str, Any]:
        recorder = PenalisedRecorder(problem, times_ms, budget)
        started = time.perf_counter()
        peer(recorder, seed)
        return {"best": recorder.best_feasible, "strategy_s": time.perf_counter() - started}

    return run


def penalised(recorded: Run, objective: Objective) -> tuple[Problem, NDArray[np.float64]]:
    """Return a recorded space as a problem whose costs are what configurations score, and the times of feasible ones.

    A tool that only minimises is told the baseline over the score: the time itself where the error is within the
    threshold, under the decay penalty a longer one where it is not. Times are NaN where it is not; shape ``(n,)``.
    """
    trials = recorded.indexed
    scores = np.maximum(objective.scores(trials), 0.0)
    with np.errstate(divide="ignore"):
        costs = (objective.baseline or 1.0) / scores
    times_ms = np.array([trial.time_ms if objective.is_feasible(trial) else np.nan for trial in trials])
    problem = Problem.from_recorded(recorded, objective)
    return replace(problem, costs=np.where(np.isfinite(costs), costs, np.nan)), times_ms


class PenalisedRecorder(Recorder):
    """Keeps the best feasible time of what a tool evaluates, while the tool is told costs with a penalty.

    Args:
        problem: what the tool is told.
        times_ms: times of the feasible configurations, NaN for others; shape ``(n,)``.
        budget: unique recorded configurations the tool may run.
    """

    def __init__(self, problem: Problem, times_ms: Sequence[float] | NDArray[np.float64], budget: int) -> None:
        super().__init__(problem, budget)
        self.best_feasible: list[float | None] = []
        self._times_ms = times_ms

    def propose(self, configuration: tuple[Any, ...]) -> float | None:
        """Evaluate a configuration, as :meth:`~benchmarks.search.problem.Recorder.propose`."""
        before = len(self.best)
        cost = super().propose(configuration)
        if len(self.best) > before:
            last = self.best_feasible[-1] if self.best_feasible else None
            time_ms = float(self._times_ms[self.problem.row_of[configuration]])
            better = time_ms == time_ms and (last is None or time_ms < last)
            self.best_feasible.append(time_ms if better else last)
        return cost
