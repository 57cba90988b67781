"""Evaluation of one configuration on a device: compile, check, time, check again, look for damage."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mptune.accuracy.evaluate import Metrics, evaluate_outputs, first_look, judged, judging, masked_elements
from mptune.accuracy.metrics import rehearse
from mptune.accuracy.pairs import Elements, Pairs, bits_type, can_decode, count_unwritten
from mptune.backends.base import Backend, Buffer, CompileOptions, DeviceInfo
from mptune.data import DataManager, Draw, Stream, rounded_inputs
from mptune.errors import (
    CompileError,
    ConstraintError,
    KernelError,
    LaunchError,
    MptuneError,
    ObserverUnavailableError,
    OutOfMemoryError,
)
from mptune.kernel import Application, Role, Sizes, Tunable
from mptune.measure.answers import masked_remarks, with_reference
from mptune.measure.buffers import Buffers, Memory
from mptune.measure.policy import Plan, worst_errors
from mptune.measure.program import Launched, Program
from mptune.measure.timing import CacheFlush, TimingPlan, is_timed_by, repeat_launches, wants_flush
from mptune.memory import available_memory_bytes
from mptune.observers import ALWAYS_ON, OBSERVERS
from mptune.observers.base import LaunchContext, Observer, Target
from mptune.observers.launches import time_metrics
from mptune.results.estimates import METRICS, Counts
from mptune.results.kernel_times import LAUNCHES
from mptune.results.trial import Measurement, Status, Trial
from mptune.results.unseen import with_draws
from mptune.space.configuration import Configuration

if TYPE_CHECKING:
    from mptune.measure.instrument import Instrument

_STATUS: dict[type[MptuneError], Status] = {
    CompileError: Status.COMPILE_ERROR,
    ConstraintError: Status.CONSTRAINT,
    OutOfMemoryError: Status.OUT_OF_MEMORY,
    LaunchError: Status.LAUNCH_ERROR,
}

#: Seconds for repeating a launch that took too long, at least once: longer than a time slice of the system.
_RELAUNCHING_S: Final = 0.05
#: Maximum share of the available memory for keeping the data of further draws.
_MEMORY_SHARE: Final = 0.25
#: A draw that takes more seconds to make is cached on disk, even if used once.
_SLOW_S: Final = 0.5

#: Minimum duration of a batch of queued launches for observers, in seconds.
_BATCH_S: Final = 0.1

#: The phase of an instrumented run.
INSTRUMENTED: Final = "instrumented run"


def metric_names(kernel: Tunable, metric: Metrics) -> tuple[str, ...]:
    """Return the names of the metrics of a kernel's trials, metrics on request last."""
    always = [name for metrics, _ in ALWAYS_ON.values() for name in metrics]
    errors = [f"error.{name}" for name in judged([output.name for output in kernel.outputs], metric)]
    return (*always, *errors, *METRICS, *(name for kind in OBSERVERS.values() for name in kind.metrics))


@dataclass(frozen=True, slots=True)
class Request:
    """One configuration to evaluate, with its rendered source and the plan of its measurement."""

    configuration: Configuration
    source: str
    plan: Plan = field(default_factory=Plan)


@dataclass(frozen=True, slots=True)
class Ready:
    """The report of a bench before the first evaluation."""

    device: DeviceInfo
    identity: str  #: device, compiler, versions and flags; times are comparable only if it is equal
    data_key: str  #: identity of inputs and references
    facts: Mapping[str, Any]  #: names that constraints can use (:meth:`Device.facts`)
    options: CompileOptions  #: resolved, so that any process compiles the same binaries without the device
    observers: tuple[str, ...] = ()  #: requested observers that can measure here
    unavailable: Mapping[str, str] = field(default_factory=dict)  #: reasons by name of an observer, a metric, …
    remarks: tuple[str, ...] = ()  #: on the error metrics, one line each
    rounded: Mapping[str, Any] = field(default_factory=dict)  #: see :func:`~mptune.data.rounded_inputs`
    masked: tuple[str, ...] = ()  #: outputs whose reference has NaN


@dataclass(slots=True)
class _Clock:
    """Wall time by phase; ``announce`` is called with the name of each phase, so that a crash can be located.

    A phase within another one is no part of it.
    """

    announce: Callable[[str], None]
    durations_s: dict[str, float] = field(default_factory=dict)
    _current: str = ""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        outer, self._current = self._current, name
        self.announce(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            took_s, self._current = time.perf_counter() - start, outer
            self.durations_s[name] = self.durations_s.get(name, 0.0) + took_s
            if outer:
                self.durations_s[outer] = self.durations_s.get(outer, 0.0) - took_s
                self.announce(outer)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state of the outputs after a launch."""

    status: Status = Status.OK
    message: str = ""
    errors: Mapping[str, float] = field(default_factory=dict)  #: by metric
    digest: tuple[int, ...] = ()  #: checksums of the outputs; equal outputs are not compared again
    masked: tuple[str, ...] = ()  #: outputs with elements whose reference is NaN


class Comparison:
    """Compares the outputs of configurations of one kernel or application.

    ``no_arrays`` is the error of the device's array module; empty if it works or if there is none.
    """

    def __init__(self, tunable: Tunable, backend: Backend, memory: Memory, metrics: Metrics) -> None:
        self._backend = backend
        self._memory = memory
        self._metrics = metrics
        by_output = judging([output.name for output in tunable.outputs], metrics)
        #: Outputs with bundled metrics only.
        self._anywhere = {name: own for name, own in by_output.items() if all(m.is_bundled for m in own)}
        #: Values that metrics computed from references alone, by data and output.
        self._known: weakref.WeakKeyDictionary[DataManager, dict[str, dict[Any, Any]]] = weakref.WeakKeyDictionary()
        self.no_arrays = ""
        if memory.namespace is not None:
            try:
                for metric in dict.fromkeys(metric for own in self._anywhere.values() for metric in own):
                    rehearse(memory.namespace, metric)
            except Exception as error:
                # A module that compiles its kernels raises errors of many types.
                memory.namespace = None
                self.no_arrays = f"{type(error).__name__}: {error}"

    def outcome(self, buffers: Buffers, known: Outcome | None = None) -> Outcome:
        """Compare the present outputs; return ``known`` if they are unchanged since."""
        outputs = buffers.program.tunable.outputs
        digest = tuple(self._memory.checksum(buffers.places[output.name]) for output in outputs)
        if known is not None and known.digest == digest:
            return known
        try:
            outcome = self._compared(buffers, self._pair)
        except MemoryError:
            # The device has no room for the comparison beside the data.
            outcome = self._compared(buffers, self._host_pair)
        return dataclasses.replace(outcome, digest=digest)

    def _compared(self, buffers: Buffers, pair: Callable[[Buffers, str], Pairs]) -> Outcome:
        data = buffers.data
        outputs = {output.name: pair(buffers, output.name) for output in buffers.program.tunable.outputs}
        missing = [
            f"{count} of {pairs.size} elements of {name!r}"
            for name, pairs in outputs.items()
            if buffers.program.arguments[name].role is Role.OUT and (count := count_unwritten(pairs))
        ]
        if missing:
            return Outcome(Status.UNWRITTEN, f"the kernel never wrote {', '.join(missing)}")
        # A signalling NaN, copied from beyond a buffer, needs no warning of NumPy.
        with np.errstate(invalid="ignore"):
            result = evaluate_outputs(outputs, data.references, self._metrics, data.inputs)
        if result.non_finite or result.is_nan:
            return Outcome(Status.NON_FINITE, result.message, result.metrics)
        masked = tuple(name for name, pairs in outputs.items() if pairs.has_masked)
        return Outcome(errors=result.metrics, masked=masked)

    def _pair(self, buffers: Buffers, name: str) -> Pairs:
        """Return an output beside its reference, valid up to the next launch, on the device if possible.

        Else on the host: without an array module, with a user's error metric, for values that doubles cannot hold, or
        without room for the reference.
        """
        stored, values = buffers.program.dtype_of(name), buffers.data.references[name]
        if self._memory.namespace is not None and name in self._anywhere and can_decode(stored):
            reference = self._memory.reference(buffers, name)
            if reference is not None:
                output = self._view(buffers.places[name], stored, values.shape)
                known = self._known.setdefault(buffers.data, {}).setdefault(name, {})
                return Pairs.of(output, self._view(reference, values.dtype, values.shape), known)
        return self._host_pair(buffers, name)

    def _host_pair(self, buffers: Buffers, name: str) -> Pairs:
        stored, values = buffers.program.dtype_of(name), buffers.data.references[name]
        # A user's metric may write to its arguments, so it needs a copy.
        seen = buffers.places[name].seen() if name in self._anywhere else None
        output = buffers.stored(name) if seen is None else seen.view(stored).reshape(values.shape)
        return Pairs.of(output, values, self._known.setdefault(buffers.data, {}).setdefault(name, {}))

    def _view(self, buffer: Buffer, stored: np.dtype[Any], shape: tuple[int, ...]) -> Elements:
        bits = self._backend.device.array(buffer, bits_type(stored))
        return Elements(self._memory.namespace, bits, stored, shape)


class Observation:
    """The observers of one bench.

    ``names`` are the available observers; ``unavailable`` has the reasons for others, by name of an observer or metric.
    """

    def __init__(
        self,
        names: Iterable[str],
        target: Target,
        clock: Callable[[], float] = time.perf_counter,
        own: Sequence[Observer] = (),
    ) -> None:
        self.unavailable: dict[str, str] = {}
        self._observers: list[Observer] = list(own)
        self._clock = clock
        for name in dict.fromkeys(names):
            kind = OBSERVERS[name]
            try:
                observer = kind.open(target)
            except ObserverUnavailableError as error:
                self.unavailable |= dict.fromkeys((name, *kind.metrics), str(error))
                continue
            self._observers.append(observer)
            self.unavailable |= observer.missing
        self.names = tuple(observer.name for observer in self._observers)

    def measure(self, context: LaunchContext, program: Program, buffers: Buffers) -> dict[str, float]:
        """Return the metrics of a configuration that has been timed."""
        context = dataclasses.replace(context, resources=program.resources())
        found: dict[Observer, Mapping[str, float]] = {}
        steady = [observer for observer in self._observers if observer.steady_s > 0]
        for observer in self._observers:
            if observer not in steady:
                buffers.restore()
                found[observer] = observer.observe(functools.partial(program.run, buffers), context)
        if steady:
            found |= self._steadily(steady, context, program, buffers)
        metrics: dict[str, float] = {}
        for observer in self._observers:
            for name in observer.metrics:
                if name not in found[observer] and name not in observer.missing:
                    raise ObserverUnavailableError(f"observer {observer.name!r} could not measure {name} here")
            metrics |= found[observer]
        return metrics

    def _steadily(
        self, observers: Sequence[Observer], context: LaunchContext, program: Program, buffers: Buffers
    ) -> dict[Observer, Mapping[str, float]]:
        """Launch without a pause for as long as observers need; then only restore buffers, to discount that."""
        batch = 1  # grows until it lasts long enough; launch times exclude the overhead of a launch

        def repeat(seconds: float, *, launches: bool = True) -> int:
            """Run batches for at least this long, and at least one; return the number of launches or restorations."""
            nonlocal batch
            done, now_s = 0, self._clock()
            until_s = now_s + seconds
            while True:
                batch_began_s = now_s
                if not buffers.pristine:
                    program.enqueue(buffers, batch)
                for _ in range(batch if buffers.pristine else 0):
                    buffers.restore()
                    if launches:
                        program.enqueue(buffers)
                program.wait()
                done += batch
                now_s = self._clock()
                if now_s - batch_began_s < _BATCH_S:
                    batch *= 2
                if now_s >= until_s:
                    return done

        steady_s = max(observer.steady_s for observer in observers)
        repeat(max(observer.lead_s for observer in observers))
        for observer in observers:
            observer.start()
        context = dataclasses.replace(context, steady_launches=repeat(steady_s))
        found = {observer: observer.stop(context) for observer in observers}
        discounting = [observer for observer in observers if observer.discounts]
        if buffers.pristine and discounting:
            for observer in discounting:
                observer.start()
            context = dataclasses.replace(context, steady_restorations=repeat(steady_s, launches=False))
            found |= {observer: observer.stop(context) for observer in discounting}
        return found


class Bench:
    """Evaluates configurations of one kernel on one device, in this process.

    ``metric`` replaces the kernel's own error metrics; ``announce`` is called with the name of each phase.
    """

    def __init__(
        self,
        kernel: Tunable,
        sizes: Sizes,
        backend: Backend,
        *,
        metric: Metrics | None = None,
        seed: int = 0,
        options: CompileOptions | None = None,
        plan: TimingPlan | None = None,
        observers: Sequence[str] = (),
        own_observers: Sequence[Observer] = (),
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.backend = backend
        self._options = options or CompileOptions()
        self._metrics = metric if metric is not None else kernel.metric
        self.kernel = kernel = with_reference(kernel, backend, self._options, announce)
        self._plan = plan or TimingPlan()
        self._announce = announce
        #: Programs that stay loaded, by configuration; None where they are unloaded after each trial.
        self._kept: dict[Configuration, Program] | None = None
        #: Latest outcomes on the first draw, by configuration.
        self._outcomes: dict[Configuration, Outcome] = {}
        self._data = DataManager(kernel, sizes, seed=seed)
        self.sizes = self._data.sizes
        device = backend.describe()
        self.memory = Memory(backend, device.memory_bytes // 4, repeats=True)
        self._comparison = Comparison(kernel, backend, self.memory, self._metrics)
        #: Outputs of an application that no run has changed so far.
        self._as_given = {o.name for o in kernel.outputs} if isinstance(kernel, Application) else set[str]()
        self._seed = seed
        self._drawn: dict[Draw, DataManager] = {}
        start = time.perf_counter()
        references = self._data.references
        #: When the first draw was made, the seconds of the slowest draw, and the seconds spent on further draws.
        self._made_at = time.perf_counter()
        self._making_s = self._made_at - start
        self._drawing_s = 0.0
        self._data.require_repeatable()
        remarks = masked_remarks(kernel, references) + first_look(
            judging([output.name for output in kernel.outputs], self._metrics), references, self._data.inputs
        )
        self._flush: CacheFlush | None = None
        if wants_flush(self._plan, backend, kernel, self.sizes, self._data):
            self._flush = CacheFlush(backend, device.limits["cache_bytes"])
        where = device.architecture, device.pci_bus_id, device.sensors
        target = Target(kernel, sizes, backend.name, *where, backend.tells_resources)
        self._observation = Observation(observers, target, own=own_observers)
        unavailable = dict(self._observation.unavailable)
        if reason := self._comparison.no_arrays:
            unavailable["comparing outputs on the device"] = f"{reason}; they are compared on the host"
        self.ready = Ready(
            device,
            backend.identity(self._options),
            self._data.data_key,
            backend.device.facts(),
            backend.compiler.resolved(self._options),
            self._observation.names,
            unavailable,
            remarks,
            rounded_inputs(kernel, self._data.sizes, seed, self._data.inputs),
            tuple(masked_elements(references)),
        )

    def evaluate(self, request: Request, plan: TimingPlan | None = None) -> Trial:
        """Return the trial of a configuration, timed by this plan or the bench's; a failure becomes its status."""
        return self._guarded(request, lambda clock: self._evaluate(request, plan or self._plan, clock))

    def make(self, draw: Draw) -> None:
        """Make inputs and references of a further draw, unless they are kept."""
        self._announce("inputs")
        made = self._data_of(draw)
        if draw.stream is Stream.UNSEEN and made.has_inputs_of(self._data):
            raise KernelError(
                f"inputs of kernel {self.kernel.name} give the same as in the search: they do not depend on rng, so no "
                "input is unseen"
            )

    def _data_of(self, draw: Draw) -> DataManager:
        """Return inputs and references of a further draw; draws of the search are kept while memory lasts."""
        if draw not in self._drawn:
            kept = {known: data for known, data in self._drawn.items() if known.stream is Stream.SEARCH}
            arrays = (array for data in kept.values() for array in (*data.inputs.values(), *data.references.values()))
            kept_bytes = sum(np.asarray(array).nbytes for array in arrays)
            fits = kept_bytes <= _MEMORY_SHARE * (available_memory_bytes() + kept_bytes)
            self._drawn = kept if fits else {}
            start = time.perf_counter()
            caches = draw.stream is Stream.SEARCH or self._making_s > _SLOW_S
            data = DataManager(self.kernel, self.sizes, seed=self._seed, budget_bytes=0, draw=draw, caches=caches)
            _ = data.inputs, data.references  # made on first access
            self._making_s = max(self._making_s, time.perf_counter() - start)
            self._drawn[draw] = data
        return self._drawn[draw]

    def check_on(self, request: Request, draw: Draw) -> Trial:
        """Return the trial of a configuration on a further draw: its errors on this draw alone."""

        def check(clock: _Clock) -> Trial:
            with self._loaded(request, clock) as program:
                outcome = self._check_drawn(program, draw, clock)
            measured = Measurement(outcome.errors, durations_s=clock.durations_s)
            masks = self._other_masks(outcome)
            return Trial(request.configuration, outcome.status, outcome.message, measured, masks)

        return self._guarded(request, check)

    def launches(self, request: Request) -> tuple[Launched, ...]:
        """Run an application and return its distinct launches."""
        with self._loaded(request, _Clock(self._announce)) as program:
            buffers = self.memory.bind(program, self._data)
            buffers.restore()
            program.run(buffers)
            if not program.launched:
                raise KernelError(f"the steps of {program.tunable.called} launch no kernel")
            return tuple(program.launched)

    def traced(self, request: Request) -> Trial:
        """Return the errors of a configuration in an instrumented build on the host, as a trial."""

        def run(clock: _Clock) -> Trial:
            with clock.phase(INSTRUMENTED):
                signature = {name: request.configuration[name] for name in self.kernel.signature_names}
                errors = self._instrument.errors(signature)
            return Trial(request.configuration, Status.OK, measurement=Measurement(errors))

        return self._guarded(request, run)

    def counted(self, request: Request) -> dict[str, Counts]:
        """Return what each kernel does in one run of a configuration, for all types."""
        from mptune.measure.instrument import Instrument  # rarely needed

        how: dict[str, Any] = {"flags": self._options.flags, "data": self._data, "announce": self._announce}
        self._announce(INSTRUMENTED)
        instrument = Instrument(self.kernel, self.sizes, **how, is_counting=True)
        return instrument.counts({name: request.configuration[name] for name in self.kernel.signature_names})

    @cached_property
    def _instrument(self) -> Instrument:
        from mptune.measure.instrument import Instrument  # rarely needed

        how: dict[str, Any] = {"flags": self._options.flags, "data": self._data, "announce": self._announce}
        return Instrument(self.kernel, self.sizes, metric=self._metrics, **how)

    def is_usable(self, trial: Trial) -> bool:
        """Whether the device is still usable after a trial: a kernel may have damaged it, or memory."""
        if trial.status is Status.LAUNCH_ERROR:
            return self.backend.device.is_usable()
        return trial.status is not Status.CORRUPT

    @contextmanager
    def keeping_loaded(self) -> Iterator[None]:
        """Unload programs at the end of a block instead of after each trial."""
        self._kept = {}
        try:
            yield
        finally:
            kept, self._kept = self._kept, None
            for program in kept.values():
                program.unload()

    def close(self) -> None:
        """Free the device memory."""
        self.memory.free()
        if self._flush is not None:
            self._flush.free()

    # -- one configuration ---------------------------------------------------------------------

    def _guarded(self, request: Request, evaluate: Callable[[_Clock], Trial]) -> Trial:
        clock = _Clock(self._announce)
        try:
            try:
                trial = evaluate(clock)
            except MemoryError:
                # A configuration is too large only if it exceeds memory without buffers of others.
                self.memory.free()
                trial = evaluate(clock)
        except MptuneError as error:
            status, message = _STATUS.get(type(error), Status.ERROR), str(error)
        except MemoryError as error:
            status, message = Status.OUT_OF_MEMORY, f"host memory ran out: {error}"
        else:
            if trial.status is Status.CORRUPT:
                # Any buffer may be overwritten, so all are uploaded again.
                self.memory.free()
            return trial
        return Trial(request.configuration, status, message, Measurement(durations_s=clock.durations_s))

    @contextmanager
    def _loaded(self, request: Request, clock: _Clock) -> Iterator[Program]:
        """Compile and load a configuration for a block, or for longer in :meth:`keeping_loaded`."""
        # By configuration, as configurations of one source may differ in grid and block.
        kept = {} if self._kept is None else self._kept
        with clock.phase("compile"):
            if request.configuration not in kept:
                what = self.kernel, request.configuration, self.sizes, self.backend, self._options
                kept[request.configuration] = Program(*what, source=request.source)
        program = kept[request.configuration]
        program.compiling = functools.partial(clock.phase, "compile")
        try:
            yield program
        finally:
            if self._kept is None:
                program.unload()

    def _evaluate(self, request: Request, plan: TimingPlan, clock: _Clock) -> Trial:
        with self._loaded(request, clock) as program:
            configuration = request.configuration
            with clock.phase("transfer"):
                buffers = self.memory.bind(program, self._data)
            trial = self._measure(request, program, buffers, plan, clock)
            if trial.status is Status.OK and request.plan.observe and self._observation.names:
                with clock.phase("observe"):
                    footprint_bytes, times_ms = self._data.footprint_bytes(configuration), trial.measurement.times_ms
                    context = LaunchContext(configuration, footprint_bytes, times_ms)
                    trial = trial.with_measurement(
                        metrics={**trial.measurement.metrics, **self._observation.measure(context, program, buffers)}
                    )
            warnings = self._data.warnings(configuration)
            if trial.is_valid and self._as_given:
                warnings += self._unchanged(buffers)
            if code := trial.measurement.metrics.get("exit_code"):
                warnings += (f"the program exited with code {code:g}: in these types it does not pass its own check",)
            with clock.phase("transfer"):
                damage = "; ".join(self.memory.damage(buffers))
            if damage:  # the inputs of the last launches are unknown
                trial = dataclasses.replace(trial, status=Status.CORRUPT, message=damage)
            trial = self._on_further_draws(request, program, dataclasses.replace(trial, warnings=warnings), clock)
            return trial.with_measurement(durations_s=clock.durations_s)

    def _measure(self, request: Request, program: Program, buffers: Buffers, plan: TimingPlan, clock: _Clock) -> Trial:
        """Check the outputs of one launch, time further ones, and compare the outputs of the last."""
        decided, configuration = request.plan, request.configuration
        is_widest = configuration.is_among(self.kernel.baseline_values())
        metrics = {"memory_bytes": float(self._data.footprint_bytes(configuration))}
        times: tuple[float, ...] = ()

        def trial(status: Status, message: str = "") -> Trial:
            return Trial(configuration, status, message, Measurement(metrics, times, clock.durations_s))

        def untimed(status: Status, message: str) -> Trial:
            # Kernel times of a first launch are unreliable, so only the counts are kept.
            metrics.update({name: n for name, n in program.metrics().items() if name.startswith(LAUNCHES)})
            return trial(status, message)

        if program.binary is not None:
            share = self.backend.compiler.vector_share(program.binary)
            metrics.update({} if math.isnan(share) else {"vector_share": share})
        first, launch_ms = Outcome(errors=decided.known), 0.0
        if not decided.known:
            first, launch_ms = self._check(program, buffers, clock)
        metrics.update(first.errors)
        if first.status is not Status.OK:
            return untimed(first.status, first.message)
        # Rounding does not explain a large error of the widest types: further launches tell a race from a wrong kernel.
        if not (decided.known or is_widest or decided.times_after_check(metrics)):
            return untimed(Status.INACCURATE, "not timed: its error is above the threshold")
        if (limit_ms := decided.launch_limit_ms) < launch_ms:
            launch_ms = min(launch_ms, self._relaunched_ms(program, buffers, limit_ms, clock))
            if launch_ms > limit_ms:
                metrics.update(decided.launch_limit(limit_ms / 1e3))
                reason = f"more than {decided.launch_factor:g} times the baseline's {decided.baseline_ms:.3g} ms"
                return untimed(
                    Status.TIMEOUT, f"a launch took {launch_ms:.3g} ms, {reason}; --trial-limit gives it longer"
                )
        checked = (launch_ms, clock.durations_s.get("launch", 0.0))
        times = self._timed(program, buffers, plan, decided.best_ms, checked, clock)
        metrics.update(time_metrics(times))
        metrics.update(program.metrics())
        with clock.phase("accuracy"):
            known = self._outcomes.get(configuration) if decided.known else first
            last = self._outcomes[configuration] = self._comparison.outcome(buffers, known)
        if last.message:
            metrics["error"] = metrics["error_last"] = math.nan
            difference = f"error was {first.errors['error']:.3g} at first, and then {last.message}"
        else:
            roundoff, scale = self.kernel.roundoff_of(configuration), self._data.largest_reference
            difference = decided.difference(first.errors, last.errors, roundoff, scale, is_widest=is_widest)
            metrics.update(worst_errors(first.errors, last.errors, is_own=bool(decided.known)))
            if not difference:
                return trial(Status.OK)
            metrics["error_last"] = last.errors["error"]
        metrics["error_first"] = first.errors["error"]
        return trial(Status.UNSTABLE, f"the results differ from launch to launch: {difference}")

    def _check(self, program: Program, buffers: Buffers, clock: _Clock) -> tuple[Outcome, float]:
        """Launch once on poisoned outputs; return the outcome and the milliseconds of the launch."""
        with clock.phase("transfer"):
            buffers.poison()
        launch_ms = self._launched_ms(program, buffers, clock)
        with clock.phase("transfer"):
            overruns = buffers.overruns()
        if overruns:
            return Outcome(Status.CORRUPT, "; ".join(overruns)), launch_ms
        with clock.phase("accuracy"):
            return self._comparison.outcome(buffers), launch_ms

    def _launched_ms(self, program: Program, buffers: Buffers, clock: _Clock) -> float:
        with clock.phase("launch"):
            buffers.restore()
            return program.run(buffers)

    def _relaunched_ms(self, program: Program, buffers: Buffers, limit_ms: float, clock: _Clock) -> float:
        """Return the shortest of repeated launches: the first may be slow, or the machine busy."""
        start, shortest_ms = time.perf_counter(), math.inf
        while shortest_ms > limit_ms and (shortest_ms == math.inf or time.perf_counter() - start < _RELAUNCHING_S):
            shortest_ms = min(shortest_ms, self._launched_ms(program, buffers, clock))
        return shortest_ms

    def _timed(
        self,
        program: Program,
        buffers: Buffers,
        plan: TimingPlan,
        best_ms: float,
        checked: tuple[float, float],
        clock: _Clock,
    ) -> tuple[float, ...]:
        """Return the times of launches, each on restored data, with caches emptied if the plan says so."""
        if is_timed_by(checked, plan, best_ms):
            return (checked[0],)
        with clock.phase("transfer"):
            # Before the warm-up, so that a launch leaves the caches for the timed launches.
            buffers.poison()
        with clock.phase("timing"):

            def launch() -> float:
                buffers.restore()
                if self._flush is not None:
                    self._flush()
                return program.run(buffers)

            self.backend.device.wake()
            return repeat_launches(launch, plan, best_ms=best_ms, checked=checked)

    def _unchanged(self, buffers: Buffers) -> tuple[str, ...]:
        """Return remarks on outputs of an application that no run has changed: its steps may forget them."""
        checksum, pristine = self.memory.checksum, buffers.pristine
        self._as_given = {
            name
            for name in self._as_given & pristine.keys()
            if checksum(buffers.places[name]) == checksum(pristine[name])
        }
        if not self._as_given:
            return ()
        names = ", ".join(repr(o.name) for o in self.kernel.outputs if o.name in self._as_given)
        return (
            f"no launch and no write in the steps of {self.kernel.called} changes {names}: "
            "a run returns the values that it was given",
        )

    # -- further draws -------------------------------------------------------------------------

    def _on_further_draws(self, request: Request, program: Program, trial: Trial, clock: _Clock) -> Trial:
        """Return a trial after further draws of the search, as many as time allows."""
        if trial.status is not Status.OK or request.plan.known or request.plan.draws < 2:
            return trial
        found: list[Mapping[str, float]] = []
        # Phases of further draws are separate from those of the first draw.
        inner = _Clock(self._announce)
        for draw in (Draw(Stream.SEARCH, number) for number in range(1, request.plan.draws)):
            start = time.perf_counter()
            needed_s = self._drawing_s + (0.0 if draw in self._drawn else self._making_s)
            if not request.plan.runs_further_draws(trial.measurement.metrics, needed_s, start - self._made_at):
                break
            try:
                with inner.phase("inputs"):
                    self._data_of(draw)
                outcome = self._check_drawn(program, draw, inner)
            except MptuneError as error:
                if draw in self._drawn:
                    raise
                trial = dataclasses.replace(trial, warnings=(*trial.warnings, f"{draw} cannot be made: {error}"))
                break
            finally:
                took_s = time.perf_counter() - start
                clock.durations_s["draws"] = clock.durations_s.get("draws", 0.0) + took_s
                self._drawing_s += took_s
            if outcome.status is not Status.OK:
                return dataclasses.replace(trial, status=outcome.status, message=f"on {draw}: {outcome.message}")
            found.append(outcome.errors)
            warnings = dict.fromkeys((*trial.warnings, *self._other_masks(outcome)))
            trial = dataclasses.replace(trial, warnings=tuple(warnings))
        return with_draws(trial, found)

    def _other_masks(self, outcome: Outcome) -> tuple[str, ...]:
        """Return remarks on outputs with NaN in the reference of a further draw, but not of the first."""
        return tuple(
            f"elements of output {name!r} are NaN in the references of some draws, though not in that of the first, "
            "and are not compared there"
            for name in outcome.masked
            if name not in self.ready.masked
        )

    def _check_drawn(self, program: Program, draw: Draw, clock: _Clock) -> Outcome:
        with clock.phase("transfer"):
            buffers = self.memory.bind(program, self._data_of(draw))
        outcome, _ = self._check(program, buffers, clock)
        with clock.phase("transfer"):
            damage = "; ".join(self.memory.damage(buffers))
        return Outcome(Status.CORRUPT, damage) if damage else outcome
