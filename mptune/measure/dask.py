"""The devices of a Dask cluster, whose workers may leave and join while a search goes on.

Each trial is sent to one Dask worker and no other: it is the tuner that knows which devices are alike and free. So it
is also the tuner that sends it elsewhere when that worker is lost.

The tuner submits a :class:`Lease` to each Dask worker and holds on to the future; every evaluation takes that lease as
an argument. Dask keeps the object in the Dask worker's memory meanwhile, and lets go of it when the tuner does or is
gone, however it went.
"""

from __future__ import annotations

import itertools
import os
import queue
import socket
import threading
import time
import uuid
import weakref
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

from mptune import __version__
from mptune.backends import get_backend
from mptune.errors import MptuneError
from mptune.measure.bench import Ready, Request
from mptune.measure.devices import CompileAhead, Devices, check_alike, compiled_first, runnable_backend
from mptune.measure.protocol import Asked, Finished, Job
from mptune.measure.worker_process import DeviceWorker, Limits
from mptune.results.trial import Status, Trial

__all__ = ["Cluster", "DaskDevices", "Description", "Lease"]

_CONNECT_S: Final = 20.0
_PAUSE_S: Final = 0.5


class Cluster:
    """A Dask cluster, for as long as the connection is open.

    Args:
        address: the scheduler's, such as ``tcp://login1:8786``, or the path of the JSON file it wrote that into.

    Raises:
        MptuneError: Dask is not installed, or no scheduler answers there.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise MptuneError(f'scheduler {address!r}: Dask is not installed: pip install "mptune[dask]"') from None
        self.address = address
        where = {"scheduler_file": address} if address.endswith(".json") else {"address": address}
        try:
            self._client = Client(**where, timeout=_CONNECT_S, set_as_default=False, name="mptune")
        except (OSError, ValueError) as error:
            raise MptuneError(f"no Dask scheduler answers at {address!r}: {error}") from error

    def threads(self) -> dict[str, int]:
        """Return the threads of each worker there is, by address.

        Raises:
            MptuneError: the scheduler does not answer any more.
        """
        try:
            return dict(self._client.nthreads())
        except (OSError, RuntimeError) as error:
            raise MptuneError(
                f"the Dask scheduler at {self.address!r} does not answer any more ({error}); "
                "what has been measured is in the run file, and --resume goes on from there"
            ) from error

    def backend(self, name: str, limit_s: float) -> str:
        """Return the name of the backend, "auto" as the workers resolve it; wait so long for the first of them.

        Raises:
            MptuneError: there is no such backend, no worker has come, or "auto" is not the same for all of them.
        """
        if name != "auto":
            return get_backend(name).name
        deadline = time.monotonic() + limit_s
        while not self.threads():
            if time.monotonic() > deadline:
                raise MptuneError(f"no worker joined the Dask scheduler at {self.address!r} within {limit_s:g} s")
            time.sleep(_PAUSE_S)
        found: dict[str, Any] = self._client.run(runnable_backend, name, on_error="return")
        for worker, answer in found.items():
            if isinstance(answer, Exception):
                raise MptuneError(f"Dask worker {worker}: {answer}") from answer
        if len(set(found.values())) > 1:
            told = ", ".join(f"{worker} {answer}" for worker, answer in found.items())
            raise MptuneError(f"backend auto is not the same for all Dask workers ({told}): name it with --backend")
        return str(next(iter(found.values())))

    def submit(self, key: str, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the future of a call on a worker, and on that one only."""
        return self._client.submit(
            function, *arguments, key=key, workers=[worker], allow_other_workers=False, pure=False
        )

    def close(self) -> None:
        """Close the connection; what was submitted and has not begun is forgotten."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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

    Where Dask moves it to another worker, or to disk and back, it begins there anew. One of the Dask worker's threads
    measures at a time, and the others compile meanwhile.
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
            if threads > 1 and not self._ahead and job.function is not None:
                backend = get_backend(job.backend)
                backend.compiler.expect(ready.options, threads)
                self._ahead.append(CompileAhead(backend.compiler, job.function, ready.options, threads))
        return ready

    def describe(self) -> Description:
        """Start the worker and return what it says of itself."""
        ready = self.ready()
        bus = ready.device.pci_bus_id
        places = frozenset({f"GPU {bus}"} if bus else {f"core {core}" for core in os.sched_getaffinity(0)})
        return Description(ready, __version__, socket.gethostname(), places)

    def evaluate(self, request: Request) -> Trial:
        """Return the trial of a configuration."""
        self.ready()
        return compiled_first(self._ahead[0] if self._ahead else None, request, self._worker.evaluate)

    def ask(self, asked: Asked) -> Finished:
        """Return what the worker answers."""
        return self._worker.ask(asked)


def _close_aside(worker: DeviceWorker, ahead: list[CompileAhead]) -> None:
    """End a worker and its compilers without holding up whoever let go of them, which is Dask's event loop."""

    def close() -> None:
        for compilers in ahead:
            compilers.close()
        worker.close()

    threading.Thread(target=close, daemon=True).start()


#: How often the workers there are are looked at.
_LOOK_S: Final = 1.0
#: How long the result of a finished call may take to come: a worker lost meanwhile never sends it.
_FETCH_S: Final = 30.0
#: With how many workers a trial may be lost before that is taken for its own doing.
_LOSSES: Final = 3


@dataclass(slots=True, eq=False)
class _Task:
    """A request, and why the workers it was sent to did not answer."""

    request: Request
    losses: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Seat:
    """A Dask worker and what it is doing for this tuner."""

    address: str
    threads: int
    lease: Any
    description: Description | None = None
    under_way: dict[str, tuple[_Task, Any]] = field(default_factory=dict)

    @property
    def has_room(self) -> bool:
        return self.description is not None and len(self.under_way) < self.threads


class DaskDevices(Devices):
    """One device per Dask worker; of a worker of several threads all but one compile while it measures.

    Args:
        cluster: the connection; stays open.
        job: what the worker of each device is told first.
        limits: wall-clock limits; their ``start_s`` also bounds how long the search goes on without any worker.
        on_warning: told about Dask workers that are not used, and why.
    """

    def __init__(self, cluster: Cluster, job: Job, limits: Limits, on_warning: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._job = job
        self._limits = limits
        self._on_warning = on_warning
        self._ready: Ready | None = None
        self._seats: dict[str, _Seat] = {}
        self._refused: set[str] = set()
        self._waiting: deque[_Task] = deque()
        self._trials: list[Trial] = []
        self._events: queue.SimpleQueue[tuple[_Seat, str, Any]] = queue.SimpleQueue()
        self._names = (f"mptune-{uuid.uuid4().hex[:12]}-{i}" for i in itertools.count())
        self._looked = self._had_seats = time.monotonic()

    def start(self) -> Ready:
        """Wait for every Dask worker there is to start its device's, at least one."""
        if self._ready is None:
            self._look()
            while not self._seats or any(seat.description is None for seat in self._seats.values()):
                self._take_event()
            seat = next(iter(self._seats.values()))
            assert seat.description is not None
            self._ready = seat.description.ready
        return self._ready

    @property
    def capacity(self) -> int:
        return max(1, sum(seat.threads for seat in self._seats.values() if seat.description is not None))

    @property
    def lead(self) -> int:
        """One more than can be under way, for the worker that is free next; it is the Dask workers that compile."""
        return self.capacity + 1

    @property
    def may_overlap(self) -> bool:
        return True

    def prepare(self, source: str) -> None:
        """Leave it to the Dask workers."""

    def submit(self, request: Request) -> None:
        self.start()
        self._waiting.append(_Task(request))
        self._place()

    def finished(self) -> list[Trial]:
        while not self._trials or not self._events.empty():
            self._take_event()
        trials, self._trials = self._trials, []
        return trials

    def ask(self, asked: Asked) -> Finished:
        """Ask any one device: they are all alike."""
        self.start()
        while (seat := next((seat for seat in self._seats.values() if seat.has_room), None)) is None:
            self._take_event()
        future = self._cluster.submit(next(self._names), seat.address, Lease.ask, seat.lease, asked)
        answered = threading.Event()
        future.add_done_callback(lambda _: answered.set())
        while not answered.wait(_LOOK_S):
            self._look()
            if self._seats.get(seat.address) is not seat:
                return Finished((), is_usable=False)
        try:
            answer: Finished = future.result(timeout=_FETCH_S)
        except MptuneError:
            raise
        except (Exception, CancelledError):
            return Finished((), is_usable=False)
        return answer

    def close(self) -> None:
        """Let go of every device; a trial under way ends where it is, and nobody is told."""
        for seat in self._seats.values():
            for future in (*(future for _, future in seat.under_way.values()), seat.lease):
                future.release()
        self._seats.clear()
        self._waiting.clear()

    # -- the workers there are -----------------------------------------------------------------

    def _look(self) -> None:
        """See which Dask workers have left and joined."""
        threads = self._cluster.threads()
        for seat in [seat for address, seat in self._seats.items() if address not in threads]:
            del self._seats[seat.address]
            for task, _ in seat.under_way.values():
                self._lose(task, f"{seat.address} left the cluster")
        for address in threads:
            if address not in self._seats and address not in self._refused:
                self._join(address, max(1, threads[address]))
        self._looked = time.monotonic()
        if self._seats:
            self._had_seats = self._looked
        elif self._looked - self._had_seats > self._limits.start_s:
            refused = f" that is used; {len(self._refused)} are not" if self._refused else ""
            where = f"the Dask scheduler at {self._cluster.address!r}"
            raise MptuneError(f"{where} has had no worker for {self._limits.start_s:g} s{refused}")
        self._place()

    def _join(self, address: str, threads: int) -> None:
        lease = self._cluster.submit(next(self._names), address, Lease, self._job, self._limits, threads)
        seat = _Seat(address, threads, lease)
        self._seats[address] = seat
        self._watch(seat, self._cluster.submit(next(self._names), address, Lease.describe, lease))

    def _admit(self, seat: _Seat, future: Any) -> None:
        """Use a Dask worker that has started its device's, unless something is against it."""
        try:
            description = future.result(timeout=_FETCH_S)
            self._check(seat, description)
        except (Exception, CancelledError) as error:
            reason = str(error) if isinstance(error, MptuneError) else f"{type(error).__name__}: {error}"
            message = f"Dask worker {seat.address} cannot take part: {reason}"
            del self._seats[seat.address]
            if seat.address not in self._cluster.threads():
                return
            if self._ready is None:
                raise MptuneError(message) from error
            self._refused.add(seat.address)
            self._on_warning(message)
            return
        seat.description = description
        self._place()

    def _check(self, seat: _Seat, description: Description) -> None:
        """Check that a Dask worker measures what the others do, and neither them nor with them.

        Raises:
            MptuneError: it does not.
        """
        if description.version != __version__:
            raise MptuneError(f"it has mptune {description.version}, and this is {__version__}")
        name = f"worker {seat.address}"
        for other in self._seats.values():
            if other.description is None:
                continue
            shared = sorted(description.places & other.description.places)
            if shared and description.host == other.description.host:
                raise MptuneError(
                    f"it would measure on {shared[0]} of {description.host} together with {other.address}; start "
                    "one worker per GPU, as dask-cuda does, or on the host backend one per machine or set of cores"
                )
            check_alike({f"worker {other.address}": other.description.ready, name: description.ready})
        if self._ready is not None:
            check_alike({"the search": self._ready, name: description.ready})

    # -- trials --------------------------------------------------------------------------------

    def _place(self) -> None:
        """Send what waits to the workers that do least."""
        while self._waiting:
            free = [seat for seat in self._seats.values() if seat.has_room]
            if not free:
                return
            seat = min(free, key=lambda seat: len(seat.under_way))
            task = self._waiting.popleft()
            name = next(self._names)
            future = self._cluster.submit(name, seat.address, Lease.evaluate, seat.lease, task.request)
            seat.under_way[name] = task, future
            self._watch(seat, future)

    def _watch(self, seat: _Seat, future: Any) -> None:
        future.add_done_callback(lambda done: self._events.put((seat, done.key, done)))

    def _take_event(self) -> None:
        """Wait for a call that ended, or until it is time to look again."""
        try:
            seat, name, future = self._events.get(timeout=_LOOK_S)
        except queue.Empty:
            self._look()
            return
        if self._seats.get(seat.address) is seat:
            if name in seat.under_way:
                self._end(seat.under_way.pop(name)[0], future)
            else:
                self._admit(seat, future)
        if time.monotonic() - self._looked > _LOOK_S:
            self._look()
        self._place()

    def _end(self, task: _Task, future: Any) -> None:
        try:
            self._trials.append(future.result(timeout=_FETCH_S))
        except MptuneError:
            raise
        except (Exception, CancelledError) as error:
            self._lose(task, f"{type(error).__name__}: {error}")

    def _lose(self, task: _Task, reason: str) -> None:
        """Send a request elsewhere, unless that has been tried too often."""
        task.losses.append(reason)
        if len(task.losses) < _LOSSES:
            self._waiting.appendleft(task)
            return
        message = f"lost with {_LOSSES} Dask workers that evaluated it: {'; '.join(task.losses)}"
        self._trials.append(Trial(task.request.configuration, Status.CRASH, message))
