"""Ablation: what each ingredient of the default contributes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.ablated import TARGET, VARIANTS
from benchmarks.search.cells import Job, Results
from benchmarks.search.plots import pyplot_module, save
from benchmarks.search.precision_cells import BUDGET, cells_of, replay_job, shares
from benchmarks.search.report import Report, markdown_table, percent
from benchmarks.search.section import Section, Settings
from benchmarks.search.significance import LEAST_DISTANCE, NOISE, log_distances, paired_chance
from benchmarks.search.timing import Timing
from benchmarks.search.tools import DEFAULT, simulations
from mptune.interop import read_run
from mptune.results.objective import Objective
from mptune.tuning.comparison import Comparison

__all__ = ["Ablation"]

Floats = NDArray[np.float64]

_TIMING_SEEDS: Final = 10
_MIXED_SEEDS: Final = 3
#: Where a mixed-precision run is looked at.
_POINTS: Final = tuple(range(20, BUDGET + 1, 20))


class Ablation(Section):
    """The default with one ingredient taken out at a time, on timing-only and on mixed-precision spaces."""

    name: ClassVar[str] = "ablation"
    title: ClassVar[str] = "Ablation"

    def jobs(self, settings: Settings) -> list[Job]:
        """Return a job per variant and space; those of the default itself are other sections'."""
        return [*_timing_jobs(settings), *_mixed_jobs(settings)]

    def report(self, settings: Settings, results: Results) -> Report:
        """Return what is lost without each ingredient."""
        groups = [group for group in (_timing_group(settings, results), _mixed_group(settings, results)) if group]
        failed = [{"space": s, "tool": tool, "reason": why} for (s, tool), why in results.failures.items()]
        if not groups:
            return Report(self.title, "Not all runs of the default are there.", {"failures": failed})
        rows = {group.name: _rows(group) for group in groups}
        return Report(
            self.title,
            _markdown(groups, rows, failed),
            {"groups": rows, "failures": failed},
            {"ratio": partial(_draw, groups=groups, rows=rows)},
        )


@dataclass(frozen=True, slots=True)
class _Group:
    """Runs on one kind of spaces.

    Attributes:
        name: what the results call it.
        figure: what the distance is.
        spaces: how many there are.
        distances: log distances of all runs by tool, space by space with the same seeds, shape ``(n,)``.
    """

    name: str
    figure: str
    spaces: int
    distances: Mapping[str, Floats]


def _tool(variant: str) -> str:
    return f"without {variant}"


def _without(job: Job, variant: str, seeds: int) -> Job:
    return dataclasses.replace(
        job,
        section=Ablation.name,
        tool=_tool(variant),
        target=TARGET,
        settings={
            "space": job.settings["space"],
            "budget": job.settings["budget"],
            "variant": variant,
            "max_error": job.settings.get("max_error"),
        },
        seeds=job.seeds[:seeds],
        version=DEFAULT.version,
    )


def _timing_jobs(settings: Settings) -> list[Job]:
    jobs = Timing().jobs(dataclasses.replace(settings, strategies=(DEFAULT.strategy,), peers=()))
    variants = [name for name, variant in VARIANTS.items() if not variant.errors_only]
    return [*jobs, *(_without(job, name, _TIMING_SEEDS) for name in variants for job in jobs)]


def _mixed_jobs(settings: Settings) -> list[Job]:
    cells = [cell for cell in cells_of(settings) if cell.optimum is not None]
    jobs = [replay_job(cell, DEFAULT, settings) for cell in cells]
    return [*jobs, *(_without(job, name, _MIXED_SEEDS) for name in VARIANTS for job in jobs)]


def _timing_group(settings: Settings, results: Results) -> _Group | None:
    spaces = {job.space: job for job in _timing_jobs(settings) if job.tool == DEFAULT.name}
    recorded = {name: read_run(job.settings["space"]) for name, job in spaces.items()}
    tools = [DEFAULT.name, *map(_tool, VARIANTS)]
    kept = _trimmed(results, _TIMING_SEEDS)
    comparison = Comparison(tuple(simulations(kept, recorded, tools, settings.budget, Objective())))
    if not comparison.spaces or DEFAULT.name not in comparison.strategies:
        return None
    distances = {name: log_distances(comparison, name) for name in comparison.strategies}
    figure = "mean relative distance from the optimum, as in the timing-only spaces"
    return _Group("timing-only", figure, len(comparison.spaces), distances)


def _mixed_group(settings: Settings, results: Results) -> _Group | None:
    cells = [cell for cell in cells_of(settings) if cell.optimum is not None]
    kept = _trimmed(results, _MIXED_SEEDS)
    tools = [DEFAULT.name, *map(_tool, VARIANTS)]
    complete = [tool for tool in tools if cells and all(kept.of(cell.name, tool) for cell in cells)]
    if DEFAULT.name not in complete:
        return None
    losses: dict[str, list[Floats]] = {tool: [] for tool in complete}
    for cell in cells:
        made = simulations(kept, {cell.name: cell.recorded}, complete, BUDGET, cell.objective)
        for simulation in made:
            loss = np.mean([1.0 - shares(simulation, point) for point in _POINTS], axis=0)
            losses[simulation.strategy].append(np.log(np.maximum(loss, LEAST_DISTANCE)))
    figure = f"1 minus the share of the best feasible, mean over evaluations {_POINTS[0]}, {_POINTS[1]}, ... {BUDGET}"
    distances = {tool: np.concatenate(rows) for tool, rows in losses.items()}
    return _Group("mixed-precision", figure, len(cells), distances)


def _trimmed(results: Results, seeds: int) -> Results:
    """Return the results of the first seeds, so that a variant is paired with the default seed by seed."""
    found = {
        cell: {seed: result for seed, result in by_seed.items() if seed < seeds}
        for cell, by_seed in results.found.items()
    }
    return dataclasses.replace(results, found=found)


def _rows(group: _Group) -> list[dict[str, Any]]:
    own = group.distances[DEFAULT.name]
    whole = float(np.exp(own.mean()))
    rows: list[dict[str, Any]] = [{"variant": DEFAULT.name, "distance": whole, "ratio": 1.0, "p_value": None}]
    for name in VARIANTS:
        other = group.distances.get(_tool(name))
        if other is None or len(other) != len(own):
            continue
        chance = paired_chance(other, own)
        rows.append(
            {
                "variant": _tool(name),
                "meaning": VARIANTS[name].meaning,
                "distance": float(np.exp(other.mean())),
                "ratio": float(np.exp((other - own).mean())),
                "p_value": chance if math.isfinite(chance) else None,
            }
        )
    return rows


def _markdown(
    groups: Sequence[_Group], rows: Mapping[str, Sequence[Mapping[str, Any]]], failed: Sequence[Mapping[str, str]]
) -> str:
    parts = [
        "The default with one ingredient taken out at a time. Distance: geometric mean over spaces and runs. Ratio: to "
        "the default's; above 1 the ingredient helps. p: paired t-test of log distances over spaces and seeds."
    ]
    for group in groups:
        runs = len(group.distances[DEFAULT.name]) // group.spaces
        table = [
            (
                f"**{row['variant']}**" if row["variant"] == DEFAULT.name else f"{row['variant']}: {row['meaning']}",
                percent(row["distance"]),
                f"{row['ratio']:.2f}",
                "-" if row["p_value"] is None else f"{row['p_value']:.2g}",
                _effect(row),
            )
            for row in rows[group.name]
        ]
        parts += [
            f"On {group.spaces} {group.name} spaces, {runs} runs each; distance: {group.figure}.",
            markdown_table(("variant", "distance", "ratio", "p", "the ingredient"), table),
        ]
    if failed:
        reasons = [f"- {failure['tool']} on {failure['space']}: {failure['reason']}" for failure in failed]
        parts.append("Runs that failed:\n\n" + "\n".join(reasons))
    return "\n\n".join(parts)


def _effect(row: Mapping[str, Any]) -> str:
    if row["variant"] == DEFAULT.name:
        return ""
    if row["p_value"] is None or row["p_value"] >= NOISE:
        return "makes no difference beyond noise"
    return "helps" if row["ratio"] > 1.0 else "harms"


def _draw(path: Path, groups: Sequence[_Group], rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Draw the ratio of each variant's distance to the default's, with its 95% interval, one panel per kind."""
    pyplot = pyplot_module()
    figure, axes = pyplot.subplots(1, len(groups), figsize=(5.5 * len(groups) + 1, 4), squeeze=False)
    for axis, group in zip(axes.flat, groups, strict=True):
        shown = [row["variant"] for row in rows[group.name] if row["variant"] != DEFAULT.name][::-1]
        differences = [group.distances[name] - group.distances[DEFAULT.name] for name in shown]
        centres = np.array([d.mean() for d in differences])
        spreads = 1.96 * np.array([d.std(ddof=1) / math.sqrt(len(d)) if len(d) > 1 else 0.0 for d in differences])
        ratios = np.exp(centres)
        errors = np.stack([ratios - np.exp(centres - spreads), np.exp(centres + spreads) - ratios])
        axis.errorbar(ratios, shown, xerr=errors, fmt="o", color="0.2", capsize=3)
        axis.axvline(1.0, color="0.6", linestyle="--")
        axis.set_xscale("log")
        axis.set_title(f"{group.name} spaces: {group.spaces}", fontsize=10)
        axis.set_xlabel("distance without it / with it (95% interval)")
        axis.grid(alpha=0.3)
    figure.set_layout_engine("constrained")
    save(figure, path)
