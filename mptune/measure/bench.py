"""Evaluating one configuration on a device: compile, check the answer, time it, check again, look for damage."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mptune.accuracy.evaluate import Metrics, Output, error_names, first_look, judging
from mptune.backends.base import Backend, CompileOptions, DeviceInfo
from mptune.data import DataManager, Draw, Stream, rounded_inputs
from mptune.errors import CompileError, ConstraintError, KernelError, LaunchError, MptuneError, OutOfMemoryError
from mptune.kernel import Application, Kernel, Rates, Sizes, Tunable
from mptune.measure.answers import with_reference
from mptune.measure.capturing import CapturedLaunch
from mptune.measure.device_data import BoundArguments, DeviceData
from mptune.measure.draws import DrawnData
from mptune.measure.observing import Observation
from mptune.measure.policy import Plan, worst_errors
from mptune.measure.programs import ApplicationProgram, KernelProgram, Program
from mptune.measure.timing import CacheFlush, TimingPlan, repeat_launches, wants_flush
from mptune.observers import OBSERVERS
from mptune.observers.accuracy import AccuracyObserver
from mptune.observers.base import LaunchContext, Observer, Target
from mptune.observers.memory import MemoryObserver
from mptune.observers.time import TimeObserver
from mptune.results.kernel_times import LAUNCHES
from mptune.results.trial import Measurement, Status, Trial
from mptune.results.unseen import with_draws
from mptune.space.configuration import Configuration

if TYPE_CHECKING:
    from mptune.measure.instrument import Instrument

__all__ = ["INSTRUMENTED", "SPEEDS", "Bench", "Ready", "Request", "metric_names"]


_STATUS: dict[type[MptuneError], Status] = {
    CompileError: Status.COMPILE_ERROR,
    ConstraintError: Status.CONSTRAINT,
    OutOfMemoryError: Status.OUT_OF_MEMORY,
    LaunchError: Status.LAUNCH_ERROR,
}

#: The phase of an instrumented run.
INSTRUMENTED: Final = "instrumented run"
#: The phase in which the device is measured.
SPEEDS: Final = "speeds of the device"


def metric_names(kernel: Tunable, metric: Metrics) -> tuple[str, ...]:
    """Return the names of the metrics a trial of a kernel can have: those it always has, then those to be asked for."""
    errors = error_names([output.name for output in kernel.outputs], metric)
    always = (*TimeObserver.metrics, *MemoryObserver.metrics, *AccuracyObserver.metrics, *errors)
    return (*always, *(name for kind in OBSERVERS.values() if kind.is_optional for name in kind.metrics))


@dataclass(frozen=True, slots=True)
class Request:
    """One configuration to evaluate.

    Attributes:
        configuration: what to evaluate.
        source: its rendered source.
        plan: what is to be measured; by default everything.
    """

    configuration: Configuration
    source: str
    plan: Plan = field(default_factory=Plan)


@dataclass(frozen=True, slots=True)
class Ready:
    """What a bench reports before the first evaluation.

    Attributes:
        device: where launches go.
        identity: device, compiler, versions and flags, as text; times compare only if it is equal.
        data_key: identity of inputs and references.
        facts: what constraints may say of the device (:meth:`Device.facts`).
        options: with which another process compiles the very same binaries, without looking at the device.
        observers: names of the observers that can measure here, of those asked for.
        unavailable: why something users expect is not available here, by name: an observer, a metric of one, …
        remarks: what a user should know of the error metrics, one line each.
        rounded: how much types round the inputs beside those at other sizes (:func:`~mptune.data.rounded_inputs`).
    """

    device: DeviceInfo
    identity: str
    data_key: str
    facts: Mapping[str, Any]
    options: CompileOptions
    observers: tuple[str, ...] = ()
    unavailable: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    rounded: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Clock:
    """Wall time by phase; tells ``announce`` which phase is on, so that a crash can be placed."""

    announce: Callable[[str], None]
    durations_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.announce(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.durations_s[name] = self.durations_s.get(name, 0.0) + time.perf_counter() - start


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What the outputs were like after a launch; the errors by the names of their metrics.

    ``digest`` is a checksum of the outputs: where it is equal they are, and need not be compared again.
    """

    status: Status = Status.OK
    message: str = ""
    errors: Mapping[str, float] = field(default_factory=dict)
    digest: int | None = None


@dataclass(slots=True)
class _Loaded:
    """A program, and what its outputs were like when they were compared last, on the usual data."""

    program: Program
    outcome: _Outcome | None = None


@dataclass(frozen=True, slots=True)
class _Launches:
    """Launches of one program on the same arguments, each on restored data; returns milliseconds."""

    program: Program
    bound: BoundArguments
    flush: CacheFlush | None

    def __call__(self) -> float:
        self.bound.restore()
        return self.program.launch(self.bound)

    def timed(self) -> float:
        """Launch from the state of the caches a timed launch is to find."""
        self.bound.restore()
        if self.flush is not None:
            self.flush()
        return self.program.launch(self.bound)


class Bench:
    """Evaluates configurations of one kernel on one device, in this very process.

    Args:
        kernel: the kernel.
        sizes: its problem sizes.
        backend: compiles and launches.
        metric: error metrics instead of the kernel's own, as :func:`~mptune.accuracy.evaluate_outputs` takes them.
        seed: seeds the inputs.
        options: how to compile.
        plan: how often to launch.
        observers: names of the optional observers to switch on.
        announce: told the name of each phase as it begins.
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
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._backend = backend
        self._options = options or CompileOptions()
        chosen = metric if metric is not None else kernel.metric
        if isinstance(kernel, Application):
            kernel = with_reference(kernel, backend, self._options, chosen, announce)
        self.kernel = kernel
        self._plan = plan or TimingPlan()
        self._announce = announce
        #: By configuration, what stays loaded; None where nothing does.
        self._kept: dict[Configuration, _Loaded] | None = None
        self._data = DataManager(kernel, sizes, seed=seed)
        self.sizes = self._data.sizes
        device = backend.describe()
        metrics = judging([output.name for output in kernel.outputs], chosen)
        self._device_data = DeviceData(backend, self._data, device.memory_bytes // 4, metrics)
        self._metrics = chosen
        #: Outputs of an application that no run has changed so far.
        self._as_given = {o.name for o in kernel.outputs} if isinstance(kernel, Application) else set[str]()
        start = time.perf_counter()
        self._accuracy = AccuracyObserver(self._data.references, chosen, self._data.inputs)
        self._drawn = DrawnData(kernel, sizes, seed)
        #: When the first draw was made, how long that took, and how long others have been made and run since.
        self._made_at = time.perf_counter()
        self._making_s = self._made_at - start
        self._drawing_s = 0.0
        self._data.require_repeatable()
        remarks = first_look(metrics, self._data.references, self._data.inputs)
        self._flush: CacheFlush | None = None
        self._cold: CacheFlush | None = None
        self._instrument: Instrument | None = None
        if wants_flush(self._plan, backend, kernel, self.sizes, self._data):
            self._flush = CacheFlush(backend, device.limits["cache_bytes"])
        target = Target(
            kernel,
            sizes,
            backend.name,
            device.architecture,
            device.pci_bus_id,
            device.sensors,
            backend.tells_resources,
        )
        self._observation = Observation(observers, target)
        unavailable = dict(self._observation.unavailable)
        if reason := self._device_data.no_arrays:
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
        )

    def evaluate(self, request: Request, plan: TimingPlan | None = None) -> Trial:
        """Return the trial of a configuration; a failure becomes its status and message.

        Args:
            request: the configuration and what is known of it.
            plan: how often to launch; by default the bench's own plan.
        """

        def run(clock: _Clock) -> Trial:
            trial = self._run(request, plan or self._plan, clock)
            warnings = (*self._data.warnings(request.configuration), *trial.warnings)
            return dataclasses.replace(trial, warnings=warnings)

        return self._guarded(request, run)

    def make(self, draw: Draw) -> None:
        """Make inputs and references of a further draw, unless they are here.

        Raises:
            MptuneError: the kernel's functions fail, or give what it does not declare; or the draw is to be an unseen
                one and has the inputs of the search.
        """
        self._announce("inputs")
        made = self._drawn.of(draw)
        if draw.stream is Stream.UNSEEN and made.has_inputs_of(self._data):
            raise KernelError(
                f"inputs of kernel {self.kernel.name} give the same as in the search: they do not depend on rng, so no "
                "input is unseen"
            )

    def check_on(self, request: Request, draw: Draw) -> Trial:
        """Return the trial of a configuration on a further draw that has been made: its errors there.

        Args:
            request: the configuration.
            draw: the draw.
        """

        def check(clock: _Clock) -> Trial:
            with clock.phase("compile"):
                program = self._loaded(request).program
            try:
                outcome = self._check_drawn(request.configuration, program, draw, clock)
            finally:
                if self._kept is None:
                    program.unload()
            measured = Measurement(outcome.errors, durations_s=clock.durations_s)
            return Trial(request.configuration, outcome.status, outcome.message, measured)

        return self._guarded(request, check)

    def capture(self, request: Request, folder: Path) -> tuple[CapturedLaunch, ...]:
        """Run an application and write to a folder the data of one of each kind of its launches.

        Raises:
            MptuneError: the configuration cannot be run.
        """
        with self.keeping_loaded():
            program = self._loaded(request).program
            assert isinstance(program, ApplicationProgram)
            return program.capture(self._device_data.bind(request.configuration), folder)

    def traced(self, request: Request) -> Trial:
        """Return the trial of a configuration that an instrumented build has run on the host: errors alone."""

        def run(clock: _Clock) -> Trial:
            from mptune.measure.instrument import Instrument  # for the few runs that ask for it

            with clock.phase(INSTRUMENTED):
                if self._instrument is None:
                    flags = self._options.flags
                    self._instrument = Instrument(
                        self.kernel, self.sizes, metric=self._metrics, flags=flags, data=self._data
                    )
                signature = {name: request.configuration[name] for name in self.kernel.signature_names}
                errors = self._instrument.errors(signature)
            return Trial(request.configuration, Status.OK, measurement=Measurement(errors))

        return self._guarded(request, run)

    def is_usable(self, trial: Trial) -> bool:
        """Whether the device can still be used after a trial.

        A fault in a kernel can end it for this process, and a kernel that wrote where it must not may have damaged
        anything.
        """
        if trial.status is Status.CORRUPT:
            return False
        return trial.status is not Status.LAUNCH_ERROR or self._backend.device.is_usable()

    def rates(self) -> Rates:
        """Return the speeds of the device, measured now.

        Raises:
            MptuneError: the measurements do not compile or run.
        """
        # Every worker would import what renders templates for it, and most of them never measure the device.
        from mptune.measure.roofline import Roofline

        # Several launches of many kernels: as long as a start may take, and nothing else runs meanwhile.
        self._announce(SPEEDS)
        return Roofline(self._backend).rates()

    @property
    def is_on_processor(self) -> bool:
        """Whether launches share the processor with whatever else this machine does."""
        return self._backend.shares_memory

    def nearest(self, address: int) -> str:
        """Say where an address lies by the buffer that is nearest, empty if none is near; on the processor alone."""
        return self._device_data.nearest(address)

    @contextmanager
    def keeping_loaded(self) -> Iterator[None]:
        """Unload functions at the end of a block instead of after each trial: for configurations that come again."""
        self._kept = {}
        try:
            yield
        finally:
            kept, self._kept = self._kept, None
            for loaded in kept.values():
                loaded.program.unload()

    def close(self) -> None:
        """Free the device memory."""
        self._device_data.free()
        if self._instrument is not None:
            self._instrument.close()
        for flush in (self._flush, self._cold):
            if flush is not None:
                flush.free()

    def _guarded(self, request: Request, evaluate: Callable[[_Clock], Trial]) -> Trial:
        """Return the trial of an evaluation; a failure becomes its status and message."""
        clock = _Clock(self._announce)
        try:
            try:
                trial = evaluate(clock)
            except MemoryError:
                # What other configurations left here must not decide whether this one fits.
                self._device_data.free()
                trial = evaluate(clock)
        except MptuneError as error:
            status, message = _STATUS.get(type(error), Status.ERROR), str(error)
        except MemoryError as error:
            status, message = Status.OUT_OF_MEMORY, f"host memory ran out: {error}"
        else:
            if trial.status is Status.CORRUPT:
                # What else it has overwritten is not known: everything is uploaded anew.
                self._device_data.free()
            return trial
        return Trial(request.configuration, status, message, Measurement(durations_s=clock.durations_s))

    def _run(self, request: Request, plan: TimingPlan, clock: _Clock) -> Trial:
        configuration = request.configuration
        with clock.phase("compile"):
            loaded = self._loaded(request)
        program = loaded.program
        try:
            with clock.phase("transfer"):
                bound = self._device_data.bind(configuration)
                program.set_constants(bound)
            launches = _Launches(program, bound, self._flush_for(plan))
            trial = self._measure(request, loaded, launches, plan, clock)
            if trial.status is Status.OK and request.plan.observe and self._observation.names:
                with clock.phase("observe"):
                    context = self._context(configuration, trial.measurement.times_ms)
                    more = self._observation.measure(context, program, bound)
                measured = dataclasses.replace(trial.measurement, metrics={**trial.measurement.metrics, **more})
                trial = dataclasses.replace(trial, measurement=measured)
            if trial.is_valid and self._as_given:
                trial = dataclasses.replace(trial, warnings=self._unchanged(bound))
            if damage := self._damage(bound, program, clock):
                # Whatever its outputs say, they may be of other inputs than those that were meant.
                trial = dataclasses.replace(trial, status=Status.CORRUPT, message=damage)
            trial = self._on_further_draws(request, program, trial, clock)
            return dataclasses.replace(
                trial, measurement=dataclasses.replace(trial.measurement, durations_s=clock.durations_s)
            )
        finally:
            if self._kept is None:
                program.unload()

    # -- further draws -------------------------------------------------------------------------

    def _on_further_draws(self, request: Request, program: Program, trial: Trial, clock: _Clock) -> Trial:
        """Return a trial after its configuration ran on those further draws of the search there is time for."""
        if trial.status is not Status.OK or request.plan.known or request.plan.draws < 2:
            return trial
        check_s = math.fsum(clock.durations_s.get(name, 0.0) for name in ("transfer", "launch", "accuracy"))
        found: list[Mapping[str, float]] = []
        # What it takes is told apart from what the first draw took.
        inner = _Clock(self._announce)
        for draw in (Draw(Stream.SEARCH, number) for number in range(1, request.plan.draws)):
            start = time.perf_counter()
            # The references of the first draw may have been on disk: what another one takes is known once one was made.
            making_s = 0.0 if self._drawn.holds(draw) else max(self._making_s, self._drawn.making_s)
            if not request.plan.runs_further_draws(
                trial.measurement.metrics, making_s + check_s, self._drawing_s, start - self._made_at
            ):
                break
            try:
                try:
                    with inner.phase("inputs"):
                        self._drawn.of(draw)
                except MptuneError as error:
                    return dataclasses.replace(
                        with_draws(trial, found), warnings=(*trial.warnings, f"{draw} cannot be made: {error}")
                    )
                outcome = self._check_drawn(request.configuration, program, draw, inner)
            finally:
                took_s = time.perf_counter() - start
                clock.durations_s["draws"] = clock.durations_s.get("draws", 0.0) + took_s
                self._drawing_s += took_s
            if outcome.status is not Status.OK:
                return dataclasses.replace(trial, status=outcome.status, message=f"on {draw}: {outcome.message}")
            found.append(outcome.errors)
        return with_draws(trial, found)

    def _check_drawn(self, configuration: Configuration, program: Program, draw: Draw, clock: _Clock) -> _Outcome:
        """Launch once on a further draw and compare."""
        before = self._data, self._accuracy
        self._data = self._drawn.of(draw)
        self._accuracy = AccuracyObserver(self._data.references, self._metrics, self._data.inputs)
        self._device_data.use(self._data)
        try:
            with clock.phase("transfer"):
                bound = self._device_data.bind(configuration)
                program.set_constants(bound)
            outcome = self._check(configuration, _Launches(program, bound, None), clock)
            if damage := self._damage(bound, program, clock):
                return _Outcome(Status.CORRUPT, damage)
            return outcome
        finally:
            self._data, self._accuracy = before
            self._device_data.use(self._data)

    def _flush_for(self, plan: TimingPlan) -> CacheFlush | None:
        """Return what empties the caches before timed launches; where only a plan asks for it, from then on kept."""
        if plan.flush_cache != "on":
            return self._flush
        if self._flush is None and self._cold is None:
            self._cold = CacheFlush(self._backend, self.ready.device.limits["cache_bytes"])
        return self._flush or self._cold

    def _loaded(self, request: Request) -> _Loaded:
        # Not by the source: configurations of one source may differ in grid and block.
        kept = {} if self._kept is None else self._kept
        if request.configuration not in kept:
            kept[request.configuration] = _Loaded(self._program(request))
        return kept[request.configuration]

    def _program(self, request: Request) -> Program:
        if isinstance(self.kernel, Application):
            return ApplicationProgram(
                self._backend, self._options, self.kernel, request.configuration, self._data.sizes
            )
        assert isinstance(self.kernel, Kernel)
        # Before it is compiled: an extent may be below 1.
        self.kernel.launch_shape(request.configuration, self._data.sizes)
        binary = self._backend.compiler.compile(request.source, self.kernel.function, self._options)
        return KernelProgram(self._backend, binary, self.kernel, request.configuration, self._data.sizes)

    def _measure(
        self, request: Request, loaded: _Loaded, launches: _Launches, plan: TimingPlan, clock: _Clock
    ) -> Trial:
        configuration, decided = request.configuration, request.plan
        metrics: dict[str, float] = {}
        times: tuple[float, ...] = ()

        def trial(status: Status, message: str = "") -> Trial:
            return Trial(configuration, status, message, Measurement(metrics, times, clock.durations_s))

        metrics.update(_observed(MemoryObserver(), self._context(configuration, times)))
        binary = loaded.program.binary
        share = math.nan if binary is None else self._backend.compiler.vector_share(binary)
        metrics.update({} if math.isnan(share) else {"vector_share": share})
        first = _Outcome(errors=decided.known) if decided.known else self._check(configuration, launches, clock)
        metrics.update(first.errors)
        if first.status is not Status.OK:
            metrics.update(_launches(loaded.program))
            return trial(first.status, first.message)
        if not decided.known and not (is_timed := decided.times_after_check(metrics)):
            metrics.update(_launches(loaded.program))
            return trial(Status.INACCURATE, is_timed.reason)
        with clock.phase("transfer"):
            # Before the launches that warm up: those that are timed find the caches as one of their kind leaves them.
            self._device_data.poison(launches.bound)
        with clock.phase("timing"):
            self._backend.device.wake()
            times = repeat_launches(launches.timed, plan, best_ms=decided.best_ms)
            metrics.update(_observed(TimeObserver(), self._context(configuration, times)))
        metrics.update(loaded.program.metrics())
        last = loaded.outcome = self._compare(
            configuration, launches.bound, clock, loaded.outcome if decided.known else first
        )
        if last.message:
            metrics["error"] = metrics["error_last"] = math.nan
            difference = f"error was {first.errors['error']:.3g} at first, and then {last.message}"
        else:
            roundoff, scale = self.kernel.roundoff_of(configuration), self._data.largest_reference
            agreement = decided.is_stable(first.errors, last.errors, roundoff, scale)
            metrics.update(worst_errors(first.errors, last.errors, is_own=bool(decided.known)))
            if agreement:
                return trial(Status.OK)
            difference = agreement.reason
            metrics["error_last"] = last.errors["error"]
        metrics["error_first"] = first.errors["error"]
        return trial(Status.UNSTABLE, f"the results differ from launch to launch: {difference}")

    def _damage(self, bound: BoundArguments, program: Program, clock: _Clock) -> str:
        """Say what launches changed that they must not; empty if nothing."""
        with clock.phase("transfer"):
            return "; ".join((*self._device_data.damage(bound), *program.changed_constants(bound)))

    def _unchanged(self, bound: BoundArguments) -> tuple[str, ...]:
        """Say which outputs of an application no run has changed, this one included: its steps may forget them."""
        self._as_given.intersection_update(self._device_data.left_as_given(bound, self._as_given))
        if not self._as_given:
            return ()
        names = ", ".join(repr(o.name) for o in self.kernel.outputs if o.name in self._as_given)
        return (
            f"no launch and no write in the steps of {self.kernel.called} changes {names}: "
            "after a run the values are those it was given",
        )

    def _context(self, configuration: Configuration, times_ms: tuple[float, ...]) -> LaunchContext:
        return LaunchContext(configuration, self._data.footprint_bytes(configuration), dict, times_ms)

    def _check(self, configuration: Configuration, launches: _Launches, clock: _Clock) -> _Outcome:
        """Launch once on poisoned outputs and compare them."""
        with clock.phase("transfer"):
            self._device_data.poison(launches.bound)
        with clock.phase("launch"):
            launches()
        with clock.phase("transfer"):
            damage = _overruns(launches.bound)
        if damage:
            return _Outcome(Status.CORRUPT, "; ".join(damage))
        return self._compare(configuration, launches.bound, clock)

    def _compare(
        self, configuration: Configuration, bound: BoundArguments, clock: _Clock, known: _Outcome | None = None
    ) -> _Outcome:
        """Compare the outputs as they are, unless they are those of an outcome that is known."""
        with clock.phase("accuracy"):
            digest = self._device_data.digest(bound)
        if known is not None and known.digest == digest:
            return known
        with clock.phase("transfer"):
            outputs = self._device_data.outputs(bound)
        with clock.phase("accuracy"):
            try:
                outcome = self._errors(configuration, bound, outputs)
            except MemoryError:
                # The device holds the data but not what it takes to compare them.
                outcome = self._errors(configuration, bound, self._device_data.read_outputs(bound))
        return dataclasses.replace(outcome, digest=digest)

    def _errors(self, configuration: Configuration, bound: BoundArguments, outputs: Mapping[str, Output]) -> _Outcome:
        missing = self._device_data.unwritten(bound, outputs)
        if missing:
            what = ", ".join(f"{count} of {outputs[name].size} elements of {name!r}" for name, count in missing.items())
            return _Outcome(Status.UNWRITTEN, f"the kernel never wrote {what}")
        context = LaunchContext(configuration, self._data.footprint_bytes(configuration), lambda: outputs)
        # A signalling NaN that a kernel copied from beyond a buffer is no reason to warn.
        with np.errstate(invalid="ignore"):
            errors = _observed(self._accuracy, context)
        result = self._accuracy.result
        if result is not None and (result.non_finite or result.is_nan):
            return _Outcome(Status.NON_FINITE, result.message, errors)
        return _Outcome(errors=errors)


def _observed(observer: Observer, context: LaunchContext) -> Mapping[str, float]:
    observer.before(context)
    observer.after(context)
    return observer.results()


def _launches(program: Program) -> dict[str, float]:
    """Return how often kernels were launched; their times, of the first launch, are not to be relied on."""
    return {name: value for name, value in program.metrics().items() if name.startswith(LAUNCHES)}


def _overruns(bound: BoundArguments) -> list[str]:
    """Say what launches wrote outside the buffers."""
    return [f"the kernel wrote out of bounds of {name!r}: {overrun}" for name, overrun in bound.overruns().items()]
