"""Which search beats which: Figs. 7 and 8 (Heldens 2026, Sec. V-E), replayed on recorded spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench import percent
from benchmarks.reproductions.heldens.searches import ELSEWHERE, Runs, levels_of, title_of
from benchmarks.reproductions.heldens.spaces import sampled
from benchmarks.reproductions.heldens.strategies import DEFAULT, RANDOM, STRATEGIES
from benchmarks.reproductions.item import Cell as Shown
from benchmarks.reproductions.item import Given, Outcome, Table
from benchmarks.reproductions.spread import percents
from benchmarks.search.precision_cells import Cell

__all__ = ["h_f7", "h_f8"]

Floats = NDArray[np.float64]


def h_f7(given: Given) -> Outcome:
    """Return how often one run of a strategy beats one of random sampling."""
    runs = Runs.of(given, list(STRATEGIES.values()))
    names = [name for name in STRATEGIES if name != RANDOM.name]
    beaten = {(name, cell.name): runs.beaten(cell, name, RANDOM.name) for name in names for cell in runs.cells}
    groups = {level: [cell for cell in runs.compared if cell.level == level] for level in levels_of(runs)}
    kernels = {
        title: [cell for cell in runs.cells if title_of(cell) == title]
        for title in dict.fromkeys(map(title_of, runs.cells))
    }

    def mean(name: str, some: Sequence[Cell]) -> float:
        return float(np.mean([beaten[name, cell.name].mean() for cell in some]))

    order = sorted(names, key=lambda name: -mean(name, runs.compared))
    best = next(name for name in order if name != DEFAULT.name)
    others = [f"{name} {percent(mean(name, runs.compared), 1)}" for name in order if name not in (best, DEFAULT.name)]
    rows = tuple(
        (
            name,
            percent(mean(name, runs.compared), 1),
            percents(np.concatenate([beaten[name, cell.name] for cell in runs.compared])),
            *(percent(mean(name, some), 1) for some in (*groups.values(), *kernels.values())),
        )
        for name in order
    )
    return Outcome(
        "The paper: its best strategy beats random in 90% of pairs; BO and GA are far ahead, PSO, MLS and SA good, FF "
        f"slightly better than random, BH worse. Here the best of the paper's is {best} with "
        f"{percent(mean(best, runs.compared), 1)}, then {', '.join(others)}; the default beats random in "
        f"{percent(mean(DEFAULT.name, runs.compared), 1)}.",
        (
            Table(
                "Probability that one run finds something faster than one of random sampling, ties half; over runs: "
                "the share of random sampling's runs that each run beats",
                ("strategy", "all", "over runs", *groups, *kernels),
                rows,
            ),
        ),
        (
            runs.said(),
            "Ties are broken at random in the paper, which is half a win on average. Where most runs of both find the "
            "optimum, as in a small space, the probability is near 50% however good a strategy is.",
            ELSEWHERE,
            sampled(runs.cells),
        ),
    )


#: Probability that a strategy beats random on Bessel (Sec. V-E), by level.
_BESSEL: Final[Mapping[tuple[str, str], float]] = MappingProxyType(
    {("high", "BO"): 0.96, ("medium", "BO"): 0.97, ("high", "FF"): 0.48, ("medium", "FF"): 0.70}
)
#: The most that basin hopping has against any other.
_BASIN_HOPPING: Final = 0.44


def h_f8(given: Given) -> Outcome:
    """Return how often one run of each strategy beats one of each other, on Bessel."""
    runs = Runs.of(given, list(STRATEGIES.values()), "bessel")
    names = list(STRATEGIES)
    kernel = runs.cells[0].kernel
    shown = [cell for cell in runs.cells if cell.kernel == kernel]
    wins = {cell.level: runs.wins(cell, names) for cell in shown}
    position = names.index("BH")
    most = max(float(np.delete(chances[position], position).max()) for chances in wins.values())
    random = names.index(RANDOM.name)
    of_bo = " and ".join(f"{chances[names.index('BO'), random]:.0%} ({level})" for level, chances in wins.items())
    rows = tuple(
        _beating_row(runs, cell, name, wins[cell.level]) for cell in shown for name in names if name != RANDOM.name
    )
    columns = ("accuracy", "strategy", "beats random: paper", "here", "over runs")
    return Outcome(
        "The paper, on Bessel: BO beats random in 96 and 97% of pairs, FF in 48 and 70%, BH beats no strategy in more "
        f"than {_BASIN_HOPPING:.0%}. Here, on {title_of(shown[0])}, BO beats random in {of_bo}, and BH the "
        f"one that it beats most in {most:.0%}.",
        (
            Table(
                "Probability that one run finds something faster than one of another strategy, ties half; over runs: "
                "the share of random sampling's runs that each run beats",
                columns,
                rows,
            ),
            *(
                Table(
                    f"Probability that one run of the row finds something faster than one of the column, {level} "
                    "accuracy",
                    ("strategy", *names),
                    tuple(
                        (name, *(None if i == j else percent(float(chances[i, j]), 0) for j in range(len(names))))
                        for i, name in enumerate(names)
                    ),
                )
                for level, chances in wins.items()
            ),
        ),
        (
            runs.said(),
            "The paper says that its figure has low and medium precision, and then gives numbers of high and medium.",
            ELSEWHERE,
            sampled(shown, chosen=True),
        ),
        {level: {"strategies": names, "probabilities": chances.tolist()} for level, chances in wins.items()},
    )


def _beating_row(runs: Runs, cell: Cell, name: str, chances: Floats) -> tuple[Shown, ...]:
    """Return how often a strategy beats random sampling."""
    names = list(STRATEGIES)
    paper = _BESSEL.get((cell.level, name)) if cell.kernel == "bessel" else None
    return (
        cell.level,
        name,
        None if paper is None else percent(paper, 0),
        percent(float(chances[names.index(name), names.index(RANDOM.name)]), 0),
        percents(runs.beaten(cell, name, RANDOM.name)),
    )
