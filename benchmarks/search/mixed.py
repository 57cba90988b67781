"""Mixed-precision spaces: how good and how soon under a threshold, for every strategy with every penalty."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench import percent, table
from benchmarks.search.cells import Job, Results
from benchmarks.search.precision_cells import (
    BUDGET,
    EARLY,
    RANDOM,
    Cell,
    cells_of,
    compare_tools,
    levels_of,
    replay_job,
    shares,
    tools_of,
)
from benchmarks.search.report import Report, finite_or_none
from benchmarks.search.section import Section, Settings
from benchmarks.search.tools import DEFAULT
from mptune.tuning.comparison import Comparison
from mptune.tuning.simulation import Simulation

__all__ = ["Mixed"]

Floats = NDArray[np.float64]

#: Evaluations within which a run has to have something feasible.
_SOON: Final = 30
_TARGET_SHARE: Final = 0.99
_TARGET_WINS: Final = 0.99
_PAPERS: Final = "The searches of Heldens 2026 with its settings, beside its figures: h-f5 and h-f10 in `papers.md`."


class Mixed(Section):
    """Every strategy with every penalty on recorded mixed-precision spaces."""

    name: ClassVar[str] = "mixed"
    title: ClassVar[str] = "Mixed-precision spaces"

    def jobs(self, settings: Settings) -> list[Job]:
        """Return a job per tool and cell that has a feasible configuration, the default's first."""
        tools = sorted(tools_of(settings), key=lambda tool: tool.name != DEFAULT.name)
        return [
            replay_job(cell, tool, settings)
            for tool in tools
            for cell in cells_of(settings)
            if cell.optimum is not None
        ]

    def report(self, settings: Settings, results: Results) -> Report:
        """Return the figures of every tool that has results on all cells."""
        cells = cells_of(settings)
        comparison = compare_tools(results, cells, [tool.name for tool in tools_of(settings)])
        failures = [{"space": s, "tool": tool, "reason": why} for (s, tool), why in results.failures.items()]
        if not comparison.spaces:
            return Report(self.title, "No tool has results on all cells.", {"failures": failures})
        figures = Figures.of(comparison, cells)
        return Report(
            self.title,
            _markdown(figures, cells, results),
            figures.to_json() | {"failures": failures},
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a comparison; arrays have its spaces along their first axis and its strategies along their second.

    Attributes:
        comparison: the replays.
        cells: the cells by the names of the comparison's spaces.
        share: mean over runs of the best feasible as a share of the best recorded, by evaluations.
        wins: probability that one run beats one of random, ties half, by evaluations.
        arrivals: evaluations to the first feasible configuration, one array of runs per space and strategy; infinite
            for a run that has none.
    """

    comparison: Comparison
    cells: Mapping[str, Cell]
    share: Mapping[int, Floats]
    wins: Mapping[int, Floats]
    arrivals: Mapping[tuple[str, str], Floats]

    @classmethod
    def of(cls, comparison: Comparison, cells: Sequence[Cell]) -> Figures:
        """Return the figures of a comparison that has random among its strategies or not."""
        spaces, strategies = comparison.spaces, comparison.strategies
        share = {
            at: np.array([[shares(comparison.simulation(s, t), at).mean() for t in strategies] for s in spaces])
            for at in (EARLY, BUDGET)
        }
        column = strategies.index(RANDOM.name) if RANDOM.name in strategies else None
        wins = {
            at: np.full(share[at].shape, np.nan) if column is None else comparison.win_probabilities(at)[:, :, column]
            for at in (EARLY, BUDGET)
        }
        arrivals = {(s, t): _arrivals(comparison.simulation(s, t)) for s in spaces for t in strategies}
        return cls(comparison, {cell.name: cell for cell in cells}, share, wins, arrivals)

    def arrivals_of(self, tool: str) -> Floats:
        """Return the evaluations to the first feasible configuration of all runs on all cells."""
        return np.concatenate([self.arrivals[space, tool] for space in self.comparison.spaces])

    def late_cells(self, tool: str) -> list[str]:
        """Return the cells where a run had nothing feasible in time."""
        return [space for space in self.comparison.spaces if self.arrivals[space, tool].max() > _SOON]

    def to_json(self) -> dict[str, Any]:
        """Return all figures, None where there is none."""
        spaces, strategies = self.comparison.spaces, self.comparison.strategies
        return {
            "budget": BUDGET,
            "cells": [
                {
                    "cell": space,
                    "threshold": self.cells[space].threshold,
                    "configurations": self.cells[space].recorded.space.size,
                    "feasible": self.cells[space].feasible,
                    "optimum": self.cells[space].optimum,
                    "tools": {
                        tool: {
                            "share": {at: finite_or_none(rows[i, j]) for at, rows in self.share.items()},
                            "beats_random": {at: finite_or_none(rows[i, j]) for at, rows in self.wins.items()},
                            "first_feasible": [finite_or_none(value) for value in self.arrivals[space, tool]],
                        }
                        for j, tool in enumerate(strategies)
                    },
                }
                for i, space in enumerate(spaces)
            ],
            "tools": {
                tool: {
                    "share": {at: finite_or_none(rows[:, j].mean()) for at, rows in self.share.items()},
                    "beats_random": {at: finite_or_none(rows[:, j].mean()) for at, rows in self.wins.items()},
                    "cells_feasible_in_time": 1.0 - len(self.late_cells(tool)) / len(spaces),
                }
                for j, tool in enumerate(strategies)
            },
            "infeasible": [cell.name for cell in self.cells.values() if cell.optimum is None],
        }


def _arrivals(simulation: Simulation) -> Floats:
    firsts = (next((i for i, best in enumerate(run.best, 1) if best is not None), math.inf) for run in simulation.runs)
    return np.array(list(firsts), dtype=np.float64)


def _markdown(figures: Figures, cells: Sequence[Cell], results: Results) -> str:
    comparison = figures.comparison
    infeasible = [cell.name for cell in cells if cell.optimum is None]
    parts = [
        f"{len(comparison.spaces)} cells: a recorded kernel under a threshold of Heldens 2026 (Table IV). Runs of "
        f"{BUDGET} evaluations. Share: time of the best feasible configuration recorded over that of the best one "
        "found, mean over runs, then over cells; a run without a feasible one counts 0. In time: cells where every "
        f"run has a feasible configuration within {_SOON} evaluations. Beats random: probability that one run is "
        "better than one of random, ties half, mean over cells. `bayesian`, `nsga2` and `random` do not use a penalty.",
        _summary(figures),
        f"Share by level, after {EARLY} and {BUDGET} evaluations:",
        _by_level(figures),
    ]
    if DEFAULT.name in comparison.strategies:
        parts += ["The default, cell by cell:", _by_cell(figures)]
    parts += [_PAPERS, _targets(figures)]
    if infeasible:
        parts.append(f"Left out, because nothing recorded meets the threshold: {', '.join(infeasible)}.")
    if results.failures:
        reasons = [f"- {tool} on {space}: {why}" for (space, tool), why in results.failures.items()]
        parts.append("Runs that failed:\n\n" + "\n".join(reasons))
    return "\n\n".join(part for part in parts if part)


def _ordered(figures: Figures) -> list[tuple[int, str]]:
    """Return the strategies with their columns, the best first."""
    means = figures.share[EARLY].mean(axis=0)
    return sorted(enumerate(figures.comparison.strategies), key=lambda entry: -means[entry[0]])


def _shown(tool: str) -> str:
    return f"**{tool}**" if tool == DEFAULT.name else tool


def _count(value: float) -> str:
    return f"{value:g}" if math.isfinite(value) else "never"


def _summary(figures: Figures) -> str:
    n = len(figures.comparison.spaces)
    rows = []
    for j, tool in _ordered(figures):
        firsts = figures.arrivals_of(tool)
        runs = {len(figures.arrivals[space, tool]) for space in figures.comparison.spaces}
        rows.append(
            (
                _shown(tool),
                *(percent(figures.share[at][:, j].mean(), 1) for at in (EARLY, BUDGET)),
                f"{n - len(figures.late_cells(tool))} of {n}",
                _count(float(np.quantile(firsts, 0.5, method="inverted_cdf"))),
                _count(firsts.max()),
                *(percent(figures.wins[at][:, j].mean(), 1) for at in (EARLY, BUDGET)),
                "/".join(map(str, sorted(runs))),
            )
        )
    columns = ("tool", f"share at {EARLY}", f"at {BUDGET}", "in time", "first feasible: median", "worst")
    return table((*columns, f"beats random at {EARLY}", f"at {BUDGET}", "runs"), rows)


def _by_level(figures: Figures) -> str:
    levels = levels_of(figures.comparison, list(figures.cells.values()))
    rows = [
        (
            _shown(tool),
            *(percent(figures.share[at][mask, j].mean(), 1) for at in figures.share for mask in levels.values()),
        )
        for j, tool in _ordered(figures)
    ]
    columns = [f"{level} at {at}" for at in figures.share for level in levels]
    return table(("tool", *columns), rows)


def _by_cell(figures: Figures) -> str:
    j = figures.comparison.strategies.index(DEFAULT.name)
    rows = []
    for i, space in enumerate(figures.comparison.spaces):
        cell, firsts = figures.cells[space], figures.arrivals[space, DEFAULT.name]
        rows.append(
            (
                space,
                f"{cell.threshold:.1e}",
                f"{cell.recorded.space.size:,}",
                percent(cell.feasible / cell.recorded.space.size, 1),
                *(percent(figures.share[at][i, j], 1) for at in (EARLY, BUDGET)),
                _count(float(np.quantile(firsts, 0.5, method="inverted_cdf"))),
                _count(firsts.max()),
                *(percent(figures.wins[at][i, j], 1) for at in (EARLY, BUDGET)),
            )
        )
    columns = ("cell", "threshold", "configurations", "feasible", f"share at {EARLY}", f"at {BUDGET}")
    arrivals = ("first feasible: median", "worst")
    return table((*columns, *arrivals, f"beats random at {EARLY}", f"at {BUDGET}"), rows)


def _targets(figures: Figures) -> str:
    strategies = figures.comparison.strategies
    if DEFAULT.name not in strategies:
        return ""
    j = strategies.index(DEFAULT.name)
    share, late = figures.share[EARLY][:, j].mean(), figures.late_cells(DEFAULT.name)
    met = {
        f"share at {EARLY} evaluations at least {_TARGET_SHARE:.0%}: {percent(share)}": share >= _TARGET_SHARE,
        f"feasible within {_SOON} evaluations in every run of every cell; late: {', '.join(late) or 'none'}": not late,
    }
    if RANDOM.name in strategies:
        for at, wins in figures.wins.items():
            chance = wins[:, j].mean()
            text = (
                f"beats random in at least {_TARGET_WINS:.0%} of pairs at {at} evaluations: {percent(chance)} "
                f"(equal in {percent(_ties(figures, at))}, which count half)"
            )
            met[text] = chance >= _TARGET_WINS
    return "Targets:\n\n" + "\n".join(f"- {'met' if ok else 'MISSED'}: {text}" for text, ok in met.items())


def _ties(figures: Figures, evaluations: int) -> float:
    """Return the share of pairs of a run of the default and one of random that are equal, mean over cells."""
    ends = (
        [figures.comparison.simulation(space, name).distances(evaluations) for name in (DEFAULT.name, RANDOM.name)]
        for space in figures.comparison.spaces
    )
    return float(np.mean([(own[:, None] == other).mean() for own, other in ends]))
