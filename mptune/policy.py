"""What is measured of a configuration, and why: every rule about work that may be left out is here.

The rules rest on one observation: the error of a configuration depends on its accuracy signature alone, so once it is
known its siblings need not be checked. On one doubt: the first configuration of a signature may be wrong by a mistake
of its own. So an error within the threshold is known from one configuration, since whatever could win by it is checked;
any other needs as many as share no value of a parameter outside the signature, which then cannot be the cause. Where
two configurations of a signature disagree, the observation does not hold for this kernel, and everything is checked
from then on. And on one promise: nothing is ever reported on the strength of an error that was measured on another
configuration.

Nothing here does any work, reads a clock or keeps a state. :class:`MeasurementPolicy` turns facts into a :class:`Plan`
for one configuration, or into a :class:`Decision` about a trial that exists already; each says why in plain words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.evidence import shared_values, values_text
from mptune.metric_expressions import is_error
from mptune.objective import Objective
from mptune.pareto import front
from mptune.results import TRACED_ERROR, Status, Trial
from mptune.unseen import is_of_unseen, worst_errors_of

__all__ = [
    "Action",
    "Decision",
    "Facts",
    "MeasurementPolicy",
    "Plan",
    "errors_of",
    "worst_errors",
]

#: Fronts users ask for after a run.
REPORTED: Final = (("time_ms", "error"), ("memory_bytes", "error"))

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


class Action(StrEnum):
    """What is done with a configuration."""

    #: Nothing is run: its signature's error is above the threshold, and its time is not wanted.
    REJECT = "reject"
    #: Compile, launch and check the outputs, then time.
    CHECK = "check"
    #: Compile and time; the error is that of its signature.
    REUSE = "reuse"


@dataclass(frozen=True, slots=True)
class Decision:
    """A yes or no, and why; true in a condition where it is a yes."""

    is_yes: bool
    reason: str

    def __bool__(self) -> bool:
        return self.is_yes


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known before a configuration is evaluated.

    Attributes:
        siblings: trials of its accuracy signature whose error was measured on themselves, the earliest first.
        checked: all trials whose error was measured on themselves.
        best_ms: the time to beat (:meth:`MeasurementPolicy.time_to_beat`); infinite if every time matters.
        free: names of the parameters outside the signature that have several values.
        holds: whether no two configurations of one signature have disagreed (:func:`~mptune.evidence.disagree`).
        is_widest: whether the configuration has the baseline's types.
        traced: the errors of its signature in an instrumented run; empty if there was none, or none that counts.
        agreement: by what factor those may exceed measured ones.
    """

    siblings: Sequence[Trial] = ()
    checked: Sequence[Trial] = ()
    best_ms: float = math.inf
    free: Sequence[str] = ()
    holds: bool = True
    is_widest: bool = False
    traced: Mapping[str, float] = field(default_factory=dict)
    agreement: float = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with one configuration, decided as far as it can be before it runs; sent to the worker as it is.

    Attributes:
        action: what to do.
        reason: why.
        errors: the error metrics of its signature, for every action but CHECK.
        check_below_ms: REUSE only: if the median time is below this, the error is measured after all.
        best_ms: launches stop early once the median is clearly above this.
        error_limits: the largest errors, by the names of their metrics, of a configuration that is timed.
        observe: whether the optional observers measure too.
        is_own: REUSE only: whether those errors were measured on this very configuration.
        draws: on how many draws of the inputs it is to be checked, the first one included.
        thresholds: the largest errors, by the names of their metrics, of a feasible configuration.
    """

    action: Action = Action.CHECK
    reason: str = "nothing is known of it"
    errors: Mapping[str, float] = field(default_factory=dict)
    check_below_ms: float = 0.0
    best_ms: float = math.inf
    error_limits: Mapping[str, float] = field(default_factory=dict)
    observe: bool = True
    is_own: bool = False
    draws: int = 1
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def times_after_check(self, errors: Mapping[str, float]) -> Decision:
        """Decide whether a configuration with these errors, just measured, is timed."""
        exceeded = sorted(name for name, limit in self.error_limits.items() if errors[name] > limit)
        if exceeded:
            return Decision(False, "not timed: its error is above the threshold")
        return Decision(True, "its time can matter")

    def checks_after_timing(self, time_ms: float) -> Decision:
        """Decide whether a configuration whose error was to be reused is checked after all, now that it is timed."""
        if self.action is Action.REUSE and time_ms < self.check_below_ms:
            return Decision(True, "faster than every checked trial that is as accurate: it would join the front")
        return Decision(False, "a checked trial is as fast and as accurate")

    def compares_after_timing(self, time_ms: float) -> Decision:
        """Decide whether the outputs are compared as the last timed launch left them.

        A check of the first launch says nothing about the launches that are timed.
        """
        if self.action is Action.CHECK:
            return Decision(True, "it can be reported")
        if self.is_own:
            return Decision(True, "it is about to be reported")
        return self.checks_after_timing(time_ms)

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
            least, worst = (first[name], last[name]) if self.is_own else sorted((first[name], last[name]))
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
        may_reuse_errors: False to check every configuration.
        draws: on how many draws of the inputs errors are measured.
    """

    objective: Objective = field(default_factory=Objective)
    run_limit_s: float = math.inf
    may_reuse_errors: bool = True
    draws: int = 1

    # -- the rules of a run --------------------------------------------------------------------

    @property
    def reuses_errors(self) -> bool:
        """Whether a signature's error stands for all its configurations.

        Only if what can win, or join the front, is sure to be checked itself. What is faster than every trial that is
        as accurate is checked (:meth:`Plan.checks_after_timing`); what can win in another way, by less memory for
        example, would not be.
        """
        objective = self.objective
        is_time = "time_ms" in objective.metrics
        others = set(objective.metrics) - {"time_ms", "error"}
        return self.may_reuse_errors and is_time and not others and objective.minimise and not objective.constraints

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

    def plan(self, facts: Facts) -> Plan:
        """Decide what to do with a configuration that has not been evaluated."""
        limits, thresholds = dict(self.error_limits), dict(self.objective.limits)
        if is_hopeless := self.is_hopeless(facts):
            return Plan(Action.REJECT, is_hopeless.reason, {**facts.traced, TRACED_ERROR: facts.traced["error"]})
        is_known = self.knows_error(facts)
        if not is_known:
            return Plan(
                reason=is_known.reason,
                best_ms=facts.best_ms,
                error_limits=limits,
                draws=self.draws,
                thresholds=thresholds,
            )
        # Of those on several draws of the inputs, and of one, the worst; by every metric.
        errors = errors_of(max(facts.siblings, key=lambda sibling: sibling.error))
        errors |= {name: max(t.metric(name) for t in facts.siblings) for name in errors if is_error(name)}
        if any(errors[name] > limit for name, limit in limits.items()):
            reason = "not timed: its error is above the threshold"
            return Plan(Action.REJECT, reason, errors, error_limits=limits)
        as_accurate = (
            t.time_ms for t in facts.checked if self._is_as_accurate(t, errors) and not math.isnan(t.time_ms)
        )
        return Plan(
            Action.REUSE,
            is_known.reason,
            errors,
            check_below_ms=min(as_accurate, default=math.inf),
            best_ms=facts.best_ms,
            error_limits=limits,
            draws=self.draws,
            thresholds=thresholds,
        )

    def knows_error(self, facts: Facts) -> Decision:
        """Decide whether the error of a signature is known well enough to be reused."""
        if not self.reuses_errors:
            return Decision(False, "errors are not reused")
        if not facts.holds:
            return Decision(False, "errors are not reused: two configurations of one accuracy signature disagree")
        if not facts.siblings:
            return Decision(False, "the first of its accuracy signature")
        is_met = [self.objective.error_excess(trial) <= 0 for trial in facts.siblings]
        if any(is_met) and not all(is_met):
            return Decision(False, "configurations of its accuracy signature lie on both sides of the threshold")
        # Where the error is an objective too, a smaller one would win.
        if all(is_met) and self.objective.threshold is not None and "error" not in self.objective.metrics:
            return Decision(True, "the error of its accuracy signature is known")
        if not any(is_met) and not any(self.objective.error_excess(trial) <= 0 for trial in facts.checked):
            return Decision(False, "no configuration is known to meet the threshold")
        if not any(is_met) and facts.is_widest:
            return Decision(False, "others meet the threshold: it is no type that is to blame for errors in the widest")
        shared = shared_values((trial.configuration for trial in facts.siblings), facts.free)
        if shared:
            return Decision(False, f"its signature's error is only known where {values_text(shared)}")
        return Decision(True, "the error of its accuracy signature is known")

    def is_hopeless(self, facts: Facts) -> Decision:
        """Decide whether a signature that was never measured need not be: its instrumented error is far too large.

        None that might meet the threshold is left out, and none is ever taken, on the strength of such an error.
        """
        if facts.siblings or not facts.holds or facts.is_widest or not facts.traced:
            return Decision(False, "it is measured")
        for name, limit in self.objective.limits.items():
            error = facts.traced.get(name, 0.0)
            if not error <= limit * facts.agreement:
                return Decision(True, f"never compiled: in an instrumented run {name} is {error:.3g}, not {limit:.3g}")
        return Decision(False, "it may meet the threshold")

    def plan_again(self, trial: Trial) -> Plan:
        """Decide how a valid trial is measured again in turn with others: timed in full, its own error kept."""
        thresholds = dict(self.objective.limits)
        if trial.measurement.reused_error:
            return Plan(reason="its error was measured on another configuration", thresholds=thresholds)
        reason = "its error has been measured"
        known = errors_of(trial) | {n: value for n, value in trial.measurement.metrics.items() if is_of_unseen(n)}
        return Plan(Action.REUSE, reason, known, is_own=True, thresholds=thresholds)

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

    def is_backed(self, stored: Trial, checked: Sequence[Trial]) -> Decision:
        """Decide whether a stored trial with a reused error stands: it does if it cannot win by that error.

        Args:
            stored: the trial.
            checked: the stored trials that stand and whose error was measured on themselves.
        """
        if math.isnan(stored.time_ms):
            return Decision(True, "it was not timed, so it cannot win")
        if not self.reuses_errors:
            return Decision(False, "errors are not reused")
        errors = errors_of(stored)
        if any(other.time_ms <= stored.time_ms and self._is_as_accurate(other, errors) for other in checked):
            return Decision(True, "a checked trial is as fast and as accurate")
        return Decision(False, "no checked trial is as fast and as accurate: it would join the front")

    def _is_as_accurate(self, trial: Trial, errors: Mapping[str, float]) -> bool:
        """Whether a trial has no larger error than these: of the worst output, and each that has a threshold."""
        names = ("error", *self.objective.limits)
        return all(trial.metric(name) <= errors.get(name, math.nan) for name in names)

    def would_be_reported(self, trials: Sequence[Trial], *, holds: bool = True) -> list[Trial]:
        """Return the trials that would be reported if their error, measured on another configuration, were theirs.

        That is, if they would be the best, the closest, or on the front of the objectives or of :data:`REPORTED`.

        Args:
            trials: all of a run.
            holds: as of :class:`Facts`; if not, the fastest that would be the best if it were accurate is one of them.
        """
        objective = self.objective
        valid = [trial for trial in trials if trial.is_valid]
        best = objective.best(valid)
        leaders = [best if best is not None else objective.closest(valid)]
        fastest = min((trial for trial in valid if not trial.is_checked), key=_time_ms, default=None)
        if not holds and fastest is not None and (best is None or fastest.time_ms < best.time_ms):
            leaders.append(fastest)
        found = [trial for trial in leaders if trial is not None and not trial.is_checked]
        for metrics in REPORTED:
            values = np.array([[t.metric(name) for name in metrics] for t in valid]).reshape(len(valid), len(metrics))
            found += unbacked(valid, values, [True] * len(metrics))
        if objective.also:
            feasible = [trial for trial in valid if objective.is_feasible(trial)]
            values = np.array([objective.values(t) for t in feasible]).reshape(len(feasible), len(objective.metrics))
            found += unbacked(feasible, values, [True] * len(objective.metrics))
        return list({trial.configuration: trial for trial in found}.values())

    def checks_before_report(self, trial: Trial) -> Decision:
        """Decide whether a trial that is about to be reported (best, front or baseline) is checked first."""
        if not trial.is_checked:
            return Decision(True, "its error was measured on another configuration")
        if not math.isnan(trial.time_ms) and math.isnan(trial.metric("error_spread")):
            return Decision(True, "its outputs were not compared after it was timed")
        return Decision(False, "its error has been measured")


def unbacked(trials: Sequence[Trial], values: NDArray[np.float64], minimise: Sequence[bool]) -> list[Trial]:
    """Return the trials of a front whose error was measured on another configuration and which no checked one equals.

    Args:
        trials: of which the front is.
        values: their metrics, shape ``(n_trials, n_metrics)``.
        minimise: for each metric, whether less is better.
    """
    members = front(values, minimise).tolist()
    equalled = {tuple(values[i]) for i in members if trials[i].is_checked}
    return [trials[i] for i in members if not trials[i].is_checked and tuple(values[i]) not in equalled]


def errors_of(trial: Trial) -> dict[str, float]:
    """Return the error metrics of a trial, by name."""
    return {k: v for k, v in trial.measurement.metrics.items() if k.startswith(("error", "log10_error"))}


def _time_ms(trial: Trial) -> float:
    return math.inf if math.isnan(trial.time_ms) else trial.time_ms


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
