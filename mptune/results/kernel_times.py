"""The parts of an application's time: the launches of each kernel, and the host's work between them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mptune.results.trial import Trial

#: Prefixes of an application's metrics: the launches of a kernel in a run, and the time of all of them.
LAUNCHES: Final = "launches."
TIME_MS: Final = "time_ms."
#: Prefixes of the fewest and the most launches of a kernel, where runs on the same inputs differ.
FEWEST: Final = "fewest_launches."
MOST: Final = "most_launches."
#: Metric of the time between launches: the steps' own Python, and their reads, writes and copies.
HOST_MS: Final = "host_ms"
#: Metric of an adopted program: processor time of its host part in a run, which is no part of the trial's time.
PROGRAM_HOST_MS: Final = "program_host_ms"
#: Label of the host's time in tables and charts.
HOST: Final = "host, between launches"


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The launches of a kernel in one run of an application, and the time of all of them."""

    launches: int
    time_ms: float


def kernel_times(trial: Trial) -> dict[str, KernelTime]:
    """Return the launches and times of an application's kernels in a run, by name; empty for a single kernel.

    They are scaled so that they and :func:`host_ms` add up to the trial's time, a median of several runs.
    """
    launches, parts = _launches(trial), _parts_ms(trial)
    return {name: KernelTime(int(count), parts[TIME_MS + name]) for name, count in launches.items()}


def host_ms(trial: Trial) -> float:
    """Return the time of a run between launches in ms; the remainder of the trial's time if it was not measured."""
    parts = _parts_ms(trial)
    return parts[HOST_MS] if HOST_MS in parts else max(0.0, trial.time_ms - math.fsum(parts.values()))


def program_ms(trial: Trial) -> float:
    """Return the time of an adopted program as a whole, kernels and host, in ms; NaN for any other trial."""
    return trial.time_ms + trial.metric(PROGRAM_HOST_MS)


def by_kernel(trials: Sequence[Trial]) -> dict[str, float]:
    """Return the metrics of the parts of an application's time over several turns; empty for a single kernel.

    A part is its mean share of a turn times the median of the turns. Launches are counted in the turn nearest to that
    median, with the fewest and the most of all turns where these differ.
    """
    time_ms = statistics.median(trial.time_ms for trial in trials)
    nearest = min(trials, key=lambda trial: abs(trial.time_ms - time_ms))
    metrics = nearest.measurement.metrics
    turns = [parts for trial in trials if (parts := _parts_ms(trial))]
    totals = [math.fsum(parts.values()) for parts in turns]
    found = {name: each for name, each in metrics.items() if name.startswith(LAUNCHES)}
    for name in dict.fromkeys(name for parts in turns for name in parts):
        shares = [parts.get(name, 0.0) / total for parts, total in zip(turns, totals, strict=True) if total > 0]
        found[name] = time_ms * statistics.fmean(shares) if shares else 0.0
    for name in _launches(nearest):
        counts = [trial.metric(what + name) for trial in trials for what in (FEWEST, LAUNCHES, MOST)]
        known = [count for count in counts if math.isfinite(count)]
        found |= {FEWEST + name: min(known), MOST + name: max(known)} if min(known) < max(known) else {}
    return found


def _launches(trial: Trial) -> dict[str, float]:
    names = [name.removeprefix(LAUNCHES) for name in trial.measurement.metrics if name.startswith(LAUNCHES)]
    counts = {name: trial.metric(LAUNCHES + name) for name in names}
    return {name: n for name, n in counts.items() if math.isfinite(n) and math.isfinite(trial.metric(TIME_MS + name))}


def _parts_ms(trial: Trial) -> dict[str, float]:
    """Return the parts of a trial's time by their metrics; with the host's part, they add up to it."""
    parts = {TIME_MS + name: trial.metric(TIME_MS + name) for name in _launches(trial)}
    if not math.isfinite(trial.metric(HOST_MS)):
        return parts
    parts[HOST_MS] = trial.metric(HOST_MS)
    total = math.fsum(parts.values())
    scale = trial.time_ms / total if total > 0 and math.isfinite(trial.time_ms) else 1.0
    return {name: each * scale for name, each in parts.items()}
