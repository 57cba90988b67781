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
from mptune.buffers import Draw
from mptune.build import compilers_of, on_host
from mptune.capturing import CapturedLaunch
from mptune.errors import MptuneError, TemplateError
from mptune.evaluators.base import Evaluator
from mptune.evaluators.bench import Ready, Request
from mptune.evaluators.devices import Devices, LocalDevices
from mptune.evaluators.identity import launch_identity, metric_identity, source_of, trial_key, unversioned
from mptune.evaluators.protocol import Capture, Finished, Job, MeasureRates, OnDraws, Rounds
from mptune.evaluators.rounds import VISIT
from mptune.evaluators.screening import Foretold, Screening
from mptune.evaluators.timing import TimingPlan
from mptune.evaluators.worker_process import Limits
from mptune.evidence import dependence, disagree
from mptune.headers import with_headers
from mptune.kernel import Kernel, Rates, Sizes, Tunable
from mptune.policy import Action, Facts, MeasurementPolicy, Plan
from mptune.rendering import cited
from mptune.results import Measurement, Status, Trial
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
        #: The trials whose error was measured on themselves: all, and by accuracy signature.
        self._checked: list[Trial] = []
        self._siblings: dict[tuple[Value, ...], list[Trial]] = {}
        #: Keys of the configurations on a device.
        self._under_way: dict[Configuration, str] = {}
        #: Names of the parameters outside the signature that have several values.
        self._free = [p.name for p in kernel.parameters if p.name not in kernel.signature_names and len(p.values) > 1]
        #: Whether no two configurations of one accuracy signature have disagreed.
        self.holds = True
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
            self._sizes = Sizes({**self._sizes, **self._ready.sizes})
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
        """Take in a trial, so that its signature's error is not measured again and again."""
        if not trial.is_valid or trial.measurement.reused_error:
            return
        siblings = self._siblings.setdefault(self._kernel.signature_of(trial.configuration), [])
        roundoff = self._kernel.roundoff_of(trial.configuration)
        if any(disagree(trial, sibling, roundoff) for sibling in siblings):
            self.holds = False
        siblings.append(trial)
        self._checked.append(trial)
        if self._screening is not None:
            self._screening.compare([trial])

    def _forget(self, configuration: Configuration) -> None:
        """Take back what a trial of a configuration said."""
        signature = self._kernel.signature_of(configuration)
        self._checked = [trial for trial in self._checked if trial.configuration != configuration]
        left = [trial for trial in self._siblings.pop(signature, []) if trial.configuration != configuration]
        if left:
            self._siblings[signature] = left

    @property
    def why_not_screened(self) -> str:
        """Why types are not ruled out before they are compiled, though they were to be, in one line; else empty."""
        return "" if self._screening is None else self._screening.why_not

    def doubts(self) -> str:
        """Say in one line that errors depend on more than the accuracy signature, and on what; empty if they do not."""
        if self.holds or not self._checked:
            return ""
        roundoff = max(self._kernel.roundoff_of(trial.configuration) for trial in self._checked)
        return (
            f"errors of kernel {self._kernel.name} do not depend on its accuracy signature "
            f"({', '.join(self._kernel.signature_names)}) alone: {dependence(self._siblings, self._free, roundoff)}; "
            "from now on every configuration is checked itself, and whatever wins always is"
        )

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
        if configuration not in self._sources and not self.policy.is_hopeless(self._facts(configuration)):
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
        plan = self.policy.plan(self._facts(configuration, best_ms))
        if plan.action is Action.REJECT:
            self._settled.append(self._rejected(configuration, plan, key))
            return
        self._devices.submit(Request(configuration, source, plan))
        self._under_way[configuration] = key

    def _facts(self, configuration: Configuration, best_ms: float = math.inf) -> Facts:
        """Return what is known of a configuration before it is evaluated."""
        siblings = self._siblings.get(self._kernel.signature_of(configuration), ())
        is_widest = configuration.is_among(self._kernel.baseline_values())
        facts = Facts(siblings, self._checked, best_ms, self._free, self.holds, is_widest)
        if self._screening is None or siblings or is_widest:
            return facts
        traced = self._screening.errors(configuration)
        found = dataclasses.replace(facts, traced=traced, agreement=self._screening.agreement)
        # Some are measured all the same, to see whether instrumented errors hold.
        is_measured = self.policy.is_hopeless(found) and self._screening.is_sample(configuration)
        return facts if is_measured else found

    def foretold(self, configuration: Configuration) -> Foretold | None:
        """Return what an instrumented run says of the error of a signature that nobody has measured.

        Nothing is said as long as it is not known how far such errors can be relied on.
        """
        facts = self._facts(configuration)
        if self._screening is None or facts.siblings or facts.is_widest or math.isinf(self._screening.agreement):
            return None
        errors = self._screening.errors(configuration)
        if not errors:
            return None
        plan = self.policy.plan(facts)
        if plan.action is Action.REJECT:
            rejected = self._rejected(configuration, plan, self.key_of(configuration))
            return Foretold(self.policy.objective.judge(rejected), self._screening.agreement)
        return Foretold(_traced(configuration, errors), self._screening.agreement, is_sample=not facts.traced)

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
        facts = Facts(traced=trial.measurement.metrics, holds=self.holds, agreement=self._screening.margin)
        return bool(self.policy.is_hopeless(facts))

    @staticmethod
    def _rejected(configuration: Configuration, plan: Plan, key: str) -> Trial:
        """Return the trial of a configuration that is not run."""
        status = Status.INACCURATE if math.isfinite(plan.errors["error"]) else Status.NON_FINITE
        return Trial(configuration, status, plan.reason, Measurement(plan.errors, reused_error=True), key=key)

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

        An error that was reused is now measured. One that fails is of no evidence any more. Nothing is returned for
        those whose turn had not come when another one left the device unusable. Only while nothing is under way.

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
        turns: list[Trial] = []
        for trial in answer.trials:
            # Where the error was known it was the configuration's own; otherwise it has been measured now.
            own = trial.with_measurement(reused_error=False)
            turns.append(dataclasses.replace(own, key=before[trial.configuration].key))
        for trial in {turn.configuration: turn for turn in turns}.values():
            if not trial.is_valid:
                self._forget(trial.configuration)
            elif before[trial.configuration].measurement.reused_error:
                self.remember(trial)
        return dataclasses.replace(answer, trials=tuple(turns))

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
    return Trial(configuration, status, measurement=Measurement(errors, reused_error=True))
