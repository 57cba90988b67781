"""The worker process as the tuner sees it: started, spoken to within limits of time, ended."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Final

from mptune.evaluators.bench import Ready, Request
from mptune.evaluators.protocol import Failed, Finished, Job, Phase, Quiet, Rounds, RoundsFinished, Started
from mptune.processes import ChildEnded, PythonChild
from mptune.results import Status, Trial

__all__ = ["Limits", "WorkerDied", "WorkerProcess"]

#: What a signal most often says of a kernel.
_USUAL_CAUSES: Final[Mapping[int, str]] = {
    signal.SIGSEGV: "usually an index out of bounds, or recursion that used up the stack",
    signal.SIGBUS: "usually a misaligned vector, or an index out of bounds",
    signal.SIGILL: "a trap in the kernel, or code for another processor",
    signal.SIGFPE: "usually a division of an integer by zero",
    signal.SIGKILL: "by somebody, or by the system because memory ran out",
}


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
    """One worker process and the connection to it.

    Args:
        job: what it is told first.
        limits: wall-clock limits.
        environment: variables it has beside those of this process.
    """

    def __init__(self, job: Job, limits: Limits, environment: Mapping[str, str] | None = None) -> None:
        self._job = job
        self._limits = limits
        self._quiet: Callable[[], AbstractContextManager[None]] = nullcontext
        self._phase = "start"
        self._child = PythonChild("mptune.evaluators.worker:main", environment=environment)
        self._ready: Ready | None = None
        #: Whether it can evaluate more; a fault can leave a device unusable for as long as the process lives.
        self.is_usable = True

    @property
    def process_id(self) -> int:
        """The process."""
        return self._child.process_id

    @property
    def ready(self) -> Ready:
        """What it said of itself when it had started."""
        assert self._ready is not None
        return self._ready

    def start(self) -> None:
        """Tell the process its job and wait until it is ready; anything else comes after that.

        Raises:
            MptuneError: the kernel, its data or the backend is not usable.
            WorkerDied: it crashed, or took too long and was killed.
        """
        try:
            self._send(self._job)
            answer = self._receive()
        except BaseException:
            self.kill()
            raise
        if isinstance(answer, Failed):
            self.kill()
            raise answer.error
        assert isinstance(answer, Started)
        self._ready = answer.ready

    def evaluate(self, request: Request, quiet: Callable[[], AbstractContextManager[None]]) -> Trial:
        """Return the worker's trial; what is timed in it is timed inside a block of ``quiet()``.

        Raises:
            WorkerDied: it crashed, or a phase ran out of time and it was killed.
        """
        answer = self._ask(request, quiet)
        assert isinstance(answer, Finished)
        self.is_usable = answer.is_usable
        return answer.trial

    def remeasure(self, rounds: Rounds, quiet: Callable[[], AbstractContextManager[None]]) -> tuple[Trial, ...]:
        """Return a trial of each configuration, measured in turn; as :meth:`evaluate`."""
        answer = self._ask(rounds, quiet)
        assert isinstance(answer, RoundsFinished)
        self.is_usable = answer.is_usable
        return answer.trials

    def end(self) -> None:
        """Let the process free its device and leave; kill it if it does not."""
        self._child.hang_up()

    def kill(self) -> None:
        """End the process and everything it started."""
        self._child.kill()

    def abort(self) -> None:
        """End the process and everything it started, from any thread; the one that waits for it is told."""
        self._child.signal(signal.SIGKILL)

    def _ask(
        self, request: Request | Rounds, quiet: Callable[[], AbstractContextManager[None]]
    ) -> Started | Finished | RoundsFinished | Failed:
        self._phase = "compile"
        self._quiet = quiet
        self._send(request)
        return self._receive()

    def _send(self, message: Job | Request | Rounds | Quiet) -> None:
        try:
            self._child.send(message)
        except ChildEnded as ended:
            raise WorkerDied(Status.CRASH, self._cause_of_death(ended)) from None

    def _receive(self) -> Started | Finished | RoundsFinished | Failed:
        """Wait for the next message that is no phase, each phase within its limit."""
        with ExitStack() as quiet:
            while True:
                message = self._next_message()
                quiet.close()
                if not isinstance(message, Phase):
                    return message
                self._phase = message.name
                if message.wants_quiet:
                    quiet.enter_context(self._quiet())
                    self._send(Quiet())

    def _next_message(self) -> Started | Finished | RoundsFinished | Failed | Phase:
        limit_s = self._limit_s()
        try:
            return self._child.receive(limit_s)  # type: ignore[no-any-return]
        except TimeoutError:
            longer = "" if self._phase in ("start", "compile") else "; --trial-limit gives it longer"
            message = f"the {self._phase} phase did not end within {limit_s:g} s{longer}"
            raise WorkerDied(Status.TIMEOUT, message) from None
        except ChildEnded as ended:
            raise WorkerDied(Status.CRASH, self._cause_of_death(ended)) from None

    def _limit_s(self) -> float:
        if self._phase == "start":
            return self._limits.start_s
        # The compiler has a limit of its own; the worker's is only there in case that one fails.
        return self._limits.compile_s + 10.0 if self._phase == "compile" else self._limits.run_s

    def _cause_of_death(self, ended: ChildEnded) -> str:
        what = f"the worker {ended.how} in the {self._phase} phase"
        if ended.code is None:
            self.kill()
            return what
        cause = _USUAL_CAUSES.get(-ended.code)
        return f"{what}: {cause}" if cause else what
