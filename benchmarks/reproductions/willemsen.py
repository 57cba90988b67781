"""Willemsen et al. 2021, Bayesian Optimization for auto-tuning GPU kernels."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench import percent
from benchmarks.reproductions.item import Cell, Given, Item, Outcome, Skipped, Table, require
from benchmarks.reproductions.replayed import recordings, replayed
from benchmarks.reproductions.spread import percents, spread
from benchmarks.search.tools import DEFAULT, Tool
from mptune.errors import SpaceFileError
from mptune.interop import read_run
from mptune.results.objective import Objective
from mptune.tuning.comparison import Comparison
from mptune.tuning.simulation import Simulation, SimulationRun

__all__ = ["ITEMS", "advantage", "factors", "published_comparison"]

#: Evaluations of a run: 20 of the initial sample and 200 of the search (Sec. IV-A).
BUDGET: Final = 220
#: How far the other tools of Fig. 4 may go.
FAR: Final = 1020
#: The paper's tools, by its names for them.
TOOLS: Final[Mapping[str, Tool]] = MappingProxyType(
    {
        "random": Tool("random", "random"),
        "simulated annealing": Tool("simulated annealing", "simulated-annealing"),
        "multi-start local search": Tool("multi-start local search", "local-search"),
        "genetic algorithm": Tool("genetic algorithm", "genetic"),
        "EI": Tool("EI", "bayesian-multi", {"method": "ei"}),
        "multi": Tool("multi", "bayesian-multi", {"method": "multi"}),
        "advanced multi": Tool("advanced multi", "bayesian-multi", {"method": "advanced-multi"}),
    }
)
#: Parts of the names of recordings of the paper's three kernels.
KERNELS: Final = ("gemm-", "convolution-", "pnpoly-")
#: The recorded GPU of the generation of the paper's RTX 2070 Super.
TURING: Final = "rtx2080ti"
_PUBLISHED: Final = "willemsen2021-runs.json.gz"
#: How much better advanced multi is than the genetic algorithm, in the text of Sec. IV-F.
_ADVANTAGE: Final[Mapping[str, float]] = MappingProxyType({"RTX2070S": 0.636, "A100": 0.198})
_DEVIATION: Final = (
    "The mean deviation factor of a tool: its mean distance from the optimum at 40, 60, ... 220 evaluations, divided "
    "by the mean of all tools on that kernel, mean over kernels (Sec. IV-A)."
)
_MACHINES: Final = (
    "The paper's spaces are of an RTX 2070 Super, an A100 and a GTX Titan X; ours of an RTX 2080 Ti and an RTX 3060, "
    "recorded later by the same group, gemm of the RTX 3060 in part. Convolution and pnpoly have fewer configurations. "
    "The paper made 35 runs of each tool and 100 of random sampling (Sec. IV-A)."
)
_STRATEGIES: Final = (
    "Simulated annealing, local search and the genetic algorithm are mptune's, with its defaults and without repeated "
    "evaluations, not those of the Kernel Tuner of 2021; a factor depends on all tools that are compared."
)


# -- w-mdf: the published runs under our definition -----------------------------------------------


def published_comparison(path: Path, device: str) -> Comparison:
    """Return the paper's own runs on a device as a comparison.

    Args:
        path: the raw results: per kernel and strategy, the best so far after 20, 40, ... evaluations of each run.
        device: "RTX2070S" or "A100".

    Raises:
        SpaceFileError: the file does not hold such results of the device.
    """
    try:
        document = json.loads(gzip.decompress(path.read_bytes()))
        points = [int(point) for point in document["evaluations"]]
        return Comparison(
            tuple(
                Simulation(
                    space=kernel,
                    strategy=strategy,
                    budget=points[-1],
                    objective=Objective(),
                    optimum=float(recorded["optimum"]),
                    optimum_configuration=None,
                    unit="ms",
                    configurations=0,
                    runs=tuple(_run(seed, points, best) for seed, best in enumerate(runs)),
                )
                for kernel, recorded in document["devices"][device].items()
                for strategy, runs in recorded["strategies"].items()
            )
        )
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise SpaceFileError(f"{path}: no published runs of {device}: {type(error).__name__}: {error}") from error


def _run(seed: int, points: Sequence[int], best: Sequence[float]) -> SimulationRun:
    """Return a run whose best is known at some evaluations, and is that of the last of them in between."""
    so_far: list[float | None] = [None] * points[-1]
    for point, until, value in zip(points, [*points[1:], points[-1] + 1], best, strict=True):
        so_far[point - 1 : until - 1] = [float(value)] * (until - point)
    return SimulationRun(seed, tuple(so_far), None, 0.0)


def factors(comparison: Comparison) -> dict[str, float]:
    """Return the mean deviation factor of each tool."""
    return dict(zip(comparison.strategies, comparison.deviation_factors().mean(axis=0).tolist(), strict=True))


def advantage(comparison: Comparison, tool: str = "advanced multi", other: str = "genetic algorithm") -> float:
    """Return how much better a tool is than another: twice the difference of their factors over the sum."""
    found = factors(comparison)
    return 2.0 * (found[other] - found[tool]) / (found[other] + found[tool])


def w_mdf(given: Given) -> Outcome:
    """Our definition of the mean deviation factor against the published runs."""
    path = require(given.published / _PUBLISHED, "file of the raw runs the authors published, as JSON", "--published")
    published = {device: published_comparison(path, device) for device in _ADVANTAGE}
    ours = {device: advantage(comparison) for device, comparison in published.items()}
    rows = [
        (device, len(comparison.spaces), percent(_ADVANTAGE[device], 1), percent(ours[device], 1))
        for device, comparison in published.items()
    ]
    columns = ("tool", *published)
    tools = next(iter(published.values())).strategies
    by_device = {device: factors(comparison) for device, comparison in published.items()}
    return Outcome(
        "On the paper's own runs advanced multi is better than the genetic algorithm by "
        + " and ".join(
            f"{percent(value, 1)} on {device} (paper {percent(_ADVANTAGE[device], 1)})"
            for device, value in ours.items()
        )
        + ", with our mean deviation factors a and b and 2 (b - a) / (a + b).",
        (
            Table(
                "How much better advanced multi is than the genetic algorithm",
                ("GPU", "kernels", "paper", "by our definition"),
                tuple(rows),
            ),
            Table(
                "Mean deviation factors of the paper's runs, by our definition",
                columns,
                tuple((tool, *(by_device[device][tool] for device in published)) for tool in tools),
            ),
        ),
        (
            'The paper does not say what "better by" is of two factors a and b; 2 (b - a) / (a + b) was chosen because '
            "it gives both its figures. Its 65.6% on the GTX Titan X are not checked: those runs are not published.",
            "The optima are those of Table III, with three decimals; a few runs lie below theirs, and their distance "
            "counts without its sign.",
            "The optimum of ExpDist is in 100,000 / (GFLOP/s), which does not matter to a factor.",
        ),
    )


# -- w-t3: the spaces ------------------------------------------------------------------------------

#: Table II (GTX Titan X) and Table III: configurations, those that fail, least time in ms.
_TABLE_3: Final[Mapping[tuple[str, str], tuple[int, int, float]]] = MappingProxyType(
    {
        ("gemm", "GTX Titan X"): (17956, 0, 28.307),
        ("gemm", "RTX 2070 Super"): (17956, 0, 17.112),
        ("gemm", "A100"): (17956, 0, 8.518),
        ("convolution", "GTX Titan X"): (9400, 3624, 1.625),
        ("convolution", "RTX 2070 Super"): (7520, 1744, 1.221),
        ("convolution", "A100"): (7520, 1744, 0.739),
        ("pnpoly", "GTX Titan X"): (8184, 323, 26.968),
        ("pnpoly", "RTX 2070 Super"): (8184, 288, 12.325),
        ("pnpoly", "A100"): (8184, 317, 13.091),
    }
)


def w_t3(given: Given) -> Outcome:
    """Sizes, failures and minima of the recorded spaces."""
    rows: list[tuple[Cell, ...]] = [
        (kernel, gpu, "paper", size, invalid, percent(invalid / size, 1), least)
        for (kernel, gpu), (size, invalid, least) in _TABLE_3.items()
    ]
    for name, path in recordings(given, *KERNELS).items():
        recorded = read_run(path)
        failed = sum(not trial.is_valid for trial in recorded.trials)
        best = Objective().best(recorded.trials)
        kernel, _, gpu = name.partition("-")
        least = None if best is None else best.time_ms
        rows.append((kernel, gpu, "ours", recorded.space.size, failed, percent(failed / recorded.space.size, 1), least))
    of = {whose: [row for row in rows if row[2] == whose] for whose in ("paper", "ours")}
    return Outcome(
        f"The paper's spaces have {_said(of['paper'])}; ours have {_said(of['ours'])}.",
        (
            Table(
                "Spaces",
                ("kernel", "GPU", "whose", "configurations", "that fail", "share", "least time in ms"),
                tuple(sorted(rows, key=lambda row: (str(row[0]), str(row[2]) == "ours"))),
            ),
        ),
        (
            _MACHINES,
            "Spaces differ in size because the recorded kernels have other value lists (pnpoly without one of its "
            "switches, convolution for one filter), and gemm of the RTX 3060 was recorded in part.",
            "The recording of pnpoly on the RTX 2080 Ti has times a thousand times less than all others, of as many "
            "points: its unit is another one, or it is wrong. Distances relative to the optimum do not depend on that.",
        ),
    )


def _said(rows: Sequence[Sequence[Cell]]) -> str:
    """Say from what to what the configurations of some rows of the table go, and the share of them that fails."""
    sizes = [int(str(row[3])) for row in rows]
    failing = [int(str(row[4])) / size for row, size in zip(rows, sizes, strict=True)]
    shares = f"{percent(min(failing), 1)} to {percent(max(failing), 1)}"
    return f"{min(sizes):,} to {max(sizes):,} configurations, of which {shares} fail"


# -- w-f1: curves and factors ----------------------------------------------------------------------


def w_f1(given: Given) -> Outcome:
    """Best so far by evaluation, and mean deviation factors, on every recorded space of the paper's kernels."""
    files = recordings(given, *(KERNELS[2:] if given.quick else KERNELS))
    if given.quick:
        files = of_turing(files)
    tools = [*TOOLS.values(), DEFAULT]
    with_runs = [(tool, given.runs) for tool in tools]
    by_gpu: dict[str, Comparison] = {}
    for gpu in dict.fromkeys(name.rpartition("-")[2] for name in files):
        own = {name: path for name, path in files.items() if name.endswith(gpu)}
        by_gpu[gpu] = replayed(given, with_runs, own, BUDGET)
    paper = _published_factors(given)
    by_name = {gpu: factors_with_default(comparison) for gpu, comparison in by_gpu.items()}
    rows = tuple(
        (
            tool.name,
            *(found.get(tool.name) for found in paper.values()),
            *(by_name[gpu].get(tool.name) for gpu in by_gpu),
            *(_ends(comparison, tool.name) for comparison in by_gpu.values()),
        )
        for tool in tools
    )
    better = {gpu: advantage(_without_default(comparison)) for gpu, comparison in by_gpu.items()}
    return Outcome(
        f"Advanced multi is {', '.join(f'{percent(value, 1)} ({gpu})' for gpu, value in better.items())} better than "
        "the genetic algorithm, twice the difference of their factors over the sum; in the paper 65.6% (GTX Titan X), "
        "63.6% (RTX 2070 Super) and 19.8% (A100). Least of the paper's tools is the factor of "
        + ", ".join(f"{min(TOOLS, key=found.__getitem__)} ({gpu})" for gpu, found in by_name.items())
        + "; in the paper advanced multi's.",
        (
            Table(
                "Mean deviation factor (less is better), and how far from the optimum a run ends: quartiles over "
                "kernels and runs",
                (
                    "tool",
                    *(f"paper, {device}" for device in paper),
                    *by_gpu,
                    *(f"end, {gpu}" for gpu in by_gpu),
                ),
                rows,
            ),
        ),
        (
            _DEVIATION + f" {DEFAULT.name} is not in the mean of all tools: its factor is its own mean distance over "
            "that of the paper's tools.",
            f"{given.runs} runs of each tool on each of {', '.join(files)}, from seed 0 on. The paper's factors are "
            "computed here from its raw runs, those of the A100 over five kernels.",
            *(() if paper else ("The paper's raw runs are not here, so that its factors are left out.",)),
            _MACHINES,
            _STRATEGIES,
        ),
        {gpu: comparison.to_json() for gpu, comparison in by_gpu.items()},
    )


def _without_default(comparison: Comparison) -> Comparison:
    return Comparison(tuple(s for s in comparison.simulations if s.strategy != DEFAULT.name))


def factors_with_default(comparison: Comparison) -> dict[str, float]:
    """Return the mean deviation factor of each of the paper's tools, and of the default in relation to their mean.

    The default does not change the others' factors, so that they stay what they are in the paper.
    """
    of_default = default_factors(comparison)
    return {DEFAULT.name: float(of_default.mean())} | factors(_without_default(comparison))


def default_factors(comparison: Comparison) -> NDArray[np.float64]:
    """Return the default's mean distance over that of all other tools, by space."""
    distances, column = comparison.mean_distances(), comparison.strategies.index(DEFAULT.name)
    others = np.delete(distances, column, axis=1).mean(axis=1)
    return np.asarray(np.divide(distances[:, column], others, out=np.ones(len(others)), where=others > 0))


def of_turing(files: Mapping[str, Path]) -> dict[str, Path]:
    """Return the recordings of the GPU of the paper's generation.

    Raises:
        Skipped: there are none.
    """
    found = {name: path for name, path in files.items() if TURING in name}
    if not found:
        raise Skipped(f"none of the recorded spaces {', '.join(files)} is of an {TURING}, of the paper's generation")
    return found


def _published_factors(given: Given) -> dict[str, dict[str, float]]:
    path = given.published / _PUBLISHED
    if not path.exists():
        return {}
    return {device: factors(published_comparison(path, device)) for device in _ADVANTAGE}


def _spread(comparison: Comparison) -> dict[str, float]:
    return dict(zip(comparison.strategies, comparison.deviation_factors().std(axis=0).tolist(), strict=True))


def _ends(comparison: Comparison, tool: str) -> str:
    """Return the quartiles of the distance from the optimum after all evaluations."""
    ends = np.concatenate([comparison.simulation(space, tool).distances(BUDGET) for space in comparison.spaces])
    return percents(ends)


# -- w-f4: evaluations to match --------------------------------------------------------------------

_PAPER_MATCH: Final[Mapping[str, str]] = MappingProxyType(
    {
        "genetic algorithm": "nearly 660",
        "multi-start local search": "slightly fewer than the genetic algorithm",
        "simulated annealing": "more than 1,020",
        "random": "more than 1,020",
    }
)


def w_f4(given: Given) -> Outcome:
    """How many evaluations other tools need for the mean best that EI has after 220."""
    files = recordings(given, *(KERNELS[2:] if given.quick else KERNELS))
    files = of_turing(files)
    target = TOOLS["EI"]
    goals = replayed(given, [(target, given.runs)], files, BUDGET)
    others = [TOOLS[name] for name in _PAPER_MATCH]
    far = 300 if given.quick else FAR
    reached = replayed(given, [(tool, given.runs) for tool in others], files, far)
    goal = {space: float(goals.simulation(space, target.name).distances(BUDGET).mean()) for space in goals.spaces}
    arrivals = {
        (space, tool.name): _arrival(reached.simulation(space, tool.name), goal[space])
        for space in reached.spaces
        for tool in others
    }

    def shown(evaluations: float, most: int = far) -> str:
        return f"{evaluations:,.0f}" if math.isfinite(evaluations) else f"more than {most:,}"

    rows: list[tuple[Cell, ...]] = [(target.name, str(BUDGET), *(str(BUDGET) for _ in goals.spaces))]
    for tool in others:
        found = [arrivals[space, tool.name] for space in reached.spaces]
        rows.append((tool.name, _PAPER_MATCH[tool.name], *map(shown, found)))
    shown_of_target = partial(shown, most=BUDGET)
    of_runs = [
        (target.name, *(spread(_arrivals(goals.simulation(s, target.name), goal[s]), shown_of_target) for s in goal))
    ]
    of_runs += [
        (tool.name, *(spread(_arrivals(reached.simulation(s, tool.name), goal[s]), shown) for s in goal))
        for tool in others
    ]
    distances: tuple[Cell, ...] = ("distance of EI after 220", None, *(f"{100 * goal[s]:.2g}%" for s in goals.spaces))
    return Outcome(
        "Evaluations after which the mean over runs of the best so far is as good as that of EI after 220: of the "
        "genetic algorithm nearly 660 in the paper (gemm), here "
        + ", ".join(f"{shown(arrivals[space, 'genetic algorithm'])} ({space})" for space in reached.spaces)
        + ".",
        (
            Table(
                "Evaluations to match EI",
                ("tool", "paper, gemm on GTX Titan X", *goals.spaces),
                (*rows, distances),
            ),
            Table(
                "Evaluations after which a run is as near as EI is in the mean after 220, over runs",
                ("tool", *goals.spaces),
                tuple(of_runs),
            ),
        ),
        (
            f"{given.runs} runs of each tool, from seed 0 on.",
            "Where EI's mean is all but the optimum, a mean is as good only when all runs have found the optimum: the "
            "second table says what single runs need.",
            'The paper\'s text says of the genetic algorithm "nearly 3 times as many", of the others what is above.',
            _MACHINES,
            _STRATEGIES,
        ),
        {"evaluations": {f"{space}: {tool}": n for (space, tool), n in arrivals.items()}},
    )


def _arrival(simulation: Simulation, distance: float) -> float:
    """Return the first evaluation at which the mean over runs is as near, infinity when it never is."""
    near = simulation.distance_curves().mean(axis=0) <= distance
    return float(near.argmax() + 1) if near.any() else math.inf


def _arrivals(simulation: Simulation, distance: float) -> NDArray[np.float64]:
    """Return the first evaluation at which each run is as near, infinity for one that never is."""
    near = simulation.distance_curves() <= distance
    return np.where(near.any(axis=1), near.argmax(axis=1) + 1.0, np.inf)


# -- w-t1: hyperparameters -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sweep:
    """One hyperparameter of Table I, varied alone.

    Attributes:
        name: the paper's name for it.
        best: what the paper found best; other values run as with it.
        also: what the paper names as best besides.
        values: options of bayesian-multi by what a table calls the value.
    """

    name: str
    best: str
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    also: tuple[str, ...] = ()


def _each(option: str, values: Sequence[Any], **others: Any) -> dict[str, dict[str, Any]]:
    return {str(value): {option: value, **others} for value in values}


SWEEPS: Final = (
    Sweep(
        "length scale, Matérn 3/2, constant exploration", "2", _each("length_scale", (1, 1.5, 2, 3), contextual=False)
    ),
    Sweep(
        "exploration factor",
        "CV",
        {"CV": {"contextual": True}, **_each("exploration", (0.01, 0.1, 0.3), contextual=False)},
    ),
    Sweep("length scale, Matérn 3/2, CV", "1.5", _each("length_scale", (0.5, 1, 1.5, 2, 3))),
    Sweep("covariance function, CV", "matern32", _each("covariance", ("matern32", "matern52", "rbf"))),
    Sweep("skip threshold", "5", _each("threshold", (2, 5, 10))),
    Sweep(
        "order of acquisition functions",
        "ei,poi,lcb",
        _each("functions", ("ei,poi,lcb", "poi,ei,lcb", "lcb,ei,poi", "ei,lcb,poi")),
    ),
    Sweep("required improvement factor", "0.1", _each("required", (0.05, 0.1, 0.2))),
    Sweep("discount factor, multi", "0.65", _each("discount_multi", (0.5, 0.65, 0.75, 0.9), method="multi")),
    Sweep("discount factor, advanced multi", "0.75", _each("discount_advanced", (0.5, 0.65, 0.75, 0.9))),
    Sweep("initial sampling", "maximin", _each("sampling", ("maximin", "random"))),
    Sweep(
        "acquisition function",
        "advanced-multi",
        _each("method", ("advanced-multi", "multi", "ei", "poi", "lcb")),
        also=("multi", "ei"),
    ),
)


def w_t1(given: Given) -> Outcome:
    """Each hyperparameter of bayesian-multi, varied alone."""
    files = of_turing(recordings(given, *(KERNELS[2:] if given.quick else KERNELS)))
    sweeps = SWEEPS[-2:-1] if given.quick else SWEEPS
    runs = given.runs
    variants = {_variant(options).name: _variant(options) for sweep in sweeps for options in sweep.values.values()}
    comparison = replayed(given, [(tool, runs) for tool in variants.values()], files, BUDGET)
    rows: list[tuple[Cell, ...]] = []
    agreed, worst, idle = 0, 0.0, []
    for sweep in sweeps:
        own = {value: _variant(options).name for value, options in sweep.values.items()}
        among = Comparison(tuple(s for s in comparison.simulations if s.strategy in own.values()))
        found, deviations = factors(among), _spread(among)
        alike = {value: _alike(among, tool, own[sweep.best]) for value, tool in own.items()}
        best = best_of({value: found[tool] for value, tool in own.items()})
        if all(same == total for same, total in alike.values()) or len(best) == len(own):
            idle.append(sweep.name)
        else:
            of_paper = (sweep.best, *sweep.also)
            agreed += not set(of_paper).isdisjoint(best)
            worst = max(worst, min(found[own[value]] for value in of_paper) / found[own[best[0]]] - 1.0)
        for value, tool in own.items():
            marks = [mark for mark, chosen in (("paper", (sweep.best, *sweep.also)), ("here", best)) if value in chosen]
            cells = (found[tool], deviations[tool], _ends(among, tool), "{} of {}".format(*alike[value]))
            rows.append((sweep.name, value, *cells, ", ".join(marks) or None))
    return Outcome(
        f"Of {len(sweeps) - len(idle)} hyperparameters that matter {agreed} have the least mean deviation factor "
        f"where the paper found it; where not, that of the paper's value is at most {percent(worst, 0)} larger."
        + (f" All values are as good of: {'; '.join(idle)}." if idle else ""),
        (
            Table(
                "Mean deviation factor of each value among those of its hyperparameter, less is better",
                (
                    "hyperparameter",
                    "value",
                    "factor",
                    "standard deviation over kernels",
                    "distance at the end, over kernels and runs",
                    "runs as with the paper's value",
                    "best of",
                ),
                tuple(rows),
            ),
        ),
        (
            f"Seeds 0 to {runs - 1} on {', '.join(comparison.spaces)}; the paper tuned on a GTX Titan X and does not "
            "say with how many runs.",
            "Here one hyperparameter is varied and the others are at the paper's best; the paper does not say how it "
            "searched, nor which values it looked at.",
            "Several values are best where their factors are the same. As with the paper's value: runs that have the "
            "same best after every evaluation as the one of the same seed with that value.",
            "A discount factor weighs a function's earlier suggestions, and acts only when it decides which function "
            "is dropped or kept alone: which of two that often suggest the same under multi, and whether one was 10% "
            "worse or better than the mean in five rounds under advanced multi. Runs part at that point, often after "
            "they have found the optimum.",
            "Many differences are within the standard deviation over kernels.",
            "Its pruning is left out: it saves predictions and has no counterpart, as all are made at once.",
        ),
    )


def best_of(found: Mapping[str, float]) -> list[str]:
    """Return the values whose factor is the least, several where it is the same but for rounding."""
    least = min(found.values())
    return [value for value, factor in found.items() if math.isclose(factor, least, rel_tol=1e-9)]


def _alike(comparison: Comparison, tool: str, other: str) -> tuple[int, int]:
    """Return how many runs have the same best after every evaluation as another tool's of the same seed, and of all."""
    same = [
        one.best == two.best
        for space in comparison.spaces
        for one, two in zip(
            comparison.simulation(space, tool).runs, comparison.simulation(space, other).runs, strict=True
        )
    ]
    return sum(same), len(same)


def _variant(options: Mapping[str, Any]) -> Tool:
    """Return bayesian-multi with some options, named after those that are not the default's."""
    told = ", ".join(f"{name} {value}" for name, value in options.items())
    return Tool(f"bayesian-multi {told}".strip(), "bayesian-multi", options)


ITEMS: Final[Mapping[str, Item]] = MappingProxyType(
    {
        "w-t1": Item("Willemsen 2021, Table I", "hyperparameters by deviation factor", w_t1, needs="--spaces"),
        "w-t3": Item("Willemsen 2021, Tables II and III", "the search spaces", w_t3, needs="--spaces"),
        "w-f1": Item(
            "Willemsen 2021, Figs. 1 to 3", "best found by evaluations, and deviation factors", w_f1, needs="--spaces"
        ),
        "w-f4": Item("Willemsen 2021, Fig. 4", "evaluations to match EI", w_f4, needs="--spaces"),
        "w-mdf": Item(
            "Willemsen 2021, Sec. IV-F", "the mean deviation factor of the published runs", w_mdf, needs="--published"
        ),
    }
)
