"""Several devices of one machine serve one search, each with a process of its own that sees it alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from mptune.backends.base import CompileOptions, DeviceInfo
from mptune.backends.host import HostDevice
from mptune.errors import MptuneError
from mptune.kernel import Kernel
from mptune.measure.bench import Ready, Request
from mptune.measure.device import DeviceEvaluator
from mptune.measure.pool import Cluster, ClusterPool, Pool, check_alike
from mptune.measure.timing import TimingPlan
from mptune.measure.worker import Job, Limits, WorkerDied, definition_of
from mptune.results.trial import Status, Trial
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.tuning import tune

PLAN = TimingPlan(warmups=1, min_repeats=3, max_repeats=5, cap_s=0.05)
FAULTY = Path(__file__).with_name("faulty.py")
OWN = Path(__file__).parent.parent / "own_kernel.py"


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return load_kernel(FAULTY)


@pytest.fixture
def three_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the host backend have three devices, as a machine with three GPUs has."""
    monkeypatch.setattr(HostDevice, "environments", lambda _: [{"MPTUNE_TEST_DEVICE": str(i)} for i in range(3)])


def evaluator(kernel: Kernel, workers: int, **options: Any) -> DeviceEvaluator:
    return DeviceEvaluator(kernel, kernel.resolve_sizes(), "host", plan=PLAN, workers=workers, **options)


def processes(of: DeviceEvaluator) -> list[int]:
    assert isinstance(of._pool, Pool)
    return [worker.child.pid for worker in of._pool._workers if worker.child is not None]


def environment(process: int) -> Mapping[str, str]:
    entries = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return dict(entry.decode().split("=", 1) for entry in entries if b"=" in entry)


@pytest.mark.full
@pytest.mark.usefixtures("three_devices")
def test_two_workers_with_a_device_each_give_trials_as_they_end_or_as_asked_for(kernel: Kernel) -> None:
    endless, quick = (kernel.configuration({"fault": fault}) for fault in ("endless", "none"))
    with evaluator(kernel, 2, limits=Limits(run_s=4.0)) as two:
        list(two.evaluate([quick]))  # compiled by now
        assert [environment(process)["MPTUNE_TEST_DEVICE"] for process in processes(two)] == ["0", "1"]
        two.submit(endless)
        two.submit(quick)
        (first,) = two.finished()
        assert (first.configuration, first.status) == (quick, Status.OK)
        assert two.under_way == 1
        (second,) = two.finished()
        assert (second.configuration, second.status) == (endless, Status.TIMEOUT)
        assert first.key == two.key_of(quick)
        asked = [kernel.configuration({"block": 64}), quick, quick]
        trials = list(two.evaluate(asked))
    assert [trial.configuration for trial in trials] == asked
    assert [trial.status for trial in trials] == [Status.OK] * 3


def ready(**changes: Any) -> Ready:
    values = {
        "device": DeviceInfo("cuda", "A100", "sm_80", 1 << 30),
        "identity": "cuda|A100|sm_80|driver=13.0",
        "data_key": "data",
        "facts": {"max_threads_per_block": 1024},
        "options": CompileOptions(),
    }
    return Ready(**{**values, **changes})


UNLIKE = {
    "driver": (
        {"identity": "cuda|A100|sm_80|driver=12.0"},
        "worker 0 has A100 .* worker 2 has .*: 'driver=13.0' is not 'driver=12.0'",
    ),
    "data": ({"data_key": "other"}, "worker 2 has .*: inputs or references differ"),
    "observers": ({"observers": ("energy",)}, "limits or observers differ"),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_unlike_devices_are_refused(case: str) -> None:
    changes, message = UNLIKE[case]
    check_alike({"worker 0": ready(), "worker 1": ready()})
    with pytest.raises(MptuneError, match=message):
        check_alike({"worker 0": ready(), "worker 1": ready(), "worker 2": ready(**changes)})


@pytest.mark.full
@pytest.mark.usefixtures("three_devices")
def test_a_run_on_three_devices_has_every_trial_once() -> None:
    run = tune(OWN, backend="host", budget=12, max_error=1e-5, strategy="genetic", workers=3)
    assert run.evaluations == len({trial.configuration for trial in run.trials}) == 12
    assert set(run.statuses) <= {"ok", "inaccurate"}
    assert run.best is not None
    assert run.baseline is not None
    assert run.state.workers == 3


# -- a search on the workers of any executor: only on devices that are alike, and a lost -------------

CLUSTER_OWN = Path(__file__).parent.parent / "own_kernel.py"
ASKED = Request(Configuration({"number": 1}), "")


def cluster_ready(name: str = "A100") -> Ready:
    return Ready(DeviceInfo("cuda", name, "sm_80", 1 << 30), f"cuda|{name}", "data", (), CompileOptions())


class MadeUp(Executor):
    """Answers, or fails, as the test says."""

    _max_workers = 3

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        answer = self.answers.pop(0)
        if isinstance(answer, RuntimeError):
            raise answer
        (future.set_exception if isinstance(answer, BaseException) else future.set_result)(answer)
        return future


def pool(*answers: Any) -> ClusterPool:
    kernel = load_kernel(CLUSTER_OWN)
    sizes = dict(kernel.resolve_sizes())
    job = Job(definition_of(kernel, None), kernel.function, sizes, "cuda", 0, CompileOptions(), TimingPlan())
    return ClusterPool(Cluster(MadeUp((cluster_ready(), cluster_ready()), *answers)), job, Limits())


def test_a_trial_comes_from_whoever_is_like_the_first() -> None:
    trial = Trial(ASKED.configuration, Status.OK)
    found = pool((cluster_ready(), trial))
    assert found.submit(ASKED).result() is trial
    assert found.capacity == 3
    with pytest.raises(MptuneError, match=r"the first worker has A100 .* another worker has H100"):
        pool((cluster_ready("H100"), trial)).submit(ASKED).result()


def test_a_lost_worker_costs_a_trial() -> None:
    found = pool(OSError("connection reset"), OSError("connection reset"))
    trial = found.submit(ASKED).result()
    assert trial.status is Status.CRASH
    assert "connection reset" in trial.message
    with pytest.raises(WorkerDied):
        found.ask("reference")


@pytest.mark.full
def test_a_run_on_an_executor_is_a_run_like_any_other() -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        run = tune(CLUSTER_OWN, backend="auto", budget=6, max_error=1e-5, strategy="random", scheduler=executor)
    assert run.evaluations == 6
    assert set(run.statuses) <= {"ok", "inaccurate"}
    assert run.best is not None
    assert run.info.scheduler == "ProcessPoolExecutor"
