"""Decisions on the measurement of one configuration, without work, clock or state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from mptune.results.metric_expressions import is_error
from mptune.results.objective import Objective
from mptune.results.trial import Trial
from mptune.results.unseen import is_of_unseen, worst_errors_of

#: Seconds for further draws of the inputs in any search.
_DRAWING_S = 0.3
_Errors = Mapping[str, float]  #: by metric


@dataclass(frozen=True, slots=True)
class Plan:
    """The measurement of one configuration, decided before it runs."""

    #: Known errors of this configuration, by metric: it is then timed first, and compared after that.
    known: Mapping[str, float] = field(default_factory=dict)
    best_ms: float = math.inf  #: launches stop early once the median is clearly above this
    error_limits: Mapping[str, float] = field(default_factory=dict)  #: by metric, of configurations to time
    observe: bool = True  #: whether optional observers measure
    draws: int = 1  #: draws of the inputs to check on, the first included
    thresholds: Mapping[str, float] = field(default_factory=dict)  #: by metric, of feasible configurations
    baseline_ms: float = math.inf  #: a launch of the fastest baseline so far
    launch_factor: float = math.inf  #: limit of a launch as a multiple of ``baseline_ms``
    phase_s: float = math.inf  #: limit of the phase of the first launch in seconds

    @classmethod
    def of(cls, objective: Objective, draws: int = 1, launch_factor: float = math.inf) -> Plan:
        """Return the plan of a first measurement."""
        limits = dict(objective.limits)
        # Under the penalty "decay" inaccurate trials are timed, as their speed is part of the score.
        timed_within = {} if objective.penalty == "decay" else limits
        return cls(error_limits=timed_within, draws=draws, thresholds=limits, launch_factor=launch_factor)

    def again(self, trial: Trial) -> Plan:
        """Return the plan of measuring a valid trial again in turn with others: timed in full, its error kept."""
        known = errors_of(trial) | {n: value for n, value in trial.measurement.metrics.items() if is_of_unseen(n)}
        return Plan(known, thresholds=self.thresholds)

    @property
    def launch_limit_ms(self) -> float:
        """Maximum milliseconds of a launch; infinite without a limit."""
        return self.launch_factor * self.baseline_ms

    def launch_limit(self, limit_s: float) -> dict[str, float]:
        """Return the metrics of a trial whose launch exceeded a limit."""
        return {"limit_s": limit_s, "limit_factor": self.launch_factor}

    def times_after_check(self, errors: Mapping[str, float]) -> bool:
        """Whether a configuration with these errors, just measured, is timed."""
        return not any(errors[name] > limit for name, limit in self.error_limits.items())

    def difference(self, first: _Errors, last: _Errors, roundoff: float, scale: float, *, is_widest: bool) -> str:
        """Return the difference between the errors of two launches in words; empty if explained by rounding.

        Known errors may be of other data, so only larger errors count as a difference. ``roundoff`` is the unit
        roundoff of the configuration's narrowest type, ``scale`` the largest magnitude in the references. In the widest
        types (``is_widest``), two errors above a limit may differ by that limit.
        """
        # A change of the order of sums explains a factor of 10, or up to 1000 roundings of the narrowest type relative
        # to the largest value, but at most a thousandth.
        floor = min(1000.0 * roundoff, 1e-3) * max(1.0, scale)
        for name in filter(is_error, first):
            least, worst = (first[name], last[name]) if self.known else sorted((first[name], last[name]))
            limit = self.thresholds.get(name, 0.0)
            allowed = max(limit, 10.0 * least, floor)
            if is_widest and least > limit > 0.0:
                allowed = least + max(limit, floor)
            if not worst <= allowed:
                return f"{name} was {first[name]:.3g} at first and {last[name]:.3g} later"
        return ""

    def runs_further_draws(self, metrics: Mapping[str, float], needed_s: float, passed_s: float) -> bool:
        """Whether a configuration with these metrics runs on a further draw of the inputs.

        Further draws take at most 3% of the search's time so far for the fastest configuration, and 1.5% for others;
        reported trials are verified on unseen inputs anyway.
        """
        if self.draws < 2 or any(not metrics[name] <= limit for name, limit in self.thresholds.items()):
            return False
        share = 0.03 if metrics["time_ms"] < self.best_ms else 0.015
        return needed_s <= _DRAWING_S + share * passed_s


def errors_of(trial: Trial) -> dict[str, float]:
    """Return the error metrics of a trial, by name."""
    return {k: v for k, v in trial.measurement.metrics.items() if k.startswith(("error", "log10_error"))}


def worst_errors(first: Mapping[str, float], last: Mapping[str, float], *, is_own: bool = False) -> dict[str, float]:
    """Return the worst error metrics of two launches, and the spread of the error.

    If the first errors are known from an earlier measurement (``is_own``), a smaller error adds no spread.
    """
    worst = worst_errors_of(first, last)
    spread = last["error"] - first["error"] if is_own else abs(last["error"] - first["error"])
    worst["log10_error"] = math.log10(worst["error"]) if worst["error"] else -math.inf
    return {**first, **worst, "error_spread": max(first.get("error_spread", 0.0), spread)}
