"""How one configuration is measured: decisions without work, clock or state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from mptune.results.metric_expressions import is_error
from mptune.results.objective import Objective
from mptune.results.trial import Trial
from mptune.results.unseen import is_of_unseen, worst_errors_of

#: Seconds that runs on further draws of the inputs may take however short the search is.
_DRAWING_S = 0.3


@dataclass(frozen=True, slots=True)
class Plan:
    """How one configuration is measured, decided before it runs; sent to the worker as it is."""

    #: Errors of this very configuration from before, by metric: it is then timed, and only compared after that.
    known: Mapping[str, float] = field(default_factory=dict)
    best_ms: float = math.inf  #: launches stop early once the median is clearly above this
    error_limits: Mapping[str, float] = field(default_factory=dict)  #: by metric, of a configuration that is timed
    observe: bool = True  #: whether the optional observers measure too
    draws: int = 1  #: draws of the inputs on which it is to be checked, the first one included
    thresholds: Mapping[str, float] = field(default_factory=dict)  #: by metric, of a feasible configuration
    baseline_ms: float = math.inf  #: a launch of the fastest baseline so far
    launch_factor: float = math.inf  #: how many times as long as the baseline's a launch may take

    @classmethod
    def of(cls, objective: Objective, draws: int = 1, launch_factor: float = math.inf) -> Plan:
        """Return how configurations are measured for the first time."""
        limits = dict(objective.limits)
        # Under the penalty decay an inaccurate trial scores by its speed, so it is timed too.
        timed_within = {} if objective.penalty == "decay" else limits
        return cls(error_limits=timed_within, draws=draws, thresholds=limits, launch_factor=launch_factor)

    def again(self, trial: Trial) -> Plan:
        """Return how a valid trial is measured again in turn with others: timed in full, its error kept."""
        known = errors_of(trial) | {n: value for n, value in trial.measurement.metrics.items() if is_of_unseen(n)}
        return Plan(known, thresholds=self.thresholds)

    @property
    def launch_limit_ms(self) -> float:
        """Milliseconds that a launch may take; infinite if nothing limits it."""
        return self.launch_factor * self.baseline_ms

    def launch_limit(self, limit_s: float) -> dict[str, float]:
        """Return the metrics of a trial whose launch took longer than so many seconds."""
        return {"limit_s": limit_s, "limit_factor": self.launch_factor}

    def times_after_check(self, errors: Mapping[str, float]) -> bool:
        """Whether a configuration with these errors, just measured, is timed."""
        return not any(errors[name] > limit for name, limit in self.error_limits.items())

    def difference(self, first: Mapping[str, float], last: Mapping[str, float], roundoff: float, scale: float) -> str:
        """Say how the errors of two launches differ; empty if by no more than rounding, or not enough to matter.

        Known errors may be of other data, so that only larger ones say that launches differ. ``roundoff`` is the unit
        roundoff of the configuration's narrowest type, ``scale`` the largest magnitude in the references.
        """
        # Sums in another order differ by a factor of 10, or by up to 1000 roundings of the narrowest type, each
        # relative to the largest value. A difference above a thousandth is no rounding, whatever the type.
        floor = min(1000.0 * roundoff, 1e-3) * max(1.0, scale)
        for name in filter(is_error, first):
            least, worst = (first[name], last[name]) if self.known else sorted((first[name], last[name]))
            if not worst <= max(self.thresholds.get(name, 0.0), 10.0 * least, floor):
                return f"{name} was {first[name]:.3g} at first and {last[name]:.3g} after the timed launches"
        return ""

    def runs_further_draws(self, metrics: Mapping[str, float], needed_s: float, passed_s: float) -> bool:
        """Whether a configuration with these metrics, checked on one draw of the inputs, runs on another one now.

        Reported trials are verified on unseen inputs in any case. Draws of the search must not slow it: of the seconds
        since it began, they take 3% for the fastest configuration and 1.5% for others, this one included.
        """
        if self.draws < 2 or any(not metrics[name] <= limit for name, limit in self.thresholds.items()):
            return False
        share = 0.03 if metrics["time_ms"] < self.best_ms else 0.015
        return needed_s <= _DRAWING_S + share * passed_s


def errors_of(trial: Trial) -> dict[str, float]:
    """Return the error metrics of a trial, by name."""
    return {k: v for k, v in trial.measurement.metrics.items() if k.startswith(("error", "log10_error"))}


def worst_errors(first: Mapping[str, float], last: Mapping[str, float], *, is_own: bool = False) -> dict[str, float]:
    """Return the error metrics over two launches: the worst of each, and by how much the launches differ.

    Those of the first launch may be known from before (``is_own``); a smaller error is no news then.
    """
    worst = worst_errors_of(first, last)
    spread = last["error"] - first["error"] if is_own else abs(last["error"] - first["error"])
    worst["log10_error"] = math.log10(worst["error"]) if worst["error"] else -math.inf
    return {**first, **worst, "error_spread": max(first.get("error_spread", 0.0), spread)}
