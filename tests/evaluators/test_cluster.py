"""A search on the workers of any executor: only on devices that are alike, and a lost worker costs a trial."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from mptune.backends.base import CompileOptions, DeviceInfo
from mptune.errors import MptuneError
from mptune.measure.bench import Ready, Request
from mptune.measure.pool import Cluster, ClusterPool
from mptune.measure.timing import TimingPlan
from mptune.measure.worker import Job, Limits, WorkerDied, definition_of
from mptune.results.trial import Status, Trial
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.tuning import tune

OWN = Path(__file__).parent.parent / "own_kernel.py"
ASKED = Request(Configuration({"number": 1}), "")


def ready(name: str = "A100") -> Ready:
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
    kernel = load_kernel(OWN)
    sizes = dict(kernel.resolve_sizes())
    job = Job(definition_of(kernel, None), kernel.function, sizes, "cuda", 0, CompileOptions(), TimingPlan())
    return ClusterPool(Cluster(MadeUp((ready(), ready()), *answers)), job, Limits())


def test_a_trial_comes_from_whoever_is_like_the_first() -> None:
    trial = Trial(ASKED.configuration, Status.OK)
    found = pool((ready(), trial))
    assert found.submit(ASKED).result() is trial
    assert found.capacity == 3
    with pytest.raises(MptuneError, match=r"the first worker has A100 .* another worker has H100"):
        pool((ready("H100"), trial)).submit(ASKED).result()


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
        run = tune(OWN, backend="auto", budget=6, max_error=1e-5, strategy="random", scheduler=executor)
    assert run.evaluations == 6
    assert set(run.statuses) <= {"ok", "inaccurate"}
    assert run.best is not None
    assert run.info.scheduler == "ProcessPoolExecutor"
