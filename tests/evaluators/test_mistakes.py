"""A kernel is checked as it is timed, and what it writes where it must not is found, named and put right."""

from __future__ import annotations

import ctypes
import itertools
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated import install
from strict_arrays import Namespace, Strict

from mptune import In, Out, PrecisionParameter
from mptune.backends import BACKENDS, get_backend
from mptune.backends.base import Backend
from mptune.backends.host import HostBackend, HostDevice
from mptune.kernel import InOut, Kernel, Scalar
from mptune.measure import buffers
from mptune.measure.bench import Bench, Request
from mptune.measure.device import DeviceEvaluator
from mptune.measure.policy import Plan
from mptune.measure.rounds import remeasure
from mptune.measure.timing import TimingPlan
from mptune.results.trial import Status, Trial
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.space.parameters import OrdinalParameter

#: One launch is checked, one warms up, three are timed: numbers 0 to 4. The same again in another round.
PLAN = TimingPlan(warmups=1, min_repeats=3, max_repeats=3)
LAST = 4


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return load_kernel(Path(__file__).with_name("mistaken.py"))


@pytest.fixture(scope="module")
def bench(kernel: Kernel) -> Iterator[Bench]:
    made = Bench(kernel, kernel.resolve_sizes(), HostBackend(workers=1), plan=PLAN)
    yield made
    made.close()


def request(bench: Bench, plan: Plan | None = None, **values: Any) -> Request:
    configuration = bench.kernel.configuration({"end": 1000, **values})
    return Request(configuration, render(bench.kernel, configuration, bench.sizes), plan or Plan())


def evaluate(bench: Bench, plan: Plan | None = None, **values: Any) -> Trial:
    return bench.evaluate(request(bench, plan, **values))


KNOWN = {"error": 0.0, "error.y": 0.0, "error.z": 0.0, "log10_error": -math.inf}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"queue": 1}, "the kernel never wrote 1001 of 1001 elements of 'y'"),
        ({"mode": "wrong", "begin": 1}, "error was 0 at first and 0.5 later"),
        ({"mode": "idle", "begin": 1}, "the kernel never wrote 1001 of 1001 elements of 'y'"),
        ({"mode": "nan", "begin": 2}, "output 'y' has NaN or infinity in 1 element, first at index .5."),
        ({"mode": "wrong", "begin": LAST, "end": LAST + 1}, "error was 0 at first and 0.5 later"),
    ],
)
def test_what_is_right_at_first_and_not_as_it_is_timed_is_unstable(
    bench: Bench, values: dict[str, Any], message: str
) -> None:
    trial = evaluate(bench, **values)
    assert trial.status is Status.UNSTABLE, trial
    assert not trial.is_valid
    assert "the results differ from launch to launch" in trial.message
    assert re.search(message, trial.message), trial.message
    assert trial.metric("error_first") < 1e-7
    assert not trial.metric("error_last") < 0.3


def test_every_round_of_the_finalists_is_compared(bench: Bench) -> None:
    own = Plan(KNOWN)
    # The second round begins with launch 4, on poisoned outputs.
    for mode in ("wrong", "idle", "nan", "half"):
        requests = [request(bench, own), request(bench, own, mode=mode, begin=4)]
        *right, bad = sorted(remeasure(bench, requests, rounds=2, visit=PLAN), key=lambda trial: trial.status)
        assert {(each.status, each.error, each.metric("error_spread")) for each in right} == {(Status.OK, 0.0, 0.0)}
        assert len(right) == 3
        assert bad.status is Status.UNSTABLE, mode


def test_launches_that_differ_by_rounding_are_ok_and_their_spread_is_known(bench: Bench) -> None:
    trial = evaluate(bench, mode="rounding", by=2)
    assert trial.status is Status.OK
    assert trial.metric("error_spread") == 0.0
    # Launch 5 is the second of its round, so it is the last where only one is timed.
    own = Plan(KNOWN)
    *_, again = remeasure(bench, [request(bench, own, mode="rounding", by=2)], 2, TimingPlan(1, 1, 1))
    assert again.status is Status.OK
    assert again.error == again.metric("error_spread") == pytest.approx(2.2e-16, rel=0.1)


@pytest.mark.parametrize("begin", [0, 1, LAST])
@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("input", "the kernel changed 'x', which is an input"),
        ("initial", "the kernel changed 'other', which is an input"),
        ("constant", "the kernel changed its constant 'weights'"),
    ],
)
def test_an_input_that_changes_is_corrupt_named_and_restored(bench: Bench, mode: str, message: str, begin: int) -> None:
    trial = evaluate(bench, mode=mode, begin=begin)
    assert trial.status is Status.CORRUPT
    assert message in trial.message
    assert not bench.is_usable(trial)
    after = evaluate(bench)
    assert (after.status, after.error) == (Status.OK, 0.0)


@pytest.mark.full
def test_what_is_written_or_read_far_outside_ends_the_trial_and_no_other(kernel: Kernel) -> None:
    far = [("write", 1 << 15), ("write", 1 << 20), ("write", 1 << 26), ("write", -(1 << 20)), ("read", 1 << 33)]
    whole = kernel.configuration({"mode": "right"})
    with DeviceEvaluator(kernel, kernel.resolve_sizes(), "host", plan=PLAN) as evaluator:
        for mode, by in far:
            fault = kernel.configuration({"mode": mode, "by": by, "end": 1000})
            first, after = evaluator.evaluate([fault, whole])
            assert first.status is Status.CRASH, first
            distance = by - 1001 * 8 if by > 0 else -by
            where = "past the last" if by > 0 else "before the first"
            assert "SIGSEGV" in first.message
            assert f"the kernel reached {distance} bytes {where} element of 'y'" in first.message
            assert (after.status, after.error) == (Status.OK, 0.0)


def test_configurations_of_one_source_are_launched_on_their_own_grids() -> None:
    """Nothing in the source says how many blocks there are: too few leave elements as they are given."""
    kernel = Kernel(
        name="few_blocks",
        parameters=[OrdinalParameter("blocks", [1, 8])],
        arguments=[InOut("y", "n", precision="fp64"), Scalar("n", dtype="int32")],
        sizes={"default": {"n": 8 * 32}},
        inputs=lambda rng, size: {"y": rng.uniform(1, 2, size.n)},
        reference=lambda given, size: {"y": 2 * given["y"]},
        grid=["blocks"],
        block=[32],
        template='extern "C" __global__ void few_blocks(double* y, int n) {\n'
        "    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] *= 2;\n}\n",
    )
    bench = Bench(kernel, kernel.resolve_sizes(), HostBackend(workers=1), plan=PLAN)
    try:
        chosen = [kernel.configuration({"blocks": blocks}) for blocks in (8, 1)]
        both = [Request(each, render(kernel, each, bench.sizes)) for each in chosen]
        assert both[0].source == both[1].source
        alone = [bench.evaluate(each).error for each in both]
        together = {trial.configuration: trial.error for trial in remeasure(bench, both, rounds=2, visit=PLAN)}
        assert [together[each.configuration] for each in both] == alone
        assert alone[0] == 0 < alone[1]
    finally:
        bench.close()


# -- a kernel that leaves its buffers is found out, and the next one has whole data ------------------

GUARDS_PLAN = TimingPlan(warmups=0, min_repeats=2, max_repeats=2)


@pytest.fixture(scope="module")
def guards_kernel() -> Kernel:
    return load_kernel(Path(__file__).with_name("overrunning.py"))


@pytest.fixture
def guards_bench(guards_kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    # Zones differ from one to the next, and a byte that is written as it was there counts as whole: always the same.
    monkeypatch.setattr(buffers, "_guards", itertools.cycle([1]))
    made = Bench(guards_kernel, guards_kernel.resolve_sizes(), HostBackend(workers=1), plan=GUARDS_PLAN)
    yield made
    made.close()


def guards_evaluate(guards_bench: Bench, plan: Plan | None = None, **values: object) -> Trial:
    configuration = guards_bench.kernel.configuration(values)
    return guards_bench.evaluate(
        Request(configuration, render(guards_bench.kernel, configuration, guards_bench.sizes), plan or Plan())
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"fault": "past"}, r"out of bounds of 'y': 8 bytes past its last element \(element 1001 and after\)"),
        ({"fault": "before", "by": 24, "t": "fp32"}, r"'y': 4 bytes before .* \(element -24 and before\)"),
        ({"fault": "input", "by": 1500}, r"'x': 8 bytes past .* \(element 2500 and after\)"),
        ({"fault": "integer"}, r"'labels': 4 bytes past .* \(element 1001 and after\)"),
    ],
)
def test_a_write_out_of_bounds_is_a_corrupt_trial_that_says_where(
    guards_bench: Bench, values: dict[str, object], message: str
) -> None:
    trial = guards_evaluate(guards_bench, **values)
    assert trial.status is Status.CORRUPT
    assert not trial.is_valid
    assert not trial.measurement.times_ms
    assert re.search(message, trial.message), trial.message


@pytest.mark.parametrize("name", ["fp64", "bf16"])
def test_what_comes_of_a_zone_differs_from_what_is_in_it(name):
    """Without a look at the edge a kernel reads beyond its input, and writes what comes of that beyond its output."""
    guards_kernel = Kernel(
        name="relax",
        parameters=[PrecisionParameter("type", [name])],
        arguments=[Out("y", "n", precision="type"), In("x", "n", precision="type")],
        sizes={"default": {"n": 1003}},
        inputs=lambda rng, size: {"x": rng.uniform(size=size.n)},
        reference=lambda inputs, size: 0.9 * inputs["x"] + 0.1,
        grid=["ceildiv(n, 64)"],
        block=[64],
        template="""
extern "C" __global__ void relax({{ type }}* y, const {{ type }}* x) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    y[i] = x[i] + {{ type }}(0.1) * ({{ type }}(1) - x[i]);
}
""",
    )
    with DeviceEvaluator(guards_kernel, guards_kernel.resolve_sizes(), "host") as evaluator:
        (trial,) = evaluator.evaluate([guards_kernel.configuration({})])
    assert trial.status is Status.CORRUPT
    assert "out of bounds of 'y'" in trial.message


# -- where outputs are compared with their references: on the device, on the host where that ---------

OUTPUTS_ON_DEVICE_PLAN = TimingPlan(warmups=0, min_repeats=2, max_repeats=2)


class ArraysDevice(HostDevice):
    """The host with a namespace of arrays as a GPU has one; counts what is read back."""

    def __init__(self) -> None:
        super().__init__(workers=1)
        self.namespace: Any = Namespace()
        self.views = 0

    def array_namespace(self) -> Any:
        return self.namespace

    def array(self, buffer: Any, dtype: np.dtype[Any]) -> Any:
        self.views += 1
        return Strict(np.frombuffer((ctypes.c_char * buffer.nbytes).from_address(buffer.address), dtype))


class Arrays(HostBackend):
    """Runs kernels on the host, and compares their outputs there with the arrays of the device."""

    shares_memory = False
    device: ArraysDevice

    def __init__(self) -> None:
        super().__init__()
        self.device = ArraysDevice()


@pytest.fixture(scope="module")
def outputs_on_device_kernel() -> Kernel:
    return load_kernel(Path(__file__).with_name("overrunning.py"))


def outputs_on_device_evaluate(
    backend: Backend, outputs_on_device_kernel: Kernel, metric: str | Callable[..., float] = "MaxAE", **values: Any
) -> Trial:
    bench = Bench(
        outputs_on_device_kernel,
        outputs_on_device_kernel.resolve_sizes(),
        backend,
        metric=metric,
        plan=OUTPUTS_ON_DEVICE_PLAN,
    )
    configuration = outputs_on_device_kernel.configuration(values)
    trial = bench.evaluate(Request(configuration, render(outputs_on_device_kernel, configuration, bench.sizes)))
    bench.close()
    return trial


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (
            lambda function: lambda *given, **named: function(*given, **named) * 1.001,
            "MetricError: the MaxAE of float64",
        ),
    ],
)
def test_a_namespace_that_does_not_work_here_is_told_of_and_not_used(
    outputs_on_device_kernel: Kernel, wrong: Callable[[Any], Any], reason: str
) -> None:
    class Broken(Namespace):
        def __getattr__(self, name: str) -> Any:
            function = super().__getattr__(name)
            return wrong(function) if name == "abs" else function

    backend = Arrays()
    backend.device.namespace = Broken()
    bench = Bench(
        outputs_on_device_kernel,
        outputs_on_device_kernel.resolve_sizes(),
        backend,
        metric="MaxAE",
        plan=OUTPUTS_ON_DEVICE_PLAN,
    )
    told = bench.ready.unavailable["comparing outputs on the device"]
    assert told.startswith(reason)
    assert told.endswith("they are compared on the host")
    bench.close()
    assert outputs_on_device_evaluate(backend, outputs_on_device_kernel).status is Status.OK
    assert backend.device.views == 0


@pytest.mark.full
@pytest.mark.parametrize("is_simulated", [True, pytest.param(False, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", ["cuda", "hip"])
def test_errors_guards_and_poison_on_a_device(
    outputs_on_device_kernel: Kernel, monkeypatch: pytest.MonkeyPatch, name: str, is_simulated: bool
) -> None:
    if is_simulated:
        install(monkeypatch, name)
    elif not (found := BACKENDS[name].availability()).can_run:
        pytest.skip(found.reason)
    backend = get_backend(name)
    for t in ("fp16",) if is_simulated else ("fp64", "fp32", "fp16"):
        there, here = (
            outputs_on_device_evaluate(backend, outputs_on_device_kernel, "NRMSE", t=t),
            outputs_on_device_evaluate(HostBackend(workers=1), outputs_on_device_kernel, "NRMSE", t=t),
        )
        assert there.status is Status.OK
        assert there.error == pytest.approx(here.error, rel=1e-12)
    for fault, status in (("past", "corrupt"), ("input", "corrupt"), ("none", "ok"), ("read", "non_finite")):
        assert outputs_on_device_evaluate(backend, outputs_on_device_kernel, fault=fault).status == status
