"""The devices of this machine, with a worker process for each and compilers that run ahead of them.

A compiler is a process of its own for every backend, so threads suffice to run several at a time. The compiled code
reaches the worker through the binary cache; where that cannot be written, the worker compiles itself.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from typing import Any

from mptune.backends import get_backend
from mptune.backends.base import Backend
from mptune.backends.processor import usable_cores
from mptune.errors import BackendUnavailableError, CompileError, MptuneError
from mptune.measure.bench import Ready, Request
from mptune.measure.worker import Job, Limits, Worker, WorkerDied
from mptune.results.trial import Status, Trial

__all__ = ["Pool", "check_alike", "compilers_ahead", "runnable_backend"]


class Pool:
    """Workers on devices of this machine that are alike.

    Args:
        job, limits: of each worker.
        workers: how many devices, the first there are; one worker sees whatever this process sees.
        compilers: compilations at a time, ahead of the evaluations; 0 for none but the workers' own.

    Attributes:
        capacity: evaluations worth submitting at a time.
        lead: configurations worth asking for before the first of them is told: under way or prepared.
        may_overlap: whether the tuner may compute during evaluations without disturbing them.
    """

    def __init__(self, job: Job, limits: Limits, workers: int = 1, compilers: int = 0) -> None:
        self._job = job
        self._backend = get_backend(job.backend)
        self._compilers = 0 if job.function is None else compilers
        self._workers = [Worker(job, limits, each) for each in _environments(self._backend, workers)]
        self._free: queue.SimpleQueue[Worker | None] = queue.SimpleQueue()  # None: the pool is closed
        for worker in self._workers:
            self._free.put(worker)
        self._evaluating = ThreadPoolExecutor(workers, thread_name_prefix="evaluation")
        self._compiling: ThreadPoolExecutor | None = None
        self._prepared: dict[str, Future[None]] = {}
        self._ready: Ready | None = None
        self.capacity = workers
        self.lead = workers + compilers
        self.may_overlap = not self._backend.shares_memory

    @property
    def process_ids(self) -> list[int]:
        """The worker processes that are running."""
        return [pid for worker in self._workers if (pid := worker.process_id) is not None]

    def start(self) -> Ready:
        """Start what is not running yet; return what every worker reports of its device."""
        if self._ready is None:
            starting = [self._evaluating.submit(worker.start) for worker in self._workers]
            if self._compilers:
                self._backend.compiler.expect(self._job.options, self._compilers)
                self._compiling = ThreadPoolExecutor(self._compilers, thread_name_prefix="compile ahead")
            try:
                ready = [future.result() for future in starting]
            except BaseException:
                for worker in self._workers:
                    worker.abort()
                raise
            check_alike({f"worker {i}": each for i, each in enumerate(ready)})
            self._ready = ready[0]
        return self._ready

    def prepare(self, source: str) -> None:
        """Begin to compile a source that is going to be evaluated, if compilers run ahead."""
        self.start()
        if self._compiling is not None and source not in self._prepared:
            self._prepared[source] = self._compiling.submit(self._compile, source)

    def submit(self, request: Request) -> Future[Trial]:
        """Begin an evaluation; the trial is a failed one if its worker ends or is ended."""
        self.prepare(request.source)
        return self._evaluating.submit(self._evaluate, request, self._prepared.pop(request.source, None))

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return what a method of :class:`~mptune.measure.worker.WorkerBench` returns, once a worker is free.

        Raises:
            MptuneError: the method raised it.
            WorkerDied: the worker crashed or ran out of time.
        """
        self.start()
        with self._borrowed() as worker:
            return worker.call(method, *arguments)

    def close(self) -> None:
        """End everything, evaluations under way included; may be called twice."""
        if self._compiling is not None:
            self._compiling.shutdown(wait=False, cancel_futures=True)
            self._backend.compiler.close()
            self._compiling.shutdown()
            self._compiling = None
        self._evaluating.shutdown(wait=False, cancel_futures=True)
        idle = {self._free.get() for _ in range(self._free.qsize())}
        for worker in self._workers:
            # Evaluations that still wait for a worker end.
            self._free.put(None)
            if worker not in idle:
                worker.abort()
        self._evaluating.shutdown()
        for worker in self._workers:
            worker.close()

    @contextmanager
    def _borrowed(self) -> Iterator[Worker]:
        worker = self._free.get()
        if worker is None:
            raise CancelledError
        try:
            yield worker
        finally:
            self._free.put(worker)

    def _compile(self, source: str) -> None:
        assert self._ready is not None
        assert self._job.function is not None
        self._backend.compiler.compile(source, self._job.function, self._ready.options)

    def _evaluate(self, request: Request, compiled: Future[None] | None) -> Trial:
        """Wait for the compiler, which is part of the trial's phases, and have a worker evaluate."""
        with self._borrowed() as worker:
            start = waited = time.perf_counter()
            try:
                if compiled is not None:
                    wait([compiled])
                    waited = time.perf_counter()
                    compiled.result()
                quiet = nullcontext if compiled is None else self._backend.compiler.paused
                trial: Trial = worker.call("evaluate", request, quiet=quiet, plan=request.plan)
            except CompileError as error:
                trial = Trial(request.configuration, Status.COMPILE_ERROR, str(error))
            except WorkerDied as death:
                trial = death.trial_of(request.configuration)
        durations_s = trial.measurement.durations_s
        compile_s = durations_s.get("compile", 0.0) + waited - start
        return trial.with_measurement(durations_s={**durations_s, "compile": compile_s})


def check_alike(ready: Mapping[str, Ready]) -> None:
    """Raise a MptuneError unless times and errors of several workers, by name, may be compared."""
    (first_name, first), *others = ready.items()
    for name, other in others:
        if other.identity != first.identity:
            what = "their times cannot be compared"
            pairs = zip(first.identity.split("|"), other.identity.split("|"), strict=False)
            differing = ", ".join(f"{mine!r} is not {theirs!r}" for mine, theirs in pairs if mine != theirs)
        elif other.data_key != first.data_key:
            what, differing = "their errors cannot be compared", "inputs or references differ"
        elif (other.facts, other.observers) != (first.facts, first.observers):
            what = "their trials cannot be compared"
            differing = f"limits or observers differ ({first.observers} is not {other.observers})"
        else:
            continue
        mine, theirs = (f"{each.device.name} ({each.device.architecture})" for each in (first, other))
        raise MptuneError(
            f"all devices of a search must be alike, but {what}: {first_name} has {mine}, "
            f"{name} has {theirs}: {differing}"
        )


def compilers_ahead(backend: str) -> int:
    """Return the default number of compilers that run ahead of a backend's devices: one for each core."""
    cores = usable_cores()
    # Beside a GPU two cores are spared, for its worker and the search: while one of these waits, the device idles.
    return cores if get_backend(backend).shares_memory else max(1, cores - 2)


def runnable_backend(name: str) -> str:
    """Return the name of the backend, "auto" resolved.

    Raises:
        UnknownNameError: no backend has that name.
        BackendUnavailableError: it cannot run here.
    """
    backend = get_backend(name)
    found = backend.availability()
    if not found.can_run:
        raise BackendUnavailableError(f"backend {backend.name} cannot run here: {found.reason}")
    return backend.name


def _environments(backend: Backend, workers: int) -> Sequence[Mapping[str, str]]:
    if workers == 1:
        return [{}]
    found = backend.device.environments()
    if workers > len(found):
        there_is = "is one device" if len(found) == 1 else f"are {len(found)} devices"
        why = ": several workers on the same cores would disturb each other's timings" if backend.shares_memory else ""
        raise MptuneError(
            f"workers {workers}: expected at most one per device, and there {there_is} of backend {backend.name} "
            f"here{why}; more compilers (--compilers) make the trials of one device quicker, and with --scheduler "
            "the devices of several machines serve one search"
        )
    return found[:workers]
