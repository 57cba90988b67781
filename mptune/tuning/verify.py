"""Verification: configurations run on inputs that the search has not used.

:class:`Verifier` runs the reported trials at the end of a run. :func:`verify` runs one trial of a run file on further
inputs, also at other sizes.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Any, Final

from mptune.accuracy.thresholds import recorded_metrics
from mptune.backends.base import options_of
from mptune.data import Draw, Stream
from mptune.errors import MptuneError, NotAccurateError, RunFileError
from mptune.kernel import Sizes, Tunable
from mptune.kernel.limits import whole_space
from mptune.measure.device import DeviceEvaluator
from mptune.measure.pool import runnable_backend
from mptune.measure.timing import SEARCHING
from mptune.observers import OBSERVERS
from mptune.results.estimates import is_estimated
from mptune.results.trial import Status, Trial
from mptune.results.unseen import Verified, after_draws, count_of, limit_of, next_unseen
from mptune.run import Run, json_document
from mptune.source.loading import edited, remarks, sizes_of, tunable_of_run
from mptune.space.arguments import COUNT, checked
from mptune.space.configuration import Configuration, Value
from mptune.store import RunFile, RunInfo
from mptune.tuning.session import RunSession, warn_caller

#: Minimum number of unseen inputs at the end of a run, unless fewer are asked for.
LEAST_INPUTS: Final = 5
#: Maximum share of the run's time for more inputs than these.
SHARE: Final = 0.25
#: Inputs in one request to the worker.
_BATCH: Final = 10
#: Statuses after which no further input is run: the worker may be gone, or the status is the same on every input.
_ENDING: Final = (Status.CRASH, Status.TIMEOUT, Status.COMPILE_ERROR, Status.LAUNCH_ERROR, Status.CORRUPT)

_ByDraw = dict[Draw, Trial]


class Verifier:
    """Runs reported trials on unseen inputs: on the least number first, then on as many as time allows.

    All trials run on the same inputs, in the same order, in every session of a run: on ``wanted`` inputs each, or fewer
    if these take longer than :data:`SHARE` of the run, but at least on ``least``. ``finalists`` returns the trials that
    may be reported after others have failed.
    """

    def __init__(
        self,
        session: RunSession,
        wanted: int,
        *,
        least: int = LEAST_INPUTS,
        finalists: Callable[[], Sequence[Trial]] = tuple,
    ) -> None:
        self._session = session
        self._wanted = wanted
        self._least = min(least, wanted)
        self._finalists = finalists
        #: Draws that cannot be made, and why.
        self._unmade: dict[Draw, str] = {}
        #: Configurations that cannot be verified any further.
        self._lost: set[Configuration] = set()
        self._draw_s = 0.0

    def __call__(self) -> bool:
        """Verify the reported trials; return True as soon as one of them is no longer feasible.

        Finalists that break their limit on the same inputs are found at once, and need not be timed again.
        """
        while waiting := self._waiting():
            if fallen := self._run(waiting, self._next_draws(waiting[0])):
                self._drop_finalists(fallen)
                return True
        return False

    def finish(self) -> None:
        """Record why a reported trial was verified on fewer unseen inputs than requested."""
        why = "the worker was lost" if self._lost else ""
        if not self._wanted:
            why = "none was asked for (--verify 0)"
        elif self._unmade:
            why = f"none could be made: {next(iter(self._unmade.values()))}"
        feasible = filter(self._session.objective.is_feasible, self._session.result().reported)
        is_missing = not all(trial.metric("unseen_inputs") > 0 for trial in feasible)
        wanted = 0 if self._lost else self._wanted  # for trials that lacked time
        self._session.update(unverified=why if is_missing else "", verify_wanted=wanted)

    @property
    def _has_time(self) -> bool:
        return self._session.left_s(SHARE) > self._draw_s

    def _waiting(self) -> list[Trial]:
        """Return the reported trials that have had the fewest inputs and need more."""
        reported = [trial for trial in self._session.result().reported if self._is_open(trial)]
        short = [trial for trial in reported if count_of(trial, "unseen_inputs") < self._least]
        if not short and self._has_time:
            short = [trial for trial in reported if count_of(trial, "unseen_inputs") < self._wanted]
        first = min(map(next_unseen, short), default=0)
        return [trial for trial in short if next_unseen(trial) == first]

    def _is_open(self, trial: Trial) -> bool:
        return self._session.objective.is_feasible(trial) and trial.configuration not in self._lost

    def _next_draws(self, trial: Trial) -> list[Draw]:
        done = count_of(trial, "unseen_inputs")
        number = self._least - done
        if number <= 0:
            number = int(self._session.left_s(SHARE) / self._draw_s) if self._draw_s else self._wanted
        following = (Draw(Stream.UNSEEN, each) for each in count(next_unseen(trial)))
        made = (draw for draw in following if draw not in self._unmade)
        return list(islice(made, max(1, min(number, self._wanted - done))))

    def _drop_finalists(self, draws: Sequence[Draw]) -> None:
        """Run the trials that may be reported next on draws on which others failed, until none of them fails."""
        tried: set[Configuration] = set()
        while others := {
            trial.configuration: trial
            for trial in (*self._session.result().reported, *(self._finalists() if self._has_time else ()))
            if self._is_open(trial) and trial.configuration not in tried
        }:
            tried.update(others)
            self._run(list(others.values()), draws, keeps_fallen_alone=True)

    def _run(self, trials: Sequence[Trial], draws: Sequence[Draw], *, keeps_fallen_alone: bool = False) -> list[Draw]:
        """Run trials on draws and keep the resulting trials; return the draws on which one of them failed."""
        objective, before_s, found = self._session.objective, self._session.verifying.seconds, _Found()
        with self._session.verifying:
            run_on(found, self._session.evaluator, [trial.configuration for trial in trials], draws)
        self._draw_s = (self._session.verifying.seconds - before_s) / len(draws)
        for draw, reason in found.unmade.items():
            if reason not in self._unmade.values():
                self._session.warn(f"{draw} is left out of the verification, as it cannot be made: {reason}")
            self._unmade[draw] = reason
        if found.lost:
            self._session.warn(f"{len(found.lost)} configurations could not be verified: their worker was lost")
            self._lost.update(found.lost)
        if len(self._unmade) >= LEAST_INPUTS and not found.trials:  # further inputs would fail, too
            self._lost.update(trial.configuration for trial in trials)
        fallen: dict[Draw, None] = {}
        for trial in trials:
            ran = found.trials.get(trial.configuration, {})
            broken = [draw for draw, one in ran.items() if objective.error_excess(one) > 0]
            fallen.update(dict.fromkeys(broken))
            if ran and (broken or not keeps_fallen_alone):
                self._session.report_verified(self._session.keep(after_draws(trial, ran, objective)))
        return list(fallen)


@dataclass(frozen=True, slots=True)
class _Found:
    """Trials by configuration and draw, draws that cannot be made and why, and configurations that did not run."""

    trials: dict[Configuration, _ByDraw] = field(default_factory=dict)
    unmade: dict[Draw, str] = field(default_factory=dict)
    lost: list[Configuration] = field(default_factory=list)


def run_on(
    found: _Found,
    evaluator: DeviceEvaluator,
    configurations: Sequence[Configuration],
    draws: Sequence[Draw],
    on_input: Callable[[], None] = lambda: None,
) -> None:
    """Add results of configurations on draws of the inputs to ``found``, up to the first status of :data:`_ENDING`."""
    for first in range(0, len(draws), _BATCH):
        batch = draws[first : first + _BATCH]
        answer = evaluator.run_on_draws(configurations, batch)
        for draw, trial in zip(answer.draws, answer.trials, strict=True):
            found.trials.setdefault(trial.configuration, {})[draw] = trial
        found.unmade.update(answer.unmade)
        for _ in batch:
            on_input()
        if all(trial.status is Status.OK for trial in answer.trials) and len(answer.unmade) < len(batch):
            ran = {trial.configuration for trial in answer.trials}
            found.lost.extend(configuration for configuration in configurations if configuration not in ran)
        # Other configurations are in the next request.
        if found.lost or any(trial.status in _ENDING for trial in answer.trials):
            break


@dataclass(frozen=True, slots=True)
class Case:
    """A configuration on unseen inputs of one size."""

    sizes: Mapping[str, int]
    verified: Verified  #: the result, with that of earlier sessions under the same conditions
    worst: Draw | None  #: the input of the largest error in this session
    failures: Mapping[str, int]  #: inputs without usable numbers by status; they break every limit
    unmade: tuple[str, ...]  #: why inputs could not be made, each reason once
    closest: str  #: of several limits, the error closest to its own in this session, with both; empty for one limit

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        worst = self.worst
        return {
            "sizes": self.sizes,
            "failures": self.failures,
            "unmade": self.unmade,
            "verified": self.verified.to_json() if self.verified.inputs else None,
            "worst_input": None if worst is None else {"number": worst.number + 1, "spawn_key": worst.spawn_key},
            "closest": self.closest or None,
        }


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of :func:`verify`, with the run and the trial before the verification."""

    run: Run
    trial: Trial
    cases: tuple[Case, ...]  #: one for each of the sizes
    is_kept: bool  #: whether the run file has the result at its own sizes
    is_of_another: bool  #: whether the definition or template of the kernel has changed since the run
    wall_s: float

    @property
    def holds(self) -> bool:
        """Whether no input broke a limit or made the kernel fail."""
        return not any(case.verified.violations for case in self.cases)

    def words(self, case: Case) -> str:
        """Return the result of a case in words; empty where no input could be made."""
        if not case.verified.inputs:
            return ""
        text = case.verified.words(limit_of(self.run.info.objective))
        return f"another definition than the run's: {text}" if self.is_of_another else text

    def to_json(self) -> dict[str, Any]:
        """Return the document that ``mptune verify --json`` prints."""
        info = self.run.info
        return json_document(
            {name: getattr(info, name) for name in ("kernel", "backend", "device", "metric", "seed")}
            | {
                "configuration": self.trial.configuration,
                "threshold": info.objective.threshold,
                "holds": self.holds,
                "kept": self.is_kept,
                "another_definition": self.is_of_another,
                "cases": [case.to_json() for case in self.cases],
                "wall_s": self.wall_s,
            }
        )


@checked
def verify(
    run_file: str | Path,
    kernel: Tunable | str | Path | None = None,
    *,
    configuration: Mapping[str, Value] | None = None,
    inputs: Annotated[int, COUNT] = 59,
    sizes: Sequence[str | Mapping[str, int]] = (),
    on_input: Callable[[], None] = lambda: None,
    on_warning: Callable[[str], None] = warn_caller,
) -> Verification:
    """Run a trial of a run on inputs that the search has not used.

    The inputs follow those of the run's own verification and of earlier calls. The run file keeps the result at the
    run's own sizes.

    Args:
        run_file: the run.
        kernel: the kernel or application, its definition file or the folder of that; not needed for a bundled one.
        configuration: configuration of a trial of the run; by default of the best.
        inputs: number of inputs for each of the sizes.
        sizes: sizes to verify at: presets' names, or some numbers by name; by default the run's own.
        on_input: called after each input.
        on_warning: called with each difference from the conditions of the run; by default a warning.
    """
    start = time.monotonic()
    run = Run.load(run_file)
    info = run.info
    definition = tunable_of_run(info, kernel, on_warning=on_warning)
    own = sizes_of(info, definition)
    trial = run.best
    if configuration is not None:
        trial = next((each for each in run.trials if each.configuration == configuration), None)
    if trial is None:
        which = "satisfies the threshold" if configuration is None else f"has the configuration {configuration}"
        kind = NotAccurateError if configuration is None else MptuneError
        raise kind(f"{run_file}: no trial {which}; name another one to verify (--configuration)")
    for doubt in run.doubts_about(trial):
        on_warning(f"the run warned: {doubt}")
    given = [(each, {}) if isinstance(each, str) else ("default", {**own, **each}) for each in sizes or ({},)]
    asked = [definition.resolve_sizes(preset, numbers) for preset, numbers in given]
    cases: list[Case] = []
    is_kept = False
    for place in {tuple(sizes.items()): sizes for sizes in asked}.values():
        with evaluator_of(info, definition, trial, place) as evaluator:
            configured = definition.own(trial.configuration)
            said = evaluator.start().remarks
            why_not = ["other sizes"]
            if place == own:
                why_not = [*remarks(info, definition), *changed_conditions(info, definition, evaluator, trial)]
                why_not += [] if info.objective.is_feasible(trial) else ["the configuration is not feasible"]
                try:
                    RunFile.open(run_file).close()
                except RunFileError as error:
                    why_not.append(str(error))
                if why_not:
                    on_warning(f"the result is not kept in {run_file}: {'; '.join(why_not)}")
            # The inputs of a number depend on the sizes.
            first = next_unseen(trial) if place == own else 0
            draws = [Draw(Stream.UNSEEN, number) for number in range(first, first + inputs)]
            found = _Found()  # survives Ctrl-C
            try:
                run_on(found, evaluator, [configured], draws, on_input)
            except KeyboardInterrupt:
                if not why_not and found.trials:
                    on_warning(f"{len(found.trials[configured])} inputs are kept in {run_file}")
                raise
            finally:
                ran = found.trials.get(configured, {})
                if not why_not and ran:
                    with RunFile.open(run_file) as file:
                        file.add(info.objective.judge(after_draws(trial, ran, info.objective)))
        for warning in dict.fromkeys((*said, *(warning for one in ran.values() for warning in one.warnings))):
            if warning not in run.warnings:
                on_warning(warning)
        cases.append(_case(run, place, ran, found.unmade, None if why_not else Verified.of(trial, info.objective)))
        is_kept = is_kept or not why_not
    if not any(case.verified.inputs for case in cases):
        why = dict.fromkeys(reason for case in cases for reason in case.unmade)
        raise MptuneError(f"no unseen input could be made: {'; '.join(why) or 'the worker was lost'}")
    return Verification(run, trial, tuple(cases), is_kept, bool(edited(info, definition)), time.monotonic() - start)


def _case(run: Run, sizes: Sizes, ran: _ByDraw, unmade: Mapping[Draw, str], before: Verified | None) -> Case:
    objective = run.info.objective
    before = before or Verified(0, 0, 0.0)
    excess = {draw: objective.error_excess(one) for draw, one in ran.items()}
    errors = {draw: math.inf if math.isnan(one.error) else one.error for draw, one in ran.items()}
    verified = Verified(
        before.inputs + len(ran),
        before.violations + sum(each > 0 for each in excess.values()),
        max(before.worst_error, *errors.values(), 0.0),
    )
    right = [draw for draw, one in ran.items() if one.status is Status.OK]
    return Case(
        dict(sizes),
        verified,
        max(errors, key=errors.__getitem__, default=None),
        dict(Counter(one.status.value for one in ran.values() if one.status is not Status.OK)),
        tuple(dict.fromkeys(unmade.values())),
        run.info.closest_limit(ran[max(right, key=excess.__getitem__)]) if right else "",
    )


def evaluator_of(
    info: RunInfo,
    kernel: Tunable,
    trial: Trial,
    sizes: Sizes,
    *,
    draws: int = 1,
    compilers: int = 0,
) -> DeviceEvaluator:
    """Return an evaluator that measures on this machine as a run measured a trial, with errors on ``draws`` draws."""
    # Only values that the kernel declares are rendered.
    if trial.configuration not in whole_space(kernel, sizes):
        raise MptuneError(f"{trial.configuration} is no valid configuration of {kernel.called} at {sizes}")
    outputs = [output.name for output in kernel.outputs]
    backend = runnable_backend(info.backend)
    return DeviceEvaluator(
        kernel,
        sizes,
        backend,
        metric=recorded_metrics(info.metric, info.metrics, outputs, kernel.metric),
        seed=info.seed or 0,
        flags=options_of(info, backend).flags,
        plan=dataclasses.replace(SEARCHING, flush_cache=info.flush_cache),
        draws=draws,
        compilers=compilers,
        observers=[name for name in info.observers if name in OBSERVERS],
        is_estimating=is_estimated(info.objective),
    )


def changed_conditions(info: RunInfo, kernel: Tunable, evaluator: DeviceEvaluator, trial: Trial) -> tuple[str, ...]:
    """Return the measuring conditions of a trial that have changed since the run, a few words each."""
    ready = evaluator.start()
    now = dataclasses.replace(info, device=ready.device.name, compiler=ready.identity, data_key=ready.data_key)
    if changes := now.changes_since(info):
        return changes
    is_same = evaluator.unversioned_metrics or evaluator.key_of(kernel.own(trial.configuration)) == trial.key
    return () if is_same else ("the source, or how it is measured, has changed",)
