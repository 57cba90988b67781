"""What a Dask worker does for a tuner: it keeps the worker of its device for as long as the tuner holds it.

The tuner submits a :class:`Lease` to each Dask worker and holds on to the future; every evaluation takes that lease as
an argument. Dask keeps the object in the Dask worker's memory meanwhile, and lets go of it when the tuner does or is
gone, however it went.
"""

from __future__ import annotations

import os
import socket
import threading
import weakref
from dataclasses import dataclass

from mptune import __version__
from mptune.backends import get_backend
from mptune.evaluators.bench import Ready, Request
from mptune.evaluators.compile_ahead import CompileAhead, compiled_first
from mptune.evaluators.device_worker import DeviceWorker
from mptune.evaluators.protocol import Job, Rounds
from mptune.evaluators.worker_process import Limits
from mptune.results import Trial

__all__ = ["Description", "Lease", "describe", "evaluate", "remeasure"]


@dataclass(frozen=True, slots=True)
class Description:
    """What a Dask worker says of itself.

    Attributes:
        ready: what its bench says.
        version: of mptune.
        host: the machine.
        places: what of that machine it measures on: a GPU by its bus, or cores by their numbers.
    """

    ready: Ready
    version: str
    host: str
    places: frozenset[str]


class Lease:
    """A device of a Dask worker, held by a tuner.

    Where Dask moves it to another worker, or to disk and back, it begins there anew.

    Args:
        job: what the worker of the device is told first.
        limits: wall-clock limits.
        threads: of the Dask worker. One of them measures at a time, and the others compile meanwhile.
    """

    def __init__(self, job: Job, limits: Limits, threads: int) -> None:
        self._arguments = job, limits, threads
        self._lock = threading.Lock()
        self._worker = DeviceWorker(job, limits)
        #: Its compilers, once they are known to be needed.
        self._ahead: list[CompileAhead] = []
        self._finalizer = weakref.finalize(self, _close_aside, self._worker, self._ahead)
        # When this process ends, the worker process sees it end.
        self._finalizer.atexit = False

    def __reduce__(self) -> tuple[type[Lease], tuple[Job, Limits, int]]:
        return Lease, self._arguments

    def ready(self) -> Ready:
        """Start the worker if it is not running and return what it says of itself."""
        job, _, threads = self._arguments
        ready = self._worker.start()
        with self._lock:
            if threads > 1 and not self._ahead:
                backend = get_backend(job.backend)
                backend.compiler.expect(ready.options)
                self._ahead.append(CompileAhead(backend.compiler, job.function, ready.options, threads))
        return ready

    def evaluate(self, request: Request) -> Trial:
        """Return the trial of a configuration."""
        self.ready()
        return compiled_first(self._ahead[0] if self._ahead else None, request, self._worker.evaluate)

    def remeasure(self, rounds: Rounds) -> tuple[Trial, ...]:
        """Return trials of configurations measured in turn."""
        return self._worker.remeasure(rounds)


def describe(lease: Lease) -> Description:
    """Start a worker and return what it says of itself."""
    ready = lease.ready()
    bus = ready.device.pci_bus_id
    places = frozenset({f"GPU {bus}"} if bus else {f"core {core}" for core in os.sched_getaffinity(0)})
    return Description(ready, __version__, socket.gethostname(), places)


def evaluate(lease: Lease, request: Request) -> Trial:
    """Return the trial of a configuration."""
    return lease.evaluate(request)


def remeasure(lease: Lease, rounds: Rounds) -> tuple[Trial, ...]:
    """Return trials of configurations measured in turn."""
    return lease.remeasure(rounds)


def _close_aside(worker: DeviceWorker, ahead: list[CompileAhead]) -> None:
    """End a worker and its compilers without holding up whoever let go of them, which is Dask's event loop."""

    def close() -> None:
        for compilers in ahead:
            compilers.close()
        worker.close()

    threading.Thread(target=close, daemon=True).start()
