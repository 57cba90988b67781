"""Repeating launches until their median is known well enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from mptune.errors import MptuneError
from mptune.observers.time import is_tight

__all__ = ["TimingPlan", "repeat_launches"]


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """How often to launch.

    Attributes:
        warmups: untimed launches before the first timed one.
        min_repeats: timed launches there are at least, however long they take.
        max_repeats: timed launches there are at most.
        relative_width: the confidence interval of the median is tight below this share of the median.
        cap_s: no further launch once the timed ones took this long together, restoring buffers included.
    """

    warmups: int = 1
    min_repeats: int = 5
    max_repeats: int = 200
    relative_width: float = 0.02
    cap_s: float = 0.5

    def __post_init__(self) -> None:
        if not (self.warmups >= 0 and 1 <= self.min_repeats <= self.max_repeats):
            raise MptuneError(f"timing plan: expected 0 <= warmups and 1 <= min_repeats <= max_repeats, got {self}")


def repeat_launches(
    launch: Callable[[], float], plan: TimingPlan, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, ...]:
    """Return the times in milliseconds of the timed launches.

    Stops as soon as the median's confidence interval is tight, the time cap is reached or the
    launches are used up, but not before ``min_repeats``.

    Args:
        launch: runs the kernel once and returns its time in milliseconds.
        plan: warm-ups, repeats and limits.
        clock: wall time in seconds.
    """
    for _ in range(plan.warmups):
        launch()
    times: list[float] = []
    start = clock()
    while len(times) < plan.max_repeats:
        times.append(launch())
        if len(times) < plan.min_repeats:
            continue
        took_s = max(sum(times) / 1e3, clock() - start)
        if took_s >= plan.cap_s or is_tight(times, relative=plan.relative_width):
            break
    return tuple(times)
