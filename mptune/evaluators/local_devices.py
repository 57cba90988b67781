"""The devices of this machine, a worker process for each."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from mptune.backends import get_backend
from mptune.errors import MptuneError
from mptune.evaluators.bench import Ready, Request
from mptune.evaluators.compile_ahead import CompileAhead, compiled_first
from mptune.evaluators.device_worker import DeviceWorker
from mptune.evaluators.devices import Devices, check_alike
from mptune.evaluators.protocol import Job, Rounds
from mptune.evaluators.worker_process import Limits
from mptune.results import Trial

__all__ = ["LocalDevices"]


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
        """Start every worker that has not been started yet."""
        if self._ready is None:
            starting = [self._threads.submit(worker.start) for worker in self._workers]
            backend = get_backend(self._job.backend)
            if self._compilers:
                backend.compiler.expect(self._job.options)
            ready = [future.result() for future in starting]
            check_alike({f"worker {i}": each for i, each in enumerate(ready)})
            self._ready = ready[0]
            if self._compilers:
                self._ahead = CompileAhead(backend.compiler, self._job.function, self._ready.options, self._compilers)
        return self._ready

    @property
    def capacity(self) -> int:
        """One request per device."""
        return len(self._workers)

    @property
    def lead(self) -> int:
        """One configuration per device and compiler."""
        return len(self._workers) + self._compilers

    @property
    def may_overlap(self) -> bool:
        """Whether the devices are separate from the tuner's own cores."""
        return self._may_overlap

    def prepare(self, source: str) -> None:
        """Begin to compile a source."""
        self.start()
        if self._ahead is not None:
            self._ahead.submit(source)

    def submit(self, request: Request) -> None:
        """Begin an evaluation on a device that is free."""
        self.start()
        worker = self._free.pop()
        future = self._threads.submit(compiled_first, self._ahead, request, worker.evaluate)
        future.add_done_callback(lambda done: self._ended.put((worker, done)))

    def finished(self) -> list[Trial]:
        """Wait for one of the trials under way, and return it with all others that have ended."""
        ended = [self._ended.get()]
        while not self._ended.empty():
            ended.append(self._ended.get())
        self._free += [worker for worker, _ in ended]
        return [future.result() for _, future in ended]

    def remeasure(self, rounds: Rounds) -> tuple[Trial, ...]:
        """Measure configurations in turn, on the first device."""
        self.start()
        return self._workers[0].remeasure(rounds)

    def close(self) -> None:
        """End compilers and workers."""
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
