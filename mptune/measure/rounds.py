"""Measurement of configurations in turn, so that other work of the machine affects all of them alike.

:func:`remeasure` runs in a worker; :class:`Turns` requests it and keeps the times round by round.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Final

from mptune.data import Draw
from mptune.measure.bench import Bench, Request
from mptune.measure.policy import Plan, errors_of
from mptune.measure.timing import TimingPlan
from mptune.observers.launches import ThroughputObserver, time_metrics
from mptune.results.kernel_times import by_kernel
from mptune.results.trial import Trial
from mptune.space.configuration import Configuration

if TYPE_CHECKING:
    from mptune.measure.device import DeviceEvaluator

#: Launches in a configuration's turn, the same for each, so that rounds are comparable.
VISIT: Final = TimingPlan(warmups=1, min_repeats=5, max_repeats=5)
#: Target duration of a turn in ms: several short launches, whose shortest counts, or a single long one; and the launch
#: time in ms without a warm-up.
_VISIT_MS: Final = 30.0
_LONG_MS: Final = 300.0
#: Duration in ms that very short launches may take together, so that one of them is undisturbed.
_SHORT_VISIT_MS: Final = 1.0
_MOST_LAUNCHES: Final = 25


@dataclass(frozen=True, slots=True)
class Finished:
    """Trials that a worker measured together: turns of rounds, or configurations on draws of the inputs."""

    trials: tuple[Trial, ...]
    draws: tuple[Draw, ...] = ()  #: of each trial on a draw
    unmade: Mapping[Draw, str] = field(default_factory=dict)  #: why inputs or references could not be made
    tasks_per_core: float | None = None  #: mean number of other tasks per core in rounds; None if not known
    calibration_ms: tuple[float, ...] = ()  #: time of fixed work after each turn, if known

    def __add__(self, other: Finished) -> Finished:
        tasks = [each.tasks_per_core for each in (self, other) if each.tasks_per_core is not None]
        is_calibrated = all(len(each.calibration_ms) == len(each.trials) for each in (self, other))
        return Finished(
            self.trials + other.trials,
            self.draws + other.draws,
            {**self.unmade, **other.unmade},
            math.fsum(tasks) / len(tasks) if tasks else None,
            self.calibration_ms + other.calibration_ms if is_calibrated else (),
        )


def visit_of(time_ms: float) -> TimingPlan:
    """Return the launches of a turn for configurations with about this launch time."""
    if not time_ms > 0:
        return VISIT
    few = min(VISIT.min_repeats, max(1, round(_VISIT_MS / time_ms)))
    launches = max(few, min(_MOST_LAUNCHES, int(_SHORT_VISIT_MS / time_ms)))
    return TimingPlan(warmups=int(time_ms < _LONG_MS), min_repeats=launches, max_repeats=launches)


def remeasure(bench: Bench, requests: Iterable[Request], rounds: int, visit: TimingPlan = VISIT) -> Iterator[Trial]:
    """Measure configurations in rounds, back and forth, and yield the trial of each turn of ``visit``'s launches.

    Checks and observers of their plans run in the first round. A failed configuration is left out of later rounds. A
    failure that leaves the device unusable ends the rounds.
    """
    waiting = {request.configuration: request for request in requests}
    with bench.keeping_loaded():
        for turn in range(rounds):
            for request in list(waiting.values()) if turn % 2 == 0 else list(reversed(waiting.values())):
                trial = bench.evaluate(request, visit)
                yield trial
                if trial.is_valid:
                    again = Plan(errors_of(trial), observe=False, thresholds=request.plan.thresholds)
                    waiting[request.configuration] = dataclasses.replace(request, plan=again)
                else:
                    del waiting[request.configuration]
                    if not bench.is_usable(trial):
                        return


class Turns:
    """The turns of configurations, whose earlier ``trials`` are given, and their times.

    ``visit`` has the launches of a turn; its default suits the fastest of them.
    """

    def __init__(self, evaluator: DeviceEvaluator, trials: Sequence[Trial], visit: TimingPlan | None = None) -> None:
        self._evaluator = evaluator
        self._before = {trial.configuration: trial for trial in trials}
        self._visit = visit or visit_of(min(trial.time_ms for trial in trials))
        self._turns: dict[Configuration, list[Trial]] = {}
        self._tasks: list[float] = []
        self._calibration_ms: list[float] = []
        self._spent_s = 0.0

    @property
    def measured(self) -> tuple[Configuration, ...]:
        """The configurations that have had a turn."""
        return tuple(self._turns)

    @property
    def tasks_per_core(self) -> float | None:
        """Mean number of other tasks per core; None if not known."""
        return math.fsum(self._tasks) / len(self._tasks) if self._tasks else None

    @property
    def calibration_ms(self) -> tuple[float, ...]:
        """Time of fixed work in each round that :meth:`measure` returned; empty if not known."""
        return tuple(self._calibration_ms) if all(map(math.isfinite, self._calibration_ms)) else ()

    def runs(self, configuration: Configuration) -> bool:
        """Whether a configuration has had a turn and never failed."""
        return configuration in self._turns and self._turns[configuration][-1].is_valid

    def round_s(self, configurations: int) -> float:
        """Return the estimated seconds of a round of so many configurations."""
        return configurations * self._spent_s / max(1, sum(map(len, self._turns.values())))

    def measure(self, configurations: Sequence[Configuration], rounds: int) -> list[Mapping[Configuration, float]]:
        """Measure some of the configurations; return the shortest launch of each in each round, without failures."""
        start = time.monotonic()
        latest = [self._turns.get(c, [self._before[c]])[-1] for c in configurations]
        answer = self._evaluator.remeasure(latest, rounds, self._visit)
        self._spent_s += time.monotonic() - start
        if answer.tasks_per_core is not None:
            self._tasks += [answer.tasks_per_core] * rounds
        found: list[dict[Configuration, float]] = [{} for _ in range(rounds)]
        calibration_ms = [math.inf] * rounds
        taken = dict.fromkeys(configurations, 0)
        for trial, work_ms in zip(answer.trials, answer.calibration_ms or repeat(math.inf), strict=False):
            turn = taken[trial.configuration]
            calibration_ms[turn] = min(calibration_ms[turn], work_ms)
            self._turns.setdefault(trial.configuration, []).append(trial)
            if trial.measurement.times_ms and trial.is_valid:
                # A coarse clock may give 0, which has no ratio.
                found[turn][trial.configuration] = max(min(trial.measurement.times_ms), 1e-6)
                taken[trial.configuration] += 1
        self._calibration_ms += [ms for ms, times in zip(calibration_ms, found, strict=True) if times]
        return [times for times in found if times]

    def trials(self) -> list[Trial]:
        """Return one trial for all turns of each configuration, with the durations of all its evaluations."""
        merged = [together(turns) for turns in self._turns.values()]
        return [t.with_measurement(durations_s=_durations_s([self._before[t.configuration], t])) for t in merged]


def together(trials: Sequence[Trial]) -> Trial:
    """Return one trial for all turns of a configuration: the failed turn, or the median of all launches."""
    first, last = trials[0], trials[-1]
    if not last.is_valid:
        return last
    times_ms = tuple(time_ms for trial in trials for time_ms in trial.measurement.times_ms)
    metrics = {**first.measurement.metrics, **errors_of(last), **time_metrics(times_ms)}
    metrics |= by_kernel(trials)
    for name in metrics.keys() & set(ThroughputObserver.metrics):
        metrics[name] *= first.time_ms / metrics["time_ms"]
    return first.with_measurement(metrics=metrics, times_ms=times_ms, durations_s=_durations_s(trials))


def _durations_s(trials: Sequence[Trial]) -> dict[str, float]:
    phases = dict.fromkeys(name for trial in trials for name in trial.measurement.durations_s)
    return {name: math.fsum(trial.measurement.durations_s.get(name, 0.0) for trial in trials) for name in phases}
