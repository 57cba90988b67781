"""A configuration of a run on more inputs than anybody has seen: at other sizes and scales, and the worst of them."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any, Final, TypeVar

from mptune.accuracy.thresholds import recorded_metrics
from mptune.adopt.sizes import make_ready
from mptune.backends.base import options_of
from mptune.buffers import Draw, Stream
from mptune.emit import select, sizes_of
from mptune.errors import MptuneError, RunFileError
from mptune.evaluators.device import DeviceEvaluator
from mptune.evaluators.devices import runnable_backend
from mptune.hunting import hunt
from mptune.kernel import Sizes, Tunable
from mptune.kernel.limits import whole_space
from mptune.registry import edited, remarks, tunable_of_run
from mptune.results import Status, Trial
from mptune.run import Run, json_document
from mptune.store import RunFile
from mptune.unseen import Verified, after_draws, count_of, limit_of, next_unseen

__all__ = ["Case", "Hunted", "Verification", "verify"]

#: Inputs before it is known how long they take, and how long as many take that are run together.
_FIRST: Final = 5
_PIECE_S: Final = 2.0
#: Of the search's draws so many are where a hunt begins, beside the worst that is known of others.
_BEGINNINGS: Final = 32
_Given = TypeVar("_Given")


@dataclass(frozen=True, slots=True)
class Case:
    """A configuration on unseen inputs of one size and scale.

    Attributes:
        sizes: the problem sizes.
        scale: factor of every floating-point array.
        verified: what they said, with those of earlier sessions where they count together.
        worst: the input of the largest error in this session, the first that gave no usable numbers if any did; None if
            no input could be made.
        ranges: the values of the kernel's ranges there, by name.
        failures: how many gave no usable numbers, by status; they break every limit.
        unmade: inputs that could not be made, and why, each reason once.
        closest: of several limits, the error that came closest to its own in this session, or exceeded it by most, in
            words with both; empty for one limit.
    """

    sizes: Mapping[str, int]
    scale: float
    verified: Verified | None
    worst: Draw | None
    ranges: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    unmade: tuple[str, ...] = ()
    closest: str = ""


@dataclass(frozen=True, slots=True)
class Hunted:
    """The worst input that was found on purpose; it says nothing about how many are like it.

    Attributes:
        inputs: how many were tried.
        seconds: how long that took.
        error: the largest error; infinite where the kernel failed.
        excess: log10 of the factor by which it exceeds the limit, at most 0 if it does not; NaN without a limit.
        draw: the input.
        ranges: the values of the kernel's ranges there, by name.
        status: how the kernel ended on it.
    """

    inputs: int
    seconds: float
    error: float
    excess: float
    draw: Draw
    ranges: Mapping[str, float]
    status: Status


@dataclass(frozen=True, slots=True)
class Verification:
    """What :func:`verify` found.

    Attributes:
        run: the run, as it was before.
        trial: the configuration that was verified.
        cases: a result for each size and scale.
        hunted: the worst input found on purpose, None if nobody looked for it.
        is_kept: whether the run file has what was found at its own sizes.
        is_of_another: whether the kernel is another than that of the run: its definition or template has changed.
        wall_s: how long all of it took.
    """

    run: Run
    trial: Trial
    cases: tuple[Case, ...]
    hunted: Hunted | None
    is_kept: bool
    is_of_another: bool
    wall_s: float

    @property
    def holds(self) -> bool:
        """Whether no input broke a limit or made the kernel fail."""
        found = [case.verified for case in self.cases if case.verified is not None]
        hunted = self.hunted is not None and (self.hunted.excess > 0 or self.hunted.status is not Status.OK)
        return not hunted and not any(verified.violations for verified in found)

    def words(self, case: Case) -> str:
        """Say what a case means; empty where no input could be made."""
        text = "" if case.verified is None else case.verified.words(limit_of(self.run.info.objective))
        return f"another definition than the run's: {text}" if text and self.is_of_another else text

    def to_json(self) -> dict[str, Any]:
        """Return the document ``mptune verify --json`` prints."""
        info, hunted = self.run.info, self.hunted
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
                        "scale": case.scale,
                        "verified": None if case.verified is None else case.verified.to_json(),
                        "worst_input": None if case.worst is None else _input(case.worst) | {"ranges": case.ranges},
                        "failures": case.failures,
                        "unmade": case.unmade,
                        "closest": case.closest or None,
                    }
                    for case in self.cases
                ],
                "hunt": None
                if hunted is None
                else {
                    "inputs": hunted.inputs,
                    "seconds": hunted.seconds,
                    "error": hunted.error,
                    "factor": 10**hunted.excess if hunted.excess < _MOST_DECADES else None,
                    "status": hunted.status,
                    "worst_input": _input(hunted.draw) | {"ranges": hunted.ranges},
                },
                "wall_s": self.wall_s,
            }
        )


_MOST_DECADES: Final = 300


def _input(draw: Draw) -> dict[str, Any]:
    return {"number": draw.number + 1, "spawn_key": draw.spawn_key, "scale": draw.scale}


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)  # where verify was called


def verify(
    run_file: str | Path,
    kernel: Tunable | str | Path | None = None,
    *,
    configuration: str = "",
    inputs: int = 59,
    sizes: Sequence[str | Mapping[str, int]] = (),
    scales: Sequence[float] = (),
    hunt_s: float = 0.0,
    on_input: Callable[[int], None] = lambda _: None,
    on_warning: Callable[[str], None] = _warn,
) -> Verification:
    """Run a configuration of a run on inputs that nobody searched with.

    They go on where the run's own verification, or the last call, ended. What is found at the run's own sizes is kept
    in the run file, piece by piece: an interrupted call goes on there. A hunt begins with the worst that is known.

    Args:
        run_file: the run.
        kernel: its kernel or application, unless it is a bundled one: that itself, a definition file or the folder that
            holds it.
        configuration: which trial, as ``mptune emit`` takes it; empty for the best.
        inputs: how many, for each size and scale.
        sizes: sizes to verify at, one after the other: a preset's name, or numbers by name (as text ``"n=100,m=3"``),
            of which those that are missing are the run's. By default the run's own alone.
        scales: factors of every floating-point array, one after the other; by default 1 alone.
        hunt_s: how long to look for the worst input, in seconds, at the first of the sizes and scales.
        on_input: told after every few inputs how many they were.
        on_warning: told what differs from the conditions of the run; by default a warning.

    Raises:
        RunFileError: the run file cannot be read.
        KernelError: the kernel is not found, or not that of the run.
        MptuneError: there is no such trial, it cannot run here, or none of the inputs could be made.
    """
    start = time.monotonic()
    _check(inputs, scales, hunt_s)
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
    places = _distinct([_place(definition, own, given) for given in sizes or ({},)], "the sizes {}", on_warning)
    for place in places:
        make_ready(definition, place, on_progress=on_warning)
    scales = _distinct(scales or (1.0,), "the scale {:g}", on_warning)
    cases: list[Case] = []
    hunted: Hunted | None = None
    is_kept = False
    for place in places:
        subject_at = _known(definition, place, trial)
        with _evaluator(run, definition, place) as evaluator:
            keeper = _Keeper(run_file, run, definition, trial, evaluator, on_warning) if place == own else None
            subject = _Subject(run, definition, evaluator, subject_at, on_input)
            for scale in scales:
                known = keeper if keeper is not None and keeper.is_usable and scale == 1 else None
                # Inputs of another size or scale are others, whatever their numbers.
                first = next_unseen(trial) if place == own and scale == 1 else 0
                try:
                    cases.append(subject.case(place, scale, inputs, known, first))
                    if hunt_s and hunted is None:
                        hunted = subject.hunted(scale, hunt_s, cases[0].worst, known)
                except KeyboardInterrupt:
                    if known is not None:
                        on_warning(f"what was found is kept in {run_file}: the same command goes on from there")
                    raise
                is_kept = is_kept or known is not None
    if hunted is None and not any(case.verified for case in cases):
        reasons = dict.fromkeys(reason for case in cases for reason in case.unmade)
        raise MptuneError(f"no unseen input could be made: {'; '.join(reasons) or 'the worker was lost'}")
    is_of_another = bool(edited(run.info, definition))
    return Verification(run, trial, tuple(cases), hunted, is_kept, is_of_another, time.monotonic() - start)


def _known(kernel: Tunable, sizes: Sizes, trial: Trial) -> Trial:
    """Return a trial of a file with the values as the kernel declares them, which alone are rendered.

    Raises:
        MptuneError: they are no valid configuration of the kernel at these sizes.
    """
    if trial.configuration not in whole_space(kernel, sizes):
        raise MptuneError(f"{trial.configuration} is no valid configuration of {kernel.called} at {sizes}")
    return dataclasses.replace(trial, configuration=kernel.own(trial.configuration))


def _distinct(given: Sequence[_Given], what: str, on_warning: Callable[[str], None]) -> list[_Given]:
    """Return each of what is given once; say which were given again, as their inputs would only be counted again."""
    found: list[_Given] = []
    for each in given:
        if each not in found:
            found.append(each)
            if (times := given.count(each)) > 1:
                on_warning(f"{what.format(each)}, given {times} times: the same inputs are run and counted once")
    return found


def _place(kernel: Tunable, own: Sizes, given: str | Mapping[str, int]) -> Sizes:
    """Return the sizes somebody asks for."""
    if isinstance(given, str) and "=" not in given:
        return kernel.resolve_sizes(given)
    if not isinstance(given, str):
        return kernel.resolve_sizes("default", {**own, **given})
    values: dict[str, int] = {}
    for part in given.split(","):
        name, equals, value = part.partition("=")
        try:
            values[name.strip()] = int(value) if value.strip().lstrip("+-").isdecimal() else int(_whole(float(value)))
        except (ValueError, OverflowError):
            expected = "a whole number" if equals else "NAME=VALUE by commas, or a preset"
            raise MptuneError(f"size {part!r}: expected {expected}") from None
    return kernel.resolve_sizes("default", {**own, **values})


def _whole(value: float) -> float:
    if not value.is_integer():
        raise ValueError
    return value


def _check(inputs: int, scales: Sequence[float], hunt_s: float) -> None:
    if inputs < 1:
        raise MptuneError(f"inputs {inputs}: expected at least 1")
    for scale in scales:
        if not (math.isfinite(scale) and scale != 0):
            raise MptuneError(f"scale {scale:g}: expected a finite number other than 0")
    if not (math.isfinite(hunt_s) and hunt_s >= 0):
        raise MptuneError(f"hunt {hunt_s:g}: expected a number of seconds")


def _evaluator(run: Run, kernel: Tunable, sizes: Sizes) -> DeviceEvaluator:
    info = run.info
    outputs = [output.name for output in kernel.outputs]
    metric = recorded_metrics(info.metric, info.metrics, outputs, kernel.metric)
    backend = runnable_backend(info.backend)
    flags = options_of(info, backend).flags
    return DeviceEvaluator(kernel, sizes, backend, metric=metric, seed=info.seed or 0, flags=flags)


class _Keeper:
    """Keeps in the run file what is found at its own sizes, if everything is as it was during the run.

    Attributes:
        trial: what the run file has of the configuration.
        is_usable: whether anything can be kept; the warning has said why not.
    """

    def __init__(
        self,
        path: str | Path,
        run: Run,
        kernel: Tunable,
        trial: Trial,
        evaluator: DeviceEvaluator,
        on_warning: Callable[[str], None],
    ) -> None:
        self._path = path
        self._objective = run.info.objective
        self.trial = trial
        ready = evaluator.start()
        now = dataclasses.replace(run.info, compiler=ready.identity, data_key=ready.data_key)
        reasons = [*remarks(run.info, kernel), *now.changes_since(run.info)]
        if not run.info.objective.is_feasible(trial):
            reasons.append("the configuration is not feasible")
        if trial.measurement.reused_error:
            reasons.append("its error in the run was measured on another configuration")
        self.is_usable = not reasons
        if reasons:
            on_warning(f"what is found is not kept in {path}: {'; '.join(reasons)}")
        else:
            try:
                with RunFile.open(path) as file:
                    is_baseline_s = any(t.configuration == trial.configuration for t in file.trials("baseline"))
                self._phase = "baseline" if is_baseline_s else "search"
            except RunFileError as error:
                self.is_usable = False
                on_warning(f"what is found is not kept: {error}")

    def keep(self, trial: Trial) -> None:
        """Commit what the trial has become."""
        self.trial = self._objective.judge(trial)
        with RunFile.open(self._path) as file:
            file.add(self.trial, self._phase)


class _Subject:
    """One configuration, run on draws.

    Args:
        run: whose error limits and seed count.
        kernel: what it is a configuration of.
        evaluator: runs it.
        trial: what the run knows of it.
        tell: told how many inputs there have just been.
    """

    def __init__(
        self, run: Run, kernel: Tunable, evaluator: DeviceEvaluator, trial: Trial, tell: Callable[[int], None]
    ) -> None:
        self._objective = run.info.objective
        self._measured_by = run.info.measured_by
        self._fallen = run.fallen_beside(trial)
        self._kernel = kernel
        self._seed = run.info.seed or 0
        self._evaluator = evaluator
        self._trial = trial
        self._tell = tell
        self._draw_s = math.inf

    def case(self, sizes: Sizes, scale: float, inputs: int, keeper: _Keeper | None, first: int) -> Case:
        """Verify on so many inputs more than the trial has seen, from the number ``first`` on."""
        before = Verified.of(self._trial, self._objective) if keeper is not None else None
        seen, broken = (before.inputs, before.violations) if before is not None else (0, 0)
        worst_error = before.worst_error if before is not None else 0.0
        worst: tuple[float, Draw] | None = None
        closest, least_spare = "", math.inf
        failures: Counter[str] = Counter()
        unmade: dict[str, None] = {}
        left = inputs
        further = (Draw(Stream.UNSEEN, number, scale) for number in count(first))
        while left > 0:
            draws = list(islice(further, min(left, self._piece())))
            found, reasons = self._run(draws)
            unmade.update(dict.fromkeys(reasons))
            left -= len(draws)
            seen += len(found)
            for draw, one in found:
                error, excess = self._judged(one)
                broken += one.status is not Status.OK or excess > 0
                if one.status is Status.OK and -excess < least_spare:
                    closest, least_spare = self._closest(one), -excess
                failures.update([one.status.value] if one.status is not Status.OK else [])
                worst_error = max(worst_error, error)
                worst = max([*([worst] if worst else []), (error, draw)], key=lambda pair: pair[0])
            has_failed = any(one.status is not Status.OK for _, one in found)
            if keeper is not None and found and (has_failed or keeper.trial.is_valid):
                keeper.keep(after_draws(keeper.trial, dict(found), self._objective))
            if len(found) < len(draws) - len(reasons) or any(one.status in _ENDING for _, one in found):
                break  # it ends the worker: one input more tells nothing new
        fallen = self._fallen if before is not None else 0
        verified = Verified(seen, broken, worst_error, fallen) if seen else None
        on = worst[1] if worst else None
        ranges = {} if on is None else on.range_values(self._kernel, on.generator(self._seed))
        return Case(dict(sizes), scale, verified, on, ranges, dict(failures), tuple(unmade), closest)

    def hunted(self, scale: float, seconds: float, found: Draw | None, keeper: _Keeper | None) -> Hunted:
        """Look for the worst input for so long, beginning with the worst that is known, ``found`` just now among it."""
        tried: dict[Draw, Trial] = {}
        start = time.monotonic()
        trial = self._trial if keeper is None else keeper.trial
        known = _worst_known(trial, len(self._kernel.ranges), found)
        begin = [draw.with_ranges(self._kernel, self._seed) for draw in known]
        first = 0 if keeper is None else count_of(trial, "hunted_next")

        def scores(draws: Sequence[Draw]) -> list[float]:
            scaled = [dataclasses.replace(draw, scale=scale) for draw in draws]
            found = dict(self._run(scaled)[0])
            tried.update(found)
            return [self._score(found.get(draw)) for draw in scaled]

        ranges = len(self._kernel.ranges)
        try:
            draw, _ = hunt(scores, ranges, seconds, self._seed, time.monotonic, known=begin, first=first)
        except KeyboardInterrupt:
            if keeper is not None and tried:
                keeper.keep(_with_hunt(trial, max(tried, key=lambda draw: self._score(tried[draw])), tried, first))
            raise
        worst = dataclasses.replace(draw, scale=scale)
        one = tried.get(worst)
        if one is None:
            raise MptuneError(f"hunt: no input could be made within {seconds:g} s")
        error, excess = self._judged(one)
        if keeper is not None:
            keeper.keep(_with_hunt(trial, worst, tried, first))
        values = worst.range_values(self._kernel, worst.generator(self._seed))
        return Hunted(len(tried), time.monotonic() - start, error, excess, worst, values, one.status)

    def _piece(self) -> int:
        return _FIRST if math.isinf(self._draw_s) else max(1, int(_PIECE_S / max(self._draw_s, 1e-6)))

    def _run(self, draws: Sequence[Draw]) -> tuple[list[tuple[Draw, Trial]], list[str]]:
        start = time.monotonic()
        found = self._evaluator.run_on_draws([self._trial.configuration], draws)
        self._draw_s = (time.monotonic() - start) / max(1, len(draws))
        self._tell(len(draws))
        return list(zip(found.draws, found.trials, strict=True)), list(found.unmade.values())

    def _judged(self, one: Trial) -> tuple[float, float]:
        """Return the error of a trial, infinite for a failure, and by how many decades it is above the limit."""
        if one.status is not Status.OK:
            return math.inf, math.inf
        limited = self._objective.error_excess(one) if self._objective.limits else math.nan
        return (math.inf if math.isnan(one.error) else one.error), limited

    def _closest(self, one: Trial) -> str:
        """Say which of several errors comes closest to its limit; empty for one limit."""
        if not isinstance(self._objective.threshold, Mapping):
            return ""
        name = self._objective.binding(one)
        return f"{self._measured_by(name)} {one.metric(name):.3g} (limit {self._objective.limits[name]:g})"

    def _score(self, one: Trial | None) -> float:
        """Return what a hunt makes as large as possible; NaN for an input that could not be made."""
        if one is None:
            return math.nan
        error, excess = self._judged(one)
        score = excess if not math.isnan(excess) else math.log10(error) if error > 0 else -math.inf
        return min(max(score, -_MOST_DECADES), _MOST_DECADES)


def _worst_known(trial: Trial, ranges: int, found: Draw | None) -> list[Draw]:
    """Return what a hunt begins with: the worst of the last hunt and of unseen inputs, and the search's draws.

    Args:
        trial: of which that is the worst.
        ranges: how many the kernel has.
        found: the worst of the unseen inputs of this session.
    """
    metrics = trial.measurement.metrics
    draws: list[Draw] = []
    shares = tuple(value for name, value in metrics.items() if name.startswith("hunted_share."))
    # Of another definition of the kernel, or of a file somebody else has written, it may be no input at all.
    if metrics.get("hunted_stream") in list(Stream) and len(shares) == ranges and all(0 <= s <= 1 for s in shares):
        stream = Stream(int(metrics["hunted_stream"]))
        draws.append(Draw(stream, count_of(trial, "hunted_number"), ranges=shares))
    draws += [found] if found is not None else []
    if "unseen_worst" in metrics:
        draws.append(Draw(Stream.UNSEEN, count_of(trial, "unseen_worst")))
    searched = count_of(trial, "error_draws", 1) - count_of(trial, "unseen_inputs")
    return draws + [Draw(Stream.SEARCH, number) for number in range(min(searched, _BEGINNINGS))]


def _with_hunt(trial: Trial, worst: Draw, tried: Collection[Draw], first: int) -> Trial:
    """Return a trial with where the next hunt begins: the worst input, and the number of the first seed not tried.

    Args:
        trial: as it was before.
        worst: the input of the largest error.
        tried: all inputs of the hunt.
        first: number of its first seed.
    """
    # What is known from before has an earlier number.
    following = max((first, *(draw.number + 1 for draw in tried if draw.stream is Stream.HUNTED)))
    kept = {name: v for name, v in trial.measurement.metrics.items() if not name.startswith("hunted_")}
    kept |= {"hunted_stream": int(worst.stream), "hunted_number": worst.number, "hunted_next": following}
    kept |= {f"hunted_share.{i}": share for i, share in enumerate(worst.ranges)}
    return trial.with_measurement(metrics=kept)


#: What may end the worker, or does each time.
_ENDING: Final = (Status.CRASH, Status.TIMEOUT, Status.COMPILE_ERROR, Status.LAUNCH_ERROR, Status.CORRUPT)
