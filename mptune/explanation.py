"""The explanation of a winner: its neighbours in types, each one step wider or narrower, from the trials of its run."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mptune.errors import MptuneError
from mptune.precision import EVERY_PRECISION, POLICIES
from mptune.results.metric_expressions import is_error
from mptune.results.speedup import LEAST_ROUNDS, TIE
from mptune.results.trial import Trial
from mptune.results.unseen import draws_of
from mptune.run import Run, in_short, json_document
from mptune.space.configuration import Configuration, Value
from mptune.space.constraints import compile_constraint
from mptune.space.parameters import names_of_precisions

#: Decimal digits below which a difference in error is noise.
_LEAST_DIGITS: Final = 0.3
#: Rank of each type and policy, the most accurate first.
_ORDER: Final = {name: place for place, name in enumerate((*EVERY_PRECISION, *POLICIES))}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A trial relative to the winner; numbers are NaN without a trial."""

    trial: Trial | None = None
    digits: float = math.nan  #: decimal digits gained, negative if lost, infinite if the trial is exact
    speed: float = math.nan  #: time of the winner divided by the time of the trial
    interval: tuple[float, float] | None = None  #: 95% confidence interval of the speed, if rounds timed both
    cost: float = math.nan  #: objective relative to the winner's; NaN if the objective is a time or an error
    is_feasible: bool = False  #: whether the error and the measured constraints are within their limits
    error_text: str = "-"  #: the error, with several limits the closest error and its limit; the status of a failure

    def to_json(self) -> dict[str, Any] | None:
        """Return the fields by name; None without a trial."""
        if (trial := self.trial) is None:
            return None
        return {
            "configuration": trial.configuration,
            "status": trial.status.value,
            "message": in_short(trial.message),
            "error": trial.error,
            "exact": trial.error == 0,
            "time_ms": trial.time_ms,
            "speed_interval": self.interval,
            **{name: getattr(self, name) for name in ("error_text", "digits", "speed", "cost")},
        }


@dataclass(frozen=True, slots=True)
class Change:
    """The winner with one parameter changed by one step."""

    parameter: str
    configuration: Configuration  #: the winner's configuration with the change
    before: Value
    after: Value
    is_restored: bool  #: whether the type is wider or more accurate; for other parameters, whether digits are gained
    outcome: Outcome  #: the trial of the change, if it was measured
    broken: str  #: the constraint that excludes the change, empty if it is allowed
    buffers: tuple[str, ...]  #: buffers of an application whose type the parameter is
    kernels: tuple[str, ...]  #: kernels of an application launched on these buffers

    @property
    def is_known(self) -> bool:
        """Whether the change was timed, failed, or breaks a constraint."""
        trial = self.outcome.trial
        return bool(self.broken) if trial is None else not (trial.is_valid and math.isnan(trial.time_ms))


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """The best trial under a limit ten times tighter (``digits`` 1) or looser (-1), if a trial meets the limit."""

    digits: int
    limit: str
    best: Outcome


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a run's winner by its neighbours in types."""

    run: Run  #: the run, with the trials measured for the explanation
    trial: Trial | None  #: the winner, or the closest trial if none is feasible; None if no trial has numbers
    changes: tuple[Change, ...] = ()  #: the neighbours, by parameter, the widest value first
    unmeasured: str = ""  #: the reason for unmeasured changes; empty if there are none

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    @property
    def subject(self) -> str:
        """The role of the explained trial: "best" or "closest"; empty if no trial has numbers."""
        if self.trial is None:
            return ""
        return "best" if self.run.info.objective.is_feasible(self.trial) else "closest"

    @property
    def digits_spare(self) -> float:
        """Decimal digits between the error and its limit, negative above the limit; NaN without a limit."""
        if self.trial is None or self.run.info.objective.threshold is None:
            return math.nan
        return -_excess(self.run, self.trial)

    @property
    def limiting(self) -> Change | None:
        """The change that gains most digits, more than noise; the fastest of several that gain as many."""
        restored = [c for c in self.changes if c.is_restored and c.outcome.digits >= _LEAST_DIGITS]
        most = max((c.outcome.digits for c in restored), default=math.nan)
        near = [c for c in restored if c.outcome.digits == most or most - c.outcome.digits < _LEAST_DIGITS / 3]
        return max(near, key=lambda c: c.outcome.speed, default=None)

    @property
    def missing(self) -> int:
        """The number of changes that were not measured."""
        return sum(not change.is_known for change in self.changes)

    @property
    def tradeoffs(self) -> tuple[Tradeoff, ...]:
        """The best trials with one digit more and, if there is a limit, with one digit less."""
        if self.trial is None:
            return ()
        objective = self.run.info.objective
        limits = objective.threshold
        by_name = limits if isinstance(limits, Mapping) else {"error": self.trial.error if limits is None else limits}
        if all(map(is_error, objective.names)) or not all(0 < tau < math.inf for tau in by_name.values()):
            return ()
        found = []
        for digits in (1,) if limits is None else (1, -1):
            scaled = {name: tau * 10.0**-digits for name, tau in by_name.items()}
            within = dataclasses.replace(
                objective, threshold=scaled if isinstance(limits, Mapping) else scaled["error"]
            )
            text = ", ".join(f"{name} <= {tau:.3g}" for name, tau in scaled.items())
            found.append(Tradeoff(digits, text, _outcome(self.run, self.trial, within.best(self.run.trials))))
        return tuple(found)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The findings, one sentence each."""
        return tuple(_sentences(self))

    def to_json(self) -> dict[str, Any]:
        """Return the document of ``mptune explain --json``."""
        trial, run = self.trial, self.run
        same = ("parameter", "buffers", "kernels", "before", "after", "broken")
        return json_document(
            {
                "kernel": run.kernel,
                "subject": self.subject or None,
                **{name: getattr(trial, name, None) for name in ("configuration", "time_ms", "error")},
                "speedup": None if trial is None else run.speedup(trial),
                "objective": run.info.objective.metric,
                "metric": run.info.metric,
                "digits_spare": self.digits_spare,
                "limiting": getattr(self.limiting, "parameter", None),
                "changes": [
                    {name: getattr(change, name) for name in same}
                    | {
                        "direction": "restored" if change.is_restored else "narrowed",
                        "feasible": None if change.outcome.trial is None else change.outcome.is_feasible,
                        "outcome": change.outcome.to_json(),
                    }
                    for change in self.changes
                ],
                "tradeoffs": [{"digits": t.digits, "limit": t.limit, "best": t.best.to_json()} for t in self.tradeoffs],
                "sentences": self.sentences,
                "unmeasured": self.unmeasured,
            }
        )


def explanation_of(run: Run, winner: Configuration | None = None, *, unmeasured: str = "") -> Explanation:
    """Explain a trial by the stored trials of its run; by default the best, or the closest if none is feasible."""
    chosen = next((trial for trial in run.trials if trial.configuration == winner), None)
    trial = chosen or run.best or run.closest
    changes = () if trial is None else tuple(_changes(run, trial))
    return Explanation(run, trial, changes, "" if all(change.is_known for change in changes) else unmeasured)


def _changes(run: Run, winner: Trial) -> Iterator[Change]:
    """Yield each change by one step of a parameter that can change the numbers, the widest value first."""
    trials = {trial.configuration: trial for trial in run.trials}
    for parameter in run.info.parameters:
        name, is_ordered = parameter.name, parameter.kind in ("precision", "policy")
        if name not in winner.configuration or not (is_ordered or name in run.info.signature):
            continue
        values = sorted(parameter.values, key=_rank) if is_ordered else list(parameter.values)
        before = winner.configuration[name]
        place = values.index(before) if before in values else 0
        buffers = run.info.buffers_of(name)
        kernels = tuple(k for k, given in run.state.launched.items() if not set(given).isdisjoint(buffers))
        for after in (value for value in values[max(0, place - 1) : place + 2] if value != before):
            configuration = Configuration({**winner.configuration, name: after})
            outcome = _outcome(run, winner, trials.get(configuration))
            is_restored = _rank(after) < _rank(before) if is_ordered else outcome.digits > 0
            broken = _broken(run, configuration)
            yield Change(name, configuration, before, after, is_restored, outcome, broken, buffers, kernels)


def _rank(value: Value) -> int:
    return _ORDER.get(str(value), len(_ORDER))


def _broken(run: Run, configuration: Configuration) -> str:
    """Return the text of a constraint that a configuration breaks, empty if it breaks none."""
    types = names_of_precisions(run.parameters)
    for text in run.info.constraints:
        with contextlib.suppress(MptuneError):  # the text of a callable names a function
            if not compile_constraint(text, run.parameter_names, run.info.constants, types).holds(configuration):
                return text
    return ""


def _outcome(run: Run, winner: Trial, trial: Trial | None) -> Outcome:
    objective = run.info.objective
    if trial is None:
        return Outcome()
    ratio = run.state.finals.ratio(winner.configuration, trial.configuration)
    error = "-" if math.isnan(trial.error) else f"{trial.error:.3g}"
    return Outcome(
        trial,
        _digits(run, winner, trial),
        _quotient(winner.time_ms, trial.time_ms) if ratio is None else ratio.value,
        (ratio.low, ratio.high) if ratio is not None and ratio.rounds >= LEAST_ROUNDS else None,
        math.nan if _is_about_speed(run) else _quotient(objective.value(trial), objective.value(winner)),
        objective.is_feasible(trial),
        run.info.closest_limit(trial) or error if trial.is_valid else trial.status.value,
    )


def _is_about_speed(run: Run) -> bool:
    objective = run.info.objective
    return objective.metric == "time_ms" or all(map(is_error, objective.names))


def _digits(run: Run, winner: Trial, trial: Trial) -> float:
    if not trial.is_valid:
        return math.nan
    if isinstance(run.info.objective.threshold, Mapping):
        before, after = _excess(run, winner), _excess(run, trial)
    else:
        # Every trial ran on the first draw of the inputs, the winner on more.
        name = "error" if draws_of(winner) == draws_of(trial) else "error_first_draw"
        errors = [each.measurement.metrics.get(name, each.error) for each in (winner, trial)]
        before, after = (math.log10(error) if error else -math.inf for error in errors)
    return 0.0 if before == after else before - after


def _excess(run: Run, trial: Trial) -> float:
    """Return the decades by which an error exceeds its limit, NaN without an error."""
    return math.nan if math.isnan(trial.error) else run.info.objective.error_excess(trial)


def _quotient(above: float, below: float) -> float:
    return above / below if below > 0 else math.nan


def percent(ratio: float) -> str:
    """Return the relative change of a ratio: ``+12%``, ``-18%``; from a factor of three on ``3.0x``."""
    if math.isnan(ratio):
        return "-"
    return f"{ratio:.1f}x" if ratio >= 3 else f"{ratio - 1:+.0%}"


def digits_text(digits: float) -> str:
    """Return signed digits; ``exact`` if no error is left, ``not exact`` if only the winner is exact."""
    if math.isinf(digits):
        return "exact" if digits > 0 else "not exact"
    return "-" if math.isnan(digits) else f"{digits:+.1f}".replace("-0.0", "+0.0")


def _sentences(e: Explanation) -> Iterator[str]:
    winner, best = e.trial, e.run.best
    if winner is None:
        yield "No trial has numbers: there is nothing to explain."
        return
    if e.subject == "closest":
        exceeds = f"; it exceeds its limit by {-e.digits_spare:.1f} digits" if e.digits_spare < 0 else ""
        yield f"No trial is feasible. The closest trial is explained{exceeds}."
    if not e.changes:
        yield "No type can be changed: every parameter that can change the numbers has one value."
        return
    yield _limit_sentence(e)
    for tradeoff in e.tradeoffs:
        yield _tradeoff_sentence(tradeoff, winner.configuration, e.run)
    if best is not None and best.configuration != winner.configuration:
        price = _price(_outcome(e.run, winner, best), e.run)
        yield f"The new best, {_differences(best, winner.configuration)}, {price}: explain the run again."
    if e.missing:
        yield f"Not measured: {e.missing} of {len(e.changes)} changes{': ' if e.unmeasured else ''}{e.unmeasured}."


def _limit_sentence(e: Explanation) -> str:
    limiting, restored = e.limiting, [c for c in e.changes if c.is_restored]
    if limiting is not None:
        kernels = f" of {', '.join(limiting.kernels)}" if limiting.kernels else ""
        buffers = f" ({', '.join(limiting.buffers)}{kernels})" if limiting.buffers else ""
        digits = limiting.outcome.digits
        gained = "leaves no error" if digits == math.inf else f"gains {digits:.1f} digits"
        return (
            f"{limiting.parameter}{buffers} limits the accuracy: {limiting.after} instead of {limiting.before} "
            f"{gained} and {_price(limiting.outcome, e.run)}."
        )
    if not restored:
        return "No type limits the accuracy: every type is the widest on offer."
    if all(math.isnan(c.outcome.digits) for c in restored):
        return "The type that limits the accuracy is unknown: no wider type was measured."
    return "No single type limits the accuracy."


def _tradeoff_sentence(tradeoff: Tradeoff, winner: Configuration, run: Run) -> str:
    is_tighter, best = tradeoff.digits > 0, tradeoff.best.trial
    said = f"{'One digit more' if is_tighter else 'One digit less'} ({tradeoff.limit})"
    if best is None:
        return f"{said}: no trial meets it."
    if best.configuration == winner:
        return f"{said} {'costs nothing: the winner meets it' if is_tighter else 'gains nothing'}."
    inputs = draws_of(best)
    where = f"(measured on {inputs} input{'' if inputs == 1 else 's'})"
    return f"{said} {_price(tradeoff.best, run)}: {_differences(best, winner)} {where}."


def _differences(trial: Trial, winner: Configuration) -> str:
    changed = {n: value for n, value in trial.configuration.items() if value != winner.get(n)}
    return ", ".join(f"{name} {value}" for name, value in changed.items())


def _price(outcome: Outcome, run: Run) -> str:
    if not _is_about_speed(run):
        return f"multiplies {run.info.objective.metric} by {outcome.cost:.3g}"
    speed, interval = outcome.speed, outcome.interval
    if math.isnan(speed):
        return "has an unknown price"
    between = "" if interval is None else f" ({percent(interval[0])} to {percent(interval[1])})"
    if abs(speed - 1) <= TIE if interval is None else interval[0] <= 1 <= interval[1]:
        return f"costs no speed{between}"
    changed = f"costs {1 - speed:.0%} of the" if speed < 1 else f"gains {percent(speed).lstrip('+')}"
    return f"{changed} speed{between}"
