"""Several devices of one machine serve one search, each with a process of its own that sees it alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mptune.backends.base import CompileOptions, DeviceInfo
from mptune.backends.host import HostDevice
from mptune.errors import MptuneError
from mptune.kernel import Kernel
from mptune.measure.bench import Ready
from mptune.measure.device import DeviceEvaluator
from mptune.measure.pool import Pool, check_alike
from mptune.measure.timing import TimingPlan
from mptune.measure.worker import Limits
from mptune.results.trial import Status
from mptune.source.loading import load_kernel
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


def test_more_workers_than_devices_are_refused(kernel: Kernel) -> None:
    with pytest.raises(MptuneError, match=r"workers 2: .* there is one device of backend host here: .* same cores"):
        evaluator(kernel, 2)


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
