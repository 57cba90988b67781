"""Whatever a kernel does, it becomes a trial with that status, and the next one runs."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mptune.backends.host import HostBackend, HostBuffer, HostDevice
from mptune.errors import MptuneError
from mptune.kernel import Kernel
from mptune.measure.bench import Bench, Request
from mptune.measure.device import DeviceEvaluator
from mptune.measure.pool import Pool
from mptune.measure.timing import TimingPlan
from mptune.measure.worker import Limits
from mptune.results.objective import Objective
from mptune.results.trial import Status, Trial
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.space.configuration import Configuration
from tests.tiers import few

PLAN = TimingPlan(warmups=1, min_repeats=3, max_repeats=5, cap_s=0.05)
LIMITS = Limits(compile_s=120, run_s=8)


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return load_kernel(Path(__file__).with_name("faulty.py"))


WAYS = {"params": few([2, 0])}


@pytest.fixture(**WAYS)
def evaluator(kernel: Kernel, request: pytest.FixtureRequest) -> Iterator[DeviceEvaluator]:
    sizes = kernel.resolve_sizes()
    options = {"plan": PLAN, "limits": LIMITS, "objective": Objective(threshold=1e-3)}
    with DeviceEvaluator(kernel, sizes, "host", compilers=request.param, **options) as made:
        yield made


@pytest.fixture(scope="module", **WAYS)
def seasoned(kernel: Kernel, request: pytest.FixtureRequest) -> Iterator[DeviceEvaluator]:
    """One for many tests: it has had faults before, and checks every configuration."""
    options = {"plan": PLAN, "limits": LIMITS}
    with DeviceEvaluator(kernel, kernel.resolve_sizes(), "host", compilers=request.param, **options) as made:
        assert next(iter(made.evaluate([kernel.configuration({})]))).status is Status.OK
        yield made


def process_of(evaluator: DeviceEvaluator) -> int:
    assert isinstance(evaluator._pool, Pool)
    (process,) = (worker.child.pid for worker in evaluator._pool._workers if worker.child is not None)
    return process


def evaluate(evaluator: DeviceEvaluator, *configurations: Configuration) -> list[Trial]:
    return list(evaluator.evaluate(configurations))


CASES = {
    "segfault": (Status.CRASH, "SIGSEGV"),
    "abort": (Status.CRASH, "SIGILL|SIGABRT|SIGTRAP"),
    "compile": (Status.COMPILE_ERROR, "error"),
    "unwritten": (Status.UNWRITTEN, "never wrote 1 of 1001 elements of 'y'"),
    "nan": (Status.NON_FINITE, "y"),
    "infinite": (Status.NON_FINITE, "y"),
}


@pytest.mark.parametrize("fault", CASES)
def test_a_fault_becomes_a_status_and_the_next_trial_runs(
    kernel: Kernel, seasoned: DeviceEvaluator, fault: str
) -> None:
    status, message = CASES[fault]
    bad, good = evaluate(seasoned, kernel.configuration({"fault": fault}), kernel.configuration({"fault": "none"}))
    assert bad.status is status
    assert bad.message
    assert re.search(message, bad.message), bad.message
    assert good.status is Status.OK
    assert good.error == 0.0
    assert good.time_ms > 0
    assert bad.key
    assert bad.key != good.key


def test_measurement_is_complete(kernel: Kernel, seasoned: DeviceEvaluator) -> None:
    (trial,) = evaluate(seasoned, kernel.configuration({"y_type": "fp32"}))
    metrics = trial.measurement.metrics
    assert 0 < trial.error < 2.0**-24
    assert metrics["error.y"] == trial.error
    assert metrics["memory_bytes"] >= 1001 * (4 + 8)
    assert len(trial.measurement.times_ms) >= PLAN.min_repeats
    assert min(trial.measurement.times_ms) <= trial.time_ms <= max(trial.measurement.times_ms)
    assert {"compile", "transfer", "launch", "accuracy", "timing"} <= set(trial.measurement.durations_s)


@pytest.mark.parametrize(("number", "said"), few([(signal.SIGKILL, "SIGKILL"), (signal.SIGRTMIN + 3, "signal 37")]))
def test_killed_worker_is_replaced(kernel: Kernel, seasoned: DeviceEvaluator, number: int, said: str) -> None:
    seasoned.start()
    os.kill(process_of(seasoned), number)
    lost, good = evaluate(seasoned, kernel.configuration({}), kernel.configuration({"block": 64}))
    assert lost.status is Status.CRASH
    assert said in lost.message
    assert good.status is Status.OK


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (lambda rng, size: {"x": np.empty(1 << 48)}, "the inputs of twice ran out of memory"),
        (lambda rng, size: os._exit(3), "end the process, as os._exit does"),
    ],
    ids=["memory", "exit"],
)
def test_inputs_that_end_a_worker_are_an_error(kernel: Kernel, inputs: Any, message: str) -> None:
    other = dataclasses.replace(kernel, path=None, inputs=inputs)
    with (
        DeviceEvaluator(other, other.resolve_sizes(), "host", plan=PLAN, limits=LIMITS) as evaluator,
        pytest.raises(MptuneError, match=message),
    ):
        evaluator.start()


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.full
def test_worker_does_not_outlive_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, signal, sys\n"
        "from mptune.measure.device import DeviceEvaluator\n"
        "from mptune.source.loading import load_kernel\n"
        f"kernel = load_kernel({str(Path(__file__).with_name('faulty.py'))!r})\n"
        "evaluator = DeviceEvaluator(kernel, kernel.resolve_sizes(), 'host')\n"
        "evaluator.start()\n"
        "print(*(worker.child.pid for worker in evaluator._pool._workers), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=600, check=False)
    worker = int(done.stdout)
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 120
    while is_running(worker):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_memory_that_runs_out_is_a_status(kernel: Kernel) -> None:
    class Greedy(HostDevice):
        def allocate(self, nbytes: int) -> HostBuffer:
            raise MemoryError(f"{nbytes} bytes")

    backend = HostBackend()
    backend.device = Greedy(1)
    bench = Bench(kernel, kernel.resolve_sizes(), backend)
    configuration = kernel.configuration({})
    trial = bench.evaluate(Request(configuration, render(kernel, configuration, kernel.resolve_sizes())))
    assert trial.status is Status.OUT_OF_MEMORY
    assert "host memory ran out" in trial.message


UNEVEN = """
extern "C" __global__ void twice(double* y, const double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x + {{ 0 // (block - 64) }};
    if (i < n) y[i] = 2.0 * x[i];
}
"""


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"template": UNEVEN}, Status.COMPILE_ERROR, "ZeroDivisionError|division"),
        ({"grid": ["ceildiv(n, block) * (block < 64)"]}, Status.ERROR, r"the grid .* is \(0"),
    ],
)
def test_a_configuration_that_cannot_be_rendered_is_one_trial(
    kernel: Kernel, changes: dict[str, Any], status: Status, message: str
) -> None:
    other = dataclasses.replace(kernel, path=None, **changes)
    bad, good = (other.configuration({"block": block}) for block in (64, 32))
    with DeviceEvaluator(other, other.resolve_sizes(), "host", plan=PLAN, limits=LIMITS) as evaluator:
        failed, fine = evaluate(evaluator, bad, good)
        assert (failed.status, fine.status) == (status, Status.OK)
        assert re.search(message, failed.message), failed.message
        assert failed.key == evaluator.key_of(bad)
        assert fine.key == evaluator.key_of(good) != failed.key
