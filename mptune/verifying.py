"""Verify a configuration of a run on further unseen inputs, at its own sizes and at others."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mptune.accuracy.thresholds import recorded_metrics
from mptune.adopt.sizes import make_ready
from mptune.backends.base import options_of
from mptune.data import Draw, Stream
from mptune.emit import select, sizes_of
from mptune.errors import MptuneError, RunFileError
from mptune.kernel import Sizes, Tunable
from mptune.kernel.limits import whole_space
from mptune.measure.device import DeviceEvaluator
from mptune.measure.pool import runnable_backend
from mptune.results.trial import Status, Trial
from mptune.results.unseen import Verified, after_draws, limit_of, next_unseen
from mptune.run import Run, json_document
from mptune.source.loading import edited, remarks, tunable_of_run
from mptune.space.configuration import Configuration
from mptune.store import RunFile

__all__ = ["Case", "Verification", "verify"]

#: Inputs in one batch. Progress is reported after each batch.
_PIECE: Final = 10
#: Statuses of trials that may end the worker, or that every further input would have as well.
_ENDING: Final = (Status.CRASH, Status.TIMEOUT, Status.COMPILE_ERROR, Status.LAUNCH_ERROR, Status.CORRUPT)


@dataclass(frozen=True, slots=True)
class Case:
    """A configuration on unseen inputs of one size.

    Attributes:
        sizes: the problem sizes.
        verified: what they said, with those of earlier sessions where they count together.
        worst: the input of the largest error in this session, the first that gave no usable numbers if any did; None if
            no input could be made.
        failures: how many gave no usable numbers, by status; they break every limit.
        unmade: inputs that could not be made, and why, each reason once.
        closest: of several limits, the error that came closest to its own in this session, or exceeded it by most, in
            words with both; empty for one limit.
    """

    sizes: Mapping[str, int]
    verified: Verified | None
    worst: Draw | None
    failures: Mapping[str, int] = field(default_factory=dict)
    unmade: tuple[str, ...] = ()
    closest: str = ""


@dataclass(frozen=True, slots=True)
class Verification:
    """What :func:`verify` found.

    Attributes:
        run: the run, as it was before.
        trial: the configuration that was verified.
        cases: a result for each of the sizes.
        is_kept: whether the run file has what was found at its own sizes.
        is_of_another: whether the kernel is another than that of the run: its definition or template has changed.
        wall_s: how long all of it took.
    """

    run: Run
    trial: Trial
    cases: tuple[Case, ...]
    is_kept: bool
    is_of_another: bool
    wall_s: float

    @property
    def holds(self) -> bool:
        """Whether no input broke a limit or made the kernel fail."""
        return not any(case.verified.violations for case in self.cases if case.verified is not None)

    def words(self, case: Case) -> str:
        """Say what a case means; empty where no input could be made."""
        text = "" if case.verified is None else case.verified.words(limit_of(self.run.info.objective))
        return f"another definition than the run's: {text}" if text and self.is_of_another else text

    def to_json(self) -> dict[str, Any]:
        """Return the document ``mptune verify --json`` prints."""
        info = self.run.info
        return json_document(
            {
                "kernel": info.kernel,
                "backend": info.backend,
                "device": info.device,
                "configuration": self.trial.configuration,
                "threshold": info.objective.threshold,
                "metric": info.metric,
                "seed": info.seed,
                "holds": self.holds,
                "kept": self.is_kept,
                "another_definition": self.is_of_another,
                "cases": [
                    {
                        "sizes": case.sizes,
                        "verified": None if case.verified is None else case.verified.to_json(),
                        "worst_input": None
                        if case.worst is None
                        else {"number": case.worst.number + 1, "spawn_key": case.worst.spawn_key},
                        "failures": case.failures,
                        "unmade": case.unmade,
                        "closest": case.closest or None,
                    }
                    for case in self.cases
                ],
                "wall_s": self.wall_s,
            }
        )


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)  # where verify was called


def verify(
    run_file: str | Path,
    kernel: Tunable | str | Path | None = None,
    *,
    configuration: str = "",
    inputs: int = 59,
    sizes: Sequence[str | Mapping[str, int]] = (),
    on_input: Callable[[int], None] = lambda _: None,
    on_warning: Callable[[str], None] = _warn,
) -> Verification:
    """Run a configuration of a run on inputs that nobody searched with.

    They continue where the run's own verification, or the last call, ended. The result at the run's own sizes is kept
    in the run file.

    Args:
        run_file: the run.
        kernel: its kernel or application, unless it is a bundled one: that itself, a definition file or the folder that
            holds it.
        configuration: which trial, as ``mptune emit`` takes it; empty for the best.
        inputs: how many, for each of the sizes.
        sizes: sizes to verify at, one after the other: a preset's name, or numbers by name, of which those that are
            missing are the run's. By default the run's own alone.
        on_input: told after every few inputs how many they were.
        on_warning: told what differs from the conditions of the run; by default a warning.

    Raises:
        RunFileError: the run file cannot be read.
        KernelError: the kernel is not found, or not that of the run.
        MptuneError: there is no such trial, it cannot run here, or none of the inputs could be made.
    """
    start = time.monotonic()
    if inputs < 1:
        raise MptuneError(f"inputs {inputs}: expected at least 1")
    run = Run.load(run_file)
    definition = tunable_of_run(run.info, kernel, on_warning=on_warning)
    own = sizes_of(run, definition)
    trial = select(run, configuration=configuration, kernel=definition)
    if trial is None:
        raise MptuneError(
            f"{run_file}: no trial satisfies the threshold; name a configuration to verify (--configuration)"
        )
    for doubt in run.doubts_about(trial):
        on_warning(f"the run warned: {doubt}")
    asked = [_place(definition, own, given) for given in sizes or ({},)]
    places = [place for number, place in enumerate(asked) if place not in asked[:number]]
    for place in places:
        if (times := asked.count(place)) > 1:
            on_warning(f"the sizes {place}, given {times} times: the same inputs are run and counted once")
        make_ready(definition, place, on_progress=on_warning)
    cases: list[Case] = []
    is_kept = False
    for place in places:
        configured = _own_configuration(definition, place, trial)
        # Inputs of other sizes are others, whatever their numbers.
        first = next_unseen(trial) if place == own else 0
        with _evaluator(run, definition, place) as evaluator:
            reasons = _why_not_kept(run_file, run, definition, trial, evaluator) if place == own else ["other sizes"]
            if place == own and reasons:
                on_warning(f"what is found is not kept in {run_file}: {'; '.join(reasons)}")
            draws = [Draw(Stream.UNSEEN, number) for number in range(first, first + inputs)]
            found, unmade = _run(evaluator, configured, draws, on_input)
        cases.append(_case(run, place, found, unmade, trial if not reasons else None))
        if not reasons and found:
            _keep(run_file, run.info.objective.judge(after_draws(trial, found, run.info.objective)))
        is_kept = is_kept or not reasons
    if not any(case.verified for case in cases):
        why = dict.fromkeys(reason for case in cases for reason in case.unmade)
        raise MptuneError(f"no unseen input could be made: {'; '.join(why) or 'the worker was lost'}")
    is_of_another = bool(edited(run.info, definition))
    return Verification(run, trial, tuple(cases), is_kept, is_of_another, time.monotonic() - start)


def _own_configuration(kernel: Tunable, sizes: Sizes, trial: Trial) -> Configuration:
    """Return a configuration of a file with the values as the kernel declares them, which alone are rendered.

    Raises:
        MptuneError: they are no valid configuration of the kernel at these sizes.
    """
    if trial.configuration not in whole_space(kernel, sizes):
        raise MptuneError(f"{trial.configuration} is no valid configuration of {kernel.called} at {sizes}")
    return kernel.own(trial.configuration)


def _place(kernel: Tunable, own: Sizes, given: str | Mapping[str, int]) -> Sizes:
    if isinstance(given, str):
        return kernel.resolve_sizes(given)
    return kernel.resolve_sizes("default", {**own, **given})


def _evaluator(run: Run, kernel: Tunable, sizes: Sizes) -> DeviceEvaluator:
    info = run.info
    outputs = [output.name for output in kernel.outputs]
    metric = recorded_metrics(info.metric, info.metrics, outputs, kernel.metric)
    backend = runnable_backend(info.backend)
    flags = options_of(info, backend).flags
    return DeviceEvaluator(kernel, sizes, backend, metric=metric, seed=info.seed or 0, flags=flags)


def _why_not_kept(path: str | Path, run: Run, kernel: Tunable, trial: Trial, evaluator: DeviceEvaluator) -> list[str]:
    """Return why the run file cannot keep results: changed conditions, or a file that does not open."""
    ready = evaluator.start()
    now = dataclasses.replace(run.info, compiler=ready.identity, data_key=ready.data_key)
    reasons = [*remarks(run.info, kernel), *now.changes_since(run.info)]
    if not run.info.objective.is_feasible(trial):
        reasons.append("the configuration is not feasible")
    try:
        RunFile.open(path).close()
    except RunFileError as error:
        reasons.append(str(error))
    return reasons


def _keep(path: str | Path, trial: Trial) -> None:
    with RunFile.open(path) as file:
        is_baseline_s = any(known.configuration == trial.configuration for known in file.trials("baseline"))
        file.add(trial, "baseline" if is_baseline_s else "search")


def _run(
    evaluator: DeviceEvaluator, configuration: Configuration, draws: Sequence[Draw], tell: Callable[[int], None]
) -> tuple[dict[Draw, Trial], dict[Draw, str]]:
    """Return the trial on each draw, and why draws could not be made; the last trial may have ended the worker."""
    trials: dict[Draw, Trial] = {}
    unmade: dict[Draw, str] = {}
    for start in range(0, len(draws), _PIECE):
        piece = draws[start : start + _PIECE]
        found = evaluator.run_on_draws([configuration], piece)
        tell(len(piece))
        trials.update(zip(found.draws, found.trials, strict=True))
        unmade.update(found.unmade)
        is_lost = len(found.trials) + len(found.unmade) < len(piece)
        if is_lost or any(trial.status in _ENDING for trial in found.trials):
            break
    return trials, unmade


def _case(
    run: Run, sizes: Sizes, found: Mapping[Draw, Trial], unmade: Mapping[Draw, str], before: Trial | None
) -> Case:
    """Return the result at some sizes, with what unseen inputs said of the trial before."""
    objective = run.info.objective
    known = None if before is None else Verified.of(before, objective)
    known = known or Verified(0, 0, 0.0)
    # A failure breaks every limit.
    is_number = {draw: one.status is Status.OK and not math.isnan(one.error) for draw, one in found.items()}
    errors = {draw: one.error if is_number[draw] else math.inf for draw, one in found.items()}
    excess = {draw: objective.error_excess(one) if one.status is Status.OK else math.inf for draw, one in found.items()}
    worst = max(errors, key=lambda draw: errors[draw], default=None)
    verified = Verified(
        known.inputs + len(found),
        known.violations + sum(each > 0 for each in excess.values()),
        max(known.worst_error, *errors.values(), 0.0),
    )
    closest = ""
    right = [draw for draw, one in found.items() if one.status is Status.OK]
    if right and isinstance(objective.threshold, Mapping):
        one = found[max(right, key=lambda draw: excess[draw])]
        name = objective.binding(one)
        closest = f"{run.info.measured_by(name)} {one.metric(name):.3g} (limit {objective.limits[name]:g})"
    failures = Counter(one.status.value for one in found.values() if one.status is not Status.OK)
    return Case(
        dict(sizes),
        verified if verified.inputs else None,
        worst,
        dict(failures),
        tuple(dict.fromkeys(unmade.values())),
        closest,
    )
