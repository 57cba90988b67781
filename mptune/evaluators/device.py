"""Evaluation on a device, in a worker process that is replaced when a kernel brings it down."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mptune.backends.base import CompileOptions
from mptune.errors import LaunchError, MptuneError, TemplateError
from mptune.evaluators.base import Evaluator
from mptune.evaluators.bench import Ready, Request
from mptune.evaluators.identity import launch_identity, metric_identity, trial_key
from mptune.evaluators.protocol import Failed, Finished, Job, Phase, Started
from mptune.evaluators.timing import TimingPlan
from mptune.kernel import Kernel, Sizes
from mptune.rendering import render
from mptune.results import Measurement, Status, Trial
from mptune.space.configuration import Configuration, Value

__all__ = ["DeviceEvaluator", "Limits"]

#: Runs the worker with the modules this process can import, Python's own first: a kernel may well be in ``random.py``.
_START: Final = """
import sys
sys.path += [entry for entry in sys.argv[2:] if entry not in sys.path]
from mptune.evaluators.worker import main
main(int(sys.argv[1]))
"""

#: How long a worker that has closed its connection may take to end.
_LEAVING_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Wall-clock limits in seconds: one compilation, one other phase of a trial, the worker's start."""

    compile_s: float = 60.0
    run_s: float = 30.0
    start_s: float = 900.0


class _WorkerDied(Exception):
    """The worker ended or was ended; the status and message say how."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Worker:
    """One worker process and the connection to it."""

    def __init__(self, job: Job, limits: Limits) -> None:
        self._limits = limits
        self._phase = "start"
        self._connection, theirs = multiprocessing.Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, str(theirs.fileno()), *sys.path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            self._send(job)
            answer = self._receive()
        except BaseException:
            self.kill()
            raise
        if isinstance(answer, Failed):
            self.kill()
            raise answer.error
        assert isinstance(answer, Started)
        self.ready = answer.ready
        #: Whether it can evaluate more; a fault can leave a device unusable for as long as the process lives.
        self.is_usable = True

    def evaluate(self, request: Request) -> Trial:
        """Return the worker's trial.

        Raises:
            _WorkerDied: it crashed, or a phase ran out of time and it was killed.
        """
        self._phase = "compile"
        self._send(request)
        answer = self._receive()
        assert isinstance(answer, Finished)
        self.is_usable = answer.is_usable
        return answer.trial

    def kill(self) -> None:
        """End the process and everything it started."""
        self._connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _send(self, message: Job | Request) -> None:
        try:
            self._connection.send(message)
        except OSError:
            raise _WorkerDied(Status.CRASH, self._cause_of_death()) from None

    def _receive(self) -> Started | Finished | Failed:
        """Wait for the next message that is no phase, each phase within its limit."""
        while True:
            limit_s = self._limit_s()
            try:
                if not self._connection.poll(limit_s):
                    message = f"the {self._phase} phase did not end within {limit_s:g} s"
                    raise _WorkerDied(Status.TIMEOUT, message)
                message = self._connection.recv()
            except (EOFError, OSError):
                raise _WorkerDied(Status.CRASH, self._cause_of_death()) from None
            if isinstance(message, Phase):
                self._phase = message.name
            else:
                return message  # type: ignore[no-any-return]

    def _limit_s(self) -> float:
        if self._phase == "start":
            return self._limits.start_s
        # The compiler has a limit of its own; the worker's is only there in case that one fails.
        return self._limits.compile_s + 10.0 if self._phase == "compile" else self._limits.run_s

    def _cause_of_death(self) -> str:
        try:
            code = self._process.wait(_LEAVING_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"the worker closed its connection without ending in the {self._phase} phase"
        if code < 0:
            name = next((known.name for known in signal.Signals if known == -code), f"signal {-code}")
            what = signal.strsignal(-code) or name
            return f"the worker was ended by {name} ({what.lower()}) in the {self._phase} phase"
        return f"the worker exited with code {code} in the {self._phase} phase"


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
    ) -> None:
        self._kernel = kernel
        self._reuse_errors = reuse_errors
        self._sizes = sizes
        self._metric = metric_identity(metric if metric is not None else kernel.metric)
        self._limits = limits or Limits()
        options = CompileOptions(flags=tuple(flags), timeout_s=self._limits.compile_s)
        self._plan = plan or TimingPlan()
        self._job = Job.of(kernel, sizes, backend, metric, seed, options, self._plan)
        self._worker: _Worker | None = None
        self._ready: Ready | None = None
        self._errors: dict[tuple[Value, ...], Mapping[str, float]] = {}
        self._checked: list[tuple[float, float]] = []

    def start(self) -> Ready:
        """Start the worker if it is not running and return what it says of itself.

        Raises:
            MptuneError: the kernel, its data or the backend is not usable.
        """
        if self._worker is None:
            try:
                self._worker = _Worker(self._job, self._limits)
            except _WorkerDied as death:
                raise LaunchError(f"the worker process could not start: {death}") from death
            self._ready = self._worker.ready
        assert self._ready is not None
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
            errors = {k: v for k, v in trial.measurement.metrics.items() if k.startswith(("error", "log10_error"))}
            self._errors.setdefault(self._kernel.signature_of(trial.configuration), errors)
            self._checked.append((trial.time_ms, trial.error))

    def evaluate(self, configurations: Sequence[Configuration]) -> Iterator[Trial]:
        """Yield one trial per configuration, in order."""
        for configuration in configurations:
            trial = self._evaluate(configuration)
            self.remember(trial)
            yield trial

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _evaluate(self, configuration: Configuration) -> Trial:
        try:
            source = render(self._kernel, configuration, self._sizes)
        except MptuneError as error:
            status = Status.COMPILE_ERROR if isinstance(error, TemplateError) else Status.ERROR
            return Trial(configuration, status, str(error), key=self._key(str(error)))
        known = self._errors.get(self._kernel.signature_of(configuration)) if self._reuse_errors else None
        trial = self._request(Request(configuration, source, known, self._check_below_ms(known)))
        return dataclasses.replace(
            trial, key=self._key(source, launch_identity(self._kernel, configuration, self._sizes))
        )

    def _request(self, request: Request) -> Trial:
        self.start()
        assert self._worker is not None
        start = time.perf_counter()
        try:
            trial = self._worker.evaluate(request)
            if not self._worker.is_usable:
                self.close()
            return trial
        except _WorkerDied as death:
            self.close()
            lost = Measurement(durations_s={"lost": time.perf_counter() - start})
            return Trial(request.configuration, death.status, str(death), lost)
        except BaseException:
            self.close()
            raise

    def _key(self, source: str, launch: str = "") -> str:
        ready = self._ready or self.start()
        return trial_key((source, launch, ready.identity, ready.data_key, self._metric, repr(self._plan)))

    def _check_below_ms(self, known: Mapping[str, float] | None) -> float:
        """Return the time below which a trial of this known error would be on the front."""
        if known is None:
            return math.inf
        return min((time_ms for time_ms, error in self._checked if error <= known["error"]), default=math.inf)
