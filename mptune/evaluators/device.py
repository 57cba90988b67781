"""Evaluation on a device, in a worker process that is replaced when a kernel brings it down."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.errors import CompileError, LaunchError, MptuneError, TemplateError
from mptune.evaluators.base import Evaluator
from mptune.evaluators.bench import UNTIMED, Ready, Request
from mptune.evaluators.compile_ahead import CompileAhead
from mptune.evaluators.identity import launch_identity, metric_identity, trial_key
from mptune.evaluators.protocol import Job, Rounds
from mptune.evaluators.timing import TimingPlan
from mptune.evaluators.worker_process import Limits, WorkerDied, WorkerProcess
from mptune.kernel import Kernel, Sizes
from mptune.rendering import render
from mptune.results import Measurement, Status, Trial
from mptune.space.configuration import Configuration, Value

__all__ = ["DeviceEvaluator", "Limits"]


class DeviceEvaluator(Evaluator):
    """Evaluates configurations of one kernel on one device.

    The error of an accuracy signature is measured once and reused, except where a trial would otherwise
    join the front of time against error on the strength of an error that was never measured on it.

    Args:
        kernel: the kernel.
        sizes: its problem sizes.
        backend: name of the backend.
        metric: error metric instead of the kernel's own.
        seed: seeds the inputs.
        flags: further compiler flags.
        plan: how often to launch.
        limits: wall-clock limits.
        reuse_errors: whether a signature's error is reused. Only sound where less time is what wins.
        compilers: compilations at a time, ahead of the evaluations; 0 for none but the worker's own.
        observers: names of what to measure besides.
        error_limits: the largest errors, by the names of their metrics, with which a configuration is timed.
    """

    def __init__(
        self,
        kernel: Kernel,
        sizes: Sizes,
        backend: str,
        *,
        metric: str | Callable[..., float] | None = None,
        seed: int = 0,
        flags: Sequence[str] = (),
        plan: TimingPlan | None = None,
        limits: Limits | None = None,
        reuse_errors: bool = True,
        compilers: int = 0,
        observers: Sequence[str] = (),
        error_limits: Mapping[str, float] | None = None,
    ) -> None:
        self._kernel = kernel
        self._reuse_errors = reuse_errors
        self._error_limits = dict(error_limits or {})
        self._sizes = sizes
        self._metric = metric_identity(metric if metric is not None else kernel.metric)
        self._limits = limits or Limits()
        options = CompileOptions(flags=tuple(flags), timeout_s=self._limits.compile_s)
        self._plan = plan or TimingPlan()
        self._job = Job.of(kernel, sizes, backend, metric, seed, options, self._plan, tuple(observers))
        self._worker: WorkerProcess | None = None
        self._ready: Ready | None = None
        self._compilers = compilers
        self._ahead: CompileAhead | None = None
        self._sources: dict[Configuration, str] = {}
        self._errors: dict[tuple[Value, ...], Mapping[str, float]] = {}
        self._checked: list[tuple[float, float]] = []

    def start(self) -> Ready:
        """Start the worker if it is not running and return what it says of itself.

        Raises:
            MptuneError: the kernel, its data or the backend is not usable.
        """
        if self._worker is None:
            try:
                self._worker = WorkerProcess(self._job, self._limits)
            except WorkerDied as death:
                raise LaunchError(f"the worker process could not start: {death}") from death
            self._ready = self._worker.ready
        assert self._ready is not None
        if self._compilers and self._ahead is None:
            self._ahead = CompileAhead(
                get_backend(self._job.backend), self._kernel.function, self._ready.options, self._compilers
            )
        return self._ready

    @property
    def reuses_errors(self) -> bool:
        """Whether the error of a signature is reused."""
        return self._reuse_errors

    def key_of(self, configuration: Configuration) -> str:
        """Return the key a trial of this configuration has under the present conditions."""
        try:
            source = render(self._kernel, configuration, self._sizes)
        except MptuneError as error:
            return self._key(str(error))
        return self._key(source, launch_identity(self._kernel, configuration, self._sizes))

    def remember(self, trial: Trial) -> None:
        """Take in a trial measured before, so that its signature's error is not measured again."""
        if trial.is_valid and not trial.measurement.reused_error:
            self._errors.setdefault(self._kernel.signature_of(trial.configuration), _errors_of(trial))
            self._checked.append((trial.time_ms, trial.error))

    @property
    def lead(self) -> int:
        """How many configurations, with the one being evaluated, are worth preparing at a time."""
        return self._compilers + 1

    def prepare(self, configuration: Configuration) -> None:
        """Begin to compile a configuration that is going to be evaluated."""
        self.start()
        if self._ahead is not None and configuration not in self._sources:
            # What cannot be rendered is told of in its turn.
            with contextlib.suppress(MptuneError):
                source = render(self._kernel, configuration, self._sizes)
                self._sources[configuration] = source
                self._ahead.submit(source)

    def evaluate(self, configurations: Sequence[Configuration], beaten_above_ms: float = math.inf) -> Iterator[Trial]:
        """Yield one trial per configuration, in order.

        Args:
            configurations: what to evaluate.
            beaten_above_ms: one that is clearly slower than this is not timed as often.
        """
        for i, configuration in enumerate(configurations):
            for following in configurations[i : i + self.lead]:
                self.prepare(following)
            trial = self._evaluate(configuration, beaten_above_ms)
            self.remember(trial)
            yield trial

    def remeasure(self, trials: Sequence[Trial], rounds: int) -> list[Trial]:
        """Measure the configurations of valid trials again in turn, so that whatever the machine does hits all alike.

        An error that was reused is now measured. Where a configuration brings the worker down nothing is returned:
        it has run before, and whether it is to blame is not known.

        Args:
            trials: what was measured before.
            rounds: how often each configuration's turn comes.
        """
        self.start()
        assert self._worker is not None
        requests = [
            Request(
                trial.configuration,
                render(self._kernel, trial.configuration, self._sizes),
                None if trial.measurement.reused_error else _errors_of(trial),
            )
            for trial in trials
        ]
        try:
            again = self._worker.remeasure(Rounds(tuple(requests), rounds), nullcontext)
            if not self._worker.is_usable:
                self._kill_worker()
        except WorkerDied:
            self._kill_worker()
            return []
        except BaseException:
            self._kill_worker()
            raise
        keys = {trial.configuration: trial.key for trial in trials}
        return [
            dataclasses.replace(
                # What was known of it was its own, and otherwise it is now.
                trial,
                key=keys[trial.configuration],
                measurement=dataclasses.replace(trial.measurement, reused_error=False),
            )
            for trial in again
        ]

    def close(self) -> None:
        """End the compilers and the worker."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _kill_worker(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _evaluate(self, configuration: Configuration, beaten_above_ms: float) -> Trial:
        try:
            source = self._sources.pop(configuration, None) or render(self._kernel, configuration, self._sizes)
        except MptuneError as error:
            status = Status.COMPILE_ERROR if isinstance(error, TemplateError) else Status.ERROR
            return Trial(configuration, status, str(error), key=self._key(str(error)))
        known = self._errors.get(self._kernel.signature_of(configuration)) if self._reuse_errors else None
        request = Request(
            configuration, source, known, self._check_below_ms(known), beaten_above_ms, self._error_limits
        )
        if known is not None and request.exceeds(known):
            # Neither its error nor its time is left to find out.
            trial = Trial(configuration, Status.INACCURATE, UNTIMED, Measurement(known, reused_error=True))
        else:
            trial = self._compiled_and_requested(request)
        return dataclasses.replace(
            trial, key=self._key(source, launch_identity(self._kernel, configuration, self._sizes))
        )

    def _compiled_and_requested(self, request: Request) -> Trial:
        """Return the worker's trial of a configuration when its compiler is done; the wait is part of its phases."""
        if self._ahead is None:
            return self._request(request)
        start = time.perf_counter()
        try:
            self._ahead.take(request.source)
            waited_s = time.perf_counter() - start
            trial = self._request(request)
        except CompileError as error:
            waited_s = time.perf_counter() - start
            trial = Trial(request.configuration, Status.COMPILE_ERROR, str(error))
        durations_s = {**trial.measurement.durations_s}
        durations_s["compile"] = durations_s.get("compile", 0.0) + waited_s
        return dataclasses.replace(trial, measurement=dataclasses.replace(trial.measurement, durations_s=durations_s))

    def _request(self, request: Request) -> Trial:
        self.start()
        assert self._worker is not None
        start = time.perf_counter()
        try:
            trial = self._worker.evaluate(request, nullcontext if self._ahead is None else self._ahead.paused)
            if not self._worker.is_usable:
                self._kill_worker()
            return trial
        except WorkerDied as death:
            self._kill_worker()
            # Under a larger limit a trial that ran out of time is worth another try.
            limit = {"limit_s": self._limits.run_s} if death.status is Status.TIMEOUT else {}
            lost = Measurement(limit, durations_s={"lost": time.perf_counter() - start})
            return Trial(request.configuration, death.status, str(death), lost)
        except BaseException:
            self._kill_worker()
            raise

    def _key(self, source: str, launch: str = "") -> str:
        ready = self._ready or self.start()
        parts = (source, launch, ready.identity, ready.data_key, self._metric, repr(self._plan))
        return trial_key((*parts, *sorted(ready.observers)))

    def _check_below_ms(self, known: Mapping[str, float] | None) -> float:
        """Return the time below which a trial of this known error would be on the front."""
        if known is None:
            return math.inf
        return min((time_ms for time_ms, error in self._checked if error <= known["error"]), default=math.inf)


def _errors_of(trial: Trial) -> dict[str, float]:
    return {k: v for k, v in trial.measurement.metrics.items() if k.startswith(("error", "log10_error"))}
