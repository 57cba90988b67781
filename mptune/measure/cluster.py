"""Devices of a cluster: the workers of any ``concurrent.futures.Executor``, such as Dask's, mpi4py's or loky's.

Each of the executor's processes that is asked keeps a :class:`~mptune.measure.pool.Pool` of one worker for the search.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass
from typing import Any, Final, Self

from mptune import __version__
from mptune.backends import get_backend
from mptune.errors import MptuneError
from mptune.measure.bench import Ready, Request
from mptune.measure.pool import Pool, check_alike, runnable_backend
from mptune.measure.worker import Job, Limits, WorkerDied
from mptune.results.trial import Measurement, Status, Trial

__all__ = ["Cluster"]

#: Seconds in which a scheduler has to answer.
_CONNECT_S: Final = 20.0

# -- in the executor's processes -------------------------------------------------------------------

#: Seconds without an evaluation after which a worker frees its device.
_IDLE_S: Final = 300.0


@dataclass(slots=True)
class _Serving:
    """A search that this process evaluates for."""

    pool: Pool
    calls: int = 0
    idle: threading.Timer | None = None


_lock = threading.Lock()
_serving: dict[str, _Serving] = {}


def _call(
    search: str, version: str, job: Job, limits: Limits, compilers: int, method: str, *arguments: Any
) -> tuple[Ready, Any]:
    """Return what this process's worker reports of its device, and what a method of its pool returns."""
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
            serving.idle = threading.Timer(_IDLE_S, _release, (search,), {"only_idle": True})
            serving.idle.daemon = True
            serving.idle.start()


def _release(search: str, *, only_idle: bool = False) -> None:
    """Free the device of this process."""
    with _lock:
        serving = _serving.get(search)
        if serving is None or (only_idle and serving.calls):
            return
        del _serving[search]
    serving.pool.close()


# -- in the tuner ----------------------------------------------------------------------------------


class Cluster:
    """Processes that evaluate for a search, one for each device.

    Args:
        scheduler: address of a Dask scheduler, such as ``tcp://login1:8786``, or the path of the JSON file it wrote; or
            an executor, which stays open.

    Raises:
        MptuneError: Dask is not installed, or no scheduler answers there.
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
            self._client = Client(**where, timeout=_CONNECT_S, set_as_default=False, name="mptune")
        except (OSError, ValueError) as error:
            raise MptuneError(f"no Dask scheduler answers at {scheduler!r}: {error}") from error
        self.executor = self._client.get_executor(pure=False)

    def backend(self, name: str, limit_s: float) -> str:
        """Return the name of the backend, "auto" as a worker resolves it; wait so long for a worker."""
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
        """Have Dask's workers free their devices; others do so when they have been idle for a while."""
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

    Of several threads of a process one measures at a time, and the others compile meanwhile.
    """

    may_overlap = True
    capacity = 1

    def __init__(self, cluster: Cluster, job: Job, limits: Limits) -> None:
        self._cluster, self._job, self._limits = cluster, job, limits
        self._search = uuid.uuid4().hex
        self._ready: Ready | None = None

    @property
    def lead(self) -> int:
        """One more than can be under way, for the worker that is free next."""
        return self.capacity + 1

    def start(self) -> Ready:
        """Wait until a worker has started; return what it reports of its device."""
        if self._ready is None:
            try:
                self._ready, _ = _result(self._send("start"), self._limits.start_s)
            except MptuneError:
                raise
            except Exception as error:
                raise MptuneError(f"a worker of the cluster was lost when it started: {error}") from error
        return self._ready

    def prepare(self, source: str) -> None:
        """Leave it to the workers."""

    def submit(self, request: Request) -> Future[Trial]:
        """Begin an evaluation; the trial is a failed one if its worker is lost."""
        self.start()
        ended: Future[Trial] = Future()

        def end(answered: Future[Any]) -> None:
            try:
                ended.set_result(self._checked(_result(answered)))
            except BaseException as error:
                if isinstance(error, MptuneError) or not isinstance(error, Exception):
                    # A KeyboardInterrupt of a worker, raised in this callback, would end the executor's thread.
                    ended.set_exception(error)
                    return
                lost = f"lost with the worker of the cluster: {type(error).__name__}: {error}"
                ended.set_result(Trial(request.configuration, Status.CRASH, lost))

        self._send("submit", request).add_done_callback(end)
        return ended

    def ask(self, method: str, *arguments: Any) -> Any:
        """Ask any one worker, as they are all alike."""
        self.start()
        try:
            return self._checked(_result(self._send("ask", method, *arguments)))
        except (MptuneError, WorkerDied):
            raise
        except Exception as error:
            raise WorkerDied(Status.CRASH, f"{type(error).__name__}: {error}", Measurement()) from error

    def close(self) -> None:
        """Have the workers free their devices."""
        self._cluster.release(self._search)

    def _send(self, method: str, *arguments: Any) -> Future[Any]:
        try:
            threads = self._cluster.threads()
            self.capacity = max(1, sum(threads))
            # A worker of one thread compiles itself.
            compilers = max(threads, default=1)
            told = (self._search, __version__, self._job, self._limits, compilers if compilers > 1 else 0)
            return self._cluster.executor.submit(_call, *told, method, *arguments)
        except (OSError, RuntimeError) as error:
            raise _given_up(str(error)) from error

    def _checked(self, answer: tuple[Ready, Any]) -> Any:
        ready, value = answer
        assert self._ready is not None
        check_alike({"the first worker": self._ready, "another worker": ready})
        return value


def _result(future: Future[Any], limit_s: float | None = None) -> Any:
    try:
        return future.result(limit_s)
    except TimeoutError:
        if limit_s is None:
            raise
        future.cancel()
        raise MptuneError(f"no worker of the cluster was ready within {limit_s:g} s") from None
    except CancelledError:
        raise _given_up("it has cancelled work") from None


def _given_up(why: str) -> MptuneError:
    return MptuneError(
        f"the cluster takes no more work ({why}); what has been measured is in the run file, and --resume goes on from "
        "there"
    )
