"""Evaluation on the devices of this machine, or of a cluster.

A device has a worker process, and compilers run ahead of it in threads, as each compiler is a process. The compiled
code reaches the worker through the binary cache; without a writable cache the worker compiles.

A cluster is any ``concurrent.futures.Executor``, such as Dask's, mpi4py's or loky's. Each of its processes keeps a
:class:`Pool` of one worker for the search.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, Self

from mptune import __version__
from mptune.backends import get_backend
from mptune.backends.base import Backend
from mptune.backends.processor import usable_cores
from mptune.errors import BackendUnavailableError, CompileError, MptuneError
from mptune.measure.bench import Ready, Request
from mptune.measure.worker import Job, Limits, Worker, WorkerDied
from mptune.results.trial import Measurement, Status, Trial


class Pool:
    """Workers on the first devices of this machine, which must be alike; a single worker sees all devices.

    ``compilers`` is the number of compilations at a time, ahead of the evaluations; with 0 only workers compile.
    ``capacity``, ``lead`` and ``may_overlap`` have the meaning of :class:`~mptune.measure.base.Evaluator`.
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

    def start(self) -> Ready:
        """Start the workers if they are not running; return their common report."""
        if self._ready is None:
            starting = [self._evaluating.submit(worker.start) for worker in self._workers]
            try:
                if self._compilers:  # while the workers start
                    self._backend.compiler.stay(self._compilers, self._job.options)
                    self._compiling = ThreadPoolExecutor(self._compilers, thread_name_prefix="compile ahead")
                ready = [future.result() for future in starting]
            except BaseException:
                for worker in self._workers:
                    worker.abort()
                raise
            check_alike({f"worker {i}": each for i, each in enumerate(ready)})
            self._ready = ready[0]
        return self._ready

    def prepare(self, source: str) -> None:
        """Begin to compile a source that will be evaluated, if compilers run ahead."""
        self.start()
        if self._compiling is not None and source not in self._prepared:
            self._prepared[source] = self._compiling.submit(self._compile, source)

    def submit(self, request: Request) -> Future[Trial]:
        """Begin an evaluation; the trial has failed if its worker ends."""
        self.prepare(request.source)
        return self._evaluating.submit(self._evaluate, request, self._prepared.pop(request.source, None))

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of :class:`~mptune.measure.worker.WorkerBench` once a worker is free.

        Raises the method's MptuneError, or WorkerDied.
        """
        self.start()
        with self._borrowed() as worker:
            return worker.call(method, *arguments)

    def close(self) -> None:
        """End all workers, compilers and evaluations; may be called twice."""
        if self._compiling is not None:
            self._compiling.shutdown(wait=False, cancel_futures=True)
            self._backend.compiler.close()
            self._compiling.shutdown()
            self._compiling = None
        self._evaluating.shutdown(wait=False, cancel_futures=True)
        idle = {self._free.get() for _ in range(self._free.qsize())}
        for worker in self._workers:
            # Evaluations that wait for a worker are cancelled.
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
        """Wait for the compiler, as part of the phase "compile", and evaluate on a worker."""
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
    """Raise MptuneError unless times and errors of several workers, by name, are comparable."""
    (first_name, first), *others = ready.items()
    for name, other in others:
        pairs = zip_longest(first.identity.split("|"), other.identity.split("|"))
        differing = [f"{mine!r} is not {theirs!r}" for mine, theirs in pairs if mine != theirs]
        if other.data_key != first.data_key:
            differing.append("inputs or references differ")
        if (other.facts, other.observers) != (first.facts, first.observers):
            differing.append(f"limits or observers differ ({first.observers} is not {other.observers})")
        if differing:
            mine, theirs = (f"{each.device.name} ({each.device.architecture})" for each in (first, other))
            raise MptuneError(
                f"the devices of a search must be alike, but {first_name} has {mine}, {name} has {theirs}: "
                + ", ".join(differing)
            )


def compilers_ahead(backend: str) -> int:
    """Return the default number of compilers ahead of a backend's devices: one per core, or two less."""
    cores = usable_cores()
    # Beside a GPU two cores are left to its worker and the search, as the device idles while these wait.
    return cores if get_backend(backend).shares_memory else max(1, cores - 2)


def runnable_backend(name: str) -> str:
    """Return the name of the backend, "auto" resolved; raises BackendUnavailableError if it cannot run here."""
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


# -- in the processes of a cluster -----------------------------------------------------------------

#: Idle seconds after which a worker frees its device.
_IDLE_S: Final = 300.0


@dataclass(slots=True)
class _Serving:
    pool: Pool
    calls: int = 0
    idle: threading.Timer | None = None


_lock = threading.Lock()
_serving: dict[str, _Serving] = {}


def _call(
    search: str, version: str, job: Job, limits: Limits, compilers: int, method: str, *arguments: Any
) -> tuple[Ready, Any]:
    if version != __version__:
        raise MptuneError(f"a worker of the cluster has mptune {__version__}, and the search {version}")
    with _lock:
        serving = _serving.get(search) or _Serving(Pool(job, limits, compilers=compilers))
        _serving[search] = serving
        serving.calls += 1
        if serving.idle is not None:
            serving.idle.cancel()
    try:
        with _lock:
            ready = serving.pool.start()
        answer = getattr(serving.pool, method)(*arguments)
        return ready, answer.result() if isinstance(answer, Future) else answer
    finally:
        with _lock:
            serving.calls -= 1
            if not serving.calls:
                serving.idle = threading.Timer(_IDLE_S, _release, (search,), {"only_idle": True})
                serving.idle.daemon = True
                serving.idle.start()


def _release(search: str, *, only_idle: bool = False) -> None:
    with _lock:
        serving = _serving.get(search)
        if serving is None or (only_idle and serving.calls):
            return
        del _serving[search]
    serving.pool.close()


# -- in the tuner ----------------------------------------------------------------------------------


class Cluster:
    """Processes that evaluate for a search, one for each device.

    ``scheduler`` is an executor, which stays open, or a Dask scheduler's address, such as ``tcp://login1:8786``, or the
    path of its JSON file.
    """

    def __init__(self, scheduler: str | Executor) -> None:
        self._client: Any = None
        if isinstance(scheduler, Executor):
            self.executor = scheduler
            return
        try:
            from distributed import Client
        except ImportError:
            raise MptuneError(f'scheduler {scheduler!r}: Dask is not installed: pip install "mptune[dask]"') from None
        where = {"scheduler_file": scheduler} if scheduler.endswith(".json") else {"address": scheduler}
        try:
            self._client = Client(**where, timeout=20.0, set_as_default=False, name="mptune")
        except (OSError, ValueError) as error:
            raise MptuneError(f"no Dask scheduler answers at {scheduler!r}: {error}") from error
        self.executor = self._client.get_executor(pure=False)

    def backend(self, name: str, limit_s: float) -> str:
        """Return the name of the backend, "auto" resolved by a worker; ``limit_s`` limits the wait for it."""
        if name != "auto":
            return get_backend(name).name
        return str(_result(self.executor.submit(runnable_backend, name), limit_s))

    def threads(self) -> list[int]:
        """Return the number of threads of each worker."""
        if self._client is not None:
            return list(self._client.nthreads().values())
        # The attribute of mpi4py, then that of loky and the standard library.
        workers = int(getattr(self.executor, "num_workers", None) or getattr(self.executor, "_max_workers", None) or 1)
        return [1] * workers

    def release(self, search: str) -> None:
        """Free the devices of Dask's workers; other workers free theirs when idle."""
        if self._client is not None:
            with contextlib.suppress(Exception):  # the scheduler may be gone
                self._client.run(_release, search)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()


class ClusterPool:
    """Evaluates in the processes of a cluster, as :class:`~mptune.measure.pool.Pool` does on this machine.

    In a process of several threads one measures at a time, while others compile.
    """

    may_overlap = True
    capacity = 1

    def __init__(self, cluster: Cluster, job: Job, limits: Limits) -> None:
        self._cluster, self._job, self._limits = cluster, job, limits
        self._search = uuid.uuid4().hex
        self._ready: Ready | None = None

    @property
    def lead(self) -> int:
        """One more than the capacity, for the next free worker."""
        return self.capacity + 1

    def start(self) -> Ready:
        """Wait until a worker has started; return its report."""
        if self._ready is None:
            try:
                self._ready, _ = _result(self._send("start"), self._limits.start_s)
            except WorkerDied as death:
                raise MptuneError(f"a worker of the cluster did not start: {death.message}") from death
        return self._ready

    def prepare(self, source: str) -> None:
        """Do nothing, as workers compile."""

    def submit(self, request: Request) -> Future[Trial]:
        """Begin an evaluation; the trial is a failed one if its worker is lost."""
        self.start()
        ended: Future[Trial] = Future()

        def end(answered: Future[Any]) -> None:
            try:
                ended.set_result(self._checked(_result(answered)))
            except WorkerDied as death:
                ended.set_result(death.trial_of(request.configuration))
            except BaseException as error:
                # An exception such as a worker's KeyboardInterrupt would end the executor's thread.
                ended.set_exception(error)

        self._send("submit", request).add_done_callback(end)
        return ended

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method on any worker."""
        self.start()
        return self._checked(_result(self._send("ask", method, *arguments)))

    def close(self) -> None:
        """Free the workers' devices."""
        self._cluster.release(self._search)

    def _send(self, method: str, *arguments: Any) -> Future[Any]:
        try:
            threads = self._cluster.threads()
            self.capacity = max(1, sum(threads))
            # A worker of one thread has no compilers ahead.
            compilers = max(threads, default=1)
            common = (self._search, __version__, self._job, self._limits, compilers if compilers > 1 else 0)
            return self._cluster.executor.submit(_call, *common, method, *arguments)
        except (OSError, RuntimeError) as error:
            raise _given_up(str(error)) from error

    def _checked(self, answer: tuple[Ready, Any]) -> Any:
        ready, value = answer
        assert self._ready is not None
        check_alike({"the first worker": self._ready, "another worker": ready})
        return value


def _result(future: Future[Any], limit_s: float | None = None) -> Any:
    """Return a result; raises WorkerDied if the executor lost the process."""
    try:
        return future.result(limit_s)
    except (MptuneError, WorkerDied):
        raise
    except CancelledError:
        raise _given_up("it has cancelled work") from None
    except Exception as error:
        if isinstance(error, TimeoutError) and limit_s is not None:
            future.cancel()
            raise MptuneError(f"no worker of the cluster was ready within {limit_s:g} s") from None
        lost = f"lost with the worker of the cluster: {type(error).__name__}: {error}"
        raise WorkerDied(Status.CRASH, lost, Measurement()) from error


def _given_up(why: str) -> MptuneError:
    return MptuneError(
        f"the cluster takes no more work ({why}); what has been measured is in the run file, and --resume goes on from "
        "there"
    )
