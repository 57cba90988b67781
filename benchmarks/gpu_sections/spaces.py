"""Whole search spaces at paper size: the fronts of time against error, Figs. 2 and 3 of Heldens 2026 for this device.

The baselines are measured first, then the rest of the space in random order. If there is not enough time for the whole
space, the result is a uniform sample of it, and the page says so; the same command goes on from
there. Every configuration has its own error measured, none its signature's.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks.gpu_sections.searching import described, fastest
from benchmarks.gpu_sections.section import Options, Section, Source, table
from benchmarks.kernels import LEVELS, THRESHOLDS
from benchmarks.record import Task, notes, plan_task, save
from benchmarks.record import measure as measure_pass
from mptune.backends import get_backend
from mptune.backends.processor import usable_cores
from mptune.kernel import Kernel
from mptune.results.pareto import front
from mptune.results.trial import Trial
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.space.search_space import SearchSpace
from mptune.tuning import device_constraints

__all__ = ["SECTION", "summary"]

KERNELS: Final = ("axpy", "kmeans", "bessel", "black_scholes")
#: Baselines measured before the rest; where there are more, as many of them as drawn.
BASELINES: Final = 100
_NOT_IN_NAMES: Final = re.compile("[^a-z0-9]+")


def measure(options: Options, until: float) -> Iterator[dict[str, Any]]:
    """Record the spaces one by one; each gets an equal share of the time that is left."""
    names = options.kernels or KERNELS
    found = {}
    for number, name in enumerate(names):
        now = time.monotonic()
        if now >= until:
            break
        found[name] = _record(name, options, now + (until - now) / (len(names) - number))
        yield {"kernels": dict(found), "complete": False}
    complete = all(entry["measured"] == entry["configurations"] for entry in found.values())
    yield {"kernels": found, "complete": complete and len(found) == len(names)}


def begins(options: Options, limits: Mapping[str, Any]) -> Iterator[Source]:
    """Yield the baselines of every kernel, which are measured first."""
    for name in options.kernels or KERNELS:
        kernel = load_kernel(name)
        sizes = kernel.resolve_sizes(options.size or "paper")
        space = kernel.search_space(sizes, device_constraints(kernel, limits))
        yield from ((kernel, sizes, configuration) for configuration in _baselines(kernel, space, options.seed))


def _baselines(kernel: Kernel, space: SearchSpace, seed: int) -> Sequence[Configuration]:
    """Return the baselines that are measured before the rest."""
    baselines = space.restrict(kernel.baseline_values())
    return baselines.configurations(baselines.sample(min(BASELINES, baselines.size), np.random.default_rng(seed)))


def _record(name: str, options: Options, until: float) -> dict[str, Any]:
    """Measure as much as there is time for, write the recorded space and return its summary."""
    task = _task(name, options)
    device = _NOT_IN_NAMES.sub("-", get_backend(options.backend).describe().name.lower()).strip("-")
    options.work.mkdir(parents=True, exist_ok=True)
    path = options.work / f"{name}-{device}-{options.size or 'paper'}-{options.seed}.db"
    known, ready = measure_pass(task, task.order, path, options.seed, usable_cores(), until)
    trials = list(known.values())
    recorded = options.data / f"{name}-{device}.json.gz"
    if trials:
        save(task, trials, ready, recorded, notes(task, ready, len(trials), options.command) | {"passes": "1"})
    return {
        "sizes": dict(task.sizes),
        "configurations": task.space.size,
        "recorded": recorded.name,
        **summary(task.kernel, trials, THRESHOLDS.get(name, ())),
    }


def _task(name: str, options: Options) -> Task:
    """Return the space of a kernel with the baselines first."""
    given = argparse.Namespace(
        size=options.size or "paper", restrict={}, sample=None, seed=options.seed, backend=options.backend
    )
    task = plan_task(name, given, get_backend(options.backend).device.facts())
    first = [task.space.index(each) for each in _baselines(task.kernel, task.space, options.seed)]
    order = dict.fromkeys((*(index for index in first if index is not None), *task.order))
    return Task(task.kernel, task.sizes, task.space, tuple(order), task.backend)


def summary(kernel: Kernel, trials: Collection[Trial], thresholds: Collection[float]) -> dict[str, Any]:
    """Return the best in fp64 and under each threshold, and the front of time against error."""
    valid = [trial for trial in trials if trial.is_valid]
    points = np.array([[trial.time_ms, trial.error] for trial in valid]).reshape(-1, 2)
    on_front = sorted((valid[i] for i in front(points, [True, True])), key=lambda trial: trial.time_ms)
    baseline = fastest(valid, kernel.baseline_values(), math.inf, 1)
    best = {level: fastest(valid, {}, tau, 1) for level, tau in zip(LEVELS, thresholds, strict=False)}
    statuses: dict[str, int] = {}
    for trial in trials:
        statuses[trial.status.value] = statuses.get(trial.status.value, 0) + 1
    return {
        "measured": len(trials),
        "statuses": statuses,
        "thresholds": list(thresholds),
        "fp64": _point(baseline[0]) if baseline else None,
        "best": {level: _point(of_level[0]) if of_level else None for level, of_level in best.items()},
        "front": [_point(trial) for trial in on_front],
    }


def _point(trial: Trial) -> dict[str, Any]:
    return {"time_ms": trial.time_ms, "error": trial.error, "configuration": described(trial.configuration)}


def lines(document: Mapping[str, Any]) -> list[str]:
    """Render the section."""
    shown = [
        "Speedups are over the fastest configuration in fp64 with accurate functions, under the three thresholds of "
        "Heldens 2026 (Table IV); for axpy, which is not in it, our own. Not all of a space is measured where it says "
        "so: then it is the baselines and a uniform sample. The raw data are in the files named, in benchmarks/data "
        "unless told otherwise.",
        "",
    ]
    overview, fronts = [], []
    for name, entry in document["kernels"].items():
        fp64 = entry["fp64"]
        fp64_ms = fp64["time_ms"] if fp64 else math.nan
        cells = [
            (f"{fp64_ms / point['time_ms']:.2f}x" if fp64 and point else "none") + f" (<= {tau:.0e})"
            for tau, point in zip(entry["thresholds"], entry["best"].values(), strict=True)
        ]
        of = f"{entry['measured']:,} of {entry['configurations']:,}"
        valid = entry["statuses"].get("ok", 0)
        overview.append((name, of, valid, f"{fp64_ms:.4g}" if fp64 else "", *cells, entry["recorded"]))
        fronts += _front_lines(name, entry, fp64_ms)
    columns = ("kernel", "configurations", "valid", "fp64 ms", *LEVELS, "recorded space")
    return [*shown, *table(columns, overview), *fronts]


def _front_lines(name: str, entry: Mapping[str, Any], fp64_ms: float) -> list[str]:
    """Render the front of one kernel: a line for each point, the fastest first."""
    sizes = ", ".join(f"{size} = {value:,}" for size, value in entry["sizes"].items())
    rows = [
        (
            ", ".join(f"{parameter}={value}" for parameter, value in point["configuration"].items()),
            f"{point['time_ms']:.4g}",
            f"{fp64_ms / point['time_ms']:.2f}" if math.isfinite(fp64_ms) else "",
            f"{point['error']:.1e}",
        )
        for point in entry["front"]
    ]
    return [
        f"### {name} at {sizes}: the front",
        "",
        *table(("configuration", "ms", "speedup", "error"), rows),
    ]


SECTION: Final = Section("spaces", "Speed against error over whole spaces", measure, lines, begins)
