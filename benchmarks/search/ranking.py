"""The probability that one run of a strategy beats one of another, by precision level (Heldens 2026, Sec. V-E)."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.cells import Job, Results
from benchmarks.search.plots import draw_win_maps
from benchmarks.search.precision_cells import (
    BUDGET,
    EARLY,
    PAPER_PENALTY,
    RANDOM,
    cells_of,
    compare_tools,
    levels_of,
    replay_job,
    tools_of,
)
from benchmarks.search.report import Report, markdown_table, percent
from benchmarks.search.section import Section, Settings
from benchmarks.search.tools import DEFAULT, Tool

__all__ = ["Ranking"]


class Ranking(Section):
    """Every pair of strategies on the cells of ``mixed``, whose runs it shares."""

    name: ClassVar[str] = "ranking"
    title: ClassVar[str] = "Which strategy beats which"

    def jobs(self, settings: Settings) -> list[Job]:
        """Return the jobs of ``mixed`` under the paper's penalty."""
        return [
            replay_job(cell, tool, settings)
            for tool in _tools(settings)
            for cell in cells_of(settings)
            if cell.optimum is not None
        ]

    def report(self, settings: Settings, results: Results) -> Report:
        """Return the probabilities by level, strategies in the order of how much they win."""
        cells = cells_of(settings)
        comparison = compare_tools(results, cells, [tool.name for tool in _tools(settings)])
        if not comparison.spaces:
            return Report(self.title, "No tool has results on all cells.", {})
        levels = levels_of(comparison, cells)
        wins = {at: comparison.win_probabilities(at) for at in (EARLY, BUDGET)}
        order = np.argsort(-wins[BUDGET].mean(axis=(0, 2)), kind="stable")
        names = [comparison.strategies[j] for j in order]
        means = {
            at: {level: rows[mask].mean(axis=0)[np.ix_(order, order)] for level, mask in levels.items()}
            for at, rows in wins.items()
        }
        return Report(
            self.title,
            _markdown(names, means, {level: int(mask.sum()) for level, mask in levels.items()}),
            {
                "strategies": names,
                "cells": list(comparison.spaces),
                "probabilities": {at: {k: m.tolist() for k, m in by_level.items()} for at, by_level in means.items()},
                "by_cell": {
                    space: wins[BUDGET][i][np.ix_(order, order)].tolist() for i, space in enumerate(comparison.spaces)
                },
            },
            {"wins": partial(draw_win_maps, names=[_short(name) for name in names], wins=means[BUDGET])},
        )


def _tools(settings: Settings) -> list[Tool]:
    return tools_of(settings, (PAPER_PENALTY,))


def _short(name: str) -> str:
    return name.removeprefix("mptune ").removesuffix(f" ({PAPER_PENALTY})")


def _markdown(names: list[str], means: dict[int, dict[str, NDArray[Any]]], counts: dict[str, int]) -> str:
    parts = [
        f"The probability that one run of a strategy is better than one of another after {BUDGET} evaluations, ties "
        f"half, mean over the cells of a level ({', '.join(f'{level}: {n}' for level, n in counts.items())}); runs and "
        f"cells are those of the section before, the penalty is {PAPER_PENALTY}. Rows against columns, all levels:",
        _table(names, means[BUDGET]["all"]),
    ]
    if RANDOM.name in names:
        column = names.index(RANDOM.name)
        rows = [
            (
                _shown(name),
                *(percent(matrix[j, column], 1) for by_level in means.values() for matrix in by_level.values()),
            )
            for j, name in enumerate(names)
            if j != column
        ]
        columns = [f"{level} at {at}" for at, by_level in means.items() for level in by_level]
        parts += ["Against random, by level and evaluations:", markdown_table(("strategy", *columns), rows)]
    return "\n\n".join(parts)


def _table(names: list[str], matrix: NDArray[Any]) -> str:
    rows = [
        (_shown(name), *("" if i == j else f"{100 * matrix[i, j]:.0f}" for j in range(len(names))))
        for i, name in enumerate(names)
    ]
    return markdown_table(("% of pairs", *map(_short, names)), rows)


def _shown(name: str) -> str:
    return f"**{_short(name)}**" if name == DEFAULT.name else _short(name)
