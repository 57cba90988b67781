"""The objective: metrics or expressions over metrics, an error threshold, measured constraints, and a penalty.

The score of a trial follows Heldens 2026, Sec. III-D and V-C: its performance where the error meets
the threshold, a penalty where it does not. One deviation: an error *equal* to the threshold is
feasible here (the paper asks for a strictly smaller one), so that ``--max-error X`` means "at most X".
Measured constraints (``energy_j <= 1.5``) count like the threshold: a trial is feasible where all hold, and the
largest excess, in decades, sets the penalty. Several objectives have a front of feasible trials as their result; "best"
and the score follow the first objective.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import MptuneError, UnknownNameError
from mptune.results.metric_expressions import MeasuredConstraint, MetricExpression, excess_of
from mptune.results.trial import Status, Trial

#: Penalties of an inaccurate trial (Heldens 2026, Sec. V-C).
PENALTIES: Final[tuple[str, ...]] = ("hard", "linear", "decay")

#: Replaces 0 in a logarithm: less than any error of a double.
LEAST_VALUE: Final = 1e-20
_LARGEST: Final = sys.float_info.max
_TINIEST: Final = 5e-324
#: Replaces an infinite excess in a penalty, in decades: more than between any two positive doubles.
_MOST_DECADES: Final = 700.0


@dataclass(frozen=True, slots=True)
class Objective:
    """Scores trials: higher is better for any direction of the metric.

    Performance is a ratio ("speedup"), so the value of the objective must not be negative: minimise
    ``2 ** (log10_error)`` rather than ``log10_error``. Performance is kept between the smallest and the largest
    positive double, so that every feasible trial with a known value scores above 0.

    Attributes:
        metric: a metric's name (``time_ms``, ``error.y``) or an expression over names (``time_ms * energy_j``).
        minimise: whether less of the metric is better.
        threshold: the largest error allowed, of the worst output or by name; None allows any error. A name is that of a
            trial's metric without ``error.``: an output, a metric, or both (``NRMSE_rows_max``, ``y.MaxAE``); the
            empty name is the worst output's.
        penalty: score of an inaccurate trial. ``hard``: 0. ``linear``: ``alpha * (log10 tau - log10 error)``.
            ``decay``: ``performance * exp(beta * (log10 tau - log10 error))``. The threshold that is exceeded by the
            largest factor counts.
        alpha: slope of the linear penalty.
        beta: rate of the decay penalty.
        baseline: the metric's value of the baseline, for performance relative to it. With None or 0, performance is
            1 / value, or the value of a maximised metric.
        constraints: texts of measured constraints (:class:`~mptune.results.metric_expressions.MeasuredConstraint`).
        also: further objectives, like ``metric``, all minimised.
    """

    metric: str = "time_ms"
    minimise: bool = True
    threshold: float | Mapping[str, float] | None = field(default=None, hash=False)
    penalty: str = "decay"
    alpha: float = 1.0
    beta: float = 1.0
    baseline: float | None = None
    constraints: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "metric", _expression(self.metric).text)
        object.__setattr__(self, "also", tuple(_expression(text).text for text in self.also))
        object.__setattr__(self, "constraints", tuple(_constraint(text).text for text in self.constraints))
        object.__setattr__(self, "threshold", _checked_threshold(self.threshold))
        if self.penalty not in PENALTIES:
            raise UnknownNameError("penalty", self.penalty, PENALTIES)
        for name in ("alpha", "beta", "baseline"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise MptuneError(f"{name} of objective {self.metric!r} must be finite and not negative, got {value}")

    # -- one trial -----------------------------------------------------------------------------

    @property
    def metrics(self) -> tuple[str, ...]:
        """All objectives, the first one first."""
        return (self.metric, *self.also)

    @property
    def is_time(self) -> bool:
        """Whether the first objective is a short time."""
        return self.metric == "time_ms" and self.minimise

    @property
    def names(self) -> frozenset[str]:
        """Names of the metrics that the objectives read."""
        return frozenset().union(*(_expression(text).names for text in self.metrics))

    @property
    def constraint_names(self) -> frozenset[str]:
        """Names of the metrics the constraints read."""
        return frozenset().union(*(_constraint(text).names for text in self.constraints))

    @property
    def limits(self) -> Mapping[str, float]:
        """The threshold of each limited error, by the name of the trials' metric."""
        if self.threshold is None:
            return {}
        named = self.threshold if isinstance(self.threshold, Mapping) else {"": self.threshold}
        return {f"error.{name}" if name else "error": tau for name, tau in named.items()}

    def value(self, trial: Trial) -> float:
        """Return the value of the (first) objective in its own unit.

        NaN for a trial that is not valid or lacks a metric, and where the expression is undefined or not finite.
        """
        return self._value(self.metric, trial)

    def values(self, trial: Trial) -> tuple[float, ...]:
        """Return the value of every objective, as :meth:`value` does."""
        return tuple(self._value(metric, trial) for metric in self.metrics)

    def levels(self, trial: Trial) -> tuple[float, ...]:
        """Return log10 of each objective for comparing fronts: less is better, NaN if unknown.

        0 counts as 1e-20; a maximised objective has its sign changed.
        """
        values = self.values(trial)
        for metric, value in zip(self.metrics, values, strict=True):
            _require_not_negative(metric, value, trial, "its logarithm")
        # NaN stays NaN, as it is not less than any number.
        first, *others = (math.log10(LEAST_VALUE if value < LEAST_VALUE else value) for value in values)
        return (first if self.minimise else -first, *others)

    def _value(self, metric: str, trial: Trial) -> float:
        expression = _expression(metric)
        if _lacks(trial, expression.names, f"objective {metric!r}"):
            return math.nan
        return expression.value(trial.measurement.metrics)

    def performance(self, trial: Trial) -> float:
        """Return the speedup over the baseline (its equal for other metrics): higher is better, NaN if unknown."""
        value = self.value(trial)
        if math.isnan(value):
            return math.nan
        _require_not_negative(self.metric, value, trial, "performance is a ratio and")
        reference = self.baseline or 1.0
        better, worse = (reference, value) if self.minimise else (value, reference)
        ratio = better / worse if worse > 0 else math.inf
        return min(max(ratio, _TINIEST), _LARGEST)

    def log10_excess(self, trial: Trial) -> float:
        """Return the larger of :meth:`error_excess` and :meth:`constraint_excess`: at most 0 exactly when feasible."""
        return max(self.error_excess(trial), self.constraint_excess(trial))

    def error_excess(self, trial: Trial) -> float:
        """Return log10 of the factor by which the error exceeds the threshold; at most 0 exactly when it does not.

        ``-inf`` without a threshold or for an error of 0, ``inf`` for a trial that is not valid or whose error is
        infinite, NaN or unknown.
        """
        if not trial.is_valid:
            return math.inf
        return max(self._error_excesses(trial).values(), default=-math.inf)

    def binding(self, trial: Trial) -> str:
        """Return the name of the error that exceeds its threshold by the largest factor, or comes closest to it."""
        excesses = self._error_excesses(trial)
        return max(excesses, key=excesses.__getitem__)

    def _error_excesses(self, trial: Trial) -> dict[str, float]:
        errors = {name: _error_of(trial, name) for name in self.limits}
        return {
            name: -math.inf if errors[name] <= 0 else excess_of(errors[name], tau) for name, tau in self.limits.items()
        }

    def constraint_excess(self, trial: Trial) -> float:
        """Return the largest excess of a measured constraint in decades; at most 0 exactly when all hold.

        ``-inf`` for a valid trial without constraints, ``inf`` for a trial that is not valid or lacks a metric.
        """
        if not trial.is_valid:
            return math.inf
        return max((_excess(text, trial) for text in self.constraints), default=-math.inf)

    def broken(self, trial: Trial) -> tuple[str, ...]:
        """Return the measured constraints that do not hold."""
        return tuple(text for text in self.constraints if _excess(text, trial) > 0)

    def is_feasible(self, trial: Trial) -> bool:
        """Whether the trial is valid, its error (each output's) within bounds, and every measured constraint holds."""
        return self.log10_excess(trial) <= 0

    def judge(self, trial: Trial) -> Trial:
        """Return a valid trial with its status and message under this objective; any other unchanged."""
        if not trial.is_valid:
            return trial
        if (excess := self.error_excess(trial)) > 0:
            status, message = Status.INACCURATE, f"error {trial.error:.3g} is above the threshold"
            if isinstance(self.threshold, Mapping):
                message = ", ".join(
                    f"{name} {trial.metric(name):.3g} is above its threshold {self.limits[name]:g}"
                    for name, above in self._error_excesses(trial).items()
                    if above > 0
                )
            if (violations := trial.metric("unseen_violations")) > 0:
                worst = self.binding(trial)
                status, message = (
                    Status.FRAGILE,
                    (
                        f"its {worst if isinstance(self.threshold, Mapping) else 'error'} is above the threshold on "
                        f"{violations:,.0f} of {trial.metric('unseen_inputs'):,.0f} unseen inputs: up to "
                        f"{trial.metric(worst):.3g}{f', a factor of {10**excess:.3g}' if excess < 300 else ''}"
                    ),
                )
        elif broken := self.broken(trial):
            names = sorted(frozenset().union(*(_constraint(text).names for text in broken)))
            measured = ", ".join(f"{name} is {trial.metric(name):.4g}" for name in names)
            status, message = Status.VIOLATION, f"{' and '.join(broken)} does not hold: {measured}"
        else:
            status, message = Status.OK, ""
        return replace(trial, status=status, message=message)

    def score(self, trial: Trial) -> float:
        """Return the score that a strategy maximises: performance or penalty; ``-inf`` if neither is known.

        Under ``hard`` and ``linear`` an infeasible trial needs no known value, and never reaches a feasible one; under
        ``decay`` it may, as published.
        """
        if not trial.is_valid:
            return -math.inf
        excess = self.log10_excess(trial)
        if excess > 0 and self.penalty == "hard":
            return 0.0
        bounded = min(excess, _MOST_DECADES)
        if excess > 0 and self.penalty == "linear":
            return max(-self.alpha * bounded, -_LARGEST)
        performance = self.performance(trial)
        if math.isnan(performance):
            return -math.inf
        return performance if excess <= 0 else performance * math.exp(-self.beta * bounded)

    # -- many trials ---------------------------------------------------------------------------

    def scores(self, trials: Sequence[Trial]) -> NDArray[np.float64]:
        """Return the score of each trial, shape ``(n_trials,)``."""
        return np.array([self.score(trial) for trial in trials], dtype=np.float64)

    def best(self, trials: Sequence[Trial]) -> Trial | None:
        """Return the best feasible trial, or None; ties go to the most accurate, the fastest, then the earliest."""
        ranked = ((self._rank(trial), trial) for trial in trials if self.is_feasible(trial))
        known = [(rank, trial) for rank, trial in ranked if math.isfinite(rank)]
        if not known:
            return None
        return min(known, key=lambda pair: (pair[0], or_inf(pair[1].error), or_inf(pair[1].time_ms)))[1]

    def worst(self, trials: Sequence[Trial]) -> Trial | None:
        """Return the feasible trial of the worst known value; None when no valid trial is feasible."""
        known = [trial for trial in trials if self.is_feasible(trial) and math.isfinite(self._rank(trial))]
        return max(known, key=self._rank, default=None)

    def closest(self, trials: Sequence[Trial]) -> Trial | None:
        """Return the valid trial of the least finite :meth:`log10_excess`, or None.

        Ties go to the best value, then to the earliest trial.
        """
        ranked = ((self.log10_excess(trial), self._rank(trial), trial) for trial in trials if trial.is_valid)
        known = [entry for entry in ranked if entry[0] < math.inf]
        return min(known, key=lambda entry: entry[:2])[2] if known else None

    def with_baseline(self, value: float) -> Objective:
        """Return this objective with performance relative to ``value``."""
        return replace(self, baseline=float(value))

    def _rank(self, trial: Trial) -> float:
        value = self.value(trial)
        return or_inf(value if self.minimise else -value)


_expression: Final = functools.cache(MetricExpression)
_constraint: Final = functools.cache(MeasuredConstraint)


def _checked_threshold(threshold: float | Mapping[str, float] | None) -> float | Mapping[str, float] | None:
    if threshold is None:
        return None
    by_name = {n: float(tau) for n, tau in (threshold if isinstance(threshold, Mapping) else {"": threshold}).items()}
    if not by_name:
        raise MptuneError("no output has a threshold: give one, or None for no threshold at all")
    for name, tau in by_name.items():
        if not 0 < tau < math.inf:
            which = f" of {name!r}" if name else ""
            raise MptuneError(f"the error threshold{which} must be positive and finite, got {tau}")
    return by_name if isinstance(threshold, Mapping) else by_name[""]


def _lacks(trial: Trial, names: Set[str], reader: str) -> bool:
    """Whether a trial is not valid or lacks a metric; raises UnknownNameError if a trial that is ok lacks one."""
    missing = names - trial.measurement.metrics.keys()
    if missing and trial.status is Status.OK:
        raise UnknownNameError(f"metric in {reader}:", min(missing), sorted(trial.measurement.metrics))
    return bool(missing) or not trial.is_valid


def _excess(text: str, trial: Trial) -> float:
    constraint = _constraint(text)
    if _lacks(trial, constraint.names, f"measured constraint {text!r}"):
        return math.inf
    return constraint.excess(trial.measurement.metrics)


def _require_not_negative(metric: str, value: float, trial: Trial, what: str) -> None:
    if value < 0:
        raise MptuneError(
            f"objective {metric!r} is {value:g} at {trial.configuration}; {what} needs a value that is not negative "
            f"(2 ** ({metric}) orders the same and is positive)"
        )


def _error_of(trial: Trial, name: str) -> float:
    metrics = trial.measurement.metrics
    if name != "error" and name not in metrics:
        known = sorted(metric.removeprefix("error.") for metric in metrics if metric.startswith("error."))
        if known:
            raise UnknownNameError("output or error metric in the threshold:", name.removeprefix("error."), known)
    return trial.metric(name)


def or_inf(value: float) -> float:
    """Return a number, or infinity for NaN."""
    return math.inf if math.isnan(value) else value
