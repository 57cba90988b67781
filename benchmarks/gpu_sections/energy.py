"""Time and energy by how much accuracy is given up: Fig. 12 of Heldens 2026 for this device.

Each kernel is searched for its fastest configurations in fp64 and under each threshold. The energy of a launch is then
measured on the fastest few of each, launches following on one another for a second and longer, and on points of the
front between them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks.gpu_sections.searching import described, evaluator_of, fastest, search
from benchmarks.gpu_sections.section import Options, Section, table
from benchmarks.kernels import LEVELS, THRESHOLDS
from mptune.errors import UnknownNameError
from mptune.kernel import Kernel, Sizes
from mptune.results.objective import Objective
from mptune.results.pareto import front
from mptune.results.trial import Trial
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.tuning import device_constraints

__all__ = ["SECTION"]

KERNELS: Final = ("kmeans", "black_scholes", "bessel")
#: What of a kernel's time goes into its searches.
SEARCHING: Final = 0.5
#: Points of the front measured beside the candidates of the levels.
POINTS: Final = 8


def measure(options: Options, until: float) -> Iterator[dict[str, Any]]:
    """Measure a kernel after another, each with an equal share of the time that is left."""
    names = options.kernels or KERNELS
    for name in names:
        if name not in THRESHOLDS:
            raise UnknownNameError("kernel", name, THRESHOLDS)
    found = {}
    for number, name in enumerate(names):
        now = time.monotonic()
        if now >= until:
            break
        found[name] = _kernel(load_kernel(name), options, now + (until - now) / (len(names) - number))
        yield {"kernels": dict(found), "complete": False}
    complete = len(found) == len(names) and all(entry["complete"] for entry in found.values())
    yield {"kernels": found, "complete": complete}


def _kernel(kernel: Kernel, options: Options, until: float) -> dict[str, Any]:
    sizes = kernel.resolve_sizes(options.size or "paper")
    now = time.monotonic()
    trials = _search(kernel, sizes, options, now + SEARCHING * (until - now))
    candidates = _candidates(kernel, trials, options.candidates)
    measured: list[Trial] = []
    with evaluator_of(kernel, sizes, options, observers=("energy",)) as evaluator:
        missing = evaluator.start().unavailable.get("energy", "")
        for trial in evaluator.evaluate(candidates):
            if trial.is_valid:
                measured.append(trial)
            if time.monotonic() >= until:
                break
    taus = dict(zip(("fp64", *LEVELS), (math.inf, *THRESHOLDS[kernel.name]), strict=True))
    levels = {}
    for level, tau in taus.items():
        of_level = fastest(measured, kernel.baseline_values() if level == "fp64" else {}, tau, len(measured))
        frugal = sorted(of_level, key=lambda trial: (math.isnan(trial.metric("energy_j")), trial.metric("energy_j")))
        levels[level] = {
            "threshold": tau,
            "fastest": _point(of_level[0]) if of_level else None,
            "most_frugal": _point(frugal[0]) if frugal and not missing else None,
        }
    return {
        "sizes": dict(sizes),
        "evaluated": len(trials),
        "levels": levels,
        "points": [_point(trial) for trial in measured],
        "missing": missing,
        "complete": len(measured) == len(candidates) > 0,
    }


def _search(kernel: Kernel, sizes: Sizes, options: Options, until: float) -> Sequence[Trial]:
    """Return the trials of a search for the baseline and of one for each threshold."""
    with evaluator_of(kernel, sizes, options) as evaluator:
        ready = evaluator.start()
        space = kernel.search_space(sizes, device_constraints(kernel, ready.facts))
        wanted = [
            (space.restrict(kernel.baseline_values()), Objective()),
            *((space, Objective(threshold=tau)) for tau in THRESHOLDS[kernel.name]),
        ]
        known: dict[Configuration, Trial] = {}
        for number, (part, objective) in enumerate(wanted):
            now = time.monotonic()
            ends = now + (until - now) / (len(wanted) - number)
            search(evaluator, kernel, part, objective, known, ends, options.seed)
    return tuple(known.values())


def _candidates(kernel: Kernel, trials: Sequence[Trial], count: int) -> list[Configuration]:
    """Return the fastest in fp64 and under each threshold, then points evenly along the front."""
    found = [trial.configuration for trial in fastest(trials, kernel.baseline_values(), math.inf, count)]
    for tau in THRESHOLDS[kernel.name]:
        found += [trial.configuration for trial in fastest(trials, {}, tau, count)]
    valid = [trial for trial in trials if trial.is_valid]
    points = np.array([[trial.time_ms, trial.error] for trial in valid]).reshape(-1, 2)
    along = sorted((valid[i] for i in front(points, [True, True])), key=lambda trial: trial.error)
    chosen = np.unique(np.linspace(0, len(along) - 1, POINTS).round().astype(int)) if along else ()
    return list(dict.fromkeys((*found, *(along[i].configuration for i in chosen))))


def _point(trial: Trial) -> dict[str, Any]:
    metrics = {name: trial.metric(name) for name in ("time_ms", "error", "energy_j", "power_w")}
    return {**metrics, "configuration": described(trial.configuration)}


def lines(document: Mapping[str, Any]) -> list[str]:
    """Render the section."""
    rows = []
    missing = {entry["missing"]: None for entry in document["kernels"].values() if entry["missing"]}
    for name, entry in document["kernels"].items():
        fp64 = entry["levels"]["fp64"]["fastest"]
        for level, of_level in entry["levels"].items():
            point, frugal = of_level["fastest"], of_level["most_frugal"]
            if point is None:
                rows.append((name, level, *[""] * 8))
                continue
            tau = of_level["threshold"]
            limited = tau is not None and math.isfinite(tau)
            rows.append(
                (
                    name,
                    f"{level} (<= {tau:.0e})" if limited else level,
                    f"{point['error']:.1e}",
                    f"{point['time_ms']:.4g}",
                    _ratio(fp64, point, "time_ms"),
                    _number(point, "energy_j"),
                    _ratio(fp64, point, "energy_j"),
                    _number(point, "power_w"),
                    _number(frugal, "energy_j"),
                    _ratio(fp64, frugal, "energy_j"),
                )
            )
    columns = ("kernel", "level", "error", "ms", "speedup", "J", "saving", "W", "least J", "its saving")
    return [
        "The fastest configuration found in fp64 and under each threshold (Heldens 2026, Table IV), and the energy of "
        "one of its launches: that of the whole device, what it draws at rest included. The least is that of the most "
        "frugal configuration measured within the threshold; savings say how many times less it is than in fp64.",
        *(f"\nNot measured: {reason}." for reason in missing),
        "",
        *table(columns, rows),
    ]


def _number(point: Mapping[str, Any] | None, name: str) -> str:
    value = None if point is None else point[name]
    return "" if value is None or math.isnan(value) else f"{value:.4g}"


def _ratio(baseline: Mapping[str, Any] | None, point: Mapping[str, Any] | None, name: str) -> str:
    if not _number(baseline, name) or not _number(point, name):
        return ""
    assert baseline is not None
    assert point is not None
    return f"{baseline[name] / point[name]:.2f}x"


SECTION: Final = Section("energy", "Time and energy by accuracy", measure, lines)
