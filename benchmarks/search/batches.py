"""Batches: what it costs the default to be asked for several configurations at once, or ahead."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from benchmarks.search.cells import Job, Results
from benchmarks.search.driving import drive
from benchmarks.search.plots import draw_curves
from benchmarks.search.report import Report, markdown_table, percent
from benchmarks.search.section import Section, Settings
from benchmarks.search.significance import log_distances, paired_chance
from benchmarks.search.timing import Timing
from benchmarks.search.tools import DEFAULT, simulations
from mptune.interop import read_run
from mptune.measure.base import Replay
from mptune.results.objective import Objective
from mptune.strategies import make
from mptune.tuning.comparison import Comparison

__all__ = ["Batches", "replay_in_batches"]

#: How many are told together, and how many such batches are asked for before the first is told.
_WAYS: Final = {"3 under way": (1, 3), "batches of 4": (4, 1), "batches of 16": (16, 1)}
_RANDOM: Final = "mptune random"
_TARGET: Final = "benchmarks.search.batches:replay_in_batches"


def replay_in_batches(settings: Mapping[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Return a function of the seed that replays a recording, asking for several configurations at once.

    Args:
        settings: ``space``: a file; ``budget``; ``batch`` and ``under_way``, as of
            :func:`~benchmarks.search.driving.drive`; ``strategy`` and its ``options``.
    """
    recorded = read_run(settings["space"])
    evaluator = Replay(recorded)

    def run(seed: int) -> dict[str, Any]:
        strategy = make(settings["strategy"], recorded.space, Objective(), seed=seed, options=settings["options"])
        driven = drive(
            strategy,
            lambda asked: list(evaluator.evaluate(asked)),
            settings["budget"],
            settings["batch"],
            settings["under_way"],
        )
        return {"best": list(driven.best), "strategy_s": sum(driven.seconds)}

    return run


class Batches(Section):
    """The default asked for several configurations at once or ahead, with the same total of evaluations."""

    name: ClassVar[str] = "batches"
    title: ClassVar[str] = "Batches"

    def jobs(self, settings: Settings) -> list[Job]:
        """Return a job per way and space; those of one at a time, and of random, are the timing section's."""
        alone = dataclasses.replace(settings, strategies=("bayesian", "random"), peers=())
        singles = Timing().jobs(alone)
        version = DEFAULT.version
        batched = [
            dataclasses.replace(
                single,
                section=self.name,
                tool=way,
                target=_TARGET,
                settings={
                    "space": single.settings["space"],
                    "budget": settings.budget,
                    "batch": batch,
                    "under_way": under_way,
                    "strategy": DEFAULT.strategy,
                    "options": {},
                },
                version=version,
            )
            for way, (batch, under_way) in _WAYS.items()
            for single in singles
            if single.tool == DEFAULT.name
        ]
        return [*singles, *batched]

    def report(self, settings: Settings, results: Results) -> Report:
        """Return the figures of each way."""
        tools = [DEFAULT.name, *_WAYS, _RANDOM]
        spaces = {job.space: read_run(job.settings["space"]) for job in results.jobs if job.tool in _WAYS}
        comparison = Comparison(tuple(simulations(results, spaces, tools, settings.budget, Objective())))
        failed = [{"space": s, "tool": tool, "reason": why} for (s, tool), why in results.failures.items()]
        if not comparison.spaces or DEFAULT.name not in comparison.strategies:
            return Report(self.title, "Not all runs are there.", {"failures": failed})
        rows = _rows(comparison)
        return Report(
            self.title,
            _markdown(settings, comparison, rows),
            comparison.to_json() | {"ways": rows, "failures": failed},
            {"curves": partial(draw_curves, comparison=comparison, strategies=comparison.strategies)},
        )


def _rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return each way's figures beside those of one at a time."""
    overall = {row["strategy"]: row for row in comparison.overall()}
    own = log_distances(comparison, DEFAULT.name)
    rows = []
    for name in comparison.strategies:
        chance = math.nan if name == DEFAULT.name else paired_chance(log_distances(comparison, name), own)
        distance, alone = (overall[n]["geometric_mean_distance"] for n in (name, DEFAULT.name))
        rows.append(
            {
                "tool": name,
                "distance": distance,
                "ratio": None if distance is None or not alone else distance / alone,
                "p_value": chance if math.isfinite(chance) else None,
                "best_at_end": overall[name]["best_at_end"],
                "ms_per_evaluation": overall[name]["overhead_ms_per_evaluation"],
            }
        )
    return rows


def _markdown(settings: Settings, comparison: Comparison, rows: Sequence[Mapping[str, Any]]) -> str:
    table = [
        (
            f"**{row['tool']}** (one at a time)" if row["tool"] == DEFAULT.name else row["tool"],
            percent(row["distance"]),
            "-" if row["ratio"] is None else f"{row['ratio']:.2f}",
            "-" if row["p_value"] is None else f"{row['p_value']:.2g}",
            percent(row["best_at_end"]),
            f"{row['ms_per_evaluation']:.2f}",
        )
        for row in rows
    ]
    return "\n\n".join(
        [
            "The default asked for several configurations at once and told their results together, or asked for three "
            "before it is told of the first, as a tuner that compiles ahead on two cores asks. "
            f"{settings.budget} "
            f"evaluations in all, {settings.seeds} runs on each of {len(comparison.spaces)} timing-only spaces. "
            "Distance: geometric mean over spaces; ratio: to one at a time; p: paired t-test of log distances over "
            "spaces and seeds.",
            markdown_table(("asked", "distance", "ratio", "p", "best at end", "ms/evaluation"), table),
            "Mean distance by space:",
            _by_space(comparison),
        ]
    )


def _by_space(comparison: Comparison) -> str:
    means = comparison.mean_distances()
    rows = [(name, *(percent(v) for v in means[:, j])) for j, name in enumerate(comparison.strategies)]
    return markdown_table(("asked", *comparison.spaces), rows)
