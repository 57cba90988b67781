"""Which work on a configuration may be left out, and why.

Nothing here does any work, reads a clock or keeps a state. :class:`MeasurementPolicy` returns the :class:`Plan` of a
configuration, or a :class:`Decision` about a trial, with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from mptune.results.metric_expressions import is_error
from mptune.results.objective import Objective
from mptune.results.trial import Status, Trial
from mptune.results.unseen import is_of_unseen, worst_errors_of

__all__ = [
    "Decision",
    "MeasurementPolicy",
    "Plan",
    "errors_of",
    "worst_errors",
]


_NO_LIMITS: Final[Mapping[str, float]] = MappingProxyType({})

#: What differs from launch to launch only because sums are added up in another order has errors of one magnitude, ...
_ROUNDING_FACTOR: Final = 10.0
#: ... or errors of no more than this many roundings of the narrowest type, each relative to the largest value. A
#: difference above a thousandth is none of rounding, whatever the type.
_ROUNDINGS: Final = 1000.0
_MOST_BY_ROUNDING: Final = 1e-3

#: Of the time the search takes, what runs on further draws of the inputs may take: of a configuration that would be
#: reported if the search ended now, and of any other; and what they may take however short it is.
_LEADING_SHARE: Final = 0.03
_FOLLOWING_SHARE: Final = 0.015
_DRAWING_S: Final = 0.3


@dataclass(frozen=True, slots=True)
class Decision:
    """A yes or no, and why; true in a condition where it is a yes."""

    is_yes: bool
    reason: str

    def __bool__(self) -> bool:
        return self.is_yes


@dataclass(frozen=True, slots=True)
class Plan:
    """How one configuration is measured, decided before it runs; sent to the worker as it is.

    Attributes:
        known: the errors that were measured on this very configuration before, by the names of their metrics; it is
            then timed, and only compared after that.
        best_ms: launches stop early once the median is clearly above this.
        error_limits: the largest errors, by the names of their metrics, of a configuration that is timed.
        observe: whether the optional observers measure too.
        draws: on how many draws of the inputs it is to be checked, the first one included.
        thresholds: the largest errors, by the names of their metrics, of a feasible configuration.
    """

    known: Mapping[str, float] = field(default_factory=dict)
    best_ms: float = math.inf
    error_limits: Mapping[str, float] = field(default_factory=dict)
    observe: bool = True
    draws: int = 1
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def times_after_check(self, errors: Mapping[str, float]) -> Decision:
        """Decide whether a configuration with these errors, just measured, is timed."""
        exceeded = sorted(name for name, limit in self.error_limits.items() if errors[name] > limit)
        if exceeded:
            return Decision(False, "not timed: its error is above the threshold")
        return Decision(True, "its time can matter")

    def is_stable(
        self, first: Mapping[str, float], last: Mapping[str, float], roundoff: float, scale: float
    ) -> Decision:
        """Decide whether the errors of two launches differ by no more than rounding, or not enough to matter.

        Where the first errors are known from before they may be of other data, and only larger ones tell.

        Args:
            first: errors by name, of the first launch.
            last: of the last one.
            roundoff: unit roundoff of the narrowest type of the configuration.
            scale: the largest magnitude in the references.
        """
        floor = min(_ROUNDINGS * roundoff, _MOST_BY_ROUNDING) * max(1.0, scale)
        for name in (name for name in first if is_error(name)):
            least, worst = (first[name], last[name]) if self.known else sorted((first[name], last[name]))
            allowed = max(self.thresholds.get(name, 0.0), _ROUNDING_FACTOR * least, floor)
            if not worst <= allowed:
                return Decision(
                    False, f"{name} was {first[name]:.3g} at first and {last[name]:.3g} after the timed launches"
                )
        return Decision(True, "the launches agree but for rounding")

    def runs_further_draws(
        self, metrics: Mapping[str, float], cost_s: float, spent_s: float, passed_s: float
    ) -> Decision:
        """Decide whether a configuration that was checked on one draw of the inputs runs on the others now.

        What is reported is verified on unseen ones in any case; these are for the search, which they must not slow.

        Args:
            metrics: of the configuration, measured on itself.
            cost_s: about how long that takes.
            spent_s: how long such runs have taken so far.
            passed_s: how long the search has.
        """
        if self.draws < 2:
            return Decision(False, "errors are those of one draw")
        if any(not metrics[name] <= limit for name, limit in self.thresholds.items()):
            return Decision(False, "its error is above the threshold on the first draw")
        leads = metrics["time_ms"] < self.best_ms
        share = _LEADING_SHARE if leads else _FOLLOWING_SHARE
        if spent_s + cost_s > _DRAWING_S + share * passed_s:
            return Decision(False, "further draws have taken their share of the time")
        return Decision(True, "it would be reported" if leads else "there is time for it")


@dataclass(frozen=True, slots=True)
class MeasurementPolicy:
    """Decides what is compiled, launched, checked, timed, or left out.

    Attributes:
        objective: what is optimised. Its baseline does not matter here.
        run_limit_s: how long a phase of a trial may take.
        draws: on how many draws of the inputs errors are measured.
    """

    objective: Objective = field(default_factory=Objective)
    run_limit_s: float = math.inf
    draws: int = 1

    # -- the rules of a run --------------------------------------------------------------------

    @property
    def error_limits(self) -> Mapping[str, float]:
        """The largest errors, by the names of their metrics, of a trial whose time matters; empty if every time does.

        Under the penalty ``decay`` an inaccurate trial scores by its speed, so it is timed too.
        """
        return _NO_LIMITS if self.objective.penalty == "decay" else self.objective.limits

    def time_to_beat(self, best: Trial | None, *, in_baseline: bool) -> float:
        """Return the time in milliseconds beyond which a configuration need not be timed closely.

        Infinite while nothing is feasible, where something other than time can win, and in the search for the baseline,
        which may well be slower than the best.
        """
        is_time_alone = self.objective.metrics == ("time_ms",) and self.objective.minimise
        return best.time_ms if best is not None and is_time_alone and not in_baseline else math.inf

    # -- one configuration ---------------------------------------------------------------------

    def plan(self, best_ms: float = math.inf) -> Plan:
        """Return how a configuration that has not been evaluated is measured.

        Args:
            best_ms: the time to beat (:meth:`time_to_beat`); infinite if every time matters.
        """
        return Plan(
            best_ms=best_ms,
            error_limits=dict(self.error_limits),
            draws=self.draws,
            thresholds=dict(self.objective.limits),
        )

    def plan_again(self, trial: Trial) -> Plan:
        """Return how a valid trial is measured again in turn with others: timed in full, its error kept."""
        known = errors_of(trial) | {n: value for n, value in trial.measurement.metrics.items() if is_of_unseen(n)}
        return Plan(known, thresholds=dict(self.objective.limits))

    def is_hopeless(self, traced: Mapping[str, float], agreement: float) -> Decision:
        """Decide whether a signature that was never measured need not be: its instrumented error is far too large.

        None that might meet the threshold is left out, and none is ever taken, on the strength of such an error.

        Args:
            traced: the errors of its signature in an instrumented run; empty if there was none.
            agreement: by what factor those may exceed measured ones.
        """
        for name, limit in self.objective.limits.items() if traced else ():
            error = traced.get(name, 0.0)
            if not error <= limit * agreement:
                return Decision(True, f"never compiled: in an instrumented run {name} is {error:.3g}, not {limit:.3g}")
        return Decision(False, "it may meet the threshold")

    def condemns(self, again: Trial) -> Decision:
        """Decide whether a trial is taken back because measuring it again ended like this."""
        if again.status in (Status.COMPILE_ERROR, Status.OUT_OF_MEMORY):
            return Decision(False, "it says more of the machine than of the kernel")
        return Decision(True, "the newest numbers count" if again.is_valid else "it failed when it was measured again")

    # -- trials there are ----------------------------------------------------------------------

    def keeps(self, stored: Trial, *, is_current: bool) -> Decision:
        """Decide whether a trial of the run file stands, or its configuration is evaluated again.

        Args:
            stored: the trial.
            is_current: whether everything its numbers depend on is the same now.
        """
        if not is_current:
            return Decision(False, "measured under other conditions")
        if stored.status is Status.TIMEOUT and self.run_limit_s > stored.measurement.metrics.get("limit_s", 0.0):
            return Decision(False, "it ran out of time, and the limit is longer now")
        if stored.is_screened:
            if any(stored.metric(name) > limit for name, limit in self.objective.limits.items()):
                return Decision(True, "an instrumented run showed it to be hopeless")
            return Decision(False, "it was not compiled, and may meet the threshold now")
        is_untimed = stored.is_valid and math.isnan(stored.time_ms)
        if is_untimed and (not self.error_limits or self.objective.error_excess(stored) <= 0):
            return Decision(False, "it was not timed, and its time matters now")
        return Decision(True, "measured under the present conditions")


def errors_of(trial: Trial) -> dict[str, float]:
    """Return the error metrics of a trial, by name."""
    return {k: v for k, v in trial.measurement.metrics.items() if k.startswith(("error", "log10_error"))}


def worst_errors(first: Mapping[str, float], last: Mapping[str, float], *, is_own: bool = False) -> dict[str, float]:
    """Return the error metrics over two launches: the worst of each, and by how much the launches differ.

    Args:
        first: error metrics of the first launch, or those known from before (``is_own``) of whatever data.
        last: of the last one.
        is_own: whether an error below the first one is no news.
    """
    worst = worst_errors_of(first, last)
    spread = last["error"] - first["error"]
    known = first.get("error_spread", 0.0)
    error = worst["error"]
    return {
        **first,
        **worst,
        "log10_error": math.log10(error) if error else -math.inf,
        "error_spread": max(known, spread if is_own else abs(spread)),
    }
