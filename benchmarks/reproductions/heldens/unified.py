"""Unified against sequential tuning: Fig. 10 (Heldens 2026, Sec. V-G), replayed on recorded spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench import percent
from benchmarks.reproductions.heldens.searches import (
    budget_of,
    finished,
    is_of_paper,
    replayed,
    shares_of,
    title_of,
    told_budgets,
)
from benchmarks.reproductions.heldens.spaces import sampled
from benchmarks.reproductions.heldens.strategies import STRATEGIES
from benchmarks.reproductions.item import Cell as Shown
from benchmarks.reproductions.item import Given, Outcome, Skipped, Table
from benchmarks.reproductions.spread import percents
from benchmarks.search import two_stages
from benchmarks.search.cells import Job
from benchmarks.search.precision_cells import Cell
from benchmarks.search.two_stages import DENSE, ORDERS, Halves

__all__ = ["h_f10"]

Floats = NDArray[np.float64]

_UNIFIED_NAME: Final = "unified"
_PERFORMANCE_FIRST: Final = next(iter(ORDERS))
#: Mean share of the optimum and its standard deviation (Sec. V-G); None where the text has no number.
_STAGED: Final[Mapping[tuple[str, str], tuple[float, float | None]]] = MappingProxyType(
    {
        ("BO", _UNIFIED_NAME): (0.96, 0.091),
        ("BO", "performance then precision"): (0.77, 0.214),
        ("BO", "precision then performance"): (0.86, 0.160),
        ("GA", _UNIFIED_NAME): (0.94, None),
    }
)
_STAGED_BY: Final = (STRATEGIES["BO"], STRATEGIES["GA"])


def h_f10(given: Given) -> Outcome:
    """Return what tuning types and the rest at once finds, and what one after the other."""
    dense = [cell for cell in replayed(given) if _is_dense(cell)]
    compared = [cell.name for cell in dense if is_of_paper(cell)]
    if not compared:
        raise Skipped("no recording holds most combinations of its types with the rest, which stages would try")
    found = _staged(given, dense)
    rows = tuple(
        _staged_row(tool, approach, [values[name] for name in compared]) for (tool, approach), values in found.items()
    )
    strictly = [_named(order, strict=True) for order in ORDERS]
    means = {
        tool.name: [
            percent(float(np.mean([found[tool.name, each][name].mean() for name in compared])), 1)
            for each in (_UNIFIED_NAME, *strictly)
        ]
        for tool in _STAGED_BY
    }
    said = "; ".join(f"{tool} {', '.join(values)}" for tool, values in means.items())
    return Outcome(
        "The paper: unified is better or on par, and steadier; for BO 96% of the optimum unified, 77% performance then "
        f"precision, 86% precision then performance. Here, in this order and with the budget split strictly: {said}.",
        (
            Table(
                "Share of the optimum on the paper's kernels: mean over runs, then cells; standard deviation, and "
                "median and quartiles, over all runs",
                ("strategy", "approach", "paper", "here", "deviation: paper", "here", "over runs"),
                rows,
            ),
            Table(
                "Share of the optimum by cell, with the budget split strictly, over runs",
                ("strategy", "kernel", "accuracy", _UNIFIED_NAME, *strictly),
                tuple(
                    (
                        tool.name,
                        title_of(cell),
                        cell.level,
                        *(percents(found[tool.name, each][cell.name]) for each in (_UNIFIED_NAME, *strictly)),
                    )
                    for tool in _STAGED_BY
                    for cell in dense
                ),
            ),
        ),
        _staged_differs(given, dense),
    )


def _staged(given: Given, dense: Sequence[Cell]) -> dict[tuple[str, str], dict[str, Floats]]:
    """Return the runs' shares of the optimum by (strategy, approach) and cell, of searches at once and in stages."""
    stages = {_named(order, strict): (order, strict) for order in ORDERS for strict in (True, False)}
    budgets = {cell.name: budget_of(given, cell) for cell in dense}
    jobs: dict[tuple[str, str], list[Job]] = {}
    for tool in _STAGED_BY:
        jobs[tool.name, _UNIFIED_NAME] = [tool.job(cell, given.runs, budgets[cell.name]) for cell in dense]
        for approach, (order, strict) in stages.items():
            name, settings = f"{tool.name}, {approach}", {"order": order, "strict": strict}
            jobs[tool.name, approach] = [
                tool.job_of(
                    cell,
                    given.runs,
                    name,
                    two_stages.TARGET,
                    {"budget": budgets[cell.name], **settings},
                    Path(two_stages.__file__),
                )
                for cell in dense
            ]
    results = finished(given, [job for some in jobs.values() for job in some])
    return {
        key: {cell.name: shares_of(results, cell, job.tool) for cell, job in zip(dense, some, strict=True)}
        for key, some in jobs.items()
    }


def _staged_differs(given: Given, dense: Sequence[Cell]) -> tuple[str, ...]:
    budgets = {cell.name: budget_of(given, cell) for cell in dense}
    splits = dict.fromkeys(
        "{} {} + {} of {} + {}".format(
            title_of(cell),
            *Halves(cell.recorded).budgets(_PERFORMANCE_FIRST, budgets[cell.name]),
            *_counts(cell, _PERFORMANCE_FIRST),
        )
        for cell in dense
    )
    exhausted = sum(
        all(
            share >= count
            for order in ORDERS
            for share, count in zip(
                Halves(cell.recorded).budgets(order, budgets[cell.name]), _counts(cell, order), strict=True
            )
        )
        for cell in dense
    )
    left_out = dict.fromkeys(title_of(cell) for cell in replayed(given) if cell not in dense)
    sparse = f" Left out, because most combinations are not recorded: {', '.join(left_out)}." if left_out else ""
    return (
        f"{given.runs} runs, with the seeds from 0 on, on {len(dense)} cells; 100 in the paper, on 27. "
        + told_budgets(dense, budgets),
        "The budget is divided in proportion to the number of parameters of each kind (optimisation + precision of "
        f"combinations of each): {', '.join(splits)}. Parameters of which one value is recorded are left out; the "
        "paper counts all (159 + 91 of 250 for Convolution2D).",
        "The paper's text calls performance then precision slightly better, and its numbers say the opposite.",
        "Strictly: each stage has its own share. Passed on: the second gets what a first stage that has tried "
        "everything leaves over. A stage that may try all it has finds the best of it whatever the strategy: strictly "
        f"that are both stages on {exhausted} of the {len(dense)} cells. The paper does not say which it did; its "
        "figures stand beside those that are split strictly.",
        "The first stage of performance then precision is in fp64 without a threshold, that of precision then "
        "performance at the first value of every other parameter that runs; the paper does not say what it fixes.",
        sampled(dense) + sparse,
    )


def _named(order: str, strict: bool) -> str:
    return f"{order}, {'strictly' if strict else 'passed on'}"


def _is_dense(cell: Cell) -> bool:
    halves = Halves(cell.recorded)
    return halves.density >= DENSE and all(halves.names.values())


def _counts(cell: Cell, order: str) -> tuple[int, int]:
    """Return how many combinations the first and the second stage choose from."""
    halves = Halves(cell.recorded)
    of = {kind: len({c.subset(names) for c in halves.trials}) for kind, names in halves.names.items()}
    (second,) = (kind for kind in of if kind != ORDERS[order])
    return of[ORDERS[order]], of[second]


def _staged_row(tool: str, approach: str, values: Sequence[Floats]) -> tuple[Shown, ...]:
    order = approach.rpartition(", ")[0] or approach
    paper = None if approach == _named(order, strict=False) else _STAGED.get((tool, order))
    together = np.concatenate(values)
    return (
        tool,
        approach,
        None if paper is None else percent(paper[0], 0),
        percent(float(np.mean([runs.mean() for runs in values])), 1),
        None if paper is None or paper[1] is None else percent(paper[1], 1),
        percent(float(together.std()), 1),
        percents(together),
    )
