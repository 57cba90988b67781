"""The cells of the mixed-precision sections: a recorded kernel and one of its thresholds (Heldens 2026, Table IV)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.kernels import LEVELS, THRESHOLDS
from benchmarks.search.cells import Job, Results
from benchmarks.search.section import Settings
from benchmarks.search.tools import DEFAULT, REPLAY, Tool, simulations
from mptune.errors import UnknownNameError
from mptune.interop import read_run
from mptune.results.objective import PENALTIES, Objective
from mptune.run import Run
from mptune.tuning.comparison import Comparison
from mptune.tuning.simulation import Simulation

__all__ = [
    "BUDGET",
    "EARLY",
    "LEVELS",
    "PAPER_PENALTY",
    "RANDOM",
    "Cell",
    "cells_of",
    "compare_tools",
    "levels_of",
    "replay_job",
    "seeds_of",
    "shares",
    "tools_of",
]

#: Evaluations of a run (Heldens 2026, Sec. V-D), and where it is looked at before its end.
BUDGET: Final = 250
EARLY: Final = 100
PAPER_PENALTY: Final = "decay"
RANDOM: Final = Tool("mptune random", "random")
#: Strategies that do not look at the penalty: random at nothing, the others at the excess itself.
_WITHOUT_PENALTY: Final = ("bayesian", "random", "nsga2")
#: One run of these takes many times as long as one of the others.
_SLOW: Final = ("bayesian-baco",)


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """One recorded kernel under one threshold.

    Attributes:
        kernel: name of the kernel.
        level: name of the threshold.
        threshold: largest error allowed.
        path: file of the recording.
        recorded: the recording.
        optimum: best recorded value that meets the threshold, None where none does.
        feasible: how many of the recorded configurations meet it.
    """

    kernel: str
    level: str
    threshold: float
    path: Path
    recorded: Run
    optimum: float | None
    feasible: int

    @property
    def name(self) -> str:
        """What the results call it."""
        return f"{self.path.name.partition('.')[0]} {self.level}"

    @property
    def objective(self) -> Objective:
        """What is optimised."""
        return self.recorded.derive(objective=Objective(threshold=self.threshold)).objective


def cells_of(settings: Settings) -> list[Cell]:
    """Return the cells, those without a feasible configuration too.

    Raises:
        UnknownNameError: a file is not named after a kernel that has thresholds.
    """
    return [cell for path in settings.recordings(settings.data) for cell in _cells(path, path.stat().st_mtime_ns)]


@cache
def _cells(path: Path, _changed_ns: int) -> tuple[Cell, ...]:
    kernel = path.name.partition(".")[0].partition("-")[0]
    if kernel not in THRESHOLDS:
        raise UnknownNameError(f"kernel that {path.name} is named after:", kernel, THRESHOLDS)
    recorded = read_run(path)
    trials = recorded.trials
    made = []
    for level, threshold in zip(LEVELS, THRESHOLDS[kernel], strict=True):
        objective = Objective(threshold=threshold)
        best = objective.best(trials)
        optimum = None if best is None else objective.value(best)
        feasible = sum(map(objective.is_feasible, trials))
        made.append(Cell(kernel, level, threshold, path, recorded, optimum, feasible))
    return tuple(made)


def tools_of(settings: Settings, penalties: Sequence[str] = PENALTIES) -> list[Tool]:
    """Return the strategies with each penalty, once where they do not look at it; random is always among them."""
    names = dict.fromkeys([*settings.strategies, "random"])
    tools = []
    for name in names:
        if name in _WITHOUT_PENALTY:
            tools.append(Tool(f"mptune {name}", name, penalty=PAPER_PENALTY))
        else:
            tools += [Tool(f"mptune {name} ({penalty})", name, penalty=penalty) for penalty in penalties]
    return tools


def seeds_of(settings: Settings, tool: Tool) -> tuple[int, ...]:
    """Return the seeds: all for the default and random, half as many for the paper's penalty, fewer for the rest."""
    if tool.name in (DEFAULT.name, RANDOM.name):
        return tuple(range(settings.seeds))
    half = max(1, settings.seeds // 2)
    count = half if tool.penalty == PAPER_PENALTY else min(half, settings.slow_seeds)
    return tuple(range(min(count, max(2, count // 3)) if tool.strategy in _SLOW else count))


def replay_job(cell: Cell, tool: Tool, settings: Settings) -> Job:
    """Return the replay of a tool on a cell; every section that asks for it gets the same results."""
    return Job(
        section="mixed",
        space=cell.name,
        tool=tool.name,
        target=REPLAY,
        settings={
            "space": str(cell.path.resolve()),
            "budget": BUDGET,
            "tool": tool.settings,
            "max_error": cell.threshold,
        },
        seeds=seeds_of(settings, tool),
        limit_s=settings.limit_s,
        files=(cell.path,),
        version=tool.version,
    )


def compare_tools(results: Results, cells: Iterable[Cell], tools: Sequence[str]) -> Comparison:
    """Return the comparison of the tools that have results on every feasible cell."""
    feasible = [cell for cell in cells if cell.optimum is not None]
    complete = [name for name in tools if all(results.of(cell.name, name) for cell in feasible)]
    return Comparison(
        tuple(
            simulation
            for cell in feasible
            for simulation in simulations(results, {cell.name: cell.recorded}, complete, BUDGET, cell.objective)
        )
    )


def levels_of(comparison: Comparison, cells: Iterable[Cell]) -> Mapping[str, NDArray[np.bool_]]:
    """Return which of the comparison's spaces are of each level, and of "all"; levels without a space are missing."""
    level_of = {cell.name: cell.level for cell in cells}
    masks = {level: np.array([level_of[name] == level for name in comparison.spaces]) for level in LEVELS}
    return {level: mask for level, mask in masks.items() if mask.any()} | {
        "all": np.ones(len(comparison.spaces), dtype=np.bool_)
    }


def shares(simulation: Simulation, evaluations: int) -> NDArray[np.float64]:
    """Return each run's best feasible time as a share of the best recorded: 1 at the optimum, 0 without one."""
    return 1.0 / (1.0 + simulation.distances(evaluations))
