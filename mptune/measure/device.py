"""Evaluation on devices, in worker processes that are replaced when a kernel brings them down."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mptune.accuracy.evaluate import Metrics
from mptune.backends.base import CompileOptions
from mptune.cpp.headers import with_headers
from mptune.data import Draw
from mptune.errors import MptuneError, TemplateError
from mptune.kernel import Kernel, Rates, Sizes, Tunable
from mptune.kernel.build import compilers_of, on_host
from mptune.measure.base import Evaluator
from mptune.measure.bench import Ready, Request
from mptune.measure.capturing import CapturedLaunch
from mptune.measure.devices import Devices, LocalDevices
from mptune.measure.identity import launch_identity, metric_identity, source_of, trial_key, unversioned
from mptune.measure.policy import MeasurementPolicy
from mptune.measure.protocol import Capture, Finished, Job, MeasureRates, OnDraws, Rounds
from mptune.measure.rounds import VISIT
from mptune.measure.screening import Foretold, Screening
from mptune.measure.timing import TimingPlan
from mptune.measure.worker_process import Limits
from mptune.results.trial import TRACED_ERROR, Measurement, Status, Trial
from mptune.source.render import cited
from mptune.space.configuration import Configuration, Value

__all__ = ["DeviceEvaluator", "Limits"]


class DeviceEvaluator(Evaluator):
    """Evaluates configurations of one kernel, on one device or several that are alike.

    What is submitted comes back in the order in which it ends (:meth:`submit`, :meth:`finished`). What is measured of
    a configuration is for the policy to decide.

    Args:
        kernel: the kernel.
        sizes: its problem sizes.
        backend: name of the backend.
        metric: error metric instead of the kernel's own.
        seed: seeds the inputs.
        flags: further compiler flags.
        plan: how often to launch.
        limits: wall-clock limits.
        policy: decides what is measured; by default that of a run in which less time wins.
        compilers: compilations at a time, ahead of the evaluations; 0 for none but the worker's own.
        observers: names of the optional observers to switch on.
        workers: devices of this machine, one worker process for each.
        devices: makes other devices than those of this machine; ``workers`` and ``compilers`` are then not looked at.

    Raises:
        MptuneError: there are not as many devices as workers, or the kernel cannot be sent to a worker.
    """

    def __init__(
        self,
        kernel: Tunable,
        sizes: Sizes,
        backend: str,
        *,
        metric: Metrics | None = None,
        seed: int = 0,
        flags: Sequence[str] = (),
        plan: TimingPlan | None = None,
        limits: Limits | None = None,
        policy: MeasurementPolicy | None = None,
        compilers: int = 0,
        observers: Sequence[str] = (),
        workers: int = 1,
        devices: Callable[[Job, Limits], Devices] | None = None,
    ) -> None:
        self._kernel = kernel
        self.policy = policy or MeasurementPolicy()
        self._sizes = sizes
        self._flags = tuple(flags)
        chosen = metric if metric is not None else kernel.metric
        #: Names of the error metrics without a version: no trial measured with one has the same key in another run.
        self.unversioned_metrics = unversioned(chosen)
        self._metric = metric_identity(chosen) + (f" {uuid.uuid4().hex}" if self.unversioned_metrics else "")
        limits = limits or Limits()
        options = CompileOptions(flags=tuple(flags), timeout_s=limits.compile_s, compilers=compilers_of(kernel))
        self._plan = plan or TimingPlan()
        job = Job.of(kernel, sizes, backend, metric, seed, options, self._plan, tuple(observers))
        self._devices = LocalDevices(job, limits, workers, compilers) if devices is None else devices(job, limits)
        self._ready: Ready | None = None
        self._sources: dict[Configuration, str] = {}
        #: The accuracy signatures of which some configuration was measured.
        self._measured: set[tuple[Value, ...]] = set()
        #: Keys of the configurations on a device.
        self._under_way: dict[Configuration, str] = {}
        #: What says of signatures, before they are compiled, that they are hopeless; None where nothing does.
        self._screening: Screening | None = None
        if kernel.instrumented and self.policy.objective.limits:
            host = dataclasses.replace(options, flags=options.flags if backend == "host" else on_host(options.flags))
            told = Job.of(kernel, sizes, "host", metric, seed, host, self._plan)
            self._screening = Screening(kernel, told, limits)
        #: Trials that needed no device.
        self._settled: deque[Trial] = deque()

    def start(self) -> Ready:
        """Start the workers if they are not running and return what they report of their device.

        Raises:
            MptuneError: the kernel, its data or the backend is not usable, or the devices are not alike.
        """
        if self._ready is None:
            self._ready = self._devices.start()
        return self._ready

    def key_of(self, configuration: Configuration) -> str:
        """Return the key a trial of this configuration has under the present conditions."""
        try:
            source = source_of(self._kernel, configuration, self._sizes)
            launch = launch_identity(self._kernel, configuration, self._sizes)
        except MptuneError as error:
            return self._key(str(error))
        return self._key(source, launch)

    def remember(self, trial: Trial) -> None:
        """Compare a trial's errors with those of the instrumented run of its signature."""
        if not trial.is_valid or trial.is_screened:
            return
        self._measured.add(self._kernel.signature_of(trial.configuration))
        if self._screening is not None:
            self._screening.compare([trial])

    @property
    def why_not_screened(self) -> str:
        """Why types are not ruled out before they are compiled, though they were to be, in one line; else empty."""
        return "" if self._screening is None else self._screening.why_not

    @property
    def capacity(self) -> int:
        return self._devices.capacity

    @property
    def lead(self) -> int:
        return self._devices.lead

    @property
    def may_overlap(self) -> bool:
        return self._devices.may_overlap

    @property
    def under_way(self) -> int:
        return len(self._under_way) + len(self._settled)

    @property
    def ahead(self) -> tuple[Configuration, ...]:
        """The configurations that are compiled, or are being compiled, ahead of their turn."""
        return tuple(self._sources)

    def prepare(self, configuration: Configuration) -> None:
        """Begin to compile a configuration that is going to be evaluated."""
        if configuration not in self._sources and self._ruled_out(configuration) is None:
            # Rendering errors are reported on submit.
            with contextlib.suppress(MptuneError):
                self._sources[configuration] = source_of(self._kernel, configuration, self._sizes)
            if configuration in self._sources:
                self._devices.prepare(self._sources[configuration])

    def submit(self, configuration: Configuration, best_ms: float = math.inf) -> None:
        """Begin to evaluate a configuration; at most :attr:`capacity` are under way.

        Args:
            configuration: what to evaluate.
            best_ms: if it is clearly slower than this it is not timed as often.
        """
        try:
            source = self._sources.pop(configuration, None) or source_of(self._kernel, configuration, self._sizes)
            launch = launch_identity(self._kernel, configuration, self._sizes)
        except MptuneError as error:
            status = Status.COMPILE_ERROR if isinstance(error, TemplateError) else Status.ERROR
            self._settled.append(Trial(configuration, status, str(error), key=self._key(str(error))))
            return
        key = self._key(source, launch)
        if (ruled_out := self._ruled_out(configuration)) is not None:
            self._settled.append(ruled_out)
            return
        self._devices.submit(Request(configuration, source, self.policy.plan(best_ms)))
        self._under_way[configuration] = key

    def _traced(self, configuration: Configuration) -> Mapping[str, float]:
        """Return the errors of an instrumented run, for a signature that nobody has measured; else nothing."""
        is_measured = self._kernel.signature_of(configuration) in self._measured
        if self._screening is None or is_measured or configuration.is_among(self._kernel.baseline_values()):
            return {}
        return self._screening.errors(configuration)

    def _ruled_out(self, configuration: Configuration) -> Trial | None:
        """Return the trial of a configuration that an instrumented run rules out, None if it is to be measured.

        Some are measured all the same, to see whether instrumented errors hold.
        """
        traced = self._traced(configuration)
        if self._screening is None or not traced:
            return None
        decision = self.policy.is_hopeless(traced, self._screening.agreement)
        if not decision or self._screening.is_sample(configuration):
            return None
        status = Status.INACCURATE if math.isfinite(traced["error"]) else Status.NON_FINITE
        measured = Measurement({**traced, TRACED_ERROR: traced["error"]})
        return Trial(configuration, status, decision.reason, measured, key=self.key_of(configuration))

    def foretold(self, configuration: Configuration) -> Foretold | None:
        """Return what an instrumented run says of the error of a signature that nobody has measured.

        Nothing is said as long as it is not known how far such errors can be relied on.
        """
        traced = self._traced(configuration)
        if self._screening is None or not traced or math.isinf(self._screening.agreement):
            return None
        if (rejected := self._ruled_out(configuration)) is not None:
            return Foretold(self.policy.objective.judge(rejected), self._screening.agreement)
        is_sample = bool(self.policy.is_hopeless(traced, self._screening.agreement))
        return Foretold(_traced(configuration, traced), self._screening.agreement, is_sample)

    def hinted(self, configuration: Configuration) -> Trial | None:
        """Return what an instrumented run says of the error of a signature, however far such errors can be relied on.

        That is enough to choose by what is run, and nothing is ruled out by it.
        """
        errors = {} if self._screening is None else self._screening.errors(configuration)
        return _traced(configuration, errors) if errors else None

    def is_hopeless_still(self, trial: Trial) -> bool:
        """Whether a screened trial is, by what is known now of how far instrumented errors can be relied on."""
        if self._screening is None:
            return True
        return bool(self.policy.is_hopeless(trial.measurement.metrics, self._screening.margin))

    def finished(self) -> list[Trial]:
        trials = list(self._settled)
        self._settled.clear()
        if not trials:
            trials = [
                dataclasses.replace(trial, key=self._under_way.pop(trial.configuration), message=self._cited(trial))
                for trial in self._devices.finished()
            ]
        for trial in trials:
            self.remember(trial)
        return trials

    def remeasure(self, trials: Sequence[Trial], rounds: int, visit: TimingPlan = VISIT) -> Finished:
        """Measure the configurations of valid trials again in turn, so that whatever the machine does hits all alike.

        Nothing is returned for those whose turn had not come when another one left the device unusable. Only while
        nothing is under way.

        Args:
            trials: what was measured before.
            rounds: how often each configuration's turn comes.
            visit: how often it is launched in its turn.

        Returns:
            The trial of each turn, in the order in which they came.
        """
        requests = [
            Request(
                trial.configuration,
                source_of(self._kernel, trial.configuration, self._sizes),
                self.policy.plan_again(trial),
            )
            for trial in trials
        ]
        before = {trial.configuration: trial for trial in trials}
        answer = self._devices.ask(Rounds(tuple(requests), rounds, visit))
        turns = tuple(dataclasses.replace(trial, key=before[trial.configuration].key) for trial in answer.trials)
        return dataclasses.replace(answer, trials=turns)

    def run_on_draws(self, configurations: Sequence[Configuration], draws: Sequence[Draw]) -> Finished:
        """Return the trial of each configuration on each draw of the inputs. Only while nothing is under way.

        One that ends the worker has that trial as its last.

        Args:
            configurations: what is run.
            draws: on which draws.
        """
        requests = [Request(c, source_of(self._kernel, c, self._sizes)) for c in configurations]
        return self._devices.ask(OnDraws(tuple(requests), tuple(draws)))

    def rates(self) -> Rates:
        """Return the speeds of the device, measured now. Only while nothing is under way.

        Raises:
            MptuneError: they cannot be measured.
        """
        found = self._devices.ask(MeasureRates()).rates
        if found is None:
            raise MptuneError(
                "the speeds of the device could not be measured, so nothing is known to be balanced on it"
            )
        return found

    def capture(self, configuration: Configuration, folder: Path) -> tuple[CapturedLaunch, ...]:
        """Run an application, and write to a folder the data of one of each kind of its launches.

        Only while nothing is under way.

        Raises:
            MptuneError: it cannot be run in this configuration.
        """
        request = Request(configuration, source_of(self._kernel, configuration, self._sizes))
        answer = self._devices.ask(Capture(request, folder))
        if not answer.launches:
            reason = answer.trials[0].message if answer.trials else "the worker was lost"
            raise MptuneError(f"the launches of {self._kernel.called} could not be kept: {reason}")
        return answer.launches

    def close(self) -> None:
        """End the compilers and the workers, and what is under way."""
        self._devices.close()
        if self._screening is not None:
            self._screening.close()

    def _cited(self, trial: Trial) -> str:
        """Return a trial's message; a compiler's names the lines of the template."""
        if trial.status is not Status.COMPILE_ERROR or not isinstance(self._kernel, Kernel):
            return trial.message
        return cited(trial.message, self._kernel, trial.configuration, self._sizes)

    def _key(self, source: str, launch: str = "") -> str:
        ready = self.start()
        source = with_headers(source, self._flags)
        parts = (source, launch, ready.identity, ready.data_key, self._metric, repr(self._plan))
        return trial_key((*parts, *sorted(ready.observers)))


def _traced(configuration: Configuration, errors: Mapping[str, float]) -> Trial:
    """Return a trial with the errors of an instrumented run."""
    status = Status.OK if math.isfinite(errors["error"]) else Status.NON_FINITE
    return Trial(configuration, status, measurement=Measurement(errors))
