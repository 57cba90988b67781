"""Where requests are evaluated, several at a time: the devices of this machine, with compilers that run ahead of them.

A compiler is a process of its own for every backend, so threads suffice to run several at a time. What they compile
reaches the worker through the binary cache; where that cannot be written, the worker compiles itself.
"""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions, Compiler
from mptune.backends.processor import usable_cores
from mptune.errors import BackendUnavailableError, CompileError, MptuneError
from mptune.measure.bench import Ready, Request
from mptune.measure.protocol import Asked, Finished, Job
from mptune.measure.worker_process import DeviceWorker, Limits
from mptune.results.trial import Status, Trial

__all__ = [
    "CompileAhead", "Devices", "LocalDevices", "check_alike", "compiled_first", "compilers_ahead", "runnable_backend",
]  # fmt: skip

#: Cores beside a GPU that are left to its worker and to the search: while one of these waits, the device idles.
_SPARED_CORES: Final = 2


class CompileAhead:
    """Compiles sources in the background, in the order they are submitted, ``compilers`` of them at a time.

    The options are as :meth:`Compiler.resolved` returns them.
    """

    def __init__(self, compiler: Compiler, function: str, options: CompileOptions, compilers: int) -> None:
        self._compiler = compiler
        self._function = function
        self._options = options
        self._threads = ThreadPoolExecutor(compilers, thread_name_prefix="compile ahead")
        self._compilations: dict[str, Future[float]] = {}
        self._lock = threading.Lock()

    def submit(self, source: str) -> Future[float]:
        """Begin to compile a source as soon as a compiler is free; one under way already is not begun again.

        Returns how long its compiler is going to have run, in seconds.
        """
        with self._lock:
            if source not in self._compilations:
                self._compilations[source] = self._threads.submit(self._compile, source)
            return self._compilations[source]

    def take(self, source: str) -> float:
        """Wait for a source to be compiled, and forget it; return how long its compiler ran, in seconds.

        Raises:
            CompileError: the compiler rejected the source, crashed or ran out of time.
        """
        try:
            return self.submit(source).result()
        finally:
            with self._lock:
                self._compilations.pop(source, None)

    def paused(self) -> AbstractContextManager[None]:
        """Hold up the compilers for the length of a block, if they would disturb what is measured in it."""
        return self._compiler.paused()

    def close(self) -> None:
        """Give up what has not been compiled yet."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._compiler.close()
        self._threads.shutdown()

    def _compile(self, source: str) -> float:
        return self._compiler.compile(source, self._function, self._options).compile_s


def compiled_first(
    ahead: CompileAhead | None,
    request: Request,
    evaluate: Callable[[Request, Callable[[], AbstractContextManager[None]]], Trial],
) -> Trial:
    """Return the trial of a configuration when its compiler is done; the wait is part of its phases.

    ``evaluate`` is also given what holds up the compilers while it measures; without ``ahead`` it compiles itself.
    """
    if ahead is None:
        return evaluate(request, nullcontext)
    start = time.perf_counter()
    try:
        ahead.take(request.source)
        waited_s = time.perf_counter() - start
        trial = evaluate(request, ahead.paused)
    except CompileError as error:
        waited_s = time.perf_counter() - start
        trial = Trial(request.configuration, Status.COMPILE_ERROR, str(error))
    durations_s = {**trial.measurement.durations_s}
    durations_s["compile"] = durations_s.get("compile", 0.0) + waited_s
    return trial.with_measurement(durations_s=durations_s)


class Devices(ABC):
    """Evaluates requests on devices that are all alike; trials come back in the order in which they end."""

    @abstractmethod
    def start(self) -> Ready:
        """Start what is not running yet, and return what every device says of itself.

        Raises:
            MptuneError: kernel, data or backend is not usable, or the devices are not alike.
        """

    @property
    @abstractmethod
    def capacity(self) -> int:
        """How many requests may be under way now; it changes as devices leave and join, and is never below 1."""

    @property
    @abstractmethod
    def lead(self) -> int:
        """How many configurations are worth asking for before the first of them is told: under way or prepared."""

    @property
    @abstractmethod
    def may_overlap(self) -> bool:
        """Whether a strategy may compute while they measure, without disturbing them."""

    @abstractmethod
    def prepare(self, source: str) -> None:
        """Begin to compile a source that is going to be evaluated, if compilers run ahead here."""

    @abstractmethod
    def submit(self, request: Request) -> None:
        """Begin an evaluation; at most :attr:`capacity` are under way."""

    @abstractmethod
    def finished(self) -> list[Trial]:
        """Wait for one of the trials under way, and return it with all others that have ended.

        Raises:
            MptuneError: no device can go on.
        """

    @abstractmethod
    def ask(self, asked: Asked) -> Finished:
        """Return what one device answers. Only while no trial is under way.

        A configuration that ends its worker has that trial as its last. No trial, or no least time, is there of those
        whose turn did not come, because the worker was lost.
        """

    @abstractmethod
    def close(self) -> None:
        """End everything, what is under way included; may be called twice."""


def check_alike(ready: Mapping[str, Ready]) -> None:
    """Check that times and errors measured on several devices, by what to call their workers, may be compared.

    Raises:
        MptuneError: device, compiler, versions, inputs, references or observers are not the same for all of them.
    """
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
        raise MptuneError(
            f"all devices of a search must be alike, but {what}: {first_name} has {_named(first)}, "
            f"{name} has {_named(other)}: {differing}"
        )


def _named(ready: Ready) -> str:
    return f"{ready.device.name} ({ready.device.architecture})"


def compilers_ahead(backend: str) -> int:
    """Return how many compilers run ahead of a backend's devices where that is not said: one for each core.

    The processor's own pause while something is timed; beside a GPU, two cores are spared.
    """
    cores = usable_cores()
    return cores if get_backend(backend).shares_memory else max(1, cores - _SPARED_CORES)


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


class LocalDevices(Devices):
    """Devices of this machine, all seen by the compilers that run ahead of them.

    Args:
        job: what each worker is told first.
        limits: wall-clock limits.
        workers: how many devices, the first there are; one worker sees whatever this process sees.
        compilers: compilations at a time, ahead of the evaluations; 0 for none but the workers' own.

    Raises:
        MptuneError: there are not so many devices.
    """

    def __init__(self, job: Job, limits: Limits, workers: int = 1, compilers: int = 0) -> None:
        self._job = job
        self._compilers = compilers
        self._may_overlap = not get_backend(job.backend).shares_memory
        self._workers = [DeviceWorker(job, limits, environment) for environment in _environments(job, workers)]
        self._free = list(reversed(self._workers))
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="evaluation")
        self._ended: queue.SimpleQueue[tuple[DeviceWorker, Future[Trial]]] = queue.SimpleQueue()
        self._ready: Ready | None = None
        self._ahead: CompileAhead | None = None

    @property
    def process_ids(self) -> list[int]:
        """The worker processes that are running."""
        return [pid for worker in self._workers if (pid := worker.process_id) is not None]

    def start(self) -> Ready:
        if self._ready is None:
            starting = [self._threads.submit(worker.start) for worker in self._workers]
            backend = get_backend(self._job.backend)
            if self._compilers and self._job.function is not None:
                backend.compiler.expect(self._job.options, self._compilers)
            ready = [future.result() for future in starting]
            check_alike({f"worker {i}": each for i, each in enumerate(ready)})
            self._ready = ready[0]
            if self._compilers and self._job.function is not None:
                self._ahead = CompileAhead(backend.compiler, self._job.function, self._ready.options, self._compilers)
        return self._ready

    @property
    def capacity(self) -> int:
        return len(self._workers)

    @property
    def lead(self) -> int:
        return len(self._workers) + self._compilers

    @property
    def may_overlap(self) -> bool:
        return self._may_overlap

    def prepare(self, source: str) -> None:
        self.start()
        if self._ahead is not None:
            self._ahead.submit(source)

    def submit(self, request: Request) -> None:
        self.start()
        worker = self._free.pop()
        future = self._threads.submit(compiled_first, self._ahead, request, worker.evaluate)
        future.add_done_callback(lambda done: self._ended.put((worker, done)))

    def finished(self) -> list[Trial]:
        ended = [self._ended.get()]
        while not self._ended.empty():
            ended.append(self._ended.get())
        self._free += [worker for worker, _ in ended]
        return [future.result() for _, future in ended]

    def ask(self, asked: Asked) -> Finished:
        """Ask the first device."""
        self.start()
        return self._workers[0].ask(asked)

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
        for worker in self._workers:
            worker.close()
        self._threads.shutdown()


def _environments(job: Job, workers: int) -> Sequence[Mapping[str, str]]:
    if workers == 1:
        return [{}]
    backend = get_backend(job.backend)
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
