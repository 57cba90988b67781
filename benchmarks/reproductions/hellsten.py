"""Hellsten et al. 2023, BaCO: a fast and portable Bayesian compiler optimization framework."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench import percent
from benchmarks.reproductions.item import Cell, Given, Item, Outcome, Table
from benchmarks.reproductions.replayed import jobs_of, recordings, replayed, run_all
from benchmarks.reproductions.spread import percents, spread
from benchmarks.search.peers import PEERS
from benchmarks.search.precision_cells import shares
from benchmarks.search.tools import Tool
from mptune.backends.processor import processor
from mptune.tuning.comparison import Comparison

__all__ = ["ITEMS"]

#: Evaluations of the tiny, small and full budget. The paper's full ones are 20 to 120, by benchmark (its Table 3).
POINTS: Final = (20, 40, 60)
_BUDGET: Final = POINTS[-1]
BACO: Final = Tool("BaCO", "bayesian-baco")
_UNIFORM: Final = Tool("uniform sampling", "random")
_BIASED: Final = Tool("CoT sampling", "bayesian-baco", {"initial": _BUDGET, "sampling": "biased", "feasibility": False})
_ATF: Final = "pyATF"
_YTOPT: Final = "scikit-optimize"
#: What the paper compares with, by ours; and rows "All" of Tables 6 to 9: tiny, small and full budget, and how much
#: faster BaCO is.
_PAPER: Final[Mapping[str, tuple[str, tuple[float, float, float], float]]] = MappingProxyType(
    {
        BACO.name: ("BaCO", (0.76, 1.22, 1.41), math.nan),
        _ATF: ("ATF with OpenTuner", (0.56, 0.80, 1.01), 2.87),
        _YTOPT: ("Ytopt", (0.49, 0.61, 0.71), 3.82),
        _UNIFORM.name: ("uniform sampling", (0.50, 0.67, 0.76), 3.86),
        _BIASED.name: ("CoT sampling", (0.55, 0.71, 0.83), 3.63),
    }
)
#: Spaces of one GPU each, so that no kernel counts twice as much as another.
_SPACES: Final = (
    *("gemm-rtx2080ti", "convolution-rtx2080ti", "pnpoly-rtx2080ti"),
    *("convolution2-a4000", "dedispersion-a4000"),
)
#: Those in which many configurations fail.
_FAILING: Final = ("convolution-rtx2080ti", "pnpoly-rtx2080ti")
_QUICK: Final = ("pnpoly-rtx2080ti",)
_SPACES_DIFFER: Final = (
    "The paper's spaces are schedules of TACO, RISE & ELEVATE and HPVM2FPGA, some of them with permutations; ours are "
    "recordings of kernels on GPUs, without. The paper's performance is relative to an expert's, ours to the best "
    "recorded, so that 100% is the most there can be."
)


def runs_of(given: Given, tool: Tool) -> int:
    """Return how often a tool is replayed."""
    return given.runs_of(is_slow=tool.is_slow)


def tools_of(given: Given) -> list[Tool]:
    """Return the paper's tools, as far as they are installed."""
    peers = () if given.quick else tuple(Tool(name) for name in (_ATF, _YTOPT) if PEERS[name].is_installed)
    return [BACO, *peers, _UNIFORM, _BIASED]


def compared(given: Given) -> Comparison:
    """Return the replays of all tools on all spaces."""
    files = recordings(given, *(_QUICK if given.quick else _SPACES))
    return replayed(given, [(tool, runs_of(given, tool)) for tool in tools_of(given)], files, _BUDGET)


def told_runs(given: Given, tools: Sequence[Tool]) -> str:
    """Say how many runs of each tool there are."""
    told = ", ".join(f"{tool.name} {runs_of(given, tool)}" for tool in tools)
    absent = [name for name in (_ATF, _YTOPT) if name not in {tool.name for tool in tools}]
    why = "--quick takes none that are slow" if given.quick else "not installed"
    without = f" Without {' and '.join(absent)}: {why}." if absent else ""
    return f"Runs, with seeds from 0 on: {told}; 30 in the paper (Sec. 5).{without}"


def reached(comparison: Comparison, tool: str, evaluations: int) -> NDArray[np.float64]:
    """Return each run's best as a share of the best recorded, mean over spaces; shape ``(n_runs,)``."""
    runs = [shares(comparison.simulation(space, tool), evaluations) for space in comparison.spaces]
    return np.asarray(np.mean(runs, axis=0))


# -- Tables 6 to 8: share at a third, two thirds and all of the budget -----------------------------


def b_t6(given: Given) -> Outcome:
    """Share of the best recorded performance at three budgets."""
    comparison = compared(given)
    rows: list[tuple[Cell, ...]] = []
    for tool in comparison.strategies:
        name, paper, _ = _PAPER[tool]
        ours = [reached(comparison, tool, point) for point in POINTS]
        of_baco = reached(comparison, BACO.name, _BUDGET).mean()
        cells: list[Cell] = []
        for stated, found in zip(paper, ours, strict=True):
            cells += [stated, f"{stated / _PAPER[BACO.name][1][-1]:.2f}", f"{found.mean() / of_baco:.2f}"]
        rows.append((name, tool, *cells))
    spaces = [
        (space, tool, *(percents(shares(comparison.simulation(space, tool), point)) for point in POINTS))
        for space in comparison.spaces
        for tool in comparison.strategies
    ]
    heads = [
        head
        for name, point in zip(("tiny", "small", "full"), POINTS, strict=True)
        for head in (f"{name}: paper, of an expert", "paper, of BaCO in full", f"here at {point}, of BaCO in full")
    ]
    best = {point: max(comparison.strategies, key=lambda t: reached(comparison, t, point).mean()) for point in POINTS}
    return Outcome(
        "The best on average: "
        + ", ".join(f"{tool} at {point} evaluations" for point, tool in best.items())
        + "; in the paper BaCO at each.",
        (
            Table("Performance at three budgets, mean over benchmarks", ("tool", "here", *heads), tuple(rows)),
            Table(
                "Share of the best recorded performance, over runs",
                ("space", "tool", *(str(point) for point in POINTS)),
                tuple(spaces),
            ),
        ),
        (
            told_runs(given, tools_of(given)),
            _SPACES_DIFFER,
            "ATF is pyATF with AUCBandit; Ytopt's random forest and lower bound are scikit-optimize's; CoT sampling "
            "draws value by value from the chain of trees, so that thin branches are drawn too often.",
            "BaCO is mptune's bayesian-baco with its defaults.",
            "A full budget of the paper is 20 to 120 evaluations, by benchmark (Table 3), a small one two thirds of it "
            f"and a tiny one a third; here they are {', '.join(map(str, reversed(POINTS)))} on every space.",
        ),
        {"seeds": {tool.name: runs_of(given, tool) for tool in tools_of(given)}},
    )


# -- Table 9: how much faster ----------------------------------------------------------------------


def b_t9(given: Given) -> Outcome:
    """How many times fewer evaluations BaCO needs for what others have in the end."""
    comparison = compared(given)
    others = [tool for tool in comparison.strategies if tool != BACO.name]
    factors = {(space, tool): _faster(comparison, space, tool) for space in comparison.spaces for tool in others}
    rows: list[tuple[Cell, ...]] = [
        (space, *(_times(factors[space, tool]) for tool in others)) for space in comparison.spaces
    ]
    means = {tool: _mean([factors[space, tool] for space in comparison.spaces]) for tool in others}
    rows.append(("mean", *(_times(means[tool]) for tool in others)))
    rows.append(("paper, mean", *(_times(_PAPER[tool][2]) for tool in others)))
    return Outcome(
        "BaCO reaches what others have after 60 evaluations "
        + ", ".join(f"{_times(means[tool])} faster ({tool}; paper {_times(_PAPER[tool][2])})" for tool in others)
        + ".",
        (
            Table(
                f"{_BUDGET} over the evaluations after which BaCO's mean is as good as the other tool's after "
                f"{_BUDGET}",
                ("space", *others),
                tuple(rows),
            ),
            Table(
                f"The same of each run of BaCO, over runs; a dash: not within {_BUDGET} evaluations",
                ("space", *others),
                tuple(
                    (space, *(spread(-_needed(comparison, space, tool), _shown) for tool in others))
                    for space in comparison.spaces
                ),
            ),
        ),
        (
            told_runs(given, tools_of(given)),
            "Of the mean over runs of the performance reached. A dash is where BaCO does not reach it within the "
            "budget; as in the paper it is left out of the mean. Each run's own performance is compared with the mean "
            "of the other tool's.",
            _SPACES_DIFFER,
        ),
        {"factors": {f"{space}: {tool}": value for (space, tool), value in factors.items()}},
    )


def _faster(comparison: Comparison, space: str, tool: str) -> float:
    goal = shares(comparison.simulation(space, tool), _BUDGET).mean()
    own = comparison.simulation(space, BACO.name)
    for evaluations in range(1, _BUDGET + 1):
        if shares(own, evaluations).mean() >= goal:
            return _BUDGET / evaluations
    return math.nan


def _needed(comparison: Comparison, space: str, tool: str) -> NDArray[np.float64]:
    """Return after how many evaluations each run of BaCO has what the other tool has in the mean; infinity: never."""
    goal = shares(comparison.simulation(space, tool), _BUDGET).mean()
    own = comparison.simulation(space, BACO.name)
    reaches = np.array([shares(own, evaluations) for evaluations in range(1, _BUDGET + 1)]) >= goal
    return np.where(reaches.any(axis=0), reaches.argmax(axis=0) + 1.0, np.inf)


def _shown(fewer: float) -> str:
    """Say how much faster something is, given the negative of the evaluations it needs (so that more is better)."""
    return _times(_BUDGET / -fewer if math.isfinite(fewer) else math.nan)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return statistics.fmean(known) if known else math.nan


def _times(factor: float) -> str:
    return "-" if math.isnan(factor) else f"{factor:.2f}×"


# -- Table 10: how long it takes -------------------------------------------------------------------

_PAPER_S: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        BACO.name: (262, 263),
        _ATF: (144, 197),
        _YTOPT: (309, 274),
        _UNIFORM.name: (402, 433),
        _BIASED.name: (336, 381),
    }
)


def b_t10(given: Given) -> Outcome:
    """Seconds of a search."""
    files = recordings(given, *(_QUICK if given.quick else _FAILING))
    tools = tools_of(given)
    # Not those of other items, which may have run beside each other.
    with_runs = [(tool, runs_of(given, tool)) for tool in tools]
    jobs = [replace(job, section=f"papers, alone on {processor().name}") for job in jobs_of(with_runs, files, _BUDGET)]
    results = run_all(replace(given, processes=1), jobs)
    seconds = {
        (space, tool.name): [found["strategy_s"] for found in results.of(space, tool.name).values()]
        for space in files
        for tool in tools
    }
    rows: list[tuple[Cell, ...]] = [
        (
            tool.name,
            *map(str, _PAPER_S[tool.name]),
            *(spread(seconds[space, tool.name], lambda value: f"{value:.2g}") for space in files),
        )
        for tool in tools
    ]
    return Outcome(
        f"A search of {_BUDGET} evaluations keeps bayesian-baco busy for "
        + " and ".join(f"{statistics.median(seconds[space, BACO.name]):.1f} s ({space})" for space in files)
        + ", evaluations not counted.",
        (
            Table(
                "Seconds of one search, over runs",
                ("tool", "paper, SpMM, with evaluations", "paper, SDDMM, with evaluations", *files),
                tuple(rows),
            ),
        ),
        (
            "The paper's seconds include compiling and running what is evaluated, and do not say how much of them is "
            "the search itself; ours are the search alone, as recordings need no evaluation.",
            told_runs(given, tools) + " One at a time.",
        ),
    )


# -- Figures 8 to 10: ablations --------------------------------------------------------------------


#: Below this number of configurations a space is considered as a whole, and local search finds nothing new.
_POINTS: Final = 1000
_SAMPLED: Final[Mapping[str, Any]] = MappingProxyType({"points": _POINTS})
_NO_PRIOR: Final[Mapping[str, Any]] = MappingProxyType({"length_shape": 1.0, "length_rate": 1e-9})
_PLAIN_FIT: Final[Mapping[str, Any]] = MappingProxyType({"fit_samples": 1, "fit_starts": 1, "iterations": 5})


def _variant(name: str, **options: Any) -> Tool:
    return Tool(name, "bayesian-baco", {**_SAMPLED, **options})


_FIGURE_8: Final = (
    _variant("BaCO, sampled"),
    _variant(
        "BaCO--",
        log=False,
        log_parameters=False,
        local_search=False,
        permutation="naive",
        **_NO_PRIOR,
        **_PLAIN_FIT,
    ),
    _variant("random forest", surrogate="random-forest"),
)
_FIGURE_9: Final = (
    _FIGURE_8[0],
    _variant("no log of the objective", log=False),
    _variant("no log of parameters", log_parameters=False),
    _variant("no log of either", log=False, log_parameters=False),
    _variant("no prior of length scales", **_NO_PRIOR),
    _variant("no local search", local_search=False),
    _variant("simple fit", **_PLAIN_FIT),
)
_FIGURE_10: Final = (
    _FIGURE_8[0],
    _variant("no least probability", least_feasible=0.0),
    _variant("no feasibility model", feasibility=False),
)


def ablation(given: Given, tools: Sequence[Tool], parts: Sequence[str], stated: str, where: str) -> Outcome:
    """Return what variants reach at three points.

    Args:
        given: what the command line says.
        tools: the variants; the first is whole.
        parts: names of recordings.
        stated: what the paper found, in words: its figures have no numbers in the text.
        where: what the paper compared, and on what.
    """
    files = recordings(given, *(_QUICK if given.quick else parts))
    comparison = replayed(given, [(tool, runs_of(given, tool)) for tool in tools], files, _BUDGET)
    whole = tools[0].name
    rows: list[tuple[Cell, ...]] = []
    for tool in comparison.strategies:
        cells: list[Cell] = []
        for point in POINTS:
            found, own = reached(comparison, tool, point), reached(comparison, whole, point)
            cells += [percents(found), f"{found.mean() / own.mean():.3f}"]
        rows.append((tool, *cells, _alike(comparison, tool, whole)))
    heads = [head for point in POINTS for head in (f"{point} evaluations", "mean, of the whole's")]
    ends = {
        t: reached(comparison, t, _BUDGET).mean() / reached(comparison, whole, _BUDGET).mean()
        for t in comparison.strategies[1:]
    }
    return Outcome(
        f"After {_BUDGET} evaluations the mean is, as a share of BaCO's, "
        + ", ".join(f"{percent(share, 1)} ({tool})" for tool, share in ends.items())
        + f". {stated}",
        (
            Table(
                f"Share of the best recorded performance, mean over {', '.join(comparison.spaces)}: median and "
                "quartiles over runs, and the mean over runs as a share of the whole's",
                ("variant", *heads, "runs with the whole's best after every evaluation"),
                tuple(rows),
            ),
        ),
        (
            f"{runs_of(given, tools[0])} runs of each, with seeds from 0 on, the same for all; 30 in the paper. Of so "
            "few a difference that is less than the quartiles are apart may be chance.",
            where,
            f"Candidates are {_POINTS:,} random configurations in place of 30,000, which would be these spaces as a "
            "whole: then there is nothing for a local search to find.",
            _SPACES_DIFFER,
        ),
    )


def _alike(comparison: Comparison, tool: str, other: str) -> str:
    """Say how many runs have the same best after every evaluation as the run of another tool with the same seed."""
    pairs = [
        (one.best, two.best)
        for space in comparison.spaces
        for one, two in zip(
            comparison.simulation(space, tool).runs, comparison.simulation(space, other).runs, strict=True
        )
    ]
    return f"{sum(one == two for one, two in pairs)} of {len(pairs)}"


def b_f8(given: Given) -> Outcome:
    """BaCO, BaCO--, and a random forest in place of the Gaussian process."""
    return ablation(
        given,
        _FIGURE_8,
        ("gemm-rtx2080ti", "convolution2-a4000", "dedispersion-a4000"),
        "In the paper BaCO-- loses about 20%, and the random forest most at small budgets.",
        "The paper's are geometric means of SpMM on three matrices, with Ytopt's Gaussian process besides.",
    )


def b_f9(given: Given) -> Outcome:
    """One part taken away at a time."""
    return ablation(
        given,
        _FIGURE_9,
        ("gemm-rtx2080ti", "convolution2-a4000", "dedispersion-a4000"),
        "In the paper logarithms matter at all budgets, priors early on, and no part alone a lot.",
        "The paper's are geometric means of SpMM on three matrices. Of what is varied here it has the transformations "
        "and the priors; its distances of permutations have no counterpart, as no recorded space has one.",
    )


def b_f10(given: Given) -> Outcome:
    """With and without the model of what runs, and its random minimum."""
    made = ablation(
        given,
        _FIGURE_10,
        _FAILING,
        "In the paper the predictor helps the more the longer the search is, and the least probability steadies it.",
        "The paper's are of MM_GPU and Scal_GPU.",
    )
    least = (
        "The least probability is drawn from 0 to 0.1 for each proposal. A candidate has to promise ten times as much "
        "to be proposed at a probability of 0.1, so that most of what it rules out would not be proposed anyway: many "
        "a run goes the same way without it (last column)."
    )
    return replace(made, differs=(*made.differs, least))


ITEMS: Final[Mapping[str, Item]] = MappingProxyType(
    {
        "b-t6": Item("Hellsten 2023, Tables 6 to 8 and Fig. 5", "performance at three budgets", b_t6, needs="--spaces"),
        "b-t9": Item("Hellsten 2023, Table 9", "how much faster BaCO is", b_t9, needs="--spaces"),
        "b-t10": Item("Hellsten 2023, Table 10", "how long a search takes", b_t10, needs="--spaces"),
        "b-f8": Item("Hellsten 2023, Fig. 8", "BaCO, BaCO-- and another surrogate", b_f8, needs="--spaces"),
        "b-f9": Item("Hellsten 2023, Fig. 9", "one part taken away at a time", b_f9, needs="--spaces"),
        "b-f10": Item("Hellsten 2023, Fig. 10", "the model of hidden constraints", b_f10, needs="--spaces"),
    }
)
