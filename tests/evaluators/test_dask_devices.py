"""A search goes on whatever becomes of the Dask workers, and only on devices that are alike."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from mptune import __version__
from mptune.backends.base import CompileOptions, DeviceInfo
from mptune.errors import MptuneError
from mptune.kernel import Kernel
from mptune.measure.bench import Ready, Request
from mptune.measure.dask import Cluster, DaskDevices, Description, Lease
from mptune.measure.device import Limits
from mptune.measure.protocol import Job
from mptune.measure.timing import TimingPlan
from mptune.results.trial import Status, Trial
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.tuning import tune

OWN = Path(__file__).parent.parent / "own_kernel.py"
PLAN = TimingPlan(warmups=1, min_repeats=3, max_repeats=5, cap_s=0.05)


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return load_kernel(OWN)


@pytest.fixture
def job(kernel: Kernel) -> Job:
    return Job.of(kernel, kernel.resolve_sizes(), "cuda", None, 0, CompileOptions(), PLAN)


# -- without Dask: what the tuner does about what it is told -------------------------------------------


def description(name: str = "A100", bus: str = "0000:01:00.0", **changes: Any) -> Description:
    identity = f"cuda|{name}|sm_80|driver=13.0"
    ready = Ready(DeviceInfo("cuda", name, "sm_80", 1 << 30), identity, "data", {}, CompileOptions())
    values = {"ready": ready, "version": __version__, "host": "node1", "places": frozenset({f"GPU {bus}"})}
    return Description(**{**values, **changes})


class FakeFuture(Future[Any]):
    """What a call on a worker is going to return."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
        self.is_released = False

    def release(self) -> None:
        self.is_released = True


class FakeCluster:
    """Workers that describe themselves at once, and evaluate when the test says so."""

    address = "tcp://here:8786"

    def __init__(self, **workers: Description | Exception) -> None:
        self.workers = dict(workers)
        self.width = 1
        self.asked: list[tuple[str, FakeFuture, tuple[Any, ...]]] = []

    def threads(self) -> dict[str, int]:
        return dict.fromkeys(self.workers, self.width)

    def submit(self, key: str, worker: str, function: Callable[..., Any], *arguments: Any) -> FakeFuture:
        future = FakeFuture(key)
        if function is Lease.describe:
            described = self.workers[worker]
            if isinstance(described, Exception):
                future.set_exception(described)
            else:
                future.set_result(described)
        elif function is not Lease:
            self.asked.append((worker, future, arguments))
        return future

    def answer(self, worker: str, error: Exception | None = None) -> None:
        """Let a worker end the oldest evaluation it was asked for."""
        name, future, (_, request) = next(entry for entry in self.asked if entry[0] == worker)
        self.asked.remove((name, future, (_, request)))
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(Trial(request.configuration, Status.OK))


def request(number: int) -> Request:
    return Request(Configuration({"number": number}), "")


def numbers(trials: list[Trial]) -> list[Any]:
    return [trial.configuration["number"] for trial in trials]


class Search:
    """Devices of a made-up cluster, and what they warned of."""

    def __init__(self, job: Job, cluster: FakeCluster, limits: Limits | None = None) -> None:
        self.warnings: list[str] = []
        self.cluster = cluster
        self.devices = DaskDevices(cluster, job, limits or Limits(), self.warnings.append)  # type: ignore[arg-type]

    def look(self) -> None:
        """See who is there now, and hear what they say."""
        self.devices._look()
        while not self.devices._events.empty():
            self.devices._take_event()


def test_trials_come_back_in_the_order_in_which_they_end(job: Job) -> None:
    search = Search(job, FakeCluster(a=description(), b=description(bus="0000:02:00.0")))
    assert search.devices.start().device.name == "A100"
    assert search.devices.capacity == 2
    assert search.devices.lead == 3
    for number in (1, 2):
        search.devices.submit(request(number))
    assert sorted(worker for worker, _, _ in search.cluster.asked) == ["a", "b"]
    second = next(worker for worker, _, (_, asked) in search.cluster.asked if asked.configuration["number"] == 2)
    search.cluster.answer(second)
    assert numbers(search.devices.finished()) == [2]
    search.devices.submit(request(3))
    for worker in ("a", "b"):
        search.cluster.answer(worker)
    assert sorted(numbers(search.devices.finished())) == [1, 3]


def test_unlike_devices_are_refused_by_name(job: Job) -> None:
    search = Search(job, FakeCluster(a=description(), b=description("H100", "0000:02:00.0")))
    with pytest.raises(MptuneError, match=r"worker a has A100 .* worker b has H100 .*'A100' is not 'H100'"):
        search.devices.start()


def test_unlike_device_that_joins_later_gets_nothing_to_do(job: Job) -> None:
    search = Search(job, FakeCluster(a=description()))
    search.devices.start()
    search.cluster.workers["late"] = description("H100", "0000:02:00.0")
    search.look()
    search.look()
    assert search.devices.capacity == 1
    (warning,) = search.warnings
    assert "Dask worker late cannot take part" in warning
    assert "H100" in warning


REFUSED = {
    "device": ({"host": "node1"}, "on GPU 0000:01:00.0 of node1 together with a; start one worker per GPU"),
    "version": ({"version": "0.0.1"}, f"it has mptune 0.0.1, and this is {__version__}"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_worker_that_would_disturb_or_differ_is_refused(job: Job, case: str) -> None:
    changes, message = REFUSED[case]
    search = Search(job, FakeCluster(a=description(), b=description(**changes)))
    with pytest.raises(MptuneError, match=message):
        search.devices.start()


def test_trial_of_a_lost_worker_is_run_elsewhere(job: Job) -> None:
    search = Search(job, FakeCluster(a=description(), b=description(bus="0000:02:00.0")))
    search.devices.start()
    search.devices.submit(request(1))
    ((lost, future, _),) = search.cluster.asked
    del search.cluster.workers[lost]
    search.look()
    (_, (other, _, (_, again))) = search.cluster.asked
    assert other != lost
    assert again.configuration["number"] == 1
    # Should the lost one answer after all, that is one answer too many.
    future.set_result(Trial(Configuration({"number": 1}), Status.OK))
    search.cluster.answer(other)
    assert numbers(search.devices.finished()) == [1]
    assert search.devices._events.empty()


def test_trial_that_ends_worker_after_worker_is_a_crash(job: Job) -> None:
    search = Search(job, FakeCluster(a=description()))
    search.devices.start()
    search.devices.submit(request(1))
    for _ in range(3):
        search.cluster.answer("a", OSError("connection reset"))
        search.look()
    (trial,) = search.devices.finished()
    assert trial.status is Status.CRASH
    assert trial.message.startswith("lost with 3 Dask workers that evaluated it: OSError: connection reset")
    assert not search.cluster.asked


# -- with Dask: real workers, some of them killed ------------------------------------------------------

needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason='Dask is not installed: pip install "mptune[dask]"'
)
needs_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="two workers of the host backend need two cores: they must not share any"
)

#: Each worker on a core of its own, by its name, a number.
PINNED = """
import os

def dask_setup(worker):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.name) % len(cores)]})
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from distributed import LocalCluster

    # Nothing comes from a cache: a trial under way when its worker is killed takes a compiler's time.
    monkeypatch.setenv("MPTUNE_CACHE_DIR", str(tmp_path))
    with LocalCluster(
        n_workers=2,
        threads_per_worker=2,
        processes=True,
        dashboard_address=None,
        preload=PINNED,
        silence_logs=100,
        host="127.0.0.1",
    ) as made:
        yield made


def wait_until(true: Callable[[], bool], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.02)


def benches_of(parent: int, program: bytes = b"mptune.measure.worker") -> list[int]:
    """Return the processes in which a Dask worker measures, or those of another program."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                parent_of = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent_of == parent and program in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
    return found


@pytest.mark.full
@needs_dask
@needs_cores
@pytest.mark.filterwarnings("default")
def test_a_run_on_a_cluster_is_a_run_like_any_other(kernel: Kernel, cluster: Any) -> None:
    killed = []

    def kill_once(_: object) -> None:
        if not killed:
            killed.append(cluster.workers[1].pid)
            os.kill(killed[0], signal.SIGKILL)

    run = tune(
        kernel,
        backend="host",
        budget=8,
        max_error=1e-5,
        strategy="random",
        scheduler=cluster.scheduler_address,
        on_progress=kill_once,
    )
    assert killed
    assert run.evaluations == 8
    assert set(run.statuses) <= {"ok", "inaccurate"}
    assert run.best is not None
    assert run.info.scheduler == cluster.scheduler_address
    # Compilers that stay go with the run.
    wait_until(lambda: not any(benches_of(worker.pid, b"cc1plus") for worker in cluster.workers.values()))


@needs_dask
def test_scheduler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mptune.measure.dask._CONNECT_S", 0.2)
    with pytest.raises(MptuneError, match=r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:9'"):
        Cluster("tcp://127.0.0.1:9")


def test_without_dask_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MptuneError, match=r'pip install "mptune\[dask\]"'):
        Cluster("tcp://127.0.0.1:9")
