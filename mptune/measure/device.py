"""Evaluation on devices, in worker processes that are replaced when a kernel ends them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import queue
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from mptune.accuracy.evaluate import Metrics, all_metrics
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.cpp.prelude import with_headers
from mptune.data import Draw
from mptune.errors import MptuneError, TemplateError
from mptune.kernel import Kernel, Sizes, Tunable
from mptune.measure.base import Evaluator
from mptune.measure.bench import Ready, Request
from mptune.measure.policy import Plan
from mptune.measure.pool import ClusterPool, Pool
from mptune.measure.program import Launched
from mptune.measure.rounds import VISIT, Finished
from mptune.measure.timing import TimingPlan
from mptune.measure.worker import Job, Limits, WorkerDied, definition_of
from mptune.observers.base import Observer
from mptune.results.estimates import METRICS, Counts, estimates
from mptune.results.objective import Objective
from mptune.results.trial import Status, Trial
from mptune.source.flags import compilers_of, on_host
from mptune.source.render import cited, included_headers, render, template_hash
from mptune.space.configuration import Configuration, Value
from mptune.space.parameters import PolicyParameter, PrecisionParameter

#: Seconds that any first launch may take.
_LEAST_PHASE_S: Final = 3.0


class DeviceEvaluator(Evaluator):
    """Evaluates configurations of one kernel, on one device or several that are alike.

    ``metric`` replaces the kernel's own. ``objective`` decides which configurations are timed, and how closely; errors
    are measured on ``draws`` draws of the inputs. ``compilers`` compilations run ahead of the evaluations; with 0 only
    the worker compiles. Each of ``workers`` uses one device of this machine; ``pool`` makes another pool instead.
    With ``is_estimating`` trials have estimated times on GPUs.
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
        objective: Objective | None = None,
        draws: int = 1,
        compilers: int = 0,
        observers: Sequence[str | Observer] = (),
        workers: int = 1,
        pool: Callable[[Job, Limits], Pool | ClusterPool] | None = None,
        is_estimating: bool = False,
    ) -> None:
        self._kernel = kernel
        self._sizes = sizes
        self._flags = tuple(flags)
        chosen = metric if metric is not None else kernel.metric
        #: Names of the error metrics without a version, with which keys differ from run to run.
        self.unversioned_metrics = unversioned(chosen)
        self._metric = metric_identity(chosen) + (f" {uuid.uuid4().hex}" if self.unversioned_metrics else "")
        self.limits = limits or Limits()
        self.plan = Plan.of(objective or Objective(), draws, self.limits.launch_factor)
        self._job = Job(
            definition_of(kernel, metric, [each for each in observers if isinstance(each, Observer)]),
            kernel.function if isinstance(kernel, Kernel) else None,
            dict(sizes),
            backend,
            seed,
            CompileOptions(flags=self._flags, timeout_s=self.limits.compile_s, compilers=compilers_of(kernel)),
            plan or TimingPlan(),
            tuple(each for each in observers if isinstance(each, str)),
        )
        self._pool = Pool(self._job, self.limits, workers, compilers) if pool is None else pool(self._job, self.limits)
        self.may_overlap = self._pool.may_overlap
        #: Rendered sources of prepared configurations.
        self._sources: dict[Configuration, str] = {}
        #: Keys of the configurations under way, and their finished trials.
        self._under_way: dict[Configuration, str] = {}
        self._ended: queue.SimpleQueue[Future[Trial]] = queue.SimpleQueue()
        self._is_estimating = is_estimating
        #: Seconds of the first launch in any valid trial so far, at most.
        self._longest_s = 0.0
        #: What each kernel does, by the values that decide it.
        self._counts: dict[tuple[Value, ...], Mapping[str, Counts]] = {}

    def start(self) -> Ready:
        """Start the workers if they are not running and return their report."""
        return self._pool.start()

    def key_of(self, configuration: Configuration) -> str:
        """Return the key of a configuration's trial under the present conditions."""
        try:
            return self._key(*self._source_and_launch(configuration))
        except MptuneError as error:
            return self._key(str(error))

    @property
    def capacity(self) -> int:
        return self._pool.capacity

    @property
    def lead(self) -> int:
        return self._pool.lead

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    @property
    def ahead(self) -> tuple[Configuration, ...]:
        """The configurations that are compiled, or being compiled, ahead of their turn."""
        return tuple(self._sources)

    def prepare(self, configuration: Configuration) -> None:
        """Begin to compile a configuration that will be evaluated."""
        if configuration not in self._sources:
            # Rendering errors are reported on submit.
            with contextlib.suppress(MptuneError):
                self._sources[configuration] = source_of(self._kernel, configuration, self._sizes)
                self._pool.prepare(self._sources[configuration])

    def submit(self, configuration: Configuration, best_ms: float = math.inf, baseline_ms: float = math.inf) -> None:
        """Begin to evaluate a configuration; at most :attr:`capacity` are under way.

        Configurations clearly slower than ``best_ms`` are timed less often. Launches may be limited by ``baseline_ms``,
        a launch of the fastest baseline so far.
        """
        ended: Future[Trial]
        try:
            source, launch = self._source_and_launch(configuration)
        except MptuneError as error:
            status = Status.COMPILE_ERROR if isinstance(error, TemplateError) else Status.ERROR
            self._under_way[configuration] = self._key(str(error))
            ended = Future()
            ended.set_result(Trial(configuration, status, str(error)))
        else:
            self._under_way[configuration] = self._key(source, launch)
            phase_s = _LEAST_PHASE_S + self.limits.phase_factor * self._longest_s if self._longest_s else math.inf
            plan = dataclasses.replace(self.plan, best_ms=best_ms, baseline_ms=baseline_ms, phase_s=phase_s)
            ended = self._pool.submit(Request(configuration, source, plan))
        self._sources.pop(configuration, None)
        ended.add_done_callback(self._ended.put)

    def finished(self) -> list[Trial]:
        ended = [self._ended.get()]
        while not self._ended.empty():
            ended.append(self._ended.get())
        trials = [future.result() for future in ended]
        launching_s = (trial.measurement.durations_s.get("launch", 0.0) for trial in trials if trial.is_valid)
        self._longest_s = max(self._longest_s, *launching_s, 0.0)
        return [
            dataclasses.replace(
                self._with_estimates(trial),
                key=self._under_way.pop(trial.configuration),
                message=self._cited(trial),
            )
            for trial in trials
        ]

    def remeasure(self, trials: Sequence[Trial], rounds: int, visit: TimingPlan = VISIT) -> Finished:
        """Measure valid trials again in turn, and return the trial of every turn; only while nothing is under way."""
        requests = [self._request(trial.configuration, self.plan.again(trial)) for trial in trials]
        before = {trial.configuration: trial for trial in trials}
        answer = self._together("remeasure", requests, rounds, visit)
        turns = tuple(dataclasses.replace(trial, key=before[trial.configuration].key) for trial in answer.trials)
        return dataclasses.replace(answer, trials=turns)

    def run_on_draws(self, configurations: Sequence[Configuration], draws: Sequence[Draw]) -> Finished:
        """Return the trial of each configuration on each draw of the inputs; only while nothing is under way."""
        return self._together("run_on_draws", [self._request(c) for c in configurations], draws)

    def launches(self, configuration: Configuration) -> tuple[Launched, ...]:
        """Run an application and return its launches; only while nothing is under way."""
        try:
            launches: tuple[Launched, ...] = self._pool.ask("launches", self._request(configuration))
        except (MptuneError, WorkerDied) as error:
            raise MptuneError(f"the launches of {self._kernel.called} are not known: {error}") from error
        return launches

    def instrumented(self, configurations: Sequence[Configuration], limit_s: float = 10.0) -> list[Trial]:
        """Return trials with the errors of an instrumented build on the host, as many as time allows.

        Configurations that it cannot run are left out. ``limit_s`` does not include the first run, which compiles;
        raises MptuneError if that fails.
        """
        pool = self._host_pool()
        found: list[Trial] = []
        deadline = math.inf
        try:
            for configuration in configurations:
                try:
                    trial: Trial = pool.ask("traced", Request(configuration, ""))
                except WorkerDied as death:
                    trial = death.trial_of(configuration)
                if trial.status is Status.OK:
                    found.append(trial)
                elif trial.status is Status.TIMEOUT:  # others would take as long
                    break
                elif not found and trial.status is not Status.CONSTRAINT:
                    raise MptuneError(" ".join(trial.message.split("\n")[:2]))
                deadline = min(deadline, time.monotonic() + limit_s)
                if time.monotonic() > deadline:
                    break
        finally:
            pool.close()
        return found

    def counts_of(self, configuration: Configuration) -> Mapping[str, Counts]:
        """Return what each kernel does in one run, whatever its types, for estimates of its time on GPUs.

        Operations are counted in an instrumented run on the host, once for all types and functions; raises MptuneError
        if that fails.
        """
        key = tuple(configuration[name] for name in work_names(self._kernel))
        if key not in self._counts:
            pool = self._host_pool()
            try:
                self._counts[key] = pool.ask("counted", Request(configuration, ""))
            except WorkerDied as death:
                trial = death.trial_of(configuration)
                smaller = "; a smaller --size is counted sooner" if trial.status is Status.TIMEOUT else ""
                what = f"the operations of {self._kernel.called} could not be counted"
                raise MptuneError(f"{what}: {trial.message}{smaller}") from death
            finally:
                pool.close()
        return self._counts[key]

    def _host_pool(self) -> Pool:
        backend = get_backend(self._job.backend)
        flags = self._flags if backend.shares_memory else on_host(self._flags)
        options = dataclasses.replace(self._job.options, flags=flags)
        return Pool(dataclasses.replace(self._job, backend="host", options=options, observers=()), self.limits)

    def _with_estimates(self, trial: Trial) -> Trial:
        if not self._is_estimating or not trial.is_valid:
            return trial
        try:
            estimated = estimates(self.counts_of(trial.configuration), trial.configuration)
        except MptuneError as error:
            estimated = dict.fromkeys(METRICS, math.nan)
            trial = dataclasses.replace(trial, warnings=(*trial.warnings, str(error)))
        return trial.with_measurement(metrics={**trial.measurement.metrics, **estimated})

    def close(self) -> None:
        """End the compilers, the workers and all evaluations."""
        self._pool.close()

    def _source_and_launch(self, configuration: Configuration) -> tuple[str, str]:
        kernel, sizes = self._kernel, self._sizes
        source = self._sources.get(configuration) or source_of(kernel, configuration, sizes)
        return source, launch_identity(kernel, configuration, sizes)

    def _request(self, configuration: Configuration, plan: Plan | None = None) -> Request:
        return Request(configuration, source_of(self._kernel, configuration, self._sizes), plan or Plan())

    def _together(self, method: str, requests: Sequence[Request], *arguments: Any) -> Finished:
        """Return the trials of several configurations; if the worker dies, each is requested alone.

        The trial of a configuration that ends the worker is its last.
        """
        try:
            answer: Finished = self._pool.ask(method, requests, *arguments)
        except WorkerDied as death:
            if len(requests) > 1:
                return sum((self._together(method, [each], *arguments) for each in requests), Finished(()))
            # The draw that ended the worker is unknown and does not matter.
            draws = tuple(arguments[0][:1]) if method == "run_on_draws" else ()
            return Finished((death.trial_of(requests[0].configuration),), draws)
        return dataclasses.replace(answer, trials=tuple(map(self._with_estimates, answer.trials)))

    def _cited(self, trial: Trial) -> str:
        if trial.status is not Status.COMPILE_ERROR or not isinstance(self._kernel, Kernel):
            return trial.message
        return cited(trial.message, self._kernel, trial.configuration, self._sizes)

    def _key(self, source: str, launch: str = "") -> str:
        ready = self.start()
        source = with_headers(source, self._flags)
        parts = (source, launch, ready.identity, ready.data_key, self._metric, repr(self._job.plan))
        return BinaryCache.key((*parts, *sorted(ready.observers)))


def work_names(kernel: Tunable) -> list[str]:
    """Return the parameters that can change results and are no types or functions: they may change what is done."""
    chosen = {p.name for p in kernel.parameters if isinstance(p, PrecisionParameter | PolicyParameter)}
    return [name for name in kernel.signature_names if name not in chosen]


def source_of(kernel: Tunable, configuration: Configuration, sizes: Sizes) -> str:
    """Return the rendered source of a configuration; of an application, the identity of its kernels' sources."""
    if isinstance(kernel, Kernel):
        return render(kernel, configuration, sizes)
    return f"{template_hash(kernel)} {kernel.own(configuration)}{included_headers(kernel)}"


def launch_identity(kernel: Tunable, configuration: Configuration, sizes: Sizes) -> str:
    """Return grid, block, shared memory and arguments of a launch as text: a source does not contain them."""
    held = [(argument, kernel.precision_of(argument, configuration)) for argument in kernel.arguments]
    arguments = [(a.name, a.role.value, precision.name if precision else a.dtype) for a, precision in held]
    shape = kernel.launch_shape(configuration, sizes) if isinstance(kernel, Kernel) else None
    return repr((shape, arguments))


def metric_identity(metric: Metrics) -> str:
    """Return the names of metrics as text, with the versions of metrics that are not bundled."""
    if isinstance(metric, Mapping):
        return "\n".join(f"{name}={metric_identity(metric[name])}" for name in sorted(metric))
    found = all_metrics(metric)
    return ", ".join(each.name if each.is_bundled else f"{each.name} version {each.version}" for each in found)


def unversioned(metric: Metrics) -> tuple[str, ...]:
    """Return the names of the metrics that are neither bundled nor have a version.

    Changes of such a metric cannot be detected, so trials measured with it are not used again.
    """
    return tuple(dict.fromkeys(m.name for m in all_metrics(metric) if not m.is_bundled and not m.version))
