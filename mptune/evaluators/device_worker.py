"""The worker of one device, whatever becomes of its process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from mptune.errors import LaunchError
from mptune.evaluators.bench import Ready, Request
from mptune.evaluators.protocol import Job, Rounds
from mptune.evaluators.worker_process import Limits, WorkerDied, WorkerProcess
from mptune.results import Measurement, Status, Trial

__all__ = ["DeviceWorker"]

_Answer = TypeVar("_Answer")


class DeviceWorker:
    """A worker process that is replaced when a kernel brings it down, and the thread that speaks to it.

    Any thread may call any method; evaluations wait for each other. The process is started by a thread of its own
    because the system ends it together with the thread it comes from.

    Args:
        job: what the process is told first.
        limits: wall-clock limits.
        environment: variables the process has beside those of this one.
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
        """The process, None where none is running."""
        process = self._process
        return None if process is None else process.process_id

    def start(self) -> Ready:
        """Start the process if it is not running and return what it says of itself.

        Raises:
            MptuneError: the kernel, its data or the backend is not usable.
        """
        return self._call(lambda: self._running().ready)

    def evaluate(self, request: Request, quiet: Callable[[], AbstractContextManager[None]] = nullcontext) -> Trial:
        """Return the trial of a configuration; that of a failure where the process ends or is ended."""
        return self._call(lambda: self._evaluate(request, quiet))

    def remeasure(self, rounds: Rounds) -> tuple[Trial, ...]:
        """Return a trial of each configuration, measured in turn; nothing where the process ends."""
        return self._call(lambda: self._remeasure(rounds))

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
                raise LaunchError(f"the worker process could not start: {death}") from death
            except BaseException:
                self._kill()
                raise
        return self._process

    def _evaluate(self, request: Request, quiet: Callable[[], AbstractContextManager[None]]) -> Trial:
        process = self._running()
        start = time.perf_counter()
        try:
            trial = process.evaluate(request, quiet)
            if not process.is_usable:
                self._kill()
            return trial
        except WorkerDied as death:
            self._kill()
            # Under a larger limit a trial that ran out of time is worth another try.
            limit = {"limit_s": self._limits.run_s} if death.status is Status.TIMEOUT else {}
            lost = Measurement(limit, durations_s={"lost": time.perf_counter() - start})
            return Trial(request.configuration, death.status, str(death), lost)
        except BaseException:
            self._kill()
            raise

    def _remeasure(self, rounds: Rounds) -> tuple[Trial, ...]:
        process = self._running()
        try:
            trials = process.remeasure(rounds, nullcontext)
            if not process.is_usable:
                self._kill()
            return trials
        except WorkerDied:
            self._kill()
            return ()
        except BaseException:
            self._kill()
            raise

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None
