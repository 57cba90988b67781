"""Where the time of an application's run went: the launches of each of its kernels, and what lies between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mptune.results import Trial

__all__ = ["HOST_MS", "LAUNCHES", "TIME_MS", "KernelTime", "by_kernel", "host_ms", "kernel_times"]

#: Metrics of a trial of an application: by kernel, how often it was launched in a run, and how long that took in all.
LAUNCHES: Final = "launches."
TIME_MS: Final = "time_ms."
#: How long the same run took beside its launches: the steps' own Python, and what they read, write and copy.
HOST_MS: Final = "host_ms"


@dataclass(frozen=True, slots=True)
class KernelTime:
    """How often a kernel was launched in one run of an application, and how long all of these launches took."""

    launches: int
    time_ms: float


def kernel_times(trial: Trial) -> dict[str, KernelTime]:
    """Return the launches and times of an application's kernels in a run, by name; nothing for a single kernel."""
    metrics = trial.measurement.metrics
    names = [name.removeprefix(LAUNCHES) for name in metrics if name.startswith(LAUNCHES)]
    numbers = {name: (metrics[LAUNCHES + name], metrics.get(TIME_MS + name, math.nan)) for name in names}
    return {
        name: KernelTime(int(launches), time_ms)
        for name, (launches, time_ms) in numbers.items()
        if math.isfinite(launches) and math.isfinite(time_ms)
    }


def by_kernel(trial: Trial) -> dict[str, float]:
    """Return the metrics of a trial of an application that say where its time went; nothing for a single kernel."""
    metrics = trial.measurement.metrics
    return {name: each for name, each in metrics.items() if name.startswith((LAUNCHES, TIME_MS)) or name == HOST_MS}


def host_ms(trial: Trial) -> float:
    """Return how long that run took beside its launches, in milliseconds.

    Where the trial does not say, as one of an earlier mptune, it is what the launches leave of its time.
    """
    known = trial.metric(HOST_MS)
    if math.isfinite(known):
        return known
    return max(0.0, trial.time_ms - math.fsum(each.time_ms for each in kernel_times(trial).values()))
