"""Unified against sequential tuning: precision and the rest at once, or one after the other (Heldens 2026, V-G)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.search import two_stages
from benchmarks.search.cells import Job, Results
from benchmarks.search.plots import draw_bars_by_level
from benchmarks.search.precision_cells import (
    BUDGET,
    PAPER_PENALTY,
    Cell,
    cells_of,
    compare_tools,
    levels_of,
    replay_job,
    seeds_of,
    shares,
)
from benchmarks.search.report import Report, markdown_table, percent
from benchmarks.search.section import Section, Settings
from benchmarks.search.tools import DEFAULT, Tool
from benchmarks.search.two_stages import ORDERS, TARGET, Halves
from mptune.tuning.comparison import Comparison

__all__ = ["DENSE", "Sequential"]

_UNIFIED: Final = "unified"
#: Below this part of all combinations a stage would mostly ask for what is not recorded.
DENSE: Final = 0.5
#: The default and the best two of Heldens 2026, BO and GA.
_TOOLS: Final = (
    DEFAULT,
    *(Tool(f"mptune {name} ({PAPER_PENALTY})", name, penalty=PAPER_PENALTY) for name in ("bayesian-multi", "genetic")),
)
#: Mean share the paper reports (Sec. V-G); for GA only that of unified tuning.
_PAPER: Final[Mapping[tuple[str, str], float]] = {
    (_TOOLS[1].name, _UNIFIED): 0.96,
    (_TOOLS[1].name, "performance then precision"): 0.77,
    (_TOOLS[1].name, "precision then performance"): 0.86,
    (_TOOLS[2].name, _UNIFIED): 0.94,
}


class Sequential(Section):
    """The default and the paper's strategies, unified and in two stages."""

    name: ClassVar[str] = "sequential"
    title: ClassVar[str] = "Unified against sequential tuning"

    def jobs(self, settings: Settings) -> list[Job]:
        """Return a job per cell, strategy and approach; the unified ones are those of ``mixed``."""
        jobs = []
        for cell in _dense(settings):
            for tool in _TOOLS:
                jobs.append(replay_job(cell, tool, settings))
                jobs += [self._staged_job(cell, tool, order, settings) for order in ORDERS]
        return jobs

    def _staged_job(self, cell: Cell, tool: Tool, order: str, settings: Settings) -> Job:
        return Job(
            section=self.name,
            space=cell.name,
            tool=_name(tool, order),
            target=TARGET,
            settings={
                "space": str(cell.path.resolve()),
                "budget": BUDGET,
                "tool": tool.settings,
                "max_error": cell.threshold,
                "order": order,
            },
            seeds=seeds_of(settings, tool),
            limit_s=settings.limit_s,
            files=(cell.path, Path(two_stages.__file__)),
            version=tool.version,
        )

    def report(self, settings: Settings, results: Results) -> Report:
        """Return how near each approach comes to the best feasible configuration."""
        cells = _dense(settings)
        names = [_name(tool, approach) for tool in _TOOLS for approach in (_UNIFIED, *ORDERS)]
        comparison = compare_tools(results, cells, names)
        failures = [{"space": s, "tool": tool, "reason": why} for (s, tool), why in results.failures.items()]
        if not comparison.spaces:
            return Report(self.title, "No approach has results on all cells.", {"failures": failures})
        found = _Found.of(comparison, cells)
        left_out = sorted({cell.path.name for cell in cells_of(settings)} - {cell.path.name for cell in cells})
        return Report(
            self.title,
            _markdown(found, cells, left_out),
            found.to_json() | {"left_out": left_out, "failures": failures},
            {"approaches": partial(draw_bars_by_level, groups=found.groups(cells))},
        )


def _name(tool: Tool, approach: str) -> str:
    return tool.name if approach == _UNIFIED else f"{tool.name}, {approach}"


def _dense(settings: Settings) -> list[Cell]:
    """Return the feasible cells of recordings that hold most combinations."""
    cells = [cell for cell in cells_of(settings) if cell.optimum is not None]
    density = {cell.path: Halves(cell.recorded) for cell in cells}
    dense = {path for path, halves in density.items() if halves.density >= DENSE and all(halves.names.values())}
    return [cell for cell in cells if cell.path in dense]


@dataclass(frozen=True, slots=True)
class _Found:
    """The runs' shares at the end of the budget, by tool, approach and cell."""

    comparison: Comparison
    runs: Mapping[tuple[str, str], Mapping[str, NDArray[np.float64]]]
    levels: Mapping[str, NDArray[np.bool_]]

    @classmethod
    def of(cls, comparison: Comparison, cells: Sequence[Cell]) -> _Found:
        runs = {
            (tool.name, approach): {
                space: shares(comparison.simulation(space, _name(tool, approach)), BUDGET)
                for space in comparison.spaces
            }
            for tool in _TOOLS
            for approach in (_UNIFIED, *ORDERS)
            if _name(tool, approach) in comparison.strategies
        }
        return cls(comparison, runs, levels_of(comparison, cells))

    def means(self, tool: str, approach: str) -> NDArray[np.float64]:
        """Return the mean over runs on each cell."""
        return np.array([values.mean() for values in self.runs[tool, approach].values()])

    def groups(self, cells: Sequence[Cell]) -> dict[tuple[str, str], dict[str, dict[str, NDArray[np.float64]]]]:
        """Return the runs by (tool, level), kernel and approach; for each tool that has all approaches."""
        groups: dict[tuple[str, str], dict[str, dict[str, NDArray[np.float64]]]] = {}
        for tool in dict.fromkeys(tool for tool, _ in self.runs):
            approaches = [approach for approach in (_UNIFIED, *ORDERS) if (tool, approach) in self.runs]
            for cell in cells:
                of_cell = {approach: self.runs[tool, approach][cell.name] for approach in approaches}
                groups.setdefault((tool, cell.level), {})[cell.name.removesuffix(f" {cell.level}")] = of_cell
        return groups

    def to_json(self) -> dict[str, Any]:
        return {
            "budget": BUDGET,
            "approaches": [
                {
                    "tool": tool,
                    "approach": approach,
                    "share": float(self.means(tool, approach).mean()),
                    "standard_deviation": float(np.concatenate(list(runs.values())).std()),
                    "paper": _PAPER.get((tool, approach)),
                    "cells": {space: values.tolist() for space, values in runs.items()},
                }
                for (tool, approach), runs in self.runs.items()
            ],
        }


def _markdown(found: _Found, cells: Sequence[Cell], left_out: Sequence[str]) -> str:
    recordings = {cell.path: Halves(cell.recorded) for cell in cells}
    splits = {
        f"{path.name.partition('.')[0]} {first} + {second}"
        for path, halves in recordings.items()
        for first, second in [halves.budgets("performance then precision", BUDGET)]
    }
    parts = [
        f"Time of the best feasible configuration recorded over that of the best one found within {BUDGET} "
        "evaluations, mean over runs, then over cells (a run without a feasible one counts 0), and standard deviation "
        "over all runs. Performance then precision: the rest with every type and policy at its most accurate and no "
        "threshold, then types and policies of the fastest. Precision then performance: the other way round, from the "
        "first value of everything. The budget is divided in proportion to the number of parameters of each kind, as "
        "in the paper; what a first stage that ran out of configurations leaves goes to the second (optimisation + "
        f"precision: {', '.join(sorted(splits))}).",
        _summary(found),
        "Cell by cell:",
        _by_cell(found),
    ]
    if left_out:
        parts.append(
            f"Left out, because nothing in them meets a threshold or they hold less than {DENSE:.0%} of the "
            f"combinations of their precisions with the rest: {', '.join(left_out)}."
        )
    return "\n\n".join(parts)


def _summary(found: _Found) -> str:
    rows = []
    for tool, approach in found.runs:
        means = found.means(tool, approach)
        reported = _PAPER.get((tool, approach))
        rows.append(
            (
                tool,
                approach,
                *(percent(means[mask].mean(), 1) for mask in found.levels.values()),
                percent(float(np.concatenate(list(found.runs[tool, approach].values())).std()), 1),
                "" if reported is None else f"{reported:.0%}",
            )
        )
    columns = ("strategy", "approach", *found.levels, "standard deviation", "the paper, on its GPUs")
    return markdown_table(columns, rows)


def _by_cell(found: _Found) -> str:
    keys = list(found.runs)
    means = np.array([found.means(*key) for key in keys])
    short = {approach: approach.replace("performance", "perf.").replace("precision", "prec.") for _, approach in keys}
    columns = [f"{tool.removeprefix('mptune ')}: {short[approach]}" for tool, approach in keys]
    rows = [(space, *(percent(value, 1) for value in means[:, i])) for i, space in enumerate(found.comparison.spaces)]
    return markdown_table(("cell", *columns), rows)
