"""The aggregate performance score P of the auto-tuning community, over spaces and devices."""

from __future__ import annotations

import importlib.util
import json
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench import table
from benchmarks.search.cells import Job, Results
from benchmarks.search.report import Report
from benchmarks.search.section import Section, Settings
from benchmarks.search.timing import Timing
from benchmarks.search.tools import DEFAULT, simulations
from mptune.interop import read_run
from mptune.results.objective import Objective
from mptune.run import Run

__all__ = ["Score", "scores"]

Floats = NDArray[np.float64]

_PACKAGE: Final = "autotuning_methodology"
#: The package's own settings: from random search's first step towards the optimum to 95% of the way from the median.
_START, _END, _CONFIDENCE, _RESOLUTION = 0.01, 0.95, 0.95, 10_000


class Score(Section):
    """The runs of the timing-only spaces, scored by the package of Willemsen 2024."""

    name: ClassVar[str] = "score"
    title: ClassVar[str] = "The community's score"

    def jobs(self, settings: Settings) -> list[Job]:
        """Return the jobs of the timing section, whose runs are used."""
        return Timing().jobs(settings)

    def report(self, settings: Settings, results: Results) -> Report:
        """Return the score of every tool that has results on all spaces."""
        if importlib.util.find_spec(_PACKAGE) is None:
            return Report(self.title, "Not installed (pip install autotuning-methodology).", {})
        jobs = {job.space: job for job in results.jobs}
        spaces = {name: read_run(jobs[name].settings["space"]) for name in sorted(jobs)}
        tools = list(dict.fromkeys(job.tool for job in results.jobs))
        curves: dict[str, dict[str, Floats]] = {}
        for one in simulations(results, spaces, tools, settings.budget, Objective()):
            curves.setdefault(one.space, {})[one.strategy] = _by_evaluation([run.best for run in one.runs], one.budget)
        if not curves:
            return Report(self.title, "No tool has results on all spaces.", {})
        found = {name: scores(spaces[name], by_tool) for name, by_tool in curves.items()}
        return Report(self.title, _markdown(settings, found), {"scores": found})


def _by_evaluation(runs: Sequence[Sequence[float | None]], budget: int) -> Floats:
    """Return the best after each evaluation, NaN while there is none, a column a run; a run that ended keeps its last.

    Shape ``(budget, n_runs)``.
    """
    best = np.array([[*run, *[run[-1]] * (budget - len(run))] for run in runs], dtype=np.float64)
    return np.asarray(best.T)


@dataclass(frozen=True, slots=True)
class _Runs:
    """What the package wants to know of one tool's runs on a space; every evaluation takes one second."""

    best: Floats
    group_name: str
    device_name: str = "recorded"
    application_name: str = "recorded"
    stochastic: bool = True
    minimization: bool = True

    def get_results(self) -> Any:
        from autotuning_methodology.caching import Results as Arrays

        times = np.repeat(np.arange(1.0, len(self.best) + 1.0)[:, None], self.best.shape[1], axis=1)
        one_key = (times[None].copy(), self.best[None].copy())
        return Arrays([times.copy(), times, self.best, self.best.copy(), np.zeros_like(times), *one_key])


def scores(recorded: Run, curves: Mapping[str, Floats]) -> dict[str, float]:
    """Return the score of each tool on one space."""
    from autotuning_methodology.baseline import RandomSearchCalculatedBaseline
    from autotuning_methodology.curves import StochasticOptimizationAlgorithm
    from autotuning_methodology.report_experiments import get_strategies_aggregated_performance
    from autotuning_methodology.searchspace_statistics import SearchspaceStatistics

    objective = Objective()
    # The package takes a failure at the first place for an error of its own.
    values = np.sort([objective.value(trial) if trial.is_valid else np.nan for trial in recorded.trials])
    measured = [
        {"times": {"all": 1.0}, "measurements": [{"name": "time", "value": value}]} for value in values.tolist()
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "space.json"
        file.write_text(json.dumps({"schema_version": "1", "metadata": {"timeunit": "s"}, "results": measured}))
        space = SearchspaceStatistics("recorded", "recorded", True, ["all"], ["time"], file, full_validate=False)
    with warnings.catch_warnings():
        # It says so where nothing but the optimum is as good as the end of the range.
        warnings.simplefilter("ignore", UserWarning)
        first, last, start_s, end_s = space.cutoff_point_fevals_time_start_end(_START, _END)
    algorithms = [StochasticOptimizationAlgorithm(_Runs(best, name)) for name, best in curves.items()]
    seconds, evaluations = np.linspace(start_s, end_s, _RESOLUTION), np.arange(first, last + 1)
    data = (RandomSearchCalculatedBaseline(space), algorithms, space, seconds, evaluations)
    performances = get_strategies_aggregated_performance([data], _CONFIDENCE)[0]
    return {name: float(np.mean(curve)) for name, curve in zip(curves, performances, strict=True)}


def _markdown(settings: Settings, by_space: Mapping[str, Mapping[str, float]]) -> str:
    kernels = sorted({space.partition("-")[0] for space in by_space})
    groups = [
        list(by_space),
        *([space for space in by_space if space.partition("-")[0] == kernel] for kernel in kernels),
    ]
    found = {
        tool: [float(np.mean([by_space[space][tool] for space in group])) for group in groups]
        for tool in next(iter(by_space.values()))
    }
    ranked = sorted(found, key=lambda tool: -found[tool][0])
    rows = [(f"**{t}**" if t == DEFAULT.name else t, *(f"{score:.3f}" for score in found[t])) for t in ranked]
    parts = [
        "The aggregate performance score P of Willemsen 2024 (A Methodology for Comparing Auto-Tuning Optimization "
        "Algorithms), computed by its own package autotuning-methodology from the runs of the timing-only spaces: 0 is "
        "random search, 1 the optimum at once; mean over the time random search needs for 95% of the way from the "
        "median to the optimum, then over spaces. Every evaluation counts the same time here, where the paper counts "
        f"compiling and running, and after {settings.budget} evaluations a run keeps its best.",
        table(("tool", "P", *kernels), rows),
    ]
    if DEFAULT.name in found:
        best = [max(column) for column in zip(*found.values(), strict=True)]
        behind = [
            name
            for name, own, most in zip(["all spaces", *kernels], found[DEFAULT.name], best, strict=True)
            if own < most
        ]
        verdict = f"{'MISSED' if behind else 'met'}: first in P over all spaces and on every kernel"
        parts.append(f"Target:\n\n- {verdict}; behind on: {', '.join(behind) or 'none'}")
    return "\n\n".join(parts)
