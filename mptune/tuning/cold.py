"""The winner and the baseline with caches emptied, where the data fit a cache in the types of one alone.

A run launches over and over on the same data. Where they fit a cache in narrow types and not in wide ones, the speedup
is that of the cache: at larger sizes, or in a program that does other things in between, little of it is left.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Final

from mptune.backends import get_backend
from mptune.errors import MptuneError
from mptune.measure.device import DeviceEvaluator
from mptune.measure.rounds import Turns
from mptune.measure.timing import TimingPlan, is_bound_by_arithmetic
from mptune.results.trial import Trial
from mptune.tuning.ledger import Ledger
from mptune.tuning.plan import TuningPlan
from mptune.tuning.warnings import Warnings

__all__ = ["compare_cold"]

#: Launches of a turn, each with caches emptied, and turns of each.
_VISIT: Final = TimingPlan(warmups=0, min_repeats=2, max_repeats=2, flush_cache="on")
_ROUNDS: Final = 2
#: Speedups that differ by a smaller factor are alike.
_ALIKE: Final = 1.15
#: Names of the levels of caches among a device's limits, and what a message calls them.
_LEVELS: Final = (("own_cache_bytes", "the cores' own caches"), ("cache_bytes", "the last-level cache"))


def compare_cold(plan: TuningPlan, evaluator: DeviceEvaluator, ledger: Ledger, warn: Warnings) -> None:
    """Measure the winner and the baseline with caches emptied, if a cache holds the data of the winner alone.

    Where that makes a difference both speedups are said. Their trials get a metric ``time_cold_ms``. Where the caches
    are emptied before every launch anyway, as ``auto`` does on GPUs, there is nothing to do.
    """
    run = ledger.result()
    best, baseline = run.best, run.baseline
    flush = plan.settings.flush_cache
    is_warm = flush == "off" or (flush == "auto" and get_backend(run.info.backend).shares_memory)
    if best is None or baseline is None or best is baseline or not (is_warm and ledger.measured_here):
        return
    if ledger.closing_s <= 0:
        return
    cache = _between(best, baseline, evaluator.start().device.limits)
    if not cache or is_bound_by_arithmetic(plan.kernel.work(best.configuration, plan.sizes).intensity):
        return
    turns = Turns(evaluator, [best, baseline], _VISIT)
    with contextlib.suppress(MptuneError):  # no room for what empties the caches
        turns.measure([best.configuration, baseline.configuration], _ROUNDS)
    cold_ms = {turn.configuration: turn.time_ms for turn in turns.trials() if turn.is_valid}
    for trial in (best, baseline):
        if trial.configuration in cold_ms:
            metrics = {**trial.measurement.metrics, "time_cold_ms": cold_ms[trial.configuration]}
            ledger.keep(trial.with_measurement(metrics=metrics), ledger.phases[trial.configuration])
    warm = run.speedup(best)
    cold = cold_ms.get(baseline.configuration, math.nan) / cold_ms.get(best.configuration, math.nan)
    if math.isnan(cold) or not 1 / _ALIKE <= warm / cold <= _ALIKE:
        emptied = "" if math.isnan(cold) else f", and {cold:.3g} with caches emptied before each launch"
        warn(
            f"the data of the best ({_mb(best)}) fit {cache}, those of the baseline ({_mb(baseline)}) do not: the "
            f"speedup is {warm:.3g}{emptied}; tune at the size you will run (--size), or with --flush-cache on"
        )


def _between(best: Trial, baseline: Trial, limits: Mapping[str, int]) -> str:
    """Return which cache holds the data of the best and not those of the baseline, with its size; empty if none."""
    held = best.metric("memory_bytes"), baseline.metric("memory_bytes")
    found = [(name, limits.get(key, 0)) for key, name in _LEVELS if held[0] <= limits.get(key, 0) < held[1]]
    return f"{found[0][0]} ({found[0][1] / 1e6:.3g} MB)" if found else ""


def _mb(trial: Trial) -> str:
    return f"{trial.metric('memory_bytes') / 1e6:.3g} MB"
