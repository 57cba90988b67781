"""Whatever a kernel does, it becomes a trial with that status, and the next one runs."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mptune.backends import get_backend
from mptune.backends.host import HostBackend, HostBuffer, HostDevice
from mptune.backends.host_compiler import HostCompiler
from mptune.data import Draw, Stream
from mptune.data.data import make_inputs
from mptune.errors import MptuneError
from mptune.kernel import Constant, In, InOut, Kernel, Out, Scalar
from mptune.measure.bench import Bench, Request
from mptune.measure.device import DeviceEvaluator
from mptune.measure.policy import Plan
from mptune.measure.pool import Pool
from mptune.measure.timing import TimingPlan
from mptune.measure.worker import Limits
from mptune.results.objective import Objective
from mptune.results.trial import Status, Trial
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
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
    "shared": (Status.CRASH, "SIGSEGV"),
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


# -- what is compiled before its turn is what is evaluated in its turn, and nothing compiles ---------

COMPILE_AHEAD_PLAN = TimingPlan(warmups=1, min_repeats=3, max_repeats=5, cap_s=0.05)


@pytest.fixture(scope="module")
def compile_ahead_kernel() -> Kernel:
    return load_kernel(Path(__file__).with_name("faulty.py"))


@pytest.mark.full
def test_compilers_are_paused_for_each_timing_and_for_nothing_else(
    compile_ahead_kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []

    @contextmanager
    def counted() -> Iterator[None]:
        pauses.append("begin")
        try:
            yield
        finally:
            pauses.append("end")

    def paused(_: HostCompiler) -> AbstractContextManager[None]:
        return counted()

    monkeypatch.setattr(HostCompiler, "paused", paused)
    faults = [
        compile_ahead_kernel.configuration({"fault": fault}) for fault in ("none", "unwritten", "compile", "segfault")
    ]
    with DeviceEvaluator(
        compile_ahead_kernel,
        compile_ahead_kernel.resolve_sizes(),
        "host",
        plan=COMPILE_AHEAD_PLAN,
        limits=Limits(run_s=10),
        compilers=2,
    ) as evaluator:
        statuses = [
            trial.status for trial in evaluator.evaluate([*faults, compile_ahead_kernel.configuration({"block": 64})])
        ]
    assert statuses == [Status.OK, Status.UNWRITTEN, Status.COMPILE_ERROR, Status.CRASH, Status.OK]
    # The others do not come to their timing.
    assert pauses == ["begin", "end"] * 2


# -- further draws of the inputs: errors are the worst of all, time is spared, and the first ---------

ONCE = TimingPlan(warmups=0, min_repeats=1, max_repeats=1)
UNSEEN = [Draw(Stream.UNSEEN, number) for number in range(4)]

#: Every kind of argument that has values: read, read and written, constant, and passed by value.
DRAWS_TEMPLATE = """
__constant__ {{ type }} weight[4];
extern "C" __global__ void blend(
    {{ type }}* y, {{ type }}* state, const {{ type }}* x, const int* index, {{ type }} a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= {{ n }}) return;
    if (index[i] < 0) { *(volatile int*)nullptr = 1; }
    y[i] = a * x[i] * weight[i % 4];
    state[i] = state[i] + x[i];
}
"""


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch):
    """Further draws take their share of the time, which on a busy machine is soon all there is."""
    monkeypatch.setattr("mptune.measure.policy._DRAWING_S", 1e4)


def inputs(rng, size):
    return {
        "x": rng.uniform(0.5, 1.0, size.n),
        "state": rng.uniform(0.5, 1.0, size.n),
        "weight": rng.uniform(0.5, 1.0, 4),
        "index": np.zeros(size.n, np.int32),
        "a": float(rng.uniform(0.5, 1.0)),
    }


def draws_reference(inputs, size):
    weights = np.resize(inputs["weight"], size.n)
    return {"y": inputs["a"] * inputs["x"] * weights, "state": inputs["state"] + inputs["x"]}


def blend(**changes):
    given = {
        "name": "blend",
        "parameters": [OrdinalParameter("block", [64, 32]), PrecisionParameter("type", ["fp32", "fp16"])],
        "arguments": [
            Out("y", "n", precision="type"),
            InOut("state", "n", precision="type"),
            In("x", "n", precision="type"),
            In("index", "n", dtype="int32"),
            Scalar("a", precision="type"),
            Constant("weight", 4, precision="type"),
        ],
        "sizes": {"default": {"n": 203}},
        "inputs": inputs,
        "reference": draws_reference,
        "grid": ["ceildiv(n, block)"],
        "block": ["block"],
        "template": DRAWS_TEMPLATE,
    }
    return Kernel(**(given | changes))


def bench_of(kernel):
    return Bench(kernel, kernel.resolve_sizes(), get_backend("host"), plan=ONCE)


def request(kernel, plan=None, **values):
    configuration = kernel.configuration({"type": "fp16", **values})
    return Request(configuration, render(kernel, configuration, kernel.resolve_sizes()), plan or Plan())


def error_alone(draw):
    """Return the error of a kernel all of whose inputs are those of a draw."""
    made = dict(make_inputs(blend(), blend().resolve_sizes(), 0, draw))
    kernel = blend(inputs=lambda rng, size: made)
    bench = bench_of(kernel)
    try:
        return bench.evaluate(request(kernel)).error
    finally:
        bench.close()


@pytest.fixture(scope="module")
def alone():
    return {draw: error_alone(draw) for draw in (Draw(), Draw(number=1), Draw(number=2), *UNSEEN)}


@pytest.fixture
def bench():
    found = bench_of(blend())
    yield found
    found.close()


def test_the_error_is_the_worst_over_the_draws_and_the_first_draw_comes_back(bench, alone):
    searched = [alone[Draw(number=number)] for number in range(3)]
    assert len(set(searched)) == 3
    several = bench.evaluate(request(bench.kernel, Plan(draws=3)))
    assert several.error == max(searched)
    assert several.metric("error_mean") == pytest.approx(math.fsum(searched) / 3)
    assert several.metric("error_draws") == 3
    assert several.metric("error_first_draw") == searched[0]
    assert several.metric("error.y") <= several.error
    # What is evaluated next, in the same memory, is on the first draw again.
    one = bench.evaluate(request(bench.kernel))
    assert one.error == searched[0]
    assert "error_draws" not in one.measurement.metrics


def test_unseen_draws_are_checked_alone(bench, alone):
    with bench.keeping_loaded():
        for draw in UNSEEN:
            bench.make(draw)
            for block in (32, 64):
                trial = bench.check_on(request(bench.kernel, block=block), draw)
                assert trial.status is Status.OK
                assert trial.error == alone[draw]
                assert math.isnan(trial.time_ms)


def test_a_failure_on_a_further_draw_is_the_trial_s():
    def large(rng, size):
        given = inputs(rng, size)
        return given | {"x": given["x"] * (1.0 if rng.bit_generator.seed_seq.spawn_key != (0, 2) else 1e6)}

    bench = bench_of(blend(inputs=large))
    trial = bench.evaluate(request(bench.kernel, Plan(draws=3)))
    assert trial.status is Status.NON_FINITE
    assert trial.message.startswith("on input 3: ")
    assert bench.evaluate(request(bench.kernel, Plan(draws=2))).status is Status.OK
    bench.close()
