"""Why a winner has the types it has: what each of them costs and gains, which one limits the accuracy, why others lost.

Each precision and policy parameter is changed alone, the winner's other values kept: narrowed, and restored towards
fp64; and so is whatever else the kernel says can change the numbers. What that does is looked up among the trials of
the run and among its probes: trials measured for the explanation alone, side by side in turn with the winner
(:mod:`mptune.probing`), which are no evaluations of the run. Nothing here runs anything.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from mptune.errors import MptuneError
from mptune.precision import EVERY_PRECISION, POLICIES
from mptune.results.metric_expressions import is_error
from mptune.results.speedup import LEAST_ROUNDS, TIE
from mptune.results.trial import Measurement, Trial
from mptune.results.unseen import count_of, worst_errors_of
from mptune.run import Run, in_short, json_document
from mptune.space.configuration import Configuration, Value
from mptune.store import ParameterInfo
from mptune.tuning.reasons import Reason, machine_reasons, quotient

__all__ = [
    "LEAST_DIGITS", "WINNER", "Change", "Explanation", "Outcome", "Reason", "Tradeoff",
    "changed_alone", "digits_text", "explanation_of", "listed", "percent", "probe_key", "types_apart",
]  # fmt: skip

#: What a probe's metrics of the winner, measured in the same rounds, are called: ``winner.time_ms``, ...
WINNER: Final = "winner."
#: Fewer digits than these say nothing: errors of siblings differ by as much.
LEAST_DIGITS: Final = 0.3
_KINDS: Final = ("precision", "policy")
#: Less than this rounds to no percent.
_NOTHING: Final = 0.005
#: Of values that are neither, so many on each side of the winner's are looked at.
_NEAREST: Final = 2
#: Widest or most accurate first.
_ORDER: Final = {name: place for place, name in enumerate((*EVERY_PRECISION, *POLICIES))}


@dataclass(frozen=True, slots=True)
class Limited:
    """An error, what it is measured by, and its limit."""

    measured_by: str
    error: float
    limit: float

    def __str__(self) -> str:
        return f"{self.measured_by} {self.error:.3g} (limit {self.limit:g})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A configuration beside the winner.

    Attributes:
        trial: of the configuration.
        digits: decimal digits it has more than the winner; infinite for an exact one, NaN if not known.
        speed: the winner's time divided by its own, NaN if not known.
        gain: the same ratio in what the run optimises, above 1 if it is better; ``speed`` where that is time.
        interval: 95% interval of ``speed``, if both were measured in the same rounds.
        source: "measured" (a trial of the run), "probed", "untimed" (its error was measured, its time was not) or
            "signature" (its error was measured on another trial, which differs in nothing that is known to change the
            numbers).
        limited: of several limits, the error that comes closest to its own, which is what ``digits`` are of; None for
            one limit.
        spare: decimal digits between its own error and the limit, negative if it exceeds it; NaN if not known. It is on
            as many draws of the inputs as ``digits``, which those of the winner may not be.
    """

    trial: Trial
    digits: float
    speed: float
    gain: float
    interval: tuple[float, float] | None = None
    source: str = "measured"
    limited: Limited | None = None
    spare: float = math.nan

    @property
    def error_text(self) -> str:
        """The error that ``digits`` are of; of several limits, with what it is measured by and its own limit."""
        if self.trial.is_valid and self.limited is not None:
            return str(self.limited)
        return f"{self.trial.error:.3g}" if self.trial.is_valid and not math.isnan(self.trial.error) else "-"

    @property
    def is_better(self) -> bool:
        """Whether it is better than the winner in what the run optimises, beyond the noise."""
        return self.gain > 1.0 + TIE and (self.interval is None or self.interval[0] > 1.0 + _NOTHING)


@dataclass(frozen=True, slots=True)
class Change:
    """One parameter changed alone.

    Attributes:
        parameter: its name.
        before: its value in the winner.
        after: its value here.
        is_restored: whether that is wider or more accurate than the winner's, else it is narrower. Of values that are
            neither types nor policies the error says which of them are.
        outcome: what came out; None if nothing is known.
        is_feasible: whether error and measured constraints are within their limits; None if not known.
        reasons: why it does not pay, if it does not.
        retuned: the best checked trial with these types and other values of the other parameters, if it beats this.
        together: where the change alone is not possible, what came out with the fewest further types changed.
        buffers: of an application, the buffers whose type the parameter is.
        kernels: of an application, the kernel whose own the parameter is, or those launched on one of the buffers.
    """

    parameter: str
    before: Value
    after: Value
    is_restored: bool
    outcome: Outcome | None = None
    is_feasible: bool | None = None
    reasons: tuple[Reason, ...] = ()
    retuned: Outcome | None = None
    together: Outcome | None = None
    buffers: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()

    @property
    def part(self) -> str:
        """The part of an application the parameter belongs to, in words; empty of a kernel that is tuned alone."""
        kernel = self.parameter.rpartition(".")[0]
        return f"kernel {kernel}" if kernel else "buffers" if self.buffers else ""

    @property
    def called(self) -> str:
        """What sentences call the parameter."""
        kernel, _, name = self.parameter.rpartition(".")
        if kernel:
            return f"{name} of kernel {kernel}"
        if not self.buffers:
            return self.parameter
        what = f"{name}, the type of {listed(self.buffers)}"
        return (
            f"{what}, on which {listed(self.kernels)} work{'s' if len(self.kernels) == 1 else ''},"
            if self.kernels
            else f"{what},"
        )

    @property
    def is_known(self) -> bool:
        """Whether the configuration itself was measured, or failed."""
        return self.outcome is not None and self.outcome.source not in ("untimed", "signature")

    @property
    def digits(self) -> float:
        """Digits gained, negative if lost; NaN if not known."""
        return math.nan if self.outcome is None else self.outcome.digits

    @property
    def speed(self) -> float:
        """How many times as fast, NaN if not known."""
        return math.nan if self.outcome is None else self.outcome.speed

    @property
    def gain(self) -> float:
        """How many times as good in what the run optimises, NaN if not known."""
        return math.nan if self.outcome is None else self.outcome.gain


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """The best there is under a limit that is ten times tighter or looser.

    Attributes:
        digits: 1 for one more digit, -1 for one less.
        limit: the limit in words.
        best: the best that was measured under it, None if nothing was.
        changed: values of precisions and policies that differ from the winner's, by name.
        inputs: on how many inputs the best's error was measured: of what breaks the run's limit, mostly a single one.
        alone: the best by its own error alone, where that is better and others of its types break the limit; else None.
    """

    digits: int
    limit: str
    best: Outcome | None
    changed: Mapping[str, Value] = field(default_factory=dict)
    inputs: int = 0
    alone: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What can be said about why a run's winner has its types.

    Attributes:
        kernel: name of the kernel.
        subject: what is explained: "best", or "closest" if nothing is feasible; empty if no trial has numbers.
        trial: the trial explained.
        speedup: over the baseline, NaN if not known.
        measure: what ``gain`` is about: "speed", or the objective.
        is_objective: whether that is what the run optimises; not where it is the error, and the price is the speed.
        minimise: whether less of the objective is better.
        metric: the error metric.
        limited: as of :class:`Outcome`.
        digits_spare: decimal digits between the trial's error and its limit, negative if it exceeds it; NaN without.
        changes: every change of one parameter, by parameter, the widest value first.
        widest: the baseline, all of whose types are the widest; None if there is none, or the trial is it.
        tradeoffs: one digit more, and one less where there is a threshold to relax.
        ahead: the best that is feasible and surely better than the winner; None if nothing is.
        faster_baseline: the fastest feasible one in the baseline's types that is surely faster than the baseline.
        unprobed: why configurations that are missing were not measured; empty if none is missing.
    """

    kernel: str
    subject: str
    trial: Trial | None
    speedup: float = math.nan
    measure: str = "speed"
    is_objective: bool = True
    minimise: bool = True
    metric: str = ""
    limited: Limited | None = None
    digits_spare: float = math.nan
    changes: tuple[Change, ...] = ()
    widest: Outcome | None = None
    tradeoffs: tuple[Tradeoff, ...] = ()
    ahead: Outcome | None = None
    faster_baseline: Outcome | None = None
    unprobed: str = ""

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def growth(self, outcome: Outcome | None) -> float:
        """Return how many times what the run optimises is with an outcome, NaN if not known."""
        gain = math.nan if outcome is None else outcome.gain
        return 1 / gain if self.minimise and gain > 0 else gain

    @property
    def limiting(self) -> Change | None:
        """The change that gains most digits, if any gains some that count; of equals the cheapest."""
        restored = [c for c in self.changes if c.is_restored and c.digits >= LEAST_DIGITS]
        most = max((c.digits for c in restored), default=math.nan)
        near = [c for c in restored if c.digits == most or most - c.digits < LEAST_DIGITS / 3]
        return max(near, key=lambda c: -math.inf if math.isnan(c.gain) else c.gain, default=None)

    @property
    def missing(self) -> int:
        """How many changes nothing, or not everything, is known of."""
        return sum(not change.is_known for change in self.changes)

    def remarks(self, change: Change) -> tuple[str, ...]:
        """Return what is to be said of a change: why it does not pay, and what else is known."""
        return tuple(_remarks(self, change))

    @property
    def doubts(self) -> tuple[str, ...]:
        """What was measured that the run's winner or its speedup does not stand up to, one statement each."""
        return tuple(_doubts(self))

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a reader should take away, one statement each."""
        return tuple(_sentences(self))

    def to_json(self) -> dict[str, Any]:
        """Return the document ``mptune explain --json`` prints."""
        trial, limiting = self.trial, self.limiting
        return json_document(
            {
                "kernel": self.kernel,
                "subject": self.subject or None,
                "configuration": None if trial is None else trial.configuration,
                "time_ms": None if trial is None else trial.time_ms,
                "error": None if trial is None else trial.error,
                "speedup": self.speedup,
                "measure": self.measure,
                "minimise": self.minimise,
                "metric": self.metric,
                "digits_spare": self.digits_spare,
                "limiting": None if limiting is None else limiting.parameter,
                "changes": [_change_document(change) | {"remarks": self.remarks(change)} for change in self.changes],
                "widest": _outcome_document(self.widest),
                "tradeoffs": [
                    {"digits": t.digits, "limit": t.limit, "changed": t.changed, "inputs": t.inputs}
                    | {"best": _outcome_document(t.best), "alone": _outcome_document(t.alone)}
                    for t in self.tradeoffs
                ],
                "sentences": self.sentences,
                "unprobed": self.unprobed,
            }
        )


def explanation_of(run: Run, *, key: str = "", unprobed: str = "") -> Explanation:
    """Explain a run from its trials and probes.

    Args:
        run: the run.
        key: the :func:`probe_key` of the probes to use; by default that of the kernel as it was tuned.
        unprobed: why what is missing was not measured.
    """
    subjects = {"best": run.best, "closest": run.closest}
    subject, trial = next(((name, each) for name, each in subjects.items() if each is not None), ("", None))
    if trial is None:
        return Explanation(run.kernel, "", None, metric=run.info.metric)
    found = _Reader(run, trial, key or probe_key(trial, run.info.template_hash, run.info.definition_hash))
    explanation = Explanation(
        kernel=run.kernel,
        subject=subject,
        trial=trial,
        speedup=run.speedup(trial),
        measure=found.measure,
        is_objective=not found.is_about_errors,
        minimise=run.info.objective.minimise,
        metric=run.info.metric,
        limited=found.limited(trial),
        digits_spare=-found.error_excess(trial) if found.objective.threshold is not None else math.nan,
        changes=tuple(found.changes()),
        widest=found.widest(),
        tradeoffs=tuple(found.tradeoffs()),
        ahead=found.ahead(),
        faster_baseline=found.faster_baseline(),
    )
    return replace(explanation, unprobed=unprobed if explanation.missing else "")


def probe_key(winner: Trial, template_hash: str, definition_hash: str) -> str:
    """Return the key of the probes beside a winner: of another winner, or of an edited kernel, they are others."""
    text = "\0".join(("probe", winner.key, winner.configuration.to_json(), template_hash, definition_hash))
    return hashlib.sha256(text.encode()).hexdigest()


def changed_alone(run: Run, winner: Configuration) -> Iterator[tuple[str, Configuration]]:
    """Yield each parameter that can change the numbers with the winner changed in it alone, the widest value first."""
    for parameter in _of_numbers(run):
        if parameter.name in winner:
            for value in _others(parameter, winner[parameter.name]):
                yield parameter.name, Configuration({**winner, parameter.name: value})


def _of_numbers(run: Run) -> list[ParameterInfo]:
    """Return the parameters that can change the numbers: types, policies, and what else is in the signature."""
    return [p for p in run.info.parameters if p.kind in _KINDS or p.name in run.info.signature]


def _others(parameter: ParameterInfo, value: Value) -> list[Value]:
    """Return the values a parameter is changed to: every type and policy, the widest first; of others the nearest."""
    if parameter.kind in _KINDS:
        return [other for other in sorted(parameter.values, key=_place) if other != value]
    place = parameter.values.index(value) if value in parameter.values else 0
    return [v for v in parameter.values[max(0, place - _NEAREST) : place + _NEAREST + 1] if v != value]


def types_apart(configuration: Configuration, winner: Configuration) -> tuple[int, int]:
    """Return in how many values a configuration differs, and types and policies by how many steps in all."""
    changed = [(value, winner[name]) for name, value in configuration.items() if value != winner[name]]
    return len(changed), sum(abs(_place(after) - _place(before)) for after, before in changed)


def _place(value: Value) -> int:
    return _ORDER.get(str(value), len(_ORDER))


# -- looking up ------------------------------------------------------------------------------------------


class _Reader:
    """Looks up a run's trials and probes beside its winner."""

    def __init__(self, run: Run, winner: Trial, key: str) -> None:
        self.run = run
        self.winner = winner
        self.objective = run.info.objective
        self.is_about_errors = all(map(is_error, self.objective.names))
        is_time = self.objective.metric == "time_ms"
        self.measure = "speed" if is_time or self.is_about_errors else self.objective.metric
        self._types = [p.name for p in _of_numbers(run) if p.name in winner.configuration]
        self._ordered = {parameter.name for parameter in run.info.parameters if parameter.kind in _KINDS}
        self._trials = {trial.configuration: trial for trial in run.trials}
        self._probes = {trial.configuration: trial for trial in run.probes if trial.key == key}
        #: Valid trials by accuracy signature.
        self._alike: defaultdict[tuple[Value | None, ...], list[Trial]] = defaultdict(list)
        for trial in run.trials:
            if trial.is_valid:
                self._alike[self._signature(trial.configuration)].append(trial)
        self._worst_errors: dict[tuple[Value | None, ...], dict[str, float]] = {}
        trials = [self._beside(trial) for trial in run.trials if self._is_whole(trial)]
        probes = [self._probed(probe) for probe in self._probes.values() if self._is_whole(probe)]
        #: All whose time and error are known.
        self._known = (*trials, *probes)
        tuning = {name: value for name, value in winner.configuration.items() if name not in self._types}
        #: Those of them with the winner's tuning, the more trustworthy first.
        self._tuned_alike = [
            o for o in (*probes, *trials) if all(o.trial.configuration.get(n) == value for n, value in tuning.items())
        ]

    # -- one configuration ---------------------------------------------------------------------

    def _is_whole(self, trial: Trial) -> bool:
        """Whether a trial's own time and error are known; a recording may have no errors at all."""
        has_error = not math.isnan(trial.error) or math.isnan(self.winner.error)
        return trial.is_valid and has_error and not math.isnan(trial.time_ms)

    def _outcome(self, configuration: Configuration) -> Outcome | None:
        """Return what is known of a configuration, the most trustworthy first."""
        probe, trial = self._probes.get(configuration), self._trials.get(configuration)
        if probe is not None and self._is_whole(probe):
            return self._probed(probe)
        if trial is not None and (not trial.is_valid or self._is_whole(trial)):
            return self._beside(trial)
        if probe is not None and not probe.is_valid:
            return self._beside(probe, "probed")
        if trial is not None:
            return self._beside(trial, "untimed")
        sibling = next(iter(self._siblings(configuration)), None)
        if sibling is None:
            return None
        errors = {name: value for name, value in sibling.measurement.metrics.items() if name.startswith("error")}
        alike = Trial(configuration, sibling.status, sibling.message, Measurement(errors))
        return self._beside(alike, "signature")

    def _beside(self, trial: Trial, source: str = "measured") -> Outcome:
        """Return a trial of the run beside the winner, their times from the finals' rounds if both were in them."""
        met = self.run.state.finals.ratio(self.winner.configuration, trial.configuration)
        if met is None or trial is self.winner:
            return self._compared(trial, self.winner, quotient(self.winner.time_ms, trial.time_ms), None, source)
        interval = (met.low, met.high) if met.rounds >= LEAST_ROUNDS else None
        return self._compared(trial, self.winner, met.value, interval, source)

    def _probed(self, probe: Trial) -> Outcome:
        """Return a probe beside the winner as both were measured in the same rounds."""
        winner = self.winner.with_measurement(metrics=_of_winner(probe.measurement.metrics))
        low, high = probe.metric("speed_low"), probe.metric("speed_high")
        interval = (low, high) if math.isfinite(low) and math.isfinite(high) else None
        return self._compared(probe, winner, quotient(winner.time_ms, probe.time_ms), interval, "probed")

    def _compared(
        self, trial: Trial, winner: Trial, speed: float, interval: tuple[float, float] | None, source: str
    ) -> Outcome:
        gain = speed
        if self.measure != "speed":
            before, after = (_or_nan(self.objective.value, each) for each in (winner, trial))
            gain = quotient(before, after) if self.objective.minimise else quotient(after, before)
        spare = -self.error_excess(trial) if trial.is_valid and self.objective.threshold is not None else math.nan
        return Outcome(trial, self._digits(trial, winner), speed, gain, interval, source, self.limited(trial), spare)

    def limited(self, trial: Trial) -> Limited | None:
        """Return the error that comes closest to its limit, or exceeds it by most; None for one limit."""
        has_several = trial.is_valid and isinstance(self.objective.threshold, Mapping)
        if not has_several or math.isnan(self.error_excess(trial)):
            return None
        name = self.objective.binding(trial)
        return Limited(self.run.info.measured_by(name), trial.metric(name), self.objective.limits[name])

    def _digits(self, trial: Trial, winner: Trial) -> float:
        if not trial.is_valid:
            return math.nan
        if isinstance(self.objective.threshold, Mapping):
            # Each output has a limit of its own: what counts is how much closer to it the worst one comes.
            before, after = self.error_excess(winner), self.error_excess(trial)
        else:
            # The worst over the draws of the inputs if both ran on as many, else that of the first.
            is_alike = winner.metric("error_draws") == trial.metric("error_draws")
            name = "error" if is_alike else "error_first_draw"
            before, after = (_log10(t.measurement.metrics.get(name, t.error)) for t in (winner, trial))
        return 0.0 if before == after else before - after

    def error_excess(self, trial: Trial) -> float:
        """Return the decades by which an error exceeds its limit, NaN if that is not known."""
        return _or_nan(self.objective.error_excess, trial)

    def _signature(self, configuration: Configuration) -> tuple[Value | None, ...]:
        return tuple(configuration.get(name) for name in self.run.info.signature)

    def _siblings(self, configuration: Configuration) -> list[Trial]:
        return self._alike.get(self._signature(configuration), []) if self.run.info.signature else []

    def widest(self) -> Outcome | None:
        """Return the baseline, unless it is the winner or was not checked itself."""
        baseline = self.run.baseline if self.run.info.baseline_values else None
        if baseline is None or baseline.configuration == self.winner.configuration or not self._is_whole(baseline):
            return None
        return self._beside(baseline)

    # -- better than what is reported ----------------------------------------------------------

    def ahead(self) -> Outcome | None:
        """Return the best that is feasible and, in the same rounds, surely better than the winner."""
        return _best(o for o in self._known if o.interval is not None and o.is_better and self._is_feasible(o))

    def faster_baseline(self) -> Outcome | None:
        """Return the fastest feasible one in the baseline's types that is surely faster than the baseline is."""
        fixed, speedup = self.run.info.baseline_values, self.run.speedup(self.winner)
        if not fixed or math.isnan(speedup):
            return None
        least, _ = self.run.speedup_interval(self.winner) or (speedup, speedup)
        found = (
            outcome
            for outcome in self._known
            if outcome.interval is not None
            and outcome.interval[0] * min(least, speedup) > 1.0 + TIE
            and outcome.trial.configuration.is_among(fixed)
            and outcome.trial is not self.run.baseline
            and self._is_feasible(outcome)
        )
        return max(found, key=lambda outcome: outcome.speed, default=None)

    # -- one parameter -------------------------------------------------------------------------

    def changes(self) -> Iterator[Change]:
        """Yield what every change of one parameter does."""
        winner = self.winner.configuration
        for name, configuration in changed_alone(self.run, winner):
            before, after, outcome = winner[name], configuration[name], self._outcome(configuration)
            is_ordered = name in self._ordered
            is_restored = _place(after) < _place(before) if is_ordered else outcome is not None and outcome.digits > 0
            buffers, kernel = self.run.info.buffers_of(name), name.rpartition(".")[0]
            launched = self.run.state.launched.items()
            on_them = tuple(each for each, given in launched if not set(given).isdisjoint(buffers))
            kernels = (kernel,) if kernel else on_them
            change = Change(name, before, after, is_restored, outcome, buffers=buffers, kernels=kernels)
            yield replace(
                change,
                is_feasible=None if outcome is None else self._is_feasible(outcome),
                reasons=() if outcome is None else tuple(self._reasons(outcome, is_restored=change.is_restored)),
                retuned=self._retuned(change, configuration),
                together=self._together(change),
            )

    def _is_feasible(self, outcome: Outcome) -> bool | None:
        error, constraints = self.error_excess(outcome.trial), _or_nan(self.objective.constraint_excess, outcome.trial)
        if error > 0:
            return False
        is_known = outcome.source != "signature" and not math.isnan(error) and not math.isnan(constraints)
        return constraints <= 0 if is_known else None

    def _retuned(self, change: Change, configuration: Configuration) -> Outcome | None:
        """Return the best sibling where it is better than the changed configuration itself."""
        best = _best(self._beside(t) for t in self._siblings(configuration) if self._is_whole(t))
        if best is None or best.trial.configuration == configuration:
            return None
        return best if math.isnan(change.gain) or best.gain > change.gain * (1 + TIE) else None

    def _together(self, change: Change) -> Outcome | None:
        """Return the nearest configuration that was measured with this value and the winner's tuning."""
        if change.outcome is not None and change.outcome.trial.is_valid:
            return None
        found = [o for o in self._tuned_alike if o.trial.configuration[change.parameter] == change.after]
        return min(found, key=lambda o: types_apart(o.trial.configuration, self.winner.configuration), default=None)

    def _reasons(self, outcome: Outcome, *, is_restored: bool) -> Iterator[Reason]:
        trial, winner = outcome.trial, self.winner
        if not trial.is_valid:
            message = in_short(trial.message)
            yield Reason("failed", f"{trial.status}{f': {message}' if message else ''}")
            return
        excess = self.error_excess(trial)
        if excess > 0 and not is_restored:
            far = f", {10**excess:.3g} times the limit" if math.isfinite(excess) else ""
            name = self.objective.binding(trial)
            what = name if name == "error" else self.run.info.measured_by(name)
            error = trial.metric(name)
            yield Reason("accuracy", f"{what} {error:.3g}{far}", winner.metric(name), error)
        if math.isnan(outcome.speed) or outcome.is_better:
            return
        probe = self._probes.get(trial.configuration)
        noted = probe.measurement.metrics if probe is not None else {}
        before = {**winner.measurement.metrics, **_of_winner(noted)}
        yield from machine_reasons(before, {**trial.measurement.metrics, **noted}, is_slower=outcome.speed < 1)

    # -- one digit more or less ----------------------------------------------------------------

    def tradeoffs(self) -> Iterator[Tradeoff]:
        """Yield the best under a limit ten times as tight and, if there is a limit, ten times as loose."""
        threshold, winner = self.objective.threshold, self.winner
        if threshold is None and math.isnan(winner.error):
            return
        for digits in (1, -1) if threshold is not None else (1,):
            factor = 10.0**-digits
            if isinstance(threshold, Mapping):
                limit = ", ".join(f"{name} <= {tau * factor:g}" for name, tau in threshold.items())
            else:
                limit = f"error <= {(winner.error if threshold is None else threshold) * factor:.3g}"
            best = _best(outcome for outcome in self._known if self._is_within(outcome.trial, digits))
            if best is not None and not best.is_better and self._is_within(winner, digits):
                best = self._beside(winner)
            other = winner.configuration if best is None else best.trial.configuration
            changed = {name: other[name] for name in self._types if other[name] != winner.configuration[name]}
            inputs = 0 if best is None else count_of(self._at_worst(best.trial), "error_draws", 1)
            alone = _best(o for o in self._known if self._keeps_to(o.trial, digits) and self._ran_as_often(o.trial))
            least = 1.0 if best is None else best.gain
            if alone is not None and not (alone.is_better and alone.gain > least * (1 + TIE)):
                alone = None
            yield Tradeoff(digits, limit, best, changed, inputs, alone)

    def _at_worst(self, trial: Trial) -> Trial:
        """Return a trial with the largest errors that are known of its signature: others ran on more inputs."""
        signature = self._signature(trial.configuration)
        if signature not in self._worst_errors:
            known = (t.measurement.metrics for t in self._siblings(trial.configuration) if math.isfinite(t.error))
            self._worst_errors[signature] = worst_errors_of(*known)
        metrics = trial.measurement.metrics
        return trial.with_measurement(metrics={**metrics, **worst_errors_of(metrics, self._worst_errors[signature])})

    def _ran_as_often(self, trial: Trial) -> bool:
        """Whether a trial ran on as many inputs as any of its signature."""
        return count_of(trial, "error_draws", 1) >= count_of(self._at_worst(trial), "error_draws", 1)

    def _is_within(self, trial: Trial, digits: int) -> bool:
        """Whether a trial, as far as its signature is known, keeps to a limit that is so many digits tighter."""
        return self._keeps_to(self._at_worst(trial), digits)

    def _keeps_to(self, trial: Trial, digits: int) -> bool:
        """Whether a trial's own errors keep to a limit that is so many digits tighter."""
        if self.objective.threshold is None:
            excess = _log10(trial.error) - _log10(self.winner.error)
        else:
            excess = self.error_excess(trial)
        return excess <= -digits and _or_nan(self.objective.constraint_excess, trial) <= 0


def _or_nan(ask: Callable[[Trial], float], trial: Trial) -> float:
    """Return an answer of the objective, NaN if the trial lacks a metric for it: not all are observed while probing."""
    try:
        return ask(trial)
    except MptuneError:
        return math.nan


def _best(outcomes: Iterator[Outcome]) -> Outcome | None:
    return max((o for o in outcomes if not math.isnan(o.gain)), key=lambda o: o.gain, default=None)


def _log10(error: float) -> float:
    if error > 0:
        return math.log10(error)
    return math.nan if math.isnan(error) else -math.inf


def _of_winner(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name.removeprefix(WINNER): value for name, value in metrics.items() if name.startswith(WINNER)}


# -- words -----------------------------------------------------------------------------------------------


def percent(ratio: float) -> str:
    """Return a ratio as what it adds or takes: ``+12%``, ``-18%``; from three times on ``3.0x``."""
    if math.isnan(ratio):
        return "-"
    return f"{ratio:.1f}x" if ratio >= 3 else f"{ratio - 1:+.0%}"


def digits_text(digits: float) -> str:
    """Return digits gained with their sign; ``exact`` where no error is left, or ``not exact`` if only here one is."""
    if math.isinf(digits):
        return "exact" if digits > 0 else "not exact (the winner is)"
    return "-" if math.isnan(digits) else f"{digits:+.1f}".replace("-0.0", "+0.0")


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists them: ``a, b and c``."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1] if names else "") if part)


def _sentences(e: Explanation) -> Iterator[str]:
    if e.trial is None:
        yield "No trial has numbers: there is nothing to explain."
        return
    if e.subject == "closest":
        exceeds = math.isfinite(e.digits_spare) and e.digits_spare < 0
        how = f"which exceeds its limit by {-e.digits_spare:.1f} digits" if exceeds else "as measured"
        yield f"Nothing is feasible: explained is the closest trial, {how}."
    if not e.changes:
        yield "The kernel has no parameter of several values that can change the numbers: no type can be changed."
        return
    yield _limit_sentence(e, e.trial.configuration)
    yield from _sentence_by_part(e)
    yield from _doubts(e)
    for tradeoff in e.tradeoffs:
        yield _tradeoff_sentence(e, tradeoff, e.trial.configuration)
    if e.missing:
        why = f": {e.unprobed}" if e.unprobed else ""
        yield f"Not measured: {e.missing} of {len(e.changes)} changes{why}."


def _doubts(e: Explanation) -> Iterator[str]:
    if e.trial is None or e.subject != "best":
        return
    changes = [c.outcome for c in e.changes if c.is_feasible and c.outcome is not None and c.outcome.is_better]
    ahead = _best(outcome for outcome in (*changes, e.ahead) if outcome is not None)
    if e.is_objective and ahead is not None:
        other, winner = ahead.trial.configuration, e.trial.configuration
        what = ", ".join(f"{name} in {value}" for name, value in other.items() if value != winner[name])
        yield (
            f"The search has not found the best there is: {what} is within the limits and {_price(e, ahead)}. More "
            "evaluations may find better still (--resume with a larger --budget)."
        )
    if e.faster_baseline is not None:
        types = _differences(e.faster_baseline, e.trial.configuration) or "in the winner's own values"
        times = f"{1 / e.faster_baseline.speed:.3g} times"
        yield (
            f"In the baseline's types ({types}) it takes {times} as long as the winner: the speedup of the run, "
            f"{e.speedup:.3g}, is against a baseline that is slower than this; tune again with a larger --budget."
        )


def _limit_sentence(e: Explanation, winner: Configuration) -> str:
    restored, limiting = [c for c in e.changes if c.is_restored], e.limiting
    if not restored:
        return "Every type is the widest there is: none limits the accuracy."
    if limiting is not None:
        verb = "restoring" if str(limiting.after) in _ORDER else "changing"
        return (
            f"{limiting.called} limits the accuracy: {verb} it from {limiting.before} to {limiting.after} "
            f"{_gained(limiting.digits)} and {_price(e, limiting.outcome)}."
        )
    most = max((c for c in restored if not math.isnan(c.digits)), key=lambda c: c.digits, default=None)
    together = [c.together for c in restored if c.together is not None]
    if most is not None:
        gain = f"{max(most.digits, 0.0):.1f} digits ({most.parameter} in {most.after})"
        found = f"No single type limits the accuracy: the most any one gains alone is {gain}."
    elif together:
        found = "No single type limits the accuracy: none can be restored alone."
    else:
        return "Which type limits the accuracy is not known: none was measured wider than the winner has it."
    several = [outcome for outcome in together if outcome.digits >= LEAST_DIGITS]
    if several:
        least = min(several, key=lambda o: types_apart(o.trial.configuration, winner))
        return f"{found} {_differences(least, winner)} together {_gained(least.digits)} and {_price(e, least)}."
    if e.widest is not None and e.widest.digits >= LEAST_DIGITS:
        return f"{found} The baseline, all in the widest types, {_gained(e.widest.digits)} and {_price(e, e.widest)}."
    return found


def _sentence_by_part(e: Explanation) -> Iterator[str]:
    """Say what of an application's buffers and of each kernel matters most: restored alone, or else narrowed."""
    parts = dict.fromkeys(change.part for change in e.changes)
    known = [change for change in e.changes if not math.isnan(change.digits)]
    restored = [change for change in known if change.is_restored]
    if len(parts) < 2 or not known:
        return
    what = f"{'gained' if restored else 'lost'} at most by one change alone"
    most: dict[str, Change] = {}
    for change in sorted(restored or known, key=lambda c: -abs(c.digits)):
        most.setdefault(change.part, change)
    found = [
        f"{part or 'choices'} {digits_text(c.digits)} ({c.parameter.rpartition('.')[2]} in {c.after})"
        for part, c in most.items()
    ]
    others = [part for part in parts if part not in most]
    # Of types the widest are known without measuring anything.
    open_ones = {c.part for c in e.changes if math.isnan(c.digits) and (c.is_restored or str(c.after) not in _ORDER)}
    widest = [part or "choices" for part in others if restored and part not in open_ones]
    unknown = [part or "choices" for part in others if not restored or part in open_ones]
    nothing = f"; nothing to gain in {listed(widest)}" if widest else ""
    nothing += f"; of {listed(unknown)} nothing is known" if unknown else ""
    yield f"Digits {what}: {', '.join(found)}{nothing}."


def _tradeoff_sentence(e: Explanation, tradeoff: Tradeoff, winner: Configuration) -> str:
    what = f"{'One more digit' if tradeoff.digits > 0 else 'One digit less'} ({tradeoff.limit})"
    best, types = tradeoff.best, ", ".join(f"{name} {value}" for name, value in tradeoff.changed.items())
    if tradeoff.alone is not None:
        alone = tradeoff.alone.trial
        return (
            f"{what} {_price(e, tradeoff.alone)} by {alone.configuration}, as far as its own error tells "
            f"({alone.error:.3g}): others of its types break that limit (tune with it to be sure)."
        )
    if best is None:
        return f"{what}: nothing that was measured meets it."
    if best.trial.configuration == winner:
        how = "costs nothing: the winner has it already" if tradeoff.digits > 0 else "gains nothing that was measured"
        return f"{what} {how}."
    found = f"{what} {_price(e, best)}, with {types or 'the same types, tuned otherwise'}"
    inputs = f"{tradeoff.inputs} input{'' if tradeoff.inputs == 1 else 's'}"
    return f"{found} (measured on {inputs}; tune with that limit to be sure)."


def _remarks(e: Explanation, change: Change) -> Iterator[str]:
    yield from (reason.text for reason in change.reasons)
    if change.outcome is not None and change.outcome.source == "untimed":
        yield "it was not timed"
    if change.outcome is not None and change.outcome.source == "signature":
        yield "its error is that of other trials with these types"
    if change.together is not None and e.trial is not None:
        gain = f"speed {percent(change.together.gain)}" if e.measure == "speed" else _price(e, change.together)
        types = _differences(change.together, e.trial.configuration)
        yield f"with {types}: {digits_text(change.together.digits)} digits, {gain}"
    if change.retuned is not None:
        what = "speed" if e.measure == "speed" else "gain"
        yield f"with other choices, these types reach {what} {percent(change.retuned.gain)}, of what was measured"


def _differences(outcome: Outcome, winner: Configuration) -> str:
    return ", ".join(f"{name} {value}" for name, value in outcome.trial.configuration.items() if value != winner[name])


def _gained(digits: float) -> str:
    if digits == math.inf:
        return "leaves no error beside the reference"
    return f"gains {digits:.1f} digit{'' if f'{digits:.1f}' == '1.0' else 's'}"


def _price(e: Explanation, outcome: Outcome | None) -> str:
    """Say what an outcome costs or gains beside the winner."""
    if outcome is None or math.isnan(outcome.gain):
        return "its price is not known"
    if e.measure != "speed":
        return f"multiplies {e.measure} by {e.growth(outcome):.3g}"
    gain, interval = outcome.gain, outcome.interval
    between = "" if interval is None else f"{percent(interval[0])} to {percent(interval[1])}"
    if interval is not None and interval[0] <= 1 + _NOTHING and interval[1] >= 1 - _NOTHING:
        return f"is as fast as far as can be told ({percent(gain)}, {between})"
    if abs(gain - 1) <= (TIE if interval is None else _NOTHING):
        return "costs no speed"
    how = f"costs {1 - gain:.0%} of the speed" if gain < 1 else f"gains {percent(gain).lstrip('+')} speed"
    return f"{how} ({between})" if between else how


# -- documents -------------------------------------------------------------------------------------------


def _outcome_document(outcome: Outcome | None) -> dict[str, Any] | None:
    if outcome is None:
        return None
    trial = outcome.trial
    return {
        "configuration": trial.configuration,
        "status": trial.status.value,
        "source": outcome.source,
        "error": trial.error,
        "limited": None if outcome.limited is None else asdict(outcome.limited),
        "time_ms": trial.time_ms,
        "digits": outcome.digits,
        "exact": trial.error == 0,
        "speed": outcome.speed,
        "speed_interval": outcome.interval,
        "gain": outcome.gain,
    }


def _change_document(change: Change) -> dict[str, Any]:
    return {
        "parameter": change.parameter,
        "part": change.part,
        "buffers": change.buffers,
        "kernels": change.kernels,
        "before": change.before,
        "after": change.after,
        "direction": "restored" if change.is_restored else "narrowed",
        "feasible": change.is_feasible,
        "outcome": _outcome_document(change.outcome),
        "retuned": _outcome_document(change.retuned),
        "together": _outcome_document(change.together),
        "reasons": [asdict(reason) for reason in change.reasons],
    }
