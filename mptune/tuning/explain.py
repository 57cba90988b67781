"""Explaining a winner: each type one step wider and one step narrower, alone, timed in turn with the winner.

These neighbours are ordinary trials of the run. :func:`explanation_of` reads them; :func:`explain` measures those that
are missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mptune.backends import get_backend
from mptune.backends.processor import usable_cores
from mptune.errors import KernelError, MptuneError, RunFileError
from mptune.interop import read_run
from mptune.kernel import Sizes, Tunable
from mptune.kernel.limits import whole_space
from mptune.measure.pool import runnable_backend
from mptune.precision import EVERY_PRECISION, POLICIES
from mptune.results.metric_expressions import is_error
from mptune.results.speedup import LEAST_ROUNDS, TIE
from mptune.results.trial import Trial
from mptune.results.unseen import count_of, draws_of
from mptune.run import Run, in_short, json_document
from mptune.source.loading import make_ready, sizes_of, tunable_of_run
from mptune.space.configuration import Configuration, Value
from mptune.space.constraints import compile_constraint
from mptune.space.search_space import SearchSpace
from mptune.store import ParameterInfo, RunFile
from mptune.tuning.finals import FinalRounds
from mptune.tuning.session import RunSession, Warnings, warn_caller
from mptune.tuning.verify import LEAST_INPUTS, Verifier, changed_conditions, evaluator_of

__all__ = ["Change", "Explanation", "Outcome", "Tradeoff", "digits_text", "explain", "explanation_of", "percent"]

#: Neighbours that share their rounds. They are kept after each such group.
_GROUP: Final = 4
#: Digits below which a change of the error is noise.
_LEAST_DIGITS: Final = 0.3
#: Types and policies, the widest or most accurate first.
_ORDER: Final = {name: place for place, name in enumerate((*EVERY_PRECISION, *POLICIES))}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A trial beside the winner."""

    trial: Trial
    digits: float  #: decimal digits gained, negative if lost; infinite if it is exact
    speed: float  #: the winner's time divided by its own
    interval: tuple[float, float] | None  #: 95% interval of the speed, if rounds timed both
    cost: float  #: what the run optimises divided by the winner's; NaN if that is the time or an error
    is_feasible: bool  #: whether the error and measured constraints are within their limits
    error_text: str  #: the error; of several limits the one closest to its own, with both; of a failed trial the status

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {
            "configuration": self.trial.configuration,
            "status": self.trial.status.value,
            "message": in_short(self.trial.message),
            "error": self.trial.error,
            "error_text": self.error_text,
            "exact": self.trial.error == 0,
            "time_ms": self.trial.time_ms,
            "digits": self.digits,
            "speed": self.speed,
            "speed_interval": self.interval,
            "cost": self.cost,
        }


@dataclass(frozen=True, slots=True)
class Change:
    """One parameter of the winner changed by one step, alone."""

    parameter: str
    before: Value
    after: Value
    is_restored: bool  #: whether it is wider or more accurate; of other choices than types, whether it gains digits
    outcome: Outcome | None  #: the trial beside the winner, None if it was not measured
    broken: str  #: the constraint that does not allow it, empty if all do
    buffers: tuple[str, ...]  #: of an application, the buffers whose type the parameter is
    kernels: tuple[str, ...]  #: of an application, the kernels launched on these buffers

    @property
    def digits(self) -> float:
        """Digits gained, negative if lost; NaN if not known."""
        return math.nan if self.outcome is None else self.outcome.digits

    @property
    def is_known(self) -> bool:
        """Whether it was measured, failed, or is not allowed."""
        trial = None if self.outcome is None else self.outcome.trial
        is_timed = trial is not None and not (trial.is_valid and math.isnan(trial.time_ms))
        return bool(self.broken) or is_timed

    @property
    def is_settled(self) -> bool:
        """Whether it is known, and its speed is from rounds together with the winner."""
        outcome = self.outcome
        return self.is_known and (outcome is None or not outcome.trial.is_valid or outcome.interval is not None)


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """The best trial of a run under a limit ten times tighter (``digits`` 1) or looser (-1); None if none meets it."""

    digits: int
    limit: str
    best: Outcome | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a run's winner has its types.

    Attributes:
        run: the run, with the trials that were measured for the explanation.
        trial: the winner, or the closest trial if none is feasible; None if no trial has numbers.
        changes: each change of one parameter, the widest value first.
        unmeasured: why changes were not measured; empty if none is missing.
    """

    run: Run
    trial: Trial | None
    changes: tuple[Change, ...] = ()
    unmeasured: str = ""

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    @property
    def subject(self) -> str:
        """What is explained: "best" or "closest"; empty if no trial has numbers."""
        if self.trial is None:
            return ""
        return "best" if self.run.info.objective.is_feasible(self.trial) else "closest"

    @property
    def digits_spare(self) -> float:
        """Decimal digits between the error and its limit, negative if it exceeds it; NaN if there is no limit."""
        if self.trial is None or self.run.info.objective.threshold is None:
            return math.nan
        return -_excess(self.run, self.trial)

    @property
    def limiting(self) -> Change | None:
        """The change that gains most digits if it gains more than noise; of equals the fastest."""
        restored = [c for c in self.changes if c.is_restored and c.digits >= _LEAST_DIGITS]
        most = max((c.digits for c in restored), default=math.nan)
        near = [c for c in restored if c.digits == most or most - c.digits < _LEAST_DIGITS / 3]
        return max(near, key=lambda c: 0.0 if c.outcome is None else c.outcome.speed, default=None)

    @property
    def missing(self) -> int:
        """How many changes were not measured."""
        return sum(not change.is_known for change in self.changes)

    @property
    def tradeoffs(self) -> tuple[Tradeoff, ...]:
        """One digit more, and one less where there is a limit."""
        return () if self.trial is None else tuple(_tradeoffs(self.run, self.trial))

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a reader should take away, one statement each."""
        return tuple(_sentences(self))

    def to_json(self) -> dict[str, Any]:
        """Return the document ``mptune explain --json`` prints."""
        trial, limiting, run = self.trial, self.limiting, self.run
        return json_document(
            {
                "kernel": run.kernel,
                "subject": self.subject or None,
                "configuration": None if trial is None else trial.configuration,
                "time_ms": None if trial is None else trial.time_ms,
                "error": None if trial is None else trial.error,
                "speedup": None if trial is None else run.speedup(trial),
                "objective": run.info.objective.metric,
                "metric": run.info.metric,
                "digits_spare": self.digits_spare,
                "limiting": None if limiting is None else limiting.parameter,
                "changes": [
                    {
                        "parameter": change.parameter,
                        "buffers": change.buffers,
                        "kernels": change.kernels,
                        "before": change.before,
                        "after": change.after,
                        "direction": "restored" if change.is_restored else "narrowed",
                        "feasible": None if change.outcome is None else change.outcome.is_feasible,
                        "broken": change.broken,
                        "outcome": None if change.outcome is None else change.outcome.to_json(),
                    }
                    for change in self.changes
                ],
                "tradeoffs": [
                    {"digits": t.digits, "limit": t.limit, "best": None if t.best is None else t.best.to_json()}
                    for t in self.tradeoffs
                ],
                "sentences": self.sentences,
                "unmeasured": self.unmeasured,
            }
        )


# -- from the trials of a run ----------------------------------------------------------------------


def explanation_of(run: Run, winner: Configuration | None = None, *, unmeasured: str = "") -> Explanation:
    """Explain a trial of a run from the run's trials; by default the best, or the closest where none is feasible."""
    chosen = next((trial for trial in run.trials if trial.configuration == winner), None)
    trial = chosen or run.best or run.closest
    changes = () if trial is None else tuple(_changes(run, trial))
    return Explanation(run, trial, changes, "" if all(change.is_known for change in changes) else unmeasured)


def _neighbours(run: Run, winner: Configuration) -> Iterator[tuple[ParameterInfo, Configuration]]:
    """Yield each parameter that can change the numbers with the winner changed in it by one step, the widest first."""
    for parameter in run.info.parameters:
        if parameter.name in winner and (_is_ordered(parameter) or parameter.name in run.info.signature):
            values = sorted(parameter.values, key=_place) if _is_ordered(parameter) else list(parameter.values)
            before = winner[parameter.name]
            place = values.index(before) if before in values else 0
            for value in values[max(0, place - 1) : place + 2]:
                if value != before:
                    yield parameter, Configuration({**winner, parameter.name: value})


def _is_ordered(parameter: ParameterInfo) -> bool:
    return parameter.kind in ("precision", "policy")


def _place(value: Value) -> int:
    return _ORDER.get(str(value), len(_ORDER))


def _changes(run: Run, winner: Trial) -> Iterator[Change]:
    trials = {trial.configuration: trial for trial in run.trials}
    for parameter, configuration in _neighbours(run, winner.configuration):
        name, trial = parameter.name, trials.get(configuration)
        before, after = winner.configuration[name], configuration[name]
        outcome = None if trial is None else _beside(run, winner, trial)
        gains_digits = outcome is not None and outcome.digits > 0
        is_restored = _place(after) < _place(before) if _is_ordered(parameter) else gains_digits
        buffers = run.info.buffers_of(name)
        kernels = tuple(k for k, given in run.state.launched.items() if not set(given).isdisjoint(buffers))
        yield Change(name, before, after, is_restored, outcome, _broken(run, configuration), buffers, kernels)


def _broken(run: Run, configuration: Configuration) -> str:
    """Return the text of a constraint of the run's space that a configuration breaks; empty if it breaks none."""
    for text in run.info.constraints:
        with contextlib.suppress(MptuneError):  # the name of a function
            if not compile_constraint(text, run.parameter_names, run.info.constants).holds(configuration):
                return text
    return ""


def _beside(run: Run, winner: Trial, trial: Trial) -> Outcome:
    objective = run.info.objective
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
        # The winner was verified on more draws of the inputs. All trials ran on the first one.
        name = "error" if draws_of(winner) == draws_of(trial) else "error_first_draw"
        before, after = (_log10(each.measurement.metrics.get(name, each.error)) for each in (winner, trial))
    return 0.0 if before == after else before - after


def _excess(run: Run, trial: Trial) -> float:
    """Return the decades by which an error exceeds its limit, NaN if that is not known."""
    return math.nan if math.isnan(trial.error) else run.info.objective.error_excess(trial)


def _tradeoffs(run: Run, winner: Trial) -> Iterator[Tradeoff]:
    objective = run.info.objective
    limits = objective.threshold
    by_name = limits if isinstance(limits, Mapping) else {"error": winner.error if limits is None else limits}
    if all(map(is_error, objective.names)) or not all(0 < tau < math.inf for tau in by_name.values()):
        return
    for digits in (1,) if limits is None else (1, -1):
        scaled = {name: tau * 10.0**-digits for name, tau in by_name.items()}
        within = dataclasses.replace(objective, threshold=scaled if isinstance(limits, Mapping) else scaled["error"])
        best = within.best(run.trials)
        text = ", ".join(f"{name} <= {tau:.3g}" for name, tau in scaled.items())
        yield Tradeoff(digits, text, None if best is None else _beside(run, winner, best))


def _quotient(above: float, below: float) -> float:
    return above / below if below > 0 else math.nan


def _log10(error: float) -> float:
    if error > 0:
        return math.log10(error)
    return math.nan if math.isnan(error) else -math.inf


# -- measuring what is missing ---------------------------------------------------------------------


def explain(
    run: Run | str | Path,
    kernel: Tunable | str | Path | None = None,
    *,
    measure: bool = True,
    time_limit_s: float | None = None,
    on_trial: Callable[[], None] = lambda: None,
    on_warning: Callable[[str], None] = warn_caller,
) -> Explanation:
    """Explain why a run's winner has its types, and measure the neighbours that are missing on the run's device.

    The neighbours become trials of the run: one that is better than the winner takes its
    place, timed beside the baseline and verified on as many unseen inputs. Where nothing can be
    measured (another device, no kernel, a recording), the stored trials are explained and
    :attr:`Explanation.unmeasured` says why.

    Args:
        run: a run file, a recorded space, or a run, whose new trials are then not kept.
        kernel: the kernel or application, unless it is a bundled one: that itself, a definition file or the folder that
            holds it.
        measure: False to explain the stored trials alone.
        time_limit_s: begin no further measurement after so many seconds.
        on_trial: called after each configuration that was evaluated.
        on_warning: called with each reason why the kernel may not be the run's; by default a warning.

    Raises:
        RunFileError, SpaceFileError: the file cannot be read.
        KernelError: the kernel given is not the run's.
        MptuneError: the time limit is not above 0.
    """
    if time_limit_s is not None and not time_limit_s > 0:
        raise MptuneError(f"time limit {time_limit_s:g} s: expected more than 0")
    start = time.monotonic()
    loaded = run if isinstance(run, Run) else read_run(run)
    found = explanation_of(loaded)
    if found.trial is None:
        return found
    if not measure or loaded.info.recorded:
        why = "a recording has no kernel to measure" if measure else "only the stored trials were asked for"
        return explanation_of(loaded, unmeasured=why)
    try:
        definition = tunable_of_run(loaded.info, kernel, on_warning=on_warning)
        sizes = sizes_of(loaded.info, definition)
    except (KernelError, RunFileError) as error:
        if kernel is not None:
            raise
        return explanation_of(loaded, unmeasured=str(error))
    missing, why = _Missing(loaded, found.trial), ""
    try:
        if missing.changes(loaded) or missing.is_unverified(loaded):
            make_ready(definition, sizes, on_progress=on_warning)
            with RunFile.in_memory(loaded.info, loaded.state) if isinstance(run, Run) else RunFile.open(run) as file:
                missing.measure(definition, sizes, file, start, time_limit_s, on_trial, on_warning)
    except MptuneError as error:
        why = in_short(str(error))
    except KeyboardInterrupt:
        if not isinstance(run, Run):
            on_warning(f"what was measured is kept in {run}: the same command goes on with the rest")
        raise
    return explanation_of(missing.run, found.trial.configuration, unmeasured=why)


class _Missing:
    """Evaluates the missing neighbours of a winner, and times and verifies them as finals do.

    Attributes:
        run: with all trials so far.
    """

    def __init__(self, run: Run, winner: Trial) -> None:
        self.run = run
        self._winner = winner
        #: Unseen inputs for the best. A winner that an interrupted call found lacks some that the baseline has.
        self._inputs = LEAST_INPUTS
        if run.info.objective.is_feasible(winner):
            reported = (winner, *([] if run.baseline is None else [run.baseline]))
            self._inputs = max(count_of(trial, "unseen_inputs") for trial in reported)

    def changes(self, run: Run) -> dict[Configuration, Change]:
        """Return the neighbours that were not timed together with the winner."""
        neighbours = (configuration for _, configuration in _neighbours(run, self._winner.configuration))
        changes = zip(neighbours, _changes(run, self._winner), strict=True)
        return {configuration: change for configuration, change in changes if not change.is_settled}

    def is_unverified(self, run: Run) -> bool:
        """Whether a reported trial lacks unseen inputs."""
        reported = filter(run.info.objective.is_feasible, run.reported)
        return any(count_of(trial, "unseen_inputs") < self._inputs for trial in reported)

    def measure(
        self,
        kernel: Tunable,
        sizes: Sizes,
        file: RunFile,
        start: float,
        time_limit_s: float | None,
        on_trial: Callable[[], None],
        on_warning: Callable[[str], None],
    ) -> None:
        """Evaluate, time and verify, a few neighbours at a time.

        Raises:
            MptuneError: something else than the run's is here, the time is up, or the kernel allows no such neighbour.
        """
        info = self.run.info
        device = get_backend(runnable_backend(info.backend)).describe()
        if (info.device, info.architecture) != (device.name, device.architecture):
            raise MptuneError(
                f"the run is of {info.device} ({info.architecture}), this is {device.name} ({device.architecture})"
            )
        searched = draws_of(self._winner) - count_of(self._winner, "unseen_inputs")
        with evaluator_of(info, kernel, sizes, draws=searched, compilers=usable_cores()) as evaluator:
            space = whole_space(kernel, sizes, evaluator.start().facts)
            # Values of a file are rendered only if the kernel declares them.
            if self._winner.configuration not in space:
                raise MptuneError(f"{self._winner.configuration} is no valid configuration of {kernel.called}")
            if changes := changed_conditions(info, kernel, evaluator, self._winner):
                raise MptuneError(f"{'; '.join(changes)}: mptune tune --resume measures the run again")
            session = RunSession(
                evaluator,
                file,
                info.objective,
                start=start,
                time_limit_s=time_limit_s,
                warn=Warnings(on_warning),
                on_progress=lambda _: on_trial(),
            )
            for trial in self.run.trials:
                session.keep(dataclasses.replace(trial, configuration=kernel.own(trial.configuration)), trial)
            try:
                self._measure(session, space, searched)
            finally:
                self.run = Run(info, list(session.trials.values()), session.state, self.run.sources)

    def _measure(self, session: RunSession, space: SearchSpace, searched: int) -> None:
        winner = session.trials[self._winner.configuration]
        finals = FinalRounds(session)
        verify = Verifier(session, searched, self._inputs, least=self._inputs)
        #: Neighbours timed in no other rounds than those that may make them the fastest.
        flattered: set[Configuration] = set()

        def confirm() -> None:
            """Time the fastest in further rounds until it is one that was, and verify what is reported."""
            is_changed = True
            while is_changed:
                while (best := session.result().best) is not None and best.configuration in flattered:
                    flattered.remove(best.configuration)
                    if session.objective.is_time:
                        finals.add(winner, [best])
                is_changed = verify()

        wanted = self.changes(session.result())
        valid = [configuration for configuration in wanted if configuration in space]
        for first in range(0, len(valid), _GROUP):
            group = valid[first : first + _GROUP]
            waiting = deque(c for c in group if not wanted[c].is_known)
            if session.is_in_time:
                ask = functools.partial(_taken, waiting)
                session.evaluate(len(session.trials) + len(waiting), ask)
                timed = [session.trials[c] for c in group if c in session.trials and session.trials[c].is_valid]
                if timed:
                    finals.add(winner, timed)
                    flattered.update(trial.configuration for trial in timed)
                confirm()
        confirm()
        left = self.changes(session.result())
        if any(configuration in space for configuration in left) and not session.is_in_time:
            raise MptuneError("the time limit was over; the same command goes on with the rest")
        if len(valid) < len(wanted):
            raise MptuneError(f"{self.run.kernel} does not allow them")


def _taken(waiting: deque[Configuration], n: int) -> list[Configuration]:
    return [waiting.popleft() for _ in range(min(n, len(waiting)))]


# -- words -----------------------------------------------------------------------------------------


def percent(ratio: float) -> str:
    """Return a ratio as what it adds or takes: ``+12%``, ``-18%``; from three times on ``3.0x``."""
    if math.isnan(ratio):
        return "-"
    return f"{ratio:.1f}x" if ratio >= 3 else f"{ratio - 1:+.0%}"


def digits_text(digits: float) -> str:
    """Return digits gained with their sign; ``exact`` where no error is left, ``not exact`` if the winner has none."""
    if math.isinf(digits):
        return "exact" if digits > 0 else "not exact"
    return "-" if math.isnan(digits) else f"{digits:+.1f}".replace("-0.0", "+0.0")


def _sentences(e: Explanation) -> Iterator[str]:
    winner, best = e.trial, e.run.best
    if winner is None:
        yield "No trial has numbers: there is nothing to explain."
        return
    if e.subject == "closest":
        exceeds = f", which exceeds its limit by {-e.digits_spare:.1f} digits" if e.digits_spare < 0 else ""
        yield f"No trial is feasible. The closest one is explained{exceeds}."
    if not e.changes:
        yield "No parameter that can change the numbers has several values: no type can be changed."
        return
    yield _limit_sentence(e)
    for tradeoff in e.tradeoffs:
        yield _tradeoff_sentence(tradeoff, winner.configuration, e.run)
    if best is not None and best.configuration != winner.configuration:
        now = _beside(e.run, winner, best)
        yield (
            f"The best is now {_differences(now, winner.configuration)}, which {_price(now, e.run)}: explain the run "
            "again."
        )
    if e.missing:
        yield f"Not measured: {e.missing} of {len(e.changes)} changes{': ' if e.unmeasured else ''}{e.unmeasured}."


def _limit_sentence(e: Explanation) -> str:
    restored, limiting = [c for c in e.changes if c.is_restored], e.limiting
    if limiting is not None and limiting.outcome is not None:
        kernels = f" of {', '.join(limiting.kernels)}" if limiting.kernels else ""
        buffers = f" ({', '.join(limiting.buffers)}{kernels})" if limiting.buffers else ""
        gained = "leaves no error" if limiting.digits == math.inf else f"gains {limiting.digits:.1f} digits"
        return (
            f"{limiting.parameter}{buffers} limits the accuracy: {limiting.after} instead of {limiting.before} "
            f"{gained} and {_price(limiting.outcome, e.run)}."
        )
    if not restored:
        return "Every type is the widest there is: none limits the accuracy."
    most = max((c for c in restored if not math.isnan(c.digits)), key=lambda c: c.digits, default=None)
    if most is None:
        return "Which type limits the accuracy is not known: no wider type was measured."
    gain = f"{max(most.digits, 0.0):.1f} digits ({most.parameter} {most.after})"
    return f"No single type limits the accuracy: one step wider gains at most {gain}."


def _tradeoff_sentence(tradeoff: Tradeoff, winner: Configuration, run: Run) -> str:
    is_tighter, best = tradeoff.digits > 0, tradeoff.best
    said = f"{'One digit more' if is_tighter else 'One digit less'} ({tradeoff.limit})"
    if best is None:
        return f"{said}: no trial meets it."
    if best.trial.configuration == winner:
        return f"{said} {'costs nothing: the winner meets it' if is_tighter else 'gains nothing'}."
    inputs = draws_of(best.trial)
    where = f"(measured on {inputs} input{'' if inputs == 1 else 's'})"
    return f"{said} {_price(best, run)}: {_differences(best, winner)} {where}."


def _differences(outcome: Outcome, winner: Configuration) -> str:
    changed = {n: value for n, value in outcome.trial.configuration.items() if value != winner.get(n)}
    return ", ".join(f"{name} {value}" for name, value in changed.items())


def _price(outcome: Outcome, run: Run) -> str:
    """Say what an outcome costs or gains beside the winner."""
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
