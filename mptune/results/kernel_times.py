"""Where the time of an application's run went: the launches of each of its kernels, and what lies between them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mptune.results.trial import Trial

#: Metrics of a trial of an application: by kernel, how often it was launched in a run, and how long that took in all.
LAUNCHES: Final = "launches."
TIME_MS: Final = "time_ms."
#: Where runs on the same inputs launch a kernel differently often: how often at least, and at most.
FEWEST: Final = "fewest_launches."
MOST: Final = "most_launches."
#: How long the same run took beside its launches: the steps' own Python, and what they read, write and copy.
HOST_MS: Final = "host_ms"
#: What tables and charts call that time.
HOST: Final = "host, between launches"


@dataclass(frozen=True, slots=True)
class KernelTime:
    """How often a kernel was launched in one run of an application, and how long all of these launches took."""

    launches: int
    time_ms: float


def kernel_times(trial: Trial) -> dict[str, KernelTime]:
    """Return the launches and times of an application's kernels in a run, by name; nothing for a single kernel.

    With :func:`host_ms` they add up to the trial's time: they are shares of it. A run takes longer than another, so
    that the times taken within some are not parts of the median of all.
    """
    launches, parts = _launches(trial), _parts_ms(trial)
    return {name: KernelTime(int(count), parts[TIME_MS + name]) for name, count in launches.items()}


def host_ms(trial: Trial) -> float:
    """Return how long that run took beside its launches, in milliseconds.

    Where the trial does not say it is what the launches leave of its time.
    """
    parts = _parts_ms(trial)
    return parts[HOST_MS] if HOST_MS in parts else max(0.0, trial.time_ms - math.fsum(parts.values()))


def by_kernel(trials: Sequence[Trial]) -> dict[str, float]:
    """Return the metrics that say where the time went in several turns of an application; nothing for a single kernel.

    Each part is its mean share of a turn, of the median of their times: what disturbed one turn hardly counts. Launches
    are those of the turn nearest to that median; where others have fewer or more, that is told, too.
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
    """Return how often each kernel was launched whose time is known, too."""
    names = [name.removeprefix(LAUNCHES) for name in trial.measurement.metrics if name.startswith(LAUNCHES)]
    counts = {name: trial.metric(LAUNCHES + name) for name in names}
    return {name: n for name, n in counts.items() if math.isfinite(n) and math.isfinite(trial.metric(TIME_MS + name))}


def _parts_ms(trial: Trial) -> dict[str, float]:
    """Return the parts of a trial's time by their metrics; they add up to it where that of the host is among them."""
    parts = {TIME_MS + name: trial.metric(TIME_MS + name) for name in _launches(trial)}
    if not math.isfinite(trial.metric(HOST_MS)):
        return parts
    parts[HOST_MS] = trial.metric(HOST_MS)
    total = math.fsum(parts.values())
    scale = trial.time_ms / total if total > 0 and math.isfinite(trial.time_ms) else 1.0
    return {name: each * scale for name, each in parts.items()}
