"""Explaining a run, measuring what is missing: the winner's neighbours, side by side in turn with the winner.

A probe is a trial the run file keeps in a phase of its own. Its metrics are those of its configuration and, with the
prefix ``winner.``, those the winner had in the same rounds, so that what else the machine did at that time hits both;
what the compiler made of either is counted, too. It is no evaluation of the run and cannot become its best.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from mptune.accuracy.evaluate import Metrics
from mptune.accuracy.thresholds import recorded_metrics
from mptune.backends import BACKENDS
from mptune.backends.base import Backend, CompileOptions, options_of
from mptune.backends.listing import count_instructions
from mptune.backends.processor import usable_cores
from mptune.data import DataManager, Draw, Stream
from mptune.emit import sizes_of
from mptune.errors import EmptySpaceError, KernelError, MptuneError, RunFileError, UnknownNameError
from mptune.interop import read_run
from mptune.kernel import Application, Kernel, Sizes, Tunable
from mptune.kernel.limits import whole_space
from mptune.measure.device import DeviceEvaluator
from mptune.measure.policy import MeasurementPolicy
from mptune.measure.roofline import Roofline
from mptune.measure.rounds import Turns
from mptune.measure.timing import TimingPlan
from mptune.observers import OBSERVERS
from mptune.results.speedup import LEAST_ROUNDS, TIE, Finals
from mptune.results.trial import Status, Trial
from mptune.results.unseen import after_draws
from mptune.run import Run, in_short
from mptune.source.loading import definition_hash, tunable_of_run
from mptune.source.render import render, template_hash
from mptune.space.configuration import Configuration
from mptune.space.parameters import PolicyParameter, PrecisionParameter
from mptune.space.search_space import SearchSpace
from mptune.store import PROBE, RunFile
from mptune.tuning.sensitivity import (
    WINNER,
    Change,
    Explanation,
    Tradeoff,
    changed_alone,
    explanation_of,
    probe_key,
    types_apart,
)

__all__ = ["explain", "promising"]

#: Launches before the rounds, whose times count.
_FIRST_LOOK: Final = TimingPlan(min_repeats=2, max_repeats=2)
_LONG_LOOK: Final = TimingPlan(warmups=0, min_repeats=1, max_repeats=1)
#: A run of an application that takes longer than this needs no other one before it to warm up, in milliseconds.
_LONG_MS: Final = 30.0
#: Where what is left to measure takes longer than this, it is said how long.
_SAID_S: Final = 60.0
#: Rounds in which neighbours take turns with the winner: fewer give no interval at 95% confidence.
_ROUNDS: Final = 8
#: Draws of the inputs that errors are measured on.
_DRAWS: Final = 3
#: Neighbours that share their rounds; what has been measured is kept after each such group.
_GROUP: Final = 4
#: Combinations of changes that are measured for one more digit, and for one less, if they promise to be the best.
_COMBINATIONS: Final = 2
_MOST_CHANGES: Final = 3
#: Combinations of types among which the nearest valid one is looked for.
_MOST_TYPES: Final = 20_000


class _UnprobedError(MptuneError):
    """Nothing is measured here; the message says why."""


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)  # where explain was called


def explain(
    run: Run | str | Path,
    kernel: Tunable | str | Path | None = None,
    *,
    probe: bool = True,
    time_limit_s: float | None = None,
    on_probe: Callable[[], None] = lambda: None,
    on_warning: Callable[[str], None] = _warn,
) -> Explanation:
    """Explain why a run's winner has its types, and measure on the run's device what is missing for it.

    What is measured is kept in the run file, so that it is there the next time. Where nothing can be measured (another
    device, no kernel, a recording), the stored trials are explained and
    :attr:`~mptune.tuning.sensitivity.Explanation.unprobed` says why.

    Args:
        run: a run file, a recorded space, or a run, whose probes are then not kept.
        kernel: the kernel or application, unless it is a bundled one: that itself, a definition file or the folder that
            holds it.
        probe: False to explain the stored trials alone.
        time_limit_s: begin to measure nothing further after so many seconds.
        on_probe: told after each configuration that was measured.
        on_warning: told what differs from the conditions of the run; by default a warning.

    Raises:
        RunFileError, SpaceFileError: the file cannot be read.
        KernelError: the kernel given is not the run's.
        MptuneError: the time limit is not above 0.
    """
    if time_limit_s is not None and not time_limit_s > 0:
        raise MptuneError(f"time limit {time_limit_s:g} s: expected more than 0")
    loaded = run if isinstance(run, Run) else read_run(run)
    if not probe:
        return explanation_of(loaded, unprobed="the stored trials alone were asked for")
    winner = explanation_of(loaded).trial
    if winner is None:
        return explanation_of(loaded)
    try:
        session = _Session(loaded, *_kernel(loaded, kernel, on_warning), winner, time_limit_s, on_probe, on_warning)
    except _UnprobedError as reason:
        return explanation_of(loaded, unprobed=str(reason))
    try:
        if not session.is_complete:
            with contextlib.ExitStack() as stack:
                session.measure(stack, None if isinstance(run, Run) else stack.enter_context(RunFile.open(run)))
        return session.explained()
    except MptuneError as reason:
        return session.explained(in_short(str(reason)))
    except KeyboardInterrupt:
        if not isinstance(run, Run):
            on_warning(f"what was measured is kept in {run}: the same command goes on with the rest")
        raise


def _kernel(run: Run, given: Tunable | str | Path | None, on_warning: Callable[[str], None]) -> tuple[Tunable, Sizes]:
    """Return the kernel of a run and the sizes it was made at; without a kernel given, having none is no error."""
    if run.info.recorded:
        raise _UnprobedError("a recording has no kernel to measure")
    try:
        kernel = tunable_of_run(run.info, given, on_warning=on_warning)
        return kernel, sizes_of(run, kernel)
    except (KernelError, RunFileError) as error:
        if given is not None:
            raise
        raise _UnprobedError(str(error)) from error


class _Session:
    """Measures what is missing to explain a winner, and keeps it."""

    def __init__(
        self,
        run: Run,
        kernel: Tunable,
        sizes: Sizes,
        winner: Trial,
        time_limit_s: float | None,
        on_probe: Callable[[], None],
        on_warning: Callable[[str], None],
    ) -> None:
        self._start = time.monotonic()
        self._time_limit_s = time_limit_s
        self._run = run
        self._kernel = kernel
        self._winner = winner
        self._key = probe_key(winner, template_hash(kernel), definition_hash(kernel))
        self._on_probe = on_probe
        self._on_warning = on_warning
        self._sizes = sizes
        #: Runs of an application that are as long as this say enough without others before them.
        self._is_long = isinstance(kernel, Application) and winner.time_ms > _LONG_MS
        self._probes = list(run.probes)
        #: Of a single kernel, once there is a device.
        self._code: _MachineCode | None = None

    def explained(self, unprobed: str = "") -> Explanation:
        """Return what can be said as it stands, and why what is missing is."""
        run = Run(self._run.info, self._run.trials, self._run.state, self._probes)
        return explanation_of(run, key=self._key, unprobed=unprobed)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing that could be measured."""
        return not (self._missing() or self._unexamined())

    def _missing(self) -> list[Configuration]:
        """Return the neighbours whose own error or time is not known."""
        neighbours = changed_alone(self._run, self._winner.configuration)
        pairs = zip(neighbours, self.explained().changes, strict=True)
        return [configuration for (_, configuration), change in pairs if not change.is_known]

    def _unexamined(self) -> list[Configuration]:
        """Return the neighbours the run has measured, but whose machine code nobody has looked at.

        That of an application is many programs' and is not looked at.
        """
        if not isinstance(self._kernel, Kernel):
            return []
        examined = {probe.configuration for probe in self._probes if probe.key == self._key}
        outcomes = (change.outcome for change in self.explained().changes)
        trials = (outcome.trial for outcome in outcomes if outcome is not None and outcome.source == "measured")
        return [trial.configuration for trial in trials if trial.is_valid and trial.configuration not in examined]

    def measure(self, stack: contextlib.ExitStack, file: RunFile | None) -> None:
        """Measure what is missing, then what promises to be the best for one digit more or less.

        Args:
            stack: closes what is opened.
            file: keeps the probes.

        Raises:
            _UnprobedError: the run's device is not here, or the winner cannot be measured on it.
        """
        self._stack = stack
        self._file = file
        self._backend = self._device()
        self._options = options_of(self._run.info, self._backend.name)
        self._space = self._valid()
        if isinstance(self._kernel, Kernel):
            self._code = _MachineCode(self._kernel, self._sizes, self._backend, self._options)
        self._probe(self._missing())
        for configuration in self._unexamined():
            self._keep([self._noted(Trial(configuration, Status.OK), {})])
        self._probe(list(dict.fromkeys(self._promising())))

    # -- the device ----------------------------------------------------------------------------

    def _device(self) -> Backend:
        info = self._run.info
        if info.backend not in BACKENDS:
            raise _UnprobedError(f"there is no backend {info.backend!r} here")
        found = BACKENDS[info.backend].availability()
        if not found.can_run:
            raise _UnprobedError(f"backend {info.backend} cannot run here: {found.reason}")
        backend = BACKENDS[info.backend]()
        device = backend.describe()
        if (info.device, info.architecture) != (device.name, device.architecture):
            raise _UnprobedError(
                f"the run is of {info.device} ({info.architecture}), this is {device.name} ({device.architecture})"
            )
        return backend

    def _valid(self) -> SearchSpace:
        """Return the valid configurations, the winner among them: values of a file are rendered only if they are."""
        try:
            space = whole_space(self._kernel, self._sizes, self._backend.device.facts())
        except MptuneError as error:
            raise _UnprobedError(str(error)) from error
        if self._winner.configuration not in space:
            raise _UnprobedError(f"{self._winner.configuration} is no valid configuration of {self._kernel.called}")
        return space

    @cached_property
    def _evaluator(self) -> DeviceEvaluator:
        """What measures, on data and with a metric as during the run; says what is not as it was."""
        info = self._run.info
        evaluator = self._stack.enter_context(
            DeviceEvaluator(
                self._kernel,
                self._sizes,
                info.backend,
                metric=self._metrics(),
                seed=info.seed or 0,
                flags=self._options.flags,
                plan=_LONG_LOOK if self._is_long else _FIRST_LOOK,
                policy=MeasurementPolicy(),
                compilers=usable_cores(),
                observers=[name for name in info.observers if name in OBSERVERS],
            )
        )
        ready = evaluator.start()
        for change in dataclasses.replace(info, compiler=ready.identity, data_key=ready.data_key).changes_since(info):
            self._on_warning(f"not as it was during the run: {change}; winner and neighbours are measured as it is now")
        return evaluator

    def _metrics(self) -> Metrics:
        """Return what the run's errors were measured by: the kernel's own metrics, or what its record names."""
        outputs, info = [output.name for output in self._kernel.outputs], self._run.info
        try:
            return recorded_metrics(info.metric, info.metrics, outputs, self._kernel.metric)
        except UnknownNameError as error:
            raise _UnprobedError(
                f"the run's error metric {info.metric!r} is neither the kernel's nor known here"
            ) from error

    # -- measuring -----------------------------------------------------------------------------

    def _probe(self, configurations: Sequence[Configuration]) -> None:
        """Measure configurations; of those that are not valid, the nearest that are, with further types changed."""
        invalid = [c for c in configurations if c not in self._space]
        nearest = [found for c in invalid if (found := self._nearest(c)) is not None]
        known = {trial.configuration for trial in (*self._run.trials, *self._probes)}
        wanted = [*(c for c in configurations if c in self._space), *(c for c in nearest if c not in known)]
        valid = [self._kernel.own(c) for c in dict.fromkeys(wanted)]
        begun = time.monotonic()
        for start in range(0, len(valid), _GROUP):
            self._say_how_long(start, len(valid), begun)
            self._keep(self._measured(valid[start : start + _GROUP]))
        # Last: they are what says that nothing is left to do for them.
        self._keep([self._invalid(c) for c in invalid])

    def _say_how_long(self, done: int, count: int, begun: float) -> None:
        """Say how long what is left takes, once that is known; refuse it where there is no time."""
        now = time.monotonic()
        if self._time_limit_s is not None and now - self._start >= self._time_limit_s:
            left = f"{count - done} configuration{' was' if count - done == 1 else 's were'} left"
            raise _UnprobedError(
                f"{left} when the time limit of {self._time_limit_s:g} s was over; the same command goes on with them"
            )
        left_s = (now - begun) / done * (count - done) if done else 0.0
        if done == _GROUP and left_s > _SAID_S:
            self._on_warning(
                f"{done} of {count} configurations are measured, the others take about {left_s / 60:.0f} min "
                "(--time-limit ends it before, and Ctrl-C; what is measured is kept)"
            )

    def _nearest(self, configuration: Configuration) -> Configuration | None:
        """Return the valid configuration with a changed value, the winner's tuning and the fewest further types."""
        winner = self._winner.configuration
        fixed = {
            parameter.name: (configuration[parameter.name],)
            for parameter in self._space.parameters
            if not isinstance(parameter, PrecisionParameter | PolicyParameter)
            or configuration[parameter.name] != winner[parameter.name]
        }
        try:
            space = self._space.restrict(fixed)
        except EmptySpaceError:
            return None
        if space.size > _MOST_TYPES:
            return None
        return min(space.configurations(range(space.size)), key=lambda c: types_apart(c, winner))

    def _invalid(self, configuration: Configuration) -> Trial:
        values = {**self._sizes, **configuration}
        broken = next((f"breaks {c.text}" for c in self._space.constraints if not c.holds(values)), "")
        why = broken or f"{self._kernel.called} has no such configuration"
        return Trial(configuration, Status.CONSTRAINT, why, key=self._key)

    def _measured(self, group: Sequence[Configuration]) -> Iterator[Trial]:
        """Yield a probe of each configuration: checked first, then timed in turn with the winner."""
        evaluated = {}
        for trial in self._evaluator.evaluate([self._kernel.own(self._winner.configuration), *group]):
            evaluated[trial.configuration] = trial
            self._on_probe()
        evaluated |= self._on_further_draws([trial for trial in evaluated.values() if trial.is_valid])
        winner = evaluated.pop(self._winner.configuration)
        if not winner.is_valid:
            raise _UnprobedError(f"the winner cannot be measured here any more: {winner.status}, {winner.message}")
        valid = [trial for trial in evaluated.values() if trial.is_valid]
        rounds: Sequence[Mapping[Configuration, float]] = ()
        if valid:
            turns = Turns(self._evaluator, [winner, *valid], _LONG_LOOK if self._is_long else None)
            rounds = turns.measure([winner.configuration, *(trial.configuration for trial in valid)], _ROUNDS)
            evaluated |= {trial.configuration: trial for trial in turns.trials() if not trial.is_valid}
        for trial in evaluated.values():
            if trial.configuration == winner.configuration:
                raise _UnprobedError(f"the winner failed when it was measured again: {trial.status}, {trial.message}")
            if trial.is_valid:
                yield self._noted(trial, _in_turn(winner, trial, rounds))
            else:
                yield dataclasses.replace(trial, key=self._key)

    def _on_further_draws(self, trials: Sequence[Trial]) -> dict[Configuration, Trial]:
        """Return the trials after they ran on the further draws of the inputs that a search measures errors on."""
        draws = [Draw(Stream.SEARCH, number) for number in range(1, _DRAWS)]
        answer = self._evaluator.run_on_draws([trial.configuration for trial in trials], draws)
        found: dict[Configuration, dict[Draw, Trial]] = {trial.configuration: {} for trial in trials}
        for draw, drawn in zip(answer.draws, answer.trials, strict=True):
            found[drawn.configuration][draw] = drawn
        return {trial.configuration: after_draws(trial, found[trial.configuration]) for trial in trials}

    def _noted(self, trial: Trial, metrics: Mapping[str, float]) -> Trial:
        """Return a probe with the numbers of both measurements and of both machine codes."""
        code = {} if self._code is None else self._code.compared(trial.configuration, self._winner.configuration)
        noted = trial.with_measurement(metrics={**metrics, **code})
        return dataclasses.replace(noted, key=self._key)

    def _keep(self, probes: Sequence[Trial] | Iterator[Trial]) -> None:
        kept = list(probes)
        self._probes += kept
        if self._file is not None and kept:
            self._file.add_all(kept, PROBE)

    # -- one digit more or less ----------------------------------------------------------------

    def _promising(self) -> Iterator[Configuration]:
        """Yield combinations of changes that should beat the best that was measured for one digit more or less."""
        explanation = self.explained()
        tried = {trial.configuration for trial in (*self._run.trials, *self._probes)}
        for tradeoff in explanation.tradeoffs:
            values = ({c.parameter: c.after for c in changes} for changes in promising(explanation, tradeoff))
            configurations = (Configuration({**self._winner.configuration, **changed}) for changed in values)
            untried = (c for c in configurations if c not in tried and c in self._space)
            yield from itertools.islice(untried, _COMBINATIONS)


def promising(explanation: Explanation, tradeoff: Tradeoff) -> Sequence[tuple[Change, ...]]:
    """Return the combinations of changes that should meet a limit and be the best that does, the best first.

    What a combination does is estimated from what its changes do alone: errors add up, speeds multiply.
    """
    spare = 0.0 if math.isnan(explanation.digits_spare) else explanation.digits_spare
    known = tradeoff.best.gain if tradeoff.best is not None else 0.0
    found = []
    for changes in _combinations(explanation.changes):
        error = 1.0 + math.fsum(10.0**-change.digits - 1.0 for change in changes)
        gain = math.prod(change.gain for change in changes)
        if error <= 10.0 ** (spare - tradeoff.digits) and gain > known * (1.0 + TIE):
            found.append((gain, changes))
    return [changes for _, changes in sorted(found, key=lambda entry: -entry[0])]


def _combinations(changes: Sequence[Change]) -> Iterator[tuple[Change, ...]]:
    """Yield two or three changes of different parameters whose digits and gain are known."""
    known = [c for c in changes if not math.isnan(c.gain) and math.isfinite(c.digits) and c.gain > 0]
    for count in range(2, _MOST_CHANGES + 1):
        for chosen in itertools.combinations(known, count):
            if len({change.parameter for change in chosen}) == count:
                yield chosen


def _in_turn(winner: Trial, trial: Trial, rounds: Sequence[Mapping[Configuration, float]]) -> dict[str, float]:
    """Return the metrics of a configuration and of the winner, their times from the same rounds if both had some."""
    metrics = {**{f"{WINNER}{name}": v for name, v in winner.measurement.metrics.items()}, **trial.measurement.metrics}
    speed = Finals.of(rounds, len(rounds)).ratio(winner.configuration, trial.configuration)
    if speed is None:
        return metrics
    metrics["time_ms"] = statistics.median(t[trial.configuration] for t in rounds if trial.configuration in t)
    # So that the ratio of the two is that of the rounds.
    metrics[f"{WINNER}time_ms"] = metrics["time_ms"] * speed.value
    is_known = speed.rounds >= LEAST_ROUNDS
    return {**metrics, "speed_low": speed.low, "speed_high": speed.high} if is_known else metrics


class _MachineCode:
    """Counts what the compiler made of configurations, and what it takes at least to run them."""

    def __init__(self, kernel: Kernel, sizes: Sizes, backend: Backend, options: CompileOptions) -> None:
        self._kernel = kernel
        self._sizes = sizes
        self._backend = backend
        self._options = options
        self._roofline = Roofline(backend)
        self._data = DataManager(kernel, sizes)
        self._examined: dict[Configuration, tuple[str | None, dict[str, float]]] = {}

    def compared(self, configuration: Configuration, winner: Configuration) -> dict[str, float]:
        """Return the counts of a configuration and, with the prefix, of the winner; whether their code is the same."""
        (listing, counts), (other, theirs) = self._examine(configuration), self._examine(winner)
        same = {"same_code": 1.0} if listing is not None and listing == other else {}
        return {**counts, **same, **{f"{WINNER}{name}": value for name, value in theirs.items()}}

    def _examine(self, configuration: Configuration) -> tuple[str | None, dict[str, float]]:
        if configuration not in self._examined:
            self._examined[configuration] = self._counted(configuration)
        return self._examined[configuration]

    def _counted(self, configuration: Configuration) -> tuple[str | None, dict[str, float]]:
        """Return listing and counts; what the backend does not tell, or fails to, is left out."""
        listing: str | None = None
        found: dict[str, float] = {}
        compiler, options = self._backend.compiler, self._options
        with contextlib.suppress(MptuneError):
            work = self._kernel.work(configuration, self._sizes)
            found |= {"traffic_bytes": float(work.traffic_bytes)} | (
                {} if work.flops is None else {"flops": work.flops}
            )
            bound = self._roofline.bound(work, self._data.footprint_bytes(configuration))
            found["memory_bound_ms"] = bound.memory_ms
            if work.flops is not None:
                found["compute_bound_ms"] = bound.compute_ms
        with contextlib.suppress(MptuneError):
            source = render(self._kernel, configuration, self._sizes)
            if (listing := compiler.listing(source, self._kernel.function, options)) is not None:
                counts = dataclasses.asdict(count_instructions(listing))
                found |= {name: float(count) for name, count in counts.items() if count is not None}
            if self._backend.tells_resources:
                function = self._backend.device.load(compiler.compile(source, self._kernel.function, options))
                taken = function.resources(self._kernel.launch_shape(configuration, self._sizes))
                found |= {name: taken[name] for name in ("registers", "local_bytes")}
                function.unload()
        return listing, found
