"""The process that compiles and launches, so that whatever a kernel does leaves the tuner standing."""

from __future__ import annotations

import contextlib
import math
import resource
import statistics
from pathlib import Path
from typing import Any, Final

from mptune.backends import get_backend
from mptune.backends.processes import Channel
from mptune.backends.processor import fixed_work_ms, other_tasks_per_core
from mptune.data import Draw
from mptune.data.memory import total_memory_bytes
from mptune.errors import MptuneError
from mptune.measure.bench import Bench
from mptune.measure.faults import tell_of_faults
from mptune.measure.protocol import (
    Capture,
    Finished,
    Job,
    MeasureRates,
    OnDraws,
    PhaseBegins,
    Quiet,
    Reached,
    Rounds,
    Traced,
)
from mptune.measure.rounds import remeasure
from mptune.results.trial import Status, Trial

__all__ = ["main", "run_on_draws"]

#: How long the machine itself is timed after each turn: as a launch of the turn took, within these limits.
_LEAST_WORK_MS: Final = 0.5
_MOST_WORK_MS: Final = 5.0
#: Ended by the system before any other process that needs memory.
_FIRST_TO_GO: Final = "1000"


def main(channel: Channel) -> None:
    """Serve requests, in the messages of :mod:`mptune.measure.protocol`, until the connection closes."""
    try:
        bench = _start(channel)
    except MptuneError as error:
        channel.send(error)
        return
    if bench.is_on_processor:
        _limit_memory()
        tell_of_faults(lambda address: channel.send(Reached(bench.nearest(address))))
    channel.send(bench.ready)
    try:
        while True:
            request = channel.recv()
            channel.send(_answer(bench, request))
    except (EOFError, ConnectionError):
        # After a fault a device refuses to take its memory back, and nobody is there to be told.
        with contextlib.suppress(MptuneError):
            bench.close()


def _limit_memory() -> None:
    """Have an allocation fail beyond what the machine has, and the system end this process first when memory is short.

    A kernel that allocates without end then takes neither the tuner nor anybody else with it.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)
    with contextlib.suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = total_memory_bytes()
        resource.setrlimit(resource.RLIMIT_DATA, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


def _answer(bench: Bench, request: Any) -> Finished:
    tasks: list[float] = []
    calibration_ms: list[float] = []
    if isinstance(request, Rounds):
        trials = []
        for trial in remeasure(bench, request.requests, request.rounds, request.visit):
            trials.append(trial)
            if bench.is_on_processor:
                launch_ms = min(trial.measurement.times_ms, default=0.0)
                calibration_ms.append(fixed_work_ms(min(max(launch_ms, _LEAST_WORK_MS), _MOST_WORK_MS)))
                # Last: the threads of a launch stay awake for a moment, and are no other tasks.
                tasks.append(other_tasks_per_core())
    elif isinstance(request, OnDraws):
        return run_on_draws(bench, request)
    elif isinstance(request, MeasureRates):
        return _rates(bench)
    elif isinstance(request, Traced):
        return Finished((bench.traced(request.request),))
    elif isinstance(request, Capture):
        try:
            return Finished((), launches=bench.capture(request.request, request.folder))
        except MptuneError as error:
            return Finished((Trial(request.request.configuration, Status.ERROR, str(error)),))
    else:
        trials = [bench.evaluate(request)]
    known = [count for count in tasks if not math.isnan(count)]
    usable = all(bench.is_usable(trial) for trial in trials)
    tasks_per_core = statistics.fmean(known) if known else math.nan
    return Finished(tuple(trials), usable, tasks_per_core=tasks_per_core, calibration_ms=tuple(calibration_ms))


def run_on_draws(bench: Bench, asked: OnDraws) -> Finished:
    """Run configurations on draws of the inputs: all on one draw before the next is made.

    Each trial has the errors on its draw alone.
    A failure that leaves the device unusable is the last.
    """
    trials: list[Trial] = []
    draws: list[Draw] = []
    unmade: dict[Draw, str] = {}
    with bench.keeping_loaded():
        for draw in asked.draws:
            try:
                bench.make(draw)
            except MptuneError as error:
                unmade[draw] = str(error)
                continue
            for request in asked.requests:
                trials.append(bench.check_on(request, draw))
                draws.append(draw)
                if not bench.is_usable(trials[-1]):
                    return Finished(tuple(trials), False, tuple(draws), unmade)
    return Finished(tuple(trials), True, tuple(draws), unmade)


def _rates(bench: Bench) -> Finished:
    """Measure the speeds of the device; where that fails there are none."""
    try:
        return Finished((), rates=bench.rates())
    except (MptuneError, MemoryError):
        return Finished(())


def _start(channel: Channel) -> Bench:
    job: Any = channel.recv()
    assert isinstance(job, Job)
    kernel, sizes, metric = job.load()

    def announce(name: str) -> None:
        phase = PhaseBegins(name)
        channel.send(phase)
        if phase.wants_quiet:
            answer: Any = channel.recv()
            assert isinstance(answer, Quiet)

    return Bench(
        kernel,
        sizes,
        get_backend(job.backend),
        metric=metric,
        seed=job.seed,
        options=job.options,
        plan=job.plan,
        observers=job.observers,
        announce=announce,
    )
