"""The figures of a comparison of fronts, as Markdown and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench import percent, stamp, stamp_line, table
from benchmarks.fronts.running import OURS, TOOLS
from benchmarks.search.cells import Results
from benchmarks.search.significance import NOISE, welch_chance

__all__ = ["Cell", "Figures", "write"]

Floats = NDArray[np.float64]

#: A run counts as at the hypervolume of another within this much.
_EQUAL: Final = 1e-9
_POINTS: Final = 25


class Cell:
    """A recorded space with a set of objectives."""

    def __init__(self, file: Path, objectives: tuple[str, ...]) -> None:
        self.file = file
        self.objectives = objectives
        self.name = f"{file.name.partition('.')[0]} {','.join(objectives)}"


class Figures:
    """What the runs of all tools gave.

    Args:
        cells: recorded spaces and objectives.
        tools: names of the tools.
        results: of the jobs.
        budget: evaluations of each run.
    """

    def __init__(self, cells: Sequence[Cell], tools: Sequence[str], results: Results, budget: int) -> None:
        self.results = results
        self.budget = budget
        self.curves = {
            (cell.name, tool): np.array([_padded(r["shares"], budget) for r in results.of(cell.name, tool).values()])
            for cell in cells
            for tool in tools
        }
        self.cells = [cell.name for cell in cells if all(len(self.curves[cell.name, tool]) for tool in tools)]
        self.tools = list(tools)
        self.peers = [tool for tool in tools if not TOOLS[tool].strategy]

    def quartiles(self, cell: str, tool: str) -> Floats:
        """Return lower quartile, median and upper quartile after each evaluation, shape ``(3, budget)``."""
        return np.asarray(np.quantile(self.curves[cell, tool], [0.25, 0.5, 0.75], axis=0))

    def mean(self, tool: str, evaluations: int) -> float:
        """Return the share after so many evaluations, median over runs, mean over cells."""
        return float(np.mean([self.quartiles(cell, tool)[1, evaluations - 1] for cell in self.cells]))

    def arrival(self, cell: str, peer: str) -> float:
        """Return after how many evaluations the median of ours is where the peer's ends, infinite for never."""
        reached = np.flatnonzero(self.quartiles(cell, OURS)[1] >= self.quartiles(cell, peer)[1, -1] - _EQUAL)
        return float(reached[0] + 1) if len(reached) else math.inf

    def verdict(self, cell: str, peer: str) -> str:
        """Return how ours at half the budget compares with a peer at all of it, beyond noise or not."""
        own, other = self.curves[cell, OURS][:, self.budget // 2 - 1], self.curves[cell, peer][:, -1]
        if not welch_chance(own, other) < NOISE:
            return "within noise"
        return "better" if own.mean() > other.mean() else "worse"

    def to_json(self) -> dict[str, Any]:
        """Return quartiles at some evaluations; all else follows from them."""
        at = np.unique(np.linspace(1, self.budget, _POINTS).astype(int))
        return {
            "budget": self.budget,
            "evaluations": at.tolist(),
            "cells": {
                cell: {
                    tool: {
                        "runs": len(self.curves[cell, tool]),
                        "quartiles": np.round(self.quartiles(cell, tool)[:, at - 1], 4).tolist(),
                    }
                    for tool in self.tools
                }
                for cell in self.cells
            },
            "failures": [{"cell": c, "tool": tool, "reason": why} for (c, tool), why in self.results.failures.items()],
        }


def _padded(shares: Sequence[float], budget: int) -> list[float]:
    """Return the shares of a run that ended early, as if nothing had come after."""
    return [*shares, *[shares[-1] if shares else 0.0] * (budget - len(shares))][:budget]


def write(figures: Figures, folder: Path, command: str) -> list[Path]:
    """Write page and document into a folder; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    about = stamp(command)
    page, document = (folder / f"pareto.{ending}" for ending in ("md", "json"))
    page.write_text(_markdown(figures, about))
    document.write_text(json.dumps({"about": about, "results": figures.to_json()}, allow_nan=False) + "\n")
    return [page, document]


def _markdown(figures: Figures, about: dict[str, Any]) -> str:
    half, budget = figures.budget // 2, figures.budget
    runs = min((len(curves) for curves in figures.curves.values()), default=0)
    parts = [
        "# How well mptune finds fronts",
        stamp_line(about),
        "Recorded spaces of `benchmarks/data`, two and three objectives. Hypervolume of the front found so far as a "
        "share of that of the recorded front: axes are log10 of time, error and memory, 0 at the ideal and 1 at the "
        "nadir point of the recorded front, reference point 1.1 (`mptune.results.pareto.FrontScale`). Median over "
        f"{runs} runs with seeds from 0 on. An evaluation is a configuration not evaluated before. mptune knows the "
        "memory footprint of a configuration without running it, and is told which parameters are types and policies; "
        "the peers know neither. They are given the logarithms too.",
        _overall(figures),
        f"After {budget} evaluations (quartiles):",
        _by_cell(figures),
    ]
    if OURS in figures.tools and figures.peers:
        parts += [
            f"Evaluations after which {OURS} is where a peer is after {budget}, and how its runs after {half} compare "
            f"with the peer's after {budget} (Welch's t-test, p < {NOISE:g}):",
            _against(figures),
            _target(figures),
        ]
    parts += [f"{tool}: {TOOLS[tool].setup}." for tool in figures.peers]
    if figures.results.failures:
        parts.append(
            "Runs that failed:\n\n" + "\n".join(f"- {t} on {c}: {w}" for (c, t), w in figures.results.failures.items())
        )
    return "\n\n".join(parts) + "\n"


def _overall(figures: Figures) -> str:
    at = [figures.budget // 4, figures.budget // 2, figures.budget]
    ordered = sorted(figures.tools, key=lambda tool: -figures.mean(tool, figures.budget))
    rows = [(tool, *(percent(figures.mean(tool, n), 1) for n in at)) for tool in ordered]
    return table(("mean over all cells", *(f"after {n}" for n in at)), rows)


def _by_cell(figures: Figures) -> str:
    rows = []
    for cell in figures.cells:
        ends = [figures.quartiles(cell, tool)[:, -1] for tool in figures.tools]
        rows.append((cell, *(f"{percent(m, 1)} ({100 * low:.1f} to {100 * high:.1f})" for low, m, high in ends)))
    return table(("cell", *figures.tools), rows)


def _against(figures: Figures) -> str:
    rows = [
        (cell, *(_shown(figures.arrival(cell, peer), figures.verdict(cell, peer)) for peer in figures.peers))
        for cell in figures.cells
    ]
    return table(("cell", *figures.peers), rows)


def _shown(arrival: float, verdict: str) -> str:
    return f"{arrival:g}, {verdict}" if math.isfinite(arrival) else f"never, {verdict}"


def _target(figures: Figures) -> str:
    half = figures.budget // 2
    lines = []
    for peer in figures.peers:
        late = [cell for cell in figures.cells if figures.arrival(cell, peer) > half]
        own, other = figures.mean(OURS, half), figures.mean(peer, figures.budget)
        lines.append(
            f"- {'MISSED' if late else 'met'}: where {peer} is after {figures.budget} within {half} on every cell; "
            f"late: {', '.join(late) or 'none'}; mean over cells {percent(own, 1)} against {percent(other, 1)}"
        )
    return "Target, the peers' final hypervolume in half their evaluations:\n\n" + "\n".join(lines)
