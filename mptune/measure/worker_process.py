"""The worker process of a device as the tuner sees it: started, spoken to within limits of time, ended, replaced."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Final, TypeVar

from mptune.backends import get_backend
from mptune.backends.processes import ChildEnded, PythonChild
from mptune.errors import LaunchError, MptuneError
from mptune.measure.bench import INSTRUMENTED, SPEEDS, Ready, Request
from mptune.measure.protocol import (
    Asked,
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
    together,
)
from mptune.results.trial import Measurement, Status, Trial

__all__ = ["DeviceWorker", "Limits", "WorkerDied", "WorkerProcess"]

#: What a signal most often says of a kernel.
_USUAL_CAUSES: Final[Mapping[int, str]] = {
    signal.SIGSEGV: "usually an index out of bounds, or recursion that used up the stack",
    signal.SIGBUS: "usually a misaligned vector, or an index out of bounds",
    signal.SIGILL: "a trap in the kernel, or code for another processor",
    signal.SIGFPE: "usually a division of an integer by zero",
    signal.SIGKILL: "by somebody, or by the system because memory ran out",
}
#: What one says of a kernel that has lost its connection without a signal.
_ENDED_BY_ITSELF: Final = "a kernel that calls exit, or the steps of an application that do"
#: What one that ended by itself while functions of the definition ran says of these: no exception of theirs does it.
_ENDED_BY_FUNCTIONS: Final = (
    "inputs, a reference, a metric or the steps of an application that end the process, as os._exit does"
)
#: Times as long as a trial may run, an application may as its own reference; and what messages call it.
_UNTUNED: Final = 4
_STEPS: Final = "a run of the application's steps"
#: Phases in which functions of the definition run, and those in which no kernel does.
_OF_FUNCTIONS: Final = ("start", "inputs")
_BEFORE_KERNELS: Final = (*_OF_FUNCTIONS, "compile")


@dataclass(frozen=True, slots=True)
class Limits:
    """Wall-clock limits in seconds: one compilation, one other phase of a trial, the worker's start."""

    compile_s: float = 60.0
    run_s: float = 30.0
    start_s: float = 900.0


class WorkerDied(Exception):
    """The worker ended or was ended; the status and message say how."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class WorkerProcess:
    """One worker process, with some variables besides those of this process, and the connection to it.

    Attributes:
        ready: what it said of itself when it had started.
        is_usable: whether it can evaluate more; a fault can leave a device unusable for as long as the process lives.
    """

    ready: Ready

    def __init__(self, job: Job, limits: Limits, environment: Mapping[str, str] | None = None) -> None:
        self._job = job
        self._limits = limits
        self._quiet: Callable[[], AbstractContextManager[None]] = nullcontext
        self._phase = "start"
        #: Near which buffer a kernel reached where it may not; empty if none did.
        self._reached = ""
        self._child = PythonChild("mptune.measure.worker:main", environment=environment)
        self.is_usable = True

    @property
    def process_id(self) -> int:
        """The process."""
        return self._child.process_id

    def start(self) -> None:
        """Tell the process its job and wait until it is ready; anything else comes after that.

        Raises:
            MptuneError: the kernel, its data or the backend is not usable.
            WorkerDied: it crashed, or took too long and was killed.
        """
        try:
            self._send(self._job)
            answer = self._receive()
            if isinstance(answer, MptuneError):
                raise answer
        except BaseException:
            self.kill()
            raise
        assert isinstance(answer, Ready)
        self.ready = answer

    def ask(self, request: Request | Asked, quiet: Callable[[], AbstractContextManager[None]]) -> Finished:
        """Return the worker's answer; what is timed for it is timed inside a block of ``quiet()``.

        Raises:
            WorkerDied: it crashed, or a phase ran out of time and it was killed.
        """
        self._phase = "compile"
        self._quiet = quiet
        self._send(request)
        answer = self._receive()
        if not isinstance(answer, Finished):
            self.kill()
            raise WorkerDied(Status.CRASH, "the worker answered what it was not asked")
        self.is_usable = answer.is_usable
        return answer

    def end(self) -> None:
        """Let the process free its device and leave; kill it if it does not."""
        self._child.hang_up()

    def kill(self) -> None:
        """End the process and everything it started."""
        self._child.kill()

    def abort(self) -> None:
        """End the process and everything it started, from any thread; the one that waits for it is told."""
        self._child.signal(signal.SIGKILL)

    def _send(self, message: Job | Request | Asked | Quiet) -> None:
        try:
            self._child.send(message)
        except ChildEnded as ended:
            raise WorkerDied(Status.CRASH, self._cause_of_death(ended)) from None

    def _receive(self) -> Ready | Finished | MptuneError:
        """Wait for the next message that is no phase, each phase within its limit."""
        with ExitStack() as quiet:
            while True:
                message = self._next_message()
                quiet.close()
                if isinstance(message, Reached):
                    self._reached = message.where
                    continue
                if not isinstance(message, PhaseBegins):
                    return message
                self._phase = message.name
                if message.wants_quiet:
                    quiet.enter_context(self._quiet())
                    self._send(Quiet())

    def _next_message(self) -> Ready | Finished | MptuneError | PhaseBegins | Reached:
        limit_s = self._limit_s()
        try:
            return self._child.receive(limit_s)  # type: ignore[no-any-return]
        except TimeoutError:
            longer = "" if self._phase in _BEFORE_KERNELS else "; --trial-limit gives it longer"
            message = f"the {self._phase} phase did not end within {limit_s:g} s{longer}"
            if self._phase == "reference":
                message = f"{_STEPS} did not end within {limit_s:g} s, in its widest types: an endless loop?{longer}"
            raise WorkerDied(Status.TIMEOUT, message) from None
        except ChildEnded as ended:
            raise WorkerDied(Status.CRASH, self._cause_of_death(ended)) from None

    def _limit_s(self) -> float:
        if self._phase in (*_OF_FUNCTIONS, SPEEDS):
            return self._limits.start_s
        if self._phase in ("reference", INSTRUMENTED):
            # It compiles, too, and is not tuned.
            return self._limits.compile_s + _UNTUNED * self._limits.run_s
        # The compiler has a limit of its own; the worker's is only there in case that one fails.
        return self._limits.compile_s + 10.0 if self._phase == "compile" else self._limits.run_s

    def _cause_of_death(self, ended: ChildEnded) -> str:
        what = f"the worker {ended.how} in the {self._phase} phase"
        if ended.code is None:
            self.kill()
        is_exit = ended.code is not None and ended.code >= 0
        if is_exit and self._phase in (*_OF_FUNCTIONS, "reference"):
            return f"{what}: {_ENDED_BY_FUNCTIONS}"
        if self._phase in _BEFORE_KERNELS:
            return what
        if self._reached:
            return f"{what}: the kernel reached {self._reached}"
        if ended.code is not None and ended.code < 0:
            cause = _USUAL_CAUSES.get(-ended.code)
        else:
            cause = _ENDED_BY_ITSELF if get_backend(self._job.backend).shares_memory else None
        return f"{what}: {cause}" if cause else what


_Answer = TypeVar("_Answer")


class DeviceWorker:
    """A worker process that is replaced when a kernel brings it down, and the thread that speaks to it.

    Any thread may call any method; evaluations wait for each other. The process is started by a thread of its own
    because the system ends it together with the thread it comes from.
    """

    def __init__(self, job: Job, limits: Limits, environment: Mapping[str, str] | None = None) -> None:
        self._job = job
        self._limits = limits
        self._environment = dict(environment or {})
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="device worker")
        self._process: WorkerProcess | None = None
        self._latest: Future[object] | None = None
        self._is_closed = False
        # What has been submitted is the latest before anyone closes.
        self._submitting = threading.Lock()

    @property
    def process_id(self) -> int | None:
        """The process; None if none is running."""
        process = self._process
        return None if process is None else process.process_id

    def start(self) -> Ready:
        """Start the process if it is not running and return what it says of itself.

        Raises:
            MptuneError: the kernel, its data or the backend is not usable.
        """
        return self._call(lambda: self._running().ready)

    def evaluate(self, request: Request, quiet: Callable[[], AbstractContextManager[None]] = nullcontext) -> Trial:
        """Return the trial of a configuration; a failed one if the process ends or is ended."""
        return self._call(lambda: self._evaluate(request, quiet))

    def ask(self, asked: Asked) -> Finished:
        """Return the answer to anything else.

        If one of several configurations ends the process each is asked for alone, to see which; that is its last trial.
        Least times and speeds of the device that cannot be measured are missing.
        """
        return self._call(lambda: self._answer(asked))

    def close(self) -> None:
        """End the process: at once where it is busy, else when it has freed its device. May be called twice."""
        with self._submitting:
            if self._is_closed:
                return
            self._is_closed = True
            process, latest = self._process, self._latest
        if process is not None and latest is not None and not latest.done():
            process.abort()
        self._thread.submit(self._end)
        self._thread.shutdown()

    def _call(self, function: Callable[[], _Answer]) -> _Answer:
        with self._submitting:
            future = self._thread.submit(function)
            self._latest = future  # type: ignore[assignment]  # Future is invariant
        return future.result()

    # -- in the thread -------------------------------------------------------------------------

    def _running(self) -> WorkerProcess:
        if self._process is None:
            try:
                self._process = WorkerProcess(self._job, self._limits, self._environment)
                if self._is_closed:
                    self._process.abort()
                self._process.start()
            except WorkerDied as death:
                self._kill()
                what = "" if str(death).startswith(_STEPS) else "the worker process could not start: "
                raise LaunchError(f"{what}{death}") from death
            except BaseException:
                self._kill()
                raise
        return self._process

    def _evaluate(self, request: Request, quiet: Callable[[], AbstractContextManager[None]]) -> Trial:
        self._running()
        start = time.perf_counter()
        try:
            return self._ask(request, quiet).trials[0]
        except WorkerDied as death:
            return self._lost(request, death, start)

    def _answer(self, asked: Asked) -> Finished:
        if isinstance(asked, Capture | Traced):
            start = time.perf_counter()
            try:
                return self._ask(asked, nullcontext)
            except WorkerDied as death:
                return Finished((self._lost(asked.request, death, start),))
        if isinstance(asked, MeasureRates) or len(asked.requests) > 1:
            with contextlib.suppress(WorkerDied):
                return self._ask(asked, nullcontext)
        if isinstance(asked, MeasureRates):
            return Finished(())
        return together([self._alone(dataclasses.replace(asked, requests=(each,))) for each in asked.requests])

    def _alone(self, asked: Rounds | OnDraws) -> Finished:
        self._running()
        start = time.perf_counter()
        try:
            return self._ask(asked, nullcontext)
        except WorkerDied as death:
            trial = self._lost(asked.requests[0], death, start)
            # On which draw is not known, and does not matter.
            draws = asked.draws[:1] if isinstance(asked, OnDraws) else ()
            return Finished((trial,), is_usable=False, draws=draws)

    def _lost(self, request: Request, death: WorkerDied, start: float) -> Trial:
        """Return the trial of a configuration that ended the process."""
        # Under a larger limit a trial that ran out of time is worth another try.
        limit = {"limit_s": self._limits.run_s} if death.status is Status.TIMEOUT else {}
        lost = Measurement(limit, durations_s={"lost": time.perf_counter() - start})
        return Trial(request.configuration, death.status, str(death), lost)

    def _ask(self, request: Request | Asked, quiet: Callable[[], AbstractContextManager[None]]) -> Finished:
        """Return the answer to a request; end a process that failed or can do no more."""
        process = self._running()
        try:
            answer = process.ask(request, quiet)
        except BaseException:
            self._kill()
            raise
        if not process.is_usable:
            self._kill()
        return answer

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None
