"""Measuring configurations again in turn, so that whatever else the machine does hits all of them alike."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from mptune.evaluators.bench import Bench, Request
from mptune.evaluators.timing import TimingPlan
from mptune.observers.throughput import ThroughputObserver
from mptune.observers.time import time_metrics
from mptune.policy import Action, Plan, errors_of
from mptune.rendering import render
from mptune.results import Trial
from mptune.space.configuration import Configuration

__all__ = ["VISIT", "Remeasured", "measure_in_turn", "remeasure", "together", "visit_of"]

#: Launches each time a configuration's turn comes: as many for each, so that every round counts the same.
VISIT: Final = TimingPlan(warmups=1, min_repeats=5, max_repeats=5)
#: Turns take at most about so long where launches do: of short launches several, of which the shortest counts, of long
#: ones a single one, within which as much evens out. What takes even longer needs no warming up either.
_VISIT_MS: Final = 30.0
_LONG_MS: Final = 300.0
#: Very short launches are many, up to this time together: there is hardly one that nothing disturbs.
_SHORT_VISIT_MS: Final = 1.0
_MOST_LAUNCHES: Final = 25


def visit_of(time_ms: float) -> TimingPlan:
    """Return how often each of several configurations is launched in its turn, if a launch takes about so long."""
    if not time_ms > 0:
        return VISIT
    few = min(VISIT.min_repeats, max(1, round(_VISIT_MS / time_ms)))
    launches = max(few, min(_MOST_LAUNCHES, int(_SHORT_VISIT_MS / time_ms)))
    return TimingPlan(warmups=int(time_ms < _LONG_MS), min_repeats=launches, max_repeats=launches)


@dataclass(frozen=True, slots=True)
class Remeasured:
    """A configuration measured in several rounds.

    Attributes:
        trial: of the first round, in which the error was measured.
        times_ms: the median launch time of each round.
    """

    trial: Trial
    times_ms: list[float] = field(default_factory=list)

    @property
    def time_ms(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.times_ms)

    @property
    def spread_ms(self) -> float:
        """Interquartile range of the rounds; 0 for a single one."""
        if len(self.times_ms) < 2:
            return 0.0
        lower, _, upper = statistics.quantiles(self.times_ms, n=4, method="inclusive")
        return upper - lower


def measure_in_turn(
    bench: Bench,
    configurations: Iterable[Configuration],
    rounds: int,
    on_failure: Callable[[Trial], None] = lambda _: None,
) -> dict[Configuration, Remeasured]:
    """Measure configurations in rounds, back and forth, each after its own warm-up.

    Args:
        bench: measures, with as few launches a visit as its plan says.
        configurations: each is measured once a round, however often it comes.
        rounds: how many.
        on_failure: told about the trial of a configuration that fails; it is left out from then on.
    """
    requests = [Request(c, render(bench.kernel, c, bench.sizes)) for c in dict.fromkeys(configurations)]
    found: dict[Configuration, Remeasured] = {}
    for trial in _visits(bench, requests, rounds):
        if trial.is_valid:
            found.setdefault(trial.configuration, Remeasured(trial)).times_ms.append(trial.time_ms)
        else:
            found.pop(trial.configuration, None)
            on_failure(trial)
    return found


def remeasure(bench: Bench, requests: Sequence[Request], rounds: int, visit: TimingPlan = VISIT) -> Iterator[Trial]:
    """Measure configurations again in turn, as :func:`measure_in_turn` does, and yield the trial of each turn.

    One that fails is left out from then on. Where a failure leaves the device unusable it ends there, and
    configurations whose first turn had not come are missing.

    Args:
        bench: measures.
        requests: the configurations; what their plans say of checking and observing is done in the first round.
        rounds: how many.
        visit: how often to launch each time.
    """
    for trial in _visits(bench, requests, rounds, visit):
        yield trial
        if not trial.is_valid and not bench.is_usable(trial):
            return


def _visits(bench: Bench, requests: Iterable[Request], rounds: int, visit: TimingPlan | None = None) -> Iterator[Trial]:
    """Yield the trials of all visits, back and forth; a configuration that fails is left out from then on."""
    waiting = {request.configuration: request for request in requests}
    with bench.keeping_loaded():
        for turn in range(rounds):
            for configuration in list(waiting) if turn % 2 == 0 else list(reversed(waiting)):
                trial = bench.evaluate(waiting[configuration], visit)
                if not trial.is_valid:
                    del waiting[configuration]
                else:
                    # What every visit but the first is for.
                    request = waiting[configuration]
                    again = Plan(
                        Action.REUSE,
                        "its error was measured in an earlier round",
                        errors_of(trial),
                        observe=False,
                        is_own=True,
                        thresholds=request.plan.thresholds,
                    )
                    waiting[configuration] = dataclasses.replace(request, plan=again)
                yield trial


def together(trials: Sequence[Trial]) -> Trial:
    """Return one trial for all turns of a configuration, the failed one if one is.

    Its raw times are those of all rounds in the order they were taken, its time their median.
    """
    first, last = trials[0], trials[-1]
    if not last.is_valid:
        return last
    times_ms = tuple(time_ms for trial in trials for time_ms in trial.measurement.times_ms)
    phases = {name: 0.0 for trial in trials for name in trial.measurement.durations_s}
    durations_s = {name: math.fsum(trial.measurement.durations_s.get(name, 0.0) for trial in trials) for name in phases}
    metrics = {**first.measurement.metrics, **errors_of(last), **time_metrics(times_ms)}
    for name in metrics.keys() & set(ThroughputObserver.metrics):
        metrics[name] *= first.time_ms / metrics["time_ms"]
    return dataclasses.replace(
        first,
        measurement=dataclasses.replace(first.measurement, metrics=metrics, times_ms=times_ms, durations_s=durations_s),
    )
